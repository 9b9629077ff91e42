# SPDX-License-Identifier: GPL-3.0-or-later
"""Take in the results of the user's tasks: hosts that work are put back in rotation, others stay
out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..plugin_utils.base.errors import InputError
from ..plugin_utils.config.step_options import PLAY_HOSTS, REACHED
from ..plugin_utils.controller.background import watch
from ..plugin_utils.controller.rollout.in_place import InPlace
from ..plugin_utils.controller.step.action import StepAction
from ..plugin_utils.controller.step.context import Result, StepContext
from ..plugin_utils.inputs.options import MAPPING, Field, Options


class ActionModule(StepAction):
    follows = True
    options = Options(
        replace(PLAY_HOSTS, required=True),
        Field(
            "results",
            MAPPING,
            "Each host that was taken out, with the reason why its tasks failed. An empty string"
            " means that they did not fail.",
            required=True,
        ),
        Field(
            "watch",
            MAPPING,
            "What M(progressive.rollout.vacate) returned as"
            " RV(progressive.rollout.vacate#module:watch).",
        ),
        REACHED,
    )

    def perform(self, step: StepContext) -> Result:
        in_place = InPlace(step)
        in_place.plan.check()
        results = step.options.get("results")
        if not isinstance(results, Mapping) or not all(
            isinstance(why, str) for why in results.values()
        ):
            raise InputError(
                "rollout_results: expected a mapping of hosts to the reason why their tasks "
                f"failed, empty for success, got {results!r}",
                "PR-118",
            )
        watch.end(step.options.get("watch"), step.guard.check)
        step.begin()
        rollout = step.record.open
        if rollout is None or step.check_mode:
            return step.report(False, failed_hosts={})
        rollout.step = "settle"
        with in_place.explained():
            in_place.put_back(rollout, results)
        return step.report(True, failed_hosts=in_place.deployments.failed_hosts())
