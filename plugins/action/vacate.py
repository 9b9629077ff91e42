# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Take the next hosts out of rotation, so that the user's own tasks can deploy them."""

from __future__ import annotations

import typing as t
from contextlib import suppress
from functools import partial

from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import RolloutError
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller import in_place
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.action import StepAction
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.context import Result, Run
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.interrupt import GONE
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.watch import Watch
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine import in_place as engine
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Phase


class ActionModule(StepAction):
    own = ("hosts", "reached")

    def _run(self, task_vars: dict[str, t.Any]) -> Result:
        """The step; where it has taken hosts out, a watch is left behind that keeps them so."""
        if self._task.check_mode:
            return super()._run(task_vars)
        watch = Watch(partial(self._watch, task_vars))
        try:
            result = super()._run(task_vars)
            return {**result, "watch": watch.begin()} if result.get("hosts") else result
        finally:
            watch.close()

    def _watch(self, task_vars: dict[str, t.Any]) -> None:
        """What the watch does, in a process of its own. Whatever ends it, the lease is the run's as long as that is there."""
        with self._open(task_vars, outlives=True) as run:
            with suppress(RolloutError):  # the next step finds it, too, and says so
                run.session.acquire(run.guard.check)
                run.conductor.attend()
            if run.guard.stopped == GONE:
                run.session.release()

    def step(self, run: Run) -> Result:
        in_place.check(run)
        run.begin()
        rollout = run.record.open
        if rollout is None or run.check_mode:
            return run.report(False, hosts=[], left=[], back=False)
        rollout.step = "vacate"
        with in_place.told(run):
            hosts = in_place.vacate(run, rollout)
        run.conductor.commit()
        waypoint, scope = in_place.whole(rollout), in_place.scope_of(run, rollout)
        left = [mine[0].host for mine in engine.hosts_left(run.conductor.fleet, waypoint, scope) if mine[0].host not in hosts]
        return run.report(
            bool(hosts),
            hosts=hosts,
            revision=in_place.goal(rollout).revision,
            back=rollout.phase == Phase.ROLLING_BACK,
            left=left if hosts else [],
        )
