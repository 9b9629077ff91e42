# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the platform itself fills the place of each instance that ends: which revision comes. Pure.

`evaluate` decides which instances go, as everywhere. As their number is fixed, it never creates any
there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from .model import Instance
from .strategy import Waypoint


def fitted(waypoint: Waypoint, places: int) -> Waypoint:
    """Return the waypoint for as many instances as there are places now.

    Without that, an instance too many would be stopped again and again, since another one follows
    it each time.
    """
    if not waypoint.old:
        return replace(waypoint, new=places, desired=places)
    new = min(waypoint.new, places)
    return replace(waypoint, new=new, old=places - new, desired=places)


def next_generation(fleet: Iterable[Instance], waypoint: Waypoint) -> int:
    """Return the generation of the instance that comes where one goes, or ends by itself.

    The stable one, unless new instances are missing: so what ends by itself while a canary waits
    does not make it bigger.
    """
    if not waypoint.old or not waypoint.repairs:
        return waypoint.generation
    new = sum(
        i.generation == waypoint.generation and i.state.counted and i.draining_since is None
        for i in fleet
    )
    return waypoint.generation if new < waypoint.new else waypoint.stable
