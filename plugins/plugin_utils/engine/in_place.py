# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One turn where instances are deployed where they are, by somebody else's tasks, and nothing can be started beside them. Pure.

A wave of hosts is taken out (`vacate`), deployed, and put back (`settle`). Whatever happens meanwhile, what is available
is never taken below desired - unavailable, and nothing is put in rotation that is not ready. What failed stays out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.budget import Percent, ResolvedBudget
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.evaluate import Decision
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.instances import can_admit, can_stop, is_available
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Instance, Rotation, State
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.progress import ProgressTracker, Rules
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import Groups, Plan, Step, Waypoint

Batch = tuple[str, ...]  # hosts, in the order in which they were chosen


@dataclass(frozen=True)
class Scope:
    """What may be worked on."""

    hosts: frozenset[str]  # the hosts of this run
    failed: frozenset[str] = frozenset()  # instances whose deployment failed: they are not tried again
    newest_first: bool = False  # on a way back


def steps_as_replicas(plan: Plan) -> Plan:
    """The plan with its steps as numbers of instances: where none can be added, a share of the requests is a share of them."""
    if isinstance(plan.steps, Groups):
        return plan
    return replace(plan, steps=tuple(_step_as_replicas(step) for step in plan.steps))


def _step_as_replicas(step: Step) -> Step:
    share = step.weight if step.weight is not None else step.instances
    replicas = step.replicas if share is None else Percent(Decimal(share))
    return replace(step, weight=None, instances=None, replicas=replicas)


def is_deployed(instance: Instance, waypoint: Waypoint) -> bool:
    """Whether it was deployed, and put back."""
    return instance.generation == waypoint.generation and instance.draining_since is None


def deployed(fleet: Sequence[Instance], waypoint: Waypoint) -> int:
    """How many were deployed and put back."""
    return sum(is_deployed(instance, waypoint) for instance in fleet)


def hosts_left(fleet: Sequence[Instance], waypoint: Waypoint, scope: Scope) -> list[tuple[Instance, ...]]:
    """What is to be deployed still, host by host: first what is of no use anyway, then what nobody knows, then the old ones."""
    hosts: dict[str, list[Instance]] = {}
    for instance in fleet:
        if instance.host in scope.hosts:
            hosts.setdefault(instance.host, []).append(instance)
    left = [tuple(mine) for mine in hosts.values() if any(not is_deployed(i, waypoint) for i in mine)]
    left = [mine for mine in left if not any(i.id in scope.failed for i in mine)]
    return sorted(left, key=lambda mine: min(_rank(instance, scope) for instance in mine))


def _rank(instance: Instance, scope: Scope) -> tuple[int, float]:
    age = -instance.created if scope.newest_first else 0.0
    if instance.state is not State.READY or instance.rotation is not Rotation.IN:
        return 0, age
    return (1 if instance.generation == 0 else 2), age


def batches(fleet: Sequence[Instance], path: Sequence[Waypoint], allowed: ResolvedBudget, scope: Scope) -> list[Batch]:
    """The waves to the end of the path, if nothing goes wrong: none bigger than what may be unavailable, and one ends where
    a waypoint is reached."""
    found: list[Batch] = []
    finished, size = deployed(fleet, path[-1]), 0
    hosts: list[str] = []
    for mine in hosts_left(fleet, path[-1], scope):
        goal = next((point.new for point in path if point.new > finished), path[-1].new)
        if hosts and size + len(mine) > min(allowed.unavailable, goal - finished):
            found.append(tuple(hosts))
            finished, hosts, size = finished + size, [], 0
        hosts.append(mine[0].host)
        size += len(mine)
    return [*found, tuple(hosts)] if hosts else found


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
    """Take the next wave out of rotation; reached when all its requests are done, or there is no host left to take. What an
    earlier run has left out is in it, with as many others as the budget has room for."""
    admit = _admissible(fleet)
    out = batch_out(fleet, scope)
    taken = {instance.host for instance in out}
    left = [mine for mine in hosts_left(fleet, waypoint, scope) if mine[0].host not in taken]
    goal = min(allowed.unavailable, waypoint.new - deployed(fleet, waypoint)) - len(out)
    chosen = _next_batch(fleet, left, waypoint, allowed, rules, now, goal, not out)
    if out and not chosen:
        reached = all(can_stop(instance, rules, now) for instance in out)
        late = "" if reached else _late(progress, rules, now, f"not out of rotation: {', '.join(i.id for i in out)}")
        return Decision(admit=_ids(admit), reached=reached, failed=late, progress=progress)
    if not left or deployed(fleet, waypoint) >= waypoint.new:
        return Decision(admit=_ids(admit), reached=True, progress=progress)
    failed = "" if chosen else _stuck(fleet, left[0], waypoint, allowed, rules, progress, now, scope)
    reasons = tuple(_reasons(fleet, chosen, waypoint, allowed, rules, now))
    return Decision(admit=_ids(admit), drain=_ids(chosen), reasons=reasons, failed=failed, progress=progress)


def unreachable(fleet: Sequence[Instance], waypoint: Waypoint, scope: Scope, hosts: Collection[str]) -> list[Instance]:
    """What is to be deployed still, on hosts that cannot be reached."""
    return [i for mine in hosts_left(fleet, waypoint, scope) for i in mine if i.host in hosts and not is_deployed(i, waypoint)]


