# SPDX-License-Identifier: GPL-3.0-or-later
"""Acts: load balancers first, so that no instance is stopped that still gets requests."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from ...base.errors import RolloutError, RolloutFailed, TrafficError, TransportError
from ...engine.evaluate import Decision
from ...engine.instances import ids
from ...engine.looks import TIDY
from ...engine.model import Instance, Rotation, State
from ...engine.refusals import Refusal, repeated
from ...engine.shares import Target
from ...engine.weights import WeightSplit
from ...health.monitor import HealthMonitor
from ...interfaces.platform import Labels, Report
from ...interfaces.traffic import Table, TrafficDriver
from ...state import events
from ...state.lease import Session
from ...state.record import AdoptedServers
from . import fleet as fleets
from . import timing
from .observer import Observer, Snapshot
from .preview import PreviewPool
from .recorder import Recorder
from .stops import Stops

NOTHING = Decision()


class Actuator:
    """Changes the load balancers, the preview pools and the platform of one service."""

    def __init__(
        self,
        traffic: TrafficDriver,
        previews: Sequence[PreviewPool],
        *,
        observer: Observer,
        recorder: Recorder,
        session: Session,
        checker: HealthMonitor,
        now: Callable[[], float],
        leaving: Callable[[Collection[str]], None],
        regions: Sequence[Target] = (),
    ) -> None:
        """`leaving`: tells the platform which instances are drained."""
        self.changed = False  # whether anything outside was changed
        self.split: WeightSplit | None = None  # of the requests; None: weights stay as they are
        self._traffic = traffic
        self._previews = previews
        self._observer = observer
        self._recorder = recorder
        self._session = session
        self._checker = checker
        self._now = now
        self._leaving = leaving
        self._regions = regions
        self.stops = Stops(observer, now)
        # what was last decided about existing instances
        self._last: tuple[tuple[str, ...], ...] = ()
        # of the last change of the load balancers, and the error that it was
        self._refusal: tuple[Refusal, TrafficError] | None = None
        # since when only entries of instances that are gone are left to remove
        self._untidy: float | None = None

    def apply(
        self,
        snapshot: Snapshot,
        decision: Decision,
        starts: Sequence[Labels] = (),
        undo_switch: bool = False,
        out: Collection[str] = (),
    ) -> None:
        """Record the decision, then carry it out, unless it is out of date by then.

        `undo_switch`: a switch that one load balancer does not make is undone at the others. `out`:
        instances that stay out of rotation beside those that drain.
        """
        draining = self._session.record.draining
        draining.update(dict.fromkeys(decision.drain, self._now()))
        stay_out = (*decision.standby, *out)
        targets = self._targets(snapshot, decision, stay_out)
        stop = self.stops.due(decision.retire)
        forget = self._to_forget(snapshot.fleet, starts, stop, decision.reached)
        self._commit(decision, bool(starts or targets or forget))
        looked = snapshot.at if snapshot.table is None else self._observer.table_at
        if self._now() - looked >= timing.OUTDATED:
            return  # the journal was away, and much may have happened: observe again
        self.changed = self.changed or bool(starts or decision.retire or targets)
        self._leaving(draining)
        if targets:
            self._observer.cut()
        if targets:
            self._turn(snapshot, targets, switch=bool(decision.standby), undo=undo_switch)
            self._observer.note_balanced()
        if decision.drain or decision.retire:
            self.apply_previews(snapshot)
        if starts or stop or forget:
            self._sync(starts, stop, forget)

    def apply_previews(self, snapshot: Snapshot) -> None:
        """Make the preview pools contain the new instances, or nothing."""
        for pool in self._previews:
            pool.apply(*self._presentable(snapshot))

    def is_tidy(self, snapshot: Snapshot, timeout: float) -> bool:
        """Return whether no entries are left to remove, and the preview pools are complete.

        An entry may stay until its last connections are closed, but at most for `timeout` seconds.
        """
        if self._targets(snapshot) is None and all(
            pool.is_done(*self._presentable(snapshot)) for pool in self._previews
        ):
            self._untidy = None
            return True
        self._untidy = self._now() if self._untidy is None else self._untidy
        return self._now() - self._untidy > timeout

    def forget_dead(self, snapshot: Snapshot) -> list[Instance]:
        """Remove what is left of dead instances; their logs stay.

        Returns those that have not been removed yet.
        """
        dead = [i for i in snapshot.fleet if not i.state.counted and i.rotation is Rotation.ABSENT]
        if dead:
            self._observer.sync(forget=ids(dead))
        present = {report.labels.id for report in self._observer.reports}
        record = self._session.record
        # a host that is left out, and has not answered any run since, may have what drains
        if all(record.away.values()):
            record.draining = {
                name: since for name, since in record.draining.items() if name in present
            }
        return [i for i in dead if i.id in present]

    def _to_forget(
        self,
        fleet: Sequence[Instance],
        starts: Sequence[Labels],
        stop: Collection[str],
        all_: bool,
    ) -> list[str]:
        """Return the stopped instances to forget: with other work on their host, or after a while.

        `all_`: at once.
        """
        busy = {labels.host for labels in starts} | {i.host for i in fleet if i.id in stop}
        looked, now = self._observer.looked, self._now()
        return [
            i.id
            for i in _remains(fleet)
            if all_ or i.host in busy or now - looked.get(i.host, 0.0) >= TIDY
        ]

    def _commit(self, decision: Decision, acts: bool) -> None:
        """Write the decision down, unless it only repeats the one before."""
        turned = decision.admit, decision.standby, decision.drain, decision.park, decision.enter
        decided = (*turned, decision.retire)
        if acts or decided != self._last or self._recorder.due:
            self._recorder.commit()
            self._last = decided

    def _targets(
        self,
        snapshot: Snapshot,
        decision: Decision = NOTHING,
        stay_out: Collection[str] = (),
    ) -> fleets.Targets | None:
        """Return what the load balancers are to show, if that is not what they show."""
        if snapshot.table is None:
            return None
        out = {*self._session.record.draining, *stay_out}
        never_ready = self._observer.never_ready()
        targets = self._shown(snapshot, snapshot.table, decision, out, never_ready)
        return targets if fleets.differs(snapshot.table, targets) else None

    def _shown(
        self,
        snapshot: Snapshot,
        table: Table,
        decision: Decision,
        out: Collection[str],
        never_ready: Collection[str] = (),
    ) -> fleets.Targets:
        """Return what the load balancers are to show."""
        reports = snapshot.reports
        ready = {i.id for i in snapshot.fleet if i.state is State.READY}
        unborn = self._observer.unborn() - ready
        targets = fleets.targets(
            reports,
            table,
            decision.admit,
            out,
            decision.retire,
            split=self.split,
            regions=self._regions,
            never_ready=never_ready,
            ready=ready,
            postponed=snapshot.postponed,
            idle=snapshot.idle,
            unborn=unborn,
            fixed=self._traffic.fixed,
            park=decision.park if self._traffic.binds else (),
            enter=decision.enter,
        )
        record = self._session.record
        if record.stable is None:
            replicas = record.rollout.replicas if record.rollout else 0
            capacity = self._traffic.capacity
            return fleets.with_predecessors(targets, table, reports, replicas, capacity, unborn)
        if record.adopted:
            return self._with_adopted(record.adopted, targets, table, reports)
        return targets

    def _with_adopted(
        self,
        adopted: AdoptedServers,
        targets: fleets.Targets,
        table: Table,
        reports: Sequence[Report],
    ) -> fleets.Targets:
        """Return targets with adopted servers that were out for good when the fleet was observed,
        where a load balancer has lost its state and sends requests to them again: they stay until
        enough instances serve there.
        """
        record = self._session.record
        current = record.open or record.stable
        replicas = current.replicas if current else 0
        places = set(adopted.servers.values())
        left = {
            name: {at: server for at, server in servers.items() if at in places}
            for name, servers in table.items()
        }
        return fleets.with_predecessors(targets, left, reports, replicas, dict)

    def _sync(self, starts: Sequence[Labels], stop: Sequence[str], forget: Sequence[str]) -> None:
        """Have the platform start, stop and forget instances."""
        before, began = self._observer.living(), self._now()
        self._observer.sync(starts, stop, forget)
        self.stops.note_orders(stop, began)
        reported = {"", *(report.labels.id for report in self._observer.reports)}
        passed_over = any(labels.id not in reported for labels in starts)  # its port was occupied
        if passed_over or not set(before) <= set(self._observer.living()):
            self._checker.wake()  # there is room for others now
        for name in forget:
            self._session.record.draining.pop(name, None)

    def _turn(
        self, snapshot: Snapshot, targets: fleets.Targets, *, switch: bool, undo: bool
    ) -> None:
        """Bring the load balancers to their targets, and note how they refuse them."""
        try:
            if switch:
                self._switch(snapshot, targets, undo)
            else:
                self._traffic.apply(targets)
        except TrafficError as exc:
            before = self._refusal[0] if self._refusal else None
            self._refusal = repeated(before, str(exc), self._now()), exc
            raise
        self._refusal = None

    def refusal(self, error: RolloutError) -> Refusal | None:
        """Return the refusal that an error is. Any other error is the end of a refusal."""
        if self._refusal is None or self._refusal[1] is not error:
            self._refusal = None  # the load balancers do not even answer
            return None
        return self._refusal[0]

    def _switch(self, snapshot: Snapshot, targets: fleets.Targets, undo: bool) -> None:
        """Exchange old and new instances in one update for each load balancer."""
        began = self._now()
        try:
            self._traffic.apply(targets)
        except TrafficError as exc:
            if not undo:
                raise
            self._undo_switch(snapshot, exc)
        self._recorder.event(events.Switched(milliseconds=round(1000 * (self._now() - began), 1)))

    def _undo_switch(self, snapshot: Snapshot, error: TrafficError) -> None:
        """Undo a switch; raises RolloutFailed, or `error` if nothing was changed."""
        before: Table = snapshot.table or {}
        shown = self._shown(snapshot, before, NOTHING, self._session.record.draining)
        if not fleets.differs(self._traffic.observe(), shown):
            raise error  # it was refused, and may succeed in the next iteration
        failed = []
        for balancer, targets in shown.items():
            try:
                self._traffic.apply({balancer: targets})
            except (TrafficError, TransportError) as exc:
                failed.append(str(exc))
        how = (
            f"could not be undone everywhere: {'; '.join(failed)}"
            if failed
            else "was undone at all load balancers"
        )
        raise RolloutFailed(f"the switch failed, and {how}: {error}", "PR-309") from None

    def _presentable(self, snapshot: Snapshot) -> tuple[list[Report], set[str]]:
        """Return the new instances that are not draining, and the names of all that are ready."""
        # of the rollout in progress, also while another revision is scaled beside it
        rollout, out = self._session.record.open, self._session.record.draining
        generation = rollout.generation if rollout else None
        new = [
            r
            for r in self._observer.reports
            if r.labels.generation == generation and r.labels.id not in out
        ]
        return new, {i.id for i in snapshot.fleet if i.state is State.READY}


def _remains(fleet: Sequence[Instance]) -> list[Instance]:
    """Return the stopped instances that no load balancer has; failed ones stay visible."""
    return [i for i in fleet if i.rotation is Rotation.ABSENT and i.state is State.STOPPED]
