# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan a rollout of the fleet as it is, or of a fleet that is only imagined. Reads only."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..plugin_utils.analysis import spec
from ..plugin_utils.analysis.needs import needs, rate_of, too_short
from ..plugin_utils.base import clock
from ..plugin_utils.base.errors import InputError
from ..plugin_utils.base.text import moment
from ..plugin_utils.config import freeze
from ..plugin_utils.config.gates import waits
from ..plugin_utils.config.variables import PLAY_HOSTS, SHOW, VARIABLE_NAMES
from ..plugin_utils.controller.background.durations import Times
from ..plugin_utils.controller.loop import gate_runner
from ..plugin_utils.controller.rollout.expectation import measured
from ..plugin_utils.controller.rollout.generations import Generations
from ..plugin_utils.controller.rollout.in_place_plan import InPlacePlan
from ..plugin_utils.controller.rollout.lifecycle import Lifecycle
from ..plugin_utils.controller.rollout.stages import LaunchStages
from ..plugin_utils.controller.rollout.target import requested
from ..plugin_utils.controller.rollout.validation import Validation, fewer
from ..plugin_utils.controller.step.action import StepAction
from ..plugin_utils.controller.step.context import Result, StepContext
from ..plugin_utils.engine.evaluate import evaluate
from ..plugin_utils.engine.forecast import forecast, settled
from ..plugin_utils.engine.model import Composition, Instance, Rotation, State
from ..plugin_utils.engine.progress import ProgressTracker
from ..plugin_utils.engine.strategy import Gate, Plan, Stage
from ..plugin_utils.inputs import values
from ..plugin_utils.inputs.options import (
    DURATION,
    TEXT,
    Field,
    Kind,
    Options,
    as_it_is,
    choice,
    whole,
)
from ..plugin_utils.report.plan import lines as plan_lines
from ..plugin_utils.report.view import NextView

OLD, NEW = 1, 2  # the generations of an imagined fleet
GUESS = 5.0  # seconds an instance is assumed to need to start, until a rollout has shown it


