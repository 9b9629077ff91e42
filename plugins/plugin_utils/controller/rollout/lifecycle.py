# SPDX-License-Identifier: GPL-3.0-or-later
"""A rollout in the journal, from the step that opens or resumes it to the step that closes it."""

from __future__ import annotations

import os
import typing as t
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cached_property

from ...base import clock
from ...base.errors import TRANSIENT, InputError, RolloutFailed
from ...base.text import moment
from ...engine.budget import PerHost
from ...engine.instances import is_orphaned
from ...engine.model import Composition, Instance, Phase, State
from ...engine.strategy import FINISH, InvalidSteps, Plan, Stage
from ...interfaces.platform import Notable
from ...state import events
from ...state.record import (
    WITHOUT_VERDICT,
    GateState,
    MemberOf,
    Outcome,
    Rollout,
    RolloutKind,
)
from ..step.context import Result, StepContext, StepPart
from .generations import Generations, last_of, prune
from .places import PlacementNotes
from .stages import Stages, baseline_of, planned, renumber, stages_for
from .validation import Validation, balancers_of


class Lifecycle(StepPart):
    """Open, resume, rescale, hold and close the rollout of a service."""

    def __init__(self, step: StepContext) -> None:
        super().__init__(step)
        self.validation = Validation(step)
        self.generations = Generations(step)
        self.places = PlacementNotes(step)

    @cached_property
    def stages(self) -> Stages:
        """The stages of rollouts on this platform."""
        return stages_for(self.step)

    # -- begin -------------------------------------------------------------------------------------

    def open(
        self,
        kind: RolloutKind,
        revision: str,
        generation: int,
        replicas: int,
        base: int = 0,
        *,
        plan: Plan | None = None,
        why: str = "",
        release: MemberOf | None = None,
    ) -> Rollout:
        """Begin a rollout: it is in progress until it is closed.

        `base` is the number of stable instances kept until the promotion; 0 keeps all. `plan` is
        the one that it follows, if not that of the settings. `why` is the reason that the
        operator gives, `release` the one that the rollout is a member of.
        """
        record, now, forward = self.record, clock.wall(), kind.forward
        plan = plan or (self.settings.plan if forward else Plan())
        identity = self.step.session.identity
        baseline = baseline_of(plan, generation) if forward and record.stable else 0
        self._begin_settings(forward, revision, generation, baseline)
        record.generation = max(record.generation, generation, baseline)
        record.balancers = balancers_of(self.settings)
        record.rollout = Rollout(
            id=record.new_id(now, os.getpid()),
            revision=revision,
            generation=generation,
            replicas=replicas,
            strategy=plan.strategy,
            previous=record.stable,
            started=now,
            kind=kind,
            updated=now,
            entered=clock.now(),
            plan=self._fingerprint,
            base=base,
            per_host=self._per_host(),
            ran=0 if self.step.in_place else others(self.loop.fleet, generation),
            played=replicas,
            owner=self.loop.platform.asked(),
            baseline=baseline,
            request=identity.request,
            host=identity.host,
            by=identity.holder,
            why=why,
            order=self._order(kind, revision),
            release=release,
            given=self._kept_settings(),
            counted={},
        )
        begun = events.Begin(
            revision=revision,
            generation=generation,
            replicas=replicas,
            rollout=kind,
            by=identity.holder,
            why=why or None,
            previous=record.stable.revision if record.stable else None,
            strategy=record.rollout.strategy,
            order=record.rollout.order,
            window=self._bypass,
            notify=self._receivers,
        )
        self.loop.event(begun)
        self.note_plan(record.rollout)
        self.loop.recorder.note_requests()  # the next step counts from here
        self.loop.commit()
        self.step.notify_release()
        self._note(Notable.BEGUN, f"{kind} begins, {record.rollout.id}")
        return record.rollout

    def _note(self, event: Notable, what: str) -> None:
        """Have the platform show what happens to the rollout in progress."""
        if rollout := self.record.rollout:
            with suppress(*TRANSIENT):  # only for those who look there
                title = f"{self.record.service} {rollout.revision}"
                self.loop.platform.note(event, f"{title}: {what}")

    def _per_host(self) -> bool:
        """Return whether the rollout has one instance on each host; as the last one, if no number
        is given.
        """
        last, given = self.record.rollout, self.settings.replicas
        return isinstance(given, PerHost) or (given is None and bool(last and last.per_host))

    def _order(self, kind: RolloutKind, revision: str) -> int | None:
        """Return the place of the revision among all, as given or as known."""
        given = self.settings.order if kind.forward else None
        return self.record.order_of(revision) if given is None else given

    @property
    def _fingerprint(self) -> str:
        from ...config.fingerprint import fingerprint  # of rollouts alone

        return fingerprint(self.settings.plan)

    @property
    def _receivers(self) -> list[str]:
        """The receivers that are told of what follows."""
        return [receiver.name for receiver in self.settings.notify]

    @property
    def _bypass(self) -> str | None:
        """What is written down where this run is not bound to windows."""
        return "always" if self.step.given.get("window") == "always" else None

    def _kept_settings(self) -> dict[str, t.Any]:
        from ...config import remembered  # of runs that have something to do

        return remembered.of(self.step.given)

    def note_plan(self, rollout: Rollout) -> None:
        """Write down the stages ahead, as planned; scaling alone has none."""
        if rollout.kind == RolloutKind.SCALE:
            return
        self.loop.event(events.Planned(stages=[planned(s) for s in self.stages.of(rollout)]))

    def _begin_settings(self, forward: bool, revision: str, generation: int, baseline: int) -> None:
        """Give new revisions the settings given, and earlier revisions those that they had."""
        record = self.record
        if forward or generation > record.generation:
            source = None if forward else last_of(record, revision)
            if source is not None:
                self._report_changed(revision, source)
            self.generations.begin(revision, generation, source, again=not forward)
        if baseline and record.stable:
            stable = record.stable
            self.generations.begin(stable.revision, baseline, stable.generation, again=True)
        if forward and (unknown := self.generations.unknown()):
            (self.step.warn or self.step.print_line)(f"{record.service}: {unknown}")
        if forward and record.stable and record.stable.generation != generation:
            self._report_changed(record.stable.revision, record.stable.generation)

    def _report_changed(self, revision: str, generation: int) -> None:
        """Say what instances of an earlier revision read that is not as it was then."""
        if changed := self.generations.changed_references(revision, generation):
            self.step.print_line(
                f"{self.record.service}: {'; '.join(changed)}: instances of it that start from now"
                " on, as in a rollback, read what is there now [PR-265]"
            )

    def check_resumable(self, rollout: Rollout, revision: str) -> None:
        """Refuse to resume the rollout for another revision or plan, or with other settings.

        One that is being rolled back starts nothing with these any more.
        """
        title = f"{self.record.service} {rollout.revision}"
        if rollout.revision != revision:
            why = f": {rollout.reason}" if rollout.reason else ""
            raise RolloutFailed(
                f"rollout_revision: cannot start {revision!r}: rollout of {title} is in progress"
                f" (phase {rollout.phase.replace('_', ' ')}{why}). Resume it by rerunning"
                f" {rollout.revision}, roll it back (rollback.yml), or set rollout_supersede: true",
                "PR-601",
            )
        self._check_release(rollout)
        if rollout.phase == Phase.ROLLING_BACK:
            return
        planned = rollout.kind.forward or rollout.strategy == "canary"
        if planned and not self._follows_plan(rollout):
            raise RolloutFailed(
                f"rollout_steps: strategy, steps or gates have changed since the rollout of {title}"
                " began; rerun with the original ones, or roll it back (rollback.yml) and start"
                " again",
                "PR-602",
            )
        if not self.step.restored:
            self.generations.resume(rollout)

    def _check_release(self, rollout: Rollout) -> None:
        """Refuse to resume the rollout as a member of another release than its own, or of one that
        was taken back without it.
        """
        asked, current = self.settings.release, rollout.release
        stable = self.record.stable
        ahead = stable is None or stable.generation != rollout.generation
        goes = current and ahead and rollout.phase != Phase.ROLLING_BACK
        if why := self.step.release.abandoned() if goes else "":
            raise RolloutFailed(
                f"{self.record.service} {rollout.revision}: not continued, since {why}. Roll it"
                f" back: {self.step.command('abort')}; then it can be released again under another"
                " name",
                "PR-637",
            )
        if asked is None or (current and asked.release == current.release):
            return
        where = (
            f"is a member of release {current.release}" if current else "is a member of no release"
        )
        raise RolloutFailed(
            f"rollout_release: the rollout of {self.record.service} {rollout.revision} is in"
            f" progress and {where}, not of {asked.release}; finish it, or roll it back, first",
            "PR-634",
        )

    def _follows_plan(self, rollout: Rollout) -> bool:
        """Return whether the rollout may be resumed with the plan given now.

        Nothing of the plan is ahead of the hold of a blue-green rollout.
        """
        plan = self.settings.plan
        switched = rollout.phase == Phase.HOLDING and rollout.strategy == "blue_green"
        if switched or rollout.plan == self._fingerprint:
            return True
        if rollout.given or plan.strategy != rollout.strategy:
            return False
        # The version that began it did not keep its settings, and hashed the plan as it was written
        names = ("", "prepare", *(stage.name for stage in self.stages.of(rollout)))
        known = rollout.name in names
        if known:
            self.step.print_line(
                f"{self.record.service} {rollout.revision}: begun by an earlier version of"
                " progressive.rollout, so it is not known whether rollout_steps, rollout_gates or"
                f" rollout_analysis have changed since; continuing at {rollout.name or 'the start'}"
                " with the current ones"
            )
        return known

    def resume(self, rollout: Rollout, replicas: int) -> Result:
        """Resume the rollout in progress, held or not, with this number of replicas."""
        changed, back = rollout.phase == Phase.HELD, rollout.phase == Phase.ROLLING_BACK
        if not back and self._scaled_by_play(rollout, replicas):
            changed = True
            renumber(rollout, replicas, self.loop.fleet, self.stages.of)
        rollout.played = replicas
        if self.settings.replicas is not None:
            rollout.per_host = isinstance(self.settings.replicas, PerHost)
        if rollout.phase == Phase.HOLDING:
            self._pass_promotion(rollout)
        if rollout.phase == Phase.HELD:
            self._leave_hold(rollout)
        identity = self.step.session.identity
        rollout.request, rollout.host = identity.request, identity.host
        if not self.step.restored:
            if rollout.phase != Phase.HOLDING:
                rollout.plan = self._fingerprint
            rollout.given = self._kept_settings()
        resumed = events.Resume(
            phase=rollout.phase,
            by=identity.holder,
            window=self._bypass,
            notify=self._receivers,
        )
        self.loop.event(resumed)
        self.loop.commit()
        self.step.notify_release()
        began = moment(rollout.started)
        return self.step.report(
            changed,
            msg=(
                f"{self.record.service}: resuming the rollout of {rollout.revision} begun at"
                f" {began}"
            ),
        )

    def _pass_promotion(self, rollout: Rollout) -> None:
        """Pass what the plan, which may have changed since, has before the promotion."""
        self.stages.ahead(rollout)  # names what an earlier version only counted
        before = [stage.name for stage in self.stages.of(rollout) if stage.part != FINISH]
        rollout.passed = list(dict.fromkeys([*rollout.passed, *before]))

    @staticmethod
    def _scaled_by_play(rollout: Rollout, replicas: int) -> bool:
        """Return whether the play asks for another number of replicas than last time."""
        return replicas not in (rollout.replicas, rollout.played)

    def _leave_hold(self, rollout: Rollout) -> None:
        """Continue after a hold: failures and gates' results so far do not count any more."""
        self.enter(rollout, Phase.PROGRESSING)
        rollout.tally = None
        rollout.gates = {}
        rollout.background = {}
        rollout.pardoned = rollout.failed
        started = (rollout.generation, rollout.baseline)
        mine = [i for i in self.loop.fleet if i.generation in started and not self.step.in_place]
        # Instances still not ready caused the hold or exceeded their deadline meanwhile; replace
        # them.
        late = {i.id: clock.wall() for i in mine if i.state in (State.STARTING, State.NOT_READY)}
        self.record.draining.update(late)
        if not self.step.in_place:
            self.replace_never_ready(rollout)

    def replace_never_ready(self, rollout: Rollout) -> None:
        """Drain the stable instances that get no requests and have not been ready since the rollout
        began: a rollback waited for them in vain. Others are started instead.
        """
        if not rollout.previous or not rollout.ready:  # not known of very many
            return
        never = {
            i.id: clock.wall()
            for i in self.loop.fleet
            if i.generation == rollout.previous.generation
            and i.state in (State.STARTING, State.NOT_READY)
            and not i.in_rotation
            and i.id not in rollout.ready
        }
        self.record.draining.update(never)

    def supersede(self, rollout: Rollout, revision: str) -> None:
        """Close the rollout in favor of another revision, which replaces its instances."""
        done = (
            self.record.stable is not None and self.record.stable.generation == rollout.generation
        )
        outcome = Outcome.PROMOTED if done else Outcome.SUPERSEDED
        self.close(outcome, f"superseded by {revision}", settled=False)

    # -- in progress -------------------------------------------------------------------------------

    def enter(self, rollout: Rollout, phase: Phase, reason: str = "") -> None:
        """Enter a phase; the next commit writes it to the journal."""
        if rollout.turn_to(phase, reason, clock.now()):
            self.loop.event(events.PhaseEntered(phase=phase, reason=reason or None))

    def _move_on(self, rollout: Rollout, phase: Phase) -> None:
        """Enter a phase in which the rollout moves; why a rollback was begun stays its reason."""
        back = rollout.kind == RolloutKind.ROLLBACK
        self.enter(rollout, phase, rollout.reason if back else "")

    def enter_stage(self, rollout: Rollout, stage: Stage) -> None:
        """Enter a stage, in the phase that the rollout is in while it moves."""
        rollout.name = stage.name
        if rollout.phase not in (Phase.PROMOTING, Phase.ROLLING_BACK) and not rollout.phase.waits:
            self._move_on(rollout, Phase.PROGRESSING)
        self._note(Notable.STAGE, f"{stage.name}, {rollout.id}")

    def pass_stages(self, rollout: Rollout, ahead: Sequence[Stage], passed: int = 1) -> None:
        """Write down that the first of the stages ahead are passed, and which is next."""
        following = next(iter(ahead[passed:]), None)
        early = [gate.key for gate in following.gates if gate.early] if following else []
        rollout.advance(
            (stage.name for stage in ahead[:passed]),
            following.name if following else "",
            dict.fromkeys(early, clock.now()),
        )
        self.loop.commit()

    def hold(self, rollout: Rollout, reason: str) -> None:
        """Stop the rollout where it is, for a person to decide."""
        from ..step import failures  # of a rollout that stops

        if rollout.phase == Phase.ROLLING_BACK:
            reason = f"{rollout.reason}; and the rollback failed: {reason}"
        self.enter(rollout, Phase.HELD, reason)
        self.loop.commit()
        self.step.notify_release()
        self._note(Notable.HELD, f"held until an operator decides: {reason}")
        failures.show(self.step, rollout)
        if rollout.previous:
            with suppress(*TRANSIENT):  # only a precaution
                self.loop.refill_with(rollout.previous)

    def refuse_rolling_back(self, rollout: Rollout) -> None:
        """Refuse to continue a rollout that is being rolled back."""
        if rollout.phase == Phase.ROLLING_BACK:
            raise RolloutFailed(
                f"{self.settings.service} {rollout.revision}: {rollout.reason}; rollback pending",
                rollout.cause or "PR-611",
            )

    def rescale(self, rollout: Rollout) -> None:
        """Continue to the number of replicas that an operator asked for, or tell why not."""
        self._take_aim(rollout)
        replicas, rollout.wanted = rollout.wanted, 0
        if replicas in (0, rollout.replicas):
            return
        title, before = f"{self.settings.service} {rollout.revision}", rollout.replicas
        try:
            self._check_scale(rollout, replicas)
            renumber(rollout, replicas, self.loop.observe_fleet(), self.stages.of)
        except InputError as exc:
            self.loop.event(events.Scaled(refused=str(exc), replicas=replicas))
            self.loop.print_line(
                f"{title}: cannot scale from {before} to {replicas} replicas: {exc} [PR-701]"
            )
        else:
            rollout.tally = None
            self.loop.event(events.Scaled(replicas=replicas))
            self.note_plan(rollout)
            stage = rollout.name or "the stage"
            self.loop.print_line(
                f"{title}: scaled from {before} to {replicas} replicas; gates of {stage} start"
                " again"
            )
        self.loop.commit()

    def _take_aim(self, rollout: Rollout) -> None:
        """Let the stage have as many new instances as an operator has set, or tell why not."""
        number, rollout.wanted_new = rollout.wanted_new, 0
        if not number:
            return
        from ...engine.aim import aimed_stage  # few rollouts are told

        title = f"{self.settings.service} {rollout.revision}"
        try:
            name = aimed_stage(self.stages.ahead(rollout), number, rollout.replicas)
        except InvalidSteps as exc:
            self.loop.event(events.TargetSet(refused=str(exc), new=number))
            self.loop.print_line(f"{title}: cannot set {number} new instances: {exc} [PR-701]")
        else:
            rollout.aim = {**rollout.aim, name: number}
            rollout.gates, rollout.background, rollout.tally = {}, {}, None
            self.loop.event(events.TargetSet(new=number, stage=name))
            self.loop.print_line(
                f"{title}: {name} has {number} new instances; its gates start again"
            )
        self.loop.commit()

    def _check_scale(self, rollout: Rollout, replicas: int) -> None:
        plan = self.stages.plan_of(rollout)
        self.validation.refuse_to_scale()
        self.validation.check_capacity(replicas, plan)
        with suppress(*TRANSIENT):  # a host that does not answer now has no part in the sum
            self.loop.platform.check()
        self.validation.check_hosts(replicas, plan)

    # -- end ---------------------------------------------------------------------------------------

    def promote(self, rollout: Rollout) -> bool:
        """Make the rollout's revision the stable one, as it is sized now, and enter the phase after
        that; return whether it was not.
        """
        before = self.record.stable
        self.make_stable(rollout)
        if rollout.phase in (Phase.PROMOTING, Phase.HOLDING) and self.record.stable == before:
            return False
        self._move_on(rollout, Phase.PROMOTING)
        return True

    def make_stable(self, rollout: Rollout) -> None:
        """Make the rollout's revision the stable one."""
        self.record.stable = Composition(
            rollout.revision, rollout.generation, rollout.replicas, rollout.order
        )

    def close(self, outcome: Outcome, reason: str, settled: bool = True) -> None:
        """Close the rollout: remove what is left of stopped instances, and write the history.

        `settled`: the fleet is where it is to be, so that the platform can conclude the rollout.
        """
        from ..loop import conclusion  # most steps close nothing
        from ..loop.late_commands import take_commands

        record, rollout = self.record, self.record.open
        if rollout is None:
            return
        rollout.step = "finish"
        if settled:
            if outcome == Outcome.PROMOTED and rollout.ran:
                rollout.replaced = rollout.ran  # also those that ended by themselves
            conclusion.stop_orphaned(self.loop)
            conclusion.conclude(self.loop, record.stable)
        conclusion.put_autoscaler_back(self.loop)
        left = rollout.previous
        if (
            outcome == Outcome.PROMOTED
            and record.stable
            and left
            and left.revision not in (rollout.revision, record.stable.revision)
        ):
            # A rollback is never itself rolled back, so no previous revision is kept.
            record.before = None if rollout.kind == RolloutKind.ROLLBACK else left
        if outcome == Outcome.PROMOTED and rollout.kind.forward:
            reason = reason or self._without_verdict(rollout)
        conclusion.empty_previews(self.loop)
        conclusion.remove_dead(self.loop)
        if rollout.release:
            self.step.release.note()
        late = take_commands(self.loop, rollout)
        self.loop.event(events.End(outcome=outcome, reason=reason))
        record.close(outcome, reason, clock.wall())
        prune(record)
        self.places.note()
        self.loop.commit()
        for line in late:
            self.loop.print_line(line)
        self.step.notify_release()
        promoted = outcome == Outcome.PROMOTED
        ended = outcome.replace("_", " ") + (f": {reason}" if reason else "")
        self._note(Notable.PROMOTED if promoted else Notable.ENDED, f"{ended}, {rollout.id}")
        self._report_end(rollout)

    def _without_verdict(self, rollout: Rollout) -> str:
        """Return the errors that count against the new revision, though no analysis decided."""
        if not any(
            gate.driver == "analysis" and not gate.options["dry_run"]
            for gate in self.settings.plan.gates
        ):
            return self._uncompared(rollout)
        from ...analysis import spec  # of rollouts that were analysed
        from ...analysis.progress import left_open, unmeasured

        context, texts = self.step.context, []
        standard = spec.standard(context.counted, bool(context.access_log))
        for gate in self.settings.plan.background:
            record = rollout.background.get(gate.key)
            if record is not None and record.state != GateState.WAITING:
                continue
            analysis = spec.parse(gate.options, gate.variable, standard)
            memory = (record.memory if record else None) or {}
            # what a user asked for, and could be measured beside a stable side, is not silence
            own = not gate.by_default and rollout.previous and not rollout.full
            texts += [left_open(analysis, memory), unmeasured(analysis, memory) if own else ""]
        text = "; ".join(text for text in texts if text)
        return f"{WITHOUT_VERDICT}: {text}" if text else ""

    def _uncompared(self, rollout: Rollout) -> str:
        """Return the same of a rollout that no analysis decides, such as blue-green."""
        if not self.settings.default_analysis:
            return ""
        from ...analysis.progress import uncompared
        from ...engine.judges.counts import Counts

        text = uncompared(*(Counts(**side) for side in self.loop.recorder.requests(rollout.id)))
        return f"{WITHOUT_VERDICT}: {text}" if text else ""

    def _report_end(self, rollout: Rollout) -> None:
        from ...report.messages import ended, left_behind  # of the end alone
        from ..step import failures

        service = self.record.service
        bad = (Outcome.ROLLED_BACK, Outcome.FAILED, Outcome.REFUSED)
        if rollout.outcome in bad and rollout.cause:
            failures.show(self.step, rollout)
        else:
            self.loop.print_line(ended(service, rollout))
        for line in (
            *left_behind(service, [i for i in self.loop.fleet if is_orphaned(i)]),
            *self.places.left(),
            *self._left_adopted(rollout),
        ):
            self.loop.print_line(line)

    def _left_adopted(self, rollout: Rollout) -> list[str]:
        """Return a line on adopted servers that were replaced, if there are any."""
        if self.record.adopted is None:
            return []
        from .adopted import left  # of first rollouts alone

        return left(self.record, rollout, self.loop.table or {}, self.loop.traffic.keeps_adopted)


def others(fleet: Iterable[Instance], generation: int) -> int:
    """Return how many instances of other generations there are."""
    return sum(i.state.counted and i.generation != generation for i in fleet)
