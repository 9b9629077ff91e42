# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules of the journal and the lease, the same wherever they are kept. Pure.

Needs Python 3.8: the agent of the `file` store imports it, too.
"""

from __future__ import annotations

import time

from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import _bootstrap

TYPE_CHECKING = False  # importing typing costs more than an operation
if TYPE_CHECKING:
    from typing import Any, Mapping, Sequence

# Of the record; a newer one is refused. It is raised when fields get a meaning that an earlier
# version would lose or act against; only a commit writes it, so a run that only reads, or that is
# refused, leaves a record that the earlier version can use.
# 1: the first; 2: settings of revisions, and with which settings commands continue; 3: the release
# that a rollout is a member of
SCHEMA = 3
NEEDS = "1.0.0"  # the first release that reads it
LEASE_SCHEMA = 1
KEEP = 50  # timelines, and operators' commands, of a service
LONGEST = 3600.0  # seconds a lease may live

RECORD = "restore it, or move it away: then the next rollout begins from what it observes"
# The kinds of fields that are read again.
_NUMBER = (int, float)
EVENT: dict[str, Any] = {"at": _NUMBER, "kind": str, "instance": str, "state": str, "shares": dict}
COMMAND: dict[str, Any] = {
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


def document(
    data: bytes | None, where: str, remedy: str, known: int = LEASE_SCHEMA
) -> dict[str, Any] | None:
    """Return the JSON object that is kept somewhere, None for none.

    A schema above the one that is `known` is refused.
    """
    if data is None:
        return None
    try:
        parsed = _bootstrap.load(data)
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        raise Refused("damaged", f"{where} is damaged (not a whole JSON object); {remedy}")
    schema = parsed.get("schema", 1)
    if not isinstance(schema, int) or schema > known:
        needs = parsed.get("needs")
        version = "the version that wrote it"
        if isinstance(needs, str) and _NAME.issuperset(needs):
            version = needs[:20] + " or newer"
        raise Refused(
            "newer",
            f"{where} was written by a newer version of progressive.rollout (schema {schema!r};"
            f" this version reads up to {known}); install {version} on this controller",
        )
    return parsed


def record(data: bytes | None, where: str) -> dict[str, Any]:
    """Return the record, an empty one where there is none."""
    record = document(data, where, RECORD, SCHEMA) or {}
    for name in ("schema", "needs"):
        record.pop(name, None)
    return record


def written(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record as it is stored."""
    return dict(record, schema=SCHEMA, needs=NEEDS)


def held(
    data: bytes | None, where: str, service: str
) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """Return the lease that is held, expired or not (or None), and what is kept of it always: the
    last epoch.
    """
    remedy = (
        f'if no rollout of {service} runs, write {{"epoch": N}} into it, N above the last'
        " run's (hosts refuse a lower one; if unknown, take what `date +%s000` prints)"
    )
    lease = document(data, where, remedy) or {"epoch": 0}
    missing = wrong(lease, _LEASE)
    for key in (
        ("epoch", "token", "holder", "since", "until", "details")
        if "token" in lease
        else ("epoch",)
    ):
        missing = missing or (key if lease.get(key) is None else "")
    if missing:
        raise Refused("damaged", f"{where}: {missing} is missing or wrong; {remedy}")
    return (lease if "token" in lease else None), lease


def taken(
    held: dict[str, Any] | None, epoch: int, request: Mapping[str, Any], now: float
) -> dict[str, Any]:
    """Return the lease for token, holder, ttl and details of a request, which may have it.

    Its epoch is above the last one, and above `above`: hosts may remember those of a journal that
    was elsewhere. A journal made anew, or restored from a backup, begins with the clock, since
    hosts remember the epochs after it; in milliseconds, as leases may be taken faster than one in a
    second.
    """
    ours = held is not None and held["token"] == request["token"]
    newest = max(epoch, request.get("above", 0), int(now * 1000))
    return {
        "schema": LEASE_SCHEMA,
        "token": request["token"],
        "holder": request["holder"],
        "since": held["since"] if held and ours else now,
        "until": now + request["ttl"],
        "ttl": request["ttl"],
        "epoch": epoch if ours else newest + 1,
        "details": request["details"],
    }


