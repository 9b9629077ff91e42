# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bring one revision to N instances, and leave the others as they are."""

from __future__ import annotations

from dataclasses import replace

from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import InputError, RolloutFailed
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller import lifecycle
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.action import StepAction
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.context import Result, Run
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.supervisor import Proceed
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Composition
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import Plan, Stage, Waypoint
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.record import Kind, Outcome


class ActionModule(StepAction):
    def step(self, run: Run) -> Result:
        replicas = run.settings.replicas
        if not isinstance(replicas, int):
            what = "not given" if replicas is None else f"{replicas} is not a whole number"
            raise InputError(f"rollout_replicas: {what}; say how many instances there shall be")
        run.begin()
        run.conductor.look()
        lifecycle.adopt(run)
        generation, revision = lifecycle.which(run)
        others = sum(1 for i in run.conductor.fleet if i.generation != generation and i.state.counted)
        under_way = run.record.open
        share = under_way.asked if under_way else None
        if under_way is not None and share is not None and generation != under_way.generation:
            raise RolloutFailed(
                f"rollout_revision: {revision!r} has to wait: {under_way.strategy} divides the requests between it and "
                f"{under_way.revision} while that is under way"
            )
        waypoint = Waypoint(generation, new=replicas, old=others, desired=replicas + others, weight=share)
        lifecycle.fits(run, replicas + others, Plan())
        lifecycle.fits_balancers(run, replicas + others, Plan())
        if run.check_mode:
            return run.would([waypoint], revision)
        if run.conductor.foresee(waypoint).reached and (under_way or not run.conductor.left_over()):
            return run.report(False)
        rollout = under_way or lifecycle.open_(run, Kind.SCALE, revision, generation, replicas)
        rollout.step, rollout.tally = "scale", None
        while lifecycle.walk_to(run, Stage("scale", waypoint), rollout, revision) is Proceed.RENUMBER:
            lifecycle.rescale(run, rollout)
            replicas = replicas if under_way else rollout.replicas
            waypoint = replace(waypoint, new=replicas, desired=replicas + others)
        if under_way is None:
            stable = run.record.stable
            if stable is None or stable.generation == generation:  # another one is there, but nobody made it the stable one
                run.record.stable = Composition(revision, generation, replicas)
            lifecycle.close(run, Outcome.PROMOTED, f"scaled to {replicas}")
        return run.report(True)
