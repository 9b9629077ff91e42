# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make the new revision the stable one, after looking once more at whether enough of it is ready."""

from __future__ import annotations

from ansible_collections.progressive.rollout.plugins.plugin_utils.controller import forward, lifecycle
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.action import StepAction
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.context import Result, Run
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Phase


class ActionModule(StepAction):
    def step(self, run: Run) -> Result:
        if run.check_mode:
            result = lifecycle.would_walk(run)
            rollout = run.record.open
            return {**result, "changed": result["changed"] or (rollout is not None and rollout.phase != Phase.PROMOTING)}
        run.begin()
        return forward.promote(run)
