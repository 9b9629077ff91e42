# SPDX-License-Identifier: GPL-3.0-or-later
"""The sequential test of the times of single requests: is the new revision slower? Pure.

It asks at several quantiles of stable, and far beyond them. Answers that take longer than that are
slow; on the new side those that take longer than `tolerance` times that. If the new revision takes
at most `tolerance` times as long as stable, then it has at most as many slow answers as
stable, in proportion. So slow answers are judged as errors are (`errors.py`): with the share of
each look, their dispersion, the instances' hosts, and storms.

The quantiles of a look are those of the looks before it, so they do not depend on what is judged.
"""

from __future__ import annotations

import math
import typing as t
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from .calm import BEFORE
from .comparison import Comparison
from .counts import Counts, Span
from .errors import LONGEST, POINTS, ErrorHistory, total
from .evalue import Bets, odds_of
from .latency import FINE, Histogram
from .verdict import Data, Verdict
from .warming import PATIENCE, Warming

QUANTILES = (0.5, 0.9, 0.99, 0.999)
Level = tuple[float, float]  # what is slow: beyond this quantile of stable, times this factor
# By level, its part of alpha (Bonferroni). The fewer answers are slow, the more each has to tell:
# levels with many get little. A few answers far beyond all quantiles are no surprise by their
# number, but where stable has hardly any.
LEVELS: Mapping[Level, float] = {
    **{(q, 1.0): part for q, part in zip(QUANTILES, (0.04, 0.06, 0.6, 0.1), strict=True)},
    (QUANTILES[-1], 2.0): 0.2,
}
# Answers beyond these quantiles are slow, slower, and so on. At the first one's level, those that
# are not beyond the next one have this power of the odds (`evalue.Trial`).
GRADES: Mapping[float, float] = {0.99: 0.1, 0.997: 0.35, 0.999: 0.65, 0.9997: 1.0}
GRADED: Level = (next(iter(GRADES)), 1.0)
# half of them up to 8: slow answers are few
ODDS = odds_of([(2 * POINTS / (2 * point + 1)) ** 3 for point in reversed(range(POINTS))])
STORM = 1.5  # times as slow as usual, on average, are all answers of stable in a storm
RECENT = 5  # the last looks that have to agree: what a cold start decided is forgotten
SURE = 2.0  # standard deviations more slow answers in these, where the new side was warming up


@dataclass(frozen=True)
class Times:
    """The times of one look, of each instance, while the share stayed the same."""

    new: Mapping[str, Histogram]
    stable: Mapping[str, Histogram]
    hosts: Mapping[str, str] = field(default_factory=dict)  # of instances

    def slow(self, limit: int, tolerance: float) -> Span:
        """Return the answers of each instance, slow ones as errors.

        They are slow beyond the bucket `limit`; on the new side, beyond `tolerance` times that.
        """
        later = limit + _buckets(tolerance)
        new, stable = (
            {
                name: Counts(histogram.count, histogram.count_over(bucket))
                for name, histogram in side.items()
                if histogram.buckets
            }
            for side, bucket in ((self.new, later), (self.stable, limit))
        )
        return Span(new, stable, self.hosts)


@dataclass(frozen=True)
class Tail:
    """What is known of the slow answers at one level."""

    compared: Comparison = field(
        default_factory=lambda: Comparison(ErrorHistory(bets=Bets(ODDS, BEFORE)))
    )
    limit: int = 0  # the bucket beyond which answers of stable were slow in the last look,
    later: int = 0  # and that of the new side
    # of the last looks: answers and slow answers of the new side, and of stable
    recent: tuple[tuple[float, float, float, float], ...] = ()

    def after(self, look: Span, limit: int, later: int, alpha: float, storm: bool) -> Tail:
        """Return it after one more look."""
        new, stable = total(look.new), total(look.stable)
        counted = (new.requests, new.errors, stable.requests, stable.errors)
        known = self.compared.after([look], alpha, 1.0, storm=storm)
        return Tail(known, limit, later, (*self.recent, counted)[-RECENT:])

    def agrees(self, warmed: bool) -> bool:
        """Whether the new side had more slow answers in the last looks, too.

        More than by chance, where it was warming up: what is known of before is of that.
        """
        requests, slow, on_stable, slow_on_stable = (
            sum(part) for part in zip(*self.recent, strict=True)
        )
        expected = slow_on_stable * requests / on_stable if on_stable else 0.0
        chance = SURE * math.sqrt(max(1.0, expected)) if warmed else 0.0
        return bool(slow > expected + chance)

    def verdict(
        self, level: Level, alpha: float, detect: float, warmed: bool
    ) -> tuple[Verdict, str]:
        """Return the verdict at this level, and a remark on hosts."""
        quantile, factor = level
        slowest = f"slowest {_percent(1 - quantile)} %" if factor == 1 else "slowest by far"
        limits = [f"{math.exp2(bucket / FINE):.3g} s" for bucket in (self.later, self.limit)]
        what = f"{slowest} (over {limits[0]}, stable {limits[1]}):"
        verdict, remark = self.compared.verdict(alpha, 1.0, detect, what)
        if verdict.worse and not self.agrees(warmed):
            text = f"{verdict.sentence}; not in the last looks"
            verdict = Verdict(False, text, verdict.e_value, verdict.threshold)
        return verdict, remark


