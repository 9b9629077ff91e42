# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How far a walk has come, and whether it has to end without arriving. Pure.

Progress is more new instances available, fewer old ones, or more of those that stay, than ever before in this walk. The progress
deadline counts from the last progress, not from the start; failures count since the last progress (E-07, E-60). But an
instance that was ready and broke is not made good by others that have just become ready: that takes ones that last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Rules:
    """What bounds a walk; times in seconds."""

    min_ready: float = 0.0  # how long an instance must have been ready to count as available
    progress_deadline: float = 600.0
    ready_deadline: float | None = None  # how long a new instance may take to become ready; None: as long as the walk
    failure_limit: int | None = 3  # that many failures without progress end the walk; None: failures alone never do
    stage_limit: int | None = None  # that many new ones that fail on the way to one stage do, whatever succeeds; None: see above
    total_limit: int | None = None  # that many that fail in the whole rollout do; None: any number
    drain_timeout: float = 30.0  # how long requests in flight are waited for
    settle: float = 0.0  # the least time between leaving rotation and being stopped
    watch_new: float = 120.0  # how long a new instance has to last before it counts against earlier ones that broke


@dataclass(frozen=True)
class Failure:
    """One instance that failed, and why, behind its host (`on web1: exit code 3`)."""

    id: str
    why: str
    late: bool = False  # it had been ready before
    stable: bool = False  # it was started in place of a stable one


@dataclass(frozen=True)
class ProgressTracker:
    """What has to be remembered of a walk. Times in seconds."""

    since: float  # of the last progress, at first of the start
    new: int = 0  # the most new instances available so far
    old: int | None = None  # the fewest old instances so far
    failures: tuple[Failure, ...] = ()  # since the last progress, in the order they were seen
    judged: frozenset[str] = frozenset()  # ids whose failure has been counted once
    began: float = 0.0  # when the first turn was: what was started later was started by this walk
    kept: int = 0  # the most old instances in service so far, of those that stay
    lasting: int = 0  # the most new instances that lasted so far
    failed: int = 0  # new instances that failed so far, whatever succeeded in between
    earlier: int = 0  # new instances that failed in the stages before

    @property
    def total(self) -> int:
        """How many new instances have failed in the whole rollout."""
        return self.earlier + self.failed

    def advance(
        self, new: int, old: int, failed: Iterable[Failure], now: float, kept: int = 0, lasting: int | None = None
    ) -> ProgressTracker:
        """The tally after a turn that sees `new` available, `old` counted and `failed` instances.

        `kept` of the old ones that stay are in service, and `lasting` (None: all) of the new ones have lasted.
        """
        lasting = new if lasting is None else lasting
        if self.old is None:
            # The first turn: what failed before the walk is not its failure (a held one goes on, a fleet is repaired).
            since = now if new > self.new else self.since
            judged = frozenset(failure.id for failure in failed)
            first = ProgressTracker(since, max(self.new, new), old, judged=judged, began=now, kept=kept, lasting=lasting)
            return replace(first, earlier=self.total)
        fresh = [failure for failure in failed if failure.id not in self.judged]
        progressed = new > self.new or old < self.old or kept > self.kept
        lasted = lasting > self.lasting
        if not fresh and not progressed and not lasted:
            return self
        left = [failure for failure in self.failures if not (lasted if failure.late else progressed)]
        return replace(
            self,
            since=now if progressed else self.since,
            new=max(self.new, new),
            old=min(self.old, old),
            failures=(*left, *fresh),
            judged=self.judged.union(failure.id for failure in fresh) if fresh else self.judged,
            kept=max(self.kept, kept),
            lasting=max(self.lasting, lasting),
            failed=self.failed + sum(not failure.stable for failure in fresh),
        )


def failure_limits(rules: Rules, progress: ProgressTracker, stable: bool) -> Iterator[tuple[int, int, str]]:
    """What bounds the failures of new or of stable instances: how many there were, how many end the walk, and of which it is."""
    if rules.failure_limit is not None and (stable or rules.stage_limit is None):
        counted = [failure for failure in progress.failures if failure.stable or rules.stage_limit is None]
        own = any(failure.stable == stable for failure in counted)
        yield len(counted) if own else 0, rules.failure_limit, "without progress in between"
    if rules.stage_limit is not None and not stable:
        yield progress.failed, rules.stage_limit, "on the way to this stage"
    if rules.total_limit is not None and not stable:
        yield progress.total, rules.total_limit, "in the whole rollout"
