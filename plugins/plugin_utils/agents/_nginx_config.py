# SPDX-License-Identifier: GPL-3.0-or-later
"""The two files of an upstream that nginx balances, as text. Pure; needs Python 3.8.

NAME.conf is what nginx reads: the entries that are in, and a tiny server whose response lists them,
so that a worker says itself what it serves. NAME.json is what nginx need not know: all entries,
those that are out with `since`, the kernel's clock when they went out. Workers begun before know
them as in.
"""

from __future__ import annotations

import json
import os

TYPE_CHECKING = False  # importing typing costs start-up time
if TYPE_CHECKING:
    import typing as t

    Request = t.Dict[str, t.Any]
    Entry = t.Dict[str, t.Any]
    Key = t.Tuple[str, int]

TOKEN = 3000  # bytes; the longest text in a configuration is 4096
MARK = "# Written by progressive.rollout"
KEYS = ("address", "port", "weight", "name", "since")


def paths(request: Request) -> tuple[str, str]:
    """Return the paths of NAME.conf and NAME.json."""
    stem = os.path.join(request["path"], request["upstream"])
    return stem + ".conf", stem + ".json"


def key(entry: Entry) -> Key:
    """Return what an entry is known by."""
    return entry["address"], entry["port"]


def ordered(entries: dict[Key, Entry]) -> list[Entry]:
    """Return entries, always in the same order."""
    return [entries[known] for known in sorted(entries)]


def render(request: Request, entries: list[Entry]) -> str:
    """Return the text of NAME.conf.

    Without an entry that is in rotation there is a server that is down: nginx wants one.
    """
    upstream = request["upstream"]
    servers = [
        "server %s weight=%d max_fails=%d;" % (_listen(entry), entry["weight"], request["fall"])
        for entry in entries
        if entry["in"]
    ]
    texts = status_texts(entries)
    lines = [
        "%s. Do not change it." % MARK,
        "upstream %s {" % upstream,
        "    zone rollout_%s %dk;" % (upstream, 64 + len(servers)),
        *("    " + server for server in servers or ["server 127.0.0.1:9 down;"]),
        "}",
        "server {",
        "    listen %s;" % _listen(dict(zip(("address", "port"), request["status"]))),
        "    server_name %s;" % upstream,
        "    access_log off;",
        *("    set $rollout_%d '%s';" % (number, text) for number, text in enumerate(texts)),
        "    return 200 'rollout %s;%s';"
        % (upstream, "".join("$rollout_%d" % number for number in range(len(texts)))),
        "}",
    ]
    return "\n".join(lines) + "\n"


def status_texts(entries: list[Entry]) -> list[str]:
    """Return what a worker's status response says of the entries that are in, in short texts."""
    texts: list[str] = []
    for entry in entries:
        if entry["in"]:
            line = "%(address)s %(port)d %(weight)d %(name)s;" % entry
            if texts and len(texts[-1]) + len(line) <= TOKEN:
                texts[-1] += line
            else:
                texts.append(line)
    return texts


def status_entries(text: str) -> t.Iterator[Entry]:
    """Yield the entries that a status response lists; raises ValueError with what is none."""
    for line in filter(None, text.split(";")):
        try:
            address, port, weight, name = line.split(" ")
            yield {
                "address": address,
                "port": int(port),
                "in": True,
                "weight": int(weight),
                "name": name,
                "since": 0,
            }
        except ValueError:
            raise ValueError(line) from None


def _listen(entry: Entry) -> str:
    """Return an address and a port as nginx reads them."""
    return ("[%s]:%d" if ":" in entry["address"] else "%s:%d") % (entry["address"], entry["port"])


def listens(text: str) -> tuple[str, int] | None:
    """Return the status address that a NAME.conf has."""
    for line in text.splitlines():
        word, _space, place = line.strip(" ;").partition(" ")
        address, _colon, port = place.rpartition(":")
        if word == "listen" and port.isdigit():
            return address.strip("[]"), int(port)
    return None


def dump(entries: list[Entry]) -> str:
    """Return the text of NAME.json."""
    return json.dumps([{name: entry[name] for name in KEYS} for entry in entries], indent=1) + "\n"


def load(text: str) -> dict[Key, Entry]:
    """Return the entries of NAME.json, by key.

    Raises ValueError, TypeError or KeyError for any other text.
    """
    return {key(entry): entry for entry in json.loads(text or "[]")}


def foreign_servers(text: str) -> bool:
    """Return True if a NAME.conf that no rollout wrote has servers that serve."""
    bare = "".join(line.partition("#")[0] for line in text.splitlines())
    return not text.startswith(MARK) and bare.count("server ") != bare.count(" down;")
