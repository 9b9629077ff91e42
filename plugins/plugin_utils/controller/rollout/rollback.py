# SPDX-License-Identifier: GPL-3.0-or-later
"""The rollback: to the stable revision, or after a promotion to the previous one."""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from ...base import clock
from ...base.errors import Aborted, InputError, RolloutFailed
from ...engine.budget import PerHost
from ...engine.model import Composition, Instance, Phase, State
from ...engine.strategy import BACK, SWITCH_BACK, Plan, Stage, rolling
from ...report.failure import rolled_back, without_log
from ...state import commands, events
from ...state.record import Outcome, Record, Rollout, RolloutKind
from ..loop.draining import cancel_drain
from ..loop.stage_run import run_stage
from ..loop.supervisor import Proceed
from ..step.context import StepContext, StepPart
from .expectation import Expectation
from .lifecycle import Lifecycle


class Rollback(StepPart):
    """Roll back the rollout in progress, or open a rollout back to an earlier revision."""

    def __init__(self, step: StepContext) -> None:
        super().__init__(step)
        self.lifecycle = Lifecycle(step)
        self.expectation = Expectation(step)

    # -- of a rollout in progress ------------------------------------------------------------------

    def start(self, rollout: Rollout, reason: str, cause: RolloutFailed | None = None) -> None:
        """Decide that the rollout is rolled back, because of a failure or an operator (`cause`)."""
        self.lifecycle.enter(rollout, Phase.ROLLING_BACK, reason)
        rollout.tally, rollout.paused, rollout.gates, rollout.background = None, {}, {}, {}
        rollout.wanted = rollout.wanted_new = 0  # neither is for the way back
        if isinstance(cause, Aborted):
            rollout.ending = Outcome.ABORTED
        if cause is not None:
            rollout.cause = cause.id

    def _begin(self, rollout: Rollout, reason: str, cause: RolloutFailed | None = None) -> None:
        """Decide that it is rolled back, and which stable instances return."""
        failed_before = rollout.phase == Phase.HELD
        self.start(rollout, reason, cause)
        if rollout.previous:
            cancel_drain(self.loop, rollout.previous.generation)
        if failed_before:
            self.lifecycle.replace_never_ready(rollout)

    def abort(self, rollout: Rollout, command: Mapping[str, t.Any]) -> t.NoReturn:
        """Obey an operator who aborts the rollout, whatever its plan is now; as `carry_out`."""
        sentence = commands.sentence(command)
        for earlier in commands.not_withdrawn(self.step.session.commands()):
            mine = earlier["rollout"] == rollout.id and earlier["word"] in commands.COMMANDS
            if mine and earlier["number"] < command["number"]:
                self.loop.event(events.CommandTaken.of(earlier, "", f"{sentence} after it"))
        self.record.obeyed = command["number"]
        self.loop.event(events.CommandTaken.of(command, ""))
        self.loop.print_line(f"{self.settings.service} {rollout.revision}: {sentence}")
        self.carry_out(rollout, Aborted(sentence))

    def carry_out(self, rollout: Rollout, cause: RolloutFailed) -> t.NoReturn:
        """Roll the rollout back because of a failure; raises RolloutFailed once that is done.

        The step that decides rolls back, with its connections, checks and counters. What a killed
        run leaves, the step `rollback` does.
        """
        service = self.settings.service
        self._begin(rollout, str(cause), cause)
        self.loop.commit()
        self.step.notify_release()
        try:
            self.loop.turn_back()
        except RolloutFailed as away:
            why = f"{without_log(str(cause))}; rollback pending: {away}"
            raise RolloutFailed(f"{service} {rollout.revision}: {why}", cause.id) from None
        self.run(rollout)
        raise RolloutFailed(rolled_back(service, rollout), cause.id) from None

    def run(self, rollout: Rollout, why: str = "") -> None:
        """Roll back: stable instances are in rotation before new ones go, within the same budget.

        Where the old instances are still ready, all requests switch to them at once.
        """
        if rollout.phase != Phase.ROLLING_BACK:
            reason = rollout.reason or "rolled back by hand"
            self._begin(rollout, f"{reason}: {why}" if why else reason)
        rollout.step = "rollback"
        try:
            while self._run_stages(rollout) is Proceed.RENUMBER:
                rollout.wanted = 0  # the target has that number
        except RolloutFailed as exc:
            self.lifecycle.hold(rollout, str(exc))
            raise RolloutFailed(
                f"{self.settings.service}: the rollback of {rollout.revision} failed: {exc};"
                " rollout held",
                "PR-607",
            ) from None
        self.record.stable = rollout.previous
        self.lifecycle.close(
            (rollout.ending or Outcome.ROLLED_BACK) if rollout.previous else Outcome.FAILED,
            rollout.reason,
        )

    def _run_stages(self, rollout: Rollout) -> Proceed:
        """Run the stages of a rollback; return if the owner of the workload asks for another
        number.
        """
        ahead = self._stages(rollout)
        for number, stage in enumerate(ahead):
            rollout.name = stage.name
            proceed = run_stage(
                self.loop,
                stage,
                _revision(rollout),
                rollout,
                self.step.describe,
                expected=self.expectation.along(ahead[number:]),
            )
            rollout.tally = None
            if proceed is Proceed.RENUMBER:
                return proceed
        return Proceed.GO

    def _stages(self, rollout: Rollout) -> Sequence[Stage]:
        """Return the stages; new instances without requests are drained at once."""
        # A first deployment has no stable revision to return to: all its instances go.
        target = rollout.previous or Composition(rollout.revision, 0, 0)
        draining, fleet = self.record.draining, self.loop.fleet
        if rollout.generation != target.generation:
            idle = without_requests(fleet, rollout.generation, rollout.asked)
            draining.update({name: clock.now() for name in idle if name not in draining})
        # What others can carry is of no use to a host that has no instance.
        headroom = Fraction(0) if rollout.per_host else self.settings.headroom
        return rollback_stages(fleet, rollout.asked, target, rollout.baseline, headroom)

    # -- while no rollout is in progress -----------------------------------------------------------

    def target(self, to: str | None = None) -> Composition | None:
        """Return where a rollback leads while no rollout is in progress; None: nowhere.

        To the revision asked for, which was promoted before; otherwise from a failed rollout, or
        one that only scaled, to the stable revision, and from the stable revision to the previous
        one. A rollback is never rolled back.
        """
        record = self.record
        if to is not None:
            return self._promoted(to)
        if record.stable is None or record.rollout is None or _rolled_back(record.rollout):
            return None
        if record.rollout.outcome == Outcome.REFUSED:
            return None
        if (
            record.rollout.outcome == Outcome.FAILED
            or record.rollout.revision != record.stable.revision
        ):
            return record.stable
        if record.before is None:
            return None
        return Composition(
            record.before.revision, record.generation + 1, self._replicas(record.stable.replicas)
        )

    def _promoted(self, to: str) -> Composition | None:
        """Return a revision that was promoted before as the target; None if it is stable."""
        record = self.record
        known = [c.revision for c in (record.stable, record.before) if c]
        known += [
            past["revision"]
            for past in reversed(record.history)
            if past.get("outcome") == Outcome.PROMOTED
        ]
        if to not in known:
            raise InputError(
                f"rollout_to: revision {to!r} of {record.service} was never promoted; known"
                f" revisions: {', '.join(dict.fromkeys(known)) or 'none'}",
                "PR-609",
            )
        if record.stable is None or record.stable.revision == to:
            return None
        return Composition(to, record.generation + 1, self._replicas(record.stable.replicas))

    def _replicas(self, known: int) -> int:
        """Return the number of replicas asked for, or else that of the stable revision."""
        given = self.settings.replicas
        if isinstance(given, PerHost):
            return len(self.loop.platform.hosts())
        return given if isinstance(given, int) else (given.of(known) if given else None) or known

    def open(self, target: Composition, why: str = "", plan: Plan | None = None) -> Rollout:
        """Open a rollout back to the target; `plan`: its steps, where it has any."""
        failed, stable = self.record.rollout, self.record.stable
        left = failed if target == stable else stable
        base = self.lifecycle.validation.kept_replicas(target.replicas, plan or Plan())
        rollout = self.lifecycle.open(
            RolloutKind.ROLLBACK,
            target.revision,
            target.generation,
            target.replicas,
            base,
            plan=plan,
        )
        rollout.step = "rollback"
        source = left.revision if left else "nothing"
        rollout.reason = f"rolled back from {source}{f': {why}' if why else ''}"
        return rollout


