# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether new instances fail only since they are cold. Pure.

Caches and connections that are still cold make requests fail at first. That is no fault of the
revision if it passes. So the errors beyond those of stable are compared with what fades since each
instance began, at the slowest rate that is usual, and with what stays: by the likelihood of Poisson
counts, where a part of the errors, from none to all, stays. Where all instances began long before,
nothing fades any more.
"""

from __future__ import annotations

import math
import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from .counts import Counts

STAYS = 1.1  # logarithm of how much likelier it is that errors stay: enough for a verdict
FADES = 2.0  # of how much likelier it is that they fade: they do (two standard deviations)
PARTS = [part / 8 for part in range(9)]  # of the errors, which stay
BETS = [0.0, *[0.5 / 7] * 7, 0.5]  # on each of these parts: half of the stake on that all stay
OLD = 40  # looks; instances that began longer ago are counted together
INSTANCES = 200  # whose age is kept
WARM = 3.0  # times the slowest rate; instances that began longer ago have no errors that fade
COLD = 0.2  # of what fades, is left: it may still do so
LEAST = 1e-9  # errors, so that their logarithm is finite


@dataclass(frozen=True)
class WarmUpLimit:
    """How long a verdict waits for new instances to warm up, and for trouble of one to end."""

    tau: float = 0.0  # looks in which errors fade to 1/e, at the slowest; 0: it does not wait
    plain: bool = False  # only where it is plain that errors fade
    alone: int = 0  # looks that what one of several new instances shows has to last


@dataclass(frozen=True)
class Fading:
    """How often new instances fail by the looks since each began."""

    by_age: Sequence[Counts] = ()
    ages: Mapping[str, int] = field(default_factory=dict)  # of each new instance
    stable: Counts = field(default_factory=Counts)
    dispersion: float = 1.0  # how many errors have one cause
    tau: float = 0.0
    left: float = 0.0  # of what fades, in the last look

    def after(
        self,
        new: Mapping[str, Counts],
        stable: Counts,
        dispersion: float,
        patience: WarmUpLimit,
        looks: int = 1,
        known: Mapping[str, int] | None = None,
    ) -> Fading:
        """Return it after one more look, or so many together.

        `known`: for how many looks instances had requests before, where that is known. That may be
        more than were taken here, where nothing was measured for a while.
        """
        if not patience.tau:
            return self
        known = known or {}
        ages = {
            name: min(max(age + looks, known.get(name, 0)), OLD) for name, age in self.ages.items()
        }
        for name, counts in new.items():
            if counts.requests and len(ages) < INSTANCES:
                ages.setdefault(name, min(known.get(name, 0), OLD))
        by_age, cold, requests = list(self.by_age), 0.0, 0.0
        for name, counts in new.items():
            age = ages.get(name, OLD)
            by_age += [Counts()] * (age + 1 - len(by_age))
            by_age[age] += counts
            requests += counts.requests
            cold += counts.requests * math.exp(-age / patience.tau)
        left = cold / requests if requests else self.left
        return Fading(by_age, ages, self.stable + stable, dispersion, patience.tau, left)

    @cached_property
    def _likelihoods(self) -> list[float]:
        """The logarithm of how likely the errors are, for each of `PARTS`."""
        total, cold = sum(self.by_age, Counts()), self._cold
        more = total.errors - self.stable.rate * total.requests
        if more <= 0 or not cold:
            return [0.0] * len(PARTS)
        stays, fades = more / total.requests, more / cold
        failed = [(age, counts) for age, counts in enumerate(self.by_age) if counts.errors]
        return [
            sum(
                counts.errors
                * math.log(
                    LEAST
                    + self.stable.rate
                    + part * stays
                    + (1 - part) * fades * math.exp(-age / self.tau)
                )
                for age, counts in failed
            )
            / self.dispersion
            for part in PARTS
        ]

    @property
    def _cold(self) -> float:
        """The requests to new instances, each as far as its instance was cold."""
        return sum(
            counts.requests * math.exp(-age / self.tau) for age, counts in enumerate(self.by_age)
        )

    @property
    def warm(self) -> float:
        """The requests to new instances, each as far as its instance was warm."""
        return sum(self.by_age, Counts()).requests - self._cold

    @property
    def stays(self) -> float:
        """How much likelier it is that some of the errors stay than that all fade: logarithm.

        By bets on how many, since which part is likeliest is known only afterwards.
        """
        most = max(self._likelihoods)
        won = sum(
            bet * math.exp(likelihood - most)
            for bet, likelihood in zip(BETS, self._likelihoods, strict=True)
        )
        return most + math.log(won) - self._likelihoods[0]

    @property
    def fades(self) -> bool:
        """Whether it is plain that some of the errors fade."""
        return not self.is_warm and max(self._likelihoods) - self._likelihoods[-1] >= FADES

    @property
    def is_warm(self) -> bool:
        """Whether all instances were warm when the first look at them began."""
        first = next((age for age, counts in enumerate(self.by_age) if counts.requests), 0)
        return first >= min(WARM * self.tau, OLD) > 0

    @property
    def is_cold(self) -> bool:
        """Whether new instances began so shortly before that errors may still fade."""
        return self.left > COLD

    def waits(self, patience: WarmUpLimit) -> bool:
        """Whether a verdict waits until it is known that errors stay."""
        waits = patience.tau > 0 and not patience.plain and not self.is_warm
        return waits and self.stays < STAYS

    def limited(self, evidence: float) -> float:
        """Return the evidence; where errors fade, no more than there is that some stay."""
        return min(evidence, self.stays) if self.fades else evidence

    def dump(self) -> dict[str, t.Any]:
        """Return plain data, for the journal."""
        return {
            "by_age": [[counts.requests, counts.errors] for counts in self.by_age],
            "ages": dict(self.ages),
            "stable": [self.stable.requests, self.stable.errors],
            "dispersion": self.dispersion,
            "tau": self.tau,
            "left": self.left,
        }

    @classmethod
    def load(cls, data: Mapping[str, t.Any]) -> Fading:
        """Return what `dump` made the data of; an older version had none, or others."""
        if "by_age" not in data:
            return cls()
        by_age = [Counts(*counts) for counts in data["by_age"]]
        return cls(**{**data, "by_age": by_age, "stable": Counts(*data["stable"])})

    def __str__(self) -> str:
        half = (len(self.by_age) + 1) // 2
        first, last = (sum(part, Counts()) for part in (self.by_age[:half], self.by_age[half:]))
        if last.rate >= first.rate or not last.requests:
            return "too few errors to see whether it is warming up"
        return f"{_percent(first)} falling to {_percent(last)}: still warming up?"


def _percent(counts: Counts) -> str:
    return f"{100 * counts.rate:.2g} %"
