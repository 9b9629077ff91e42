# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every driver is made with, besides its own options."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from ..base.errors import InputError
from ..engine.model import Deployment
from ..remote.transport import Transport
from .autoscaler import Managed
from .check import HealthCheck
from .platform import InstanceSettings, PlatformDriver
from .traffic import Cut, Served


def _no_platform(transport: Transport) -> PlatformDriver:
    raise InputError("rollout_platform: required; say where instances live", "PR-102")


@dataclass(frozen=True)
class AccessLog:
    """Where the load balancers log their requests."""

    file: str
    hosts: str | None = None  # inventory pattern; None: the controller


@dataclass
class Journal:
    """The journal of the service, which hosts remember: no run with another one acts on them."""

    id: str = ""  # random, and the same wherever the journal is moved to; empty: it has none yet
    place: str = ""  # where it is, for people

    def named(self) -> dict[str, str]:
        """Return what hosts are told; nothing as long as there is no journal."""
        return {"id": self.id, "place": self.place} if self.id else {}


@dataclass
class Context:
    """What every driver is made with, besides its own options."""

    service: str
    transport: Transport
    health: HealthCheck = field(default_factory=HealthCheck)
    # Makes the platform with connections of its own.
    platform: Callable[[Transport], PlatformDriver] = _no_platform
    # Of the lease; 0 while only observing. Hosts and balancers refuse commands of a lower epoch.
    epoch: int = 0
    journal: Journal = field(default_factory=Journal)
    # By instance, what the journal has of deployments in place.
    deployed: Mapping[str, Deployment] = field(default_factory=dict)
    # By unreachable host, what was last seen there; the journal keeps it from run to run.
    away: dict[str, list[dict[str, t.Any]]] = field(default_factory=dict)
    # By generation, what the journal has of its settings.
    settings: Mapping[int, InstanceSettings] = field(default_factory=dict)
    # By key, the secret part of these settings; in memory only.
    secrets: dict[str, Mapping[str, t.Any]] = field(default_factory=dict)
    # The autoscaler that the rollout manages; None: none, so that one would undo what it does.
    autoscaler: Managed | None = None
    # Wakes the reconcile loop; any thread may call it.
    wake: Callable[[], None] = lambda: None
    # What the load balancers count of each instance: errors, latency.
    counted: Collection[str] = ()
    # None: they log nothing that can be read.
    access_log: AccessLog | None = None
    # By instance, what the load balancers have counted during this run.
    served: Callable[[], Mapping[str, Served]] = dict
    # What they had counted when the share of the requests changed, of the last changes.
    cuts: Callable[[], Sequence[Cut]] = tuple
    # Of a platform of several parts, the name of the part that the driver is.
    part: str = ""
