# SPDX-License-Identifier: GPL-3.0-or-later
"""What HAProxy's Runtime API shows of the servers of a backend, parsed. Pure.

https://docs.haproxy.org/2.6/management.html#9.3
"""

from __future__ import annotations

import csv
import enum
import re
import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..base.errors import InputError
from ..base.text import clean
from ..engine.model import Rotation
from ..inputs import values
from ..interfaces.platform import Endpoint
from ..interfaces.traffic import COUNTS, Server

ATTACHED = "still has connections attached"  # why a server is not deleted yet
SUCCESS = re.compile(
    r"New server registered|Server deleted|(changed from|no need to change) .*by 'stats socket"
    rf" command'|{ATTACHED}"
)
# what HAProxy calls servers whose check has failed, or has not passed often enough yet
_KIND = re.compile(r"^[^,\n]*,(FRONTEND|BACKEND),", re.MULTILINE)
_USUAL = re.compile(r"(UP|DRAIN|DOWN) \d+/\d+|DOWN|MAINT.*")
_AGENT = 0x06  # `srv_agent_state`: configured, and not disabled at runtime
# `srv_check_state`: https://github.com/haproxy/haproxy/blob/v2.6.0/include/haproxy/check-t.h#L39
_CHECK_CONFIGURED = 0x02
STATIC = "Backend must use a dynamic load balancing"
WRONG_BACKEND = ("No such backend", "No such proxy", "Can't find backend", STATIC)


class Admin(enum.IntFlag):
    """The administrative state of a server, `srv_admin_state`.

    https://github.com/haproxy/haproxy/blob/v2.6.0/include/haproxy/server-t.h#L51
    """

    FMAINT = 0x01  # forced into maintenance
    IMAINT = 0x02  # inherited maintenance
    CMAINT = 0x04  # in maintenance because of the configuration
    FDRAIN = 0x08
    IDRAIN = 0x10
    RMAINT = 0x20  # its name does not resolve
    HMAINT = 0x40  # in maintenance because its name was set at runtime

    MAINT = FMAINT | IMAINT | RMAINT | HMAINT
    DRAIN = FDRAIN | IDRAIN


@dataclass(frozen=True)
class Row:
    """One server of the backend as a balancer shows it."""

    name: str
    id: int
    # None: not an address of an instance (an unresolved name, a unix socket)
    endpoint: Endpoint | None
    status: str
    admin: Admin
    weight: int
    initial: int  # weight, as configured
    active: int
    requests: int
    errors: int
    client_errors: int
    retries: int
    aborts: int
    connect_failures: int
    answered: int
    mean: float
    fall: int
    at: str  # the address, as `show servers state` has it
    named: bool  # configured with a name: only then a state file restores the address
    tls: bool
    check_port: int  # 0: the server's own
    backup: bool
    checked: bool  # whether HAProxy checks it, unless it is in maintenance
    check: str  # how HAProxy's last check failed; empty: it passed, or there was none yet
    effective: int  # the weight by which it gets new requests now
    agent: bool  # an agent check may change its state and its weight
    # Whose rollout put it to use, by the marks at the balancer; "": nobody's, None: not known,
    # since no version that keeps them has been there.
    owner: str | None = None

    @property
    def place(self) -> Endpoint | None:
        """Return by what the server is known: its address, or its name if it gets requests without
        one, at a UNIX socket.
        """
        return self.endpoint or (Endpoint(self.name, 0) if self.effective else None)

    @property
    def maint(self) -> bool:
        return bool(self.admin & Admin.MAINT)

    @property
    def ready(self) -> bool:
        """Return whether it may get requests, if its checks pass."""
        return not self.admin & (Admin.MAINT | Admin.DRAIN)

    def server(self, ours: bool, service: str, prepared: bool = False) -> Server:
        """Return the entry, of a service's rollout.

        One that is down stays in rotation, since HAProxy sends it requests again once its check
        passes. `DRAIN 1/2` and `UP 1/2` have not passed, whatever `check_status` shows.
        """
        return Server(
            rotation=Rotation.IN if self.ready and self.weight else Rotation.OUT,
            lb_healthy=self.healthy,
            active=self.active,
            weight=self.weight,
            ours=ours,
            name=self.name,
            service=service,
            detail=self._why_unhealthy(),
            effective=self.effective,
            prepared=prepared,
            status=self.status,
            steered_by="agent-check" if self.agent else "",
            requests=self.requests,
            **{name: getattr(self, name) for name in COUNTS},
            answered=self.answered,
            mean=self.mean,
            backup=self.backup,
        )

    def _why_unhealthy(self) -> str:
        """Return why it does not pass, as far as HAProxy says.

        Words that are not known, such as those of an agent, are shown as they are.
        """
        if self.healthy:
            return ""
        known = _USUAL.fullmatch(self.status)
        return self.check or ("" if known else f"HAProxy shows it as {clean(self.status, 80)}")

    @property
    def healthy(self) -> bool:
        return self.status in ("UP", "DRAIN", "no check")


View = Sequence[Row]


def look(backend: str, by_name: bool = True) -> str:
    """Return the line that shows the servers of a backend.

    `by_name`: whether the name finds it. `show stat` takes the first proxy of a name, which may
    be a frontend; without the name it shows the servers of all backends.
    """
    return f"show servers state {backend};show stat {f'{backend} 7' if by_name else '-1 4'} -1"


def shows_frontend(text: str) -> bool:
    """Return whether the answer to `look` is of a frontend that has the name of the backend."""
    kinds = set(_KIND.findall(text))
    return "FRONTEND" in kinds and "BACKEND" not in kinds  # `listen` is both


