# SPDX-License-Identifier: GPL-3.0-or-later
"""Measurements of the host resources that instances use, from the platform's agents.

For conditions the result has `result.new` and `result.stable`, each with the mean an instance of
`cpu` (CPUs), `memory` (bytes), `threads`, `fds`, `throttled` (seconds a second) and `pressure`
(memory events a second), and the sums of `restarts` and `oom` since the previous measurement.
"""

from __future__ import annotations

import statistics
import typing as t
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..base.errors import MetricError, PlatformError
from ..engine.judges.saturation import EVENTS, RATES, RESOURCES
from ..inputs.options import DURATION, Field, Options, choice
from ..interfaces.context import DriverContext
from ..interfaces.metric import MetricDriver, Question
from ..interfaces.platform import PlatformDriver, Usage

ALL = "all"
COUNTED = (*RATES, *EVENTS)
OPTIONS = Options(
    Field(
        "of",
        choice(
            all="Each of the following that the platform knows.",
            memory="Resident memory.",
            cpu="The CPU time.",
            threads="Threads.",
            fds="Open file descriptors.",
            throttled="The time for which a CPU limit throttled an instance.",
            pressure="The memory events C(high) and C(max) of the instance's cgroup.",
            oom="Processes that were killed because memory ran out.",
            restarts="Restarts by the platform.",
        ),
        "What is compared.",
        default=ALL,
    ),
    Field(
        "warm_up",
        DURATION,
        "How old an instance must be before its resource usage is compared. Restarts and C(oom)"
        " count from the first measurement.",
        default="60s",
    ),
)


@dataclass(frozen=True)
class _Look:
    """What was seen of an instance: when, what it uses, and its requests if they are counted."""

    at: float
    used: Usage
    requests: int | None


class Driver(MetricDriver):
    """Measures by the platform's agents."""

    spends_alpha = False

    def __init__(self, options: Mapping[str, t.Any], context: DriverContext) -> None:
        self._of, self._warm_up = options["of"], options["warm_up"]
        self._context = context
        self._platform: PlatformDriver | None = None
        # of each instance when it was last running: it may be starting again between two looks
        self._last: dict[str, _Look] = {}

    def measure(self, question: Question) -> t.Any:
        used, requests = self._ask(), self._requests()
        before = dict(self._last)
        for name, usage in used.items():
            self._last[name] = _Look(question.now, usage, requests.get(name))
        wanted = RESOURCES if self._of == ALL else (self._of,)
        sides: dict[str, dict[str, dict[str, t.Any]]] = {"new": {}, "stable": {}}
        baseline = question.rollout.get("baseline")
        fresh = baseline and any(usage.generation == baseline for usage in used.values())
        for name, usage in used.items():
            is_new = usage.generation == question.rollout["generation"]
            if is_new or not fresh or usage.generation == baseline:
                sides["new" if is_new else "stable"][name] = _seen(
                    self._last[name], before.get(name), wanted, self._warm_up
                )
        if question.counts:
            return {"usage": sides, "at": round(question.now, 2)}
        if not question.paired:
            return {side: _described(by_name.values()) for side, by_name in sides.items()}
        if self._of == ALL:
            raise MetricError("the judge kayenta compares one thing; name it by `of`", "PR-429")
        return {
            side: [
                usage["found"][self._of] for usage in by_name.values() if self._of in usage["found"]
            ]
            for side, by_name in sides.items()
        }

    def _ask(self) -> Mapping[str, Usage]:
        """Return what instances use. Raises MetricError."""
        try:
            if self._platform is None:
                self._platform = self._context.platform(self._context.transport.apart())
            return self._platform.usage()
        except PlatformError as exc:
            raise MetricError(str(exc), "PR-429") from None

    def _requests(self) -> dict[str, int]:
        """Return how many requests each instance was sent, where load balancers count."""
        if not self._context.counted:
            return {}
        return {name: counted.requests for name, counted in self._context.counters.served.items()}


def _seen(
    now: _Look, before: _Look | None, wanted: Iterable[str], warm_up: float
) -> dict[str, t.Any]:
    """Return an instance as the judge sees it, with what was counted since `before`."""
    used = {k: value for k, value in now.used.found.items() if k in wanted and k not in COUNTED}
    load, took = None, now.at - before.at if before else 0.0
    if before and took > 0:
        for key in now.used.found.keys() & before.used.found.keys() & {*COUNTED} & {*wanted}:
            came = now.used.found[key] - before.used.found[key]
            if came >= 0:  # otherwise it was started again
                used[key] = came if key in EVENTS else round(came / took, 4)
        if now.requests is not None and before.requests is not None:
            load = max(0.0, round((now.requests - before.requests) / took, 2))
    warm = now.used.age >= warm_up
    return {"host": now.used.host, "warm": warm, "load": load, "found": used}


def _described(side: Iterable[Mapping[str, t.Any]]) -> dict[str, float | None]:
    """Return one side's result for conditions."""
    listed = [entry["found"] for entry in side]
    result: dict[str, float | None] = {}
    for key in RESOURCES:
        numbers = [float(readings[key]) for readings in listed if key in readings]
        if key in EVENTS:
            result[key] = sum(numbers)
        else:
            result[key] = statistics.fmean(numbers) if numbers else None
    return result
