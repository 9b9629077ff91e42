# SPDX-License-Identifier: GPL-3.0-or-later
"""The sequential test of a quantile, as of latency. Pure.

It finds out whether the new revision is slower than the stable one.

For each side there is a confidence sequence of the quantile, an interval that holds it at all times
with a probability of at least 1 - alpha (https://arxiv.org/abs/2205.14762). The new side is slower
once its interval is above that of stable.
"""

from __future__ import annotations

import math
import statistics
import typing as t
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .dispersion import student
from .evalue import ALPHA, last_true, least_evidence, log_e
from .verdict import Data, Verdict
from .warming import PATIENCE, Warming

FINE = 32  # buckets to a doubling: 2.2 % wide
LEAST, MOST = 1e-9, 1e9
MOST_INSTANCES = 100  # of each side


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

    @classmethod
    def sum(cls, parts: Iterable[Histogram]) -> Histogram:
        """Return the histogram of all samples of several."""
        buckets: dict[int, int] = {}
        for part in parts:
            for bucket, count in part.buckets.items():
                buckets[bucket] = buckets.get(bucket, 0) + count
        return cls(buckets)

    @property
    def count(self) -> int:
        """How many samples there are."""
        return sum(self.buckets.values())

    def count_over(self, limit: int) -> int:
        """Return how many samples are in buckets over this one."""
        return sum(count for bucket, count in self.buckets.items() if bucket > limit)

    def bucket_of(self, quantile: float) -> int:
        """Return the first bucket that has, with those below, this part of the samples."""
        rank, bucket = quantile * self.count, 0
        for bucket in sorted(self.buckets):
            rank -= self.buckets[bucket]
            if rank <= 0:
                break
        return bucket

    def seconds_of(self, quantile: float) -> float:
        """Return the upper edge of the bucket of a quantile: at most 2.2 % too much."""
        return math.exp2(self.bucket_of(quantile) / FINE)

    @property
    def middle(self) -> float:
        """The geometric mean of the samples, of their buckets' upper edges."""
        total = sum(bucket * count for bucket, count in self.buckets.items())
        return math.exp2(total / self.count / FINE)

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


SURE = 0.99  # probability that instances that only differ as stable ones do are not called slower
AGREE = 5  # the last looks that have to agree


@dataclass(frozen=True)
class Samples:
    """The samples of one look, of each instance."""

    new: Mapping[str, Sequence[float]]
    stable: Mapping[str, Sequence[float]]
    hosts: Mapping[str, str] = field(default_factory=dict)  # of instances

    @classmethod
    def of_sides(cls, new: Sequence[float], stable: Sequence[float]) -> Samples:
        """Return the samples of a source that does not know the instances."""
        return cls({"": new}, {"": stable})


@dataclass(frozen=True)
class Mean:
    """The mean of logarithms of samples: the middle of an instance's times."""

    count: int = 0
    total: float = 0.0

    def after(self, values: Iterable[float]) -> Mean:
        """Return the mean with these samples as well."""
        logs = [math.log(max(value, LEAST)) for value in values if math.isfinite(value)]
        return Mean(self.count + len(logs), round(self.total + sum(logs), 6))

    @property
    def value(self) -> float:
        """The mean."""
        return self.total / self.count


@dataclass(frozen=True)
class LatencyHistory:
    """The samples of an analysis. Bounded: `MOST_INSTANCES` on each side are known apart."""

    new: Histogram = field(default_factory=lambda: Histogram({}))
    stable: Histogram = field(default_factory=lambda: Histogram({}))
    each: Mapping[str, Histogram] = field(default_factory=dict)  # of new instances
    means: Mapping[str, Mean] = field(default_factory=dict)  # of stable instances
    hosts: Mapping[str, str] = field(default_factory=dict)
    warming: Warming = field(default_factory=Warming)

    def after(self, look: Samples) -> LatencyHistory:
        """Return the history after one more look."""
        new, stable = _all(look.new), _all(look.stable)
        each, means = dict(self.each), dict(self.means)
        for name, times in look.new.items():
            if name and (name in each or len(each) < MOST_INSTANCES):
                each[name] = each.get(name, Histogram({})).add(times)
        for name, times in look.stable.items():
            if name and (name in means or len(means) < MOST_INSTANCES):
                means[name] = means.get(name, Mean()).after(times)
        known = {name: host for name, host in look.hosts.items() if name in each or name in means}
        return LatencyHistory(
            self.new.add(new),
            self.stable.add(stable),
            each,
            means,
            {**self.hosts, **known},
            self.warming.after(*(_median(side) if side else None for side in (new, stable))),
        )

    @property
    def agree(self) -> float:
        """By how much the new side was slower in the last looks, in the middle."""
        last = self.warming.ratios[-AGREE:]
        return math.exp(statistics.median(last)) if last else math.inf

    def allowed(self, tolerance: float, instances: float) -> float:
        """Return the `tolerance`, with what the mean of so many new instances may differ by.

        By Student's t, of what stable instances differ by.
        """
        means = [mean.value for mean in self.means.values() if mean.count]
        if len(means) < 2:
            return tolerance
        t_value = student(SURE, len(means) - 1)
        apart = statistics.stdev(means) * math.sqrt(1 / max(1.0, instances) + 1 / len(means))
        return tolerance * math.exp(min(t_value * apart, 50.0))

    def on_host(self, name: str) -> float | None:
        """Return the middle of the times of the old instances of an instance's host."""
        host = self.hosts.get(name)
        means = [
            mean.value
            for other, mean in self.means.items()
            if host and self.hosts.get(other) == host and mean.count
        ]
        return math.exp(statistics.fmean(means)) if means else None

    def dump(self) -> dict[str, t.Any]:
        """Return plain data, for the journal."""
        return {
            "new": self.new.dump(),
            "stable": self.stable.dump(),
            "each": {name: times.dump() for name, times in self.each.items()},
            "means": {name: [mean.count, mean.total] for name, mean in self.means.items()},
            "hosts": dict(self.hosts),
            "warming": self.warming.dump(),
        }

    @classmethod
    def load(cls, data: Mapping[str, t.Any]) -> LatencyHistory:
        """Return the history that `dump` made the data of; an older one has the sides alone."""
        return cls(
            Histogram.load(data.get("new", {})),
            Histogram.load(data.get("stable", {})),
            {name: Histogram.load(times) for name, times in data.get("each", {}).items()},
            {name: Mean(*mean) for name, mean in data.get("means", {}).items()},
            data.get("hosts", {}),
            Warming.load(data.get("warming", {})),
        )


