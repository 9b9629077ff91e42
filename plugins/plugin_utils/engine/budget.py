# SPDX-License-Identifier: GPL-3.0-or-later
"""How many instances may be over and under the desired number. Pure, with exact arithmetic."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction


@dataclass(frozen=True)
class Percent:
    """A percentage of the desired number, 0 to 100, as an exact decimal."""

    value: Decimal

    def of(self, desired: int) -> Fraction:
        """Return the exact share, not rounded."""
        return Fraction(self.value) * desired / 100

    def __str__(self) -> str:
        return f"{self.value:f}%"


Amount = int | Percent


@dataclass(frozen=True)
class Bounds:
    """A number of replicas that follows how many instances run, within bounds.

    Without `least` there has to be an instance to follow.
    """

    least: int | None = None
    most: int | None = None  # None: as many as run

    def of(self, current: int) -> int | None:
        """Return how many to ask for where `current` run; None if there is nothing to follow."""
        if not current:
            # without a minimum, begin with what is enough for all requests
            return self.least or self.most
        return max(self.least or 1, min(current, self.most or current))

    def __str__(self) -> str:
        bounds = {"min": self.least, "max": self.most}
        known = ", ".join(f"{name}: {bound}" for name, bound in bounds.items() if bound is not None)
        return f"{{{known}}}" if known else "current"


@dataclass(frozen=True)
class PerHost:
    """One instance on each host."""

    def of(self, hosts: int) -> int:
        """Return how many instances that are."""
        return hosts

    def __str__(self) -> str:
        return "per_host"


@dataclass(frozen=True)
class ResolvedBudget:
    """A budget resolved for a desired number."""

    surge: int
    unavailable: int
    # how many new instances may start at once; None: as many as surge allows
    in_flight: int | None = None


@dataclass(frozen=True)
class Budget:
    """What the operator allows.

    `max_in_flight` is Cloud Foundry's form: that many extra, none unavailable, and at most that
    many starting at once (https://docs.cloudfoundry.org/devguide/deploy-apps/rolling-deploy.html).
    """

    max_surge: Amount = 1
    max_unavailable: Amount = 0
    max_in_flight: Amount | None = None
    max_unavailable_per_zone: int | None = None  # see `zones.py`

    def resolve(self, desired: int) -> ResolvedBudget:
        """Return the budget for so many replicas.

        Surge is rounded up and unavailable down. If both are 0 then, one may be unavailable, as in
        Kubernetes:
        https://kubernetes.io/docs/concepts/workloads/controllers/deployment/#rolling-update-deployment
        """
        if self.max_in_flight is not None:
            flight = max(1, up(self.max_in_flight, desired))
            return ResolvedBudget(flight, 0, flight)
        surge = up(self.max_surge, desired)
        unavailable = min(down(self.max_unavailable, desired), desired)
        return ResolvedBudget(surge, unavailable if surge or unavailable else 1)

    def without_surge(self) -> Budget:
        """Return the budget for instances that are deployed in place, where none are added."""
        return Budget(0, self.max_unavailable)


def whole(serving: int, weight: int, every: int) -> int:
    """Scale a number that a part of the weights has (`weight` of `every`) to the number that all
    of them have.
    """
    return -(-serving * every // weight) if 0 < weight < every else serving


def up(amount: Amount, desired: int) -> int:
    """Return an amount as a whole number, rounded up."""
    return amount if isinstance(amount, int) else math.ceil(amount.of(desired))


def down(amount: Amount, desired: int) -> int:
    """Return an amount as a whole number, rounded down."""
    return amount if isinstance(amount, int) else math.floor(amount.of(desired))
