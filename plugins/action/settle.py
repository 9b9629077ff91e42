# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Take in the results of the user's tasks: hosts that work are put back in rotation, others stay out."""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import InputError
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller import watch
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.action import StepAction
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.context import Result, StepContext
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.in_place import InPlace


class ActionModule(StepAction):
    own = ("hosts", "results", "reached", "watch")

    def perform(self, step: StepContext) -> Result:
        in_place = InPlace(step)
        in_place.plan.check()
        results = step.own.get("results")
        if not isinstance(results, Mapping) or not all(isinstance(why, str) for why in results.values()):
            raise InputError(
                f"rollout_results: expected a mapping of hosts to the reason why their tasks failed, empty for success, got {results!r}"
            )
        watch.end(step.own.get("watch"), step.guard.check)
        step.begin()
        rollout = step.record.open
        if rollout is None or step.check_mode:
            return step.report(False, failed_hosts={})
        rollout.step = "settle"
        with in_place.explained():
            in_place.put_back(rollout, results)
        return step.report(True, failed_hosts=in_place.deployments.failed_hosts())
