# SPDX-License-Identifier: GPL-3.0-or-later
"""Moves the fleet to one stage: observe, decide and act until its gates pass."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from ...analysis.alpha import with_share
from ...base.errors import TRANSIENT, PlatformError, RolloutError, RolloutFailed
from ...base.text import count, span
from ...config.gates import UNKNOWN, paced, waits
from ...engine.autoscaling import measured
from ...engine.budget import Budget
from ...engine.evaluate import Decision, evaluate
from ...engine.last_old import ends_comparison
from ...engine.model import Composition, FailureAction, Instance, Phase, Rotation, State
from ...engine.progress import ProgressTracker, Rules
from ...engine.rebalance import mark_leaving
from ...engine.shares import Target, owner_of
from ...engine.strategy import Stage, Waypoint
from ...engine.targets import join, split
from ...engine.weights import WeightSplit
from ...report.progress import Expected, Heading, Lines
from ...state import events
from ...state.record import Rollout, RolloutKind
from . import exclusion, timing
from .draining import leave_single, reconsider
from .gate_runner import GateRunner
from .observer import Snapshot
from .owner import follow_owner
from .reconcile_loop import ReconcileLoop
from .supervisor import Proceed, Reporter, Supervisor

# as `evaluate`
Decide = Callable[[Sequence[Instance], Waypoint, Budget, Rules, ProgressTracker, float], Decision]
Describe = Callable[[], Mapping[str, t.Any]]  # the `rollout` mapping, as gates get it


def run_stage(
    loop: ReconcileLoop,
    stage: Stage,
    revision: str,
    rollout: Rollout,
    described: Describe,
    *,
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
    title = f"{loop.settings.service} {of}"
    heading = Heading.of(loop.settings.service, rollout, stage, loop.settings.plan)
    lines = Lines(loop.show, title, min(loop.now(), rollout.started), heading, expected)
    _aim(loop, stage, rollout)
    if decide:
        loop.actuator.split = None
    background = _background_gates(loop, stage, rollout, expected)
    supervisor = _supervise(loop, stage, rollout, lines, title, background)
    run = StageRun(
        loop,
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


class StageRun:
    """One stage, from where the fleet is now until the rollout leaves it."""

    def __init__(
        self,
        loop: ReconcileLoop,
        stage: Stage,
        rollout: Rollout,
        *,
        revision: str,
        decide: Decide,
        supervisor: Supervisor,
        describe: Describe,
        lines: Lines,
    ) -> None:
        """`revision`: of the new instances."""
        self._loop = loop
        self._stage = stage
        self._rollout = rollout
        self._revision = revision
        self._decide = decide
        self._supervisor = supervisor
        self._describe = describe
        self._lines = lines
        self._rules = loop.rules_for(stage, rollout)
        in_place, budget = decide is not evaluate, loop.settings.budget
        self._budget = budget.without_surge() if in_place else budget
        # what is deployed in place stays drained: the user's tasks may have worked there
        generations = (rollout.generation, stage.waypoint.generation)
        deployed = loop.session.record.deployed.items()
        self._deployed = frozenset(i for i, known in deployed if known.generation in generations)
        self._hold_at: Waypoint | None = None  # where the fleet is kept while the stage is on hold
        # of this iteration and of the one before
        self._decision, self._before = Decision(), Decision()
        self._arrived = False  # whether the fleet is at the waypoint
        self._kept = False  # whether the last old instances stay until a gate has decided
        # to new and to all instances, when they were last counted
        self._requests: tuple[int, int] | None = None
        self._backoff = timing.Backoff()
        self._ending = False  # whether the last decision would end the stage or make the switch

    def run(self) -> Proceed:
        """Reconcile until the rollout leaves the stage; raises RolloutFailed where it cannot."""
        rollout, now = self._rollout, self._loop.now
        # time between runs is no lack of progress
        rollout.tally = replace(rollout.counting(0.0), since=now())
        began = now()
        while True:
            self._loop.guard.check()
            try:
                if (left := self._iterate()) is not None:
                    return left
                self._loop.note_success()
            except TRANSIENT as exc:
                self._decision, self._arrived = Decision(), False
                self._refuse_to_repeat(exc)
                self._loop.wait_out(exc, self._progress.since, self._lines)
            if not self._arrived:
                self._lines.show(
                    self._loop.fleet,
                    self._stage.waypoint,
                    self._progress.total,
                    now(),
                    unmanaged=self._loop.unmanaged,
                )
                rollout.elapsed += 0.0 if self._kept else now() - began
            began = now()
            self._rest()

    def _iterate(self) -> Proceed | None:
        """Do one iteration; return how the rollout leaves the stage, if it does."""
        self._loop.autoscaling.follow(self._rollout, measured(self._loop.fleet))
        follow_owner(self._loop, self._rollout)
        proceed = self._supervisor.proceed(self._describe)
        if proceed in (Proceed.SKIP, Proceed.RENUMBER):
            return proceed
        waypoint = self._loop.fitted(self._waypoint(proceed))
        snapshot = self._observe(waypoint)
        waypoint, decision = self._evaluate(snapshot, waypoint, proceed)
        self._decision = decision
        if (
            decision.stable_lost
            and proceed is Proceed.GO
            and self._supervisor.stable_lost() is Proceed.SKIP
        ):
            return Proceed.SKIP
        if decision.failed:
            self._fail(snapshot, waypoint)
        if self._must_look_again(decision):
            return None
        self._arrived = (
            decision.reached
            and not self._kept
            and self._loop.actuator.is_tidy(snapshot, self._rules.drain_timeout)
        )
        if self._arrived or (self._rollout.force and waypoint.new_idle):
            self._refuse_other_revision(snapshot, waypoint)
            if proceed is Proceed.GO and self._passes(snapshot, waypoint):
                return proceed
            self._wait_at_gates()
        self._act(snapshot, waypoint)
        return None

    def _observe(self, waypoint: Waypoint) -> Snapshot:
        """Observe the service, and reconsider the drains that are not carried out."""
        unavailable = self._budget.resolve(waypoint.desired).unavailable
        snapshot, targets = self._loop.observe(), self._loop.targets
        parts: dict[Target | None, Waypoint] = dict(waypoint.parts)
        points = {
            name: parts.get(owner_of(name, targets), waypoint) for name in snapshot.table or ()
        }
        floors = {name: point.enough - unavailable for name, point in points.items()}
        floor = waypoint.desired - unavailable
        snapshot = reconsider(self._loop, snapshot, floor, floors, self._deployed)
        idle = {name: point.generation for name, point in points.items() if point.new_idle}
        snapshot = leave_single(self._loop, snapshot, idle, floors)
        return self._loop.with_leaving(snapshot, waypoint)

    @property
    def _progress(self) -> ProgressTracker:
        """What is remembered of the stage's progress."""
        return self._rollout.counting(self._loop.now())

    def _waypoint(self, proceed: Proceed) -> Waypoint:
        """Return where the fleet is to go now."""
        waypoint = self._loop.divided(self._stage.waypoint)
        waypoint = forced(waypoint) if self._rollout.force else waypoint
        if proceed is not Proceed.HOLD:
            self._hold_at = None
            return waypoint
        if self._hold_at is None:
            self._hold_at = frozen(self._loop.observe_fleet(), waypoint, self._rollout.previous)
        return self._hold_at

    def _evaluate(
        self, snapshot: Snapshot, waypoint: Waypoint, proceed: Proceed
    ) -> tuple[Waypoint, Decision]:
        """Ask the engine what to do now, and note its answer. Return it with where that leads.

        Where it would end a comparison that is not decided, the fleet stays as it is for now.
        """
        if waited := self._loop.session.take_waited():  # for the journal: no lack of progress
            since = min(self._loop.now(), self._progress.since + waited)
            self._rollout.tally = replace(self._progress, since=since)
        fleet = mark_leaving(snapshot.fleet, snapshot.leaving or ())
        decision = self._decision_at(fleet, waypoint)
        self._kept = (
            proceed is Proceed.GO
            and ends_comparison(fleet, waypoint, decision)
            and self._supervisor.awaits_verdict()
        )
        if self._kept:
            waypoint = frozen(fleet, waypoint, self._rollout.previous)
            self._rollout.tally = replace(self._progress, since=self._loop.now())
            decision = self._decision_at(fleet, waypoint)
        self._rollout.count(decision.progress)
        self._loop.recorder.note_decision(decision)
        return waypoint, decision

    def _decision_at(self, fleet: Sequence[Instance], waypoint: Waypoint) -> Decision:
        """Return what the engine does now on the way to a waypoint."""
        now = self._loop.now()
        return self._decide(fleet, waypoint, self._budget, self._rules, self._progress, now)

    def _must_look_again(self, decision: Decision) -> bool:
        """Return whether hosts are to be looked at before the stage ends or the switch is made."""
        ending = decision.reached or bool(decision.standby)
        first, self._ending = ending and not self._ending, ending
        return first and self._loop.observer.catch_up()

    def _fail(self, snapshot: Snapshot, waypoint: Waypoint) -> t.NoReturn:
        """End the stage, because the engine says so."""
        self._show(snapshot, waypoint)
        failed = {failure.id for failure in self._decision.progress.failures}
        self._loop.recorder.note_overdue(snapshot.fleet, failed)
        self._loop.recorder.commit()
        error = self._loop.last_error
        last = f"; last: {error} [{error.id}]" if error else ""
        raise RolloutFailed(
            f"{self._decision.failed}{last}", self._decision.failed_id, then=self._decision.then
        )

    def _refuse_to_repeat(self, exc: RolloutError) -> None:
        """Raise RolloutFailed where load balancers go on to refuse a change with these words, and
        nothing of what ran before has been replaced.
        """
        refusal, now = self._loop.actuator.refusal(exc), self._loop.now()
        touched = self._rollout.replaced or self._rollout.phase == Phase.ROLLING_BACK
        if refusal and refusal.is_final(now) and not touched:
            raise RolloutFailed(
                f"a load balancer refused the same change {refusal.attempts} times in"
                f" {span(now - refusal.since)}, always with these words: {exc} [{exc.id}]",
                "PR-350",
            ) from None

    def _refuse_other_revision(self, snapshot: Snapshot, waypoint: Waypoint) -> None:
        """Refuse to go on, and so to promote, where new instances run another revision than the one
        asked for; raises RolloutFailed.
        """
        rollout = self._rollout
        before = rollout.previous.generation if rollout.previous else None
        if rollout.phase == Phase.ROLLING_BACK or waypoint.generation == before:
            return
        others = [
            i
            for i in snapshot.fleet
            if i.generation == waypoint.generation
            and i.state.counted
            and i.revision != self._revision
        ]
        if others:
            names = ", ".join(f"{i.id} ({i.revision})" for i in others[:3])
            raise RolloutFailed(
                f"{count(len(others), 'instance')} of {self._revision} run another revision:"
                f" {names}; something else has changed them, or had their place",
                "PR-256",
                then=FailureAction.HOLD,
            )

    def _passes(self, snapshot: Snapshot, waypoint: Waypoint) -> bool:
        """Return whether the gates of the stage, which is reached, let the rollout pass."""
        self._count_requests()
        self._show(snapshot, waypoint)
        if not self._supervisor.passed(self._describe):
            return False
        if self._stage.waypoint.new:
            self._report_share()
        self._loop.recorder.commit()
        return True

    def _show(self, snapshot: Snapshot, waypoint: Waypoint) -> None:
        """Show the last line of the stage."""
        self._lines.show(
            snapshot.fleet,
            waypoint,
            self._progress.total,
            self._loop.now(),
            force=True,
            unmanaged=snapshot.unmanaged,
        )

    def _wait_at_gates(self) -> None:
        """Wait for gates or an operator, without losing progress; raises Parked after a while."""
        self._rollout.tally = replace(self._progress, since=self._loop.now())
        if self._loop.recorder.due:
            self._loop.recorder.commit()
        self._supervisor.park()

    def _act(self, snapshot: Snapshot, waypoint: Waypoint) -> None:
        """Carry the decision out."""
        loop, rollout, decision = self._loop, self._rollout, self._decision
        # what makes room for a baseline is not replaced: the baseline is, later
        if not waypoint.is_baseline:
            rollout.replaced += self._replaced(snapshot.fleet)
        self._report_repair(snapshot, waypoint)
        loop.autoscaling.prepare(waypoint, rollout)
        loop.refill(snapshot.fleet, waypoint, self._revision, rollout)
        undo = rollout.phase != Phase.ROLLING_BACK
        apply = partial(loop.actuator.apply, snapshot, decision, undo_switch=undo)
        try:
            starts = loop.placement.starts(
                decision, waypoint, self._revision, rollout, snapshot.leaving
            )
        except PlatformError:  # no room; load balancers may still lack what serves
            apply()
            raise
        apply(starts)
        loop.actuator.apply_previews(snapshot)

    def _replaced(self, fleet: Iterable[Instance]) -> int:
        """Return how many more of the instances that ran before are replaced."""
        rollout, drained = self._rollout, [i for i in fleet if i.id in self._decision.drain]
        if rollout.kind == RolloutKind.REBALANCE:
            return len(drained)
        old = sum(i.generation != rollout.generation for i in drained)
        return min(old, rollout.ran - rollout.replaced) if rollout.ran else old

    def _rest(self) -> None:
        """Wait for a reason to observe again: a check with another outcome, or time."""
        decision, before, wait = self._decision, self._before, self._loop.checker.wait
        self._before = decision
        if self._arrived and decision.nothing_to_do:
            wait(timing.GATES)
            return
        if decision.actions != before.actions:
            self._backoff.reset()
            if not decision.nothing_to_do:
                return
        stops, now = self._loop.actuator.stops, self._loop.now()
        pause = min(0.25, self._loop.observer.next_platform - now)
        if any(_pending(i) for i in self._loop.fleet if i.id not in stops.waiting):
            pause = self._backoff.pause()
        wait(max(timing.POLL[0], min(pause, stops.next_look - now)))

    def _count_requests(self) -> None:
        """Add up the requests to new and to all instances since the stage was reached."""
        new, every = self._loop.observer.requests()
        before, self._requests = self._requests or (new, every), (new, every)
        sent = dict.fromkeys(("new", "all"), 0) | self._rollout.sent
        self._rollout.sent = {
            "new": sent["new"] + max(0, new - before[0]),
            "all": sent["all"] + max(0, every - before[1]),
        }

    def _report_share(self) -> None:
        """Report the new instances' share of the requests: asked for, and measured."""
        rollout = self._rollout
        new, every = rollout.sent.get("new", 0), rollout.sent.get("all", 0)
        if rollout.asked is not None and every and rollout.phase != Phase.ROLLING_BACK:
            self._loop.recorder.event(events.ShareMeasured(asked=rollout.asked, new=new, all=every))
            measured = f"{100 * new / every:.1f} % measured over {every}"
            self._lines.note(f"{rollout.name}: {rollout.asked} % of requests asked for, {measured}")

    def _report_repair(self, snapshot: Snapshot, waypoint: Waypoint) -> None:
        """Report the stable instances that failed, and how many are started in their place."""
        started = self._decision.create_old
        if not started:
            return
        failed = [
            i
            for i in snapshot.fleet
            if i.generation == waypoint.stable
            and i.state is State.FAILED
            and i.id not in self._loop.reported
        ]
        self._loop.reported.update(instance.id for instance in failed)
        present = sum(
            1 for i in snapshot.fleet if i.generation != waypoint.generation and i.state.counted
        )
        self._loop.recorder.event(
            events.Repair(
                failed=[i.id for i in failed], started=started, there=present, wanted=waypoint.old
            )
        )
        what = f"{_named(failed)} failed; " if failed else ""
        self._lines.note(f"stable: {what}{present} left, starting {started}")


