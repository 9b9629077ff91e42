# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Put the ready instances of a revision in rotation at every load balancer."""

from __future__ import annotations

from ansible_collections.progressive.rollout.plugins.plugin_utils.errors import RolloutFailed
from ansible_collections.progressive.rollout.plugins.plugin_utils.run import Result, Run
from ansible_collections.progressive.rollout.plugins.plugin_utils.step import StepAction


class ActionModule(StepAction):
    def step(self, run: Run) -> Result:
        run.begin()
        rollout = run.record.open
        if rollout is not None and rollout.asked is not None:
            raise RolloutFailed(
                f"{run.settings.service} {rollout.revision}: {rollout.strategy} divides the requests while it is under way; "
                "promote or abort it (control) instead"
            )
        stable = run.record.stable
        revision = run.settings.revision or (stable.revision if stable else None)
        out = [instance.id for instance in run.conductor.out_of_rotation(revision)]
        diff = {
            side: "".join(f"{name}: {where}\n" for name in out) for side, where in (("before", "out"), ("after", "in rotation"))
        }
        return run.report(bool(out) if run.check_mode else run.conductor.admit(revision), diff=diff)
