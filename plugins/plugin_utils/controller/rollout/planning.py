# SPDX-License-Identifier: GPL-3.0-or-later
"""Foresee a rollout: its waypoints, how long it takes, and what it needs. Reads only."""

from __future__ import annotations

import typing as t
from collections.abc import Sequence
from dataclasses import replace

from ...analysis import spec
from ...analysis.alpha import with_share
from ...analysis.needs import by_chance, needs, rate_of, too_short, undecidable
from ...base import clock
from ...base.text import moment
from ...config import freeze
from ...config.gates import waits
from ...config.settings import Settings
from ...engine.evaluate import evaluate
from ...engine.forecast import forecast, settled
from ...engine.model import Instance, State
from ...engine.progress import ProgressTracker, Rules
from ...engine.strategy import Gate, Plan, Stage
from ...report.plan import lines as plan_lines
from ...report.view import NextView
from ..background.durations import MedianTimes
from ..step.context import Result, StepContext
from . import known_good
from .expectation import measured
from .generations import Generations
from .stages import LaunchStages
from .validation import fewer

GUESS = 5.0  # seconds an instance is assumed to need to start, until a rollout has shown it


def show_plan(step: StepContext, revision: str, replicas: int, base: int) -> Result:
    """Plan a rollout of the fleet as it is, which keeps `base` stable instances until the
    promotion.
    """
    record, loop = step.record, step.loop
    path = stages_to(step, revision, replicas, base)
    times = measured(step, record.rollout.id) if record.rollout else None
    guess = MedianTimes(GUESS, 1.0)
    forecast = foresee(step.settings, loop.placed_rules, loop.fleet, path, replicas, times or guess)
    weighted = loop.balanced and any(stage.waypoint.weight is not None for stage in path)
    background = [with_share(gate, path[0].share) for gate in step.settings.plan.background]
    less = {} if record.open else fewer(record.service, base, replicas, loop.targets)
    under_way = record.open if record.open and record.open.revision == revision else None
    stable = under_way.previous if under_way else record.stable
    planned = {
        **forecast,
        "revision": revision,
        "previous": stable.revision if stable else None,
        "strategy": step.settings.plan.strategy,
        "replicas": replicas,
        "shares": "by the load balancers' weights" if weighted else "by the number of instances",
        "orders": [stable.order if stable else None, step.settings.order],
        "stopped": stopped_now(step),
        "unmanaged": loop.unmanaged.to_dict(loop.fleet),
        "excluded": list(record.open.excluded) if record.open else [],
        "watched": watched(step, background, forecast["seconds"]),
        "requests": requests(step, path),
        "measured": times is not None,
        "unknown": [
            *unknown(path, times is not None, loop.balanced),
            *unclear(step, path, background),
        ],
        "settings": settings_of(step),
    }
    promoted = record.stable is not None and record.stable.revision == revision
    lost = "" if promoted else step.settings.on_stable_lost
    done = promoted and not under_way and forecast["next"]["reached"]
    beside = loop.unmanaged.described(loop.fleet)
    more = {"on_stable_lost": lost, "beside": [f"{beside} now"] if beside else []}
    shown = plan_lines(record.service, {**planned, **more}, done)
    diff = step.difference(path[-1].waypoint, revision)
    return step.report(False, **planned, **less, lines=shown, diff=diff)


def settings_of(step: StepContext) -> list[str]:
    """Return how the stable revision's settings differ from those given, or that they are
    unknown.
    """
    generations, stable = Generations(step), step.record.stable
    if unknown := generations.unknown():
        return [unknown]
    return generations.differences(stable.revision, stable.generation) if stable else []


def stopped_now(step: StepContext) -> str:
    """Return what a rollout that begins now waits for, before it moves."""
    settings = step.settings
    stop = freeze.stopped(settings.freeze, settings.window, clock.wall())
    return f"{stop}, until {moment(stop.until)}" if stop else ""


def watched(step: StepContext, background: Sequence[Gate], seconds: float | None) -> list[str]:
    """Return what may end the rollout at any moment, each in a few words.

    `background`: its gates, each with its share of alpha. `seconds`: that the rollout is expected
    to take, without its waits; None: not known.
    """
    plan, context = step.settings.plan, step.context
    standard, rate = spec.standard(context.counted, bool(context.access_log)), last_rate(step)
    lasts = None if seconds is None else seconds + waits(plan)
    lines = []
    for gate in background:
        known = spec.parse(gate.options, gate.variable, standard)
        names = ", ".join(metric.name for metric in known.metrics)
        about = " (the default)" if gate.by_default else " (dry run)" if known.dry_run else ""
        short = too_short(gate, standard, rate, lasts)
        lines.append(f"analysis: {names}{about}{f'; {short}' if short else ''}")
    return lines + [f"{gate.key} ({gate.driver})" for gate in plan.rollback_gates]


def requests(step: StepContext, stages: Sequence[Stage]) -> list[dict[str, t.Any]]:
    """Return how many requests each analysis needs, and how long at the last rollout's traffic."""
    context = step.context
    standard = spec.standard(context.counted, bool(context.access_log))
    return needs(stages, standard, last_rate(step))


def unclear(step: StepContext, stages: Sequence[Stage], background: Sequence[Gate]) -> list[str]:
    """Return what analyses cannot tell: they compare too few instances, or are many."""
    context = step.context
    standard = spec.standard(context.counted, bool(context.access_log))
    gates = [gate for stage in stages for gate in stage.gates]
    alarms = by_chance([*gates, *background])
    return [*undecidable(stages, standard), *alarms]


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
    return stages.planned(
        record.generation + 1, replicas, stable, known_good.plan_of(step, revision)
    )


def unknown(stages: Sequence[Stage], measured: bool, balanced: bool) -> list[str]:
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
        for stage in stages
        for gate in stage.gates
        if wait(gate)["seconds"] is None
    ]


def foresee(
    settings: Settings,
    rules: Rules,
    fleet: Sequence[Instance],
    stages: Sequence[Stage],
    replicas: int,
    times: MedianTimes,
) -> dict[str, t.Any]:
    """Return the waypoints, a forecast of the rollout, and what `evaluate` would do now.

    `rules` are those for the hosts of the fleet. The forecast knows no hosts.
    """
    now = clock.wall()
    path = [stage.waypoint for stage in stages]
    decision = evaluate(fleet, path[0], settings.budget, rules, ProgressTracker(now), now)
    ready = [settled(i) for i in fleet if i.state is State.READY]
    expected = forecast(ready, path, settings.budget, settings.rules, times.start, times.stop)
    allowed = settings.budget.resolve(replicas)
    fresh = sum(point.new for point in path if point.is_baseline)
    if rules.one_per_host:
        fleet = rules.one_per_host.marked(fleet, path[0], rules, now)
    old = sorted(
        (i for i in fleet if i.generation != path[-1].generation and i.state.counted),
        key=lambda i: i.order,
    )
    entered = sum(i.in_rotation for i in fleet if i.generation == path[-1].generation)
    return {
        "waypoints": [
            _shown(s)
            for s, last in zip(stages, [None, *stages], strict=False)
            if s.gates or not last or s.waypoint != last.waypoint
        ],
        "waits": [wait(gate) for stage in stages for gate in stage.gates],
        "surge": allowed.surge,
        "unavailable": allowed.unavailable,
        "order": [i.id for i in old],
        "peak_extra": max(0, expected.peak - replicas),
        "minimum_available": expected.least,
        "traffic_changes": {
            "enter": max(0, path[-1].new + fresh - entered),
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
