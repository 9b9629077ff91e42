# SPDX-License-Identifier: GPL-3.0-or-later
"""What follows from a row of outcomes of a health check. Pure."""

from __future__ import annotations

import typing as t

from ..engine.model import Health


class Streak(t.NamedTuple):
    """A health and the outcomes in a row that led to it: passes count up from 1, failures down
    from -1.
    """

    health: Health = Health.PENDING
    run: int = 0


def advance(streak: Streak, passed: bool, rise: int, fall: int, known: bool) -> Streak:
    """Return the streak after one more outcome.

    A `known` instance served before this step began: one pass makes it healthy, `fall` failures
    make it unhealthy.
    """
    run = max(streak.run, 0) + 1 if passed else min(streak.run, 0) - 1
    pending = streak.health is Health.PENDING
    if run >= (1 if known and pending else rise):
        return Streak(Health.PASSING, run)
    if -run >= fall and (known or not pending):
        return Streak(Health.FAILING, run)
    return Streak(streak.health, run)
