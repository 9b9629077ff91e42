# SPDX-License-Identifier: GPL-3.0-or-later
"""Observes platform, load balancers and checks as one frozen snapshot. Decides nothing."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

from ...analysis import counters
from ...analysis.counters import Counters
from ...base import clock
from ...base.errors import TRANSIENT, PlatformError
from ...engine.model import Health, Instance, Process, Rotation, State
from ...engine.shares import Target
from ...engine.unmanaged import NOTHING, Unmanaged
from ...health.monitor import HealthMonitor
from ...interfaces.check import HealthCheck
from ...interfaces.platform import Labels, PlatformDriver, Report
from ...interfaces.traffic import Table, TrafficDriver
from ...state.lease import Session
from ...state.record import Rollout
from . import fleet as fleets
from . import timing

if t.TYPE_CHECKING:
    from .adopted import Adopted
    from .preview import PreviewPool

# processes whose instances are checked
WATCHED = (Process.STARTING, Process.RUNNING, Process.UNKNOWN)
UNREADY = (State.STARTING, State.NOT_READY)


@dataclass(frozen=True)
class Snapshot:
    """A service at one moment."""

    reports: Sequence[Report] = ()  # of the platform
    table: Table | None = None  # of the load balancers; None: there are none
    previews: Sequence[Table] = ()  # of the preview pools
    fleet: Sequence[Instance] = ()  # all of this as the engine sees it
    at: float = 0.0  # seconds since the epoch
    unmanaged: Unmanaged = NOTHING  # what gets requests beside the instances
    # Instances that leave crowded hosts on the way to the waypoint; None: none are to.
    leaving: frozenset[str] | None = None
    # draining instances that stay in rotation for now, by load balancer
    postponed: Mapping[str, Collection[str]] = field(default_factory=dict)
    # instances that leave single load balancers, by load balancer
    idle: Mapping[str, Collection[str]] = field(default_factory=dict)


class Observer:
    """Observes one service, and keeps what it has to remember for that."""

    def __init__(
        self,
        platform: PlatformDriver,
        traffic: TrafficDriver | None,
        previews: Sequence[PreviewPool],
        *,
        session: Session,
        counters: Counters,
        checker: HealthMonitor,
        watch_new: float,
        check_of: Callable[[int], HealthCheck],
        targets: Sequence[Target] = (),
        print_line: Callable[[str], None],
        now: Callable[[], float],
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        """Make an observer; `stopped` returns whether this run was told to stop."""
        self.snapshot = Snapshot()  # the latest
        self._reports: Sequence[Report] = ()  # the latest of the platform, also of a change
        self.counters = counters
        self.between = Counters()  # what was counted between the step before and this one
        self._counting = False  # whether load balancers were observed
        self.generation: int | None = None  # that the rollout moves to
        # instances that were deployed in place, and have not been ready since
        self.returning: set[str] = set()
        self._platform = platform
        self._traffic = traffic
        self._previews = previews
        self._session = session
        self._checker = checker
        self._watch_new = watch_new
        self._check_of = check_of
        self._targets = targets
        self._print = print_line
        self._now = now
        self._stopped = stopped
        self._table: Table | None = None
        self._unseen = False  # whether the platform did not show its instances
        self.unknown_hosts: Sequence[str] = ()  # of which it could not show them, where it said so
        self._known: set[str] | None = None  # instances that were there before this step
        self._ready: set[str] = set()  # instances that have been ready
        self._since: Mapping[str, float] = {}  # since when, by the step before
        self._silent: dict[str, float] = {}  # instances, by when their hosts stopped answering
        self._answered: set[str] = set()  # hosts that have since the last snapshot
        self._unready: set[str] = set()  # instances that were not ready when their hosts last did
        self._out: dict[str, float] = {}  # draining instances, by when they were out of rotation
        self._parked: dict[str, float] = {}  # instances, by when bound clients were sent nowhere
        self.table_at = float("-inf")  # when load balancers were last observed
        self.next_platform = self._next_counters = float("-inf")  # when to observe them next
        self._pause = timing.PLATFORM[0]
        self.looked: dict[str, float] = {}  # by host, when it was last looked at

    @property
    def reports(self) -> Sequence[Report]:
        """The latest reports of the platform, also of a change, and those of adopted servers."""
        adopted = self._session.record.adopted and self.adopted.reports()
        return [*self._reports, *adopted] if adopted else self._reports

    @cached_property
    def adopted(self) -> Adopted:
        """The servers of the load balancers that the service has adopted."""
        from .adopted import Adopted  # few services have any

        return Adopted(self._session)

    def observe(self) -> Snapshot:
        """Observe the service; the first time, wait until each instance was checked once."""
        self._look()
        if self._traffic:
            self._again_if_late(partial(self._look_at_balancers, self._traffic))
        return self.assemble()

    def _again_if_late(self, look: Callable[[], None]) -> None:
        """Look at load balancers, and once more where they answer late: by then, one may have an
        older state again, and send requests to what was drained.

        Those that always answer late are believed the second time, so that they delay a rollout and
        do not stall it.
        """
        began = self._now()
        look()
        if self._now() - began >= timing.LATE:
            look()

    def _look_at_balancers(self, traffic: TrafficDriver) -> None:
        """Observe load balancers and preview pools."""
        self._look_at_table(traffic)
        if self._now() >= self._next_counters:
            self.count()
        for pool in self._previews if self._session.epoch else ():
            pool.observe(self._now())

    def _look_at_table(self, traffic: TrafficDriver) -> None:
        """Observe load balancers alone."""
        self._table, self.table_at = traffic.observe(), self._now()

    def note_balanced(self) -> None:
        """Note that the load balancers show now what was decided by the last look at them.

        Was that a while ago, one may have returned to an older state in between, and have sent
        requests to what drains until now: those have their time from here.
        """
        if self._now() - self.table_at > timing.RECENT:
            self._out.clear()

    def observe_partly(self) -> list[str]:
        """Observe what can be observed now; return why the rest cannot be.

        Without an answer of the load balancers, no instance is in rotation.
        """
        problems = []
        try:
            self.sync()
        except TRANSIENT as exc:
            self._reports = (
                t.cast("Sequence[Report]", exc.seen) if isinstance(exc, PlatformError) else ()
            )
            self._unseen = True
            self.unknown_hosts = exc.hosts if isinstance(exc, PlatformError) else ()
            problems.append(str(exc))
        try:
            self._table = self._traffic.observe() if self._traffic else None
            self.table_at = self._now()
            self.count()
        except TRANSIENT as exc:
            self._table = {}
            problems.append(str(exc))
        self.assemble()
        return problems

    def observe_unchecked(self) -> Snapshot:
        """Observe platform and load balancers alone, without the instances' checks."""
        self.sync()
        if self._traffic:
            self._again_if_late(partial(self._look_at_table, self._traffic))
        return Snapshot(self.reports, self._table, at=self._now())

    def refresh(self) -> None:
        """Let the next observation include every host, however recent the last look was."""
        self.looked.clear()
        self.next_platform = float("-inf")

    def catch_up(self) -> bool:
        """Let the next observation include the hosts that were not looked at lately, or do not
        answer; return whether there are any of the former.
        """
        since, late = self._now() - self._pause, len(self.looked)
        self.looked = {host: at for host, at in self.looked.items() if at >= since}
        self.next_platform = float("-inf")
        return len(self.looked) < late

    def sync(
        self, start: Sequence[Labels] = (), stop: Sequence[str] = (), forget: Sequence[str] = ()
    ) -> None:
        """Have the platform do this work, or look at all hosts, and take its reports."""
        if self._session.record.adopted and (start or stop or forget):
            start, stop, forget = self.adopted.sync(start, stop, forget)
            if not (start or stop or forget):
                return
        homes = {report.labels.id: report.labels.host for report in self.reports}
        busy = {labels.host for labels in start} | {homes.get(n, "") for n in (*stop, *forget)}
        began = self._now()
        self._take(partial(self._platform.sync, start, stop, forget), busy)
        if not busy:
            self._took(began, self._platform.hosts())

    def _look(self) -> None:
        """Look at the hosts that are due, and at once at those with a check that begins to fail."""
        began = self._now()
        if began >= self.next_platform:
            hosts = self._due(began)
            self._take(partial(self._platform.look, hosts), hosts)
            self._took(began, hosts)
            return
        alarmed = {h for h, at in self._failing().items() if at > self.looked.get(h, at)}
        if alarmed or self._platform.changed():
            self._take(partial(self._platform.look, alarmed), alarmed)

    def _take(self, ask: Callable[[], Sequence[Report]], hosts: Collection[str]) -> None:
        """Take the reports of the platform after a look at these hosts."""
        record = self._session.record
        began, unreachable = self._now(), set(record.away)
        try:
            self._reports = ask()
        finally:
            record.away = dict(self._platform.away)
        self.looked |= dict.fromkeys(hosts, began)
        self._answered |= set(hosts) - record.away.keys()
        for host in sorted(set(record.away) - unreachable):
            known = "its last known state is used until it does [PR-221]"
            self._print(f"{record.service}: {host} does not answer; {known}")

    def _took(self, began: float, hosts: Collection[str]) -> None:
        """Set when to look again, after looks at these hosts."""
        # unreachable hosts make observing slow, which must not make it rare
        if hosts and not self._session.record.away:
            self._pause = timing.platform_pause(self._now() - began)
        self.looked |= dict.fromkeys(hosts, began)
        self.next_platform = self._now() + self._pause

    def _due(self, now: float) -> Sequence[str]:
        """Return the hosts to look at now."""
        hosts = self._platform.hosts()
        if not self.looked:
            return hosts
        from ...engine import looks  # a run with nothing to do looks once

        moving = {
            report.labels.host
            for report in self.reports
            if looks.is_moving(
                report.process, self._checker.health(report.labels.id).health, report.health
            )
        }
        failing, away, never = self._failing(), self._session.record.away, float("-inf")
        views = {
            host: looks.HostView(
                self.looked.get(host, never), host in away, host in moving, failing.get(host, never)
            )
            for host in hosts
        }
        return looks.hosts_to_look_at(views, self._pause, now)

    def _failing(self) -> dict[str, float]:
        """Return the hosts where a check fails, and since when the one that began last."""
        failing: dict[str, float] = {}
        for report in self.reports:
            status = self._checker.health(report.labels.id)
            if status.health is Health.FAILING:
                host = report.labels.host
                failing[host] = max(failing.get(host, status.since), status.since)
        return failing

    def living(self) -> list[Labels]:
        """Return the labels of the instances that have not ended."""
        return [
            r.labels for r in self.reports if r.process not in (Process.STOPPED, Process.FAILED)
        ]

    def count(self) -> None:
        """Add up what the load balancers have counted."""
        self._next_counters = self._now() + timing.COUNTERS
        table, living = self._table or {}, self.living()
        rollout = self._session.record.open
        if table and not self._counting:
            self._counting = True
            if rollout and rollout.counted:
                self.between = Counters(counters.load(rollout.counted))
                self.between.take(table, living)
            if rollout:
                first = {(name, rollout.generation): at for name, at in rollout.served.items()}
                self.counters.first.update(first)
        self.counters.take(table, living, self._now())
        if rollout and self._counting:
            self._keep_served(rollout)

    def cut(self) -> None:
        """Read the counters, since the share of the requests changes now."""
        self.count()
        self.counters.cut()

    def requests(self) -> tuple[int, int]:
        """Return the requests sent to the new generation and to all, since this step observes.

        All are those of the whole, also to what is no instance of the service.
        """
        self.count()
        served = self.counters.served.values()
        new = sum(s.requests for s in served if s.generation == self.generation)
        return new, sum(s.requests for s in served) + self.counters.beside

    def never_ready(self) -> set[str]:
        """Return the instances that no check has ever passed, also before their host was silent, or
        none since tasks deployed them in place.

        What was there before this step may have been ready then: where a check fails it, as far as
        the journal does not have which ones were, and on a silent host always.
        """
        states = (State.STARTING, *((State.NOT_READY,) if self._since else ()))
        unproven = {
            i.id
            for i in self.snapshot.fleet
            if i.state in states
            or (i.state is State.UNREACHABLE and i.id not in (self._known or ()))
        }
        return (unproven - self._ready - self._serving_before()) | self.returning

    def unborn(self) -> set[str]:
        """Return the instances that the platform was to start and that have never been ready, as
        far as is known: no rollout has put them in rotation.
        """
        if not self._platform.capabilities.starts_instances:
            return set()
        known = self._ready | self._serving_before()
        return {report.labels.id for report in self.reports} - known

    def contradicted(self) -> set[str]:
        """Return the instances that our checks fail, and have not passed as far as is known, while
        one load balancer sends them requests and another one does not: the former may have returned
        to an older state, in which an earlier instance had the endpoint.
        """
        suspects = {
            i.id: i.state
            for i in self.snapshot.fleet
            if i.rotation is Rotation.PARTIAL and i.state in (State.NOT_READY, State.DRAINING)
        }
        if not suspects:
            return set()
        running = {r.labels.id for r in self.reports if r.process is Process.RUNNING}
        bad = (Health.PENDING, Health.FAILING)
        failing = {
            id
            for id, state in suspects.items()
            if state is State.NOT_READY
            or (id in running and self._checker.health(id).health in bad)
        }
        return failing - self._ready

    def orphaned_entries(self) -> bool:
        """Return whether a load balancer has a managed entry without an instance, as last observed.

        A command that came late, or whose run was killed, may leave one. An entry that only
        finishes its requests is not counted.
        """
        living = {labels.endpoint for labels in self.living()}
        entries = [
            item
            for servers in (self._table or {}).values()
            for item in servers.items()
            if item[0] not in living
        ]
        entries += [
            item
            for pool in self._previews
            for servers in pool.table.values()
            for item in servers.items()
        ]
        return any(
            server.ours and (server.rotation is Rotation.IN or not server.active)
            for _endpoint, server in entries
        )

    def assemble(self) -> Snapshot:
        """Make a snapshot of what was observed, with what the journal says now."""
        self._watch()
        now, previews = self._now(), [pool.table for pool in self._previews]
        self._silent = {
            report.labels.id: self._silent.get(report.labels.id, now)
            for report in self.reports
            if report.process is Process.UNREACHABLE
        }
        draining = {name: self._out.get(name, now) for name in self._session.record.draining}
        fleet = fleets.assemble(
            self.reports,
            self._table if self._traffic else None,
            {report.labels.id: self._checker.health(report.labels.id) for report in self.reports},
            draining,
            self._serving_before(),
            previews=[servers for table in previews for servers in table.values()],
            seen_ready=self._ready,
            crashes=self._crashes(),
            silent=self._silent,
            unready=self._unready,
            targets=self._targets,
            unborn=self.unborn(),
            fixed=bool(self._traffic and self._traffic.fixed),
            parked=self._parked_since(now),
        )
        self._parked = {i.id: i.parked_since for i in fleet if i.parked_since is not None}
        ready = {i.id: i.ready_since for i in fleet if i.ready_since is not None}
        unready = {i.id for i in fleet if i.state in UNREADY and i.host in self._answered}
        self._unready = (self._unready | unready) - ready.keys()
        self.returning -= ready.keys()
        self._answered.clear()
        self._ready = {i.id for i in fleet if i.id in ready or i.id in self._ready} - self.returning
        self._keep_ready(dict.fromkeys(self._ready, now) | ready)
        # Requests in flight have their time from when the instance is out of rotation.
        self._out = {i.id: draining[i.id] for i in fleet if i.id in draining and not i.in_rotation}
        table = self._table if self._traffic else None
        beside = self._unmanaged(table or {}, ready)
        self.snapshot = Snapshot(self.reports, table, previews, fleet, now, beside)
        return self.snapshot

    def _unmanaged(self, table: Table, ready: Collection[str]) -> Unmanaged:
        """Return what gets requests beside the instances; nothing where these are not known."""
        if self._traffic is None or self._unseen:
            return NOTHING
        unborn, pool = self.unborn().difference(ready), self._traffic.pool_name
        return fleets.unmanaged(table, self.reports, pool, unborn)

    def _parked_since(self, now: float) -> Mapping[str, float] | None:
        """Return since when instances are parked, if they are; None: no load balancer parks any."""
        if self._traffic is None or not self._traffic.binds:
            return None
        return {r.labels.id: self._parked.get(r.labels.id, now) for r in self.reports}

    def _watch(self) -> None:
        """Have the instances checked."""
        first = self._known is None
        if self._known is None:
            self._known = {report.labels.id for report in self.reports}
            rollout = self._session.record.open
            self._since = dict(rollout.ready) if rollout else {}
            self._ready = self._known & self._since.keys()
        known, since = self._known, self._since
        asked = [report for report in self.reports if report.process in WATCHED]
        checks = {r.labels.id: self._check_of(r.labels.generation) for r in asked}
        self._checker.watch(
            {
                r.labels.id: (
                    r.labels.endpoint,
                    r.labels.host,
                    r.labels.id in known,
                    max(r.created, since.get(r.labels.id, r.created)),
                )
                for r in asked
                if r.labels.endpoint.known or not checks[r.labels.id].enabled
            },
            checks,
        )
        late = self._now() - self.snapshot.at > timing.LATE
        if late and not first:  # the process was frozen, or waited for long
            self._checker.renew()
        if late or first:
            self._settle()

    def _settle(self) -> None:
        """Wait until each instance was checked once, so that none is shown as starting that is
        ready, or taken for ready that was so a while ago.

        The answer of a gate, which would end the wait, is taken up after it.
        """
        end = clock.monotonic() + timing.FIRST_CHECKS
        while not self._checker.settle(end - clock.monotonic()):
            if self._stopped() or clock.monotonic() >= end:
                break

    def _keep_ready(self, ready: Mapping[str, float]) -> None:
        """Keep for the next step since when instances are ready, or could be that were before; not
        of too many.
        """
        if rollout := self._session.record.open:
            rollout.ready = dict(ready) if len(ready) <= counters.MOST else {}

    def _keep_served(self, rollout: Rollout) -> None:
        """Keep since when new instances have requests for the next step; not of too many."""
        served = {
            name: at
            for (name, generation), at in self.counters.first.items()
            if generation == rollout.generation
        }
        rollout.served = served if len(served) <= counters.MOST else {}

    def _serving_before(self) -> set[str]:
        """Return the instances that may be serving although no check has passed yet.

        A new instance of a killed run is still starting; an old one serves until its checks fail.
        """
        old = {r.labels.id for r in self.reports if r.labels.generation != self.generation}
        return old & (self._known or set())

    def _crashes(self) -> set[str]:
        """Return the instances of the rollout in progress that ended while they were new."""
        rollout = self._session.record.open
        return fleets.crashed(self.reports, rollout.started, self._watch_new) if rollout else set()
