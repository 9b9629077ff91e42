# SPDX-License-Identifier: GPL-3.0-or-later
"""The sequential judge: published values, what it says of counts and samples, and that odd
numbers have an end.
"""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.comparison import (
    Comparison,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.counts import (
    Counts,
    Span,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.dispersion import (
    Dispersion,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.errors import (
    LONGEST,
    NO_WAIT,
    ErrorHistory,
    compare_errors,
    tolerated,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.evalue import (
    ALPHA,
    Bets,
    Trial,
    least_evidence,
    log_e,
    odds_of,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.fading import (
    WarmUpLimit,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.instances import (
    Instances,
    Outliers,
    part_of,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.latency import (
    AGREE,
    Histogram,
    LatencyHistory,
    Samples,
    compare_quantile,
    slow_instances,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.verdict import Data
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.warming import (
    FEW,
    Warming,
)
from hypothesis import given
from hypothesis import strategies as st

NONE = Histogram({})


# The e-value
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("errors", "value"), [(9, 51.2), (8, 28.44)])
def test_published_values(errors: int, value: float) -> None:
    assert math.exp(log_e(errors, errors, 0.5)) == pytest.approx(value, rel=1e-3)


@pytest.mark.parametrize(("share", "errors"), [(0.5, 9), (0.25, 4), (0.1, 3), (0.05, 2)])
def test_published_numbers_of_errors(share: float, errors: int) -> None:
    assert least_evidence(share) == errors
    assert log_e(errors, errors, share) >= math.log(50) > log_e(errors - 1, errors - 1, share)


@pytest.mark.parametrize("share", [0.3, 0.9, 0.99, 0.9999])
def test_one_error_less_is_not_enough(share: float) -> None:
    errors = least_evidence(share)
    assert errors and log_e(errors, errors, share) >= math.log(50) > log_e(
        errors - 1, errors - 1, share
    )


@pytest.mark.parametrize("share", [0.0, 1.0, -1.0, 2.0, math.nan])
def test_no_number_of_errors_tells_anything_where_there_is_nothing_to_compare(share: float) -> None:
    assert least_evidence(share) is None
    assert log_e(1, 2, share) == 0.0


def test_on_average_there_is_no_evidence_where_both_are_alike() -> None:
    """The mean of the e-value over the binomial distribution is 1: what makes it one."""
    for n, share in ((1, 0.3), (10, 0.1), (40, 0.5)):
        mean = sum(
            math.comb(n, k) * share**k * (1 - share) ** (n - k) * math.exp(log_e(k, n, share))
            for k in range(n + 1)
        )
        assert mean == pytest.approx(1.0)


@pytest.mark.parametrize("lag", [0, 1, 2])
def test_on_average_bets_win_nothing_where_both_are_alike(lag: int) -> None:
    """The mean of their wealth over all that may happen in three looks of different shares."""
    sizes, odds = ((4, 0.3), (3, 0.5), (4, 0.6)), odds_of((1.3, 2.0, 9.0))
    mean = 0.0
    for counted in itertools.product(*(range(n + 1) for n, _share in sizes)):
        chance, bets = 1.0, Bets(odds, lag)
        for k, (n, share) in zip(counted, sizes, strict=True):
            chance *= math.comb(n, k) * share**k * (1 - share) ** (n - k)
            bets = bets.after(Trial(k, n, share))
        mean += chance * math.exp(bets.log_e())
    assert mean == pytest.approx(1.0) if not lag else 0.9 <= mean <= 1.0


parts = st.lists(st.floats(0, 0.2), min_size=3, max_size=3)


@given(parts, parts, st.integers(1, 1000), st.integers(1, 1000), st.floats(1, 1e6))
def test_on_average_mild_errors_win_nothing_where_the_new_side_has_no_more_of_the_worst(
    new: list[float], stable: list[float], requests: int, others: int, ratio: float
) -> None:
    """Nor more of the worst and the next together, nor of all; of the mild ones it may have more.

    The mean of the likelihood ratio over all that may happen to so many requests of each side, of
    which these parts fail: by little, by more, and worst.
    """
    for grade in reversed(range(3)):  # the new side has no more from this one on
        new[grade] = min(new[grade], max(0.0, sum(stable[grade:]) - sum(new[grade + 1 :])))
    theta = requests / (requests + others)
    powers, odds = (0.1, 0.5, 1.0), odds_of([ratio])

    def won(on_new: bool, grade: int) -> float:
        mild = [(float(on_new), 1.0, powers[grade])] if grade < 2 else []
        return math.expm1(Trial(float(on_new), 1.0, theta, 1.0, mild).log_ratios(odds)[0])

    logarithm = sum(
        number * math.log1p(sum(part * won(on_new, grade) for grade, part in enumerate(side)))
        for number, side, on_new in ((requests, new, True), (others, stable, False))
    )
    assert logarithm <= 1e-6


@given(st.integers(0, 20), st.integers(0, 20), st.integers(0, 20), st.floats(0, 1))
def test_without_a_peak_there_is_never_more_evidence(
    before: int, new: int, stable: int, rate: float
) -> None:
    bets = Bets(odds_of((1.3, 2.0, 9.0)), 2).after(Trial(before, before + 5, 0.3, 100))
    bets = bets.after(Trial(new, new + stable, 0.3, 100, [(new / 2, new / 2 + stable, 0.3)]))
    less = bets.without_peak(rate)
    assert all(one <= most + 1e-9 for one, most in zip(less.wealth, bets.wealth, strict=True))
    assert bets.without_peak(1.0).wealth == pytest.approx(bets.wealth)


def test_of_mild_errors_a_peak_is_cut_as_well() -> None:
    cut = Trial(6, 10, 0.3, 100, [(4, 6, 0.1)]).at_most(0.03)
    assert (cut.new, cut.errors) == pytest.approx((3, 7))
    assert cut.mild[0] == pytest.approx((2, 4, 0.1))


def test_tolerance_is_the_share_of_errors_to_expect() -> None:
    assert tolerated(0.25, 1.0) == 0.25
    assert tolerated(0.5, 1.5) == pytest.approx(0.6)  # 3 to 2
    assert tolerated(0.0, 1.5) == 0.0


# Errors
# --------------------------------------------------------------------------------------------------

Side = Counts | dict[str, Counts]


def span(new: Side, stable: Side, **hosts: str) -> Span:
    sides = [one if isinstance(one, dict) else {"": one} for one in (new, stable)]
    return Span(sides[0], sides[1], hosts)


def after(*looks: Span, alpha: float = ALPHA, tolerance: float = 1.0) -> ErrorHistory:
    """What is known after these looks; each time as the journal has it."""
    history = ErrorHistory()
    for look in looks:
        history = history.after([look], alpha, tolerance)
        history = ErrorHistory.load(json.loads(json.dumps(history.dump(), allow_nan=False)))
    return history


def evenly(new: Counts, stable: Counts, looks: int = 30) -> list[Span]:
    """These counts, evenly over so many looks."""
    return [
        span(*(Counts(one.requests / looks, one.errors / looks) for one in (new, stable)))
    ] * looks


def test_a_revision_that_fails_more_often_is_worse() -> None:
    found = compare_errors(after(*evenly(Counts(900, 12), Counts(2700, 3))))
    assert found.worse and found.threshold == 50.0
    assert found.sentence.startswith(
        "errors 12 of 900 (1.3 %) against 3 of 2,700 (0.11 %) on stable, 12 times as often; e-value "
    )
    assert found.sentence.endswith(" >= 50: 1 in 5,116 by chance")


def test_a_revision_that_fails_as_often_is_not() -> None:
    found = compare_errors(after(*evenly(Counts(90_000, 90), Counts(270_000, 270))))
    assert not found.worse and found.data is Data.ENOUGH
    assert found.sentence.startswith(
        "errors 90 of 90,000 (0.1 %) against 270 of 270,000 (0.1 %) on stable; e-value "
    )
    assert "chance" not in found.sentence


def test_one_that_fails_less_often_is_not_although_that_is_as_unlikely() -> None:
    found = compare_errors(after(*evenly(Counts(900, 0), Counts(2700, 60))))
    assert not found.worse and found.e_value is not None and found.e_value < 1


def test_tolerance_allows_for_more() -> None:
    counted = evenly(Counts(1000, 60), Counts(1000, 25))
    assert compare_errors(after(*counted)).worse
    assert not compare_errors(after(*counted, tolerance=2.0), tolerance=2.0).worse


def test_low_traffic_says_how_many_requests_it_takes() -> None:
    found = compare_errors(after(span(Counts(10), Counts(90))))
    assert not found.worse and found.data is Data.LACKING and found.missing
    assert found.sentence.endswith(f"e-value 1 < 50; needs {found.missing} more requests")
    needed = 10 + found.missing
    assert compare_errors(after(span(Counts(needed), Counts(9 * needed)))).data is Data.ENOUGH


@pytest.mark.parametrize(("rate", "detected"), [(0.0, 0.05), (0.045, 0.135), (0.2, 0.6)])
def test_what_must_be_detected_grows_with_what_stable_fails(rate: float, detected: float) -> None:
    """A service that fails often can pass, too: three times as often is bad there."""
    few = compare_errors(after(*evenly(Counts(30, 30 * rate), Counts(270, 270 * rate))))
    assert few.missing
    needed = 32 + few.missing
    worse = evenly(Counts(needed, needed * detected), Counts(9 * needed, 9 * needed * rate))
    assert compare_errors(after(*worse)).worse
    many = evenly(Counts(needed, needed * rate), Counts(9 * needed, 9 * needed * rate))
    assert compare_errors(after(*many)).data is Data.ENOUGH


def test_a_failure_rate_that_is_that_of_stable_cannot_be_seen() -> None:
    found = compare_errors(after(*evenly(Counts(1000, 900), Counts(9000, 9000))))
    assert found.data is Data.HOPELESS
    assert found.sentence.endswith("stable's error rate is too high to detect 1")


@pytest.mark.parametrize(
    ("new", "stable", "missing"),
    [
        (Counts(), Counts(100, 1), "the new revision"),
        (Counts(100, 50), Counts(), "stable"),
        (Counts(), Counts(), "the new revision"),
    ],
)
def test_one_side_without_requests(new: Counts, stable: Counts, missing: str) -> None:
    found = compare_errors(after(span(new, stable)))
    assert not found.worse and found.data is Data.HOPELESS
    assert found.sentence.endswith(f"no requests to {missing}, nothing to compare")


def test_one_look_and_two_errors_are_no_verdict() -> None:
    """However unlikely they are: one cause may have made them all."""
    quiet = span({"a": Counts(10), "b": Counts(10)}, Counts(9980))
    burst = span({"a": Counts(10, 9), "b": Counts(10, 9)}, Counts(9980))
    found = compare_errors(after(burst, *[quiet] * 9))
    assert not found.worse and found.data is Data.WAITING
    assert found.sentence.endswith("too few looks with errors, or by its hosts")
    assert compare_errors(after(burst, burst, *[quiet] * 2)).worse
    single = span({"a": Counts(10, 9), "b": Counts(10)}, Counts(9980))
    assert not compare_errors(after(single, single, *[quiet] * 9)).worse
    assert compare_errors(after(single, single, single, *[quiet] * 2)).worse


# Looks of different shares
# --------------------------------------------------------------------------------------------------


def test_a_share_that_changes_between_calm_and_trouble_is_no_evidence() -> None:
    """All of the trouble falls into the time when most requests go to the new side: alike in
    each, and not in the sum.
    """
    calm = span(Counts(100, 0), Counts(9900, 0))
    trouble = span(Counts(5000, 250), Counts(5000, 250))
    sums = span(Counts(5100, 250), Counts(14_900, 250))
    assert after(sums).bets.log_e() > 10
    assert after(calm, trouble).bets.log_e() < 0


def test_evidence_adds_up_over_shares() -> None:
    first = evenly(Counts(100, 4), Counts(300, 0), 4)
    second = evenly(Counts(100, 4), Counts(100, 0), 4)
    assert after(*first, *second).log_e > max(after(*first).log_e, after(*second).log_e)


def test_spans_of_one_look_have_a_share_each() -> None:
    """It is one look: two of its spans with errors are not two looks with errors."""
    calm, trouble = span(Counts(100), Counts(9900)), span(Counts(500, 250), Counts(500, 250))
    apart = ErrorHistory().after([calm, trouble], ALPHA, 1.0)
    assert apart.bets.log_e() == pytest.approx(after(calm, trouble).bets.log_e(), abs=1e-3)
    assert (apart.shown.looks, apart.shown.events) == (1, 1)


counted = st.tuples(st.floats(1, 1e6), st.floats(1, 1e6), st.floats(0, 1), st.floats(0, 1))


@given(st.lists(counted, min_size=1, max_size=8))
def test_one_that_is_better_in_each_look_is_never_worse(
    looks: list[tuple[float, float, float, float]],
) -> None:
    made = [
        span(Counts(new, new * rate * part), Counts(stable, stable * rate))
        for new, stable, rate, part in looks
    ]
    assert not compare_errors(after(*made)).worse


@pytest.mark.parametrize("good", [5, 100])
def test_one_that_was_good_for_long_and_becomes_bad_is_found(good: int) -> None:
    calm = span(Counts(100, 1), Counts(900, 9))
    bad = span(Counts(100, 10), Counts(900, 9))
    assert compare_errors(after(*[calm] * good, *[bad] * 10)).worse


def test_that_stable_had_an_outage_is_no_credit_for_what_comes() -> None:
    outage, usual = (
        {f"s{number}": Counts(100, errors) for number in range(9)} for errors in (40, 1)
    )
    looks = [span(Counts(100, 0), outage)] * 3 + [span(Counts(100, 10), usual)] * 10
    assert compare_errors(after(*looks)).worse


# Trouble of both sides
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lag", [-2, -1, 0, 1, 2])
def test_a_storm_that_reaches_both_sides_at_different_times_is_one_event(lag: int) -> None:
    """A positive lag: the new side is later. There are a few errors all the time."""
    looks = [[Counts(100, 1), Counts(900, 9)] for _look in range(20)]
    looks[10][1], looks[10 + lag][0] = Counts(900, 270), Counts(100, 30)
    made = [span(*look) for look in looks]
    assert not any(compare_errors(after(*made[:end])).worse for end in range(1, 20))


def test_a_verdict_says_what_it_waits_for() -> None:
    """Two looks after the first errors at the latest, stable would show them, too."""
    calm = span(Counts(100, 0), Counts(900, 9))
    bad = span({"a": Counts(50, 14), "b": Counts(50, 14)}, Counts(900, 9))
    waits = compare_errors(after(*[calm] * 5, *[bad] * 2))
    assert not waits.worse and waits.data is Data.WAITING
    assert waits.sentence.endswith("; at most 2 more looks for stable to show it")
    assert compare_errors(after(*[calm] * 5, *[bad] * 5)).worse


def test_evidence_that_is_gone_when_the_wait_is_over_is_no_verdict() -> None:
    calm = span(Counts(100, 0), Counts(900, 9))
    bad = span({"a": Counts(50, 14), "b": Counts(50, 14)}, Counts(900, 9))
    gone = [after(*[calm] * 5, *[bad] * 2, *[calm] * quiet) for quiet in range(1, 9)]
    less = [one for one in gone if one.log_e < math.log(50) and one.shown.held > 2]
    assert less and not any(compare_errors(one).worse for one in less)


def test_one_instance_with_far_more_errors_than_ever_is_one_event_until_a_second() -> None:
    usual = span({"a": Counts(50, 1), "b": Counts(50, 0)}, Counts(900, 9))
    crash = span({"a": Counts(50, 30), "b": Counts(50, 0)}, Counts(900, 9))
    assert not compare_errors(after(*[usual] * 9, crash, *[usual] * 9)).worse
    once, twice = (after(*[usual] * 9, *[crash] * times) for times in (1, 2))
    raw = [one.bets.log_e(one.dispersion.total(one.expected)) for one in (once, twice)]
    assert once.log_e < raw[0] and twice.log_e == raw[1]
    both = after(span({"a": Counts(50, 30), "b": Counts(50, 20)}, Counts(900, 9)))
    assert both.log_e == both.bets.log_e(both.dispersion.total(both.expected)) > 0


def test_errors_that_last_on_one_instance_count_as_what_they_have_in_common() -> None:
    """Each stable instance in turn fails for four looks; within a look that is hardly seen."""
    new = {"a": Counts(100, 1)}

    def stable(look: int) -> dict[str, Counts]:
        failing = look // 4 % 4
        return {f"s{one}": Counts(100, 4 if one == failing else 1) for one in range(4)}

    history = after(*(span(new, stable(look)) for look in range(16)))
    one_look = history.dispersion.weighed / history.dispersion.weight
    assert history.dispersion.of_look > 1.5 * one_look


@pytest.mark.parametrize("lag", [-2, -1, 1, 2])
def test_storms_that_return_are_no_evidence(lag: int) -> None:
    looks = [[Counts(100, 1), Counts(900, 9)] for _look in range(40)]
    for at in range(4, 40, 12):
        for look in (at, at + 1):
            looks[look][1] = Counts(900, 270)
            looks[look + lag][0] = Counts(100, 30)
    made = [span(*look) for look in looks]
    assert not any(compare_errors(after(*made[:end])).worse for end in range(1, 40))


def test_while_stable_has_a_storm_a_verdict_waits_for_it() -> None:
    """It reached the new side late in one look, and stable late in another, two looks later."""

    def look(new: float, stable: float) -> Span:
        """Of two new instances, and of nine stable ones."""
        return span(
            {name: Counts(150, new / 2) for name in "ab"},
            {f"s{number}": Counts(300, stable / 9) for number in range(9)},
        )

    storm = ((87, 13), (74, 31), (55, 711), (1, 720), (1, 400))
    made = [look(2, 18)] * 10 + [look(*counts) for counts in storm] + [look(2, 18)] * 10
    said = [compare_errors(after(*made[:end])) for end in range(1, len(made) + 1)]
    assert said[12].e_value and said[12].e_value > 50 and said[12].data is Data.WAITING
    assert not any(one.worse for one in said)


def test_a_storm_of_stable_that_lasts_is_waited_for_no_longer_than_one_of_both() -> None:
    calm = span({"a": Counts(150, 1), "b": Counts(150, 1)}, Counts(2700, 18))
    bad = span({"a": Counts(150, 60), "b": Counts(150, 60)}, Counts(2700, 180))
    assert not compare_errors(after(*[calm] * 10, *[bad] * (LONGEST - 1))).worse
    assert compare_errors(after(*[calm] * 10, *[bad] * (LONGEST + 2))).worse


def test_where_half_of_the_requests_count_there_is_no_room_for_a_peak() -> None:
    """As at the median of times: that all are slow for a look may be of both sides."""
    stable = {f"s{number}": Counts(200, 60) for number in range(9)}
    usual, slow = (span({name: Counts(100, slow) for name in "ab"}, stable) for slow in (30, 100))
    history = after(*[usual] * 5, *[slow] * 2)
    assert history.log_e > math.log(50) and history.steady_log_e == 0.0
    assert not compare_errors(history).worse


@pytest.mark.parametrize("lag", [-2, -1, 0, 1, 2])
def test_how_often_the_new_side_fails_is_known_without_storms(lag: int) -> None:
    looks = [[Counts(100, 1), Counts(900, 9)] for _look in range(40)]
    for at in range(6, 36, 12):
        looks[at][1], looks[at + lag][0] = Counts(900, 540), Counts(100, 60)
    history = after(*(span(*look) for look in looks))
    assert history.calm.new.rate == pytest.approx(0.01) and history.new.rate > 0.05


def test_what_is_bet_late_looks_back_over_a_storm_that_lasts() -> None:
    """It has three looks, and reaches the new side two looks later."""
    looks = [[Counts(100, 1), Counts(900, 9)] for _look in range(12)]
    for at in (6, 7, 8):
        looks[at][1], looks[at + 2][0] = Counts(900, 540), Counts(100, 60)
    history = after(*(span(*look) for look in looks))
    assert history.bets.lag == 4 and history.bets.log_e() < 0


def test_what_an_older_version_kept_of_errors_is_read() -> None:
    looks = evenly(Counts(900, 12), Counts(2700, 3))
    kept = after(*looks[:20]).dump()
    for name in ("greatest", "second"):
        del kept["bets"][name]
    del kept["dispersion"]["blocks"], kept["shown"]["above"], kept["calm"]
    history = ErrorHistory.load(json.loads(json.dumps(kept)))
    for look in looks[20:]:
        history = history.after([look], ALPHA, 1.0)
    assert compare_errors(history).worse


def test_what_has_failed_for_long_is_not_waited_for() -> None:
    """As often as it fails now, or nearly; a peak in the last looks may be of both sides."""
    bad = span({"a": Counts(50, 2), "b": Counts(50, 1)}, Counts(900, 9))
    peak = span({"a": Counts(50, 20), "b": Counts(50, 20)}, Counts(900, 9))
    said = [compare_errors(after(*[bad] * number)) for number in range(1, 40)]
    assert any(one.worse for one in said)
    assert not any("for stable to show it" in one.sentence for one in said)
    quiet = span({"a": Counts(50, 1), "b": Counts(50, 0)}, Counts(900, 9))
    waits = [compare_errors(after(*[quiet] * 9, *[peak] * number)) for number in (1, 2, 3, 4)]
    assert "for stable to show it" not in waits[0].sentence  # one event
    assert waits[1].sentence.endswith("; at most 2 more looks for stable to show it")
    assert [one.worse for one in waits] == [False, False, False, True]


def test_who_loses_most_of_its_requests_is_not_waited_for() -> None:
    calm, lost = span(Counts(100, 0), Counts(900, 9)), span(Counts(100, 60), Counts(900, 9))
    many = [span({"a": Counts(50, 30), "b": Counts(50, 30)}, Counts(900, 9))] * 2
    assert not compare_errors(after(*[calm] * 5, lost)).worse
    assert compare_errors(after(*[calm] * 5, *many)).worse
    both = [span({"a": Counts(50, 30), "b": Counts(50, 30)}, Counts(900, 90))] * 2
    assert not compare_errors(after(*[calm] * 5, *both)).worse


# How much errors vary
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("good", [0, 300])
def test_a_rate_that_is_allowed_is_not_worse(good: int) -> None:
    """Whatever stable's rate is, and however much evidence there is."""

    def judge(compared: Comparison, rate: float, looks: int) -> tuple[Comparison, bool]:
        for _look in range(looks):
            look = [span(Counts(100, 100 * rate), Counts(900, 9))]
            compared = compared.after(look, ALPHA, 2.0, at_least=0.5)
            compared = Comparison.load(json.loads(json.dumps(compared.dump())))
        found, _remark = compared.verdict(ALPHA, 2.0, 0.5, "client errors")
        if found.e_value and found.e_value > 1e6 and not found.worse:
            assert found.sentence.endswith("; now below at_least")
        return compared, found.worse

    compared, worse = judge(Comparison(), 0.01, good)
    assert not worse
    compared, worse = judge(compared, 0.4, 40)
    assert not worse
    compared, worse = judge(compared, 1.0, 1)
    assert not worse, "one look is no verdict"
    compared, worse = judge(compared, 1.0, 1)
    assert worse
    assert judge(Comparison(), 1.0, 4)[1]


def in_turns(
    new: Counts, stable: Counts, looks: int, patience: WarmUpLimit = NO_WAIT
) -> Comparison:
    """Compare sides that have requests in turns: two looks of stable, and one of the new side."""
    compared = Comparison()
    for number in range(looks):
        is_new = number % 3 == 2
        look = span(new if is_new else Counts(), Counts() if is_new else stable)
        compared = compared.after([look], ALPHA, 1.0, patience=patience)
        compared = Comparison.load(json.loads(json.dumps(compared.dump())))
    return compared


def test_sides_that_have_requests_in_turns_are_compared() -> None:
    """With one request a look, hardly any look has some to both sides."""
    bad = in_turns(Counts(1, 1), Counts(1), 60).verdict(ALPHA, 1.0, 0.05)[0]
    assert bad.worse, bad.sentence
    good = in_turns(Counts(1, 1), Counts(1, 1), 60)
    assert good.sides.new == Counts(20, 20) and good.sides.log_e <= 0
    assert not good.verdict(ALPHA, 1.0, 0.05)[0].worse


def test_instances_age_while_requests_are_kept() -> None:
    """They are compared in the looks 2, 5, 8 and 11."""
    compared = in_turns(Counts(1, 1), Counts(1), 12, WarmUpLimit(6.0))
    assert compared.sides.fading.ages == {"": 9}
    assert compared.instances.each[""].fading.ages == {"": 9}


def test_many_requests_to_one_side_are_its_share() -> None:
    """They tell nothing of the other one, and nothing waits for it."""
    many = in_turns(Counts(200, 200), Counts(200), 60)
    assert many.kept is None and many.sides.log_e == 0
    assert many.sides.new.requests == 4000


def clumped(size: int, looks: int = 20) -> list[Span]:
    """Stable instances fail in clumps: one of ten in each look, all on one instance."""
    found = []
    for look in range(looks):
        stable = {f"s{number}": Counts(100) for number in range(10)}
        stable[f"s{look % 10}"] = Counts(100, size)
        new = {"n0": Counts(100, size if look % 10 == 0 else 0), "n1": Counts(100)}
        found.append(span(new, stable))
    return found


@pytest.mark.parametrize("size", [1, 3, 10])
def test_errors_that_come_in_clumps_count_as_one(size: int) -> None:
    assert after(*clumped(size)).dispersion.of_look == pytest.approx(size, rel=0.1)
    bad = span({"n0": Counts(100, size), "n1": Counts(100)}, clumped(size)[0].stable)
    assert after(*clumped(size), *[bad] * 3).log_e < 3


def test_instances_that_differ_are_no_evidence() -> None:
    """Of ten stable ones five fail three times as often as the others; so does the new one."""
    stable = {f"s{number}": Counts(100, 3 if number % 2 else 1) for number in range(10)}
    made = [span({"n": Counts(100, 3)}, stable)] * 60
    assert not compare_errors(after(*made)).worse
    alike = {f"s{number}": Counts(100, 2) for number in range(10)}
    assert compare_errors(after(*[span({"n": Counts(100, 5)}, alike)] * 60)).worse


def test_the_errors_of_a_bad_host_are_expected_there() -> None:
    """One of two new instances is on a host on which old ones fail three times as often."""
    hosts = {f"{side}{number}": f"web{number}" for side in "ns" for number in range(20)}
    stable = {f"s{number}": Counts(1000, 30 if number == 3 else 10) for number in range(20)}
    new = {"n3": Counts(1000, 30), "n4": Counts(1000, 10)}
    assert not compare_errors(after(*[span(new, stable, **hosts)] * 30)).worse
    assert after(*[span(new, stable, **hosts)] * 5).dispersion.risks(hosts, 3.0).keys() == {"web3"}
    new = {"n3": Counts(1000, 60), "n4": Counts(1000, 60)}
    assert compare_errors(after(*[span(new, stable, **hosts)] * 30)).worse


def test_where_no_instances_are_known_looks_are_compared() -> None:
    """What one look has and the next has not is one event."""
    made = [span(Counts(100), Counts(900, 20 if look % 2 else 0)) for look in range(40)]
    assert after(*made).dispersion.of_look == pytest.approx(20, rel=0.1)


@pytest.mark.slow
def test_what_is_kept_is_bounded() -> None:
    """A thousand instances on each side, for a hundred looks."""
    history, instances = ErrorHistory(), Instances()
    sides = [
        {f"{side}{number:04}": Counts(10, number % 3) for number in range(1000)} for side in "ns"
    ]
    for _look in range(100):
        history = history.after([span(*sides)], ALPHA, 1.0)
    for _look in range(2):
        instances = instances.after([span(*sides)], history.dispersion, ALPHA, 1.0)
    assert len(json.dumps(history.dump())) < 20_000
    assert len(json.dumps(instances.dump())) < 150_000


# Odd numbers
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "believed"),
    [
        ((10, 12), Counts(10, 10)),
        ((10.5, 0.7), Counts(10.5, 0.7)),
        ((-3, 1), Counts(0, 0)),
        ((10, -1), Counts(10, 0)),
        ((math.nan, 1), Counts()),
        ((10, math.nan), Counts()),
        ((math.inf, 1), Counts()),
        ((2e-311, 1), Counts()),
    ],
)
def test_counts_that_cannot_be(given: tuple[float, float], believed: Counts) -> None:
    assert Counts.of(*given) == believed


numbers = st.floats() | st.integers(-5, 10**12)
counts = st.builds(Counts.of, numbers, numbers)


@given(
    st.lists(st.tuples(counts, counts), max_size=6),
    st.floats(1e-9, 0.5),
    st.floats(0.1, 10),
    st.floats(0.001, 1),
)
def test_any_counts_come_to_a_finding(
    looks: list[tuple[Counts, Counts]], alpha: float, tolerance: float, detect: float
) -> None:
    history = after(*(span(*look) for look in looks), alpha=alpha, tolerance=tolerance)
    found = compare_errors(history, alpha, tolerance, detect)
    assert found.e_value is None or math.isfinite(found.e_value)
    assert json.dumps(found.__dict__, allow_nan=False)
    assert not found.worse or history.new.errors > 0


# Single instances
# --------------------------------------------------------------------------------------------------


def judged(*looks: Span, alpha: float = ALPHA) -> Outliers:
    """The instances that are named after these looks; each time as the journal has it."""
    history, instances = ErrorHistory(), Instances()
    for look in looks:
        history = history.after([look], alpha, 1.0)
        instances = instances.after([look], history.dispersion, alpha, 1.0)
        instances = Instances.load(json.loads(json.dumps(instances.dump(), allow_nan=False)))
    return instances.outliers(history.dispersion, alpha)


STABLE = {f"s{number}": Counts(100) for number in range(4)}


def test_the_bad_one_is_named() -> None:
    new = {"web1": Counts(100, 0), "web2": Counts(100, 3), "web3": Counts(100, 0)}
    found = judged(*[span(new, STABLE)] * 6)
    assert found.names == ("web2",)
    assert found.sentence.startswith(
        "web2: errors 18 of 600 (3 %) against 0 of 3,600 on all others; e-value "
    )
    assert found.sentence.endswith(" >= 200: less than 1 in 1,000,000 by chance")


def failed(new: dict[str, Counts]) -> str:
    """What is said once the new side fails."""
    compared = Comparison()
    for _look in range(30):
        compared = compared.after([span(new, STABLE)], ALPHA, 1.0)
        verdict, _remark = compared.verdict(ALPHA, 1.0, 0.05)
        if verdict.worse:
            return verdict.sentence
    raise AssertionError("it did not fail")


def test_the_bad_one_is_named_where_it_makes_both_sides_differ() -> None:
    """Both sides may differ sooner than a verdict on a single instance has waited."""
    one = failed({"web1": Counts(100, 0), "web2": Counts(100, 4)})
    assert one.startswith("errors ") and one.count(" on all others") == 1
    assert "; web2: errors " in one
    assert " on all others" not in failed({name: Counts(100, 4) for name in ("web1", "web2")})


def test_none_is_named_where_all_are_alike() -> None:
    alike = {name: Counts(100, 2) for name in STABLE}
    new = {f"web{number}": Counts(100, 2) for number in range(5)}
    assert judged(*[span(new, alike)] * 20).names == ()
    assert judged().names == ()
    # a single one is the whole new side
    assert judged(*[span({"web1": Counts(100, 50)}, STABLE)] * 6).names == ()


def test_three_errors_of_one_client_name_nobody() -> None:
    """A fleet of a hundred, half of it new: one client tries twice again, at once."""
    quiet = {f"n{number}": Counts(20) for number in range(50)}
    stable = {f"s{number}": Counts(20) for number in range(50)}
    burst = quiet | {"n7": Counts(20, 3)}
    looks = [span(quiet, stable)] * 5 + [span(burst, stable)] + [span(quiet, stable)] * 5
    assert judged(*looks).names == () and not compare_errors(after(*looks)).worse


@pytest.mark.parametrize("arrivals", [[20], [1] * 20, [4, 1, 7], [200]])
def test_instances_share_alpha_however_they_arrive(arrivals: list[int]) -> None:
    """By the limits that each was held to, an analysis has no more than its alpha."""
    known, spent = 0, 0.0
    for more in arrivals:
        spent += more * part_of(known, more)
        known += more
    assert spent <= 1
    assert part_of(0, 20) >= 0.95 / 20  # hardly less than Bonferroni, where all are there at once


def test_an_instance_keeps_its_part_of_alpha_when_others_come() -> None:
    instances = Instances()
    for names in (("web1", "web2"), ("web1", "web2", "web3")):
        look = span(dict.fromkeys(names, Counts(100, 0)), STABLE)
        instances = instances.after([look], Dispersion(), ALPHA, 1.0)
        instances = Instances.load(json.loads(json.dumps(instances.dump())))
    parts = [one.part for one in instances.each.values()]
    assert parts == [part_of(0, 2), part_of(0, 2), part_of(2, 1)]


def test_many_instances_take_more_evidence() -> None:
    """What names one of two is not enough for one of two hundred: one of them is always the
    worst.
    """
    bad, idle = {"n0": Counts(100, 1)}, {f"idle{number}": Counts() for number in range(150)}
    few, many = ([span(bad | {"n1": Counts(100)} | some, STABLE)] * 7 for some in ({}, idle))
    assert judged(*few).names == ("n0",) and judged(*many).names == ()


def test_a_host_that_is_bad_for_old_and_new_alike_is_said_and_is_no_verdict() -> None:
    hosts = {f"{side}{number}": f"web{number}" for side in "ns" for number in range(10)}
    new = {"n7": Counts(100, 9), "n8": Counts(100, 1)}
    stable = {f"s{number}": Counts(100, 1) for number in range(10)}
    found = judged(*[span(new, stable | {"s7": Counts(100, 9)}, **hosts)] * 30)
    assert found.names == ()
    assert found.remark == (
        "host web7 fails for stable instances, too: errors 270 of 3,000 (9 %) on n7,"
        " 270 of 3,000 (9 %) on its old instances"
    )
    alone = judged(*[span(new, stable, **hosts)] * 30)
    assert alone.names == ("n7",) and not alone.remark


def test_one_that_came_when_all_began_to_fail_is_not_named() -> None:
    """The others have served in better times."""
    quiet = span({"web1": Counts(1000, 0)}, {name: Counts(1000) for name in STABLE})
    storm = span(
        {"web1": Counts(100, 20), "web2": Counts(100, 20)},
        {name: Counts(100, 20) for name in STABLE},
    )
    assert judged(*[quiet] * 10, *[storm] * 10).names == ()


# Latency
# --------------------------------------------------------------------------------------------------


def times(new: list[float], stable: list[float]) -> LatencyHistory:
    """The samples of both sides, of one look, after others that show that the new side is warm."""
    history = LatencyHistory().after(Samples.of_sides(new, stable))
    return replace(history, warming=replace(history.warming, looks=FEW))


def test_eleven_samples_are_the_fewest_that_tell_anything() -> None:
    fast = [1.0] * 11
    found = compare_quantile(times([3.0] * 11, fast))
    assert found.worse and found.data is Data.ENOUGH
    assert (
        found.sentence
        == "median 2.95 to 3.02 s (11 samples) against 0.979 to 1 s on stable (11 samples); more than"
        " 1.1 times"
    )
    found = compare_quantile(times([3.0] * 10, fast))
    assert not found.worse and (found.data, found.missing) == (Data.LACKING, 1)
    assert (
        found.sentence
        == "median unknown (10 samples) against 0.979 to 1 s on stable (11 samples); needs 1 more"
        " samples"
    )


def test_alike_is_not_slower() -> None:
    samples = [number / 100 for number in range(1, 500)]
    assert not compare_quantile(times(samples, samples), tolerance=1.0).worse


def test_tolerance_of_latency() -> None:
    slow, fast = [1.5] * 50, [1.0] * 50
    assert compare_quantile(times(slow, fast)).worse
    assert not compare_quantile(times(slow, fast), tolerance=1.6).worse
    assert not compare_quantile(times(fast, slow)).worse


def test_a_slow_tail_is_in_its_percentile_only() -> None:
    fast = [1.0] * 1900 + [2.0] * 100
    slow = [1.0] * 1700 + [20.0] * 300
    assert not compare_quantile(times(slow, fast)).worse
    found = compare_quantile(replace(times(slow, fast), warming=Warming(looks=FEW)), quantile=0.95)
    assert found.worse and found.sentence.startswith(
        "95th percentile 19.9 to 20.3 s (2,000 samples) against"
    )


def test_the_band_narrows_and_holds_the_quantile() -> None:
    width = math.inf
    for number in (20, 200, 2000, 20_000):
        low, high = NONE.add((step + 0.5) / number for step in range(number)).interval(0.5, 0.01)
        assert low <= 0.5 <= high and high - low < width
        width = high - low
    assert width < 0.06


@given(
    st.lists(st.floats(), max_size=40), st.lists(st.floats(), max_size=40), st.floats(0.001, 0.999)
)
def test_any_samples_come_to_a_finding(
    new: list[float], stable: list[float], quantile: float
) -> None:
    samples = NONE.add(new)
    assert samples.count == sum(not math.isnan(value) for value in new)
    assert Histogram.load(json.loads(json.dumps(samples.dump()))) == samples
    low, high = samples.interval(quantile, 0.01)
    assert 0 <= low <= high
    assert not compare_quantile(times(new, new), quantile, tolerance=1.0).worse
    history = times(new, stable)
    assert LatencyHistory.load(json.loads(json.dumps(history.dump()))) == history
    assert compare_quantile(history, quantile).sentence


def test_what_was_slow_at_first_is_no_verdict_once_it_is_not() -> None:
    cold, warm = Samples.of_sides([3.0] * 5, [1.0] * 5), Samples.of_sides([1.0], [1.0] * 5)
    history = LatencyHistory()
    for _look in range(5):
        history = history.after(cold)
    assert compare_quantile(history).worse
    for _look in range(AGREE):
        history = history.after(warm)
    found = compare_quantile(history)
    assert not found.worse and found.sentence.endswith("was slower, but not in the last looks")


def fleet(slow: dict[str, float], spread: float = 0.0) -> LatencyHistory:
    """Two new and ten stable instances after forty looks, on five hosts; `slow` takes so much
    longer.
    """
    names = [f"n{number}" for number in range(2)] + [f"s{number}" for number in range(10)]
    hosts = {name: f"web{int(name[1:]) % 5}" for name in names}
    seconds = {
        name: [slow.get(name, 1.0) * math.exp(spread * (int(name[1:]) % 2 or -1))] for name in names
    }
    look = Samples(
        {name: found for name, found in seconds.items() if name[0] == "n"},
        {name: found for name, found in seconds.items() if name[0] == "s"},
        hosts,
    )
    history = LatencyHistory()
    for _look in range(40):
        history = LatencyHistory.load(json.loads(json.dumps(history.after(look).dump())))
    return history


def test_where_stable_instances_differ_more_is_tolerated() -> None:
    both = {"n0": 1.5, "n1": 1.5}
    assert compare_quantile(fleet(both), tolerance=1.2).worse
    assert not compare_quantile(fleet(both, spread=0.3), tolerance=1.2).worse
    assert compare_quantile(fleet({"n0": 9.0, "n1": 9.0}, spread=0.3), tolerance=1.2).worse


def test_one_slow_instance_is_named_unless_its_host_is_slow() -> None:
    slow, remark = slow_instances(fleet({"n1": 10.0}), 0.5, ALPHA, 1.2)
    assert slow.startswith("n1: 9.93 to 10.2 s (40 samples) against at most 1 s on stable")
    assert not remark and slow_instances(fleet({}), 0.5, ALPHA, 1.2) == ("", "")
    host = {"n1": 10.0, "s1": 10.0, "s6": 10.0}
    slow, remark = slow_instances(fleet(host, spread=0.001), 0.5, ALPHA, 1.2)
    assert not slow


ALONE = [span(Counts(300, 90), Counts())] * 29  # nothing served on stable


def test_requests_while_nothing_served_on_stable_compare_nothing() -> None:
    look = span(Counts(20), Counts(50))
    verdict = compare_errors(after(*ALONE, look))
    assert not verdict.worse and verdict.data is Data.LACKING
    assert verdict.missing == compare_errors(after(look)).missing > 0


@pytest.mark.parametrize("before", [[], ALONE])
def test_the_only_look_at_both_sides_passes_nothing_that_fails_in_it(before: list[Span]) -> None:
    verdict = compare_errors(after(*before, span(Counts(300, 90), Counts(700))))
    assert not verdict.worse and verdict.data is Data.LACKING
    assert verdict.sentence.endswith("; both sides had requests in one look only")
    assert compare_errors(after(*before, span(Counts(300), Counts(700)))).data is Data.ENOUGH
