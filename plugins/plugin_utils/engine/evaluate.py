# SPDX-License-Identifier: GPL-3.0-or-later
"""One iteration of the reconcile loop: from the fleet as observed to what to do now. Pure; all the
safety is here.

`evaluate` decides which instances to create, to put in rotation, to take out and to stop, so that
at every moment

* the total, with everything in flight, is at most desired + surge;
* what is available is at least desired - unavailable, and never lowered further once it is below;
* nothing is stopped while in rotation anywhere, and nothing is put in rotation that is not ready.

There are no batches: an instance that becomes ready lets an old one go at once, whatever the others
do.
"""

from __future__ import annotations

import heapq
import typing as t
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from . import targets, wording
from .budget import Budget, ResolvedBudget
from .fleet_count import FleetCount, GroupCount, count_fleet
from .instances import can_admit, can_stop, gets_requests, ids, is_serving, is_starting, trust
from .model import FailureAction, Instance, Rotation, State
from .progress import ProgressTracker, Rules, failure_limits
from .shares import Target
from .strategy import Waypoint

_Key = Callable[[Instance], tuple[t.Any, ...]]  # in which order instances go


@dataclass(frozen=True)
class Start:
    """How many new and how many stable instances to start at a target; None: anywhere."""

    target: Target | None
    create: int
    create_old: int


@dataclass(frozen=True)
class Decision:
    """What to do now, and why. Instances are named by id, oldest first."""

    starts: tuple[Start, ...] = ()  # instances to start, by target
    admit: tuple[str, ...] = ()  # put in rotation
    standby: tuple[str, ...] = ()  # take out of rotation in the same update, and keep ready
    drain: tuple[str, ...] = ()  # take out of rotation, to be stopped later
    park: tuple[str, ...] = ()  # send no client there any more, not even those that are bound to it
    enter: tuple[str, ...] = ()  # have checked again what was parked
    # stop: out of rotation, and their requests are finished or out of time
    retire: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    reached: bool = False  # whether the fleet is at the waypoint
    failed: str = ""  # why the stage has to end here
    failed_id: str = ""  # the id of that message
    # HOLD where a rollback would lead to what fails; None: the settings decide
    then: FailureAction | None = None
    stable_lost: bool = False  # no stable instance serves any more, and new ones are ready
    progress: ProgressTracker = field(default_factory=lambda: ProgressTracker(0.0))

    @property
    def create(self) -> int:
        """How many new instances to start."""
        return sum(start.create for start in self.starts)

    @property
    def create_old(self) -> int:
        """How many stable instances to start: the old ones that stay are repaired."""
        return sum(start.create_old for start in self.starts)

    @property
    def actions(self) -> tuple[int | tuple[str, ...], ...]:
        """What to do, without why."""
        moves = self.admit, self.standby, self.drain, self.park, self.enter, self.retire
        return self.create, self.create_old, *moves

    @property
    def moves(self) -> bool:
        """Whether an instance that is there is to go into or out of rotation, or to stop."""
        return bool(self.admit or self.standby or self.drain or self.retire)

    @property
    def nothing_to_do(self) -> bool:
        """Whether all there is to do is wait."""
        return not any(self.actions)


