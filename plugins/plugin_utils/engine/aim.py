# SPDX-License-Identifier: GPL-3.0-or-later
"""How many new instances an operator has set for a stage of a canary by number. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from .strategy import REPLACE, InvalidSteps, Stage

WEIGHTED = (
    "its steps divide the requests by weights, so their number follows from set_weight of"
    " rollout_steps; only a canary by number (set_replicas) can be set"
)


def too_many(number: int, replicas: int) -> str:
    """Return why a rollout cannot have so many new instances; "" if it can."""
    if number <= replicas:
        return ""
    return f"{number} is more than the {replicas} replicas; set at most that"


def aimed_stage(ahead: Sequence[Stage], number: int, replicas: int) -> str:
    """Return the name of the stage that the number is for: the first ahead with new instances.

    Raises InvalidSteps where the number does not fit.
    """
    stage = next(filter(_is_sized, ahead), None)
    if stage is None:
        raise InvalidSteps("no step with new instances is ahead; use promote or abort")
    if stage.waypoint.weight is not None:
        raise InvalidSteps(WEIGHTED)
    if stage.waypoint.parts:
        raise InvalidSteps(
            f"{stage.name} is of one target of rollout_targets after another; only a canary without"
            " targets can be set"
        )
    if why := too_many(number, replicas):
        raise InvalidSteps(why)
    return stage.name


def with_aim(ahead: Sequence[Stage], aim: Mapping[str, int]) -> Sequence[Stage]:
    """Return the stages with the numbers set, by stage. Those of other stages are at least that,
    since a canary grows from step to step.
    """
    if not aim:
        return ahead
    least = max(aim.values())
    return tuple(
        _sized(stage, aim.get(stage.name, max(least, stage.waypoint.new)))
        if _is_sized(stage) and stage.waypoint.weight is None
        else stage
        for stage in ahead
    )


def _is_sized(stage: Stage) -> bool:
    """Whether a stage before the promotion has new instances."""
    point = stage.waypoint
    return stage.part == REPLACE and point.new > 0 and not point.is_baseline


def _sized(stage: Stage, number: int) -> Stage:
    """Return a stage with so many new instances, and as many in all as before."""
    point = stage.waypoint
    everything = max(number, point.new + point.old)
    return replace(stage, waypoint=replace(point, new=number, old=everything - number))
