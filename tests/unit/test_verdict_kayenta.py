# SPDX-License-Identifier: GPL-3.0-or-later
"""Kayenta's judge: its published values, its rules one by one, and where ours is right and it is
not.
"""

from __future__ import annotations

import math
import statistics
import typing as t

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.kayenta import (
    Class,
    Label,
    Metric,
    classify,
    cles,
    inside,
    judge,
    mean_ratio,
    percentile,
    shifted,
)
from hypothesis import given
from hypothesis import strategies as st

A = [10.0, 12, 11, 13, 12, 11, 10, 12, 13, 11]
B = [20.0, 22, 19, 23, 21, 20, 24, 22, 21, 20]
C = [11.0, 12, 11, 12, 13, 11, 10, 12, 12, 11]
# what it allows unless told otherwise
KAYENTA: dict[str, t.Any] = {"allowed_increase": 1.0, "allowed_decrease": 1.0}
NAN = math.nan


def judged(new: list[float], stable: list[float], **options: t.Any) -> Class:
    return classify(Metric("m", **options), new, stable).judged


# Mann and Whitney
# --------------------------------------------------------------------------------------------------


def test_published_interval() -> None:
    shift = shifted([10, 20, 30, 40], [1, 2, 3, 4], 0.95)
    assert (shift.low, shift.high, shift.estimate) == pytest.approx((6.0, 39.0, 22.5), abs=1e-6)


def test_interval_with_ties() -> None:
    shift = shifted(B, A)
    assert (shift.low, shift.high, shift.estimate) == pytest.approx((8.0, 11.0, 10.0), abs=1e-3)
    assert mean_ratio(B, A) == pytest.approx(1.84348, abs=1e-5)


def statistic(x: list[float], y: list[float], shift: float) -> float:
    """The standardised sum of ranks as Kayenta computes it, of x shifted down."""
    moved = [value - shift for value in x]
    both = sorted([*moved, *y])
    rank = {value: both.index(value) + (both.count(value) + 1) / 2 for value in both}
    m, n = len(x), len(y)
    off = sum(rank[value] for value in moved) - m * (m + 1) / 2 - m * n / 2
    ties = sum(both.count(value) ** 3 - both.count(value) for value in set(both)) / (
        (m + n) * (m + n - 1)
    )
    return (off - 0.5 * ((off > 0) - (off < 0))) / math.sqrt(m * n / 12 * (m + n + 1 - ties))


whole = st.lists(st.integers(0, 12).map(float), min_size=3, max_size=12)


@given(whole, whole)
def test_the_ends_of_the_interval_are_the_roots_of_the_statistic(
    x: list[float], y: list[float]
) -> None:
    """Just beside them, where no sample of one side is tied with one of the other."""
    shift, z = shifted(x, y), statistics.NormalDist().inv_cdf(0.99)
    least, greatest = min(x) - max(y), max(x) - min(y)
    assert least <= shift.low <= shift.estimate <= shift.high <= greatest
    assert statistic(x, y, shift.low + 0.25) <= z
    assert statistic(x, y, shift.low - 0.25) > z or shift.low == least
    assert statistic(x, y, shift.high + 0.25) <= -z or shift.high == greatest
    assert statistic(x, y, shift.high - 0.25) > -z
    if len({*x, *y}) > 1:
        at_zero = statistic(x, y, 0)
        assert shift.sign == (at_zero > z) - (at_zero < -z)


@given(whole, whole)
def test_what_is_high_the_one_way_is_low_the_other(x: list[float], y: list[float]) -> None:
    there, back = (shifted(*pair) for pair in ((x, y), (y, x)))
    assert (there.low, there.high, there.estimate, there.sign) == (
        -back.high,
        -back.low,
        -back.estimate,
        -back.sign,
    )
    assert sum(cles(*pair) for pair in ((x, y), (y, x))) == pytest.approx(1)


# One metric
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("new", "stable", "options", "expected"),
    [
        (B, A, {}, Class.HIGH),
        (B, A, KAYENTA, Class.HIGH),
        (B, A, {"allowed_increase": 3.0}, Class.PASS),
        (C, A, KAYENTA, Class.PASS),
        (A, B, {}, Class.LOW),
        (A, B, {"allowed_decrease": 0.5}, Class.PASS),
        (B, A, {"direction": "increase"}, Class.HIGH),
        (B, A, {"direction": "decrease"}, Class.PASS),
        (A, B, {"direction": "increase"}, Class.PASS),
        (A, B, {"direction": "decrease"}, Class.LOW),
        (B, A, {"effect": "cles"}, Class.HIGH),
        (B, A, {"effect": "cles", "allowed_increase": 1.1}, Class.PASS),
        (A, B, {"effect": "cles"}, Class.LOW),
        (A[::-1], A, {}, Class.PASS),  # the same samples
        ([5.0] * 9, [5.0] * 4, {}, Class.PASS),
        ([5.0] * 9, [4.0] * 9, {}, Class.HIGH),  # two constants
        ([4.0] * 9, [5.0] * 9, {}, Class.LOW),
        ([1.0] * 9, [0.0] * 9, {}, Class.HIGH),  # there is no ratio
        ([NAN, *B], [*A, NAN], {}, Class.HIGH),
        (B, [0.0] * 5 + [NAN] * 5, {"nan_strategy": "replace"}, Class.HIGH),
    ],
)
def test_classes(
    new: list[float], stable: list[float], options: dict[str, t.Any], expected: Class
) -> None:
    assert judged(new, stable, **options) is expected


