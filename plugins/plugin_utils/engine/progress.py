# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How far a walk has come, and whether it has to end without arriving. Pure.

Progress is more new instances available, or fewer old ones, than ever before in this walk. The progress deadline
counts from the last progress, not from the start; failures count since the last progress (E-07, E-60).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Rules:
    """What bounds a walk; times in seconds."""

    min_ready: float = 0.0  # how long an instance must have been ready to count as available
    progress_deadline: float = 600.0
    ready_deadline: float | None = None  # how long a new instance may take to become ready; None: as long as the walk
    failure_limit: int | None = 3  # that many failures without progress end the walk; None: failures alone never do
    drain_timeout: float = 30.0  # how long requests in flight are waited for
    settle: float = 0.0  # the least time between leaving rotation and being stopped


@dataclass(frozen=True)
class Failure:
    """One new instance that failed, and why, behind its host (`on web1: exit code 3`)."""

    id: str
    why: str


@dataclass(frozen=True)
class Tally:
    """What has to be remembered of a walk. Times in seconds."""

    since: float  # of the last progress, at first of the start
    new: int = 0  # the most new instances available so far
    old: int | None = None  # the fewest old instances so far
    failures: tuple[Failure, ...] = ()  # since the last progress, in the order they were seen
    judged: frozenset[str] = frozenset()  # ids whose failure has been counted once

    def advance(self, new: int, old: int, failed: Iterable[Failure], now: float) -> Tally:
        """The tally after a turn that sees `new` available, `old` counted and `failed` new instances."""
        if self.old is None:
            # The first turn: what failed before the walk is not its failure (a held one goes on, a fleet is repaired).
            since = now if new > self.new else self.since
            return Tally(since, max(self.new, new), old, judged=frozenset(failure.id for failure in failed))
        fresh = [failure for failure in failed if failure.id not in self.judged]
        progressed = new > self.new or old < self.old
        if not fresh and not progressed:
            return self
        return replace(
            self,
            since=now if progressed else self.since,
            new=max(self.new, new),
            old=min(self.old, old),
            failures=tuple(fresh) if progressed else (*self.failures, *fresh),
            judged=self.judged.union(failure.id for failure in fresh) if fresh else self.judged,
        )
