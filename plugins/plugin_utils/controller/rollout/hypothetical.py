# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan with a hypothetical fleet, instead of the actual one."""

from __future__ import annotations

import typing as t

from ...base import clock
from ...base.errors import InputError
from ...engine.model import Composition, Instance, Rotation, State
from ...inputs import values
from ...inputs.options import (
    DURATION,
    TEXT,
    Field,
    Kind,
    Options,
    choice,
    whole,
)
from ..background.durations import MedianTimes
from ..loop import gate_runner
from ..step.context import Result, StepContext
from .planning import GUESS, foresee
from .request import requested
from .stages import LaunchStages
from .validation import fewer

OLD, NEW = 1, 2  # the generations of a hypothetical fleet

INSTANCE = Options(
    Field(
        "id",
        TEXT,
        "Name of the instance. If not given, its position in the list with four digits, V(0001).",
    ),
    Field("revision", Kind("str", values.revision), "Its revision.", required=True),
    Field("state", choice(*(state.value for state in State)), "Its state.", required=True),
    Field("age", DURATION, "How long ago it was started.", default=3600),
    Field(
        "count",
        whole(1, values.MOST),
        "Number of such instances. Their names get V(.1), V(.2) and so on.",
        default=1,
    ),
    Field(
        "rotation",
        choice(*(place.value for place in Rotation)),
        "Its rotation at the load balancers. If not given, V(in) for ready instances and V(absent)"
        " for others.",
    ),
    Field("active", whole(0), "Its requests in flight.", default=0),
    Field(
        "draining",
        DURATION,
        "How long ago it was taken out of rotation, if its state is V(draining).",
        default=0,
    ),
)


class HypotheticalStages(LaunchStages):
    """The stages of a fleet without hosts."""

    targets = ()


def plan_hypothetical(step: StepContext) -> Result:
    """Plan a rollout of a hypothetical fleet."""
    settings = step.settings
    if settings.plan.waves:
        raise InputError(
            "rollout_targets: a hypothetical fleet has no hosts to divide; leave it out", "PR-107"
        )
    gate_runner.check(settings.plan.gates, step.context)
    settings.traffic.make(step.context)
    if step.given.get("platform"):
        settings.platform.make(step.context)
    fleet = parse_fleet(step.options["fleet"], settings.revision or "")
    old = sum(1 for i in fleet if i.generation == OLD and i.state.counted)
    _revision, replicas = requested(step, present=old)
    stages = HypotheticalStages(step).planned(
        NEW, replicas, Composition("", OLD, old), settings.plan
    )
    times = MedianTimes(GUESS, 0.0)
    forecast = foresee(settings, settings.rules, fleet, stages, replicas, times)
    return {"changed": False, **forecast, **fewer(settings.service, old, replicas)}


def parse_fleet(given: t.Any, revision: str) -> list[Instance]:
    """Return a hypothetical fleet."""
    given = values.sequence(given, "rollout_fleet", "instances, each with revision, state and age")
    fleet: list[Instance] = []
    for number, item in enumerate(given):
        fleet += _parse_instances(item, number, revision)
        if len(fleet) > values.MOST:
            raise InputError(
                f"rollout_fleet: has more than {values.MOST} instances, the most that a service may"
                " have",
                "PR-104",
            )
    return fleet


def _parse_instances(item: t.Any, number: int, revision: str) -> list[Instance]:
    variable = f"rollout_fleet[{number}]"
    options = INSTANCE.parse(
        values.mapping(item, variable, "revision, state and age"), f"{variable}."
    )
    state = State(options["state"])
    age: float = options["age"]
    count: int = options["count"]
    now = clock.wall()
    rotation = Rotation(options["rotation"] or ("in" if state is State.READY else "absent"))
    draining = options["draining"] if state is State.DRAINING else None
    name = options["id"] or f"{number + 1:04d}"
    return [
        Instance(
            id=name if count == 1 else f"{name}.{copy}",
            revision=options["revision"],
            generation=NEW if options["revision"] == revision else OLD,
            state=state,
            created=now - age,
            ready_since=now - age if state is State.READY else None,
            rotation=rotation,
            lb_healthy=state is State.READY,
            active=options["active"],
            draining_since=None if draining is None else now - draining,
        )
        for copy in range(1, count + 1)
    ]