def test_a_small_shift_that_is_always_there() -> None:
    """High by what Kayenta allows, not by ours."""
    new = [value * 1.02 + 1 for value in range(1000, 1020)]
    stable = [float(value) for value in range(1000, 1020)]
    assert judged(new, stable, **KAYENTA) is Class.HIGH
    assert judged(new, stable) is Class.PASS


def test_rare_errors() -> None:
    """Most intervals have none, before and after: there is no estimate. Kayenta passes these,
    and by chance not all of the kind.
    """
    none, rare, some = [0.0] * 60, [0.0] * 58 + [1.0] * 2, [0.0] * 42 + [1.0] * 18
    assert judged(some, none) is judged(some, rare) is Class.HIGH
    assert judged(none, some) is judged(rare, some) is Class.LOW
    assert judged(rare, none) is judged(none, rare) is Class.PASS
    assert judged(some, rare, allowed_increase=10.0) is Class.PASS


@pytest.mark.parametrize("scale", [1.0, 1e-5, 1e-12, 1e12])
def test_samples_of_any_size(scale: float) -> None:
    """Kayenta misses a regression to the double where the mean is 1e-5."""
    assert judged([value * scale for value in B], [value * scale for value in A]) is Class.HIGH
    assert (
        judged([value * scale for value in C], [value * scale for value in A], **KAYENTA)
        is Class.PASS
    )


@pytest.mark.parametrize(
    ("options", "expected", "critical"),
    [
        ({}, Class.NODATA, False),
        ({"must_have_data": True}, Class.NODATA_FAIL, False),
        ({"critical": True}, Class.NODATA, True),
        ({"critical": True, "must_have_data": True}, Class.NODATA, True),
        ({"nan_strategy": "replace"}, Class.PASS, False),
        ({"nan_strategy": "replace", "critical": True}, Class.PASS, False),
    ],
)
@pytest.mark.parametrize(("new", "stable"), [([], A), (A, []), ([], [])])
def test_no_data(
    new: list[float],
    stable: list[float],
    options: dict[str, t.Any],
    expected: Class,
    critical: bool,
) -> None:
    result = classify(Metric("m", **options), new, stable)
    assert (result.judged, result.critical) == (expected, critical)


def test_nothing_but_nan_is_no_data() -> None:
    assert judged([NAN] * 9, A) is Class.NODATA


@pytest.mark.parametrize(
    ("new", "stable", "options", "critical"),
    [
        (B, A, {}, True),
        (B, A, {"critical_increase": 2.0}, False),
        (A, B, {}, True),
        (A, B, {"critical_decrease": 0.4}, False),
        (C, A, {}, False),
        ([1.0] * 9, [0.0] * 9, {}, True),  # Kayenta says no: there is no ratio
    ],
)
def test_critical(
    new: list[float], stable: list[float], options: dict[str, t.Any], critical: bool
) -> None:
    assert classify(Metric("m", critical=True, **options), new, stable).critical is critical
    assert not classify(Metric("m", **options), new, stable).critical


def test_percentiles() -> None:
    assert [percentile([1, 2, 3, 4], percent) for percent in (0, 25, 50, 75, 100)] == [
        1,
        1.75,
        2.5,
        3.25,
        4,
    ]
    assert percentile([7], 99) == 7


def test_outliers() -> None:
    values = [float(value) for value in range(10, 20)]
    assert inside([*values, 30.0], 3.0) == [*values, 30.0]  # the quartiles are 12.5 and 17.5
    assert inside([-5.0, *values, 1000.0], 3.0) == values
    # all quartiles alike: the inner 98 %
    assert inside([*[0.0] * 197, 1.0, 1.0, 9.0], 3.0) == [*[0.0] * 197, 1.0, 1.0]
    assert judged([*B, 1e6], A, outliers="remove") is Class.HIGH


def test_the_reason_has_the_numbers() -> None:
    reason = classify(Metric("m"), B, A).reason
    assert (
        reason
        == "mean 21.2 against 11.5 on stable, shift 8 to 11, mean_ratio 1.84 (10 and 10 samples)"
    )


numbers = st.lists(st.floats(), max_size=12)


@given(
    numbers,
    numbers,
    st.sampled_from(["mean_ratio", "cles"]),
    st.sampled_from(["remove", "replace"]),
    st.booleans(),
)
def test_any_samples_come_to_a_class(
    x: list[float], y: list[float], effect: str, nan: str, outliers: bool
) -> None:
    metric = Metric("m", effect=effect, nan_strategy=nan, outliers="remove" if outliers else "keep")
    result = classify(metric, x, y)
    assert result.reason
    assert (result.judged is Class.ERROR) <= any(abs(value) > 1e100 for value in (*x, *y))


