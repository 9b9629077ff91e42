# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether instances are ready: the loop that asks them, from one background thread, and what it last heard.

The conductor says whom to watch, sleeps in `wait`, and reads `health`; how often and from where an instance is
asked stands in `rollout_health`. What is asked, and what an answer means, is the business of `checks/`.
"""

from __future__ import annotations

import asyncio
import binascii
import queue
import socket
import ssl
import threading
import time
import typing as t
import zlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from ansible_collections.progressive.rollout.plugins.plugin_utils.agents.probe import reason
from ansible_collections.progressive.rollout.plugins.plugin_utils.base import clock
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import InputError
from ansible_collections.progressive.rollout.plugins.plugin_utils.checks import http, tcp
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Health
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs import values
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.check import Probe
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import Endpoint

if t.TYPE_CHECKING:
    from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.connections import Transport

OPTIONS: dict[str, t.Any] = {
    "interval": {"type": "raw", "default": "500ms"},
    "timeout": {"type": "raw", "default": "2s"},
    "rise": {"type": "int", "default": 2},
    "fall": {"type": "int", "default": 3},
    "port": {"type": "int"},
    "from": {"type": "str", "default": "controller", "choices": ["controller", "host"]},
    "tls": {"type": "bool", "default": False},
    "validate_certs": {"type": "bool", "default": True},
}

EAGER = 0.02  # seconds between two questions to an instance that has not passed yet, at least
RATE = 500  # such questions a second, at most: with many of them each waits longer, up to `LAZY`
LAZY = 0.1
SOCKETS = 256  # open at the same time; processes are commonly allowed 1024
LIMIT = 65536  # bytes read of a reply
REACH = 10.0  # seconds a host may take to be reached, beyond the probes' own timeout


@dataclass(frozen=True)
class Settings:
    """`rollout_health`, understood. Times are seconds."""

    check: http.Driver | tcp.Driver
    interval: float = 0.5
    timeout: float = 2.0
    rise: int = 2
    fall: int = 3
    port: int = 0  # 0: the instance's own
    from_host: bool = False
    validate_certs: bool = True


@dataclass(frozen=True, slots=True)
class Target:
    """An instance to ask. `known`: it was there before this step began; `created` by the epoch's seconds."""

    endpoint: Endpoint
    host: str
    known: bool
    created: float


@dataclass(frozen=True, slots=True)
class Vital:
    """What is known of an instance, since when (seconds since the epoch), and why it does not pass."""

    health: Health
    since: float
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Streak:
    """A health and the outcomes in a row that led to it: passes count up from 1, failures down from -1."""

    health: Health = Health.PENDING
    run: int = 0


def advance(streak: Streak, passed: bool, rise: int, fall: int, known: bool) -> Streak:
    """The streak after one more outcome. A known instance was serving: one pass proves it, `fall` failures disprove it."""
    run = max(streak.run, 0) + 1 if passed else min(streak.run, 0) - 1
    pending = streak.health is Health.PENDING
    if run >= (1 if known and pending else rise):
        return Streak(Health.PASSING, run)
    if -run >= fall and (known or not pending):
        return Streak(Health.FAILING, run)
    return Streak(streak.health, run)


def parse(health: Mapping[str, t.Any], variable: str = "rollout_health") -> Settings | None:
    """The settings of a check, or None when neither `http` nor `tcp` is set. Raises InputError."""
    if not isinstance(health, Mapping):
        raise InputError(f"{variable}: {health!r} is not a mapping; write {{http: /healthz}} or {{tcp: true}}")
    values.refuse_unknown(health, {*OPTIONS, *http.OPTIONS, *tcp.OPTIONS}, f"{variable}.")
    options = {name: spec.get("default") for name, spec in OPTIONS.items()}
    options |= {key: value for key, value in health.items() if value is not None}
    tls, validate_certs = (_flag(options[name], f"{variable}.{name}") for name in ("tls", "validate_certs"))
    if options["from"] not in OPTIONS["from"]["choices"]:
        raise InputError(f"{variable}.from: {options['from']!r} is neither controller nor host")
    common: dict[str, t.Any] = {
        "interval": values.duration(options["interval"], f"{variable}.interval", 0.01),
        "timeout": values.duration(options["timeout"], f"{variable}.timeout", 0.01),
        "rise": _count(options["rise"], f"{variable}.rise"),
        "fall": _count(options["fall"], f"{variable}.fall"),
        "port": 0 if options["port"] is None else values.port(options["port"], f"{variable}.port"),
        "from_host": options["from"] == "host",
        "validate_certs": validate_certs,
    }
    driver = _driver(options, variable)
    return Settings(check=driver(options, tls, variable), **common) if driver else None