def forced(waypoint: Waypoint) -> Waypoint:
    """Return the waypoint of a forced promotion: one ready new instance is enough."""
    return (
        replace(waypoint, switch_at=1)
        if waypoint.switches and waypoint.switch_at is None
        else waypoint
    )


def frozen(
    fleet: Sequence[Instance], waypoint: Waypoint, previous: Composition | None = None
) -> Waypoint:
    """Return a waypoint at which nothing moves: the fleet is kept, and kept in repair.

    `previous` is what the service consisted of before the rollout.
    """
    carrying = waypoint.carrying or waypoint.new
    if waypoint.parts:
        parts = [
            (target, frozen(part, point, previous))
            for target, point, part in split(fleet, waypoint)
            if target
        ]
        weights = {point.weight for _target, point in parts}
        return join(
            replace(
                waypoint,
                weight=weights.pop() if len(weights) == 1 else None,
                carrying=carrying,
                rebalance=False,
            ),
            parts,
        )
    staying = [i for i in fleet if i.state.counted and i.draining_since is None]
    new = [i for i in staying if i.generation == waypoint.generation]
    old = [i for i in staying if i.generation != waypoint.generation]
    # A switch that was not made is not made now. One that is half done stays so: a run died in it,
    # or a load balancer returned to the state before it.
    serves = any(i.in_rotation for i in new)
    switched = not any(i.in_rotation for i in old) and (waypoint.switch_at == 0 or serves)
    half_done = serves and not switched and not any(i.rotation is Rotation.IN for i in old)
    # Stable instances that died before are missing, as far as the waypoint has room for them.
    before = previous.replicas if previous else 0
    kept = max(len(old), min(waypoint.old, waypoint.new + waypoint.old - len(new), before))
    # Old instances that were to go, and stay for now, are no set to switch from.
    weight = None if waypoint.weight == 100 and not waypoint.switches else waypoint.weight
    if waypoint.switches and not switched:
        weight = None if half_done else waypoint.weight_before
    # `carrying`: each new instance keeps its part of the weight, however few there are yet
    return replace(
        waypoint, new=len(new), old=kept, weight=weight, carrying=carrying, rebalance=False
    )


