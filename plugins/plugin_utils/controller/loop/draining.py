# SPDX-License-Identifier: GPL-3.0-or-later
"""Take single instances out of rotation and in again, apart from any stage."""

from __future__ import annotations

import typing as t
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from ...base.errors import TRANSIENT, RolloutFailed
from ...engine.evaluate import Decision
from ...engine.instances import (
    can_admit,
    can_stop,
    drains_to_cancel,
    drains_to_postpone,
    to_idle,
    to_leave,
)
from ...engine.model import Health, Process, Rotation
from ...engine.wording import states
from ...state import events
from . import fleet as fleets
from . import timing
from .observer import Snapshot
from .reconcile_loop import ReconcileLoop


def drain(loop: ReconcileLoop, ids: Sequence[str]) -> None:
    """Take these instances out of rotation, wait for their requests, and stop them."""
    record = loop.session.record
    record.draining.update({i: loop.now() for i in ids if i not in record.draining})
    loop.observer.generation = record.open.generation if record.open else None

    def stop_drained() -> str:
        snapshot = loop.observe()
        for pool in loop.previews:
            pool.wanted = pool.has_entries  # its other instances stay
        left = [i for i in snapshot.fleet if i.id in ids and i.state.counted]
        drained = tuple(i.id for i in left if can_stop(i, loop.rules, loop.now()))
        loop.actuator.apply(snapshot, Decision(retire=drained))
        loop.actuator.apply_previews(snapshot)
        return states(left)

    if left := loop.until("draining", stop_drained, loop.rules.progress_deadline):
        raise RolloutFailed(f"not within {loop.rules.progress_deadline:g} s: {left}", "PR-616")


def admit(loop: ReconcileLoop, revision: str | None) -> bool:
    """Put a revision's ready instances (None: any) in rotation; return whether any was out."""
    admitted = False

    def admit_healthy() -> str:
        nonlocal admitted
        out = loop.out_of_rotation(revision)
        if out:
            admitted = True
            enter = tuple(i.id for i in out if i.parked)
            admitted_now = tuple(i.id for i in out if can_admit(i))
            loop.actuator.apply(loop.observer.snapshot, Decision(admit=admitted_now, enter=enter))
        return ", ".join(i.id for i in out)

    if left := loop.until("putting in rotation", admit_healthy, loop.rules.progress_deadline):
        deadline = f"{loop.rules.progress_deadline:g} s"
        raise RolloutFailed(
            f"no load balancer's own check passed {left} within {deadline}", "PR-308"
        )
    return admitted


def cancel_drain(loop: ReconcileLoop, generation: int) -> None:
    """Keep the instances of a generation that were to be drained and were not told to stop."""
    running = {
        r.labels.id
        for r in loop.observer.reports
        if r.labels.generation == generation and r.process is Process.RUNNING
    }
    for name in running & set(loop.session.record.draining):
        del loop.session.record.draining[name]


def reconsider(
    loop: ReconcileLoop,
    snapshot: Snapshot,
    floor: int,
    floors: Mapping[str, int],
    settled: Collection[str] = (),
) -> Snapshot:
    """Cancel or postpone the drains after which too few instances would serve; return the fleet so.

    Only those that are not carried out yet: the instance gets requests. A drain is cancelled where
    the instance runs and is ready; otherwise it stays in rotation at single load balancers for now.

    Args:
        snapshot: As observed.
        floor: How many instances are to serve.
        floors: How many are to serve at each load balancer.
        settled: Instances whose drains are carried out whatever happens.
    """
    may_stay = _may_stay(loop, snapshot, settled)
    if not may_stay:
        return snapshot
    cancelled = drains_to_cancel(snapshot.fleet, _ready(loop, snapshot, may_stay), floor)
    for name in cancelled:
        del loop.session.record.draining[name]
    snapshot = loop.observer.assemble() if cancelled else snapshot
    reports, table, fleet = snapshot.reports, snapshot.table or {}, snapshot.fleet
    postponed = {
        name: drains_to_postpone(
            fleets.serving_at(name, reports, table, fleet, loop.targets),
            may_stay,
            floors[name],
        )
        for name in table
    }
    return replace(snapshot, postponed=postponed)