def evaluate(
    fleet: Sequence[Instance],
    waypoint: Waypoint,
    budget: Budget,
    rules: Rules,
    progress: ProgressTracker,
    now: float,
) -> Decision:
    """Decide what to do now to get from `fleet` to `waypoint` within `budget`.

    `progress` is what was remembered of the stage so far. `now` is in seconds, on the clock of the
    fleet's times.
    """
    allowed = budget.resolve(waypoint.desired)
    if rules.one_per_host:
        fleet = rules.one_per_host.marked(fleet, waypoint, rules, now)
    began = now if progress.old is None else progress.began
    count = count_fleet(fleet, waypoint, rules, began, now)
    kept = min(count.old.arrived, waypoint.old)
    progress = progress.advance(
        count.new.arrived, count.old_total, count.failures, now, kept, count.lasting
    )
    count.kept_out = _kept_out(count, waypoint, allowed)
    if waypoint.parts:
        parts = _parts(fleet, waypoint, allowed, rules, began, now)
        count.pinned = frozenset().union(*(part.count.pinned for part in parts))
    else:
        count.pinned = _pinned(count, waypoint, rules)
        parts = [_Part(None, waypoint, count, allowed, _are_carried([(waypoint, count)]), False)]
    failed, failed_id = _failure(count, waypoint, allowed, rules, progress, now)
    if failed:
        then = FailureAction.HOLD if _only_stable_fails(count, waypoint, progress) else None
        return Decision(
            failed=failed,
            failed_id=failed_id,
            then=then,
            reasons=(failed,),
            stable_lost=then is not None and _is_stable_lost(count, waypoint),
            progress=progress,
        )
    may_switch = all(_may_switch(part) for part in parts)
    moves = [_move(part, rules, progress, now, may_switch) for part in parts]
    starts = _bounded(
        parts, moves, count, allowed, rules, progress, free=limit(waypoint, allowed) - count.total
    )
    actions = wording.Actions(
        sum(start.create for start in starts),
        sum(start.create_old for start in starts),
        *(
            [instance for move in moves for instance in getattr(move, name)]
            for name in ("admit", "standby", "drain", "retire")
        ),
    )
    most, floor = limit(waypoint, allowed), waypoint.desired - allowed.unavailable
    return Decision(
        starts=starts,
        admit=ids(actions.admit),
        standby=ids(actions.standby),
        drain=ids(actions.drain),
        retire=ids(actions.retire),
        reasons=tuple(wording.reasons(count, waypoint, actions, most, floor)),
        reached=not actions.create_old
        and all(
            _is_reached(part.count, part.waypoint, part.allowed)
            and (part.waypoint.switches or not move.drain)
            for part, move in zip(parts, moves, strict=True)
        ),
        stable_lost=_is_stable_lost(count, waypoint),
        progress=progress,
    )


def limit(waypoint: Waypoint, allowed: ResolvedBudget) -> int:
    """Return the most instances at once: by the budget, or both sets of the waypoint if more."""
    return max(waypoint.desired + allowed.surge, waypoint.new + waypoint.old)


# -- what to do at each target, or everywhere ------------------------------------------------------


@dataclass(frozen=True)
class _Part:
    """A part of the fleet, and how much of the budget it has."""

    target: Target | None
    waypoint: Waypoint
    count: FleetCount
    allowed: ResolvedBudget
    carried: bool  # whether what was judged bad is not needed any more
    short: bool  # whether too few serve at all targets with which it shares load balancers


def _parts(
    fleet: Sequence[Instance],
    waypoint: Waypoint,
    allowed: ResolvedBudget,
    rules: Rules,
    began: float,
    now: float,
) -> list[_Part]:
    """Return the part of each target. What is safe for each of them is safe for all together."""
    divided = targets.split(fleet, waypoint)
    counts = [count_fleet(part, point, rules, began, now) for _target, point, part in divided]
    for count, (target, point, _part) in zip(counts, divided, strict=True):
        count.pinned = _pinned(count, point, rules, target)
    points = [(point, count) for (_t, point, _p), count in zip(divided, counts, strict=True)]
    # Load balancers of a target send requests to it alone, and others to all targets.
    isolated = [bool(target and target.balancers) for target, _point, _part in divided]
    shares = targets.apportion(allowed, points, isolated)
    together = [point for point, apart in zip(points, isolated, strict=True) if not apart]
    carried = _are_carried(together)
    needed = sum(point.desired for point, _count in together) - allowed.unavailable
    short = sum(count.serving for _point, count in together) < needed
    parts = [
        _Part(target, point, count, budget, _are_carried([(point, count)]), False)
        if apart
        else _Part(target, point, count, budget, carried, short)
        for (target, _w, _i), (point, count), budget, apart in zip(
            divided, points, shares, isolated, strict=True
        )
    ]
    for part in parts:
        part.count.kept_out = _kept_out(part.count, part.waypoint, part.allowed)
    return parts


def _pinned(
    count: FleetCount, waypoint: Waypoint, rules: Rules, target: Target | None = None
) -> frozenset[str]:
    """Return the available instances that stay, since their zones have no more to spare."""
    floor, hosts = rules.zone_floor, target.hosts if target else None
    if floor is None:
        return frozenset()
    groups = count.new.available, count.old.available
    slack = floor.slack([*groups[0], *groups[1]], waypoint.desired, hosts)
    pinned: set[str] = set()
    for group in groups:  # only one of them is drained at a time
        pinned.update(ids(group))
        pinned.difference_update(ids(floor.free(sorted(group, key=_by_age(waypoint)), slack)))
    return frozenset(pinned)


