# SPDX-License-Identifier: GPL-3.0-or-later
"""What must always hold of whole rollouts: rolling, canary and blue-green with random steps,
faults, gates and commands.

After every iteration the simulator checks, besides the invariants, that instances on standby get no
requests, that the weight of new instances is at no load balancer more than was asked for, and that
a switch has enough ready instances.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.budget import (
    Budget,
    Percent,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Rotation
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.progress import Rules
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.ramp import (
    geometric,
    linear,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.ramp import (
    steps as ramp_steps,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import (
    LISTS,
    REPLACE,
    Gate,
    Groups,
    InvalidSteps,
    Plan,
    RolloutTarget,
    Stage,
    Step,
    peak,
    stages,
)
from ansible_collections.progressive.rollout.tests.support.seeds import examples
from ansible_collections.progressive.rollout.tests.support.simulator import (
    Life,
    Script,
    Simulator,
    World,
)
from ansible_collections.progressive.rollout.tests.support.worlds import (
    budgets,
    calm,
    rules_,
    sizes,
    working,
)
from hypothesis import given, note, reject
from hypothesis import strategies as st

percents = st.lists(st.integers(1, 100), min_size=1, max_size=4, unique=True).map(sorted)


standbys = st.integers(1, 4) | st.sampled_from([20, 50, 100]).map(lambda n: Percent(Decimal(n)))


@st.composite
def ramps(draw: st.DrawFn) -> tuple[Step, ...]:
    """Any ramp, with the next instances ahead or not."""
    start, most = draw(st.tuples(st.integers(1, 99), st.integers(1, 100)).map(sorted))
    rise = draw(st.integers(2, 60))
    shares = draw(st.sampled_from([geometric, linear]))(start, rise, most)[-8:]
    wait = (Gate("every", "pause", {"duration": 3.0}),)
    return tuple(ramp_steps(shares, [wait] * len(shares), draw(st.booleans())))


@st.composite
def plans(draw: st.DrawFn, strategies: tuple[str, ...] = tuple(LISTS)) -> Plan:
    """Any steps that are parsed; some do not fit the number of replicas."""
    strategy = draw(st.sampled_from(strategies))
    if strategy != "canary":
        return Plan(strategy)
    kind = draw(
        st.sampled_from(
            ["weights", "weights", "replicas", "instances", "groups", "baseline", "ramp", "standby"]
        )
    )
    if kind == "ramp":
        return Plan(strategy, draw(ramps()), standby=draw(standbys | st.none()))
    if kind == "standby":
        below = draw(percents.filter(lambda some: some[-1] < 100))
        steps = [Step(f"step {n}", weight=weight) for n, weight in enumerate(below)]
        return Plan(strategy, tuple(steps), standby=draw(standbys))
    if kind == "baseline":
        return draw(comparing())
    if kind == "groups":
        return Plan(strategy, Groups(draw(st.integers(1, 5)), draw(st.integers(0, 3))))
    if kind == "instances":
        return Plan(
            strategy,
            tuple(Step(f"step {n}", instances=weight) for n, weight in enumerate(draw(percents))),
        )
    steps = [Step(f"step {n}", weight=weight) for n, weight in enumerate(draw(percents))]
    if kind == "replicas":
        steps.insert(
            draw(st.integers(0, len(steps))), Step("replicas", replicas=draw(st.integers(1, 6)))
        )
    return Plan(strategy, tuple(steps))


@st.composite
def comparing(draw: st.DrawFn) -> Plan:
    """Steps of which some compare with a baseline; the new ones may be more than their share of
    the requests needs.
    """
    steps = [
        Step(f"step {n}", weight=weight)
        for n, weight in enumerate(draw(percents.filter(lambda some: some != [100])))
    ]
    if draw(st.booleans()):
        steps.insert(0, Step("replicas", replicas=draw(st.integers(1, 4))))
    some = draw(
        st.frozensets(
            st.sampled_from([step.name for step in steps if step.weight != 100]), min_size=1
        )
    )
    return Plan("canary", tuple(replace(step, baseline=step.name in some) for step in steps))


def listed(plan: Plan, desired: int, before: int, budget: Budget) -> tuple[Stage, ...]:
    """Its stages; an example that does not fit is none."""
    try:
        return relisted(plan, before, budget)(desired, 0)
    except InvalidSteps:
        reject()


def relisted(plan: Plan, before: int, budget: Budget) -> Callable[[int, int], tuple[Stage, ...]]:
    """Its stages for any number of replicas, with so many new ones there already; raises Unfit."""
    baseline = 3 if plan.baseline else 0
    return lambda number, grown: stages(
        plan, RolloutTarget(2, number, budget.resolve(number), before, 1, baseline, grown)
    )


waits = st.integers(0, 40)
quiet = calm.map(lambda world: replace(world, balancers=max(1, world.balancers)))


def floor(size: int, budget: Budget, world: World) -> int:
    """How many are in service all along: as many as the budget asks for, and on a way back as
    many as carry it all with their headroom.
    """
    least = size - budget.resolve(size).unavailable
    return min(least, math.ceil(size / world.headroom)) if world.headroom else least


@given(plans(("canary",)), st.integers(1, 40), st.integers(1, 40), budgets())
@examples(200)
def test_until_the_promotion_both_sides_carry_what_those_that_run_carry(
    plan: Plan, desired: int, before: int, budget: Budget
) -> None:
    # 14: however few are asked for, a small new side never gets the part of a big one.
    base, unavailable = max(before, desired), budget.resolve(desired).unavailable
    most = Fraction(1, max(1, base - unavailable))
    for stage in listed(plan, desired, before, budget):
        point = stage.waypoint
        if stage.part != REPLACE or point.is_baseline:
            continue
        assert point.desired == base and point.new + point.old >= base - unavailable
        if point.weight and point.new:
            assert Fraction(point.weight, 100) / (point.carrying or point.new) <= most
        if point.weight is not None and point.weight < 100:
            assert Fraction(100 - point.weight, 100) / point.old <= most


def generations(simulator: Simulator) -> list[int]:
    """Of all that is there, in order."""
    return sorted(node.labels.generation for node in simulator.nodes.values() if not node.gone)


def served(simulator: Simulator) -> list[set[int]]:
    """The generations in rotation, at each balancer."""
    tables = [balancer.entries.values() for balancer in simulator.balancers]
    return [
        {simulator.made_as[e.name] for e in entries if e.rotation is Rotation.IN}
        for entries in tables
    ]


@given(
    quiet, plans(), st.lists(working, min_size=1, max_size=10), sizes, budgets(), rules_, st.data()
)
@examples(100)
def test_working_instances_are_promoted(
    world: World,
    plan: Plan,
    old: list[Life],
    desired: int,
    budget: Budget,
    rules: Rules,
    data: st.DataObject,
) -> None:
    # 1, 2, 4, 6, 11: nothing else acts, so what is available is never below the floor.
    rules = replace(rules, ready_deadline=None)
    path = listed(plan, desired, len(old), budget)
    gates = data.draw(
        st.dictionaries(st.sampled_from([stage.name for stage in path]), waits, max_size=3)
    )
    simulator = Simulator(world, budget, rules)
    simulator.populate(old)
    end = simulator.roll(path, Script(gates=gates))
    assert end.outcome == "promoted", end.reason
    assert generations(simulator) == [2] * desired and served(simulator) == [{2}] * world.balancers
    allowed = budget.resolve(desired)
    assert simulator.least is not None and simulator.least >= min(
        desired - allowed.unavailable, len(old)
    )
    assert simulator.peak <= max(peak(path, budget), len(old))
    fresh = [stage.waypoint.new for stage in path if stage.waypoint.is_baseline]
    # those that carry a share of what runs may be more than are asked for
    most = max(stage.waypoint.new for stage in path if not stage.waypoint.is_baseline)
    assert simulator.made == most + sum(fresh)


@given(
    quiet,
    plans(),
    st.integers(1, 10),
    budgets(),
    rules_,
    st.integers(0, 90),
    st.data(),
)
@examples(150)
def test_an_abort_at_any_moment(
    world: World,
    plan: Plan,
    size: int,
    budget: Budget,
    rules: Rules,
    moment: int,
    data: st.DataObject,
) -> None:
    # 7, 11: as it was before: the stable ones in rotation, and nothing else; never fewer than
    # the floor in between.
    rules = replace(rules, ready_deadline=None)
    path = listed(plan, size, size, budget)
    gates = data.draw(
        st.dictionaries(st.sampled_from([stage.name for stage in path]), waits, max_size=3)
    )
    simulator = Simulator(world, budget, rules)
    simulator.populate([Life()] * size)
    end = simulator.roll(path, Script(moment, gates=gates))
    note(f"{end.outcome} at {simulator.clock}: {end.reason}")
    assert end.outcome in ("promoted", "aborted"), end.reason
    assert end.outcome == "aborted" or simulator.clock <= moment or len(end.passed) == len(path)
    assert simulator.beyond <= Fraction(1, 2), "the share of the new ones rises on the way back"
    there = 1 if end.outcome == "aborted" else 2
    assert (
        generations(simulator) == [there] * size
        and served(simulator) == [{there}] * world.balancers
    )
    assert simulator.least is not None and simulator.least >= floor(size, budget, world)
    assert simulator.peak <= peak(path, budget)


@given(quiet, comparing(), st.integers(2, 10), budgets(), rules_, st.integers(15, 90))
@examples(60)
def test_a_baseline_is_there_where_it_is_asked_for_and_gone_after_an_abort(
    world: World, plan: Plan, size: int, budget: Budget, rules: Rules, moment: int
) -> None:
    # 2, 7, 11; and the new ones' share never rises for it, on the way back either.
    path = listed(plan, size, size, budget)
    asked = [step.name for step in plan.steps if isinstance(step, Step) and step.baseline]
    simulator = Simulator(world, budget, replace(rules, ready_deadline=None))
    simulator.populate([Life()] * size)
    end = simulator.roll(path, Script(moment, gates={asked[-1]: 100}))
    assert end.outcome == "aborted" and generations(simulator) == [1] * size
    (most,) = (stage.waypoint.new for stage in path if stage.waypoint.is_baseline)
    for stage in path:
        fresh, point = min(most, stage.waypoint.old), stage.waypoint
        if stage.name in asked and stage.name in simulator.stood:
            assert fresh >= min(point.new, point.old)
            there = {(2, "new"): point.new, (3, "old"): fresh, (1, "old"): point.old - fresh}
            assert simulator.stood[stage.name] == Counter(there)
    assert simulator.beyond <= Fraction(1, 2), "the share of the new ones rises on the way back"
    back = [
        simulator.made_as[name]
        for clock, decision in simulator.log
        if clock >= moment
        for name in decision.drain
    ]
    assert back == sorted(back), "the new ones go first"
    assert simulator.least is not None and simulator.least >= floor(size, budget, world)


changes = st.dictionaries(st.integers(0, 200), st.integers(1, 12), min_size=1, max_size=3)


@given(quiet, plans(), st.integers(1, 10), sizes, budgets(), rules_, changes, st.data())
@examples(100)
def test_the_number_changes_at_any_moment(
    world: World,
    plan: Plan,
    before: int,
    desired: int,
    budget: Budget,
    rules: Rules,
    changes: dict[int, int],
    data: st.DataObject,
) -> None:
    # 1, 2, 17: what was asked for last is what runs at the end; no gate was skipped; capacity went
    # no lower than it had to.
    rules = replace(rules, ready_deadline=None)
    path, relist = listed(plan, desired, before, budget), relisted(plan, before, budget)
    gates = data.draw(
        st.dictionaries(st.sampled_from([stage.name for stage in path]), waits, max_size=4)
    )
    simulator = Simulator(replace(world, resize=changes), budget, rules)
    simulator.populate([Life()] * before)
    end = simulator.roll(path, Script(gates=gates), relist=relist)
    note(f"{end.outcome} of {end.replicas} at {simulator.clock}: {end.reason}")
    assert end.outcome == "promoted", end.reason
    assert (
        generations(simulator) == [2] * end.replicas
        and served(simulator) == [{2}] * world.balancers
    )
    passed = {stage.name for stage, _number in simulator.passed}
    assert {stage.name for stage in relist(end.replicas, 0)} <= passed
    if isinstance(plan.steps, Groups):
        every = [
            stage.name
            for stage, number in simulator.passed
            if stage.part == REPLACE and stage.waypoint.new >= number
        ]
        assert every, "a group with which all are new"
    least = min(
        number - budget.resolve(number).unavailable for number in (desired, *changes.values())
    )
    assert simulator.least is not None and simulator.least >= min(least, before)


@pytest.mark.parametrize(("force", "shown"), [(0, {1, 2}), (None, {1})])
def test_an_abort_with_no_old_one_left(force: int | None, shown: set[int]) -> None:
    # 7: until the old ones are back a new one serves that was to have requests anyway, and none
    # that stands in the dark.
    simulator = Simulator(
        World([Life(start=0)], balancers=2),
        Budget(1, 0),
        Rules(min_ready=0.0, progress_deadline=60.0),
    )
    simulator.populate([Life(vanish=1)])
    gates = {"prepare": 40} if force is None else {}
    end = simulator.roll(
        stages(Plan("blue_green"), RolloutTarget(2, 1, Budget(1, 0).resolve(1), 1, 1)),
        Script(1, force, gates),
    )
    assert end.outcome == "aborted" and simulator.shown == shown and generations(simulator) == [1]
