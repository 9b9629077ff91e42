# SPDX-License-Identifier: GPL-3.0-or-later
"""The words of decisions: why a stage fails, what it waits for, and a reason for each action.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from .fleet_count import FleetCount
from .instances import ids, is_starting
from .model import Instance, Rotation, State
from .progress import FailureLimit, ProgressTracker, Rules
from .strategy import Waypoint

SHOWN = 3  # instances that a message names


def too_many_failures(limit: FailureLimit, progress: ProgressTracker) -> str:
    """Say that a limit of failures is reached, and what failed last."""
    last = progress.failures[-1:]
    return limit.text + "".join(f". Last: {failure.id} {failure.why}" for failure in last)


def no_progress(rules: Rules, waiting: str) -> str:
    """Say that the progress deadline is over, and what is waited for."""
    return (
        f"no progress within rollout_progress_deadline ({rules.progress_deadline:g} s): {waiting}"
    )


def waiting_for(count: FleetCount, waypoint: Waypoint, missing: int) -> str:
    """Say how far the stage is and which instances it waits for; `missing` stable instances are
    not in service.
    """
    new = count.new
    parts = [
        f"{new.arrived} of {waypoint.new} new instances"
        f" {'ready' if waypoint.new_idle else 'available'}"
    ]
    if missing:
        parts.append(f"{waypoint.old - missing} of {waypoint.old} stable instances in service")
    stuck = [i for i in new.pending if i.state is not State.READY or not _serves(i)]
    stuck += [i for i in count.draining if i.draining_since is not None]
    stuck += [
        i
        for i in count.old.pending
        if i.state is State.UNREACHABLE or (waypoint.repairs and is_starting(i))
    ]
    if stuck:
        parts.append(f"waiting for {', '.join(map(_described, stuck[:SHOWN]))}{_more(stuck)}")
    kept = [i for i in count.old.available if i.id in count.pinned]
    if len(count.old) > waypoint.old and kept and len(kept) == len(count.old.available):
        parts.append(
            f"{names(kept[:SHOWN])}{_more(kept)} stay: their zones have no more to spare"
            " (rollout_budget.max_unavailable_per_zone)"
        )
    parts.extend(f"{failure.id} failed {failure.why}" for failure in count.failures[-1:])
    return "; ".join(parts)


def _more(instances: Sequence[Instance]) -> str:
    """Return how many instances a message leaves out, if any."""
    return f", {len(instances) - SHOWN} more" if len(instances) > SHOWN else ""


def _serves(instance: Instance) -> bool:
    return instance.rotation is Rotation.IN and instance.lb_healthy


_WAITS = {
    Rotation.ABSENT: "ready, but out of rotation",
    Rotation.OUT: "ready, but out of rotation",
    Rotation.PARTIAL: "ready, but in rotation at some load balancers only",
    Rotation.IN: "ready and in rotation, but down",
}


def _described(instance: Instance) -> str:
    host = f" on {instance.host}" if instance.host else ""
    state = _WAITS[instance.rotation] if instance.state is State.READY else instance.state.value
    return f"{instance.id}{host} ({state}{': ' + instance.detail if instance.detail else ''})"


def names(instances: Iterable[Instance]) -> str:
    """Return the ids of instances, separated by commas."""
    return ", ".join(ids(instances))


def states(instances: Iterable[Instance]) -> str:
    """Return the state of each instance, and why it is not ready if known."""
    return ", ".join(
        f"{i.id} is {i.state.value}{': ' + i.detail if i.detail else ''}" for i in instances
    )


@dataclass(frozen=True)
class Actions:
    """What a decision does, as instances; see `Decision`."""

    create: int
    create_old: int
    admit: Sequence[Instance]
    standby: Sequence[Instance]
    drain: Sequence[Instance]
    retire: Sequence[Instance]


def reasons(
    count: FleetCount, waypoint: Waypoint, actions: Actions, most: int, floor: int
) -> Iterator[str]:
    """Yield one sentence for each kind of action, with the numbers it follows from.

    There may be `most` instances at once, and `floor` have to be available.
    """
    total, available = f"{count.total} of at most {most} in total", f"{count.available} available"
    if actions.create:
        yield (
            f"create {actions.create}: {len(count.new)} of {waypoint.new} new instances exist,"
            f" {total}"
        )
    if actions.create_old:
        stable = f"{len(count.old)} of {waypoint.old} stable instances exist"
        yield f"create {actions.create_old} stable: {stable}, {available}, {floor} needed, {total}"
    if actions.standby:
        switched = (
            f"admit {names(actions.admit) or 'none'} and take out {names(actions.standby)} at once"
        )
        yield f"switch: {switched}; {count.new.arrived} of {waypoint.new} new instances are ready"
    elif actions.admit:
        yield f"admit {names(actions.admit)}: ready, and health-checked by every load balancer"
    if actions.drain:
        yield (
            f"drain {names(actions.drain)}: {available}, {floor} needed; {len(count.old)} old left"
        )
    if actions.retire:
        yield (
            f"retire {names(actions.retire)}: out of rotation; requests finished or drain_timeout"
            " over"
        )
