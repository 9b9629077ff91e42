# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sequential judge: is the new revision worse than the stable one? It may be asked after every sample. Pure.

Of all errors the new revision should have its share of the requests, and a Beta-binomial mixture tells when it has more
than that: its e-value comes to 1/alpha with a probability of at most alpha where both are alike, however often one looks
(Lindon & Malek, arXiv 2011.03567; for quantiles 2205.14762). Error rates may change with time, since both revisions
share them. Where the share of the requests changes, a stratum begins, and all of them tell of one odds ratio (`_together`).
What is assumed: errors independent of each other, the same mix of requests for both, and the share steady within a stratum.
Errors that come in bursts (one cause, many failed requests) count as more evidence than they are.
"""

from __future__ import annotations

import math
import typing as t
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

ALPHA = 0.02  # the probability of a false alarm, over the whole analysis
DETECT = 0.05  # the failure rate that should be seen
SPREAD = 1.28  # nine times in ten there are no fewer errors than the expected number minus so many deviations
STRATA = 50  # of more only the sums are kept, and what they come to
FAR = 2.0**50  # so many requests or errors: never
POINTS = 64  # of the mixture over odds ratios, from 1.02 to 255
MORE = [2 * (2 * point + 1) / (2 * POINTS - 2 * point - 1) for point in range(POINTS)]  # odds ratios over 1: by how much
LOGARITHMS = [math.log1p(more) for more in MORE]  # of these ratios


def log_e(k: float, n: float, share: float, a: float = 1.0, b: float = 1.0) -> float:
    """The logarithm of the e-value of `k` errors on the new side, of `n` in all, where its `share` (0 to 1) is expected.

    The mixture is Beta(a, b). 0, no evidence, where the share leaves nothing to compare, or the numbers make no sense.
    """
    if not (0 < share < 1 and 0 <= k <= n < math.inf):
        return 0.0
    return _log_beta(a + k, b + n - k) - _log_beta(a, b) - k * math.log(share) - (n - k) * math.log1p(-share)


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def allowing(share: float, tolerance: float) -> float:
    """The share of errors to expect where the new side may fail `tolerance` times as often."""
    part = tolerance * share
    return part / (1 - share + part) if part > 0 else 0.0


def needed(share: float, alpha: float = ALPHA) -> int | None:
    """How many errors, all of them on the new side, are evidence enough; None: no number is."""
    if not 0 < share < 1:
        return None
    turn = -1 / math.log(share)  # from here on each error is evidence against it
    return _least(lambda errors: log_e(errors, errors, share) >= math.log(1 / alpha), math.floor(turn))


def _least(enough: Callable[[int], bool], low: int = 0) -> int | None:
    """The least whole number over `low` that is enough, where every greater one is as well; None: there is none."""
    step = 1
    while not enough(low + step):
        low, step = low + step, 2 * step
        if step > FAR:
            return None
    high = low + step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


# -- errors -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Counts:
    """What was counted. Need not be whole (Prometheus' `increase` is not). What comes from outside is made by `of`."""

    requests: float = 0.0
    errors: float = 0.0

    @classmethod
    def of(cls, requests: float, errors: float) -> Counts:
        """What can be believed of two numbers: no more errors than requests, nothing below 0, nothing at all of a NaN."""
        if not (math.isfinite(requests) and math.isfinite(errors)):
            return cls()
        requests = max(0.0, requests)
        return cls(requests, min(max(0.0, errors), requests))

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.requests + other.requests, self.errors + other.errors)

    def since(self, before: Counts, least: Counts) -> Counts:
        """What was counted after `before`, and `least` if that is more: a counter that falls was reset, and is not believed."""
        requests = max(self.requests - before.requests, least.requests)
        return Counts.of(requests, max(self.errors - before.errors, least.errors))

    def __str__(self) -> str:
        return f"{self.errors:,.0f} of {self.requests:,.0f}"


