# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One turn of a walk: from what is there to what to do now. Pure; all the safety lives here.

`evaluate` looks at a fleet and decides which instances to create, to put in rotation, to take out and to stop,
so that at every moment

* the total, with everything in flight, is at most desired + surge;
* what is available is at least desired - unavailable, and never lowered further once it is below;
* nothing is stopped while in rotation anywhere, and nothing is put in rotation that is not ready.

There is no barrier: an instance that becomes ready frees an old one at once, whatever the others do (E-04).
"""

from __future__ import annotations

import heapq
import typing as t
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field

from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.budget import Budget, ResolvedBudget
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import FailureAction, Instance, Rotation, State
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.progress import (
    Failure,
    ProgressTracker,
    Rules,
    failure_limits,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import Waypoint


@dataclass(frozen=True)
class Decision:
    """What to do now, and why. Ids, oldest first."""

    create: int = 0
    create_old: int = 0  # of the stable revision and its generation: the old ones that stay are repaired, too
    admit: tuple[str, ...] = ()  # put in rotation
    standby: tuple[str, ...] = ()  # take out of rotation, in the same move, but keep: they stay ready
    drain: tuple[str, ...] = ()  # take out of rotation: from now on they are going
    retire: tuple[str, ...] = ()  # stop: in rotation nowhere, and done with their requests or out of time
    reasons: tuple[str, ...] = ()
    reached: bool = False
    failed: str = ""  # why the walk has to end here
    then: FailureAction | None = None  # HOLD where going back would lead to what fails; None: the settings decide
    stable_lost: bool = False  # no stable instance serves any more, and there are new ones that are ready
    progress: ProgressTracker = field(default_factory=lambda: ProgressTracker(0.0))

    @property
    def nothing_to_do(self) -> bool:
        """Whether there is nothing to do but wait."""
        return not (self.create or self.create_old or self.admit or self.standby or self.drain or self.retire)


@dataclass
class GroupCount:
    """The new or the old ones that are counted and not going."""

    available: list[Instance] = field(default_factory=list)
    prepared: list[Instance] = field(default_factory=list)  # ready, and kept out of rotation by the waypoint
    rest: list[Instance] = field(default_factory=list)
    overdue: list[Instance] = field(default_factory=list)  # of the rest: they had their time to become ready
    away: list[Instance] = field(default_factory=list)  # of the rest: on hosts that do not answer, without a request

    def __len__(self) -> int:
        return len(self.available) + len(self.prepared) + len(self.rest)

    @property
    def standing(self) -> int:
        """How many are as far as the waypoint lets them come."""
        return len(self.available) + len(self.prepared)

    @property
    def starting(self) -> int:
        """How many were started and are not in service yet."""
        return sum(map(_starting, self.rest))


def _starting(instance: Instance) -> bool:
    return not instance.in_rotation and instance.state in (State.STARTING, State.READY)


@dataclass
class FleetCount:
    """The fleet, each instance in exactly one list (invariant 8)."""

    new: GroupCount = field(default_factory=GroupCount)
    old: GroupCount = field(default_factory=GroupCount)
    going: list[Instance] = field(default_factory=list)
    dead: list[Instance] = field(default_factory=list)
    lost: list[Instance] = field(default_factory=list)
    total: int = 0
    old_total: int = 0
    serving: int = 0  # in rotation and passed by the balancers, whatever our checks say
    switched: bool = False  # where the waypoint is a switch: no old one is in rotation any more
    failed: list[Failure] = field(default_factory=list)  # those that failed, or are overdue, and that this walk has started
    broken: list[Instance] = field(default_factory=list)  # of either side, they ended and were started again: no capacity
    lasting: int = 0  # new ones that have lasted
    old_serves: bool = False  # any old one, or it will be back in rotation in a moment

    @property
    def available(self) -> int:
        return len(self.new.available) + len(self.old.available)


def evaluate(
    fleet: Sequence[Instance], waypoint: Waypoint, budget: Budget, rules: Rules, progress: ProgressTracker, now: float
) -> Decision:
    """What to do now to get from `fleet` to `waypoint` within `budget`. `now` is in seconds, on the fleet's clock."""
    allowed = budget.resolve(waypoint.desired)
    census = _count(fleet, waypoint, rules, now if progress.old is None else progress.began, now)
    kept = min(census.old.standing, waypoint.old)
    progress = progress.advance(census.new.standing, census.old_total, census.failed, now, kept, census.lasting)
    failed = _verdict(census, waypoint, rules, progress, now)
    if failed:
        then = FailureAction.HOLD if _only_stable(census, waypoint, progress) else None
        return Decision(failed=failed, then=then, reasons=(failed,), progress=progress)
    missing = _missing(census, waypoint, allowed, progress)
    create, create_old = _create(census, waypoint, allowed, rules, progress, missing)
    drain = _drain(census, waypoint, allowed, rules, now, missing)
    admit, standby = _rotate(census, waypoint, {instance.id for instance in drain})
    retire = [i for i in census.going if i.state is State.DRAINING and can_stop(i, rules, now)]
    return Decision(
        create=create,
        create_old=create_old,
        admit=_ids(admit),
        standby=_ids(standby),
        drain=_ids(drain),
        retire=_ids(retire),
        reasons=tuple(_reasons(create, create_old, admit, standby, drain, retire, census, waypoint, allowed)),
        reached=not create_old and _reached(census, waypoint),
        stable_lost=_stable_lost(census, waypoint),
        progress=progress,
    )


