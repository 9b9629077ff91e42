# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Roll back to the stable revision; with no rollout in progress, to the previous one."""

from __future__ import annotations

from collections.abc import Sequence

from ansible import context

from ..plugin_utils.base.errors import AlreadyRunning, LeaseHeld, RolloutFailed
from ..plugin_utils.config.variables import OF, TO, WHY
from ..plugin_utils.controller.rollout import takeover
from ..plugin_utils.controller.rollout.dry_run import DryRun
from ..plugin_utils.controller.rollout.forward import Forward
from ..plugin_utils.controller.rollout.rollback import nothing_to_roll_back, target_revision
from ..plugin_utils.controller.rollout.stages import refuse_in_place
from ..plugin_utils.controller.step.action import StepAction
from ..plugin_utils.controller.step.context import Result, StepContext
from ..plugin_utils.engine.model import Composition
from ..plugin_utils.engine.strategy import PROMOTE
from ..plugin_utils.inputs.options import Options
from ..plugin_utils.state import commands
from ..plugin_utils.state.record import Outcome, Record, Rollout, RolloutKind


class ActionModule(StepAction):
    own = Options(TO, WHY, OF)

    def perform(self, step: StepContext) -> Result:
        if told := without_effect(context.CLIARGS.get("extra_vars") or ()):
            (step.warn or step.say)(f"{step.settings.service}: {told}")
        to, why, of = (step.own.get(name) for name in ("to", "why", "of"))
        refuse_in_place(step, rollback=True)
        if not concerns(step.session.read(), of):
            return superseded(step)
        try:
            if host := step.begin_once():
                return step.left_to(host)
        except AlreadyRunning:
            raise
        except LeaseHeld as exc:
            return send_abort(step, to, exc, why)
        if not concerns(step.record, of):
            return superseded(step)
        rollout = step.record.open
        if rollout is not None:
            check_target(step, rollout, to)
        if rollout is None or step.check_mode:
            step.loop.observe_fleet()
        else:
            # a load balancer that is restarting must not keep a bad revision in service
            step.loop.await_fleet()
        forward = Forward(step)
        forward.lifecycle.adopt()
        if step.check_mode:
            return DryRun(step).rollback(to)
        if rollout is not None and rollout.kind != RolloutKind.ROLLBACK:
            forward.rollback.run(rollout, why or "")
            return step.report(True)
        return roll_back_to(step, forward, rollout, to, why or "")


def without_effect(given: Sequence[str]) -> str:
    """Return that a rollback does not follow these variables; nothing where none is given."""
    words = " ".join(text for text in given if not text.startswith("@"))
    names = [name for name in ("rollout_strategy", "rollout_steps") if name in words]
    if not names:
        return ""
    verb = "has" if len(names) == 1 else "have"
    return (
        f"{' and '.join(names)} {verb} no effect: a rollback has no steps, and replaces instances"
        " within rollout_budget"
    )


def concerns(record: Record, of: str | None) -> bool:
    """Return whether a rollout, if given, is the last one, or what the last rollback is of."""
    last = record.rollout
    if not of or last is None or last.id == of:
        return True
    before = record.history[-1:] if record.open else record.history[-2:-1]
    return last.kind == RolloutKind.ROLLBACK and any(one.get("id") == of for one in before)


def superseded(step: StepContext) -> Result:
    """Return the result where another rollout has begun, which is left alone."""
    service = step.settings.service
    return step.report(False, msg=f"{service}: another rollout has begun; nothing to roll back")


def check_target(step: StepContext, rollout: Rollout, to: str | None) -> None:
    """Refuse a target other than that of the rollout in progress."""
    target = rollout.revision if rollout.kind == RolloutKind.ROLLBACK else target_revision(rollout)
    if to not in (None, target):
        raise RolloutFailed(
            f"rollout_to: cannot roll back to {to!r}: {step.settings.service} {rollout.revision} is"
            f" {rollout.phase.replace('_', ' ')}, and its rollback leads to"
            f" {target_revision(rollout) or 'no revision'}; do that first",
            "PR-601",
        )


def roll_back_to(
    step: StepContext, forward: Forward, rollout: Rollout | None, to: str | None, why: str
) -> Result:
    """Roll back after a promotion: by a rollout to an earlier revision."""
    if rollout is None:
        target = forward.rollback.target(to)
        if target is None:
            return step.report(False, msg=nothing_to_roll_back(step.record))
        rollout = open_prepared(step, forward, target, why)
    rollout.tally = None
    forward.run(rollout, PROMOTE)
    forward.lifecycle.make_stable(rollout)
    forward.lifecycle.close(Outcome.PROMOTED, rollout.reason)
    return step.report(True)


def open_prepared(step: StepContext, forward: Forward, target: Composition, why: str) -> Rollout:
    """Open a rollout back to the target and prepare its hosts; if that fails, close it again."""
    last = step.record.rollout
    rollout = forward.rollback.open(target, why)
    try:
        forward.prepare(rollout)
    except RolloutFailed as exc:
        step.record.rollout = last
        step.loop.commit()
        why = rollout.reason or str(exc)
        raise RolloutFailed(
            f"{step.settings.service} cannot be rolled back to {target.revision}: {why}; nothing"
            " was touched",
            "PR-609",
        ) from None
    return rollout


def send_abort(
    step: StepContext, to: str | None, held: LeaseHeld, why: str | None = None
) -> Result:
    """Abort the rollout of another run, if that leads to the revision asked for."""
    rollout = step.session.read().open
    if (
        rollout is None
        or commands.refusal(rollout.phase, "abort")
        or to not in (None, target_revision(rollout))
    ):
        raise held
    if not step.check_mode:
        takeover.post(step, rollout, "abort", why=why or "rollback")
    title = f"{step.settings.service} {rollout.revision}"
    told = f"{title}: command 'abort' sent to the run in progress ({held})"
    return step.report(True, msg=told, sent=True)
