# SPDX-License-Identifier: GPL-3.0-or-later
"""Count what a load balancer has logged of each instance since the last call.

Needs Python 3.8. No line of the log leaves the host: `main` returns numbers. It reads from where
the last call ended (`mark`), also in a file that was rotated meanwhile, and at most `MOST` bytes;
what is before these is skipped.
"""

from __future__ import annotations

import math
import os

from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import _log_file, _talk

TYPE_CHECKING = False  # importing typing costs start-up time
if TYPE_CHECKING:
    import typing as t

    Request = t.Dict[str, t.Any]
    Found = t.Dict[str, t.Dict[str, t.Any]]

MOST = 48 << 20  # bytes of one call: some 400,000 lines, and a second or two
CHUNK = 4 << 20
FINE = 32  # buckets to a doubling of the time, as in `engine/judges/latency.py`
LEAST = 0.005  # seconds; faster counts as this, since load balancers log whole milliseconds
LONGEST = 86400.0  # seconds
LARGEST = 2.0**50  # bytes
# By the word that a line begins with: seconds of a unit of its times, and what tells that the
# client has gone.
FORMATS = {
    b"rollout-nginx": (1.0, (b"499",)),
    b"rollout-haproxy": (0.001, (b"C",)),
    b"rollout-envoy": (0.001, (b"DC", b"DR")),
}
# word, addresses, statuses, times to the answer, times to its end, how it ended (and after a space
# the bytes of the answer, which older formats lack), and the path
FIELDS = 7


def main(request: Request) -> dict[str, t.Any]:
    """Answer `{file, mark, addresses, errors, path, whole, sizes}`.

    Only requests to these `addresses` are counted, and whose path begins with `path`. An error is
    an answer whose status begins with one of `errors`, or none. The time is to the first byte of
    the answer, or, with `whole`, to its end. Without a `mark`, nothing is read. With `sizes`, the
    buckets are those of the bytes of answers with status 200.

    The answer is `{mark, found, lines, unread, skipped}`, or `{error}`. `found` has, by address,
    `requests`, `errors`, and `buckets`: numbers of answers by their time or size. `unread` is the
    number of lines without the format, `skipped` that of bytes that were too many.
    """
    try:
        return _count(request)
    except OSError as exc:
        return {"error": "%s: %s" % (request["file"], _talk.shown(exc.strerror or exc))}


def _count(request: Request) -> dict[str, t.Any]:
    counter = Counter(request)
    mark, skipped = request.get("mark"), 0
    with _log_file.opened(request["file"]) as now:
        end = _log_file.end_of_line(now)
        if mark:
            parts, skipped = _log_file.unread(request["file"], now, mark, MOST)
            for file, start, stop, cut in parts:
                counter.read(file, start, stop, cut)
                if file is not now:
                    file.close()
            end = parts[-1][2]
        mark = _log_file.mark_at(now, end)
    return {
        "mark": mark,
        "found": counter.found,
        "lines": counter.lines,
        "unread": counter.unread,
        "skipped": skipped,
    }


# --- its lines ---


class Counter:
    """Counts the lines of a log."""

    def __init__(self, request: Request) -> None:
        self.addresses = set(request["addresses"])
        self.errors = tuple(status.encode() for status in request["errors"])
        self.path = request["path"].encode()
        self.time = 4 if request["whole"] else 3  # the field of the time
        self.sizes = bool(request["sizes"])
        self.bounds = (1.0, LARGEST) if self.sizes else (LEAST, LONGEST)
        self.found: Found = {}
        self.lines = self.unread = 0
        self.names: dict[bytes, str] = {}  # by address as it is logged
        self.buckets: dict[tuple[bytes, float], str] = {}  # by time or size as it is logged

    def read(self, file: t.BinaryIO, start: int, end: int, cut: bool) -> None:
        """Count the lines of a part of a file. `cut`: it begins within a line, which is left."""
        rest = b""
        while start < end:
            chunk = os.pread(file.fileno(), min(CHUNK, end - start), start)
            if not chunk:
                break
            start += len(chunk)
            lines = (rest + chunk).split(b"\n")
            rest = lines.pop()[-CHUNK:]
            if cut and lines:
                del lines[0]
                cut = False
            self.count(lines)

    def count(self, lines: list[bytes]) -> None:
        """Count lines."""
        self.lines += len(lines)
        for line in lines:
            at = line.find(b"rollout-")
            fields = line[at:].split(b"|", FIELDS - 1)
            known = FORMATS.get(fields[0])
            if known is None or len(fields) < FIELDS:
                self.unread += 1
            elif fields[6].startswith(self.path):
                self.add(fields, *known)

    def add(self, fields: list[bytes], unit: float, gone: tuple[bytes, ...]) -> None:
        """Count a request, or each time that nginx tried it."""
        ended, _space, size = fields[5].partition(b" ")
        if b"," not in fields[1] and b" " not in fields[1]:
            self.one(fields[1], fields[2], fields[self.time], unit, ended.startswith(gone), size)
            return
        tries = [_listed(fields[index]) for index in (1, 2, self.time)]
        for number, (address, status, seconds) in enumerate(zip(*tries), 1):
            if number == len(tries[0]):  # it is the last one that the client gets
                self.one(address, status, seconds, unit, ended.startswith(gone), size)
            else:
                self.one(address, status, seconds, unit, False, b"")

    def one(
        self, logged: bytes, status: bytes, time: bytes, unit: float, gone: bool, size: bytes
    ) -> None:
        """Count one request to an instance. `gone`: its client did not wait for the answer."""
        name = self.names.get(logged)
        if name is None:
            name = logged.decode("ascii", "replace").replace("[", "").replace("]", "")
            if len(self.names) < 100000:
                self.names[logged] = name
        if name not in self.addresses:
            return
        counts = self.found.get(name)
        if counts is None:
            counts = self.found[name] = {"requests": 0, "errors": 0, "buckets": {}}
        counts["requests"] += 1
        if gone:
            return
        if status.startswith(self.errors) or not status[:1].isdigit() or status == b"0":
            counts["errors"] += 1
        if self.sizes:
            time, unit = size if status == b"200" else b"", 1.0
        bucket = self.buckets.get((time, unit))
        if bucket is None:
            bucket = _bucket(time, unit, *self.bounds)
            if len(self.buckets) < 100000:
                self.buckets[time, unit] = bucket
        if bucket:
            counts["buckets"][bucket] = counts["buckets"].get(bucket, 0) + 1


def _listed(field: bytes) -> list[bytes]:
    """Return what nginx logs of several tries: `a, b`, and `a : b` after a redirect of its own."""
    return field.replace(b" : ", b", ").split(b", ")


def _bucket(logged: bytes, unit: float, least: float, most: float) -> str:
    """Return the bucket of a time or size; "" if there was none."""
    try:
        number = float(logged) * unit
    except ValueError:
        return ""
    if not 0 <= number <= most:
        return ""
    return str(math.ceil(FINE * math.log2(max(number, least))))
