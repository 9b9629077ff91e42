# SPDX-License-Identifier: GPL-3.0-or-later
"""What must always hold of the stages of any canary."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.budget import (
    Budget,
    Percent,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.ramp import (
    geometric,
    linear,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.ramp import (
    steps as ramp_steps,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import (
    REPLACE,
    Gate,
    Groups,
    InvalidSteps,
    Plan,
    RolloutTarget,
    Stage,
    Step,
    stages,
)
from ansible_collections.progressive.rollout.tests.support.budgets import budgets
from ansible_collections.progressive.rollout.tests.support.seeds import examples
from hypothesis import given, reject
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
def plans(draw: st.DrawFn) -> Plan:
    """Any steps that are parsed; some do not fit the number of replicas."""
    strategy = "canary"
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
    allowed, baseline = budget.resolve(desired), 3 if plan.baseline else 0
    try:
        return stages(plan, RolloutTarget(2, desired, allowed, before, 1, baseline))
    except InvalidSteps:
        reject()


@given(plans(), st.integers(1, 40), st.integers(1, 40), budgets())
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