def _pending(instance: Instance) -> bool:
    """Return whether load balancers are to take the instance in or out."""
    ready = instance.state is State.READY and instance.rotation is not Rotation.IN
    return instance.state is State.DRAINING or ready


def _named(failed: Sequence[Instance]) -> str:
    """Return the first three instances with hosts and reasons, and how many more there are."""
    names = ", ".join(
        f"{i.id}{f' on {i.host}' if i.host else ''} ({i.detail or 'it ended'})" for i in failed[:3]
    )
    return f"{names} and {len(failed) - 3} more" if len(failed) > 3 else names


def _aim(loop: ReconcileLoop, stage: Stage, rollout: Rollout) -> None:
    """Set the generation, the split of the traffic and the preview pools of a stage."""
    waypoint = loop.divided(stage.waypoint)
    back = rollout.phase == Phase.ROLLING_BACK
    weighted = any(
        point.weight is not None for point in (waypoint, *(part for _t, part in waypoint.parts))
    )
    loop.traffic.begin(weighted and waypoint.headroom is None and not back)
    loop.observer.generation = waypoint.generation
    loop.actuator.split = WeightSplit(waypoint)
    forward = (
        rollout.phase != Phase.ROLLING_BACK and rollout.kind.forward and not waypoint.is_baseline
    )
    for pool in loop.previews:
        pool.wanted = forward and (waypoint.new_idle or not pool.idle_only)


