# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the new side fails less from look to look since it started. Pure.

Caches and connections that are still cold make requests fail at first. That is no fault of the
revision if it passes, so a verdict waits while errors fade, for a bounded number of looks. Where
they did, what was before is no evidence.
"""

from __future__ import annotations

import math
import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from .counts import Counts

LOOKS = 10  # the last ones that are compared, half of them with the other half
FEW = 3  # looks: fewer never tell
TAU = 6.0  # looks in which errors fade to 1/e, at the slowest
UNLIKE = 1.0  # logarithm of how much likelier the errors are at a steady rate: they don't fade
WAITS = 0.5  # standard deviations fewer errors in the later half: a verdict waits
SEEN = 1.0  # so many: they fade
PLAIN = 2.0  # so many: they fade, and a steady rate looks like that but once in forty times
OVER = 5  # looks in a row in which they do not: the new side is warm


@dataclass(frozen=True)
class WarmUpLimit:
    """How long a verdict waits for the new side to warm up."""

    looks: int = 0  # at most
    young: int = 0  # at most, where there are too few errors to see whether they fade
    fall: float = WAITS  # from which it waits, in standard deviations


@dataclass(frozen=True)
class Fading:
    """How often the new side fails, in the last looks with requests to both sides."""

    # requests to the new side, its errors, and those that it would have as stable
    last: Sequence[tuple[float, float, float]] = ()
    looks: int = 0
    fall: float = 0.0  # how many fewer errors there are, in standard deviations
    seen: bool = False  # whether they ever faded
    known: bool = False  # whether it is known that they do not, or never will be
    steady: int = 0  # looks in a row in which they did not

    def after(
        self, new: Counts, stable: Counts, dispersion: float, patience: WarmUpLimit
    ) -> Fading:
        """Return it after one more look.

        `dispersion`: how many errors of stable have one cause.
        """
        if self._is_over(patience) or not (new.requests and stable.requests):
            return self
        look = (new.requests, new.errors, stable.rate * new.requests)
        last, looks = (*self.last, look)[-LOOKS:], self.looks + 1
        tells = looks >= FEW
        fall = _fall(last, dispersion) if tells else 0.0
        known = looks >= patience.young or (tells and _steadier(last) >= UNLIKE * dispersion)
        steady = self.steady + 1 if tells and fall <= WAITS else 0
        return Fading(
            last, looks, fall, self.seen or fall > max(SEEN, patience.fall), known, steady
        )

    def _is_over(self, patience: WarmUpLimit) -> bool:
        """Whether the new side is warm, or was waited for long enough."""
        return self.steady >= OVER or self.looks >= patience.looks

    def falls(self, patience: WarmUpLimit) -> bool:
        """Whether the new side fails less and less."""
        return self.fall > patience.fall and not self._is_over(patience)

    def waits(self, patience: WarmUpLimit) -> bool:
        """Whether a verdict waits."""
        return (self.fall > patience.fall or not self.known) and not self._is_over(patience)

    def dump(self) -> dict[str, t.Any]:
        """Return plain data, for the journal."""
        return {**asdict(self), "last": [list(look) for look in self.last]}

    @classmethod
    def load(cls, data: Mapping[str, t.Any]) -> Fading:
        """Return what `dump` made the data of; an older version had none."""
        last = tuple((look[0], look[1], look[2]) for look in data.get("last", ()))
        return cls(**{**data, "last": last})

    def __str__(self) -> str:
        if self.fall <= WAITS:
            return "too few errors to see whether it is warming up"
        early, late = _halves(self.last)
        return f"{_percent(early)} falling to {_percent(late)}: still warming up?"


def _halves(looks: Sequence[tuple[float, float, float]]) -> tuple[Counts, Counts]:
    """Return the requests to the new side and its errors in the first and in the last looks."""
    half = len(looks) // 2
    early, late = (
        sum((Counts(requests, errors) for requests, errors, _expected in part), Counts())
        for part in (looks[:half], looks[-half:])
    )
    return early, late


def _fall(looks: Sequence[tuple[float, float, float]], dispersion: float) -> float:
    """Return how many fewer requests fail in the last looks than in the first.

    In standard deviations.
    """
    half = len(looks) // 2
    early, late = _halves(looks)
    together = early + late
    if not together.errors:
        return 0.0
    as_stable, later = (sum(look[2] for look in part) for part in (looks[:half], looks[-half:]))
    less = (early.errors - as_stable) / early.requests - (late.errors - later) / late.requests
    fall = min(less, early.rate - late.rate)  # not where stable alone has a storm
    deviation = math.sqrt(dispersion * together.rate * (1 / early.requests + 1 / late.requests))
    return fall / deviation


def _steadier(looks: Sequence[tuple[float, float, float]]) -> float:
    """Return how much likelier a steady rate is than the slowest fade: the logarithm, by Poisson.

    Both have as many errors in all; the fade ends at the rate of stable.
    """
    requests, errors, as_stable = (sum(part) for part in zip(*looks, strict=True))
    if errors <= as_stable:
        return 0.0
    fades = [math.exp(-number / TAU) for number in range(len(looks))]
    more = sum(look[0] * left for look, left in zip(looks, fades, strict=True))
    first, last = (errors - as_stable) / more, as_stable / requests
    return sum(
        look[1] * math.log(errors / requests / (last + first * left))
        for look, left in zip(looks, fades, strict=True)
    )


def _percent(counts: Counts) -> str:
    return f"{100 * counts.rate:.2g} %"
