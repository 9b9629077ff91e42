# SPDX-License-Identifier: GPL-3.0-or-later
"""The values that series had in the past, of both revisions and of the same moments. Pure.

A subquery, https://prometheus.io/docs/prometheus/latest/querying/basics/#subquery, asks for what
`query_range` would answer, up to the present by the server's clock: its moments are the multiples
of the step, https://prometheus.io/blog/2019/01/28/subquery-support/.
"""

from __future__ import annotations

import math
import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..base.errors import InputError, MetricError
from ..inputs import values
from ..inputs.options import Field, Options, duration

LEAST = 10  # moments: with fewer, Kayenta's judge finds next to nothing
USUAL = 60  # steps; Kayenta wants 50 values or more
MOST = 1000  # steps, and values of each side that Kayenta's judge keeps

OPTIONS = Options(
    Field(
        "range",
        duration(10.0),
        "How far back the values of C(query) are compared, all at once, instead of its current"
        " value. Only for the judge V(kayenta), with C(count) V(1).",
    ),
    Field("step", duration(1.0), f"Time between two values. A {USUAL}th of C(range) if not given."),
)

Points = Sequence[tuple[float, float]]  # moments, in seconds since the epoch, and values


@dataclass(frozen=True)
class Past:
    """A time up to the present, and how far apart its moments are, in seconds."""

    range: float
    step: float

    def query(self, text: str) -> str:
        """Return PromQL for the past values of an expression."""
        # The line break ends a comment.
        return f"({text}\n)[{round(1000 * self.range)}ms:{round(1000 * self.step)}ms]"

    def together(self, sides: Mapping[str, Sequence[Points]]) -> dict[str, list[float]]:
        """Return the values of each side, of the moments of which both have any.

        Raises MetricError if these are too few.
        """
        moments_by_side = {side: self._by_moment(series) for side, series in sides.items()}
        new, stable = moments_by_side.values()
        moments = sorted(new.keys() & stable.keys())
        if len(moments) < LEAST:
            raise MetricError(
                f"metric.range: both revisions have values at {len(moments)} moments of the last"
                f" {values.units(self.range)}, a step of {values.units(self.step)} apart; {LEAST}"
                " are needed, so measure later (initial_delay), or with a shorter step",
                "PR-450",
            )
        series = max(
            len(values) for by_moment in moments_by_side.values() for values in by_moment.values()
        )
        each = -(-len(moments) * series // MOST)  # of so many moments, one: the judge keeps no more
        return {
            side: [value for moment in moments[::-each] for value in by_moment[moment]]
            for side, by_moment in moments_by_side.items()
        }

    def _by_moment(self, series: Sequence[Points]) -> dict[int, list[float]]:
        by_moment: dict[int, list[float]] = {}
        for points in series:
            for moment, value in points:
                by_moment.setdefault(round(moment / self.step), []).append(value)
        return by_moment


def past(options: Mapping[str, t.Any]) -> Past | None:
    """Return the time in the past that is asked for, if any. Raises InputError."""
    length, step = options["range"], options["step"]
    if length is None:
        if step is not None:
            raise InputError("metric.step: needs range; give both, or none", "PR-107")
        return None
    if options["query"] is None:
        raise InputError(
            "metric.range: is for query, and not for errors and requests, which count from the"
            " beginning of the analysis; remove it, or write a query",
            "PR-107",
        )
    step = float(math.ceil(length / USUAL)) if step is None else round(step, 3)
    if not LEAST <= length / step <= MOST:
        raise InputError(
            f"metric.step: {values.units(length)} in steps of {values.units(step)} are"
            f" {length / step:.0f} values; choose a step with {LEAST} to {MOST}",
            "PR-104",
        )
    return Past(length, step)
