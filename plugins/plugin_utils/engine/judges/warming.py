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
from dataclasses import asdict, dataclass, replace

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
    new: float | None = None  # time of the new side, while stable has none to compare it with
    stable: float | None = None  # and the other way round

    def after(self, new: float | None, stable: float | None) -> Warming:
        """Return it after one more look, with the times of the sides that had answers.

        The sides may have answers in turns: the time of each is kept until the other has one.
        """
        new = self.new if new is None else new
        stable = self.stable if stable is None else stable
        if new is None or stable is None:
            return replace(self, new=new, stable=stable)
        ratio = round(math.log(new / stable), 6)
        warming = Warming((*self.ratios, ratio)[-LOOKS:], self.looks + 1)
        return replace(warming, seen=self.seen or warming.falls)

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
        return {**asdict(self), "ratios": list(self.ratios)}

    @classmethod
    def load(cls, data: Mapping[str, t.Any]) -> Warming:
        """Return what `dump` made the data of; an older version had none."""
        return cls(**{**data, "ratios": tuple(data.get("ratios", ()))})
