# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Edge cases and bugs of other systems, each a test named after its row in the reference (E-01 to E-6c)."""

from __future__ import annotations

import itertools
from dataclasses import replace
from decimal import Decimal

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils import fleet as fleets
from ansible_collections.progressive.rollout.plugins.plugin_utils.checker import Vital
from ansible_collections.progressive.rollout.plugins.plugin_utils.drivers import Endpoint, Labels, Report, Server
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.budget import Budget, Percent, Room
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.evaluate import Decision, evaluate
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import (
    Health,
    Instance,
    Process,
    Rotation,
    State,
    classify,
    total,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.progress import Rules, Tally
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import LISTS, Goal, Plan, Step, Waypoint, stages
from ansible_collections.progressive.rollout.plugins.plugin_utils.errors import InputError
from ansible_collections.progressive.rollout.plugins.plugin_utils.settings import budget as parse_budget
from ansible_collections.progressive.rollout.tests.simulator import Life, Simulator, World, all_new, some

NOW = 100.0
WELL, CRASHES, NEVER = Life(), Life(crash=2, start=9), Life(never=True)


def turn(fleet: list[Instance], waypoint: Waypoint, budget: Budget, rules: Rules | None = None, now: float = NOW) -> Decision:
    return evaluate(fleet, waypoint, budget, rules or Rules(), Tally(NOW, old=len(fleet)), now)


def started(old: int, budget: Budget, rules: Rules | None = None, **world: object) -> Simulator:
    simulator = Simulator(World(**world), budget, rules or Rules(progress_deadline=60.0))  # type: ignore[arg-type]
    simulator.populate([WELL] * old)
    return simulator


# Rolling update (5.1) -------------------------------------------------------------------------------------------------


def test_e_01_not_ready_is_no_completion_and_no_room() -> None:
    decision = turn(some(2, 2, State.NOT_READY), all_new(2, 2), Budget(1, 0))
    assert not decision.reached and decision.idle


def test_e_02_failures_are_seen_and_counted() -> None:
    # That the loader shows failed instances is the platforms' contract; here: what is shown is counted, once each,
    # also when it is not shown any more.
    simulator = started(3, Budget(1, 0), lives=[CRASHES])
    end = simulator.walk(all_new(2, 3))
    assert "3 instance(s) failed" in end.failed
    assert simulator.made == 3
    gone = evaluate(some(3), all_new(2, 3), Budget(1, 0), Rules(), end.tally, float(simulator.clock))
    assert gone.failed and len(gone.tally.failures) == 3


@pytest.mark.parametrize("zero", [0, "0", "0%", "0.0%"])
@pytest.mark.parametrize("none", [0, "0%"])
def test_e_03_zero_of_both_is_refused(zero: object, none: object) -> None:
    with pytest.raises(InputError, match="rollout_budget"):
        parse_budget({"max_surge": zero, "max_unavailable": none})


@pytest.mark.parametrize("desired", [9, 3, 1])
def test_e_03_percentages_that_come_to_zero_move(desired: int) -> None:
    simulator = started(desired, parse_budget({"max_surge": 0, "max_unavailable": "10%"}))
    assert simulator.walk(all_new(2, desired)).reached
    assert (simulator.least, simulator.peak) == (desired - 1, desired)


def test_e_04_no_barrier() -> None:
    # One of three is quick: the window goes on with it while the other two still start.
    simulator = started(10, Budget(3, 0), lives=[Life(start=2), Life(start=40), Life(start=40), Life(start=2)])
    simulator.walk(all_new(2, 10), until=12)
    states = [i.state for i in simulator.fleet if i.generation == 2]
    assert states.count(State.STARTING) >= 2
    assert simulator.made >= 5
    created = [clock for clock, decision in simulator.log if decision.create]
    drained = [clock for clock, decision in simulator.log if decision.drain]
    assert created[0] == 0 and drained[0] == 3  # ready at 2, in rotation at 3
    # Stopped as soon as it is drained, and its place used as soon as it is gone: nobody waits for anybody else.
    gone = next(clock for clock, decision in simulator.log if decision.retire) + WELL.stop
    assert created[1] == gone
    assert simulator.peak == 13


def test_e_04_a_ready_one_frees_an_old_one_while_others_start() -> None:
    fleet = [*some(10), *some(1, 2), *some(2, 2, State.STARTING)]
    decision = turn(fleet, all_new(2, 10), Budget(3, 0))
    assert (decision.create, len(decision.drain)) == (0, 1)
    # The drained one counts until it is gone ...
    left = [i for i in fleet if i.id not in decision.drain]
    going = [replace(i, state=State.DRAINING, draining_since=NOW) for i in fleet if i.id in decision.drain]
    assert turn([*left, *going], all_new(2, 10), Budget(3, 0)).create == 0
    # ... and not a turn longer.
    assert turn(left, all_new(2, 10), Budget(3, 0)).create == 1


def test_e_05_every_combination_is_one_state_and_none_is_made_twice() -> None:
    for process, health, draining in itertools.product(Process, Health, (False, True)):
        assert classify(process, health, draining) in State
    fleet: list[Instance] = some(3)
    for number in range(50):
        decision = turn(fleet, all_new(2, 3), Budget(1, 0), Rules(failure_limit=None))
        state = classify(Process.UNKNOWN, Health.PENDING, False)
        fleet += some(decision.create, 2, state, created=float(number))
        assert total(fleet) <= 4


@pytest.mark.parametrize(("health", "reached"), [(Health.NONE, True), (Health.PENDING, False), (Health.FAILING, False)])
def test_e_06_without_a_check_running_is_ready(health: Health, reached: bool) -> None:
    labels = Labels("a-1", "a", "r", 2, "h", Endpoint("127.0.0.1", 1), 0)
    fleet = fleets.assemble([Report(labels, Process.RUNNING)], None, {"a-1": Vital(health, 0.0)}, {})
    assert turn(fleet, all_new(2, 1), Budget(1, 0)).reached is reached


def test_e_07_progress_consumes_nothing() -> None:
    simulator = started(20, Budget(1, 0), Rules(failure_limit=5, progress_deadline=20.0))
    assert simulator.walk(all_new(2, 20)).reached
    assert simulator.clock > 20  # far longer than the deadline, which counts from the last progress
    # One failure in three, and still never two without progress in between.
    simulator = started(9, Budget(1, 0), Rules(failure_limit=2, progress_deadline=60.0), lives=[WELL, WELL, CRASHES])
    assert simulator.walk(all_new(2, 9)).reached


def test_e_07_all_fail_stops_after_exactly_the_limit() -> None:
    simulator = started(20, Budget(1, 0), Rules(failure_limit=5, progress_deadline=600.0), lives=[CRASHES])
    assert "(the limit is 5)" in simulator.walk(all_new(2, 20)).failed
    assert simulator.made == 5


@pytest.mark.parametrize("surge", [2, 3, 4, 5, 10])
def test_e_07_after_the_first_failure_no_more_are_tried_than_may_fail(surge: int) -> None:
    lives = [Life(start=99, crash=2 + number) for number in range(surge)]
    simulator = started(20, Budget(surge, 0), Rules(failure_limit=5, progress_deadline=600.0), lives=lives)
    assert simulator.walk(all_new(2, 20)).failed
    # The first wave is as large as surge lets; from then on the limit is met exactly.
    assert simulator.made == max(5, surge)


def test_e_08_percentages_are_exact() -> None:
    budget = parse_budget({"max_surge": "7%", "max_unavailable": "29%"})
    assert (budget.resolve(100).surge, budget.resolve(100).unavailable) == (7, 29)
    with pytest.raises(InputError, match="max_surge"):
        parse_budget({"max_surge": 0.07})


def test_e_09_not_ready_old_ones_go_first_and_for_free() -> None:
    fleet = [*some(2, created=1.0), *some(2, 1, State.NOT_READY, 2.0)]
    decision = turn(fleet, all_new(2, 4), Budget(0, 1))
    assert decision.drain == ("1-not_ready-2-000", "1-not_ready-2-001")


def test_e_09_but_not_while_the_balancer_serves_from_them() -> None:
    # Our check fails all of them, the balancer still sends requests there: a blip of ours empties no fleet.
    fleet = some(4, 1, State.NOT_READY, rotation=Rotation.IN, proven=True)
    assert len(turn(fleet, all_new(2, 4), Budget(1, 0)).drain) == 0
    assert len(turn(fleet, all_new(2, 4), Budget(1, 1)).drain) == 1


def test_e_17_dead_old_ones_are_not_made_again_and_hold_nobody_up() -> None:
    decision = turn(some(10, 1, State.FAILED), all_new(2, 10), Budget(1, 0))
    assert decision.create == 10 and not decision.drain
    simulator = Simulator(World(), Budget(1, 0), Rules())
    simulator.populate([Life(crash=0)] * 10)
    assert simulator.walk(all_new(2, 10)).reached
    assert simulator.made == 10


def test_e_17_old_ones_that_never_become_ready_are_not_waited_for() -> None:
    simulator = Simulator(World(), Budget(1, 0), Rules())
    simulator.populate([NEVER] * 10)
    assert simulator.walk(all_new(2, 10)).reached


@pytest.mark.parametrize(("before", "after"), [(4, 10), (10, 4), (6, 1), (1, 6)])
@pytest.mark.parametrize("when", [1, 3, 5])
def test_e_18_the_number_changes_midway(before: int, after: int, when: int) -> None:
    simulator = started(before, Budget(2, 0), resize={when: after})
    assert simulator.walk(all_new(2, before)).reached
    assert len([node for node in simulator.nodes.values() if not node.gone]) == after
    assert simulator.least == min(before, after)


def test_e_18_the_new_side_grows_first_and_the_old_shrinks_first() -> None:
    up = turn([*some(2), *some(2, 2)], Waypoint(2, 8, 0, 8), Budget(2, 0))
    assert up.create == 6 and not up.drain
    down = turn([*some(6), *some(5, 2)], Waypoint(2, 4, 0, 4), Budget(2, 0))
    assert len(down.drain) == 6 and all(name.startswith("1-") for name in down.drain) and not down.create
    # What is not ready goes first when there are too many new ones.
    less = turn([*some(4, 2), *some(2, 2, State.NOT_READY, 9.0)], Waypoint(2, 3, 0, 3), Budget(2, 0))
    assert less.drain == ("2-not_ready-9-000", "2-not_ready-9-001", "2-ready-0-000")


# Cloud Foundry (5.4) --------------------------------------------------------------------------------------------------


def test_e_60_new_ones_crash_after_old_ones_are_gone() -> None:
    lives = [WELL] * 5 + [CRASHES] * 50
    simulator = started(10, Budget(1, 0), Rules(progress_deadline=60.0, failure_limit=None), lives=lives)
    end = simulator.walk(all_new(2, 10))
    assert "no progress for 60 s" in end.failed
    simulator.world = World()
    assert simulator.walk(Waypoint(1, 10, 0, 10), "old").reached
    assert simulator.least == 10


def test_e_61_chained_deployments_do_not_accumulate() -> None:
    fleet = [i for generation in (4, 1, 3) for i in some(10, generation, created=float(generation))] + some(10, 9)
    decision = turn(fleet, Waypoint(9, 20, 0, 20), Budget(max_in_flight=4))
    # Old ones to 10, the oldest first, whatever generation they are of; then there is room for four.
    assert len(decision.drain) == 20 and {name[0] for name in decision.drain} == {"1", "3"}
    left = [i for i in fleet if i.id not in decision.drain]
    assert turn(left, Waypoint(9, 20, 0, 20), Budget(max_in_flight=4)).create == 4


@pytest.mark.parametrize("strategy", LISTS)
def test_e_62_every_strategy_has_an_end(strategy: str) -> None:
    # Steps are refused in the settings; here: no list is empty, and the last waypoint is all new.
    last = stages(Plan(strategy, (Step("one", weight=20),)), Goal(7, 5, Room(1, 0), before=5))[-1].waypoint
    assert (last.generation, last.new, last.old) == (7, 5, 0)


def test_e_63_the_way_back_needs_no_more_than_the_way_there() -> None:
    # Quotas are the platform's; here: a rollback half way never needs more than desired + surge either.
    simulator = started(6, Budget(max_in_flight=2), Rules(progress_deadline=60.0), lives=[WELL] * 3 + [NEVER] * 9)
    assert simulator.walk(all_new(2, 6)).failed
    simulator.world = World()
    assert simulator.walk(Waypoint(1, 6, 0, 6), "old").reached
    assert (simulator.peak, simulator.least) == (8, 6)


def test_e_64_what_was_refused_is_tried_again_until_the_deadline() -> None:
    # The error is shown by the conductor; here: the engine asks for the same again, and not for ever.
    tally = Tally(NOW)
    for later in (0.0, 30.0, 60.0):
        decision = evaluate(some(3), all_new(2, 3), Budget(1, 0), Rules(progress_deadline=60.0), tally, NOW + later)
        tally = decision.tally
        assert decision.create == 1
    late = evaluate(some(3), all_new(2, 3), Budget(1, 0), Rules(progress_deadline=60.0), tally, NOW + 61)
    assert late.failed and late.idle


def test_e_65_a_turn_decides_from_what_is_there() -> None:
    # The lease is checked with every write (session); here: a turn knows nothing but what it is handed.
    fleet = [*some(3), *some(1, 2)]
    assert turn(fleet, all_new(2, 3), Budget(1, 0)) == turn(fleet, all_new(2, 3), Budget(1, 0))
    assert turn(fleet, all_new(1, 3), Budget(1, 0)).drain == ("2-ready-0-000",)


def test_e_66_what_is_not_reported_is_not_well() -> None:
    # A platform that does not answer at all is an error, and the turn is skipped (conductor).
    fleet = [*some(10), *some(1, 2), *some(8, 2, State.UNREACHABLE, 5.0)]
    decision = turn(fleet, all_new(2, 10), Budget(max_in_flight=5))
    assert (decision.create, len(decision.drain)) == (0, 1)


def test_e_67_back_from_all_new_without_an_outage() -> None:
    simulator = started(10, Budget(2, 0))
    assert simulator.walk(all_new(2, 10)).reached
    assert simulator.walk(Waypoint(1, 10, 0, 10), "old").reached
    assert simulator.least == 10


def test_e_68_rounding() -> None:
    # Weights of traffic are not the engine's yet; its own shares are never less than one where one must move.
    assert Budget(max_in_flight=Percent(Decimal("1"))).resolve(10).surge == 1
    assert Budget(Percent(Decimal("25")), 0).resolve(10).surge == 3


def test_e_69_fewer_than_before_is_no_gap() -> None:
    simulator = started(10, Budget(1, 0))
    assert simulator.walk(all_new(2, 4)).reached
    assert simulator.least == 4


def test_e_6a_running_but_not_in_rotation_is_on_its_way() -> None:
    out = some(2, 2, rotation=Rotation.OUT, proven=False)
    decision = turn([*some(6), *out], all_new(2, 6), Budget(max_in_flight=2))
    assert decision.create == 0 and not decision.drain and not decision.admit
    # With room for more in all, it is the number on their way that binds.
    assert turn([*some(1), *out], all_new(2, 6), Budget(max_in_flight=2)).create == 0


def test_e_6b_scaling_during_a_rollout() -> None:
    simulator = started(10, Budget(2, 0), resize={5: 20})
    assert simulator.walk(all_new(2, 10)).reached
    assert len(simulator.nodes) == 20


def test_e_6c_equal_times_are_told_apart_by_id() -> None:
    fleet = some(4)
    expected = ("1-ready-0-000", "1-ready-0-001")
    for order in itertools.permutations(fleet):
        assert turn(list(order), all_new(2, 4), Budget(0, 2)).drain == expected


# Ours -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", [0, 1, 2])
@pytest.mark.parametrize("from_", [0, 3])
def test_a_host_that_is_lost_for_good_ends_the_walk(host: int, from_: int) -> None:
    # Old or new, what is on it can neither be counted on nor be stopped: the walk ends by the deadline, and says so.
    simulator = started(6, Budget(2, 0), unreachable=[(host, from_, None)])
    end = simulator.walk(all_new(2, 6))
    assert "no progress for 60 s" in end.failed and f"h{host}" in end.failed


def test_a_host_that_comes_back_is_gone_on_with() -> None:
    simulator = started(6, Budget(2, 0), unreachable=[(1, 3, 30)])
    assert simulator.walk(all_new(2, 6)).reached


def test_an_unreachable_one_is_told_to_go_once() -> None:
    lost = some(1, 1, State.UNREACHABLE)
    assert turn([*some(2), *lost], all_new(2, 3), Budget(1, 0)).drain == ("1-unreachable-0-000",)
    marked = [replace(lost[0], draining_since=NOW)]
    # It counts until it is known to be gone, and is not stopped on a host that does not answer.
    later = turn([*some(2), *marked], all_new(2, 3), Budget(1, 0), now=NOW + 50)
    assert (later.drain, later.retire, later.create) == ((), (), 1)


def test_what_failed_before_the_walk_is_not_its_failure() -> None:
    # A held rollout goes on, and a fleet with dead ones is repaired.
    dead = some(3, 2, State.FAILED)
    decision = evaluate([*some(3), *dead], all_new(2, 3), Budget(1, 0), Rules(failure_limit=3), Tally(NOW), NOW)
    assert not decision.failed and decision.create == 1
    fresh = [*some(3), *dead, *some(3, 2, State.FAILED, created=NOW)]
    later = evaluate(fresh, all_new(2, 3), Budget(1, 0), Rules(failure_limit=3), decision.tally, NOW + 1)
    assert "3 instance(s) failed" in later.failed


def test_what_dies_while_it_is_going_is_no_failure() -> None:
    fleet = [*some(2, 2), *some(3, 2, State.FAILED, created=1.0, draining_since=NOW - 1)]
    assert turn(fleet, all_new(2, 2), Budget(1, 0)).reached


def test_ready_deadline() -> None:
    rules = Rules(ready_deadline=10.0, failure_limit=2, progress_deadline=60.0)
    simulator = started(3, Budget(1, 0), rules, lives=[NEVER])
    end = simulator.walk(all_new(2, 3))
    assert "not ready within 10 s" in end.failed
    assert simulator.made == 2


def test_ready_deadline_is_not_for_those_that_serve() -> None:
    # A run that was just begun has not asked them yet; the balancers still send requests there.
    fleet = some(3, 2, State.STARTING, rotation=Rotation.IN, proven=True)
    decision = turn(fleet, all_new(2, 3), Budget(1, 0), Rules(ready_deadline=10.0))
    assert decision.idle and not decision.tally.failures


def test_min_ready() -> None:
    rules = Rules(min_ready=5.0)
    fleet = [*some(2), *some(1, 2, created=NOW - 4)]
    assert turn(fleet, all_new(2, 2), Budget(1, 0), rules).idle
    assert turn(fleet, all_new(2, 2), Budget(1, 0), rules, now=NOW + 1).drain == ("1-ready-0-000",)


def test_one_flapping_faster_than_min_ready_never_arrives() -> None:
    simulator = started(3, Budget(1, 0), Rules(min_ready=5.0, progress_deadline=60.0), lives=[Life(flap=3)])
    assert "no progress for 60 s" in simulator.walk(all_new(2, 3)).failed
    assert simulator.least == 3


def test_the_deadline_counts_from_the_last_progress() -> None:
    tally = Tally(0.0, new=1, old=3)
    fleet = [*some(2), *some(1, 2)]
    late = evaluate(fleet, all_new(2, 3), Budget(1, 0), Rules(progress_deadline=60.0), tally, 90.0)
    assert not late.failed and late.tally.since == 90.0  # fewer old ones than ever before


def test_a_dead_one_with_an_entry_left_is_not_the_end() -> None:
    dead = some(1, 1, State.FAILED, rotation=Rotation.OUT)
    assert not turn([*some(3, 2), *dead], all_new(2, 3), Budget(1, 0)).reached
    assert turn([*some(3, 2), *some(1, 1, State.FAILED)], all_new(2, 3), Budget(1, 0)).reached


@pytest.mark.parametrize("rotation", [Rotation.IN, Rotation.PARTIAL])
def test_nothing_is_stopped_in_rotation(rotation: Rotation) -> None:
    going = some(1, 1, State.DRAINING, rotation=rotation, draining_since=0.0)
    assert turn([*some(3, 2), *going], all_new(2, 3), Budget(1, 0)).idle


def test_one_that_goes_without_a_recorded_start_is_waited_for_until_the_deadline() -> None:
    going = some(1, 1, State.DRAINING, rotation=Rotation.OUT)
    fleet = [*some(3, 2), *going]
    assert turn(fleet, all_new(2, 3), Budget(1, 0)).idle
    tally = Tally(NOW, new=3, old=1)
    assert evaluate(fleet, all_new(2, 3), Budget(1, 0), Rules(), tally, NOW + 601).failed


def test_requests_are_waited_for_and_then_not() -> None:
    rules = Rules(drain_timeout=30.0, settle=2.0)
    for since, active, stops in [(1, 0, False), (2, 0, True), (29, 1, False), (30, 1, True)]:
        going = some(1, 1, State.DRAINING, rotation=Rotation.OUT, active=active, draining_since=NOW - since)
        assert bool(turn([*some(3, 2), *going], all_new(2, 3), Budget(1, 0), rules).retire) is stops


def test_a_first_deployment_that_no_balancer_proves_goes_back_to_nothing() -> None:
    out = some(3, 1, rotation=Rotation.OUT, proven=False)
    assert len(turn(out, Waypoint(0, 0, 0, 0), Budget(1, 0)).drain) == 3


def test_what_serves_nobody_is_free_while_enough_others_serve() -> None:
    # Ready for us, but no balancer ever passes it: with surge 0 nothing would move otherwise.
    fleet = [*some(2), *some(1, 1, rotation=Rotation.OUT, proven=False, created=1.0)]
    assert turn(fleet, all_new(2, 3), Budget(0, 1)).drain == ("1-ready-1-000",)
    # While too few serve (a balancer was restarted) none goes: they will be back in a moment.
    assert not turn(some(3, 1, rotation=Rotation.ABSENT, proven=False), all_new(2, 3), Budget(0, 1)).drain


def test_in_rotation_but_failed_by_the_balancers_is_not_available() -> None:
    fleet = some(3, 2, proven=False)
    assert not turn(fleet, all_new(2, 3), Budget(1, 0)).reached


def test_balancers_disagree() -> None:
    # In rotation at one, out at the other: neither available nor stoppable, and put in where it is missing.
    entries = [Server(Rotation.IN, True, 1), Server(Rotation.OUT, True, 0)]
    rotation, proven, active = fleets.placement(entries)
    assert (rotation, proven, active) == (Rotation.PARTIAL, True, 1)
    partial = some(1, 2, rotation=rotation, proven=proven)
    decision = turn([*some(2, 2), *partial], all_new(2, 3), Budget(1, 0))
    assert decision.admit == (partial[0].id,) and not decision.reached
    assert fleets.placement([Server(Rotation.IN, True, 0), None]) == (Rotation.PARTIAL, False, 0)
    assert fleets.placement([None, None]) == (Rotation.ABSENT, False, 0)
