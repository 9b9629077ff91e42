# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether instances are ready: a background thread asks them, and keeps the last outcome.

The reconcile loop says which instances to watch, sleeps in `wait`, and reads `health`. How often
and from where they are asked is in the `HealthCheck`; what is asked and what an answer means, in
`checks/`.
"""

from __future__ import annotations

import heapq
import itertools
import selectors
import socket
import threading
import time
import typing as t
import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from queue import Empty, SimpleQueue

from ..agents import probe
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
class CheckedInstance:
    """An instance to ask. `known`: it existed before this step began; `created` in seconds since
    the epoch.
    """

    endpoint: Endpoint
    host: str
    known: bool
    created: float
    health: HealthCheck


class HealthStatus(t.NamedTuple):
    """The health of an instance, since when (seconds since the epoch), and why it does not pass."""

    health: Health
    since: float
    detail: str = ""


@dataclass(eq=False, slots=True)
class _Watched:
    """One target and its outcomes so far. `vital` is replaced whole, so any thread may read it."""

    id: str
    target: CheckedInstance
    vital: HealthStatus
    streak: Streak = field(default_factory=Streak)
    asked: bool = False
    due: float = 0.0  # when to ask next, by the monotonic clock
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
        another thread. `health` is how instances are asked that have no check of their own.
        """
        self._health = health
        self._transport = transport
        self._forks = forks
        self._on_outcome = on_outcome
        self._watched: dict[str, _Watched] = {}
        self._unasked: set[str] = set()
        self._lock = clock.lock()
        # its put is safe in a signal handler; True: from `wake`
        self._news: SimpleQueue[bool] = clock.queue()
        self._workers: dict[HealthCheck, _Worker] = {}

    def watch(
        self,
        targets: Mapping[str, tuple[Endpoint, str, bool, float]],
        checks: Mapping[str, HealthCheck] | None = None,
    ) -> None:
        """Watch exactly these instances (endpoint, host, known, created); forget all others.

        `checks` has those of instances that are asked by another check than the monitor's.
        """
        begun, gone = [], []
        with self._lock:
            before, self._watched = self._watched, {}
            for name, (endpoint, host, known, created) in targets.items():
                old, health = before.get(name), (checks or {}).get(name, self._health)
                if old and (old.target.endpoint, old.target.host, old.target.health) == (
                    endpoint,
                    host,
                    health,
                ):
                    self._watched[name] = old
                else:
                    target = CheckedInstance(endpoint, host, known, created, health)
                    self._watched[name] = self._begin(name, target)
                    begun.append(self._watched[name])
            gone = [old for name, old in before.items() if self._watched.get(name) is not old]
            self._unasked -= {old.id for old in gone}
            self._unasked |= {new.id for new in begun if new.target.health.enabled}
        for health in dict.fromkeys(probed.target.health for probed in (*begun, *gone)):
            if health.enabled:
                self._worker(health).replace(
                    [probed for probed in begun if probed.target.health == health],
                    [probed for probed in gone if probed.target.health == health],
                )

    def _worker(self, health: HealthCheck) -> _Worker:
        """Return the thread that asks by this check."""
        if health not in self._workers:
            self._workers[health] = _Worker(health, self._transport, self._forks, self._note)
        return self._workers[health]

    def _begin(self, name: str, target: CheckedInstance) -> _Watched:
        if not target.health.enabled:
            return _Watched(name, target, HealthStatus(Health.NONE, target.created))
        return _Watched(name, target, HealthStatus(Health.PENDING, clock.now(), "not asked yet"))

    def health(self, name: str) -> HealthStatus:
        """Return the last known health of an instance; PENDING if it is not watched."""
        watched = self._watched.get(name)
        return watched.vital if watched else HealthStatus(Health.PENDING, clock.now())

    def renew(self) -> None:
        """Count outcomes anew, since those so far are out of date; let `settle` wait for the first.

        An instance keeps its health until then; afterwards it is known, as after a restart of the
        step.
        """
        with self._lock:
            for watched in self._watched.values():
                if watched.target.health.enabled:
                    watched.target = replace(watched.target, known=True)
                    watched.streak = Streak()
                    self._unasked.add(watched.id)

    def settle(self, timeout: float) -> bool:
        """Block until every watched instance was asked once. Return False if the timeout or
        `wake` came first.
        """
        end = clock.monotonic() + timeout
        while self._unasked:
            if self._hear(end - clock.monotonic()) is not False:
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
                except Empty:
                    return woken
        except Empty:
            return None

    def wake(self) -> None:
        """End the current or the next `wait` or `settle`. A signal handler may call it."""
        self._news.put(True)

    def close(self) -> None:
        """Stop asking. The last outcomes can still be read."""
        for worker in self._workers.values():
            worker.close()

    def _note(self, watched: _Watched, probe: Probe) -> None:
        """Record an outcome. Called in the background thread."""
        self._on_outcome(watched.id, probe)
        health = watched.target.health
        rules = health.rise, health.fall
        streak = advance(watched.streak, probe.passed, *rules, watched.target.known)
        changed = streak.health is not watched.vital.health
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
    """The background thread: it sends the checks that are due, and reads their replies."""

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
        # who is asked together: an instance, or with `from: host` all instances of a host
        self._members: dict[_Watched | str, set[_Watched]] = {}
        self._asking: set[str] = set()  # hosts
        # when to ask whom, as a heap; the numbers keep the order among equals
        self._due: list[tuple[float, int, _Watched | str]] = []
        self._planned: dict[_Watched | str, float] = {}  # the earliest entry of each there
        self._numbers = itertools.count()
        self._starting: set[_Watched] = set()  # new ones that have not passed yet
        self._talks = probe.Talks(
            lambda reply: agent.judged(health.check, reply) is not None,
            LIMIT,
            health.timeout,
            probe.context(health.validate_certs) if health.tls and not health.from_host else None,
            health.check.server_name,
        )
        # what other threads have this one do, and a byte for each to wake it
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._bell, self._bell_rope = socket.socketpair()
        self._talks.selector.register(self._bell, selectors.EVENT_READ)
        self._pool = ThreadPoolExecutor(forks, "rollout-probe")
        self._open = True
        self._thread = threading.Thread(target=self._run, name="rollout-health", daemon=True)
        self._thread.start()

    def replace(self, begun: Sequence[_Watched], gone: Sequence[_Watched]) -> None:
        """Begin to ask some instances, and stop asking others. Another thread calls this."""
        self._call(partial(self._replace, begun, gone))

    def close(self) -> None:
        if not self._thread.is_alive():
            return
        self._call(self._stop)
        self._thread.join()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._bell_rope.close()

    def _call(self, function: Callable[[], None]) -> None:
        """Have the background thread call this."""
        self._calls.put(function)
        self._bell_rope.send(b"!")

    def _stop(self) -> None:
        self._open = False

    def _run(self) -> None:
        while self._open:
            for talk in self._talks.wait(self._pause()):
                watched, asked = talk.name
                if watched in self._members:
                    self._heard(watched, self._outcome(talk), asked)
                    self._plan(watched)
            while not self._calls.empty():
                self._calls.get()()
                self._bell.recv(1)
            self._ask_due()
        self._talks.close()
        self._bell.close()

    def _pause(self) -> float | None:
        """Return the seconds until the next check is due; None: wait for sockets or calls only."""
        if not self._due or len(self._talks.active) >= SOCKETS:
            return None
        return max(0.0, self._due[0][0] - time.monotonic())

    def _replace(self, begun: Sequence[_Watched], gone: Sequence[_Watched]) -> None:
        for watched in begun:
            # All at once would be a burst, but a step that begins waits for the first outcomes.
            watched.due = time.monotonic() + self._phase(watched) * min(
                self._health.interval, len(begun) / (8 * RATE)
            )
            if not watched.target.known:
                self._starting.add(watched)
            self._members.setdefault(self._key(watched), set()).add(watched)
            self._plan(self._key(watched))
        for watched in gone:
            self._starting.discard(watched)
            members = self._members[self._key(watched)]
            members.discard(watched)
            if not members:
                del self._members[self._key(watched)]

    def _key(self, watched: _Watched) -> _Watched | str:
        return watched.target.host if self._health.from_host else watched

    def _plan(self, key: _Watched | str) -> None:
        """Ask again as soon as one of them is due."""
        due = min(watched.due for watched in self._members[key])
        if key not in self._planned or due < self._planned[key]:
            self._planned[key] = due
            heapq.heappush(self._due, (due, next(self._numbers), key))

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

    def _heard(self, watched: _Watched, outcome: Probe, asked: float) -> None:
        """Pass an outcome on, and set when to ask again."""
        self._note(watched, outcome)
        if watched.vital.health is Health.PENDING and not watched.target.known:
            watched.due = asked + self._eager
            return
        self._starting.discard(watched)
        if watched.spread:
            watched.due = asked + self._health.interval
        else:
            watched.spread = True
            watched.due = asked + self._health.interval * self._phase(watched)

    def _ask_due(self) -> None:
        """Ask all that are due, as far as sockets allow."""
        while self._due and len(self._talks.active) < SOCKETS:
            now = time.monotonic()
            if self._due[0][0] > now:
                return
            due, _number, key = heapq.heappop(self._due)
            if self._planned.get(key) != due:
                continue  # was asked by an earlier entry
            del self._planned[key]
            if key not in self._members:
                continue
            if isinstance(key, str):
                self._ask_host(key, now)
            else:
                self._ask(key, now)

    def _ask(self, watched: _Watched, now: float) -> None:
        """Ask one instance, from the controller."""
        where = self._health.where(watched.target.endpoint)
        try:
            payload = self._health.check.payload(where)
            self._talks.begin((watched, now), where.address, where.port, payload)
        except Exception as exc:  # no socket, a defect of the check: asked again
            self._heard(watched, Probe(False, f"cannot ask: {type(exc).__name__}: {exc}"), now)
            self._plan(watched)

    def _outcome(self, talk: probe.Talk) -> Probe:
        """Return the verdict on what an instance said, and how the conversation ended."""
        verdict = None if talk.error else agent.judged(self._health.check, talk.reply)
        return verdict or agent.ended(len(talk.reply), talk.error)

    def _ask_host(self, host: str, now: float) -> None:
        """Ask the instances of a host that are due from there, all in one command."""
        if host in self._asking:
            return  # planned again once it has answered
        due = [watched for watched in self._members[host] if watched.due < now + LAZY / 4]
        if not due:  # the instance that was to be asked first is gone
            self._plan(host)
            return
        self._asking.add(host)
        self._pool.submit(lambda: self._answer(host, due, now))

    def _answer(self, host: str, due: Sequence[_Watched], asked: float) -> None:
        """Fetch a host's answer, in a thread of the pool."""
        targets = {watched.id: watched.target.endpoint for watched in due}
        try:
            request = agent.request(self._health, targets)
            answer = self._transport.ask("probe", {host: request}, self._health.timeout + REACH)[
                host
            ]
            if answer.value is None:
                outcomes = dict.fromkeys(targets, Probe(False, answer.error))
            else:
                outcomes = agent.probes(self._health.check, answer.value)
        except Exception as exc:  # whatever it was: an outcome to show, and the questions go on
            why = f"cannot ask on {host}: {type(exc).__name__}: {exc}"
            outcomes = dict.fromkeys(targets, Probe(False, why))
        self._call(lambda: self._heard_host(host, due, outcomes, asked))

    def _heard_host(
        self, host: str, due: Sequence[_Watched], outcomes: Mapping[str, Probe], asked: float
    ) -> None:
        self._asking.discard(host)
        for watched in due:
            if watched in self._members.get(host, ()):
                self._heard(watched, outcomes[watched.id], asked)
        if host in self._members:
            self._plan(host)
