# SPDX-License-Identifier: GPL-3.0-or-later
"""A revision that logs an error that stable does not log, under load: it is named with an example,
and taken back where that was asked.
"""

from __future__ import annotations

import sys
import typing as t
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from ansible_collections.progressive.rollout.tests.support.playbook import APP
from ansible_collections.progressive.rollout.tests.support.shared import Shared
from ansible_collections.progressive.rollout.tests.support.shop import (
    BehindHAProxy,
    Load,
    Shop,
    failures,
)

KINDS = (("GET", True), ("GET", False))
RATE = 50  # requests a second, of each kind of client
OLD = 'echo "ERROR both: order $$ is late"'
NEW = 'echo "ERROR cart: cannot load item $$, password=hunter2 \x1b[31m"'
METRIC = {"name": "new-errors", "driver": "instance_log"}


def program(*lines: str) -> list[str]:
    """The command of an instance that serves, and logs these lines until it ends."""
    script = f'while sleep 0.1 && kill -0 $$; do {"; ".join(lines)}; done & exec "$0" "$@"'
    return ["/bin/sh", "-c", script, sys.executable, "-I", "-S", str(APP)]


@contextmanager
def made_shop() -> Iterator[Shop]:
    front = BehindHAProxy()
    with Shop(front, rollout_budget={"max_surge": 6, "max_unavailable": 0}) as shop:
        shop.variables["rollout_platform"]["command"] = program(OLD)
        shop.to("1")
        yield shop
    front.close()


@pytest.fixture(scope="module")
def shops() -> Iterator[Shared[Shop]]:
    with Shared(made_shop) as shops:
        yield shops


@pytest.fixture
def shop(shops: Shared[Shop], request: pytest.FixtureRequest) -> Iterator[Shop]:
    with shops.lend(request) as shop:
        yield shop


def canary(shop: Shop, revision: str, count: int, *lines: str, **rules: t.Any) -> t.Any:
    """Give a revision that logs these lines half of the requests, and measure it so many times."""
    platform = {**shop.variables["rollout_platform"], "command": program(*lines)}
    metrics = [{"name": "errors"}, {**METRIC, **rules}]
    analysis = {"interval": "1s", "count": count, "metrics": metrics}
    variables = {
        "rollout_revision": revision,
        "rollout_strategy": "canary",
        "rollout_steps": [{"set_weight": 50}, {"analysis": analysis}],
        "rollout_platform": platform,
    }
    with Load(shop.fronts[0].url, KINDS, connections=2, rate=RATE) as load:
        outcome = shop.run(variables=variables)
        assert failures(load.stop()) == []
    return outcome


def verdict(shop: Shop) -> dict[str, t.Any]:
    """The last one: an analysis may have begun again, on a busy machine."""
    timeline = shop.timeline(shop.journal()["rollout"]["id"])
    verdicts = [event for event in timeline if event["kind"] == "verdict"]
    return t.cast("dict[str, t.Any]", verdicts[-1])


def assert_named(text: str) -> None:
    """The message of the new instances, once, and nothing else of their logs."""
    assert "1 error message of new instances only: " in text, text
    assert "ERROR cart: cannot load item " in text and "password=***" in text
    assert "hunter2" not in text and "\x1b" not in text and "both" not in text


def test_a_new_error_message_is_named_and_promoted_and_taken_back_where_asked(shop: Shop) -> None:
    told = canary(shop, "2", 12, OLD, NEW)
    assert told.rc == 0, told.output
    assert_named(str(verdict(shop)))
    assert "cannot load item" in told.output and "hunter2" not in told.output
    shop.settled("2")
    shop.to("1")  # the old instances of the next rollout do not know the message
    failed = canary(shop, "3", 60, OLD, NEW, failure="any")
    assert failed.rc != 0, failed.output
    assert_named(failed.failed.msg)
    shop.settled("1")
    good = canary(shop, "4", 12, OLD, failure="any")
    assert good.rc == 0, good.output
    assert "no error message that only new instances log" in str(verdict(shop))
    shop.settled("4")
