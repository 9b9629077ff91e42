from __future__ import annotations

from ..plugin_utils.controller.rollout.dry_run import DryRun
from ..plugin_utils.controller.rollout.forward import Forward
from ..plugin_utils.controller.step.action import StepAction
from ..plugin_utils.controller.step.context import Result, StepContext
from ..plugin_utils.engine.strategy import PARTS, REPLACE
from ..plugin_utils.inputs.options import Field, Options, choice
from . import rollback

# The role's task where this one fails. It is loaded with this one: as this version has it, although
# another may be installed meanwhile.
ON_FAILURE = rollback.ActionModule


class ActionModule(StepAction):
    follows = True
    options = Options(
        Field(
            "through",
            choice(*PARTS),
            "The last step to do in this task. With V(promote) or V(finish), the steps"
            " M(progressive.rollout.promote) and M(progressive.rollout.finish) follow without a"
            " task of their own, which saves about half a second each.",
            default="replace",
        ),
    )

    def perform(self, step: StepContext) -> Result:
        through = step.options["through"]
        if step.check_mode:
            result = DryRun(step).forward()
            ends = through != REPLACE and step.record.open is not None
            return {**result, "changed": result["changed"] or ends}
        step.begin()
        return Forward(step).advance(through)