def _may_switch(part: _Part) -> bool:
    """Whether a part is ready for a switch, which all of them make at once."""
    point, count = part.waypoint, part.count
    ready = count.new.arrived >= _needed_to_switch(point)
    return not point.switches or count.switched or ready


def _move(
    part: _Part, rules: Rules, progress: ProgressTracker, now: float, may_switch: bool
) -> wording.Actions:
    """Decide what to do with one part of the fleet."""
    count, waypoint, allowed = part.count, part.waypoint, part.allowed
    returning = _stable_to_return(count, waypoint, allowed, progress)
    create, create_old = _create(count, waypoint, allowed, rules, progress, returning)
    drain = _drain(part, returning)
    leaving = {instance.id for instance in drain}
    admit, standby = _rotate(count, waypoint, leaving, may_switch)
    retire = [i for i in count.draining if i.state is State.DRAINING and can_stop(i, rules, now)]
    return wording.Actions(create, create_old, admit, standby, drain, retire)


def _bounded(
    parts: Sequence[_Part],
    moves: Sequence[wording.Actions],
    count: FleetCount,
    allowed: ResolvedBudget,
    rules: Rules,
    progress: ProgressTracker,
    *,
    free: int,
) -> tuple[Start, ...]:
    """Return what to start at each part, at most what the whole fleet allows; `free`: its room.

    Repairs come first, everywhere: new instances that start, or never get ready, delay none.
    """
    flight = free if allowed.in_flight is None else allowed.in_flight - count.old.starting
    old = _first_come([move.create_old for move in moves], min(free, flight))
    free -= sum(old)
    if allowed.in_flight is not None:
        free = min(free, flight - sum(old) - len(count.new.pending))
    new = _first_come([move.create for move in moves], _may_fail(free, count.new, rules, progress))
    return tuple(
        Start(part.target, *numbers)
        for part, *numbers in zip(parts, new, old, strict=True)
        if any(numbers)
    )


def _first_come(wanted: Iterable[int], left: int) -> list[int]:
    allotted = []
    for number in wanted:
        allotted.append(max(0, min(number, left)))
        left -= allotted[-1]
    return allotted


# -- how the stage is going ------------------------------------------------------------------------


def _is_reached(count: FleetCount, waypoint: Waypoint, allowed: ResolvedBudget) -> bool:
    # Where a fleet is kept as it is, what returned for new instances that broke stays, too.
    needed = waypoint.desired - max(0, allowed.unavailable)
    old = max(waypoint.old, needed - waypoint.new)
    arrived = count.new.arrived if waypoint.new_idle else len(count.new.available)
    return (
        arrived == len(count.new) == waypoint.new
        and len(count.old) <= old
        and not _stable_missing(count, waypoint)
        and (count.switched or not count.old.hopeless)  # those that go now are replaced
        and not count.replaced
        and (count.switched or not waypoint.switches)
        and not count.draining
        and all(instance.rotation is Rotation.ABSENT for instance in count.ended)
    )


def _stable_missing(count: FleetCount, waypoint: Waypoint) -> int:
    """How many of the old instances that are to serve do not exist, or are not in service yet."""
    if not waypoint.repairs or not waypoint.old or count.switched:
        return 0
    kept_out = sum(i.id in count.kept_out and is_starting(i) for i in count.old.pending)
    starting = count.old.starting - kept_out
    return max(0, waypoint.old - len(count.old)) + starting


def _is_stable_lost(count: FleetCount, waypoint: Waypoint) -> bool:
    """Whether new instances are ready while no stable one that is to serve does, or will in a
    moment.
    """
    if not waypoint.repairs or not waypoint.old or waypoint.switches or count.old_serves:
        return False
    return count.new.arrived >= (waypoint.new if waypoint.new_idle else 1) > 0


