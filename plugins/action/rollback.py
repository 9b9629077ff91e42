# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Walk back to the stable revision; with no rollout under way, to the one before it."""

from __future__ import annotations

from ansible_collections.progressive.rollout.plugins.plugin_utils import rollouts
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import PROMOTE
from ansible_collections.progressive.rollout.plugins.plugin_utils.journal import Composition
from ansible_collections.progressive.rollout.plugins.plugin_utils.run import Result, Run
from ansible_collections.progressive.rollout.plugins.plugin_utils.step import StepAction


class ActionModule(StepAction):
    def step(self, run: Run) -> Result:
        run.begin()
        rollout = run.record.open
        if rollout is None or run.check_mode:
            run.conductor.look()
        else:
            run.conductor.await_look()  # a balancer that restarts just now must not keep a bad revision in service
        rollouts.adopt(run)
        if run.check_mode:
            return rollouts.would_roll_back(run)
        if rollout is not None and rollout.kind != "rollback":
            rollouts.walk_back(run, rollout)
            return run.report(True)
        if rollout is None:
            back = rollouts.way_back(run)
            if back is None:
                return run.report(False, msg=rollouts.nothing_to_undo(run.record))
            rollout = rollouts.open_rollback(run, back)
        rollout.tally = None
        rollouts.walk(run, rollout, PROMOTE)
        run.record.stable = Composition(rollout.revision, rollout.generation, rollout.replicas)
        rollouts.close(run, "promoted", rollout.reason)
        return run.report(True)
