# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
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
from ..engine.judges import kayenta
from ..engine.judges.errors import CountHistory, Counts, compare_errors
from ..engine.judges.instances import Outliers, Period, find_outliers
from ..engine.judges.latency import Histogram, compare_quantile
from ..engine.judges.threshold import AnalysisPhase, phase_of
from ..engine.judges.verdict import Data, Verdict
from ..inputs import values
from ..inputs.expressions import has_nan
from .spec import KAYENTA, SEQUENTIAL, THRESHOLD, Analysis, Metric

State = dict[str, t.Any]
MOST = 1000  # samples of each side that Kayenta's judge keeps


@dataclass(frozen=True)
class Measurement:
    """One measurement as judged."""

    phase: AnalysisPhase
    sentence: str  # what is known by now
    value: t.Any  # what was measured, briefly
    lacking: bool = False  # there is not enough data yet to say that all is well


def judge_result(metric: Metric, state: State, result: t.Any, stratum: str) -> Measurement:
    """Judge a result, and update the judge's state.

    The share of the requests stays the same within a `stratum`. Raises MetricError for a result
    that the judge cannot use.
    """
    return _JUDGES[metric.judge](metric, state, result, stratum)


def _by_threshold(metric: Metric, state: State, result: t.Any, stratum: str) -> Measurement:
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


def _by_sequential(metric: Metric, state: State, result: t.Any, stratum: str) -> Measurement:
    sides = _pair(result)
    if all(isinstance(side, Mapping) for side in sides.values()):
        return _by_counts(metric, state, result, stratum)
    samples = {
        side: Histogram.load(state.get(side, {})).add(_numbers(found))
        for side, found in sides.items()
    }
    state.update({side: histogram.dump() for side, histogram in samples.items()})
    rules = metric.rules
    verdict = compare_quantile(
        samples["new"], samples["stable"], rules["quantile"], rules["alpha"], rules["tolerance"]
    )
    return _measurement(verdict, {side: _last(_numbers(found)) for side, found in sides.items()})


def _by_counts(
    metric: Metric, state: State, result: Mapping[str, t.Any], stratum: str
) -> Measurement:
    """Judge by the errors of both sides, and of each new instance."""
    rules, new, stable = metric.rules, _counts(result["new"]), _counts(result["stable"])
    history = CountHistory.load(state.get("strata", ())).add(
        stratum, new, stable, rules["tolerance"]
    )
    state["strata"] = history.dump()
    verdict = compare_errors(history, rules["alpha"], rules["tolerance"], rules["detect"])
    if instances := _instances(result.get("instances") or {}):
        outliers = _outliers(metric, state, instances, stable, stratum)
        if outliers.names and not verdict.worse:
            verdict = Verdict(True, outliers.sentence)
    return _measurement(verdict, {"new": vars(new), "stable": vars(stable)})


def _outliers(
    metric: Metric, state: State, instances: Mapping[str, Counts], stable: Counts, stratum: str
) -> Outliers:
    """Find the new instances that are worse than all others."""
    rules, known = metric.rules, state.get("chapter")
    period = (
        Period.load(known)
        if known
        else Period(stratum, dict.fromkeys(instances, Counts()), Counts(), {})
    )
    period = period.after(stratum, instances, stable, rules["tolerance"])
    state["chapter"] = period.dump()
    if len(instances) < 2:
        return Outliers((), "")  # one instance is the whole new side
    on_stable = stable.since(period.stable, Counts())
    return find_outliers(
        period.counts(instances), on_stable, rules["alpha"], rules["tolerance"], period.evidence
    )


def _measurement(verdict: Verdict, value: t.Any) -> Measurement:
    phase = AnalysisPhase.FAILED if verdict.worse else AnalysisPhase.SUCCESSFUL
    return Measurement(phase, verdict.sentence, value, verdict.data is not Data.ENOUGH)


def _by_kayenta(metric: Metric, state: State, result: t.Any, stratum: str) -> Measurement:
    """Keep the samples: Kayenta's judge is asked once, at the end."""
    sides = {side: _numbers(found) for side, found in _pair(result).items()}
    for side, found in sides.items():
        state[side] = [*state.get(side, ()), *_plain(found)][-MOST:]
    text = f"{len(state['new'])} samples against {len(state['stable'])} on stable"
    return Measurement(
        AnalysisPhase.SUCCESSFUL, text, {side: _last(found) for side, found in sides.items()}
    )


def judge_by_kayenta(
    metrics: Mapping[str, tuple[Metric, State]], analysis: Analysis
) -> tuple[AnalysisPhase, str]:
    """Judge all metrics of Kayenta's judge by the samples they kept."""
    listed = [_of_kayenta(metric) for metric, _state in metrics.values()]
    samples = {
        name: (
            [float(one) for one in state.get("new", ())],
            [float(one) for one in state.get("stable", ())],
        )
        for name, (_metric, state) in metrics.items()
    }
    found = kayenta.judge(listed, samples, analysis.weights, analysis.passing, analysis.marginal)
    return _LABELS[found.label], found.sentence


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
_JUDGES = {THRESHOLD: _by_threshold, SEQUENTIAL: _by_sequential, KAYENTA: _by_kayenta}


def _pair(result: t.Any) -> dict[str, t.Any]:
    if not isinstance(result, Mapping) or not {"new", "stable"} <= set(result):
        raise MetricError(f"expected a mapping with new and stable, got {_shown(result)}", "PR-423")
    return {"new": result["new"], "stable": result["stable"]}


def _counts(found: t.Any) -> Counts:
    if not isinstance(found, Mapping) or not all(
        _is_number(found.get(key)) for key in ("requests", "errors")
    ):
        raise MetricError(
            f"expected a mapping with requests and errors, got {_shown(found)}", "PR-423"
        )
    return Counts.of(float(found["requests"]), float(found["errors"]))


def _instances(found: t.Any) -> dict[str, Counts]:
    """Return what was counted of each new instance."""
    if not isinstance(found, Mapping) or len(found) > values.MOST:
        raise MetricError(
            f"instances: expected a mapping of at most {values.MOST:,}, got {_shown(found)}",
            "PR-423",
        )
    return {clean(name, 100): _counts(counts) for name, counts in found.items()}


def _numbers(found: t.Any) -> list[float]:
    """Return the samples of one side, which are a number or a list of numbers."""
    listed = found if isinstance(found, (list, tuple)) else [found]
    if not all(_is_number(one) for one in listed):
        raise MetricError(f"expected a number or a list of numbers, got {_shown(found)}", "PR-423")
    return [float(one) for one in listed]


def _plain(found: Iterable[float]) -> list[t.Any]:
    """Return numbers for JSON, which has no NaN and no infinity."""
    return [one if math.isfinite(one) else str(one) for one in found]


def _last(found: Sequence[float]) -> list[t.Any]:
    """Return the last samples, to show them."""
    return _plain(round(one, 6) for one in found[-10:])


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
    if isinstance(result, (list, tuple)) and all(_is_number(one) for one in result):
        return (
            f"[{', '.join(_shown(one) for one in result[:5])}{', ...' if len(result) > 5 else ''}]"
        )
    if isinstance(result, Mapping):
        text = ", ".join(
            f"{clean(key, 60)}: {_shown(value)}" for key, value in list(result.items())[:5]
        )
        return f"{{{text}}}"[:200]
    return clean(result, 60)
