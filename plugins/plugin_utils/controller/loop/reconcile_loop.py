# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The reconcile loop of one service: moves, watches and cleans up its fleet."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...base.errors import TRANSIENT, RolloutFailed
from ...config.gates import UNKNOWN, paced, waits
from ...engine.evaluate import Decision, evaluate
from ...engine.instances import can_admit, can_stop, ids
from ...engine.model import Composition, Phase, Process, Rotation, State
from ...engine.progress import ProgressTracker
from ...engine.rebalance import mark_leaving
from ...engine.strategy import Stage, Waypoint
from ...engine.weights import WeightSplit
from ...engine.wording import states
from ...report.progress import Expected, Heading, Lines
from ...state import events
from ...state.record import Rollout
from . import timing
from .base_loop import BaseLoop
from .gate_runner import GateRunner
from .observer import Snapshot
from .stage_run import Decide, Describe, StageRun
from .supervisor import Proceed, Reporter, Supervisor


class ReconcileLoop(BaseLoop):
    """Drives the fleet of one service."""

    _background: GateRunner | None = None  # the same in all stages

    def close(self) -> None:
        """Ask gates nothing any more, and observe nothing in the background."""
        if self._background:
            self._background.close()
        self.platform.close()
        self.traffic.close()

    def next_decision(self, waypoint: Waypoint) -> Decision:
        """Return what the next iteration on the way to a waypoint would do. Changes nothing."""
        waypoint = self.divided(waypoint)
        snapshot, progress = self.observe_for(waypoint), ProgressTracker(since=self.now())
        fleet = mark_leaving(snapshot.fleet, snapshot.leaving or ())
        return evaluate(fleet, waypoint, self.settings.budget, self.rules, progress, self.now())

    # -- stages -----------------------------------------------------------------------------------

    def run_stage(
        self,
        stage: Stage,
        revision: str,
        rollout: Rollout,
        described: Describe,
        decide: Decide | None = None,
        expected: Expected = lambda _fleet: None,
    ) -> Proceed:
        """Move the fleet to the stage's waypoint, and wait until its gates let the rollout pass.

        Args:
            stage: Where to go.
            revision: Of the new instances.
            rollout: In progress.
            described: Returns the rollout as gates get it.
            decide: Used instead of `evaluate`; traffic weights stay as they are.
            expected: Returns how long the rollout takes from here; see `Lines`.

        Raises RolloutFailed with the reason where the stage cannot be passed.
        """
        of = rollout.revision if stage.waypoint.is_baseline else revision
        title = f"{self.settings.service} {of}"
        heading = Heading.of(self.settings.service, rollout, stage, self.settings.plan)
        lines = Lines(self.show, title, min(self.now(), rollout.started), heading, expected)
        self._aim(stage, rollout)
        if decide:
            self.actuator.split = None
        background = self._background_gates(stage, rollout, expected)
        supervisor = self._supervise(stage, rollout, lines, title, background)
        run = StageRun(
            self,
            stage,
            rollout,
            revision=revision,
            decide=decide or evaluate,
            supervisor=supervisor,
            describe=described,
            lines=lines,
        )
        try:
            return run.run()
        finally:
            supervisor.close()

    def turn_back(self) -> None:
        """Get ready for a rollback: stop the background gates, and observe what is there now.

        What does not answer is waited for. The last observation may be older than the last action.
        """
        if self._background:
            self._background.close()
            self._background = None
        self.traffic.begin(False)
        self.await_fleet()

    # -- single actions ---------------------------------------------------------------------------

    def drain(self, ids: Sequence[str]) -> None:
        """Take these instances out of rotation, wait for their requests, and stop them."""
        record = self.session.record
        record.draining.update({i: self.now() for i in ids if i not in record.draining})
        self.observer.generation = record.open.generation if record.open else None

        def stop_drained() -> str:
            snapshot = self.observe()
            for pool in self.previews:
                pool.wanted = pool.has_entries  # its other instances stay
            left = [i for i in snapshot.fleet if i.id in ids and i.state.counted]
            drained = tuple(i.id for i in left if can_stop(i, self.rules, self.now()))
            self.actuator.apply(snapshot, Decision(retire=drained))
            self.actuator.apply_previews(snapshot)
            return states(left)

        if left := self._until(stop_drained, self.rules.progress_deadline):
            raise RolloutFailed(f"not within {self.rules.progress_deadline:g} s: {left}", "PR-616")

    def admit(self, revision: str | None) -> bool:
        """Put a revision's ready instances (None: any) in rotation; return whether any was out."""
        admitted = False

        def admit_healthy() -> str:
            nonlocal admitted
            out = self.out_of_rotation(revision)
            if out:
                admitted = True
                self.actuator.apply(
                    self.observer.snapshot, Decision(admit=tuple(i.id for i in out if can_admit(i)))
                )
            return ", ".join(i.id for i in out)

        if left := self._until(admit_healthy, self.rules.progress_deadline):
            deadline = f"{self.rules.progress_deadline:g} s"
            raise RolloutFailed(
                f"no load balancer's own check passed {left} within {deadline}", "PR-308"
            )
        return admitted

    def stop_orphaned(self) -> None:
        """Stop, at a rollout's end, the drained instances whose hosts answer again by then.

        Raises RolloutFailed if an instance does not end although its host answers.
        """
        if self.platform.in_place:
            return  # its instances are drained for the user's tasks, and never stopped
        draining, patience = self.session.record.draining, self.now() + timing.LAST_LOOK

        def stop() -> str:
            self.refresh()
            try:
                snapshot = self.observe()
                left = [i for i in snapshot.fleet if i.id in draining and i.state.counted]
                answering = [i for i in left if i.state is not State.UNREACHABLE]
                drained = (i for i in answering if can_stop(i, self.rules, self.now()))
                self.actuator.apply(snapshot, Decision(retire=ids(drained)))
                return states(left if self.now() < patience else answering)
            except TRANSIENT as exc:
                return str(exc)

        if draining and (left := self._until(stop, self.rules.progress_deadline)):
            raise RolloutFailed(f"not within {self.rules.progress_deadline:g} s: {left}", "PR-616")

    def empty_previews(self) -> None:
        """Empty the preview pools at a rollout's end, and wait for their requests in flight."""
        for pool in self.previews:
            pool.wanted = False

        def empty() -> str:
            try:
                for pool in self.previews:
                    pool.observe()
                self.actuator.apply_previews(self.observer.snapshot)
                if self.recorder.due:
                    self.commit()  # ends the wait if the lease is lost
            except TRANSIENT as exc:
                return str(exc)
            return "it still has requests" if any(pool.filled for pool in self.previews) else ""

        if any(pool.filled for pool in self.previews) and (
            left := self._until(empty, self.rules.drain_timeout)
        ):
            message = f"the preview is not empty; the next rollout empties it: {left}"
            self.event(events.Trouble(message=message))

    def conclude(self, stable: Composition | None) -> None:
        """Have the platform do what is left to do at a rollout's end; raises RolloutFailed."""

        def wait() -> str:
            try:
                if self.recorder.due:
                    self.commit()  # the lease is kept while waiting
                if left := self.platform.conclude(stable):
                    return left
                self.traffic.conclude()
                return ""
            except TRANSIENT as exc:
                return str(exc)

        if left := self._until(wait, self.rules.progress_deadline):
            raise RolloutFailed(f"the rollout cannot be concluded: {left}", "PR-620")

    def put_autoscaler_back(self) -> None:
        """Put the autoscaler back at a rollout's end; raises RolloutFailed."""

        def put_back() -> str:
            try:
                if self.recorder.due:
                    self.commit()
                self.autoscaling.put_back()
            except TRANSIENT as exc:
                return str(exc)
            return ""

        if left := self._until(put_back, self.rules.progress_deadline):
            raise RolloutFailed(f"the autoscaler cannot be put back: {left}", "PR-263")

    def cancel_drain(self, generation: int) -> None:
        """Keep the instances of a generation that were to be drained and were not told to stop."""
        running = {
            r.labels.id
            for r in self.observer.reports
            if r.labels.generation == generation and r.process is Process.RUNNING
        }
        for name in running & set(self.session.record.draining):
            del self.session.record.draining[name]

    def forget_dead(self) -> None:
        """Remove what is left of dead instances; their logs stay."""
        self.actuator.forget_dead(self.observe())

    def hold_drained(self) -> None:
        """Keep drained instances out of rotation, and the lease, until the guard ends it.

        Meanwhile the user's tasks deploy in place. A reloaded load balancer forgets drained hosts.
        """
        while not self.guard.stopped:
            try:
                snapshot = self.observer.observe_unchecked()
                self._report_forgotten(snapshot)
                self.actuator.apply(snapshot, Decision())
                self.recorder.note_success()
            except TRANSIENT as exc:
                self.recorder.note_trouble(str(exc))
            self.checker.wait(timing.IN_PLACE)

    # -- helpers ----------------------------------------------------------------------------------

    def show(self, line: str) -> None:
        """Write a line for people, here and for those who follow the rollout."""
        self.say(line)
        self.event(events.LineShown(text=line))

    def _aim(self, stage: Stage, rollout: Rollout) -> None:
        """Set the generation, the split of the traffic and the preview pools of a stage."""
        waypoint = self.divided(stage.waypoint)
        back = rollout.phase == Phase.ROLLING_BACK
        weighted = any(
            point.weight is not None for point in (waypoint, *(part for _t, part in waypoint.parts))
        )
        self.traffic.begin(weighted and waypoint.headroom is None and not back)
        self.observer.generation = waypoint.generation
        self.actuator.split = WeightSplit(waypoint)
        forward = (
            rollout.phase != Phase.ROLLING_BACK
            and rollout.kind.forward
            and not waypoint.is_baseline
        )
        for pool in self.previews:
            pool.wanted = forward and (waypoint.new_idle or not pool.idle_only)

    def _supervise(
        self, stage: Stage, rollout: Rollout, lines: Lines, title: str, background: GateRunner
    ) -> Supervisor:
        """Return a supervisor of the stage, with the runner of the background gates."""
        me, service = self.session.identity, self.settings.service
        return Supervisor(
            stage,
            rollout,
            settings=self.settings,
            session=self.session,
            context=self.context,
            background=background,
            reporter=Reporter(
                self.event,
                lines.tell,
                lambda text: self.say(f"{title} {text}"),
                self.checker.wake,
                lambda command: me.command(command, service, self.settings.to_find),
            ),
            now=self.now,
        )

    def _background_gates(self, stage: Stage, rollout: Rollout, expected: Expected) -> GateRunner:
        """Return the background gates' runner, one for all stages; idle if unwatched.

        They are asked as often as the time that the rollout is expected to take needs.
        """
        if not stage.watched or rollout.phase == Phase.ROLLING_BACK:
            return GateRunner((), self.context, {})
        if self._background is None:
            plan, seconds = self.settings.plan, expected(self.fleet)
            seconds = (UNKNOWN if seconds is None else seconds) + waits(plan)
            gates = [paced(gate, seconds) for gate in plan.background]
            self._background = GateRunner(
                gates, self.context, rollout.background, self.now, self.checker.wake
            )
        return self._background

    def _until(self, iterate: Callable[[], str], seconds: float) -> str:
        """Iterate until nothing is left, or these seconds are over; return what is left."""
        deadline, backoff, before = self.now() + seconds, timing.Backoff(), ""
        while True:
            self.guard.check()
            left = iterate()
            if not left or self.now() > deadline:
                return left
            if left != before:
                backoff.reset()
            before = left
            self.checker.wait(backoff.pause())

    def _report_forgotten(self, snapshot: Snapshot) -> None:
        """Report the load balancers that send requests to drained instances again."""
        draining = self.session.record.draining
        out = {
            r.labels.endpoint: r.labels.host for r in snapshot.reports if r.labels.id in draining
        }
        for balancer, servers in (snapshot.table or {}).items():
            back = [
                host
                for at, host in out.items()
                if at in servers and servers[at].rotation is Rotation.IN
            ]
            if back:
                hosts = ", ".join(dict.fromkeys(back))
                message = (
                    f"load balancer {balancer} lost its state: {hosts} taken out of rotation again"
                )
                self.event(events.Trouble(message=message))
                self.say(f"{self.settings.service}: {message} [PR-312]")
