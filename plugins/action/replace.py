# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sliding-window transition to the strategy's waypoints."""

from __future__ import annotations

from ansible_collections.progressive.rollout.plugins.plugin_utils import rollouts
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import REPLACE
from ansible_collections.progressive.rollout.plugins.plugin_utils.run import Result, Run
from ansible_collections.progressive.rollout.plugins.plugin_utils.step import StepAction


class ActionModule(StepAction):
    def step(self, run: Run) -> Result:
        if run.check_mode:
            return rollouts.would_walk(run)
        run.begin()
        rollout = run.record.open
        if rollout is None:
            return run.report(False)
        rollouts.refuse_way_back(rollout, run.settings.service)
        rollout.step = "replace"
        rollouts.prepare(run, rollout)
        rollouts.walk(run, rollout, REPLACE)
        return run.report(run.conductor.acted)
