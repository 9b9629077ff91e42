# SPDX-License-Identifier: GPL-3.0-or-later
"""The agent of the `file` store: one operation on the journal and the lease of one service.

Runs in the controller's own process or on the store's host; Python 3.8, standard library only. Only
this host's clock is used. A request has `op`, `path`, `service`, `where` (how messages call this
host) and what the operation takes. The answer has `now`, or `refused` (`held`, `lost`, `store`) and
`message`.
"""

from __future__ import annotations

import fcntl
import os
import time

from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import (
    _bootstrap,
    _files,
    _journal,
)

TYPE_CHECKING = False  # importing typing costs more than an operation
if TYPE_CHECKING:
    from typing import Any

LOCK_WAIT = 10.0  # seconds; an operation takes milliseconds, so a longer one is stuck

_WRITES = ("acquire", "commit", "release", "post", "erase")
_FIRST = ("acquire", "post")  # what may be the first to be written of a service


class Files:
    """Where one service's journal lives."""

    def __init__(self, path: str, service: str) -> None:
        self.service = service
        self.path = path
        self.journal = os.path.join(path, "journal")
        stem = os.path.join(self.journal, service)
        self.record = stem + ".json"
        self.lease = stem + ".lease.json"
        self.lock = stem + ".lock"
        self.commands = stem + ".words.jsonl"  # the name that it has had from the beginning
        self.timelines = stem

    def timeline(self, rollout: object) -> str:
        name = _journal.rollout(self.service, rollout)
        return os.path.join(self.timelines, name + ".jsonl")


def main(request: dict[str, Any]) -> dict[str, Any]:
    """Do `request["op"]` under the service's lock.

    The functions of that name say what they take and return.
    """
    files = Files(request["path"], request["service"])
    try:
        lock = _lock(files, request["op"])
        try:
            now = time.time()
            answer = _OPERATIONS[request["op"]](files, request, now)
            answer["now"] = now
            return answer
        finally:
            if lock is not None:
                # said aloud: a child forked meanwhile shares the open file
                fcntl.flock(lock, fcntl.LOCK_UN)
                os.close(lock)
    except _journal.Refused as exc:
        return {"refused": exc.kind, "message": str(exc)}
    except OSError as exc:
        return {
            "refused": "store",
            "message": (
                f"rollout_store.path: {exc.filename or files.path} on {request['where']}:"
                f" {exc.strerror}; uid {os.geteuid()} must be able to read and write there, with"
                " room on the disk; or set another rollout_store.path"
            ),
        }


def load(files: Files, request: dict[str, Any], now: float) -> dict[str, Any]:
    """Return `record`: what was last committed, or an empty one."""
    return {"record": _journal.record(_read(files.record), files.record)}


def lease(files: Files, request: dict[str, Any], now: float) -> dict[str, Any]:
    """Return `lease`: who holds it, or null."""
    held = _held(files)[0]
    return {"lease": held if held and held["until"] > now else None}


def acquire(files: Files, request: dict[str, Any], now: float) -> dict[str, Any]:
    """Take token, holder, ttl and details; return `lease`, and `previous`: whose it was.

    `instead` is a lease that may be replaced unexpired.
    """
    for path in (files.record, files.lease, files.commands):
        # left by a killed operation, of this version or of one before
        for left in (_files.draft(path), path + _files.DRAFT):
            _files.discard(left)
    held, epoch = _held(files)
    ours = held is not None and held["token"] == request["token"]
    if held and not ours:
        _bound(files, held, now)
    if held and not ours and held["until"] > now and not _same(held, request.get("instead")):
        raise _journal.refuse_held(files.service, held, now)
    taken = _journal.taken(held, epoch, request, now)
    _write(files, taken)
    return {"lease": taken, "previous": None if ours else held}


def commit(files: Files, request: dict[str, Any], now: float) -> dict[str, Any]:
    """Take token, ttl, events, and a record or null; return `lease`.

    The timeline is written first, then the record, then the lease; a failure undoes the timeline.
    """
    held, _epoch = _held(files)
    held = _journal.check_ours(files.service, held, request["token"], now)
    record, events = request["record"], request["events"]
    held.update(until=now + request["ttl"], ttl=request["ttl"])
    path, size = "", 0
    if events:
        owner = load(files, request, now)["record"] if record is None else record
        path = files.timeline(owner.get("id"))
        size = _append(files, path, events)
    try:
        if record is not None:
            _files.stage(files.record, _bootstrap.dump(_journal.written(record)), 0o600)
        _files.stage(files.lease, _bootstrap.dump(held), 0o600)
    except OSError:
        if events:
            os.truncate(path, size)
        raise
    if record is not None:
        os.replace(_files.draft(files.record), files.record)
    os.replace(_files.draft(files.lease), files.lease)
    _sync(files.journal)
    return {"lease": held}


def release(files: Files, request: dict[str, Any], now: float) -> dict[str, Any]:
    """Take a token; return nothing.

    The epoch stays, so that the next holder's is higher.
    """
    held, epoch = _held(files)
    if held and held["token"] == request["token"]:
        _write(files, {"schema": _journal.LEASE_SCHEMA, "epoch": epoch})
    return {}


def erase(files: Files, request: dict[str, Any], now: float) -> dict[str, Any]:
    """Take a token; remove all that there is of the service, the lease last. Return nothing."""
    held, _epoch = _held(files)
    _journal.check_ours(files.service, held, request["token"], now)
    for entry in os.scandir(files.timelines) if os.path.isdir(files.timelines) else ():
        _files.discard(entry.path)
    _remove_empty(files.timelines)
    for path in (files.record, files.commands, files.lease, files.lock):
        _files.discard(_files.draft(path))
        _files.discard(path)
    _remove_empty(files.journal)
    _remove_empty(files.path)
    return {}


