# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where instances live: the interface of a platform driver, and what it sees."""

from __future__ import annotations

import hashlib
import json
import typing as t
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Process


@dataclass(frozen=True, order=True)
class Endpoint:
    """Where an instance listens. Load balancers know instances by this, never by name."""

    address: str
    port: int

    def __str__(self) -> str:
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"


@dataclass(frozen=True)
class Labels:
    """What an instance carries with it, so that a later run finds it and knows what it is."""

    id: str
    service: str
    revision: str
    generation: int
    host: str
    endpoint: Endpoint
    slot: int


@dataclass(frozen=True)
class Report:
    """What a platform sees of one instance."""

    labels: Labels
    process: Process
    created: float = 0.0  # seconds since the epoch by `clock.now()`; get it from the age, since hosts' clocks differ
    detail: str = ""  # of a failed one: how it ended and its last log lines
    restarts: int = 0  # how often somebody else, as systemd, has started it again
    restarted: float | None = None  # when that was for the first time, as `created`


@dataclass(frozen=True)
class Machine:
    """What a host has: memory in bytes, what of it is available now, and how many CPUs; 0: not known."""

    memory: int
    available: int
    cpus: int


@dataclass(frozen=True)
class Limits:
    """What an instance may use at most: memory in bytes, and CPUs; 0: there is no limit."""

    memory: int = 0
    cpus: float = 0.0


@dataclass(frozen=True)
class InstanceSettings:
    """What the instances of a generation run with. The values of what is secret are on their hosts alone, in a file named `key`."""

    driver: str  # of the platform
    platform: Mapping[str, t.Any]  # those of its options that shape an instance
    health: Mapping[str, t.Any]
    secret: Mapping[str, list[str]] = field(default_factory=dict)  # names: of the option, and of what it has values for
    key: str = ""  # empty: nothing is secret


class Platform(t.Protocol):
    """Where instances live.

    One that starts instances with the settings of their generation (`Context.settings`) has an attribute `of_hosts`: the names of
    those of its options that are not among these, as they are of the hosts. It has methods `keep(key, content)` and `recall(key)`,
    which bring what is secret of them to the hosts and back.

    One that limits what an instance may use has a method `limits(kept)`, which returns the `Limits` of a generation with these settings,
    or the present ones without any, and an attribute `machines`: what `check` found, a `Machine` by host.

    One that spreads instances over zones before it spreads them over hosts has an attribute `zones`: the zone of each host.

    One whose instances the user's own tasks deploy where they are has an attribute `in_place`, true: nothing is started or
    stopped there, and what it does not see itself it reports from `Context.deployed`.
    """

    def hosts(self) -> Sequence[str]:
        """The hosts instances may be placed on, in inventory order."""

    def capacity(self) -> int:
        """How many instances fit on all hosts together."""

    def place(self, count: int, taken: Collection[Labels], generation: int) -> Sequence[tuple[str, Endpoint, int]]:
        """Where the next `count` instances of a generation go: host, endpoint and slot, that generation spread over the hosts.

        Fewer where a host that is to have one has not finished what it was told to do before.
        """

    def check(self) -> None:
        """Raise if the hosts cannot be reached or cannot run instances. Touches nothing."""

    def prepare(self, revision: str, generation: int | None = None) -> None:
        """Bring what instances of a revision need to every host, at the same time, or make sure that it is there; with the
        settings of a generation, where one is given that has its own.

        So that starting one later is quick, and what is missing is known before anything is touched. May be called again.
        Raises PlatformError with what is wrong on which host.
        """

    def sync(self, start: Sequence[Labels] = (), stop: Sequence[str] = (), forget: Sequence[str] = ()) -> Sequence[Report]:
        """Do the work given, then report every instance of the service; one command a host that has work.

        Hosts without any are reported from what was last seen there; with no work at all, every host is asked.
        `start` begins instances (one that exists already is left alone); `stop` asks instances, by id, to
        stop, and kills those that were asked `stop_timeout` ago (calling again is how it is driven);
        `forget` removes what is left of dead ones. A host that hangs keeps nobody waiting for long: instances on hosts that do
        not answer are reported UNREACHABLE, from what was last seen of them, and `Context.away` names the hosts.
        """


def key_of(content: Mapping[str, t.Any]) -> str:
    """What is secret of a generation's settings is kept by this key, which says whether it is what was kept, and nothing else:
    the content has a salt."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]