def _failure(
    count: FleetCount,
    waypoint: Waypoint,
    allowed: ResolvedBudget,
    rules: Rules,
    progress: ProgressTracker,
    now: float,
) -> tuple[str, str]:
    """Why the stage must end before its waypoint, and the id of that message; empty if it need
    not.
    """
    # Once switched, failures of the standby set do not count against the new revision: no more of
    # it are started.
    limits = [
        *failure_limits(rules, progress, False),
        *(() if count.switched else failure_limits(rules, progress, True)),
    ]
    for bound in limits:
        if bound.is_reached:
            return wording.too_many_failures(bound, progress), "PR-604"
    late = now - progress.since > rules.progress_deadline
    if late and not _is_reached(count, waypoint, allowed):
        waiting = wording.waiting_for(count, waypoint, _stable_missing(count, waypoint))
        return wording.no_progress(rules, waiting), "PR-605"
    return "", ""


def _only_stable_fails(count: FleetCount, waypoint: Waypoint, progress: ProgressTracker) -> bool:
    """Whether a stage that fails does so because of stable instances alone, so that a rollback
    would fail, too.
    """
    if progress.failures:
        return all(failure.stable for failure in progress.failures)
    return (
        bool(_stable_missing(count, waypoint))
        and count.new.arrived == len(count.new) == waypoint.new
    )


# -- what to create --------------------------------------------------------------------------------


def _stable_to_return(
    count: FleetCount, waypoint: Waypoint, allowed: ResolvedBudget, progress: ProgressTracker
) -> int:
    """How many stable instances must return, since new ones that were ready broke and too few
    are in service.
    """
    if count.switched:
        return 0  # what is kept without requests replaces nothing
    if not waypoint.repairs or not any(
        failure.late and not failure.stable for failure in progress.failures
    ):
        return 0
    # What load balancers still send requests to is in service, whatever our checks found.
    return max(0, waypoint.desired - allowed.unavailable - max(count.available, count.serving))


def _create(
    count: FleetCount,
    waypoint: Waypoint,
    allowed: ResolvedBudget,
    rules: Rules,
    progress: ProgressTracker,
    returning: int,
) -> tuple[int, int]:
    """How many new and how many stable instances to start. Those that are not ready count, so
    none is started twice.
    """
    starting = count.old.starting
    free = limit(waypoint, allowed) - count.total
    missing = max(waypoint.old - len(count.old), returning - starting) if waypoint.repairs else 0
    # Repair comes before replacement: what is in service is kept up first.
    # Those that fail together count as one failure, so that all of them may start at once.
    old = max(0, min(free, missing))
    if old and any(bound.is_reached for bound in failure_limits(rules, progress, True)):
        old = 0
    wanted = min(free - old, waypoint.new - len(count.new))
    return _may_fail(wanted, count.new, rules, progress), old


def _may_fail(wanted: int, new: GroupCount, rules: Rules, progress: ProgressTracker) -> int:
    """How many of the wanted new instances to start: after a failure no more at once than may
    still fail.
    """
    if wanted <= 0:
        return 0
    left = [
        bound.most - bound.count - len(new.pending) + len(new.overdue)
        for bound in failure_limits(rules, progress, False)
        if bound.count
    ]
    return max(0, min([wanted, *left]))


# -- what to put in rotation and take out ----------------------------------------------------------


def _rotate(
    count: FleetCount, waypoint: Waypoint, leaving: Container[str], may_switch: bool
) -> tuple[list[Instance], list[Instance]]:
    """Which instances to put in rotation, and which to take out in the same update without
    stopping them.
    """
    old = [] if count.switched else _old_to_admit(count)
    standby: list[Instance] = []
    if waypoint.new_idle:
        admit = old
    elif not waypoint.switches or count.switched:
        admit = [*(i for i in count.new.pending if can_admit(i)), *old]
    # counted at the moment of the switch, whoever asked for it
    elif may_switch:
        admit = count.new.prepared
        others = (*count.old.available, *count.old.pending, *count.replaced)
        standby = [i for i in others if i.in_rotation and i.generation != waypoint.generation]
    else:
        admit = old
    return [i for i in admit if i.id not in leaving], [i for i in standby if i.id not in leaving]


def _old_to_admit(count: FleetCount) -> list[Instance]:
    """Which old instances to put in rotation."""
    return [i for i in count.old.pending if can_admit(i) and i.id not in count.kept_out]