def compare_quantile(
    history: LatencyHistory,
    quantile: float = 0.5,
    alpha: float = ALPHA,
    tolerance: float = 1.1,
    patience: int = PATIENCE,
    unit: str = "s",
) -> Verdict:
    """Judge whether a quantile of the new side is more than `tolerance` times that of stable.

    The tolerance is more where stable instances differ, and the last looks have to agree. While the
    new side gets faster it waits, for at most `patience` looks. Samples
    have to be independent of each other: single requests, or one figure an interval. The data is
    lacking until each side has enough samples for an end of its interval. `unit`: theirs, "" if it
    is not known.
    """
    new, stable = history.new, history.stable
    (low, high), (least, most) = (
        new.interval(quantile, alpha / 2),
        stable.interval(quantile, alpha / 2),
    )
    allowed = history.allowed(tolerance, len(history.each))
    worse = low > allowed * most
    name = "median" if quantile == 0.5 else f"{100 * quantile:g}th percentile"
    mine = f"{name} {_range(low, high, unit)} ({new.count:,} samples)"
    theirs = f"{_range(least, most, unit)} on stable ({stable.count:,} samples)"
    parts = [f"{mine} against {theirs}"]
    if worse and history.agree <= tolerance:
        worse = False
        parts.append("was slower, but not in the last looks")
    elif worse and history.warming.waits(patience):
        waiting = f"{parts[0]}; {history.warming}"
        return Verdict(False, waiting, data=Data.LACKING)
    elif worse:
        parts.append(f"more than {allowed:.3g} times")
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


def slow_instances(
    history: LatencyHistory, quantile: float, alpha: float, tolerance: float
) -> tuple[str, str]:
    """Return a sentence on new instances that are slower, and a remark on hosts that are slow.

    `alpha` is for all instances together. An instance on a slow host is not slower.
    """
    if len(history.each) < 2:  # a single instance is the whole new side
        return "", ""
    part = alpha / len(history.each)
    _least, most = history.stable.interval(quantile, part / 2)
    allowed = history.allowed(tolerance, 1)
    slow, remarks = [], []
    for name, samples in sorted(history.each.items()):
        low, high = samples.interval(quantile, part / 2)
        if low <= allowed * most:
            continue
        mates = history.on_host(name)
        if mates is not None and low <= tolerance * mates:
            host = history.hosts[name]
            remarks.append(f"host {host} is slow for stable instances, too ({name}, {mates:.3g} s)")
        else:
            slow.append(
                f"{name}: {_range(low, high, 's')} ({samples.count:,} samples) against at most"
                f" {most:.3g} s on stable"
            )
    return "; ".join(slow), "; ".join(remarks)


def _all(side: Mapping[str, Sequence[float]]) -> list[float]:
    return [value for times in side.values() for value in times if not math.isnan(value)]


def _median(values: Sequence[float]) -> float:
    return statistics.median(min(max(value, LEAST), MOST) for value in values)


def _range(low: float, high: float, unit: str) -> str:
    if math.isinf(high) and not low:
        return "unknown"
    text = f"at least {low:.3g}" if math.isinf(high) else f"{low:.3g} to {high:.3g}"
    return f"{text if low else f'at most {high:.3g}'} {unit}".rstrip()
