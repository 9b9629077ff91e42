# SPDX-License-Identifier: GPL-3.0-or-later
"""Servers of any backend that have to do with servers that a service adopts. Pure."""

from __future__ import annotations

import csv
import typing as t
from collections.abc import Collection, Sequence

from ..interfaces.platform import Endpoint
from ._haproxy_api import endpoint_of, serves


class Neighbour(t.NamedTuple):
    """A server of any backend."""

    name: str  # as `backend/server`
    tracked: str  # the server whose state it has, written alike; "": it has its own
    endpoint: Endpoint | None
    serves: bool


def read(text: str) -> Sequence[Neighbour]:
    """Return the servers in the answer to `show stat -1 4 -1`."""
    return [
        Neighbour(
            f"{line['pxname']}/{line['svname']}",
            line.get("tracked") or "",
            endpoint_of(line["addr"]),
            serves(line),
        )
        for line in csv.DictReader(text.strip().removeprefix("# ").splitlines())
    ]


def at_the_same_place(servers: Sequence[Neighbour], names: Collection[str]) -> Sequence[str]:
    """Return the other servers that get requests at the addresses of these, and not only check
    them.
    """
    mine = [server for server in servers if server.name in names]
    places = {server.endpoint for server in mine if server.endpoint}
    known = {*names, *(server.tracked for server in mine)}
    return [s.name for s in servers if s.endpoint in places and s.serves and s.name not in known]