def timeline(files: Files, request: dict[str, Any], now: float) -> dict[str, Any]:
    """Take a rollout; return `events`, oldest first.

    What a crash left of a last line is not an event.
    """
    path = files.timeline(request["rollout"])
    return {"events": _journal.lines(_read(path) or b"", path, _journal.EVENT)}


def post(files: Files, request: dict[str, Any], now: float) -> dict[str, Any]:
    """Take an operator's command (`command`); return its `number`.

    It needs no lease: an operator speaks to whoever holds it. The last commands are kept, each with
    its number.
    """
    obeyed = load(files, request, now)["record"].get("obeyed", 0)
    number, kept = _journal.posted(_commands(files), request["command"], obeyed)
    if kept is not None:
        _files.write(files.commands, _journal.joined(kept), 0o600)
        _sync(files.journal)
    return {"number": number}


def commands(files: Files, request: dict[str, Any], now: float) -> dict[str, Any]:
    """Take a number (`after`); return the commands with higher ones, oldest first."""
    return {
        "commands": [
            command for command in _commands(files) if command["number"] > request["after"]
        ]
    }


_OPERATIONS = {
    "load": load,
    "lease": lease,
    "acquire": acquire,
    "commit": commit,
    "release": release,
    "erase": erase,
    "timeline": timeline,
    "post": post,
    "commands": commands,
}


def _lock(files: Files, op: str) -> int | None:
    """Return the locked file; None where nothing was ever written.

    Only the operations in `_FIRST` make it, and its directory.
    """
    if op in _FIRST and not os.path.isdir(files.journal):
        os.makedirs(files.journal, 0o700, exist_ok=True)
        _sync(files.path)
    writes = op in _WRITES
    flags = (os.O_RDWR if writes else os.O_RDONLY) | (os.O_CREAT if op in _FIRST else 0)
    try:
        lock = os.open(files.lock, os.O_NOFOLLOW | flags, 0o600)
    except FileNotFoundError:
        return None
    deadline = time.monotonic() + LOCK_WAIT
    while True:
        try:
            fcntl.flock(lock, (fcntl.LOCK_EX if writes else fcntl.LOCK_SH) | fcntl.LOCK_NB)
            if _is_at(lock, files.lock):
                return lock
            os.close(lock)  # the journal was removed meanwhile
            return _lock(files, op)
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(lock)
                raise _journal.Refused(
                    "store",
                    f"{files.lock} has been locked for {LOCK_WAIT:g} s; `fuser -v {files.lock}`"
                    " says by whom",
                ) from None
        except OSError:
            os.close(lock)
            raise
        time.sleep(0.002)


def _is_at(lock: int, path: str) -> bool:
    """Return whether an open file still is the one of this path."""
    try:
        return os.path.samestat(os.fstat(lock), os.stat(path))
    except FileNotFoundError:
        return False


def _held(files: Files) -> tuple[dict[str, Any] | None, int]:
    """Return the lease that is held, expired or not (or None), and the last epoch."""
    held, kept = _journal.held(_read(files.lease), files.lease, files.service)
    return held, kept["epoch"]


def _bound(files: Files, held: dict[str, Any], now: float) -> None:
    """Have a lease end no later than it lives."""
    latest = _journal.latest(held, now)
    if held["until"] > latest:
        held["until"] = latest
        _write(files, held)


def _same(held: dict[str, Any], instead: dict[str, Any] | None) -> bool:
    """Return whether a lease is exactly the one that was looked at: not renewed since, either."""
    return instead is not None and all(
        held[key] == instead[key] for key in ("token", "epoch", "until")
    )


def _read(path: str) -> bytes | None:
    """Return what is in a file, or None if there is no file."""
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except FileNotFoundError:
        return None


def _commands(files: Files) -> list[dict[str, Any]]:
    """Return the operators' commands that are kept, oldest first."""
    return _journal.commands(_read(files.commands) or b"", files.commands)


def _write(files: Files, lease: dict[str, Any]) -> None:
    """Replace the lease."""
    _files.write(files.lease, _bootstrap.dump(lease), 0o600)
    _sync(files.journal)


def _append(files: Files, path: str, events: list[dict[str, Any]]) -> int:
    """Append events; return the size before.

    A torn last line, left by a crash, goes first.
    """
    lines = _journal.joined(events).encode()
    os.makedirs(files.timelines, 0o700, exist_ok=True)
    new = not os.path.exists(path)
    target = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        size = os.lseek(target, 0, os.SEEK_END)
        if size and os.pread(target, 1, size - 1) != b"\n":
            size = os.pread(target, size, 0).rfind(b"\n") + 1
            os.ftruncate(target, size)
        os.lseek(target, size, os.SEEK_SET)
        try:
            _put(target, lines)
        except OSError:
            os.ftruncate(target, size)
            raise
    finally:
        os.close(target)
    if new:
        _prune(files, path)
        _sync(files.timelines)
    return size


def _prune(files: Files, newest: str) -> None:
    """Keep the newest timelines only."""
    paths = [
        entry.path
        for entry in os.scandir(files.timelines)
        if entry.name.endswith(".jsonl") and entry.path != newest
    ]
    if len(paths) >= _journal.KEEP:
        paths.sort(key=lambda path: (os.stat(path).st_mtime_ns, path))
        for path in paths[: len(paths) - _journal.KEEP + 1]:
            _files.discard(path)


def _put(target: int, data: bytes) -> None:
    while data:
        data = data[os.write(target, data) :]
    os.fsync(target)


def _remove_empty(folder: str) -> None:
    try:
        os.rmdir(folder)
    except OSError:  # others' journals are there, or it is not ours
        pass


def _sync(directory: str) -> None:
    target = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(target)
    finally:
        os.close(target)
