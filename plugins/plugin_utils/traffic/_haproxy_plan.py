# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands that bring HAProxy's servers to their targets, and what is expected then. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from ..base.errors import TrafficError
from ..base.text import clean
from ..engine.model import Rotation
from ..interfaces.platform import Endpoint
from ..interfaces.traffic import Server, Target
from ._haproxy_api import ATTACHED, SUCCESS, Row, View, merge

# By service, the prepared servers that it uses, each with where it leads to; None: an earlier
# version kept none.
Marks = Mapping[str, Mapping[str, str] | None]

FIRST_ID = 1_000_000  # of servers added here; HAProxy numbers those of its configuration from 1


def owned(rows: View, marks: Marks, service: str) -> View:
    """Return the servers with the service that uses each, if it is a prepared one, by the marks.

    A mark holds as long as the server leads to the same place. What no mark has, a late command
    may have left: it is that of the only service that uses servers of the backend.
    """
    if not marks:
        return rows
    used = {(row.name, str(row.endpoint)) for row in rows if row.active or not row.maint}
    users = {
        user: servers or {}
        for user, servers in marks.items()
        if user == service or servers is None or used & set(servers.items())
    }
    return [replace(row, owner=_owner(row, users, service)) for row in rows]


def _owner(row: Row, users: Mapping[str, Mapping[str, str]], service: str) -> str:
    """Return which service uses a prepared server, "" if that cannot be told."""
    at = str(row.endpoint)
    named = [user for user, servers in users.items() if servers.get(row.name) == at]
    if named:
        return service if service in named else named[0]
    return next(iter(users)) if len(users) == 1 else ""


@dataclass
class ServerPool:
    """The servers of one backend, and which of them the driver manages."""

    backend: str
    service: str
    slots: str  # how the names of prepared servers begin; empty: servers are added
    server_options: str  # of servers that are added
    adopted: set[Endpoint] = field(default_factory=set)  # once among the targets: may be parked
    # names of servers of the configuration that the service has adopted
    by_hand: Collection[str] = ()

    def added(self, row: Row) -> bool:
        """Return whether the driver added it, for `shop` and not for `shop-api`."""
        return row.id >= FIRST_ID and self.service_of(row) == self.service

    def service_of(self, row: Row) -> str:
        """Return whose rollout added it, put it to use or adopted it, "" if none did, as far as is
        known.
        """
        if self.is_by_hand(row):
            return self.service
        if row.id >= FIRST_ID:
            return row.name.rpartition("-")[0]
        return (row.owner or "") if self.slot(row) else ""

    def ours(self, row: Row) -> bool:
        """Return whether it is the service's own: added, adopted, or prepared and put to use.

        Where there are no marks at all, an earlier version may have put it to use.
        """
        mine = self.slot(row) and row.owner in (self.service, None)
        return self.added(row) or self.is_by_hand(row) or mine

    def is_by_hand(self, row: Row) -> bool:
        """Return whether the configuration has it, and the service adopted it."""
        return row.name in self.by_hand and row.id < FIRST_ID

    def slot(self, row: Row) -> bool:
        return bool(self.slots) and row.name.startswith(self.slots)

    def free(self, row: Row) -> bool:
        return self.slot(row) and row.maint and not row.active

    def parked(self, row: Row) -> bool:
        """Return whether it is a free slot, or was adopted and is out for good."""
        return self.free(row) or (self.is_by_hand(row) and row.maint and not row.active)

    def may_park(self, row: Row) -> bool:
        return self.ours(row) or row.endpoint in self.adopted

    def servers(self, view: View) -> dict[Endpoint, Server]:
        """Return every server that is not parked, by its place."""
        servers: dict[Endpoint, Server] = {}
        for row in view:
            if row.place and not self.parked(row):
                server = row.server(self.ours(row), self.service_of(row), self.slot(row))
                servers[row.place] = (
                    merge(servers[row.place], server) if row.place in servers else server
                )
        return servers

    def name(self, endpoint: Endpoint, target: Target) -> str:
        """Return the name of a server to add: a dash ends the service's name (`added`), and pods
        have more of them.
        """
        server = (target.name or str(endpoint)).removeprefix(f"{self.service}-")
        return f"{self.service}-{re.sub(r'[^A-Za-z0-9_.:]', '_', server)}"


