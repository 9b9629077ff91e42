# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
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

from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import _bootstrap, _files

TYPE_CHECKING = False  # importing typing costs more than an operation
if TYPE_CHECKING:
    from typing import Any

SCHEMA = 1  # of the record and the lease; files of a newer one are refused
KEEP = 50  # timelines, and operators' words, of a service
LONGEST = 3600.0  # seconds a lease may live
LOCK_WAIT = 10.0  # seconds; an operation takes milliseconds, so a longer one is stuck

_WRITES = ("acquire", "commit", "release", "post")
_FIRST = ("acquire", "post")  # what may be the first to be written of a service
# The kinds of fields that are read again.
_NUMBER = (int, float)
_EVENT: dict[str, Any] = {"at": _NUMBER, "kind": str, "instance": str, "state": str, "shares": dict}
_WORD: dict[str, Any] = {
    "number": int,
    "at": _NUMBER,
    "rollout": str,
    "word": str,
    "by": str,
    "why": str,
    "replicas": int,
    "of": int,
}
_LEASE: dict[str, Any] = {
    "token": str,
    "holder": str,
    "since": _NUMBER,
    "until": _NUMBER,
    "details": dict,
    "epoch": int,
    "ttl": _NUMBER,
}
_NAME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-")


class Refused(Exception):
    """The operation was not done; `kind` says which exception it is for the caller."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


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
        self.words = stem + ".words.jsonl"
        self.timelines = stem

    def timeline(self, rollout: object) -> str:
        if (
            not isinstance(rollout, str)
            or not 0 < len(rollout) <= 128
            or rollout[0] == "."
            or not _NAME.issuperset(rollout)
        ):
            raise Refused(
                "store",
                f"service {self.service}: {rollout!r} cannot be a rollout's id: its timeline is a"
                " file of that name",
            )
        return os.path.join(self.timelines, rollout + ".jsonl")


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
    except Refused as exc:
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
    record = (
        _read(
            files.record,
            "restore it, or move it away: then the next rollout begins from what it observes",
        )
        or {}
    )
    record.pop("schema", None)
    return {"record": record}


def lease(files: Files, request: dict[str, Any], now: float) -> dict[str, Any]:
    """Return `lease`: who holds it, or null."""
    held = _held(files)[0]
    return {"lease": held if held and held["until"] > now else None}


def acquire(files: Files, request: dict[str, Any], now: float) -> dict[str, Any]:
    """Take token, holder, ttl and details; return `lease`, and `previous`: whose it was.

    `instead` is a lease that may be replaced unexpired.
    """
    for path in (files.record, files.lease, files.words):
        _files.discard(_files.draft(path))  # left by a killed operation
    held, epoch = _held(files)
    ours = held is not None and held["token"] == request["token"]
    if held and not ours:
        _bound(files, held, now)
    if held and not ours and held["until"] > now and not _same(held, request.get("instead")):
        raise Refused(
            "held",
            f"service {files.service}: the lease is held by {_whose(held, now)}; wait, or end"
            " that run",
        )
    taken = {
        "schema": SCHEMA,
        "token": request["token"],
        "holder": request["holder"],
        "since": held["since"] if held and ours else now,
        "until": now + request["ttl"],
        "ttl": request["ttl"],
        # A store made anew begins with the clock, as hosts may remember the epochs of the one that
        # was lost; in milliseconds, as leases may be taken faster than one in a second.
        "epoch": epoch if ours else (epoch or int(now * 1000)) + 1,
        "details": request["details"],
    }
    _write(files, taken)
    return {"lease": taken, "previous": None if ours else held}


def commit(files: Files, request: dict[str, Any], now: float) -> dict[str, Any]:
    """Take token, ttl, events, and a record or null; return `lease`.

    The timeline is written first, then the record, then the lease; a failure undoes the timeline.
    """
    held, _epoch = _held(files)
    if held is None or held["token"] != request["token"]:
        who = f"it is held by {_whose(held, now)}" if held else "nobody holds it"
        raise Refused(
            "lost",
            f"service {files.service}: this run no longer holds the lease; {who}. It stops before"
            " its next action",
        )
    record, events = request["record"], request["events"]
    held.update(until=now + request["ttl"], ttl=request["ttl"])
    path, size = "", 0
    if events:
        owner = load(files, request, now)["record"] if record is None else record
        path = files.timeline(owner.get("id"))
        size = _append(files, path, events)
    try:
        if record is not None:
            _files.stage(files.record, _bootstrap.dump(dict(record, schema=SCHEMA)), 0o600)
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
        _write(files, {"schema": SCHEMA, "epoch": epoch})
    return {}


def timeline(files: Files, request: dict[str, Any], now: float) -> dict[str, Any]:
    """Take a rollout; return `events`, oldest first.

    What a crash left of a last line is not an event.
    """
    return {"events": _lines(files.timeline(request["rollout"]), _EVENT)}


def post(files: Files, request: dict[str, Any], now: float) -> dict[str, Any]:
    """Take an operator's command (`word`); return its `number`.

    It needs no lease: an operator speaks to whoever holds it. The last commands are kept, each with
    its number. What a play asks for (`request`) is taken for the first of its hosts (`host`) only.
    """
    kept, new = _words(files), request["word"]
    for word in kept:
        if (
            new.get("request")
            and word.get("request") == new["request"]
            and word.get("host") != new["host"]
        ):
            return {"number": word["number"]}
    # A file that was lost does not begin with numbers that were obeyed already.
    last = max(
        kept[-1]["number"] if kept else 0, load(files, request, now)["record"].get("obeyed", 0)
    )
    kept.append(dict(new, number=last + 1))
    _files.write(files.words, "".join(_bootstrap.dump(word) + "\n" for word in kept[-KEEP:]), 0o600)
    _sync(files.journal)
    return {"number": last + 1}


def words(files: Files, request: dict[str, Any], now: float) -> dict[str, Any]:
    """Take a number (`after`); return the commands with higher ones, oldest first."""
    return {"words": [word for word in _words(files) if word["number"] > request["after"]]}


_OPERATIONS = {
    "load": load,
    "lease": lease,
    "acquire": acquire,
    "commit": commit,
    "release": release,
    "timeline": timeline,
    "post": post,
    "words": words,
}


def _lock(files: Files, op: str) -> int | None:
    """Return the locked file; None where nothing was ever written.

    Only the operations in `_FIRST` make the directory.
    """
    if op in _FIRST and not os.path.isdir(files.journal):
        os.makedirs(files.journal, 0o700, exist_ok=True)
        _sync(files.path)
    writes = op in _WRITES
    try:
        lock = os.open(
            files.lock, os.O_NOFOLLOW | (os.O_RDWR | os.O_CREAT if writes else os.O_RDONLY), 0o600
        )
    except FileNotFoundError:
        return None
    deadline = time.monotonic() + LOCK_WAIT
    while True:
        try:
            fcntl.flock(lock, (fcntl.LOCK_EX if writes else fcntl.LOCK_SH) | fcntl.LOCK_NB)
            return lock
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(lock)
                raise Refused(
                    "store",
                    f"{files.lock} has been locked for {LOCK_WAIT:g} s; `fuser -v {files.lock}`"
                    " says by whom",
                ) from None
        except OSError:
            os.close(lock)
            raise
        time.sleep(0.002)


def _held(files: Files) -> tuple[dict[str, Any] | None, int]:
    """Return the lease that is held, expired or not (or None), and the last epoch."""
    remedy = (
        f'if no rollout of {files.service} runs, write {{"epoch": N}} into it, N above the last'
        " run's (hosts refuse a lower one; if unknown, take what `date +%s000` prints)"
    )
    found = _read(files.lease, remedy) or {"epoch": 0}
    wrong = _wrong(found, _LEASE)
    for key in (
        ("epoch", "token", "holder", "since", "until", "details")
        if "token" in found
        else ("epoch",)
    ):
        wrong = wrong or (key if found.get(key) is None else "")
    if wrong:
        raise Refused("damaged", f"{files.lease}: {wrong} is missing or wrong; {remedy}")
    return (found if "token" in found else None), found["epoch"]


def _bound(files: Files, held: dict[str, Any], now: float) -> None:
    """Have a lease end no later than it lives.

    Otherwise it was taken by a clock that ran ahead, or this one was set back since. A holder that
    is alive renews it long before.
    """
    latest = now + held.get("ttl", LONGEST)
    if held["until"] > latest:
        held["until"] = latest
        _write(files, held)


def _same(held: dict[str, Any], instead: dict[str, Any] | None) -> bool:
    """Return whether a lease is exactly the one that was looked at: not renewed since, either."""
    return instead is not None and all(
        held[key] == instead[key] for key in ("token", "epoch", "until")
    )


def _whose(held: dict[str, Any], now: float) -> str:
    left = held["until"] - now
    rest = f"another {-int(-left // 1)} s" if left > 0 else "expired"
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(held["since"]))
    return (
        f"{held['holder']} since {since} until"
        f" {time.strftime('%H:%M:%SZ', time.gmtime(held['until']))} ({rest})"
    )


def _read(path: str, remedy: str) -> dict[str, Any] | None:
    """Return the JSON object in a file, or None if there is no file."""
    try:
        with open(path, "rb") as stream:
            data = stream.read()
    except FileNotFoundError:
        return None
    try:
        found = _bootstrap.load(data)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise Refused("damaged", f"{path} is damaged (not a whole JSON object); {remedy}")
    schema = found.get("schema", SCHEMA)
    if not isinstance(schema, int) or schema > SCHEMA:
        raise Refused(
            "newer",
            f"{path} has schema {schema!r}, this progressive.rollout knows up to {SCHEMA}: install"
            " a newer one",
        )
    return found


def _lines(path: str, kinds: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the JSON objects in a file, one a line, with fields of these kinds.

    What a crash left of a last line is not an object; without a file there are none.
    """
    try:
        with open(path, "rb") as stream:
            lines = stream.read().split(b"\n")[:-1]
    except FileNotFoundError:
        return []
    found = []
    for number, line in enumerate(lines, 1):
        try:
            one = _bootstrap.load(line)
        except (ValueError, RecursionError):
            one = None
        if not isinstance(one, dict):
            raise Refused(
                "damaged",
                f"{path}: line {number} is not a JSON object; delete that line or move the file"
                " away",
            )
        key = _wrong(one, kinds)
        if key:
            raise Refused(
                "damaged",
                f"{path}: line {number}: {key} is missing or wrong; delete that line or move the"
                " file away",
            )
        found.append(one)
    return found


