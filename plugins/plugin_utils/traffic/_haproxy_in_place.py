# SPDX-License-Identifier: GPL-3.0-or-later
"""The servers of HAProxy's configuration, of a service that is deployed in place: they are taken
out of rotation and put in, and nothing else about them is changed. Pure.

In `drain` HAProxy still sends a server the requests of clients that are bound to it by a cookie or
a stick table, and checks it. In `maint` no client is routed to it, and it is not checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..base.errors import TrafficError
from ..engine.model import Rotation
from ..interfaces.platform import Endpoint
from ..interfaces.traffic import Server, Target
from ._haproxy_api import Row, View
from ._haproxy_plan import Expected, ServerPool, UpdatePlan


class FixedPool(ServerPool):
    """The servers of one backend, none of which a rollout makes, removes or gives an address.

    A prepared one with that of a host is a server as any other.
    """

    def added(self, row: Row) -> bool:
        return False

    def servers(self, view: View) -> dict[Endpoint, Server]:
        open_ = {row.place for row in view if not row.maint}
        return {
            endpoint: server._replace(parked=endpoint not in open_)
            for endpoint, server in super().servers(view).items()
        }


class Turned(Expected):
    """How a server has to be after the commands, with whatever weight it has."""

    def met(self, row: Row | None, texts: str) -> bool:
        if row is None or self.target is None:
            return False
        if self.target.rotation is Rotation.IN:
            return row.ready
        return row.maint if self.target.parked else not row.ready and not row.maint

    def __str__(self) -> str:
        return "parked" if self.target and self.target.parked else super().__str__()


class TurnPlan(UpdatePlan):
    """The commands that take the servers of one balancer out of rotation, or put them in."""

    expects = Turned

    def _weigh(self, row: Row, target: Target) -> Iterator[str]:
        return iter(())

    def _drain(self, row: Row, target: Target) -> Iterator[str]:
        self._expect(row.name, row.endpoint, target)
        if target.parked and not row.maint:
            yield self._set(row.name, "state maint")
        elif not target.parked and (row.ready or row.maint):
            yield self._set(row.name, "state drain")
            if row.maint and row.checked:  # until its check passes, bound clients go elsewhere
                yield self._set(row.name, "health down")

    def _enter(self, view: View, missing: Mapping[Endpoint, Target]) -> Iterator[str]:
        for endpoint in missing:
            raise TrafficError(
                f"load balancer {self._balancer}: backend {self._pool.backend} has no server for"
                f" {endpoint}; add it to HAProxy's configuration",
                "PR-342",
            )
        return iter(())

    def _leave(self, row: Row) -> Iterator[str]:
        return iter(())
