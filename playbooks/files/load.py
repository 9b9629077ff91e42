# SPDX-License-Identifier: GPL-3.0-or-later
"""The load of the demo and the tests: a closed loop that repeats nothing and counts every failed
request.

Each connection sends one request, waits for the answer, and sends the next (with `--rate`, when its
turn comes). A kept-alive connection that the server closed while no request was on it is simply
opened anew; one that ends after a request was sent is a failed request. The report is a JSON file,
replaced as a whole every half second:

    requests = served + failed + those in flight, by_revision (header X-Revision), failures (by
    reason), latency_ms {p50, p99}, per_second [{second, served {revision: n}, failed}], running,
    ended_by

Only loopback is loaded.
"""

from __future__ import annotations

import argparse
import collections
import errno
import heapq
import ipaddress
import json
import os
import selectors
import signal
import socket
import sys
import time
import typing as t
from dataclasses import dataclass, field
from urllib.parse import urlsplit

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
REPORT_EVERY = 0.5  # seconds
AFTER_FAILURE = 0.05  # seconds a connection waits, so that a dead server does not make us spin


def loopback(url: str) -> tuple[str, int, str]:
    """Address, port and target of a URL; ValueError if it is not plain HTTP on loopback."""
    parts = urlsplit(url)
    address = "127.0.0.1" if parts.hostname == "localhost" else parts.hostname or ""
    try:
        allowed = ipaddress.ip_address(address).is_loopback
    except ValueError:
        allowed = False
    if parts.scheme != "http" or not allowed:
        raise ValueError(
            f"--url {url}: only http:// on a loopback address (127.0.0.1, [::1], localhost) is"
            " loaded"
        )
    return (
        address,
        parts.port or 80,
        (parts.path or "/") + (f"?{parts.query}" if parts.query else ""),
    )


@dataclass(eq=False)
class Connection:
    """One client: at most one request is on it."""

    sock: socket.socket | None = None
    connected: bool = False
    used: bool = False  # an answer came over it
    busy: bool = False  # a request is due or under way
    sent: bool = False
    since: float = 0.0
    inbox: bytearray = field(default_factory=bytearray)


