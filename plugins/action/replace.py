from __future__ import annotations

from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.action import StepAction
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.context import Result, StepContext
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.dry_run import DryRun
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.forward import Forward
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import PARTS, REPLACE
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs import values


class ActionModule(StepAction):
    own = ("through",)

    def perform(self, step: StepContext) -> Result:
        through = values.choice(step.own.get("through", REPLACE), "rollout_through", PARTS)
        if step.check_mode:
            result = DryRun(step).forward()
            ends = through != REPLACE and step.record.open is not None
            return {**result, "changed": result["changed"] or ends}
        step.begin()
        return Forward(step).advance(through)
