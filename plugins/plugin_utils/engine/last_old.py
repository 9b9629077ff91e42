# SPDX-License-Identifier: GPL-3.0-or-later
"""How long the last old instances stay for a comparison that is not decided yet. Pure.

Without them there is nothing to compare the new ones with, and nothing that takes their requests at
once. They stay only where the new side looks worse, and not for long.
"""

from __future__ import annotations

from collections.abc import Iterable

from .evaluate import Decision
from .model import Instance
from .strategy import Waypoint

SHORT = 15.0  # seconds for which they may stay,
PART = 0.1  # or this part of the rollout so far, if that is longer


def ends_comparison(fleet: Iterable[Instance], waypoint: Waypoint, decision: Decision) -> bool:
    """Return whether a decision takes the last old instances out of rotation, beside new ones."""
    leaving = {*decision.standby, *decision.drain, *decision.retire}
    if not leaving:
        return False
    serving = [instance for instance in fleet if instance.in_rotation]
    old = [instance for instance in serving if instance.generation != waypoint.generation]
    return bool(old) and len(old) < len(serving) and all(i.id in leaving for i in old)


def longest(elapsed: float) -> float:
    """Return the seconds for which they may stay, after a rollout of so many seconds."""
    return max(SHORT, PART * elapsed)
