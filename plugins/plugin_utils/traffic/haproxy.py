# SPDX-License-Identifier: GPL-3.0-or-later
"""HAProxy, through its Runtime API: no reloads, and few lines of commands for the whole fleet.

An instance is added in maintenance, health-checked in drain, and made ready only when HAProxy
itself shows `DRAIN`: a server made ready at once is `UP 1/2` and gets requests before its first
check. Servers that the driver adds have an id of a million or more, which tells them from those of
the configuration. The API has no status codes, so what counts is the state read back; its texts
only say why.

What HAProxy asks instances is in its backend (`option httpchk`, `http-check expect`). How often, at
which port, and whether with TLS, a server that the driver adds is told; prepared ones (`slots`) are
compared.
"""

from __future__ import annotations

import csv
import os
import re
import typing as t
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from ..base.errors import InputError, LeaseLost, TrafficError
from ..base.text import clean
from ..engine.model import Rotation
from ..inputs import values
from ..inputs.options import PATH, TEXT, Field, Kind, Options, one_or_more
from ..inputs.placeholders import Template
from ..interfaces.check import HealthCheck
from ..interfaces.context import DriverContext
from ..interfaces.platform import Endpoint
from ..interfaces.traffic import COUNTS, Preview, Table, Target, TrafficDriver
from ..remote import inventory
from ..remote.connections import CONTROLLER
from . import _haproxy_api as api
from . import _options as shared
from ._haproxy_api import Row, View
from ._haproxy_plan import Marks, ServerPool, UpdatePlan, owned

if t.TYPE_CHECKING:
    from ._haproxy_neighbours import Neighbour

_NAME = re.compile(r"[A-Za-z0-9_.:-]+")


def _name(value: t.Any, variable: str) -> str:
    if not _NAME.fullmatch(str(value)):
        raise InputError(
            f"{variable}: {value!r} is not a name in HAProxy; use letters, digits and _ . : -",
            "PR-120",
        )
    return str(value)


def _socket(value: t.Any, variable: str) -> str:
    """Return a path, or host:port; [IPv6]:port, since IPv6:port is an address as well."""
    text = str(value).removeprefix("tcp://").removeprefix("unix://")
    if text.startswith("/"):
        return text
    host, _colon, port = text.rpartition(":")
    if not host or (":" in host and not (host.startswith("[") and host.endswith("]"))):
        raise InputError(
            f"{variable}: {value!r} is neither an absolute path nor host:port nor [IPv6]:port",
            "PR-122",
        )
    return f"{host}:{values.port(port, variable)}"


_WORD = Kind("str", _name)
_COHORT = Options(
    Field(
        "backend",
        _WORD,
        "Name of another backend, for the new instances of a rollout while requests are divided.",
        required=True,
    ),
    Field(
        "map",
        shared.PLAIN_PATH,
        "Map file of HAProxy's configuration, with an entry of the service's name: the part of the"
        " clients whose requests go to that backend, of 10,000.",
        required=True,
    ),
)


def _cohort(given: t.Any, variable: str) -> dict[str, t.Any]:
    return _COHORT.parse(values.mapping(given, variable), f"{variable}.")


