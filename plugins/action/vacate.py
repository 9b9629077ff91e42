# SPDX-License-Identifier: GPL-3.0-or-later
"""Take the next hosts out of rotation, so that the user's own tasks can deploy them."""

from __future__ import annotations

import typing as t
from contextlib import suppress
from dataclasses import replace
from functools import partial

from ..plugin_utils.base.errors import RolloutError
from ..plugin_utils.config.step_options import PLAY_HOSTS, REACHED
from ..plugin_utils.controller.background.watch import Watch
from ..plugin_utils.controller.loop import draining
from ..plugin_utils.controller.loop.interrupt import GONE
from ..plugin_utils.controller.rollout.in_place import InPlace
from ..plugin_utils.controller.rollout.stages import deploy_target, final_waypoint
from ..plugin_utils.controller.step.action import StepAction
from ..plugin_utils.controller.step.context import Result, StepContext
from ..plugin_utils.engine import in_place as engine
from ..plugin_utils.engine.model import Phase
from ..plugin_utils.inputs.options import Options


class ActionModule(StepAction):
    follows = True
    options = Options(replace(PLAY_HOSTS, required=True), REACHED)

    def _run(self, task_vars: dict[str, t.Any]) -> Result:
        """Run the step, and leave a process behind that keeps the hosts out of rotation."""
        if self._task.check_mode:
            return super()._run(task_vars)
        watch = Watch(partial(self._watch, task_vars))
        try:
            result = super()._run(task_vars)
            return {**result, "watch": watch.begin()} if result.get("hosts") else result
        finally:
            watch.close()

    def _watch(self, task_vars: dict[str, t.Any]) -> None:
        """Watch in another process. However it ends, the lease is kept as long as the run lives."""
        with self._open(task_vars, outlives=True) as step:
            with suppress(RolloutError):  # the next step finds it, too, and tells
                step.session.acquire(step.guard.check)
                draining.hold_drained(step.loop)
            if step.guard.stopped == GONE:
                step.session.release()

    def perform(self, step: StepContext) -> Result:
        in_place = InPlace(step)
        in_place.plan.check()
        step.begin()
        rollout = step.record.open
        if rollout is None or step.check_mode:
            return step.report(False, hosts=[], left=[], back=False)
        rollout.step = "vacate"
        with in_place.explained():
            hosts = in_place.take_out(rollout)
        step.loop.commit()
        waiting = engine.hosts_left(
            step.loop.fleet, final_waypoint(rollout), in_place.plan.scope(rollout)
        )
        left = [mine[0].host for mine in waiting if mine[0].host not in hosts]
        return step.report(
            bool(hosts),
            hosts=hosts,
            revision=deploy_target(rollout).revision,
            back=rollout.phase == Phase.ROLLING_BACK,
            left=left if hosts else [],
        )
