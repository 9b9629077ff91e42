# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Follow the rollout in progress, then watch the promoted revision. Changes nothing itself."""

from __future__ import annotations

from ..plugin_utils.config.variables import WATCH
from ..plugin_utils.controller.rollout.after_promotion import AfterPromotion
from ..plugin_utils.controller.rollout.stages import refuse_in_place
from ..plugin_utils.controller.step.action import StepAction
from ..plugin_utils.controller.step.context import Result, StepContext
from ..plugin_utils.controller.step.follower import Follower, active
from ..plugin_utils.inputs.options import Options
from ..plugin_utils.state.record import Rollout, RolloutKind


class ActionModule(StepAction):
    own = Options(WATCH)

    def perform(self, step: StepContext) -> Result:
        seconds = step.own["watch"]
        after = AfterPromotion(step, seconds)
        if seconds:
            refuse_in_place(step, rollback=True)
            after.check()
        lease, record = step.session.look()
        if (rollout := record.open) is not None:
            if rollout.kind == RolloutKind.ROLLBACK and not active(lease):
                return unfinished(step, rollout)
            followed = Follower(step, rollout.id).run()
            if followed["waiting"] or not seconds:
                return {**followed, "failed_after": "", "back": False, "of": "", "why": ""}
        return after.run()


def unfinished(step: StepContext, rollout: Rollout) -> Result:
    """Return the result where a rollback has begun, and its run was killed: finish it."""
    told = f"{step.record.service}: a rollback to {rollout.revision} has begun, and no run works on"
    return step.report(
        False,
        msg=f"{told} it",
        failed_after=rollout.reason,
        back=True,
        of=rollout.id,
        why=rollout.reason,
    )
