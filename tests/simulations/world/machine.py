# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine with a virtual clock: processes and their threads run one at a time, in an order drawn
from a seed, and time passes only while all of them wait.

A job is a thread that runs only while it has the turn. Whoever waits passes the turn to the job
whose time comes next; where that is the one that waits, the clock goes on and nothing is switched.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import typing as t
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty
from random import Random

from ansible_collections.progressive.rollout.plugins.plugin_utils.base import clock

START = 1_700_000_000.0  # the time at which every world begins


class Dead(BaseException):
    """Raised in the jobs of a process that was killed, wherever they wait or act."""


class Process:
    """A process of this machine."""

    def __init__(self, machine: Machine, name: str, pid: int, parent: Process | None) -> None:
        self.machine, self.name, self.pid = machine, name, pid
        self.run: int = parent.run if parent else pid  # the pid of the playbook that it is of
        self.alive = True
        self.until = 0.0  # to when it is frozen
        self.interrupted = ""  # the signal that it was sent
        self.on_signal: Callable[[], None] = lambda: None
        self.jobs: list[Job] = []

    def kill(self) -> None:
        """End it at once, wherever it is."""
        self.alive = False
        for job in self.jobs:
            self.machine.wake(job)

    def check(self) -> None:
        """Raise Dead if it was killed."""
        if not self.alive:
            raise Dead


class Job:
    """A thread of a process, as `threading.Thread` for those who wait for it."""

    def __init__(self, process: Process, name: str, turn: threading.Lock) -> None:
        """`turn`: what its thread waits for, held."""
        self.process, self.name, self.turn = process, name, turn
        self.ticket = 0  # of the present wait: an entry of an earlier one is void
        self.done = False
        self.result: t.Any = None
        self.waiters: deque[Job] = deque()

    def is_alive(self) -> bool:
        return not self.done

    def join(self, timeout: float | None = None) -> None:
        self.process.machine.wait_for(lambda: self.done, self.waiters, timeout)


class Thread:
    """A thread that does one job after the other: beginning a thread takes as long as many turns."""

    _idle: t.ClassVar[list[Thread]] = []

    def __init__(self) -> None:
        self.turn = _held()
        self.work: Callable[[], None] = _nothing
        threading.Thread(target=self._run, daemon=True).start()

    @classmethod
    def take(cls) -> Thread:
        """Return a thread without a job."""
        return cls._idle.pop() if cls._idle else cls()

    def leave(self) -> None:
        """Let others have it once its job is over."""
        self._idle.append(self)

    def _run(self) -> None:
        while True:
            self.turn.acquire()
            self.work()


class Event:
    """As `threading.Event`."""

    def __init__(self, machine: Machine) -> None:
        self._machine, self._set = machine, False
        self._waiters: deque[Job] = deque()

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        self._machine.wake_all(self._waiters)

    def wait(self, timeout: float | None = None) -> bool:
        return self._machine.wait_for(lambda: self._set, self._waiters, timeout)


class Lock:
    """As `threading.Lock`, in a with statement."""

    def __init__(self, machine: Machine) -> None:
        self._machine, self._held = machine, False
        self._waiters: deque[Job] = deque()

    def __enter__(self) -> None:
        if self._held:
            self._machine.wait_for(lambda: not self._held, self._waiters, None)
        self._held = True

    def __exit__(self, *_exc: object) -> None:
        self._held = False
        self._machine.wake_all(self._waiters)


