# SPDX-License-Identifier: GPL-3.0-or-later
"""Sort the instances of a fleet into groups and count them, for one decision. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .instances import (
    gets_requests,
    has_lasted,
    is_available,
    is_lost,
    is_orphaned,
    is_overdue,
    is_prepared,
    is_starting,
    trust,
)
from .model import Instance, Rotation, State
from .progress import Failure, Rules
from .strategy import Waypoint


@dataclass
class GroupCount:
    """The new or the old instances that neither ended nor drain; each is available, prepared or
    pending.
    """

    available: list[Instance] = field(default_factory=list)
    # ready; the waypoint keeps them out of rotation
    prepared: list[Instance] = field(default_factory=list)
    pending: list[Instance] = field(default_factory=list)  # all others
    # of the pending: not ready within their deadline
    overdue: list[Instance] = field(default_factory=list)
    # of the pending: their host is, and they get no requests
    unreachable: list[Instance] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.available) + len(self.prepared) + len(self.pending)

    @property
    def members(self) -> list[Instance]:
        """All of them."""
        return [*self.pending, *self.prepared, *self.available]

    @property
    def arrived(self) -> int:
        """How many are where the waypoint wants them: available, or prepared out of rotation."""
        return len(self.available) + len(self.prepared)

    @property
    def starting(self) -> int:
        """How many were started and are not in service yet."""
        return sum(map(is_starting, self.pending))

    @property
    def hopeless(self) -> list[Instance]:
        """The pending instances that are replaced rather than waited for."""
        return [*self.overdue, *self.unreachable]


@dataclass
class FleetCount:
    """A fleet, each instance in exactly one list: of `new` or `old`, or draining, ended,
    orphaned or crashed.
    """

    new: GroupCount = field(default_factory=GroupCount)
    old: GroupCount = field(default_factory=GroupCount)
    draining: list[Instance] = field(default_factory=list)
    ended: list[Instance] = field(default_factory=list)
    orphaned: list[Instance] = field(default_factory=list)
    # to be replaced, and to go once enough others serve: new or old ones that ended and were
    # restarted, new ones that serve on hosts that have not answered for long, and redundant ones
    replaced: list[Instance] = field(default_factory=list)
    redundant: list[Instance] = field(default_factory=list)  # of these, available ones
    total: int = 0  # what counts against surge
    old_total: int = 0
    serving: int = 0  # get requests from load balancers, whatever our own checks found
    trusted_serving: int = 0  # of these, pass our own checks, or did while their hosts answered
    ready_serving: int = 0  # of these, pass our own checks
    lasting: int = 0  # new instances that have been ready for long
    failures: list[Failure] = field(default_factory=list)  # of instances that this stage started
    # ids of the available instances that stay, since their zones have no more to spare
    pinned: frozenset[str] = frozenset()
    # ids of the old instances that get no requests though they are ready
    kept_out: frozenset[str] = frozenset()
    switched: bool = False  # the waypoint is a switch, and no old instance is in rotation any more

    @property
    def available(self) -> int:
        """How many new and old instances are available."""
        return len(self.new.available) + len(self.old.available)

    @property
    def old_serves(self) -> bool:
        """Whether any old instance serves, or will as soon as it is back in rotation."""
        return bool(self.old.available) or any(
            i.state is State.READY or gets_requests(i) for i in self.old.pending
        )


def count_fleet(
    fleet: Sequence[Instance], waypoint: Waypoint, rules: Rules, began: float, now: float
) -> FleetCount:
    """Sort and count the instances of a fleet on its way to a waypoint.

    `began` is when the stage did: a stable instance that was started later and failed is a failure
    of the stage.
    """
    counting = _Counting(waypoint, rules, began, now, _is_switched(fleet, waypoint))
    for instance in fleet:
        counting.add(instance)
    return counting.count


def _is_switched(fleet: Sequence[Instance], waypoint: Waypoint) -> bool:
    """Whether the waypoint is a switch that is done."""
    if not waypoint.switches:
        return False
    serving = {
        i.generation == waypoint.generation for i in fleet if i.in_rotation and i.state.counted
    }
    # A load balancer that was restarted has neither group in rotation; that alone is no switch.
    return False not in serving and (True in serving or waypoint.switch_at == 0)


class _Counting:
    """One pass over a fleet. This is most of the cost of a decision, so each instance is looked
    at once.
    """

    def __init__(
        self, waypoint: Waypoint, rules: Rules, began: float, now: float, switched: bool
    ) -> None:
        self.waypoint, self.rules, self.began, self.now = waypoint, rules, began, now
        self.count = FleetCount(switched=switched)
        self._keeps_new_out = waypoint.new_idle or (waypoint.switches and not switched)
        self._keeps_old = waypoint.repairs and waypoint.old > 0

    def add(self, instance: Instance) -> None:
        """Put an instance into its list."""
        state, count = instance.state, self.count
        is_new = instance.generation == self.waypoint.generation
        if state is State.FAILED or state is State.STOPPED:
            count.ended.append(instance)
            if state is State.FAILED and instance.draining_since is None:
                self._failed(instance, instance.detail or "it ended", is_new)
        elif is_orphaned(instance):
            count.orphaned.append(instance)
        else:
            count.total += 1
            count.old_total += not is_new
            if state is State.DRAINING or (
                state is State.UNREACHABLE and instance.draining_since is not None
            ):
                count.draining.append(instance)
            else:
                self._add_staying(instance, is_new)

    def _add_staying(self, instance: Instance, is_new: bool) -> None:
        """Put an instance that neither ended nor drains into its list."""
        count, rotation, state = self.count, instance.rotation, instance.state
        inside = rotation is Rotation.IN or rotation is Rotation.PARTIAL
        if inside and instance.lb_healthy and state is not State.STARTING:  # as `is_serving`
            count.serving += 1
            level = trust(instance)
            count.trusted_serving += level > 0
            count.ready_serving += level > 1
        group = count.new if is_new else count.old
        if instance.crashed:
            count.replaced.append(instance)
            self._failed(instance, instance.detail or "it ended, and was restarted", is_new)
        elif instance.redundant:
            count.replaced.append(instance)
            if is_available(instance, self.rules, self.now):
                count.redundant.append(instance)
        elif is_new and gets_requests(instance) and is_lost(instance, self.rules, self.now):
            count.replaced.append(instance)
        elif is_available(instance, self.rules, self.now):
            group.available.append(instance)
            count.lasting += is_new and has_lasted(instance, self.rules, self.now)
        elif self._is_kept_out(is_new) and is_prepared(instance, self.rules, self.now):
            group.prepared.append(instance)
            count.lasting += is_new and has_lasted(instance, self.rules, self.now)
        else:
            self._add_pending(instance, group, is_new)

    def _is_kept_out(self, is_new: bool) -> bool:
        return self._keeps_new_out if is_new else self.count.switched

    def _add_pending(self, instance: Instance, group: GroupCount, is_new: bool) -> None:
        group.pending.append(instance)
        unreachable = instance.state is State.UNREACHABLE and (is_new or self._keeps_old)
        if unreachable and not gets_requests(instance):
            group.unreachable.append(instance)
        if (is_new or self._is_repair(instance)) and is_overdue(instance, self.rules, self.now):
            group.overdue.append(instance)
            why = instance.detail or "no check has passed"
            self._failed(
                instance, f"not ready within {self.rules.ready_deadline:g} s ({why})", is_new
            )

    def _is_repair(self, instance: Instance) -> bool:
        """Whether an old instance was started by this stage, in place of a stable one."""
        waypoint = self.waypoint
        return (
            waypoint.repairs
            and instance.generation == waypoint.stable
            and instance.created >= self.began
        )

    def _failed(self, instance: Instance, what: str, is_new: bool) -> None:
        """Note the failure of an instance, if this stage has started it."""
        if is_new or self._is_repair(instance):
            # The host comes first: what happened there may end in the instance's own words.
            why = f"on {instance.host}: {what}" if instance.host else f"({what})"
            text = why if is_new else f"of the stable revision {why}"
            self.count.failures.append(
                Failure(instance.id, text, instance.was_ready, not is_new, instance.created)
            )