@dataclass(frozen=True)
class Stratum:
    """What was counted while requests were divided in one way."""

    name: str  # of what divided them so: a stage
    new: Counts
    stable: Counts
    evidence: float | None = None  # of one that stands for several: what they came to
    mean: float | None = None  # likewise: the share of errors that was expected

    @property
    def share(self) -> float:
        """The part of requests that went to the new side, 0 to 1, as measured."""
        requests = self.new.requests + self.stable.requests
        return self.new.requests / requests if requests else 0.0

    @property
    def errors(self) -> float:
        """Those of both sides."""
        return self.new.errors + self.stable.errors

    def expected(self, tolerance: float) -> float:
        """The share of the errors that the new side may have."""
        return allowing(self.share, tolerance) if self.mean is None else self.mean

    def log_e(self, tolerance: float) -> float:
        """The evidence that the new side is worse. Where it is better that is no evidence to the contrary, but as if both were alike."""
        if self.evidence is not None:
            return self.evidence
        share, errors = self.expected(tolerance), self.errors
        alike = share * (errors + 1) - 0.5  # where the e-value is lowest
        return log_e(min(max(self.new.errors, alike), errors), errors, share)

    def and_(self, other: Stratum, tolerance: float) -> Stratum:
        """One that stands for both. Evidence is added to evidence; the mean of what was expected, by errors, makes less of them, never more."""
        evidence, errors = self.log_e(tolerance) + other.log_e(tolerance), self.errors + other.errors
        part = other.errors / errors if 0 < errors < math.inf else 0.0
        mean = (1 - part) * self.expected(tolerance) + part * other.expected(tolerance)
        return Stratum(self.name, self.new + other.new, self.stable + other.stable, evidence, mean)


def _together(strata: Sequence[Stratum], tolerance: float) -> float:
    """The evidence that the new side is worse, of all strata, as a logarithm; of a single one, its own.

    After the first it is the mean of two bets: that the new side fails the same number of times as often in all of them, with weights
    as the first leaves them, and that each is for itself, so that one that was better and gets worse is found. What is bet on a
    stratum is settled before it, so that alpha holds for all of them.
    """
    if not strata:
        return 0.0
    first, *rest = strata
    alike = _common(strata, tolerance) - _common([first], tolerance) if rest else 0.0
    apart = sum(stratum.log_e(tolerance) for stratum in rest)
    return first.log_e(tolerance) + _log_mean((alike, apart))


def _common(strata: Iterable[Stratum], tolerance: float) -> float:
    """The logarithm of the e-value over all strata, where the odds ratio is the same in all: the mean over many that are above 1.

    No more than 0 where the new side has no more than its share of all errors.
    """
    found = [0.0] * POINTS
    for stratum in strata:
        new, errors, share = stratum.new.errors, stratum.errors, stratum.expected(tolerance)
        if 0 < share < 1 and 0 < errors < FAR:
            found = [
                one + new * logarithm - errors * math.log1p(share * more)
                for one, logarithm, more in zip(found, LOGARITHMS, MORE, strict=True)
            ]
    return _log_mean(found)


def _log_mean(logarithms: Sequence[float]) -> float:
    """The logarithm of the mean of numbers, by their logarithms."""
    most = max(logarithms)
    return most + math.log(sum(math.exp(one - most) for one in logarithms) / len(logarithms))


@dataclass(frozen=True)
class Ledger:
    """All that was counted in an analysis. A stratum begins whenever the share changes, so that it is steady in each of them."""

    strata: tuple[Stratum, ...] = ()

    def counted(self, name: str, new: Counts, stable: Counts, tolerance: float = 1.0) -> Ledger:
        """The ledger after counts, both from the beginning of the analysis, in the stratum of this name."""
        closed, last = self.strata, Stratum(name, Counts(), Counts())
        if closed and closed[-1].name == name:
            *most, last = closed
            closed = tuple(most)
        elif len(closed) >= STRATA:
            closed = _folded(closed, tolerance)
        new = new.since(sum((stratum.new for stratum in closed), Counts()), last.new)
        stable = stable.since(sum((stratum.stable for stratum in closed), Counts()), last.stable)
        return Ledger((*closed, Stratum(last.name, new, stable)))

    @property
    def total(self) -> Stratum:
        """All strata as one."""
        new = sum((stratum.new for stratum in self.strata), Counts())
        return Stratum("", new, sum((stratum.stable for stratum in self.strata), Counts()))

    def dump(self) -> list[dict[str, t.Any]]:
        """As plain data, for the journal."""
        return [asdict(stratum) for stratum in self.strata]

    @classmethod
    def load(cls, data: Iterable[Mapping[str, t.Any]]) -> Ledger:
        """What `dump` made."""
        return cls(tuple(Stratum(**{**item, "new": Counts(**item["new"]), "stable": Counts(**item["stable"])}) for item in data))


def _folded(strata: tuple[Stratum, ...], tolerance: float) -> tuple[Stratum, ...]:
    """With one less: of all but the first, the two neighbours that are most alike are one."""
    shares = [stratum.expected(tolerance) for stratum in strata]
    at = min(range(1, len(strata) - 1), key=lambda place: abs(shares[place] - shares[place + 1]))
    return (*strata[:at], strata[at].and_(strata[at + 1], tolerance), *strata[at + 2 :])


@dataclass(frozen=True)
class Finding:
    """What the judge says."""

    worse: bool
    sentence: str
    e_value: float | None = None  # of errors
    threshold: float | None = None  # 1/alpha: the e-value that is evidence enough
    needs: int | None = 0  # so many more requests, or samples, of the new side until it can be relied on; None: no number will do


