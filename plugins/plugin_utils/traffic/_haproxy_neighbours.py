# SPDX-License-Identifier: GPL-3.0-or-later
"""Servers of other backends that lead to the same programs as those of the service. Pure."""

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


def at_the_same_place(
    servers: Sequence[Neighbour], names: Collection[str]
) -> Sequence[tuple[str, str]]:
    """Return the other servers that get requests at the addresses of these, each with that one.

    Left out are those that only check them, or follow them in and out of rotation.
    """
    mine = [server for server in servers if server.name in names]
    places = {server.endpoint: server.name for server in mine if server.endpoint}
    known = {*names, *(server.tracked for server in mine)}
    return [
        (server.name, places[server.endpoint])
        for server in servers
        if server.endpoint in places
        and server.serves
        and server.name not in known
        and server.tracked not in names
    ]
