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
    """How long instances took from one state to the next that ends it.

    An instance may come back to a state: one that is deployed in place drains, starts and is ready
    again and again.
    """

    def __init__(self) -> None:
        # by instance and state, since when it has been on its way to the next one
        self._since: dict[tuple[str, str], float] = {}
        # by the states, how long each way took
        self._took: dict[tuple[str, str], list[float]] = {}

    def take(self, event: Mapping[str, t.Any]) -> None:
        """Take in an event; those that tell no instance's state are passed over."""
        if event.get("kind") != "state" or not event.keys() >= {"instance", "state", "at"}:
            return
        name, state, at = event["instance"], event["state"], event["at"]
        if state in ("starting", "draining"):
            self._since.setdefault((name, state), at)
        for begin, end in (("starting", "ready"), ("draining", "stopped"), ("draining", "gone")):
            if state == end and (since := self._since.get((name, begin))) is not None:
                # of two controllers, the clock of one may be behind
                self._took.setdefault((begin, end), []).append(max(0.0, at - since))
        if state not in ("starting", "not_ready", "unreachable"):
            self._since.pop((name, "starting"), None)
        if state not in ("draining", "unreachable"):
            self._since.pop((name, "draining"), None)

    def times(self, before: MedianTimes | None = None) -> MedianTimes | None:
        """Return what an instance takes; what none has shown yet is as `before`."""
        from statistics import median  # of steps that tell how long the rest takes

        starts = self._took.get(("starting", "ready"))
        stops = self._took.get(("draining", "stopped")) or self._took.get(("draining", "gone"))
        if not starts and before is None:
            return None
        start = median(starts) if starts else before.start if before else 0.0
        return MedianTimes(start, median(stops) if stops else before.stop if before else 0.0)