def errors(ledger: Ledger, alpha: float = ALPHA, tolerance: float = 1.0, detect: float = DETECT) -> Finding:
    """Whether the new side fails more than `tolerance` times as often.

    Where it does not (yet), `needs` is how many more requests it must have had for a failure rate of `detect` (0 to 1) to have been
    seen nine times in ten.
    """
    total = ledger.total
    said = f"errors {total.new} against {total.stable} on stable"
    if not 0 < total.share < 1:
        side = "stable" if total.new.requests else "the new revision"
        return Finding(False, f"{said}; no requests to {side}, nothing to compare", threshold=1 / alpha, needs=None)
    evidence = _together(ledger.strata, tolerance)
    worse = evidence >= math.log(1 / alpha)
    needs = 0 if worse else _needs(total, alpha, tolerance, detect)
    said += f"; e-value {_number(evidence)} {'>=' if worse else '<'} {1 / alpha:g}"
    if needs is None:
        said += f"; stable fails so often that {detect:.3g} cannot be told from it"
    elif needs:
        said += f"; needs {needs:,} more requests"
    return Finding(worse, said, _exp(evidence), 1 / alpha, needs)


def _needs(total: Stratum, alpha: float, tolerance: float, detect: float) -> int | None:
    share, limit = allowing(total.share, tolerance), math.log(1 / alpha)
    beside = total.stable.errors / total.new.requests  # so many errors on stable to each request to the new side

    def seen(requests: int) -> bool:
        failed = requests * detect
        failed = max(0.0, failed - SPREAD * math.sqrt(failed * (1 - detect)))
        errors = failed + requests * beside
        return failed > share * errors and log_e(failed, errors, share) >= limit

    enough = _least(seen)
    return None if enough is None else max(0, enough - math.floor(total.new.requests))


def _exp(logarithm: float) -> float:
    return math.exp(min(logarithm, 700.0))


def _number(logarithm: float) -> str:
    value = _exp(logarithm)
    return f"{value:.2g}" if value < 10 or value >= 1e6 else f"{math.floor(value):,}"


# -- single instances -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Apart:
    """The new instances that are worse than all the others."""

    names: tuple[str, ...]
    sentence: str


@dataclass(frozen=True)
class Chapter:
    """A time in which requests were divided in one way, among the same instances: only over such a time are they compared."""

    name: str  # of what divided them so
    began: Mapping[str, Counts]  # of each new instance, when this began
    stable: Counts  # likewise
    evidence: Mapping[str, float]  # against each, of the chapters before

    def after(self, name: str, new: Mapping[str, Counts], stable: Counts, tolerance: float) -> Chapter:
        """The chapter that these counts, all from the beginning, are in: this one, or one that begins now."""
        if name == self.name and new.keys() == self.began.keys():
            return self
        there = {one: counts for one, counts in new.items() if one in self.began}
        mine = self.of(there)
        found = _evidence(mine, _others(mine, stable.since(self.stable, Counts())), tolerance)
        return Chapter(name, dict(new), stable, {one: self.evidence.get(one, 0.0) + found.get(one, 0.0) for one in new})

    def of(self, new: Mapping[str, Counts]) -> dict[str, Counts]:
        """What was counted in it."""
        return {name: counts.since(self.began[name], Counts()) for name, counts in new.items()}

    def dump(self) -> dict[str, t.Any]:
        """As plain data, for the journal."""
        return asdict(self)

    @classmethod
    def load(cls, data: Mapping[str, t.Any]) -> Chapter:
        """What `dump` made."""
        began = {name: Counts(**counts) for name, counts in data["began"].items()}
        return cls(data["name"], began, Counts(**data["stable"]), data["evidence"])


def apart(
    new: Mapping[str, Counts],
    stable: Counts,
    alpha: float = ALPHA,
    tolerance: float = 1.0,
    before: Mapping[str, float] | None = None,
) -> Apart:
    """Which of the new instances fail more than `tolerance` times as often as all other instances, the stable ones among them.

    All are counted over the same time. `alpha` is for all of them together. `before` is the evidence against them of other times.
    """
    others = _others(new, stable)
    threshold = math.log(len(new) / alpha) if new else math.inf
    names, said = [], []
    for name, found in sorted(_evidence(new, others, tolerance).items()):
        evidence = found + (before or {}).get(name, 0.0)
        if evidence >= threshold:
            names.append(name)
            said.append(
                f"{name}: errors {new[name]} against {others[name]} on all others; e-value {_number(evidence)} >= {_exp(threshold):g}"
            )
    return Apart(tuple(names), "; ".join(said) or "no instance is worse than the others")