# The score
# --------------------------------------------------------------------------------------------------

GOOD, BAD, EMPTY = (C, A), (B, A), ((), A)


def score(
    *metrics: tuple[Metric, t.Any], weights: dict[str, float] | None = None, **thresholds: float
) -> tuple[Label, float]:
    judgement = judge(
        [pair[0] for pair in metrics],
        {metric.name: data for metric, data in metrics},
        weights,
        **thresholds,
    )
    return judgement.label, judgement.score


def metric(name: str, *groups: str, **options: t.Any) -> Metric:
    return Metric(name, groups=groups or ("metrics",), **options)


def test_labels() -> None:
    assert score((metric("a"), GOOD)) == (Label.PASS, 100.0)
    assert score((metric("a"), GOOD), (metric("b"), BAD)) == (Label.FAIL, 50.0)
    assert score((metric("a"), GOOD), (metric("b"), BAD), marginal=50.0) == (Label.MARGINAL, 50.0)
    assert score((metric("a"), GOOD), (metric("b"), BAD), passing=50.0) == (Label.PASS, 50.0)


def test_groups_and_their_weights() -> None:
    metrics = [
        (metric("a", "x"), GOOD),
        (metric("b", "x"), BAD),
        (metric("c", "x", "y"), GOOD),
        (metric("d", "z"), BAD),
    ]
    judgement = judge(
        [pair[0] for pair in metrics], {one.name: data for one, data in metrics}, {"x": 60}
    )
    assert judgement.groups == {"x": pytest.approx(200 / 3), "y": 100.0, "z": 0.0}
    assert judgement.score == 60.0  # 60 % of 2/3, 20 % of 1, 20 % of 0
    assert score(*metrics)[1] == 55.56  # a third each


def test_a_group_without_data_counts_in_full() -> None:
    assert (
        score((metric("a", "x"), GOOD), (metric("b", "x"), BAD), (metric("c", "y"), EMPTY))[1]
        == 75.0
    )


def test_a_metric_without_data_is_not_counted_in_its_group() -> None:
    assert score((metric("a"), GOOD), (metric("b"), GOOD), (metric("c"), EMPTY))[1] == 100.0
    assert score((metric("a"), GOOD), (metric("c", must_have_data=True), EMPTY))[1] == 50.0


def test_half_of_the_metrics_without_data_are_left_to_a_person() -> None:
    """Kayenta fails them. A metric that has to have data fails, as does another that is bad."""
    assert score((metric("a"), GOOD), (metric("c"), EMPTY)) == (Label.MARGINAL, 0.0)
    assert score((metric("c"), ([math.nan] * 9, A))) == (Label.MARGINAL, 0.0)
    needed = metric("c", must_have_data=True)
    assert score((metric("a"), GOOD), (needed, EMPTY)) == (Label.FAIL, 50.0)
    assert score((metric("a"), BAD), (metric("c"), EMPTY)) == (Label.FAIL, 0.0)


def test_a_critical_metric_fails_all() -> None:
    assert score(
        (metric("a", critical=True), BAD), *((metric(f"m{n}"), GOOD) for n in range(30))
    ) == (Label.FAIL, 0.0)
    assert score(
        (metric("a", critical=True), EMPTY), *((metric(f"m{n}"), GOOD) for n in range(30))
    ) == (Label.FAIL, 0.0)


def test_muted_metrics_are_not_judged() -> None:
    assert score((metric("a"), GOOD), (metric("b", muted=True, critical=True), BAD))[1] == 100.0


def test_a_metric_that_cannot_be_compared_is_an_error_and_no_pass() -> None:
    """Kayenta leaves it out, and passes."""
    broken = (metric("broken", critical=True), ([math.inf] * 9, A))
    judgement = judge([metric("a"), broken[0]], {"a": GOOD, "broken": broken[1]})
    assert (judgement.label, judgement.sentence) == (
        Label.ERROR,
        "broken: samples greater than 1e+100 cannot be compared",
    )


def test_no_metric_is_an_error() -> None:
    assert judge([], {}).label is Label.ERROR


def test_a_metric_that_was_not_measured_has_no_data() -> None:
    assert (
        judge([metric("a"), metric("b"), metric("c")], {"a": GOOD, "b": GOOD}).results[2].judged
        is Class.NODATA
    )


def test_the_sentence_says_what_is_bad() -> None:
    judgement = judge(
        [metric("errors"), metric("latency", critical=True)], {"errors": GOOD, "latency": BAD}
    )
    assert (
        judgement.sentence
        == "score 0, fail (critical: latency); latency high: mean 21.2 against 11.5 on stable,"
        " shift 8 to 11, mean_ratio 1.84 (10 and 10 samples)"
    )
