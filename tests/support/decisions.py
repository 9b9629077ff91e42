# SPDX-License-Identifier: GPL-3.0-or-later
"""What holds of every decision of the engine, for any fleet whatsoever. The simulated world checks
each decision of the real loop in the same way. Assertions begin with the number of an invariant:

1. The total is at most desired + surge.
2. What is available is at least desired - unavailable, or as much as there was.
3. Nothing is stopped while in rotation, or put in rotation unless it is ready and health-checked.
4. Every walk has an end.
5. A walk ends once its deadline or a limit of failures is over.
6. A waypoint is reached only with what it asks for, and a switch is one update.
8. Each instance is in one state and one group of a decision, and every end has a reason.
11. Each instance has its entries at the load balancers, and there are no others.
14. Weights: capacity before traffic.
"""

from __future__ import annotations

import typing as t
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.budget import Budget
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.evaluate import Decision
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.instances import (
    is_lost,
    is_overdue,
    is_serving,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import (
    Instance,
    Rotation,
    State,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.progress import (
    Rules,
    failure_limits,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import (
    Waypoint,
    rolling,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.targets import split
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.weights import MOST

EPSILON = Fraction(1, 200)  # of all requests: weights are whole numbers


def check_parts(point: Waypoint, new: int, old: int, each: Fraction) -> None:
    """14: each of so many new ones gets no more than it is to get where all are there, or had at a
    lower weight, and each of so many old ones no more than it had before; or an even part.
    """
    share, even = Fraction(point.weight or 0, 100), Fraction(1, new + old)
    rest = (1 - each * new) / old
    planned = share / max(1, max(point.carrying, new) if point.carrying else point.new)
    carried = max((Fraction(w, 100 * max(1, n)) for w, n in point.carried), default=Fraction(0))
    planned = max(planned, min(carried, share / new))
    usual = max(
        Fraction(1, max(1, point.desired)), (1 - share) / point.old if point.old else Fraction(0)
    )
    least = Fraction(1, new + MOST * old)  # what cannot be undercut
    assert each <= max(planned, even, least) + EPSILON / new, (
        f"14: {each} for each of {new} new of {point.new}, which are to have {share}"
    )
    assert rest <= max(usual, even) + EPSILON, f"14: {rest} for each of {old} old, beside {new} new"


def lost(fleet: Sequence[Instance]) -> list[Instance]:
    """Return the orphaned instances: no load balancer sends them requests, and their hosts do not
    answer.
    """
    return [
        i
        for i in fleet
        if i.state is State.UNREACHABLE and i.draining_since is not None and not i.in_rotation
    ]


def carries(instance: Instance) -> bool:
    """Ready, and in rotation everywhere."""
    return (
        instance.state is State.READY and instance.lb_healthy and instance.rotation is Rotation.IN
    )


def judged_bad(staying: Sequence[Instance], waypoint: Waypoint) -> set[str]:
    """Return the instances that a rollback takes out at once, since the stable ones can carry all
    requests: of a target with load balancers of its own, else of all others together.
    """
    if not waypoint.headroom or waypoint.switches:
        return set()
    own = [(target, point) for target, point in waypoint.parts if target.balancers]
    groups = [([i for i in staying if i.host in target.hosts], point) for target, point in own]
    if len(own) < len(waypoint.parts) or not own:
        alone = {host for target, _point in own for host in target.hosts}
        desired = waypoint.desired - sum(point.desired for _target, point in own)
        rest = [i for i in staying if i.host not in alone]
        groups.append((rest, replace(waypoint, desired=desired)))
    bad: set[str] = set()
    for among, point in groups:
        stable = [i for i in among if i.generation in (waypoint.generation, waypoint.baseline)]
        if sum(map(carries, stable)) * waypoint.headroom >= point.desired:
            bad |= {i.id for i in among if i not in stable}
    return bad


def check(
    fleet: Sequence[Instance],
    decision: Decision,
    waypoint: Waypoint,
    budget: Budget,
    rules: Rules,
    now: float,
) -> None:
    """A decision against the invariants that can be seen in it, for any fleet whatsoever."""
    allowed = budget.resolve(waypoint.desired)
    by_id = {instance.id: instance for instance in fleet}
    given_up = lost(fleet)
    counted = sum(
        1 for i in fleet if i.state not in (State.STOPPED, State.FAILED) and i not in given_up
    )
    started = decision.create + decision.create_old
    assert started == 0 or counted + started <= max(
        waypoint.desired + allowed.surge, waypoint.new + waypoint.old
    ), f"1: {started} are started beside {counted}"
    # An unreachable one that was told to go goes as soon as its host is back.
    over = (State.STOPPED, State.FAILED, State.DRAINING)
    staying = [
        i
        for i in fleet
        if i.state not in over and (i.state is not State.UNREACHABLE or i.draining_since is None)
    ]
    # what broke is no capacity
    fresh = [
        i
        for i in staying
        if i.generation == waypoint.generation
        and not i.crashed
        and not (is_serving(i) and is_lost(i, rules, now))
    ]
    # what one target has too many of is none of another's
    asked = sum(max(0, point.new - len(part)) for _t, point, part in split(fresh, waypoint))
    assert decision.create <= asked, "1: more new ones than asked for"

    def ripe(i: Instance) -> bool:
        return (
            i.ready_since is not None and now - i.ready_since >= rules.min_ready and not i.crashed
        )

    def proven(i: Instance) -> bool:
        return i.state is State.READY and i.lb_healthy and ripe(i)

    def available(i: Instance) -> bool:
        return proven(i) and i.rotation is Rotation.IN

    coming = sum(not proven(i) and not is_overdue(i, rules, now) for i in fresh)
    for bound in failure_limits(rules, decision.progress, False) if decision.create else ():
        assert not bound.count or coming + decision.create <= bound.most - bound.count, (
            f"5: {decision.create} are started beside {coming} that start, after {bound.text}"
        )

    floor = waypoint.desired - allowed.unavailable
    going = [by_id[name] for name in decision.drain]
    bad = set() if decision.failed else judged_bad(staying, waypoint)
    assert bad <= set(decision.drain), "14: judged bad, and not needed"
    own = {target.name: point.desired for target, point in waypoint.parts if target.balancers}

    def target_of(i: Instance) -> str:
        """Its target; empty: it is at none."""
        return next((target.name for target, _p in waypoint.parts if target.has(i.host)), "")

    def group(i: Instance) -> str:
        """Its target, if that has load balancers of its own, to which others are of no use."""
        return name if (name := target_of(i)) in own else ""

    for fits, what in ((available, "available"), (is_serving, "serving")):
        counts = Counter(group(i) for i in staying if fits(i))
        useful = sum(min(count, own.get(name, count)) for name, count in counts.items())
        for instance in going:
            if instance.id in bad or not fits(instance):
                continue
            name = group(instance)
            if counts[name] <= own.get(name, counts[name]):
                assert useful > floor, f"2: {instance.id} is drained at {useful} {what} of {floor}"
                useful -= 1
            counts[name] -= 1

    def redundant(i: Instance) -> bool:
        """Its host has another one, and needs no more."""
        others = (other for other in staying if other.host == i.host and other not in going)
        return rules.one_per_host is not None and any(map(available, others))

    def side(i: Instance) -> tuple[str, bool]:
        """Its target and whether it is new: each target keeps what it is to have of either."""
        return target_of(i), i.generation == waypoint.generation

    def superseded(i: Instance) -> bool:
        """It may never have passed a gate, and is not needed before those of the next set do."""
        known = (waypoint.generation, waypoint.stable, waypoint.baseline)
        return bool(waypoint.stable) and waypoint.new_idle and i.generation not in known

    sides = {
        side(i)
        for i in going
        if available(i) and i.id not in bad and not (redundant(i) or superseded(i))
    }
    for i in staying:
        useless = (i.state is not State.READY or i.crashed) and not is_serving(i)
        if useless and side(i) in sides:
            assert i in going, f"2: repair before replacing: {i.id} gives nothing and stays"
    for name in decision.admit:
        i = by_id[name]
        assert i.state is State.READY and i.lb_healthy and i.rotation is not Rotation.IN, (
            f"3: {name} is admitted, and not ready or in rotation"
        )
        assert not (waypoint.new_idle and i in fresh), (
            "a new instance on standby is put in rotation"
        )
    for name in decision.retire:
        i = by_id[name]
        assert i.state is State.DRAINING and i.rotation in (Rotation.OUT, Rotation.ABSENT), (
            f"3: {name} is stopped in rotation"
        )
        assert i.draining_since is not None, f"8: {name} is stopped, and does not drain"
        done = i.active == 0 and now - i.draining_since >= rules.settle
        assert done or now - i.draining_since >= rules.drain_timeout, (
            "3: stopped with requests in flight"
        )
    standing = sum(map(proven, fresh))
    for name in decision.standby:
        i = by_id[name]
        assert (
            waypoint.switches and i not in fresh and i.rotation in (Rotation.IN, Rotation.PARTIAL)
        ), "6: on standby for nothing"
        need = waypoint.new if waypoint.switch_at is None else min(waypoint.switch_at, waypoint.new)
        assert standing >= max(1, need), f"6: switched with {standing} of {waypoint.new} ready"
    if decision.standby and not waypoint.parts:
        leaving = {*decision.standby, *decision.drain}
        for i in staying:
            old = i.generation != waypoint.generation and i.in_rotation
            assert not old or i.id in leaving, f"a switch leaves {i.id} in rotation"
    names = [*decision.admit, *decision.standby, *decision.drain, *decision.retire]
    assert len(names) == len(set(names)), "8: one thing at a time for each instance"
    if decision.reached:
        # Each target may have a weight of its own: of none, its new instances get no requests.
        for target, point in waypoint.parts or ((None, waypoint),):
            among = [i for i in fresh if target is None or target.has(i.host)]
            arrived = sum(map(proven if point.new_idle else available, among))
            assert arrived == point.new, "6: reached with fewer than asked for"
        # A switch is not held up by its standby set.
        assert not going or waypoint.switches, "6: at the waypoint, and something has to go"
        old = [i for i in fleet if i.state.counted and i.generation != waypoint.generation]
        points = [point for _target, point in waypoint.parts] or [waypoint]
        most = sum(max(point.old, point.desired - point.new) for point in points)
        assert sum(i not in given_up for i in old) <= most, "11: reached with one too many"
        ended = (i for i in fleet if not i.state.counted)
        assert all(i.rotation is Rotation.ABSENT for i in ended), "11: an entry of what is gone"
    if decision.failed:
        assert decision.nothing_to_do and not decision.reached and decision.reasons, (
            "8: an end has a reason"
        )


def some(
    count: int,
    generation: int = 1,
    state: State = State.READY,
    created: float = 0.0,
    **fields: t.Any,
) -> list[Instance]:
    """So many alike: ready ones in rotation for long, others nowhere. Ids go on from `created`."""
    ready: dict[str, t.Any] = (
        {"ready_since": created, "rotation": Rotation.IN, "lb_healthy": True}
        if state is State.READY
        else {}
    )
    return [
        Instance(
            f"{generation}-{state.value}-{created:g}-{number:03}",
            f"r{generation}",
            generation,
            state,
            created,
            **(ready | fields),
        )
        for number in range(count)
    ]


def all_new(generation: int, desired: int) -> Waypoint:
    """Where a rolling rollout goes, or one of scaling."""
    return rolling(generation, desired)
