# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many instances may be over and under the desired number. Pure, exact arithmetic, never floats."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction


@dataclass(frozen=True)
class Percent:
    """A share of the desired number, 0 to 100, as an exact decimal."""

    value: Decimal

    def of(self, desired: int) -> Fraction:
        """The exact share, not rounded."""
        return Fraction(self.value) * desired / 100

    def __str__(self) -> str:
        return f"{self.value:f}%"


Amount = int | Percent


@dataclass(frozen=True)
class Bounds:
    """A number of replicas that follows what there is, within bounds; `least` None: there has to be something to follow."""

    least: int | None = None
    most: int | None = None  # None: as many as there are

    def of(self, current: int) -> int | None:
        """How many to ask for, where there are so many; None where that cannot be said."""
        if not current:
            return self.least or self.most  # none to be kept at least: begin with what is enough for all requests
        return max(self.least or 1, min(current, self.most or current))

    def __str__(self) -> str:
        bounds = {"min": self.least, "max": self.most}
        known = ", ".join(f"{name}: {bound}" for name, bound in bounds.items() if bound is not None)
        return f"{{{known}}}" if known else "current"


@dataclass(frozen=True)
class ResolvedBudget:
    """A budget resolved for a desired number."""

    surge: int
    unavailable: int
    in_flight: int | None = None  # how many new ones may be on their way at once; None: as many as surge lets


@dataclass(frozen=True)
class Budget:
    """What the operator allows.

    `max_in_flight` is Cloud Foundry's way to say surge: that many extra, none unavailable,
    and no more than that many on their way at once.
    """

    max_surge: Amount = 1
    max_unavailable: Amount = 0
    max_in_flight: Amount | None = None

    def resolve(self, desired: int) -> ResolvedBudget:
        """Surge rounds up, unavailable rounds down; if both come to 0, one may be unavailable (Kubernetes' rule, E-03)."""
        if self.max_in_flight is not None:
            flight = max(1, up(self.max_in_flight, desired))
            return ResolvedBudget(flight, 0, flight)
        surge = up(self.max_surge, desired)
        unavailable = min(down(self.max_unavailable, desired), desired)
        return ResolvedBudget(surge, unavailable if surge or unavailable else 1)


def whole(serving: int, weight: int, every: int) -> int:
    """How many there are in all of what serves so many instances with its part of the weights of every one."""
    return -(-serving * every // weight) if 0 < weight < every else serving


def up(amount: Amount, desired: int) -> int:
    """An amount as a whole number, rounded up."""
    return amount if isinstance(amount, int) else math.ceil(amount.of(desired))


def down(amount: Amount, desired: int) -> int:
    """An amount as a whole number, rounded down."""
    return amount if isinstance(amount, int) else math.floor(amount.of(desired))
