# SPDX-License-Identifier: GPL-3.0-or-later
"""Wait for a gate at the rollout's present stage, keeping the fleet as it is and in repair."""

from __future__ import annotations

from ..plugin_utils.config import gates
from ..plugin_utils.controller.loop import gate_runner
from ..plugin_utils.controller.rollout.forward import Forward
from ..plugin_utils.controller.step.action import StepAction
from ..plugin_utils.controller.step.context import Result, StepContext
from ..plugin_utils.engine.model import Phase
from ..plugin_utils.inputs.options import NAME, Field, Kind, Options, unparsed


class ActionModule(StepAction):
    options = Options(
        Field(
            "gate",
            Kind("dict", unparsed, fields=gates.GATE, drivers="gates"),
            "What must let the rollout pass. The lists in O(gates) and the gates in O(steps) have"
            " the same options.\nIn C(url), C(file) and C(command), V({service}), V({revision}),"
            " V({previous}) and V({id}) are replaced by their values. Write V({{) or V(}}) for a"
            " literal brace.",
            required=True,
        ),
        Field("label", NAME, "Name of the gate in messages and in the journal.", default="gate"),
    )

    def perform(self, step: StepContext) -> Result:
        label = step.options["label"]
        gate = gates.gate(step.options.get("gate"), label, "rollout_gate")
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
