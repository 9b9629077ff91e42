# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask instances from their own host: connect, send, and bring back what they say. Runs on the host,
judges nothing.

Request: `targets` (id to `[address, port, payload]`, payload in base64), `timeout` (seconds for
each), `limit` (bytes to read of each; 0 to connect only), `enough` (in base64: bytes that end the
reading; empty: nothing does), `tls`, `validate_certs`, `server_name` (whom the certificate must be
for; empty: the address). Answer: `replies`, id to `[reply in base64, error]`, where an error of ""
means that all there was to read was read.
"""

from __future__ import annotations

import binascii
import errno
import os
import selectors
import socket
import time

TYPE_CHECKING = False  # importing typing costs start-up time
if TYPE_CHECKING:
    import ssl
    import typing as t

AT_ONCE = 256  # sockets: hosts commonly allow a process 1024


def main(request: dict[str, t.Any]) -> dict[str, t.Any]:
    """Ask every target, at the same time."""
    context = _context(request) if request["tls"] else None
    replies = {}
    waiting = sorted(request["targets"].items(), reverse=True)
    active: set[_Talk] = set()
    with selectors.DefaultSelector() as selector:
        while waiting or active:
            while waiting and len(active) < AT_ONCE:
                name, target = waiting.pop()
                talk = _Talk(name, target, request, context)
                active.add(talk)
                _step(talk, selector)
            wait = (
                min((talk.deadline for talk in active if not talk.done), default=0.0)
                - time.monotonic()
            )
            for key, _events in selector.select(max(0.0, wait)):
                _step(key.data, selector)
            now = time.monotonic()
            for talk in [talk for talk in active if talk.done or talk.deadline <= now]:
                talk.close(
                    selector, "" if talk.done else "timed out after %g s" % request["timeout"]
                )
                active.discard(talk)
                replies[talk.name] = [
                    binascii.b2a_base64(talk.reply, newline=False).decode(),
                    talk.error,
                ]
    return {"replies": replies}


class _Talk:
    """One conversation: a generator of the events it waits for, and what came of it."""

    def __init__(
        self,
        name: str,
        target: list[t.Any],
        request: dict[str, t.Any],
        context: ssl.SSLContext | None,
    ) -> None:
        self.name = name
        self.deadline = time.monotonic() + request["timeout"]
        self.reply = b""
        self.error = ""
        self.done = False
        self.waits = 0  # the event the selector waits for; 0: not registered
        self.address, self.port, payload = target
        self.payload = binascii.a2b_base64(payload)
        self.limit = request["limit"]
        self.enough = binascii.a2b_base64(request["enough"])
        self.context = context
        self.server_name = request["server_name"] or self.address
        self.events = self.run()
        self.socket = socket.socket(
            socket.AF_INET6 if ":" in self.address else socket.AF_INET, socket.SOCK_STREAM
        )

    def run(self) -> t.Iterator[int]:
        self.socket.setblocking(False)
        code = self.socket.connect_ex((self.address, self.port))
        if code == errno.EINPROGRESS:
            yield selectors.EVENT_WRITE
            code = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        if self.context:
            self.socket = self.context.wrap_socket(
                self.socket, server_hostname=self.server_name, do_handshake_on_connect=False
            )
            yield from self.call(self.socket.do_handshake, selectors.EVENT_READ)
        while self.payload:
            sent = yield from self.call(
                lambda: self.socket.send(self.payload), selectors.EVENT_WRITE
            )
            self.payload = self.payload[sent:]
        while len(self.reply) < self.limit:
            data = yield from self.call(
                lambda: self.socket.recv(self.limit - len(self.reply)), selectors.EVENT_READ
            )
            if not data:
                return
            self.reply += data
            if self.enough and self.enough in self.reply:
                return

    def call(self, function: t.Callable[[], t.Any], event: int) -> t.Generator[int, None, t.Any]:
        """Call until it does not have to wait. TLS may have to read in order to write, and the
        other way round.
        """
        while True:
            try:
                return function()
            except BlockingIOError:
                yield event
            except OSError as exc:
                wanted = {
                    "SSLWantReadError": selectors.EVENT_READ,
                    "SSLWantWriteError": selectors.EVENT_WRITE,
                }
                if type(exc).__name__ not in wanted:
                    raise
                yield wanted[type(exc).__name__]

    def close(self, selector: selectors.BaseSelector, error: str) -> None:
        if self.waits:
            selector.unregister(self.socket)
        self.socket.close()
        self.error = self.error or error


def _step(talk: _Talk, selector: selectors.BaseSelector) -> None:
    """Let a conversation go on as far as it can, then wait for what it needs next."""
    try:
        event = next(talk.events)
    except StopIteration:
        talk.done = True
        return
    except OSError as exc:
        talk.done = True
        talk.error = reason(exc)
        return
    if not talk.waits:
        selector.register(talk.socket, event, talk)
    elif event != talk.waits:
        selector.modify(talk.socket, event, talk)
    talk.waits = event


def reason(exc: OSError) -> str:
    """An operating system's or TLS's error in a few words."""
    refused, tls = getattr(exc, "verify_message", ""), getattr(exc, "reason", "")
    if refused:
        return "certificate refused: %s" % refused
    if tls:  # such as WRONG_VERSION_NUMBER
        return "TLS failed: %s" % tls.replace("_", " ").lower()
    return (os.strerror(exc.errno) if exc.errno else str(exc) or type(exc).__name__).lower()


def _context(request: dict[str, t.Any]) -> ssl.SSLContext:
    import ssl  # costs more than all the rest: only who needs it pays

    context = ssl.create_default_context()
    if not request["validate_certs"]:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
