# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kayenta's judge, NetflixACAJudge-v1.0: samples of the new revision and of stable are compared metric by metric, and scored. Pure.

It differs where Kayenta is wrong, or cannot be followed by a pure function:

- A metric that cannot be compared makes the whole judgement an error. Kayenta leaves it out of the score, even a critical one.
- The interval and the estimate are exact, differences of two samples. Kayenta searches them with an absolute tolerance of 1e-4,
  which is of no use where the samples are as small.
- Two different constants are told apart without the random noise that Kayenta adds to them: all their differences are the same.
- Where most samples are the same on both sides (no errors, mostly), the estimate and the end of the interval are both 0, and what Kayenta
  finds for them is chance. Here the test itself says whether there is a shift.
- A critical metric that was 0 on one side, so that there is no ratio, fails when it is high or low. Kayenta lets it pass as uncritical.
- What is allowed unless told otherwise is 1.1 and 0.9 times the mean, not 1.0: however small, a shift that is always there would fail.

It is made for a few looks: each has its own chance of a false alarm, of about 1 in 100. `sequential` may be asked as often as one likes.
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
HUGE = 1e100  # greater samples would not survive being added up


class Class(str, Enum):
    """What a metric comes to."""

    PASS = "pass"
    HIGH = "high"
    LOW = "low"
    NODATA = "nodata"
    NODATA_FAIL = "nodata_fail"  # as bad as high or low
    ERROR = "error"


class Label(str, Enum):
    """What a judgement comes to."""

    PASS = "pass"
    MARGINAL = "marginal"
    FAIL = "fail"
    ERROR = "error"


ALLOWED = {"mean_ratio": (1.1, 0.9), "cles": (0.5, 0.5)}  # increase and decrease, by the measure of the effect
CRITICAL = {"mean_ratio": 1.0, "cles": 0.5}


@dataclass(frozen=True)
class Metric:
    """How a metric is judged; Kayenta's words and defaults, but for what is allowed."""

    name: str
    direction: str = "either"  # what is bad: increase, decrease or either
    nan_strategy: str = "remove"  # or replace: a NaN is a 0
    outliers: str = "keep"  # or remove
    outlier_factor: float = 3.0
    effect: str = "mean_ratio"  # or cles: the probability that a sample of the new side is the greater one
    allowed_increase: float | None = None  # of the effect; None: as `ALLOWED` says
    allowed_decrease: float | None = None
    critical: bool = False
    critical_increase: float | None = None  # from here on high is critical; None: 1.0 (of cles 0.5)
    critical_decrease: float | None = None
    must_have_data: bool = False
    muted: bool = False
    groups: tuple[str, ...] = ("metrics",)


@dataclass(frozen=True)
class Shift:
    """By how much samples are greater than others: the Hodges-Lehmann estimate, and its interval."""

    low: float
    high: float
    estimate: float
    sign: int  # what the test at 0 says: 1, they are greater; -1, they are less; 0, it is not sure


@dataclass(frozen=True)
class Result:
    """What one metric came to; `critical`: it alone fails the judgement."""

    metric: Metric
    judged: Class
    reason: str
    effect: float | None = None  # None: there is none, since one side has nothing but 0
    critical: bool = False


@dataclass(frozen=True)
class Judgement:
    """What all metrics together came to; `score` is 0 to 100."""

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
    """Judge all metrics by their samples (of the new revision, of stable); `weights` of groups are parts of 100."""
    results = tuple(classify(metric, *samples.get(metric.name, ((), ()))) for metric in metrics if not metric.muted)
    failed = [result for result in results if result.judged is Class.ERROR]
    if failed or not results:
        why = "; ".join(f"{result.metric.name}: {result.reason}" for result in failed) or "there is no metric to judge by"
        return Judgement(Label.ERROR, 0.0, {}, results, why)
    groups = _groups(results)
    score, said = _score(results, groups, weights or {})
    label = Label.PASS if score >= passing else Label.MARGINAL if score >= marginal else Label.FAIL
    bad = [
        f"{result.metric.name} {result.judged.value}: {result.reason}" for result in results if result.judged is not Class.PASS
    ]
    return Judgement(label, score, groups, results, "; ".join([f"score {score:g}, {label.value}{said}", *bad]))


# -- one metric -------------------------------------------------------------------------------------------------------


def classify(metric: Metric, new: Sequence[float], stable: Sequence[float]) -> Result:
    """What a metric comes to by samples of the new revision and of stable."""
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
        f"mean {statistics.fmean(x):.3g} against {statistics.fmean(y):.3g} on stable, shift {shift.low:.3g} to {shift.high:.3g}"
    )
    if effect is not None:
        reason += f", {metric.effect} {effect:.3g}"
    return Result(metric, judged, f"{reason} ({len(x)} and {len(y)} samples)", effect, critical)


def _prepared(metric: Metric, samples: Sequence[float]) -> list[float]:
    """Sorted, without NaN, and without outliers where those are removed."""
    if metric.nan_strategy == "replace":
        values = sorted(0.0 if math.isnan(value) else value for value in samples)
    else:
        values = sorted(value for value in samples if not math.isnan(value))
    return inside(values, metric.outlier_factor) if values and metric.outliers == "remove" else values


def _nodata(metric: Metric, side: str) -> Result:
    reason = f"no samples of {side}"
    if metric.nan_strategy == "replace":
        return Result(metric, Class.PASS, reason)
    judged = Class.NODATA_FAIL if metric.must_have_data and not metric.critical else Class.NODATA
    return Result(metric, judged, reason, critical=metric.critical)