def is_available(instance: Instance, rules: Rules, now: float) -> bool:
    """Ready for `min_ready` seconds, in rotation at every load balancer, and passed by its own check there."""
    return (
        instance.state is State.READY
        and instance.rotation is Rotation.IN
        and instance.lb_healthy
        and instance.ready_since is not None
        and now - instance.ready_since >= rules.min_ready
    )


def is_prepared(instance: Instance, rules: Rules, now: float) -> bool:
    """Ready for `min_ready` seconds and passed by every load balancer's own check, so that it can be put in rotation."""
    return (
        instance.state is State.READY
        and instance.lb_healthy
        and instance.ready_since is not None
        and now - instance.ready_since >= rules.min_ready
    )


def can_admit(instance: Instance) -> bool:
    """Whether an instance may be put in rotation now: ready, passed by every balancer's own check, and not in yet."""
    return instance.state is State.READY and instance.lb_healthy and instance.rotation is not Rotation.IN


def can_stop(instance: Instance, rules: Rules, now: float) -> bool:
    """Whether a draining instance may be stopped: in rotation nowhere, and done with its requests or out of time."""
    if instance.in_rotation or instance.draining_since is None:
        return False
    drained = now - instance.draining_since
    return drained >= rules.drain_timeout or (instance.active == 0 and drained >= rules.settle)


def is_orphaned(instance: Instance) -> bool:
    """Whether nothing can be known of an instance, nor done about it, but that no load balancer sends requests to it: its host
    does not answer. It counts no more, until the host does: then it is stopped."""
    return instance.state is State.UNREACHABLE and instance.draining_since is not None and not instance.in_rotation


def limit(waypoint: Waypoint, allowed: ResolvedBudget) -> int:
    """The most instances at once: what the budget lets, or what the waypoint itself is made of (a second set)."""
    return max(waypoint.desired + allowed.surge, waypoint.new + waypoint.old)


def _count(fleet: Sequence[Instance], waypoint: Waypoint, rules: Rules, began: float, now: float) -> FleetCount:
    """Each instance into its list. `began` is when the walk did: stable ones that fail are its failures if it started them."""
    census = FleetCount()
    if waypoint.switches:
        serving = {i.generation == waypoint.generation for i in fleet if i.in_rotation and i.state.counted}
        # A balancer that was restarted shows neither side: that alone is no switch.
        census.switched = False not in serving and (True in serving or waypoint.switch_at == 0)
    kept_out = waypoint.new_idle or (waypoint.switches and not census.switched)
    keeps = waypoint.repairs and waypoint.old > 0
    for instance in fleet:
        state = instance.state
        is_new = instance.generation == waypoint.generation
        if state is State.FAILED or state is State.STOPPED:
            census.dead.append(instance)
            if state is State.FAILED and instance.draining_since is None and (is_new or _repair(instance, waypoint, began)):
                census.failed.append(_failure(instance, instance.detail or "it ended", not is_new))
            continue
        if is_orphaned(instance):
            census.lost.append(instance)
            continue
        census.total += 1
        census.old_total += not is_new
        if state is State.DRAINING or (state is State.UNREACHABLE and instance.draining_since is not None):  # in rotation yet
            census.going.append(instance)
            continue
        side = census.new if is_new else census.old
        rotation = instance.rotation  # not `in_rotation`: this loop is the cost of an evaluate
        census.serving += instance.lb_healthy and (rotation is Rotation.IN or rotation is Rotation.PARTIAL)
        if instance.crashed:
            census.broken.append(instance)
            if is_new or _repair(instance, waypoint, began):
                census.failed.append(_failure(instance, instance.detail or "it ended, and was started again", not is_new))
            continue
        if is_available(instance, rules, now):
            side.available.append(instance)
            census.lasting += is_new and now - (instance.ready_since or 0.0) >= rules.watch_new
            continue
        if (kept_out if is_new else census.switched) and is_prepared(instance, rules, now):
            side.prepared.append(instance)
            census.lasting += is_new and now - (instance.ready_since or 0.0) >= rules.watch_new
            continue
        side.rest.append(instance)
        if (is_new or keeps) and state is State.UNREACHABLE and not (instance.lb_healthy and instance.in_rotation):
            side.away.append(instance)
        if (is_new or _repair(instance, waypoint, began)) and _overdue(instance, rules, now):
            side.overdue.append(instance)
            late = f"not ready within {rules.ready_deadline:g} s ({instance.detail or 'no check has passed'})"
            census.failed.append(_failure(instance, late, not is_new))
    census.old_serves = bool(census.old.available) or any(
        i.state is State.READY or (i.in_rotation and i.lb_healthy) for i in census.old.rest
    )
    return census


