# SPDX-License-Identifier: GPL-3.0-or-later
"""The last old instances stay while the new side looks worse and that is not decided, and not for
long; what ends without a verdict says so.
"""

from __future__ import annotations

import re
import time
import typing as t
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.analysis import progress, spec
from ansible_collections.progressive.rollout.plugins.plugin_utils.config import gates
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.budget import Budget
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.evaluate import (
    Decision,
    evaluate,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.last_old import (
    ends_comparison,
    longest,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import (
    Composition,
    Instance,
    Rotation,
    State,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.progress import (
    ProgressTracker,
    Rules,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import (
    Gate,
    Plan,
    rolling,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.pages import report_model
from ansible_collections.progressive.rollout.plugins.plugin_utils.report.messages import ended
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.record import (
    Outcome,
    Rollout,
)
from ansible_collections.progressive.rollout.tests.support import short_rollouts
from ansible_collections.progressive.rollout.tests.support.seeds import examples
from hypothesis import given
from hypothesis import strategies as st

ERRORS = gates.analysis(
    {"metrics": [{"name": "errors"}]}, "analysis", "rollout_analysis", gates.Person()
)


def instance(number: int, generation: int, state: State = State.READY) -> Instance:
    return Instance(
        f"shop-{number}",
        str(generation),
        generation,
        state,
        ready_since=-99.0,
        rotation=Rotation.IN if state is State.READY else Rotation.OUT,
        lb_healthy=True,
    )


@examples(200)
@given(
    st.integers(0, 8),
    st.integers(0, 8),
    st.integers(1, 8),
    st.integers(0, 3),
    st.integers(0, 3),
)
def test_a_comparison_ends_with_the_last_old_instance_in_rotation_and_no_earlier(
    new: int, old: int, replicas: int, surge: int, unavailable: int
) -> None:
    fleet = [
        *(instance(number, 2) for number in range(new)),
        *(instance(100 + number, 1) for number in range(old)),
    ]
    waypoint, budget = rolling(2, replicas), Budget(surge or 1, unavailable)
    decision = evaluate(fleet, waypoint, budget, Rules(), ProgressTracker(0.0), 0.0)
    left = [i for i in fleet if i.generation == 1 and i.id not in decision.drain]
    assert ends_comparison(fleet, waypoint, decision) == bool(new and old and not left)


def test_what_serves_no_requests_is_not_compared() -> None:
    new, old = instance(1, 2), instance(2, 1, State.DRAINING)
    assert not ends_comparison([new, old], rolling(2, 1), Decision(retire=(old.id,)))
    assert not ends_comparison([instance(3, 1)], rolling(2, 1), Decision(drain=("shop-3",)))


def test_they_stay_for_15_seconds_or_a_tenth_of_the_rollout() -> None:
    assert [longest(seconds) for seconds in (0, 60, 150, 3600)] == [15, 15, 15, 360]


# -- what an analysis counts -----------------------------------------------------------------------


def counted(new: tuple[int, int], stable: tuple[int, int], looks: int = 4) -> t.Any:
    """A metric after looks, in each of which both sides had so many requests and errors."""
    analysis = spec.parse(ERRORS.options, "analysis", ())
    metric = progress.MetricProgress(analysis.metrics[0])
    metric.recent = []
    for look in range(looks):
        sides = {
            side: {f"{side}-{n}": {"requests": r, "errors": e, "host": ""} for n in range(2)}
            for side, (r, e) in (("new", new), ("stable", stable))
        }
        metric.judge({"spans": [sides]}, None, float(look))
    return metric, analysis


def test_only_a_new_side_that_fails_more_is_doubted() -> None:
    equal = [((60, 0), (60, 0)), ((60, 1), (60, 1)), ((60, 0), (60, 3)), ((60, 4), (60, 3))]
    for new, stable in equal:
        metric, analysis = counted(new, stable)
        assert progress.doubts([metric], analysis) == ""
        assert progress.left_open(analysis, {"errors": metric.memory}) == ""
    metric, analysis = counted((60, 1), (60, 0), looks=2)
    assert metric.phase != "Failed"
    assert progress.doubts([metric], analysis).startswith(
        "errors 4 of 240 (1.7 %) against 0 of 240"
    )
    assert (
        progress.left_open(analysis, {"errors": metric.memory})
        == "errors 4 of 240 (1.7 %) against 0 of 240"
    )


@pytest.mark.parametrize(
    ("each", "looks", "takes"),
    [(5, 4, ", about 12 s at this rate"), (5, 1, ""), (0, 4, "")],
)
def test_what_has_had_little_traffic_says_how_long_the_rest_takes(
    each: int, looks: int, takes: str
) -> None:
    """Of ten requests a second to the new side; of none, and of one look, that is not known."""
    metric, _analysis = counted((each, 0), (15, 0), looks)
    assert metric.memory["sentence"].endswith(takes or ("requests" if each else "to compare"))
    if takes:
        (more,) = re.findall(r"needs (\d+) more requests, about (\d+) s", metric.memory["sentence"])
        assert int(more[0]) == pytest.approx(10 * int(more[1]), abs=5)


def test_without_instances_to_compare_with_errors_are_still_told() -> None:
    metric, analysis = counted((60, 1), (0, 0))
    assert (
        progress.left_open(analysis, {"errors": metric.memory})
        == "errors 8 of 480 (1.7 %) against 0 of 0"
    )
    assert progress.left_open(analysis, {}) == ""
    assert progress.unmeasured(analysis, {"errors": metric.memory}) == ""
    assert progress.unmeasured(analysis, {}) == "no measurement of errors"
    assert progress.unmeasured(replace(analysis, dry_run=True), {}) == ""
    assert progress.left_open(replace(analysis, dry_run=True), {"errors": metric.memory}) == ""


def test_a_promotion_without_a_verdict_says_so_with_the_numbers_and_is_no_good_end() -> None:
    why = "without a verdict: errors 95 of 1,963 against 0 of 2,867"
    begun = time.time()
    rollout = Rollout("r1", "2", 2, 6, "rolling", Composition("1", 1, 6), begun, replaced=6)
    rollout.elapsed = 9.7
    rollout.end(Outcome.PROMOTED, why, begun + 29.5)
    took = "6 instances replaced in 29.5 s (9.7 s of work, 19.8 s waiting)"
    assert ended("shop", rollout) == f"shop 2 promoted {why}; {took}"
    report = report_model.from_timeline(
        "shop",
        {"outcome": "promoted", "reason": why, "revision": "2"},
        [{"kind": "end", "at": begun, "outcome": "promoted", "reason": why}],
    )
    assert report.tone == "warn" and report.annotations[-1].tone == "warn"
    assert (
        report_model.from_timeline("shop", {"outcome": "promoted", "reason": ""}, []).tone == "good"
    )


# -- a rolling that is over in seconds --------------------------------------------------------------


def watched(
    seed: int, rate: float, interval: float, per_second: float = 550.0
) -> short_rollouts.Watched:
    options = {**ERRORS.options, "interval": interval}
    metric = progress.MetricProgress(spec.parse(options, "analysis", ()).metrics[0])
    return short_rollouts.Watched(metric, np.random.default_rng(seed), rate, per_second)


@pytest.mark.slow
@pytest.mark.seeded
@pytest.mark.parametrize("interval", [1.0, 2.5, 5.0])
@pytest.mark.parametrize("stages", [short_rollouts.PAIRS, short_rollouts.SINGLY])
def test_a_rolling_of_six_that_fails_one_request_in_twenty_is_failed(
    stages: t.Any, interval: float, dice: Random
) -> None:
    """Whether it has had several looks, or a single one before the last old instances would go.

    One of 22 is missed: of 60, more than 13 are with a probability of less than one in a million.
    """
    seeds = [dice.getrandbits(32) for _run in range(60)]
    ends = [
        watched(seed, 0.05, interval).failed(stages, interval, min(interval, 3.5)) for seed in seeds
    ]
    assert sum(end is not None for end in ends) >= 47


@pytest.mark.slow
@pytest.mark.seeded
@pytest.mark.parametrize("interval", [1.0, 2.5])
def test_a_good_rolling_of_six_is_not_waited_for(interval: float, dice: Random) -> None:
    for _run in range(20):
        one = watched(dice.getrandbits(32), 0.0, interval)
        assert one.failed(short_rollouts.PAIRS, interval, interval) is None
        assert not one.metric.doubt


# -- how often it looks ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "interval"), [(1, 1.0), (18, 1.2), (30, 2.0), (150, 10.0), (1e6, 10.0)]
)
def test_the_default_analysis_looks_as_often_as_the_rollout_is_short(
    seconds: float, interval: float
) -> None:
    default = replace(ERRORS, by_default=True)
    assert gates.paced(default, seconds).options["interval"] == interval
    assert gates.paced(ERRORS, seconds) == ERRORS


def test_waits_of_a_plan_count_for_how_often_it_looks() -> None:
    pause = Gate("step 1 pause", "pause", {"duration": 60.0})
    person = Gate("step 2", "approval")
    assert gates.waits(Plan(post_rollout=(pause,), background=(person,))) == 60
    assert gates.waits(Plan(post_rollout=(pause, person))) == float("inf")
