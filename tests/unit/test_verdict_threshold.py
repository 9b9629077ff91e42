# SPDX-License-Identifier: GPL-3.0-or-later
"""The threshold judge: every row of Argo's table, every limit and their order, and where ours
differs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.threshold import (
    RETRY,
    AnalysisPhase,
    Limits,
    MeasurementCounts,
    assess,
    due,
    phase_of,
    worst,
)
from hypothesis import given
from hypothesis import strategies as st

S, F, I, E = (  # noqa: E741
    AnalysisPhase.SUCCESSFUL,
    AnalysisPhase.FAILED,
    AnalysisPhase.INCONCLUSIVE,
    AnalysisPhase.ERROR,
)
TERMINATED = AnalysisPhase.TERMINATED
RUNNING = AnalysisPhase.RUNNING
PENDING = AnalysisPhase.PENDING
ENDLESS = Limits(interval=1.0)


def after(taken: Iterable[AnalysisPhase]) -> MeasurementCounts:
    tally = MeasurementCounts()
    for phase in taken:
        tally = tally.add(phase)
    return tally


def phase(limits: Limits, *taken: AnalysisPhase, terminating: bool = False) -> AnalysisPhase:
    return assess(limits, after(taken), terminating)[0]


# One measurement
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("success", "failure", "expected"),
    [
        (None, None, I),  # Argo's documentation says so; its code says successful
        (True, None, S),
        (False, None, F),
        (None, True, F),
        (None, False, S),
        (True, True, F),
        (False, True, F),
        (True, False, S),
        (False, False, I),
    ],
)
def test_conditions(success: bool | None, failure: bool | None, expected: AnalysisPhase) -> None:
    assert phase_of(success, failure) is expected


@pytest.mark.parametrize(
    ("taken", "expected"),
    [
        (
            S,
            MeasurementCounts(
                count=5, successful=2, failed=1, inconclusive=1, error=4, consecutive_success=3
            ),
        ),
        (
            F,
            MeasurementCounts(
                count=5, successful=1, failed=2, inconclusive=1, error=4, consecutive_failure=3
            ),
        ),
        (I, MeasurementCounts(count=5, successful=1, failed=1, inconclusive=2, error=4)),
        (
            E,
            MeasurementCounts(
                count=4,
                successful=1,
                failed=1,
                inconclusive=1,
                error=5,
                consecutive_failure=2,
                consecutive_error=3,
            ),
        ),
    ],
)
def test_what_a_measurement_counts_and_resets(
    taken: AnalysisPhase, expected: MeasurementCounts
) -> None:
    before = MeasurementCounts(
        4, 1, 1, 1, 4, consecutive_success=2, consecutive_failure=2, consecutive_error=2
    )
    assert before.add(taken) == expected


# Limits
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "taken", "expected"),
    [
        (ENDLESS, [F], F),
        (Limits(interval=1.0, failure_limit=2), [F, F], RUNNING),
        (Limits(interval=1.0, failure_limit=2), [F, S, F, S, F], F),
        (Limits(interval=1.0, failure_limit=-1), [F] * 9, RUNNING),
        (ENDLESS, [I], I),
        (Limits(interval=1.0, inconclusive_limit=1), [I], RUNNING),
        (Limits(interval=1.0, inconclusive_limit=1), [I, S, I], I),
        (ENDLESS, [E] * 4, RUNNING),
        (ENDLESS, [E] * 5, E),
        (ENDLESS, [E, E, E, E, S, E, E, E, E], RUNNING),
        (Limits(interval=1.0, consecutive_error_limit=0), [E], E),
        (Limits(interval=1.0, consecutive_failure_limit=1), [F, S, F, I, F], I),
        (
            Limits(interval=1.0, consecutive_failure_limit=1, inconclusive_limit=1),
            [F, S, F, I, F],
            RUNNING,
        ),
        (Limits(interval=1.0, consecutive_failure_limit=1), [F, S, F, F], F),
        (Limits(interval=1.0, consecutive_failure_limit=1), [F, E, F], F),
        (Limits(interval=1.0, consecutive_failure_limit=1, failure_limit=2), [F, S, F, S, F], F),
        (Limits(interval=1.0, consecutive_failure_limit=-1), [F], F),
    ],
)
def test_limits(limits: Limits, taken: list[AnalysisPhase], expected: AnalysisPhase) -> None:
    assert phase(limits, *taken) is expected


@pytest.mark.parametrize(
    ("taken", "expected"),
    [
        ([F, I], I),  # more than both limits at once: inconclusive
        ([I, *[E] * 5], E),
        ([F, *[E] * 5], E),
        ([F, I, *[E] * 5], E),
        ([F, S, S], F),  # and before any success
        ([I, S, S], I),
    ],
)
def test_the_order_of_limits(taken: list[AnalysisPhase], expected: AnalysisPhase) -> None:
    assert (
        phase(Limits(count=len(taken), interval=1.0, consecutive_success_limit=2), *taken)
        is expected
    )


@pytest.mark.parametrize(
    ("limits", "taken", "expected"),
    [
        (Limits(), [S], S),  # once, without an interval
        (Limits(count=0), [S], S),
        (Limits(count=2), [S], RUNNING),
        (Limits(count=2), [S, S], S),
        (Limits(count=2), [S, E], RUNNING),  # an error is not counted
        (ENDLESS, [S] * 999, RUNNING),
        (Limits(count=0, interval=1.0), [S] * 999, RUNNING),
        (Limits(count=2, failure_limit=1), [F, S], S),
        (Limits(interval=1.0, consecutive_success_limit=2), [S, E, S], RUNNING),
        (Limits(interval=1.0, consecutive_success_limit=2), [S, E, S, S], S),
        (Limits(count=9, interval=1.0, consecutive_success_limit=2), [S, S], S),
        (Limits(count=9, interval=1.0, failure_limit=0), [S, F], F),
        (Limits(count=9, interval=1.0, failure_limit=-1, consecutive_failure_limit=0), [S, F], F),
        (Limits(count=9, interval=1.0, consecutive_success_limit=1), [S], S),
        (Limits(count=2, consecutive_success_limit=1, failure_limit=-1), [F, F], F),
        (Limits(count=2, consecutive_success_limit=3, failure_limit=1), [S, F], I),
        (Limits(count=2, consecutive_success_limit=3, failure_limit=-1), [S, S], F),
        (Limits(count=2, consecutive_success_limit=3, consecutive_failure_limit=1), [S, F], I),
    ],
)
def test_the_end(limits: Limits, taken: list[AnalysisPhase], expected: AnalysisPhase) -> None:
    assert phase(limits, *taken) is expected


@pytest.mark.parametrize(
    ("taken", "expected"),
    [
        ([], TERMINATED),
        ([S], TERMINATED),
        ([E], TERMINATED),
        ([S, S, S], S),
        ([F], F),
        ([I], I),
        ([E] * 5, E),
    ],
)
def test_stopped_early_is_not_passed(taken: list[AnalysisPhase], expected: AnalysisPhase) -> None:
    assert phase(Limits(count=3, interval=1.0), *taken, terminating=True) is expected


def test_before_the_first_measurement() -> None:
    assert phase(ENDLESS) is PENDING
    assert phase(ENDLESS, E) is RUNNING


def test_the_reason_has_the_numbers() -> None:
    assert assess(Limits(failure_limit=1), after([F, F])) == (F, "2 failed > failure_limit 1")
    assert assess(Limits(count=3), after([S])) == (RUNNING, "1 of 3 measurements")


# Time
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "finished", "last", "expected"),
    [
        (Limits(), None, None, 100.0),
        (Limits(interval=60.0, initial_delay=7.0), None, None, 107.0),
        (Limits(interval=60.0, initial_delay=7.0), 120.0, S, 180.0),
        (Limits(interval=60.0), 120.0, E, 120.0 + RETRY),
        (Limits(interval=1.0), 120.0, E, 120.0 + RETRY),
        (Limits(), 120.0, E, 120.0 + RETRY),
    ],
)
def test_when_to_measure(
    limits: Limits, finished: float | None, last: AnalysisPhase | None, expected: float
) -> None:
    assert due(limits, 100.0, finished, last) == expected


# A whole analysis
# --------------------------------------------------------------------------------------------------


def test_the_worst_metric_is_the_analysis() -> None:
    order = [S, TERMINATED, RUNNING, PENDING, I, E, F]
    for number, one in enumerate(order):
        for other in order[number:]:
            assert worst([one, other]) is worst([other, one]) is other
    assert worst([]) is S  # none but dry runs


def test_what_ends_the_others() -> None:
    assert [phase for phase in AnalysisPhase if phase.bad] == [I, E, F]
    assert [phase for phase in AnalysisPhase if not phase.over] == [RUNNING, PENDING]


limits_ = st.builds(
    Limits,
    count=st.none() | st.integers(0, 8),
    interval=st.none() | st.just(1.0),
    failure_limit=st.none() | st.integers(-1, 3),
    inconclusive_limit=st.integers(0, 3),
    consecutive_error_limit=st.integers(0, 4),
    consecutive_success_limit=st.integers(0, 4),
    consecutive_failure_limit=st.none() | st.integers(-1, 3),
)


@given(limits_, st.lists(st.sampled_from([S, F, I, E]), max_size=25))
def test_any_measurements(limits: Limits, taken: list[AnalysisPhase]) -> None:
    """The counters are what they say; an end comes with the last of the measurements; only
    successes pass a metric.
    """
    tally = MeasurementCounts()
    for number, one in enumerate(taken, 1):
        if assess(limits, tally)[0].over:
            break
        tally = tally.add(one)
        so_far = taken[:number]
        assert (tally.successful, tally.failed, tally.inconclusive, tally.error) == tuple(
            map(so_far.count, [S, F, I, E])
        )
        assert tally.count == tally.successful + tally.failed + tally.inconclusive
        assert MeasurementCounts(**json.loads(json.dumps(asdict(tally)))) == tally
    now, reason = assess(limits, tally)
    assert reason
    assert now is (PENDING if tally == MeasurementCounts() else now)
    if limits.measurements is not None:
        assert tally.count <= limits.measurements
        assert now.over or tally.count < limits.measurements
    if now is F:
        assert tally.failed or limits.consecutive_success_limit
    if now is S:
        assert tally.failed <= (limits.failure_limit or 0) or limits.failures is None
        assert tally.inconclusive <= limits.inconclusive_limit
    ended = assess(limits, tally, terminating=True)[0]
    assert ended is (now if now.over else TERMINATED)


def test_without_an_interval_the_next_measurement_is_due_at_once() -> None:
    assert due(Limits(count=2), 0.0, 5.0, S) == 5.0
