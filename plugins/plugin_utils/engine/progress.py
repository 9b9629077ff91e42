# SPDX-License-Identifier: GPL-3.0-or-later
"""How far a stage has come, and whether too many instances have failed. Pure.

Progress is more new instances available, fewer old ones, or more of those that stay, than ever
before in this stage. The progress deadline counts from the last progress, not from the start, and
failures count since the last progress. But the failure of an instance that had been ready is not
made good by others that have just become ready: that takes instances that last. Of stable instances
that were repaired and ran at the same time, all that fail count as one: a host may have lost them.
"""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

if t.TYPE_CHECKING:
    from .per_host import OnePerHost  # few services have one instance a host
    from .zones import ZoneFloor  # few services have zones


@dataclass(frozen=True)
class Rules:
    """What bounds a stage; times in seconds."""

    min_ready: float = 0.0  # how long an instance must have been ready to count as available
    progress_deadline: float = 600.0
    # how long a new instance may take to become ready; None: as long as the stage
    ready_deadline: float | None = None
    # so many failures without progress end the stage; None: any number
    failure_limit: int | None = 3
    # so many new instances that fail in one stage end it; None: as `failure_limit` says
    stage_limit: int | None = None
    # so many that fail in the whole rollout end it; None: any number
    total_limit: int | None = None
    drain_timeout: float = 30.0  # how long requests in flight are waited for
    settle: float = 0.0  # the least time between leaving rotation and being stopped
    # how long a new instance has to last before it makes good earlier ones that broke
    watch_new: float = 120.0
    zone_floor: ZoneFloor | None = None  # how many instances each zone keeps
    one_per_host: OnePerHost | None = None  # None: instances may be anywhere


@dataclass(frozen=True)
class Failure:
    """An instance that failed, and why, after its host (`on web1: exit code 3`)."""

    id: str
    why: str
    late: bool = False  # it had been ready before
    stable: bool = False  # it was started in place of a stable one
    started: float = 0.0  # when it was


@dataclass(frozen=True)
class FailureLimit:
    """How many instances failed, how many that end the stage, and both in words."""

    count: int
    most: int
    text: str

    @property
    def is_reached(self) -> bool:
        """Whether so many failed that the stage ends."""
        return self.count >= self.most


@dataclass(frozen=True)
class ProgressTracker:
    """What is remembered of a stage from one iteration to the next. Times in seconds."""

    since: float  # of the last progress, at first of the start
    new: int = 0  # the most new instances available so far
    old: int | None = None  # the fewest old instances so far; None: nothing was counted yet
    failures: tuple[Failure, ...] = ()  # since the last progress, in the order they were seen
    judged: frozenset[str] = frozenset()  # ids of instances whose failure was counted
    # when the first iteration was: what was created later was started by this stage
    began: float = 0.0
    kept: int = 0  # the most old instances in service so far, of those that stay
    lasting: int = 0  # the most new instances that lasted so far
    failed: int = 0  # new instances that failed so far, whatever succeeded in between
    earlier: int = 0  # new instances that failed in earlier stages
    # when the failure of a stable instance was last counted: those that ran then had the same cause
    stable_failed: float = 0.0

    @property
    def total(self) -> int:
        """How many new instances have failed in the whole rollout."""
        return self.earlier + self.failed

    def advance(
        self,
        new: int,
        old: int,
        failed: Iterable[Failure],
        now: float,
        kept: int = 0,
        lasting: int | None = None,
    ) -> ProgressTracker:
        """Return the tracker after an iteration that sees `new` available, `old` counted and
        `failed` instances.

        `kept` of the old instances that stay are in service, and `lasting` (None: all) of the new
        ones have lasted.
        """
        lasting = new if lasting is None else lasting
        if self.old is None:
            return self._begin(new, old, failed, now, kept, lasting)
        fresh = [failure for failure in failed if failure.id not in self.judged]
        repaired = [
            failure for failure in fresh if failure.stable and failure.started >= self.stable_failed
        ]
        counted = [failure for failure in fresh if not failure.stable] + repaired[:1]
        progressed = new > self.new or old < self.old or kept > self.kept
        lasted = lasting > self.lasting
        if not fresh and not progressed and not lasted:
            return self
        left = [
            failure for failure in self.failures if not (lasted if failure.late else progressed)
        ]
        return replace(
            self,
            since=now if progressed else self.since,
            new=max(self.new, new),
            old=min(self.old, old),
            failures=(*left, *counted),
            judged=self.judged.union(failure.id for failure in fresh) if fresh else self.judged,
            kept=max(self.kept, kept),
            lasting=max(self.lasting, lasting),
            failed=self.failed + sum(not failure.stable for failure in fresh),
            stable_failed=now if repaired else self.stable_failed,
        )

    def _begin(
        self, new: int, old: int, failed: Iterable[Failure], now: float, kept: int, lasting: int
    ) -> ProgressTracker:
        """Return the tracker after the first iteration. What failed before the stage is not its
        failure.
        """
        return ProgressTracker(
            since=now if new > self.new else self.since,
            new=max(self.new, new),
            old=old,
            judged=frozenset(failure.id for failure in failed),
            began=now,
            kept=kept,
            lasting=lasting,
            earlier=self.total,
        )


def failure_limits(rules: Rules, progress: ProgressTracker, stable: bool) -> Iterator[FailureLimit]:
    """Yield the limits of failures that hold for new or for stable instances."""
    if rules.failure_limit is not None and (stable or rules.stage_limit is None):
        counted = [
            failure for failure in progress.failures if failure.stable or rules.stage_limit is None
        ]
        count = len(counted) if any(failure.stable == stable for failure in counted) else 0
        text = (
            f"{count} consecutive {_failures(count)} (rollout_failure_limit {rules.failure_limit})"
        )
        yield FailureLimit(count, rules.failure_limit, text)
    if rules.stage_limit is not None and not stable:
        text = (
            f"{progress.failed} {_failures(progress.failed)} in this stage"
            f" (allowed_failures {rules.stage_limit - 1})"
        )
        yield FailureLimit(progress.failed, rules.stage_limit, text)
    if rules.total_limit is not None and not stable:
        text = (
            f"{progress.total} {_failures(progress.total)} in the rollout"
            f" (rollout_failure_limit.total {rules.total_limit})"
        )
        yield FailureLimit(progress.total, rules.total_limit, text)


def _failures(count: int) -> str:
    return "instance failure" if count == 1 else "instance failures"
