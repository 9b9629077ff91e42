# SPDX-License-Identifier: GPL-3.0-or-later
"""The service of the demo and the tests: `python3 -I -S app.py` listens in about 15 ms and needs
about 4 MB.

    GET|POST /          200, "<REVISION> <INSTANCE>", header X-Revision
    GET      /healthz   200 when ready, 503 otherwise
    GET|POST /slow?s=2  as /, after 2 s
    GET      /requests  200, how many requests of / and /slow came to it so far

The environment says what it is and how it behaves; times are seconds, or
"lognormal:MEDIAN:SIGMA:SEED", drawn once from the seed and SLOT (or INSTANCE), the same every time:

    ADDRESS (127.0.0.1), PORT, REVISION, INSTANCE, SLOT
    START_DELAY        before it listens
    START_READY_DELAY  before it is ready, from when it listens
    STOP_DELAY         between SIGTERM and the end; it still answers, but is no longer ready
    LATENCY            of every answer of /
    SLOW_EVERY         every so manyth answer of / takes ten times LATENCY; 0: none
    FAIL_EVERY         every so manyth answer of / is a 500; 0: none
    FAIL_STATUS        with this status instead of 500
    FAIL_FILE          only while this file is there
    CRASH_AFTER        until it ends by itself with exit code 3
    CRASH_IN_SERVICE   the same from its first request of /
    HEALTH=fail        never ready
    READY_FILE         not ready before this file is there
    TLS_FILE           a certificate and its key: it speaks TLS

SIGTERM: no new connections, requests in flight are answered with `Connection: close`, then exit 0.
"""

from __future__ import annotations

import heapq
import os
import selectors
import signal
import socket
import sys
import time

REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    413: "Content Too Large",
    500: "Internal Server Error",
    501: "Not Implemented",
    503: "Service Unavailable",
}
DELAYS = (
    "START_DELAY",
    "START_READY_DELAY",
    "STOP_DELAY",
    "LATENCY",
    "CRASH_AFTER",
    "CRASH_IN_SERVICE",
)
MAX_REQUEST = 1 << 20  # bytes, with the body
READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


def duration(text, who):
    """The seconds a variable asks for; `who` and the seed in `text` decide what is drawn."""
    if not text.startswith("lognormal:"):
        return float(text or 0)
    import random  # only here: it would double the start-up time

    _name, median, sigma, seed = text.split(":")
    return float(median) * random.Random(f"{seed}:{who}").lognormvariate(0, float(sigma))


def age():
    """How long this process has lived, in seconds; 0 where that cannot be seen."""
    try:
        with open("/proc/self/stat") as stat, open("/proc/uptime") as uptime:
            ticks = int(stat.read().rpartition(")")[2].split()[19])
            return float(uptime.read().split()[0]) - ticks / os.sysconf("SC_CLK_TCK")
    except OSError:
        return 0.0


class Connection:
    """One client: its unread bytes, its unsent bytes, and whether an answer is being waited for."""

    __slots__ = ("sock", "inbox", "outbox", "busy", "closing")

    def __init__(self, sock):
        self.sock = sock
        self.inbox = b""
        self.outbox = b""
        self.busy = False  # a request is being worked on
        self.closing = False  # close once the outbox is empty


