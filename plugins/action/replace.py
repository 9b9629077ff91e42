# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sliding-window transition to the strategy's waypoints."""

from __future__ import annotations

from ansible_collections.progressive.rollout.plugins.plugin_utils.controller import lifecycle
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.action import StepAction
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.context import Result, Run
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import REPLACE


class ActionModule(StepAction):
    def step(self, run: Run) -> Result:
        if run.check_mode:
            return lifecycle.would_walk(run)
        run.begin()
        rollout = run.record.open
        if rollout is None:
            return run.report(False)
        lifecycle.refuse_way_back(rollout, run.settings.service)
        rollout.step = "replace"
        lifecycle.prepare(run, rollout)
        lifecycle.walk(run, rollout, REPLACE)
        return run.report(run.conductor.acted)
