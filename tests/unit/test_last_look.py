# SPDX-License-Identifier: GPL-3.0-or-later
"""An analysis does not end while the new side has a burst of errors, or a verdict waits, and no rate
of errors that it promises to detect passes without a verdict.
"""

from __future__ import annotations

import json
import typing as t
from collections.abc import Sequence

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.analysis import spec
from ansible_collections.progressive.rollout.plugins.plugin_utils.analysis.progress import (
    MORE,
    MetricProgress,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.threshold import (
    AnalysisPhase,
)

COUNT = 30
CALM = [1] * COUNT


def ended(errors: Sequence[int], **options: t.Any) -> tuple[AnalysisPhase, int]:
    """How an analysis ends, and after which look."""
    progress, look = judged(errors, **options)
    return progress.phase, look


def judged(
    errors: Sequence[int],
    *,
    stable: int = 1,
    of_new: int = 2,
    killed: bool = False,
    stable_looks: int = 1000,
    at_least: float = 0,
    **options: t.Any,
) -> tuple[MetricProgress, int]:
    """An analysis at its end, and its last look. So many of 200 requests to each new instance
    fail in each look, and of 200 to each of eight stable ones, which get some in `stable_looks`.
    """
    given = spec.OPTIONS.parse({"count": COUNT, **options}, "analysis.")
    metrics = [{"name": "errors", "at_least": at_least}]
    (metric,) = spec.parse(given, "analysis", metrics).metrics
    progress = MetricProgress(metric)
    for look, failed in enumerate(errors, 1):
        sides = {
            side: {
                f"{side}-{n}": {"requests": 200, "errors": bad, "age": 600 + 10 * look}
                for n in range(number)
                if side == "new" or look <= stable_looks
            }
            for side, number, bad in (("new", of_new, failed), ("stable", 8, stable))
        }
        progress.judge({"spans": [sides]}, None, 10.0 * look)
        if killed:
            memory = json.loads(json.dumps(progress.memory))
            progress = MetricProgress(metric)
            progress.restore(memory)
        if progress.phase.over:
            break
    return progress, look


def test_one_that_ends_calmly_ends_with_its_last_look() -> None:
    assert ended(CALM) == (AnalysisPhase.SUCCESSFUL, COUNT)
    assert ended([*CALM[2:], 20, 1], of_new=1) == (AnalysisPhase.SUCCESSFUL, COUNT)


@pytest.mark.parametrize("burst", [10, 40, 200])
def test_a_burst_in_the_last_look_passes_nothing_until_it_is_over(burst: int) -> None:
    looks = [*CALM[1:], burst]
    assert ended(looks, of_new=1) == (AnalysisPhase.RUNNING, COUNT)
    assert ended([*looks, 1], of_new=1) == (AnalysisPhase.SUCCESSFUL, COUNT + 1)


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("burst", [40, 100, 200])
def test_a_revision_that_turns_bad_in_the_last_look_fails(burst: int, killed: bool) -> None:
    phase, look = ended([*CALM[1:], *[burst] * 8], killed=killed)
    assert phase is AnalysisPhase.FAILED and look <= COUNT + MORE


def test_what_cannot_be_told_in_time_is_left_to_an_operator() -> None:
    """Bursts, of which each is an event of its own."""
    end = ended([*CALM[1:], *range(10, 30, 2)], of_new=1)
    assert end == (AnalysisPhase.INCONCLUSIVE, COUNT + MORE)


def test_a_rate_that_both_sides_have_is_no_burst() -> None:
    assert ended([10] * 3, stable=10, count=3)[1] == 3


def test_a_short_analysis_goes_on_for_as_many_looks_at_most() -> None:
    assert ended([1, 20, 20, 20, 20, 20], count=2, interval="10s")[1] <= 4


@pytest.mark.parametrize("killed", [False, True])
def test_what_watches_in_the_background_doubts_a_burst(killed: bool) -> None:
    """So that the last old instances stay for a moment."""
    calm, burst, over = (
        judged(looks, of_new=1, killed=killed, count=0)[0].doubt
        for looks in (CALM, [*CALM, 100], [*CALM, 100, 1])
    )
    assert burst.endswith("far more errors in the last look than before") and not calm + over


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize(
    ("beside", "after"), [([7, 3], 60), ([10, 5], 100), ([20, 20], 150), ([5, 5, 5], 60)]
)
def test_errors_beside_which_stable_has_no_requests_are_left_to_an_operator(
    beside: Sequence[int], after: int, killed: bool
) -> None:
    """The stable instances die after two or three measurements, and nothing more is compared."""
    looks = [*beside, *[after] * (COUNT + MORE)]
    progress, look = judged(looks, stable=0, of_new=1, stable_looks=len(beside), killed=killed)
    assert (progress.phase, look) == (AnalysisPhase.INCONCLUSIVE, COUNT + MORE)


def test_errors_that_begin_when_stable_has_no_requests_are_left_to_an_operator() -> None:
    looks = [*[0] * 10, *[60] * COUNT]
    progress, _look = judged(looks, stable=0, of_new=1, stable_looks=10)
    assert progress.phase is AnalysisPhase.INCONCLUSIVE


def test_a_new_side_without_errors_passes_where_stable_dies() -> None:
    assert ended(CALM, stable_looks=10)[0] is AnalysisPhase.SUCCESSFUL


def test_as_many_errors_as_stable_had_pass_where_stable_dies() -> None:
    assert ended([20] * COUNT, stable=20, stable_looks=10)[0] is AnalysisPhase.SUCCESSFUL


def test_errors_below_at_least_pass_where_stable_dies() -> None:
    looks = [20] * COUNT
    end = ended(looks, stable=0, of_new=1, stable_looks=2, at_least=0.2)
    assert end == (AnalysisPhase.SUCCESSFUL, COUNT)
