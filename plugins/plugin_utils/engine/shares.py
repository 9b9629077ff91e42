# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From the share of requests a waypoint asks for to the weights of instances. Pure, and as near as whole numbers come.

Capacity comes before traffic: a new instance never gets more than its part of the share, however few of them are there
yet; the old ones carry the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

EVEN = 100  # the weight of every instance where all are alike
MOST = 256  # the highest weight that every load balancer takes


@dataclass(frozen=True)
class Split:
    """How requests are divided between the instances of `generation` and all others."""

    generation: int
    share: int | None  # percent for the new ones, once all `new` are in rotation; None: all instances alike
    new: int

    def weights(self, new: int, old: int) -> tuple[int, int]:
        """The weight of each new and of each old instance, where so many of them are in rotation at one balancer."""
        if not self.share or not new or not old:
            return EVEN, EVEN
        each = Fraction(self.share, 100 * max(1, self.new))
        rest = (1 - min(each * new, Fraction(1))) / old
        ratio = (min(each, rest) / max(each, rest)).limit_denominator(MOST)
        low, high = (ratio.numerator, ratio.denominator) if ratio else (1, MOST)
        return (low, high) if each <= rest else (high, low)
