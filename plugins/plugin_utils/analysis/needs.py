# SPDX-License-Identifier: GPL-3.0-or-later
"""How many requests the analyses of a planned rollout need, and how long these take. Pure."""

from __future__ import annotations

import math
import typing as t
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ..engine.judges.comparison import SIDES
from ..engine.judges.errors import requests_for
from ..engine.strategy import Gate, Stage
from ..interfaces.traffic import COUNTS
from . import spec
from .alpha import alpha_of
from .spec import SEQUENTIAL, Metric

FEW = 2  # stable instances: too few to show how much instances differ
MUCH = 1.5  # times as much alpha as any analysis has is worth a word
HALF = 0.5  # of the requests go to new instances, on average over a rollout that replaces all


def needs(
    stages: Iterable[Stage], usual: Sequence[Mapping[str, str]], rate: float | None
) -> list[dict[str, t.Any]]:
    """Return what each analysis in these stages needs that counts errors of both revisions.

    `usual` are the metrics where none are given; `rate`: requests a second, None if not known.
    """
    return [
        _need(gate, metric, share, rate, analysis.lasts)
        for gate, share in _compared(stages)
        for analysis in [spec.parse(gate.options, gate.variable, usual)]
        for metric in analysis.metrics
        if metric.judge == SEQUENTIAL and not metric.dry_run and _counts(metric)
    ]


def undecidable(stages: Iterable[Stage], usual: Sequence[Mapping[str, str]]) -> list[str]:
    """Return which analyses compare too few instances to tell a revision from a host, and why.

    How much instances differ by their hosts and clients is known by the stable ones.
    """
    return [
        f"whether a worse instance is due to its revision, its host or its clients: {gate.key}"
        f" compares {point.new} new with {_instances(point.old)}; set baseline: true there, or"
        " raise rollout_replicas"
        for stage in stages
        for point in [stage.waypoint]
        for gate in stage.gates
        if 0 < point.old <= FEW and point.new and _compares(gate, usual)
    ]


def by_chance(gates: Iterable[Gate]) -> list[str]:
    """Return how many good revisions fail at most where several analyses share their alpha.

    One that has hardly any of it is not worth a word.
    """
    parts = [part for gate in gates if (part := alpha_of(gate))]
    if sum(parts) < MUCH * max(parts, default=math.inf):
        return []
    return [
        f"whether a failure is due to chance: {len(parts)} analyses, which share alpha, fail at"
        f" most {100 * sum(parts):.2g} % of the rollouts of a good revision"
    ]


def _instances(number: int) -> str:
    return f"{number} stable instance{'s' * (number > 1)}"


def _compares(gate: Gate, usual: Sequence[Mapping[str, str]]) -> bool:
    """Whether it is an analysis that compares errors, and without a baseline."""
    if gate.driver != "analysis" or gate.options["baseline"]:
        return False
    metrics = spec.parse(gate.options, gate.variable, usual).metrics
    return any(
        metric.judge == SEQUENTIAL and metric.decides and _counts(metric) for metric in metrics
    )


def too_short(
    gate: Gate, usual: Sequence[Mapping[str, str]], rate: float | None, seconds: float | None
) -> str:
    """Return that a rollout is expected to end before a background analysis can decide, and why.

    Empty where it is not, or where the requests a second or the rollout's seconds are not known:
    they are infinite where it waits for an operator or a hook.
    """
    if not rate or seconds is None or math.isinf(seconds):
        return ""
    analysis = spec.parse(gate.options, gate.variable, usual)
    counting = [
        metric for metric in analysis.metrics if metric.judge == SEQUENTIAL and _counts(metric)
    ]
    if not counting:
        return ""
    rules, expected = counting[0].rules, math.floor(HALF * rate * seconds)
    alpha, detect = SIDES * rules["alpha"], rules["detect"]
    new = requests_for(HALF, alpha, rules["tolerance"], detect)
    if new is not None and expected >= new:
        return ""
    shown = "no number shows" if new is None else f"{new:,} show"
    return (
        "this rollout is expected to end before the first verdict: new instances get about"
        f" {expected:,} requests, and {shown} an error rate of {detect:g}"
    )


def rate_of(timeline: Iterable[Mapping[str, t.Any]]) -> float | None:
    """Return the requests a second in a rollout; None: nothing has counted them."""
    counts = [
        event
        for event in timeline
        if event.get("kind") == "requests" and event.keys() >= {"at", "new", "old"}
    ]
    seconds = counts[-1]["at"] - counts[0]["at"] if counts else 0.0
    requests = sum(event[side]["requests"] for event in counts[1:] for side in ("new", "old"))
    return float(requests / seconds) if seconds > 0 and requests > 0 else None


def _compared(stages: Iterable[Stage]) -> Iterator[tuple[Gate, float]]:
    """Yield the analyses with the new instances' share of the requests.

    Without those that have a baseline of their own, whose share the plan does not know.
    """
    for stage in stages:
        point = stage.waypoint
        even = point.new / max(1, point.new + point.old)
        share = even if point.weight is None else point.weight / 100
        for gate in stage.gates:
            if gate.driver == "analysis" and not gate.options["baseline"] and 0 < share < 1:
                yield gate, share


def _counts(metric: Metric) -> bool:
    """Whether the metric counts errors of requests, as far as its options tell."""
    return metric.options.get("of") in COUNTS or bool(metric.options.get("requests"))


def _need(
    gate: Gate, metric: Metric, share: float, rate: float | None, lasts: float
) -> dict[str, t.Any]:
    rules = metric.rules
    alpha, tolerance, detect = SIDES * rules["alpha"], rules["tolerance"], rules["detect"]
    new = requests_for(share, alpha, tolerance, detect)
    total = None if new is None else math.ceil(new / share)
    return {
        "gate": gate.key,
        "metric": metric.name,
        "share": round(100 * share, 1),
        "detect": detect,
        "new": new,
        "all": total,
        "seconds": None if total is None or rate is None else round(total / rate, 1),
        "lasts": lasts,
    }
