# SPDX-License-Identifier: GPL-3.0-or-later
"""Bring one revision to N instances, and leave the others as they are."""

from __future__ import annotations

from dataclasses import replace

from ..plugin_utils.base.errors import InputError, RolloutFailed
from ..plugin_utils.controller.rollout.adoption import adopt
from ..plugin_utils.controller.rollout.forward import Forward
from ..plugin_utils.controller.rollout.request import target_of_step, whole_replicas
from ..plugin_utils.controller.rollout.validation import Validation
from ..plugin_utils.controller.step.action import StepAction
from ..plugin_utils.controller.step.context import Result, StepContext
from ..plugin_utils.engine.model import Composition
from ..plugin_utils.engine.strategy import Plan, Stage, Waypoint
from ..plugin_utils.state.record import Outcome, Rollout, RolloutKind


class ActionModule(StepAction):
    def perform(self, step: StepContext) -> Result:
        replicas = whole_replicas(step)
        step.session.read()
        Validation(step).refuse_to_scale()
        step.begin()
        step.loop.observe_fleet()
        forward = Forward(step)
        lifecycle, open_before = forward.lifecycle, step.record.open
        adopt(step)
        generation, revision = target_of_step(step)
        if step.record.adopted:
            from ..plugin_utils.controller.rollout import adopted  # few services have any

            adopted.refuse_same(step.record, revision)
        refuse_shared(open_before, generation, revision)
        others = sum(1 for i in step.loop.fleet if i.generation != generation and i.state.counted)
        if others and step.loop.targets:
            raise InputError(
                f"rollout_replicas: cannot scale {revision!r} alone beside {others} instances of"
                " other revisions, since each target has its share of all; use rollout.yml",
                "PR-107",
            )
        lifecycle.validation.check_capacity(replicas + others, Plan())
        lifecycle.validation.check(replicas + others, Plan())
        share = open_before.asked if open_before else None
        waypoint = Waypoint(
            generation, new=replicas, old=others, desired=replicas + others, weight=share
        )
        if step.check_mode:
            return step.would([waypoint], revision)
        if step.loop.next_decision(waypoint).reached and (
            open_before or not step.loop.has_orphaned_entries()
        ):
            return step.report(False)
        rollout = open_before or lifecycle.open(RolloutKind.SCALE, revision, generation, replicas)
        rollout.step, rollout.tally = "scale", None

        def stage() -> Stage:
            number = replicas if open_before else rollout.replicas
            return Stage("scale", replace(waypoint, new=number, desired=number + others))

        forward.run_scalable(stage, rollout, revision)
        if open_before is None:
            stable = step.record.stable
            if stable is None or stable.generation == generation:
                step.record.stable = Composition(
                    revision, generation, rollout.replicas, rollout.order
                )
            lifecycle.close(Outcome.PROMOTED, f"scaled to {rollout.replicas}")
        return step.report(True)


def refuse_shared(rollout: Rollout | None, generation: int, revision: str) -> None:
    """Refuse to scale a revision that shares the requests with the one that is being rolled out."""
    if rollout is not None and rollout.asked is not None and generation != rollout.generation:
        raise RolloutFailed(
            f"rollout_revision: cannot scale {revision!r}: the {rollout.strategy} rollout of"
            f" {rollout.revision} in progress divides the requests between them; scale it after"
            " that",
            "PR-611",
        )
