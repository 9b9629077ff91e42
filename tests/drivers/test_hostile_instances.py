# SPDX-License-Identifier: GPL-3.0-or-later
"""Instances that answer health checks, and write logs, as no program should: what is read of that
is little and printable, and others are checked meanwhile.
"""

from __future__ import annotations

import socket
import threading
import time
import tracemalloc
import typing as t
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import _service, container
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Health
from ansible_collections.progressive.rollout.tests.drivers.test_checker import (
    App,
    agents,
    make,
    origins,
    request,
    serve,
    until,
    watch,
)

__all__ = ["agents", "make", "serve"]
OK = b"HTTP/1.1 200 OK\r\n"
GIGABYTE = 1 << 30
LOG = 100 << 20
LITTLE = 16 << 20  # bytes of memory
ESCAPES = b"\x1b[2J\x1b]0;owned\x07"


class Sender:
    """Sends as much as the other side takes, and counts it."""

    def __init__(self, head: bytes, part: bytes, parts: int, pause: float = 0.0) -> None:
        self._head, self._part, self._parts, self._pause = head, part, parts, pause
        self.sent = 0
        self.gone = threading.Event()  # whether a client has left before the end

    def __call__(self, connection: socket.socket) -> None:
        request(connection)
        with suppress(OSError):
            connection.sendall(self._head)
            for _part in range(self._parts):
                connection.sendall(self._part)
                self.sent += len(self._part)
                time.sleep(self._pause)
            return
        self.gone.set()


@contextmanager
def little_memory() -> Iterator[None]:
    """Check that hardly any memory is used."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < LITTLE
    finally:
        tracemalloc.stop()


LENGTH = b"Content-Length: %d\r\n\r\n" % GIGABYTE
HOSTILE: dict[str, tuple[Callable[[], Sender], dict[str, t.Any], str]] = {
    "gigabyte": (
        lambda: Sender(OK + LENGTH, b"x" * (1 << 20), 1 << 10),
        {"body": "up"},
        "the first 64 kB were read, 65536 bytes received without what was expected",
    ),
    "drop by drop": (
        lambda: Sender(OK + LENGTH, b"x", 10_000, 0.02),
        {"body": "up"},
        "timed out after 0.5 s",
    ),
    "headers": (
        lambda: Sender(OK, b"X-Header: x\r\n" * 1000, 10),
        {},
        "the first 64 kB were read, 65536 bytes received without what was expected",
    ),
    "escapes": (
        lambda: Sender(b"", ESCAPES * 10_000, 1),
        {},
        "not an HTTP/1 reply: b'\\x1b[2J\\x1b]0;owned\\x07",
    ),
}


@origins
@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_answer_costs_little_and_is_named(
    serve: t.Any, make: t.Any, origin: str, kind: str
) -> None:
    sender, health, detail = HOSTILE[kind][0](), *HOSTILE[kind][1:]
    well = App(body="up")
    checker = make(http="/", timeout="500ms", fall=1, rise=1, **{"from": origin}, **health)
    with little_memory():
        watch(checker, serve(sender).endpoint, serve(well).endpoint, known=True)
        vital = until(checker, Health.FAILING)
        until(checker, Health.PASSING, "1")
    assert vital.detail.startswith(detail) and len(vital.detail) < 200
    assert vital.detail.isprintable()
    assert sender.sent < GIGABYTE


def test_a_large_body_that_nobody_asked_for_is_not_read(serve: t.Any, make: t.Any) -> None:
    sender = Sender(OK + LENGTH, b"x" * (1 << 20), 1 << 10)
    checker = make(http="/", rise=1, timeout="500ms")
    with little_memory():
        watch(checker, serve(sender).endpoint)
        until(checker, Health.PASSING)
        assert sender.gone.wait(20.0), "the connection is closed after the head"


def test_a_large_log_costs_little_and_is_printable(tmp_path: Path) -> None:
    log = tmp_path / "shop-1.log"
    with open(log, "wb") as file:
        file.truncate(LOG)
        file.seek(0, 2)
        file.write(b"\n" + ESCAPES + b"out of luck\n")
    with little_memory():
        shown = _service.tail(str(log))
    assert shown.endswith("out of luck") and shown.isprintable() and len(shown) <= 500


def test_a_long_line_of_a_container_costs_little(tmp_path: Path) -> None:
    program = tmp_path / "podman"
    program.write_text(
        f"#!/bin/sh\nhead -c {LOG} /dev/zero | tr '\\0' x\nprintf '\\033[2Jout of luck\\n'\n"
    )
    program.chmod(0o755)
    service = container.Service.__new__(container.Service)
    service.program = str(program)
    with little_memory():
        shown = _service.last_lines(service.output("shop-1", 5))
    assert shown.endswith("out of luck") and shown.isprintable() and len(shown) <= 500
