# SPDX-License-Identifier: GPL-3.0-or-later
"""A rollback that an operator, or the watch after a promotion, asks for."""

from __future__ import annotations

from ...base.errors import AlreadyRunning, InputError, LeaseHeld, RolloutFailed
from ...engine.model import Composition
from ...engine.plans import back_in_steps
from ...engine.strategy import PROMOTE
from ...state import commands
from ...state.record import Outcome, Record, Rollout, RolloutKind
from ..step.context import Result, StepContext, StepPart
from . import takeover
from .adoption import adopt
from .dry_run import DryRun
from .forward import Forward
from .rollback import nothing_to_roll_back, target_revision


class RollbackRequest(StepPart):
    """Roll back to the stable revision; with no rollout in progress, to the previous one."""

    def __init__(
        self,
        step: StepContext,
        *,
        to: str | None = None,
        why: str = "",
        of: str | None = None,
        in_steps: bool = False,
    ) -> None:
        """Make a request.

        `to`: the revision to return to. `of`: the rollout that is to be undone; nothing is done
        unless it is the last one, or the last one is its rollback. `in_steps`: a rollback after a
        promotion takes the steps of the canary.
        """
        super().__init__(step)
        self._to, self._why, self._of = to, why, of
        self._plan = back_in_steps(self.settings.plan) if in_steps else None
        self._forward = Forward(step)

    def run(self) -> Result:
        """Carry it out; a run that has the lease is told to abort instead."""
        step = self.step
        if not _concerns(step.session.read(), self._of):
            return self._superseded()
        try:
            if host := step.begin_once():
                return step.left_to(host)
        except AlreadyRunning:
            raise
        except LeaseHeld as exc:
            return self._send_abort(exc)
        if not _concerns(step.record, self._of):
            return self._superseded()
        rollout = step.record.open
        if rollout is not None:
            self._check_target(rollout)
        if rollout is None or step.check_mode:
            step.loop.observe_fleet()
        else:
            # a load balancer that is restarting must not keep a bad revision in service
            step.loop.await_fleet()
        adopt(step)
        if step.check_mode:
            return DryRun(step).rollback(self._to, self._plan)
        if rollout is not None and rollout.kind != RolloutKind.ROLLBACK:
            if self._plan:
                title = f"{self.settings.service} {rollout.revision}"
                step.print_line(f"{title}: its rollback has no steps, since it was not promoted")
            self._forward.rollback.run(rollout, self._why)
            return step.report(True)
        return self._return_to_earlier(rollout)

    def _superseded(self) -> Result:
        """Return the result where another rollout has begun, which is left alone."""
        service = self.settings.service
        message = f"{service}: another rollout has begun; nothing to roll back"
        return self.step.report(False, msg=message)

    def _check_target(self, rollout: Rollout) -> None:
        """Refuse a target other than that of the rollout in progress."""
        target = (
            rollout.revision if rollout.kind == RolloutKind.ROLLBACK else target_revision(rollout)
        )
        if self._to not in (None, target):
            raise RolloutFailed(
                f"rollout_to: cannot roll back to {self._to!r}: {self.settings.service}"
                f" {rollout.revision} is {rollout.phase.replace('_', ' ')}, and its rollback leads"
                f" to {target_revision(rollout) or 'no revision'}; do that first",
                "PR-601",
            )

    def _return_to_earlier(self, rollout: Rollout | None) -> Result:
        """Roll back after a promotion: by a rollout to an earlier revision."""
        step, forward = self.step, self._forward
        if rollout is None:
            target = forward.rollback.target(self._to)
            if target is None:
                return step.report(False, msg=nothing_to_roll_back(step.record))
            self._check_plan(target)
            rollout = self._open_prepared(target)
        elif self._plan is None:
            rollout.strategy = "rolling"  # no further steps
        elif rollout.strategy == "canary":
            forward.lifecycle.check_resumable(rollout, rollout.revision)
        rollout.tally = None
        forward.run(rollout, PROMOTE)
        forward.lifecycle.make_stable(rollout)
        forward.lifecycle.close(Outcome.PROMOTED, rollout.reason)
        return step.report(True)

    def _check_plan(self, target: Composition) -> None:
        """Refuse steps that a rollback cannot take."""
        if self._plan is None:
            return
        if self._plan.baseline:
            raise InputError(
                "rollout_steps: baseline compares a new revision with fresh instances of the stable"
                " one, and a rollback has no new revision; remove it",
                "PR-107",
            )
        self._forward.lifecycle.validation.check_capacity(target.replicas, self._plan)

    def _open_prepared(self, target: Composition) -> Rollout:
        """Open a rollout back to the target and prepare its hosts; if that fails, close it."""
        last = self.record.rollout
        rollout = self._forward.rollback.open(target, self._why, self._plan)
        try:
            self._forward.prepare(rollout)
        except RolloutFailed as exc:
            self.record.rollout = last
            self.loop.commit()
            why = rollout.reason or str(exc)
            raise RolloutFailed(
                f"{self.settings.service} cannot be rolled back to {target.revision}: {why};"
                " nothing was touched",
                "PR-609",
            ) from None
        return rollout

    def _send_abort(self, held: LeaseHeld) -> Result:
        """Abort the rollout of another run, if that leads to the revision asked for."""
        step = self.step
        rollout = step.session.read().open
        if rollout is None or commands.refusal(rollout.phase, "abort"):
            raise held
        if self._to not in (None, target_revision(rollout)):
            raise LeaseHeld(f"{held}; or abort that rollout first (abort.yml)", held.id)
        if not step.check_mode:
            takeover.post(step, rollout, "abort", why=self._why or "rollback")
        title = f"{self.settings.service} {rollout.revision}"
        message = f"{title}: command 'abort' sent to the run in progress ({held})"
        return step.report(True, msg=message, sent=True)


def _concerns(record: Record, of: str | None) -> bool:
    """Return whether a rollout, if given, is the last one, or what the last rollback is of."""
    last = record.rollout
    if not of or last is None or last.id == of:
        return True
    before = record.history[-1:] if record.open else record.history[-2:-1]
    return last.kind == RolloutKind.ROLLBACK and any(past.get("id") == of for past in before)
