# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Wait at a gate where the rollout stands, with the fleet kept as it is and in repair."""

from __future__ import annotations

from ansible_collections.progressive.rollout.plugins.plugin_utils.config import strategy
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller import gate_runner, lifecycle
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.action import StepAction
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.context import Result, Run
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Phase
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs import values


class ActionModule(StepAction):
    own = ("gate", "label")

    def step(self, run: Run) -> Result:
        label = values.label(run.own.get("label") or "gate", "rollout_label")
        gate = strategy.gate(run.own.get("gate"), label, "rollout_gate")
        gate_runner.check([gate], run.context)
        run.begin()
        rollout = run.record.open
        if rollout is None or run.check_mode:
            return run.report(False)
        lifecycle.refuse_way_back(rollout, run.settings.service)
        rollout.step = "gate"
        lifecycle.wait_at(run, rollout, gate, Phase.PAUSED)
        return run.report(run.conductor.acted)
