# SPDX-License-Identifier: GPL-3.0-or-later
"""Roll back to the stable revision; with no rollout in progress, to the previous one."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping
from types import MappingProxyType

from ansible.utils.vars import load_extra_vars

from ..plugin_utils.config.step_options import TO, WHY
from ..plugin_utils.controller.rollout.rollback_request import RollbackRequest
from ..plugin_utils.controller.rollout.stages import refuse_in_place
from ..plugin_utils.controller.step.action import StepAction
from ..plugin_utils.controller.step.context import Result, StepContext
from ..plugin_utils.inputs.options import Options

OF_STEPS = ("strategy", "steps", "approval")  # what a rollback in steps follows


class ActionModule(StepAction):
    options = Options(TO, WHY)
    _demanded: Mapping[str, t.Any] = MappingProxyType({})  # the variables given with -e

    def _run(self, task_vars: dict[str, t.Any]) -> Result:
        """Run the step; a strategy in the inventory is that of rollouts, so a rollback has steps
        only on demand.
        """
        self._demanded = load_extra_vars(self._loader)
        if self._demanded.get("rollout_strategy") != "canary":
            for name in OF_STEPS:
                self._task.args.pop(name, None)
        return super()._run(task_vars)

    def perform(self, step: StepContext) -> Result:
        in_steps = step.settings.asked.strategy == "canary"
        if not in_steps and (notice := without_effect(self._demanded)):
            (step.warn or step.print_line)(f"{step.settings.service}: {notice}")
        refuse_in_place(step, rollback=True)
        to, why = step.options.get("to"), step.options.get("why")
        return RollbackRequest(step, to=to, why=why or "", in_steps=in_steps).run()


def without_effect(demanded: Mapping[str, t.Any]) -> str:
    """Return that a rollback does not follow these variables; nothing where none is given."""
    names = [name for name in ("rollout_strategy", "rollout_steps") if name in demanded]
    if not names:
        return ""
    verb = "has" if len(names) == 1 else "have"
    return (
        f"{' and '.join(names)} {verb} no effect: a rollback replaces instances within"
        " rollout_budget, and has steps only with rollout_strategy: canary"
    )
