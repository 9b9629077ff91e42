# SPDX-License-Identifier: GPL-3.0-or-later
"""How many instances each of several targets gets, such as regions. Pure, and exact."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Target:
    """A part of the places that instances run at, which has its own share of them."""

    name: str
    hosts: frozenset[str]  # or the one cluster, whose nodes are CLUSTER/NODE
    factor: Fraction = Fraction(1)
    balancers: frozenset[str] = frozenset()  # that send requests to this target alone

    def has(self, host: str) -> bool:
        """Return whether a host, or a node of a cluster, belongs to this target."""
        return host in self.hosts or cluster_of(host) in self.hosts


def cluster_of(host: str) -> str:
    """Return the cluster of a node; empty for a host that is in none."""
    cluster, slash, _node = host.partition("/")
    return cluster if slash else ""


def share(count: int, targets: int, factor: Fraction) -> int:
    """Return how many of `count` instances a target has.

    As Picchu counts for its clusters: each has the same part, rounded up, times its factor. With
    factors of 1 all have together at most one less than there are targets more than `count`.
    """
    return math.ceil(math.ceil(Fraction(count, targets)) * factor)


def total(count: int, targets: Collection[Target]) -> int:
    """Return how many instances all targets have together."""
    return sum(share(count, len(targets), target.factor) for target in targets)


def counted(instances: int, targets: Collection[Target]) -> int:
    """Return a count for which the targets together have as many instances as there are, or the
    least more.
    """
    count = 0
    while total(count, targets) < instances:
        count += len(targets)  # all counts up to the next are rounded up to the same
    return min(count, instances) if total(instances, targets) >= instances else count


def shows(balancer: str, host: str, targets: Sequence[Target]) -> bool:
    """Return whether a load balancer sends requests to the instances of a host."""
    owner = owner_of(balancer, targets)
    return owner is None or owner.has(host)


def owner_of(balancer: str, targets: Sequence[Target]) -> Target | None:
    """Return the target that a load balancer belongs to; None: it sends requests to all."""
    return next((target for target in targets if balancer in target.balancers), None)