def refusal(
    fleet: Sequence[Instance],
    waypoint: Waypoint,
    scope: Scope,
    hosts: Collection[str],
    allowed: ResolvedBudget,
    limit: int | None,
) -> str:
    """Why not to begin while these hosts cannot be reached; empty where that is no reason."""
    lost = unreachable(fleet, waypoint, scope, hosts)
    useless = [i for i in lost if i.state is not State.READY or not i.in_rotation]
    if not lost:
        return ""
    if limit is not None and len(lost) >= limit:
        return f"rollout_failure_limit is {limit}"
    if all(mine[0].host in hosts for mine in hosts_left(fleet, waypoint, scope)):
        return "no other host is to be deployed"
    if len(useless) >= allowed.unavailable:
        return f"{', '.join(_ids(useless))} serve no requests, and no more than {allowed.unavailable} may be unavailable"
    return ""


def admit_batch(
    fleet: Sequence[Instance], _to: Waypoint, rules: Rules, progress: ProgressTracker, now: float, *, names: Collection[str]
) -> Decision:
    """Put these in rotation as they become ready; reached when all are available, or were taken out as too late."""
    limit = rules.ready_deadline or rules.progress_deadline
    missing = [i for i in fleet if i.id in names and i.draining_since is None and not is_available(i, rules, now)]
    drain = missing if now - progress.since > limit else []
    gone = {instance.id for instance in drain}
    admit = [instance for instance in _admissible(fleet) if instance.id not in gone]
    return Decision(admit=_ids(admit), drain=_ids(drain), reached=not missing, progress=progress)


def hold_batch(fleet: Sequence[Instance], waypoint: Waypoint, rules: Rules, progress: ProgressTracker, now: float) -> Decision:
    """Nothing goes while gates are asked; reached as long as the waypoint's new ones are available."""
    new = sum(is_deployed(i, waypoint) and is_available(i, rules, now) for i in fleet)
    reached = new >= waypoint.new
    failed = "" if reached else _late(progress, rules, now, f"{new} of {waypoint.new} new are available")
    return Decision(admit=_ids(_admissible(fleet)), reached=reached, failed=failed, progress=progress)


def batch_out(fleet: Sequence[Instance], scope: Scope) -> list[Instance]:
    """The wave that is out: on its way to be deployed, also where a run that ended had taken it out."""
    return [i for i in fleet if i.state is State.DRAINING and i.host in scope.hosts and i.id not in scope.failed]


def _admissible(fleet: Sequence[Instance]) -> list[Instance]:
    return [instance for instance in fleet if can_admit(instance)]


def _next_batch(
    fleet: Sequence[Instance],
    left: Sequence[tuple[Instance, ...]],
    waypoint: Waypoint,
    allowed: ResolvedBudget,
    rules: Rules,
    now: float,
    goal: int,
    first: bool,
) -> list[Instance]:
    """The next hosts, in their order, as many as the budget lets go now, and `goal` instances at most; the first one of a
    wave may have more."""
    floor = waypoint.desired - allowed.unavailable
    available = sum(is_available(instance, rules, now) for instance in fleet)
    serving = sum(_serves(instance) for instance in fleet)
    chosen: list[Instance] = []
    for mine in left:
        if len(chosen) + len(mine) > goal and not (first and not chosen and goal > 0):
            break
        given, served = sum(is_available(i, rules, now) for i in mine), sum(_serves(i) for i in mine)
        # One that is ready may be in rotation in a moment: with too few available it is no broken one.
        useful = served or any(instance.state is State.READY for instance in mine)
        if useful and (available - given < floor or serving - served < floor):
            break
        available, serving = available - given, serving - served
        chosen.extend(mine)
    return chosen


def _serves(instance: Instance) -> bool:
    """Whether load balancers send requests there, whatever our checks say."""
    return instance.in_rotation and instance.lb_healthy and instance.state is not State.DRAINING


def _stuck(
    fleet: Sequence[Instance],
    first: Sequence[Instance],
    waypoint: Waypoint,
    allowed: ResolvedBudget,
    rules: Rules,
    progress: ProgressTracker,
    now: float,
    scope: Scope,
) -> str:
    """Why none can be taken out, if that does not change by itself or has not for too long."""
    lost = [instance.id for instance in fleet if instance.id in scope.failed and instance.draining_since is not None]
    if len(lost) + len(first) > allowed.unavailable:
        return (
            f"no room is left to go on: {', '.join(lost)} failed and stay out of rotation, and of {waypoint.desired} instances "
            f"no more than {allowed.unavailable} may be unavailable"
        )
    missing = [i for i in fleet if not is_available(i, rules, now)]
    what = ", ".join(f"{i.id} is {i.state.value}{': ' + i.detail if i.detail else ''}" for i in missing[:3])
    return _late(
        progress, rules, now, f"no room to take out {first[0].host}: {len(missing)} of {waypoint.desired} missing ({what})"
    )


def _late(progress: ProgressTracker, rules: Rules, now: float, why: str) -> str:
    return f"no progress for {rules.progress_deadline:g} s: {why}" if now - progress.since > rules.progress_deadline else ""


def _reasons(
    fleet: Sequence[Instance], chosen: Sequence[Instance], waypoint: Waypoint, allowed: ResolvedBudget, rules: Rules, now: float
) -> Iterator[str]:
    if chosen:
        available = sum(is_available(instance, rules, now) for instance in fleet)
        yield f"drain {', '.join(_ids(chosen))}: {available} available, {waypoint.desired - allowed.unavailable} needed"


def _ids(instances: Sequence[Instance]) -> tuple[str, ...]:
    return tuple(instance.id for instance in instances)