def _driver(options: Mapping[str, t.Any], variable: str) -> type[http.Driver] | type[tcp.Driver] | None:
    """Which check is asked for: the setting that names it is there."""
    use_http = options.get("http") is not None
    use_tcp = _flag(options.get("tcp") or False, f"{variable}.tcp")
    if use_http and use_tcp:
        raise InputError(f"{variable}: both http ({options['http']!r}) and tcp are set; keep one (http asks more)")
    for key in sorted(http.OPTIONS.keys() & options.keys()):
        if not use_http and options[key]:
            raise InputError(f"{variable}.{key}: goes with http, which is not set; remove it or set {variable}.http")
    return http.Driver if use_http else tcp.Driver if use_tcp else None


def _flag(value: t.Any, variable: str) -> bool:
    words = {"true": True, "yes": True, "false": False, "no": False}
    if str(value).lower() not in words:
        raise InputError(f"{variable}: {value!r} must be true or false")
    return words[str(value).lower()]


def _count(value: t.Any, variable: str) -> int:
    try:
        return values.whole(value, variable, 1)
    except InputError:
        raise InputError(f"{variable}: {values.shown(value)} is not a number of probes; write 1 or more") from None


@dataclass(eq=False, slots=True)
class _Watched:
    """One target and what has been heard of it. `vital` is replaced whole, so any thread may read it."""

    id: str
    target: Target
    vital: Vital
    streak: Streak = field(default_factory=Streak)
    asked: bool = False
    due: float = 0.0  # when to ask next, by the loop's clock
    spread: bool = False  # has its own place in the interval


class Checker:
    """Asks the watched instances, each on its own schedule. Made and used by one thread; `wake` by anyone."""

    def __init__(self, settings: Settings | None, transport: Transport, forks: int = 32) -> None:
        """`forks`: how many hosts are asked at the same time with `from: host`."""
        self._settings = settings
        self._watched: dict[str, _Watched] = {}
        self._unasked: set[str] = set()
        self._lock = threading.Lock()
        self._news: queue.SimpleQueue[bool] = queue.SimpleQueue()  # its put is safe in a signal handler; True: from `wake`
        self._worker = _Worker(settings, transport, forks, self._note) if settings else None

    def watch(self, targets: Mapping[str, tuple[Endpoint, str, bool, float]]) -> None:
        """Watch exactly these (endpoint, host, known, created): new ones begin, missing ones are forgotten."""
        begun, gone = [], []
        with self._lock:
            before, self._watched = self._watched, {}
            for name, (endpoint, host, known, created) in targets.items():
                old = before.get(name)
                if old and (old.target.endpoint, old.target.host) == (endpoint, host):
                    self._watched[name] = old
                else:
                    self._watched[name] = self._begin(name, Target(endpoint, host, known, created))
                    begun.append(self._watched[name])
            gone = [old for name, old in before.items() if self._watched.get(name) is not old]
            if self._worker:
                self._unasked -= {old.id for old in gone}
                self._unasked |= {new.id for new in begun}
        if self._worker and (begun or gone):
            self._worker.replace(begun, gone)

    def _begin(self, name: str, target: Target) -> _Watched:
        if self._settings is None:
            return _Watched(name, target, Vital(Health.NONE, target.created))
        return _Watched(name, target, Vital(Health.PENDING, clock.now(), "not asked yet"))

    def health(self, name: str) -> Vital:
        """What is known of an instance now; one that is not watched is pending."""
        watched = self._watched.get(name)
        return watched.vital if watched else Vital(Health.PENDING, clock.now())

    def settle(self, timeout: float) -> bool:
        """Block until every watched instance has been asked once; False if the timeout or `wake` came first."""
        end = time.monotonic() + timeout
        while self._unasked:
            if self._hear(end - time.monotonic()) is not False:
                return False
        return True

    def wait(self, timeout: float) -> bool:
        """Block until some instance's health changes, or changed since the last `wait`; or `wake`. False after the timeout."""
        return self._hear(timeout) is not None

    def _hear(self, timeout: float) -> bool | None:
        """The next news and all that came with it: True if `wake` is among it, None if there is none in time."""
        try:
            woken = self._news.get(timeout=max(timeout, 0.0))
            while True:
                try:
                    woken = self._news.get_nowait() or woken
                except queue.Empty:
                    return woken
        except queue.Empty:
            return None

    def wake(self) -> None:
        """End the current or the next `wait` or `settle`. May be called in a signal handler."""
        self._news.put(True)

    def close(self) -> None:
        """Stop asking. What was heard can still be read."""
        if self._worker:
            self._worker.close()

    def _note(self, watched: _Watched, probe: Probe) -> None:
        """Take in one outcome. Called in the background thread."""
        settings = self._settings
        if settings is None:  # never: there is no background thread without
            return
        streak = advance(watched.streak, probe.passed, settings.rise, settings.fall, watched.target.known)
        changed = streak.health is not watched.streak.health
        since = watched.vital.since
        if changed:
            lb_healthy = watched.target.known and not watched.asked  # it passed all along; nobody asked
            since = min(watched.target.created, clock.now()) if lb_healthy else clock.now()
        watched.vital = Vital(streak.health, since, probe.detail)
        watched.streak, watched.asked = streak, True
        with self._lock:
            if self._watched.get(watched.id) is not watched:
                return
            settled = self._unasked == {watched.id}
            self._unasked.discard(watched.id)
        if changed or settled:
            self._news.put(False)