def _repair(instance: Instance, waypoint: Waypoint, began: float) -> bool:
    """Whether an old instance was started by this walk, in place of a stable one."""
    return waypoint.repairs and instance.generation == waypoint.stable and instance.created >= began


def _failure(instance: Instance, what: str, stable: bool) -> Failure:
    why = f"{'of the stable revision ' if stable else ''}{_placed(instance, what)}"
    return Failure(instance.id, why, instance.was_ready, stable)


def _overdue(instance: Instance, rules: Rules, now: float) -> bool:
    """Whether it had its time to become ready. One in rotation was ready before: only we have not asked it yet."""
    return (
        rules.ready_deadline is not None
        and instance.state is State.STARTING
        and not instance.in_rotation
        and now - instance.created > rules.ready_deadline
    )


def _needless(census: FleetCount, waypoint: Waypoint) -> list[Instance]:
    """What was judged bad, on a way back on which the stable ones in service can carry all requests: it is no capacity."""
    if not waypoint.headroom or waypoint.switches:
        return []
    old = (*census.old.rest, *census.old.prepared, *census.old.available)
    stable = (*census.new.available, *census.new.rest, *(i for i in old if i.generation == waypoint.baseline))
    serving = sum(1 for i in stable if i.state is State.READY and i.lb_healthy and i.rotation is Rotation.IN)
    if serving * waypoint.headroom < waypoint.desired:
        return []
    return [i for i in old if i.generation != waypoint.baseline]


def _missing(census: FleetCount, waypoint: Waypoint, allowed: ResolvedBudget, progress: ProgressTracker) -> int:
    """How many stable instances have to come back, because new ones that were ready broke and too few are left in service."""
    if not waypoint.repairs or not any(failure.late and not failure.stable for failure in progress.failures):
        return 0
    # What the balancers still send requests to is in service, whatever our checks say.
    return max(0, waypoint.desired - allowed.unavailable - max(census.available, census.serving))


def _create(
    census: FleetCount, waypoint: Waypoint, allowed: ResolvedBudget, rules: Rules, progress: ProgressTracker, missing: int
) -> tuple[int, int]:
    """How many new and how many stable ones to start. Not-ready ones count, so that none is made twice (E-01, E-05)."""
    starting = census.old.starting
    free = limit(waypoint, allowed) - census.total
    if allowed.in_flight is not None:
        free = min(free, allowed.in_flight - len(census.new.rest) - starting)
    lacking = max(waypoint.old - len(census.old), missing - starting) if waypoint.repairs else 0
    # Repair before replacing: what is in service is kept up first.
    old = _tries(min(free, lacking), census.old, starting, True, rules, progress)
    new = _tries(min(free - old, waypoint.new - len(census.new)), census.new, len(census.new.rest), False, rules, progress)
    return new, old


def _tries(wanted: int, side: GroupCount, on_the_way: int, stable: bool, rules: Rules, progress: ProgressTracker) -> int:
    """How many of the wanted ones to start: after a failure no more at once than may still fail, so that the limit is met exactly (E-07)."""
    left = [
        most - count - on_the_way + len(side.overdue) for count, most, _where in failure_limits(rules, progress, stable) if count
    ]
    return max(0, min([wanted, *left]))


