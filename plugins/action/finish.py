from __future__ import annotations

from ..plugin_utils.controller.rollout.forward import Forward
from ..plugin_utils.controller.rollout.in_place import InPlace
from ..plugin_utils.controller.step.action import StepAction
from ..plugin_utils.controller.step.context import Result, StepContext


class ActionModule(StepAction):
    follows = True

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