def refuse_held(service: str, held: Mapping[str, Any], now: float) -> Refused:
    """Return the refusal of a lease that another run holds."""
    return Refused(
        "held",
        f"service {service}: the lease is held by {whose(held, now)}; wait for its end",
    )


def check_ours(service: str, held: dict[str, Any] | None, token: str, now: float) -> dict[str, Any]:
    """Return the lease, and refuse a run that does not hold it; an expired one is still its own."""
    if held is None or held["token"] != token:
        who = f"it is held by {whose(held, now)}" if held else "no run holds it"
        raise Refused(
            "lost",
            f"service {service}: this run no longer holds the lease; {who}. It stops before"
            " its next action",
        )
    return held


def latest(held: Mapping[str, Any], now: float) -> float:
    """Return when a lease ends at the latest: no later than it lives.

    Otherwise it was taken by a clock that ran ahead, or this one was set back since. A holder that
    is alive renews it long before.
    """
    bound: float = min(held["until"], now + held.get("ttl", LONGEST))
    return bound


def whose(held: Mapping[str, Any], now: float) -> str:
    """Return the holder of a lease, for people."""
    left = held["until"] - now
    rest = f"another {-int(-left // 1)} s" if left > 0 else "expired"
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(held["since"]))
    return (
        f"{held['holder']} since {since} until"
        f" {time.strftime('%H:%M:%SZ', time.gmtime(held['until']))} ({rest})"
    )


def posted(
    kept: Sequence[dict[str, Any]], new: dict[str, Any], obeyed: int
) -> tuple[int, list[dict[str, Any]] | None]:
    """Return the number of an operator's new command, and those to keep: None, if it is there.

    What a play asks for (`request`) is taken for the first of its hosts (`host`) only.
    """
    for command in kept:
        if (
            new.get("request")
            and command.get("request") == new["request"]
            and command.get("host") != new["host"]
        ):
            return command["number"], None
    # Commands that were lost do not begin with numbers that were obeyed already.
    number = max(kept[-1]["number"] if kept else 0, obeyed) + 1
    return number, [*kept, dict(new, number=number)][-KEEP:]


def commands(data: bytes, where: str) -> list[dict[str, Any]]:
    """Return the operators' commands that are kept, oldest first."""
    commands = lines(data, where, COMMAND)
    for number, command in enumerate(commands, 1):
        if command.get("number") is None:
            raise Refused(
                "damaged",
                f"{where}: line {number}: number is missing or wrong; delete that line or"
                " move the file away",
            )
    return commands


def lines(data: bytes, where: str, kinds: dict[str, Any]) -> list[dict[str, Any]]:
    """Return JSON objects, one a line, with fields of these kinds.

    What a crash left of a last line is not an object.
    """
    entries = []
    for number, line in enumerate(data.split(b"\n")[:-1], 1):
        try:
            entry = _bootstrap.load(line)
        except (ValueError, RecursionError):
            entry = None
        if not isinstance(entry, dict):
            raise Refused(
                "damaged",
                f"{where}: line {number} is not a JSON object; delete that line or move the file"
                " away",
            )
        key = wrong(entry, kinds)
        if key:
            raise Refused(
                "damaged",
                f"{where}: line {number}: {key} is missing or wrong; delete that line or move the"
                " file away",
            )
        entries.append(entry)
    return entries


def joined(objects: Sequence[Mapping[str, Any]]) -> str:
    """Return objects as lines of JSON."""
    return "".join(_bootstrap.dump(item) + "\n" for item in objects)


def rollout(service: str, given: object) -> str:
    """Return a rollout's id, which names its timeline."""
    if (
        not isinstance(given, str)
        or not 0 < len(given) <= 128
        or given[0] == "."
        or not _NAME.issuperset(given)
    ):
        raise Refused(
            "store",
            f"service {service}: {given!r} cannot be a rollout's id: its timeline has that name",
        )
    return given


def wrong(data: Mapping[str, Any], kinds: Mapping[str, Any]) -> str:
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
