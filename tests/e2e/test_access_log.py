# SPDX-License-Identifier: GPL-3.0-or-later
"""A revision with a slow tail, under load: each load balancer's own access log shows it."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Iterator

import pytest
from ansible_collections.progressive.rollout.tests.support.shop import (
    BehindEnvoy,
    BehindHAProxy,
    BehindNginx,
    Load,
    Shop,
    failures,
)

FRONTS = {"haproxy": BehindHAProxy, "envoy": BehindEnvoy, "nginx": BehindNginx}
# nginx keeps no idle connection of a client over a reload
KINDS = {"nginx": (("GET", False), ("GET", False))}
RATE = 200  # requests a second, of each kind of client
LATENCY = {"name": "latency", "driver": "access_log", "warm_up": 0}
ERRORS = {"name": "errors", "driver": "access_log", "of": "errors"}
SIZE = {"name": "size", "driver": "access_log", "of": "small_answers", "alpha": 0.001}
ANALYSIS = {"interval": "1s", "metrics": [LATENCY, ERRORS, SIZE]}


class Rollout(t.NamedTuple):
    """How a canary ended."""

    outcome: t.Any
    reports: list[dict[str, t.Any]]


@pytest.fixture(params=FRONTS)
def shop(request: pytest.FixtureRequest) -> Iterator[Shop]:
    front = FRONTS[request.param]()
    traffic = {**front.traffic, "access_log": front.access_log}
    with Shop(
        front,
        env={"START_DELAY": "0.2"},
        rollout_traffic=traffic,
        rollout_budget={"max_surge": 6, "max_unavailable": 0},
    ) as shop:
        shop.to("1")
        yield shop
    front.close()


def canary(shop: Shop, revision: str, count: int, **env: str) -> Rollout:
    """Give a revision half of the requests, and measure it so many times."""
    platform = shop.variables["rollout_platform"]
    variables = {
        "rollout_revision": revision,
        "rollout_strategy": "canary",
        "rollout_steps": [{"set_weight": 50}, {"analysis": {**ANALYSIS, "count": count}}],
        "rollout_platform": {**platform, "env": {**platform["env"], **env}},
    }
    kinds = KINDS.get(shop.variables["rollout_traffic"]["driver"], (("GET", True), ("GET", False)))
    with Load(shop.fronts[0].url, kinds, connections=4, rate=RATE) as load:
        outcome = shop.run(variables=variables)
        return Rollout(outcome, load.stop())


def test_a_slow_tail_is_taken_back_and_a_good_revision_promoted(shop: Shop) -> None:
    bad = canary(shop, "2", 60, SLOW_EVERY="20")
    assert bad.outcome.rc != 0, bad.outcome.output
    assert "latency slowest " in bad.outcome.failed.msg, bad.outcome.failed.msg
    assert failures(bad.reports) == []
    shop.settled("1")
    good = canary(shop, "3", 12)
    assert good.outcome.rc == 0, good.outcome.output
    assert "latency slowest " in good.outcome.output and "errors 0 of " in good.outcome.output
    assert re.search(r"small answers 0 of [1-9]\S* against 0 of [1-9]", good.outcome.output)
    assert failures(good.reports) == []
    shop.settled("3")
