# SPDX-License-Identifier: GPL-3.0-or-later
"""How many new instances may fail: in a row, in a group of a canary, and in the whole rollout.
Each rollout is a whole one.
"""

from __future__ import annotations

import typing as t
from collections.abc import Iterable

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    InputError,
    RolloutFailed,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.config import variables
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.budget import Percent
from ansible_collections.progressive.rollout.tests.support.memory import Service, World

pytestmark = pytest.mark.usefixtures("virtual_time")

SIZE = 8


@pytest.fixture
def shop() -> Service:
    """Eight instances of revision 1."""
    service = Service(World(most=SIZE + 1, fewest=0), replicas=SIZE)
    service.play(revision="1")
    service.world.fewest = SIZE
    return service


def crash(shop: Service, numbers: Iterable[int]) -> None:
    """Let the starts with these numbers fail, counted from now on, from 1."""
    before, failing = shop.journal.serial, set(numbers)
    shop.world.crashes = lambda labels: int(labels.id.rpartition("-")[2]) - before in failing


def groups(size: int, cycles: int, allowed: int, **more: t.Any) -> dict[str, t.Any]:
    return {
        "strategy": "canary",
        "steps": {"group_size": size, "cycles": cycles, "allowed_failures": allowed, **more},
    }


def test_what_may_fail_in_a_group_is_not_made_good_by_others_that_work(shop: Service) -> None:
    # Every second start fails; the new ones that work are progress, and two of the group have
    # failed.
    crash(shop, range(2, 40, 2))
    with pytest.raises(
        RolloutFailed, match=r"2 .* in this stage \(allowed_failures 1\). Last: shop-12"
    ):
        shop.play(revision="2", **groups(4, 1, 1))
    assert shop.running == {"1": SIZE} and (shop.journal.rollout or pytest.fail()).failed == 2
    said = " ".join(shop.said)
    assert "shop 2 rolled back to 1 after" in said and ", 2 starts failed" in said, said


def test_each_group_has_its_own_allowance(shop: Service) -> None:
    # One of two in each of three groups, and one of the last.
    crash(shop, [2, 4, 7, 10])
    shop.play(revision="2", **groups(2, 3, 1))
    assert shop.running == {"2": SIZE}
    assert ": 8 instances replaced, 4 starts failed, in " in shop.said[-1]


def test_more_may_fail_in_a_group_than_in_a_row(shop: Service) -> None:
    crash(shop, [1, 2, 3, 4])
    shop.play(revision="2", **groups(2, 1, 4), failure_limit=2)
    assert shop.running == {"2": SIZE}


def test_in_all_it_is_counted_from_stage_to_stage(shop: Service) -> None:
    # One fails in each group, which each may; the third of them is one too many in all.
    crash(shop, [1, 3, 5])
    given = groups(1, 3, 1, acceptance="checks", gates=[{"driver": "approval"}])
    limited = {"revision": "2", **given, "failure_limit": {"total": 3}}
    for _group in (1, 2):
        assert shop.play(**limited)["parked"]  # each in a run of its own
        shop.say("promote")
    with pytest.raises(RolloutFailed, match=r"3 .*\(rollout_failure_limit\.total 3\)"):
        shop.play(**limited)
    assert shop.running == {"1": SIZE}


def test_in_all_it_may_be_a_part_of_the_replicas(shop: Service) -> None:
    crash(shop, range(2, 40, 2))
    shop.play(revision="2")
    assert (
        shop.running == {"2": SIZE}
        and ": 8 instances replaced, 7 starts failed, in " in shop.said[-1]
    )
    crash(shop, range(2, 40, 2))
    with pytest.raises(RolloutFailed, match=r"2 .*\(rollout_failure_limit\.total 2\)"):
        shop.play(revision="3", failure_limit={"total": "25%"})
    assert shop.running == {"2": SIZE}


def test_who_lets_it_go_on_pardons_what_failed(shop: Service) -> None:
    crash(shop, [1, 2])
    limited = {"revision": "2", "failure_limit": {"total": 2}, "on_failure": "hold"}
    with pytest.raises(RolloutFailed, match="held"):
        shop.play(**limited)
    shop.play(**limited)
    assert shop.running == {"2": SIZE} and ", 2 starts failed, in " in shop.said[-1]


def test_the_way_back_is_not_bound_by_what_failed_before_it(shop: Service) -> None:
    crash(shop, [3, 4, 5])
    with pytest.raises(RolloutFailed, match=r"\(rollout_failure_limit 3\)"):
        shop.play(revision="2", failure_limit={"total": 3})
    assert shop.running == {"1": SIZE} and (shop.journal.rollout or pytest.fail()).failed == 3


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (3, (3, None)),
        ("5", (5, None)),
        ({}, (3, None)),
        ({"in_a_row": 2}, (2, None)),
        ({"total": 7}, (3, 7)),
        ({"in_a_row": "4", "total": "25%"}, (4, Percent(25))),
    ],
)
def test_how_it_is_written(given: t.Any, expected: tuple[int, t.Any]) -> None:
    assert variables.failures(given, "rollout_failure_limit") == expected


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (0, "rollout_failure_limit: 0 is too small"),
        (2.5, "rollout_failure_limit: 2.5 is not a whole number"),
        ("25%", "rollout_failure_limit: '25%' is not a whole number.*total: 25%"),
        ({"total": 0}, "rollout_failure_limit.total: 0 is too small"),
        ({"total": "0%"}, "rollout_failure_limit.total: 0% is too small"),
        ({"total": 0.5}, "rollout_failure_limit.total: 0.5 is not a whole number"),
        ({"in_a_row": 0}, "rollout_failure_limit.in_a_row: 0 is too small"),
        (
            {"in_row": 3},
            (
                "rollout_failure_limit.in_row: unknown option; did you mean"
                " rollout_failure_limit.in_a_row"
            ),
        ),
    ],
)
def test_what_is_refused(given: t.Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        variables.failures(given, "rollout_failure_limit")
