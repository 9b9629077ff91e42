# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask one HTTP question over a socket, with JSON both ways. Needs Python 3.8."""

from __future__ import annotations

from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import _bootstrap, _talk

TYPE_CHECKING = False  # importing typing costs start-up time
if TYPE_CHECKING:
    import typing as t


def ask(
    address: str,
    method: str,
    path: str,
    body: t.Any = None,
    headers: t.Sequence[tuple[str, str]] = (),
    seconds: float = 10.0,
) -> tuple[int, t.Any]:
    """Return the status and the data of the answer, None where it has no body.

    Raises OSError where `_talk.ask` does, and for what is no answer of an HTTP server with JSON.
    """
    content = b"" if body is None else _bootstrap.dump(body).encode("ascii")
    lines = [
        "%s %s HTTP/1.1" % (method, path),
        "Host: localhost",
        "Connection: close",
        "Content-Type: application/json",
        "Content-Length: %d" % len(content),
    ]
    lines += ["%s: %s" % header for header in headers]
    question = "\r\n".join(lines).encode("ascii") + b"\r\n\r\n" + content
    return _read(_talk.ask(address, question, seconds))


def quote(text: str) -> str:
    """Return a text as a part of a URL."""
    plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~"
    return "".join(
        char if char in plain else "".join("%%%02X" % byte for byte in char.encode("utf-8"))
        for char in text
    )


def _read(answer: bytes) -> tuple[int, t.Any]:
    head, _blank, body = answer.partition(b"\r\n\r\n")
    words = head.split(b"\r\n")[0].split()
    if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
        raise OSError("no HTTP server answers there")
    if b"\r\ntransfer-encoding: chunked" in head.lower():
        body = b"".join(_chunks(body))
    try:
        return int(words[1]), _bootstrap.load(body) if body.strip() else None
    except (ValueError, RecursionError):
        raise OSError("the answer is no JSON: %s" % _talk.shown(body[:80])) from None


def _chunks(body: bytes) -> t.Iterator[bytes]:
    """Yield the parts of a chunked body."""
    start = 0
    while start < len(body):
        end = body.find(b"\r\n", start)
        try:
            length = int(body[start : max(end, start)].partition(b";")[0], 16)
        except ValueError:
            length = -1
        if length < 0:
            raise OSError("the answer has broken chunks")
        yield body[end + 2 : end + 2 + length]
        start = end + length + 4
