# SPDX-License-Identifier: GPL-3.0-or-later
"""Servers that people wrote into the load balancers' configuration, before the first rollout, which
adopts them: no platform knows what they lead to, nobody stops it, and its own unit starts it again.
"""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence

from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Rotation
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    Endpoint,
    Labels,
)

if t.TYPE_CHECKING:
    from .world import Instance, World

REVISION, GENERATION = "1", 1  # that a first rollout gives them
PORT = 9000
AGAIN = 2.0  # seconds after which a unit starts its program again
DRAIN = 5.0  # seconds that requests have to finish


def names(count: int) -> list[str]:
    """Return the names of so many servers."""
    return [f"app{number}" for number in range(1, count + 1)]


def given(count: int) -> dict[str, t.Any]:
    """Return `rollout_adopt` for so many servers."""
    return {"revision": REVISION, "servers": names(count)}


def labels(count: int, addresses: Mapping[str, str]) -> list[Labels]:
    """Return what so many servers lead to, on hosts by their addresses."""
    hosts = list(addresses)
    return [
        Labels(name, "shop", REVISION, GENERATION, host, Endpoint(addresses[host], port), 0)
        for number, name in enumerate(names(count))
        for host, port in [(hosts[number % len(hosts)], PORT + number)]
    ]


class ByHand:
    """The servers that were made by hand, and the promises about them."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.servers: dict[str, Instance] = {}  # by name
        self._out: frozenset[str] = frozenset()  # for good, as last written
        self._at = 0.0  # when that was

    @property
    def out(self) -> frozenset[str]:
        """The servers that are out for good, as the journal has it."""
        return frozenset((self._world.recorded("adopted") or {}).get("out", ()))

    def used(self) -> Sequence[Instance]:
        """Return what counts as an instance of the service."""
        out = self.out if self.servers else frozenset()
        return [one for name, one in self.servers.items() if name not in out]

    def on(self, host: str) -> Sequence[Instance]:
        """Return what runs on a host."""
        return [one for one in self.servers.values() if one.labels.host == host]

    def written(self) -> None:
        """The record was written: what is out for good since then was drained before, by a look at
        the balancers after it was written last.
        """
        if self.servers:
            before, self._out = self._out, self.out
            since, self._at = self._at, self._world.now
            for name in sorted(self._out - before):
                self._world.check_stop(self.servers[name], DRAIN, since)

    def reboot(self, host: str, until: float) -> None:
        """A host reboots: its units start what runs there."""
        for one in self.on(host):
            one.lost, one.began = self._world.now, until
            one.recovered = until + one.life.start

    def wrong(self) -> str:
        """Return what is wrong with them after the last rollout, if anything is."""
        record = self._world.recorded
        adopted, stable = record("adopted"), record("stable")
        used = {one.labels.id for one in self.used()}
        kept = adopted and adopted["generation"] == stable["generation"]
        if adopted and used != (set(self.servers) if kept else set()):
            return f"of the adopted servers {sorted(used)} are used, and {stable} is stable"
        for balancer in self._world.balancers.values():
            inside = {e.name for e in balancer.entries.values() if e.rotation is Rotation.IN}
            if inside & self.servers.keys() != used:
                return f"{balancer.name} sends requests to {sorted(inside & self.servers.keys())}"
        return ""
