# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sequential judge of times, and of errors, while the new side warms up."""

from __future__ import annotations

import json
import math
import typing as t
from collections.abc import Sequence

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.analysis import judging, spec
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.counts import (
    Counts,
    Span,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.dispersion import (
    Dispersion,
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


def judged(rates: Sequence[float], interval: str = "10s", requests: int = 500) -> list[t.Any]:
    """What is judged of errors after each look, in which so many parts of the requests fail.

    Stable has twice as many requests and fails one in 500. The journal keeps it between looks.
    """
    options = spec.OPTIONS.parse({"interval": interval}, "analysis.")
    (metric,) = spec.parse(options, "analysis", [{"name": "errors"}]).metrics
    state: judging.State = {}
    found = []
    for rate in rates:
        sides = {
            "new": {
                f"shop-{n}": {"requests": requests, "errors": round(rate * requests)}
                for n in range(6, 8)
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


def test_once_errors_faded_as_many_requests_are_needed_as_at_the_start() -> None:
    found = judged(cold(0.3, 20, 20), requests=100)
    missing = [one.missing for one in found]
    at = next(n for n, one in enumerate(found) if "since the errors" in one.sentence)
    assert missing[at] > 100 and "needs" in found[at].sentence
    assert missing[at + 2] < missing[at] and missing[-1] == 0


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
    assert failed(judged([*calm, *[0.05] * 6])) == 16


def test_an_instance_has_no_more_evidence_against_it_where_errors_fade() -> None:
    """What others failed while it did not is not forgotten."""
    others, calm, bad = Counts(1000, 50), Counts(1000, 2), Counts(1000, 40)
    faded = plain = Instances()
    for number, (own, stable) in enumerate([*[(calm, others)] * 5, *[(bad, calm)] * 3]):
        look = [Span({"a": own, "b": calm}, {"x": stable, "y": stable})]
        plain = plain.after(look, Dispersion(), 0.02, 1.2)
        faded = faded.after(look, Dispersion(), 0.02, 1.2, fades=number == 4)
        assert Instances.load(json.loads(json.dumps(faded.dump()))).dump() == faded.dump()
    before, after = (one.each["a"].log_e(Dispersion()) for one in (plain, faded))
    assert after <= before


def test_a_storm_of_stable_is_no_fade() -> None:
    found, patience = Fading(), WarmUpLimit(30, 8)
    for stable in (*[Counts(1000, 2)] * 5, *[Counts(1000, 400)] * 5):
        found = found.after(Counts(1000, 2), stable, 1.0, patience)
        assert not found.falls(patience) and not found.seen
