# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the next instances go. Pure."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import chain

from ..base.errors import PlatformError
from ..interfaces.platform import Endpoint, Labels

Place = tuple[str, Endpoint, int]  # host, endpoint, slot


class Taken:
    """What is in use: slots of the service, ports of addresses, and instances of hosts."""

    def __init__(
        self,
        addresses: Mapping[str, str],
        ports: range,
        labels: Collection[Labels],
        generation: int,
        *,
        zones: Mapping[str, str],
        occupied: Mapping[str, Collection[int]],
        slots: Collection[int],
    ) -> None:
        of_generation = [item for item in labels if item.generation == generation]
        self._addresses, self._ports, self._zones = addresses, ports, zones
        self._on_host = Counter(item.host for item in labels)
        self._generation_on_host = Counter(item.host for item in of_generation)
        self._generation_in_zone = Counter(self._zone(item.host) for item in of_generation)
        self._slots = {*slots, *(item.slot for item in labels)}
        self._used = {
            address: {port for port in occupied.get(address, ()) if port in ports}
            for address in addresses.values()
        }
        for item in labels:
            if item.endpoint.address in self._used and item.endpoint.port in ports:
                self._used[item.endpoint.address].add(item.endpoint.port)
        self._latest = {
            address: max(used, default=ports[-1]) for address, used in self._used.items()
        }
        self._next_slot = 0
        # Heaps, since looking at every host for each instance would make many hosts dear: of each
        # zone's hosts by their load, and of the zones by theirs and that of their first host.
        self._names = list(addresses)
        self._hosts: dict[str, list[tuple[int, int, int]]] = {}
        for number, host in enumerate(self._names):
            self._hosts.setdefault(self._zone(host), []).append(self._load(number))
        for hosts in self._hosts.values():
            heapq.heapify(hosts)
        self._first = [
            (self._generation_in_zone[zone], hosts[0], zone) for zone, hosts in self._hosts.items()
        ]
        heapq.heapify(self._first)

    def next(self) -> Place | None:
        """Take the next place; return None if every port is in use."""
        while self._first:
            zone = self._first[0][-1]
            number = self._hosts[zone][0][-1]
            host = self._names[number]
            address = self._addresses[host]
            if len(self._used[address]) == len(self._ports):
                heapq.heappop(self._hosts[zone])
                self._reorder(zone)
                continue
            self._on_host[host] += 1
            self._generation_on_host[host] += 1
            self._generation_in_zone[zone] += 1
            heapq.heapreplace(self._hosts[zone], self._load(number))
            self._reorder(zone)
            return host, Endpoint(address, self._port(address)), self._slot()
        return None

    def _reorder(self, zone: str) -> None:
        """Give the first zone, which has changed, its new position."""
        if hosts := self._hosts[zone]:
            heapq.heapreplace(self._first, (self._generation_in_zone[zone], hosts[0], zone))
        else:
            heapq.heappop(self._first)

    def _zone(self, host: str) -> str:
        return self._zones.get(host, "")

    def _load(self, number: int) -> tuple[int, int, int]:
        """Return what a host is compared by; the first of equal hosts comes first."""
        host = self._names[number]
        return self._generation_on_host[host], self._on_host[host], number

    def _port(self, address: str) -> int:
        following = range(self._latest[address] + 1, self._ports.stop)
        used = self._used[address]
        port = next(port for port in chain(following, self._ports) if port not in used)
        used.add(port)
        self._latest[address] = port
        return port

    def _slot(self) -> int:
        while self._next_slot in self._slots:
            self._next_slot += 1
        self._slots.add(self._next_slot)
        return self._next_slot


def place(
    hosts: Sequence[str],
    addresses: Mapping[str, str],
    ports: range,
    count: int,
    taken: Collection[Labels],
    generation: int,
    *,
    zones: Mapping[str, str] | None = None,
    occupied: Mapping[str, Collection[int]] | None = None,
    slots: Collection[int] = (),
) -> list[Place]:
    """Return where the next `count` instances go.

    That is the zone and then the host with the fewest instances, the lowest free slots, the next
    free port. Instances of the same generation count first, since all others are to go; of equal
    hosts the least loaded is next. Ports go round: the one after the highest in use comes next, so
    that a port just freed is not used again at once. `occupied`: by address, ports that others
    have; `slots`: those whose names others have.
    """
    usable = {host: addresses[host] for host in hosts}
    used = Taken(
        usable,
        ports,
        taken,
        generation,
        zones=zones or {},
        occupied=occupied or {},
        slots=slots,
    )
    places = []
    for _dummy in range(count):
        free = used.next()
        if free is None:
            raise PlatformError(
                f"there is no room for {count} more instances beside {len(taken)}: {len(ports)}"
                f" ports (rollout_platform.ports, {ports[0]}-{ports[-1]}) at"
                f" {len(set(usable.values()))} addresses; give more ports or more hosts",
                "PR-219",
            )
        places.append(free)
    return places