class _Worker:
    """The background thread: one asyncio loop, one task for each instance (or, with `from: host`, for each host)."""

    def __init__(self, settings: Settings, transport: Transport, forks: int, note: Callable[[_Watched, Probe], None]) -> None:
        self._settings = settings
        self._transport = transport
        self._note = note
        self._context = _context(settings) if settings.check.tls and not settings.from_host else None
        self._tasks: dict[_Watched | str, asyncio.Task[None]] = {}
        self._members: dict[str, set[_Watched]] = {}
        self._starting: set[_Watched] = set()  # new ones that have not passed yet
        self._sockets = asyncio.Semaphore(SOCKETS)
        self._loop = asyncio.new_event_loop()
        self._pool = ThreadPoolExecutor(forks, "rollout-probe")
        self._loop.set_default_executor(self._pool)  # where asyncio.to_thread goes
        self._thread = threading.Thread(target=self._loop.run_forever, name="rollout-health", daemon=True)
        self._thread.start()

    def replace(self, begun: Sequence[_Watched], gone: Sequence[_Watched]) -> None:
        """Called by the other thread, as is `close`."""
        self._loop.call_soon_threadsafe(self._replace, begun, gone)

    def close(self) -> None:
        if self._loop.is_closed():
            return
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._loop.close()

    async def _stop(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        await asyncio.sleep(0)  # lets aborted TLS connections close

    def _replace(self, begun: Sequence[_Watched], gone: Sequence[_Watched]) -> None:
        for watched in begun:
            # All at once would be a burst; a step that begins waits for the first outcomes.
            watched.due = self._loop.time() + self._phase(watched) * min(self._settings.interval, len(begun) / (8 * RATE))
            if not watched.target.known:
                self._starting.add(watched)
            if not self._settings.from_host:
                self._tasks[watched] = self._loop.create_task(self._follow(watched))
                continue
            host = watched.target.host
            self._members.setdefault(host, set()).add(watched)
            if host not in self._tasks:
                self._tasks[host] = self._loop.create_task(self._follow_host(host))
        for watched in gone:
            self._starting.discard(watched)
            key: _Watched | str = watched
            if self._settings.from_host:
                key = watched.target.host
                self._members[key].discard(watched)
                if self._members[key]:
                    continue
            self._tasks.pop(key).cancel()

    @property
    def _eager(self) -> float:
        return min(self._settings.interval, max(EAGER, min(LAZY, len(self._starting) / RATE)))

    def _phase(self, watched: _Watched) -> float:
        """From 0 to 1, always the same for an instance: spreads the questions over time. Those of a host go together."""
        return zlib.crc32((watched.target.host if self._settings.from_host else watched.id).encode()) / 2**32

    def _heard(self, watched: _Watched, probe: Probe, asked: float) -> None:
        """Pass an outcome on, and say when to ask again."""
        self._note(watched, probe)
        if watched.vital.health is Health.PENDING and not watched.target.known:
            watched.due = asked + self._eager
            return
        self._starting.discard(watched)
        if watched.spread:
            watched.due = asked + self._settings.interval
        else:
            watched.spread = True
            watched.due = asked + self._settings.interval * self._phase(watched)

    async def _follow(self, watched: _Watched) -> None:
        endpoint = watched.target.endpoint
        endpoint = Endpoint(endpoint.address, self._settings.port or endpoint.port)
        while True:
            await asyncio.sleep(watched.due - self._loop.time())
            async with self._sockets:
                asked = self._loop.time()
                probe = await self._ask(endpoint)
            self._heard(watched, probe, asked)

    async def _ask(self, endpoint: Endpoint) -> Probe:
        """Ask one instance from here."""
        reply = bytearray()
        probe, error = None, ""
        try:
            async with asyncio.timeout(self._settings.timeout):
                probe = await (self._talk_tls if self._context else self._talk)(endpoint, reply)
        except TimeoutError:
            error = f"timed out after {self._settings.timeout:g} s"
        except OSError as exc:
            error = reason(exc)
        return probe or _ended(len(reply), error)

    async def _talk(self, endpoint: Endpoint, reply: bytearray) -> Probe | None:
        # half the price of asyncio's streams, at thousands of instances
        with socket.socket(socket.AF_INET6 if ":" in endpoint.address else socket.AF_INET, socket.SOCK_STREAM) as sock:
            sock.setblocking(False)
            await self._loop.sock_connect(sock, (endpoint.address, endpoint.port))
            await self._loop.sock_sendall(sock, self._settings.check.payload(endpoint))
            return await self._read(partial(self._loop.sock_recv, sock), reply)

    async def _talk_tls(self, endpoint: Endpoint, reply: bytearray) -> Probe | None:
        name = self._settings.check.server_name or endpoint.address
        reader, writer = await asyncio.open_connection(endpoint.address, endpoint.port, ssl=self._context, server_hostname=name)
        try:
            writer.write(self._settings.check.payload(endpoint))
            return await self._read(reader.read, reply)
        finally:
            writer.transport.abort()

    async def _read(self, read: Callable[[int], Awaitable[bytes]], reply: bytearray) -> Probe | None:
        """Read until there is a verdict; None if there is no more to read."""
        while (probe := judged(self._settings, bytes(reply))) is None and len(reply) < LIMIT:
            data = await read(LIMIT - len(reply))
            if not data:
                break
            reply += data
        return probe

    async def _follow_host(self, host: str) -> None:
        members = self._members[host]
        while True:
            asked = self._loop.time()
            first = min(watched.due for watched in members)
            if first > asked:
                await asyncio.sleep(min(first - asked, LAZY / 2))  # not longer: others may have joined
                continue
            due = [watched for watched in members if watched.due < asked + LAZY / 4]
            probes = await self._ask_host(host, due)
            for watched in due:
                self._heard(watched, probes[watched.id], asked)

    async def _ask_host(self, host: str, due: Sequence[_Watched]) -> dict[str, Probe]:
        """Ask instances from their own host, all in one command."""
        settings = self._settings
        targets = {watched.id: watched.target.endpoint for watched in due}
        try:
            request = questions(settings, targets)
            answers = await asyncio.to_thread(self._transport.ask, "probe", {host: request}, settings.timeout + REACH)
            value = answers[host].value
            if value is None:
                return dict.fromkeys(targets, Probe(False, answers[host].error))
            return verdicts(settings, value)
        except Exception as exc:  # whatever it was: an outcome that is shown, not an end to the questions
            return dict.fromkeys(targets, Probe(False, f"cannot ask on {host}: {type(exc).__name__}: {exc}"))


def questions(settings: Settings, endpoints: Mapping[str, Endpoint]) -> dict[str, t.Any]:
    """The request with which the agent `probe` asks these, by name, from a host."""
    check = settings.check
    targets = {}
    for name, endpoint in endpoints.items():
        asked = Endpoint(endpoint.address, settings.port or endpoint.port)
        payload = binascii.b2a_base64(check.payload(asked), newline=False).decode()
        targets[name] = [asked.address, asked.port, payload]
    return {
        "targets": targets,
        "timeout": settings.timeout,
        "limit": LIMIT if check.judge(b"") is None else 0,  # being connected may be enough
        "tls": check.tls,
        "validate_certs": settings.validate_certs,
        "server_name": check.server_name,
        "enough": binascii.b2a_base64(check.enough, newline=False).decode(),
    }


def verdicts(settings: Settings, value: Mapping[str, t.Any]) -> dict[str, Probe]:
    """What the agent's answer says of each, by name. A reply may have been cut short after all that was needed."""
    found = {}
    for name, (encoded, error) in value["replies"].items():
        reply = binascii.a2b_base64(encoded)
        probe = None if error and not reply else judged(settings, reply)
        found[name] = probe or _ended(len(reply), error)
    return found


def judged(settings: Settings, reply: bytes) -> Probe | None:
    """The check's verdict on what came so far."""
    try:
        return settings.check.judge(reply)
    except Exception as exc:  # a bug in a driver must not end the questions: the instance would be pending for ever
        return Probe(False, f"the check cannot read the reply: {type(exc).__name__}: {exc}")


def _ended(received: int, error: str) -> Probe:
    """The outcome when the conversation ended without a verdict."""
    if error and not received:
        return Probe(False, error)
    end = error or (f"the first {LIMIT // 1024} kB were read" if received >= LIMIT else "the connection was closed")
    return Probe(False, f"{end}, {received} bytes received without what was expected")


def _context(settings: Settings) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if not settings.validate_certs:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
