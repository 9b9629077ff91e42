# SPDX-License-Identifier: GPL-3.0-or-later
"""Carry lines to HAProxy's Runtime API on the host it runs on. Decide nothing.

Needs Python 3.8.
"""

from __future__ import annotations

import os
import socket
import time

from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import (
    _bootstrap,
    _files,
    _talk,
)

TYPE_CHECKING = False  # importing typing costs start-up time
if TYPE_CHECKING:
    import typing as t

    Request = t.Dict[str, t.Any]


def main(request: Request) -> dict[str, t.Any]:
    """Answer `{sockets: {address: work}, path, service, pool, pools, epoch, journal, timeout,
    state_file}` with `{address: answer}`.

    Work is `lines` and, where it is a check, which leaves nothing behind, `folders`: by option,
    those that this user has to be able to write in. Where something is changed it has `change`: its
    `line` shows the servers, and its `servers` are those that the lines change, as backend/name,
    each with the address it has to have (none: it must not be there); `uses` are, by pool, the
    prepared servers that are the service's from then on, each with where it leads to. `save` is
    `{path, line}`: the text of one more line, kept in a file. An answer is `{texts}`, with `uses`
    by pool (of `pools`) and service, of a check with the `journal` that the pool belongs to,
    `{error}`, `{stale}` where a newer lease holder or another journal's run has acted,
    `{unusable: {option: why}}`, or `{shared: why}` where the state file has other backends.
    `timeout` is of each socket.
    """
    return {
        address: _answer(address, work, request) for address, work in request["sockets"].items()
    }


def _answer(address: str, work: dict[str, t.Any], request: Request) -> dict[str, t.Any]:
    looks = "folders" in work
    unusable = {
        option: _files.unusable(folder) for option, folder in work.get("folders", {}).items()
    }
    if any(unusable.values()):
        return {"unusable": {option: why for option, why in unusable.items() if why}}
    others = _others(request["state_file"], request["pool"]) if looks else []
    if others:
        what = "%s has servers of %s: each change would leave only those of %s in it"
        whose = "backend%s %s" % ("s" if others[1:] else "", ", ".join(others))
        return {"shared": what % (request["state_file"], whose, request["pool"])}
    try:
        epoch, kept = 0 if looks else request["epoch"], request["pools"]
        saved = [
            *filter(None, [request["state_file"]]),
            *(_used(request, address, p) for p in kept),
        ]
        mark = _mark(request, address)
        with _files.Fenced(_stem(request, address), epoch, mark, saved):
            texts = _work(address, work, request, mark)
        shown = {"uses": _uses(request, address)} if request["pools"] else {}
        return {"texts": texts, **shown, **(mark.shown() if looks else {})}
    except _files.Stale as exc:
        return {"stale": str(exc)}
    except _files.Refused as exc:
        return {"error": str(exc)}
    except OSError as exc:
        why = exc.strerror or str(exc) or type(exc).__name__
        hint = "does HAProxy run, and may the user that Ansible logs in as use this socket?"
        if isinstance(exc, socket.gaierror):
            hint = "use a name that resolves here, or an address"
        return {"error": "%s: %s" % (exc.filename, why) if exc.filename else "%s; %s" % (why, hint)}


def _stem(request: Request, address: str) -> str:
    return stem(request["path"], request["service"], address)


def stem(path: str, service: str, address: str) -> str:
    """Return the path of the lock and the epoch of a service at one HAProxy, without an ending.

    For example `<path>/haproxy/shop@_run_haproxy_admin.sock`.
    """
    return os.path.join(path, "haproxy", "%s@%s" % (service, address.replace("/", "_")))


def _mark(request: Request, address: str) -> _files.JournalMark:
    """Return which journal the service's servers in the pool belong to.

    Services of one name may have pools of their own at one HAProxy.
    """
    path = "%s@%s.journal" % (_stem(request, address), request["pool"])
    return _files.JournalMark(path, "the servers of pool %s" % request["pool"], request["journal"])


