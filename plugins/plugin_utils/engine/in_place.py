# SPDX-License-Identifier: GPL-3.0-or-later
"""One iteration where the user's own tasks deploy instances in place, and none can be started
beside them. Pure.

A batch of hosts is taken out of rotation (`drain_batch`), deployed, and put back (`admit_batch`).
Whatever happens meanwhile, what is available is never taken below desired - unavailable, and
nothing is put in rotation that is not ready. An instance whose deployment failed stays out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from .budget import Percent, ResolvedBudget
from .evaluate import Decision
from .instances import (
    can_admit,
    can_deploy,
    can_park,
    gets_requests,
    ids,
    is_available,
    is_serving,
)
from .model import Instance, Rotation, State
from .progress import ProgressTracker, Rules
from .strategy import Groups, Plan, Step, Waypoint
from .wording import SHOWN, names, no_progress, states

Batch = tuple[str, ...]  # hosts, in the order in which they were chosen


@dataclass(frozen=True)
class Scope:
    """What may be deployed."""

    hosts: frozenset[str]  # the hosts of this run
    # instances whose deployment failed: they are not tried again
    failed: frozenset[str] = frozenset()
    newest_first: bool = False  # on a rollback


def steps_as_replicas(plan: Plan) -> Plan:
    """Return the plan with steps as numbers of instances: in place, a weight is that share of
    the instances.
    """
    if isinstance(plan.steps, Groups):
        return plan
    return replace(plan, steps=tuple(_step_as_replicas(step) for step in plan.steps))


def _step_as_replicas(step: Step) -> Step:
    share = step.weight if step.weight is not None else step.instances
    replicas = step.replicas if share is None else Percent(Decimal(share))
    return replace(step, weight=None, instances=None, replicas=replicas)


def is_deployed(instance: Instance, waypoint: Waypoint) -> bool:
    """Whether an instance was deployed, and put back."""
    return instance.generation == waypoint.generation and instance.draining_since is None


def deployed(fleet: Sequence[Instance], waypoint: Waypoint) -> int:
    """How many instances were deployed and put back."""
    return sum(is_deployed(instance, waypoint) for instance in fleet)


def hosts_left(
    fleet: Sequence[Instance], waypoint: Waypoint, scope: Scope
) -> list[tuple[Instance, ...]]:
    """Hosts not yet deployed, in order: unhealthy, unknown revision, then oldest."""
    hosts: dict[str, list[Instance]] = {}
    for instance in fleet:
        if instance.host in scope.hosts:
            hosts.setdefault(instance.host, []).append(instance)
    left = [
        tuple(mine) for mine in hosts.values() if any(not is_deployed(i, waypoint) for i in mine)
    ]
    left = [mine for mine in left if not any(i.id in scope.failed for i in mine)]
    return sorted(left, key=lambda mine: min(_rank(instance, scope) for instance in mine))


def _rank(instance: Instance, scope: Scope) -> tuple[int, float]:
    age = -instance.created if scope.newest_first else 0.0
    serves = instance.rotation is Rotation.IN and instance.lb_healthy
    if instance.state is not State.READY or not serves:
        return 0, age
    return (1 if instance.generation == 0 else 2), age


def batches(
    fleet: Sequence[Instance], path: Sequence[Waypoint], allowed: ResolvedBudget, scope: Scope
) -> list[Batch]:
    """Return the batches to the end of the path, if nothing goes wrong.

    None is bigger than what may be unavailable, and one ends where a waypoint is reached.
    """
    planned: list[Batch] = []
    finished, size = deployed(fleet, path[-1]), 0
    hosts: list[str] = []
    for mine in hosts_left(fleet, path[-1], scope):
        target = next((point.new for point in path if point.new > finished), path[-1].new)
        if hosts and size + len(mine) > min(allowed.unavailable, target - finished):
            planned.append(tuple(hosts))
            finished, hosts, size = finished + size, [], 0
        hosts.append(mine[0].host)
        size += len(mine)
    return [*planned, tuple(hosts)] if hosts else planned


def drain_batch(
    fleet: Sequence[Instance],
    waypoint: Waypoint,
    rules: Rules,
    progress: ProgressTracker,
    now: float,
    *,
    allowed: ResolvedBudget,
    scope: Scope,
) -> Decision:
    """Take the next batch out of rotation.

    It is reached when no client is routed there any more and all its requests are finished, or no
    host is left. What an earlier run has taken out is part of it, with as many others as the budget
    allows.
    """
    kept, out = _upkeep(fleet, waypoint, rules, now), batch_out(fleet, scope)
    taken = {instance.host for instance in out}
    left = [mine for mine in hosts_left(fleet, waypoint, scope) if mine[0].host not in taken]
    finished = deployed(fleet, waypoint)
    most = min(allowed.unavailable, waypoint.new - finished) - len(out)
    capacity = _Capacity.of(fleet, waypoint, allowed, rules, now)
    chosen = _next_batch(left, capacity, most, first=not out)
    if out and not chosen:
        if all(can_deploy(instance, rules, now) for instance in out):
            return replace(kept, reached=True, progress=progress)
        return _waiting(kept, rules, progress, now, f"{names(out)} to leave rotation")
    if not left or finished >= waypoint.new:
        return replace(kept, reached=True, progress=progress)
    if not chosen:
        return _stuck(
            kept,
            fleet,
            left[0],
            waypoint,
            rules=rules,
            progress=progress,
            now=now,
            allowed=allowed,
            scope=scope,
        )
    reason = f"drain {names(chosen)}: {capacity.available} available, {capacity.floor} needed"
    return replace(kept, drain=ids(chosen), reasons=(reason,), progress=progress)


def unreachable(
    fleet: Sequence[Instance], waypoint: Waypoint, scope: Scope, hosts: Collection[str]
) -> list[Instance]:
    """Instances not yet deployed on hosts that are unreachable."""
    left = (i for mine in hosts_left(fleet, waypoint, scope) for i in mine)
    return [i for i in left if i.host in hosts and not is_deployed(i, waypoint)]


def refusal(
    fleet: Sequence[Instance],
    waypoint: Waypoint,
    scope: Scope,
    hosts: Collection[str],
    allowed: ResolvedBudget,
    limit: int | None,
) -> str:
    """Why not to begin while these hosts are unreachable; empty where that is no reason."""
    lost = unreachable(fleet, waypoint, scope, hosts)
    useless = [i for i in lost if i.state is not State.READY or not i.in_rotation]
    if not lost:
        return ""
    if limit is not None and len(lost) >= limit:
        return f"rollout_failure_limit is {limit}"
    if all(mine[0].host in hosts for mine in hosts_left(fleet, waypoint, scope)):
        return "no other host is to be deployed"
    if len(useless) >= allowed.unavailable:
        return (
            f"{names(useless)} serve no requests, and at most {allowed.unavailable} may be"
            " unavailable"
        )
    return ""


def admit_batch(
    fleet: Sequence[Instance],
    waypoint: Waypoint,
    rules: Rules,
    progress: ProgressTracker,
    now: float,
    *,
    allowed: ResolvedBudget,
    names: Collection[str],
) -> Decision:
    """Put the named instances in rotation as they become ready.

    It is reached when each is available, or was not in time. What was not is taken out, except
    where it is of use and too few others serve: it may be a load balancer that is ill.
    """
    limit = rules.ready_deadline or rules.progress_deadline
    missing = [
        i
        for i in fleet
        if i.id in names and i.draining_since is None and not is_available(i, rules, now)
    ]
    late = now - progress.since > limit
    capacity = _Capacity.of(fleet, waypoint, allowed, rules, now)
    drain = [instance for instance in missing if late and capacity.lose([instance])]
    gone = {instance.id for instance in drain}
    kept = _upkeep(fleet, waypoint, rules, now, names)
    admit = tuple(name for name in kept.admit if name not in gone)
    reached = not drain and (late or not missing)
    return replace(kept, admit=admit, drain=ids(drain), reached=reached, progress=progress)


def hold_batch(
    fleet: Sequence[Instance],
    waypoint: Waypoint,
    rules: Rules,
    progress: ProgressTracker,
    now: float,
) -> Decision:
    """Drain nothing while gates are asked; reached as long as the waypoint's new instances are
    available.
    """
    kept = _upkeep(fleet, waypoint, rules, now)
    new = sum(is_deployed(i, waypoint) and is_available(i, rules, now) for i in fleet)
    if new >= waypoint.new:
        return replace(kept, reached=True, progress=progress)
    return _waiting(kept, rules, progress, now, f"{new} of {waypoint.new} new instances available")


def _upkeep(
    fleet: Sequence[Instance],
    waypoint: Waypoint,
    rules: Rules,
    now: float,
    names: Collection[str] = (),
) -> Decision:
    """Return what is done in every iteration: what is ready gets in, and what drains is left by
    clients that are bound to it.

    Of what load balancers do not check, only the named instances and those that were deployed are
    checked again, once they are ready: an operator may have taken others out.
    """
    parked = [i for i in fleet if i.parked and i.draining_since is None]
    back = [i for i in parked if i.id in names or i.generation == waypoint.generation]
    return Decision(
        admit=ids(filter(can_admit, fleet)),
        park=ids(i for i in fleet if can_park(i, rules, now)),
        enter=ids(i for i in back if i.state is State.READY),
    )


def batch_out(fleet: Sequence[Instance], scope: Scope) -> list[Instance]:
    """Return the batch that is out of rotation to be deployed, by this run or an earlier one."""
    return [
        i
        for i in fleet
        if i.state is State.DRAINING and i.host in scope.hosts and i.id not in scope.failed
    ]


@dataclass
class _Capacity:
    """How many instances are available, how many serve, and how many of either there have to be."""

    rules: Rules
    now: float
    floor: int
    available: int = 0
    serving: int = 0

    @classmethod
    def of(
        cls,
        fleet: Iterable[Instance],
        waypoint: Waypoint,
        allowed: ResolvedBudget,
        rules: Rules,
        now: float,
    ) -> _Capacity:
        """Return the capacity of a fleet."""
        capacity = cls(rules, now, waypoint.desired - allowed.unavailable)
        capacity.available, capacity.serving = capacity.given(fleet)
        return capacity

    def given(self, instances: Iterable[Instance]) -> tuple[int, int]:
        """How many of these instances are available, and how many get requests from load
        balancers.
        """
        instances = list(instances)
        available = sum(is_available(i, self.rules, self.now) for i in instances)
        return available, sum(is_serving(i) and i.state is not State.DRAINING for i in instances)

    def lose(self, instances: Sequence[Instance]) -> bool:
        """Take the instances of a host out of the capacity, unless too little would be left."""
        available, serving = self.given(instances)
        # A ready instance may be in rotation in a moment, and one that a load balancer has lost may
        # serve at another, so with too few available they are not useless.
        useful = any(i.state is State.READY or gets_requests(i) for i in instances)
        if useful and (
            self.available - available < self.floor or self.serving - serving < self.floor
        ):
            return False
        self.available, self.serving = self.available - available, self.serving - serving
        return True


def _next_batch(
    left: Sequence[tuple[Instance, ...]], capacity: _Capacity, most: int, *, first: bool
) -> list[Instance]:
    """Return the next hosts, in order: what the budget allows now, and at most `most` instances.

    The first host of a batch may have more.
    """
    capacity = replace(capacity)
    chosen: list[Instance] = []
    for mine in left:
        if len(chosen) + len(mine) > most and not (first and not chosen and most > 0):
            break
        if not capacity.lose(mine):
            break
        chosen.extend(mine)
    return chosen


def _stuck(
    kept: Decision,
    fleet: Sequence[Instance],
    first: Sequence[Instance],
    waypoint: Waypoint,
    *,
    rules: Rules,
    progress: ProgressTracker,
    now: float,
    allowed: ResolvedBudget,
    scope: Scope,
) -> Decision:
    """Wait, since no host can be taken out; fail if that cannot change, or has not for too long."""
    failed = [i for i in fleet if i.id in scope.failed and i.draining_since is not None]
    if len(failed) + len(first) > allowed.unavailable:
        text = (
            f"{names(failed)} failed and stay out of rotation; of {waypoint.desired} instances at"
            f" most {allowed.unavailable} may be unavailable, so no other can be deployed"
        )
        return replace(kept, failed=text, failed_id="PR-614", progress=progress)
    missing = [i for i in fleet if not is_available(i, rules, now)]
    why = (
        f"{first[0].host} cannot be taken out: {len(missing)} of {waypoint.desired} instances"
        f" unavailable ({states(missing[:SHOWN])})"
    )
    return _waiting(kept, rules, progress, now, why)


def _waiting(
    kept: Decision, rules: Rules, progress: ProgressTracker, now: float, waiting: str
) -> Decision:
    """Wait, or fail once the progress deadline is over."""
    if now - progress.since <= rules.progress_deadline:
        return replace(kept, progress=progress)
    text = no_progress(rules, waiting)
    return replace(kept, failed=text, failed_id="PR-605", progress=progress)
