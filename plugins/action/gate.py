# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Wait at a gate where the rollout stands, with the fleet kept as it is and in repair."""

from __future__ import annotations

from ansible_collections.progressive.rollout.plugins.plugin_utils import gatekeeper, rollouts, steps
from ansible_collections.progressive.rollout.plugins.plugin_utils.conductor import as_it_is
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import Stage
from ansible_collections.progressive.rollout.plugins.plugin_utils.run import Result, Run
from ansible_collections.progressive.rollout.plugins.plugin_utils.step import StepAction


class ActionModule(StepAction):
    own = ("gate", "label")

    def step(self, run: Run) -> Result:
        label = steps.label(run.own.get("label") or "gate", "rollout_label")
        gate = steps.gate(run.own.get("gate"), label, "rollout_gate")
        gatekeeper.check([gate], run.context)
        run.begin()
        rollout = run.record.open
        if rollout is None or run.check_mode:
            return run.report(False)
        rollouts.refuse_way_back(rollout, run.settings.service)
        found = rollouts.stages_of(run, rollout)
        waypoint = as_it_is(run.conductor.look(), found[min(rollout.stage, len(found) - 1)].waypoint)
        rollout.step = "gate"
        rollouts.walk_to(run, Stage(label, waypoint, (gate,)), rollout, rollout.revision)
        rollout.gates.pop(gate.key, None)
        run.conductor.commit()
        return run.report(run.conductor.acted)
