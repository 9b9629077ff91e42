# SPDX-License-Identifier: GPL-3.0-or-later
"""The shares of the requests, of all that load balancers send them to. Pure.

Entries of a pool that lead to no instance of the service take a part of its requests, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from .model import Instance, State

NAMED = 4  # servers that a sentence names


@dataclass(frozen=True)
class Unmanaged:
    """What gets requests of a service beside its instances.

    Weights are summed over the load balancers, as those of instances are.
    """

    pool: str = ""  # for people: what they are servers of
    names: Sequence[str] = ()  # of the servers that no rollout manages, made by hand
    by_hand: int = 0  # their weight
    others: int = 0  # the weight of what rollouts left, or of another service's servers

    @property
    def weight(self) -> int:
        """The weight of all of it."""
        return self.by_hand + self.others

    def share(self, fleet: Iterable[Instance]) -> float:
        """Return the percentage of new requests that servers made by hand get."""
        whole = self.weight + sum(map(serving_weight, fleet))
        return round(100 * self.by_hand / whole, 1) if whole else 0.0

    def described(self, fleet: Iterable[Instance]) -> str:
        """Return in words what no rollout manages, and its share; "" if there is nothing."""
        if not self.names:
            return ""
        many = len(self.names)
        servers = f"{many} server{'' if many == 1 else 's'}"
        more = f" and {many - NAMED} more" if many > NAMED else ""
        return (
            f"{servers} of {self.pool or 'the load balancers'} that no rollout manages:"
            f" {', '.join(self.names[:NAMED])}{more}, {self.share(fleet):g} % of the requests"
        )

    def to_dict(self, fleet: Iterable[Instance]) -> dict[str, Any]:
        """Return what no rollout manages as plain data, empty if there is nothing."""
        if not self.names:
            return {}
        return {"pool": self.pool, "servers": list(self.names), "share": self.share(fleet)}


NOTHING = Unmanaged()


def serving_weight(instance: Instance) -> int:
    """Return the weight by which an instance gets new requests."""
    counts = instance.in_rotation and instance.state is not State.DRAINING
    return instance.weight if counts else 0


def shares(
    fleet: Sequence[Instance],
    unmanaged: Unmanaged = NOTHING,
    side: Callable[[Instance], str] = lambda instance: instance.revision,
) -> dict[str, float]:
    """Return the percentage of new requests of each revision (or other `side`), of the whole."""
    weights = {side(instance): 0 for instance in fleet}
    for instance in fleet:
        weights[side(instance)] += serving_weight(instance)
    whole = sum(weights.values()) + unmanaged.weight
    return {
        name: round(100 * weight / whole, 1) if whole else 0.0 for name, weight in weights.items()
    }
