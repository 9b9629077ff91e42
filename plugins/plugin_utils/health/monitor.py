# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether instances are ready: a background thread asks them, and keeps the last outcome.

The reconcile loop says which instances to watch, sleeps in `wait`, and reads `health`. How often
and from where they are asked is in the `HealthCheck`; what is asked and what an answer means, in
`checks/`.
"""

from __future__ import annotations

import asyncio
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

from ..agents.probe import reason
from ..base import clock
from ..engine.model import Health
from ..interfaces.check import HealthCheck, Probe
from ..interfaces.platform import Endpoint
from . import agent
from .agent import LIMIT, REACH
from .streak import Streak, advance

if t.TYPE_CHECKING:
    from ..remote.transport import Transport

EAGER = 0.02  # seconds between two questions to an instance that has not passed yet, at least
RATE = 500  # such questions a second, at most: with many of them each waits longer, up to `LAZY`
LAZY = 0.1
SOCKETS = 256  # open at the same time; processes are commonly allowed 1024


@dataclass(frozen=True, slots=True)
class Target:
    """An instance to ask. `known`: it existed before this step began; `created` in seconds since
    the epoch.
    """

    endpoint: Endpoint
    host: str
    known: bool
    created: float


@dataclass(frozen=True, slots=True)
class HealthStatus:
    """The health of an instance, since when (seconds since the epoch), and why it does not pass."""

    health: Health
    since: float
    detail: str = ""


@dataclass(eq=False, slots=True)
class _Watched:
    """One target and its outcomes so far. `vital` is replaced whole, so any thread may read it."""

    id: str
    target: Target
    vital: HealthStatus
    streak: Streak = field(default_factory=Streak)
    asked: bool = False
    due: float = 0.0  # when to ask next, by the loop's clock
    spread: bool = False  # has its own place in the interval


class HealthMonitor:
    """Ask the watched instances, each on its own schedule.

    For one thread, but for `wake`, which any thread may call.
    """

    def __init__(
        self,
        health: HealthCheck,
        transport: Transport,
        forks: int = 32,
        on_outcome: Callable[[str, Probe], None] = lambda name, probe: None,
    ) -> None:
        """Ask `forks` hosts at the same time with `from: host`. `on_outcome` is called in
        another thread.
        """
        self._health = health
        self._on_outcome = on_outcome
        self._watched: dict[str, _Watched] = {}
        self._unasked: set[str] = set()
        self._lock = threading.Lock()
        # its put is safe in a signal handler; True: from `wake`
        self._news: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._worker = _Worker(health, transport, forks, self._note) if health.enabled else None

    def watch(self, targets: Mapping[str, tuple[Endpoint, str, bool, float]]) -> None:
        """Watch exactly these instances (endpoint, host, known, created); forget all others."""
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
        if not self._health.enabled:
            return _Watched(name, target, HealthStatus(Health.NONE, target.created))
        return _Watched(name, target, HealthStatus(Health.PENDING, clock.now(), "not asked yet"))

    def health(self, name: str) -> HealthStatus:
        """Return the last known health of an instance; PENDING if it is not watched."""
        watched = self._watched.get(name)
        return watched.vital if watched else HealthStatus(Health.PENDING, clock.now())

    def settle(self, timeout: float) -> bool:
        """Block until every watched instance was asked once. Return False if the timeout or
        `wake` came first.
        """
        end = time.monotonic() + timeout
        while self._unasked:
            if self._hear(end - time.monotonic()) is not False:
                return False
        return True

    def wait(self, timeout: float) -> bool:
        """Block until the health of an instance changes, or has changed since the last `wait`, or
        `wake`.

        Return False after the timeout.
        """
        return self._hear(timeout) is not None

    def _hear(self, timeout: float) -> bool | None:
        """Take all news there are: True if `wake` is among them, None if there are none in time."""
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
        """End the current or the next `wait` or `settle`. A signal handler may call it."""
        self._news.put(True)

    def close(self) -> None:
        """Stop asking. The last outcomes can still be read."""
        if self._worker:
            self._worker.close()

    def _note(self, watched: _Watched, probe: Probe) -> None:
        """Record an outcome. Called in the background thread."""
        self._on_outcome(watched.id, probe)
        rules = self._health.rise, self._health.fall
        streak = advance(watched.streak, probe.passed, *rules, watched.target.known)
        changed = streak.health is not watched.streak.health
        since = watched.vital.since
        if changed:
            # it passed before, without being asked
            lb_healthy = watched.target.known and not watched.asked
            since = min(watched.target.created, clock.now()) if lb_healthy else clock.now()
        watched.vital = HealthStatus(streak.health, since, probe.detail)
        watched.streak, watched.asked = streak, True
        with self._lock:
            if self._watched.get(watched.id) is not watched:
                return
            settled = self._unasked == {watched.id}
            self._unasked.discard(watched.id)
        if changed or settled:
            self._news.put(False)


class _Worker:
    """The background thread: an asyncio loop with a task for each instance (with `from: host`,
    for each host).
    """

    def __init__(
        self,
        health: HealthCheck,
        transport: Transport,
        forks: int,
        note: Callable[[_Watched, Probe], None],
    ) -> None:
        self._health = health
        self._transport = transport
        self._note = note
        self._context = _context(health) if health.tls and not health.from_host else None
        self._tasks: dict[_Watched | str, asyncio.Task[None]] = {}
        self._members: dict[str, set[_Watched]] = {}
        self._starting: set[_Watched] = set()  # new ones that have not passed yet
        self._sockets = asyncio.Semaphore(SOCKETS)
        self._loop = asyncio.new_event_loop()
        self._pool = ThreadPoolExecutor(forks, "rollout-probe")
        self._loop.set_default_executor(self._pool)  # where asyncio.to_thread goes
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="rollout-health", daemon=True
        )
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
            # All at once would be a burst, but a step that begins waits for the first outcomes.
            watched.due = self._loop.time() + self._phase(watched) * min(
                self._health.interval, len(begun) / (8 * RATE)
            )
            if not watched.target.known:
                self._starting.add(watched)
            if not self._health.from_host:
                self._tasks[watched] = self._loop.create_task(self._follow(watched))
                continue
            host = watched.target.host
            self._members.setdefault(host, set()).add(watched)
            if host not in self._tasks:
                self._tasks[host] = self._loop.create_task(self._follow_host(host))
        for watched in gone:
            self._starting.discard(watched)
            key: _Watched | str = watched
            if self._health.from_host:
                key = watched.target.host
                self._members[key].discard(watched)
                if self._members[key]:
                    continue
            self._tasks.pop(key).cancel()

    @property
    def _eager(self) -> float:
        return min(self._health.interval, max(EAGER, min(LAZY, len(self._starting) / RATE)))

    def _phase(self, watched: _Watched) -> float:
        """Return a number from 0 to 1, always the same for an instance, or for a host: questions
        are spread over time.
        """
        return (
            zlib.crc32((watched.target.host if self._health.from_host else watched.id).encode())
            / 2**32
        )

    def _heard(self, watched: _Watched, probe: Probe, asked: float) -> None:
        """Pass an outcome on, and set when to ask again."""
        self._note(watched, probe)
        if watched.vital.health is Health.PENDING and not watched.target.known:
            watched.due = asked + self._eager
            return
        self._starting.discard(watched)
        if watched.spread:
            watched.due = asked + self._health.interval
        else:
            watched.spread = True
            watched.due = asked + self._health.interval * self._phase(watched)

    async def _follow(self, watched: _Watched) -> None:
        endpoint = self._health.where(watched.target.endpoint)
        while True:
            await asyncio.sleep(watched.due - self._loop.time())
            async with self._sockets:
                asked = self._loop.time()
                probe = await self._ask(endpoint)
            self._heard(watched, probe, asked)

    async def _ask(self, endpoint: Endpoint) -> Probe:
        """Ask one instance, from the controller."""
        reply = bytearray()
        probe, error = None, ""
        try:
            async with asyncio.timeout(self._health.timeout):
                probe = await (self._talk_tls if self._context else self._talk)(endpoint, reply)
        except TimeoutError:
            error = f"timed out after {self._health.timeout:g} s"
        except OSError as exc:
            error = reason(exc)
        return probe or agent.ended(len(reply), error)

    async def _talk(self, endpoint: Endpoint, reply: bytearray) -> Probe | None:
        # Half the CPU time of asyncio's streams, which matters at thousands of instances.
        with socket.socket(
            socket.AF_INET6 if ":" in endpoint.address else socket.AF_INET, socket.SOCK_STREAM
        ) as sock:
            sock.setblocking(False)
            try:  # asyncio's own way takes as long again where nothing has to be waited for
                sock.connect((endpoint.address, endpoint.port))
            except BlockingIOError:
                await self._loop.sock_connect(sock, (endpoint.address, endpoint.port))
            await self._loop.sock_sendall(sock, self._health.check.payload(endpoint))
            return await self._read(partial(self._loop.sock_recv, sock), reply)

    async def _talk_tls(self, endpoint: Endpoint, reply: bytearray) -> Probe | None:
        name = self._health.check.server_name or endpoint.address
        reader, writer = await asyncio.open_connection(
            endpoint.address, endpoint.port, ssl=self._context, server_hostname=name
        )
        try:
            writer.write(self._health.check.payload(endpoint))
            return await self._read(reader.read, reply)
        finally:
            writer.transport.abort()

    async def _read(
        self, read: Callable[[int], Awaitable[bytes]], reply: bytearray
    ) -> Probe | None:
        """Read until there is a verdict; return None at the end of the stream without one."""
        while (probe := agent.judged(self._health.check, bytes(reply))) is None and len(
            reply
        ) < LIMIT:
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
                # not longer: instances may have been added
                await asyncio.sleep(min(first - asked, LAZY / 2))
                continue
            due = [watched for watched in members if watched.due < asked + LAZY / 4]
            probes = await self._ask_host(host, due)
            for watched in due:
                self._heard(watched, probes[watched.id], asked)

    async def _ask_host(self, host: str, due: Sequence[_Watched]) -> dict[str, Probe]:
        """Ask instances from their own host, all in one command."""
        targets = {watched.id: watched.target.endpoint for watched in due}
        try:
            request = agent.request(self._health, targets)
            answers = await asyncio.to_thread(
                self._transport.ask, "probe", {host: request}, self._health.timeout + REACH
            )
            value = answers[host].value
            if value is None:
                return dict.fromkeys(targets, Probe(False, answers[host].error))
            return agent.probes(self._health.check, value)
        except Exception as exc:  # whatever it was: an outcome to show, and the questions go on
            return dict.fromkeys(
                targets, Probe(False, f"cannot ask on {host}: {type(exc).__name__}: {exc}")
            )


def _context(health: HealthCheck) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if not health.validate_certs:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
