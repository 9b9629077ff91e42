# SPDX-License-Identifier: GPL-3.0-or-later
"""HAProxy with clients that stay on their side: a second backend, and a map with its share.

Every instance has a server in the service's backend. While requests are divided, those of one side
are out of rotation there, and in rotation in the second backend, which HAProxy's configuration uses
for the clients below the share. Whatever is missing of a change shows as a difference from the
targets, so that the next iteration of the rollout completes it.
"""

from __future__ import annotations

import re
import typing as t
from collections.abc import Mapping, Sequence

from ..base import clock
from ..base.errors import InputError, TrafficError
from ..base.text import clean
from ..engine.model import Rotation
from ..interfaces.context import DriverContext
from ..interfaces.platform import Endpoint
from ..interfaces.traffic import Server, Table, Target
from . import _cohorts as cohorts
from . import _haproxy_api as api
from ._haproxy_api import Row, View
from ._haproxy_plan import ServerPool, UpdatePlan
from .haproxy import Driver


class CohortView(list[Row]):
    """The servers of the service's backend, with those of the second one, and its share."""

    def __init__(self, rows: View, apart: View, share: int) -> None:
        super().__init__(rows)
        self.apart, self.share = apart, share


class CohortPlan(UpdatePlan):
    """The commands for both backends, and for the share between what adds and what takes away."""

    def __init__(
        self,
        pools: tuple[ServerPool, ServerPool],
        balancer: str,
        view: CohortView,
        targets: Mapping[Endpoint, Target],
        share_command: str,
    ) -> None:
        """Decide the commands; `share_command` sets the share that is added to it."""
        pool, second = pools
        rows = {row.endpoint: row for row in view.apart if row.endpoint and not second.free(row)}
        serving = [endpoint for endpoint, row in rows.items() if row.ready]
        chosen = cohorts.apart(targets, serving, rows)
        divided = cohorts.share(targets, chosen) > 0
        gone = {e for e in chosen if e not in rows or rows[e].maint}
        waits = _waiting(view, pool, gone) if divided else {}
        now = {
            endpoint: target._replace(rotation=Rotation.OUT) if endpoint in waits else target
            for endpoint, target in targets.items()
        }
        self.share = cohorts.share(now, chosen)
        away = {
            endpoint: target
            for endpoint, target in now.items()
            if endpoint in chosen and (self.share or target.rotation is Rotation.OUT)
        }
        main = {
            endpoint: target._replace(rotation=Rotation.OUT)
            if endpoint in away and not waits.get(endpoint)
            else target
            for endpoint, target in targets.items()
        }
        self._seconds = UpdatePlan(second, balancer, view.apart, away)
        super().__init__(pool, balancer, view, main)
        self.gains = [*self._seconds.gains, *self.gains]
        if self.share != view.share:
            self.gains.append(f"{share_command} {self.share}")
        self.losses = [*self._seconds.losses, *self.losses]

    @property
    def uses(self) -> dict[str, dict[str, str]]:
        return super().uses | self._seconds.uses

    def verify(self, view: View, texts: str) -> None:
        super().verify(view, texts)
        view = t.cast(CohortView, view)
        self._seconds.verify(view.apart, texts)
        if view.share != self.share:
            raise TrafficError(
                f"load balancer {self._balancer}: the share in rollout_traffic.cohort.map is"
                f" {view.share}, expected {self.share}: {clean(texts) or 'HAProxy accepted it'}",
                "PR-307",
            )


def _waiting(view: View, pool: ServerPool, missing: set[Endpoint]) -> dict[Endpoint, bool]:
    """Return the instances that are healthy, but not in the second backend yet, and whether they
    serve.

    A change that was interrupted leaves such instances. They go there before they get requests
    there; those that serve go on.
    """
    return {
        row.endpoint: row.ready
        for row in view
        if row.endpoint and row.endpoint in missing and not pool.free(row) and row.healthy
    }


