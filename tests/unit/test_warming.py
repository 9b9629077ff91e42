# SPDX-License-Identifier: GPL-3.0-or-later
"""The sequential judge of times, and of errors, while the new side warms up."""

from __future__ import annotations

import json
import math
import typing as t
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.analysis import judging, spec
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.counts import (
    Counts,
    Span,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.dispersion import (
    Dispersion,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.errors import (
    total,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.fading import (
    Fading,
    WarmUpLimit,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.instances import (
    Instances,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.latency import (
    LatencyHistory,
    Samples,
    compare_quantile,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.threshold import (
    AnalysisPhase,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.warming import (
    FEW,
    Warming,
)

NOISE = (0.97, 1.03, 1.0, 0.98, 1.02)


def after(*ratios: float) -> Warming:
    """What is known after these looks; each time as the journal has it."""
    found = Warming()
    for ratio in ratios:
        found = Warming.load(json.loads(json.dumps(found.after(ratio, 1.0).dump())))
    return found


def fading(times: float, tau: float, looks: int) -> list[float]:
    """How many times as long the new side takes, from a minute after its start."""
    return [1 + (times - 1) * math.exp(-(60 + 10 * look) / tau) for look in range(looks)]


@pytest.mark.parametrize(("times", "tau"), [(4, 60), (4, 120), (2, 120)])
def test_a_side_that_gets_faster_is_waited_for(times: float, tau: float) -> None:
    found = after(*fading(times, tau, 8))
    assert found.waits(30) and found.seen
    assert "falling to" in str(found) and str(found).endswith("See warm_up")


def test_it_is_waited_for_no_longer_than_told() -> None:
    assert not after(*fading(4, 600, 12)).waits(12)


def test_one_that_stays_slow_is_not_waited_for() -> None:
    assert not after(*(1.3 * noise for noise in NOISE * 2)).falls
    assert not after(*fading(4, 30, 6), *(1.3 * noise for noise in NOISE * 2)).falls


def test_a_verdict_on_times_waits_and_says_why() -> None:
    history, said = LatencyHistory(), []
    for ratio in (*fading(4, 60, 20), *[1.5 * noise for noise in NOISE * 3]):
        stable = [0.1 * noise for noise in NOISE]
        history = history.after(Samples.of_sides([ratio * one for one in stable], stable * 4))
        said.append(compare_quantile(history))
    assert not any(verdict.worse for verdict in said[:20])
    assert "too few looks" in said[FEW - 2].sentence
    assert any("still warming up" in verdict.sentence for verdict in said[:20])
    assert said[-1].worse


def test_sides_that_have_answers_in_turns_are_compared() -> None:
    """An instance has a sample each thirty answers, which need not be in the same look."""
    history, verdicts = LatencyHistory(), []
    for look in range(60):
        slow, fast = ([0.3] * 2, []) if look % 2 else ([], [0.1] * 6)
        kept = LatencyHistory.load(json.loads(json.dumps(history.dump())))
        history = kept.after(Samples.of_sides(slow, fast))
        verdicts.append(compare_quantile(history))
    assert verdicts[-1].worse, verdicts[-1].sentence
    assert verdicts[20].worse, verdicts[20].sentence


# -- errors ----------------------------------------------------------------------------------------


def judged(
    rates: Sequence[float],
    interval: str = "10s",
    requests: int = 500,
    warm_up: str = "60s",
    ages: Sequence[float] = (0, 0),
) -> list[t.Any]:
    """What is judged of errors after each look, in which so many parts of the requests fail.

    Stable has twice as many requests and fails one in 500. The journal keeps it between looks.
    `ages`: of both new instances before the first look, in seconds.
    """
    options = spec.OPTIONS.parse({"interval": interval}, "analysis.")
    (metric,) = spec.parse(options, "analysis", [{"name": "errors", "warm_up": warm_up}]).metrics
    state: judging.State = {}
    found = []
    for look, rate in enumerate(rates, 1):
        sides = {
            "new": {
                f"shop-{n}": {
                    "requests": requests,
                    "errors": round(rate * requests),
                    "age": age + float(interval.rstrip("s")) * look,
                }
                for n, age in enumerate(ages, 6)
            },
            "stable": {f"shop-{n}": {"requests": requests, "errors": 1} for n in range(4)},
        }
        found.append(judging.judge_result(metric, state, {"spans": [sides]}))
        state = json.loads(json.dumps(state))
    return found


def cold(more: float, tau: float, looks: int, stays: float = 0.002) -> list[float]:
    """Rates of errors that fade."""
    return [stays + more * math.exp(-(5 + 10 * look) / tau) for look in range(looks)]


def failed(found: Sequence[judging.Measurement]) -> int | None:
    """The first look that fails the revision."""
    ends = (n for n, one in enumerate(found, 1) if one.phase is AnalysisPhase.FAILED)
    return next(ends, None)


@pytest.mark.parametrize(("more", "tau"), [(0.05, 15), (0.05, 30), (0.1, 30), (0.05, 60)])
def test_errors_that_fade_after_the_start_are_waited_for(more: float, tau: float) -> None:
    found = judged(cold(more, tau, 32))
    assert failed(found) is None
    said = [one.sentence for one in found]
    assert any("falling to" in text and "still warming up?" in text for text in said)
    assert all(one.lacking for one in found if "warming up" in one.sentence)
    assert any("since the errors at the start faded" in text for text in said)
    assert not found[-1].lacking


def test_errors_that_stay_after_such_a_start_fail_it() -> None:
    end = failed(judged(cold(0.05, 30, 32, stays=0.02)))
    assert end is not None and 10 < end < 30


def test_errors_that_do_not_fade_are_waited_for_until_that_is_known() -> None:
    """That is at the third look where they are many."""
    few, many = judged([0.05] * 12, requests=100), judged([0.05] * 12)
    assert "too few errors to see whether it is warming up" in few[4].sentence
    assert failed(many) == 3 and failed(few) == 6


def test_where_instances_are_ready_a_verdict_does_not_wait_until_that_is_known() -> None:
    steady = [0.05] * 12
    waited, ready = (failed(judged(steady, requests=100, warm_up=w)) for w in ("60s", "0s"))
    assert ready is not None and waited is not None and ready <= waited - 2
    slow = cold(0.05, 100, 32)
    assert failed(judged(slow, warm_up="2m")) is None is not failed(judged(slow, warm_up="10s"))


def test_instances_that_began_long_before_have_no_warm_up() -> None:
    """As those of the steps before, of a canary."""
    steady = [0.05] * 12
    young, old, mixed = (
        failed(judged(steady, requests=100, ages=ages)) for ages in ((0, 0), (300, 300), (300, 0))
    )
    assert old == 3 and young is not None and young >= 6
    assert mixed is not None and old <= mixed <= young


def test_instances_age_while_their_analysis_is_held() -> None:
    """As of a rollout that is resumed after an hour: what fails then is not cold."""
    known = Fading()
    for age, errors in ((0, 60), (1, 50), (360, 35), (361, 30), (362, 25)):
        known = known.after({"a": Counts(1000, errors)}, STABLE, 1.0, SLOW, known={"a": age})
    assert not known.waits(SLOW) and known.limited(100.0) > 10


def test_errors_that_fade_for_ever_are_not_waited_for() -> None:
    end = failed(judged(cold(0.4, 300, 60)))
    assert end is not None and end <= 34


def test_who_loses_most_requests_is_not_waited_for() -> None:
    assert failed(judged([0.9, 0.85, 0.8])) == 2


@pytest.mark.parametrize("rates", [[0.03, 0.028, 0.03], [0.1, 0.1, 0.1]])
def test_errors_at_a_steady_rate_fail_soon_where_looks_follow_within_seconds(
    rates: list[float],
) -> None:
    assert failed(judged(rates, "1s")) == 3


@pytest.mark.parametrize(
    "rates", [[0.2, 0.05, 0.01, *[0.002] * 8], [0.3, 0.2, 0.1, 0.05, 0.03, 0.01, *[0.002] * 8]]
)
def test_errors_that_fall_within_seconds_are_waited_for(rates: list[float]) -> None:
    found = judged(rates, "1s")
    assert failed(found) is None
    assert "still warming up?" in found[3].sentence


def test_errors_that_were_over_for_long_when_they_return_have_no_warm_up() -> None:
    calm = [0.002] * 12
    assert failed(judged([*calm, *[0.05] * 6])) == 15


def after_looks(looks: Sequence[tuple[Mapping[str, Counts], Counts]]) -> Fading:
    """What is known after looks at new instances and stable; each time as the journal has it."""
    known = Fading()
    for new, stable in looks:
        known = Fading.load(json.loads(json.dumps(known.after(new, stable, 1.0, SLOW).dump())))
    return known


SLOW = WarmUpLimit(6.0)


def test_errors_of_instances_that_begin_one_after_another_are_told_by_their_age() -> None:
    """Of all together they stay as many from look to look."""
    fading = [round(50 * math.exp(-look / 4)) for look in range(18)]
    looks = [
        ({f"shop-{n}": Counts(1000, fading[at - 3 * n]) for n in range(6) if at >= 3 * n}, STABLE)
        for at in range(18)
    ]
    known = after_looks(looks)
    assert known.fades and known.waits(SLOW) and known.limited(100.0) < 1
    steady = after_looks([({"shop": total(new)}, stable) for new, stable in looks])
    assert steady.stays > known.stays + 10


STABLE = Counts(10000, 20)


def test_on_average_bets_that_errors_stay_win_nothing_where_all_fade() -> None:
    """The part that fits best wins on average, since it is chosen afterwards."""
    random, won = np.random.default_rng(0), []
    for _analysis in range(150):
        known = Fading()
        for look in range(8):
            errors = int(random.poisson(8 * math.exp(-look / SLOW.tau)))
            known = known.after({"a": Counts(1000, errors)}, Counts(10000), 1.0, SLOW)
        won.append(math.exp(known.stays))
    assert sum(won) / len(won) < 1.2


def test_an_instance_that_is_cold_beside_a_warm_one_is_waited_for() -> None:
    known = Fading()
    for look in range(12):
        new = {"old": Counts(1000, 2), "new": Counts(1000, 2 + round(60 * math.exp(-look / 4)))}
        known = known.after(new, STABLE, 1.0, SLOW, known={"old": 30})
        known = Fading.load(json.loads(json.dumps(known.dump())))
        assert known.waits(SLOW)
    assert known.fades


def test_errors_that_stay_after_some_that_faded_are_evidence() -> None:
    rates = [20 + 50 * math.exp(-look / 3) for look in range(16)]
    known = after_looks([({"a": Counts(1000, round(rate))}, STABLE) for rate in rates])
    assert known.fades and not known.waits(SLOW) and known.limited(100.0) > 4.7
    assert 9000 < known.warm < 11000  # of 16,000 requests


def test_an_instance_that_was_cold_is_not_failed() -> None:
    """The others have been warm for long."""
    known = Instances()
    for look in range(20):
        new = {name: Counts(1000, 2) for name in "ab"}
        if look >= 8:
            new["c"] = Counts(1000, 2 + round(60 * math.exp((8 - look) / 4)))
        known = known.after([Span(new, {"x": STABLE})], Dispersion(), 0.002, 1.2, patience=SLOW)
        assert not known.outliers(Dispersion(), 0.002).names
        assert Instances.load(json.loads(json.dumps(known.dump()))).dump() == known.dump()
    assert known.each["c"].log_e(Dispersion()) < 1


def test_a_storm_of_stable_is_no_fade() -> None:
    known = after_looks(
        [({"a": Counts(1000, 2)}, Counts(1000, bad)) for bad in (*[2] * 5, *[400] * 5)]
    )
    assert not known.fades and known.limited(3.0) == 3.0
