# SPDX-License-Identifier: GPL-3.0-or-later
"""How often the new side fails while stable has no storm. Pure.

Storms of both sides may return. What the new side failed in one of them, or shortly before or after
since it may reach one side first, says nothing of how often it fails otherwise.
"""

from __future__ import annotations

import math
import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .counts import Counts

LAG = 2  # looks by which a storm reaches one side before the other, at most
BEFORE = 2 * LAG  # looks that a storm may have begun before: of one side and then of the other
PEAK = 3.0  # times as many errors as usual are a storm,
SURE = 3.0  # if they are as many standard deviations more as well


@dataclass(frozen=True)
class Calm:
    """The requests and errors while stable was calm, but for the last `LAG` looks."""

    new: Counts = field(default_factory=Counts)
    stable: Counts = field(default_factory=Counts)
    worst: float = 0.0  # the rate of stable in its worst look
    last: Sequence[tuple[Counts, Counts]] = ()  # looks at the new side and at stable

    def after(self, new: Counts, stable: Counts) -> Calm:
        """Return it after one more look."""
        last = (*self.last, (new, stable))[-2 * LAG - 1 :]
        worst = max(self.worst, stable.rate)
        if len(last) <= LAG or any(self._is_storm(look) for _new, look in last):
            return Calm(self.new, self.stable, worst, last)
        calm_new, calm_stable = last[-1 - LAG]
        return Calm(self.new + calm_new, self.stable + calm_stable, worst, last)

    @property
    def storm(self) -> bool:
        """Whether stable had a storm in the last look."""
        return bool(self.last) and self._is_storm(self.last[-1][1])

    def _is_storm(self, stable: Counts) -> bool:
        """Whether stable had far more errors in a look than usual."""
        return self.stable.requests > 0 and is_storm(stable, self.stable.rate)

    def dump(self) -> dict[str, t.Any]:
        """Return plain data, for the journal."""
        return {
            "new": _plain(self.new),
            "stable": _plain(self.stable),
            "worst": self.worst,
            "last": [[_plain(new), _plain(stable)] for new, stable in self.last],
        }

    @classmethod
    def load(cls, data: Mapping[str, t.Any]) -> Calm:
        """Return what `dump` made the data of."""
        last = tuple((Counts(*new), Counts(*stable)) for new, stable in data["last"])
        return cls(Counts(*data["new"]), Counts(*data["stable"]), data["worst"], last)


def is_storm(counts: Counts, usual: float) -> bool:
    """Whether these are far more errors than at the `usual` rate."""
    expected = usual * counts.requests
    return counts.errors > PEAK * expected + SURE * math.sqrt(expected) + SURE


def _plain(counts: Counts) -> list[float]:
    return [counts.requests, counts.errors]