def _kept_out(count: FleetCount, waypoint: Waypoint, allowed: ResolvedBudget) -> frozenset[str]:
    """Which old instances get no requests though they are ready.

    Those of a superseded rollout may never have passed its gates: out of rotation, they get
    requests only as far as the others are fewer than the budget allows, or none at all.
    """
    if not waypoint.stable and waypoint.headroom is None:
        return frozenset()
    known = (waypoint.stable, waypoint.baseline)
    ready = [i for i in count.old.pending if can_admit(i)]
    idle = [i for i in ready if i.generation not in known and not i.in_rotation]
    # what load balancers send requests to is in service, though its host may not answer
    coming = sum(not is_serving(i) for i in ready) - len(idle)
    missing = _carrying(waypoint, allowed) - count.serving - coming
    return frozenset(ids(idle[max(0, missing) :]))


def _needed_to_switch(waypoint: Waypoint) -> int:
    # A switch that was done, and undone by a rollback or a load balancer, needs all again.
    return max(1, min(waypoint.switch_at or waypoint.new, waypoint.new))


def _drain(part: _Part, returning: int) -> list[Instance]:
    """Which instances to take out: those without use, then what is too many, old before new."""
    count, waypoint, allowed = part.count, part.waypoint, part.allowed
    if part.carried and (bad := _judged_bad(count, waypoint)):
        return [*count.new.hopeless, *bad]
    floor = waypoint.desired - allowed.unavailable
    serving = count.serving, count.trusted_serving, count.ready_serving
    spare = _Spare(serving, floor, part.short, _by_usefulness(waypoint))
    replaced = _replaced_to_drain(count, floor, spare)
    hopeless = [*replaced, *count.new.hopeless, *count.old.hopeless]
    # Stable instances that return are not drained before they arrive.
    staying = count.old.starting if returning else 0
    excess_old = len(count.old) - waypoint.old - len(count.old.hopeless) - staying
    excess_new = len(count.new) - waypoint.new - len(count.new.hopeless)
    group, excess = (count.old, excess_old) if excess_old > 0 else (count.new, excess_new)
    if excess <= 0:
        return [*hopeless, *_superseded_to_drain(count, waypoint, allowed)]
    gone = {instance.id for instance in hopeless}
    stays = staying > 0 and group is count.old
    pending = [i for i in group.pending if i.id not in gone and not (stays and is_starting(i))]
    may_go = [i for i in group.available if i.id not in count.pinned]
    group = replace(group, available=may_go) if count.pinned else group
    leaving = _excess(group, pending, excess, spare)
    # Available instances serve as well, so what may go of them leaves enough for both.
    number = min(excess - len(leaving), count.available - floor)
    return [*hopeless, *leaving, *_first(group.available, number, _by_age(waypoint))]


def _superseded_to_drain(
    count: FleetCount, waypoint: Waypoint, allowed: ResolvedBudget
) -> list[Instance]:
    """Which instances of a superseded revision go, since stable ones carry the requests again: they
    may never have passed its gates, as in `_kept_out`.
    """
    if not (waypoint.stable and waypoint.new_idle):
        return []
    known = (waypoint.stable, waypoint.baseline)
    superseded = [i for i in count.old.available if i.generation not in known]
    if len(count.old.available) - len(superseded) < _carrying(waypoint, allowed):
        return []
    may_go = [i for i in superseded if i.id not in count.pinned]
    floor = waypoint.desired - allowed.unavailable
    return _first(may_go, count.available - floor, _by_age(waypoint))


def _carrying(waypoint: Waypoint, allowed: ResolvedBudget) -> int:
    """How many stable instances are enough: as many as carried the requests until the rollout,
    however many more are asked for, but at least one.
    """
    carried = min(waypoint.desired, waypoint.before or waypoint.desired)
    return max(1, carried - allowed.unavailable)


