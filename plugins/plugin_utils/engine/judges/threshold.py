# SPDX-License-Identifier: GPL-3.0-or-later
"""The threshold judge: measurements are counted, and the counts compared with limits. Pure.

The semantics are those of Argo's AnalysisRun
(https://argo-rollouts.readthedocs.io/en/stable/features/analysis/), with four differences: a metric
that is stopped early is `terminated` and has not passed; failures in a row may have a limit of
their own; a metric without conditions is inconclusive; so is a result with a NaN that no condition
handles.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum

RETRY = 10.0  # seconds until the next measurement after an error, whatever the interval


class AnalysisPhase(str, Enum):
    """The phase of a measurement, a metric or an analysis, from the best to the worst."""

    SUCCESSFUL = "successful"
    TERMINATED = "terminated"  # stopped early: neither passed nor failed
    RUNNING = "running"
    PENDING = "pending"  # not measured yet
    INCONCLUSIVE = "inconclusive"
    ERROR = "error"  # could not be measured
    FAILED = "failed"

    @property
    def over(self) -> bool:
        """Whether nothing more is measured."""
        return self not in (AnalysisPhase.RUNNING, AnalysisPhase.PENDING)

    @property
    def bad(self) -> bool:
        """Whether a metric in this phase ends the whole analysis."""
        return self in (AnalysisPhase.FAILED, AnalysisPhase.ERROR, AnalysisPhase.INCONCLUSIVE)


ORDER = tuple(AnalysisPhase)


@dataclass(frozen=True)
class Limits:
    """How often a metric is measured, and how often it may fail.

    Times in seconds. A negative limit is none.
    """

    # measurements without errors; None or 0: one, or without end if there is an interval
    count: int | None = None
    interval: float | None = None
    initial_delay: float = 0.0
    failure_limit: int | None = None  # None: 0, or no limit if failures in a row have one
    inconclusive_limit: int = 0
    consecutive_error_limit: int = 4
    consecutive_success_limit: int = 0  # so many in a row pass at once; 0: no number does
    consecutive_failure_limit: int | None = None

    @property
    def measurements(self) -> int | None:
        """How many measurements are taken; None: without end."""
        if self.count:
            return self.count
        return 1 if self.interval is None else None

    @property
    def failures(self) -> int | None:
        """How many failures are tolerated; None: any number."""
        if self.failure_limit is None:
            return 0 if self.failures_in_a_row is None else None
        return self.failure_limit if self.failure_limit >= 0 else None

    @property
    def failures_in_a_row(self) -> int | None:
        """How many failures in a row are tolerated; None: any number."""
        limit = self.consecutive_failure_limit
        return None if limit is None or limit < 0 else limit


@dataclass(frozen=True)
class MeasurementCounts:
    """The measurements so far.

    `asdict` makes plain data of it, and `MeasurementCounts(**data)` the counts again.
    """

    count: int = 0  # measurements without errors
    successful: int = 0
    failed: int = 0
    inconclusive: int = 0
    error: int = 0
    consecutive_success: int = 0
    consecutive_failure: int = 0  # not ended by an error, which measures nothing
    consecutive_error: int = 0

    def add(self, phase: AnalysisPhase) -> MeasurementCounts:
        """Return the counts after a measurement of this phase."""
        if phase is AnalysisPhase.ERROR:
            return replace(
                self,
                error=self.error + 1,
                consecutive_error=self.consecutive_error + 1,
                consecutive_success=0,
            )
        success, failure = phase is AnalysisPhase.SUCCESSFUL, phase is AnalysisPhase.FAILED
        return MeasurementCounts(
            count=self.count + 1,
            successful=self.successful + success,
            failed=self.failed + failure,
            inconclusive=self.inconclusive + (phase is AnalysisPhase.INCONCLUSIVE),
            error=self.error,
            consecutive_success=self.consecutive_success + 1 if success else 0,
            consecutive_failure=self.consecutive_failure + 1 if failure else 0,
        )


def phase_of(success: bool | None, failure: bool | None) -> AnalysisPhase:
    """Return the phase of a measurement by what its conditions say.

    A condition that is not configured is None.
    """
    if failure:
        return AnalysisPhase.FAILED
    if success:
        return AnalysisPhase.SUCCESSFUL
    if success is None:
        return AnalysisPhase.INCONCLUSIVE if failure is None else AnalysisPhase.SUCCESSFUL
    return AnalysisPhase.FAILED if failure is None else AnalysisPhase.INCONCLUSIVE


def assess(
    limits: Limits, counts: MeasurementCounts, terminating: bool = False
) -> tuple[AnalysisPhase, str]:
    """Return the phase of a metric, and why; `terminating`: no more is measured."""
    if decision := _exceeded(limits, counts) or _finished(limits, counts):
        return decision
    if terminating:
        return AnalysisPhase.TERMINATED, f"stopped after {counts.count} measurements"
    if counts == MeasurementCounts():
        return AnalysisPhase.PENDING, "not measured yet"
    planned = f" of {limits.measurements}" if limits.measurements else ""
    return AnalysisPhase.RUNNING, f"{counts.count}{planned} measurements"


def _exceeded(limits: Limits, counts: MeasurementCounts) -> tuple[AnalysisPhase, str] | None:
    """Return the limit that is exceeded.

    Errors go before inconclusive results, and those before failures, as in Argo.
    """
    if counts.consecutive_error > limits.consecutive_error_limit >= 0:
        return (
            AnalysisPhase.ERROR,
            (
                f"{counts.consecutive_error} errors in a row > consecutive_error_limit"
                f" {limits.consecutive_error_limit}"
            ),
        )
    if counts.inconclusive > limits.inconclusive_limit >= 0:
        return (
            AnalysisPhase.INCONCLUSIVE,
            f"{counts.inconclusive} inconclusive > inconclusive_limit {limits.inconclusive_limit}",
        )
    if limits.failures is not None and counts.failed > limits.failures:
        return AnalysisPhase.FAILED, f"{counts.failed} failed > failure_limit {limits.failures}"
    row = limits.failures_in_a_row
    if row is not None and counts.consecutive_failure > row:
        return (
            AnalysisPhase.FAILED,
            f"{counts.consecutive_failure} failed in a row > consecutive_failure_limit {row}",
        )
    return None


def _finished(limits: Limits, counts: MeasurementCounts) -> tuple[AnalysisPhase, str] | None:
    """Return the phase of a metric that has enough measurements, or enough successes."""
    wanted = limits.consecutive_success_limit
    if 0 < wanted <= counts.consecutive_success:
        return (
            AnalysisPhase.SUCCESSFUL,
            (
                f"{counts.consecutive_success} successful in a row >= consecutive_success_limit"
                f" {wanted}"
            ),
        )
    if limits.measurements is None or counts.count < limits.measurements:
        return None
    sentence = f"{counts.successful} of {counts.count} measurements successful"
    if wanted <= 0:
        return AnalysisPhase.SUCCESSFUL, sentence
    sentence += f", never {wanted} in a row"
    unlimited = limits.failures is None and limits.failures_in_a_row is None
    return (AnalysisPhase.FAILED if unlimited else AnalysisPhase.INCONCLUSIVE), sentence


def due(
    limits: Limits, began: float, finished: float | None = None, last: AnalysisPhase | None = None
) -> float:
    """Return when to measure next.

    The analysis began at `began`, and the last measurement ended at `finished`.
    """
    if finished is None:
        return began + limits.initial_delay
    return finished + (RETRY if last is AnalysisPhase.ERROR else limits.interval or 0.0)


def worst(phases: Iterable[AnalysisPhase]) -> AnalysisPhase:
    """Return the phase of an analysis by those of its metrics, without those of a `dry_run`."""
    return max(phases, key=ORDER.index, default=AnalysisPhase.SUCCESSFUL)
