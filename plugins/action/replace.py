# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sliding-window transition to the strategy's waypoints; with `through`, the promotion and the end as well."""

from __future__ import annotations

from ansible_collections.progressive.rollout.plugins.plugin_utils.controller import forward, lifecycle
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.action import StepAction
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.context import Result, Run
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import PARTS
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs import values


class ActionModule(StepAction):
    own = ("through",)

    def step(self, run: Run) -> Result:
        through = values.choice(run.own.get("through", PARTS[0]), "rollout_through", PARTS)
        if run.check_mode:
            result = lifecycle.would_walk(run)
            ends = through != PARTS[0] and run.record.open is not None
            return {**result, "changed": result["changed"] or ends}
        return forward.advance(run, through)
