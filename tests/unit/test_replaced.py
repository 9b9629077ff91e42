# SPDX-License-Identifier: GPL-3.0-or-later
"""How many instances a rollout says that it has replaced: those that ran when it began."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.report.messages import ended
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.record import Record
from ansible_collections.progressive.rollout.tests.support.memory import Service, World

pytestmark = pytest.mark.usefixtures("virtual_time")

CANARY = {"strategy": "canary", "steps": [{"set_weight": 25}, {"set_weight": 50}]}
BLUE_GREEN = {"strategy": "blue_green", "hold": 0}
CASES: list[tuple[int, int, dict[str, t.Any], str]] = [
    (6, 6, {}, "6 instances replaced in"),
    (9, 3, {}, "9 instances replaced by 3 in"),
    (6, 9, {}, "6 instances replaced by 9 in"),
    (8, 8, CANARY, "8 instances replaced in"),
    (9, 3, CANARY, "9 instances replaced by 3 in"),
    (6, 9, CANARY, "6 instances replaced by 9 in"),
    (9, 3, BLUE_GREEN, "9 instances replaced by 3 in"),
    (6, 9, BLUE_GREEN, "6 instances replaced by 9 in"),
    (1, 2, {}, "1 instance replaced by 2 in"),
]


def service() -> Service:
    return Service(World(fewest=0, most=99))


@pytest.mark.parametrize(("before", "after", "plan", "told"), CASES)
def test_so_many_are_replaced(before: int, after: int, plan: dict[str, t.Any], told: str) -> None:
    shop = service()
    shop.play(revision="1", replicas=before)
    assert f"promoted: {before} instance" in shop.said[-1] and "replaced" not in shop.said[-1]
    result = shop.play(revision="2", replicas=after, **plan)
    assert f"shop 2 promoted: {told} " in shop.said[-1]
    assert result["rollout"]["replaced"] == before


def test_an_instance_that_ended_by_itself_was_replaced_too() -> None:
    shop = service()
    shop.play(revision="1", replicas=4)
    ends = iter(list(shop.world.instances)[:1])

    def end(call: str) -> None:
        if call == "sync before" and len(shop.world.instances) > 5 and (name := next(ends, "")):
            del shop.world.instances[name]

    shop.world.fails = end
    shop.play(revision="2", replicas=4)
    assert "promoted: 4 instances replaced in" in shop.said[-1]


def test_scaling_says_what_there_is() -> None:
    shop = service()
    shop.play(revision="1", replicas=4)
    shop.play(revision="1", replicas=2)
    assert "shop 1 scaled: 2 instances in" in shop.said[-1]


def test_a_load_balancer_that_lost_its_servers_is_repaired() -> None:
    """Nothing is scaled where as many run as before."""
    shop = service()
    shop.play(revision="1", replicas=2)
    shop.world.servers.clear()
    shop.play(revision="1", replicas=2)
    assert "shop 1 repaired: 2 instances in" in shop.said[-1]
    assert not any("scaling" in line for line in shop.said)


def test_a_journal_of_an_earlier_version_has_the_number_of_those_taken_out() -> None:
    shop = service()
    shop.play(revision="1", replicas=2)
    shop.play(revision="2", replicas=2)
    kept = shop.journal.dump()
    del kept["rollout"]["ran"]
    rollout = Record.load("shop", kept).rollout
    assert rollout and "2 instances replaced" in ended("shop", rollout)