def leave_single(
    loop: ReconcileLoop,
    snapshot: Snapshot,
    idle: Mapping[str, int],
    floors: Mapping[str, int],
) -> Snapshot:
    """Return the fleet with what leaves single load balancers: it is to get no requests yet, or was
    never seen ready, and another one sends it none.

    `idle`: the generation that is to get none, by load balancer; `floors`: as of `reconsider`. What
    was never seen ready is no capacity: one other instance that answers is enough.
    """
    reports, table, fleet = snapshot.reports, snapshot.table or {}, snapshot.fleet
    contradicted = loop.observer.contradicted()
    if not idle and not contradicted:
        return snapshot
    leaving = {}
    for name in table:
        serving = fleets.serving_at(name, reports, table, fleet, loop.targets)
        early = to_idle(serving, idle[name], floors[name]) if name in idle else ()
        others = [i for i in serving if i.id not in early]
        leaving[name] = (*early, *to_leave(others, contradicted, 1))
    return replace(snapshot, idle=leaving) if any(leaving.values()) else snapshot


def _may_stay(loop: ReconcileLoop, snapshot: Snapshot, settled: Collection[str]) -> set[str]:
    """Return the draining instances that a load balancer sends requests to, and that were not told
    to stop, and are not to be out for another reason.
    """
    record = loop.session.record
    if not record.draining:
        return set()
    stay_out = {*loop.actuator.stops.told_to_stop, *settled}
    excluded = record.open.excluded if record.open else ()
    inside = {
        endpoint
        for servers in (snapshot.table or {}).values()
        for endpoint, server in servers.items()
        if server.rotation is Rotation.IN
    }
    return {
        report.labels.id
        for report in snapshot.reports
        if report.labels.id in record.draining
        and report.process in (Process.RUNNING, Process.UNREACHABLE)
        and report.labels.id not in stay_out
        and report.labels.host not in excluded
        and report.labels.endpoint in inside
    }


def _ready(loop: ReconcileLoop, snapshot: Snapshot, names: Collection[str]) -> set[str]:
    """Return those of these instances that run and pass their checks."""
    running = {r.labels.id for r in snapshot.reports if r.process is Process.RUNNING}
    return {
        name
        for name in running.intersection(names)
        if loop.checker.health(name).health in (Health.PASSING, Health.NONE)
    }


def hold_drained(loop: ReconcileLoop) -> None:
    """Keep the load balancers as they are, and the lease, until the guard ends it.

    Meanwhile the user's tasks deploy in place. A reloaded load balancer forgets which hosts are
    drained, and which others are out of rotation, as one is on which tasks failed. Those that were
    in rotation return to it where they are found healthy. No client is routed to what is
    drained, not even one that is bound to it.
    """
    stay: Rotations | None = None
    while not loop.guard.stopped:
        try:
            snapshot = loop.observer.observe_unchecked()
            stay = stay or _rotations(loop, snapshot)
            _report_forgotten(loop, snapshot, stay.out)
            park = tuple(loop.session.record.draining)
            loop.actuator.apply(snapshot, Decision(admit=stay.inside, park=park), out=stay.out)
            loop.recorder.note_success()
        except TRANSIENT as exc:
            loop.recorder.note_error(str(exc))
        loop.checker.wait(timing.IN_PLACE)


class Rotations(t.NamedTuple):
    """Which instances return to rotation, and which get no requests from any load balancer."""

    inside: tuple[str, ...]
    out: tuple[str, ...]


def _rotations(loop: ReconcileLoop, snapshot: Snapshot) -> Rotations:
    """Return the rotations that stay as they are.

    Where one load balancer has lost its state already, what the step before found ready returns.
    """
    record, tables = loop.session.record, (snapshot.table or {}).values()
    ready = record.open.ready if record.open else {}
    inside, out = [], []
    for labels in (report.labels for report in snapshot.reports):
        entries = [servers.get(labels.endpoint) for servers in tables]
        served = [entry is not None and entry.rotation is Rotation.IN for entry in entries]
        if labels.id in record.draining or not any(served):
            out.append(labels.id)
        elif all(served) or labels.id in ready:
            inside.append(labels.id)
    return Rotations(tuple(inside), tuple(out))


def _report_forgotten(loop: ReconcileLoop, snapshot: Snapshot, out: Collection[str]) -> None:
    """Report the load balancers that send requests again to instances that are to be out."""
    places = {r.labels.endpoint: r.labels.host for r in snapshot.reports if r.labels.id in out}
    for balancer, servers in (snapshot.table or {}).items():
        back = [
            host
            for at, host in places.items()
            if at in servers and servers[at].rotation is Rotation.IN
        ]
        if back:
            hosts = ", ".join(dict.fromkeys(back))
            message = (
                f"load balancer {balancer} sent requests to hosts that are out of rotation: {hosts}"
                " taken out again"
            )
            loop.event(events.Trouble(message=message))
            loop.print_line(f"{loop.settings.service}: {message} [PR-312]")