def _rotate(census: FleetCount, waypoint: Waypoint, leaving: Container[str]) -> tuple[list[Instance], list[Instance]]:
    """Which to put in rotation, and which to take out of it in the same move without being done with them."""
    old = [i for i in census.old.rest if can_admit(i)] if not census.switched else []
    if waypoint.new_idle:
        admit, standby = old, []
    elif waypoint.switches and not census.switched:
        need = waypoint.new if waypoint.switch_at is None else min(waypoint.switch_at, waypoint.new)
        # Looked at at the very moment of the switch, whoever asked for it (E-10).
        if census.new.standing >= max(1, need):
            admit, standby = census.new.prepared, [i for i in (*census.old.available, *census.old.rest) if i.in_rotation]
        else:
            admit, standby = old, []
    else:
        admit, standby = [*(i for i in census.new.rest if can_admit(i)), *old], []
    return [i for i in admit if i.id not in leaving], [i for i in standby if i.id not in leaving]


def _drain(
    census: FleetCount, waypoint: Waypoint, allowed: ResolvedBudget, rules: Rules, now: float, missing: int
) -> list[Instance]:
    """Which to take out: old ones first, of them those that give nothing first, then oldest first (E-09)."""
    floor = waypoint.desired - allowed.unavailable
    spare, serving = census.available - floor, census.serving - floor
    # One that was started again may serve at the moment: it goes as soon as enough others do.
    serves = [i for i in census.broken if i.in_rotation and i.lb_healthy]
    broken = [i for i in census.broken if i not in serves] + _first(serves, serving, _worth)
    serving -= sum(i in serves for i in broken)
    chosen = [*broken, *census.new.overdue, *census.new.away, *census.old.overdue, *census.old.away]
    returning = census.old.starting if missing else 0
    excess_old = len(census.old) - waypoint.old - len(census.old.overdue) - len(census.old.away) - returning
    if bad := _needless(census, waypoint):
        return [*census.new.overdue, *census.new.away, *bad]
    excess_new = len(census.new) - waypoint.new - len(census.new.overdue) - len(census.new.away)
    pool, excess = (census.old, excess_old) if excess_old > 0 else (census.new, excess_new)
    if excess <= 0:
        return chosen
    hopeless = {instance.id for instance in chosen}
    idle: list[Instance] = [*pool.prepared]  # kept out of rotation: they carry nothing, however few serve
    useful: list[Instance] = []
    for instance in pool.rest:
        if instance.id in hopeless or (returning and pool is census.old and _starting(instance)):
            continue  # stable ones that come back are not sent away before they are there
        in_service = instance.in_rotation and instance.lb_healthy
        returns = instance.state is State.READY and serving < 0
        (useful if in_service or returns else idle).append(instance)

    # The last to go are those of the stable revision: a half-done one that was superseded goes before them (E-16). What is
    # compared with stays longest.
    def _age(instance: Instance) -> tuple[bool, bool, float, str]:
        generation = instance.generation
        return (generation == waypoint.baseline, generation == waypoint.stable, instance.created, instance.id)

    free = _first(idle, excess, _worth)
    # Our check fails it but the balancer still sends requests there, or too few serve and it may be back in rotation
    # in a moment: it goes only while enough others serve, so that a blip of our own checks, or a balancer that was
    # restarted, can never empty a fleet.
    some = _first(useful, min(excess - len(free), serving), _worth)
    # All available ones serve as well, so what `spare` leaves of them is enough for both.
    rest = _first(pool.available, min(excess - len(free) - len(some), spare), _age)
    return [*chosen, *free, *some, *rest]


def _first(instances: list[Instance], count: int, key: Callable[[Instance], t.Any]) -> list[Instance]:
    return heapq.nsmallest(count, instances, key=key) if count > 0 and instances else []


_SACRIFICE = (State.UNREACHABLE, State.STARTING, State.NOT_READY, State.READY)


def _worth(instance: Instance) -> tuple[int, float, str]:
    """Least useful first, then oldest."""
    return (_SACRIFICE.index(instance.state), instance.created, instance.id)


def _reached(census: FleetCount, waypoint: Waypoint) -> bool:
    arrived = census.new.standing if waypoint.new_idle else len(census.new.available)
    return (
        arrived == len(census.new) == waypoint.new
        and len(census.old) <= waypoint.old
        and not _lacking(census, waypoint)
        and not census.broken
        and (census.switched or not waypoint.switches)
        and not census.going
        and all(instance.rotation is Rotation.ABSENT for instance in census.dead)
    )


def _lacking(census: FleetCount, waypoint: Waypoint) -> int:
    """How many of the old ones that are to serve are not there, or not in service yet. One that is not ready is there."""
    if not waypoint.repairs or not waypoint.old or census.switched:
        return 0
    return max(0, waypoint.old - len(census.old)) + census.old.starting


