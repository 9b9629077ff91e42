# SPDX-License-Identifier: GPL-3.0-or-later
"""Deploying in place: what always holds, for random fleets and faults, and the order and size of
batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from ansible_collections.progressive.rollout.plugins.plugin_utils.config.strategy import parse
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine import in_place as engine
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.budget import (
    Budget,
    ResolvedBudget,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.evaluate import Decision
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.instances import (
    is_available,
    is_serving,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import (
    Instance,
    Rotation,
    State,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.progress import (
    ProgressTracker,
    Rules,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import (
    RolloutTarget,
    Waypoint,
    rolling,
    stages,
)
from hypothesis import given
from hypothesis import strategies as st

NOW, NEW = 100.0, 2
RULES = Rules(progress_deadline=60)


def one(number: int, **changed: object) -> Instance:
    """One of an old revision that serves."""
    well = Instance(
        f"i{number}", "1", 1, State.READY, 0.0, 0.0, Rotation.IN, True, host=f"web{number}"
    )
    return replace(well, **changed)  # type: ignore[arg-type]


DONE = {"generation": NEW}
OUT = {"state": State.DRAINING, "rotation": Rotation.OUT, "draining_since": 1.0}
SICK = {"state": State.NOT_READY, "lb_healthy": False}
BACK_SOON = {"rotation": Rotation.OUT}
KINDS: list[dict[str, object]] = [
    {},
    {},
    DONE,
    {"generation": 0},
    OUT,
    {**OUT, **DONE},
    SICK,
    {**SICK, **BACK_SOON},
    BACK_SOON,
]
fleets = st.lists(st.sampled_from(KINDS), min_size=1, max_size=12).map(
    lambda kinds: [one(n, **kind) for n, kind in enumerate(kinds)]
)


def everything(fleet: Sequence[Instance], **more: object) -> engine.Scope:
    return replace(engine.Scope(frozenset(i.host for i in fleet)), **more)  # type: ignore[arg-type]


def available(fleet: Sequence[Instance]) -> int:
    return sum(is_available(instance, RULES, NOW) for instance in fleet)


@given(fleets, st.integers(1, 5), st.data())
def test_no_decision_takes_what_is_needed(
    fleet: list[Instance], unavailable: int, data: st.DataObject
) -> None:
    allowed = ResolvedBudget(0, min(unavailable, len(fleet)))
    floor = len(fleet) - allowed.unavailable
    out = [i.id for i in fleet if i.state is State.DRAINING]
    failed = frozenset(data.draw(st.sets(st.sampled_from(out)))) if out else frozenset()
    hosts = data.draw(st.sets(st.sampled_from([i.host for i in fleet])))
    scope = engine.Scope(frozenset(hosts), failed)
    decision = engine.drain_batch(
        fleet,
        rolling(NEW, len(fleet)),
        RULES,
        ProgressTracker(NOW),
        NOW,
        allowed=allowed,
        scope=scope,
    )
    taken = [i for i in fleet if i.id in decision.drain]
    left = [i for i in fleet if i.id not in decision.drain]
    assert available(left) >= min(floor, available(fleet))
    assert all(i.host in hosts and i.id not in failed for i in taken)
    assert not taken or len(taken) + len(engine.batch_out(fleet, scope)) <= allowed.unavailable, (
        "no batch is bigger than the budget"
    )
    assert not any(i.generation == NEW and i.draining_since is None for i in taken)
    assert all(
        i.state is State.READY and i.rotation is not Rotation.IN
        for i in fleet
        if i.id in decision.admit
    )


@given(st.integers(1, 12), st.integers(1, 4), st.sets(st.integers(0, 11)), st.integers(1, 2))
def test_it_ends_whatever_fails(hosts: int, unavailable: int, broken: set[int], ports: int) -> None:
    """Each host is tried once at most; all that work are deployed unless what failed leaves no
    room.
    """
    fleet = [
        one(n, id=f"i{n}:{port}", host=f"web{n}") for n in range(hosts) for port in range(ports)
    ]
    allowed = ResolvedBudget(0, min(len(fleet), max(unavailable, ports)))
    waypoint, tried, failed = rolling(NEW, len(fleet)), [], frozenset[str]()
    while True:
        take = partial(engine.drain_batch, allowed=allowed, scope=everything(fleet, failed=failed))
        decision = take(fleet, waypoint, RULES, ProgressTracker(NOW), NOW)
        if decision.failed or decision.reached:
            break
        batch = set(decision.drain)
        tried += [i.host for i in fleet if i.id in batch]
        fleet = [replace(i, **OUT) if i.id in batch else i for i in fleet]  # type: ignore[arg-type]
        assert available(fleet) >= len(fleet) - allowed.unavailable
        assert take(fleet, waypoint, RULES, ProgressTracker(NOW), NOW).reached
        bad = {i.id for i in fleet if i.id in batch and int(i.host[3:]) in broken}
        failed |= bad
        fleet = [
            one(0, id=i.id, host=i.host, generation=NEW) if i.id in batch - bad else i
            for i in fleet
        ]
    assert len(tried) == len(set(tried)) * ports
    lost, working = len(failed), [n for n in range(hosts) if n not in broken]
    if decision.failed:
        assert lost + ports > allowed.unavailable and decision.failed_id == "PR-614"
    else:
        assert (
            engine.deployed(fleet, waypoint) == len(fleet) - lost >= len(working) * ports
            and len(set(tried)) == hosts
        )


@given(st.integers(1, 12), st.integers(1, 4), st.sets(st.integers(1, 99), max_size=2))
def test_the_batches_are_all_hosts_and_end_where_a_step_does(
    desired: int, unavailable: int, weights: set[int]
) -> None:
    fleet = [one(n) for n in range(desired)]
    allowed = Budget(0, min(unavailable, desired)).resolve(desired)
    plan = parse(
        {"strategy": "canary", "steps": [{"set_weight": weight} for weight in sorted(weights)]}
        if weights
        else {}
    )
    path = [
        stage.waypoint
        for stage in stages(
            engine.steps_as_replicas(plan), RolloutTarget(NEW, desired, allowed, desired)
        )
    ]
    batches = engine.batches(fleet, path, allowed, everything(fleet))
    assert [host for batch in batches for host in batch] == [i.host for i in fleet]
    assert all(len(batch) <= allowed.unavailable for batch in batches)
    ends = {sum(map(len, batches[:number])) for number in range(len(batches) + 1)}
    assert {point.new for point in path} <= ends


def test_what_is_of_no_use_comes_first() -> None:
    fleet = [
        one(1),
        one(2, generation=0),
        one(3, **SICK, **BACK_SOON),
        one(4, **DONE),
        one(5, **OUT),
        one(6),
    ]
    path: list[Waypoint] = [rolling(NEW, 6)]
    assert engine.batches(fleet, path, ResolvedBudget(0, 2), everything(fleet)) == [
        ("web3", "web5"),
        ("web2", "web1"),
        ("web6",),
    ]


def test_a_host_that_was_left_out_shares_its_batch_with_others() -> None:
    """It costs the budget what it cost before; a batch of its own would only take time."""
    fleet = [one(1), one(2), one(3, **OUT), one(4)]
    take = partial(
        engine.drain_batch,
        waypoint=rolling(NEW, 4),
        rules=RULES,
        progress=ProgressTracker(NOW),
        now=NOW,
        allowed=ResolvedBudget(0, 2),
    )
    decision = take(fleet, scope=everything(fleet))
    assert decision.drain == ("i1",) and not decision.reached
    both = [one(1, **OUT), *fleet[1:]]
    assert (
        take(both, scope=everything(both)).drain == ()
        and take(both, scope=everything(both)).reached
    )
    lost = everything(fleet, failed=frozenset(["i3"]))
    assert take(fleet, scope=lost).drain == ("i1",), (
        "one that has failed is not in the batch, but missing"
    )


def test_hosts_that_cannot_be_reached_are_no_loss_while_they_serve() -> None:
    fleet = [one(1), one(2, **SICK), one(3), one(4, **DONE)]
    refusal = partial(engine.refusal, fleet, rolling(NEW, 4), everything(fleet))
    assert refusal(["web1", "web4"], ResolvedBudget(0, 1), 2) == ""
    assert refusal(["web1", "web2"], ResolvedBudget(0, 2), 2) == "rollout_failure_limit is 2"
    assert (
        refusal(["web2"], ResolvedBudget(0, 1), 3)
        == "i2 serve no requests, and at most 1 may be unavailable"
    )
    assert refusal(["web2"], ResolvedBudget(0, 2), None) == ""
    assert (
        refusal(["web1", "web2", "web3"], ResolvedBudget(0, 2), None)
        == "no other host is to be deployed"
    )
    # What failed otherwise takes of the budget only if it is out of rotation.
    take = partial(
        engine.drain_batch,
        waypoint=rolling(NEW, 3),
        rules=RULES,
        progress=ProgressTracker(NOW),
        now=NOW,
        allowed=ResolvedBudget(0, 1),
    )
    fleet = [one(1), one(2), one(3)]
    assert take(fleet, scope=everything(fleet, failed=frozenset(["i1"]))).drain == ("i2",)


def test_a_failed_host_that_still_serves_leaves_room_for_the_next_one() -> None:
    """A host whose deployment failed before it was touched stays in rotation, and is not counted
    as lost.
    """
    fleet = [one(0), one(1), one(2, **SICK)]
    scope = engine.Scope(hosts=frozenset({"web0", "web1"}), failed=frozenset({"i0"}))
    drain = partial(
        engine.drain_batch,
        waypoint=rolling(NEW, 3),
        rules=RULES,
        progress=ProgressTracker(NOW),
        now=NOW,
        allowed=ResolvedBudget(0, 1),
        scope=scope,
    )

    waits = drain(fleet)
    lost = drain([one(0, **OUT), *fleet[1:]])

    assert (waits.drain, waits.failed) == ((), ""), "it waits for i2 to serve again"
    assert "i0 failed and stay" in lost.failed


def test_the_way_back_begins_with_the_newest() -> None:
    fleet = [one(n, generation=3, created=float(n)) for n in (1, 2, 3)]
    back = rolling(1, 3)
    assert engine.batches(
        fleet, [back], ResolvedBudget(0, 1), everything(fleet, newest_first=True)
    ) == [
        ("web3",),
        ("web2",),
        ("web1",),
    ]


def test_a_host_that_broke_elsewhere_makes_the_batch_smaller_or_wait() -> None:
    fleet = [one(1), one(2), one(3), one(4, **DONE, **SICK)]
    scope = everything(fleet)
    take = partial(engine.drain_batch, fleet, rolling(NEW, 4), RULES)
    assert take(ProgressTracker(NOW), NOW, allowed=ResolvedBudget(0, 2), scope=scope).drain == (
        "i1",
    )
    waits = take(ProgressTracker(NOW), NOW, allowed=ResolvedBudget(0, 1), scope=scope)
    assert waits.drain == () and not waits.reached and not waits.failed
    late = take(ProgressTracker(NOW - 61), NOW, allowed=ResolvedBudget(0, 1), scope=scope)
    assert (
        late.failed_id == "PR-605"
        and "web1" in late.failed
        and "1 of 4" in late.failed
        and "i4 is not_ready" in late.failed
    )


def settle(fleet: Sequence[Instance], unavailable: int, since: float = NOW) -> Decision:
    """Put the whole fleet back, of which so many may be unavailable."""
    waypoint, allowed = rolling(NEW, len(fleet)), ResolvedBudget(0, unavailable)
    names = [instance.id for instance in fleet]
    return engine.admit_batch(
        fleet, waypoint, RULES, ProgressTracker(since), NOW, allowed=allowed, names=names
    )


def test_what_does_not_become_available_is_taken_out_again() -> None:
    fleet = [one(1, **DONE), one(2, **DONE, **SICK, **BACK_SOON), one(3, **DONE, **BACK_SOON)]
    soon, late = settle(fleet, 2), settle(fleet, 2, NOW - 61)
    assert (soon.admit, soon.drain, soon.reached) == (("i3",), (), False)
    assert (late.admit, late.drain) == ((), ("i2", "i3"))


def test_what_does_not_become_available_stays_where_too_few_others_serve() -> None:
    """A load balancer whose checks fail everywhere says nothing about what was deployed."""
    blind = {"lb_healthy": False, "served": True}
    fleet = [one(1, **DONE, **blind), one(2, **DONE, **blind), one(3, **SICK, **BACK_SOON)]
    soon, late = settle(fleet, 1), settle(fleet, 1, NOW - 61)
    assert (soon.drain, soon.reached) == ((), False)
    assert late.drain == ("i3",), "of no use to anybody"
    rest = settle([*fleet[:2], one(3, **OUT)], 1, NOW - 61)
    assert (rest.drain, rest.reached) == ((), True)


@given(fleets, st.integers(1, 5))
def test_no_late_instance_is_taken_out_that_is_needed(
    fleet: list[Instance], unavailable: int
) -> None:
    late = settle(fleet, min(unavailable, len(fleet)), NOW - 61)
    left = [instance for instance in fleet if instance.id not in late.drain]
    floor = len(fleet) - min(unavailable, len(fleet))
    serve = [sum(map(is_serving, some)) for some in (left, fleet)]
    assert serve[0] >= min(serve[1], floor)
    assert late.reached is not bool(late.drain), "each is taken out, or stays"


@given(
    st.integers(0, 2),
    st.floats(0.0, 99.0),
    st.sampled_from(["bound", "parked", "neither"]),
    st.floats(0.0, 99.0),
)
def test_tasks_begin_only_where_nobody_is_sent(
    active: int, drained: float, how: str, parked: float
) -> None:
    """Clients that are bound to an instance go elsewhere first, and their last requests end."""
    changed: dict[str, object] = {**OUT, "draining_since": NOW - drained, "active": active}
    changed["bound"] = how == "bound"
    parked = min(parked, drained)
    changed["parked_since"] = NOW - parked if how == "parked" else None
    fleet = [one(0, **changed), one(1)]
    decision = engine.drain_batch(
        fleet,
        rolling(NEW, 2),
        RULES,
        ProgressTracker(NOW),
        NOW,
        allowed=ResolvedBudget(0, 1),
        scope=everything(fleet),
    )
    half = RULES.drain_timeout / 2
    late = NOW - (NOW - drained) >= 2 * half and (how == "neither" or NOW - (NOW - parked) >= half)
    assert decision.reached is (how != "bound" and (active == 0 or late))
    leaves = how == "bound" and (active == 0 or NOW - (NOW - drained) >= half)
    assert decision.park == (("i0",) if leaves else ())


def test_only_what_was_deployed_is_checked_again() -> None:
    """An operator may have put others into maintenance."""
    parked = {"rotation": Rotation.OUT, "lb_healthy": False, "parked": True}
    fleet = [
        one(1, **parked),
        one(2, **DONE, **parked),
        one(3, **{**DONE, **parked, "state": State.STARTING}),
        one(4, **{**OUT, **DONE, "parked": True}),
        one(5, **parked),
    ]
    point, progress = rolling(NEW, 5), ProgressTracker(NOW)
    assert engine.hold_batch(fleet, point, RULES, progress, NOW).enter == ("i2",)
    put_back = engine.admit_batch(
        fleet, point, RULES, progress, NOW, allowed=ResolvedBudget(0, 2), names={"i5"}
    )
    assert put_back.enter == ("i2", "i5") and not put_back.reached


def test_what_a_load_balancer_finds_ill_comes_first() -> None:
    """Its deployment costs no capacity, and that of another would."""
    fleet = [one(1), one(2, lb_healthy=False)]
    decision = engine.drain_batch(
        fleet,
        rolling(NEW, 2),
        RULES,
        ProgressTracker(NOW),
        NOW,
        allowed=ResolvedBudget(0, 1),
        scope=everything(fleet),
    )
    assert decision.drain == ("i2",)
