# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a rollout would do, and what the engine would do now for a fleet that is only thought of. Reads only."""

from __future__ import annotations

import time
import typing as t
from collections.abc import Mapping, Sequence

from ansible_collections.progressive.rollout.plugins.plugin_utils import rollouts, values
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.evaluate import evaluate
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.forecast import forecast
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Instance, Rotation, State
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.progress import Tally
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import STRATEGIES
from ansible_collections.progressive.rollout.plugins.plugin_utils.errors import InputError
from ansible_collections.progressive.rollout.plugins.plugin_utils.run import Result, Run, following
from ansible_collections.progressive.rollout.plugins.plugin_utils.step import StepAction
from ansible_collections.progressive.rollout.plugins.plugin_utils.values import whole

GUESS = 5.0  # seconds an instance is taken to need to start, where no rollout has shown it yet


class ActionModule(StepAction):
    own = ("fleet", "variables")

    def drives(self, own: Mapping[str, t.Any]) -> bool:
        return "fleet" not in own

    def step(self, run: Run) -> Result:
        revision, replicas = rollouts.asked(run, False)
        if "fleet" in run.own:
            return {"changed": False, **plan(run, imagined(run.own["fleet"], revision), 1, replicas, (GUESS, 0.0))}
        rollouts.fits(run, replicas)
        run.conductor.traffic.check()
        run.conductor.platform.check()
        record = run.session.read()
        fleet = run.conductor.look()
        rollouts.adopt(run)
        generation = record.generation + 1
        for composition in (record.open, record.stable):
            if composition and composition.revision == revision:
                generation = composition.generation
                break
        times = rollouts.measured(run)
        unknown = [] if times else [f"how long an instance takes to start: no rollout has shown it yet, {GUESS:g} s is a guess"]
        unknown += [] if run.conductor.balanced else ["who sends requests: no load balancer is given, so nothing can be drained"]
        result = plan(run, fleet, generation, replicas, times or (GUESS, 1.0))
        return run.report(False, **result, unknown=unknown, diff=run.difference(rollouts.forward(generation, replicas), revision))


def plan(run: Run, fleet: Sequence[Instance], generation: int, replicas: int, times: tuple[float, float]) -> dict[str, t.Any]:
    """The waypoints, what the walk will be like, and what `evaluate` would do now."""
    settings, now = run.settings, time.time()
    waypoints = STRATEGIES[settings.strategy](generation, replicas)
    decision = evaluate(fleet, waypoints[0], settings.budget, settings.rules, Tally(now), now)
    settled = [_settled(i) for i in fleet if i.state is State.READY]
    expected = forecast(settled, waypoints[-1], settings.budget, settings.rules, *times)
    room = settings.budget.resolve(replicas)
    old = sorted((i for i in fleet if i.generation != generation and i.state.counted), key=lambda i: i.order)
    return {
        "waypoints": [{"new": waypoint.new, "old": waypoint.old} for waypoint in waypoints],
        "surge": room.surge,
        "unavailable": room.unavailable,
        "order": [i.id for i in old],
        "peak_extra": max(0, expected.peak - replicas),
        "minimum_available": expected.least,
        "traffic_changes": {"enter": waypoints[-1].new, "leave": sum(1 for i in old if i.in_rotation)},
        "seconds": None if expected.seconds is None else round(expected.seconds, 1),
        "next": following(decision),
    }


def _settled(instance: Instance) -> Instance:
    """As the forecast wants it: on a clock that begins now."""
    return Instance(
        instance.id,
        instance.revision,
        instance.generation,
        State.READY,
        ready_since=float("-inf"),
        rotation=Rotation.IN,
        proven=True,
    )


def imagined(given: t.Any, revision: str) -> list[Instance]:
    """The fleet of a what-if: revision, state and age of each instance, and more where it matters."""
    if not isinstance(given, list):
        raise InputError(f"rollout_fleet: {given!r} is not a list of instances; give revision, state and age of each")
    return [instance for number, item in enumerate(given) for instance in _imagined(item, number, revision)]


def _imagined(item: t.Any, number: int, revision: str) -> list[Instance]:
    variable = f"rollout_fleet[{number}]"
    if not isinstance(item, Mapping):
        raise InputError(f"{variable}: {item!r} is not a mapping; give revision, state and age")
    values.refuse_unknown(item, ("id", "revision", "state", "age", "count", "rotation", "active", "draining"), variable + ".")
    own = values.revision(item.get("revision"), variable + ".revision")
    state = State(_one_of(item.get("state"), [state.value for state in State], variable + ".state"))
    usual = "in" if state is State.READY else "absent"
    rotation = Rotation(_one_of(item.get("rotation", usual), [place.value for place in Rotation], variable + ".rotation"))
    now, age = time.time(), values.duration(item.get("age", 3600), variable + ".age")
    draining = values.duration(item.get("draining", 0), variable + ".draining") if state is State.DRAINING else None
    active = whole(item.get("active", 0), variable + ".active", 0)
    count = whole(item.get("count", 1), variable + ".count", 1)
    name = str(item.get("id", f"{number + 1:04d}"))
    return [
        Instance(
            id=name if count == 1 else f"{name}.{copy}",
            revision=own,
            generation=1 if own == revision else 0,
            state=state,
            created=now - age,
            ready_since=now - age if state is State.READY else None,
            rotation=rotation,
            proven=state is State.READY,
            active=active,
            draining_since=None if draining is None else now - draining,
        )
        for copy in range(1, count + 1)
    ]


def _one_of(value: t.Any, choices: Sequence[str], variable: str) -> str:
    if value not in choices:
        raise InputError(f"{variable}: {value!r} is none of {', '.join(choices)}")
    return str(value)