class CohortDriver(Driver):
    """The servers of the two backends at a set of HAProxy processes."""

    adopts = False

    def __init__(self, options: Mapping[str, t.Any], context: DriverContext) -> None:
        super().__init__(options, context)
        self._map, self._second = options["cohort"]["map"], options["cohort"]["backend"]
        if self._second in (self.backend, self.preview):
            raise InputError(
                f"rollout_traffic.cohort.backend: {self._second!r} is used already; name a backend"
                " that has nothing else",
                "PR-126",
            )
        self._apart = self._pool_apart("cohort.backend", self._second)
        self._until: float | None = None  # when requests in flight have had their time

    def check(self) -> None:
        super().check()
        self._apart.check()

    def capacity(self) -> dict[str, int]:
        second = self._apart.capacity()
        return {name: min(number, second[name]) for name, number in super().capacity().items()}

    def conclude(self) -> None:
        """Remove what is left in the second backend; raises TrafficError while it has requests."""
        if self._until is None:
            self._until = clock.now() + self.drain_timeout
        table = self._apart.observe()
        undivided = [
            name
            for name, view in self._look(self.balancers).items()
            if isinstance(view, CohortView) and not view.share and table[name]
        ]
        if not undivided:
            return
        left = {
            server.name
            for servers in self._apart.apply({name: {} for name in undivided}).values()
            for server in servers.values()
            if server.ours
        }
        if left and clock.now() < self._until:
            raise TrafficError(
                f"backend {self._second}: {', '.join(sorted(left))}: requests in flight", "PR-307"
            )

    @property
    def _pools(self) -> list[str]:
        return [self.backend, self._second]

    @property
    def _looks(self) -> list[str]:
        return [self._line(self.backend), self._line(self._second), f"show map {self._map}"]

    def _parse(self, name: str, answers: Sequence[str]) -> View:
        main, second, shares = answers[-3:]
        return CohortView(
            self._view(name, self.option, self.backend, main),
            self._view(name, "cohort.backend", self._second, second),
            self._share(name, shares),
        )

    def _share(self, name: str, text: str) -> int:
        """Return the service's entry in the answer to `show map`."""
        service = re.escape(self.context.service)
        entry = re.search(rf"^0x[0-9a-f]+ {service} (\d{{1,5}})$", text, re.MULTILINE)
        if not entry:
            raise TrafficError(
                f"rollout_traffic.cohort.map: {self._map!r} at load balancer {name} has no entry"
                f" `{self.context.service} 0`, or HAProxy's configuration does not use it:"
                f" {clean(text) or 'it is empty'}",
                "PR-304",
            )
        return int(entry[1])

    def _plan(self, name: str, view: View, targets: Mapping[Endpoint, Target]) -> UpdatePlan:
        command = f"set map {self._map} {self.context.service}"
        pools, cohorts_view = (self.pool, self._apart.pool), t.cast(CohortView, view)
        return CohortPlan(pools, name, cohorts_view, targets, command)

    def _places(self, view: View) -> dict[str, str]:
        return super()._places(view) | self._apart._places(t.cast(CohortView, view).apart)

    def _table(self, views: Mapping[str, View]) -> Table:
        return {
            name: self._shown(view) for name, view in views.items() if isinstance(view, CohortView)
        }

    def _shown(self, view: CohortView) -> dict[Endpoint, Server]:
        """Return the entries of both backends as those of one, with the weights that count."""
        servers = dict(self.pool.servers(view))
        chosen = set()
        for endpoint, server in self._apart.pool.servers(view.apart).items():
            if server.rotation is Rotation.IN and not view.share:
                server = server._replace(rotation=Rotation.OUT)
            if endpoint in servers:
                main = servers[endpoint]
                if main.rotation is not Rotation.IN and server.rotation is Rotation.IN:
                    chosen.add(endpoint)
                servers[endpoint] = _merged(main, server)
            elif not _half_entered(server, view.apart):
                servers[endpoint] = server
        return servers | _weighed(servers, chosen, view.share)


def _merged(main: Server, server: Server) -> Server:
    """Return an instance's entries as one; its weight and its own check are where it serves."""
    stays = main.rotation is Rotation.IN
    healthy = main.lb_healthy and (stays or server.lb_healthy)
    return api.merge(main, server)._replace(weight=main.weight, lb_healthy=healthy)


def _half_entered(server: Server, rows: View) -> bool:
    """Return whether a server is ours, and waits without one in the service's backend.

    Left out of what is shown, it is brought in there, too.
    """
    (row,) = [row for row in rows if row.name == server.name]
    return server.ours and server.rotation is Rotation.OUT and not row.maint


def _weighed(
    servers: Mapping[Endpoint, Server], chosen: set[Endpoint], share: int
) -> dict[Endpoint, Server]:
    """Return the servers in rotation whose weights are not those of the share, with those."""
    serving = {e: server for e, server in servers.items() if server.rotation is Rotation.IN}
    others = serving.keys() - chosen
    shown = {e: Target(Rotation.IN, server.weight) for e, server in serving.items()}
    if not chosen or not others or cohorts.share(shown, chosen) == share:
        return {}
    each, other = cohorts.weights(share, len(chosen), len(others))
    weights = {endpoint: each if endpoint in chosen else other for endpoint in serving}
    return {
        endpoint: server._replace(
            weight=weights[endpoint], effective=weights[endpoint] if server.effective else 0
        )
        for endpoint, server in serving.items()
    }
