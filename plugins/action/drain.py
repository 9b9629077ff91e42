# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Take instances out at every load balancer, wait for their requests, stop them."""

from __future__ import annotations

from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import InputError
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller import lifecycle
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.action import StepAction
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.context import Result, Run


class ActionModule(StepAction):
    own = ("instances",)

    def step(self, run: Run) -> Result:
        names = run.own.get("instances")
        if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
            raise InputError(f"rollout_instances: {names!r} is not a list of instances; name them as info shows them")
        strangers = [name for name in names if name.rpartition("-")[0] != run.settings.service]
        if strangers:
            raise InputError(f"rollout_instances: {strangers[0]!r} is not an instance of {run.settings.service}; info lists them")
        lifecycle.refuse_in_place(run)
        run.begin()
        there = {i.id for i in run.conductor.look() if i.state.counted}
        going = [name for name in names if name in there]
        diff = {"before": run.composition(), "after": run.composition(without=going)}
        if going and not run.check_mode:
            run.conductor.drain(going)
            run.conductor.forget()
            run.conductor.commit()
        forgotten = lifecycle.forget_places(run, names)
        if forgotten and not run.check_mode:
            run.conductor.commit()
        return run.report(bool(going) or forgotten, diff=diff)
