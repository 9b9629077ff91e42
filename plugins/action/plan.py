# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a rollout would do, and what the engine would do now for a fleet that is only thought of. Reads only."""

from __future__ import annotations

import time
import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import InputError
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller import gate_runner, generations, in_place, lifecycle
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.action import StepAction
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.context import Result, Run
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.evaluate import evaluate
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.forecast import forecast
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Composition, Instance, Rotation, State
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.progress import ProgressTracker
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import Plan, Stage
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs import values
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs.values import whole
from ansible_collections.progressive.rollout.plugins.plugin_utils.report.view import NextView

OLD, NEW = 1, 2  # the generations of a fleet that is only thought of
GUESS = 5.0  # seconds an instance is taken to need to start, where no rollout has shown it yet


class ActionModule(StepAction):
    own = ("fleet", "variables", "hosts")

    def drives(self, own: Mapping[str, t.Any]) -> bool:
        return "fleet" not in own

    def step(self, run: Run) -> Result:
        if "hosts" in run.own:
            in_place.check(run)
        if "fleet" in run.own:
            gate_runner.check(run.settings.plan.gates, run.context)
            fleet = imagined(run.own["fleet"], run.settings.revision or "")
            old = sum(1 for i in fleet if i.generation == OLD and i.state.counted)
            _revision, replicas = lifecycle.asked(run, False, old)
            found = lifecycle.listed(run, NEW, replicas, Composition("", OLD, old), run.settings.plan)
            less = lifecycle.fewer(run.settings.service, old, replicas)
            return {"changed": False, **plan(run, fleet, found, replicas, (GUESS, 0.0)), **less}
        revision, replicas = lifecycle.asked(run, False)
        run.session.read()
        if "hosts" in run.own:
            run.conductor.look()
            return in_place.plan(run)
        lifecycle.fits(run, replicas, run.settings.plan)
        run.conductor.traffic.check()
        lifecycle.fits_balancers(run, replicas, run.settings.plan)
        run.conductor.platform.check()
        lifecycle.fits_hosts(run, replicas, run.settings.plan)
        record = run.record
        fleet = run.conductor.look()
        lifecycle.adopt(run)
        base = lifecycle.kept(run, replicas, run.settings.plan)
        stable = record.stable and replace(record.stable, replicas=base)
        found = lifecycle.listed(run, record.generation + 1, replicas, stable, run.settings.plan)
        if record.open and record.open.revision == revision:
            listed = lifecycle.stages_of(run, record.open)
            found = tuple(lifecycle.onward(listed, record.open) or listed[-1:])
        elif record.stable and record.stable.revision == revision:
            found = lifecycle.listed(run, record.stable.generation, replicas, record.stable, Plan())
        times = lifecycle.measured(run)
        unknown = [] if times else [f"how long an instance takes to start: no rollout has shown it yet, {GUESS:g} s is a guess"]
        unknown += [] if run.conductor.balanced else ["who sends requests: no load balancer is given, so nothing can be drained"]
        unknown += [f"how long {gate.key} ({gate.driver}) takes to pass" for stage in found for gate in stage.gates]
        result = plan(run, fleet, found, replicas, times or (GUESS, 1.0))
        weighted = run.conductor.balanced and any(stage.waypoint.weight is not None for stage in found)
        shares = "by the load balancers' weights" if weighted else "by the number of instances"
        diff = run.difference(found[-1].waypoint, revision)
        settings = generations.unlike(run, record.stable.generation) if record.stable else []
        less = {} if record.open else lifecycle.fewer(record.service, base, replicas)
        return run.report(False, **result, **less, shares=shares, unknown=unknown, settings=settings, diff=diff)


def plan(
    run: Run, fleet: Sequence[Instance], found: Sequence[Stage], replicas: int, times: tuple[float, float]
) -> dict[str, t.Any]:
    """The waypoints, what the walk will be like, and what `evaluate` would do now."""
    settings, now = run.settings, time.time()
    path = [stage.waypoint for stage in found]
    decision = evaluate(fleet, path[0], settings.budget, settings.rules, ProgressTracker(now), now)
    settled = [_settled(i) for i in fleet if i.state is State.READY]
    expected = forecast(settled, path, settings.budget, settings.rules, *times)
    allowed = settings.budget.resolve(replicas)
    fresh = sum(point.new for point in path if point.is_baseline)
    old = sorted((i for i in fleet if i.generation != path[-1].generation and i.state.counted), key=lambda i: i.order)
    return {
        "waypoints": [
            _shown(s)
            for s, last in zip(found, [None, *found], strict=False)
            if s.gates or not last or s.waypoint != last.waypoint
        ],
        "surge": allowed.surge,
        "unavailable": allowed.unavailable,
        "order": [i.id for i in old],
        "peak_extra": max(0, expected.peak - replicas),
        "minimum_available": expected.least,
        "traffic_changes": {"enter": path[-1].new + fresh, "leave": sum(1 for i in old if i.in_rotation) + fresh},
        "seconds": None if expected.seconds is None else round(expected.seconds, 1),
        "next": NextView.of(decision).to_dict(),
    }


def _shown(stage: Stage) -> dict[str, t.Any]:
    """One waypoint, with the share it asks for and what guards it."""
    point = stage.waypoint
    fresh = point.new if point.is_baseline else 0
    return {
        "name": stage.name,
        "step": stage.part,
        "new": point.new - fresh,
        "old": point.old + fresh,
        "fresh": fresh,
        "share": point.weight,
        "gates": [f"{gate.key} ({gate.driver})" for gate in stage.gates],
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
        lb_healthy=True,
    )


def imagined(given: t.Any, revision: str) -> list[Instance]:
    """The fleet of a what-if: revision, state and age of each instance, and more where it matters."""
    if not isinstance(given, list):
        raise InputError(f"rollout_fleet: {given!r} is not a list of instances; give revision, state and age of each")
    fleet: list[Instance] = []
    for number, item in enumerate(given):
        fleet += _imagined(item, number, revision)
        if len(fleet) > values.MOST:
            raise InputError(f"rollout_fleet: it has more than {values.MOST} instances, which are too many to think of")
    return fleet


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
    count = whole(item.get("count", 1), variable + ".count", 1, maximum=values.MOST)
    name = str(item.get("id", f"{number + 1:04d}"))
    return [
        Instance(
            id=name if count == 1 else f"{name}.{copy}",
            revision=own,
            generation=NEW if own == revision else OLD,
            state=state,
            created=now - age,
            ready_since=now - age if state is State.READY else None,
            rotation=rotation,
            lb_healthy=state is State.READY,
            active=active,
            draining_since=None if draining is None else now - draining,
        )
        for copy in range(1, count + 1)
    ]


def _one_of(value: t.Any, choices: Sequence[str], variable: str) -> str:
    if value not in choices:
        raise InputError(f"{variable}: {value!r} must be one of {', '.join(choices)}")
    return str(value)