@dataclass(frozen=True)
class Tails:
    """What is known of the times of both sides. Bounded, but for names of instances."""

    stable: Histogram = field(default_factory=lambda: Histogram({}))  # without storms
    tails: Mapping[Level, Tail] = field(default_factory=lambda: {level: Tail() for level in LEVELS})
    warming: Warming = field(default_factory=Warming)
    slow_looks: int = 0  # in a row, in which stable was

    def after(self, look: Times, alpha: float, tolerance: float) -> Tails:
        """Return it after one more look. `alpha` is for all levels together.

        What is slow is known by the looks in which stable had no storm.
        """
        new, stable = (Histogram.sum(side.values()) for side in (look.new, look.stable))
        if not self.stable.buckets:
            return replace(self, stable=stable)
        slow_look = bool(stable.buckets) and stable.middle > STORM * self.stable.middle
        slow_looks = self.slow_looks + 1 if slow_look else 0
        storm = 0 < slow_looks <= LONGEST
        tails = {}
        for level, tail in self.tails.items():
            quantile, factor = level
            limit = self.stable.bucket_of(quantile) + _buckets(factor)
            slow = look.slow(limit, tolerance)
            if level == GRADED:
                slow = replace(slow, mild=self._mild(look, tolerance))
            later = limit + _buckets(tolerance)
            tails[level] = tail.after(slow, limit, later, alpha * LEVELS[level], storm)
        warming = self.warming.after(
            *(side.middle if side.buckets else None for side in (new, stable))
        )
        usual = self.stable if storm else Histogram.sum([self.stable, stable])
        return Tails(usual, tails, warming, slow_looks)

    def _mild(self, look: Times, tolerance: float) -> list[tuple[float, float, float]]:
        """Return how many slow answers of either side are not the slowest, by grade."""
        spans = [look.slow(self.stable.bucket_of(quantile), tolerance) for quantile in GRADES]
        counted = [(total(span.new).errors, total(span.stable).errors) for span in spans]
        return [
            (new - slower_new, stable - slower_stable, power)
            for (new, stable), (slower_new, slower_stable), power in zip(
                counted, counted[1:], GRADES.values(), strict=False
            )
        ]

    def verdict(self, alpha: float, detect: float, patience: int = PATIENCE) -> tuple[Verdict, str]:
        """Return the verdict that decides, and remarks on hosts.

        That is the level with most evidence of those at which the new side is slower, or else the
        first one with too little data. While the new side gets faster it waits, at most `patience`
        looks.
        """
        if not self.stable.buckets:
            return Verdict(False, "no answers of stable yet", data=Data.LACKING), ""
        judged = [
            tail.verdict(level, alpha * LEVELS[level], detect, self.warming.seen)
            for level, tail in self.tails.items()
        ]
        remarks = dict.fromkeys(remark for _verdict, remark in judged if remark)
        verdicts = [verdict for verdict, _remark in judged]
        ranked = sorted(verdicts, key=_evidence, reverse=True)
        order = [
            *(verdict for verdict in ranked if verdict.worse),
            *(verdict for verdict in verdicts if verdict.data is Data.LACKING),
            *(verdict for verdict in verdicts if verdict.data is Data.HOPELESS),
            *ranked,
        ]
        verdict = order[0]
        if verdict.worse and self.warming.waits(patience):
            text = f"{verdict.sentence}; {self.warming}"
            verdict = replace(verdict, worse=False, sentence=text, data=Data.LACKING)
        return verdict, "; ".join(remarks)

    def dump(self) -> dict[str, t.Any]:
        """Return plain data, for the journal."""
        return {
            "stable": self.stable.dump(),
            "warming": self.warming.dump(),
            "slow_looks": self.slow_looks,
            "tails": [
                {
                    **tail.compared.dump(),
                    "limit": tail.limit,
                    "later": tail.later,
                    "recent": tail.recent,
                }
                for tail in self.tails.values()
            ],
        }

    @classmethod
    def load(cls, data: Mapping[str, t.Any]) -> Tails:
        """Return what `dump` made the data of."""
        tails = [
            Tail(
                Comparison.load(tail, ODDS),
                tail["limit"],
                tail.get("later", tail["limit"]),
                tuple(tuple(look) for look in tail["recent"]),
            )
            for tail in data["tails"]
        ]
        return cls(
            Histogram.load(data["stable"]),
            dict(zip(LEVELS, tails, strict=True)),
            Warming.load(data.get("warming", {})),
            data.get("slow_looks", 0),
        )


def _buckets(factor: float) -> int:
    """Return by how many buckets so many times as slow is later."""
    return math.ceil(FINE * math.log2(factor))


def _evidence(verdict: Verdict) -> float:
    """Return the evidence, as a part of what is enough."""
    return (verdict.e_value or 0.0) / (verdict.threshold or 1.0)


def _percent(part: float) -> str:
    return f"{100 * part:.3g}"
