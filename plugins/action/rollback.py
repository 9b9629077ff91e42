# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Roll back to the stable revision; with no rollout in progress, to the previous one."""

from __future__ import annotations

from collections.abc import Sequence

from ansible import context

from ..plugin_utils.config.variables import TO, WHY
from ..plugin_utils.controller.rollout.rollback_request import RollbackRequest
from ..plugin_utils.controller.rollout.stages import refuse_in_place
from ..plugin_utils.controller.step.action import StepAction
from ..plugin_utils.controller.step.context import Result, StepContext
from ..plugin_utils.inputs.options import Options


class ActionModule(StepAction):
    own = Options(TO, WHY)

    def perform(self, step: StepContext) -> Result:
        if notice := without_effect(context.CLIARGS.get("extra_vars") or ()):
            (step.warn or step.say)(f"{step.settings.service}: {notice}")
        refuse_in_place(step, rollback=True)
        to, why = step.own.get("to"), step.own.get("why")
        return RollbackRequest(step, to=to, why=why or "").run()


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