class App:
    def __init__(self, env):
        who = env.get("SLOT") or env.get("INSTANCE", "")
        self.address, self.port = env.get("ADDRESS", "127.0.0.1"), int(env["PORT"])
        self.revision, self.instance = (
            env.get("REVISION", "0"),
            env.get("INSTANCE", str(os.getpid())),
        )
        self.delays = {name: duration(env.get(name, ""), who) for name in DELAYS}
        self.never_ready = env.get("HEALTH") == "fail"
        self.slow_every = int(env.get("SLOW_EVERY") or 0)
        self.fail_every = int(env.get("FAIL_EVERY") or 0)
        self.fail_status = int(env.get("FAIL_STATUS") or 500)
        self.fail_file = env.get("FAIL_FILE")
        self.ready_file = env.get("READY_FILE")
        # what a socket raises that has nothing yet
        self.tls, self.later_on = None, (BlockingIOError,)
        if env.get("TLS_FILE"):
            import ssl  # only here: it would double the start-up time

            self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.tls.load_cert_chain(env["TLS_FILE"])
            self.later_on += (ssl.SSLWantReadError, ssl.SSLWantWriteError)
        self.ready = self.stopping = self.draining = False
        self.selector = selectors.DefaultSelector()
        self.listener = None
        self.clients = set()
        self.timers = []  # (when, number, function, arguments)
        self.number = 0
        self.requests = 0  # of clients, not of those who look after it
        self.served = 0  # of /
        self.told = 0.0  # when it was told to stop

    # Time

    def later(self, seconds, function, *arguments):
        self.number += 1
        heapq.heappush(self.timers, (time.monotonic() + seconds, self.number, function, arguments))

    def run(self):
        """Serve until told to stop; returns the exit code."""
        woken, wake = socket.socketpair()
        for end in (woken, wake):
            end.setblocking(False)
        signal.set_wakeup_fd(wake.fileno())
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)
        self.selector.register(woken, READ, self.stop)
        self.woken = woken
        self.later(self.delays["START_DELAY"], self.listen)
        self.crash_later("CRASH_AFTER")
        while not (self.draining and not self.clients):
            while self.timers and self.timers[0][0] <= time.monotonic():
                _when, _number, function, arguments = heapq.heappop(self.timers)
                function(*arguments)
            if self.draining and not self.clients:
                break
            wait = max(0.0, self.timers[0][0] - time.monotonic()) if self.timers else None
            for key, events in self.selector.select(wait):
                if isinstance(key.data, Connection):
                    self.serve(key.data, events)
                else:
                    key.data()
        self.say(f"stopped {time.monotonic() - self.told:.2f} s after it was told to")
        return 0

    def say(self, text):
        print(f"{self.instance} revision {self.revision}: {text}", flush=True)

    # Life

    def listen(self):
        listener = socket.socket(socket.AF_INET6 if ":" in self.address else socket.AF_INET)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((self.address, self.port))
            listener.listen(1024)
        except OSError as exc:
            sys.exit(
                f"{self.instance}: cannot listen on {self.address}:{self.port}: {exc.strerror}"
            )
        listener.setblocking(False)
        self.listener = listener
        self.selector.register(listener, READ, self.accept)
        self.later(self.delays["START_READY_DELAY"], self.become_ready)
        start, ready = self.delays["START_DELAY"], self.delays["START_READY_DELAY"]
        self.say(
            f"listening on {self.address}:{self.port} after {age():.2f} s, start delay {start:.3f}"
            f" s, ready in {ready:.3f} s"
        )

    def become_ready(self):
        if self.ready_file and not os.path.exists(self.ready_file):
            self.later(0.02, self.become_ready)
            return
        self.ready = not self.never_ready and not self.stopping

    def crash_later(self, name):
        if self.delays[name]:
            self.later(self.delays[name], self.crash, name)

    def crash(self, name):
        print(
            f"boom: {self.instance} crashes after {self.delays[name]:g} s, as {name} asked",
            file=sys.stderr,
            flush=True,
        )
        os._exit(3)

    def stop(self):
        self.woken.recv(64)
        if not self.stopping:
            self.say("stopping")
            self.told = time.monotonic()
            self.stopping, self.ready = True, False
            self.later(self.delays["STOP_DELAY"] if self.listener else 0, self.drain)

    def drain(self):
        """Take what has already arrived, then no more."""
        self.draining = True
        self.timers = [timer for timer in self.timers if timer[2] == self.finish]
        heapq.heapify(self.timers)
        if self.listener:
            self.accept()
            self.selector.unregister(self.listener)
            self.listener.close()
        for client in list(self.clients):
            self.serve(client, READ)
            if client in self.clients and not (client.busy or client.inbox or client.outbox):
                self.close(client)

    # Connections

    def accept(self):
        while True:
            try:
                sock, _peer = self.listener.accept()
            except OSError:
                return
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.tls:
                sock = self.tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
            client = Connection(sock)
            self.clients.add(client)
            self.selector.register(sock, READ, client)

    def close(self, client):
        if client in self.clients:
            self.clients.discard(client)
            self.selector.unregister(client.sock)
            client.sock.close()

    def serve(self, client, events):
        if events & WRITE:
            self.flush(client)
        if events & READ and client in self.clients:
            data, ended = self.receive(client)
            if ended and not data:
                return self.close(client)
            client.inbox += data
            self.proceed(client)

    def receive(self, client):
        """What has arrived, and whether that was the end. TLS may hold more than the selector
        knows of.
        """
        data = b""
        while True:
            try:
                part = client.sock.recv(65536)
            except self.later_on:
                return data, False
            except OSError:
                part = b""
            data += part
            if not part or not self.tls:
                return data, not part

    def proceed(self, client):
        """Work on this client's requests, in order, as far as they have arrived and need no
        waiting.
        """
        while not (client.busy or client.closing) and self.parse(client):
            pass

    def parse(self, client):
        """Take one request; returns whether there was one."""
        head, found, rest = client.inbox.partition(b"\r\n\r\n")
        if not found:
            if len(head) > MAX_REQUEST:
                self.answer(client, "GET", 413, False)
            return False
        lines = head.decode("latin-1").split("\r\n")
        words = lines[0].split(" ")
        headers = {
            name.strip().lower(): value.strip()
            for name, _colon, value in (line.partition(":") for line in lines[1:])
        }
        length = headers.get("content-length", "0")
        if len(words) != 3 or not length.isdigit():
            self.answer(client, "GET", 400, False)
            return False
        if "transfer-encoding" in headers:
            self.answer(client, words[0], 501, False)
            return False
        if int(length) > MAX_REQUEST:
            self.answer(client, words[0], 413, False)
            return False
        if len(rest) < int(length):
            return False
        client.inbox, client.busy = rest[int(length) :], True
        wish = headers.get("connection", "").lower()
        keep = wish == "keep-alive" if words[2] == "HTTP/1.0" else wish != "close"
        self.work(client, words[0], words[1], keep)
        return True

    def work(self, client, method, target, keep):
        path, _mark, query = target.partition("?")
        delay, status, text = 0.0, 200, ""
        self.requests += path in ("/", "/slow")
        if method not in ("GET", "POST", "HEAD"):
            status = 405
        elif path == "/healthz":
            status = 200 if self.ready else 503
        elif path == "/":
            delay = self.delays["LATENCY"]
            self.served += 1
            if self.served == 1:
                self.crash_later("CRASH_IN_SERVICE")
            if self.slow_every and self.served % self.slow_every == 0:
                delay *= 10
            if self.fail_every and self.served % self.fail_every == 0 and self.failing():
                status = self.fail_status
        elif path == "/slow":
            try:
                delay = float(
                    dict(pair.partition("=")[::2] for pair in query.split("&")).get("s", 1)
                )
            except ValueError:
                status = 400
        elif path == "/requests":
            text = str(self.requests)
        else:
            status = 404
        if delay > 0:
            self.later(delay, self.finish, client, method, status, keep)
        else:
            self.answer(client, method, status, keep, text)

    def failing(self):
        return not self.fail_file or os.path.exists(self.fail_file)

    def finish(self, client, method, status, keep):
        self.answer(client, method, status, keep)
        self.proceed(client)

    def answer(self, client, method, status, keep, text=""):
        if client not in self.clients:
            return
        keep = keep and not self.draining
        body = (
            f"{text or f'{self.revision} {self.instance}'}\n"
            if status == 200
            else f"{status} {REASONS[status]}\n"
        )
        head = (
            f"HTTP/1.1 {status} {REASONS[status]}\r\nContent-Type: text/plain\r\nContent-Length:"
            f" {len(body.encode())}\r\n"
        )
        head += (
            f"X-Revision: {self.revision}\r\nConnection:"
            f" {'keep-alive' if keep else 'close'}\r\n\r\n"
        )
        client.outbox += (head + ("" if method == "HEAD" else body)).encode()
        client.busy, client.closing = False, not keep
        self.flush(client)

    def flush(self, client):
        try:
            client.outbox = client.outbox[client.sock.send(client.outbox) :]
        except self.later_on:
            pass
        except OSError:
            return self.close(client)
        if client.closing and not client.outbox:
            return self.close(client)
        self.selector.modify(client.sock, READ | WRITE if client.outbox else READ, client)


if __name__ == "__main__":
    try:
        app = App(os.environ)
    except (KeyError, ValueError) as exc:
        sys.exit(
            f"app.py: {exc!r}: PORT must be set, and times be seconds or"
            " lognormal:MEDIAN:SIGMA:SEED"
        )
    sys.exit(app.run())