def rollback_stages(
    fleet: Iterable[Instance],
    asked: int | None,
    target: Composition,
    baseline: int = 0,
    headroom: Fraction = Fraction(0),
) -> Sequence[Stage]:
    """Return the stages of a rollback from a stage that asked for this share of the requests.

    The new instances' share only falls. They get no requests as soon as the stable ones can carry
    all with their `headroom`, and they go before the baseline instances.
    """
    final = replace(rolling(target.generation, target.replicas), baseline=baseline)
    # By weights, however the requests were divided: by number, a big canary with a small share
    # would gain during its rollback.
    end = Stage(BACK, replace(final, weight=100, headroom=headroom))
    counted = [i for i in fleet if i.state.counted]
    warm = [
        i
        for i in counted
        if i.generation == target.generation and i.state is State.READY and i.lb_healthy
    ]
    others = sum(i.generation != target.generation for i in counted)
    if (
        asked != 100
        or not 0 < target.replicas <= len(warm)
        or not others
        or all(i.in_rotation for i in warm)
    ):
        return (end,)
    return Stage(SWITCH_BACK, replace(final, old=others, weight=100)), end


def without_requests(fleet: Iterable[Instance], generation: int, asked: int | None) -> list[str]:
    """Return instances without requests, which a rollback must not give their first."""
    counted = [i for i in fleet if i.state.counted]
    if asked != 0 and not any(i.in_rotation for i in counted):
        # the load balancers restarted: any instance may have served, and is better than none
        return []
    return [i.id for i in counted if i.generation == generation and not i.in_rotation]


def target_revision(rollout: Rollout) -> str | None:
    """Return the revision that a rollback of this rollout leads to."""
    return rollout.previous.revision if rollout.previous else None


def _revision(rollout: Rollout) -> str:
    """Return the revision of instances that a rollback starts."""
    return target_revision(rollout) or rollout.revision


def _rolled_back(rollout: Rollout) -> bool:
    return rollout.outcome in (Outcome.ROLLED_BACK, Outcome.ABORTED) or (
        rollout.kind == RolloutKind.ROLLBACK and rollout.over
    )


def nothing_to_roll_back(record: Record) -> str:
    """Return why there is nothing to roll back, in a sentence."""
    last = record.rollout
    if record.stable and last and last.outcome == Outcome.REFUSED:
        return (
            f"nothing to roll back: the rollout of {record.service} {last.revision} was refused"
            f" before anything was started, and {record.stable.revision} is stable; to go back"
            " further, name the revision (rollout_to)"
        )
    if record.stable and last and _rolled_back(last):
        return (
            f"{record.service} was already rolled back to {record.stable.revision}; to change the"
            " revision, roll one out"
        )
    return f"nothing to roll back: no previous revision of {record.service} is known"
