from __future__ import annotations

from ..plugin_utils.controller.action import StepAction
from ..plugin_utils.controller.context import Result, StepContext
from ..plugin_utils.controller.forward import Forward
from ..plugin_utils.controller.in_place import InPlace


class ActionModule(StepAction):
    def perform(self, step: StepContext) -> Result:
        step.begin()
        rollout = step.record.open
        if step.check_mode:
            step.loop.observe_fleet()
            diff = {"before": f"{rollout.phase}\n", "after": "finished\n"} if rollout else {}
            return step.report(rollout is not None, diff=diff)
        if rollout is None or not step.in_place:
            return Forward(step).finish()
        in_place = InPlace(step)
        with in_place.explained():
            return in_place.finish(rollout)
