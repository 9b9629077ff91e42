# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts that an operator leaves out of a rollout: what goes from there, and how much room the
others need. Pure.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from .budget import Budget
from .instances import gets_requests, ids, is_serving
from .model import Instance, State


def leaving(fleet: Iterable[Instance], excluded: Container[str]) -> tuple[str, ...]:
    """Return the instances that go at once, since their hosts are left out."""
    return ids(
        i for i in fleet if i.host in excluded and i.state.counted and i.draining_since is None
    )


def ends_service(fleet: Iterable[Instance], excluded: Container[str]) -> bool:
    """Whether instances on hosts that are left out get requests, and no other instance serves at
    all load balancers. The check of a load balancer may fail for a moment.
    """
    staying = [i for i in fleet if i.in_rotation and i.draining_since is None]
    loses = any(
        i.host in excluded and (i.state is State.READY or gets_requests(i)) for i in staying
    )
    return loses and not any(is_serving(i) and i.host not in excluded for i in staying)


def most_at_once(replicas: int, kept: int, second_set: bool, budget: Budget) -> int:
    """Return for how many instances there has to be room.

    `kept` is how many old instances stay until the promotion, `second_set` whether all new ones
    are beside them.
    """
    desired = max(replicas, kept)
    sets = replicas + kept if second_set else 0
    return max(desired + budget.resolve(desired).surge, sets)