OPTIONS = Options(
    Field(
        "hosts",
        TEXT,
        "Inventory pattern of the load balancer hosts. Without it, the sockets are reached from the"
        " controller.",
    ),
    Field(
        "socket",
        one_or_more(Kind("str", _socket)),
        "Socket of the Runtime API with C(level admin), a path or V(host:port), or a list of them."
        " V({host}) is the load balancer's name in the inventory.",
        default=["/run/haproxy/admin.sock"],
    ),
    Field("backend", _WORD, "Name of the backend.", required=True),
    Field(
        "preview",
        _WORD,
        "Name of another backend that contains only the new instances of a rollout, from the time"
        " they are ready until the rollout ends.",
    ),
    Field(
        "cohort",
        Kind("dict", _cohort, fields=_COHORT),
        "Clients stay on their side: a hash of what identifies a client decides whether the new or"
        " the old instances get its requests. HAProxy's configuration says what identifies a"
        " client, as in the guide to HAProxy.",
    ),
    shared.DRAIN_TIMEOUT,
    shared.ACCESS_LOG,
    Field(
        "slots",
        _WORD,
        "Name prefix of prepared servers. Without it, servers are added and deleted as needed.",
    ),
    Field(
        "ca_path",
        shared.PLAIN_PATH,
        "File with the CA certificates that the instances' certificates are verified against"
        " (O(health.tls)). HAProxy's configuration must name it as well, since HAProxy reads no"
        " files later. The system's CA certificates if not given.",
    ),
    Field(
        "state_file",
        TEXT,
        "File on the load balancer host to which the server state is saved after each change, for"
        " C(load-server-state-from-file). It needs C(hosts), and one socket on each. V({host}) is"
        " the load balancer's name in the inventory.",
    ),
    Field(
        "path",
        PATH,
        "Directory, created if missing, for the locks and epochs that keep a late command from an"
        " older run from changing anything. It is on C(hosts), or on the controller without"
        " C(hosts). It keeps two small files for each service and socket; those of a socket that is"
        " no longer used may be removed while no rollout of the service is running.",
        default="/var/lib/rollout",
    ),
)

SYSTEM_CA = "@system-ca"  # https://docs.haproxy.org/2.6/configuration.html#5.2-ca-file
UNSUPPORTED = {
    "mirror": (
        "HAProxy does not copy requests; use Envoy, or route some of them to"
        " rollout_traffic.preview"
    ),
    "sticky": (
        "HAProxy binds clients as your own backend says; for a cookie NAME that your service sets,"
        " write `stick-table type string len 64 size 100k expire 1h` and `stick on req.cook(NAME)`"
        " there"
    ),
    "match": (
        "HAProxy routes requests as your own frontend says; name a backend in"
        " rollout_traffic.preview, and write `use_backend PREVIEW if { req.hdr(NAME) -m str VALUE }"
        " { nbsrv(PREVIEW) gt 0 }` there, with req.cook(NAME) for a cookie"
    ),
}
_COMMANDS = 50  # a line; HAProxy's buffer is 16 kB
_TIMEOUT = 5.0  # seconds for a balancer to answer all that it is asked in one call
_LOCKED = 10.0  # seconds the agent may wait for another run's command to end
_NAMED = 10  # servers that are named


