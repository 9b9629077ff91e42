# SPDX-License-Identifier: GPL-3.0-or-later
"""From the traffic weight of a waypoint to the weights of instances. Pure, and as exact as whole
numbers are.

Capacity comes before traffic: a new instance never gets more than its part of the weight, however
few of them exist yet, or than it had at a lower weight, so that the share does not fall on the
way to a higher one; the old ones carry the rest. Where too few are in service for that, those
that get least get more until all get the same: so none gets more than an even part, or than it had.
On a rollback the old instances are those judged bad, and their weight only falls.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from .shares import Target
from .strategy import Waypoint

EVEN = 100  # the weight of every instance where all have the same
MOST = 256  # the highest weight that every load balancer accepts


@dataclass(frozen=True)
class WeightSplit:
    """How requests are divided between the new instances of a waypoint and all others."""

    waypoint: Waypoint

    def at(self, target: Target | None) -> WeightSplit:
        """Return how the requests of one target are divided; None: those of all."""
        parts = [part for owner, part in self.waypoint.parts if owner == target]
        return WeightSplit(parts[0]) if parts else self

    def is_new(self, generation: int) -> bool:
        """Whether an instance of a generation counts as new. On a rollback the baseline does,
        too.
        """
        point = self.waypoint
        return generation == point.generation or (
            point.headroom is not None and generation == point.baseline
        )

    @property
    def parts(self) -> tuple[Fraction, Fraction]:
        """The part of the requests for each new and each old instance, once all of the waypoint
        are in service.
        """
        point = self.waypoint
        share = Fraction(point.weight or 0, 100)
        even = Fraction(1, max(1, point.desired))
        each = share / max(1, point.carrying or point.new)
        return each, max(even, (1 - share) / point.old if point.old else even)

    def carried(self, new: int) -> Fraction:
        """Return the part of the requests that each of `new` instances keeps of a lower weight: all
        of them together what they had, and none more than that.
        """
        parts = (Fraction(weight, 100 * max(n, new)) for weight, n in self.waypoint.carried)
        return max(parts, default=Fraction(0))

    def weights(self, new: int, old: int, left: Fraction = Fraction(1)) -> tuple[int, int]:
        """Return the weight of each new and each old instance, with so many in rotation at a load
        balancer.

        `left` is the old instances' share of the requests there now, which does not grow on a
        rollback.
        """
        if not self.waypoint.weight or not new or not old:
            return EVEN, EVEN
        return _weights(self, new, old, left)

    def bad(self, stable: int, bad: int, left: Fraction) -> Fraction:
        """Return the share of bad instances: what stable ones cannot carry, at most an even one."""
        desired = max(1, self.waypoint.desired)
        carried = max(Fraction(1), self.waypoint.headroom or Fraction(1)) * stable / desired
        even = bad * max(Fraction(1, desired), Fraction(1, stable + bad))
        return max(Fraction(0), min(left, 1 - carried, even))


@lru_cache(maxsize=256)  # most iterations ask again
def _weights(split: WeightSplit, new: int, old: int, left: Fraction) -> tuple[int, int]:
    point = split.waypoint
    if point.headroom is not None:
        bad = split.bad(new, old, left)
        return _whole((1 - bad) / new, bad / old)
    new_part, old_part = split.parts
    # more than carry the weight do not raise it
    new_part = min(max(new_part, split.carried(new)), Fraction(point.weight or 0, 100) / new)
    if new_part * new + old_part * old < 1:
        return _whole(*_level(new_part, new, old_part, old))
    return _whole(new_part, (1 - min(new_part * new, Fraction(1))) / old)


def _level(new_part: Fraction, new: int, old_part: Fraction, old: int) -> tuple[Fraction, Fraction]:
    """Return the part of each new and each old instance where both together are too little: the
    lower is raised as far as the higher, then both.
    """
    even = Fraction(1, new + old)
    if new_part > even:
        return new_part, (1 - new_part * new) / old
    if old_part > even:
        return (1 - old_part * old) / new, old_part
    return even, even


def _whole(new: Fraction, old: Fraction) -> tuple[int, int]:
    """Return whole weights in the ratio of two parts."""
    ratio = (min(new, old) / max(new, old)).limit_denominator(MOST)
    low, high = (ratio.numerator, ratio.denominator) if ratio else (1, MOST)
    return (low, high) if new <= old else (high, low)
