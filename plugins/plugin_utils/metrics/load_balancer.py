# SPDX-License-Identifier: GPL-3.0-or-later
"""Measurements from the load balancers: requests, errors and seconds of each instance.

Errors are answers of 5xx and requests without an answer, or what else `of` names.

For conditions, the result has what came since the last measurement: `result.new` and
`result.stable`, each with `requests`, `errors`, `error_rate` (0 to 1) and `latency` (the mean in
seconds), the latter two None without requests. Nothing but the rollout's own load balancers is
needed, which are observed anyway.
"""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Iterable, Mapping, Sequence

from ..base.errors import InputError, MetricError
from ..inputs.options import DURATION, Field, Options, choice
from ..interfaces.context import DriverContext
from ..interfaces.metric import MetricDriver, Question
from ..interfaces.traffic import Cut, Served

OPTIONS = Options(
    Field(
        "of",
        choice(
            errors="5xx answers, and requests without an answer.",
            latency="The time until the answer.",
            client_errors="4xx answers, which also depend on what clients ask for (HAProxy).",
            retries="Connections that had to be retried (HAProxy).",
            aborts="Clients that left before their answer was complete (HAProxy).",
            connect_failures="Connections that could not be opened (HAProxy, Envoy).",
        ),
        "What is compared, as the load balancers count it.",
        default="errors",
    ),
    Field(
        "warm_up",
        DURATION,
        "How long the latency of a new instance is not compared after its first request. Of errors,"
        " the time in which those of cold instances fade to a third, at the slowest; V(0s) where"
        " instances are ready when they get requests, so that a verdict need not wait for that.",
        default="60s",
    ),
)

# Answers of one instance whose mean is a sample: balancers round to milliseconds, and one slow
# answer is no slow instance.
ENOUGH = 30  # answers of an instance that make a sample of its latency
FASTEST = 0.005  # seconds; faster counts as this, since load balancers measure whole milliseconds

Snapshot = Mapping[str, Served]


class Driver(MetricDriver):
    """Measures by the counters of the load balancers."""

    counting = True

    def __init__(self, options: Mapping[str, t.Any], context: DriverContext) -> None:
        self._of, self._warm_up = options["of"], options["warm_up"]
        self._context = context
        self._last: Snapshot = {}
        self._cut = 0  # the last change of the share that was measured
        self._first: dict[str, float] = {}  # when a new instance first had requests
        self._sampled: dict[str, Served] = {}
        if self._of not in context.counted:
            raise InputError(
                f"metric.of: the load balancers of rollout_traffic do not count {self._of!r}, but"
                f" {' and '.join(context.counted) or 'nothing'}; use the driver prometheus, web or"
                " command",
                "PR-310",
            )

    def begin(self) -> None:
        """Ignore what was counted before."""
        self._last = self._context.counters.served
        cuts = self._context.counters.cuts
        self._cut = cuts[-1].number if cuts else 0
        self._sampled = dict(self._last)

    def measure(self, question: Question) -> t.Any:
        cuts = [cut for cut in self._context.counters.cuts if cut.number > self._cut]
        last, self._last = self._last, self._context.counters.served  # later than the cuts
        if question.paired and self._of == "latency":
            return self._times(question)
        if question.counts:
            return {"spans": self._spans(last, cuts, question)}
        came = {name: self._came(counted, last.get(name)) for name, counted in self._last.items()}
        new, stable = _sides(self._last, question.rollout)
        sides = {"new": [came[name] for name in new], "stable": [came[name] for name in stable]}
        result = {side: _described(counted) for side, counted in sides.items()}
        if question.paired:
            return {
                side: float("nan") if described["error_rate"] is None else described["error_rate"]
                for side, described in result.items()
            }
        if not result["new"]["requests"]:
            raise MetricError(
                "no request to the new instances since the last measurement", "PR-427"
            )
        return result

    def _spans(
        self, last: Snapshot, cuts: Sequence[Cut], question: Question
    ) -> list[dict[str, t.Any]]:
        """Return what was counted since the last measurement, apart for each share."""
        if cuts:
            self._cut = cuts[-1].number
        spans = []
        for now in (*(cut.served for cut in cuts), self._last):
            came = {name: self._came(counted, last.get(name)) for name, counted in now.items()}
            spans.append(
                {
                    side: {
                        name: {
                            "requests": counted.requests,
                            "errors": counted.errors,
                            "host": counted.host,
                            "age": round(counted.age(question.now)),
                        }
                        for name, counted in by_name.items()
                    }
                    for side, by_name in zip(
                        ("new", "stable"), _sides(came, question.rollout), strict=True
                    )
                }
            )
            last = now
        return spans

    def _came(self, now: Served, before: Served | None) -> Served:
        """Return what was counted in between; what is compared counts as errors."""
        came = now.since(before)
        if self._of in ("errors", "latency"):
            return came
        # a request may be tried again more than once, and end later than it was counted
        return came._replace(errors=min(getattr(came, self._of), came.requests))

    def _times(self, question: Question) -> dict[str, t.Any]:
        """Return the samples of each instance, without those of new ones that are not warm."""
        new, stable = _sides(self._last, question.rollout)
        for name, counted in new.items():
            if counted.requests or counted.answered:
                self._first.setdefault(name, counted.first or question.now)
        warm = {
            name: counted
            for name, counted in new.items()
            if question.now - self._first.get(name, question.now) >= self._warm_up
        }
        for name in new.keys() - warm.keys():
            self._sampled[name] = new[name]
        sides = {"new": self._samples(warm), "stable": self._samples(stable)}
        hosts = {name: self._last[name].host for by_name in sides.values() for name in by_name}
        return {"samples": sides, "hosts": hosts}

    def _samples(self, side: Snapshot) -> dict[str, list[float]]:
        """Return the mean time of each instance with enough answers since its last sample."""
        samples = {}
        for name, counted in side.items():
            came = counted.since(self._sampled.get(name))
            if came.answered >= ENOUGH:
                self._sampled[name] = counted
                samples[name] = [max(FASTEST, came.seconds / came.answered)]
        return samples


def _sides(served: Snapshot, rollout: Mapping[str, t.Any]) -> tuple[Snapshot, Snapshot]:
    """Return the new instances, and those to compare with: the baseline where there is one."""

    def of(fits: Callable[[int], bool]) -> Snapshot:
        return {name: counted for name, counted in served.items() if fits(counted.generation)}

    baseline = of(lambda generation: bool(generation) and generation == rollout.get("baseline"))
    return of(lambda generation: generation == rollout["generation"]), baseline or of(
        lambda generation: generation != rollout["generation"]
    )


def _described(side: Iterable[Served]) -> dict[str, t.Any]:
    """Return one side's result for conditions."""
    counts = list(side)
    requests, errors, answered = (
        sum(getattr(count, key) for count in counts) for key in ("requests", "errors", "answered")
    )
    return {
        "requests": requests,
        "errors": errors,
        "error_rate": errors / requests if requests else None,
        "latency": max(0.0, sum(count.seconds for count in counts) / answered)
        if answered
        else None,
    }