class Driver(TrafficDriver):
    """The servers of one backend at a set of HAProxy processes."""

    counts = (*COUNTS, "latency")
    adopts = True
    unsupported = UNSUPPORTED

    @classmethod
    def variant(cls, options: Mapping[str, t.Any]) -> type[TrafficDriver]:
        if not options["cohort"]:
            return cls
        from ._haproxy_cohort import CohortDriver  # few services have cohorts

        return CohortDriver

    def __init__(self, options: Mapping[str, t.Any], context: DriverContext) -> None:
        self.context, self.options = context, options
        self.drain_timeout = options["drain_timeout"]
        self.option = "backend"  # the option that names it, for messages
        self.backend, self.preview = options["backend"], options["preview"] or ""
        self.pool_name = f"backend {self.backend}"
        if self.preview == self.backend:
            raise InputError(
                f"rollout_traffic.preview: {self.preview!r} is the service's own backend; name"
                " another one, or remove it",
                "PR-126",
            )
        self.slots = options["slots"] or ""
        self.state_file = options["state_file"] or ""
        self.path = options["path"]
        self.balancers = self._balancers(options["hosts"], options["socket"])
        added = (
            "" if self.slots else server_options(context.health, options["ca_path"] or SYSTEM_CA)
        )
        self.fixed = self.binds = context.in_place
        self.pool = self._pool(added)
        # by balancer and backend, the marks of which service uses which prepared servers
        self._named_alike = False  # a frontend has the name of the backend
        self._marks: dict[str, Mapping[str, Marks]] = {}

    def _pool(self, server_options: str) -> ServerPool:
        """Return the pool; in place, options for which it is given servers are refused."""
        if not self.fixed:
            return ServerPool(self.backend, self.context.service, self.slots, server_options)
        for name in ("preview", "cohort"):
            if self.options[name]:
                raise InputError(
                    f"rollout_traffic.{name}: in place, the servers are those of HAProxy's"
                    " configuration, and a rollout adds none; remove it",
                    "PR-107",
                )
        from ._haproxy_in_place import FixedPool  # few services are deployed in place

        return FixedPool(self.backend, self.context.service, "", "")

    def _balancers(self, pattern: str | None, sockets: Sequence[str]) -> dict[str, tuple[str, str]]:
        """Return by balancer its host, and its socket there."""
        if self.state_file and (
            not pattern or len(sockets) > 1 or not self.state_file.startswith("/")
        ):
            raise InputError(
                f"rollout_traffic.state_file: {self.state_file!r} must be an absolute path on"
                " rollout_traffic.hosts with one socket each",
                "PR-123",
            )
        if not pattern:
            for address in sockets:
                if address.startswith("/"):
                    raise InputError(
                        f"rollout_traffic.socket: {address!r} is a path; name its hosts in"
                        " rollout_traffic.hosts",
                        "PR-102",
                    )
            return {address: (CONTROLLER, address) for address in sockets}
        names = inventory.hosts(self.context.transport, pattern, "rollout_traffic.hosts")
        self._state = Template(self.state_file, "rollout_traffic.state_file", ("host",))
        paths = [Template(address, "rollout_traffic.socket", ("host",)) for address in sockets]
        places = [(host, path.render({"host": host})) for host in names for path in paths]
        files: dict[tuple[str, str], str] = {}
        for host, address in places:
            other = files.setdefault((host, address.replace("/", "_")), address)
            if other != address:
                raise InputError(
                    f"rollout_traffic.socket: {other!r} and {address!r} on {host} would have the"
                    " same files in rollout_traffic.path; name one of the sockets differently",
                    "PR-126",
                )
        return {
            host if len(sockets) == 1 else f"{host} {address}": (host, address)
            for host, address in places
        }

    def _state_at(self, balancer: str) -> str:
        """Return the path of a load balancer's state file; "" without `state_file`."""
        host, _socket = self.balancers[balancer]
        return self._state.render({"host": host}) if self.state_file else ""

    def previews(self) -> Sequence[Preview]:
        """Return the backend `preview`, at the same balancers.

        It has no state file, which would replace the service's; the rollout itself restores these
        servers.
        """
        if not self.preview:
            return ()
        return [Preview(self._pool_apart("preview", self.preview))]

    def _pool_apart(self, option: str, backend: str) -> Driver:
        """Return a driver for another backend, which `option` names, at the same balancers."""
        none = dict.fromkeys(("preview", "cohort", "state_file"))
        driver = Driver({**self.options, **none, "backend": backend}, self.context)
        driver.option = option
        return driver

    def leave(self, dry: bool) -> Sequence[str]:
        from ..agents import haproxy as agent  # a service is removed once
        from ..remote import leaving

        pools = [pool for pool in (self.backend, self.preview) if pool]
        places: dict[str, list[leaving.LeftFiles]] = {}
        for host, address in self.balancers.values():
            stem = agent.stem(self.path, self.context.service, address)
            marks = [f"{stem}@{pool}.journal" for pool in pools]
            folders = [os.path.dirname(stem), self.path]
            mine = leaving.LeftFiles(f"{stem}.lock", f"{stem}.epoch", marks, folders=folders)
            places.setdefault(host, []).append(mine)
        run = {**self.context.known().fencing, "dry": dry}
        return leaving.leave(self.context.transport, places, run, TrafficError)

    # -- the interface

    def check(self) -> None:
        """Raise unless every balancer answers, is recent enough and lets the backend be changed.

        Touch nothing: `add server` without an address is always refused, and its text says what
        else is missing. With prepared servers, too: where none can be added, no weight can be set.
        """
        turns, adds = f"set server {self.backend}/- state ready", f"add server {self.backend}/-"
        probes = [turns] if self.fixed else [turns, adds] if self.slots else [adds]
        texts = self._ask(
            {
                name: {"lines": ["show info", *probes], "folders": self._folders(name)}
                for name in self.balancers
            }
        )
        for name, (info, *refusals) in texts.items():
            self._check_version(name, info)
            refusal = " ".join(refusals)
            if self.slots and api.STATIC in refusal:
                raise TrafficError(
                    f"rollout_traffic.{self.option}: {self.backend!r} at load balancer {name} has a"
                    " `balance` algorithm with weights that cannot be changed while HAProxy runs;"
                    " use roundrobin, leastconn, random or first, or add `hash-type consistent`",
                    "PR-304",
                )
            if any(text in refusal for text in api.WRONG_BACKEND):
                raise TrafficError(
                    f"rollout_traffic.{self.option}: {self.backend!r} at load balancer {name}:"
                    f" {clean(refusal).rstrip('.')}; correct it, or HAProxy's configuration there",
                    "PR-304",
                )
            if "Permission denied" in refusal:
                raise TrafficError(
                    f"rollout_traffic.socket: {self.balancers[name][1]!r} at load balancer {name}"
                    f" needs `level admin`: {clean(refusal)}",
                    "PR-304",
                )
        for name, view in self._look(self.balancers).items():
            slots = [row for row in view if self.pool.slot(row)]
            if self.slots and not slots and not self.fixed:
                raise TrafficError(
                    f"rollout_traffic.slots: backend {self.backend} at load balancer {name} has no"
                    f" server named {self.slots}*",
                    "PR-303",
                )
            for row in slots:
                self._check_slot(name, row)
        if self.fixed:
            self._name_other_backends()
        elif self.context.adopting and not self.context.known().adopted:
            self._check_other_backends()

    def _name_other_backends(self) -> None:
        """Name servers of other backends that would send requests to a host that is deployed."""
        from . import _haproxy_neighbours as neighbours  # few services are deployed in place

        for name, servers in self._servers_of_all().items():
            own = [s.name for s in servers if s.name.startswith(f"{self.backend}/")]
            for other, mine in neighbours.at_the_same_place(servers, own)[:_NAMED]:
                self.context.transport.print_line(
                    f"load balancer {name}: {clean(other)} sends requests to the address of"
                    f" {clean(mine.partition('/')[2])} also while that is deployed; add `track"
                    f" {clean(mine)}` to its line"
                )

    def _check_other_backends(self) -> None:
        """Refuse to adopt servers that others track, since those would go out of service with them;
        name others at the same addresses, since a rollout leaves them as they are.
        """
        from . import _haproxy_neighbours as neighbours  # before a first rollout alone

        adopting = {f"{self.backend}/{name}": name for name in self.context.adopting}
        for name, servers in self._servers_of_all().items():
            for server in servers:
                if server.tracked in adopting:
                    raise InputError(
                        f"rollout_adopt.servers: {adopting[server.tracked]} at load balancer"
                        f" {name}: {clean(server.name)} has `track {server.tracked}`: it would go"
                        " out of service, too, and gets no instance in its place; remove `track`,"
                        f" or let its requests go to backend {self.backend}",
                        "PR-347",
                    )
            if others := [pair[0] for pair in neighbours.at_the_same_place(servers, adopting)]:
                self.context.transport.print_line(
                    f"load balancer {name}: other servers at the addresses of adopted ones:"
                    f" {clean(', '.join(others[:_NAMED]))}; a rollout changes backend"
                    f" {self.backend} alone, so do not stop what runs there while they get requests"
                )

    def _servers_of_all(self) -> dict[str, Sequence[Neighbour]]:
        """Return the servers of all backends, by load balancer."""
        from ._haproxy_neighbours import read  # as above

        texts = self._ask({name: {"lines": ["show stat -1 4 -1"]} for name in self.balancers})
        try:
            return {name: read(text) for name, (text,) in texts.items()}
        except (ValueError, LookupError, TypeError, csv.Error):
            raise TrafficError(
                f"load balancers {', '.join(texts)}: a list of servers is not HAProxy's", "PR-305"
            ) from None

    def _check_slot(self, name: str, row: Row) -> None:
        """Raise for a prepared server whose configuration does not do for the rollout."""
        server, health = f"server {row.name} at load balancer {name}", self.context.health
        if row.agent:
            raise TrafficError(
                f"rollout_traffic.slots: {server} has `agent-check`: what its agent answers changes"
                " its state and weight, beside the rollout; remove `agent-check` from its line, or"
                f" run `disable agent {self.backend}/{row.name}` there while rollouts take place",
                "PR-337",
            )
        if row.fall == 1:
            raise TrafficError(
                f"rollout_traffic.slots: {server} is checked with `fall 1`: HAProxy then shows it"
                " as passed before its first check; use 2 or more",
                "PR-304",
            )
        if self.state_file and not row.named:
            raise TrafficError(
                f"rollout_traffic.state_file: {server} has an address, which HAProxy does not"
                " replace from the file; give it a name and an init-addr, as in `slot.invalid:1"
                " init-addr last,127.0.0.1`",
                "PR-304",
            )
        if health.tls and not health.port and not row.tls:
            raise TrafficError(
                f"rollout_health.tls: {server} does not speak TLS to instances; add"
                f" `{' '.join(tls_options(health, SYSTEM_CA))}` to its line",
                "PR-304",
            )
        if health.port != row.check_port:
            raise TrafficError(
                f"rollout_health.port: {server} checks"
                f" {f'port {row.check_port}' if row.check_port else 'the port of the instance'},"
                " and the rollout checks"
                f" {f'port {health.port}' if health.port else 'that of the instance'};"
                f" {f'write `port {health.port}`' if health.port else 'remove `port`'} in its line",
                "PR-304",
            )

    def observe(self) -> Table:
        """Return every server of the backend that is not a free slot."""
        return self._table(self._look(self.balancers))

    def apply(self, targets: Mapping[str, Mapping[Endpoint, Target]]) -> Table:
        """Bring every balancer that has targets to them.

        Each is observed, and every refusal raised, before the first change. The others are left
        alone: a balancer can be restored while another does not answer.
        """
        for endpoint, target in (item for wanted in targets.values() for item in wanted.items()):
            values.address(endpoint.address, "the address of an instance")
            if target.rotation not in (Rotation.IN, Rotation.OUT) or not 1 <= target.weight <= 256:
                raise TrafficError(
                    f"{endpoint}: HAProxy cannot make it {target.rotation.value} with weight"
                    f" {target.weight}; weights are 1 to 256",
                    "PR-310",
                )
        before = self._look(targets)
        self.pool.adopted.update(*targets.values())
        plans = {name: self._plan(name, before[name], wanted) for name, wanted in targets.items()}
        work = {
            name: self._work(name, plan, before[name])
            for name, plan in plans.items()
            if plan.commands
        }
        if not work:
            return self._table(before)
        texts = self._ask(work)
        after = before | {name: self._parse(name, answers) for name, answers in texts.items()}
        for name, answers in texts.items():
            plans[name].verify(after[name], "".join(answers[: -len(self._looks)]))
        return self._table(after)

    def conclude(self) -> None:
        """Give adopted servers their configured weights, where they have all requests again."""
        targets = {}
        views = self._look(self.balancers) if self.adopts and self.context.known().adopted else {}
        for name, view in views.items():
            used = [row for row in view if self.pool.ours(row) and not self.pool.parked(row)]
            if all(map(self.pool.is_by_hand, used)):
                targets[name] = {row.endpoint: _as_configured(row) for row in used if row.endpoint}
        if any(targets.values()):
            self.apply(targets)

    def capacity(self) -> dict[str, int]:
        """Return for how many instances each balancer has prepared servers.

        A prepared server with an address that no instance can have is used by something else.
        """
        if not self.slots or self.fixed:
            return {}
        slot, free = self.pool.slot, self.pool.free
        return {
            name: sum(1 for row in view if slot(row) and (row.endpoint or free(row)))
            for name, view in self._look(self.balancers).items()
        }

    # -- looking

    @property
    def _looks(self) -> list[str]:
        """The lines that show what there is."""
        return [self._line(self.backend)]

    def _line(self, backend: str) -> str:
        return api.look(backend, by_name=not self._named_alike)

    def _look(self, names: Iterable[str]) -> dict[str, View]:
        if self.option == "backend":  # no other backend has any
            self.pool.by_hand = self.context.known().adopted
        names = list(names)
        texts = self._ask({name: {"lines": self._looks} for name in names})
        if any(api.shows_frontend(text) for answers in texts.values() for text in answers):
            self._named_alike = True
            texts = self._ask({name: {"lines": self._looks} for name in names})
        return {name: self._parse(name, answers) for name, answers in texts.items()}

    def _parse(self, name: str, answers: Sequence[str]) -> View:
        """Return what the last answers show, which are those to `_looks`."""
        return self._view(name, self.option, self.backend, answers[-1])

    def _view(self, name: str, option: str, backend: str, text: str) -> View:
        where = f"rollout_traffic.{option}: {backend!r} at load balancer {name}"
        if "# pxname," not in text:
            raise TrafficError(f"{where}: {clean(text) or 'no answer'}", "PR-305")
        try:
            rows = api.view(text, backend)
        except (ValueError, LookupError, TypeError, csv.Error):
            raise TrafficError(
                f"{where}: the list of servers is not HAProxy's: {clean(text)}", "PR-305"
            ) from None
        return owned(rows, self._marks.get(name, {}).get(backend, {}), self.context.service)

    @property
    def _pools(self) -> list[str]:
        """The backends whose marks are needed to know whose their prepared servers are."""
        return [self.backend]

    def _table(self, views: Mapping[str, View]) -> Table:
        return {name: self.pool.servers(view) for name, view in views.items()}

    def _plan(self, name: str, view: View, targets: Mapping[Endpoint, Target]) -> UpdatePlan:
        if not self.fixed:
            return UpdatePlan(self.pool, name, view, targets)
        from ._haproxy_in_place import TurnPlan  # as above

        return TurnPlan(self.pool, name, view, targets)

    def _places(self, view: View) -> dict[str, str]:
        """Return where each server is, by its backend and name."""
        return {f"{self.backend}/{row.name}": row.at for row in view}

    def _folders(self, name: str) -> dict[str, str]:
        """Return the directories of a load balancer that have to be writable, by their option."""
        state = {"state_file": os.path.dirname(self._state_at(name))} if self.state_file else {}
        return {"path": self.path, **state}

    def _work(self, name: str, plan: UpdatePlan, view: View) -> dict[str, t.Any]:
        """Return the agent's work.

        The commands run only if each server is still at the address seen.
        """
        known, commands = self._places(view), plan.commands
        named = dict.fromkeys(n for n in (line.split()[2] for line in commands) if "/" in n)
        states = ";".join(look.partition(";")[0] for look in self._looks)
        work: dict[str, t.Any] = {"lines": [*_lines(commands), *self._looks]}
        servers = {name: known.get(name, "") for name in named}
        work["change"] = {"line": states, "servers": servers, "uses": plan.uses}
        if self.state_file:
            work["save"] = {
                "path": self._state_at(name),
                "line": f"show servers state {self.backend}",
            }
        return work

    # -- talking

    def _check_version(self, name: str, info: str) -> None:
        version = re.search(r"^Version: (\d+)\.(\d+)", info, re.MULTILINE)
        least = (2, 4) if self.slots or self.fixed else (2, 6)
        if not version or (int(version[1]), int(version[2])) < least:
            seen = version[0] if version else info[:80]
            raise TrafficError(
                f"rollout_traffic.socket: load balancer {name} answers {clean(seen)!r}; HAProxy"
                f" {least[0]}.{least[1]} or later is"
                f" needed{'' if self.slots or self.fixed else ' (2.4 with rollout_traffic.slots)'}",
                "PR-302",
            )

    def _ask(self, work: Mapping[str, Mapping[str, t.Any]]) -> dict[str, list[str]]:
        """Return the balancers' answers to their lines; all hosts are asked at once."""
        requests: dict[str, dict[str, t.Any]] = {}
        common = {
            "path": self.path,
            "service": self.context.service,
            "pool": self.backend,
            "pools": self._pools if self.slots else [],
            **self.context.known().fencing,
            "timeout": _TIMEOUT,
        }
        for name, commands in work.items():
            host, address = self.balancers[name]
            request = {"sockets": {}, "state_file": self._state_at(name), **common}
            requests.setdefault(host, request)["sockets"][address] = commands
        most = max((len(request["sockets"]) for request in requests.values()), default=0)
        answers = self.context.transport.ask("haproxy", requests, (_TIMEOUT + _LOCKED) * most + 5)
        texts: dict[str, list[str]] = {}
        owners: dict[str, t.Any] = {}
        # in order of precedence
        problems: dict[str, list[str]] = {"stale": [], "unusable": [], "shared": [], "error": []}
        for name in work:
            host, address = self.balancers[name]
            where = f"load balancer {name} (rollout_traffic.socket {address})"
            value: t.Any = answers[host].value
            answer = value.get(address) if isinstance(value, dict) else value
            if value is None:
                answer = {"error": answers[host].error or "no answer"}
            kind, what = api.read_answer(answer, len(work[name]["lines"]))
            if kind == "unusable":
                problems[kind] += [
                    f"rollout_traffic.{option}: {why} (for {where})" for option, why in what.items()
                ]
            elif kind in problems:
                problems[kind].append(f"{where}: {what}")
            else:
                texts[name] = what
                whole = t.cast("dict[str, t.Any]", answer)
                owners[name] = whole.get("journal")
                self._marks[name] = whole.get("uses") or {}
        if problems["stale"]:
            raise LeaseLost("; ".join(problems["stale"]), "PR-503")
        if problems["unusable"]:
            raise InputError("; ".join(problems["unusable"]), "PR-311")
        if problems["shared"]:
            raise TrafficError(
                f"rollout_traffic.state_file: {'; '.join(problems['shared'])}", "PR-339"
            )
        if problems["error"]:
            raise TrafficError("; ".join(problems["error"]), "PR-301")
        files = f"{self.path}/haproxy/{self.context.service}@SOCKET@{self.backend}.journal"
        self.context.known().journal.refuse_others(owners, "servers at load balancers", files)
        return texts


