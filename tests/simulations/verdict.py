# SPDX-License-Identifier: GPL-3.0-or-later
"""How soon the judges find a bad revision, and how often they fail a good one: whole analyses with
drawn errors. Seeded.

`python tests/simulations/verdict.py` prints the table; `make bench` has it as well.
"""

from __future__ import annotations

import math
import statistics
import typing as t
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from random import Random

from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges import (
    kayenta,
    threshold,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.counts import (
    Counts,
    Span,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.errors import (
    ErrorHistory,
    compare_errors,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.evalue import ALPHA
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.latency import (
    LatencyHistory,
    Samples,
    compare_quantile,
)

RUNS, INTERVALS = 150, 60
REQUESTS = 1000  # to each side in an interval
RATES = (
    (0.05, 0.05),
    (1, 1),
    (5, 5),
    (0, 0.3),
    (0.05, 0.3),
    (0.1, 1),
    (1, 2),
    (5, 7.5),
    (5, 6),
)  # errors an interval, before and after
PEEK = 5  # Kayenta is asked every so many intervals: it is not made for more looks
# as Kayenta judges unless told otherwise
ERRORS = kayenta.Metric("errors", direction="increase", allowed_increase=1.0)
ALLOWED = 3  # errors in an interval, for the threshold judge
LIMITS = threshold.Limits(count=INTERVALS, interval=1.0, failure_limit=2)

Drawn = list[tuple[int, int]]  # errors of stable and of the new revision, interval by interval
Judge = Callable[[Drawn], int | None]  # the interval in which it fails the new revision


# -- what happens ----------------------------------------------------------------------------------


def poisson(random: Random, mean: float) -> int:
    """How many of many rare events happen, where `mean` of them are expected (a small number)."""
    left, number = math.exp(-mean), 0
    while (left := left / random.random()) <= 1:
        number += 1
    return number


def drawn(seed: str, stable: float, new: float) -> Drawn:
    """The errors of one analysis."""
    random = Random(seed)
    return [(poisson(random, stable), poisson(random, new)) for _interval in range(INTERVALS)]


# -- who is asked ----------------------------------------------------------------------------------


def by_sequential(analysis: Drawn) -> int | None:
    """The sequential judge, asked after every interval."""
    history = ErrorHistory()
    for interval, (before, after) in enumerate(analysis, 1):
        span = Span.of_sides(Counts(REQUESTS, after), Counts(REQUESTS, before))
        history = history.after([span], ALPHA, 1.0)
        if compare_errors(history).worse:
            return interval
    return None


def by_kayenta(analysis: Drawn) -> int | None:
    """Kayenta's judge."""
    for interval in range(PEEK, INTERVALS + 1, PEEK):
        stable, new = zip(*analysis[:interval], strict=True)
        if kayenta.classify(ERRORS, new, stable).judged is kayenta.Class.HIGH:
            return interval
    return None


def by_threshold(analysis: Drawn) -> int | None:
    """A limit for all revisions, as one sets it who knows of no other figure."""
    tally = threshold.MeasurementCounts()
    for interval, (_before, after) in enumerate(analysis, 1):
        tally = tally.add(threshold.phase_of(after <= ALLOWED, None))
        if threshold.assess(LIMITS, tally)[0] is threshold.AnalysisPhase.FAILED:
            return interval
    return None


@dataclass(frozen=True)
class Found:
    """In how many analyses the new revision was failed, and the median of the intervals that
    took.
    """

    runs: int
    median: float

    def __str__(self) -> str:
        return f"{self.runs} ({self.median:g})" if self.runs else "0"


def found(judge: Judge, stable: float, new: float, runs: int = RUNS) -> Found:
    """What a judge finds in so many analyses; the same ones for every judge."""
    ends = [judge(drawn(f"{stable}:{new}:{run}", stable, new)) for run in range(runs)]
    failed = [end for end in ends if end is not None]
    return Found(len(failed), statistics.median(failed) if failed else 0.0)


JUDGES: dict[str, Judge] = {
    "sequential": by_sequential,
    "kayenta": by_kayenta,
    "threshold": by_threshold,
}


def table() -> Iterator[tuple[str, dict[str, Found]]]:
    """Every row: the errors an interval, before and after, and what each judge found."""
    for stable, new in RATES:
        yield (
            f"{stable} -> {new}",
            {name: found(judge, stable, new) for name, judge in JUDGES.items()},
        )


# -- a canary --------------------------------------------------------------------------------------


def canary(
    seed: str,
    fails: float,
    stable_fails: float,
    steps: Iterable[int] = (10,),
    requests: int = 200,
    looks: int = INTERVALS,
    tolerance: float = 1.0,
) -> int | None:
    """How many requests to a canary failed until that was found, with so many requests a look and
    the share of each step in percent.

    None: it was not found.
    """
    random, history = Random(seed), ErrorHistory()
    failed = 0
    for step in steps:
        for _look in range(looks):
            to_new = sum(random.random() < step / 100 for _request in range(requests))
            to_stable = requests - to_new
            new = Counts.of(to_new, poisson(random, to_new * fails))
            failed += int(new.errors)
            stable = Counts.of(to_stable, poisson(random, to_stable * stable_fails))
            history = history.after([Span.of_sides(new, stable)], ALPHA, tolerance)
            if compare_errors(history, ALPHA, tolerance).worse:
                return failed
    return None


def steps(number: int) -> list[int]:
    """So many steps to all requests, in percent: even ones."""
    return [round(100 * step / (number + 1)) for step in range(1, number + 1)]


def slow(
    seed: str,
    times: float,
    looks: int = INTERVALS,
    new_each: int = 2,
    stable_each: int = 18,
    **options: t.Any,
) -> int | None:
    """After how many looks a revision that takes so many times as long is found slower; None:
    never.
    """
    random = Random(seed)
    history = LatencyHistory()
    for look in range(1, looks + 1):
        new = [times * random.lognormvariate(0, 0.5) for _sample in range(new_each)]
        stable = [random.lognormvariate(0, 0.5) for _sample in range(stable_each)]
        history = history.after(Samples.of_sides(new, stable))
        if compare_quantile(history, **options).worse:
            return look
    return None


def main() -> None:
    """Print the table."""
    for name, by in table():
        print(f"{name:14}", *(f"{judge} {of!s:10}" for judge, of in by.items()))


if __name__ == "__main__":
    main()
