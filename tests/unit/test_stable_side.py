# SPDX-License-Identifier: GPL-3.0-or-later
"""The stable side of a rollout: repaired where a waypoint keeps it, brought back where the new
ones break.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import RolloutFailed
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.loop.stage_run import (
    frozen,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.budget import (
    Budget,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.evaluate import (
    Decision,
    evaluate,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.forecast import forecast
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import (
    Composition,
    Instance,
    Rotation,
    State,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.progress import (
    Failure,
    ProgressTracker,
    Rules,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.shares import Target
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import (
    Gate,
    Groups,
    Plan,
    RolloutTarget,
    Stage,
    Step,
    Waypoint,
    stages,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.targets import divide
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.weights import WeightSplit
from ansible_collections.progressive.rollout.tests.simulations.world.machine import START
from ansible_collections.progressive.rollout.tests.simulations.world.runs import DRIVERS
from ansible_collections.progressive.rollout.tests.simulations.world.walks import WELL, Walks
from ansible_collections.progressive.rollout.tests.simulations.world.world import Fault, Life
from ansible_collections.progressive.rollout.tests.support.decisions import some

NOW = 100.0
# Seconds from when an instance ends to when another one is ready: checks fail three times, a look
# at its host, and the start.
REPAIRED = 2.0
DIES = Life(start=0.2, stop=0.1, work=0.1, crash=2.0)
RULES = Rules(progress_deadline=60.0)
BY_WEIGHT = Plan("canary", (Step("one", weight=20),))
BY_NUMBER = Plan("canary", (Step("one", replicas=1),))
BY_GROUPS = Plan("canary", Groups(1, 1))
BLUE_GREEN = Plan("blue_green")


def listed(
    plan: Plan, desired: int, before: int | None = None, budget: Budget | None = None
) -> tuple[Stage, ...]:
    allowed = (budget or Budget(1, 0)).resolve(desired)
    return stages(
        plan, RolloutTarget(2, desired, allowed, desired if before is None else before, 1)
    )


def turn(
    fleet: list[Instance],
    waypoint: Waypoint,
    budget: Budget | None = None,
    progress: ProgressTracker | None = None,
) -> Decision:
    return evaluate(
        fleet,
        waypoint,
        budget or Budget(1, 0),
        RULES,
        progress or ProgressTracker(NOW, old=len(fleet)),
        NOW,
    )


def wait(shop: Walks, seconds: float) -> None:
    """Walk to the first step of a canary, and wait there."""
    shop.walk(listed(BY_WEIGHT, 4)[0].waypoint, seconds)


def switch(shop: Walks, seconds: float) -> None:
    """Switch, and keep the old set for so long."""
    prepare, switched, hold, _retire = (one.waypoint for one in listed(BLUE_GREEN, 4))
    shop.walk(prepare)
    shop.walk(switched)
    shop.walk(hold, seconds)


def repaired(shop: Walks) -> int:
    """Return how many stable instances were started in the place of those that ended."""
    return sum(one.created > START - 1 for one in shop.of(1))


def stable_at(shop: Walks, second: float) -> int:
    """Return how many stable instances were ready at a time."""
    return next(sample.stable for sample in shop.samples if sample.at >= second)


def rolling(desired: int) -> Waypoint:
    """Where all are new."""
    return listed(Plan(), desired)[0].waypoint


# Repaired while it is waited
# -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plan", "stage"),
    [(BY_WEIGHT, "one"), (BY_NUMBER, "one"), (BY_GROUPS, "group 1"), (BLUE_GREEN, "prepare")],
)
@pytest.mark.parametrize("crashes", [[2, 4, 6, 8], [2, 2, 2], [2, 2, 2, 2]])
def test_stable_instances_that_die_while_the_rollout_waits_are_started_again(
    plan: Plan, stage: str, crashes: list[int]
) -> None:
    point = next(one.waypoint for one in listed(plan, 4) if one.name == stage)
    dying = [replace(DIES, crash=float(crash)) for crash in crashes]
    shop = Walks([WELL] * (4 - len(crashes)) + dying)
    shop.walk(point, 12.0)
    assert repaired(shop) == min(point.old, len(crashes))
    short = [one.at for one in shop.samples if one.at >= 2 and one.stable < point.old]
    assert all(any(at - REPAIRED < crash <= at for crash in crashes) for at in short)
    assert shop.peak <= max(5, point.new + point.old)
    # It is a repair, not a rollout: as many new ones were made as were asked for.
    assert len(shop.of(2)) == point.new


def test_the_old_set_that_is_kept_warm_is_kept_whole() -> None:
    shop = Walks([DIES, *[WELL] * 3])
    switch(shop, 10.0)
    assert repaired(shop) == 1 and stable_at(shop, 2 + REPAIRED) == 4


def test_rolling_has_no_old_side_to_keep() -> None:
    shop = Walks([replace(DIES, crash=1.0), *[WELL] * 3], new=[Life(start=2.0)])
    shop.walk(rolling(4))
    assert repaired(shop) == 0


def test_one_on_a_host_that_is_gone_is_replaced_elsewhere() -> None:
    shop = Walks(4)
    shop.machine.at(START + 5.0, lambda: shop.strike(Fault("host away", 5.0, math.inf, "web1")))
    wait(shop, 20.0)
    assert sum(one.labels.host == "web1" for one in shop.of(1)) == 2
    assert repaired(shop) == 2 and stable_at(shop, 20.0) == 4


# Within the budget, and not without end
# --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flight", "total", "expected"),
    [(1, 5, (0, 1)), (2, 5, (0, 2)), (3, 5, (1, 2)), (3, 7, (0, 1))],
)
def test_repair_comes_before_replacing_and_within_the_same_limits(
    flight: int, total: int, expected: tuple[int, int]
) -> None:
    # Two stable ones and one new one are missing.
    fleet = [
        *some(4),
        *some(1, 2),
        *some(total - 5, 1, State.DRAINING, rotation=Rotation.OUT, draining_since=NOW, active=1),
    ]
    decision = turn(fleet, Waypoint(2, 2, 6, 5, stable=1), Budget(max_in_flight=flight))
    assert (decision.create, decision.create_old) == expected


def held(shop: Walks) -> RolloutFailed:
    """Wait at the first step of a canary, and return why the rollout is held."""
    end = shop.failure(listed(BY_WEIGHT, 4)[0].waypoint, 100.0)
    assert end.then == "hold"  # going back would lead to what fails
    return end


def test_a_stable_side_that_cannot_start_ends_held() -> None:
    shop = Walks([DIES, *[WELL] * 3], again=[Life(crash=1.0, start=9.0)])
    why = str(held(shop))
    assert "(rollout_failure_limit 3)" in why and "of the stable revision on web" in why
    assert repaired(shop) == 3


def test_one_that_never_becomes_ready_is_replaced_after_its_time() -> None:
    health = {**DRIVERS["health"], "deadline": "5s"}
    shop = Walks([DIES, *[WELL] * 3], again=[Life(start=math.inf), WELL], health=health)
    wait(shop, 20.0)
    assert repaired(shop) == 2 and stable_at(shop, 2 + REPAIRED + 5 + REPAIRED) == 4


def test_one_that_starts_and_breaks_over_and_over_ends_held() -> None:
    shop = Walks([DIES, *[WELL] * 3], again=[DIES])
    held(shop)
    assert repaired(shop) == 3


# Beside a share of the requests
# ----------------------------------------------------------------------------------------


def test_instances_beyond_those_that_carry_a_share_do_not_lower_what_each_gets() -> None:
    """Before the switch all new ones are started, and the first still carry the share alone."""
    shop = Walks(2, watch_new=0)
    plan = Plan("canary", (Step("step 1", weight=1), Step("step 2", weight=2)), standby=1)
    for stage in listed(plan, 2):
        shop.walk(stage.waypoint)


# What is asked for more
# ------------------------------------------------------------------------------------------------


def test_a_raised_number_is_met_by_both_sides_before_anybody_approves() -> None:
    path = listed(Plan("canary", (Step("one", weight=10),)), 12, before=4, budget=Budget(3, 0))
    waypoint = path[0].waypoint
    shop = Walks(4, 3)
    assert (waypoint.new, waypoint.old) == (2, 12)
    shop.walk(waypoint)
    assert shop.elapsed < 2 and len(shop.serving(shop.balancers["lb1"])) == 14


def test_nothing_is_started_before_it_is_confirmed() -> None:
    for plan in (Plan(), BY_WEIGHT, BLUE_GREEN):
        first, *_others = listed(
            replace(plan, confirm_rollout=(Gate("ask", "approval"),)), 12, before=4
        )
        assert (first.waypoint.new, first.waypoint.old) == (0, 4)


# Kept as it is
# --------------------------------------------------------------------------------------------------


def test_what_is_kept_as_it_is_is_kept_in_repair() -> None:
    stable = Composition("1", 1, 6)
    waypoint = Waypoint(2, 3, 4, 6, stable=1)
    # In the middle of a walk from 6 old ones, one of which died: none is brought back that was to
    # go.
    assert frozen([*some(5), *some(1, 2)], waypoint, stable).old == 5
    # Fewer than the stage keeps: those are missing, whoever looks first after they died.
    assert frozen([*some(2), *some(3, 2)], waypoint, stable).old == 4
    # But not more than there were before, and never more than there is room for.
    assert frozen([*some(2), *some(3, 2)], waypoint, replace(stable, replicas=3)).old == 3
    assert frozen([*some(2), *some(5, 2)], waypoint, stable).old == 2


def test_a_pause_on_the_way_to_all_new_is_no_switch() -> None:
    fleet = [*some(4), *some(1, 2)]
    kept = frozen(fleet, Waypoint(2, 4, 0, 4, 100, stable=1), Composition("1", 1, 4))
    assert (kept.new, kept.old) == (1, 4)
    decision = turn(fleet, kept)
    assert decision.reached and decision.nothing_to_do


def test_a_missing_instance_leaves_its_part_of_the_requests_of_all_targets_to_old_ones() -> None:
    targets = [Target(name, frozenset({name})) for name in ("vms", "cloud")]
    waypoint = divide(Waypoint(2, 4, 6, 8, 40, stable=1), targets)
    fleet = [
        *(replace(one, host="vms") for one in [*some(3), *some(2, 2)]),
        *(replace(one, host="cloud") for one in [*some(3), *some(1, 2)]),
    ]
    kept = frozen(fleet, waypoint, Composition("1", 1, 8))
    assert (kept.new, kept.old, kept.weight) == (3, 6, 40)
    new, old = WeightSplit(kept).weights(3, 6)
    assert Fraction(3 * new, 3 * new + 6 * old) == Fraction(3, 10), "a tenth for each of three"


def test_the_forecast_counts_what_is_started_of_the_stable_revision() -> None:
    path = [stage.waypoint for stage in listed(BY_WEIGHT, 6, before=2, budget=Budget(2, 0))]
    expected = forecast(some(2, ready_since=-99.0), path, Budget(2, 0), Rules(), 2.0, 1.0)
    assert expected.seconds is not None and expected.peak == 8


# Where none of them serves any more
# ------------------------------------------------------------------------------------

CANARY = Waypoint(2, 2, 4, 4, 20, stable=1)
DARK = Waypoint(2, 2, 2, 2, 0, stable=1)
SWITCH = Waypoint(2, 2, 2, 2, 100, stable=1)
READY_IN_THE_DARK = some(2, 2, rotation=Rotation.OUT)
GONE = [
    some(2, 1, State.FAILED),
    some(2, 1, State.NOT_READY, rotation=Rotation.IN),
    some(2, 1, State.UNREACHABLE),
    [],
]


@pytest.mark.parametrize("old", GONE)
def test_no_stable_instance_serves_any_more(old: list[Instance]) -> None:
    assert turn([*old, *some(1, 2)], CANARY).stable_lost
    assert turn([*old, *READY_IN_THE_DARK], DARK).stable_lost
    # With a set that is not ready there is nothing to decide, and after a switch none of them is to
    # serve.
    assert not turn([*old, *READY_IN_THE_DARK[:1]], DARK).stable_lost
    assert not turn([*old, *some(1, 2, State.NOT_READY)], CANARY).stable_lost
    assert not turn([*old, *some(2, 2)], SWITCH).stable_lost
    assert not turn([*old, *some(2, 2)], Waypoint(2, 2, 0, 2, stable=1)).stable_lost


@pytest.mark.parametrize(
    "old",
    [
        some(1),
        # a balancer was restarted: it is back in a moment
        some(1, rotation=Rotation.ABSENT, lb_healthy=False),
        # only our own check fails it
        some(1, state=State.NOT_READY, rotation=Rotation.IN, lb_healthy=True),
    ],
)
def test_a_stable_instance_serves_or_will_in_a_moment(old: list[Instance]) -> None:
    assert not turn([*old, *some(2, 2)], CANARY).stable_lost
    assert not turn([*old, *READY_IN_THE_DARK], DARK).stable_lost


def test_a_promotion_is_not_held_up_by_a_set_that_is_only_kept_warm() -> None:
    shop = Walks([DIES, *[WELL] * 3], again=[Life(crash=1.0, start=9.0)])
    shop.waits.disturb(math.inf)  # what ends is started again, and not for ever
    switch(shop, 15.0)
    assert repaired(shop) == 3
    before = shop.elapsed
    shop.walk(listed(BLUE_GREEN, 4)[-1].waypoint)
    assert shop.elapsed < before + 10


# New ones that break
# --------------------------------------------------------------------------------------------------

LATER = Life(start=0.2, stop=0.1, work=0.1, crash=3.0)  # ready, counted on, and gone


def below(shop: Walks, floor: int) -> float:
    """For how many seconds at a stretch, at most, fewer were in service."""
    longest, since = 0.0, math.inf
    for sample in shop.samples:
        since = min(since, sample.at) if sample.serving < floor else math.inf
        longest = max(longest, sample.at - since)
    return longest


@pytest.mark.parametrize(
    ("desired", "surge", "later"),
    [
        *((4, 1, [0]), (4, 2, [0, 1]), (6, 1, [0, 1, 2]), (6, 2, [0])),
        *((10, 1, [0, 1]), (10, "50%", [0, 1, 2])),
    ],
)
def test_a_revision_that_crashes_after_it_was_ready_goes_back(
    desired: int, surge: int | str, later: list[int]
) -> None:
    lives = [replace(LATER, crash=3.0 + more) for more in later]
    shop = Walks(desired, surge, new=lives, min_ready=1)
    assert shop.failure(rolling(desired)).id == "PR-604"
    shop.roll_back()
    # Too few for no longer than an instance takes to start: it is seen, started, ready, and in
    # rotation.
    assert below(shop, desired) <= REPAIRED


@pytest.mark.parametrize("number", [0, 3, 5])
def test_a_good_revision_of_which_one_instance_crashes_is_promoted(number: int) -> None:
    shop = Walks(6, 2, new=[LATER if place == number else WELL for place in range(7)], min_ready=1)
    shop.walk(rolling(6))
    assert below(shop, 6) <= REPAIRED
    assert {one.labels.generation for one in shop.alive()} == {2}


def test_stable_ones_come_back_where_new_ones_broke() -> None:
    progress = ProgressTracker(
        NOW - 9, new=2, old=3, began=NOW - 50, failures=(Failure("2-x", "it ended", late=True),)
    )
    rolling = Waypoint(2, 5, 0, 5, stable=1)
    # One is missing, and comes from the side that works; the new one after it, as far as there is
    # room.
    decision = turn([*some(2), *some(2, 2)], rolling, Budget(1, 0), progress)
    assert (decision.create_old, decision.create) == (1, 1)
    # It is not started twice, nor sent away before it is there.
    coming = some(1, 1, State.STARTING, NOW)
    decision = turn(
        [*some(2), *coming, *some(2, 2), *some(1, 2, State.STARTING, NOW)],
        rolling,
        Budget(1, 0),
        progress,
    )
    assert (decision.create_old, decision.drain) == (0, ())
    # With as many as are needed it is like any other old one: without use as long as it is not
    # ready.
    decision = turn([*some(2), *coming, *some(3, 2)], rolling, Budget(1, 0), progress)
    assert decision.drain == (coming[0].id,)
    # What never was ready broke nothing, and what the balancers send requests to is in service.
    early = replace(progress, failures=(Failure("2-x", "it ended"),))
    assert turn([*some(2), *some(2, 2)], rolling, Budget(1, 0), early).create_old == 0
    unwell = some(3, 1, State.NOT_READY, rotation=Rotation.IN, lb_healthy=True)
    assert turn([*unwell, *some(2, 2)], rolling, Budget(1, 0), progress).create_old == 0
    # Nothing is started of a revision that a rollback leads away from, nor where there is none.
    assert (
        turn([*some(2), *some(2, 2)], replace(rolling, stable=0), Budget(1, 0), progress).create_old
        == 0
    )


def test_who_becomes_ready_for_a_moment_makes_nothing_good() -> None:
    broke = Failure("i1", "it ended", late=True)
    progress = ProgressTracker(
        0.0, new=1, old=5, failures=(broke, Failure("i2", "it never started"))
    )
    # More are ready than ever: that makes good what never started, and not what broke.
    later = progress.advance(2, 5, (), 10.0, lasting=0)
    assert later.failures == (broke,) and later.since == 10.0
    assert later.advance(2, 5, (), 200.0, lasting=1).failures == ()
