# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sequential test of a quantile, as of latency. Pure.

It finds out whether the new revision is slower than the stable one.

For each side there is a confidence sequence of the quantile, an interval that holds it at all times
with a probability of at least 1 - alpha (https://arxiv.org/abs/2205.14762). The new side is slower
once its interval is above that of stable.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .evalue import ALPHA, last_true, least_evidence, log_e
from .verdict import Data, Verdict

FINE = 32  # buckets to a doubling: 2.2 % wide
LEAST, MOST = 1e-9, 1e9


@dataclass(frozen=True)
class Histogram:
    """How many samples fell into each bucket: bounded, whatever their number.

    Bucket b is over 2^((b-1)/32) and up to 2^(b/32).
    """

    buckets: Mapping[int, int]

    def add(self, values: Iterable[float]) -> Histogram:
        """Return the histogram with these samples as well. A NaN is no sample."""
        buckets = dict(self.buckets)
        for value in values:
            if not math.isnan(value):
                bucket = math.ceil(FINE * math.log2(min(max(value, LEAST), MOST)))
                buckets[bucket] = buckets.get(bucket, 0) + 1
        return Histogram(buckets)

    @property
    def count(self) -> int:
        """How many samples there are."""
        return sum(self.buckets.values())

    def dump(self) -> dict[str, int]:
        """Return plain data, for the journal."""
        return {str(bucket): count for bucket, count in sorted(self.buckets.items())}

    @classmethod
    def load(cls, data: Mapping[str, int]) -> Histogram:
        """Return the histogram that `dump` made the data of."""
        return cls({int(bucket): count for bucket, count in data.items()})

    def interval(self, quantile: float, alpha: float) -> tuple[float, float]:
        """Return the interval of a quantile (0 to 1), widened to whole buckets.

        The quantile is ever below with a probability of at most `alpha`, and the same ever above: a
        value is outside where the number of samples up to it is evidence against such a quantile.
        """
        count, limit = self.count, math.log(1 / alpha)
        middle = math.floor(quantile * count)

        def is_refuted(rank: int) -> bool:
            return log_e(rank, count, quantile) >= limit

        # how many samples may be up to the quantile, with no evidence against it
        fewest, most = 0, count
        if is_refuted(0):
            fewest = 1 + last_true(is_refuted, 0, middle)
        if is_refuted(count):
            most = last_true(lambda rank: not is_refuted(rank), middle, count)
        low = self._edge(fewest, -1) if fewest else 0.0
        return low, self._edge(most + 1, 0) if most < count else math.inf

    def _edge(self, rank: int, side: int) -> float:
        """Return the lower (-1) or upper (0) edge of the bucket with the sample of this rank.

        Ranks begin with 1.
        """
        for bucket in sorted(self.buckets):
            rank -= self.buckets[bucket]
            if rank <= 0:
                break
        return math.exp2((bucket + side) / FINE)


def compare_quantile(
    new: Histogram,
    stable: Histogram,
    quantile: float = 0.5,
    alpha: float = ALPHA,
    tolerance: float = 1.1,
) -> Verdict:
    """Judge whether a quantile of the new side is more than `tolerance` times that of stable.

    Samples have to be independent of each other: single requests, or one figure an interval. The
    data is lacking until each side has enough samples for an end of its interval.
    """
    (low, high), (least, most) = (
        new.interval(quantile, alpha / 2),
        stable.interval(quantile, alpha / 2),
    )
    worse = low > tolerance * most
    name = "median" if quantile == 0.5 else f"{100 * quantile:g}th percentile"
    mine = f"{_range(low, high)} ({new.count:,} samples)"
    parts = [f"{name} {mine} against {_range(least, most)} on stable ({stable.count:,} samples)"]
    if worse:
        parts.append(f"more than {tolerance:g} times")
    # As many as it takes for an interval of the new side with a lower end, and one of stable with
    # an upper end.
    new_missing = max(0, (least_evidence(1 - quantile, alpha / 2) or 0) - new.count)
    stable_missing = max(0, (least_evidence(quantile, alpha / 2) or 0) - stable.count)
    if new_missing:
        parts.append(f"needs {new_missing:,} more samples")
    if stable_missing:
        parts.append(f"needs {stable_missing:,} more samples of stable")
    missing = max(new_missing, stable_missing)
    return Verdict(
        worse, "; ".join(parts), data=Data.LACKING if missing else Data.ENOUGH, missing=missing
    )


def _range(low: float, high: float) -> str:
    if math.isinf(high):
        return f"at least {low:.3g}" if low else "unknown"
    return f"{low:.3g} to {high:.3g}" if low else f"at most {high:.3g}"
