# SPDX-License-Identifier: GPL-3.0-or-later
"""Targets and one instance on each host, in a simulated world. Behind a load balancer in each
region: tests/e2e/test_regions.py.
"""

from __future__ import annotations

import typing as t
from collections import Counter
from collections.abc import Iterator

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    InputError,
    RolloutFailed,
)
from ansible_collections.progressive.rollout.tests.simulations.world.drivers import Platform
from ansible_collections.progressive.rollout.tests.support.simulated_shop import (
    CANARY,
    SimulatedShop,
    simulated_shop,
)

GATE = {"driver": "simulated", "answer": "fail"}
REGIONS: list[dict[str, t.Any]] = [
    {"name": "eu", "hosts": "web1"},
    {"name": "us", "hosts": "web2"},
    {"name": "ap", "hosts": "web3", "factor": 2},
]
HOME = {region["hosts"]: region["name"] for region in REGIONS}


@pytest.fixture
def shop() -> Iterator[SimulatedShop]:
    """Eight instances in three regions, one of which has twice as many."""
    budget = {"max_surge": 2, "max_unavailable": 0}
    with simulated_shop(replicas=6, budget=budget, targets=REGIONS) as made:
        made.to("1")
        made.world.floor = made.world.wanted = 7  # on a way back
        yield made


def regions(shop: SimulatedShop) -> Counter[tuple[str, str]]:
    """How many instances of each revision live in each region."""
    of = (one.labels for one in shop.world.alive())
    return Counter((HOME[labels.host], labels.revision) for labels in of)


def all_of(revision: str) -> dict[tuple[str, str], int]:
    return {("eu", revision): 2, ("us", revision): 2, ("ap", revision): 4}


def order(shop: SimulatedShop, revision: str) -> list[str]:
    """The regions in which a revision became ready, in order."""
    ready = [
        HOME[event["host"]]
        for event in shop.timeline("state")
        if event["state"] == "ready" and event["revision"] == revision
    ]
    return list(dict.fromkeys(ready))


def test_one_region_after_the_other_and_all_back(shop: SimulatedShop) -> None:
    assert regions(shop) == all_of("1")
    shop.to("2")
    assert regions(shop) == all_of("2") and order(shop, "2") == ["eu", "us", "ap"]
    failing = [REGIONS[0], {**REGIONS[1], "gates": [GATE]}, REGIONS[2]]
    with pytest.raises(RolloutFailed, match="now rolled back to 2"):
        shop.to("3", targets=failing)
    assert regions(shop) == all_of("2")
    assert order(shop, "3") == ["eu", "us"], "it was in two regions, and never in the third"


def test_a_region_without_room_is_refused_before_anything_is_touched(
    shop: SimulatedShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Platform, "capacity", lambda _self, among=None: 5 * len(among or HOME))
    before = shop.world.texts["record"]
    message = r"target ap: 1 host with room for 5 instances, but rollout_replicas 6 .*needs 6 there"
    with pytest.raises(InputError, match=message) as refused:
        shop.to("2")
    assert refused.value.id == "PR-202"
    assert shop.world.texts["record"] == before and regions(shop) == all_of("1")


def test_one_instance_on_each_host_at_one_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """A canary of some of the hosts; another number, and instances beside others, are refused."""
    monkeypatch.setattr(Platform, "capacity", lambda _self, among=None: len(among or HOME))
    given = {"replicas": "per_host", "budget": {"max_surge": 0, "max_unavailable": 1}}
    with simulated_shop(**given) as shop:
        shop.world.one_a_host = True
        with pytest.raises(InputError, match=r"set rollout_budget\.max_surge to 0"):
            shop.to("1", budget={"max_surge": 1})
        shop.to("1")
        assert [shop.on(host) for host in HOME] == [1, 1, 1]
        shop.to("2", **CANARY)
        assert shop.running == {"1": 2, "2": 1} and [shop.on(host) for host in HOME] == [1, 1, 1]
        with pytest.raises(InputError, match="one instance on each host"):
            shop.scale("2", 3)
        shop.send("promote", **CANARY, revision="2")
        assert shop.running == {"2": 3} and [shop.on(host) for host in HOME] == [1, 1, 1]
