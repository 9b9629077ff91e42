# SPDX-License-Identifier: GPL-3.0-or-later
"""Adapt metric results to the statistical judges in `engine.judges`, and keep their state.

A judge keeps what it needs from one measurement to the next in `state`: plain data, which goes into
the journal.
"""

from __future__ import annotations

import math
import numbers
import typing as t
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..base.errors import MetricError
from ..base.text import clean
from ..engine.judges import counts, kayenta
from ..engine.judges.comparison import SIDES, Comparison
from ..engine.judges.counts import Counts, Span
from ..engine.judges.fading import WarmUpLimit
from ..engine.judges.latency import (
    Histogram,
    LatencyHistory,
    Samples,
    compare_quantile,
    slow_instances,
)
from ..engine.judges.messages import Look, Message, Messages
from ..engine.judges.saturation import Saturation, Seen
from ..engine.judges.tails import QUANTILES, Tails, Times
from ..engine.judges.threshold import AnalysisPhase, phase_of
from ..engine.judges.verdict import Data, Verdict
from ..inputs import values
from ..inputs.expressions import has_nan
from .spec import KAYENTA, NEW_MESSAGES, SEQUENTIAL, THRESHOLD, Analysis, Metric

State = dict[str, t.Any]
MOST = 1000  # samples of each side that Kayenta's judge keeps
WARM = 300.0  # seconds that a verdict waits for new instances to warm up, or half of the looks
FADE = 60.0  # seconds in which errors of cold instances fade to 1/e, where `warm_up` is not known
ALONE = 150.0  # seconds that what only one of several new instances shows has to last, at most
SLOW = 10.0  # seconds between two looks, from which a verdict may wait for the same
MORE = 1.1  # errors for each request that are an estimate's rounding, and not another thing


@dataclass(frozen=True)
class Measurement:
    """One measurement as judged."""

    phase: AnalysisPhase
    sentence: str  # what is known by now
    value: t.Any  # what was measured, briefly
    lacking: bool = False  # there is not enough data yet to say that all is well
    evidence: float | None = None  # against the new revision, if the judge has a number for it
    threshold: float | None = None  # from which on it is enough
    missing: int = 0  # requests to the new side, where there is not enough data yet
    waits: bool = False  # whether a few more measurements tell


def judge_result(metric: Metric, state: State, result: t.Any) -> Measurement:
    """Judge a result, and update the judge's state.

    Raises MetricError for a result that the judge cannot use.
    """
    return _JUDGES[metric.judge](metric, state, result)


def _by_threshold(metric: Metric, state: State, result: t.Any) -> Measurement:
    """Judge by the metric's conditions. A NaN is inconclusive, unless they handle it."""
    if result is None or result in ([], {}, ""):
        raise MetricError("empty result", "PR-423")
    conditions = [
        condition for condition in (metric.success, metric.failure) if condition is not None
    ]
    text = _shown(result)
    if has_nan(result) and not any(condition.handles_nan for condition in conditions):
        return Measurement(AnalysisPhase.INCONCLUSIVE, f"{text}: not a number", text)
    success, failure = (
        condition.holds(result) if condition is not None else None
        for condition in (metric.success, metric.failure)
    )
    phase = phase_of(success, failure)
    return Measurement(phase, f"{text}: {_WORDS[phase]}", text)


_WORDS = {
    AnalysisPhase.FAILED: "failed",
    AnalysisPhase.SUCCESSFUL: "ok",
    AnalysisPhase.INCONCLUSIVE: "neither good nor bad",
}


def _by_sequential(metric: Metric, state: State, result: t.Any) -> Measurement:
    """Judge errors by what was counted, and times by samples."""
    if isinstance(result, Mapping) and "spans" in result:
        return _by_errors(metric, state, _spans(metric, result["spans"]))
    if isinstance(result, Mapping) and "samples" in result:
        return _by_times(metric, state, _samples(result), unit="s")
    if isinstance(result, Mapping) and "times" in result:
        return _by_tails(metric, state, _times(result["times"]))
    if isinstance(result, Mapping) and "usage" in result:
        return _by_usage(metric, state, result)
    sides = _pair(result)
    if all(isinstance(side, Mapping) for side in sides.values()):
        return _by_errors(metric, state, [_came(state, result)])
    new, stable = (_numbers(samples) for samples in sides.values())
    return _by_times(metric, state, Samples.of_sides(new, stable))


