# SPDX-License-Identifier: GPL-3.0-or-later
"""The reconcile loop of one service: observes, records and moves its fleet."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property

from ...analysis.counters import Counters
from ...base import clock
from ...base.errors import TRANSIENT, InputError, RolloutError, RolloutFailed, StoreError
from ...base.text import span
from ...config.settings import Settings
from ...engine.budget import PerHost, up
from ...engine.evaluate import Decision, evaluate
from ...engine.model import Composition, Instance, Phase, Rotation, State
from ...engine.progress import ProgressTracker, Rules
from ...engine.strategy import Stage, Waypoint
from ...engine.targets import divide
from ...engine.unmanaged import Unmanaged
from ...health.monitor import HealthMonitor
from ...interfaces.context import DriverContext
from ...interfaces.platform import Report
from ...interfaces.traffic import Table
from ...state import events
from ...state.events import Event
from ...state.lease import Session
from ...state.record import Rollout
from . import timing
from .checks import Checks
from .interrupt import Guard
from .observer import Observer, Snapshot
from .recorder import Recorder

if t.TYPE_CHECKING:
    from ...engine.shares import Target
    from ...engine.zones import ZoneFloor
    from ...report.progress import Lines
    from .actuator import Actuator
    from .autoscaling import Autoscaling
    from .gate_runner import GateRunner
    from .placement import Placement
    from .preview import PreviewPool


class ReconcileLoop:
    """Drives the fleet of one service from stage to stage."""

    def __init__(
        self,
        settings: Settings,
        context: DriverContext,
        session: Session,
        guard: Guard,
        checker: HealthMonitor,
        print_line: Callable[[str], None],
        *,
        now: Callable[[], float] = clock.now,
    ) -> None:
        self.settings = settings
        self.session = session
        self.guard = guard
        self.checker = checker
        self.print_line = print_line
        self.now = now
        self.balanced = settings.traffic.name != "none"
        self.recorder = Recorder(session, self.balanced, self._counted)
        counters = Counters()
        self.context = replace(context, known=session.known, counters=counters)
        if settings.autoscaler:
            self.context = replace(self.context, autoscaler=self.autoscaling.managed)
        context = self.context
        self.platform = settings.platform.make(context)
        self.traffic = settings.traffic.make(context)
        self.targets = self._targets()
        self.rules = self._rules()
        self.previews = self._previews()
        self.checks = Checks(settings, context, session, self.platform)
        self.background: GateRunner | None = None  # the same in all stages
        self.reported: set[str] = set()  # stable instances whose failure was reported
        self.last_error: RolloutError | None = None  # that the last iteration ended with
        self._reported = ""  # as last written
        self._failing_since = self._next_report = 0.0  # since when, and when to write it again
        self.observer = Observer(
            self.platform,
            self.traffic if self.balanced else None,
            self.previews,
            session=session,
            counters=counters,
            checker=checker,
            watch_new=self.rules.watch_new,
            check_of=self.checks.of,
            targets=self.targets,
            print_line=print_line,
            now=now,
            stopped=lambda: bool(guard.stopped),
        )

    def _targets(self) -> tuple[Target, ...]:
        plan, platform, traffic = self.settings.asked, self.platform, self.traffic
        if not (plan.waves or platform.clusters or traffic.clusters or traffic.of_cluster):
            return ()
        from .regions import targets_of  # few services have any

        return targets_of(plan, platform, traffic, self.context.transport)

    def _previews(self) -> list[PreviewPool]:
        pools = self.traffic.previews()
        if not pools:
            return []
        from .preview import PreviewPool  # few services have any

        return [PreviewPool(pool.traffic, pool.idle_only) for pool in pools]

    @cached_property
    def autoscaling(self) -> Autoscaling:
        """Manages the autoscaler of the service, if it has one."""
        from .autoscaling import Autoscaling  # few services have one

        return Autoscaling(
            self.settings, self.context, self.session, self.recorder, self.print_line, self.now
        )

    @property
    def has_autoscaler(self) -> bool:
        """Whether there is an autoscaler, or one to put back."""
        return bool(self.settings.autoscaler or self.session.record.autoscaler)

    @cached_property
    def placement(self) -> Placement:
        """Finds places for the instances to start."""
        from .placement import Placement  # many steps only look

        return Placement(self.platform, self.observer, self.session, self.settings.budget)

    @cached_property
    def actuator(self) -> Actuator:
        """Carries decisions out."""
        from .actuator import Actuator  # as above

        return Actuator(
            self.traffic,
            self.previews,
            observer=self.observer,
            recorder=self.recorder,
            session=self.session,
            checker=self.checker,
            now=self.now,
            leaving=self.platform.leaving,
            regions=self.targets,
        )

    @property
    def fleet(self) -> Sequence[Instance]:
        """The fleet as last observed."""
        return self.observer.snapshot.fleet

    @property
    def reports(self) -> Sequence[Report]:
        """The latest reports of the platform."""
        return self.observer.reports

    @property
    def table(self) -> Table | None:
        """The load balancers' entries, as last observed; None: there are no load balancers."""
        return self.observer.snapshot.table

    @property
    def unmanaged(self) -> Unmanaged:
        """What gets requests beside the instances, as last observed."""
        return self.observer.snapshot.unmanaged

    @property
    def changed(self) -> bool:
        """Whether anything outside was changed."""
        return "actuator" in self.__dict__ and self.actuator.changed

    def observe(self) -> Snapshot:
        """Observe the service, and note what has changed."""
        snapshot = self.observer.observe()
        if self._drain_excluded(snapshot.fleet):
            snapshot = self.observer.assemble()
        self.recorder.note_fleet(snapshot.fleet, snapshot.unmanaged)
        self.recorder.note_requests()
        return snapshot

    def _drain_excluded(self, fleet: Sequence[Instance]) -> bool:
        """Drain what is on hosts that are left out of the rollout; return whether that is new."""
        rollout = self.session.record.open
        if not rollout or not rollout.excluded:
            return False
        from ...engine.exclusion import leaving  # few rollouts leave hosts out

        ids = leaving(fleet, rollout.excluded)
        self.session.record.draining.update(dict.fromkeys(ids, self.now()))
        return bool(ids)

    def divided(self, waypoint: Waypoint) -> Waypoint:
        """Return the waypoint with a part for each target, where there are any."""
        return divide(waypoint, self.targets)

    @property
    def per_host(self) -> bool:
        """Whether there is to be one instance on each host."""
        rollout = self.session.record.open
        return rollout.per_host if rollout else isinstance(self.settings.replicas, PerHost)

    @property
    def hosts(self) -> Sequence[str]:
        """The hosts that are not left out of the rollout in progress."""
        rollout = self.session.record.open
        excluded = rollout.excluded if rollout else ()
        return [host for host in self.platform.hosts() if host not in excluded]

    def fitted(self, waypoint: Waypoint) -> Waypoint:
        """Return the waypoint for as many instances as the platform has, where it fills places, or
        for one a host.
        """
        if self.per_host:
            from ...engine import per_host  # few services have one instance a host

            return per_host.fitted(waypoint, len(self.hosts))
        places = self.platform.replicas() if self.platform.capabilities.refills_places else None
        if not places:
            return waypoint
        from ...engine import refill  # few platforms fill places

        return refill.fitted(waypoint, places)

    def refill(
        self, fleet: Sequence[Instance], waypoint: Waypoint, revision: str, rollout: Rollout
    ) -> None:
        """Tell a platform that fills places itself of which revision the next instances are."""
        if not self.platform.capabilities.refills_places:
            return
        from ...engine import refill  # as above

        generation = refill.next_generation(fleet, waypoint)
        stable = rollout.previous if generation == waypoint.stable else None
        self.platform.refill(stable.revision if stable else revision, generation)

    def refill_with(self, stable: Composition) -> None:
        """Have the places that become free while nothing moves filled with stable instances."""
        if self.platform.capabilities.refills_places:
            self.platform.refill(stable.revision, stable.generation)

    def observe_fleet(self) -> Sequence[Instance]:
        """Return the fleet as it is now."""
        return self.observe().fleet

    def await_fleet(self) -> None:
        """Observe the service; what does not answer is waited for, up to the progress deadline."""
        from ...report.progress import Lines  # of steps that move the fleet

        lines, began = Lines(self.print_line, self.settings.service, self.now()), self.now()
        while True:
            self.guard.check()
            try:
                self.observe()
                return
            except TRANSIENT as exc:
                self.wait_out(exc, began, lines)

    def observe_partly(self) -> list[str]:
        """Observe what can be observed now; return why the rest cannot be."""
        problems = self.observer.observe_partly()
        self.recorder.note_fleet(self.fleet, self.unmanaged)
        return problems

    def refresh(self) -> None:
        """Let the next observation include the platform, since the journal has changed."""
        self.observer.refresh()

    def has_orphaned_entries(self) -> bool:
        """Return whether a load balancer has entries of no instance, as last observed."""
        return self.observer.orphaned_entries()

    def out_of_rotation(self, revision: str | None) -> list[Instance]:
        """Return the ready instances of a revision (None: any) out of rotation anywhere."""
        ready = [
            i
            for i in self.observe_fleet()
            if i.state is State.READY and i.rotation is not Rotation.IN
        ]
        return [i for i in ready if revision in (None, i.revision)]

    def wait_out(self, exc: RolloutError, since: float, lines: Lines) -> None:
        """Wait before retrying after an error, up to the progress deadline from `since`."""
        if self.now() - since > self.rules.progress_deadline:
            deadline = f"rollout_progress_deadline ({self.rules.progress_deadline:g} s)"
            raise RolloutFailed(f"no progress within {deadline}: {exc}", exc.id) from None
        self.last_error = exc
        self._report_error(exc, self.recorder.note_error(str(exc)), lines)
        self.refresh()
        if self.session.due and not isinstance(exc, StoreError):
            with suppress(StoreError):  # the next iteration reports it, if it stays
                self.commit()  # ends the wait if the lease is lost
        self.checker.wait(timing.RETRY)

    def note_success(self) -> None:
        """Forget the error of earlier iterations."""
        self.last_error = None
        self.recorder.note_success()

    def _report_error(self, exc: RolloutError, new: bool, lines: Lines) -> None:
        """Write that something is tried again: at first, and then each minute."""
        now = self.now()
        text = f"retrying: {exc} [{exc.id}]"
        self._failing_since = now if new else self._failing_since
        if text == self._reported and now < self._next_report:
            return
        waited = now - self._failing_since
        lines.note(f"{text} (for {span(waited)})" if waited >= timing.HEARTBEAT else text)
        self._reported = text
        self._next_report = now + timing.HEARTBEAT

    def event(self, event: Event) -> None:
        """Add an event to the timeline, with the next commit."""
        self.recorder.event(event)

    def commit(self) -> None:
        """Write the record and the events, and renew the lease."""
        self.recorder.commit()

    def rules_for(self, stage: Stage, rollout: Rollout) -> Rules:
        """Return the rules with the failure limits of the stage and of the whole rollout."""
        total = None if rollout.phase == Phase.ROLLING_BACK else self.settings.failure_total
        most = None if total is None else max(1, up(total, rollout.replicas))
        return replace(self.placed_rules, stage_limit=stage.failure_limit, total_limit=most)

    @property
    def placed_rules(self) -> Rules:
        """The rules, with those for one instance on each host where that is asked for."""
        if not self.per_host:
            return self.rules
        from ...engine.per_host import OnePerHost  # as above

        return replace(self.rules, one_per_host=OnePerHost(self.platform.zones))

    def with_leaving(self, snapshot: Snapshot, waypoint: Waypoint) -> Snapshot:
        """Return the snapshot with the instances that leave crowded hosts for this waypoint."""
        return self.placement.with_leaving(snapshot, waypoint) if waypoint.rebalance else snapshot

    def next_decision(self, waypoint: Waypoint) -> Decision:
        """Return what the next iteration on the way to a waypoint would do. Changes nothing."""
        waypoint = self.fitted(self.divided(waypoint))
        snapshot = self.with_leaving(self.observe(), waypoint)
        progress = ProgressTracker(since=self.now())
        fleet = snapshot.fleet
        if snapshot.leaving:
            from ...engine.rebalance import mark_leaving  # few runs rebalance

            fleet = mark_leaving(fleet, snapshot.leaving)
        rules, budget = self.placed_rules, self.settings.budget
        return evaluate(fleet, waypoint, budget, rules, progress, self.now())

    def turn_back(self) -> None:
        """Get ready for a rollback: stop the background gates, and observe what is there now.

        What does not answer is waited for. The last observation may be older than the last action.
        """
        if self.background:
            self.background.close()
            self.background = None
        self.traffic.begin(False)
        self.await_fleet()

    def tidy(self) -> None:
        """Remove what is left of dead instances as last observed, where their hosts answer."""
        with suppress(*TRANSIENT):
            self.actuator.forget_dead(self.observer.snapshot)

    def until(self, activity: str, iterate: Callable[[], str], seconds: float) -> str:
        """Iterate until nothing is left, or these seconds are over; return what is left.

        An activity that takes long is shown, with what is left: at first soon, then each minute.
        """
        began, backoff, before = self.now(), timing.Backoff(), ""
        next_line = began + timing.HINTS
        while True:
            self.guard.check()
            left, now = iterate(), self.now()
            if not left or now > began + seconds:
                return left
            if now >= next_line:
                next_line = now + timing.HEARTBEAT
                times = f"for {span(now - began)}, at most {span(seconds)}"
                self.print_line(f"{self.settings.service} {activity} ({times}): {left}")
            if left != before:
                backoff.reset()
            before = left
            self.checker.wait(backoff.pause())

    def show(self, line: str) -> None:
        """Write a line for people, here and for those who follow the rollout."""
        self.print_line(line)
        self.event(events.LineShown(text=line))

    def close(self) -> None:
        """Ask gates nothing any more, and observe nothing in the background."""
        if self.background:
            self.background.close()
        self.platform.close()
        self.traffic.close()

    def _counted(self, fresh: bool) -> tuple[Counters, Counters]:
        """Return what was counted in this step, and between the step before and this one."""
        if fresh:
            self.observer.count()
        return self.observer.counters, self.observer.between

    def _rules(self) -> Rules:
        """Return the rules with the traffic driver's times; raises InputError if they conflict."""
        rules, drain = self.settings.rules, self.traffic.drain_timeout
        if drain >= rules.progress_deadline:
            raise InputError(
                f"rollout_traffic.drain_timeout: {drain:g} s is not shorter than"
                f" rollout_progress_deadline ({rules.progress_deadline:g} s), so a drain would fail"
                " the rollout; raise the deadline",
                "PR-104",
            )
        rules = replace(rules, drain_timeout=drain, settle=self.traffic.settle_time)
        most = self.settings.budget.max_unavailable_per_zone
        return rules if most is None else replace(rules, zone_floor=self._zone_floor(most))

    def _zone_floor(self, most: int) -> ZoneFloor:
        """Return how many instances each zone keeps; raises InputError without zones."""
        from ...engine.zones import ZoneFloor  # few services have zones

        if not self.platform.zones:
            raise InputError(
                "rollout_budget.max_unavailable_per_zone: the platform knows no zones; set"
                " rollout_platform.zone to a host variable (drivers docker, podman, process and"
                " systemd), or remove it",
                "PR-107",
            )
        return ZoneFloor(self.platform.zones, most)
