# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Put the ready instances of a revision in rotation at every load balancer, or set the new revision's share of the requests."""

from __future__ import annotations

from dataclasses import replace

from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import InputError, RolloutFailed
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller import lifecycle
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.action import StepAction
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.context import Result, Run
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.loop import as_it_is
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.supervisor import Proceed
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import State
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import Stage, carrying
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs import values


class ActionModule(StepAction):
    own = ("share",)

    def step(self, run: Run) -> Result:
        given = run.own.get("share")
        if given not in (None, ""):
            share = values.whole(given, "rollout_share", 1)
            if share > 100:
                raise InputError(f"rollout_share: {given!r} is more than 100 percent; write 1 to 100")
            return divide(run, share)
        run.begin()
        rollout = run.record.open
        if rollout is not None and rollout.asked is not None:
            raise RolloutFailed(
                f"{run.settings.service} {rollout.revision}: {rollout.strategy} divides the requests while it is under way; "
                "promote or abort it (control), or set rollout_share"
            )
        stable = run.record.stable
        revision = run.settings.revision or (stable.revision if stable else None)
        out = [instance.id for instance in run.conductor.out_of_rotation(revision)]
        diff = {
            side: "".join(f"{name}: {where}\n" for name in out) for side, where in (("before", "out"), ("after", "in rotation"))
        }
        return run.report(bool(out) if run.check_mode else run.conductor.admit(revision), diff=diff)


def divide(run: Run, share: int) -> Result:
    """Give the revision that is rolled out so many percent of the requests, with the instances that are there."""
    run.begin()
    rollout = run.record.open
    if rollout is None:
        raise RolloutFailed(f"rollout_share: no rollout of {run.settings.service} is under way, so nothing shares the requests")
    lifecycle.refuse_way_back(rollout, run.settings.service)
    fleet, before = run.conductor.look(), rollout.asked
    found = lifecycle.stages_of(run, rollout)
    here = (lifecycle.onward(found, rollout) or found[-1:])[0]
    waypoint = replace(as_it_is(fleet, here.waypoint, rollout.previous), weight=share)
    allowed = run.settings.budget.resolve(rollout.replicas)
    ready, needed = (
        sum(i.generation == rollout.generation and i.state is State.READY for i in fleet),
        carrying(rollout.replicas, allowed, share),
    )
    if ready < needed:
        raise RolloutFailed(
            f"rollout_share: capacity comes before traffic: {share} % of the requests of {rollout.replicas} replicas need {needed} ready "
            f"instance(s) of {rollout.revision}, and {ready} are; scale it first"
        )
    diff = {"before": f"{before} %\n", "after": f"{share} %\n"}
    if run.check_mode:
        return run.report(before != share, diff=diff)
    while lifecycle.walk_to(run, Stage("traffic", waypoint), rollout, rollout.revision) is Proceed.RENUMBER:
        lifecycle.rescale(run, rollout)
    run.conductor.commit()
    return run.report(run.conductor.acted or before != share, diff=diff)