IMAGINED = Options(
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


class ActionModule(StepAction):
    own = Options(
        Field(
            "fleet",
            Kind("list", as_it_is, elements="dict", fields=IMAGINED),
            "Instances to plan with, instead of the actual fleet. RV(rollout) and RV(unknown) are"
            " then not returned.",
        ),
        VARIABLE_NAMES,
        PLAY_HOSTS,
        SHOW,
    )

    def needs_platform(self, args: Mapping[str, t.Any]) -> bool:
        return "fleet" not in args or bool(args.get("platform"))

    def perform(self, step: StepContext) -> Result:
        if "hosts" in step.own:
            plan = InPlacePlan(step)
            plan.check()
            if "fleet" not in step.own:
                requested(step)
                step.session.read()
                step.loop.observe_fleet()
                return plan.show()
        if "fleet" in step.own:
            return imagine(step)
        revision, replicas = requested(step)
        step.session.read()
        validation = Validation(step)
        validation.check_order(revision)
        validation.check_window()
        validation.check_capacity(replicas, step.settings.plan)
        validation.check(replicas, step.settings.plan)
        step.loop.observe_fleet()
        validation.check_neighbours()
        Lifecycle(step).adopt()
        if step.record.open is None:
            validation.check_health()
        found = validation.risks(replicas, step.settings.plan)
        base = validation.kept_replicas(replicas, step.settings.plan)
        return {**show(step, revision, replicas, base), "risks": found}


class ImaginedStages(LaunchStages):
    """The stages of a fleet that is nowhere."""

    targets = ()


def imagine(step: StepContext) -> Result:
    """Plan a rollout of a fleet that is only imagined."""
    settings = step.settings
    if settings.plan.waves:
        raise InputError(
            "rollout_targets: an imagined fleet has no hosts to divide; leave it out", "PR-107"
        )
    gate_runner.check(settings.plan.gates, step.context)
    settings.traffic.make(step.context)
    if step.given.get("platform"):
        settings.platform.make(step.context)
    fleet = imagined(step.own["fleet"], settings.revision or "")
    old = sum(1 for i in fleet if i.generation == OLD and i.state.counted)
    _revision, replicas = requested(step, present=old)
    found = ImaginedStages(step).planned(NEW, replicas, Composition("", OLD, old), settings.plan)
    forecast = foresee(step, fleet, found, replicas, Times(GUESS, 0.0))
    return {"changed": False, **forecast, **fewer(settings.service, old, replicas)}


def show(step: StepContext, revision: str, replicas: int, base: int) -> Result:
    """Plan a rollout of the fleet as it is, which keeps `base` stable instances until the
    promotion.
    """
    record, loop = step.record, step.loop
    found = stages_to(step, revision, replicas, base)
    times = measured(step, record.rollout.id) if record.rollout else None
    forecast = foresee(step, loop.fleet, found, replicas, times or Times(GUESS, 1.0))
    weighted = loop.balanced and any(stage.waypoint.weight is not None for stage in found)
    less = {} if record.open else fewer(record.service, base, replicas)
    stable = record.stable
    planned = {
        **forecast,
        "revision": revision,
        "previous": stable.revision if stable else None,
        "strategy": step.settings.plan.strategy,
        "replicas": replicas,
        "shares": "by the load balancers' weights" if weighted else "by the number of instances",
        "orders": [stable.order if stable else None, step.settings.order],
        "stopped": stopped_now(step),
        "watched": watched(step, forecast["seconds"]),
        "requests": requests(step, found),
        "measured": times is not None,
        "unknown": unknown(found, times is not None, loop.balanced),
        "settings": settings_of(step),
    }
    lost = step.settings.on_stable_lost
    shown = plan_lines(record.service, {**planned, "on_stable_lost": lost})
    diff = step.difference(found[-1].waypoint, revision)
    return step.report(False, **planned, **less, lines=shown, diff=diff)


def settings_of(step: StepContext) -> list[str]:
    """Return how the stable revision's settings differ from those given, or that they are
    unknown.
    """
    generations, stable = Generations(step), step.record.stable
    if unknown := generations.unknown():
        return [unknown]
    return generations.differences(stable.generation) if stable else []


def stopped_now(step: StepContext) -> str:
    """Return what a rollout that begins now waits for, before it moves."""
    settings = step.settings
    found = freeze.stopped(settings.freeze, settings.window, clock.wall())
    return f"{found}, until {moment(found.until)}" if found else ""


def watched(step: StepContext, seconds: float | None) -> list[str]:
    """Return what may end the rollout at any moment, each in a few words.

    `seconds`: that the rollout is expected to take, without its waits; None: not known.
    """
    plan, context = step.settings.plan, step.context
    usual, rate = spec.standard(context.counted, bool(context.access_log)), last_rate(step)
    lasts = None if seconds is None else seconds + waits(plan)
    found = []
    for gate in plan.background:
        known = spec.parse(gate.options, gate.variable, usual)
        names = ", ".join(one.name for one in known.metrics)
        about = " (the default)" if gate.by_default else " (dry run)" if known.dry_run else ""
        short = too_short(gate, usual, rate, lasts)
        found.append(f"analysis: {names}{about}{f'; {short}' if short else ''}")
    return found + [f"{gate.key} ({gate.driver})" for gate in plan.rollback_gates]


def requests(step: StepContext, found: Sequence[Stage]) -> list[dict[str, t.Any]]:
    """Return how many requests each analysis needs, and how long at the last rollout's traffic."""
    context = step.context
    usual = spec.standard(context.counted, bool(context.access_log))
    return needs(found, usual, last_rate(step))


def last_rate(step: StepContext) -> float | None:
    """Return the requests a second in the last rollout; None: nothing has counted them."""
    last = step.record.rollout
    return rate_of(step.session.store.timeline(last.id)) if last else None


def wait(gate: Gate) -> dict[str, t.Any]:
    """Return what a gate waits for: a person, or for a pause its seconds."""
    lasts = gate.options.get("duration") if gate.driver == "pause" else None
    person = gate.driver == "approval" or (gate.driver == "pause" and lasts is None)
    return {"gate": gate.key, "driver": gate.driver, "person": person, "seconds": lasts}


def stages_to(step: StepContext, revision: str, replicas: int, base: int) -> Sequence[Stage]:
    """Return the stages from the fleet as it is to the revision."""
    record, stages = step.record, LaunchStages(step)
    if record.open and record.open.revision == revision:
        return stages.ahead(record.open) or stages.of(record.open)[-1:]
    if record.stable and record.stable.revision == revision:
        return stages.planned(record.stable.generation, replicas, record.stable, Plan())
    stable = record.stable and replace(record.stable, replicas=base)
    return stages.planned(record.generation + 1, replicas, stable, step.settings.plan)


def unknown(found: Sequence[Stage], measured: bool, balanced: bool) -> list[str]:
    """Return what the forecast cannot know, a sentence each."""
    lines = (
        []
        if measured
        else [
            "how long an instance takes to start: no rollout has shown it yet, assuming"
            f" {GUESS:g} s"
        ]
    )
    lines += (
        []
        if balanced
        else ["who sends requests: without a load balancer, no instance can be drained"]
    )
    return lines + [
        f"how long {gate.key} ({gate.driver}) takes to pass"
        for stage in found
        for gate in stage.gates
        if wait(gate)["seconds"] is None
    ]


def foresee(
    step: StepContext,
    fleet: Sequence[Instance],
    found: Sequence[Stage],
    replicas: int,
    times: Times,
) -> dict[str, t.Any]:
    """Return the waypoints, a forecast of the rollout, and what `evaluate` would do now."""
    settings, now = step.settings, clock.wall()
    path = [stage.waypoint for stage in found]
    decision = evaluate(fleet, path[0], settings.budget, settings.rules, ProgressTracker(now), now)
    ready = [settled(i) for i in fleet if i.state is State.READY]
    expected = forecast(ready, path, settings.budget, settings.rules, times.start, times.stop)
    allowed = settings.budget.resolve(replicas)
    fresh = sum(point.new for point in path if point.is_baseline)
    old = sorted(
        (i for i in fleet if i.generation != path[-1].generation and i.state.counted),
        key=lambda i: i.order,
    )
    return {
        "waypoints": [
            _shown(s)
            for s, last in zip(found, [None, *found], strict=False)
            if s.gates or not last or s.waypoint != last.waypoint
        ],
        "waits": [wait(gate) for stage in found for gate in stage.gates],
        "surge": allowed.surge,
        "unavailable": allowed.unavailable,
        "order": [i.id for i in old],
        "peak_extra": max(0, expected.peak - replicas),
        "minimum_available": expected.least,
        "traffic_changes": {
            "enter": path[-1].new + fresh,
            "leave": sum(1 for i in old if i.in_rotation) + fresh,
        },
        "seconds": None if expected.seconds is None else round(expected.seconds, 1),
        "next": NextView.of(decision).to_dict(),
    }


def _shown(stage: Stage) -> dict[str, t.Any]:
    """Return one waypoint, with its share of the requests and its gates."""
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


def imagined(given: t.Any, revision: str) -> list[Instance]:
    """Return an imagined fleet."""
    given = values.sequence(given, "rollout_fleet", "instances, each with revision, state and age")
    fleet: list[Instance] = []
    for number, item in enumerate(given):
        fleet += _imagined(item, number, revision)
        if len(fleet) > values.MOST:
            raise InputError(
                f"rollout_fleet: has more than {values.MOST} instances, the most that a service may"
                " have",
                "PR-104",
            )
    return fleet


def _imagined(item: t.Any, number: int, revision: str) -> list[Instance]:
    variable = f"rollout_fleet[{number}]"
    found = IMAGINED.parse(
        values.mapping(item, variable, "revision, state and age"), f"{variable}."
    )
    own, state, age, count = (found[key] for key in ("revision", "state", "age", "count"))
    state, now = State(state), clock.wall()
    rotation = Rotation(found["rotation"] or ("in" if state is State.READY else "absent"))
    draining = found["draining"] if state is State.DRAINING else None
    name = found["id"] or f"{number + 1:04d}"
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
            active=found["active"],
            draining_since=None if draining is None else now - draining,
        )
        for copy in range(1, count + 1)
    ]