class _Spare:
    """How many of the instances that serve may go: each leaves enough of those that are trusted
    as much.

    Our check may fail an instance that a load balancer still sends requests to. So a blip of health
    checks, or a balancer that was restarted, can never empty a fleet, and a ready instance is not
    taken out for one that only load balancers find well.
    """

    def __init__(self, serving: Sequence[int], floor: int, short: bool, key: _Key) -> None:
        """Begin with how many serve of each trust or a higher one, as `trust` returns it.

        `short`: whether too few serve elsewhere; `key`: what goes first.
        """
        self._left = [number - floor for number in serving]
        self._short = short
        self.key = key

    @property
    def is_short(self) -> bool:
        """Whether too few serve already."""
        return self._short or self._left[0] < 0

    def take(self, instances: Iterable[Instance], most: int) -> list[Instance]:
        """Return which of these to take out, the least useful first."""
        taken: list[Instance] = []
        for instance in sorted(instances, key=self.key) if most > 0 else ():
            level = trust(instance) + 1
            if len(taken) < most and min(self._left[:level]) > 0 and not self.is_short:
                self._left[:level] = [number - 1 for number in self._left[:level]]
                taken.append(instance)
        return taken


def _replaced_to_drain(count: FleetCount, floor: int, spare: _Spare) -> list[Instance]:
    """Return the replaced instances that may go.

    One that serves at the moment goes once enough others do, and one that is redundant once enough
    others are available.
    """
    serving = [i for i in count.replaced if is_serving(i)]
    others = [
        i for i in count.replaced if not is_serving(i) and not (spare.is_short and gets_requests(i))
    ]
    may_go = max(0, count.available + len(count.redundant) - floor)
    stay = ids(sorted(count.redundant, key=spare.key)[may_go:])
    return others + spare.take([i for i in serving if i.id not in stay], len(serving))


def _excess(
    group: GroupCount, pending: Iterable[Instance], excess: int, spare: _Spare
) -> list[Instance]:
    """Choose at most `excess` instances of a group that are not available, those without use
    first.
    """
    # Out of rotation everywhere, so they may go however few serve.
    # Those that are prepared go last, since a switch needs them.
    prepared = [i for i in group.prepared if not i.in_rotation]
    useless: list[Instance] = []
    useful = [i for i in group.prepared if i.in_rotation]
    for instance in pending:
        returns = instance.state is State.READY or gets_requests(instance)
        # too few serve everywhere, and it may in a moment
        needed = is_serving(instance) or (returns and spare.is_short)
        (useful if needed else useless).append(instance)
    free = _first(useless, excess, spare.key)
    free += _first(prepared, excess - len(free), spare.key)
    return free + spare.take(useful, excess - len(free))


def _are_carried(parts: Sequence[tuple[Waypoint, FleetCount]]) -> bool:
    """Whether it is a rollback, and the stable instances in service can carry all requests."""
    serving, desired = Fraction(0), 0
    for waypoint, count in parts:
        if not waypoint.headroom or waypoint.switches:
            return False
        stable = (
            *count.new.available,
            *count.new.pending,
            *(i for i in count.old.members if i.generation == waypoint.baseline),
            *(i for i in count.replaced if i.generation == waypoint.generation),
        )
        in_service = sum(
            i.state is State.READY and i.lb_healthy and i.rotation is Rotation.IN for i in stable
        )
        serving += in_service * waypoint.headroom
        desired += waypoint.desired
    return serving >= desired


def _judged_bad(count: FleetCount, waypoint: Waypoint) -> list[Instance]:
    """Return the instances that a rollback replaces, also those that were restarted."""
    stable = (waypoint.generation, waypoint.baseline)
    return [i for i in (*count.old.members, *count.replaced) if i.generation not in stable]


def _first(instances: list[Instance], count: int, key: _Key) -> list[Instance]:
    return heapq.nsmallest(count, instances, key=key) if count > 0 and instances else []


_LEAST_USEFUL_FIRST = (State.UNREACHABLE, State.STARTING, State.NOT_READY, State.READY)


def _by_usefulness(waypoint: Waypoint) -> _Key:
    """Sort key: the least useful first, then as everywhere."""
    by_age = _by_age(waypoint)

    def key(instance: Instance) -> tuple[t.Any, ...]:
        least_useful = _LEAST_USEFUL_FIRST.index(instance.state)
        return (least_useful, not instance.was_unready, *by_age(instance))

    return key


def _by_age(waypoint: Waypoint) -> _Key:
    """Sort key: an unfinished revision that was superseded first, then the stable one, last its
    baseline; of each in the usual order.
    """

    def key(instance: Instance) -> tuple[t.Any, ...]:
        generation = instance.generation
        return (
            generation == waypoint.baseline,
            generation == waypoint.stable,
            *instance.order,
        )

    return key