def _judged(metric: Metric, shift: Shift, effect: float | None) -> tuple[Class, bool]:
    """The class, and whether it is critical. Without an effect the shift alone decides."""
    (increase, decrease), limit = ALLOWED[metric.effect], CRITICAL[metric.effect]
    bound, no_estimate = TOLERANCE * abs(shift.estimate), shift.estimate == 0
    greater = shift.low > bound or (no_estimate and shift.sign > 0)
    less = shift.high < -bound or (no_estimate and shift.sign < 0)
    if greater and metric.direction != "decrease" and (effect is None or effect >= _given(metric.allowed_increase, increase)):
        return Class.HIGH, metric.critical and (effect is None or effect >= _given(metric.critical_increase, limit))
    if less and metric.direction != "increase" and (effect is None or effect <= _given(metric.allowed_decrease, decrease)):
        return Class.LOW, metric.critical and (effect is None or effect <= _given(metric.critical_decrease, limit))
    return Class.PASS, False


def _given(value: float | None, default: float) -> float:
    return default if value is None else value


# -- the arithmetic ---------------------------------------------------------------------------------------------------


def shifted(x: Sequence[float], y: Sequence[float], confidence: float = CONFIDENCE) -> Shift:
    """By how much x is greater than y, after Mann and Whitney: normal approximation with correction for ties and continuity.

    The statistic falls by steps, at the differences of one sample and another, so that its roots are among these. Where it has none,
    that is with very few samples, the interval ends at the least or the greatest difference, as Kayenta's does.
    Time and memory grow with the product of the numbers of samples: some hundreds are quick.
    """
    differences = sorted(a - b for a, b in itertools.product(x, y))
    pairs, z = len(differences), statistics.NormalDist().inv_cdf((1 + confidence) / 2)
    # Beside the differences no sample of x is tied with one of y; at 0 some may be.
    reach = z * _sigma(x, y, [*Counter(x).values(), *Counter(y).values()])
    low = max(1, math.ceil(pairs / 2 - 0.5 - reach))
    high = min(pairs, math.ceil(pairs / 2 + 0.5 + reach))
    off = sum((value > 0) - (value < 0) for value in differences) / 2
    sure = abs(off) - 0.5 > z * _sigma(x, y, Counter((*x, *y)).values())
    sign = (off > 0) - (off < 0) if sure else 0
    return Shift(differences[low - 1], differences[high - 1], statistics.median(differences), sign)


def _sigma(x: Sequence[float], y: Sequence[float], ties: Iterable[int]) -> float:
    """The deviation of the sum of ranks, where so many samples are tied with each other."""
    total = len(x) + len(y)
    tied = sum(number**3 - number for number in ties) / (total * (total - 1))
    return math.sqrt(max(0.0, len(x) * len(y) / 12 * (total + 1 - tied)))


def mean_ratio(x: Sequence[float], y: Sequence[float]) -> float | None:
    """The mean of x over that of y; None where one of them is 0."""
    mean, other = statistics.fmean(x), statistics.fmean(y)
    return mean / other if mean and other else None


def cles(x: Sequence[float], y: Sequence[float]) -> float:
    """The probability that one of x is greater than one of y; ties count half."""
    wins = sum((a > b) + (a == b) / 2 for a, b in itertools.product(x, y))
    return wins / (len(x) * len(y))


def inside(values: Sequence[float], factor: float) -> list[float]:
    """Those of sorted values that are no outliers: within `factor` interquartile ranges of the quartiles, or the inner 98 %."""
    first, third = percentile(values, 25), percentile(values, 75)
    reach = factor * (third - first)
    low, high = min(percentile(values, 1), first - reach), max(percentile(values, 99), third + reach)
    return [value for value in values if low <= value <= high]


def percentile(values: Sequence[float], percent: float) -> float:
    """Of sorted values, interpolated (R-7)."""
    at = (len(values) - 1) * percent / 100
    below = math.floor(at)
    above = min(below + 1, len(values) - 1)
    return values[below] + (at - below) * (values[above] - values[below])


# -- the score --------------------------------------------------------------------------------------------------------


def _groups(results: Iterable[Result]) -> dict[str, float]:
    """The score of each group, 0 to 100: how many of its metrics passed, of those with data. 100 where none has."""
    counted: dict[str, list[bool]] = {}
    for result in results:
        for group in result.metric.groups:
            passed = counted.setdefault(group, [])
            if result.judged is not Class.NODATA:
                passed.append(result.judged is Class.PASS)
    return {group: 100 * sum(passed) / len(passed) if passed else 100.0 for group, passed in counted.items()}


def _score(results: Sequence[Result], groups: Mapping[str, float], weights: Mapping[str, float]) -> tuple[float, str]:
    """The score of all groups, and what is to be said of it; groups without a weight share what is left of 100."""
    critical = [result.metric.name for result in results if result.critical]
    if critical:
        return 0.0, f" (critical: {', '.join(critical)})"
    empty = sum(result.judged is Class.NODATA for result in results)
    if 2 * empty >= len(results):
        return 0.0, f" ({empty} of {len(results)} metrics have no data)"
    others = [group for group in groups if group not in weights]
    share = (100 - sum(weights.values())) / len(others) if others else 0.0
    return round(sum(score * weights.get(group, share) / 100 for group, score in groups.items()), 2), ""
