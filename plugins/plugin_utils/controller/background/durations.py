# SPDX-License-Identifier: GPL-3.0-or-later
"""How long instances take to become ready and to end, read from a timeline's events."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class MedianTimes:
    """What an instance takes, in seconds (medians)."""

    start: float  # until it is ready
    stop: float  # from the drain to its end


class Durations:
    """When each instance was first in each state, and how long these took."""

    def __init__(self) -> None:
        self._first: dict[str, dict[str, float]] = {}

    def take(self, event: Mapping[str, t.Any]) -> None:
        """Take in an event; those that tell no instance's state are passed over."""
        if event.get("kind") == "state" and event.keys() >= {"instance", "state", "at"}:
            self._first.setdefault(event["instance"], {}).setdefault(event["state"], event["at"])

    def times(self, before: MedianTimes | None = None) -> MedianTimes | None:
        """Return what an instance takes; what none has shown yet is as `before`."""
        from statistics import median  # of steps that tell how long the rest takes

        starts = self._between("starting", "ready")
        stops = self._between("draining", "stopped") or self._between("draining", "gone")
        if not starts and before is None:
            return None
        start = median(starts) if starts else before.start if before else 0.0
        return MedianTimes(start, median(stops) if stops else before.stop if before else 0.0)

    def _between(self, begin: str, end: str) -> list[float]:
        """Return how long each instance that was in both states took from one to the other."""
        known = (states for states in self._first.values() if states.keys() >= {begin, end})
        return [states[end] - states[begin] for states in known]
