# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Strategies: lists of waypoints, nothing else. A new strategy is a new list, not a new code path. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Waypoint:
    """A fleet composition to walk to.

    `generation` is the one that counts as new; instances of all others are old.
    `desired` is what the budget is counted from: the capacity the service needs all along the walk.
    """

    generation: int
    new: int
    old: int
    desired: int


def rolling(generation: int, desired: int) -> Sequence[Waypoint]:
    """All new, none old, in one walk with a sliding window."""
    return (Waypoint(generation, new=desired, old=0, desired=desired),)


STRATEGIES: Mapping[str, Callable[[int, int], Sequence[Waypoint]]] = {"rolling": rolling}
