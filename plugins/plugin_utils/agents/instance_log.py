# SPDX-License-Identifier: GPL-3.0-or-later
"""Count the errors that instances of this host have logged since the last call.

Needs Python 3.8. No line leaves the host but one example of each kind of error, with secrets
masked. A log is a file, a unit's part of the journal, or what a container wrote.
"""

from __future__ import annotations

import os
import time
from calendar import timegm

from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import (
    _bootstrap,
    _log_file,
    _service,
    _templates,
)

TYPE_CHECKING = False  # importing typing costs start-up time
if TYPE_CHECKING:
    import typing as t

    # an entry's mark, when it was logged, its text, and whether its level is an error's
    Entry = t.Tuple[str, float, bytes, bool]

MOST = 16 << 20  # bytes of one call,
EACH = 4 << 20  # and of one log
SHORT = 40  # bytes that a line counts for, at least
LINES = 5000  # of one log whose bytes are not known before
ANSWER = 20.0  # seconds for journalctl, podman or docker
UNFINISHED = 1.0  # seconds in which an error's further lines may come


def main(request: dict[str, t.Any]) -> dict[str, t.Any]:
    """Answer `{logs: {instance: {source, mark}}, ignored}`.

    A source is `{file}`, `{record}` (of an instance that systemd runs), or `{program, container}`.
    Without a mark, what is there is read, as far as the bounds allow.

    The answer is `{logs: {instance: {mark, found, left_out, skipped}}}`, or `{error}` of one.
    `found` has by template how often it came, and an example. `skipped`: there was more.
    """
    room = max(1 << 16, min(EACH, MOST // max(1, len(request["logs"]))))
    answer: dict[str, t.Any] = {}
    for name, asked in request["logs"].items():
        templates = _templates.Templates(request["ignored"])
        try:
            mark, skipped = _read(asked["source"], asked.get("mark"), room, templates)
        except (OSError, ValueError, KeyError, TypeError, _service.Refused) as exc:
            answer[name] = {"error": _templates.text_of(str(exc).encode("utf-8", "replace"))[:300]}
            continue
        templates.end()
        answer[name] = {
            "mark": mark,
            "found": templates.found,
            "left_out": templates.left_out,
            "skipped": skipped,
        }
    return {"logs": answer}


def _read(
    source: dict[str, str], mark: t.Any, room: int, templates: _templates.Templates
) -> tuple[t.Any, bool]:
    """Read what was logged since the mark; return the new one, and whether there was more."""
    if "file" in source:
        return _file(source["file"], mark, room, templates)
    entries = _journal(source["record"], mark) if "record" in source else _output(source, mark)
    return _entries(entries, mark, templates), bool(mark) and len(entries) >= LINES


def _file(path: str, mark: t.Any, room: int, templates: _templates.Templates) -> tuple[t.Any, bool]:
    with _log_file.opened(path) as now:
        parts, skipped = _log_file.unread(path, now, mark, room)
        for file, start, end, cut in parts:
            lines = os.pread(file.fileno(), end - start, start).split(b"\n")
            lines = lines[cut : -1 if not lines[-1] else None]
            skipped += max(0, len(lines) - room // SHORT)
            for line in lines[-(room // SHORT) :]:
                templates.take(line)
            if file is not now:
                file.close()
        _file, start, end, _cut = parts[-1]
        age = time.time() - os.fstat(now.fileno()).st_mtime
        if 0 <= age < UNFINISHED and 0 < templates.open <= end - start:
            end -= templates.open  # it is read again, when it is whole
            templates.drop()
        return _log_file.mark_at(now, end), bool(mark) and skipped > 0


def _entries(entries: list[Entry], mark: t.Any, templates: _templates.Templates) -> t.Any:
    """Take entries; return the mark of the last one that was counted."""
    before, begun = mark, 0
    for cursor, _at, text, certain in entries:
        for number, line in enumerate(text.split(b"\n")):
            templates.take(line, certain and not number)
        if templates.begun > begun:
            begun, before = templates.begun, mark
        mark = cursor
    if entries and templates.open and 0 <= time.time() - entries[-1][1] < UNFINISHED:
        templates.drop()
        return before
    return mark


def _journal(path: str, mark: t.Any) -> list[Entry]:
    """Return what a unit has logged as the instance of a record."""
    with open(path, encoding="utf-8") as file:
        record = _bootstrap.load(file.read())
    since = f"--after-cursor={mark}" if mark else f"--since=@{int(record['created'])}"
    shown = ("--output=json", "--output-fields=MESSAGE,PRIORITY", f"--lines={LINES}", since)
    out = _run(
        False, "journalctl", "--quiet", "--no-pager", *shown, f"_SYSTEMD_UNIT={record['unit']}"
    )
    entries = []
    for line in out.splitlines():
        entry = _bootstrap.load(line)
        text = entry.get("MESSAGE") or ""
        if isinstance(text, list):  # not printable
            text = bytes(text).decode("utf-8", "replace")
        certain = str(entry.get("PRIORITY", "6")) in ("0", "1", "2", "3")
        at = int(entry["__REALTIME_TIMESTAMP"]) / 1e6
        entries.append((entry["__CURSOR"], at, text.encode("utf-8", "replace"), certain))
    return entries


def _output(source: dict[str, str], mark: t.Any) -> list[Entry]:
    """Return what a container wrote; its lines are known again by their times."""
    since = [f"--since={mark}"] if mark else []
    options = ("--timestamps", f"--tail={LINES}", *since)
    entries = []
    out = _run(True, source["program"], "logs", *options, source["container"])
    for line in out.split("\n"):
        stamp, _space, text = line.partition(" ")
        if len(stamp) >= len("2026-01-01T00:00:00Z") and stamp > (mark or ""):
            at = 1.0 * timegm(time.strptime(stamp[:19], "%Y-%m-%dT%H:%M:%S"))
            entries.append((stamp, at, text.encode(), False))
    return entries


def _run(together: bool, *argv: str) -> str:
    """Return what a program prints, its times in UTC; `together`: and what it says of errors."""
    status, out, errors = _service.run(*argv, timeout=ANSWER, together=together, env={"TZ": "UTC"})
    if status:
        raise _service.Refused(f"{argv[0]}: {_service.last_lines(errors or out)[-200:] or status}")
    return out
