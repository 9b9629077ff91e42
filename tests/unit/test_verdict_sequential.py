# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sequential judge: published values, what it says of counts and samples, and that odd
numbers have an end.
"""

from __future__ import annotations

import itertools
import json
import math

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges import (
    errors as error_test,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.errors import (
    STRATA,
    CountHistory,
    Counts,
    Stratum,
    compare_errors,
    tolerated,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.evalue import (
    least_evidence,
    log_e,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.instances import (
    Period,
    find_outliers,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.latency import (
    Histogram,
    compare_quantile,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.verdict import (
    Data,
    Verdict,
)
from hypothesis import given
from hypothesis import strategies as st

NONE = Histogram({})


def ledger(new: Counts, stable: Counts) -> CountHistory:
    return CountHistory().add("step 1", new, stable)


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


def test_tolerance_is_the_share_of_errors_to_expect() -> None:
    assert tolerated(0.25, 1.0) == 0.25
    assert tolerated(0.5, 1.5) == pytest.approx(0.6)  # 3 to 2
    assert tolerated(0.0, 1.5) == 0.0


# Errors
# --------------------------------------------------------------------------------------------------


def test_a_revision_that_fails_more_often_is_worse() -> None:
    found = compare_errors(ledger(Counts(900, 12), Counts(2700, 3)))
    assert found.worse
    assert found.sentence == "errors 12 of 900 against 3 of 2,700 on stable; e-value 5,462 >= 50"
    assert (found.threshold, found.data, found.missing) == (50.0, Data.ENOUGH, 0)
    assert found.e_value == pytest.approx(5462.67)


def test_a_revision_that_fails_as_often_is_not() -> None:
    found = compare_errors(ledger(Counts(90_000, 90), Counts(270_000, 270)))
    assert not found.worse
    assert (
        found.sentence == "errors 90 of 90,000 against 270 of 270,000 on stable; e-value 0.057 < 50"
    )


def test_one_that_fails_less_often_is_not_although_that_is_as_unlikely() -> None:
    found = compare_errors(ledger(Counts(900, 0), Counts(2700, 60)))
    assert not found.worse and found.e_value is not None and found.e_value < 1


def test_tolerance_allows_for_more() -> None:
    counted = ledger(Counts(1000, 60), Counts(1000, 25))
    assert compare_errors(counted).worse
    assert not compare_errors(counted, tolerance=2.0).worse


def test_low_traffic_says_how_many_requests_it_takes() -> None:
    found = compare_errors(ledger(Counts(10), Counts(90)))
    assert not found.worse and (found.data, found.missing) == (Data.LACKING, 90)
    assert found.sentence.endswith("e-value 1 < 50; needs 90 more requests")
    assert compare_errors(ledger(Counts(100), Counts(900))).data is Data.ENOUGH


@pytest.mark.parametrize(("requests", "of_stable"), [(100, 0), (900, 9), (4000, 80)])
def test_after_so_many_requests_it_would_have_been_seen(requests: int, of_stable: int) -> None:
    stable = Counts(9 * requests, of_stable)
    missing = compare_errors(ledger(Counts(1, 0), stable)).missing
    assert missing
    # What the stable ones had by then, and 5 % of the new ones' requests failed.
    new = 1 + missing
    then = ledger(
        Counts(new, math.ceil(new * 0.05)), Counts(9 * new, 9 * new * of_stable / stable.requests)
    )
    assert compare_errors(then).worse


def test_a_failure_rate_that_is_that_of_stable_cannot_be_seen() -> None:
    found = compare_errors(ledger(Counts(1000, 50), Counts(9000, 500)))
    assert found.data is Data.HOPELESS
    assert found.sentence.endswith("stable's error rate is too high to detect 0.05")


@pytest.mark.parametrize(
    ("new", "stable", "missing"),
    [
        (Counts(), Counts(100, 1), "the new revision"),
        (Counts(100, 50), Counts(), "stable"),
        (Counts(), Counts(), "the new revision"),
    ],
)
def test_one_side_without_requests(new: Counts, stable: Counts, missing: str) -> None:
    found = compare_errors(ledger(new, stable))
    assert not found.worse and found.data is Data.HOPELESS
    assert found.sentence.endswith(f"no requests to {missing}, nothing to compare")


def test_an_e_value_just_below_the_threshold_is_not_rounded_up_to_it() -> None:
    found = compare_errors(ledger(Counts(500, 9), Counts(500, 0)), alpha=1 / 51.5)
    assert not found.worse and "e-value 51 < 51.5" in found.sentence


# Strata
# --------------------------------------------------------------------------------------------------


def test_a_share_that_changes_between_calm_and_trouble_is_no_evidence() -> None:
    """All of the trouble falls into the time when most requests go to the new side: alike in
    each, and not in the sum.
    """
    calm, trouble = (Counts(100, 0), Counts(9900, 0)), (Counts(5000, 250), Counts(5000, 250))
    both = (calm[0] + trouble[0], calm[1] + trouble[1])
    assert compare_errors(ledger(*both)).worse
    assert not compare_errors(CountHistory().add("5 %", *calm).add("50 %", *both)).worse


def test_evidence_adds_up_over_strata() -> None:
    first = CountHistory().add("25 %", Counts(100, 3), Counts(300, 0))
    assert not compare_errors(first).worse
    alone = ledger(Counts(100, 5), Counts(100, 0))
    assert not compare_errors(alone).worse
    assert compare_errors(first.add("50 %", Counts(200, 8), Counts(400, 0))).worse


def test_being_better_in_one_stratum_is_no_evidence_in_another() -> None:
    better = CountHistory().add("5 %", Counts(5000, 0), Counts(5000, 400))
    assert not compare_errors(better.add("50 %", Counts(6000, 4), Counts(6000, 402))).worse


def test_counts_of_a_stratum_are_what_came_since_the_last() -> None:
    counted = ledger(Counts(10, 1), Counts(90, 2)).add("step 1", Counts(20, 1), Counts(180, 2))
    counted = counted.add("step 2", Counts(50, 4), Counts(210, 3))
    assert [(stratum.name, stratum.new, stratum.stable) for stratum in counted.strata] == [
        ("step 1", Counts(20, 1), Counts(180, 2)),
        ("step 2", Counts(30, 3), Counts(30, 1)),
    ]
    assert counted.total.new == Counts(50, 4)
    assert CountHistory.load(json.loads(json.dumps(counted.dump()))) == counted


def test_a_counter_that_falls_is_not_believed() -> None:
    counted = ledger(Counts(1000, 10), Counts(9000, 3))
    assert counted.add("step 1", Counts(4, 0), Counts(30, 0)) == counted
    assert counted.add("step 2", Counts(4, 0), Counts(30, 0)).total == counted.total


def test_the_ledger_is_bounded() -> None:
    counted = CountHistory()
    for number in range(1, 2 * STRATA):
        counted = counted.add(f"step {number}", Counts(number, 0), Counts(number, 0))
    assert len(counted.strata) == STRATA
    assert counted.total.new.requests == 2 * STRATA - 1


@pytest.mark.parametrize("worse", [1.0, 2.0, 5.0])
def test_what_a_bounded_ledger_comes_to_is_the_same(
    monkeypatch: pytest.MonkeyPatch, worse: float
) -> None:
    """In a hundred steps from one instance to all of them. At the end everybody fails more
    often: that is nobody's fault.
    """

    def judged(most: int) -> Verdict:
        monkeypatch.setattr(error_test, "STRATA", most)
        counted, new, stable = CountHistory(), Counts(), Counts()
        for step in range(1, 100):
            rate = 0.1 if step > 85 else 0.005
            new += Counts(10 * step, 10 * step * rate * worse)
            stable += Counts(1000 - 10 * step, (1000 - 10 * step) * rate)
            counted = CountHistory.load(
                json.loads(json.dumps(counted.add(f"{step} %", new, stable, 1.2).dump()))
            )
        return compare_errors(counted, tolerance=1.2)

    bounded, unbounded = judged(STRATA), judged(1000)
    assert bounded.worse is unbounded.worse is (worse > 1)
    assert bounded.e_value and unbounded.e_value
    assert 0.9 * unbounded.e_value < bounded.e_value <= unbounded.e_value * (1 + 1e-9)


def test_where_both_are_alike_strata_are_no_evidence_on_average() -> None:
    """The mean of the e-value over all that may happen in two strata, and in one that stands for
    two.
    """
    sizes = ((6, 0.3), (4, 0.5), (5, 0.6))
    mean = folded = 0.0
    for counted in itertools.product(*(range(n + 1) for n, _share in sizes)):
        chance = math.prod(
            math.comb(n, k) * share**k * (1 - share) ** (n - k)
            for k, (n, share) in zip(counted, sizes, strict=True)
        )
        first, *rest = (
            Stratum("", Counts(100 * share, k), Counts(100 - 100 * share, n - k))
            for k, (n, share) in zip(counted, sizes, strict=True)
        )
        mean += chance * (compare_errors(CountHistory((first, *rest))).e_value or 0.0)
        folded += chance * (
            compare_errors(CountHistory((first, rest[0].merged(rest[1], 1.0)))).e_value or 0.0
        )
    assert 0 < folded <= mean <= 1


@given(
    st.lists(
        st.tuples(st.floats(1, 1e6), st.floats(1, 1e6), st.floats(0, 1), st.floats(0, 1)),
        min_size=1,
        max_size=8,
    )
)
def test_one_that_is_better_in_each_stratum_is_never_worse(
    strata: list[tuple[float, float, float, float]],
) -> None:
    made = tuple(
        Stratum("", Counts(new, new * rate * part), Counts(stable, stable * rate))
        for new, stable, rate, part in strata
    )
    assert not compare_errors(CountHistory(made)).worse


def test_one_that_was_better_and_gets_worse_is_found() -> None:
    """Stable had an outage: that the new side had none is no credit for what comes."""
    counted = CountHistory().add("10 %", Counts(1000, 0), Counts(9000, 400))
    assert compare_errors(counted.add("50 %", Counts(3000, 40), Counts(11000, 404))).worse


def test_evidence_does_not_fade_with_the_number_of_strata() -> None:
    """Three errors to two in each of forty: none of them tells anything alone."""
    strata = (Stratum("", Counts(100, 6), Counts(100, 4)),) * 40
    assert not any(compare_errors(CountHistory((one,))).worse for one in strata)
    assert compare_errors(CountHistory(strata)).worse


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
    ],
)
def test_counts_that_cannot_be(given: tuple[float, float], believed: Counts) -> None:
    assert Counts.of(*given) == believed


numbers = st.floats() | st.integers(-5, 10**12)
counts = st.builds(Counts.of, numbers, numbers)


@given(
    st.lists(st.tuples(st.sampled_from("abc"), counts, counts), max_size=6),
    st.floats(1e-9, 0.5),
    st.floats(0.1, 10),
    st.floats(0.001, 1),
)
def test_any_counts_come_to_a_finding(
    looks: list[tuple[str, Counts, Counts]], alpha: float, tolerance: float, detect: float
) -> None:
    counted = CountHistory()
    for look in looks:
        counted = counted.add(*look)
    found = compare_errors(counted, alpha, tolerance, detect)
    assert found.e_value is None or math.isfinite(found.e_value)
    assert json.dumps(found.__dict__, allow_nan=False)
    assert not found.worse or counted.total.new.errors > 0


# Single instances
# --------------------------------------------------------------------------------------------------


def test_the_bad_one_is_named() -> None:
    found = find_outliers(
        {"web1": Counts(100, 0), "web2": Counts(100, 9), "web3": Counts(100, 1)}, Counts(700, 1)
    )
    assert found.names == ("web2",)
    assert (
        found.sentence
        == "web2: errors 9 of 100 against 2 of 900 on all others; e-value 1.9e+06 >= 150"
    )


def test_none_is_named_where_all_are_alike() -> None:
    found = find_outliers({f"web{number}": Counts(100, 2) for number in range(5)}, Counts(700, 14))
    assert found.names == () and found.sentence == "no instance is worse than the others"
    assert find_outliers({}, Counts(700, 14)).names == ()
    assert find_outliers({"web1": Counts(100, 50)}, Counts()).names == ()


def test_many_instances_take_more_evidence() -> None:
    """What names one of two is not enough for one of two hundred: one of them is always the
    worst.
    """
    one = {"web0": Counts(100, 9)}
    stable = Counts(300, 3)
    assert find_outliers(one, stable).names == ("web0",)
    silent = {f"idle{number}": Counts() for number in range(200)}
    assert find_outliers(one | silent, stable).names == ()


def periods(*looks: tuple[str, dict[str, Counts], Counts]) -> tuple[Period, tuple[str, ...]]:
    """The period after these looks, each with counts from the beginning; and who is named by
    then.
    """
    name, new, stable = looks[0]
    period = Period(name, dict.fromkeys(new, Counts()), Counts(), {})
    for name, new, stable in looks:
        period = period.after(name, new, stable, 1.0)
        period = Period.load(json.loads(json.dumps(period.dump())))
    return (
        period,
        find_outliers(
            period.counts(new), stable.since(period.stable, Counts()), before=period.evidence
        ).names,
    )


def test_one_that_came_when_all_began_to_fail_is_not_named() -> None:
    """The others have served in better times."""
    quiet = ("10 %", {"web1": Counts(1000, 0)}, Counts(9000, 0))
    came = ("20 %", {"web1": Counts(1010, 0), "web2": Counts(10, 0)}, Counts(9080, 0))
    storm = ("20 %", {"web1": Counts(1110, 20), "web2": Counts(110, 20)}, Counts(9880, 160))
    assert find_outliers(storm[1], storm[2]).names == ("web2",)  # as if all had served all the time
    assert periods(quiet, came, storm)[1] == ()


def test_evidence_lasts_when_the_share_changes_or_another_one_comes() -> None:
    both = {"web1": Counts(100, 0), "web2": Counts(100, 2)}
    more = {"web1": Counts(200, 0), "web2": Counts(200, 4)}
    first, second = ("10 %", both, Counts(800, 0)), (more, Counts(1600, 0))
    period, names = periods(first)
    assert (names, period.evidence) == ((), {})
    assert periods(first, ("10 %", *second))[1] == ("web2",)
    assert periods(first, ("20 %", both, Counts(800, 0)))[1] == ()
    period, names = periods(first, ("20 %", both, Counts(800, 0)), ("20 %", *second))
    assert names == ("web2",) and period.counts(more) == {
        "web1": Counts(100, 0),
        "web2": Counts(100, 2),
    }
    third = {"web3": Counts(50, 2)}
    period, names = periods(
        first, ("10 %", both | third, Counts(800, 0)), ("10 %", more | third, Counts(1600, 0))
    )
    # what it was sent before it was first seen is left out
    assert names == ("web2",) and period.evidence["web3"] == 0.0


# Latency
# --------------------------------------------------------------------------------------------------


def test_eleven_samples_are_the_fewest_that_tell_anything() -> None:
    fast = NONE.add([1.0] * 11)
    found = compare_quantile(NONE.add([3.0] * 11), fast)
    assert found.worse and found.data is Data.ENOUGH
    assert (
        found.sentence
        == "median 2.95 to 3.02 (11 samples) against 0.979 to 1 on stable (11 samples); more than"
        " 1.1 times"
    )
    found = compare_quantile(NONE.add([3.0] * 10), fast)
    assert not found.worse and (found.data, found.missing) == (Data.LACKING, 1)
    assert (
        found.sentence
        == "median unknown (10 samples) against 0.979 to 1 on stable (11 samples); needs 1 more"
        " samples"
    )


def test_alike_is_not_slower() -> None:
    samples = NONE.add(number / 100 for number in range(1, 500))
    assert not compare_quantile(samples, samples, tolerance=1.0).worse


def test_tolerance_of_latency() -> None:
    slow, fast = NONE.add([1.5] * 50), NONE.add([1.0] * 50)
    assert (
        compare_quantile(slow, fast).worse and not compare_quantile(slow, fast, tolerance=1.6).worse
    )
    assert not compare_quantile(fast, slow).worse


def test_a_slow_tail_is_in_its_percentile_only() -> None:
    fast = NONE.add([1.0] * 1900 + [2.0] * 100)
    slow = NONE.add([1.0] * 1700 + [20.0] * 300)
    assert not compare_quantile(slow, fast).worse
    found = compare_quantile(slow, fast, quantile=0.95)
    assert found.worse and found.sentence.startswith(
        "95th percentile 19.9 to 20.3 (2,000 samples) against"
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
    assert not compare_quantile(samples, samples, quantile, tolerance=1.0).worse
    assert compare_quantile(samples, NONE.add(stable), quantile).sentence
