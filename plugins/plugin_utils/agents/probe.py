# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask instances from their own host: connect, send, and return what they answer.

Judges nothing.

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
    enough = binascii.a2b_base64(request["enough"])
    talks = Talks(
        lambda reply: bool(enough) and enough in reply,
        request["limit"],
        request["timeout"],
        context(request["validate_certs"]) if request["tls"] else None,
        request["server_name"],
    )
    replies = {}
    waiting = sorted(request["targets"].items(), reverse=True)
    while waiting or talks.active:
        while waiting and len(talks.active) < AT_ONCE:
            name, (address, port, payload) = waiting.pop()
            talks.begin(name, address, port, binascii.a2b_base64(payload))
        for talk in talks.wait():
            reply = binascii.b2a_base64(talk.reply, newline=False).decode()
            replies[talk.name] = [reply, talk.error]
    talks.close()
    return {"replies": replies}


class Talks:
    """Conversations at the same time, in one thread."""

    def __init__(
        self,
        done: t.Callable[[bytes], bool],
        limit: int,
        timeout: float,
        tls: ssl.SSLContext | None,
        server_name: str,
    ) -> None:
        """Read until `done`, or `limit` bytes, in `timeout` seconds each.

        With `tls`, the certificate must be for `server_name` (empty: the address).
        """
        self.done, self.limit, self.timeout = done, limit, timeout
        self.tls, self.server_name = tls, server_name
        self.selector = selectors.DefaultSelector()
        self.active: dict[Talk, None] = {}  # in the order in which they began
        self._ended: list[Talk] = []

    def begin(self, name: t.Any, address: str, port: int, payload: bytes) -> None:
        """Connect, and send the payload."""
        talk = Talk(name, address, port, payload, self)
        self.active[talk] = None
        self._step(talk)

    def wait(self, most: float | None = None) -> list[Talk]:
        """Wait until conversations end or go on, or for `most` seconds; return those that ended.

        Other files that were registered with the selector, without data, end the wait, too.
        """
        oldest = next(iter(self.active), None)
        if self._ended:
            most = 0.0
        elif oldest:
            left = max(0.0, oldest.deadline - time.monotonic())
            most = left if most is None else min(most, left)
        for key, _events in self.selector.select(most):
            if key.data:
                self._step(key.data)
        now = time.monotonic()
        while self.active and next(iter(self.active)).deadline <= now:
            self._end(next(iter(self.active)), "timed out after %g s" % self.timeout)
        ended, self._ended = self._ended, []
        return ended

    def close(self) -> None:
        """End all conversations."""
        for talk in list(self.active):
            self._end(talk, "")
        self.selector.close()

    def _step(self, talk: Talk) -> None:
        """Let a conversation go on as far as it can, then wait for what it needs next."""
        try:
            event = next(talk.events)
        except StopIteration:
            self._end(talk, "")
        except OSError as exc:
            self._end(talk, reason(exc))
        except ValueError as exc:  # of the socket module, of TLS or of the codec for names
            self._end(talk, "invalid name or address: %s" % exc)
        except Exception as exc:  # a defect of the check: the other conversations go on
            self._end(talk, "%s: %s" % (type(exc).__name__, exc))
        else:
            if not talk.waits:
                self.selector.register(talk.socket, event, talk)
            elif event != talk.waits:
                self.selector.modify(talk.socket, event, talk)
            talk.waits = event

    def _end(self, talk: Talk, error: str) -> None:
        if talk.waits:
            self.selector.unregister(talk.socket)
        talk.events.close()
        talk.socket.close()
        talk.error = error
        del self.active[talk]
        self._ended.append(talk)


class Talk:
    """A conversation: the events it waits for, and what came of it."""

    def __init__(self, name: t.Any, address: str, port: int, payload: bytes, terms: Talks) -> None:
        self.name = name
        self.deadline = time.monotonic() + terms.timeout
        self.reply = b""
        self.error = ""
        self.waits = 0  # the event the selector waits for; 0: not registered
        self.socket = socket.socket(
            socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM
        )
        self.events = self._run((address, port), payload, terms)

    def _run(
        self, where: tuple[str, int], payload: bytes, terms: Talks
    ) -> t.Generator[int, None, None]:
        self.socket.setblocking(False)
        code = self.socket.connect_ex(where)
        if code == errno.EINPROGRESS:
            yield selectors.EVENT_WRITE
            code = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        if terms.tls:
            self.socket = terms.tls.wrap_socket(
                self.socket,
                server_hostname=terms.server_name or where[0],
                do_handshake_on_connect=False,
            )
            yield from _call(selectors.EVENT_READ, self.socket.do_handshake)
        while payload:
            sent = yield from _call(selectors.EVENT_WRITE, self.socket.send, payload)
            payload = payload[sent:]
        while len(self.reply) < terms.limit and not terms.done(self.reply):
            missing = terms.limit - len(self.reply)
            data = yield from _call(selectors.EVENT_READ, self.socket.recv, missing)
            if not data:
                return
            self.reply += data


def _call(
    event: int, function: t.Callable[..., t.Any], *arguments: t.Any
) -> t.Generator[int, None, t.Any]:
    """Call until it does not have to wait for the event.

    TLS may have to read in order to write, and the other way round.
    """
    while True:
        try:
            return function(*arguments)
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


def reason(exc: OSError) -> str:
    """Return an operating system's or TLS's error in a few words."""
    refused, tls = getattr(exc, "verify_message", ""), getattr(exc, "reason", "")
    if refused:
        return "certificate refused: %s" % refused
    if tls:  # such as WRONG_VERSION_NUMBER
        return "TLS failed: %s" % tls.replace("_", " ").lower()
    return (os.strerror(exc.errno) if exc.errno else str(exc) or type(exc).__name__).lower()


def context(validate_certs: bool) -> ssl.SSLContext:
    """Return how TLS is spoken."""
    import ssl  # costs more than all the rest: only who needs it pays

    made = ssl.create_default_context()
    if not validate_certs:
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    return made
