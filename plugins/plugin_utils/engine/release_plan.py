# SPDX-License-Identifier: GPL-3.0-or-later
"""What a release adds to the rollout of a member: gates, and the hold in which it can go back.
Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .model import Phase
from .release import BEGIN, LEAVE, PROMOTION, RETIRE, RETREAT
from .strategy import FINISH, RELEASE, Gate, Groups, Plan, Stage

_BEFORE = ("confirm", "begin")  # stages at which nothing was started


def _gate(point: str, step: str = "") -> Gate:
    key = f"release at {step}" if step else f"release {point}"
    return Gate(key, RELEASE, {"point": point, "step": step}, interval=1.0)


RETREAT_GATE = _gate(RETREAT)  # asked throughout: passes when the member has to go back


def member_plan(plan: Plan, together: bool) -> Plan:
    """Return the plan of a member, which waits before it begins and before its promotion.

    `together`: it leaves each step of its canary with the others.
    """
    steps = plan.steps
    if together and not isinstance(steps, Groups):
        leaving = {step.name: _gate(LEAVE, step.name) for step in steps}
        steps = tuple(replace(step, gates=(*step.gates, leaving[step.name])) for step in steps)
    return replace(
        plan,
        steps=steps,
        confirm_rollout=(*plan.confirm_rollout, _gate(BEGIN)),
        confirm_promotion=(*plan.confirm_promotion, _gate(PROMOTION)),
    )


def member_stages(listed: Sequence[Stage], reversible: bool) -> tuple[Stage, ...]:
    """Return the stages of a member: a reversible one stays in its hold until the release ends.

    What fails of an irreversible one is held.
    """
    if not reversible:
        return tuple(
            stage if stage.name in _BEFORE else replace(stage, reversible=False) for stage in listed
        )
    retire = _gate(RETIRE)
    if any(stage.waiting is Phase.HOLDING for stage in listed):
        return tuple(
            replace(stage, gates=(retire, *stage.gates))
            if stage.waiting is Phase.HOLDING
            else stage
            for stage in listed
        )
    last = listed[-1]
    hold = Stage(
        "hold",
        last.waypoint,
        (retire,),
        FINISH,
        waiting=Phase.HOLDING,
        reversible=last.reversible,
        watched=True,
        share=last.share,
    )
    return (*listed, hold)


def is_bound(stage: Stage) -> bool:
    """Return whether the stage has a gate of a release, which no command passes."""
    return any(gate.driver == RELEASE for gate in stage.gates)
