# SPDX-License-Identifier: GPL-3.0-or-later
"""One instance on each host: where the next ones go, which go first, and which stay. Pure."""

from __future__ import annotations

import heapq
import typing as t
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from .instances import ids
from .model import Instance, State
from .strategy import Waypoint


def fitted(waypoint: Waypoint, places: int) -> Waypoint:
    """Return the waypoint for as many hosts as are in the rollout now."""
    beside = max(0, waypoint.new + waypoint.old - waypoint.desired)
    new = min(waypoint.new, places)
    old = min(waypoint.old, places, places - new + beside)
    return replace(waypoint, new=new, old=old, desired=min(waypoint.desired, places))


def free_hosts(
    hosts: Iterable[str], taken: Iterable[tuple[str, int]], generation: int, beside: bool
) -> tuple[list[str], list[str]]:
    """Return the hosts without any instance, and those with another generation's beside which a
    new one may start.

    `taken` are host and generation of each instance that has not ended. Where nothing may start
    `beside` others, since they have the same port, each host waits until its old instance is gone.
    """
    generations: dict[str, set[int]] = {}
    for host, number in taken:
        generations.setdefault(host, set()).add(number)
    names = list(hosts)
    empty = [host for host in names if host not in generations]
    if not beside:
        return empty, []
    return empty, [host for host in names if generation not in generations.get(host, {generation})]


@dataclass(frozen=True)
class HostFloor:
    """Each host keeps an available instance, but for as many hosts as may be without one."""

    zones: Mapping[str, str]  # by host; empty: there are none

    def ordered(self, fleet: Sequence[Instance], waypoint: Waypoint) -> list[Instance]:
        """Return the fleet, its old instances with the order in which they go: first where
        another one is ready, then zone by zone, so that the new ones spread over zones.
        """
        old = [i for i in fleet if i.generation != waypoint.generation and _stays(i)]
        ready = Counter(i.host for i in fleet if _stays(i) and i.state is State.READY)
        first = sorted((i for i in old if ready[i.host] > 1), key=_order)
        others = sorted((i for i in old if ready[i.host] < 2), key=_order)
        ranked = [*first, *self._by_zone(others)]
        precedence = {i.id: len(ranked) - rank for rank, i in enumerate(ranked)}
        return [replace(i, precedence=precedence[i.id]) if i.id in precedence else i for i in fleet]

    def _by_zone(self, instances: Sequence[Instance]) -> list[Instance]:
        """Return the instances, next always the one of a zone where fewest hosts are without."""
        queues: dict[str, deque[Instance]] = {}
        for instance in instances:
            queues.setdefault(self.zones.get(instance.host, ""), deque()).append(instance)
        hosts = Counter(self.zones.values())
        heap = [(hosts[zone] - len(queue), zone) for zone, queue in queues.items()]
        heapq.heapify(heap)
        chosen = []
        while heap:
            without, zone = heap[0]
            chosen.append(queues[zone].popleft())
            if queues[zone]:
                heapq.heapreplace(heap, (without + 1, zone))
            else:
                heapq.heappop(heap)
        return chosen

    def pinned(
        self,
        groups: Collection[Sequence[Instance]],
        least: int,
        key: Callable[[Instance], t.Any],
    ) -> frozenset[str]:
        """Return the available instances that stay, so that `least` hosts keep one.

        The instances of a group go in the order of `key`, and those of one group at a time.
        """
        hosts = Counter(i.host for group in groups for i in group)
        staying: set[str] = set()
        for group in groups:
            counts, spare = Counter(hosts), max(0, len(hosts) - least)
            for instance in sorted(group, key=key):
                if counts[instance.host] > 1:
                    counts[instance.host] -= 1
                elif spare:
                    spare -= 1
                else:
                    staying.update(ids([instance]))
        return frozenset(staying)


def _order(instance: Instance) -> tuple[int, float, str]:
    return instance.order


def _stays(instance: Instance) -> bool:
    return instance.state.counted and instance.draining_since is None
