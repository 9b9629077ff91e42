from __future__ import annotations

from ..plugin_utils.controller.rollout.dry_run import DryRun
from ..plugin_utils.controller.rollout.forward import Forward
from ..plugin_utils.controller.step.action import StepAction
from ..plugin_utils.controller.step.context import Result, StepContext
from ..plugin_utils.engine.model import Phase


class ActionModule(StepAction):
    follows = True

    def perform(self, step: StepContext) -> Result:
        if step.check_mode:
            result = DryRun(step).forward()
            rollout = step.record.open
            promotes = rollout is not None and rollout.phase is not Phase.PROMOTING
            return {**result, "changed": result["changed"] or promotes}
        step.begin()
        return Forward(step).promote()
