# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask one question over a socket, with an answer bounded in time and in size. Needs Python 3.8."""

from __future__ import annotations

import socket
import time

TYPE_CHECKING = False  # importing typing costs start-up time
if TYPE_CHECKING:
    import typing as t

# bytes of an answer; that of a load balancer with thousands of servers has a few million
LIMIT = 32 << 20
CHUNK = 1 << 18


def ask(address: str | t.Sequence[t.Any], question: bytes, seconds: float) -> bytes:
    """Return what is answered at an address until the other side ends it.

    An address is a path or a pair of host and port. Raises OSError when there is no connection,
    when connecting, asking and answering take longer than `seconds` together, and when the answer
    is longer than LIMIT.
    """
    until = time.monotonic() + seconds
    with _connect(address, seconds) as connection:
        connection.settimeout(_left(until))
        connection.sendall(question)
        answer = bytearray()
        while True:
            connection.settimeout(_left(until))
            chunk = connection.recv(CHUNK)
            if not chunk:
                return bytes(answer)
            answer += chunk
            if len(answer) > LIMIT:
                raise OSError("the answer is longer than %d MB" % (LIMIT >> 20))


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise socket.timeout("timed out")
    return left


def _connect(address: str | t.Sequence[t.Any], seconds: float) -> socket.socket:
    if not isinstance(address, str):
        return socket.create_connection(tuple(address), seconds)
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(seconds)
        connection.connect(address)
    except OSError:
        connection.close()
        raise
    return connection


def shown(text: object) -> str:
    """Return a text as it may be shown: one short line, without what a terminal would obey."""
    line = "".join(char if char.isprintable() else "?" for char in " ".join(str(text).split()))
    return line if len(line) <= 300 else line[:299] + "…"
