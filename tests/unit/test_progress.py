# SPDX-License-Identifier: GPL-3.0-or-later
"""The lines that show how far a rollout is: what they say, and when."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import (
    Composition,
    Instance,
    Phase,
    Rotation,
    State,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import (
    Gate,
    Groups,
    Plan,
    Stage,
    Step,
    Waypoint,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.report.progress import (
    Heading,
    Lines,
    clock,
    describe,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.record import (
    Rollout,
    RolloutKind,
)

CANARY = Plan("canary", steps=tuple(Step(f"step {n}", weight=25 * n) for n in range(1, 5)))
HALF = Stage("step 2", Waypoint(2, 3, 6, 6, weight=50))
ALL = Stage("replace", Waypoint(2, 6, 0, 6))


def rollout(strategy: str = "canary", **given: t.Any) -> Rollout:
    before = given.pop("previous", Composition("1", 1, 6))
    return Rollout("id", "2", 2, 6, strategy, before, started=0.0, **given)


def some(count: int, generation: int = 2, state: State = State.READY) -> list[Instance]:
    where = Rotation.IN if state is State.READY else Rotation.ABSENT
    return [
        Instance(
            f"{generation}-{state}-{n}",
            str(generation),
            generation,
            state,
            rotation=where,
            lb_healthy=True,
            weight=1,
        )
        for n in range(count)
    ]


def heading(given: Rollout, stage: Stage = ALL, plan: Plan = Plan()) -> str:  # noqa: B008
    found = Heading.of("shop", given, stage, plan)
    return "  ".join(word for word in (found.title, found.stage) if word)


def said(*fleets: list[Instance], every: float = 5.0, **given: t.Any) -> list[str]:
    """Return the lines of a stage with these fleets, one after the other."""
    found: list[str] = []
    lines = Lines(found.append, "shop 2", 0.0, Heading("shop 1 -> 2"), **given)
    for number, fleet in enumerate(fleets):
        lines.show(fleet, ALL.waypoint, 0, number * every)
    return found


def test_a_stage_after_a_long_wait_goes_on_with_the_time_and_shows_what_changes() -> None:
    found: list[str] = []
    lines = Lines(found.append, "shop 2", 0.0, Heading("shop 1 -> 2"))
    for number in range(1, 4):
        lines.show(some(number), ALL.waypoint, 0, 7200.0 + 2 * number)
    assert [line.split()[-1] for line in found] == ["2:00:02", "2:00:04", "2:00:06"]


# -- what a rollout does ---------------------------------------------------------------------------


def test_a_line_begins_with_both_revisions() -> None:
    assert heading(rollout("rolling")) == "shop 1 -> 2"


def test_a_step_is_numbered_and_has_its_weight() -> None:
    assert heading(rollout(), HALF, CANARY) == "shop 1 -> 2  step 2/4 50 %"


def test_a_gate_is_a_step_of_its_own_in_a_list() -> None:
    steps = (Step("step 1", weight=50, gates=(Gate("step 2 pause", "pause"),)),)
    stage = Stage("step 1", HALF.waypoint)
    assert heading(rollout(), stage, Plan("canary", steps=steps)) == "shop 1 -> 2  step 1/2 50 %"


def test_the_number_of_a_step_comes_before_its_own_name() -> None:
    steps = (Step("step 1 a few", weight=20), Step("step 2", weight=50))
    stage = Stage("step 1 a few", HALF.waypoint)
    found = heading(rollout(), stage, Plan("canary", steps=steps))
    assert found == "shop 1 -> 2  step 1/2 a few 50 %"


def test_a_first_deployment_has_no_steps() -> None:
    assert heading(rollout(previous=None), ALL, CANARY) == "shop 2"


def test_a_step_without_a_weight_has_none() -> None:
    grown = Stage("step 2", Waypoint(2, 3, 6, 6))
    assert heading(rollout(), grown, CANARY) == "shop 1 -> 2  step 2/4"


def test_groups_are_counted_for_the_number_of_replicas() -> None:
    assert heading(
        rollout(), Stage("group 2", HALF.waypoint), Plan("canary", steps=Groups(2, 2))
    ) == ("shop 1 -> 2  group 2/3 50 %")


def test_another_stage_has_its_name() -> None:
    switch = Stage("switch", Waypoint(2, 6, 6, 6, weight=100))
    assert heading(rollout("blue_green"), switch, Plan("blue_green")) == "shop 1 -> 2  switch"


@pytest.mark.parametrize(
    ("given", "title"),
    [
        ({"previous": None}, "shop 2"),
        ({"kind": RolloutKind.SCALE, "previous": Composition("2", 2, 4)}, "shop 2 scaling to 6"),
        ({"kind": RolloutKind.SCALE, "previous": Composition("2", 2, 6)}, "shop 2 repairing"),
        ({"kind": RolloutKind.RESTART}, "shop 2 restarting"),
        ({"kind": RolloutKind.REBALANCE}, "shop 2 rebalancing"),
        ({"kind": RolloutKind.ROLLBACK}, "shop rolling back 1 -> 2"),
        ({"phase": Phase.ROLLING_BACK}, "shop rolling back 2 -> 1"),
        ({"phase": Phase.ROLLING_BACK, "previous": None}, "shop removing 2"),
    ],
)
def test_a_line_says_what_the_rollout_does(given: dict[str, t.Any], title: str) -> None:
    assert heading(rollout("rolling", **given)) == title


# -- the counts ------------------------------------------------------------------------------------


def test_counts_of_new_and_old() -> None:
    fleet = [*some(3), *some(1, state=State.STARTING), *some(3, 1)]
    assert describe(fleet, ALL.waypoint, Heading("")) == (
        "new 3/6 ready (1 starting)  old 3  traffic 50 %"
    )


def test_a_rollback_calls_instances_by_their_revisions() -> None:
    back = Heading.of(
        "shop", rollout(phase=Phase.ROLLING_BACK), Stage("back", ALL.waypoint), CANARY
    )
    fleet = [*some(4, 1), *some(2)]
    assert describe(fleet, Waypoint(1, 6, 0, 6), back) == "1: 4/6 ready  2: 2  traffic 67 % to 1"


def test_what_is_compared_with_is_not_called_new() -> None:
    fleet, point = [*some(3), *some(1, 3)], Waypoint(3, 2, 3, 5, baseline=3)
    found = Heading.of("shop", rollout(), Stage("baseline", point), CANARY)
    assert describe(fleet, point, found).startswith("baseline 1/2 ready  old 3")
    assert describe(fleet, Waypoint(2, 2, 3, 5, baseline=3), Heading("")).startswith(
        "new 3 ready of 2 wanted  old 1"
    )


def test_failed_ones_of_earlier_attempts_are_left_out() -> None:
    fleet = [*some(1), *some(3, state=State.FAILED)]
    assert "(2 failed)" in describe(fleet, ALL.waypoint, Heading(""), failed=2)
    assert "failed" not in describe(fleet, ALL.waypoint, Heading(""))


def test_nothing_is_said_of_traffic_that_nothing_gets() -> None:
    assert "traffic" not in describe(some(2, state=State.STARTING), ALL.waypoint, Heading(""))


# -- time ------------------------------------------------------------------------------------------


def test_clock() -> None:
    assert [clock(seconds) for seconds in (0, 59.6, 72, 3600, 3672)] == [
        "00:00",
        "01:00",
        "01:12",
        "1:00:00",
        "1:01:12",
    ]


def test_the_time_left_is_forecast_anew_at_each_line_and_an_overrun_is_told() -> None:
    expected = iter([14.0, 9.0, 4.0, 3.0, 1.2, 0.0])
    lines = said(*(some(n) for n in range(6)), expected=lambda _fleet: next(expected))
    assert [line.rpartition("  ")[2] for line in lines] == [
        "00:00, about 14 s left",
        "00:05, about 9 s left",
        "00:10, about 4 s left",
        "00:15, about 3 s left, longer than expected by 4 s",
        "00:20, about 1 s left, longer than expected by 7 s",
        "00:25, longer than expected by 11 s",
    ]


def test_nothing_is_expected_of_what_is_not_known() -> None:
    assert not any("left" in line for line in said(some(1), some(2)))


def test_the_expectation_is_of_the_fleet_as_it_is() -> None:
    seen: list[int] = []
    said(some(1), some(2), expected=lambda fleet: seen.append(len(fleet)))
    assert seen == [1, 2]


def test_the_same_line_is_not_repeated_at_once() -> None:
    assert len(said(some(1), some(1), some(1), some(1), some(1), every=5.0)) == 2
