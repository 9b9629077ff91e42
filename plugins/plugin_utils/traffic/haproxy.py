# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""HAProxy through its Runtime API: no reload, a few lines for the whole fleet.

An instance is added in maintenance, health-checked in drain, and made ready only when HAProxy itself shows
`DRAIN`: a server made ready at once is `UP 1/2` and gets requests before its first check. Servers we add carry
an id of a million or more, which tells them from those of the configuration at every later look.
The API has no status codes, so what counts is the state read back; its texts only say why.
"""

from __future__ import annotations

import csv
import os
import re
import typing as t
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import InputError, LeaseLost, TrafficError
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.text import clean
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Rotation
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs import values
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs.options import (
    PATH,
    TEXT,
    Field,
    Kind,
    Options,
    one_or_more,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import Context
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import Endpoint
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.traffic import (
    Preview,
    Server,
    Table,
    Target,
    TrafficDriver,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote import inventory
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.connections import CONTROLLER
from ansible_collections.progressive.rollout.plugins.plugin_utils.traffic import _options as shared

_NAME = re.compile(r"[A-Za-z0-9_.:-]+")


def _name(value: t.Any, variable: str) -> str:
    if not _NAME.fullmatch(str(value)):
        raise InputError(f"{variable}: {value!r} is not a name in HAProxy; use letters, digits and _ . : -")
    return str(value)


def _socket(value: t.Any, variable: str) -> str:
    """Return a path, or host:port."""
    text = str(value).removeprefix("tcp://").removeprefix("unix://")
    if text.startswith("/"):
        return text
    host, _colon, port = text.rpartition(":")
    if not host:
        raise InputError(f"{variable}: {value!r} is neither an absolute path nor host:port")
    return f"{host}:{values.port(port, variable)}"


_WORD = Kind("str", _name)
OPTIONS = Options(
    Field(
        "hosts", TEXT, "Inventory pattern of the load balancers' hosts. Without it the sockets are reached from the controller."
    ),
    Field(
        "socket",
        one_or_more(Kind("str", _socket)),
        "Socket of the Runtime API with C(level admin), a path or V(host:port), or a list of them.",
        default=["/run/haproxy/admin.sock"],
    ),
    Field("backend", _WORD, "Name of the backend.", required=True),
    Field(
        "preview",
        _WORD,
        "Name of another backend, which contains only the new instances of a rollout, from when they are ready to its end.",
    ),
    shared.DRAIN_TIMEOUT,
    Field("slots", _WORD, "Prefix of the names of prepared servers. Without it servers are added and deleted as needed."),
    Field(
        "state_file",
        TEXT,
        "File on the load balancer's host that the state of the servers is saved to after each change, for "
        "C(load-server-state-from-file). It needs C(hosts), and one socket each.",
    ),
    Field(
        "path",
        PATH,
        "Directory, made where it is missing, for the locks and epochs that keep a late command of an older run from "
        "changing anything. It is on C(hosts), or on the controller without them.",
        default="/var/lib/rollout",
    ),
)

UNSUPPORTED = {
    "mirror": "HAProxy does not copy requests; use Envoy, or route some of them to rollout_traffic.preview",
    "sticky": "HAProxy binds clients as your own backend says; for a cookie NAME that your service sets, write"
    " `stick-table type string len 64 size 100k expire 1h` and `stick on req.cook(NAME)` there",
    "match": "HAProxy routes requests as your own frontend says; name a backend in rollout_traffic.preview, and write"
    " `use_backend PREVIEW if { req.hdr(NAME) -m str VALUE } { nbsrv(PREVIEW) gt 0 }` there, with"
    " req.cook(NAME) for a cookie",
}
_OUR_IDS = 1_000_000  # ids of this and more are ours; HAProxy numbers servers of a configuration from 1
_MAINT, _DRAIN = 0x63, 0x18  # srv_admin_state: forced, inherited, by DNS | forced, inherited
_COMMANDS = 50  # a line; HAProxy's buffer is 16 kB
_TIMEOUT = 5.0  # seconds for a balancer to answer all that it is asked in one call
_LOCKED = 10.0  # seconds the agent may wait for another run's command to end
_ATTACHED = "still has connections attached"
_SUCCESS = re.compile(
    r"New server registered|Server deleted|(changed from|no need to change) .*by 'stats socket command'|" + _ATTACHED
)
_WRONG_BACKEND = ("No such backend", "No such proxy", "Can't find backend", "Backend must use")


@dataclass(frozen=True)
class Row:
    """One server of the backend as a balancer shows it."""

    name: str
    id: int
    endpoint: Endpoint | None  # None: not an address a fleet could have (an unresolved name, a unix socket)
    status: str
    admin: int
    weight: int
    active: int
    requests: int
    errors: int
    answered: int
    mean: float
    fall: int
    at: str  # the address, as `show servers state` has it
    named: bool  # configured with a name, not an address: only of such a one a state file restores the address

    @property
    def maint(self) -> bool:
        return bool(self.admin & _MAINT)

    @property
    def ready(self) -> bool:
        """Made ready by whoever made it so; whether it is up is for the checks to say."""
        return not self.admin & (_MAINT | _DRAIN)

    @property
    def server(self) -> Server:
        """`DRAIN 1/2` and `UP 1/2` (a check is missing or failed) are not proven; both may stand beside an old L7OK."""
        rotation = Rotation.IN if self.ready and self.weight and self.status.startswith(("UP", "no check")) else Rotation.OUT
        lb_healthy = self.status in ("UP", "DRAIN", "no check")
        counted = {key: getattr(self, key) for key in ("requests", "errors", "answered", "mean")}
        return Server(rotation, lb_healthy, self.active, self.weight, False, self.name, **counted)


View = Sequence[Row]


class Driver(TrafficDriver):
    """The servers of one backend at a set of HAProxy processes."""

    counts = ("errors", "latency")
    unsupported = UNSUPPORTED

    def __init__(self, options: Mapping[str, t.Any], context: Context) -> None:
        self.context, self.options = context, options
        self.drain_timeout = options["drain_timeout"]
        self.option = "backend"  # the one that names it, for messages
        self.backend, self.preview = options["backend"], options["preview"] or ""
        if self.preview == self.backend:
            raise InputError(
                f"rollout_traffic.preview: {self.preview!r} is the service's own backend; name another one, or leave it out"
            )
        self.slots, self.state_file, self.path = options["slots"] or "", options["state_file"] or "", options["path"]
        self.balancers = self._balancers(options["hosts"], options["socket"])
        self.check_words = _check_words(context.health)
        self._adopted: set[Endpoint] = (
            set()
        )  # once among the targets: they are ours to put in maint, even if of the configuration

    def _balancers(self, pattern: str | None, sockets: Sequence[str]) -> dict[str, tuple[str, str]]:
        """Every balancer's name, with its host and its socket there."""
        if self.state_file and (not pattern or len(sockets) > 1 or not self.state_file.startswith("/")):
            raise InputError(
                f"rollout_traffic.state_file: {self.state_file!r} must be an absolute path on rollout_traffic.hosts with one socket each"
            )
        if not pattern:
            for one in sockets:
                if one.startswith("/"):
                    raise InputError(f"rollout_traffic.socket: {one!r} is a path; name its hosts in rollout_traffic.hosts")
            return {one: (CONTROLLER, one) for one in sockets}
        found = inventory.hosts(self.context.transport, pattern, "rollout_traffic.hosts")
        return {host if len(sockets) == 1 else f"{host} {one}": (host, one) for host in found for one in sockets}

    def previews(self) -> Sequence[Preview]:
        """The backend `preview`, at the same balancers.

        Without the state file, which would replace the service's; the rollout itself restores
        these servers.
        """
        if not self.preview:
            return ()
        driver = Driver({**self.options, "backend": self.preview, "preview": None, "state_file": None}, self.context)
        driver.option = "preview"
        return [Preview(driver)]

    # -- the interface

    def check(self) -> None:
        """Raise unless every balancer answers, is recent enough and lets us change the backend. Touches nothing:
        `add server` without an address is always refused, and its text says what else is missing."""
        probe = f"set server {self.backend}/- state ready" if self.slots else f"add server {self.backend}/-"
        folders = {"path": self.path, **({"state_file": os.path.dirname(self.state_file)} if self.state_file else {})}
        texts = self._ask({name: {"lines": ["show info", probe], "folders": folders} for name in self.balancers})
        for name, (info, refusal) in texts.items():
            self._check_version(name, info)
            if any(text in refusal for text in _WRONG_BACKEND):
                raise TrafficError(f"rollout_traffic.{self.option}: {self.backend!r} at load balancer {name}: {clean(refusal)}")
            if "Permission denied" in refusal:
                raise TrafficError(
                    f"rollout_traffic.socket: {self.balancers[name][1]!r} at load balancer {name} needs `level admin`: {clean(refusal)}"
                )
        for name, view in self._look(self.balancers).items():
            slots = [row for row in view if self._slot(row)]
            if self.slots and not slots:
                raise TrafficError(
                    f"rollout_traffic.slots: backend {self.backend} at load balancer {name} has no server named {self.slots}*"
                )
            for row in slots:
                if row.fall == 1:
                    raise TrafficError(
                        f"rollout_traffic.slots: server {row.name} at load balancer {name} is checked with `fall 1`: HAProxy then shows it"
                        " as passed before its first check; use 2 or more"
                    )
                if self.state_file and not row.named:
                    raise TrafficError(
                        f"rollout_traffic.state_file: server {row.name} at load balancer {name} has an address, which HAProxy does not"
                        " replace from the file; give it a name and an init-addr, as in `slot.invalid:1 init-addr last,127.0.0.1`"
                    )

    def observe(self) -> Table:
        """Every server of the backend that is not a free slot."""
        return self._table(self._look(self.balancers))

    def apply(self, targets: Mapping[str, Mapping[Endpoint, Target]]) -> Table:
        """See drivers.Traffic. Every balancer that has targets is looked at, and every refusal of our own raised, before
        the first change. The others are left alone: one can be put back while another does not answer."""
        for endpoint, target in (item for its in targets.values() for item in its.items()):
            values.address(endpoint.address, "the address of an instance")
            if target.rotation not in (Rotation.IN, Rotation.OUT) or not 1 <= target.weight <= 256:
                raise TrafficError(
                    f"{endpoint}: HAProxy cannot make it {target.rotation.value} with weight {target.weight}; weights are 1 to 256"
                )
        before = self._look(targets)
        self._adopted.update(*targets.values())
        plans = {name: list(self._plan(name, before[name], its)) for name, its in targets.items()}
        work = {name: self._work(plan, before[name]) for name, plan in plans.items() if plan}
        if not work:
            return self._table(before)
        texts = self._ask(work)
        after = before | {name: self._parse(name, answers[-1]) for name, answers in texts.items()}
        for name, answers in texts.items():
            self._verify(name, after[name], targets[name], "".join(answers[:-1]))
        return self._table(after)

    def capacity(self) -> dict[str, int]:
        """How many instances each balancer has prepared servers for; empty where servers are added as needed. A prepared
        server with an address that no instance can have is in use by somebody else."""
        if not self.slots:
            return {}
        views = self._look(self.balancers)
        return {
            name: sum(1 for row in view if self._slot(row) and (row.endpoint or self._free(row))) for name, view in views.items()
        }

    # -- looking

    @property
    def _look_line(self) -> str:
        return f"show servers state {self.backend};show stat {self.backend} 4 -1"

    def _look(self, names: Iterable[str]) -> dict[str, View]:
        texts = self._ask({name: {"lines": [self._look_line]} for name in names})
        return {name: self._parse(name, text) for name, (text,) in texts.items()}

    def _parse(self, name: str, text: str) -> View:
        where = f"rollout_traffic.{self.option}: {self.backend!r} at load balancer {name}"
        states, found, stats = text.partition("# pxname,")
        if not found:
            raise TrafficError(f"{where}: {clean(text) or 'no answer'}")
        try:
            return self._rows(states, stats)
        except (ValueError, LookupError, TypeError, csv.Error):
            raise TrafficError(f"{where}: its servers are not listed as HAProxy does: {clean(states)}") from None

    def _rows(self, states: str, stats: str) -> View:
        fields = [line.split() for line in states.splitlines() if line[:1].isdigit() and " " in line]
        state = {field[3]: field for field in fields}
        table = csv.DictReader(f"pxname,{stats}".strip().splitlines())
        # A server added between the two answers is in one of them only: it is seen at the next look.
        return [_row(line, state[line["svname"]]) for line in table if line["svname"] in state]

    def _table(self, views: Mapping[str, View]) -> Table:
        return {name: self._servers(view) for name, view in views.items()}

    def _servers(self, view: View) -> dict[Endpoint, Server]:
        servers: dict[Endpoint, Server] = {}
        for row in view:
            if row.endpoint and not self._free(row):
                one = Server(**(vars(row.server) | {"ours": self._added(row) or self._slot(row)}))
                servers[row.endpoint] = _merge(servers[row.endpoint], one) if row.endpoint in servers else one
        return servers

    def _added(self, row: Row) -> bool:
        # Of `shop`, not of `shop-api`.
        return row.id >= _OUR_IDS and row.name.rpartition("-")[0] == self.context.service

    def _slot(self, row: Row) -> bool:
        return bool(self.slots) and row.name.startswith(self.slots)

    def _free(self, row: Row) -> bool:
        return self._slot(row) and row.maint and not row.active

    # -- changing

    def _plan(self, name: str, view: View, targets: Mapping[Endpoint, Target]) -> Iterator[str]:
        """The commands that bring one balancer to the targets; those that add capacity first."""
        used = [row for row in view if row.endpoint and not self._free(row)]
        wanted = [(row, targets[row.endpoint]) for row in used if row.endpoint and row.endpoint in targets]
        missing = {e: target for e, target in targets.items() if e not in {row.endpoint for row in used}}
        for endpoint, target in missing.items():
            if target.rotation is Rotation.IN:
                raise TrafficError(
                    f"load balancer {name} has no server for {endpoint} yet: it cannot be put in rotation before its check has passed"
                )
        for row, target in wanted:
            if target.rotation is Rotation.IN:
                if not row.ready and not row.server.lb_healthy:
                    raise TrafficError(
                        f"load balancer {name}: server {row.name} ({row.endpoint}) cannot be put in rotation: HAProxy's own check"
                        f" has not passed (status {row.status})"
                    )
                yield from self._weigh(row, target)
                if not row.ready:
                    yield self._set(row, "state ready")
        yield from self._enter(name, view, missing)
        for row, target in wanted:
            if target.rotation is Rotation.OUT:
                if row.ready or row.maint:
                    yield self._set(row, "state drain")
                yield from self._weigh(row, target)  # kept for when it goes in
        for row in used:
            if row.endpoint not in targets:
                yield from self._leave(row)

    def _work(self, plan: Sequence[str], view: View) -> dict[str, t.Any]:
        """What the agent is asked: the commands, done only where every server they name is still at the address seen."""
        known = {row.name: row.at for row in view}
        named = dict.fromkeys(command.split()[2].partition("/")[2] for command in plan)
        state = f"show servers state {self.backend}"
        work: dict[str, t.Any] = {"lines": [*_lines(plan), self._look_line]}
        work["change"] = {"line": state, "servers": {name: known.get(name, "") for name in named}}
        if self.state_file:
            work["save"] = {"path": self.state_file, "line": state}
        return work

    def _weigh(self, row: Row, target: Target) -> Iterator[str]:
        if row.weight != target.weight:
            yield self._set(row, f"weight {target.weight}")

    def _set(self, row: Row, what: str) -> str:
        return f"set server {self.backend}/{row.name} {what}"

    def _enter(self, name: str, view: View, missing: Mapping[Endpoint, Target]) -> Iterator[str]:
        """Bring in endpoints: checked, in drain."""
        free = [row for row in view if self._free(row)]
        if self.slots and len(free) < len(missing):
            raise TrafficError(
                f"rollout_traffic.slots: load balancer {name} has {len(free)} free servers named {self.slots}*, {len(missing)} are needed;"
                " prepare more in its configuration"
            )
        number = max([_OUR_IDS, *(row.id for row in view)])
        for index, (endpoint, target) in enumerate(missing.items(), 1):
            if self.slots:
                server = f"{self.backend}/{free[index - 1].name}"
                yield f"set server {server} addr {endpoint.address} port {endpoint.port}"
                yield f"set server {server} weight {target.weight}"
            else:
                server = f"{self.backend}/{self._server_name(endpoint, target)}"
                yield f"add server {server} {endpoint} id {number + index} weight {target.weight} {self.check_words}"
                yield f"enable health {server}"
            yield f"set server {server} state drain"

    def _leave(self, row: Row) -> Iterator[str]:
        """Out of rotation and away. In maintenance even a cookie's requests go elsewhere; those in flight are finished,
        and until then HAProxy refuses to delete the server: the next `apply` asks again."""
        if not row.maint and self._parkable(row):
            yield self._set(row, "state maint")
        if self._added(row):
            yield f"del server {self.backend}/{row.name}"

    def _parkable(self, row: Row) -> bool:
        return self._added(row) or self._slot(row) or row.endpoint in self._adopted

    def _server_name(self, endpoint: Endpoint, target: Target) -> str:
        name = re.sub(r"[^A-Za-z0-9_.:-]", "_", target.name or str(endpoint))
        return name if name.startswith(f"{self.context.service}-") else f"{self.context.service}-{name}"

    def _verify(self, name: str, view: View, targets: Mapping[Endpoint, Target], texts: str) -> None:
        """Raise for the first server that is not as asked."""
        complaint = (
            clean(" ".join(line for line in texts.splitlines() if line and not _SUCCESS.search(line)))
            or "HAProxy accepted the change"
        )
        missing = set(targets)
        for row in view:
            if row.endpoint is None or self._free(row):
                continue
            target = targets.get(row.endpoint)
            missing.discard(row.endpoint)
            if target is None and self._added(row):
                fine = row.maint and _ATTACHED in texts
            elif target is None:
                fine = row.maint or not self._parkable(row)
            elif target.rotation is Rotation.IN:
                fine = row.ready and row.weight == target.weight
            else:
                fine = not row.ready and not row.maint and row.weight == target.weight
            if not fine:
                asked = f"{target.rotation.value} with weight {target.weight}" if target else "to leave"
                raise TrafficError(
                    f"load balancer {name}: server {row.name} ({row.endpoint}) was asked to be {asked} and is {row.status}"
                    f" with weight {row.weight}: {complaint}"
                )
        for endpoint in missing:
            raise TrafficError(
                f"load balancer {name}: server {targets[endpoint].name} ({endpoint}) was added and is not there: {complaint}"
            )

    # -- talking

    def _check_version(self, name: str, info: str) -> None:
        version = re.search(r"^Version: (\d+)\.(\d+)", info, re.MULTILINE)
        least = (2, 4) if self.slots else (2, 6)
        if not version or (int(version[1]), int(version[2])) < least:
            seen = version[0] if version else info[:80]
            raise TrafficError(
                f"rollout_traffic.socket: load balancer {name} answers {clean(seen)!r}; HAProxy {least[0]}.{least[1]} or later is needed"
                + ("" if self.slots else " (2.4 with rollout_traffic.slots)")
            )

    def _ask(self, work: Mapping[str, Mapping[str, t.Any]]) -> dict[str, list[str]]:
        """The texts that the balancers answer to their lines, asked on all hosts at once."""
        requests: dict[str, dict[str, t.Any]] = {}
        common = {"path": self.path, "service": self.context.service, "epoch": self.context.epoch, "timeout": _TIMEOUT}
        for name, its in work.items():
            host, address = self.balancers[name]
            requests.setdefault(host, {"sockets": {}, **common})["sockets"][address] = its
        most = max((len(request["sockets"]) for request in requests.values()), default=0)
        answers = self.context.transport.ask("haproxy", requests, (_TIMEOUT + _LOCKED) * most + 5)
        texts: dict[str, list[str]] = {}
        problems: dict[str, list[str]] = {"stale": [], "unusable": [], "error": []}  # in the order in which they are told
        for name in work:
            host, address = self.balancers[name]
            where = f"load balancer {name} (rollout_traffic.socket {address})"
            value: t.Any = answers[host].value
            answer = value.get(address) if isinstance(value, dict) else value
            if value is None:
                answer = {"error": answers[host].error or "no answer"}
            kind, what = _answer(answer, len(work[name]["lines"]))
            if kind == "unusable":
                problems[kind] += [f"rollout_traffic.{option}: {why} (for {where})" for option, why in what.items()]
            elif kind in problems:
                problems[kind].append(f"{where}: {what}")
            else:
                texts[name] = what
        for kind, error in (("stale", LeaseLost), ("unusable", InputError), ("error", TrafficError)):
            if problems[kind]:
                raise error("; ".join(problems[kind]))
        return texts


