# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ready when a GET is answered with the status (and the text) expected. Pure: bytes out, bytes in."""

from __future__ import annotations

import http.client
import io
import re
import socket
import typing as t
from collections.abc import Mapping

from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import InputError
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.check import Probe
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import Endpoint

OPTIONS: dict[str, t.Any] = {
    "http": {"type": "str"},
    "status": {"type": "raw", "default": "200-299"},
    "body": {"type": "str"},
    "headers": {"type": "dict", "default": {}, "no_log": True},
}

_PATH = re.compile(r"/[!-~]*")
_STATUS = re.compile(r"([1-5]\d\d)(?:\s*-\s*([1-5]\d\d))?")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_TEXT = re.compile(r"[ -~]*")
_FRAMING = ("connection", "content-length", "transfer-encoding", "upgrade", "expect")  # ours to say
_LINE = re.compile(rb"HTTP/1\.[01] (\d{3})\b")


class Driver:
    """One GET over a connection of its own."""

    def __init__(self, options: Mapping[str, t.Any], tls: bool, variable: str) -> None:
        """Raises InputError for a setting that cannot be put in a request or compared with a reply."""
        self.tls = tls
        self._path = _path(options["http"], f"{variable}.http")
        self._ranges = _statuses(options.get("status") or OPTIONS["status"]["default"], f"{variable}.status")
        self._body = _body(options.get("body"), f"{variable}.body")
        headers = _headers(options.get("headers") or {}, f"{variable}.headers")
        self._host = headers.pop("Host", "")
        self._headers = {"User-Agent": "progressive.rollout", "Accept": "*/*", **headers, "Connection": "close"}
        self.server_name = _name_of(self._host)  # whom the certificate must be for; empty: the address
        # What may end the reading where nobody judges on the way; not every server closes when it is asked to.
        self.enough = b"" if self._body else b"\r\n\r\n"

    def payload(self, endpoint: Endpoint) -> bytes:
        headers = {"Host": self._host or str(endpoint), **self._headers}
        lines = [f"GET {self._path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
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
        if not any(status in codes for codes in self._ranges):
            return Probe(False, f"{status}, expected {', '.join(map(_shown, self._ranges))}")
        return self._judge_body(reply) if self._body else Probe(True)

    def _judge_body(self, reply: bytes) -> Probe | None:
        response = http.client.HTTPResponse(t.cast(socket.socket, _Socket(reply)))
        try:
            response.begin()
            endless = response.length is None and not response.chunked
            body = response.read()
        except http.client.IncompleteRead as exc:
            body, endless = exc.partial, True
        except http.client.HTTPException as exc:
            return Probe(False, f"not an HTTP/1 reply: {type(exc).__name__}")
        if self._body.encode() in body:
            return Probe(True)
        return None if endless else Probe(False, f"body has no {self._body!r}")


class _Socket:
    """What HTTPResponse needs of a socket, over bytes that are there already."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, mode: str) -> io.BytesIO:
        return io.BytesIO(self._data)


def _path(value: t.Any, variable: str) -> str:
    if not isinstance(value, str) or not _PATH.fullmatch(value):
        raise InputError(f"{variable}: {value!r} is not a path; begin it with / and percent-encode spaces (/healthz)")
    return value


def _statuses(value: t.Any, variable: str) -> tuple[range, ...]:
    ranges = []
    for item in value if isinstance(value, (list, tuple)) else [value]:
        match = None if isinstance(item, bool) else _STATUS.fullmatch(str(item).strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last:
            raise InputError(f'{variable}: {item!r} is not an HTTP status; write 200, [200, 204] or "200-299"')
        ranges.append(range(first, last + 1))
    return tuple(ranges)


def _body(value: t.Any, variable: str) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    raise InputError(f"{variable}: {value!r} is not a text; quote it")


def _headers(value: t.Any, variable: str) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise InputError(f"{variable}: {value!r} is not a mapping of names to texts; write {{Host: shop.example}}")
    headers = {}
    for name, text in value.items():
        if not isinstance(name, str) or not _HEADER.fullmatch(name) or name.lower() in _FRAMING:
            raise InputError(f"{variable}: {name!r} cannot be set; use letters, digits and -, and none of {', '.join(_FRAMING)}")
        if isinstance(text, bool) or not isinstance(text, (str, int)) or not _TEXT.fullmatch(str(text)):
            # the value is not shown: headers carry passwords
            raise InputError(f"{variable}.{name}: its value is not one line of printable ASCII; quote or encode it")
        headers["Host" if name.lower() == "host" else name] = str(text)
    return headers


def _name_of(host: str) -> str:
    """The name or address of a Host header, without its port and brackets."""
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]


def _shown(codes: range) -> str:
    return str(codes[0]) if len(codes) == 1 else f"{codes[0]}-{codes[-1]}"
