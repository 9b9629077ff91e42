# SPDX-License-Identifier: GPL-3.0-or-later
"""Put ready instances in rotation, or set the new revision's share of the requests."""

from __future__ import annotations

from dataclasses import replace

from ..plugin_utils.base.errors import RolloutFailed
from ..plugin_utils.base.text import count
from ..plugin_utils.controller.loop import draining
from ..plugin_utils.controller.loop.stage_run import frozen
from ..plugin_utils.controller.rollout.forward import Forward
from ..plugin_utils.controller.step.action import StepAction
from ..plugin_utils.controller.step.context import Result, StepContext
from ..plugin_utils.engine.model import State
from ..plugin_utils.engine.strategy import Stage, carrying
from ..plugin_utils.inputs.options import Field, Options, whole
from ..plugin_utils.state.record import Rollout


class ActionModule(StepAction):
    options = Options(
        Field(
            "share",
            whole(1, 100),
            "Percentage of requests for the revision that is being rolled out.",
        ),
    )

    def perform(self, step: StepContext) -> Result:
        share = step.options.get("share")
        return divide(step, share) if share else admit(step)


def admit(step: StepContext) -> Result:
    """Put the ready instances of a revision in rotation."""
    step.begin()
    rollout = step.record.open
    if rollout is not None and rollout.asked is not None:
        raise RolloutFailed(
            f"{step.settings.service} {rollout.revision}: the {rollout.strategy} rollout in"
            " progress divides the requests; promote or abort it (control), or set rollout_share",
            "PR-611",
        )
    stable = step.record.stable
    revision = step.settings.revision or (stable.revision if stable else None)
    out = [instance.id for instance in step.loop.out_of_rotation(revision)]
    diff = {
        side: "".join(f"{name}: {at}\n" for name in out)
        for side, at in (("before", "out"), ("after", "in rotation"))
    }
    return step.report(
        bool(out) if step.check_mode else draining.admit(step.loop, revision), diff=diff
    )


def divide(step: StepContext, share: int) -> Result:
    """Give the new revision this percentage of the requests, with its ready instances."""
    step.begin()
    rollout, forward = step.record.open, Forward(step)
    if rollout is None:
        raise RolloutFailed(
            f"rollout_share: no rollout of {step.settings.service} is in progress, so no revisions"
            " share the requests",
            "PR-611",
        )
    forward.lifecycle.refuse_rolling_back(rollout)
    fleet, before = step.loop.observe_fleet(), rollout.asked
    stages = forward.stages.of(rollout)
    here = (forward.stages.ahead(rollout) or stages[-1:])[0]
    waypoint = replace(frozen(fleet, here.waypoint, rollout.previous), weight=share)
    check_ready(step, rollout, share)
    diff = {"before": f"{before or 0} %\n", "after": f"{share} %\n"}
    if step.check_mode:
        return step.report(before != share, diff=diff)
    forward.run_scalable(lambda: Stage("traffic", waypoint), rollout, rollout.revision)
    step.loop.commit()
    return step.report(step.loop.changed or before != share, diff=diff)


def check_ready(step: StepContext, rollout: Rollout, share: int) -> None:
    """Refuse a share that the ready instances of the new revision cannot carry."""
    fleet, allowed = step.loop.fleet, step.settings.budget.resolve(rollout.replicas)
    ready = sum(i.generation == rollout.generation and i.state is State.READY for i in fleet)
    needed = carrying(rollout.replicas, allowed, share)
    if ready < needed:
        raise RolloutFailed(
            f"rollout_share: {share} % of the requests of {rollout.replicas} replicas need"
            f" {count(needed, 'ready instance')} of {rollout.revision}, and {ready} are ready;"
            " scale it first",
            "PR-619",
        )