def _uses(request: Request, address: str) -> dict[str, t.Any]:
    """Return by pool and service which prepared servers the service has put to use, each with where
    it leads to; null: an earlier version kept none.

    HAProxy itself keeps no such mark, and a file outlives a reload.
    """
    folder = os.path.join(request["path"], "haproxy")
    try:
        names = os.listdir(folder)
    except OSError:  # there is none yet
        names = []
    uses: dict[str, t.Any] = {}
    for pool in request["pools"]:
        of_pool = uses[pool] = {}
        for ending in (".journal", ".servers"):
            rest = stem("", "", address)[len("haproxy/") :] + "@" + pool + ending
            for name in names:
                service = name[: -len(rest)]
                if name.endswith(rest) and service and "@" not in service:
                    servers = os.path.join(folder, name) if ending == ".servers" else ""
                    of_pool[service] = _read(servers) if servers else None
    return uses


def _read(path: str) -> dict[str, str]:
    """Return the servers that a file has, none if it cannot be read."""
    try:
        with open(path, encoding="utf-8") as file:
            servers = _bootstrap.load(file.read())
    except (OSError, ValueError):
        return {}
    known = servers if isinstance(servers, dict) else {}
    return {name: place for name, place in known.items() if isinstance(place, str)}


def _used(request: Request, address: str, pool: str) -> str:
    """Return the path of the file with the prepared servers that the service uses."""
    return "%s@%s.servers" % (_stem(request, address), pool)


def _claim(request: Request, address: str, uses: dict[str, dict[str, str]]) -> None:
    """Note which prepared servers the service uses, before they are put to use."""
    for pool, servers in uses.items():
        path = _used(request, address, pool)
        if servers != _read(path):
            _files.write(path, _bootstrap.dump(servers))


def _work(
    address: str, work: dict[str, t.Any], request: Request, mark: _files.JournalMark
) -> list[str]:
    """Return the answers to the lines.

    HAProxy closes the connection after a line, so each line has its own.
    """
    until = time.monotonic() + request["timeout"]
    place: str | tuple[str, int] = address
    if not address.startswith("/"):
        host, _colon, port = address.rpartition(":")
        place = (host.strip("[]"), int(port))

    def ask(line: str) -> str:
        return _talk.ask(place, line.encode() + b"\n", until - time.monotonic()).decode(
            "utf-8", "replace"
        )

    change = work.get("change")
    if change:
        if request["epoch"] <= 0:
            raise _files.Refused("nothing is changed without a lease (epoch 0 only looks)")
        _compare(ask(change["line"]), change["servers"])
        mark.claim()
        _claim(request, address, change.get("uses", {}))
    texts = [ask(line) for line in work["lines"]]
    if work.get("save"):
        _files.write(work["save"]["path"], ask(work["save"]["line"]).rstrip() + "\n", 0o644)
    return texts


def _others(path: str, pool: str) -> list[str]:
    """Return the other backends that a state file has servers of."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = [line.split() for line in file if line[:1].isdigit()]
    except OSError:  # there is none yet
        return []
    return sorted({fields[1] for fields in lines if len(fields) > 18} - {pool})


def _compare(states: str, servers: dict[str, str]) -> None:
    """Raise where a server has another address than the one that the change was decided for."""
    present = {}
    for line in states.splitlines():
        fields = line.split()
        if len(fields) > 18 and line[:1].isdigit():
            present["%s/%s" % (fields[1], fields[3])] = "%s %s" % (fields[4], fields[18])
    for name, address in servers.items():
        if present.get(name, "") != address:
            seen = ("has the address %s" % present[name]) if name in present else "is not there"
            meant = ("had %s" % address) if address else "was not there"
            text = (
                "server %s %s and %s when this was decided: nothing is changed, and it is looked at"
                " again"
            )
            raise _files.Refused(text % (name.partition("/")[2], seen, meant))
