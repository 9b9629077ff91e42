# SPDX-License-Identifier: GPL-3.0-or-later
"""What every driver is made with, besides its own options."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from ..base.errors import InputError
from ..base.text import clean
from ..engine.model import Deployment
from ..remote.transport import Transport
from .check import HealthCheck
from .platform import InstanceSettings, PlatformDriver
from .traffic import Cut, Served

if t.TYPE_CHECKING:
    from ..engine.release import Passage  # few rollouts are members of a release
    from .autoscaler import Managed


def _no_platform(transport: Transport) -> PlatformDriver:
    raise InputError("rollout_platform: required; say where instances live", "PR-102")


@dataclass(frozen=True)
class AccessLog:
    """Where the load balancers log their requests."""

    file: str
    hosts: str | None = None  # inventory pattern; None: the controller


@dataclass
class Journal:
    """The journal of the service, which hosts and load balancers remember: no run with another one
    acts on them.
    """

    id: str = ""  # random, and the same wherever the journal is moved to; empty: it has none yet
    place: str = ""  # where it is, for people

    def named(self) -> dict[str, str]:
        """Return what hosts are told; nothing as long as there is no journal."""
        return {"id": self.id, "place": self.place} if self.id else {}

    def refuse_others(self, owners: Mapping[str, t.Any], what: str, files: str) -> None:
        """Raise InputError where `what`, by host or load balancer, belongs to another journal than
        this; `files` have to be removed if that is lost.

        A journal that was lost is made anew in the same place. What cannot be read is no journal.
        """
        others: dict[str, list[str]] = {}
        for where, owner in owners.items():
            known, place = (
                owner.get(name) if isinstance(owner, Mapping) else None for name in ("id", "place")
            )
            if isinstance(place, str) and known != self.id and place != self.place:
                others.setdefault(clean(place), []).append(where)
        if others:
            shown = "; ".join(f"{', '.join(hosts)} to {place}" for place, hosts in others.items())
            raise InputError(
                f"rollout_store: this run's journal is {self.place}, but the service's {what}"
                f" belong to another one: {shown}; correct rollout_store. If that journal is lost,"
                f" remove {files} there",
                "PR-515",
            )


@dataclass(frozen=True)
class Known:
    """What a run knows of its service's journal at one moment."""

    # Of the lease; 0 while only observing. Hosts and balancers refuse commands of a lower epoch.
    epoch: int = 0
    journal: Journal = field(default_factory=Journal)
    # By instance, what the journal has of deployments in place.
    deployed: Mapping[str, Deployment] = field(default_factory=dict)
    # By host or cluster that did not answer, what was last seen there (`PlatformDriver.away`).
    away: Mapping[str, Sequence[Mapping[str, t.Any]]] = field(default_factory=dict)
    # By generation, what the journal has of its settings.
    settings: Mapping[int, InstanceSettings] = field(default_factory=dict)
    stable: int = 0  # the generation that is stable; 0: none is yet
    # Hosts that an operator has taken out of the rollout: nothing is asked of them.
    excluded: Collection[str] = ()

    @property
    def fencing(self) -> dict[str, t.Any]:
        """What a command carries, so that hosts refuse an older lease and another journal."""
        return {"epoch": self.epoch, "journal": self.journal.named()}

    @property
    def secret_keys(self) -> list[str]:
        """The keys of all secret settings that are still wanted."""
        return sorted({kept.key for kept in self.settings.values() if kept.key})


class RequestCounters(t.Protocol):
    """What the load balancers have counted during this run, at any moment; any thread may look."""

    @property
    def served(self) -> Mapping[str, Served]:
        """By instance, what they have counted."""

    @property
    def cuts(self) -> Sequence[Cut]:
        """What they had counted when the share of the requests changed, of the last changes."""


class NothingCounted:
    """The counters where no load balancer is observed."""

    served: Mapping[str, Served] = {}
    cuts: Sequence[Cut] = ()


@dataclass(frozen=True)
class DriverContext:
    """What every driver is made with, besides its own options."""

    service: str
    transport: Transport
    health: HealthCheck = field(default_factory=HealthCheck)
    # Makes another driver of the platform, over the given connections.
    platform: Callable[[Transport], PlatformDriver] = _no_platform
    # What is known now; to be asked for at each use, since the lease and the journal change.
    known: Callable[[], Known] = Known
    # By key, the secret part of generations' settings, for all drivers of a run; in memory only.
    secrets: dict[str, Mapping[str, t.Any]] = field(default_factory=dict)
    # The autoscaler that the rollout manages; None: none, so that one would undo what it does.
    autoscaler: Managed | None = None
    # Whether the user's own tasks deploy the instances where they are: load balancers have their
    # entries before.
    in_place: bool = False
    # Wakes the reconcile loop; any thread may call it.
    wake: Callable[[], None] = lambda: None
    # What the load balancers count of each instance: errors, latency.
    counted: Collection[str] = ()
    # None: they log nothing that can be read.
    access_log: AccessLog | None = None
    counters: RequestCounters = field(default_factory=NothingCounted)
    # Asks the release of the rollout whether it may pass a point, at a step; None: it has none.
    release: Callable[[str, str], Passage] | None = None
    # Of a platform of several parts, the name of the part that the driver is.
    part: str = ""

    def settings_of(self, generation: int) -> InstanceSettings | None:
        """Return the settings of a generation, of a part its own; None: the journal has none."""
        kept = self.known().settings.get(generation)
        return kept and kept.of_part(self.part)
