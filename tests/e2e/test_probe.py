# SPDX-License-Identifier: GPL-3.0-or-later
"""At night, without a user: an analysis that asks the new instances itself."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from ansible_collections.progressive.rollout.tests.support.shared import Shared
from ansible_collections.progressive.rollout.tests.support.shop import BehindHAProxy, Shop
from ansible_collections.progressive.rollout.tests.support.waiting import until

ANALYSIS = {
    "interval": "1s",
    "count": 4,
    "probe": {"http": "/", "interval": "20ms"},
    "metrics": [
        {
            "name": "errors",
            "success_condition": "result.new.requests > 20 and result.new.error_rate < 0.05",
        }
    ],
}
CANARY = {
    "rollout_strategy": "canary",
    "rollout_steps": [{"set_weight": 20}, {"analysis": ANALYSIS}],
}


@contextmanager
def made_shop() -> Iterator[Shop]:
    front = BehindHAProxy()
    try:
        with Shop(front) as shop:
            shop.to("1")
            yield shop
    finally:
        front.close()


@pytest.fixture(scope="module")
def shops() -> Iterator[Shared[Shop]]:
    with Shared(made_shop) as shops:
        yield shops


@pytest.fixture
def shop(shops: Shared[Shop], request: pytest.FixtureRequest) -> Iterator[Shop]:
    with shops.lend(request) as shop:
        yield shop


def asked(shop: Shop) -> int:
    """How many requests came to all instances."""
    places = [(record["address"], record["port"]) for record in shop.living()]
    return sum(
        int(urllib.request.urlopen(f"http://{address}:{port}/requests", timeout=5).read())
        for address, port in places
    )


def test_a_bad_one_is_taken_back_and_the_stable_ones_are_not_asked(shop: Shop) -> None:
    platform = shop.variables["rollout_platform"]
    bad = {**platform, "env": {**platform["env"], "FAIL_EVERY": "10"}}
    outcome = shop.run(variables={"rollout_revision": "2", "rollout_platform": bad, **CANARY})
    assert outcome.rc != 0 and "1 failed > failure_limit 0" in outcome.failed.msg, outcome.output
    shop.settled("1")
    assert asked(shop) == 0


def test_a_good_one_is_promoted_and_not_asked_any_more(shop: Shop) -> None:
    shop.to("2", **CANARY)
    shop.settled("2")
    before = asked(shop)
    assert before > 80
    until(lambda: asked(shop) == before, "nobody asks")
