# SPDX-License-Identifier: GPL-3.0-or-later
"""Kayenta's judge, NetflixACAJudge-v1.0. Pure.

It compares and scores the metrics of the new revision and of stable.

https://github.com/spinnaker/kayenta/blob/master/docs/canary-config.md describes Kayenta's. This one
differs:

- A metric that cannot be compared makes the whole judgement an error. Kayenta leaves it out of the
  score, even if critical.
- The interval and the estimate are exact: differences of two samples. Kayenta searches them with an
  absolute tolerance of
  1e-4, which fails where the samples are as small.
- Two different constants are told apart without the random noise that Kayenta adds, since all their
  differences are equal.
- Where most samples are equal on both sides (mostly no errors), the estimate and an end of the
  interval are both 0, and what
  Kayenta finds for them is chance. Here the test itself decides whether there is a shift.
- A critical metric without a ratio, since one side is 0, fails when it is high or low. Kayenta lets
  it pass.
- By default 1.1 and 0.9 times the mean are allowed, not 1.0, with which any steady shift would
  fail, however small.

It is made to be asked a few times: each has its own chance of a false alarm, about 1 in 100. The
sequential judge may be asked any number of times.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

TOLERANCE = 0.25  # of the estimated shift: the interval must be that far from 0
CONFIDENCE = 0.98
HUGE = 1e100  # sums of greater samples would overflow


class Class(str, Enum):
    """The class of a metric."""

    PASS = "pass"
    HIGH = "high"
    LOW = "low"
    NODATA = "nodata"
    NODATA_FAIL = "nodata_fail"  # as bad as high or low
    ERROR = "error"


class Label(str, Enum):
    """The result of a judgement."""

    PASS = "pass"
    MARGINAL = "marginal"
    FAIL = "fail"
    ERROR = "error"


# increase and decrease, by the measure of the effect
ALLOWED = {"mean_ratio": (1.1, 0.9), "cles": (0.5, 0.5)}
CRITICAL = {"mean_ratio": 1.0, "cles": 0.5}


@dataclass(frozen=True)
class Metric:
    """How a metric is judged, in Kayenta's terms.

    Defaults are Kayenta's, except for what is allowed.
    """

    name: str
    direction: str = "either"  # what is bad: increase, decrease or either
    nan_strategy: str = "remove"  # or replace: a NaN is a 0
    outliers: str = "keep"  # or remove
    outlier_factor: float = 3.0
    # or cles: the probability that a sample of the new side is greater than one of stable
    effect: str = "mean_ratio"
    allowed_increase: float | None = None  # of the effect; None: as `ALLOWED` says
    allowed_decrease: float | None = None
    critical: bool = False
    # an increase of at least this is critical; None: 1.0 (cles: 0.5)
    critical_increase: float | None = None
    critical_decrease: float | None = None
    must_have_data: bool = False
    muted: bool = False
    groups: tuple[str, ...] = ("metrics",)


@dataclass(frozen=True)
class Shift:
    """By how much samples are greater than others.

    The Hodges-Lehmann estimate, and its confidence interval.
    """

    low: float
    high: float
    estimate: float
    sign: int  # of the test at 0: 1, greater; -1, less; 0, not significant


@dataclass(frozen=True)
class Result:
    """The result of one metric; `critical`: it alone fails the judgement."""

    metric: Metric
    judged: Class
    reason: str
    effect: float | None = None  # None: there is none, since one side is 0
    critical: bool = False


@dataclass(frozen=True)
class Judgement:
    """The judgement of all metrics together; `score` is 0 to 100."""

    label: Label
    score: float
    groups: Mapping[str, float]
    results: tuple[Result, ...]
    sentence: str


def judge(
    metrics: Iterable[Metric],
    samples: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    weights: Mapping[str, float] | None = None,
    passing: float = 95.0,
    marginal: float = 75.0,
) -> Judgement:
    """Judge all metrics by their samples (of the new revision, of stable).

    `weights` of groups are parts of 100.
    """
    results = tuple(
        classify(metric, *samples.get(metric.name, ((), ())))
        for metric in metrics
        if not metric.muted
    )
    failed = [result for result in results if result.judged is Class.ERROR]
    if failed or not results:
        why = (
            "; ".join(f"{result.metric.name}: {result.reason}" for result in failed)
            or "no metric to judge"
        )
        return Judgement(Label.ERROR, 0.0, {}, results, why)
    groups = _groups(results)
    score, note = _score(results, groups, weights or {})
    label = Label.PASS if score >= passing else Label.MARGINAL if score >= marginal else Label.FAIL
    if label is Label.FAIL and all(map(_is_no_failure, results)):
        label = Label.MARGINAL  # what is not known is no failure of the new revision
    bad = [
        f"{result.metric.name} {result.judged.value}: {result.reason}"
        for result in results
        if result.judged is not Class.PASS
    ]
    return Judgement(
        label, score, groups, results, "; ".join([f"score {score:g}, {label.value}{note}", *bad])
    )


# -- one metric ------------------------------------------------------------------------------------


def classify(metric: Metric, new: Sequence[float], stable: Sequence[float]) -> Result:
    """Return the result of a metric by the samples of the new revision and of stable."""
    x, y = _prepared(metric, new), _prepared(metric, stable)
    if not x or not y:
        return _nodata(metric, "the new revision" if not x else "stable")
    if max(map(abs, (x[0], x[-1], y[0], y[-1]))) > HUGE:
        return Result(metric, Class.ERROR, f"samples greater than {HUGE:g} cannot be compared")
    if x == y or x[0] == x[-1] == y[0] == y[-1]:
        return Result(metric, Class.PASS, "the same samples", 1.0)
    shift, effect = shifted(x, y), (cles(x, y) if metric.effect == "cles" else mean_ratio(x, y))
    judged, critical = _judged(metric, shift, effect)
    reason = (
        f"mean {statistics.fmean(x):.3g} against {statistics.fmean(y):.3g} on stable, shift"
        f" {shift.low:.3g} to {shift.high:.3g}"
    )
    if effect is not None:
        reason += f", {metric.effect} {effect:.3g}"
    return Result(metric, judged, f"{reason} ({len(x)} and {len(y)} samples)", effect, critical)


def _prepared(metric: Metric, samples: Sequence[float]) -> list[float]:
    """Return the samples sorted, without NaN, and without outliers if those are removed."""
    if metric.nan_strategy == "replace":
        values = sorted(0.0 if math.isnan(value) else value for value in samples)
    else:
        values = sorted(value for value in samples if not math.isnan(value))
    return (
        inside(values, metric.outlier_factor) if values and metric.outliers == "remove" else values
    )


def _nodata(metric: Metric, side: str) -> Result:
    reason = f"no samples of {side}"
    if metric.nan_strategy == "replace":
        return Result(metric, Class.PASS, reason)
    judged = Class.NODATA_FAIL if metric.must_have_data and not metric.critical else Class.NODATA
    return Result(metric, judged, reason, critical=metric.critical)


def _judged(metric: Metric, shift: Shift, effect: float | None) -> tuple[Class, bool]:
    """Return the class, and whether it is critical. Without an effect the shift alone decides."""
    (increase, decrease), limit = ALLOWED[metric.effect], CRITICAL[metric.effect]
    bound, no_estimate = TOLERANCE * abs(shift.estimate), shift.estimate == 0
    greater = shift.low > bound or (no_estimate and shift.sign > 0)
    less = shift.high < -bound or (no_estimate and shift.sign < 0)
    if (
        greater
        and metric.direction != "decrease"
        and (effect is None or effect >= _given(metric.allowed_increase, increase))
    ):
        return Class.HIGH, metric.critical and (
            effect is None or effect >= _given(metric.critical_increase, limit)
        )
    if (
        less
        and metric.direction != "increase"
        and (effect is None or effect <= _given(metric.allowed_decrease, decrease))
    ):
        return Class.LOW, metric.critical and (
            effect is None or effect <= _given(metric.critical_decrease, limit)
        )
    return Class.PASS, False


def _given(value: float | None, default: float) -> float:
    return default if value is None else value


# -- the arithmetic --------------------------------------------------------------------------------


def shifted(x: Sequence[float], y: Sequence[float], confidence: float = CONFIDENCE) -> Shift:
    """Return by how much x is greater than y, by the Mann-Whitney U test.

    https://en.wikipedia.org/wiki/Mann-Whitney_U_test, by normal approximation, corrected for ties
    and continuity. The statistic falls in steps, at the differences of two samples, so its roots
    are among these. Where there are none, with very few samples, the interval ends at the least or
    the greatest difference, as Kayenta's does. Time and memory grow with the product of the numbers
    of samples.
    """
    differences = sorted(a - b for a, b in itertools.product(x, y))
    pairs, z = len(differences), statistics.NormalDist().inv_cdf((1 + confidence) / 2)
    # Between two differences no sample of x is tied with one of y; at 0 some may be.
    reach = z * _sigma(x, y, [*Counter(x).values(), *Counter(y).values()])
    low = max(1, math.ceil(pairs / 2 - 0.5 - reach))
    high = min(pairs, math.ceil(pairs / 2 + 0.5 + reach))
    off = sum((value > 0) - (value < 0) for value in differences) / 2
    sure = abs(off) - 0.5 > z * _sigma(x, y, Counter((*x, *y)).values())
    sign = (off > 0) - (off < 0) if sure else 0
    return Shift(differences[low - 1], differences[high - 1], statistics.median(differences), sign)


def _sigma(x: Sequence[float], y: Sequence[float], ties: Iterable[int]) -> float:
    """Return the standard deviation of U; `ties` has the sizes of groups of equal samples."""
    total = len(x) + len(y)
    tied = sum(number**3 - number for number in ties) / (total * (total - 1))
    return math.sqrt(max(0.0, len(x) * len(y) / 12 * (total + 1 - tied)))


def mean_ratio(x: Sequence[float], y: Sequence[float]) -> float | None:
    """Return the mean of x over that of y; None if either is 0."""
    mean, other = statistics.fmean(x), statistics.fmean(y)
    return mean / other if mean and other else None


def cles(x: Sequence[float], y: Sequence[float]) -> float:
    """Return the probability that one of x is greater than one of y (common language effect size).

    Ties count half.
    """
    wins = sum((a > b) + (a == b) / 2 for a, b in itertools.product(x, y))
    return wins / (len(x) * len(y))


def inside(values: Sequence[float], factor: float) -> list[float]:
    """Return sorted values without outliers.

    Outliers are beyond `factor` interquartile ranges, and not in the inner 98 %.
    """
    first, third = percentile(values, 25), percentile(values, 75)
    reach = factor * (third - first)
    low, high = (
        min(percentile(values, 1), first - reach),
        max(percentile(values, 99), third + reach),
    )
    return [value for value in values if low <= value <= high]


def percentile(values: Sequence[float], percent: float) -> float:
    """Return a percentile of sorted values, interpolated (R's type 7)."""
    at = (len(values) - 1) * percent / 100
    below = math.floor(at)
    above = min(below + 1, len(values) - 1)
    return values[below] + (at - below) * (values[above] - values[below])


# -- the score -------------------------------------------------------------------------------------


def _groups(results: Iterable[Result]) -> dict[str, float]:
    """Return the score of each group: the percentage of its metrics with data that passed.

    100 if none has data.
    """
    counted: dict[str, list[bool]] = {}
    for result in results:
        for group in result.metric.groups:
            passed = counted.setdefault(group, [])
            if result.judged is not Class.NODATA:
                passed.append(result.judged is Class.PASS)
    return {
        group: 100 * sum(passed) / len(passed) if passed else 100.0
        for group, passed in counted.items()
    }


def _is_no_failure(result: Result) -> bool:
    """Whether a metric passed, or had no data and is not configured to fail without any."""
    asked = result.metric.must_have_data or result.metric.critical
    return result.judged is Class.PASS or (result.judged is Class.NODATA and not asked)


def _score(
    results: Sequence[Result], groups: Mapping[str, float], weights: Mapping[str, float]
) -> tuple[float, str]:
    """Return the score of all groups, and a remark.

    Groups without a weight share what is left of 100.
    """
    critical = [result.metric.name for result in results if result.critical]
    if critical:
        return 0.0, f" (critical: {', '.join(critical)})"
    empty = sum(result.judged is Class.NODATA for result in results)
    if 2 * empty >= len(results):
        return 0.0, f" ({empty} of {len(results)} metrics have no data)"
    others = [group for group in groups if group not in weights]
    share = (100 - sum(weights.values())) / len(others) if others else 0.0
    return (
        round(sum(score * weights.get(group, share) / 100 for group, score in groups.items()), 2),
        "",
    )
