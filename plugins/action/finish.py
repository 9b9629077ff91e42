# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Retire what is left, write the history, give the lease back."""

from __future__ import annotations

from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import RolloutFailed
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller import in_place, lifecycle
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.action import StepAction
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.context import Result, Run
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Composition, Phase
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import FINISH
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.record import Outcome


class ActionModule(StepAction):
    def step(self, run: Run) -> Result:
        run.begin()
        rollout = run.record.open
        if rollout is not None and run.in_place and not run.check_mode:
            with in_place.told(run):
                return in_place.end(run, rollout)
        if run.check_mode or rollout is None:
            run.conductor.look()
            diff = {"before": f"{rollout.phase}\n", "after": "finished\n"} if rollout else {}
            return run.report(rollout is not None, diff=diff)
        if rollout.phase not in (Phase.PROMOTING, Phase.HOLDING):
            raise RolloutFailed(
                f"{run.settings.service} {rollout.revision} is {rollout.phase}: promote it, or roll it back, before finish"
            )
        rollout.step = "finish"
        lifecycle.walk(run, rollout, FINISH)
        run.record.stable = Composition(
            rollout.revision, rollout.generation, rollout.replicas
        )  # it may have been scaled meanwhile
        lifecycle.close(run, Outcome.PROMOTED, rollout.reason)
        return run.report(True)
