# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sequential test of errors: does the new revision fail more often than the stable one? Pure.

Of all errors the new revision should have its share of the requests, and a Beta-binomial mixture
tells when it has more than that, by an e-value (`evalue.py`), after every measurement anew
(https://arxiv.org/abs/2011.03567). Error rates may change with time, since both revisions share
them. Where the share of the requests changes a stratum begins, and all strata tell of one odds
ratio (`combined_log_e`).

What is assumed: errors are independent of each other, both revisions get the same mix of requests,
and the share is steady within a stratum. Errors in bursts (one cause, many failed requests) count
as more evidence than they are.
"""

from __future__ import annotations

import math
import typing as t
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from .evalue import ALPHA, FAR, e_value, first_true, log_e, log_mean, shown
from .verdict import Data, Verdict

DETECT = 0.05  # the error rate that should be detected
# standard deviations: in nine of ten cases at most that many fewer errors are seen than expected
SPREAD = 1.28
STRATA = 50  # that are kept; two of them are merged for each further one
POINTS = 64  # of the mixture over odds ratios, from 1.02 to 255
# odds ratios - 1
EXCESSES = [2 * (2 * point + 1) / (2 * POINTS - 2 * point - 1) for point in range(POINTS)]
LOG_ODDS = [math.log1p(excess) for excess in EXCESSES]


def tolerated(theta: float, tolerance: float) -> float:
    """Return the share of all errors of a side with the share `theta` of the requests.

    It may fail `tolerance` times as often as the other side.
    """
    part = tolerance * theta
    return part / (1 - theta + part) if part > 0 else 0.0


@dataclass(frozen=True)
class Counts:
    """Requests and errors.

    They need not be whole: Prometheus' `increase` is not. Use `of` for what comes from outside.
    """

    requests: float = 0.0
    errors: float = 0.0

    @classmethod
    def of(cls, requests: float, errors: float) -> Counts:
        """Clamp to valid counts: finite, not negative, and no more errors than requests."""
        if not (math.isfinite(requests) and math.isfinite(errors)):
            return cls()
        requests = max(0.0, requests)
        return cls(requests, min(max(0.0, errors), requests))

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.requests + other.requests, self.errors + other.errors)

    def since(self, before: Counts, least: Counts) -> Counts:
        """Return what was counted after `before`, at least `least`.

        A counter that falls was reset.
        """
        requests = max(self.requests - before.requests, least.requests)
        return Counts.of(requests, max(self.errors - before.errors, least.errors))

    def __str__(self) -> str:
        return f"{self.errors:,.0f} of {self.requests:,.0f}"


@dataclass(frozen=True)
class Stratum:
    """What was counted while the share of the requests stayed the same."""

    name: str  # of the stage and its share
    new: Counts
    stable: Counts
    evidence: float | None = None  # of merged strata: the logarithm of their e-value
    mean: float | None = None  # of merged strata: the share of errors that was expected

    @property
    def share(self) -> float:
        """The part of the requests that went to the new side, 0 to 1, as measured."""
        requests = self.new.requests + self.stable.requests
        return self.new.requests / requests if requests else 0.0

    @property
    def errors(self) -> float:
        """The errors of both sides."""
        return self.new.errors + self.stable.errors

    def expected(self, tolerance: float) -> float:
        """Return the share θ₀ of the errors that the new side may have."""
        return tolerated(self.share, tolerance) if self.mean is None else self.mean

    def log_e(self, tolerance: float) -> float:
        """Return the evidence that the new side is worse.

        A better new side is not evidence to the contrary: it counts as if both were alike.
        """
        if self.evidence is not None:
            return self.evidence
        theta, errors = self.expected(tolerance), self.errors
        alike = theta * (errors + 1) - 0.5  # where the e-value is lowest
        return log_e(min(max(self.new.errors, alike), errors), errors, theta)

    def merged(self, other: Stratum, tolerance: float) -> Stratum:
        """Return one stratum for both.

        Evidence is added, and the expected share is the mean, weighted by errors.

        By the concavity of the logarithm that makes less of the errors, never more.
        """
        evidence, errors = (
            self.log_e(tolerance) + other.log_e(tolerance),
            self.errors + other.errors,
        )
        part = other.errors / errors if 0 < errors < math.inf else 0.0
        mean = (1 - part) * self.expected(tolerance) + part * other.expected(tolerance)
        return Stratum(self.name, self.new + other.new, self.stable + other.stable, evidence, mean)


def combined_log_e(strata: Sequence[Stratum], tolerance: float) -> float:
    """Return the evidence of all strata that the new side is worse.

    After the first stratum it is the mean of two bets: that the odds ratio π is the same in all
    strata, with the mixture as the first leaves it, and that each stratum has its own, so that a
    side which was better and becomes worse is found. The bet on a stratum is fixed before it
    begins, so alpha holds for all of them together.
    """
    if not strata:
        return 0.0
    first, *rest = strata
    common = _common_odds(strata, tolerance) - _common_odds([first], tolerance) if rest else 0.0
    separate = sum(stratum.log_e(tolerance) for stratum in rest)
    return first.log_e(tolerance) + log_mean((common, separate))


def _common_odds(strata: Iterable[Stratum], tolerance: float) -> float:
    """Return the evidence of strata that share one odds ratio π.

    It is the mean of their likelihood ratios over many π above 1.

    With an odds ratio π the new side has the share π θ₀ / (1 - θ₀ + π θ₀) of the errors. The mean
    is at most 1, no evidence, where the new side has no more than its expected share.
    """
    found = [0.0] * POINTS
    for stratum in strata:
        new, errors, theta = stratum.new.errors, stratum.errors, stratum.expected(tolerance)
        if 0 < theta < 1 and 0 < errors < FAR:
            found = [
                total + new * log_odds - errors * math.log1p(theta * excess)
                for total, log_odds, excess in zip(found, LOG_ODDS, EXCESSES, strict=True)
            ]
    return log_mean(found)


@dataclass(frozen=True)
class CountHistory:
    """All counts of an analysis, in strata."""

    strata: tuple[Stratum, ...] = ()

    def add(self, name: str, new: Counts, stable: Counts, tolerance: float = 1.0) -> CountHistory:
        """Return the history with counts added to the stratum of this name.

        Both counts are since the start of the analysis.
        """
        closed, last = self.strata, Stratum(name, Counts(), Counts())
        if closed and closed[-1].name == name:
            *most, last = closed
            closed = tuple(most)
        elif len(closed) >= STRATA:
            closed = _with_one_less(closed, tolerance)
        new = new.since(sum((stratum.new for stratum in closed), Counts()), last.new)
        stable = stable.since(sum((stratum.stable for stratum in closed), Counts()), last.stable)
        return CountHistory((*closed, Stratum(last.name, new, stable)))

    @property
    def total(self) -> Stratum:
        """All strata as one."""
        new = sum((stratum.new for stratum in self.strata), Counts())
        return Stratum("", new, sum((stratum.stable for stratum in self.strata), Counts()))

    def dump(self) -> list[dict[str, t.Any]]:
        """Return plain data, for the journal."""
        return [asdict(stratum) for stratum in self.strata]

    @classmethod
    def load(cls, data: Iterable[Mapping[str, t.Any]]) -> CountHistory:
        """Return the history that `dump` made the data of."""
        return cls(
            tuple(
                Stratum(
                    **{**item, "new": Counts(**item["new"]), "stable": Counts(**item["stable"])}
                )
                for item in data
            )
        )


def _with_one_less(strata: tuple[Stratum, ...], tolerance: float) -> tuple[Stratum, ...]:
    """Merge the two adjacent strata (after the first) with the closest expected share."""
    shares = [stratum.expected(tolerance) for stratum in strata]
    at = min(range(1, len(strata) - 1), key=lambda place: abs(shares[place] - shares[place + 1]))
    return (*strata[:at], strata[at].merged(strata[at + 1], tolerance), *strata[at + 2 :])


def compare_errors(
    history: CountHistory, alpha: float = ALPHA, tolerance: float = 1.0, detect: float = DETECT
) -> Verdict:
    """Judge whether the new side fails more than `tolerance` times as often.

    Where it does not (yet), the data is lacking until an error rate of `detect` (0 to 1) would have
    been seen about nine times in ten.
    """
    total, threshold = history.total, 1 / alpha
    text = f"errors {total.new} against {total.stable} on stable"
    if not 0 < total.share < 1:
        side = "stable" if total.new.requests else "the new revision"
        nothing = f"{text}; no requests to {side}, nothing to compare"
        return Verdict(False, nothing, threshold=threshold, data=Data.HOPELESS)
    evidence = combined_log_e(history.strata, tolerance)
    worse = evidence >= math.log(threshold)
    text += f"; e-value {shown(evidence)} {'>=' if worse else '<'} {threshold:g}"
    verdict = Verdict(worse, text, e_value(evidence), threshold)
    return verdict if worse else _with_missing(verdict, total, alpha, tolerance, detect)


def _with_missing(
    verdict: Verdict, total: Stratum, alpha: float, tolerance: float, detect: float
) -> Verdict:
    """Return the verdict with whether there is enough data to rely on it."""
    enough = _enough_requests(total, alpha, tolerance, detect)
    if enough is None:
        text = f"{verdict.sentence}; stable's error rate is too high to detect {detect:.3g}"
        return Verdict(False, text, verdict.e_value, verdict.threshold, Data.HOPELESS)
    missing = max(0, enough - math.floor(total.new.requests))
    if not missing:
        return verdict
    text = f"{verdict.sentence}; needs {missing:,} more requests"
    return Verdict(False, text, verdict.e_value, verdict.threshold, Data.LACKING, missing)


def _enough_requests(total: Stratum, alpha: float, tolerance: float, detect: float) -> int | None:
    """Return how many requests to the new side detect the rate `detect` nine times in ten.

    None: no number does.
    """
    theta, limit = tolerated(total.share, tolerance), math.log(1 / alpha)
    # errors on stable for each request to the new side
    on_stable = total.stable.errors / total.new.requests

    def detects(requests: int) -> bool:
        failed = requests * detect
        failed = max(0.0, failed - SPREAD * math.sqrt(failed * (1 - detect)))
        errors = failed + requests * on_stable
        return failed > theta * errors and log_e(failed, errors, theta) >= limit

    return first_true(detects)
