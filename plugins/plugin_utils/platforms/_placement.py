# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the next instances go. Pure."""

from __future__ import annotations

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
        zones: Mapping[str, str],
        occupied: Mapping[str, Collection[int]],
    ) -> None:
        alike = [one for one in labels if one.generation == generation]
        self._addresses, self._ports, self._zones = addresses, ports, zones
        self._on_host = Counter(one.host for one in labels)
        self._alike_on_host = Counter(one.host for one in alike)
        self._alike_in_zone = Counter(zones.get(one.host, "") for one in alike)
        self._slots = {one.slot for one in labels}
        self._used = {
            address: {port for port in occupied.get(address, ()) if port in ports}
            for address in addresses.values()
        }
        for one in labels:
            if one.endpoint.address in self._used and one.endpoint.port in ports:
                self._used[one.endpoint.address].add(one.endpoint.port)
        self._latest = {
            address: max(used, default=ports[-1]) for address, used in self._used.items()
        }
        self._next_slot = 0

    def next(self) -> Place | None:
        """Take the next place; return None if every port is in use."""
        room = [
            host
            for host, address in self._addresses.items()
            if len(self._used[address]) < len(self._ports)
        ]
        if not room:
            return None
        host = min(room, key=self._load)  # the first of several
        self._on_host[host] += 1
        self._alike_on_host[host] += 1
        self._alike_in_zone[self._zones.get(host, "")] += 1
        address = self._addresses[host]
        return host, Endpoint(address, self._port(address)), self._slot()

    def _load(self, host: str) -> tuple[int, int, int]:
        zone = self._zones.get(host, "")
        return self._alike_in_zone[zone], self._alike_on_host[host], self._on_host[host]

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
) -> list[Place]:
    """Return where the next `count` instances go.

    That is the zone and then the host with the fewest instances, the lowest free slots, the next
    free port. Instances of the same generation count first, since all others are to go; of equal
    hosts the least loaded is next. Ports go round: the one after the highest in use comes next, so
    that a port just freed is not used again at once. `occupied`: by address, ports that others
    have.
    """
    own = {host: addresses[host] for host in hosts}
    used = Taken(own, ports, taken, generation, zones or {}, occupied or {})
    places = []
    for _dummy in range(count):
        found = used.next()
        if found is None:
            raise PlatformError(
                f"there is no room for {count} more instances beside {len(taken)}: {len(ports)}"
                f" ports (rollout_platform.ports, {ports[0]}-{ports[-1]}) at"
                f" {len(set(own.values()))} addresses; give more ports or more hosts",
                "PR-219",
            )
        places.append(found)
    return places