def _as_configured(row: Row) -> Target:
    """Return what a server is to be to stay as it is, with the weight of the configuration."""
    return Target(Rotation.IN if row.ready else Rotation.OUT, row.initial, row.name)


def _lines(commands: Iterable[str]) -> Iterator[str]:
    """Return the lines to send. A run may be killed between two of them, so all commands of a
    server are in one: nothing would show that a server was added, and is not checked yet.
    """
    line: list[str] = []
    for _server, group in groupby(commands, lambda command: command.split()[2]):
        mine = list(group)
        if line and len(line) + len(mine) > _COMMANDS:
            yield ";".join(line)
            line = []
        line += mine
    if line:
        yield ";".join(line)


def server_options(health: HealthCheck, ca_path: str) -> str:
    """Return the options of a server that is added: how it is checked, and whether it speaks TLS.

    A new server is checked every 100 ms until it has passed. By default one pass is enough, since
    the rollout's own check has passed before, and HAProxy's own shows that it reaches the instance.
    Never `fall 1`: HAProxy would show such a server as passed before its first check.
    """
    interval = max(1, round(health.interval * 1000))
    fast = min(100, interval)
    rise = 1 if health.rise == HealthCheck.rise else health.rise
    fall = 2 if health.fall == HealthCheck.fall else max(2, health.fall)
    check = (
        f"check inter {interval}ms fastinter {fast}ms downinter {fast}ms rise {rise} fall {fall}"
    )
    port = [f"port {health.port}"] if health.port else []
    return " ".join([check, *port, *(tls_options(health, ca_path) if health.tls else ())])


def tls_options(health: HealthCheck, ca_path: str) -> Sequence[str]:
    """Return the options of a server that speaks TLS.

    Where checks have a separate port, only the checks speak TLS.
    """
    name = shared.certificate_name(health)
    # for added servers, `ssl` does not imply it
    kind = ["check-ssl"] if health.port else ["ssl", "check-ssl"]
    names = [f"check-sni {name}", *([] if health.port else [f"sni str({name})"])] if name else []
    verify = (
        [f"verify required ca-file {ca_path} verifyhost {name}"]
        if health.validate_certs
        else ["verify none"]
    )
    return [*kind, *verify, *names]