def _others(new: Mapping[str, Counts], stable: Counts) -> dict[str, Counts]:
    """What was counted on all instances but this one, for each of the new."""
    everything = sum(new.values(), stable)
    return {
        name: Counts.of(everything.requests - counts.requests, everything.errors - counts.errors) for name, counts in new.items()
    }


def _evidence(new: Mapping[str, Counts], others: Mapping[str, Counts], tolerance: float) -> dict[str, float]:
    """Against each of the new instances, compared with all others."""
    return {name: Stratum(name, counts, others[name]).log_e(tolerance) for name, counts in new.items()}


# -- latency ----------------------------------------------------------------------------------------------------------

FINE = 32  # buckets to a doubling: 2.2 % wide
LEAST, MOST = 1e-9, 1e9


@dataclass(frozen=True)
class Samples:
    """How many samples fell into which bucket: bounded, whatever their number. Bucket b is over 2^((b-1)/32) and up to 2^(b/32)."""

    buckets: Mapping[int, int]

    def more(self, values: Iterable[float]) -> Samples:
        """With these as well; a NaN is no sample."""
        buckets = dict(self.buckets)
        for value in values:
            if not math.isnan(value):
                bucket = math.ceil(FINE * math.log2(min(max(value, LEAST), MOST)))
                buckets[bucket] = buckets.get(bucket, 0) + 1
        return Samples(buckets)

    @property
    def number(self) -> int:
        """How many there are."""
        return sum(self.buckets.values())

    def dump(self) -> dict[str, int]:
        """As plain data, for the journal."""
        return {str(bucket): number for bucket, number in sorted(self.buckets.items())}

    @classmethod
    def load(cls, data: Mapping[str, int]) -> Samples:
        """What `dump` made."""
        return cls({int(bucket): number for bucket, number in data.items()})

    def band(self, quantile: float, alpha: float) -> tuple[float, float]:
        """Between what the quantile (0 to 1) is: with a probability of at most `alpha` ever below, and the same ever above.

        A value is outside where the number of samples up to it would be evidence against such a quantile. Widened to whole buckets.
        """
        number, limit = self.number, math.log(1 / alpha)
        middle = math.floor(quantile * number)

        def refuted(rank: int) -> bool:
            return log_e(rank, number, quantile) >= limit

        fewest, most = 0, number  # how many samples may be up to it, with no evidence against it
        if refuted(0):
            fewest = 1 + _last(refuted, 0, middle)
        if refuted(number):
            most = _last(lambda rank: not refuted(rank), middle, number)
        low = self._edge(fewest, -1) if fewest else 0.0
        return low, self._edge(most + 1, 0) if most < number else math.inf

    def _edge(self, rank: int, side: int) -> float:
        """The lower (-1) or upper (0) edge of the bucket in which the sample of this rank is, from 1."""
        for bucket in sorted(self.buckets):
            rank -= self.buckets[bucket]
            if rank <= 0:
                break
        return math.exp2((bucket + side) / FINE)


def _last(true: Callable[[int], bool], low: int, high: int) -> int:
    """The last number for which it is true; it is for `low`, is not for `high`, and changes once."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if true(middle) else (low, middle)
    return low


def slower(new: Samples, stable: Samples, quantile: float = 0.5, alpha: float = ALPHA, tolerance: float = 1.1) -> Finding:
    """Whether the quantile (the median, unless told otherwise) of the new side is more than `tolerance` times that of stable.

    Samples are independent of each other: single requests, or one figure an interval. `needs` is how many more samples, of the side that
    lacks more of them, it takes to say anything at all.
    """
    (low, high), (least, most) = new.band(quantile, alpha / 2), stable.band(quantile, alpha / 2)
    worse = low > tolerance * most
    name = "median" if quantile == 0.5 else f"{100 * quantile:g}th percentile"
    said = (
        f"{name} {_range(low, high)} ({new.number:,} samples) against {_range(least, most)} on stable ({stable.number:,} samples)"
    )
    if worse:
        said += f"; more than {tolerance:g} times"
    # As many as it takes for a bound below the new quantile, and one above the stable one.
    lacking = max(0, (needed(1 - quantile, alpha / 2) or 0) - new.number)
    missing = max(0, (needed(quantile, alpha / 2) or 0) - stable.number)
    said += f"; needs {lacking:,} more samples" * bool(lacking) + f"; needs {missing:,} more samples of stable" * bool(missing)
    return Finding(worse, said, needs=max(lacking, missing))


def _range(low: float, high: float) -> str:
    if math.isinf(high):
        return f"at least {low:.3g}" if low else "unknown"
    return f"{low:.3g} to {high:.3g}" if low else f"at most {high:.3g}"
