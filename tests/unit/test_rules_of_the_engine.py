# SPDX-License-Identifier: GPL-3.0-or-later
"""Single rules of the engine, each in the smallest case where it decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.budget import (
    Budget,
    Percent,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.evaluate import (
    Decision,
    evaluate,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.fleet_count import (
    count_fleet,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import (
    FailureAction,
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
    Plan,
    RolloutTarget,
    Stage,
    Step,
    Waypoint,
    rolling,
    stages,
    still_passed,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.targets import divide
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.weights import WeightSplit
from ansible_collections.progressive.rollout.tests.support.decisions import some

NOW = 400.0
SINCE = ProgressTracker(NOW, new=3)


def goal(desired: int, before: int, budget: Budget, stable: int = 1) -> RolloutTarget:
    return RolloutTarget(2, desired, budget.resolve(desired), before, stable)


def points(plan: Plan, to: RolloutTarget) -> dict[str, Waypoint]:
    return {stage.name: stage.waypoint for stage in stages(plan, to)}


def decide(
    fleet: Sequence[Instance],
    waypoint: Waypoint,
    progress: ProgressTracker,
    budget: Budget,
    ready_deadline: float | None = None,
) -> Decision:
    rules = Rules(ready_deadline=ready_deadline)
    return evaluate(fleet, waypoint, budget, rules, progress, NOW)


# Failures
# --------------------------------------------------------------------------------------------------


def test_an_overdue_instance_makes_room_for_another_that_may_fail() -> None:
    fleet = [*some(4), *some(1, 2, State.STARTING, 10.0)]
    progress = ProgressTracker(NOW, old=4)
    decision = decide(fleet, rolling(2, 4), progress, Budget(4, 0), ready_deadline=30.0)
    assert decision.create == 2, "one of three has failed, and is no longer waited for"


@pytest.mark.parametrize(
    ("stable", "then"), [([True, True, True], FailureAction.HOLD), ([True, False, False], None)]
)
def test_only_where_nothing_but_stable_instances_fails_is_it_held(
    stable: list[bool], then: FailureAction | None
) -> None:
    failures = tuple(Failure(f"i{n}", "", stable=one) for n, one in enumerate(stable))
    progress = ProgressTracker(NOW, old=3, kept=3, failures=failures)
    decision = decide(
        some(3), Waypoint(2, 1, 4, 4, 20, stable=1), progress, Budget(1, 0), ready_deadline=30.0
    )
    assert decision.failed_id == "PR-604" and decision.then is then


def test_where_no_stable_instance_serves_is_known_although_too_many_failed() -> None:
    point = Waypoint(2, 1, 4, 4, 20, stable=1)
    failures = tuple(Failure(f"i{n}", "", stable=True) for n in range(3))
    progress = ProgressTracker(NOW, new=1, old=0, failures=failures)
    assert decide(some(1, 2), point, progress, Budget(1, 0)).stable_lost
    new = tuple(Failure(f"i{n}", "") for n in range(3))
    progress = ProgressTracker(NOW, new=1, old=0, failures=new)
    assert not decide(some(1, 2), point, progress, Budget(1, 0)).stable_lost, "it goes back"


@pytest.mark.parametrize(("stable", "admitted"), [(3, 0), (2, 1)])
def test_what_a_superseded_rollout_left_out_of_rotation_stays_there_unless_it_is_needed(
    stable: int, admitted: int
) -> None:
    """It may never have passed a gate; where it stays, nothing waits for it."""
    idle = some(2, 2, rotation=Rotation.OUT)
    point = Waypoint(3, 0, stable + 2, 3, stable=1)
    decision = decide([*some(stable), *idle], point, SINCE, Budget(2, 0))
    assert len(decision.admit) == admitted and decision.reached is not bool(admitted)


def test_on_a_way_back_what_a_superseded_rollout_left_out_of_rotation_stays_there_as_well() -> None:
    """As many get requests as stable instances are missing, and none where all are there."""
    back = Waypoint(1, 4, 0, 4, weight=100, headroom=Fraction(0))
    left = some(4, 2, rotation=Rotation.OUT)
    assert len(decide([*some(3), *left], back, SINCE, Budget(2, 0)).admit) == 1
    assert not decide([*some(4), *left], back, SINCE, Budget(2, 0)).admit


def test_more_replicas_are_no_reason_to_let_requests_pass_a_gate() -> None:
    """Those that carried all requests until now are enough until the new ones are there."""
    idle = some(2, 2, rotation=Rotation.OUT)
    point = Waypoint(3, 0, 5, 4, stable=1, before=3)
    assert decide([*some(3), *idle], point, SINCE, Budget(2, 0)).admit == ()
    assert len(decide([*some(2), *idle], point, SINCE, Budget(2, 0)).admit) == 1


@pytest.mark.parametrize(("serves", "admitted"), [(True, 0), (False, 1)])
def test_a_host_that_only_the_controller_cannot_reach_is_no_reason_either(
    serves: bool, admitted: int
) -> None:
    """Load balancers send requests to its instance, and their checks pass or not."""
    lost = replace(some(1)[0], id="lost", state=State.UNREACHABLE, lb_healthy=serves)
    idle = some(2, 2, rotation=Rotation.OUT)
    point = Waypoint(3, 0, 5, 3, stable=1)
    assert len(decide([*some(2), lost, *idle], point, SINCE, Budget(2, 0)).admit) == admitted


def test_a_stable_instance_that_one_balancer_lost_counts_once() -> None:
    """It serves at another one, and comes back."""
    partly = replace(some(1)[0], id="partly", rotation=Rotation.PARTIAL)
    idle = some(2, 2, rotation=Rotation.OUT)
    point = Waypoint(3, 0, 5, 3, stable=1)
    admit = decide([*some(1), partly, *idle], point, SINCE, Budget(2, 0)).admit
    assert len(admit) == 2 and "partly" in admit


def test_what_a_superseded_rollout_has_in_rotation_somewhere_is_put_in_rotation_everywhere() -> (
    None
):
    partly = replace(some(1, 2)[0], rotation=Rotation.PARTIAL)
    point = Waypoint(3, 0, 4, 3, stable=1)
    assert decide([*some(3), partly], point, SINCE, Budget(2, 0)).admit == (partly.id,)


@pytest.mark.parametrize("found_healthy", [True, False])
def test_a_bad_instance_stays_while_load_balancers_find_a_stable_one_down(
    found_healthy: bool,
) -> None:
    """On a rollback the stable instances can carry all requests only as far as they get them."""
    bad = some(1, 2)
    stable = [*some(2), replace(some(1)[0], id="stable", lb_healthy=found_healthy)]
    point = Waypoint(1, 3, 0, 3, weight=100, stable=1, headroom=Fraction(1))
    drained = decide([*stable, *bad], point, SINCE, Budget(1, 0)).drain
    assert (bad[0].id in drained) is found_healthy


def test_before_a_switch_an_old_instance_that_load_balancers_lost_is_put_in_rotation() -> None:
    """The new ones wait for the switch out of rotation, the old ones do not."""
    lost = replace(some(1)[0], id="lost", rotation=Rotation.OUT)
    point = Waypoint(2, 3, 3, 3, 100, switch_at=3, stable=1)
    new = some(2, 2, rotation=Rotation.OUT)
    assert decide([*some(2), lost, *new], point, SINCE, Budget(3, 0)).admit == ("lost",)


def test_an_instance_that_the_budget_can_spare_is_no_reason_to_let_requests_pass_a_gate() -> None:
    idle = some(2, 2, rotation=Rotation.OUT)
    point = Waypoint(3, 0, 4, 2, stable=1)
    assert decide([*some(1), *idle], point, SINCE, Budget(0, 1)).admit == ()
    assert len(decide([*some(1), *idle], point, SINCE, Budget(1, 0)).admit) == 1
    assert len(decide(idle, point, SINCE, Budget(0, 2)).admit) == 1, "none at all would serve"


def test_a_redundant_instance_stays_while_too_few_others_are_available() -> None:
    """One that fails our check, and that load balancers still have, is not enough."""
    old = some(2)
    fleet = [replace(old[0], redundant=True), old[1], *some(1, 2)]
    failing = replace(some(1, 2)[0], id="failing", state=State.NOT_READY, ready_since=None)
    assert decide([*fleet, failing], rolling(2, 3), SINCE, Budget(1, 0)).drain == ()
    third = replace(some(1, 2)[0], id="third")
    assert decide([*fleet, third], rolling(2, 3), SINCE, Budget(1, 0)).drain == (old[0].id,)


def test_of_redundant_instances_the_one_that_a_load_balancer_lost_goes_first() -> None:
    """It is none of those that are available."""
    one, other = (replace(instance, redundant=True) for instance in some(2))
    lost = replace(other, rotation=Rotation.PARTIAL)
    fleet = [one, lost, *some(2, 2)]
    assert decide(fleet, rolling(2, 3), SINCE, Budget(1, 0)).drain == (lost.id,)


def test_on_a_way_back_a_redundant_new_instance_goes_before_the_baseline() -> None:
    """Whichever the platform reports first: the baseline carries requests as stable ones do."""
    (baseline,), (bad,) = some(1, 2), some(1, 3)
    fleet = [*some(2), replace(baseline, redundant=True), replace(bad, redundant=True)]
    point = Waypoint(1, 3, 0, 3, weight=100, stable=1, baseline=2, headroom=Fraction(1))
    assert decide(fleet, point, SINCE, Budget(1, 0)).drain == (bad.id,)


def test_a_standby_set_is_not_renewed_in_place_of_new_instances_that_broke() -> None:
    """After the switch only new instances replace those that fail."""
    point = Waypoint(2, 3, 3, 3, 100, switch_at=3, stable=1)
    broken = some(1, 2, State.FAILED, was_ready=True)
    fleet = [*some(3, rotation=Rotation.OUT), *some(2, 2), *broken]
    since = replace(SINCE, old=3, kept=3)
    decision = decide(fleet, point, since, Budget(2, 0))
    assert (decision.create, decision.create_old) == (1, 0)


def test_after_a_switch_a_new_instance_arrives_once_it_is_in_rotation() -> None:
    """Not once it is ready, as before the switch."""
    point = Waypoint(2, 3, 3, 3, 100, switch_at=3, stable=1)
    repaired = some(1, 2, created=3.0, rotation=Rotation.OUT)
    fleet = [*some(3, rotation=Rotation.OUT), *some(2, 2)]
    waits = decide([*fleet, *repaired], point, SINCE, Budget(2, 0))
    assert not waits.reached and waits.admit == (repaired[0].id,)
    assert decide([*fleet, *some(1, 2, created=3.0)], point, SINCE, Budget(2, 0)).reached


def test_after_a_switch_what_has_just_got_ready_of_the_old_set_stays_on_standby() -> None:
    point = Waypoint(2, 3, 3, 3, 100, switch_at=3, stable=1)
    standby = some(3, rotation=Rotation.OUT, created=NOW - 1)
    rules = Rules(min_ready=10.0)
    decision = evaluate([*standby, *some(3, 2)], point, Budget(3, 0), rules, SINCE, NOW)
    assert decision.admit == ()


def test_a_switch_that_a_rollback_undid_is_made_again_by_all_new_instances() -> None:
    """A rollback that failed is held, and the rollout goes on from where it had switched."""
    point = Waypoint(2, 3, 3, 3, 100, switch_at=0, stable=1)
    idle = some(3, 2, rotation=Rotation.OUT)
    few = decide([*some(3), *idle[:2]], point, SINCE, Budget(2, 0))
    assert (few.admit, few.standby) == ((), ())
    switch = decide([*some(3), *idle], point, SINCE, Budget(2, 0))
    assert (len(switch.admit), len(switch.standby)) == (3, 3)


def test_a_switch_keeps_the_instances_that_are_prepared() -> None:
    """On a way back more stable instances may run than are wanted, and not all be ready yet."""
    point = Waypoint(1, 2, 2, 2, 100, switch_at=2)
    idle = some(4, 1, rotation=Rotation.OUT)
    idle[3] = replace(idle[3], ready_since=NOW)
    rules = Rules(min_ready=2.0)
    decision = evaluate([*idle, *some(2, 2)], point, Budget(2, 0), rules, SINCE, NOW)
    assert len(decision.admit) == 2 and idle[3].id in decision.drain


def repaired(name: str, started: float) -> Failure:
    return Failure(name, "", stable=True, started=started)


def test_repaired_instances_that_ran_at_the_same_time_fail_once() -> None:
    progress = ProgressTracker(0.0).advance(1, 4, [], 0.0)
    together = [repaired("a", 10.0), repaired("b", 10.0), repaired("c", 12.0)]
    progress = progress.advance(1, 4, together[:2], 20.0).advance(1, 4, together, 21.0)
    assert [failure.id for failure in progress.failures] == ["a"]
    again = [*together, repaired("d", 20.0)]
    assert [f.id for f in progress.advance(1, 4, again, 30.0).failures] == ["a", "d"]


# Hosts that do not answer
# --------------------------------------------------------------------------------------------------


def silent(since: float) -> Instance:
    """A new instance that still serves on a host that has not answered since then."""
    (instance,) = some(1, 2, State.UNREACHABLE, rotation=Rotation.IN, lb_healthy=True)
    return replace(instance, id="silent", silent_since=since)


def test_what_serves_on_a_silent_host_is_waited_for_first() -> None:
    decision = decide([*some(3, 2), silent(NOW - 299)], rolling(2, 4), SINCE, Budget(1, 0))
    assert decision.nothing_to_do and not decision.reached


def test_what_serves_on_a_host_that_is_silent_for_long_is_replaced_and_goes_after_that() -> None:
    fleet = [*some(3, 2), silent(NOW - 300)]
    decision = decide(fleet, rolling(2, 4), SINCE, Budget(1, 0))
    assert (decision.create, decision.drain) == (1, ())
    starting = [*fleet, *some(1, 2, State.STARTING, rotation=Rotation.ABSENT)]
    assert decide(starting, rolling(2, 4), SINCE, Budget(1, 0)).nothing_to_do
    decision = decide([*some(4, 2), silent(NOW - 300)], rolling(2, 4), SINCE, Budget(1, 0))
    assert (decision.create, decision.drain) == (0, ("silent",))


def test_what_one_load_balancer_lost_on_a_silent_host_stays_while_another_sends_it_requests() -> (
    None
):
    lost = replace(silent(NOW - 10), rotation=Rotation.PARTIAL, lb_healthy=False)
    kept = decide([*some(3, 2), replace(lost, served=True)], rolling(2, 4), SINCE, Budget(1, 0))
    assert kept.nothing_to_do
    assert decide([*some(3, 2), lost], rolling(2, 4), SINCE, Budget(1, 0)).drain == ("silent",)
    long = replace(lost, served=True, silent_since=NOW - 300)
    assert decide([*some(3, 2), long], rolling(2, 4), SINCE, Budget(1, 0)).create == 1
    assert decide([*some(4, 2), long], rolling(2, 4), SINCE, Budget(1, 0)).drain == ("silent",)


def test_what_fails_our_check_stays_where_a_load_balancer_sends_it_requests() -> None:
    """Too few serve at all load balancers, since one of them has lost some."""
    failing = some(1, 1, State.NOT_READY, rotation=Rotation.PARTIAL)
    fleet = [*failing, *some(2, 2), *some(1, 2, rotation=Rotation.PARTIAL, lb_healthy=False)]
    fleet = [replace(i, served=True) for i in fleet]
    assert not decide(fleet, rolling(2, 3), SINCE, Budget(1, 0)).drain


def test_a_host_that_answers_again_keeps_what_serves_there() -> None:
    """Its replacement goes where it is not in service yet."""
    starting = replace(some(1, 2, State.STARTING, rotation=Rotation.ABSENT)[0], id="replacement")
    decision = decide([*some(4, 2), starting], rolling(2, 4), SINCE, Budget(1, 0))
    assert (decision.create, decision.drain) == (0, ("replacement",))


def test_a_ready_instance_that_one_load_balancer_lost_goes_only_once_enough_ready_ones_serve() -> (
    None
):
    """Those that fail our check serve, too, but may be as bad as it says."""
    old = some(1, rotation=Rotation.PARTIAL)
    new = [*some(1, 2), *some(1, 2, State.NOT_READY, rotation=Rotation.IN, lb_healthy=True)]
    assert not decide([*old, *new], rolling(2, 3), SINCE, Budget(0, 1)).drain
    new = some(2, 2)
    assert decide([*old, *new], rolling(2, 3), SINCE, Budget(0, 1)).drain == (old[0].id,)


def test_a_restarted_instance_that_is_ready_goes_only_once_enough_ready_ones_serve() -> None:
    restarted = [replace(i, crashed=True) for i in some(1, 2)]
    failing = some(1, 1, State.NOT_READY, rotation=Rotation.IN, lb_healthy=True)
    kept = decide([*restarted, *some(2, 2), *failing], rolling(2, 3), SINCE, Budget(1, 0))
    assert kept.drain == (failing[0].id,)
    gone = decide([*restarted, *some(3, 2)], rolling(2, 3), SINCE, Budget(1, 0))
    assert gone.drain == (restarted[0].id,)


def test_on_a_silent_host_what_passed_its_check_stays_while_the_others_failed_theirs() -> None:
    """Load balancers find all of them well, and nobody can ask them."""
    serves = {"rotation": Rotation.IN, "lb_healthy": True, "silent_since": NOW - 3}
    old = some(1, 1, State.UNREACHABLE, **serves)
    new = some(3, 2, State.UNREACHABLE, was_unready=True, **serves)
    assert not decide([*old, *new], rolling(2, 3), SINCE, Budget(1, 0)).drain
    well = [replace(i, was_unready=False) for i in new]
    assert decide([*old, *well], rolling(2, 3), SINCE, Budget(1, 0)).drain == (old[0].id,)


@pytest.mark.parametrize(("balancers", "us", "gone"), [([], 1, 0), ([], 2, 1), (["lb1"], 1, 1)])
def test_what_one_load_balancer_lost_stays_while_too_few_serve_at_all_targets(
    balancers: list[str], us: int, gone: int
) -> None:
    """It still serves at the other one, for all targets unless they have their own."""
    targets = [
        Target("eu", frozenset({"h0"}), balancers=frozenset(balancers)),
        Target("us", frozenset({"h1"})),
    ]
    old = some(1, 1, host="h0", rotation=Rotation.PARTIAL, lb_healthy=False, served=True)
    fleet = [*old, *some(2, 2, host="h0"), *some(us, 2, created=1.0, host="h1")]
    fleet += some(2 - us, 2, State.STARTING, host="h1", rotation=Rotation.OUT)
    decision = decide(fleet, divide(rolling(2, 4), targets), SINCE, Budget(1, 0))
    assert len(decision.drain) == gone


def test_where_stable_instances_returned_for_new_ones_that_broke_what_is_kept_is_reached() -> None:
    """A fleet is kept as it is, with one new instance that broke: a stable one carries its part."""
    kept = Waypoint(2, 1, 1, 3, stable=1)
    decision = decide([*some(1, 2), *some(2)], kept, SINCE, Budget(2, 0))
    assert decision.nothing_to_do and decision.reached
    assert not decide([*some(1, 2), *some(3)], kept, SINCE, Budget(2, 0)).reached


# Switches
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("switch_at", "switched"), [(None, False), (0, True)])
def test_balancers_that_lost_both_sets_have_not_switched(
    switch_at: int | None, switched: bool
) -> None:
    fleet = [*some(2, rotation=Rotation.ABSENT), *some(2, 2, rotation=Rotation.ABSENT)]
    point = Waypoint(2, 2, 2, 2, 100, switch_at=switch_at, stable=1)
    assert count_fleet(fleet, point, Rules(), 0.0, NOW).switched is switched


@pytest.mark.parametrize(("balancers", "us", "gone"), [([], 0, 0), (["lb1"], 0, 1), ([], 1, 1)])
def test_what_was_judged_bad_at_a_target_goes_once_the_others_carry_its_requests(
    balancers: list[str], us: int, gone: int
) -> None:
    """Load balancers send requests to all targets, unless they are of one."""
    targets = [
        Target("eu", frozenset({"h0"}), balancers=frozenset(balancers)),
        Target("us", frozenset({"h1"})),
    ]
    back = divide(Waypoint(1, 2, 0, 2, weight=100, stable=1, headroom=Fraction(5, 4)), targets)
    fleet = [*some(1, 1, host="h0"), *some(us, 1, created=1.0, host="h1"), *some(1, 2, host="h0")]
    decision = decide(fleet, back, ProgressTracker(NOW, new=1), Budget(2, 0))
    assert len(decision.drain) == gone


def test_what_was_judged_bad_and_restarted_by_its_platform_goes_with_the_others() -> None:
    """Once the stable instances carry all requests; a stable one that was restarted is no bad one."""
    back = Waypoint(1, 3, 0, 3, weight=100, stable=1, headroom=Fraction(5, 4))
    crashed, again = some(1, 2, crashed=True), some(1, 1, created=2.0, crashed=True)
    for others in ([], some(1, 2, created=1.0)):
        fleet = [*some(3), *again, *crashed, *others]
        decision = decide(fleet, back, ProgressTracker(NOW, new=3), Budget(2, 0))
        assert set(decision.drain) == {instance.id for instance in (*crashed, *others)}


def test_stable_instances_that_were_restarted_carry_requests_until_they_are_replaced() -> None:
    """So what was judged bad is not needed, though all stable instances ended at once."""
    back = Waypoint(1, 3, 0, 3, weight=100, stable=1, headroom=Fraction(5, 4))
    bad = some(1, 2, created=1.0)
    fleet = [*some(3, crashed=True), *bad]
    decision = decide(fleet, back, ProgressTracker(NOW, new=3), Budget(2, 0))
    assert set(decision.drain) == {instance.id for instance in bad}


# Numbers
# --------------------------------------------------------------------------------------------------


def test_old_and_new_instances_of_a_target_are_rounded_together() -> None:
    targets = [Target("eu", frozenset({"h0"})), Target("us", frozenset({"h1"}))]
    divided = divide(Waypoint(2, new=1, old=3, desired=4), targets)
    assert [(part.new, part.old, part.desired) for _t, part in divided.parts] == [(1, 1, 2)] * 2


def test_instances_beyond_those_that_carry_a_weight_do_not_raise_it() -> None:
    new, old = WeightSplit(Waypoint(2, 6, 8, 10, 20, carrying=2)).weights(6, 8)
    assert Fraction(6 * new, 6 * new + 8 * old) == Fraction(20, 100)


def test_the_old_side_carries_the_rest_until_a_switch() -> None:
    plan = Plan("canary", (Step("a", weight=20),), standby=1)
    assert points(plan, goal(10, 10, Budget(1, 0)))["prepare"].old == 8


def test_instances_of_the_next_weight_are_never_fewer_than_there_are() -> None:
    steps = (Step("a", replicas=5), Step("b", weight=10), Step("c", ahead=20))
    found = points(Plan("canary", steps), goal(10, 10, Budget(5, 0)))
    assert (found["b"].new, found["c"].new) == (5, 5)


def test_where_all_stages_are_passed_the_last_leads_to_the_new_number() -> None:
    listed = [Stage(name, rolling(2, 4)) for name in ("replace", "promote")]
    assert still_passed(listed, listed, ["replace", "promote"]) == ["replace"]


def test_by_weight_more_new_instances_than_asked_for_do_not_replace_old_ones() -> None:
    to = RolloutTarget(2, 4, Budget(1, 0).resolve(4), 8, 1, grown=6)
    assert to.grow(Waypoint(2, 2, 6, 8)) == Waypoint(2, 6, 2, 8)
    assert to.grow(Waypoint(2, 2, 6, 8, 20)) == Waypoint(2, 2, 6, 8, 20)


def test_scaling_alone_keeps_no_surplus() -> None:
    assert goal(3, 6, Budget(1, 0), stable=2).base == 3
    assert goal(3, 6, Budget(1, 0), stable=1).base == 6


@pytest.mark.parametrize(
    ("running", "asked", "weight", "new"), [(120, 16, 10, 12), (48, 4, 25, 12), (16, 16, 10, 2)]
)
def test_a_new_side_is_sized_by_what_carries_the_requests(
    running: int, asked: int, weight: int, new: int
) -> None:
    found = points(Plan("canary", (Step("a", weight=weight),)), goal(asked, running, Budget(4, 0)))
    assert found["a"].new == new and found["promote"].new == asked


def test_in_place_one_may_be_unavailable_however_few_there_are() -> None:
    budget = Budget(1, Percent(Decimal(20)))
    assert (budget.resolve(3).unavailable, budget.without_surge().resolve(3).unavailable) == (0, 1)


def test_of_instances_that_a_balancer_lost_the_bad_one_goes_before_the_stable_ones_baseline() -> (
    None
):
    """On a rollback. The bad one began last."""
    point = Waypoint(1, 3, 0, 3, stable=1, baseline=3, headroom=Fraction(0))
    lost = [replace(i, rotation=Rotation.PARTIAL) for i in (*some(1, 3), *some(1, 2))]
    bad = replace(lost[1], created=lost[0].created + 1)
    fleet = [*some(1), lost[0], bad]
    assert decide(fleet, point, SINCE, Budget(0, 1)).drain == (bad.id,)


def test_a_surplus_of_a_target_with_load_balancers_of_its_own_is_of_no_use_to_another() -> None:
    """On a rollback, the only instance of one target was restarted, and the surplus of another has
    the room that a stable one needs.
    """
    restarted = replace(some(1, 3)[0], id="restarted", host="eu1", crashed=True)
    stable, bad = (replace(some(1, gen)[0], host="us1") for gen in (1, 3))
    for own in (True, False):
        balancers = [frozenset({f"lb-{name}"} if own else ()) for name in ("eu", "us")]
        parts = [
            Target(name, frozenset({f"{name}1"}), Fraction(1), names)
            for name, names in zip(("eu", "us"), balancers, strict=True)
        ]
        point = divide(replace(rolling(1, 2), headroom=Fraction(0)), parts)
        drained = decide([restarted, stable, bad], point, SINCE, Budget(1, 0)).drain
        assert drained == ((bad.id,) if own else ())
