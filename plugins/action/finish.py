# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Retire what is left, write the history, give the lease back."""

from __future__ import annotations

from ansible_collections.progressive.rollout.plugins.plugin_utils.controller import forward
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.action import StepAction
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.context import Result, Run


class ActionModule(StepAction):
    def step(self, run: Run) -> Result:
        run.begin()
        if not run.check_mode:
            return forward.finish(run)
        run.conductor.look()
        rollout = run.record.open
        diff = {"before": f"{rollout.phase}\n", "after": "finished\n"} if rollout else {}
        return run.report(rollout is not None, diff=diff)
