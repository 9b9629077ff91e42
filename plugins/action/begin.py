# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Validate everything, take the lease, and resume, open, or find nothing to do."""

from __future__ import annotations

import typing as t
from dataclasses import replace
from functools import partial

from ansible_collections.progressive.rollout.plugins.plugin_utils.controller import (
    generations,
    in_place,
    lifecycle,
    plays,
    takeover,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.action import StepAction
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.context import Result, Run
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import rolling
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs import values
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.record import Kind


class ActionModule(StepAction):
    own = ("restart", "rebalance", "variables", "hosts", "reached")

    def _run(self, task_vars: dict[str, t.Any]) -> Result:
        """The step, and for which of the play's hosts the others go on."""
        if "hosts" in self._task.args:
            plays.check(self._task.get_play())
        return {"walker": str(task_vars.get("inventory_hostname")), **super()._run(task_vars)}

    def step(self, run: Run) -> Result:
        result = self._begin(run)
        if run.in_place and run.record.open and not run.check_mode:
            in_place.pass_over(run, run.record.open)
        return result

    def _begin(self, run: Run) -> Result:
        restart = values.boolean(run.own.get("restart", False), "rollout_restart")
        rebalance = values.boolean(run.own.get("rebalance", False), "rollout_rebalance")
        if "hosts" in run.own:
            in_place.check(run)
        revision, replicas = lifecycle.asked(run, restart)
        run.session.read()
        if "hosts" not in run.own:
            lifecycle.fits(run, replicas, run.settings.plan)
        run.conductor.traffic.check()
        lifecycle.fits_balancers(run, replicas, run.settings.plan)
        run.conductor.platform.check()
        lifecycle.fits_hosts(run, replicas, run.settings.plan)
        if host := takeover.begin(run, revision):
            return run.left_to(host)
        run.conductor.look()
        lifecycle.adopt(run)
        if run.in_place:
            in_place.again(run)
            in_place.refuse_unreachable(run, revision, restart)
        record = run.record
        if run.check_mode and run.in_place:
            return in_place.plan(run, would=True, restart=restart)
        if record.open is not None and not lifecycle.superseded(run, record.open, revision):
            stages_of = in_place.stages_of if run.in_place else lifecycle.stages_of
            return lifecycle.resume(run, record.open, revision, replicas, partial(stages_of, run))
        kind, generation = Kind.RESTART if restart else Kind.ROLLOUT, record.generation + 1
        if record.stable and record.stable.revision == revision and not restart:
            kind, generation = Kind.SCALE, record.stable.generation
            if unapplied := generations.unlike(run, generation):
                run.say(
                    f"{record.service} {revision} runs with other settings: {'; '.join(unapplied)}; restart.yml applies those given"
                )
            there = run.conductor.foresee(rolling(generation, replicas)).reached and not run.conductor.left_over()
            if rebalance and not run.conductor.foresee(replace(rolling(generation, replicas), rebalance=True)).reached:
                kind, there = Kind.REBALANCE, False
            if record.open is None and there:
                for line in filter(None, [*lifecycle.elsewhere(run), lifecycle.idle_hosts(run)]):
                    run.say(line)
                done = f"{record.service} {revision} already runs with {replicas} instance(s); nothing to do"
                return run.report(False, msg=done)
        if kind not in (Kind.SCALE, Kind.REBALANCE):
            lifecycle.same_balancers(run)
        for line in lifecycle.tight_hosts(run, replicas, run.settings.plan):
            run.say(line)
        if run.check_mode:
            return lifecycle.would_open(run, kind, revision, generation, replicas)
        if record.open is not None:
            lifecycle.supersede(run, record.open, revision)
        base = 0 if run.in_place else lifecycle.kept(run, replicas, run.settings.plan)
        lifecycle.open_(run, kind, revision, generation, replicas, base)
        return run.report(True, **lifecycle.fewer(record.service, base, replicas))
