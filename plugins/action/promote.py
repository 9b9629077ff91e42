# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make the new revision the stable one, after looking once more at whether enough of it is ready."""

from __future__ import annotations

from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import RolloutFailed
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller import lifecycle
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.action import StepAction
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.context import Result, Run
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Composition, Phase
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import PROMOTE


class ActionModule(StepAction):
    def step(self, run: Run) -> Result:
        if run.check_mode:
            result = lifecycle.would_walk(run)
            rollout = run.record.open
            return {**result, "changed": result["changed"] or (rollout is not None and rollout.phase != Phase.PROMOTING)}
        run.begin()
        rollout = run.record.open
        if rollout is None:
            return run.report(False)
        if rollout.phase == Phase.ROLLING_BACK:
            raise RolloutFailed(
                f"{run.settings.service} {rollout.revision} cannot be promoted: {rollout.reason}; it is to be rolled back"
            )
        rollout.step = "promote"
        lifecycle.walk(run, rollout, PROMOTE)
        stable = Composition(rollout.revision, rollout.generation, rollout.replicas)
        if rollout.phase in (Phase.PROMOTING, Phase.HOLDING) and run.record.stable == stable:
            return run.report(run.conductor.acted)
        run.record.stable = stable
        lifecycle.turn(run, rollout, Phase.PROMOTING)
        run.conductor.commit()
        return run.report(True)
