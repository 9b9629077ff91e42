# SPDX-License-Identifier: GPL-3.0-or-later
"""When a change that a load balancer refuses with the same words each time is given up. Pure.

A load balancer that does not answer, or says something else, may be restarting or at work, so it is
waited for up to the progress deadline. One that answers and repeats itself is not going to change
its mind: as long as no instance that was there before has been replaced, nothing is lost by saying
so early.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

LONGEST = 60.0  # seconds of the same refusal, and
ATTEMPTS = 5  # attempts, at least


@dataclass(frozen=True)
class Refusal:
    """What a load balancer refuses a change with, since when, and how often in a row."""

    text: str
    since: float
    attempts: int = 1

    def is_final(self, now: float) -> bool:
        """Return whether another attempt would have the same answer, as far as can be known."""
        return self.attempts >= ATTEMPTS and now - self.since >= LONGEST


def repeated(before: Refusal | None, text: str, now: float) -> Refusal:
    """Return the refusal after another attempt; other words are another refusal."""
    if before is None or before.text != text:
        return Refusal(text, now)
    return replace(before, attempts=before.attempts + 1)