@dataclass(frozen=True)
class Expected:
    """How a server has to be after the commands."""

    endpoint: Endpoint
    target: Target | None = None  # None: it leaves
    deleted: bool = False  # not only parked; later, while it has requests in flight

    def met(self, row: Row | None, texts: str) -> bool:
        if self.target is None:
            return row is None or (row.maint and (not self.deleted or ATTACHED in texts))
        if row is None or row.weight != self.target.weight:
            return False
        return row.ready if self.target.rotation is Rotation.IN else not row.ready and not row.maint

    def __str__(self) -> str:
        return (
            f"{self.target.rotation.value} with weight {self.target.weight}"
            if self.target
            else "to leave"
        )


class UpdatePlan:
    """The commands that bring one balancer to its targets; those that add capacity come first."""

    expects: type[Expected] = Expected

    def __init__(
        self, pool: ServerPool, balancer: str, view: View, targets: Mapping[Endpoint, Target]
    ) -> None:
        """Decide the commands; raise TrafficError for what cannot be done."""
        self._pool, self._balancer = pool, balancer
        self._expected: dict[str, Expected] = {}  # by the server's name
        used = [row for row in view if row.endpoint and not pool.parked(row)]
        # the prepared servers that are the service's from now on, with where each of them leads to
        self._uses = {
            row.name: str(row.endpoint)
            for row in used
            if pool.slot(row) and (pool.ours(row) or row.endpoint in targets)
        }
        wanted = [
            (row, targets[row.endpoint]) for row in used if row.endpoint and row.endpoint in targets
        ]
        known = {row.endpoint for row in used}
        missing = {
            endpoint: target for endpoint, target in targets.items() if endpoint not in known
        }
        self.gains = [
            *(
                command
                for row, target in wanted
                if target.rotation is Rotation.IN
                for command in self._admit(row, target)
            ),
            *self._enter(view, missing),
        ]
        self.losses = [
            *(
                command
                for row, target in wanted
                if target.rotation is Rotation.OUT
                for command in self._drain(row, target)
            ),
            *(
                command
                for row in used
                if row.endpoint not in targets
                for command in self._leave(row)
            ),
        ]

    @property
    def commands(self) -> list[str]:
        return [*self.gains, *self.losses]

    @property
    def uses(self) -> dict[str, dict[str, str]]:
        """By backend, the prepared servers that the service uses, as long as there are any."""
        return {self._pool.backend: self._uses} if self._pool.slots else {}

    def verify(self, view: View, texts: str) -> None:
        """Raise for the first server that is not as expected; `texts` are HAProxy's answers."""
        lines = [line for line in texts.splitlines() if line and not SUCCESS.search(line)]
        complaint = clean(" ".join(lines)) or "HAProxy accepted the change"
        rows = {row.name: row for row in view}
        for name, expected in self._expected.items():
            row = rows.get(name)
            if expected.met(row, texts):
                continue
            shown = f"is {row.status} with weight {row.weight}" if row else "is missing"
            raise TrafficError(
                f"load balancer {self._balancer}: server {name} ({expected.endpoint}) {shown},"
                f" expected {expected}: {complaint}",
                "PR-307",
            )

    def _expect(
        self,
        name: str,
        endpoint: Endpoint | None,
        target: Target | None = None,
        deleted: bool = False,
    ) -> None:
        if endpoint:
            self._expected[name] = self.expects(endpoint, target, deleted)

    def _set(self, name: str, what: str) -> str:
        return f"set server {self._pool.backend}/{name} {what}"

    def _weigh(self, row: Row, target: Target) -> Iterator[str]:
        if row.weight != target.weight:
            yield self._set(row.name, f"weight {target.weight}")

    def _admit(self, row: Row, target: Target) -> Iterator[str]:
        if not row.ready and not row.healthy:
            raise TrafficError(
                f"load balancer {self._balancer}: server {row.name} ({row.endpoint}) cannot be put"
                f" in rotation: {row.check or 'HAProxy has not checked it yet'} (status"
                f" {row.status})",
                "PR-308",
            )
        self._expect(row.name, row.endpoint, target)
        yield from self._weigh(row, target)
        if not row.ready:
            yield self._set(row.name, "state ready")

    def _drain(self, row: Row, target: Target) -> Iterator[str]:
        self._expect(row.name, row.endpoint, target)
        if row.ready or row.maint:
            yield self._set(row.name, "state drain")
        yield from self._weigh(row, target)  # kept for when it goes in

    def _enter(self, view: View, missing: Mapping[Endpoint, Target]) -> Iterator[str]:
        """Bring in endpoints in drain, where HAProxy checks them and sends no requests."""
        yield from self._return(view, missing)
        missing = {
            endpoint: target
            for endpoint, target in missing.items()
            if target.name not in self._pool.by_hand
        }
        free = [row for row in view if self._pool.free(row)]
        if self._pool.slots and len(free) < len(missing):
            raise TrafficError(
                f"rollout_traffic.slots: load balancer {self._balancer} has {len(free)} free"
                f" servers named {self._pool.slots}*, {len(missing)} are needed; prepare more in"
                " its configuration",
                "PR-303",
            )
        number = max([FIRST_ID, *(row.id for row in view)])
        for index, (endpoint, target) in enumerate(missing.items()):
            if target.rotation is Rotation.IN:
                raise TrafficError(
                    f"load balancer {self._balancer} has no server for {endpoint} yet: it cannot be"
                    " put in rotation before its check has passed",
                    "PR-308",
                )
            if self._pool.slots:
                name = free[index].name
                self._uses[name] = str(endpoint)
                yield self._set(name, f"addr {endpoint.address} port {endpoint.port}")
                yield self._set(name, f"weight {target.weight}")
            else:
                name = self._pool.name(endpoint, target)
                server = f"{self._pool.backend}/{name}"
                options = (
                    f"id {number + index + 1} weight {target.weight} {self._pool.server_options}"
                )
                yield f"add server {server} {endpoint} {options}"
                yield f"enable health {server}"
            yield self._set(name, "state drain")
            self._expect(name, endpoint, target)

    def _return(self, view: View, missing: Mapping[Endpoint, Target]) -> Iterator[str]:
        """Bring adopted servers back in drain, as `_enter`; their addresses stay."""
        parked = {(row.name, row.endpoint): row for row in view if self._pool.is_by_hand(row)}
        for endpoint, target in missing.items():
            if target.name not in self._pool.by_hand:
                continue
            row = parked.get((target.name, endpoint))
            if row is None:
                raise TrafficError(
                    f"rollout_adopt.servers: load balancer {self._balancer} has no server"
                    f" {target.name} at {endpoint} any more, which the service has adopted; put it"
                    " back into its configuration",
                    "PR-347",
                )
            yield from self._drain(row, target._replace(rotation=Rotation.OUT))

    def _leave(self, row: Row) -> Iterator[str]:
        """Take a server out and away.

        In maintenance even the requests of its cookie go elsewhere. Those in flight are finished;
        until then HAProxy refuses to delete it, and the next `apply` asks again.
        """
        if not self._pool.may_park(row):
            return
        self._expect(row.name, row.endpoint, deleted=self._pool.added(row))
        if not row.maint:
            yield self._set(row.name, "state maint")
        if self._pool.added(row):
            yield f"del server {self._pool.backend}/{row.name}"
