# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Load balancers: the interface of a traffic driver, and what it shows."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping
from dataclasses import dataclass

from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Rotation
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import Endpoint


@dataclass(frozen=True)
class Target:
    """What one load balancer entry shall be."""

    rotation: Rotation  # IN, or OUT: known, health-checked, without new requests
    weight: int = 100
    name: str = ""  # the instance's id, for balancers that name their entries


@dataclass(frozen=True)
class Server:
    """What one load balancer says about one of its entries."""

    rotation: Rotation  # IN, OUT
    lb_healthy: bool  # the balancer's own check passes it (or it has no check)
    active: int  # requests in flight and queued
    weight: int = 100
    ours: bool = True  # made by us: we may remove it
    name: str = ""
    # Counters since the balancer began to count, which may begin again:
    requests: int = 0  # that it was sent
    errors: int = 0  # of these, that were answered with 5xx, or not at all
    answered: int = 0  # those that `mean` is of
    mean: float | None = (
        None  # seconds to the answer, over all of them or the last `WINDOW`; None: the balancer does not measure it
    )


WINDOW = 512  # requests that a `Server.mean` is of, at most  # requests that a `Server.mean` is of, at most

Table = Mapping[str, Mapping[Endpoint, Server]]  # by load balancer  # by load balancer


@dataclass(frozen=True)
class Served:
    """What an instance was sent by all load balancers while we looked; `answered` and `seconds` of answers whose time is measured."""

    revision: str
    generation: int
    host: str
    endpoint: Endpoint
    serving: bool = False  # whether it is in rotation at any of them
    requests: int = 0
    errors: int = 0
    answered: int = 0
    seconds: float = 0.0


class Traffic(t.Protocol):
    """A set of load balancers that are kept in the same state.

    One with a way to the new instances alone has a method `previewing`, one that copies requests to dark ones `mirroring`. Each returns
    another `Traffic`, of a pool of its own at the same load balancers, or None where its options do not ask for it.
    One whose load balancers have room for so many instances only has a method `capacity`, which returns how many, by load
    balancer, and touches nothing; one that is not in the answer has no limit.

    What changes something carries `Context.epoch`, and so does a look where it is not 0: whoever acts keeps the highest epoch
    seen, and refuses a lower one (LeaseLost), under a lock that is held as long as a command takes.
    """

    def check(self) -> None:
        """Raise if a balancer cannot be reached or lacks what we need. Touches nothing."""

    def observe(self) -> Table:
        """Every entry of the service, at every balancer."""

    def apply(self, targets: Mapping[str, Mapping[Endpoint, Target]]) -> Table:
        """Bring each balancer to its `targets` and return what each of them then shows.

        Per balancer, because one that was restarted has to prove its entries anew while the others go on. Entries
        of ours that are not among the targets are taken out of rotation and removed, as far as the balancer lets us
        in this call; entries that are not ours stay. A balancer without targets is not asked, and may be away. An entry put
        IN that the balancer's own check has not passed is refused. An update that a balancer refuses or does not show is an error.
        """
