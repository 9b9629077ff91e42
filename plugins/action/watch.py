# SPDX-License-Identifier: GPL-3.0-or-later
"""Follow the rollout in progress, then watch the promoted revision; roll it back if it fails."""

from __future__ import annotations

from ..plugin_utils.config.step_options import WATCH
from ..plugin_utils.controller.rollout.after_promotion import AfterPromotion
from ..plugin_utils.controller.rollout.stages import refuse_in_place
from ..plugin_utils.controller.step.action import StepAction
from ..plugin_utils.controller.step.context import Result, StepContext
from ..plugin_utils.controller.step.follower import Follower, active
from ..plugin_utils.inputs.options import Options
from ..plugin_utils.state.record import RolloutKind


class ActionModule(StepAction):
    options = Options(WATCH)

    def perform(self, step: StepContext) -> Result:
        seconds = step.options["watch"]
        after = AfterPromotion(step, seconds)
        if seconds:
            refuse_in_place(step, rollback=True)
            after.check()
        lease, record = step.session.look()
        if (rollout := record.open) is not None:
            if rollout.kind == RolloutKind.ROLLBACK and not active(lease):
                after.finish_rollback(rollout)
            followed = Follower(step, rollout.id).run()
            if followed["waiting"] or not seconds:
                return followed
        return after.run()
