# SPDX-License-Identifier: GPL-3.0-or-later
"""The arithmetic of the judges against scipy, an independent implementation."""

from __future__ import annotations

import math
import statistics
from itertools import pairwise, product

import numpy as np
import pytest
import scipy
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges import kayenta
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.counts import (
    Counts,
    Span,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.errors import (
    ODDS,
    ErrorHistory,
    compare_errors,
    tolerated,
    trial,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.evalue import (
    Bets,
    Trial,
    least_evidence,
    log_e,
    log_mean,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.latency import (
    Histogram,
)
from ansible_collections.progressive.rollout.tests.support.seeds import examples
from hypothesis import assume, given
from hypothesis import strategies as st

thetas = st.floats(0.001, 0.999)
mixtures = st.floats(0.1, 50)
# Few different values, so that there are ties; and many, so that there are none.
tied = st.lists(st.integers(0, 6).map(float), min_size=2, max_size=25)
untied = st.lists(st.integers(0, 10**6).map(lambda number: number / 16), min_size=2, max_size=25)
pairs = st.one_of(st.tuples(tied, tied), st.tuples(untied, untied))


# E-values


@given(st.integers(0, 400), st.integers(0, 400), thetas, mixtures, mixtures)
@examples(100)
def test_an_e_value_is_the_ratio_of_two_likelihoods(
    k: int, others: int, theta: float, a: float, b: float
) -> None:
    n = k + others
    mixture = scipy.stats.betabinom.logpmf(k, n, a, b)
    null = scipy.stats.binom.logpmf(k, n, theta)
    assert log_e(k, n, theta, a, b) == pytest.approx(mixture - null, rel=1e-6, abs=1e-6)


@given(st.floats(0, 400), st.floats(0, 400), thetas, mixtures, mixtures)
@examples(100)
def test_counts_need_not_be_whole(
    k: float, others: float, theta: float, a: float, b: float
) -> None:
    n = k + others
    expected = (
        scipy.special.betaln(a + k, b + others)
        - scipy.special.betaln(a, b)
        - scipy.special.xlogy(k, theta)
    )
    expected -= scipy.special.xlog1py(others, -theta)
    assert log_e(k, n, theta, a, b) == pytest.approx(expected, rel=1e-6, abs=1e-6)


@given(st.integers(1, 60), thetas)
@examples(100)
def test_the_mean_of_an_e_value_is_1_where_both_are_alike(n: int, theta: float) -> None:
    # What makes it an e-value: its mean under the null hypothesis is at most 1.
    k = np.arange(n + 1)
    e_values = np.exp([log_e(int(one), n, theta) for one in k])
    assert np.dot(scipy.stats.binom.pmf(k, n, theta), e_values) == pytest.approx(1.0, rel=1e-6)


@given(st.lists(st.floats(-500, 500), min_size=1, max_size=20))
def test_the_mean_of_logarithms(logarithms: list[float]) -> None:
    assert log_mean(logarithms) == pytest.approx(
        scipy.special.logsumexp(logarithms) - math.log(len(logarithms)), abs=1e-9
    )


@given(st.floats(0.01, 0.99), st.floats(0.001, 0.2))
@examples(100)
def test_the_least_evidence_is_where_the_curve_crosses_the_threshold(
    theta: float, alpha: float
) -> None:
    errors = np.arange(1, 5000)
    curve = scipy.special.betaln(1 + errors, 1.0) - errors * math.log(theta)
    enough = errors[curve >= math.log(1 / alpha)]
    assume(len(enough) and enough[0] < errors[-1])
    # Errors before the turn of the curve are no evidence, so the first that is enough is the first
    # after it.
    assert least_evidence(theta, alpha) == enough[0]


@given(thetas, st.floats(0.1, 10))
def test_the_tolerated_share_has_that_odds_ratio(theta: float, tolerance: float) -> None:
    share = tolerated(theta, tolerance)
    assert scipy.special.logit(share) - scipy.special.logit(theta) == pytest.approx(
        math.log(tolerance), abs=1e-6
    )


counts = st.tuples(
    st.integers(1, 2000), st.integers(0, 40), st.integers(1, 2000), st.integers(0, 40)
)


@given(st.lists(counts, min_size=1, max_size=6), st.floats(0.5, 3))
@examples(100)
def test_bets_on_odds_ratios(looks: list[tuple[int, int, int, int]], tolerance: float) -> None:
    """The likelihood ratio of each odds ratio, by scipy's binomial distribution, over the same
    grid; later bets win from their look on, less what the two looks before are against them.
    """
    odds = np.array([1 + excess for _log, excess in ODDS])
    trials = [trial(Counts.of(n, k), Counts.of(m, s), tolerance) for n, k, m, s in looks]

    def ratios(one: Trial) -> np.ndarray:
        other = scipy.special.expit(scipy.special.logit(one.theta) + np.log(odds))
        return scipy.stats.binom.logpmf(one.new, one.errors, other) - scipy.stats.binom.logpmf(
            one.new, one.errors, one.theta
        )

    found = [ratios(one) if one.errors else np.zeros(len(odds)) for one in trials]
    told = [at for at, one in enumerate(trials) if one.errors]
    started = []
    for number, at in enumerate(told):
        stake = 0.9 if not number else 0.1 / (number * (number + 1))
        before = np.minimum(0, sum(found[max(0, at - 2) : at])) if number else 0.0
        started.append(np.log(stake) + before + sum(found[at:]))
    expected = scipy.special.logsumexp(started) - math.log(len(odds)) if told else 0.0
    bets, plain = Bets(ODDS, 2), Bets(ODDS)
    for one in trials:
        bets, plain = bets.after(one), plain.after(one)
    assert bets.log_e() == pytest.approx(expected, rel=1e-6, abs=1e-6)
    alone = scipy.special.logsumexp(sum(found)) - math.log(len(odds)) if told else 0.0
    assert plain.log_e() == pytest.approx(alone, rel=1e-6, abs=1e-6)


def test_enough_requests_detect_about_nine_times_in_ten() -> None:
    """With as many requests as a verdict asks for, a revision that fails so often is found as
    often as promised.
    """
    found = []
    for percent, alpha, detect in product(range(1, 100, 7), (0.01, 0.02, 0.05), (0.01, 0.05, 0.2)):
        span = Span.of_sides(Counts(percent / 10_000, 0), Counts((100 - percent) / 10_000, 0))
        history = ErrorHistory().after([span], alpha, 1.0)
        requests = compare_errors(history, alpha, detect=detect).missing
        enough = (
            next(
                errors
                for errors in range(3, 5000)
                if Bets(ODDS, 2).after(Trial(errors, errors, history.share)).log_e()
                >= math.log(1 / alpha)
            )
            if percent < 99
            else None
        )
        if enough:
            found.append(scipy.stats.binom.sf(enough - 1, requests, detect))
    assert min(found) > 0.85 and statistics.fmean(found) > 0.9


# Quantiles


@given(st.lists(st.floats(0.001, 1000), min_size=20, max_size=200), st.floats(0.1, 0.9))
@examples(80)
def test_the_interval_of_a_quantile_holds_that_of_the_samples(
    samples: list[float], quantile: float
) -> None:
    low, high = Histogram({}).add(samples).interval(quantile, 0.01)
    assert low <= np.quantile(samples, quantile, method="inverted_cdf") <= high


@given(
    st.lists(st.floats(0.001, 1000), min_size=30, max_size=200, unique=True), st.floats(0.1, 0.9)
)
@examples(80)
def test_the_interval_has_the_ranks_that_are_not_refuted(
    samples: list[float], quantile: float
) -> None:
    alpha, count, ranked = 0.01, len(samples), sorted(samples)
    ranks = np.arange(count + 1)
    evidence = scipy.stats.betabinom.logpmf(ranks, count, 1, 1) - scipy.stats.binom.logpmf(
        ranks, count, quantile
    )
    (believed,) = np.nonzero(evidence < math.log(1 / alpha))
    low, high = Histogram({}).add(samples).interval(quantile, alpha)
    bucket = 2 ** (1 / 32)
    if believed[0] > 0:
        assert low <= ranked[believed[0] - 1] <= low * bucket * (1 + 1e-9)
    if believed[-1] < count:
        assert high / bucket * (1 - 1e-9) <= ranked[believed[-1]] <= high * (1 + 1e-9)


# Kayenta's judge


@given(pairs)
@examples(200)
def test_the_mann_whitney_test(both: tuple[list[float], list[float]]) -> None:
    """Which of two lists has the greater samples: scipy's test, with ties and the continuity
    correction.
    """
    x, y = both
    assume(len({*x, *y}) > 1)
    found = kayenta.shifted(x, y)
    tested = scipy.stats.mannwhitneyu(
        x, y, alternative="two-sided", method="asymptotic", use_continuity=True
    )
    assume(abs(tested.pvalue - (1 - kayenta.CONFIDENCE)) > 1e-9)
    expected = (
        int(np.sign(tested.statistic - len(x) * len(y) / 2))
        if tested.pvalue < 1 - kayenta.CONFIDENCE
        else 0
    )
    assert found.sign == expected


@given(st.tuples(untied, untied), st.sampled_from([0.9, 0.95, 0.98]))
@examples(100)
def test_the_interval_is_where_the_test_is_not_sure(
    both: tuple[list[float], list[float]], confidence: float
) -> None:
    """Just inside the interval a shift is not refuted by scipy's test, and just outside it is."""
    x, y = both
    differences = sorted({a - b for a, b in product(x, y)})
    assume(len({*x}) == len(x) and len({*y}) == len(y) and len(differences) > 2)
    found = kayenta.shifted(x, y, confidence)

    def is_refuted(shift: float) -> bool:
        moved = [value - shift for value in x]
        tested = scipy.stats.mannwhitneyu(moved, y, method="asymptotic", use_continuity=True)
        return bool(tested.pvalue < 1 - confidence)

    gap = min(b - a for a, b in pairwise(differences)) / 4
    assert not is_refuted(found.low + gap) and not is_refuted(found.high - gap)
    assert found.low == differences[0] or is_refuted(found.low - gap)
    assert found.high == differences[-1] or is_refuted(found.high + gap)


@given(pairs)
def test_the_hodges_lehmann_estimate(both: tuple[list[float], list[float]]) -> None:
    x, y = both
    assert kayenta.shifted(x, y).estimate == pytest.approx(np.median(np.subtract.outer(x, y)))


@given(pairs)
def test_the_common_language_effect_size(both: tuple[list[float], list[float]]) -> None:
    x, y = both
    assert kayenta.cles(x, y) == pytest.approx(
        scipy.stats.mannwhitneyu(x, y).statistic / (len(x) * len(y))
    )


@given(untied, st.floats(0, 100))
def test_percentiles(samples: list[float], percent: float) -> None:
    ranked = sorted(samples)
    assert kayenta.percentile(ranked, percent) == pytest.approx(
        np.percentile(ranked, percent), rel=1e-9, abs=1e-9
    )


@given(untied, st.floats(0.5, 3))
def test_outliers(samples: list[float], factor: float) -> None:
    ranked = sorted(samples)
    first, third = np.percentile(ranked, [25, 75])
    reach = factor * scipy.stats.iqr(ranked)
    low = min(np.percentile(ranked, 1), first - reach)
    high = max(np.percentile(ranked, 99), third + reach)
    edges = [value for value in ranked if math.isclose(value, low) or math.isclose(value, high)]
    assume(not edges)
    assert kayenta.inside(ranked, factor) == [value for value in ranked if low <= value <= high]


@given(pairs)
def test_the_ratio_of_means(both: tuple[list[float], list[float]]) -> None:
    x, y = both
    expected = np.mean(x) / np.mean(y) if any(x) and any(y) else None
    assert kayenta.mean_ratio(x, y) == (None if expected is None else pytest.approx(expected))


def test_the_normal_quantile() -> None:
    for confidence in (0.9, 0.95, kayenta.CONFIDENCE):
        quantile = (1 + confidence) / 2
        assert statistics.NormalDist().inv_cdf(quantile) == pytest.approx(
            scipy.stats.norm.ppf(quantile)
        )
