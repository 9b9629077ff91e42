# SPDX-License-Identifier: GPL-3.0-or-later
"""A rolling of six instances that is over in seconds, as the default analysis sees it.

The last old instances stay while the analysis doubts the new revision, as long as
`engine/last_old.py` allows. No real second passes.
"""

from __future__ import annotations

import typing as t
from collections.abc import Iterator, Sequence

import numpy as np
from ansible_collections.progressive.rollout.plugins.plugin_utils.analysis.progress import (
    MetricProgress,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.threshold import (
    AnalysisPhase,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.last_old import SHORT

TICK = 0.1  # seconds
Stage = tuple[float, int, int]  # how many seconds so many new and old instances serve together
PAIRS: Sequence[Stage] = ((0.6, 0, 6), (1.5, 2, 6), (1.5, 4, 4), (0.8, 6, 2))
SINGLY: Sequence[Stage] = ((0.6, 0, 6), *((1.2, new, 7 - new) for new in range(1, 7)))


class Watched:
    """A rollout whose new revision fails some requests, and the default analysis of its errors."""

    def __init__(
        self, metric: MetricProgress, random: np.random.Generator, rate: float, per_second: float
    ) -> None:
        self.metric = metric
        self._random = random
        self._rate, self._per_second = rate, per_second
        self._spans: list[dict[str, dict[str, t.Any]]] = []
        self._sizes = (0, 0)

    def failed(self, stages: Sequence[Stage], interval: float, first: float) -> float | None:
        """The second in which the analysis fails; None: the rollout ends before.

        The first look is after `first` seconds, and each other one `interval` later.
        """
        due = first
        for at, new, old in self._ticks(stages):
            self._serve(new, old)
            if at >= due:
                due += interval
                self.metric.judge({"spans": self._spans}, None, at)
                self._spans = []
                if self.metric.phase is AnalysisPhase.FAILED:
                    return at
        return None

    def _ticks(self, stages: Sequence[Stage]) -> Iterator[tuple[float, int, int]]:
        """Yield the time, and how many new and old instances serve then."""
        ticks = 0
        for seconds, new, old in stages:
            for _tick in range(round(seconds / TICK)):
                ticks += 1
                yield ticks * TICK, new, old
        for _tick in range(round(SHORT / TICK) if self.metric.doubt else 0):
            ticks += 1
            yield ticks * TICK, new, old

    def _serve(self, new: int, old: int) -> None:
        """Count what is served in a tick; a span ends where the instances are others."""
        if not self._spans or self._sizes != (new, old):
            self._spans.append({"new": {}, "stable": {}})
        self._sizes = new, old
        each = TICK * self._per_second / (new + old)
        for side, number, rate in (("new", new, self._rate), ("stable", old, 0.0)):
            for one in range(number):
                counts = self._spans[-1][side].setdefault(
                    f"{side}-{one}", {"requests": 0, "errors": 0, "host": f"web{one % 3}"}
                )
                requests = int(self._random.poisson(each))
                counts["requests"] += requests
                counts["errors"] += int(self._random.binomial(requests, rate))
