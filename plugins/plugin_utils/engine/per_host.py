# SPDX-License-Identifier: GPL-3.0-or-later
"""One instance on each host: where the next ones go, and which go first. Pure."""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from .instances import is_available
from .model import Instance
from .progress import Rules
from .strategy import Waypoint


def fitted(waypoint: Waypoint, hosts: int) -> Waypoint:
    """Return the waypoint for as many hosts as are in the rollout now."""
    new, desired = min(waypoint.new, hosts), min(waypoint.desired, hosts)
    old = min(waypoint.old, hosts if _has_two_sets(waypoint) else hosts - new)
    return replace(waypoint, new=new, old=old, desired=desired)


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
class OnePerHost:
    """Each host has one instance: what counts is how many hosts have one."""

    zones: Mapping[str, str]  # by host; empty: there are none

    def marked(
        self, fleet: Sequence[Instance], waypoint: Waypoint, rules: Rules, now: float
    ) -> list[Instance]:
        """Return the fleet with its redundant instances marked, and with the order in which old
        ones are drained.
        """
        staying = [i for i in fleet if i.state.counted and i.draining_since is None]
        redundant = frozenset[str]()
        if not _has_two_sets(waypoint):
            redundant = _redundant(staying, waypoint, rules, now)
        old = [i for i in staying if i.generation != waypoint.generation]
        old.sort(key=lambda i: i.order)
        # Hosts that have a new one come first: the others keep what they have.
        replaced = {i.host for i in staying if i.generation == waypoint.generation}
        ordered = [
            *self._by_zone([i for i in old if i.host in replaced]),
            *self._by_zone([i for i in old if i.host not in replaced]),
        ]
        precedence = {i.id: len(ordered) - rank for rank, i in enumerate(ordered)}
        return [
            replace(i, precedence=precedence.get(i.id, i.precedence), redundant=i.id in redundant)
            for i in fleet
        ]

    def _by_zone(self, instances: Sequence[Instance]) -> list[Instance]:
        """Return the instances, next always the one of a zone where fewest hosts are without, so
        that the new ones spread over zones.
        """
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


def _has_two_sets(waypoint: Waypoint) -> bool:
    """Return whether a second set is to be beside the old one."""
    return waypoint.new_idle or waypoint.switches


def _redundant(
    staying: Iterable[Instance], waypoint: Waypoint, rules: Rules, now: float
) -> frozenset[str]:
    """Return the instances whose host has another one that is available: a new one if there is,
    then a stable one, which a rollback needs.
    """
    generation = waypoint.generation
    order = (generation, waypoint.stable)
    by_host: dict[str, list[Instance]] = {}
    for instance in staying:
        by_host.setdefault(instance.host, []).append(instance)
    redundant: set[str] = set()
    for instances in by_host.values():
        available = [i for i in instances if is_available(i, rules, now)] if instances[1:] else []
        if not available:
            continue
        stays = min(
            available, key=lambda i: ([i.generation != other for other in order], -i.created, i.id)
        )
        # What a new one that is not available yet will replace stays until then.
        redundant.update(
            i.id
            for i in instances
            if i is not stays and (i.generation != generation or stays.generation == generation)
        )
    return frozenset(redundant)
