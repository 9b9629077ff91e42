# SPDX-License-Identifier: GPL-3.0-or-later
"""How many available instances each zone keeps. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from .model import Instance


@dataclass(frozen=True)
class ZoneFloor:
    """How many instances may be unavailable in each zone.

    An even spread gives each zone at least its share of the desired number, rounded down. A zone
    keeps as many available as that, less `unavailable`; one that has fewer loses none.
    """

    zones: Mapping[str, str]  # by host
    unavailable: int

    def slack(
        self, available: Iterable[Instance], desired: int, among: Collection[str] | None = None
    ) -> Counter[str]:
        """Return by zone how many of its available instances may go.

        `desired` are wanted on the hosts in `among`; None: on all.
        """
        names = {zone for host, zone in self.zones.items() if among is None or host in among}
        floor = max(0, desired // max(1, len(names)) - self.unavailable)
        counts = Counter(self.zones[i.host] for i in available if i.host in self.zones)
        return Counter({zone: max(0, counts[zone] - floor) for zone in names})

    def free(self, group: Iterable[Instance], slack: Mapping[str, int]) -> list[Instance]:
        """Return the instances of a group that may go, in their order: of each zone as many as its
        slack.
        """
        left, chosen = Counter(slack), []
        for instance in group:
            zone = self.zones.get(instance.host)
            if zone is not None:
                if not left[zone]:
                    continue
                left[zone] -= 1
            chosen.append(instance)
        return chosen
