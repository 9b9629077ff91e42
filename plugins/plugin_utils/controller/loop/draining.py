# SPDX-License-Identifier: GPL-3.0-or-later
"""Take single instances out of rotation and in again, apart from any stage."""

from __future__ import annotations

import typing as t
from collections.abc import Collection, Sequence

from ...base.errors import TRANSIENT, RolloutFailed
from ...engine.evaluate import Decision
from ...engine.instances import can_admit, can_stop, drains_to_cancel
from ...engine.model import Health, Process, Rotation
from ...engine.wording import states
from ...state import events
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
            loop.actuator.apply(
                loop.observer.snapshot, Decision(admit=tuple(i.id for i in out if can_admit(i)))
            )
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
    loop: ReconcileLoop, snapshot: Snapshot, floor: int, settled: Collection[str] = ()
) -> Snapshot:
    """Cancel the drains after which fewer than `floor` instances would serve; return the fleet so.

    Only those that are not carried out yet: the instance runs, is ready, and gets requests. Those
    of `settled` instances stay.
    """
    draining, stay_out = loop.session.record.draining, {*loop.actuator.stops.told_to_stop, *settled}
    excluded = rollout.excluded if (rollout := loop.session.record.open) else ()
    may_stay = {
        report.labels.id
        for report in snapshot.reports
        if report.labels.id in draining
        and report.process is Process.RUNNING
        and report.labels.id not in stay_out
        and report.labels.host not in excluded
        and loop.checker.health(report.labels.id).health in (Health.PASSING, Health.NONE)
    }
    cancelled = drains_to_cancel(snapshot.fleet, may_stay, floor) if may_stay else ()
    for name in cancelled:
        del draining[name]
    return loop.observer.assemble() if cancelled else snapshot


def hold_drained(loop: ReconcileLoop) -> None:
    """Keep the load balancers as they are, and the lease, until the guard ends it.

    Meanwhile the user's tasks deploy in place. A reloaded load balancer forgets which hosts are
    drained, and which others are out of rotation, as one is on which tasks failed. Those that were
    in rotation return to it where they are found healthy.
    """
    stay: Rotations | None = None
    while not loop.guard.stopped:
        try:
            snapshot = loop.observer.observe_unchecked()
            stay = stay or _rotations(loop, snapshot)
            _report_forgotten(loop, snapshot, stay.out)
            loop.actuator.apply(snapshot, Decision(admit=stay.inside), out=stay.out)
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
