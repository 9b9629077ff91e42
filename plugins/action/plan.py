# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan a rollout of the fleet as it is, or of a hypothetical fleet. Reads only."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ..plugin_utils.config.step_options import PLAY_HOSTS, SHOW, VARIABLE_NAMES
from ..plugin_utils.controller.rollout import platform_change
from ..plugin_utils.controller.rollout.adoption import adopt, declare
from ..plugin_utils.controller.rollout.hypothetical import INSTANCE, plan_hypothetical
from ..plugin_utils.controller.rollout.in_place_plan import InPlacePlan
from ..plugin_utils.controller.rollout.planning import show_plan
from ..plugin_utils.controller.rollout.request import requested
from ..plugin_utils.controller.rollout.validation import Validation
from ..plugin_utils.controller.step.action import StepAction
from ..plugin_utils.controller.step.context import Result, StepContext
from ..plugin_utils.inputs.options import (
    Field,
    Kind,
    Options,
    unparsed,
)


class ActionModule(StepAction):
    waits = False
    options = Options(
        Field(
            "fleet",
            Kind("list", unparsed, elements="dict", fields=INSTANCE),
            "Instances to plan with, instead of the actual fleet. RV(rollout) and RV(unknown) are"
            " then not returned.",
        ),
        VARIABLE_NAMES,
        PLAY_HOSTS,
        SHOW,
    )

    def needs_platform(self, args: Mapping[str, t.Any]) -> bool:
        return "fleet" not in args or bool(args.get("platform"))

    def perform(self, step: StepContext) -> Result:
        if "hosts" in step.options:
            plan = InPlacePlan(step)
            plan.check()
            if "fleet" not in step.options:
                requested(step)
                step.session.read()
                platform_change.refuse(step)
                declare(step)
                step.loop.observe_fleet()
                return plan.show()
        if "fleet" in step.options:
            return plan_hypothetical(step)
        revision, replicas = requested(step)
        step.session.read()
        platform_change.refuse(step)
        validation = Validation(step)
        validation.check_order(revision)
        validation.check_window()
        validation.check_capacity(replicas, step.settings.plan)
        validation.check(replicas, step.settings.plan)
        step.loop.observe_fleet()
        validation.check_neighbours()
        adopt(step)
        if step.record.open is None:
            if step.record.adopted:
                from ..plugin_utils.controller.rollout import adopted  # of first rollouts alone

                adopted.refuse_same(step.record, revision)
            validation.check_health()
        risks = validation.risks(replicas, step.settings.plan)
        base = validation.kept_replicas(replicas, step.settings.plan)
        return {**show_plan(step, revision, replicas, base), "risks": risks}
