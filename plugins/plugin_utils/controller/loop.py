# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The loop: observe, evaluate, act, record, until the waypoint is reached. It decides nothing; the engine does."""

from __future__ import annotations

import time
import typing as t
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from ansible_collections.progressive.rollout.plugins.plugin_utils.analysis.counters import Counters
from ansible_collections.progressive.rollout.plugins.plugin_utils.base import clock, trace
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    InputError,
    PlatformError,
    RolloutFailed,
    StoreError,
    TrafficError,
    TransportError,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.config.settings import Settings
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller import fleet as fleets
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.gate_runner import GateRunner
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.interrupt import Guard
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.preview import PreviewPool
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.supervisor import Proceed, Supervisor
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.budget import Budget, up
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.evaluate import Decision, evaluate
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.instances import can_admit, can_stop
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import (
    Composition,
    Instance,
    Phase,
    Process,
    Rotation,
    State,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.progress import ProgressTracker, Rules
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.rebalance import LEAVING, instances_to_move, mark_leaving
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import Stage, Waypoint
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.weights import WeightSplit
from ansible_collections.progressive.rollout.plugins.plugin_utils.health.monitor import HealthMonitor
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import Context
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import Endpoint, Labels, Report
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.traffic import Table
from ansible_collections.progressive.rollout.plugins.plugin_utils.report.progress import Lines
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.lease import Session
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.record import Rollout, plain

LOOK = (1.0, 30.0)  # seconds between two looks at the whole platform, at least and at most
LOOKING = 0.05  # the part of the time that such looks may take; checks tell the urgent things sooner
SETTLE = 10.0  # seconds the first look waits for every check to have an outcome
POLL = (0.015, 0.5)  # seconds between two looks at what is pending at the load balancers, at first and in the long run
COUNT = 0.5  # seconds between two looks at what balancers have counted, at least
WAITING = 0.5  # seconds between two looks where only gates are waited for
PAUSE = 0.5  # seconds before something that failed is tried again
ATTEND = 0.3  # seconds between two looks at the load balancers while others work on hosts that were taken out
GONE = "gone"  # in the timeline, of an instance nothing is left of
Decide = Callable[[Sequence[Instance], Waypoint, Budget, Rules, ProgressTracker, float], Decision]  # as `evaluate`
TROUBLE = (PlatformError, TrafficError, TransportError, StoreError)  # may pass: nothing is done until it has


class ReconcileLoop:
    """Drives the fleet of one service."""

    def __init__(
        self,
        settings: Settings,
        context: Context,
        session: Session,
        guard: Guard,
        checker: HealthMonitor,
        say: Callable[[str], None],
    ) -> None:
        self.settings = settings
        self.context = context
        self.session = session
        self.guard = guard
        self.checker = checker
        self.say = say
        self.platform = settings.platform.make(context)
        self.traffic = settings.traffic.make(context)
        self.windows = [PreviewPool(preview.traffic, preview.idle_only) for preview in self.traffic.previews()]
        self.balanced = settings.traffic.name != "none"
        if self.traffic.drain_timeout >= settings.rules.progress_deadline:
            raise InputError(
                f"rollout_traffic.drain_timeout: {self.traffic.drain_timeout:g} s is not shorter than rollout_progress_deadline "
                f"({settings.rules.progress_deadline:g} s): a drain would fail the rollout; raise the deadline"
            )
        self.rules = replace(
            settings.rules,
            drain_timeout=self.traffic.drain_timeout,
            settle=self.traffic.settle_time,
        )
        self.reports: Sequence[Report] = ()
        self.table: Table | None = None
        self.fleet: list[Instance] = []
        self.acted = False  # whether anything was changed outside
        self._doing: tuple[tuple[str, ...], ...] = ()  # what was last decided about those that are there
        self._target: int | None = None  # the generation that is walked to
        self._leaving: frozenset[str] | None = None  # those that leave crowded hosts; None: none is to
        self._split: WeightSplit | None = None  # how requests are divided on this walk; None: weights stay as they are
        self.counters = Counters()
        context.served = lambda: self.counters.served
        self._next_count = 0.0
        self._background: GateRunner | None = None  # of the rollout that is walked: what it measures goes on from stage to stage
        self._counted: tuple[int, int] | None = None  # requests to new and to all instances, when they were last added up
        self._known: set[str] | None = None  # instances that were there before this step
        self._out: dict[str, float] = {}  # draining instances, since when they were seen out of rotation
        self._seen_ready: set[str] = set()  # instances that were ready once
        self._mourned: set[str] = set()  # stable instances whose failure was told
        self._untidy = 0.0  # since when balancers keep entries of instances that are gone, while all else is done
        self._patience = POLL[0]
        self._next_look, self._pause = 0.0, LOOK[0]
        self._states: dict[str, str] = {}  # as last written to the timeline
        self._shares: dict[str, float] | None = None  # likewise
        self._reasons: Sequence[str] = ()  # of the last turn
        self._troubled = False
        self._events: list[dict[str, t.Any]] = []

    # -- observe ------------------------------------------------------------------------------------------------

    def look(self) -> list[Instance]:
        """The fleet as it is now. The first look waits until every instance was asked once by its check."""
        self.context.epoch = self.session.epoch  # a look under a lease fences all that older ones have still under way
        if time.monotonic() >= self._next_look:
            self._sync()
        if self.balanced:
            self.table = self.traffic.observe()
            if time.monotonic() >= self._next_count:
                self._take()
        for window in self.windows if self.session.epoch else ():
            window.look()
        return self._assemble()

    def glance(self) -> list[str]:
        """As `look`, for people who want to know how things stand now: what cannot be looked at is returned, and not waited for.

        While a load balancer does not say, no instance is in rotation anywhere.
        """
        troubles = []
        try:
            self._sync()
        except TROUBLE as exc:
            self.reports = t.cast("Sequence[Report]", exc.seen) if isinstance(exc, PlatformError) else ()
            troubles.append(str(exc))
        if self.balanced:
            try:
                self.table = self.traffic.observe()
                self._take()
            except TROUBLE as exc:
                self.table = {}
                troubles.append(str(exc))
        self._assemble()
        return troubles

    def _take(self) -> None:
        """What the load balancers have counted."""
        self._next_count = time.monotonic() + COUNT
        self.counters.take(self.table or {}, self._living())

    def _sync(self, start: Sequence[Labels] = (), stop: Sequence[str] = (), forget: Sequence[str] = ()) -> None:
        record = self.session.record
        self.context.deployed, self.context.away = record.deployed, record.away
        self.context.settings = record.settings
        began, away = time.monotonic(), set(record.away)
        self.reports = self.platform.sync(start, stop, forget)
        for host in sorted(set(record.away) - away):
            self.say(f"{record.service}: {host} does not answer; what was last seen there counts until it does")
        if not (start or stop or forget):
            if not record.away:  # who does not answer makes looks slow, and is not to make them rare
                self._pause = pause_after(time.monotonic() - began)
            self._next_look = time.monotonic() + self._pause

    def _living(self) -> list[Labels]:
        return [report.labels for report in self.reports if report.process not in (Process.STOPPED, Process.FAILED)]

    def refresh(self) -> None:
        """Look at the platform anew at the next look, whenever the last one was: the journal says something else now."""
        self._next_look = 0.0

    def _assemble(self) -> list[Instance]:
        if self._known is None and self.session.epoch:
            self._recall()
        self._watch()
        now = clock.now()
        vitals = {report.labels.id: self.checker.health(report.labels.id) for report in self.reports}
        going = {name: self._out.get(name, now) for name in self.session.record.draining}
        # A new one that was begun by a run that died goes on starting; an old one serves until shown otherwise.
        known = {r.labels.id for r in self.reports if r.labels.generation != self._target} & (self._known or set())
        table = self.table if self.balanced else None
        pools = [servers for window in self.windows for servers in window.table.values()]
        self.fleet = fleets.assemble(self.reports, table, vitals, going, known, pools, self._seen_ready, self._crashes())
        self._seen_ready = {i.id for i in self.fleet if i.state is State.READY or i.id in self._seen_ready}
        # Requests in flight have their time from when it is seen out of rotation, not from when that was decided.
        self._out = {i.id: going[i.id] for i in self.fleet if i.id in going and not i.in_rotation}
        self._note_states()
        return self.fleet

    def _crashes(self) -> set[str]:
        """Those of the rollout under way that broke while they were new."""
        rollout = self.session.record.open
        return fleets.crashed(self.reports, rollout.started, self.rules.watch_new) if rollout else set()

    def _watch(self) -> None:
        first = self._known is None
        if self._known is None:
            self._known = {report.labels.id for report in self.reports}
        alive = [report for report in self.reports if report.process in (Process.STARTING, Process.RUNNING, Process.UNKNOWN)]
        self.checker.watch(
            {r.labels.id: (r.labels.endpoint, r.labels.host, r.labels.id in self._known, r.created) for r in alive}
        )
        if first:
            self.checker.settle(SETTLE)

    def close(self) -> None:
        """Ask nobody any more."""
        if self._background:
            self._background.close()

    # -- the walk -----------------------------------------------------------------------------------------------

    def walk(
        self,
        stage: Stage,
        revision: str,
        rollout: Rollout,
        described: Callable[[], Mapping[str, t.Any]],
        decide: Decide | None = None,
    ) -> Proceed:
        """Move the fleet to the stage's waypoint, whose new instances are of `revision`, and wait there until its gates let
        it pass; raises RolloutFailed with the reason where it does not come to that. `described` is the rollout as hooks get
        it. `decide` stands for `evaluate` where that is not how the fleet is to be moved; weights stay as they are then.
        """
        title = f"{self.settings.service} {rollout.revision if stage.waypoint.is_baseline else revision}"
        lines = Lines(self.say, title, clock.now() - rollout.elapsed)
        asks = (self.event, lines.tell, self.checker.wake, self._asked_along(stage, rollout))
        supervisor = Supervisor(stage, rollout, self.settings, self.session, self.context, *asks)
        self._aim(stage, rollout)
        if decide:
            self._split = None
        try:
            return self._walk(stage, revision, rollout, supervisor, lines, described, decide or evaluate)
        finally:
            supervisor.close()

    def bounds(self, stage: Stage, rollout: Rollout) -> Rules:
        """The rules, with what may fail at this stage, and in all."""
        total = None if rollout.phase == Phase.ROLLING_BACK else self.settings.failure_total
        most = None if total is None else max(1, up(total, rollout.replicas))
        return replace(self.rules, stage_limit=stage.failure_limit, total_limit=most)

    def turn(self, stage: Stage, revision: str, rollout: Rollout) -> None:
        """One turn of a walk to the stage, whose new instances are of `revision`, and no more; nothing is waited for."""
        self._aim(stage, rollout)
        now, waypoint = clock.now(), stage.waypoint
        decision = evaluate(self.look(), waypoint, self.settings.budget, self.rules, ProgressTracker(now), now)
        self._note(decision)
        self._act(decision, self._starts(decision, waypoint, revision, rollout))
        self._present()

    def _aim(self, stage: Stage, rollout: Rollout) -> None:
        """From now on this stage is walked to: requests are divided as it asks for, and its new ones shown."""
        self._target, self._counted, self._leaving = stage.waypoint.generation, None, None
        forward = rollout.phase != Phase.ROLLING_BACK and rollout.kind.forward and not stage.waypoint.is_baseline
        for window in self.windows:
            window.showing = forward and (stage.waypoint.new_idle or not window.dark)
        self._split = WeightSplit(stage.waypoint)

    def _asked_along(self, stage: Stage, rollout: Rollout) -> GateRunner:
        """The keeper of what is asked from stage to stage, where it is."""
        if not stage.watched or rollout.phase == Phase.ROLLING_BACK:
            return GateRunner((), self.context, {})
        if self._background is None:
            self._background = GateRunner(self.settings.plan.background, self.context, rollout.background, wake=self.checker.wake)
        return self._background

    def _walk(
        self,
        stage: Stage,
        revision: str,
        rollout: Rollout,
        supervisor: Supervisor,
        lines: Lines,
        described: Callable[[], Mapping[str, t.Any]],
        decide: Decide,
    ) -> Proceed:
        # Time in which nobody walked is no lack of progress.
        rollout.tally = replace(rollout.counting(0.0), since=clock.now())
        rules = self.bounds(stage, rollout)
        began, last, held = time.monotonic(), Decision(), None
        while True:
            self.guard.check()
            try:
                proceed = supervisor.proceed(described)
                if proceed in (Proceed.SKIP, Proceed.RENUMBER):
                    return proceed
                waypoint = goal(stage, rollout)
                if proceed is Proceed.HOLD:
                    held = waypoint = held or as_it_is(self.look(), waypoint, rollout.previous)
                else:
                    held = None
                decision = decide(self._look_at(waypoint), waypoint, self.settings.budget, rules, rollout.tally, clock.now())
                rollout.count(decision.progress)
                self._note(decision)
                if decision.stable_lost and proceed is Proceed.GO and supervisor.stable_lost() is Proceed.SKIP:
                    return Proceed.SKIP
                arrived = decision.reached and self._tidy()
                if decision.failed:
                    lines.show(self.fleet, waypoint, clock.now(), force=True)
                    self.commit()
                    raise RolloutFailed(decision.failed, decision.failed_id, then=decision.then or None)
                if arrived or (rollout.force and waypoint.new_idle):
                    if proceed is Proceed.GO:
                        self._count(rollout)
                        lines.show(self.fleet, waypoint, clock.now(), force=True)
                        if supervisor.passed(described):
                            if stage.waypoint.new:
                                self._tell_share(rollout, lines)
                            self.commit()
                            return proceed
                    # Waiting is no lack of progress.
                    rollout.tally = replace(rollout.tally, since=clock.now())
                    self._commit_due()
                    supervisor.park()
                if not waypoint.is_baseline:  # what makes room for a baseline is not replaced: the baseline is, later
                    rollout.replaced += len(decision.drain)
                self._tell_repair(decision, waypoint, lines)
                self._act(decision, self._starts(decision, waypoint, revision, rollout), undo=rollout.phase != Phase.ROLLING_BACK)
                self._present()
                self._troubled = False
            except TROUBLE as exc:
                self._trouble(exc, rollout.tally, lines)
                decision, arrived = Decision(), False
            if not arrived:
                lines.show(self.fleet, stage.waypoint, clock.now())
            rollout.elapsed, began = rollout.elapsed + (0.0 if arrived else time.monotonic() - began), time.monotonic()
            self._rest(decision, last, arrived)
            last = decision

    def attend(self) -> None:
        """Until the guard stops it: keep what was taken out of rotation there, also where a load balancer was reloaded and
        has forgotten it, and keep the lease. Decide nothing: the user's own tasks are at work."""
        self.context.epoch = self.session.epoch
        while not self.guard.stopped:
            try:
                self._sync()
                if self.balanced:
                    self.table = self.traffic.observe()
                self._tell_forgotten()
                self._act(Decision())
                self._troubled = False
            except TROUBLE as exc:
                if not self._troubled:
                    self.event("trouble", message=str(exc))
                self._troubled = True
            self.checker.wait(ATTEND)

    def _tell_forgotten(self) -> None:
        """Say which load balancers send requests to what was taken out."""
        out = {
            report.labels.endpoint: report.labels.host
            for report in self.reports
            if report.labels.id in self.session.record.draining
        }
        for balancer, servers in (self.table or {}).items():
            back = {host: None for at, host in out.items() if at in servers and servers[at].rotation is Rotation.IN}
            if back:
                told = f"load balancer {balancer} has forgotten what it was told: {', '.join(back)} taken out of rotation again"
                self.event("trouble", message=told)
                self.say(f"{self.settings.service}: {told}")

    def await_look(self) -> None:
        """The first look of a step that has to be done: who does not answer is waited for, up to the progress deadline."""
        lines, tally = Lines(self.say, self.settings.service, clock.now()), ProgressTracker(since=clock.now())
        while True:
            self.guard.check()
            try:
                self.look()
                return
            except TROUBLE as exc:
                self._trouble(exc, tally, lines)

    def foresee(self, waypoint: Waypoint) -> Decision:
        """What the next turn of a walk would do. Touches nothing."""
        return evaluate(
            self._look_at(waypoint), waypoint, self.settings.budget, self.rules, ProgressTracker(since=clock.now()), clock.now()
        )

    def _look_at(self, waypoint: Waypoint) -> list[Instance]:
        """The fleet as it is now; those that leave crowded hosts on the way to this waypoint are old ones."""
        fleet, self._leaving = self.look(), None
        if waypoint.rebalance:
            place = partial(self._next_hosts, waypoint.generation)
            self._leaving = instances_to_move(fleet, waypoint, place, self.platform.zones)
        return mark_leaving(fleet, self._leaving or ())

    def drain(self, ids: Sequence[str]) -> None:
        """Take these instances out at every load balancer, wait for their requests, stop them; raises RolloutFailed
        where that does not come to an end."""
        now, waited = clock.now(), time.monotonic() + self.rules.progress_deadline
        self.session.record.draining.update({name: now for name in ids if name not in self.session.record.draining})
        last = Decision()
        while True:
            self.guard.check()
            going = [i for i in self.look() if i.id in ids and i.state.counted]
            decision = Decision(retire=tuple(i.id for i in going if can_stop(i, self.rules, clock.now())))
            self._act(decision)
            if not going:
                return
            if time.monotonic() > waited:
                left = ", ".join(f"{instance.id} is {instance.state.value}" for instance in going)
                raise RolloutFailed(f"not within {self.rules.progress_deadline:g} s: {left}")
            self._rest(decision, last)
            last = decision

    def admit(self, revision: str | None) -> bool:
        """Put the ready instances of a revision in rotation, waiting for the balancers' own checks; whether any was out."""
        waited = time.monotonic() + self.rules.progress_deadline
        changed = False
        while True:
            self.guard.check()
            out = self.out_of_rotation(revision)
            if not out:
                return changed
            changed = True
            if time.monotonic() > waited:
                names = ", ".join(instance.id for instance in out)
                raise RolloutFailed(f"no load balancer's own check passed {names} within {self.rules.progress_deadline:g} s")
            decision = Decision(admit=tuple(i.id for i in out if can_admit(i)))
            self._act(decision)
            self._rest(decision, decision)

    def out_of_rotation(self, revision: str | None) -> list[Instance]:
        """The ready instances of a revision (None: of any) that some balancer sends nothing to."""
        fleet = self.look()
        return [i for i in fleet if i.state is State.READY and i.rotation is not Rotation.IN and revision in (None, i.revision)]

    def spare(self, generation: int) -> None:
        """Take back the decision to drain instances of a generation, of those that were not told to stop yet."""
        running = {r.labels.id for r in self.reports if r.labels.generation == generation and r.process is Process.RUNNING}
        for name in running & set(self.session.record.draining):
            del self.session.record.draining[name]

    # -- act ----------------------------------------------------------------------------------------------------

    def _act(self, decision: Decision, starts: Sequence[Labels] = (), undo: bool = False) -> None:
        """Record, then do: the balancers first, so that nothing is stopped that they still send requests to. With `undo` a
        switch that a balancer does not do is undone at the others."""
        record = self.session.record
        now = clock.now()
        record.draining.update(dict.fromkeys(decision.drain, now))
        wanted = self._wanted(decision.admit, decision.standby, decision.retire)
        forget = self._remains()
        doing = (decision.admit, decision.standby, decision.drain, decision.retire)
        if starts or doing != self._doing or wanted or forget or self._events or self.session.due:
            self.commit()  # asking again for what was asked for before is nothing new
            self._doing = doing
        if starts or decision.retire or wanted:
            self.acted = True
        if wanted and decision.standby:
            self._switch(wanted, undo)
        elif wanted:
            self.table = self.traffic.apply(wanted)
        if decision.drain or decision.retire:
            self._present()
        if starts or decision.retire or forget:
            before = self._living()
            self._sync(starts, decision.retire, forget)
            if not set(before) <= set(self._living()):
                self.checker.wake()  # there is room for others now
            for name in forget:
                record.draining.pop(name, None)

    def _switch(self, wanted: fleets.Targets, undo: bool) -> None:
        """Both in and out at once at every balancer; with `undo`, where one does not, all go back to what they showed."""
        before, began = self.table or {}, time.monotonic()
        try:
            self.table = self.traffic.apply(wanted)
        except TrafficError as exc:
            if not undo:
                raise
            shown = fleets.targets(self.reports, before, (), self.session.record.draining, (), self._split)
            if not fleets.differs(self.traffic.observe(), shown):
                raise  # refused before anything was changed: it may be done in the next turn
            left = []
            for balancer, targets in shown.items():
                try:
                    self.traffic.apply({balancer: targets})
                except (TrafficError, TransportError) as again:
                    left.append(str(again))
            how = f"and could not be undone everywhere: {'; '.join(left)}" if left else "and was undone at all load balancers"
            raise RolloutFailed(f"the switch failed {how}: {exc}") from None
        self.event("switch", milliseconds=round(1000 * (time.monotonic() - began), 1))

    def _present(self) -> None:
        """Show the new ones at the windows, and nothing else there. On the way back they are not shown any more."""
        for window in self.windows:
            window.show(*self._presentable())

    def _presentable(self) -> tuple[list[Report], set[str]]:
        """The new ones that are not to go, and all that are ready."""
        out = self.session.record.draining
        new = [r for r in self.reports if r.labels.generation == self._target and r.labels.id not in out]
        return new, {i.id for i in self.fleet if i.state is State.READY}

    def hide(self) -> None:
        """The rollout has ended: nothing is shown at the windows. Their requests in flight are waited for as when draining."""
        until = time.monotonic() + self.rules.drain_timeout
        for window in self.windows:
            window.showing = False
        while any(window.shown for window in self.windows):
            self.guard.check()
            try:
                for window in self.windows:
                    window.look()
                self._present()
                self._commit_due()  # who waits still holds the lease
                trouble = "it still has requests"
            except TROUBLE as exc:
                trouble = str(exc)
            if any(window.shown for window in self.windows):
                if time.monotonic() > until:
                    self.event("trouble", message=f"the preview is not empty; the next rollout empties it: {trouble}")
                    return
                self.checker.wait(POLL[0])

    def _starts(self, decision: Decision, waypoint: Waypoint, revision: str, rollout: Rollout) -> list[Labels]:
        """Labels for the instances to start: stable ones first, as far as the decision wants them, then new ones."""
        stable = self._placed(decision.create_old, rollout.previous.revision, waypoint.stable) if rollout.previous else []
        return [*stable, *self._placed(decision.create, revision, waypoint.generation, stable)]

    def _placed(self, count: int, revision: str, generation: int, others: Sequence[Labels] = ()) -> list[Labels]:
        """Labels for the next instances, beside `others`; their numbers are recorded before they are used, so none is used twice."""
        record = self.session.record
        if not count:
            return []
        labels = []
        for host, endpoint, slot in self._places(count, generation, others, self._leaving):
            record.serial += 1
            name = f"{record.service}-{record.serial}"
            labels.append(Labels(name, record.service, revision, generation, host, endpoint, slot))
        return labels

    def _places(
        self, count: int, generation: int, others: Sequence[Labels], leaving: Collection[str] | None
    ) -> Sequence[tuple[str, Endpoint, int]]:
        """Where the next instances go, beside `others`. While some leave crowded hosts, these and what drains count for none."""
        living = [*self._living(), *others]
        if leaving is not None:
            gone = {*leaving, *self.session.record.draining}
            living = [replace(labels, generation=LEAVING) if labels.id in gone else labels for labels in living]
        failed = [r.labels for r in self.reports if r.process is Process.FAILED and r.labels.generation == generation]
        places: Sequence[tuple[str, Endpoint, int]]
        try:
            places = self.platform.place(count, [*living, *failed], generation)  # where one has failed, the next may, too
        except PlatformError:
            places = self.platform.place(count, living, generation)
        return places

    def _next_hosts(self, generation: int, count: int, leaving: Collection[str]) -> list[str]:
        """The hosts of the next instances once these have left; none where there is no room."""
        try:
            return [host for host, _endpoint, _slot in self._places(count, generation, (), leaving)]
        except PlatformError:
            return []

    def _remains(self) -> list[str]:
        """Instances that were stopped and are gone from every balancer. Failed ones stay visible until the end."""
        gone = {i.id for i in self.fleet if i.rotation is Rotation.ABSENT and i.state is State.STOPPED}
        return sorted(gone)

    def forget(self) -> None:
        """Remove what is left of the dead; their logs stay."""
        dead = [i.id for i in self.look() if not i.state.counted and i.rotation is Rotation.ABSENT]
        if dead:
            self._sync(forget=dead)
        there = {report.labels.id for report in self.reports}
        self.session.record.draining = {k: v for k, v in self.session.record.draining.items() if k in there}

    def _wanted(
        self, admit: Collection[str] = (), standby: Collection[str] = (), leaving: Collection[str] = ()
    ) -> fleets.Targets | None:
        """What the balancers shall show, if that is not what they show."""
        if not self.balanced or self.table is None:
            return None
        out = {*self.session.record.draining, *standby}
        shall = fleets.targets(self.reports, self.table, admit, out, leaving, self._split)
        return shall if fleets.differs(self.table, shall) else None

    def _count(self, rollout: Rollout) -> None:
        """Add up what balancers sent to new and to all instances since the stage was reached."""
        self._take()
        served = self.counters.served.values()
        new, every = sum(one.requests for one in served if one.generation == self._target), sum(one.requests for one in served)
        before, self._counted = self._counted or (new, every), (new, every)
        sent = dict.fromkeys(("new", "all"), 0) | rollout.sent
        rollout.sent = {"new": sent["new"] + max(0, new - before[0]), "all": sent["all"] + max(0, every - before[1])}

    def _tell_share(self, rollout: Rollout, lines: Lines) -> None:
        """What the load balancers sent to the new ones, beside what was asked for."""
        new, every = rollout.sent.get("new", 0), rollout.sent.get("all", 0)
        if rollout.asked is not None and every and rollout.phase != Phase.ROLLING_BACK:
            self.event("share", asked=rollout.asked, new=new, all=every)
            lines.tell(
                f"{rollout.name}: {rollout.asked} % of requests asked for, {100 * new / every:.1f} % measured over {every}"
            )

    def _tell_repair(self, decision: Decision, waypoint: Waypoint, lines: Lines) -> None:
        """Which stable instances failed, and how many are started in their place."""
        if not decision.create_old:
            return
        dead = [
            i for i in self.fleet if i.generation == waypoint.stable and i.state is State.FAILED and i.id not in self._mourned
        ]
        self._mourned.update(instance.id for instance in dead)
        there = sum(1 for i in self.fleet if i.generation != waypoint.generation and i.state.counted)
        what = ", ".join(f"{i.id}{f' on {i.host}' if i.host else ''} ({i.detail or 'it ended'})" for i in dead[:3])
        what += f" and {len(dead) - 3} more" if len(dead) > 3 else ""
        failed = f"{what} failed; " if dead else ""
        self.event("repair", failed=[i.id for i in dead], started=decision.create_old, there=there, wanted=waypoint.old)
        lines.tell(f"stable: {failed}{there} of {waypoint.old} are left, starting {decision.create_old}")

    def _tidy(self) -> bool:
        """Whether no balancer keeps an entry of an instance that is gone, and the windows show the new ones. One may
        keep it for as long as its last connections take; longer than requests may take to drain is not waited for."""
        if self._wanted() is None and all(window.shows(*self._presentable()) for window in self.windows):
            return True
        self._untidy = self._untidy or time.monotonic()
        return time.monotonic() - self._untidy > self.rules.drain_timeout

    def left_over(self) -> bool:
        """Whether a load balancer keeps what no instance accounts for, as last seen: a command that came late, or one whose
        run was killed, may leave an entry. One that only has its last requests to finish is no reason to do anything."""
        living = {labels.endpoint for labels in self._living()}
        kept = [item for servers in (self.table or {}).values() for item in servers.items() if item[0] not in living]
        kept += [item for window in self.windows for servers in window.table.values() for item in servers.items()]
        return any(server.ours and (server.rotation is Rotation.IN or not server.active) for _endpoint, server in kept)

    # -- record -------------------------------------------------------------------------------------------------

    def event(self, kind: str, **what: t.Any) -> None:
        """Add to the timeline; written with the next commit."""
        trace.note(f"{kind}: {trace.words(what)}")
        self._events.append({"at": round(time.time(), 3), "kind": kind} | {key: plain(value) for key, value in what.items()})

    def _commit_due(self) -> None:
        if self._events or self.session.due:
            self.commit()

    def commit(self) -> None:
        """Write the record and the events so far, and renew the lease."""
        rollout = self.session.record.rollout
        if rollout:
            rollout.updated = time.time()
        self.session.commit(self._events)
        self._events = []

    def _recall(self) -> None:
        """What the steps before have written of each instance and of the shares: only what changed since is an event."""
        rollout = self.session.record.open
        for event in self.session.store.timeline(rollout.id) if rollout else ():
            if event.get("kind") == "state" and event.get("instance"):
                self._states[event["instance"]] = event.get("state", "")
            elif event.get("kind") == "traffic":
                self._shares = event.get("shares")

    def _note_states(self) -> None:
        """Every change of an instance's state, and every change of the revisions' shares, as events."""
        for instance in self.fleet:
            if self._states.get(instance.id) != instance.state.value:
                self._states[instance.id] = instance.state.value
                detail = {"detail": instance.detail} if instance.detail and instance.state is not State.READY else {}
                self.event(
                    "state",
                    instance=instance.id,
                    state=instance.state.value,
                    revision=instance.revision,
                    generation=instance.generation,
                    host=instance.host,
                    **detail,
                )
        there = {instance.id for instance in self.fleet}
        for name in [name for name, state in self._states.items() if name not in there and state != GONE]:
            self._states[name] = GONE
            self.event("state", instance=name, state=GONE)
        shares = {revision: counts["traffic"] for revision, counts in fleets.summary(self.fleet).items()}
        if self.balanced and shares != self._shares:
            self._shares = shares
            self.event("traffic", shares=shares)

    def _note(self, decision: Decision) -> None:
        """Every decision once; one that stands turn after turn is the same."""
        for reason in decision.reasons:
            if reason not in self._reasons:
                self.event("decision", reason=reason)
        self._reasons = decision.reasons

    def _trouble(self, exc: Exception, tally: ProgressTracker, lines: Lines) -> None:
        """Something did not answer or refused: skip the turn and look again, up to the progress deadline."""
        if clock.now() - tally.since > self.rules.progress_deadline:
            raise RolloutFailed(f"no progress for {self.rules.progress_deadline:g} s: {exc}") from None
        if not self._troubled:
            self._troubled = True
            self.event("trouble", message=str(exc))
            lines.tell(f"waiting: {exc}")
        self._next_look = 0.0
        if self.session.due and not isinstance(exc, StoreError):
            with suppress(StoreError):  # the next turn says so, if it stays
                self.commit()  # who waits still holds the lease
        self.checker.wait(PAUSE)

    def _rest(self, decision: Decision, last: Decision, waiting: bool = False) -> None:
        """Wait for a reason to look again: a check that changed, or time. With `waiting` there is nothing to do for long."""
        shortest, longest = POLL
        if waiting and decision.nothing_to_do:
            self.checker.wait(WAITING)
            return
        doing, done = ((d.create, d.create_old, d.admit, d.standby, d.drain, d.retire) for d in (decision, last))
        if doing != done:
            self._patience = shortest
            if not decision.nothing_to_do:
                return
        pending = any(i.state is State.DRAINING or (i.state is State.READY and i.rotation is not Rotation.IN) for i in self.fleet)
        if pending:
            self.checker.wait(self._patience)
            self._patience = min(longest, self._patience * 1.2)
        else:
            self.checker.wait(max(shortest, min(0.25, self._next_look - time.monotonic())))


def goal(stage: Stage, rollout: Rollout) -> Waypoint:
    """The stage's waypoint; where the switch is forced, one new instance that is ready is enough for it."""
    before = stage.waypoint.switches and stage.waypoint.switch_at is None
    return replace(stage.waypoint, switch_at=1) if rollout.force and before else stage.waypoint


def as_it_is(fleet: Sequence[Instance], waypoint: Waypoint, previous: Composition | None = None) -> Waypoint:
    """A waypoint at which nothing moves: what is there is kept, and kept in repair. `previous` is what it was before the rollout."""
    there = [i for i in fleet if i.state.counted and i.draining_since is None]
    new = [i for i in there if i.generation == waypoint.generation]
    old = [i for i in there if i.generation != waypoint.generation]
    # A switch that is not done is not done now; one that a run died in stays half done.
    done = not any(i.in_rotation for i in old) and (waypoint.switch_at == 0 or any(i.in_rotation for i in new))
    unswitched = waypoint.switches and not done
    # Stable ones that died before are missing still, as far as the waypoint keeps them, and has room for them beside the new ones.
    before = previous.replicas if previous else 0
    kept = max(len(old), min(waypoint.old, waypoint.new + waypoint.old - len(new), before))
    # Old ones that were to go, and stay for now, are no set to switch from.
    share = None if waypoint.weight == 100 and not waypoint.switches else waypoint.weight
    return replace(waypoint, new=len(new), old=kept, weight=0 if unswitched else share, rebalance=False)


def pause_after(took: float) -> float:
    """Seconds from a look at the platform that took so long to the next one."""
    least, most = LOOK
    return min(most, max(least, took / LOOKING))
