# SPDX-License-Identifier: GPL-3.0-or-later
"""Ready when a GET is answered with the expected status (and text). Pure."""

from __future__ import annotations

import io
import re
import socket
import typing as t
from collections.abc import Mapping

from ..base.errors import InputError
from ..inputs.options import Field, Kind, Options
from ..interfaces.check import CheckDriver, HttpRequest, Probe
from ..interfaces.platform import Endpoint

_PATH = re.compile(r"/[!-~]*")
_STATUS = re.compile(r"([1-5]\d\d)(?:\s*-\s*([1-5]\d\d))?")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_TEXT = re.compile(r"[ -~]*")
# set by the check itself
_FRAMING = ("connection", "content-length", "transfer-encoding", "upgrade", "expect")
_LINE = re.compile(rb"HTTP/1\.[01] (\d{3})\b")


def _path(value: t.Any, variable: str) -> str:
    if not isinstance(value, str) or not _PATH.fullmatch(value):
        raise InputError(
            f"{variable}: {value!r} is not a path; begin it with / and percent-encode spaces"
            " (/healthz)",
            "PR-123",
        )
    return value


def _statuses(value: t.Any, variable: str) -> tuple[range, ...]:
    ranges = []
    for item in value if isinstance(value, (list, tuple)) else [value]:
        match = None if isinstance(item, bool) else _STATUS.fullmatch(str(item).strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last:
            raise InputError(
                f'{variable}: {item!r} is not an HTTP status; write 200, [200, 204] or "200-299"',
                "PR-118",
            )
        ranges.append(range(first, last + 1))
    if not ranges:  # no instance would ever be ready
        raise InputError(f"{variable}: must not be empty; write 200, or leave it out", "PR-125")
    return tuple(ranges)


def _body(value: t.Any, variable: str) -> str:
    if isinstance(value, str):
        return value
    raise InputError(f"{variable}: {value!r} is not a string; quote it", "PR-118")


def _headers(value: t.Any, variable: str) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise InputError(
            f"{variable}: {value!r} is not a mapping of names to strings; write {{Host:"
            " shop.example}",
            "PR-118",
        )
    headers = {}
    for name, text in value.items():
        if not isinstance(name, str) or not _HEADER.fullmatch(name) or name.lower() in _FRAMING:
            raise InputError(
                f"{variable}: {name!r} cannot be set; use letters, digits and -, and not"
                f" {', '.join(_FRAMING)}",
                "PR-120",
            )
        if (
            isinstance(text, bool)
            or not isinstance(text, (str, int))
            or not _TEXT.fullmatch(str(text))
        ):
            # The value is not shown: headers carry passwords.
            raise InputError(
                f"{variable}.{name}: its value is not one line of printable ASCII; quote or"
                " encode it",
                "PR-127",
            )
        headers["Host" if name.lower() == "host" else name] = str(text)
    return headers


OPTIONS = Options(
    Field("http", Kind("str", _path), "The path of a GET request.", required=True),
    Field(
        "status",
        Kind("raw", _statuses, "A status, a range, or a list of them."),
        "The status codes that pass.",
        default="200-299",
    ),
    Field("body", Kind("str", _body), "Text that the body of the answer must contain."),
    Field("headers", Kind("dict", _headers), "Request headers.", default={}, no_log=True),
)


class Driver(CheckDriver):
    """Send one GET over a connection of its own."""

    http: HttpRequest

    def __init__(self, options: Mapping[str, t.Any]) -> None:
        headers = dict(options["headers"])
        host = headers.pop("Host", "")
        self.http = HttpRequest(
            options["http"], options["status"], host, headers, options["body"] or ""
        )
        self.server_name = _name_of(host)
        # Not every server closes the connection when it is asked to.
        self.enough = b"" if self.http.body else b"\r\n\r\n"
        self._own = {
            "User-Agent": "progressive.rollout",
            "Accept": "*/*",
            **headers,
            "Connection": "close",
        }

    def payload(self, endpoint: Endpoint) -> bytes:
        headers = {"Host": self.http.host or str(endpoint), **self._own}
        lines = [
            f"GET {self.http.path} HTTP/1.1",
            *(f"{name}: {value}" for name, value in headers.items()),
            "",
            "",
        ]
        return "\r\n".join(lines).encode()

    def judge(self, reply: bytes) -> Probe | None:
        if not reply.startswith(b"HTTP/1."[: len(reply)]):
            return Probe(False, f"not an HTTP/1 reply: {reply[:20]!r}")
        while True:
            head, blank, rest = reply.partition(b"\r\n\r\n")
            if not blank:
                return None
            line = _LINE.match(head)
            if line is None:
                return Probe(False, f"not an HTTP/1 reply: {reply[:20]!r}")
            if not line[1].startswith(b"1"):
                break
            reply = rest  # an interim reply (100 to 199): the real one follows
        status = int(line[1])
        if not any(status in codes for codes in self.http.statuses):
            return Probe(False, f"{status}, expected {', '.join(map(_shown, self.http.statuses))}")
        return self._judge_body(reply) if self.http.body else Probe(True)

    def _judge_body(self, reply: bytes) -> Probe | None:
        import http.client  # with TLS, and few checks read a body

        response = http.client.HTTPResponse(t.cast(socket.socket, _Socket(reply)))
        try:
            response.begin()
            endless = response.length is None and not response.chunked
            body = response.read()
        except http.client.IncompleteRead as exc:
            body, endless = exc.partial, True
        except http.client.HTTPException as exc:
            return Probe(False, f"not an HTTP/1 reply: {type(exc).__name__}")
        if self.http.body.encode() in body:
            return Probe(True)
        return None if endless else Probe(False, f"body has no {self.http.body!r}")


class _Socket:
    """The part of a socket that HTTPResponse needs, over bytes that were received before."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, mode: str) -> io.BytesIO:
        return io.BytesIO(self._data)


def _name_of(host: str) -> str:
    """Return the name or address of a Host header, without its port and brackets."""
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]


def _shown(codes: range) -> str:
    return str(codes[0]) if len(codes) == 1 else f"{codes[0]}-{codes[-1]}"