def _answer(answer: t.Any, lines: int) -> tuple[str, t.Any]:
    """What an agent answers for a balancer, by kind: `texts`, `stale`, `unusable` or `error`."""
    kinds = {"texts": list, "stale": str, "unusable": dict, "error": str}
    for kind, shape in kinds.items():
        if isinstance(answer, dict) and isinstance(answer.get(kind), shape):
            if kind != "texts" or (len(answer[kind]) == lines and all(isinstance(text, str) for text in answer[kind])):
                return kind, answer[kind]
    return "error", f"its agent does not answer as ours does: {clean(answer)}"


def _row(line: Mapping[str, str], state: Sequence[str]) -> Row:
    """Of a line of `show stat` and one of `show servers state`."""
    return Row(
        name=line["svname"],
        id=int(line["sid"]),
        endpoint=_endpoint(line["addr"]),
        status=line["status"],
        admin=int(state[6]),
        weight=int(line["uweight"] or line["weight"] or 0),
        active=int(line["scur"] or 0) + int(line["qcur"] or 0),
        requests=int(line["stot"] or 0),  # of each, also over a kept connection and in mode tcp, which `req_tot` leaves out
        # Answers of its own in an instance's place (502, 503, 504) HAProxy does not count by their status.
        errors=sum(int(line[key] or 0) for key in ("hrsp_5xx", "eresp", "econ")),
        answered=int(line.get("req_tot") or 0),
        mean=int(line["rtime"] or 0) / 1000,
        fall=int(line["check_fall"] or 0),
        at=f"{state[4]} {state[18]}",
        named=state[17] != "-",
    )


