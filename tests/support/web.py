# SPDX-License-Identifier: GPL-3.0-or-later
"""A web service of the tests' own, on a free loopback port, that answers as it is told to."""

from __future__ import annotations

import ssl
import subprocess
import sys
import threading
import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


@dataclass
class Request:
    """What the server got."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    pairs: Sequence[tuple[str, str]] = ()  # all headers, of which some may be there several times


class _Quiet(ThreadingHTTPServer):
    """Says nothing of clients that hang up, or are refused by TLS: that is what some tests are
    of.
    """

    def handle_error(self, request: t.Any, client_address: t.Any) -> None:
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class Server:
    """A web service that gives the answers it was told to, in order, and the last one again and
    again.
    """

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.requests: list[Request] = []
        # Status, body, and perhaps other headers; None: the connection is closed without an answer.
        self.replies: list[tuple[int, str] | tuple[int, str, dict[str, str]] | None] = [(200, "")]
        self.hangs = threading.Event()  # set: it drips its answer until `released`
        self.released = threading.Event()
        test = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                test.serve(self)

            do_GET = do_PUT = do_PATCH = do_DELETE = do_POST

            def log_message(self, format: str, *args: t.Any) -> None:
                pass

        self.server = _Quiet(("127.0.0.1", 0), Handler)
        if context:
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.url = f"http{'s' * bool(context)}://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    def serve(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        headers = handler.headers
        got = Request(handler.command, handler.path, dict(headers), body, headers.items())
        self.requests.append(got)
        reply = self.replies[0] if len(self.replies) == 1 else self.replies.pop(0)
        if self.hangs.is_set():
            handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
            # every read of the client gets something in time, and the whole never ends
            for number in range(1000):
                if self.released.wait(0.02):
                    break
                handler.wfile.write(b"X-%d: drip\r\n" % number)
        elif reply:
            handler.send_response_only(reply[0])
            usual = {
                "Date": handler.date_time_string(),
                "Content-Length": str(len(reply[1].encode())),
            }
            headers = {
                **usual,
                "Location": self.url + "/elsewhere",
                **(reply[2] if len(reply) == 3 else {}),
            }
            for name, value in headers.items():
                handler.send_header(name, value)
            handler.end_headers()
            handler.wfile.write(reply[1].encode())

    def close(self) -> None:
        self.released.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


def certificate(folder: Path, name: str = "server") -> tuple[Path, Path]:
    """A self-signed certificate of 127.0.0.1, and of this name, and its key."""
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    words = (
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj"
        f" /CN={name}"
    )
    extensions = [
        "-addext",
        f"subjectAltName=IP:127.0.0.1,DNS:{name}",
        "-keyout",
        str(key),
        "-out",
        str(certificate),
    ]
    subprocess.run(["openssl", *words.split(), *extensions], check=True, capture_output=True)
    return certificate, key
