# SPDX-License-Identifier: GPL-3.0-or-later
"""Edge cases and bugs of other systems, and what docs/explanation/decisions/ decides about them."""

from __future__ import annotations

import itertools
import math
import typing as t
from dataclasses import replace
from decimal import Decimal
from types import SimpleNamespace

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    Aborted,
    InputError,
    RolloutFailed,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.config import variables
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.loop import (
    fleet as fleets,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.rollout import rollback
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.rollout.failure_policy import (
    failure_action,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.rollout.rollback import (
    Rollback,
    rollback_stages,
    without_requests,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.rollout.validation import (
    Validation,
    balancers_of,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.step.context import (
    StepContext,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.budget import (
    Budget,
    Percent,
    ResolvedBudget,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.evaluate import (
    Decision,
    evaluate,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import (
    Composition,
    FailureAction,
    Health,
    Instance,
    Phase,
    Process,
    Rotation,
    State,
    classify,
    total,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.progress import (
    ProgressTracker,
    Rules,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.shares import Target
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import (
    FINISH,
    LISTS,
    PARTS,
    Groups,
    Plan,
    RolloutTarget,
    Stage,
    Step,
    Waypoint,
    stages,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.targets import divide
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.unmanaged import Unmanaged
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.zones import ZoneFloor
from ansible_collections.progressive.rollout.plugins.plugin_utils.health.monitor import HealthStatus
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    Endpoint,
    Labels,
    Report,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.traffic import Server
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.record import (
    Record,
    Rollout,
    RolloutKind,
)
from ansible_collections.progressive.rollout.tests.simulations.world.machine import START
from ansible_collections.progressive.rollout.tests.simulations.world.runs import DRIVERS
from ansible_collections.progressive.rollout.tests.simulations.world.walks import WELL, Walks
from ansible_collections.progressive.rollout.tests.simulations.world.world import (
    ADDRESSES,
    HOSTS,
    Fault,
    Life,
)
from ansible_collections.progressive.rollout.tests.support.decisions import all_new, some

NOW = 100.0
CRASHES, NEVER = Life(crash=0.5, start=9.0), Life(start=math.inf)


def turn(
    fleet: list[Instance],
    waypoint: Waypoint,
    budget: Budget,
    rules: Rules | None = None,
    now: float = NOW,
) -> Decision:
    return evaluate(
        fleet, waypoint, budget, rules or Rules(), ProgressTracker(NOW, old=len(fleet)), now
    )


def befall(shop: Walks, fault: Fault) -> None:
    """Let a fault happen at its time."""
    shop.machine.at(START + fault.at, lambda: shop.strike(fault))


def rotating_on(shop: Walks, host: str) -> list[Endpoint]:
    """Return what the load balancer sends requests to on a host."""
    rotating = shop.rotating(shop.balancers["lb1"])
    return [at for at in rotating if at.address == ADDRESSES[host]]


# Rolling
# -------------------------------------------------------------------------------------------------


def test_not_ready_is_no_completion_and_no_room() -> None:
    decision = turn(some(2, 2, State.NOT_READY), all_new(2, 2), Budget(1, 0))
    assert not decision.reached and decision.nothing_to_do


def test_failures_are_seen_and_counted() -> None:
    # That the loader shows failed instances is the platforms' contract; here: what is shown is
    # counted, once each, also when it is not shown any more.
    shop = Walks(3, new=[CRASHES])
    end = shop.failure(all_new(2, 3))
    assert end.id == "PR-604" and "rollout_failure_limit 3" in str(end)
    assert len(shop.of(2)) == 3
    shown = turn([*some(3), *some(3, 2, State.FAILED)], all_new(2, 3), Budget(1, 0))
    gone = evaluate(some(3), all_new(2, 3), Budget(1, 0), Rules(), shown.progress, NOW + 1)
    assert gone.failed and len(gone.progress.failures) == 3


@pytest.mark.parametrize("zero", [0, "0", "0%", "0.0%"])
@pytest.mark.parametrize("none", [0, "0%"])
def test_zero_of_both_is_refused(zero: object, none: object) -> None:
    with pytest.raises(InputError, match="rollout_budget"):
        variables.budget({"max_surge": zero, "max_unavailable": none}, "rollout_budget")


@pytest.mark.parametrize("desired", [9, 3, 1])
def test_percentages_that_come_to_zero_move(desired: int) -> None:
    shop = Walks(desired, 0, "10%")
    shop.walk(all_new(2, desired))
    assert (shop.fewest, shop.peak) == (desired - 1, desired)


def test_no_barrier() -> None:
    # One of three is quick: the window goes on with it while the other two still start.
    slow = Life(start=40.0)
    shop = Walks(10, 3, new=[WELL, slow, slow, *[WELL] * 9])
    shop.walk(all_new(2, 10), until=12.0)
    new = shop.of(2)
    assert sum(not one.well(shop.now) for one in new) >= 2 and len(new) >= 5
    assert new[2].created < START + 0.1
    stopped = min(one.told for one in shop.of(1) if one.told is not None)
    assert stopped < new[0].created + WELL.start + WELL.work + 0.5
    # Stopped as soon as it is drained, and its place used as soon as it is gone: nobody waits for
    # anybody else.
    assert new[3].created < stopped + WELL.stop + 0.5
    assert shop.peak == 13


def test_a_ready_one_frees_an_old_one_while_others_start() -> None:
    fleet = [*some(10), *some(1, 2), *some(2, 2, State.STARTING)]
    decision = turn(fleet, all_new(2, 10), Budget(3, 0))
    assert (decision.create, len(decision.drain)) == (0, 1)
    # The drained one counts until it is gone ...
    left = [i for i in fleet if i.id not in decision.drain]
    going = [
        replace(i, state=State.DRAINING, draining_since=NOW)
        for i in fleet
        if i.id in decision.drain
    ]
    assert turn([*left, *going], all_new(2, 10), Budget(3, 0)).create == 0
    # ... and not a turn longer.
    assert turn(left, all_new(2, 10), Budget(3, 0)).create == 1


def test_every_combination_is_one_state_and_none_is_made_twice() -> None:
    for process, health, draining in itertools.product(Process, Health, (False, True)):
        assert classify(process, health, draining) in State
    fleet: list[Instance] = some(3)
    for number in range(50):
        decision = turn(fleet, all_new(2, 3), Budget(1, 0), Rules(failure_limit=None))
        state = classify(Process.UNKNOWN, Health.PENDING, False)
        fleet += some(decision.create, 2, state, created=float(number))
        assert total(fleet) <= 4


@pytest.mark.parametrize(
    ("health", "reached"), [(Health.NONE, True), (Health.PENDING, False), (Health.FAILING, False)]
)
def test_without_a_check_running_is_ready(health: Health, reached: bool) -> None:
    labels = Labels("a-1", "a", "r", 2, "h", Endpoint("127.0.0.1", 1), 0)
    fleet = fleets.assemble(
        [Report(labels, Process.RUNNING)], None, {"a-1": HealthStatus(health, 0.0)}, {}
    )
    assert turn(fleet, all_new(2, 1), Budget(1, 0)).reached is reached


def test_progress_consumes_nothing() -> None:
    shop = Walks(4, new=[Life(start=5.0)], progress_deadline=10)
    shop.walk(all_new(2, 4))
    assert shop.elapsed > 20  # far longer than the deadline, which counts from the last progress
    # One failure in three, and still never two without progress in between.
    Walks(6, new=[WELL, WELL, CRASHES], failure_limit=2).walk(all_new(2, 6))


@pytest.mark.parametrize("surge", [1, 2, 4, 5, 10])
def test_after_the_first_failure_no_more_are_tried_than_may_fail(surge: int) -> None:
    lives = [Life(start=99.0, crash=1.0 + number / 2) for number in range(surge)]
    shop = Walks(20, surge, new=lives, failure_limit=5)
    assert "(rollout_failure_limit 5)" in str(shop.failure(all_new(2, 20)))
    # The first wave is as large as surge lets; from then on the limit is met exactly.
    assert len(shop.of(2)) == max(5, surge)


def test_percentages_are_exact() -> None:
    budget = variables.budget({"max_surge": "7%", "max_unavailable": "29%"}, "rollout_budget")
    assert (budget.resolve(100).surge, budget.resolve(100).unavailable) == (7, 29)
    with pytest.raises(InputError, match="max_surge"):
        variables.budget({"max_surge": 0.07}, "rollout_budget")


def test_not_ready_old_ones_go_first_and_for_free() -> None:
    fleet = [*some(2, created=1.0), *some(2, 1, State.NOT_READY, 2.0)]
    decision = turn(fleet, all_new(2, 4), Budget(0, 1))
    assert decision.drain == ("1-not_ready-2-000", "1-not_ready-2-001")


def test_but_not_while_the_balancer_serves_from_them() -> None:
    # Our check fails all of them, the balancer still sends requests there: a blip of ours empties
    # no fleet.
    fleet = some(4, 1, State.NOT_READY, rotation=Rotation.IN, lb_healthy=True)
    assert len(turn(fleet, all_new(2, 4), Budget(1, 0)).drain) == 0
    assert len(turn(fleet, all_new(2, 4), Budget(1, 1)).drain) == 1


def test_one_that_starts_at_the_endpoint_of_an_earlier_one_does_not_serve() -> None:
    """A load balancer with an older state sends it requests, and has lost another instance."""
    lost = replace(some(1, rotation=Rotation.PARTIAL)[0], lb_healthy=False, served=True)
    starting = some(1, 2, State.STARTING, rotation=Rotation.PARTIAL, lb_healthy=True)
    assert not turn([lost, *some(2, 2), *starting], all_new(2, 4), Budget(0, 1)).drain
    assert turn([lost, *some(3, 2)], all_new(2, 4), Budget(0, 1)).drain == (lost.id,)


def test_dead_old_ones_are_not_made_again_and_hold_nobody_up() -> None:
    decision = turn(some(10, 1, State.FAILED), all_new(2, 10), Budget(1, 0))
    assert decision.create == 10 and not decision.drain
    shop = Walks([Life(crash=0.0)] * 10)
    shop.walk(all_new(2, 10))
    assert len(shop.of(2)) == 10


def test_old_ones_that_never_become_ready_are_not_waited_for() -> None:
    Walks([NEVER] * 10).walk(all_new(2, 10))


@pytest.mark.parametrize(("before", "after"), [(4, 10), (10, 4), (6, 1), (1, 6)])
def test_the_number_changes_midway(before: int, after: int) -> None:
    shop = Walks(before, 2)
    shop.walk(all_new(2, before), until=0.5)
    shop.walk(all_new(2, after))
    assert len(shop.alive()) == after
    assert shop.fewest == min(before, after)


def test_the_new_side_grows_first_and_the_old_shrinks_first() -> None:
    up = turn([*some(2), *some(2, 2)], Waypoint(2, 8, 0, 8), Budget(2, 0))
    assert up.create == 6 and not up.drain
    down = turn([*some(6), *some(5, 2)], Waypoint(2, 4, 0, 4), Budget(2, 0))
    assert (
        len(down.drain) == 6
        and all(name.startswith("1-") for name in down.drain)
        and not down.create
    )
    # What is not ready goes first when there are too many new ones.
    less = turn(
        [*some(4, 2), *some(2, 2, State.NOT_READY, 9.0)], Waypoint(2, 3, 0, 3), Budget(2, 0)
    )
    assert less.drain == ("2-not_ready-9-000", "2-not_ready-9-001", "2-ready-0-000")


# Blue-green and gates
# -------------------------------------------------------------------------------------------------

SWITCH = Waypoint(2, 3, 3, 3, 100)
DARK = Waypoint(2, 3, 3, 3, 0)


def waiting(count: int, state: State = State.READY, created: float = 0.0) -> list[Instance]:
    """New ones that no request goes to."""
    return some(count, 2, state, created, rotation=Rotation.OUT, lb_healthy=True)


def strategy(
    name: str, *steps: Step, desired: int = 4, before: int | None = None, surge: int = 1
) -> tuple[Stage, ...]:
    old = desired if before is None else before
    return stages(Plan(name, steps), RolloutTarget(2, desired, ResolvedBudget(surge, 0), old, 1))


@pytest.mark.parametrize("ready", [0, 1, 2])
@pytest.mark.parametrize(
    "others", [State.STARTING, State.NOT_READY, State.FAILED, State.UNREACHABLE]
)
def test_no_switch_before_all_are_ready_whoever_asked_for_it(ready: int, others: State) -> None:
    fleet = [*some(3), *waiting(ready), *waiting(3 - ready, others, 1.0)]
    decision = turn(fleet, SWITCH, Budget(1, 0))
    assert (decision.admit, decision.standby, decision.reached) == ((), (), False)
    # nobody sends requests there
    assert decision.drain == tuple(i.id for i in fleet if i.state is State.UNREACHABLE)
    # Forced, one that is ready is enough; none never is.
    forced = turn(fleet, replace(SWITCH, switch_at=1), Budget(1, 0))
    assert (len(forced.admit), len(forced.standby)) == ((ready, 3) if ready else (0, 0))


def test_all_are_ready() -> None:
    decision = turn([*some(3), *waiting(3)], SWITCH, Budget(1, 0))
    assert (len(decision.admit), len(decision.standby), decision.drain) == (3, 3, ())


def test_an_old_one_that_was_restarted_is_switched_with_the_others() -> None:
    new = some(2, 2, rotation=Rotation.OUT)
    first, second = some(2)
    fleet = [*new, first, replace(second, crashed=True)]
    decision = turn(fleet, Waypoint(2, 2, 2, 2, weight=100, stable=1), Budget(1, 0))
    assert set(decision.standby) == {first.id, second.id}
    assert set(decision.admit) == {i.id for i in new}


def test_every_failure_has_a_consequence() -> None:
    """Of whatever it is made: one of three, written down; and nothing is taken back that cannot
    be.
    """
    for kind, aborted, then, own, whole, part, reversible, old in itertools.product(
        (RolloutKind.ROLLOUT, RolloutKind.RESTART, RolloutKind.SCALE, RolloutKind.ROLLBACK),
        (True, False),
        (None, "rollback", "hold"),
        (None, "rollback", "hold", "continue"),
        ("rollback", "hold", "continue"),
        PARTS,
        (True, False),
        (0, 3),
    ):
        stage = Stage(
            "stage", replace(SWITCH, old=old), part=part, on_failure=own, reversible=reversible
        )
        rollout = Rollout("r", "2", 2, 3, "canary", None, 0.0, kind=kind)
        exc = Aborted("no") if aborted else RolloutFailed("no", then=then)
        found = failure_action(FailureAction(whole), stage, rollout, exc)
        if kind == RolloutKind.ROLLBACK:
            assert found == "hold"
        elif aborted:
            assert found == "rollback"
        # nothing but retiring old ones is left
        elif (part == FINISH and not old) or not reversible:
            assert found in ("hold", "continue")
        else:
            assert found == (then or own or whole)


@pytest.mark.parametrize("name", LISTS)
def test_a_first_deployment_that_fails_leaves_nothing_and_is_a_failure(name: str) -> None:
    shop = Walks(0, new=[CRASHES])
    assert shop.failure(strategy(name, desired=3, before=0)[0].waypoint).id == "PR-604"
    shop.roll_back()
    assert not shop.alive()
    assert not any(balancer.entries for balancer in shop.balancers.values())


def test_what_was_superseded_goes_before_what_is_stable() -> None:
    # 1 is stable, 2 came half way, 3 supersedes it: 2 is evicted first although it is younger,
    # within the surge.
    shop = Walks(6, 2)
    shop.walk(Waypoint(2, 3, 3, 6, stable=1))
    assert [one.told is None for one in shop.of(1)].count(True) == 3
    stopped = shop.now
    shop.walk(Waypoint(3, 6, 0, 6, stable=1))
    last = max(one.told or math.inf for one in shop.of(2))
    assert all(last <= one.told for one in shop.of(1) if one.told and one.told > stopped)
    assert {one.labels.generation for one in shop.alive()} == {3}
    assert (shop.peak, shop.fewest) == (8, 6)


@pytest.mark.parametrize("stable", [0, 1])
def test_what_was_superseded_serves_until_a_stable_one_does(stable: int) -> None:
    """However many the budget lets be unavailable."""
    fleet = [*some(stable, 1), *some(1, 2)]
    decision = turn(fleet, Waypoint(3, 0, 2, 2, 0, stable=1, before=2), Budget(1, 2))
    assert len(decision.drain) == stable


def test_what_is_compared_with_stays_longest() -> None:
    fleet = [
        *some(2, 1),
        *some(2, 2, created=5.0),
        *some(2, 4, created=9.0),
        *some(3, 3, created=9.0),
    ]
    decision = turn(fleet, Waypoint(3, 3, 0, 3, stable=1, baseline=4), Budget(1, 0))
    assert [name.partition("-")[0] for name in decision.drain] == ["2", "2", "1", "1", "4", "4"]


def test_what_is_ready_in_the_dark_stays_there() -> None:
    decision = turn([*some(3), *waiting(3)], DARK, Budget(1, 0))
    assert decision.nothing_to_do and decision.reached


def test_the_budget_of_this_rollout_is_used() -> None:
    assert [turn(some(10), all_new(2, 10), Budget(surge, 0)).create for surge in (1, 5)] == [1, 5]


def test_a_failed_one_is_made_again_and_one_that_is_not_ready_is_not() -> None:
    dead = some(1, 2, State.FAILED, 1.0)
    assert turn([*some(3), *waiting(2), *dead], DARK, Budget(1, 0)).create == 1
    unwell = waiting(1, State.NOT_READY, 1.0)
    assert turn([*some(3), *waiting(2), *unwell], DARK, Budget(1, 0)).nothing_to_do


# Canary
# --------------------------------------------------------------------------------------------------


def test_a_rollback_that_fails_is_held_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    # That every rollout ends is a property (test_invariants); here: how a failed rollback ends.
    def walk(*_: object, **_named: object) -> None:
        raise RolloutFailed("no progress for 60 s: load balancer a")

    record = Record("shop", stable=Composition("1", 1, 3), draining={})
    record.rollout = Rollout(
        "r", "2", 2, 3, "canary", record.stable, 0.0, phase=Phase.ROLLING_BACK, reason="it is bad"
    )
    monkeypatch.setattr(rollback, "run_stage", walk)
    monkeypatch.setattr(rollback, "cancel_drain", lambda loop, generation: None)
    said: list[str] = []
    loop = SimpleNamespace(
        fleet=some(3),
        commit=int,
        event=lambda *_, **__: None,
        refill_with=id,
        platform=SimpleNamespace(note=lambda *_: None),
    )
    run = t.cast(
        StepContext,
        SimpleNamespace(
            record=record,
            loop=loop,
            settings=SimpleNamespace(service="shop", headroom=1),
            session=SimpleNamespace(timeline=lambda _rollout: []),
            command="ansible-playbook progressive.rollout.{}".format,
            fleet=loop.fleet,
            balanced=False,
            unmanaged=Unmanaged(),
            print_line=said.append,
            describe=dict,
            notify_release=lambda: None,
        ),
    )
    with pytest.raises(
        RolloutFailed, match=r"the rollback of 2 failed: no progress for 60 s.*rollout held"
    ):
        Rollback(run).run(record.rollout)
    told = " ".join(" ".join(said).split())
    assert "the rollback failed: no progress for 60 s: load balancer a" in told, told
    assert (record.rollout.phase, record.stable.revision) == ("held", "1")
    assert (
        record.rollout.reason
        == "it is bad; and the rollback failed: no progress for 60 s: load balancer a"
    )


def test_too_late_at_step_two_of_four_costs_no_capacity() -> None:
    shop = Walks(4, new=[WELL, NEVER], failure_limit=9, progress_deadline=10)
    steps = (Step(f"step {n}", replicas=n) for n in (1, 2, 3))
    first, second, *_later = strategy("canary", *steps)
    shop.walk(first.waypoint)
    assert shop.failure(second.waypoint).id == "PR-605"
    shop.roll_back()
    assert (shop.fewest, shop.peak) == (4, 5)


@pytest.mark.parametrize("name", LISTS)
def test_no_canary_on_other_balancers(name: str) -> None:
    driver = SimpleNamespace(name="haproxy", options={"backend": "shop", "drain_timeout": "30s"})
    settings = SimpleNamespace(traffic=driver, asked=Plan(name))
    run = t.cast(
        StepContext,
        SimpleNamespace(settings=settings, record=Record("shop", stable=Composition("1", 1, 3))),
    )
    run.record.balancers = balancers_of(run.settings)
    driver.options = {"backend": "shop", "drain_timeout": "9s"}
    Validation(run).check_same_balancers()  # how long to wait is nothing they share
    driver.options = {"backend": "shop2"}
    if name == "rolling":
        Validation(run).check_same_balancers()
    else:
        with pytest.raises(InputError, match=f"rollout_traffic: has changed .*{name}.*restart.yml"):
            Validation(run).check_same_balancers()


def test_after_a_switch_the_old_ones_are_back_before_the_new_go() -> None:
    old = some(3, rotation=Rotation.OUT)
    home = rollback_stages([*old, *some(3, 2)], 100, Composition("1", 1, 3))
    assert [stage.name for stage in home] == ["switch back", "back"]
    back = turn([*old, *some(3, 2)], home[0].waypoint, Budget(1, 0))
    assert (len(back.admit), len(back.standby), back.drain, back.create) == (3, 3, (), 0)
    then = turn([*some(3), *waiting(3)], home[1].waypoint, Budget(1, 0))
    assert len(then.drain) == 3 and not then.create


def test_a_way_back_gives_no_instance_its_first_requests_unless_none_has_any() -> None:
    served, idle = some(2, 2), waiting(1, created=1.0)
    names = [i.id for i in idle]
    assert without_requests([*some(1), *served, *idle], 2, 20) == names
    assert without_requests([*some(1), *idle], 2, 0) == names, "they stand in the dark"
    # Until the old ones are back a new one serves that was to have requests anyway.
    assert without_requests(idle, 2, 100) == []
    assert without_requests(idle, 2, 0) == names, "in the dark, none was to have any"


def test_a_bad_canary_goes_at_once_as_far_as_the_budget_lets_it() -> None:
    back = Waypoint(1, 10, 0, 10)
    for bad, gone in ((1, 1), (3, 1)):
        decision = turn([*some(10 - bad), *some(bad, 2)], back, Budget(1, 1))
        assert len(decision.drain) == gone and all(name.startswith("2-") for name in decision.drain)
        assert decision.create == 1
    # With nothing to spare it serves until the old one is back.
    assert not turn([*some(9), *some(1, 2)], back, Budget(1, 0)).drain


@pytest.mark.parametrize(
    ("desired", "size", "cycles", "stopped"),
    [(10, 1, 3, [1, 1, 1, 7]), (4, 1, 3, [1, 1, 1, 1]), (4, 2, 3, [2, 2])],
)
def test_singularity_stops_so_many_old_ones_at_each_step(
    desired: int, size: int, cycles: int, stopped: list[int]
) -> None:
    shop = Walks(desired)
    target = RolloutTarget(2, desired, ResolvedBudget(1, 0), desired, 1)
    listed = stages(Plan("canary", Groups(size, cycles)), target)[:-1]
    for stage, gone in zip(listed, itertools.accumulate(stopped), strict=True):
        shop.walk(stage.waypoint)
        assert [one.told is None for one in shop.of(1)].count(False) == gone
        assert [one.told for one in shop.of(2)] == [None] * stage.waypoint.new
    assert shop.fewest == desired


# Capacity before traffic
# ----------------------------------------------------------------------------------------


def test_the_share_rises_when_those_who_carry_it_are_ready() -> None:
    # At each change of a balancer the share is compared with what those who are ready may carry.
    steps = Step("one", weight=20), Step("two", weight=60)
    listed = strategy("canary", *steps, desired=10, surge=2)
    shop = Walks(10, 2, balancers=2)
    for stage in listed:
        shop.walk(stage.waypoint)
    # And it does not rise where nobody carries it.
    shop = Walks(10, 2, balancers=2, new=[WELL, WELL, NEVER], progress_deadline=10)
    shop.walk(listed[0].waypoint)
    assert "4 of 6 new" in str(shop.failure(listed[1].waypoint))
    for balancer in shop.balancers.values():
        weights: dict[int, list[int]] = {1: [], 2: []}
        for entry in balancer.entries.values():
            if entry.rotation is Rotation.IN:
                weights[shop.born[entry.name].labels.generation].append(entry.weight)
        share = sum(weights[2]) / (sum(weights[1]) + sum(weights[2]))
        assert len(weights[2]) == 4 and share <= 0.6 * 4 / 6 + 0.005


# Changes midway and edge cases
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rotation", "where"),
    [
        (Rotation.IN, "ready and in rotation, but down"),
        (Rotation.PARTIAL, "ready, but in rotation at some load balancers only"),
        (Rotation.OUT, "ready, but out of rotation"),
        (Rotation.ABSENT, "ready, but out of rotation"),
    ],
)
def test_a_new_one_that_gets_no_requests_is_named_with_the_reason(
    rotation: Rotation, where: str
) -> None:
    detail = "load balancer lb1: L4CON"
    old, new = some(1), some(1, 2, rotation=rotation, lb_healthy=False, detail=detail)
    late = NOW + Rules().progress_deadline + 1
    progress = ProgressTracker(NOW, old=1)
    failed = evaluate([*old, *new], all_new(2, 1), Budget(1, 0), Rules(), progress, late).failed
    assert failed.endswith(f"waiting for {new[0].id} ({where}: {detail})"), failed


@pytest.mark.parametrize("divided", [False, True])
def test_old_ones_that_stay_for_the_sake_of_their_zone_are_named(divided: bool) -> None:
    """The zone a has two instances that serve, and is to keep as many; b has one too many."""
    old = [replace(i, host=host) for i, host in zip(some(2), ("web1", "web2"), strict=True)]
    new = [replace(i, host="web3") for i in some(2, 2)]
    zones = {"web1": "a", "web2": "a", "web3": "b"}
    rules = Rules(zone_floor=ZoneFloor(zones, 0))
    point, names = all_new(2, 4), [i.id for i in old]
    if divided:
        point = divide(point, [Target("all", frozenset(zones))])
    late = ProgressTracker(NOW, new=2, old=2)
    evaluated = evaluate(
        [*old, *new], point, Budget(0, 1), rules, late, NOW + rules.progress_deadline + 1
    )
    assert f"{', '.join(names)} stay: their zones have no more to spare" in evaluated.failed
    free = evaluate([*old, *new], point, Budget(0, 1), Rules(), late, NOW)
    assert free.drain, "without zones they need not stay"


def test_new_ones_crash_after_old_ones_are_gone() -> None:
    lives = [WELL] * 3 + [CRASHES] * 50
    shop = Walks(6, new=lives, on_failure="continue", progress_deadline=10)
    end = shop.failure(all_new(2, 6))
    assert end.id == "PR-605" and "(10 s)" in str(end)
    shop.walk(Waypoint(1, 6, 0, 6))
    assert shop.fewest == 6


def test_chained_deployments_do_not_accumulate() -> None:
    fleet = [
        i for generation in (4, 1, 3) for i in some(10, generation, created=float(generation))
    ] + some(10, 9)
    decision = turn(fleet, Waypoint(9, 20, 0, 20), Budget(max_in_flight=4))
    # Old ones to 10, the oldest first, whatever generation they are of; then there is room for
    # four.
    assert len(decision.drain) == 20 and {name[0] for name in decision.drain} == {"1", "3"}
    left = [i for i in fleet if i.id not in decision.drain]
    assert turn(left, Waypoint(9, 20, 0, 20), Budget(max_in_flight=4)).create == 4


@pytest.mark.parametrize("strategy", LISTS)
def test_every_strategy_has_an_end(strategy: str) -> None:
    # Steps are refused in the settings; here: no list is empty, and the last waypoint is all new.
    last = stages(
        Plan(strategy, (Step("one", weight=20),)),
        RolloutTarget(7, 5, ResolvedBudget(1, 0), before=5),
    )[-1].waypoint
    assert (last.generation, last.new, last.old) == (7, 5, 0)


def test_the_way_back_needs_no_more_than_the_way_there() -> None:
    # Quotas are the platform's; here: a rollback half way never needs more than desired + surge
    # either.
    lives = [WELL] * 3 + [NEVER] * 9
    shop = Walks(6, new=lives, budget={"max_in_flight": 2}, progress_deadline=10)
    assert shop.failure(all_new(2, 6)).id == "PR-605"
    shop.walk(Waypoint(1, 6, 0, 6))
    assert (shop.peak, shop.fewest) == (8, 6)


def test_what_was_refused_is_tried_again_until_the_deadline() -> None:
    # The error is shown by the reconcile loop; here: the engine asks for the same again, and not
    # for ever.
    progress = ProgressTracker(NOW)
    for later in (0.0, 30.0, 60.0):
        decision = evaluate(
            some(3),
            all_new(2, 3),
            Budget(1, 0),
            Rules(progress_deadline=60.0),
            progress,
            NOW + later,
        )
        progress = decision.progress
        assert decision.create == 1
    late = evaluate(
        some(3), all_new(2, 3), Budget(1, 0), Rules(progress_deadline=60.0), progress, NOW + 61
    )
    assert late.failed and late.nothing_to_do


def test_a_turn_decides_from_what_is_there() -> None:
    # The lease is checked with every write (session); here: a turn knows nothing but what it is
    # handed.
    fleet = [*some(3), *some(1, 2)]
    assert turn(fleet, all_new(2, 3), Budget(1, 0)) == turn(fleet, all_new(2, 3), Budget(1, 0))
    assert turn(fleet, all_new(1, 3), Budget(1, 0)).drain == ("2-ready-0-000",)


def test_what_is_not_reported_is_not_well() -> None:
    # A platform that does not answer at all is an error, and the turn is skipped (reconcile loop).
    fleet = [*some(10), *some(1, 2), *some(8, 2, State.UNREACHABLE, 5.0)]
    decision = turn(fleet, all_new(2, 10), Budget(max_in_flight=5))
    # nobody sends requests to those eight
    assert (decision.create, len(decision.drain)) == (0, 8 + 1)


def test_rounding() -> None:
    # Weights of traffic are not the engine's yet; its own shares are never less than one where one
    # must move.
    assert Budget(max_in_flight=Percent(Decimal("1"))).resolve(10).surge == 1
    assert Budget(Percent(Decimal("25")), 0).resolve(10).surge == 3


def test_fewer_than_before_is_no_gap() -> None:
    shop = Walks(10)
    shop.walk(all_new(2, 4))
    assert shop.fewest == 4


def test_running_but_not_in_rotation_is_on_its_way() -> None:
    out = some(2, 2, rotation=Rotation.OUT, lb_healthy=False)
    decision = turn([*some(6), *out], all_new(2, 6), Budget(max_in_flight=2))
    assert decision.create == 0 and not decision.drain and not decision.admit
    # With room for more in all, it is the number on their way that binds.
    assert turn([*some(1), *out], all_new(2, 6), Budget(max_in_flight=2)).create == 0


def test_equal_times_are_told_apart_by_id() -> None:
    fleet = some(4)
    expected = ("1-ready-0-000", "1-ready-0-001")
    for order in itertools.permutations(fleet):
        assert turn(list(order), all_new(2, 4), Budget(0, 2)).drain == expected


# Ours
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", HOSTS)
def test_a_host_that_is_lost_for_good_is_gone_on_without(host: str) -> None:
    # What is on it is taken out of rotation and counts no more: others are started elsewhere.
    shop = Walks(6, 2)
    befall(shop, Fault("host away", 0.5, math.inf, host))
    shop.walk(all_new(2, 6))
    assert not rotating_on(shop, host)


def test_without_load_balancers_a_host_that_does_not_answer_ends_the_walk() -> None:
    # What is there may serve, so it is not counted on, and counts.
    shop = Walks(6, 2, balancers=0, progress_deadline=10)
    befall(shop, Fault("host away", 0.2, math.inf, "web2"))
    end = shop.failure(all_new(2, 6))
    assert end.id == "PR-605" and "web2" in str(end)


def test_a_host_that_only_we_cannot_reach_is_gone_on_without() -> None:
    # A load balancer passes a new one there: it serves until others replace it.
    shop = Walks(6, 2)
    shop.machine.at(START + 0.5, lambda: setattr(shop.hosts["web2"], "locked", math.inf))
    shop.walk(all_new(2, 6))
    assert not rotating_on(shop, "web2")


def test_a_host_that_comes_back_is_gone_on_with() -> None:
    shop = Walks(6, 2)
    befall(shop, Fault("host away", 0.5, 3.5, "web2"))
    shop.walk(all_new(2, 6))
    assert shop.elapsed > 4.0 and len(shop.alive()) == 6


def test_an_unreachable_one_is_told_to_go_once() -> None:
    lost = some(1, 1, State.UNREACHABLE)
    assert turn([*some(2), *lost], all_new(2, 3), Budget(1, 0)).drain == ("1-unreachable-0-000",)
    marked = [replace(lost[0], draining_since=NOW)]
    # It counts until it is out of rotation everywhere, and is not stopped on a host that does not
    # answer.
    for rotation, create in (
        (Rotation.IN, 1),
        (Rotation.PARTIAL, 1),
        (Rotation.OUT, 2),
        (Rotation.ABSENT, 2),
    ):
        there = [replace(marked[0], rotation=rotation)]
        later = turn([*some(2), *there], all_new(2, 3), Budget(1, 0), now=NOW + 50)
        assert (later.drain, later.retire, later.create) == ((), (), create)


def test_what_failed_before_the_walk_is_not_its_failure() -> None:
    # A held rollout goes on, and a fleet with dead ones is repaired.
    dead = some(3, 2, State.FAILED)
    decision = evaluate(
        [*some(3), *dead],
        all_new(2, 3),
        Budget(1, 0),
        Rules(failure_limit=3),
        ProgressTracker(NOW),
        NOW,
    )
    assert not decision.failed and decision.create == 1
    fresh = [*some(3), *dead, *some(3, 2, State.FAILED, created=NOW)]
    later = evaluate(
        fresh, all_new(2, 3), Budget(1, 0), Rules(failure_limit=3), decision.progress, NOW + 1
    )
    assert later.failed_id == "PR-604" and later.failed.startswith("3 ")


@pytest.mark.parametrize("generation", [1, 2])
def test_a_new_one_that_its_platform_has_started_again_is_a_failure(generation: int) -> None:
    crashed = some(1, generation, created=NOW, crashed=True, detail="exit code 3")
    decision = turn([*some(3), *crashed], all_new(2, 3), Budget(1, 0), Rules(failure_limit=1))
    assert decision.failed_id == ("PR-604" if generation == 2 else "")
    assert generation == 1 or "exit code 3" in decision.failed


def test_what_dies_while_it_is_going_is_no_failure() -> None:
    fleet = [*some(2, 2), *some(3, 2, State.FAILED, created=1.0, draining_since=NOW - 1)]
    assert turn(fleet, all_new(2, 2), Budget(1, 0)).reached


def test_ready_deadline() -> None:
    health = {**DRIVERS["health"], "deadline": "5s"}
    shop = Walks(3, new=[NEVER], failure_limit=2, health=health)
    assert "not ready within 5 s" in str(shop.failure(all_new(2, 3)))
    assert len(shop.of(2)) == 2


def test_ready_deadline_is_not_for_those_that_serve() -> None:
    # A run that was just begun has not asked them yet; the balancers still send requests there.
    fleet = some(3, 2, State.STARTING, rotation=Rotation.IN, lb_healthy=True)
    decision = turn(fleet, all_new(2, 3), Budget(1, 0), Rules(ready_deadline=10.0))
    assert decision.nothing_to_do and not decision.progress.failures


def test_min_ready() -> None:
    rules = Rules(min_ready=5.0)
    fleet = [*some(2), *some(1, 2, created=NOW - 4)]
    assert turn(fleet, all_new(2, 2), Budget(1, 0), rules).nothing_to_do
    assert turn(fleet, all_new(2, 2), Budget(1, 0), rules, now=NOW + 1).drain == ("1-ready-0-000",)


def test_one_flapping_faster_than_min_ready_never_arrives() -> None:
    shop = Walks(3, min_ready=5, progress_deadline=10)

    def flap() -> None:
        for one in shop.of(2):
            shop.flap(one, 2.5)
        shop.machine.at(shop.now + 3.0, flap)

    flap()
    assert shop.failure(all_new(2, 3)).id == "PR-605"
    assert shop.fewest == 3


def test_the_deadline_counts_from_the_last_progress() -> None:
    progress = ProgressTracker(0.0, new=1, old=3)
    fleet = [*some(2), *some(1, 2)]
    late = evaluate(
        fleet, all_new(2, 3), Budget(1, 0), Rules(progress_deadline=60.0), progress, 90.0
    )
    assert not late.failed and late.progress.since == 90.0  # fewer old ones than ever before


def test_a_dead_one_with_an_entry_left_is_not_the_end() -> None:
    dead = some(1, 1, State.FAILED, rotation=Rotation.OUT)
    assert not turn([*some(3, 2), *dead], all_new(2, 3), Budget(1, 0)).reached
    assert turn([*some(3, 2), *some(1, 1, State.FAILED)], all_new(2, 3), Budget(1, 0)).reached


@pytest.mark.parametrize("rotation", [Rotation.IN, Rotation.PARTIAL])
def test_nothing_is_stopped_in_rotation(rotation: Rotation) -> None:
    going = some(1, 1, State.DRAINING, rotation=rotation, draining_since=0.0)
    assert turn([*some(3, 2), *going], all_new(2, 3), Budget(1, 0)).nothing_to_do


def test_one_that_goes_without_a_recorded_start_is_waited_for_until_the_deadline() -> None:
    going = some(1, 1, State.DRAINING, rotation=Rotation.OUT)
    fleet = [*some(3, 2), *going]
    assert turn(fleet, all_new(2, 3), Budget(1, 0)).nothing_to_do
    progress = ProgressTracker(NOW, new=3, old=1)
    assert evaluate(fleet, all_new(2, 3), Budget(1, 0), Rules(), progress, NOW + 601).failed


def test_requests_are_waited_for_and_then_not() -> None:
    rules = Rules(drain_timeout=30.0, settle=2.0)
    for since, active, stops in [(1, 0, False), (2, 0, True), (29, 1, False), (30, 1, True)]:
        going = some(
            1, 1, State.DRAINING, rotation=Rotation.OUT, active=active, draining_since=NOW - since
        )
        assert bool(turn([*some(3, 2), *going], all_new(2, 3), Budget(1, 0), rules).retire) is stops


def test_a_first_deployment_that_no_balancer_proves_goes_back_to_nothing() -> None:
    out = some(3, 1, rotation=Rotation.OUT, lb_healthy=False)
    assert len(turn(out, Waypoint(0, 0, 0, 0), Budget(1, 0)).drain) == 3


def test_what_serves_nobody_is_free_while_enough_others_serve() -> None:
    # Ready for us, but no balancer ever passes it: with surge 0 nothing would move otherwise.
    fleet = [*some(2), *some(1, 1, rotation=Rotation.OUT, lb_healthy=False, created=1.0)]
    assert turn(fleet, all_new(2, 3), Budget(0, 1)).drain == ("1-ready-1-000",)
    # While too few serve (a balancer was restarted) none goes: they will be back in a moment.
    assert not turn(
        some(3, 1, rotation=Rotation.ABSENT, lb_healthy=False), all_new(2, 3), Budget(0, 1)
    ).drain


def test_in_rotation_but_failed_by_the_balancers_is_not_available() -> None:
    fleet = some(3, 2, lb_healthy=False)
    assert not turn(fleet, all_new(2, 3), Budget(1, 0)).reached


def test_balancers_disagree() -> None:
    # In rotation at one, out at the other: neither available nor stoppable, and put in where it is
    # missing.
    entries = [Server(Rotation.IN, True, 1), Server(Rotation.OUT, True, 0)]
    rotation, lb_healthy, active = fleets.placement(entries)
    assert (rotation, lb_healthy, active) == (Rotation.PARTIAL, True, 1)
    partial = some(1, 2, rotation=rotation, lb_healthy=lb_healthy)
    decision = turn([*some(2, 2), *partial], all_new(2, 3), Budget(1, 0))
    assert decision.admit == (partial[0].id,) and not decision.reached
    assert fleets.placement([Server(Rotation.IN, True, 0), None]) == (Rotation.PARTIAL, False, 0)
    assert fleets.placement([None, None]) == (Rotation.ABSENT, False, 0)