class Load:
    """`Load(url, ...).run()` loads until a limit or `stop()`, and returns the report. 0 means no
    limit.
    """

    def __init__(
        self,
        url: str,
        *,
        connections: int = 24,
        rate: float = 0.0,
        keep_alive: bool = True,
        method: str = "GET",
        max_requests: int = 0,
        max_seconds: float = 0.0,
        report: str | None = None,
        timeout: float = 10.0,
    ) -> None:
        self.url, self.rate, self.keep_alive, self.method, self.timeout = (
            url,
            rate,
            keep_alive,
            method,
            timeout,
        )
        self.address, self.port, target = loopback(url)
        self.max_requests, self.max_seconds, self.report_path = max_requests, max_seconds, report
        body = b"x" * 64 if method == "POST" else b""
        host = f"[{self.address}]" if ":" in self.address else self.address
        head = f"{method} {target} HTTP/1.1\r\nHost: {host}:{self.port}\r\n"
        head += f"Content-Length: {len(body)}\r\n" if body else ""
        head += "" if keep_alive else "Connection: close\r\n"
        self.request = head.encode() + b"\r\n" + body

        self.connections = [Connection() for dummy in range(connections)]
        self.selector = selectors.DefaultSelector()
        self.due: list[tuple[float, int]] = []  # when which connection sends its next request
        self.next_slot = 0.0
        self.woken, self.wake = socket.socketpair()
        self.woken.setblocking(False)
        self.wake.setblocking(False)
        self.ended_by = ""

        self.started = 0.0
        self.requests = self.reopened = self.failed = 0
        self.by_revision: collections.Counter[str] = collections.Counter()
        self.failures: collections.Counter[str] = collections.Counter()
        self.first_failures: list[dict[str, t.Any]] = []
        # in tenths of a millisecond
        self.latencies: collections.Counter[int] = collections.Counter()
        self.seconds: list[collections.Counter[str]] = []  # served by revision
        self.failed_seconds: collections.Counter[int] = collections.Counter()

    # The loop

    def stop(self, by: str = "asked") -> None:
        """Send no further request; answers under way are waited for. May be called from
        anywhere, and twice.
        """
        self.ended_by = self.ended_by or by
        try:
            self.wake.send(b"x")
        except OSError:
            pass

    def run(self) -> dict[str, t.Any]:
        self.started, begun = time.time(), time.monotonic()
        self.begun = self.next_slot = begun
        self.selector.register(self.woken, READ, None)
        for number in range(len(self.connections)):
            self._schedule(number, begun)
        tick = begun
        while True:
            now = time.monotonic()
            if now >= tick:
                self._expire(now)
                self._write_report(now)
                tick = now + REPORT_EVERY
            if self.max_seconds and now - begun >= self.max_seconds:
                self.stop("max-seconds")
            self._send_due(now)
            if self.ended_by and not any(connection.busy for connection in self.connections):
                break
            until = min(tick, self.due[0][0]) if self.due else tick
            for key, events in self.selector.select(max(0.0, until - now)):
                if key.data is None:
                    self.woken.recv(64)
                else:
                    self._event(key.data, events)
        for connection in self.connections:
            self._close(connection)
        for end in (self.selector, self.woken, self.wake):
            end.close()
        return self._write_report(time.monotonic(), running=False)

    def _schedule(self, number: int, now: float) -> None:
        if self.rate:
            self.next_slot = max(now, self.next_slot) + 1 / self.rate
            now = self.next_slot
        heapq.heappush(self.due, (now, number))

    def _send_due(self, now: float) -> None:
        while self.due and self.due[0][0] <= now:
            _when, number = heapq.heappop(self.due)
            if self.max_requests and self.requests >= self.max_requests:
                self.stop("max-requests")
            if self.ended_by:
                continue
            self.requests += 1
            connection = self.connections[number]
            connection.busy, connection.sent, connection.since = True, False, now
            self._send(connection)

    def _expire(self, now: float) -> None:
        for connection in self.connections:
            if connection.busy and now - connection.since > self.timeout:
                self._fail(
                    connection,
                    f"{'no answer' if connection.sent else 'not connected'} within"
                    f" {self.timeout:g} s",
                )

    # One connection

    def _open(self, connection: Connection) -> None:
        sock = socket.socket(socket.AF_INET6 if ":" in self.address else socket.AF_INET)
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sock, connection.connected, connection.used = sock, False, False
        connection.inbox.clear()
        code = sock.connect_ex((self.address, self.port))
        if code not in (0, errno.EINPROGRESS):
            return self._fail(connection, f"connect: {_words(code)}")
        self.selector.register(sock, WRITE, connection)

    def _close(self, connection: Connection) -> None:
        if connection.sock is not None:
            if connection.sock in self.selector.get_map():
                self.selector.unregister(connection.sock)
            connection.sock.close()
            connection.sock = None

    def _send(self, connection: Connection) -> None:
        if connection.sock is not None and connection.used and not self._alive(connection.sock):
            self._reopen(connection)
        elif connection.sock is None:
            self._open(connection)
        elif connection.connected:
            try:
                connection.sock.send(self.request)  # far smaller than any socket buffer
                connection.sent = True
            except OSError as exc:
                # nothing of the request has left: the connection was closed while idle
                if connection.used:
                    self._reopen(connection)
                else:
                    self._fail(connection, f"send: {_words(exc.errno or 0)}")

    def _reopen(self, connection: Connection) -> None:
        self.reopened += 1
        self._close(connection)
        self._open(connection)

    @staticmethod
    def _alive(sock: socket.socket) -> bool:
        """Whether an idle connection is still open at the other end, as far as is known here."""
        try:
            sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    def _event(self, connection: Connection, events: int) -> None:
        sock = connection.sock
        if sock is None:
            return
        if not connection.connected:
            code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                return self._fail(connection, f"connect: {_words(code)}")
            connection.connected = True
            self.selector.modify(sock, READ, connection)
            return self._send(connection)
        try:
            data = sock.recv(65536)
        except BlockingIOError:
            return
        except OSError as exc:
            return self._ended(
                connection,
                f"{_words(exc.errno or 0)} {'within' if connection.inbox else 'before'} the answer",
            )
        if not data:
            return self._ended(
                connection, f"closed {'within' if connection.inbox else 'before'} the answer"
            )
        connection.inbox += data
        self._answer(connection, ended=False)

    def _ended(self, connection: Connection, reason: str) -> None:
        """The server closed this connection."""
        if not connection.busy:
            self.reopened += 1
            return self._close(connection)
        if not self._answer(connection, ended=True):
            self._fail(connection, reason)

    def _answer(self, connection: Connection, ended: bool) -> bool:
        """Count the answer if it is complete; `ended`: no more will come."""
        head, found, body = bytes(connection.inbox).partition(b"\r\n\r\n")
        if not found or not connection.busy:
            return False
        lines = head.decode("latin-1").split("\r\n")
        headers = {
            name.strip().lower(): value.strip()
            for name, _colon, value in (line.partition(":") for line in lines[1:])
        }
        if "content-length" in headers:
            complete = len(body) >= int(headers["content-length"])
        elif headers.get("transfer-encoding") == "chunked":
            complete = body.endswith(b"0\r\n\r\n")
        else:
            complete = ended
        if not complete:
            return False
        connection.inbox.clear()
        connection.used = True
        if ended or not self.keep_alive or headers.get("connection", "").lower() == "close":
            self._close(connection)
        status = lines[0].split(" ")[1]
        if status.startswith("2"):
            self._serve(connection, headers.get("x-revision", "-"))
        else:
            self._fail(connection, f"status {status}", close=False)
        return True

    # Counting

    def _serve(self, connection: Connection, revision: str) -> None:
        now = time.monotonic()
        self.by_revision[revision] += 1
        self.latencies[int((now - connection.since) * 10000)] += 1
        second = int(now - self.begun)
        while len(self.seconds) <= second:
            self.seconds.append(collections.Counter())
        self.seconds[second][revision] += 1
        self._done(connection, now)

    def _fail(self, connection: Connection, reason: str, close: bool = True) -> None:
        now = time.monotonic()
        self.failed += 1
        self.failures[reason] += 1
        self.failed_seconds[int(now - self.begun)] += 1
        if len(self.first_failures) < 20:
            self.first_failures.append({"second": round(now - self.begun, 3), "reason": reason})
        if close:
            self._close(connection)
        self._done(connection, now + AFTER_FAILURE)

    def _done(self, connection: Connection, then: float) -> None:
        connection.busy = False
        self._schedule(self.connections.index(connection), then)

    def _quantile(self, share: float) -> float | None:
        wanted, seen = share * sum(self.latencies.values()), 0
        for tenths in sorted(self.latencies):
            seen += self.latencies[tenths]
            if seen >= wanted:
                return tenths / 10
        return None

    def _write_report(self, now: float, running: bool = True) -> dict[str, t.Any]:
        served = dict(enumerate(self.seconds))
        seconds = range(1 + max([*served, *self.failed_seconds], default=-1))
        report = {
            "url": self.url,
            "method": self.method,
            "keep_alive": self.keep_alive,
            "connections": len(self.connections),
            "pid": os.getpid(),
            "started": self.started,
            "seconds": round(now - self.begun, 3),
            "requests": self.requests,
            "served": self.by_revision.total(),
            "by_revision": dict(self.by_revision),
            "failed": self.failed,
            "failures": dict(self.failures),
            "first_failures": self.first_failures,
            "reopened": self.reopened,
            "latency_ms": {"p50": self._quantile(0.5), "p99": self._quantile(0.99)},
            "per_second": [
                {"second": n, "served": served.get(n, {}), "failed": self.failed_seconds[n]}
                for n in seconds
            ],
            "running": running,
            "ended_by": self.ended_by,
        }
        if self.report_path:
            replace_file(self.report_path, json.dumps(report))
        return report


