# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which instances leave crowded hosts, so that others of the same generation are started on emptier ones. Pure.

Those that leave count as old ones for `evaluate`, which moves them as it replaces any other, within the budget. Which they
are is decided anew in every turn, from what is there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Instance, State
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import Waypoint

LEAVING = -1  # the generation that those which leave count as: older than any
Place = Callable[[int, Collection[str]], Sequence[str]]  # the hosts of the next so many instances, once these have left


def instances_to_move(fleet: Sequence[Instance], waypoint: Waypoint, place: Place, zones: Mapping[str, str]) -> frozenset[str]:
    """The ids of those that leave: the oldest of the most crowded host first, as long as the spread is more even without them.

    `place` says where the platform would start the next ones; an instance that would be replaced on a host as full stays.
    `zones` has the hosts' zones, which are evened out before hosts are.
    """
    there = [i for i in fleet if i.generation == waypoint.generation and _stays(i)]
    leaving: list[str] = []

    def crowded() -> list[Instance]:
        """The oldest of each host, the most crowded first."""
        left = sorted((i for i in there if i.id not in leaving), key=lambda i: i.order)
        hosts = Counter(i.host for i in left)
        near = Counter(zones.get(i.host, "") for i in left)
        oldest = {i.host: i for i in reversed(left)}
        return sorted(oldest.values(), key=lambda i: (-near[zones.get(i.host, "")], -hosts[i.host], i.order))

    def spread(gone: Collection[str]) -> tuple[int, int] | None:
        """How uneven it is once these have left and were replaced; None where they cannot be."""
        kept = [i.host for i in there if i.id not in gone]
        missing = max(0, waypoint.new - len(kept))
        placed = place(missing, gone) if missing else ()
        return _unevenness([*kept, *placed], zones) if len(placed) == missing else None

    for _dummy in range(len(there) - waypoint.new):
        leaving.append(crowded()[0].id)
    best = spread(leaving)
    while best is not None:
        for instance in crowded():
            found = spread([*leaving, instance.id])
            if found is not None and found < best:
                best = found
                leaving.append(instance.id)
                break
        else:
            break
    return frozenset(leaving)


def mark_leaving(fleet: Sequence[Instance], leaving: Collection[str]) -> list[Instance]:
    """The fleet with those that leave as old ones."""
    return [replace(i, generation=LEAVING) if i.id in leaving else i for i in fleet]


def _stays(instance: Instance) -> bool:
    return instance.state.counted and instance.state is not State.UNREACHABLE and instance.draining_since is None


def _unevenness(hosts: Iterable[str], zones: Mapping[str, str]) -> tuple[int, int]:
    """Sums of squares over zones and over hosts: least where they are even, and less with each move that evens them out."""
    there = Counter(hosts)
    near: Counter[str] = Counter()
    for host, count in there.items():
        near[zones.get(host, "")] += count
    return sum(n * n for n in near.values()), sum(n * n for n in there.values())
