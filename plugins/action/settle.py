# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Say what became of the hosts that were taken out: they are put back when they work, and stay out where they do not."""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import InputError
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller import in_place, watch
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.action import StepAction
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.context import Result, Run


class ActionModule(StepAction):
    own = ("hosts", "results", "reached", "watch")

    def step(self, run: Run) -> Result:
        in_place.check(run)
        results = run.own.get("results")
        if not isinstance(results, Mapping) or not all(isinstance(why, str) for why in results.values()):
            raise InputError(
                f"rollout_results: {results!r} is not a mapping of hosts; give each with why its tasks failed, or with an empty text"
            )
        watch.end(run.own.get("watch"), run.guard.check)
        run.begin()
        rollout = run.record.open
        if rollout is None or run.check_mode:
            return run.report(False, failed_hosts={})
        rollout.step = "settle"
        with in_place.told(run):
            in_place.settle(run, rollout, results)
        return run.report(True, failed_hosts=in_place.lost(run))