def _words(code: int) -> str:
    return {errno.ECONNREFUSED: "refused", errno.ECONNRESET: "reset", errno.EPIPE: "closed"}.get(
        code, os.strerror(code)
    )


def replace_file(path: str, text: str) -> None:
    """A reader sees the old text or the new, never a part."""
    temporary = f"{path}.{os.getpid()}.tmp"
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(temporary, path)


def run(url: str, **options: t.Any) -> dict[str, t.Any]:
    """Load until a limit is reached; the report. Options as of `Load`."""
    return Load(url, **options).run()


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description="Load a service on loopback and count every failed request."
    )
    parser.add_argument("--url", required=True)
    parser.add_argument("--connections", type=int, default=24)
    parser.add_argument(
        "--rate",
        type=float,
        default=0.0,
        metavar="N",
        help="requests a second, of all; 0: all that go",
    )
    parser.add_argument("--keep-alive", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--method", choices=("GET", "POST"), default="GET")
    parser.add_argument("--max-requests", type=int, default=0, metavar="N")
    parser.add_argument("--max-seconds", type=float, default=0.0, metavar="S")
    parser.add_argument("--report", metavar="FILE")
    parser.add_argument("--pid-file", metavar="FILE")
    options = vars(parser.parse_args(arguments))
    pid_file = options.pop("pid_file")
    try:
        load = Load(options.pop("url"), **options)
    except ValueError as exc:
        sys.exit(f"load.py: {exc}")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: load.stop("signal"))
    if pid_file:
        replace_file(pid_file, f"{os.getpid()}\n")
    try:
        report = load.run()
    finally:
        if pid_file:
            os.unlink(pid_file)
    if not load.report_path:
        print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