def _supervise(
    loop: ReconcileLoop,
    stage: Stage,
    rollout: Rollout,
    lines: Lines,
    title: str,
    background: GateRunner,
) -> Supervisor:
    """Return a supervisor of the stage, with the runner of the background gates."""
    me, service = loop.session.identity, loop.settings.service
    return Supervisor(
        stage,
        rollout,
        settings=loop.settings,
        session=loop.session,
        context=loop.context,
        background=background,
        reporter=Reporter(
            loop.event,
            lines.note,
            lambda text: loop.print_line(f"{title} {text}"),
            loop.checker.wake,
            loop.platform.question,
            lambda command: me.command(command, service, loop.settings.to_find),
            lambda command: exclusion.refusal(
                command,
                rollout,
                loop.platform,
                loop.settings.budget,
                fleet=loop.observe_fleet(),
                targets=loop.targets,
            ),
        ),
        now=loop.now,
    )


def _background_gates(
    loop: ReconcileLoop, stage: Stage, rollout: Rollout, expected: Expected
) -> GateRunner:
    """Return the background gates' runner, one for all stages; idle if unwatched.

    They are asked as often as the time that the rollout is expected to take needs.
    """
    if not stage.watched or rollout.phase == Phase.ROLLING_BACK:
        return GateRunner((), loop.context, {})
    if loop.background is None:
        plan, seconds = loop.settings.plan, expected(loop.fleet)
        seconds = (UNKNOWN if seconds is None else seconds) + waits(plan)
        gates = [paced(with_share(gate, stage.share), seconds) for gate in plan.background]
        loop.background = GateRunner(
            gates, loop.context, rollout.background, loop.now, loop.checker.wake
        )
    return loop.background
