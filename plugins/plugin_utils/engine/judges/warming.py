# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the new side is still warming up: it was slower, and is less so from look to look. Pure.

Compilers and caches take minutes. So a verdict waits while the new side gets faster, for a bounded
number of looks.
"""

from __future__ import annotations

import math
import statistics
import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LOOKS = 10  # the last ones that are compared, half of them with the other half
SURE = 0.5  # standard deviations of the difference
LEAST = 0.01  # of the logarithm: less is no difference
FEW = 5  # looks: fewer do not tell
PATIENCE = 30  # looks that a verdict waits at most, unless told otherwise


@dataclass(frozen=True)
class Warming:
    """How many times as long the new side took as stable, in the last looks."""

    ratios: Sequence[float] = ()  # logarithms
    looks: int = 0  # with answers of both sides
    seen: bool = False  # whether it ever got faster

    def after(self, ratio: float) -> Warming:
        """Return it after one more look, in which the new side took `ratio` times as long."""
        warming = Warming((*self.ratios, round(math.log(ratio), 6))[-LOOKS:], self.looks + 1)
        return Warming(warming.ratios, warming.looks, self.seen or warming.falls)

    @property
    def falls(self) -> bool:
        """Whether the new side got faster in the last looks, by more than chance."""
        if len(self.ratios) < FEW:
            return False
        half = len(self.ratios) // 2
        fall = statistics.fmean(self.ratios[:half]) - statistics.fmean(self.ratios[-half:])
        steps = [
            (before - now) ** 2 for before, now in zip(self.ratios, self.ratios[1:], strict=False)
        ]
        return fall > max(LEAST, SURE * math.sqrt(statistics.fmean(steps) / half))

    def waits(self, patience: int) -> bool:
        """Whether a verdict waits; at most so many looks."""
        return (self.looks < FEW or self.falls) and self.looks < patience

    def __str__(self) -> str:
        if self.looks < FEW:
            return "too few looks to see whether it is warming up"
        first, last = (math.exp(log_ratio) for log_ratio in (self.ratios[0], self.ratios[-1]))
        return f"{first:.2g} falling to {last:.2g} times as slow: still warming up? See warm_up"

    def dump(self) -> dict[str, t.Any]:
        """Return plain data, for the journal."""
        return {"ratios": list(self.ratios), "looks": self.looks, "seen": self.seen}

    @classmethod
    def load(cls, data: Mapping[str, t.Any]) -> Warming:
        """Return what `dump` made the data of; an older version had none."""
        return cls(tuple(data.get("ratios", ())), data.get("looks", 0), data.get("seen", False))