def view(text: str, backend: str) -> View:
    """Return the servers in the answer to the line `look`.

    Raises ValueError, LookupError, TypeError or csv.Error for any other text. A server that was
    added between the two answers is left out: the next observation shows it.
    """
    states, _found, stats = text.partition("# pxname,")
    fields = [line.split() for line in states.splitlines() if line[:1].isdigit() and " " in line]
    state = {field[3]: field for field in fields}
    table = csv.DictReader(f"pxname,{stats}".strip().splitlines())
    lines = [line for line in table if line["pxname"] == backend and line["svname"] in state]
    serving = {line["svname"]: line["bck"] == "1" for line in lines if serves(line)}
    # `backup` servers get requests only where no others can
    used = {name for name, backup in serving.items() if not backup} or serving.keys()
    return [_row(line, state[line["svname"]], line["svname"] in used) for line in lines]


def serves(line: Mapping[str, str]) -> bool:
    """Return whether a server gets new requests by its state; `UP 1/2` goes down, and does."""
    up = line["status"].startswith("UP") or line["status"] == "no check"
    return up and int(line["weight"] or 0) > 0


def _row(line: Mapping[str, str], state: Sequence[str], used: bool) -> Row:
    """Return a server; `used`: whether it gets new requests now.

    Agents: https://github.com/haproxy/haproxy/blob/v2.6.0/include/haproxy/check-t.h#L42
    """
    return Row(
        name=line["svname"],
        id=int(line["sid"]),
        endpoint=endpoint_of(line["addr"]),
        status=line["status"],
        admin=Admin(int(state[6])),
        weight=int(line["uweight"] or line["weight"] or 0),
        initial=int(state[8]),
        active=int(line["scur"] or 0) + int(line["qcur"] or 0),
        # Unlike `req_tot` it counts requests over kept connections and in TCP mode.
        requests=int(line["stot"] or 0),
        # HAProxy does not count its own answers (502, 503, 504) by their status.
        errors=_sum(line, "hrsp_5xx", "eresp", "econ"),
        client_errors=_sum(line, "hrsp_4xx"),
        retries=_sum(line, "wretr", "wredis"),
        aborts=_sum(line, "cli_abrt"),
        connect_failures=_sum(line, "econ"),
        answered=int(line.get("req_tot") or 0),
        mean=int(line["rtime"] or 0) / 1000,
        fall=int(line["check_fall"] or 0),
        at=f"{state[4]} {state[18]}",
        named=state[17] != "-",
        tls=len(state) > 20 and state[20] == "1",
        check_port=int(state[21]) if len(state) > 21 else 0,
        backup=line.get("bck") == "1",
        checked=bool(int(state[13]) & _CHECK_CONFIGURED),
        check=_failed_check(line),
        effective=int(line["weight"] or 0) if used else 0,
        agent=int(state[14]) & _AGENT == _AGENT,
    )


def _sum(line: Mapping[str, str], *columns: str) -> int:
    """Return the sum of counters.

    https://docs.haproxy.org/2.6/management.html#9.1
    """
    return sum(int(line.get(column) or 0) for column in columns)


def _failed_check(line: Mapping[str, str]) -> str:
    """Return how HAProxy's last check of a server failed, and which settings decide that.

    https://docs.haproxy.org/2.6/management.html#9.1-check_status
    """
    result = (line.get("check_status") or "").removeprefix("* ")
    if result in ("", "UNK", "INI") or result.endswith(("OK", "OKC")):
        return ""
    why = clean(line.get("last_chk") or line.get("check_desc"), 200)
    hint = (
        "; HAProxy asks what `option httpchk` of the backend says, and accepts what `http-check"
        " expect` says"
    )
    return f"HAProxy's own check fails: {result} {why}{hint if result.startswith('L7') else ''}"


def endpoint_of(text: str) -> Endpoint | None:
    """Return an address as HAProxy shows it; None: it is none that an instance can have."""
    host, _colon, port = text.rpartition(":")
    try:
        return Endpoint(values.address(host.strip("[]"), "addr"), values.port(port, "addr"))
    except InputError:
        return None


def merge(server: Server, other: Server) -> Server:
    """Return two servers of one address as one: in rotation if any is, healthy if both are."""
    return Server(
        rotation=Rotation.IN if Rotation.IN in (server.rotation, other.rotation) else Rotation.OUT,
        lb_healthy=server.lb_healthy and other.lb_healthy,
        active=server.active + other.active,
        weight=server.weight + other.weight,
        ours=server.ours and other.ours,
        name=server.name,
        service=server.service if server.service == other.service else "",
        detail=server.detail or other.detail,
        effective=server.share_weight + other.share_weight,
        prepared=server.prepared or other.prepared,
        status=server.status
        if server.status == other.status
        else f"{server.status}, {other.status}",
        steered_by=server.steered_by or other.steered_by,
        requests=server.requests + other.requests,
        **{name: getattr(server, name) + getattr(other, name) for name in COUNTS},
        answered=server.answered + other.answered,
        mean=server.mean if server.answered >= other.answered else other.mean,
        backup=server.backup and other.backup,
    )


def read_answer(answer: t.Any, lines: int) -> tuple[str, t.Any]:
    """Return what an agent answers for a balancer, by kind.

    Kinds are `texts`, `stale`, `unusable`, `shared` and `error`.
    """
    kinds = {"texts": list, "stale": str, "unusable": dict, "shared": str, "error": str}
    for kind, shape in kinds.items():
        if isinstance(answer, dict) and isinstance(answer.get(kind), shape):
            if kind != "texts" or (
                len(answer[kind]) == lines and all(isinstance(text, str) for text in answer[kind])
            ):
                return kind, answer[kind]
    return "error", f"its agent does not answer as expected: {clean(answer)}"
