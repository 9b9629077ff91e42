# SPDX-License-Identifier: GPL-3.0-or-later
"""Which instances leave crowded hosts, so that others of the same generation start on emptier ones.
Pure.

Instances that leave count as old for `evaluate`, which replaces them like any other, within the
budget. They are chosen anew in every iteration, from what exists.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from .model import Instance, State
from .shares import Target
from .strategy import Waypoint
from .targets import split

LEAVING = -1  # the generation that instances which leave count as: older than any
# (target, count, gone) -> the hosts of the next `count` instances at a target
Place = Callable[[Target | None, int, Collection[str]], Sequence[str]]
Unevenness = tuple[int, int]  # of zones and of hosts


def instances_to_move(
    fleet: Sequence[Instance], waypoint: Waypoint, place: Place, zones: Mapping[str, str]
) -> frozenset[str]:
    """Return the ids of instances to move: the oldest of the most crowded host, as long as that
    evens out the spread. Each target of the waypoint keeps its own instances.

    `place` tells where the platform would start the next instances. `zones` has the hosts' zones,
    which are evened out before hosts are.
    """
    leaving: set[str] = set()
    for target, part, group in split(fleet, waypoint):
        spread = _Spread(group, part, partial(place, target), zones)
        while any(spread.improves(instance) for instance in spread.crowded()):
            pass
        leaving.update(spread.leaving)
    return frozenset(leaving)


def mark_leaving(fleet: Sequence[Instance], leaving: Collection[str]) -> list[Instance]:
    """Return the fleet with instances that leave as old ones."""
    return [replace(i, generation=LEAVING) if i.id in leaving else i for i in fleet]


class _Spread:
    """How a generation spreads over hosts, with the instances chosen so far gone and replaced."""

    def __init__(
        self,
        fleet: Sequence[Instance],
        waypoint: Waypoint,
        place: Callable[[int, Collection[str]], Sequence[str]],
        zones: Mapping[str, str],
    ) -> None:
        self.instances = [i for i in fleet if i.generation == waypoint.generation and _stays(i)]
        self.leaving: list[str] = []
        self._wanted, self._place, self._zones = waypoint.new, place, zones
        for _dummy in range(len(self.instances) - self._wanted):
            self.leaving.append(self.crowded()[0].id)
        self._best = self._unevenness(self.leaving)

    def improves(self, instance: Instance) -> bool:
        """Choose an instance to leave, if the spread is more even without it."""
        unevenness = self._unevenness([*self.leaving, instance.id])
        if unevenness is None or self._best is None or unevenness >= self._best:
            return False
        self.leaving.append(instance.id)
        self._best = unevenness
        return True

    def crowded(self) -> list[Instance]:
        """Return the oldest instance of each host, the most crowded host first."""
        left = sorted(
            (i for i in self.instances if i.id not in self.leaving), key=lambda i: i.order
        )
        hosts = Counter(i.host for i in left)
        zones = Counter(self._zone(i.host) for i in left)
        oldest = {i.host: i for i in reversed(left)}
        return sorted(
            oldest.values(), key=lambda i: (-zones[self._zone(i.host)], -hosts[i.host], i.order)
        )

    def _zone(self, host: str) -> str:
        return self._zones.get(host, "")

    def _unevenness(self, gone: Collection[str]) -> Unevenness | None:
        """Return the unevenness once these have left and were replaced; None if they cannot be.

        Sums of squares are least where counts are even, and fall with each move that evens them
        out.
        """
        hosts = [i.host for i in self.instances if i.id not in gone]
        missing = max(0, self._wanted - len(hosts))
        placed = self._place(missing, gone) if missing else ()
        if len(placed) != missing:
            return None
        return _squares(map(self._zone, [*hosts, *placed])), _squares([*hosts, *placed])


def _squares(names: Iterable[str]) -> int:
    return sum(count * count for count in Counter(names).values())


def _stays(instance: Instance) -> bool:
    return (
        instance.state.counted
        and instance.state is not State.UNREACHABLE
        and instance.draining_since is None
    )
