# SPDX-License-Identifier: GPL-3.0-or-later
"""Wait until N instances of a revision are ready. Reads only."""

from __future__ import annotations

from ..plugin_utils.base import clock
from ..plugin_utils.base.errors import RolloutFailed
from ..plugin_utils.controller.rollout.request import whole_replicas
from ..plugin_utils.controller.step.action import StepAction
from ..plugin_utils.controller.step.context import Result, StepContext
from ..plugin_utils.engine.model import State
from ..plugin_utils.engine.wording import states


class ActionModule(StepAction):
    def perform(self, step: StepContext) -> Result:
        wanted = whole_replicas(step)
        stable = step.session.read().stable
        revision = step.settings.revision or (stable.revision if stable else None)
        deadline = clock.monotonic() + step.settings.rules.progress_deadline
        while True:
            step.guard.check()
            mine = [i for i in step.loop.observe_fleet() if revision in (None, i.revision)]
            waiting = [i for i in mine if i.state is not State.READY]
            ready = len(mine) - len(waiting)
            if ready >= wanted:
                return step.report(False, ready=ready)
            if step.check_mode or clock.monotonic() > deadline:
                why = states(waiting) or "there are no others"
                raise RolloutFailed(
                    f"{ready} of {wanted} instances of {revision} are ready ({why})", "PR-616"
                )
            step.checker.wait(0.25)
