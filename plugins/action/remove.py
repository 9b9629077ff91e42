# SPDX-License-Identifier: GPL-3.0-or-later
"""Remove what rollouts of a service have left, and let its instances run on."""

from __future__ import annotations

from collections.abc import Sequence

from ..plugin_utils.base.errors import RolloutFailed
from ..plugin_utils.controller.step.action import StepAction
from ..plugin_utils.controller.step.context import Result, StepContext
from ..plugin_utils.inputs.options import FLAG, Field, Options


class ActionModule(StepAction):
    opens = True
    moves = False
    options = Options(
        Field("show", FLAG, "Whether to print what is removed, a line each.", default=False)
    )

    def perform(self, step: StepContext) -> Result:
        loop, dry = step.loop, step.check_mode  # refuses wrong settings before the lease is taken
        existed = bool(step.session.read().journal)
        refuse_in_progress(step)
        if not dry:
            step.session.acquire(step.guard.check)
            refuse_in_progress(step)  # it may have begun since
        removed = [*loop.platform.leave(dry), *loop.traffic.leave(dry)]
        releases = step.release.releases.forget(step.settings.service, dry)
        removed += [f"release {name}" for name in releases]
        removed += [step.session.store.place] if existed else []
        if not dry:
            step.session.erase()
        return step.report(bool(removed), removed=removed, lines=lines(step, removed))


def refuse_in_progress(step: StepContext) -> None:
    """Refuse to remove a service whose rollout or release is in progress."""
    service, rollout = step.settings.service, step.record.open
    if rollout is not None:
        raise RolloutFailed(
            f"cannot remove {service}: its rollout of {rollout.revision} is"
            f" {rollout.phase.replace('_', ' ')}; end it first: {step.command('promote')}, or"
            f" {step.command('abort')}",
            "PR-707",
        )
    for name, release in step.release.releases.read().items():
        members = [member.service for member in release.members.values()]
        if service in members and not release.phase.over:
            raise RolloutFailed(
                f"cannot remove {service}: it is a member of the release {name}, which is in"
                " progress; end that first",
                "PR-707",
            )


def lines(step: StepContext, removed: Sequence[str]) -> list[str]:
    """Return what is printed."""
    service, verb = step.settings.service, "would be removed" if step.check_mode else "removed"
    if not removed:
        return [f"{service}: rollouts have left nothing; nothing to do"]
    return [f"{service}: {verb}: {what}" for what in removed]
