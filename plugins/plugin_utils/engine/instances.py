# SPDX-License-Identifier: GPL-3.0-or-later
"""What may be done with one instance, by what is known of it. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from .model import Instance, Rotation, State
from .progress import Rules


def ids(instances: Iterable[Instance]) -> tuple[str, ...]:
    """Return the ids of instances."""
    return tuple(instance.id for instance in instances)


def is_prepared(instance: Instance, rules: Rules, now: float) -> bool:
    """Whether it has been ready for `min_ready` seconds and is health-checked by every load
    balancer.
    """
    return (
        instance.state is State.READY
        and instance.lb_healthy
        and instance.ready_since is not None
        and now - instance.ready_since >= rules.min_ready
    )


def is_available(instance: Instance, rules: Rules, now: float) -> bool:
    """Whether it is prepared, and in rotation at every load balancer."""
    return instance.rotation is Rotation.IN and is_prepared(instance, rules, now)


def is_starting(instance: Instance) -> bool:
    """Whether it was started and is not in service yet; as of `is_serving`."""
    out = instance.state is State.READY and not instance.in_rotation
    return out or instance.state is State.STARTING


def is_serving(instance: Instance) -> bool:
    """Whether load balancers send it requests, whatever our own checks found.

    One that starts may have the endpoint of an earlier instance, to which a load balancer with an
    older state sends requests again.
    """
    starting = instance.state is State.STARTING
    return instance.in_rotation and instance.lb_healthy and not starting


def trust(instance: Instance) -> int:
    """Return how sure it is that an instance answers the requests that it gets.

    2: it passes our checks; 1: it did when its host last answered; 0: only load balancers find it
    well.
    """
    if instance.state is State.READY:
        return 2
    return int(instance.state is State.UNREACHABLE and not instance.was_unready)


def gets_requests(instance: Instance) -> bool:
    """Whether any load balancer sends it requests. Where another has lost it, it is no capacity,
    and still of use.
    """
    return is_serving(instance) or instance.served


def is_orphaned(instance: Instance) -> bool:
    """Whether it was to be stopped, gets no requests, and is on an unreachable host.

    It no longer counts. It is stopped once the host answers.
    """
    return (
        instance.state is State.UNREACHABLE
        and instance.draining_since is not None
        and not instance.in_rotation
    )


def is_lost(instance: Instance, rules: Rules, now: float) -> bool:
    """Whether its host has not answered for half of the progress deadline.

    Load balancers may still send it requests; nobody can say whether it is well.
    """
    return (
        instance.state is State.UNREACHABLE
        and instance.silent_since is not None
        and now - instance.silent_since >= rules.progress_deadline / 2
    )


def is_overdue(instance: Instance, rules: Rules, now: float) -> bool:
    """Whether it has not become ready within `ready_deadline`.

    An instance in rotation was ready before: a new run has not checked it yet.
    """
    return (
        rules.ready_deadline is not None
        and instance.state is State.STARTING
        and not instance.in_rotation
        and now - instance.created > rules.ready_deadline
    )


def has_lasted(instance: Instance, rules: Rules, now: float) -> bool:
    """Whether an instance that is ready has been for `watch_new` seconds."""
    return now - (instance.ready_since or 0.0) >= rules.watch_new


def can_admit(instance: Instance) -> bool:
    """Whether it may be put in rotation: ready, health-checked by every load balancer, and not
    in rotation everywhere.
    """
    return (
        instance.state is State.READY
        and instance.lb_healthy
        and instance.rotation is not Rotation.IN
    )


def can_stop(instance: Instance, rules: Rules, now: float) -> bool:
    """Whether a draining instance may be stopped: out of rotation, and its requests are finished
    or `drain_timeout` is over.
    """
    if instance.in_rotation or instance.draining_since is None:
        return False
    drained = now - instance.draining_since
    return drained >= rules.drain_timeout or (instance.active == 0 and drained >= rules.settle)


def can_park(instance: Instance, rules: Rules, now: float) -> bool:
    """Whether clients that are bound to a draining instance are to go elsewhere, too: no request is
    in flight, or half of `drain_timeout` is over. Those in flight then have the other half.
    """
    if instance.draining_since is None or not instance.bound:
        return False
    return instance.active == 0 or now - instance.draining_since >= rules.drain_timeout / 2


def can_deploy(instance: Instance, rules: Rules, now: float) -> bool:
    """Whether tasks may work on a draining instance: no client is routed to it, and its requests
    are finished, or their time is over.
    """
    if instance.bound or not can_stop(instance, rules, now):
        return False
    parked = instance.parked_since
    late = parked is None or now - parked >= rules.drain_timeout / 2
    return instance.active == 0 or late


def drains_to_cancel(
    fleet: Sequence[Instance], may_stay: Container[str], floor: int
) -> tuple[str, ...]:
    """Return the draining instances that have to stay, since too few others serve.

    `may_stay`: those that are ready and were not told to stop. A drain was decided for the fleet as
    it was then. Others may be lost before it is carried out, and a load balancer that has an older
    state again may send requests to nothing else, even while its own checks fail, or to one that
    starts at the endpoint of an earlier one.
    """
    missing = floor - sum(is_serving(i) and _answers(i) for i in fleet)
    draining = [i for i in fleet if i.state is State.DRAINING and i.in_rotation]
    kept = [i for i in draining if i.id in may_stay]
    kept.sort(key=lambda i: (gets_requests(i), i.order), reverse=True)
    return ids(kept[: max(0, missing)])


def drains_to_postpone(
    serving: Sequence[Instance], may_stay: Container[str], floor: int
) -> tuple[str, ...]:
    """Return the draining instances that stay in rotation at one load balancer for now, since too
    few others serve there, the newest first.

    `serving`: what this load balancer has in rotation and finds healthy, whatever our own checks
    find. `may_stay`: what was not told to stop. Where it returned to an older state, what drains is
    in rotation again, and others may not be there yet.
    """
    others = sum(_answers(i) for i in serving)
    kept = [i for i in serving if i.draining_since is not None and i.id in may_stay]
    kept.sort(key=lambda i: i.order, reverse=True)
    return ids(kept[: max(0, floor - others)])


def to_idle(serving: Sequence[Instance], generation: int, floor: int) -> tuple[str, ...]:
    """Return the instances of a generation that leave one load balancer, which sends them requests
    although they are to get none yet; as of `to_leave`.

    A load balancer that returned to an older state may have had the endpoint of such an instance in
    rotation.
    """
    new = {i.id for i in serving if i.generation == generation and i.draining_since is None}
    return to_leave(serving, new, floor)


def to_leave(serving: Sequence[Instance], names: Container[str], floor: int) -> tuple[str, ...]:
    """Return which of the named instances leave one load balancer, as far as enough others serve
    there; the newest stay.

    `serving`: as of `drains_to_postpone`.
    """
    others = sum(_answers(i) for i in serving if i.id not in names)
    leaving = [i for i in serving if i.id in names]
    leaving.sort(key=lambda i: i.order, reverse=True)
    return ids(leaving[max(0, max(1, floor) - others) :])


def _answers(instance: Instance) -> bool:
    """Whether it is to serve and answers, or did when its host last answered."""
    return instance.draining_since is None and trust(instance) > 0
