# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Wait for a gate at the rollout's present stage, keeping the fleet as it is and in repair."""

from __future__ import annotations

from ansible_collections.progressive.rollout.plugins.plugin_utils.config import strategy
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller import gate_runner
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.action import StepAction
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.context import Result, StepContext
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.forward import Forward
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Phase
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs import values


class ActionModule(StepAction):
    own = ("gate", "label")

    def perform(self, step: StepContext) -> Result:
        label = values.label(step.own.get("label") or "gate", "rollout_label")
        gate = strategy.gate(step.own.get("gate"), label, "rollout_gate")
        gate_runner.check([gate], step.context)
        step.begin()
        rollout = step.record.open
        if rollout is None or step.check_mode:
            return step.report(False)
        forward = Forward(step)
        forward.lifecycle.refuse_rolling_back(rollout)
        rollout.step = "gate"
        forward.wait_at(rollout, gate, Phase.PAUSED)
        return step.report(step.loop.changed)
