# SPDX-License-Identifier: GPL-3.0-or-later
"""The lists of stages: other systems' plans as vectors, and what holds for every list."""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.budget import (
    Budget,
    Percent,
    ResolvedBudget,
    up,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.ramp import (
    geometric,
    linear,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.ramp import (
    steps as ramp_steps,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import (
    FINISH,
    LISTS,
    PARTS,
    PROMOTE,
    REPLACE,
    Gate,
    Groups,
    InvalidSteps,
    Plan,
    RolloutTarget,
    Stage,
    Step,
    Waypoint,
    peak,
    stages,
)
from ansible_collections.progressive.rollout.tests.simulations.world.walks import Walks
from ansible_collections.progressive.rollout.tests.support.seeds import examples
from hypothesis import given, reject
from hypothesis import strategies as st

TWO = Gate("two", "approval")


def goal(
    desired: int, surge: int = 1, unavailable: int = 0, before: int | None = None
) -> RolloutTarget:
    return RolloutTarget(
        2,
        desired,
        ResolvedBudget(surge, unavailable),
        desired if before is None else before,
        stable=1,
    )


def weights(*percent: int) -> Plan:
    return Plan(
        "canary", tuple(Step(f"step {n}", weight=weight) for n, weight in enumerate(percent, 1))
    )


def numbers(listed: tuple[Stage, ...]) -> list[tuple[int, int, int | None]]:
    return [(stage.waypoint.new, stage.waypoint.old, stage.waypoint.weight) for stage in listed]


def shape(listed: tuple[Stage, ...]) -> list[tuple[str, str, list[str]]]:
    return [(stage.name, stage.part, [gate.key for gate in stage.gates]) for stage in listed]


# Vectors
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("desired", "percent", "plan"),
    [
        (10, [20, 40], [(2, 9), (4, 7)]),
        (10, [80], [(8, 3)]),
        (5, [20, 40], [(1, 5), (2, 4)]),
        (3, [1], [(1, 3)]),
        (1, [1, 20, 40, 80, 100], [(1, 1)] * 4 + [(1, 0)]),
        (10, [1, 25, 50, 99, 100], [(1, 10), (3, 8), (5, 6), (10, 1), (10, 0)]),
        (4, [25, 50, 75], [(1, 4), (2, 3), (3, 2)]),
    ],
)
def test_cloud_foundrys_canary_plans(
    desired: int, percent: list[int], plan: list[tuple[int, int]]
) -> None:
    steps = tuple(Step(f"step {n}", instances=weight) for n, weight in enumerate(percent, 1))
    listed = stages(Plan("canary", steps), goal(desired))
    assert [(new, old) for new, old, _share in numbers(listed)] == [*plan, (desired, 0)]


@pytest.mark.parametrize(
    ("desired", "size", "cycles", "targets"),
    [
        (10, 1, 3, [1, 2, 3, 10]),
        (4, 1, 3, [1, 2, 3, 4]),
        (10, 4, 1, [4, 10]),
        (10, 4, 5, [4, 8, 10]),
        (3, 5, 3, [3]),
        (10, 1, 0, [10]),
        (6, 2, 10**9, [2, 4, 6]),
    ],
)
def test_singularitys_targets(desired: int, size: int, cycles: int, targets: list[int]) -> None:
    listed = stages(Plan("canary", Groups(size, cycles)), goal(desired))
    assert numbers(listed) == [(target, desired - target, None) for target in (*targets, desired)]


def test_each_group_has_its_own_allowance_and_its_own_gates() -> None:
    *groups, end = stages(Plan("canary", Groups(1, 3, (TWO,), failure_limit=2)), goal(10))
    assert [stage.failure_limit for stage in groups] == [2, 2, 2, 2] and end.failure_limit is None
    assert [gate.key for stage in groups for gate in stage.gates] == [
        f"group {n} two" for n in (1, 2, 3, 4)
    ]


@pytest.mark.parametrize(
    ("desired", "room", "percent", "expected"),
    [
        (10, ResolvedBudget(1, 0), [20, 50, 100], [(2, 9, 20), (5, 6, 50), (10, 0, 100)]),
        # whole as far as the surge goes
        (10, ResolvedBudget(3, 0), [20, 50], [(2, 10, 20), (5, 8, 50)]),
        # each side carries its share, so one is extra
        (10, ResolvedBudget(1, 0), [1, 99], [(1, 10, 1), (10, 1, 99)]),
        (3, ResolvedBudget(1, 0), [50], [(2, 2, 50)]),
        (1, ResolvedBudget(1, 0), [20], [(1, 1, 20)]),
        (4, ResolvedBudget(0, 1), [1, 50, 99], [(1, 3, 1), (2, 2, 50), (3, 1, 99)]),
        (3, ResolvedBudget(0, 1), [50], [(2, 1, 50)]),  # half away from zero
        # 1.4 is 1, which could not carry 5 % of the 27 that are needed
        (28, ResolvedBudget(0, 1), [5], [(2, 26, 5)]),
        (100, ResolvedBudget(25, 0), [29], [(29, 96, 29)]),
    ],
)
def test_weights(
    desired: int, room: ResolvedBudget, percent: list[int], expected: list[tuple[int, int, int]]
) -> None:
    listed = stages(weights(*percent), RolloutTarget(2, desired, room, desired))
    assert numbers(listed) == [*expected, (desired, 0, 100)]


def test_replicas_stay_in_force_and_the_first_ones_stand_in_the_dark() -> None:
    steps = (
        Step("a", replicas=Percent(Decimal(21))),
        Step("b", weight=5),
        Step("c", weight=25),
        Step("d", weight=100),
    )
    listed = stages(Plan("canary", steps), goal(10, surge=3))
    assert numbers(listed) == [(3, 10, 0), (3, 10, 5), (3, 10, 25), (10, 0, 100), (10, 0, 100)]
    assert listed[0].waypoint.new_idle and not any(stage.waypoint.switches for stage in listed)


def test_replicas_without_weights_get_what_their_number_comes_to() -> None:
    listed = stages(Plan("canary", (Step("a", replicas=2), Step("b", replicas=5))), goal(10))
    assert numbers(listed) == [(2, 8, None), (5, 5, None), (10, 0, None)]


@pytest.mark.parametrize(
    ("steps", "to", "words"),
    [
        ([Step("a", replicas=2), Step("b", weight=20)], goal(10), ("a:", "max_surge: 2")),
        (
            [Step("a", weight=10), Step("b", replicas=2), Step("c", weight=50)],
            goal(10),
            ("c:", "2 new", "50%", "least 5"),
        ),
        (
            [Step("a", weight=10), Step("b", replicas=8)],
            goal(10),
            ("b:", "the other 90%", "max_surge: 7", "at most 2"),
        ),
        ([Step("a", replicas=11)], goal(10), ("a:", "11", "10 replicas")),
        ([Step("a", replicas=3), Step("b", replicas=2)], goal(10), ("b:", "fewer than the 3")),
        ([Step("a", weight=20)], goal(1, 0, 1), ("a:", "max_surge: 1")),
        ([Step("a", instances=20)], goal(1, 0, 1), ("a:", "max_surge: 1")),
        (
            [Step("a", weight=100, baseline=True)],
            goal(10),
            ("a:", "10 new and 0 old", "a step that has both"),
        ),
        ([Step("a", baseline=True)], goal(10), ("a:", "0 new and 10 old")),
    ],
)
def test_steps_that_do_not_fit(
    steps: list[Step], to: RolloutTarget, words: tuple[str, ...]
) -> None:
    with pytest.raises(InvalidSteps) as caught:
        stages(Plan("canary", tuple(steps)), to)
    assert all(word in str(caught.value) for word in words), caught.value


def test_what_an_unfit_message_advises_fits() -> None:
    stages(Plan("canary", (Step("a", replicas=2), Step("b", weight=20))), goal(10, surge=2))
    stages(
        Plan("canary", (Step("a", weight=10), Step("b", replicas=5), Step("c", weight=50))),
        goal(10, surge=5),
    )
    stages(Plan("canary", (Step("a", weight=10), Step("b", replicas=8))), goal(10, surge=7))
    stages(Plan("canary", (Step("a", weight=10), Step("b", replicas=2))), goal(10))


def test_a_canary_at_all_that_goes_back_leaves_nobody_without() -> None:
    shop = Walks(4)
    last = stages(weights(100), goal(4))[0].waypoint
    assert (last.new, last.old) == (4, 0)
    shop.walk(last)
    shop.walk(RolloutTarget(1, 4, ResolvedBudget(1, 0), 4).waypoint(4, 0))
    assert (shop.fewest, shop.peak) == (4, 5)


# Gates and marks
# --------------------------------------------------------------------------------------------------

CALLED = Plan(
    confirm_rollout=(Gate("confirm_rollout 1", "web"),),
    confirm_traffic_increase=(Gate("more 1", "web"),),
    confirm_promotion=(Gate("confirm_promotion 1", "web"),),
    post_rollout=(Gate("post_rollout 1", "web"),),
    rollback_gates=(Gate("rollback 1", "web"),),
    promotion=(Gate("promotion approval", "approval"),),
    hold=(Gate("hold", "pause", {"duration": 30.0}),),
)


def called(strategy: str, steps: tuple[Step, ...] = ()) -> Plan:
    return Plan(**{**vars(CALLED), "strategy": strategy, "steps": steps})


def test_gates_of_rolling() -> None:
    assert shape(stages(called("rolling"), goal(4))) == [
        ("confirm", REPLACE, ["confirm_rollout 1", "more 1"]),
        ("replace", REPLACE, ["confirm_promotion 1"]),
        ("promote", PROMOTE, ["post_rollout 1"]),
    ]
    assert shape(stages(Plan(), goal(4))) == [("replace", REPLACE, []), ("promote", PROMOTE, [])]


def test_gates_of_canary_are_asked_before_each_rise() -> None:
    steps = (
        Step("step 1", replicas=1),
        Step("step 2", weight=20, gates=(TWO,)),
        Step("step 4", gates=(Gate("own", "web"),)),
    )
    assert shape(stages(called("canary", steps), goal(4))) == [
        ("begin", REPLACE, ["confirm_rollout 1"]),
        ("step 1", REPLACE, ["more 1 before step 2"]),  # the dark ones are no rise
        ("step 2", REPLACE, ["two"]),
        ("step 4", REPLACE, ["own", "more 1 before promote", "confirm_promotion 1"]),
        ("promote", PROMOTE, ["post_rollout 1"]),
    ]
    by_number = called(
        "canary",
        (Step("step 1", replicas=1), Step("step 2", replicas=1), Step("step 3", replicas=4)),
    )
    assert [gates for _name, _part, gates in shape(stages(by_number, goal(4)))] == [
        ["confirm_rollout 1", "more 1 before step 1"],
        [],
        ["more 1 before step 3"],
        ["confirm_promotion 1"],
        ["post_rollout 1"],
    ]


def test_a_canary_begins_with_what_its_list_has_before_the_first_step() -> None:
    plan = Plan("canary", (Step("step 2", weight=20),), opening=(TWO,))
    listed = stages(plan, goal(4, before=6))
    assert shape(listed)[0] == ("begin", REPLACE, ["two"]) and numbers(listed)[0] == (0, 6, 0)
    assert [stage.name for stage in stages(weights(20), goal(4))] == ["step 1", "promote"]


def test_blue_green_is_a_second_set_a_switch_a_hold_and_an_end() -> None:
    listed = stages(called("blue_green"), goal(4, before=6))
    assert shape(listed) == [
        ("confirm", REPLACE, ["confirm_rollout 1"]),
        ("prepare", REPLACE, ["promotion approval", "confirm_promotion 1", "more 1"]),
        ("switch", PROMOTE, ["post_rollout 1"]),
        ("hold", FINISH, ["hold"]),
        ("retire", FINISH, []),
    ]
    assert numbers(listed) == [(0, 6, 0), (4, 6, 0), (4, 6, 100), (4, 6, 100), (4, 0, None)]
    assert [stage.waiting for stage in listed] == [
        "paused",
        "awaiting_promotion",
        "paused",
        "holding",
        "paused",
    ]
    assert [stage.waypoint.switches for stage in listed] == [False, False, True, True, False]
    assert peak(listed, Budget(1, 0)) == 10


def test_a_first_deployment_is_a_rolling_one_whatever_was_asked() -> None:
    for plan in (called("canary", weights(20).steps), called("blue_green")):  # type: ignore[arg-type]
        assert stages(plan, goal(4, before=0)) == stages(called("rolling"), goal(4, before=0))


def test_there_is_no_way_back_from_the_marked_step_on() -> None:
    steps = (
        Step("a", weight=10),
        Step("b", reversible=False, on_failure="hold"),
        Step("c", weight=50),
    )
    listed = stages(Plan("canary", steps), goal(10))
    assert [stage.reversible for stage in listed] == [True, False, False, False]
    assert [stage.on_failure for stage in listed] == [None, "hold", None, None]
    assert listed[0].waypoint == listed[1].waypoint


# A baseline
# --------------------------------------------------------------------------------------------------


def compared(*steps: Step) -> Plan:
    """A canary whose last step compares with fresh instances of the stable revision."""
    return Plan("canary", (*steps[:-1], replace(steps[-1], baseline=True)))


@pytest.mark.parametrize(
    ("steps", "to", "begins"),
    [
        ([Step("a", weight=10)], goal(10), [(1, 9, None), (1, 10, 10)]),
        # not more than there are old ones beside the new
        ([Step("a", weight=80)], goal(10), [(3, 7, None), (8, 3, 80)]),
        ([Step("a", weight=50)], goal(4, 0, 1), [(2, 2, None), (2, 2, 50)]),
        ([Step("a", weight=20)], goal(1), [(1, 0, None), (1, 1, 20)]),
        ([Step("a", weight=10)], goal(10, before=14), [(2, 12, None), (2, 13, 10)]),
        (
            [Step("a", weight=10), Step("b", weight=30)],
            goal(10),
            [(3, 7, None), (1, 10, 10), (3, 8, 30)],
        ),
        ([Step("a", weight=20), Step("b")], goal(10), [(2, 8, None), (2, 9, 20), (2, 9, 20)]),
        ([Step("a", replicas=3)], goal(10, surge=3), [(3, 7, None), (3, 7, None)]),
        (
            [Step("a", replicas=3), Step("b", weight=10)],
            goal(10, surge=3),
            [(3, 7, None), (3, 10, 0), (3, 10, 10)],
        ),
    ],
)
def test_a_baseline_is_there_before_the_first_new_one(
    steps: list[Step], to: RolloutTarget, begins: list[tuple[int, int, int | None]]
) -> None:
    listed = stages(compared(*steps), replace(to, baseline=3))
    assert numbers(listed)[: len(begins)] == begins
    assert [stage.waypoint.is_baseline for stage in listed] == [True] + [False] * (len(listed) - 1)
    assert {stage.waypoint.baseline for stage in listed} == {3} and listed[
        0
    ].waypoint.generation == 3


def test_who_is_asked_is_asked_before_the_baseline() -> None:
    plan = called("canary", (Step("step 1", weight=20, gates=(TWO,), baseline=True),))
    assert shape(stages(plan, replace(goal(4), baseline=3))) == [
        ("begin", REPLACE, ["confirm_rollout 1", "more 1 before step 1"]),
        ("baseline", REPLACE, []),
        ("step 1", REPLACE, ["two", "more 1 before promote", "confirm_promotion 1"]),
        ("promote", PROMOTE, ["post_rollout 1"]),
    ]


# Properties
# --------------------------------------------------------------------------------------------------

rooms = (
    st.tuples(st.integers(0, 5), st.integers(0, 5))
    .filter(any)
    .map(lambda pair: ResolvedBudget(*pair))
)
percents = st.lists(st.integers(1, 100), min_size=1, max_size=5, unique=True).map(sorted)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Any that is parsed, and some that do not fit."""
    strategy = draw(st.sampled_from(sorted(LISTS)))
    kind = draw(st.sampled_from(["weights", "instances", "groups", "replicas", "ramp"]))
    steps: tuple[Step, ...] | Groups
    if kind == "groups":
        steps = Groups(draw(st.integers(1, 7)), draw(st.integers(0, 4)), (TWO,))
    elif kind == "instances":
        steps = tuple(
            Step(f"step {n}", instances=weight) for n, weight in enumerate(draw(percents))
        )
    elif kind == "ramp":
        start = draw(st.integers(1, 99))
        shares = draw(st.sampled_from([geometric, linear]))(
            start, draw(st.integers(5, 50)), draw(st.integers(start, 100))
        )
        waits = [(Gate(f"step {n} every", "pause"),) for n, _share in enumerate(shares)]
        steps = tuple(ramp_steps(shares, waits, draw(st.booleans())))
    elif kind == "weights":
        steps = tuple(Step(f"step {n}", weight=weight) for n, weight in enumerate(draw(percents)))
    else:
        mixed = [Step(f"step {n}", weight=weight) for n, weight in enumerate(draw(percents))]
        place = draw(st.integers(0, len(mixed)))
        mixed.insert(place, Step("replicas", replicas=draw(st.integers(1, 12))))
        steps = tuple(mixed)
    plan = called(strategy, steps if strategy == "canary" else ())  # type: ignore[arg-type]
    kept = draw(st.none() | st.integers(1, 9)) if kind == "ramp" and strategy == "canary" else None
    return replace(plan, standby=kept)


@examples(300)
@given(plan=plans(), room=rooms, desired=st.integers(1, 30), before=st.integers(0, 40))
def test_what_holds_for_every_list(
    plan: Plan, room: ResolvedBudget, desired: int, before: int
) -> None:
    room = ResolvedBudget(room.surge, min(room.unavailable, desired))
    try:
        listed = stages(plan, RolloutTarget(2, desired, room, before, stable=1))
    except InvalidSteps:
        with pytest.raises(InvalidSteps):
            # that more serve now is no reason to refuse it
            stages(plan, RolloutTarget(2, desired, room, desired, stable=1))
        reject()
    base = max(before, desired)
    points = [stage.waypoint for stage in listed]
    last = points[-1]
    assert (last.new, last.old, last.desired) == (desired, 0, desired)
    assert {point.stable for point in points} == {1} and {point.generation for point in points} == {
        2
    }
    shares = [point.weight for point in points if point.weight is not None]
    assert shares == sorted(shares)
    carrying = [point.new for point in points if point.desired == base]
    assert carrying == sorted(carrying), "only the promotion lowers the number to what is asked for"
    parts = [PARTS.index(stage.part) for stage in listed]
    assert parts == sorted(parts)
    keys = [gate.key for stage in listed for gate in stage.gates]
    assert len(keys) == len(set(keys)) and not any(key.startswith("rollback") for key in keys)
    for stage, point in zip(listed, points, strict=True):
        together = point.new + point.old
        # or the new ones have every request, where it may be
        every = plan.strategy == "canary" and not point.old
        allowed = {desired} if stage.part != REPLACE else {base, desired} if every else {base}
        assert point.desired in allowed, "capacity is not lowered before the promotion"
        if point.new and not point.new_idle and not point.switches:
            kept = 0 if plan.standby is None else min(before, up(plan.standby, before))
            if stage.name == "prepare":  # the complete new set, beside what carries the rest
                rest = (point.desired - room.unavailable) * (100 - (point.weight or 0))
                kept = max(kept, 1, math.ceil(Fraction(rest, 100)))
            assert together <= max(point.desired + room.surge, point.new + kept)
            assert together >= point.desired
        if point.weight and not point.switches:
            assert point.new >= math.ceil(
                Fraction((desired - room.unavailable) * point.weight, 100)
            )
            assert point.old >= math.ceil(
                Fraction((point.desired - room.unavailable) * (100 - point.weight), 100)
            )
    assert peak(listed, Budget(room.surge)) == max(
        base + room.surge, *(point.new + point.old for point in points)
    )


@examples(100)
@given(
    percent=st.integers(1, 99), room=rooms, desired=st.integers(2, 40), before=st.integers(1, 50)
)
def test_a_baseline_is_one_stage_more_and_moves_no_other(
    percent: int, room: ResolvedBudget, desired: int, before: int
) -> None:
    to = RolloutTarget(
        2, desired, ResolvedBudget(room.surge, min(room.unavailable, desired)), before, stable=1
    )
    step, plain = Step("step 1", weight=percent), weights(percent)
    first, *others = stages(compared(step), replace(to, baseline=3))
    assert [
        replace(stage, waypoint=replace(stage.waypoint, baseline=0)) for stage in others
    ] == list(stages(plain, to))
    assert first.waypoint.new + first.waypoint.old == to.base
    assert first.waypoint.new == min(others[0].waypoint.new, others[0].waypoint.old)


@examples(200)
@given(percent=percents, room=rooms, desired=st.integers(2, 40))
def test_weights_alone_always_fit(percent: list[int], room: ResolvedBudget, desired: int) -> None:
    room = ResolvedBudget(room.surge, min(room.unavailable, desired))
    listed = stages(weights(*percent), RolloutTarget(2, desired, room, desired))
    assert [stage.waypoint.weight for stage in listed] == [*percent, 100]
    for stage in listed:
        assert stage.waypoint.new and (stage.waypoint.old or stage.waypoint.weight == 100)


@pytest.mark.parametrize(
    ("headroom", "enough"), [(None, 5), (0, 5), (1, 5), (Fraction(5, 4), 4), (2, 3)]
)
def test_how_many_instances_can_carry_all_requests(
    headroom: Fraction | int | None, enough: int
) -> None:
    back = None if headroom is None else Fraction(headroom)
    assert Waypoint(1, 5, 0, 5, headroom=back).enough == enough