def _wrong(data: dict[str, Any], kinds: dict[str, Any]) -> str:
    """Return the first field that is there and of another kind than it should be, or nothing.

    Numbers have to be finite, and no moment farther away than the year 5138; what is counted (an
    epoch, a number) may be that moment in milliseconds.
    """
    for key, kind in kinds.items():
        value, most = data.get(key), 1e14 if kind is int else 1e11
        number = isinstance(value, (int, float))
        if value is not None and (
            not isinstance(value, kind)
            or isinstance(value, bool)
            or (number and not abs(value) < most)
        ):
            return key
    return ""


def _words(files: Files) -> list[dict[str, Any]]:
    """Return the operators' commands that are kept, oldest first."""
    found = _lines(files.words, _WORD)
    for number, word in enumerate(found, 1):
        if word.get("number") is None:
            raise Refused(
                "damaged",
                f"{files.words}: line {number}: number is missing or wrong; delete that line or"
                " move the file away",
            )
    return found


def _write(files: Files, lease: dict[str, Any]) -> None:
    """Replace the lease."""
    _files.write(files.lease, _bootstrap.dump(lease), 0o600)
    _sync(files.journal)


def _append(files: Files, path: str, events: list[dict[str, Any]]) -> int:
    """Append events; return the size before.

    A torn last line, left by a crash, goes first.
    """
    lines = "".join(_bootstrap.dump(event) + "\n" for event in events).encode()
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
    if len(paths) >= KEEP:
        paths.sort(key=lambda path: (os.stat(path).st_mtime_ns, path))
        for path in paths[: len(paths) - KEEP + 1]:
            _files.discard(path)


def _put(target: int, data: bytes) -> None:
    while data:
        data = data[os.write(target, data) :]
    os.fsync(target)


def _sync(directory: str) -> None:
    target = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(target)
    finally:
        os.close(target)
