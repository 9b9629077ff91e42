# SPDX-License-Identifier: GPL-3.0-or-later
"""The clients of the services: so many that each entry in rotation has a request at any moment, on
connections that are kept alive.

At each change of the world every request is answered, or a fault of the story is why not. Balancers
that retry send a refused request to another entry once. A connection to an entry that leaves the
rotation is closed after its request in flight.
"""

from __future__ import annotations

import typing as t

from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Rotation
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    Endpoint,
)

if t.TYPE_CHECKING:
    from .world import Balancer, Entry, Instance, World


class Clients:
    """The clients of all services."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._served: dict[tuple[str, str], list[Entry]] = {}  # by service and balancer

    def look(self) -> None:
        """Whatever has changed in the world, each request is still answered."""
        for service, pool in self._world.pools.items():
            for balancer in pool.values():
                self._look_at(service, balancer)

    def _look_at(self, service: str, balancer: Balancer) -> None:
        world, refused, answered = self._world, [], 0
        inside = {
            at: entry
            for at, entry in balancer.entries.items()
            if entry.rotation is Rotation.IN and entry.weight and entry.ours
        }
        for at, entry in inside.items():
            instance = world.at(at)
            if instance is None or instance.told is not None:
                refused.append(at)
            elif instance.labels.service != service:
                self._lost(balancer, at, f"{instance.labels.id} of {instance.labels.service}")
            elif instance.well(world.now) and world.reachable(instance):
                answered += 1
            elif not self._excused(entry, instance):
                self._lost(balancer, at, f"{instance.labels.id}, which is not ready")
        if len(refused) > (1 if world.retries and answered else 0):
            for at in refused:
                if not self._excused(inside[at], None):
                    self._lost(balancer, at, "nothing that runs")
        served = self._served.get((service, balancer.name), [])
        self._served[service, balancer.name] = list(inside.values())
        dropped = [] if inside else [entry for entry in served if self._would_serve(entry)]
        if world.is_unseen(balancer):
            return
        if dropped and not balancer.disordered and self._needed(service, balancer):
            world.broken(f"requests of {service} are lost at {balancer.name}: none is in rotation")

    def _needed(self, service: str, balancer: Balancer) -> bool:
        """Return whether an instance of a service has to be in rotation."""
        if service != "shop":  # a first deployment that fails leaves nothing
            needed = self._world.is_deployed(service)
        else:
            needed = self._world.floor_of(balancer) > 0
        return needed and not self._world.lost_unseen()

    def _lost(self, balancer: Balancer, at: Endpoint, to: str) -> None:
        if not balancer.entries[at].restored:
            self._world.broken(f"requests to {at} are lost at {balancer.name}: they go to {to}")

    def _would_serve(self, entry: Entry) -> bool:
        """Return whether the instance of an entry would still answer, and no fault is why not."""
        known = self._world.born.get(entry.name)
        if known is None or known.gone or known.told is not None:
            return False
        excluded = (self._world.recorded("rollout") or {}).get("excluded", ())
        left_out = entry.formerly and known.labels.host in excluded
        return not left_out and not self._excused(entry, None)

    def _excused(self, entry: Entry, instance: Instance | None) -> bool:
        """Return whether a fault is why the instance of an entry does not answer."""
        world, known = self._world, self._world.born.get(entry.name)
        if known is None or (instance is not None and instance is not known):
            return known is None
        if world.hosts[known.labels.host].away > world.now:
            return True
        return known.lost is not None and not world.noticed(known)
