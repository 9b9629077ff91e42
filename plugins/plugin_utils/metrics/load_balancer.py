# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measurements of the load balancers: requests, errors and seconds of each instance.

Errors are answers of 5xx and requests without an answer.

For conditions, the result has what came since the last measurement: `result.new` and
`result.stable`, each with `requests`, `errors`, `error_rate` (0 to 1) and `latency` (the mean in
seconds), the latter two None without requests. Nothing but the rollout's own load balancers is
needed, which are observed anyway.
"""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from ..base.errors import InputError, MetricError
from ..inputs.options import Field, Options, choice
from ..interfaces.context import Context
from ..interfaces.metric import MetricDriver, Question
from ..interfaces.traffic import Served

OPTIONS = Options(
    Field(
        "of",
        choice(
            errors="Answers of 5xx, and requests without an answer.",
            latency="The time to the answer.",
        ),
        "What is compared, as the load balancers count it.",
        default="errors",
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

    def __init__(self, options: Mapping[str, t.Any], context: Context) -> None:
        self._of = options["of"]
        self._context = context
        self._last: Snapshot = {}
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
        self._last = self._context.served()
        self._sampled = dict(self._last)

    def measure(self, question: Question) -> t.Any:
        last, self._last = self._last, self._context.served()
        new, stable = _sides(self._last, question.rollout)
        if question.paired and self._of == "latency":
            return {"new": list(self._samples(new)), "stable": list(self._samples(stable))}
        came = {name: _since(one, last.get(name)) for name, one in self._last.items()}
        sides = {"new": [came[name] for name in new], "stable": [came[name] for name in stable]}
        if question.counts:
            return _counts(question.before or {}, sides, {name: came[name] for name in new})
        result = {side: _described(found) for side, found in sides.items()}
        if question.paired:
            return {
                side: float("nan") if found["error_rate"] is None else found["error_rate"]
                for side, found in result.items()
            }
        if not result["new"]["requests"]:
            raise MetricError(
                "no request to the new instances since the last measurement", "PR-427"
            )
        return result

    def _samples(self, side: Snapshot) -> t.Iterator[float]:
        """Yield the mean time of each instance with enough answers since its last sample."""
        for name, one in side.items():
            came = _since(one, self._sampled.get(name))
            if came.answered >= ENOUGH:
                self._sampled[name] = one
                yield max(FASTEST, came.seconds / came.answered)


def _sides(served: Snapshot, rollout: Mapping[str, t.Any]) -> tuple[Snapshot, Snapshot]:
    """Return the new instances, and those to compare with: the baseline where there is one."""

    def of(fits: Callable[[int], bool]) -> Snapshot:
        return {name: one for name, one in served.items() if fits(one.generation)}

    baseline = of(lambda generation: bool(generation) and generation == rollout.get("baseline"))
    return of(lambda generation: generation == rollout["generation"]), baseline or of(
        lambda generation: generation != rollout["generation"]
    )


def _since(now: Served, before: Served | None) -> Served:
    """Return what was counted in between.

    An instance deployed in place is a new one, counted from 0.
    """
    if before is None or before.generation != now.generation:
        return now
    keys = ("requests", "errors", "answered", "seconds")
    return replace(now, **{key: getattr(now, key) - getattr(before, key) for key in keys})


def _counts(
    before: Mapping[str, t.Any], sides: Mapping[str, Iterable[Served]], new: Snapshot
) -> dict[str, t.Any]:
    """Return requests and errors since the beginning: of both sides, and of each new instance."""

    def more(known: Mapping[str, t.Any] | None, found: Iterable[Served]) -> dict[str, int]:
        found = list(found)
        return {
            key: (known or {}).get(key, 0) + sum(getattr(one, key) for one in found)
            for key in ("requests", "errors")
        }

    known = dict(before.get("instances") or {})
    known |= {name: {**more(known.get(name), [one]), "host": one.host} for name, one in new.items()}
    return {
        **{side: more(before.get(side), found) for side, found in sides.items()},
        "instances": known,
    }


def _described(side: Iterable[Served]) -> dict[str, t.Any]:
    """Return one side's result for conditions."""
    found = list(side)
    requests, errors, answered = (
        sum(getattr(one, key) for one in found) for key in ("requests", "errors", "answered")
    )
    return {
        "requests": requests,
        "errors": errors,
        "error_rate": errors / requests if requests else None,
        "latency": max(0.0, sum(one.seconds for one in found) / answered) if answered else None,
    }