def _endpoint(text: str) -> Endpoint | None:
    host, _colon, port = text.rpartition(":")
    try:
        return Endpoint(values.address(host.strip("[]"), "addr"), values.port(port, "addr"))
    except InputError:
        return None


def _merge(one: Server, other: Server) -> Server:
    """Two servers of one address: in rotation if any is, proven if all are."""
    rotation = Rotation.IN if Rotation.IN in (one.rotation, other.rotation) else Rotation.OUT
    return Server(
        rotation,
        one.lb_healthy and other.lb_healthy,
        one.active + other.active,
        one.weight + other.weight,
        one.ours and other.ours,
        one.name,
        one.requests + other.requests,
        one.errors + other.errors,
        one.answered + other.answered,
        one.mean if one.answered >= other.answered else other.mean,
    )


def _lines(commands: Iterable[str]) -> Iterator[str]:
    left = list(commands)
    for start in range(0, len(left), _COMMANDS):
        yield ";".join(left[start : start + _COMMANDS])


def _check_words(health: Mapping[str, t.Any]) -> str:
    """The check of a server we add. A new one is asked every 100 ms until it has passed. One pass is enough by default,
    since the rollout's own check has passed `rise` times before and this one shows that this balancer reaches it too.
    Never `fall 1`: HAProxy would show such a server as passed before its first check."""
    interval = max(1, round(values.duration(health.get("interval") or 0.5, "rollout_health.interval", 0.001) * 1000))
    fast = min(100, interval)
    rise, fall = int(health.get("rise") or 1), max(2, int(health.get("fall") or 2))
    return f"check inter {interval}ms fastinter {fast}ms downinter {fast}ms rise {rise} fall {fall}"