class Queue:
    """As `queue.SimpleQueue`."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._items: deque[t.Any] = deque()
        self._waiters: deque[Job] = deque()

    def put(self, item: t.Any) -> None:
        self._items.append(item)
        self._machine.wake_all(self._waiters)

    def empty(self) -> bool:
        return not self._items

    def get(self, timeout: float | None = None) -> t.Any:
        if not self._items:
            self._machine.wait_for(lambda: bool(self._items), self._waiters, timeout)
        return self.get_nowait()

    def get_nowait(self) -> t.Any:
        if not self._items:
            raise Empty
        return self._items.popleft()


class Machine(clock.Machine):
    """The virtual clock, and the processes."""

    def __init__(self, dice: Random) -> None:
        self.offset = 0.0
        self.time = START
        self.jump = 0.0  # by which the wall clock was set
        self._dice = dice
        self._due: list[tuple[float, float, int, Job | None, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._pids = itertools.count(10_000_000)
        self._ending = False
        self.processes: list[Process] = []
        self.main = Job(self.process("world"), "main", _held())
        self.current = self.main

    # -- what the product uses ---------------------------------------------------------------------

    def wall(self) -> float:
        return self.time + self.jump

    def monotonic(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self._wait(self.time + max(0.0, seconds))

    def event(self) -> t.Any:
        return Event(self)

    def lock(self) -> t.Any:
        return Lock(self)

    def queue(self) -> t.Any:
        return Queue(self)

    def alongside(self, work: Callable[[], object], name: str) -> t.Any:
        return self.start(self.current.process, work, name)

    # -- processes ---------------------------------------------------------------------------------

    def process(self, name: str, parent: Process | None = None) -> Process:
        """Return a new process, without a job yet."""
        self.processes.append(Process(self, name, next(self._pids), parent))
        return self.processes[-1]

    def lives(self, pid: int) -> bool:
        """Return whether a process lives."""
        return any(one.alive for one in self.processes if one.pid == pid)

    def signal(self, pid: int) -> None:
        """Have a process end."""
        for process in self.processes:
            if process.pid == pid:
                process.interrupted = "SIGTERM"
                process.on_signal()

    def start(self, process: Process, work: Callable[[], object], name: str) -> Job:
        """Begin a job of a process."""
        thread = Thread.take()
        job = Job(process, name, thread.turn)
        process.jobs.append(job)

        def run() -> None:
            try:
                process.check()
                job.result = work()
            except Dead:
                pass
            except BaseException as exc:  # whoever waits for the job sees it
                job.result = exc
            job.done = True
            process.jobs.remove(job)
            self.wake_all(job.waiters)
            thread.leave()
            self._pass_on()

        thread.work = run
        self.wake(job)
        return job

    def at(self, time: float, work: Callable[[], None]) -> None:
        """Have something done at a time; it must not wait."""
        heapq.heappush(self._due, (time, self._dice.random(), next(self._numbers), None, 0, work))

    def end(self) -> None:
        """Kill every process, and let their jobs end."""
        for process in self.processes:
            if process is not self.main.process:
                process.kill()
        for _turn in range(1000):
            if not any(process.jobs for process in self.processes):
                return
            self.sleep(1.0)
            for process in self.processes:
                for job in process.jobs:
                    self.wake(job)
        raise AssertionError("a job does not end")

    # -- waiting -----------------------------------------------------------------------------------

    def wait_for(
        self, there: Callable[[], bool], waiters: deque[Job], timeout: float | None
    ) -> bool:
        """Wait until something is there; return False after the timeout."""
        job, deadline = self.current, None if timeout is None else self.time + max(0.0, timeout)
        job.process.check()
        while not there():
            if deadline is not None and self.time >= deadline:
                return False
            waiters.append(job)
            try:
                self._wait(deadline)
            finally:
                if job in waiters:
                    waiters.remove(job)
        return True

    def wake_all(self, waiters: deque[Job]) -> None:
        """Let these jobs look again."""
        for job in waiters:
            self.wake(job)

    def wake(self, job: Job) -> None:
        """Let a job look again, now."""
        self._push(self.time, job)

    def _push(self, time: float, job: Job) -> None:
        heapq.heappush(
            self._due,
            (time, self._dice.random(), next(self._numbers), job, job.ticket, _nothing),
        )

    def _wait(self, until: float | None) -> None:
        """Let others run until this job is woken, or until a time."""
        job = self.current
        job.process.check()
        job.ticket += 1
        if until is not None:
            self._push(until, job)
        following = self._next()
        if following is not job:
            self.current = following
            following.turn.release()
            job.turn.acquire()
        job.ticket += 1
        job.process.check()

    def _pass_on(self) -> None:
        """Let another job run, since this one is over."""
        following = self._next()
        self.current = following
        following.turn.release()

    def _next(self) -> Job:
        """Go on to when a job is due, and do what is to be done until then."""
        while True:
            time, _rank, _number, job, ticket, work = heapq.heappop(self._due)
            self.time = max(self.time, time)
            if job is None:
                work()
            elif job.done or ticket != job.ticket:
                continue
            elif job.process.until > self.time and job.process.alive:
                self._push(job.process.until, job)
            else:
                return job


@contextmanager
def virtual_clock() -> Iterator[Machine]:
    """Use a virtual clock, which goes on while all wait: waiting takes no time, and what is done
    alongside takes none either, however busy the machine is.
    """
    machine = Machine(Random(0))
    before = clock.install(machine)
    try:
        yield machine
    finally:
        clock.install(before)


def _held() -> threading.Lock:
    """Return a lock that is held."""
    lock = threading.Lock()
    lock.acquire()
    return lock


def _nothing() -> None:
    """Do nothing: a job is due."""