def _by_times(metric: Metric, state: State, look: Samples, unit: str = "") -> Measurement:
    """Judge by the times of both sides, and of each new instance.

    `unit`: of the times, for the sentence; empty for a user's query, whose unit is unknown.
    """
    rules = metric.rules
    if any(
        seconds < 0
        for side in (look.new, look.stable)
        for times in side.values()
        for seconds in times
    ):
        raise MetricError("a time is negative; check the query", "PR-423")
    history = LatencyHistory.load(state).after(look)
    state.update(history.dump())
    alpha, quantile, tolerance = rules["alpha"], rules["quantile"], rules["tolerance"]
    patience = _patience(metric)
    verdict = compare_quantile(history, quantile, SIDES * alpha, tolerance, patience, unit)
    slow, remark = slow_instances(history, quantile, (1 - SIDES) * alpha, tolerance)
    if slow and not verdict.worse and not history.warming.waits(patience):
        verdict = Verdict(True, slow)
    value = {
        "new": _last([sample for side in look.new.values() for sample in side]),
        "stable": _last([sample for side in look.stable.values() for sample in side]),
    }
    return _measurement(verdict, value, remark)


def _patience(metric: Metric) -> int:
    """Return the looks that a verdict waits for new instances to warm up, at most."""
    limits = metric.limits
    return max((limits.count or 0) // 2, math.ceil(WARM / (limits.interval or WARM)))


def _warm_up(metric: Metric) -> WarmUpLimit:
    """Return how long a verdict on errors waits for new instances to warm up.

    Their errors fade to 1/e in `warm_up` at the slowest. What only one of them shows has to last
    for half of the looks at most. Where looks follow each other within seconds, only a fall that is
    plain to see is waited for: such an analysis is meant to decide soon.
    """
    interval, count = metric.limits.interval or SLOW, metric.limits.count
    tau = float(metric.options.get("warm_up", FADE)) / interval
    half = count / 2 if count else math.inf
    alone = 0 if interval < SLOW else min(math.ceil(ALONE / interval), half)
    return WarmUpLimit(min(tau, half), plain=interval < SLOW, alone=int(alone))


def _by_errors(metric: Metric, state: State, look: Sequence[Span]) -> Measurement:
    """Judge by the errors of both sides, and of each new instance."""
    rules = metric.rules
    alpha, tolerance = rules["alpha"], rules["tolerance"]
    known = _comparison(state, alpha, tolerance)
    compared = known.after(look, alpha, tolerance, rules["at_least"], patience=_warm_up(metric))
    state.update(compared.dump())
    what = str(metric.options.get("of", "errors")).replace("_", " ")
    verdict, remark = compared.verdict(alpha, tolerance, rules["detect"], what)
    value = {"new": vars(compared.sides.new), "stable": vars(compared.sides.stable)}
    return _measurement(verdict, value, remark)


def _comparison(state: State, alpha: float, tolerance: float) -> Comparison:
    """Return what is known of the errors; also from the journal of an older run."""
    if "errors" in state:
        return Comparison.load(state)
    compared = Comparison()
    for stratum in state.pop("strata", ()):
        new, stable = (Counts(**stratum[side]) for side in ("new", "stable"))
        compared = compared.after([Span.of_sides(new, stable)], alpha, tolerance)
    state.pop("chapter", None)
    return compared


def _by_tails(metric: Metric, state: State, look: Times) -> Measurement:
    """Judge by the times of single answers, at several quantiles."""
    rules = metric.rules
    alpha, tolerance = rules["alpha"], rules["tolerance"]
    known = Tails.load(state["tails"]) if "tails" in state else Tails()
    tails = known.after(look, alpha, tolerance)
    state["tails"] = tails.dump()
    verdict, remark = tails.verdict(alpha, rules["detect"], _patience(metric))
    value = {"new": _quantiles(look.new), "stable": _quantiles(look.stable)}
    return _measurement(verdict, value, remark)


def _by_usage(metric: Metric, state: State, result: Mapping[str, t.Any]) -> Measurement:
    """Judge by what instances use of their hosts."""
    new, stable = (
        {name: Seen(**seen) for name, seen in result["usage"][side].items()}
        for side in ("new", "stable")
    )
    known = Saturation.load(state["usage"]) if "usage" in state else Saturation()
    saturation = known.after(float(result["at"]), new, stable)
    state["usage"] = saturation.dump()
    value = {"new": len(new), "stable": len(stable)}
    return _measurement(saturation.verdict(metric.rules["tolerance"]), value)


def _quantiles(side: Mapping[str, Histogram]) -> dict[str, float]:
    """Return the seconds at some quantiles of a side, to show them; {} without answers."""
    histogram = Histogram.sum(side.values())
    return {
        f"p{100 * quantile:g}": round(histogram.seconds_of(quantile), 4)
        for quantile in QUANTILES
        if histogram.buckets
    }


def _spans(metric: Metric, counted: Sequence[Mapping[str, t.Any]]) -> list[Span]:
    """Return what a driver that counts itself has counted in a look."""
    return [_span(span, metric.limits.interval or SLOW) for span in counted]


def _span(counted: Mapping[str, t.Any], interval: float) -> Span:
    """Return what was counted of each instance while the share stayed the same."""
    sides = {
        side: {
            name: Counts(float(instance["requests"]), float(instance["errors"]))
            for name, instance in counted[side].items()
        }
        for side in ("new", "stable")
    }
    hosts = {
        name: str(instance.get("host", ""))
        for side in sides
        for name, instance in counted[side].items()
    }
    ages = {
        name: max(0, round(float(instance.get("age", 0.0)) / interval) - 1)
        for name, instance in counted["new"].items()
    }
    return Span(sides["new"], sides["stable"], hosts, ages=ages)


def _times(counted: Mapping[str, t.Any]) -> Times:
    """Return the times of single answers, of each instance."""
    new, stable = (
        {name: Histogram.load(buckets) for name, buckets in counted[side].items()}
        for side in ("new", "stable")
    )
    return Times(new, stable, counted["hosts"])


def _samples(counted: Mapping[str, t.Any]) -> Samples:
    """Return the samples of each instance of a driver that knows the instances."""
    new, stable = (
        {name: _numbers(samples) for name, samples in counted["samples"][side].items()}
        for side in ("new", "stable")
    )
    return Samples(new, stable, counted.get("hosts") or {})


def _came(state: State, result: Mapping[str, t.Any]) -> Span:
    """Return what came since the last look, where a source counts from the start.

    A counter that falls was reset: what it had counts until it has more.
    """
    now = {"": _counts(result["new"], "new"), **_instances(result.get("instances") or {})}
    stable = _counts(result["stable"], "stable")
    known = state.get("last", {})
    before = {name: Counts(*metric_counts) for name, metric_counts in known.get("new", {}).items()}
    if "strata" in state:  # of an older run, which kept the sums of strata
        before[""], was = (
            sum((Counts(**stratum[side]) for stratum in state["strata"]), Counts())
            for side in ("new", "stable")
        )
    else:
        was = Counts(*known.get("stable", (0.0, 0.0)))
    came = {name: _since(current, before.get(name, Counts())) for name, current in now.items()}
    state["last"] = {
        "new": {name: _most(current, before.get(name, Counts())) for name, current in now.items()},
        "stable": _most(stable, was),
    }
    if len(came) > 1:  # what is of no instance that is known
        came[""] = came[""] - sum((counts for name, counts in came.items() if name), Counts())
    new = {
        name: counts for name, counts in came.items() if name or counts.requests or len(came) == 1
    }
    return Span(new, {"": _since(stable, was)})


def _since(now: Counts, before: Counts) -> Counts:
    return Counts.of(now.requests - before.requests, now.errors - before.errors)


def _most(now: Counts, before: Counts) -> list[float]:
    return [max(now.requests, before.requests), max(now.errors, before.errors)]


def _measurement(verdict: Verdict, value: t.Any, remark: str = "") -> Measurement:
    phase = AnalysisPhase.FAILED if verdict.worse else AnalysisPhase.SUCCESSFUL
    sentence = f"{verdict.sentence}; {remark}" if remark else verdict.sentence
    lacking = verdict.data is not Data.ENOUGH
    return Measurement(
        phase,
        sentence,
        value,
        lacking,
        verdict.e_value,
        verdict.threshold,
        verdict.missing,
        verdict.data is Data.WAITING,
    )


def _by_kayenta(metric: Metric, state: State, result: t.Any) -> Measurement:
    """Keep the samples: Kayenta's judge is asked once, at the end.

    A result of the past has all of its time, and takes the place of those before.
    """
    sides = {side: _numbers(samples) for side, samples in _pair(result).items()}
    for side, samples in sides.items():
        before = () if "past" in result else state.get(side, ())
        state[side] = [*before, *_plain(samples)][-MOST:]
    text = f"{len(state['new'])} samples against {len(state['stable'])} on stable"
    return Measurement(
        AnalysisPhase.SUCCESSFUL, text, {side: _last(samples) for side, samples in sides.items()}
    )


def _by_messages(metric: Metric, state: State, result: t.Any) -> Measurement:
    """Judge by the messages that only new instances have logged."""
    new = {
        key: Message(messages["times"], messages["example"], tuple(messages["instances"]))
        for key, messages in result["new"].items()
    }
    look = Look(
        new,
        frozenset(result["old"]),
        compared=result["compared"],
        crowded=result["crowded"],
        skipped=result["skipped"],
    )
    known = Messages.load(state["messages"]) if "messages" in state else Messages()
    known = known.after(look)
    state["messages"] = known.dump()
    fails = metric.rules["failure"] == "any"
    phase = AnalysisPhase.FAILED if fails and known.failures else AnalysisPhase.SUCCESSFUL
    lacking = fails and (known.crowded or not known.compared)
    return Measurement(phase, known.sentence, known.value, lacking)


def has_new_messages(state: State) -> bool:
    """Whether new instances have logged what is worth telling whatever decides."""
    return bool("messages" in state and state["messages"]["new"])


def judge_by_kayenta(
    metrics: Mapping[str, tuple[Metric, State]], analysis: Analysis
) -> tuple[AnalysisPhase, str]:
    """Judge all metrics of Kayenta's judge by the samples they kept."""
    listed = [_of_kayenta(metric) for metric, _state in metrics.values()]
    samples = {
        name: (
            [float(value) for value in state.get("new", ())],
            [float(value) for value in state.get("stable", ())],
        )
        for name, (_metric, state) in metrics.items()
    }
    judgment = kayenta.judge(listed, samples, analysis.weights, analysis.passing, analysis.marginal)
    return _LABELS[judgment.label], judgment.sentence


def _of_kayenta(metric: Metric) -> kayenta.Metric:
    rules = dict(metric.rules)
    return kayenta.Metric(
        metric.name, effect=rules.pop("effect_size"), groups=(rules.pop("group"),), **rules
    )


_LABELS = {
    kayenta.Label.PASS: AnalysisPhase.SUCCESSFUL,
    kayenta.Label.MARGINAL: AnalysisPhase.INCONCLUSIVE,
    kayenta.Label.ERROR: AnalysisPhase.ERROR,
    kayenta.Label.FAIL: AnalysisPhase.FAILED,
}
_JUDGES = {
    THRESHOLD: _by_threshold,
    SEQUENTIAL: _by_sequential,
    KAYENTA: _by_kayenta,
    NEW_MESSAGES: _by_messages,
}


def _pair(result: t.Any) -> dict[str, t.Any]:
    if not isinstance(result, Mapping) or not {"new", "stable"} <= set(result):
        raise MetricError(f"expected a mapping with new and stable, got {_shown(result)}", "PR-423")
    return {"new": result["new"], "stable": result["stable"]}


def _counts(counted: t.Any, whose: str) -> Counts:
    if not isinstance(counted, Mapping) or not all(
        _is_number(counted.get(key)) for key in ("requests", "errors")
    ):
        raise MetricError(
            f"expected a mapping with requests and errors, got {_shown(counted)}", "PR-423"
        )
    requests, errors = float(counted["requests"]), float(counted["errors"])
    if max(requests, errors) > counts.MOST:
        raise MetricError(
            f"{whose}: {_shown(counted)}: no source counts more than {counts.MOST:.0e}; check the"
            " query",
            "PR-423",
        )
    if errors > MORE * requests + 1:
        raise MetricError(
            f"{whose}: {errors:g} errors in {requests:g} requests; both have to count the same"
            " requests",
            "PR-423",
        )
    return Counts.of(requests, errors)


def _instances(counted: t.Any) -> dict[str, Counts]:
    """Return what was counted of each new instance."""
    if not isinstance(counted, Mapping) or len(counted) > values.MOST:
        raise MetricError(
            f"instances: expected a mapping of at most {values.MOST:,}, got {_shown(counted)}",
            "PR-423",
        )
    known = ((clean(name, 100), counts) for name, counts in counted.items())
    return {name: _counts(counts, name) for name, counts in known}


def _numbers(side: t.Any) -> list[float]:
    """Return the samples of one side, which are a number or a list of numbers."""
    listed = side if isinstance(side, (list, tuple)) else [side]
    if not all(_is_number(value) for value in listed):
        raise MetricError(f"expected a number or a list of numbers, got {_shown(side)}", "PR-423")
    return [float(value) for value in listed]


def _plain(samples: Iterable[float]) -> list[t.Any]:
    """Return numbers for JSON, which has no NaN and no infinity."""
    return [value if math.isfinite(value) else str(value) for value in samples]


def _last(samples: Sequence[float]) -> list[t.Any]:
    """Return the last samples, to show them."""
    return _plain(round(value, 6) for value in samples[-10:])


def _is_number(value: t.Any) -> bool:
    """Return whether a value is a number that a float holds, or a NaN or infinite."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return False
    try:
        float(value)
    except OverflowError:
        return False
    return True


def _shown(result: t.Any) -> str:
    """Return a result as short text."""
    if _is_number(result):
        return f"{float(result):.4g}" if math.isfinite(result) else str(float(result))
    if isinstance(result, (list, tuple)) and all(_is_number(item) for item in result):
        shown = ", ".join(_shown(item) for item in result[:5])
        return f"[{shown}{', ...' if len(result) > 5 else ''}]"
    if isinstance(result, Mapping):
        text = ", ".join(
            f"{clean(key, 60)}: {_shown(value)}" for key, value in list(result.items())[:5]
        )
        return f"{{{text}}}"[:200]
    return clean(result, 60)