def _stable_lost(census: FleetCount, waypoint: Waypoint) -> bool:
    """Whether new ones are ready while none of the stable ones that are to serve does, or will in a moment."""
    if not waypoint.repairs or not waypoint.old or waypoint.switches or census.old_serves:
        return False
    return census.new.standing >= (waypoint.new if waypoint.new_idle else 1) > 0


def _verdict(census: FleetCount, waypoint: Waypoint, rules: Rules, progress: ProgressTracker, now: float) -> str:
    """Why the walk must end without arriving, or nothing."""
    # A promoted revision is not held up by a set that is only kept warm: no more of it are tried then.
    bounds = [*failure_limits(rules, progress, False), *(() if census.switched else failure_limits(rules, progress, True))]
    for count, most, where in bounds:
        if count >= most:
            last = f"; the last one was {progress.failures[-1].id} {progress.failures[-1].why}" if progress.failures else ""
            return f"{count} instance(s) failed {where} (the limit is {most}){last}"
    if now - progress.since > rules.progress_deadline and not _reached(census, waypoint):
        return f"no progress for {rules.progress_deadline:g} s: {_waiting_for(census, waypoint)}"
    return ""


def _only_stable(census: FleetCount, waypoint: Waypoint, progress: ProgressTracker) -> bool:
    """Whether a walk that ends here ends because of the stable side alone, so that going back would lead to what fails."""
    if progress.failures:
        return all(failure.stable for failure in progress.failures)
    return bool(_lacking(census, waypoint)) and census.new.standing == len(census.new) == waypoint.new


def _placed(instance: Instance, what: str) -> str:
    """The host before what happened there: that may end in the instance's own words."""
    return f"on {instance.host}: {what}" if instance.host else f"({what})"


def _at(instance: Instance) -> str:
    return f" on {instance.host}" if instance.host else ""


def _waiting_for(census: FleetCount, waypoint: Waypoint) -> str:
    """What keeps the walk from its waypoint, naming the instances."""
    parts = [f"{census.new.standing} of {waypoint.new} new {'ready' if waypoint.new_idle else 'available'}"]
    if lacking := _lacking(census, waypoint):
        parts.append(f"{waypoint.old - lacking} of {waypoint.old} stable in service")
    stuck = [i for i in census.new.rest if i.state is not State.READY or i.rotation is not Rotation.IN]
    stuck += [i for i in census.going if i.draining_since is not None]
    stuck += [i for i in census.old.rest if i.state is State.UNREACHABLE or (waypoint.repairs and _starting(i))]
    for instance in stuck[:3]:
        what = instance.state.value if instance.state is not State.READY else f"ready, but {instance.rotation.value} of rotation"
        parts.append(f"{instance.id}{_at(instance)} is {what}{': ' + instance.detail if instance.detail else ''}")
    if len(stuck) > 3:
        parts.append(f"and {len(stuck) - 3} more")
    parts.extend(f"{failure.id} failed {failure.why}" for failure in census.failed[-1:])
    return "; ".join(parts)


def _ids(instances: Iterable[Instance]) -> tuple[str, ...]:
    return tuple(instance.id for instance in instances)


def _reasons(
    create: int,
    create_old: int,
    admit: list[Instance],
    standby: list[Instance],
    drain: list[Instance],
    retire: list[Instance],
    census: FleetCount,
    waypoint: Waypoint,
    allowed: ResolvedBudget,
) -> Iterable[str]:
    """One sentence a decision, with the numbers it came from."""
    if create:
        yield (
            f"create {create}: {len(census.new)} of {waypoint.new} new are there, "
            f"{census.total} of at most {limit(waypoint, allowed)} in all"
        )
    if create_old:
        yield (
            f"create {create_old} stable: {len(census.old)} of {waypoint.old} old are there, {census.available} of at least "
            f"{waypoint.desired - allowed.unavailable} available, {census.total} of at most {limit(waypoint, allowed)} in all"
        )
    if standby:
        yield (
            f"switch: {', '.join(_ids(admit)) or 'nothing'} in and {', '.join(_ids(standby))} out, at once: "
            f"{census.new.standing} of {waypoint.new} new are ready"
        )
    elif admit:
        yield f"admit {', '.join(_ids(admit))}: ready, and passed by every load balancer's own check"
    if drain:
        yield (
            f"drain {', '.join(_ids(drain))}: {census.available} available, "
            f"{waypoint.desired - allowed.unavailable} needed; {len(census.old)} old left"
        )
    if retire:
        yield f"retire {', '.join(_ids(retire))}: out of rotation everywhere, requests done or out of time"
