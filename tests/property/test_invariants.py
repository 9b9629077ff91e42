# SPDX-License-Identifier: GPL-3.0-or-later
"""What must always hold, for random fleets, budgets and times.

`tests/support/decisions.py` has the invariants of a decision. Whole rollouts are in the simulated
world (`test_simulated_world.py`), which checks each of its decisions in the same way.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from decimal import Decimal

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import InputError
from ansible_collections.progressive.rollout.plugins.plugin_utils.config import variables
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.budget import Budget
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.evaluate import evaluate
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.fleet_count import (
    count_fleet,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import (
    Health,
    Instance,
    Process,
    Rotation,
    State,
    classify,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.progress import (
    Failure,
    ProgressTracker,
    Rules,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import Waypoint
from ansible_collections.progressive.rollout.tests.support.budgets import (
    budgets,
    rules_,
)
from ansible_collections.progressive.rollout.tests.support.decisions import check
from ansible_collections.progressive.rollout.tests.support.seeds import examples
from hypothesis import example, given
from hypothesis import strategies as st

# 1, 2, 3, 6, 8: on every decision, also for fleets no walk would ever lead to
# -----------------------------------------

clocks = st.integers(0, 30).map(float)
instances = st.builds(
    Instance,
    id=st.just(""),
    revision=st.just("r"),
    generation=st.integers(1, 2),
    state=st.sampled_from(State),
    created=clocks,
    ready_since=st.none() | clocks,
    rotation=st.sampled_from(Rotation),
    lb_healthy=st.booleans(),
    active=st.integers(0, 1),
    draining_since=st.none() | clocks,
    crashed=st.booleans(),
    silent_since=st.none() | clocks,
)
# Most of a fleet is usually well; without this nearly no example would be above its floor.
well = st.builds(
    Instance,
    id=st.just(""),
    revision=st.just("r"),
    generation=st.integers(1, 2),
    state=st.just(State.READY),
    created=clocks,
    ready_since=clocks,
    rotation=st.just(Rotation.IN),
    lb_healthy=st.just(True),
)
fleets = st.lists(st.one_of(instances, well, well, well), max_size=16).map(
    lambda fleet: [replace(instance, id=f"i{number:02}") for number, instance in enumerate(fleet)]
)
waypoints = st.integers(0, 10).flatmap(
    lambda desired: st.builds(
        Waypoint,
        st.just(2),
        new=st.integers(0, desired),
        old=st.integers(0, desired),
        desired=st.just(desired),
        weight=st.sampled_from([None, None, 0, 20, 100, 100]),
        switch_at=st.sampled_from([None, None, None, 0, 1]),
        stable=st.integers(0, 1),
    )
)


# Only one of its load balancers has taken this instance out yet: it still serves.
PARTLY_OUT = Instance(
    "i00", "r", 2, State.READY, ready_since=0.0, rotation=Rotation.PARTIAL, lb_healthy=True
)


@given(fleets, waypoints, budgets(), rules_)
@example([PARTLY_OUT], Waypoint(2, new=0, old=0, desired=1, weight=0), Budget(1, 0), Rules())
@examples(500)
def test_every_decision_of_any_fleet(
    fleet: list[Instance], waypoint: Waypoint, budget: Budget, rules: Rules
) -> None:
    progress = ProgressTracker(20.0, old=len(fleet))
    decision = evaluate(fleet, waypoint, budget, rules, progress, 31.0)
    check(fleet, decision, waypoint, budget, rules, 31.0)
    # 10: nothing is kept between two turns, so the one who takes over decides as its predecessor
    # would have.
    assert evaluate(fleet, waypoint, budget, rules, progress, 31.0) == decision


# One was lost of those that serve, and the new ones that are in progress never get ready.
BLOCKED = [
    Instance("i00", "r", 2, State.STARTING),
    Instance("i01", "r", 2, State.STARTING),
    Instance("i02", "r", 1, State.READY, ready_since=0.0, rotation=Rotation.IN, lb_healthy=True),
]


@given(fleets, waypoints, st.integers(1, 4), rules_)
@example(BLOCKED, Waypoint(2, new=2, old=2, desired=2, weight=0, stable=1), 2, Rules())
@examples(300)
def test_no_new_instance_in_progress_delays_a_repair(
    fleet: list[Instance], waypoint: Waypoint, number: int, rules: Rules
) -> None:
    # 2: as many are repaired as with that much surge, but for those that start as repairs do.
    progress = ProgressTracker(20.0, old=len(fleet))
    flight, surge = (
        evaluate(fleet, waypoint, budget, rules, progress, 31.0)
        for budget in (Budget(max_in_flight=number), Budget(number, 0))
    )
    count = count_fleet(fleet, waypoint, rules, 20.0, 31.0)
    room = max(0, number - count.old.starting)
    assert flight.create_old == min(room, surge.create_old)
    starting = len(count.new.pending) + count.old.starting + flight.create_old
    assert flight.create <= max(0, number - starting)


@given(fleets, waypoints, rules_)
@examples(200)
def test_every_instance_is_in_one_class(
    fleet: list[Instance], waypoint: Waypoint, rules: Rules
) -> None:
    # 8: what goes into a decision comes out of it in exactly one class.
    count = count_fleet(fleet, waypoint, rules, 20.0, 31.0)
    staying = [
        i
        for group in (count.new, count.old)
        for part in (group.available, group.prepared, group.pending)
        for i in part
    ]
    leaving = [*count.replaced, *count.draining]
    assert Counter(i.id for i in [*staying, *leaving, *count.ended, *count.orphaned]) == Counter(
        i.id for i in fleet
    )
    assert count.total == len(staying) + len(leaving)
    assert count.total + len(count.orphaned) == sum(1 for i in fleet if i.state.counted)
    assert all(
        i.state is State.UNREACHABLE and i.draining_since is not None and not i.in_rotation
        for i in count.orphaned
    )


@given(st.sampled_from(Process), st.sampled_from(Health), st.booleans())
def test_every_report_is_one_state(process: Process, health: Health, draining: bool) -> None:
    # 8, and "anything unknown is not_ready".
    state = classify(process, health, draining)
    assert state in State
    assert state is not State.READY or (
        process is Process.RUNNING and health in (Health.PASSING, Health.NONE)
    )
    assert process is not Process.UNKNOWN or state in (State.NOT_READY, State.DRAINING)


# 5: the tally
# --------------------------------------------------------------------------------------------------

turns = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 5), st.sets(st.integers(0, 9))),
    min_size=1,
    max_size=20,
)


@given(turns)
@examples(200)
def test_tally(turns: list[tuple[int, int, set[int]]]) -> None:
    # 5, 8: counted from the last progress; a failure is counted once, and none that was there
    # before the walk.
    progress = ProgressTracker(0.0)
    seen: set[str] = set()
    best, least, since, run = 0, 99, 0.0, 0
    for number, (new, old, failed) in enumerate(turns):
        failures = [Failure(f"i{n}", "it ended") for n in sorted(failed)]
        progress = progress.advance(new, old, failures, float(number))
        progressed = new > best or (number > 0 and old < least)
        fresh = 0 if number == 0 else len({f.id for f in failures} - seen)
        seen |= {f.id for f in failures}
        best, least = max(best, new), min(least, old)
        run = fresh if progressed else run + fresh
        since = float(number) if progressed else since
        assert (progress.since, progress.new, progress.old, len(progress.failures)) == (
            since,
            best,
            least,
            run,
        )


# 12: percentages
# --------------------------------------------------------------------------------------------------


@given(st.integers(0, 10_000), st.integers(0, 200_000))
@examples(300)
@example(2900, 100)
@example(700, 100)
def test_percentages_are_exact(hundredths: int, desired: int) -> None:
    # 12: surge up, unavailable down, in whole numbers throughout.
    text = f"{Decimal(hundredths) / 100}%"
    allowed = variables.budget({"max_surge": text, "max_unavailable": 1}, "rollout_budget").resolve(
        desired
    )
    assert allowed.surge == -(-hundredths * desired // 10_000)
    if hundredths:
        allowed = variables.budget(
            {"max_surge": 0, "max_unavailable": text}, "rollout_budget"
        ).resolve(desired)
        assert (allowed.surge, allowed.unavailable) == (0, hundredths * desired // 10_000 or 1)


@given(st.floats(0, 100))
@examples(30)
def test_floats_are_refused(number: float) -> None:
    # 12
    for key in ("max_surge", "max_unavailable", "max_in_flight"):
        with pytest.raises(InputError, match=key):
            variables.budget({key: number}, "rollout_budget")


@given(budgets(), st.integers(0, 1000))
@examples(200)
def test_a_budget_always_leaves_room(budget: Budget, desired: int) -> None:
    # 4: never 0/0.
    allowed = budget.resolve(desired)
    assert (
        allowed.surge >= 0 and allowed.unavailable >= 0 and allowed.surge + allowed.unavailable >= 1
    )
    assert allowed.in_flight is None or (
        allowed.in_flight == allowed.surge >= 1 and allowed.unavailable == 0
    )
    assert (
        allowed.unavailable <= max(desired, 1)
        and allowed.surge <= max(desired, 4)
        and not math.isnan(allowed.surge)
    )
