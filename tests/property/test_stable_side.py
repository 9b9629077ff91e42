# SPDX-License-Identifier: GPL-3.0-or-later
"""The stable side of random rollouts: as long as it is kept it is whole, and it comes back where
new ones break.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.budget import Budget
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.progress import Rules
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import (
    Plan,
    Step,
    peak,
)
from ansible_collections.progressive.rollout.tests.property.test_strategies import (
    generations,
    listed,
    plans,
    quiet,
    served,
    waits,
)
from ansible_collections.progressive.rollout.tests.support.seeds import examples
from ansible_collections.progressive.rollout.tests.support.simulator import (
    Life,
    Script,
    Seen,
    World,
)
from ansible_collections.progressive.rollout.tests.support.worlds import budgets, rules_
from hypothesis import assume, given, note
from hypothesis import strategies as st


def slowest(simulator: Seen, lives: list[Life]) -> int:
    """Seconds until a dead instance is made good, at most: it is seen, there is room for
    another, and that is in rotation.
    """
    world, rules = simulator.world, simulator.rules
    start = max(life.start for life in [Life(), *lives])
    leave = max(life.work + life.stop for life in [Life(), *lives]) + rules.settle
    return int(2 + leave + start + rules.min_ready + world.prove + 4 * world.latency)


@given(
    quiet,
    plans(("canary", "blue_green")),
    st.lists(st.none() | st.integers(1, 120), min_size=2, max_size=10),
    budgets(),
    rules_,
    st.frozensets(st.integers(1, 120), max_size=2),
    st.data(),
)
@examples(150)
def test_e_43_the_old_side_is_whole_as_long_as_it_is_kept(
    world: World,
    plan: Plan,
    crashes: list[int | None],
    budget: Budget,
    rules: Rules,
    losses: frozenset[int],
    data: st.DataObject,
) -> None:
    # 13, 1: whichever of the stable ones die, and whenever, also all at once, those that were
    # repaired among them: that is one failure. And the rollout goes on.
    size = len(crashes)
    path = listed(plan, size, size, budget)
    gates = data.draw(
        st.dictionaries(st.sampled_from([stage.name for stage in path]), waits, max_size=3)
    )
    rules = replace(rules, ready_deadline=None)
    if losses:
        limit = rules.failure_limit and 3
        rules = replace(rules, failure_limit=limit, progress_deadline=300.0)
    simulator = Seen(replace(world, losses=losses), budget, rules)
    simulator.populate([Life(crash=crash) for crash in crashes])
    end = simulator.roll(path, Script(gates=gates))
    note(f"died at {simulator.died}, {end.outcome} at {simulator.clock}: {end.reason}")
    assert end.outcome == "promoted", end.reason
    assert generations(simulator) == [2] * size and served(simulator) == [{2}] * world.balancers
    assert simulator.peak <= peak(path, budget)
    at_once = len(simulator.died) if budget.max_in_flight is not None else 1
    late = slowest(simulator, [*world.lives, *world.repairs]) * max(1, at_once)
    for second, point in simulator.asked_for.items():
        if point.repairs and not point.is_baseline and point.generation == 2:
            missing = point.old - simulator.stable_there[second]
            assert plan.baseline or missing <= simulator.died_between(second - late, second), (
                f"13: {missing} are missing at {second}"
            )


@given(
    quiet,
    st.integers(4, 6),
    st.integers(10, 50),
    st.integers(30, 40),
    st.integers(30, 40),
    st.sampled_from(["repair", "promote", "hold"]),
)
@examples(25)
def test_one_cause_that_ends_all_stable_instances_twice_is_no_failure_of_many(
    world: World, size: int, weight: int, first: int, later: int, then: str
) -> None:
    # 13: those that were repaired end together, and that is one failure; what to do where none
    # serves is asked before any limit.
    world = replace(world, losses=frozenset([first, first + later]), headroom=Fraction(0))
    simulator = Seen(world, Budget(2, 0), Rules(drain_timeout=2.0, progress_deadline=300.0))
    simulator.populate([Life()] * size)
    path = listed(Plan("canary", (Step("step 1", weight=weight),)), size, size, Budget(2, 0))
    end = simulator.roll(path, Script(gates={"step 1": 90}, on_stable_lost=then))
    note(f"died at {simulator.died}, {end.outcome or end.phase}: {end.reason}")
    if then == "hold":
        assert end.phase == "held" and simulator.clock <= first + 2
    else:
        assert end.outcome == "promoted"
    if then == "repair":
        (old,) = (stage.waypoint.old for stage in path if stage.name == "step 1")
        assert simulator.stable_there[first + later + 25] == old


def test_instances_beyond_those_that_carry_a_share_do_not_lower_what_each_gets() -> None:
    """Before the switch all new ones are started, and the first still carry the share alone."""
    budget, rules = Budget(1, 0), Rules(drain_timeout=0.0, watch_new=0.0)
    plan = Plan("canary", (Step("step 1", weight=1), Step("step 2", weight=2)), standby=1)
    simulator = Seen(World(lives=[Life(start=0)], balancers=1), budget, rules)
    simulator.populate([Life()] * 2)
    assert simulator.roll(listed(plan, 2, 2, budget), Script()).outcome == "promoted"


@given(
    quiet,
    st.integers(3, 10),
    budgets(),
    rules_,
    st.lists(st.integers(2, 12), min_size=1, max_size=5),
)
@examples(150)
def test_what_breaks_after_it_was_ready_goes_back_and_the_stable_ones_come_back(
    world: World, size: int, budget: Budget, rules: Rules, ages: list[int]
) -> None:
    # 2, 5: every new one breaks so long after it was ready; fewer than the floor serve only while
    # what is missing starts.
    lives = [Life(start=life.start, crash=life.start + age) for life in world.lives for age in ages]
    rules = replace(
        rules,
        ready_deadline=None,
        failure_limit=3,
        watch_new=120.0,
        min_ready=min(rules.min_ready, 1.0),
    )
    simulator = Seen(replace(world, lives=lives), budget, rules)
    simulator.populate([Life()] * size)
    end = simulator.roll(listed(Plan(), size, size, budget))
    note(f"died at {simulator.died}, {end.outcome} at {simulator.clock}: {end.reason}")
    assume(end.outcome != "promoted")  # all of them were there before the third broke
    assert end.outcome == "rolled_back" and generations(simulator) == [1] * size
    late = slowest(simulator, [*lives, *world.repairs])
    needed = size - budget.resolve(size).unavailable
    for second, there in simulator.in_service.items():
        assert needed - there <= simulator.died_between(second - late, second), (
            f"2: {there} of {needed} serve at {second}"
        )
