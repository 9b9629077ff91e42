# SPDX-License-Identifier: GPL-3.0-or-later
"""Work on many hosts at the same time: each host's part in a thread, bounded in time and in what
the host may send.
"""

from __future__ import annotations

import contextlib
import math
import os
import queue
import signal
import threading
import time
import typing as t
from collections import deque
from collections.abc import Callable, Mapping

from ..base.text import span
from ..base.trace import trace

NAMED_AFTER = 3.0  # seconds after which a host that is waited for is named
AGAIN = 60.0  # seconds between two lines on the same host
LIMIT = 32 << 20  # bytes that a command may print; the timeline of a long rollout is a few MB

_TICK = 0.1  # seconds between two looks at jobs under way


class Outcome(t.Protocol):
    """What a job comes to."""

    @property
    def summary(self) -> str:
        """Return in a few words how it ended."""

    @property
    def unreachable(self) -> object:
        """Return what is true if the host did not answer."""


_Outcome = t.TypeVar("_Outcome", bound=Outcome)


class Job(t.Generic[_Outcome]):
    """One host's part of a call. It has `timeout` seconds; then `lost` makes its outcome."""

    def __init__(
        self,
        what: str,
        work: Callable[[], _Outcome],
        lost: Callable[[str], _Outcome],
        timeout: float,
        grace: float = 0.0,
    ) -> None:
        self._what = what  # for people
        self._work: Callable[[], _Outcome] = work
        self._lost: Callable[[str], _Outcome] = lost
        self._timeout, self._grace = timeout, grace
        self.outcome: _Outcome | None = None
        self.began = self.took = 0.0  # seconds
        # A daemon: an abandoned thread must not keep this process from ending.
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._ended: queue.SimpleQueue[Job[_Outcome]]
        self._then: Callable[[], None] = lambda: None

    def start(self, ended: queue.SimpleQueue[Job[_Outcome]]) -> None:
        """Begin; at its end the job is put into `ended`."""
        self.began, self._ended = time.monotonic(), ended
        self._thread.start()

    def _run(self) -> None:
        with trace(self._what) as call:
            outcome = self._work()
            call.outcome = outcome.summary
        if self.outcome is None:  # it was not given up
            self.took, self.outcome = self.age, outcome
        self._ended.put(self)
        self._then()

    def leave(self, then: Callable[[], None]) -> None:
        """Have `then` called at the job's end, in any thread, since nobody waits for it."""
        self._then = then
        if self.outcome is not None:
            then()

    @property
    def age(self) -> float:
        """Seconds since the job began."""
        return time.monotonic() - self.began

    def over(self) -> bool:
        """Return True once there is an outcome. A job that takes too long, or whose host sends
        without end, is ended here.
        """
        if self.outcome is None and self.age > self._timeout + self._grace:
            self._give_up(f"no answer in {self._timeout:g} s")
        elif self.outcome is None and _received(self._thread) > LIMIT:
            self._give_up(f"the answer is longer than {LIMIT >> 20} MB")
        return self.outcome is not None

    def _give_up(self, why: str) -> None:
        self.outcome, self.took = self._lost(why), self.age
        self.kill()

    def kill(self) -> None:
        """Kill the processes that the job started, where that can be done from here."""
        _kill_children(self._thread)


class SilentHosts:
    """Names the hosts that are waited for: at first, each minute, and when they answer again."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._print = report
        self._since: dict[str, float] = {}  # by host that was named, when the wait for it began
        self._named_at: dict[str, float] = {}  # when each host was last named
        self._lock = threading.Lock()  # gates ask hosts in threads

    def waited(self, ages: Mapping[str, float]) -> None:
        """Take in for how many seconds each host has been waited for, and name those due."""
        now = time.monotonic()
        by_time: dict[str, list[str]] = {}
        with self._lock:
            for host, age in ages.items():
                if age > NAMED_AFTER and now - self._named_at.get(host, -math.inf) >= AGAIN:
                    waited = now - self._since[host] if host in self._since else NAMED_AFTER
                    by_time.setdefault(span(waited), []).append(_name(host))
                    self._since.setdefault(host, now - age)
                    self._named_at[host] = now
        for text, names in by_time.items():
            self._print(f"waiting for {', '.join(names)}: no answer for {text}")

    def answered(self, host: str) -> None:
        """Take in that a host answers, and say so if it was named."""
        with self._lock:
            since = self._since.pop(host, None)
        if since is not None:
            self._print(f"{_name(host)} answers again after {span(time.monotonic() - since)}")


class Pool:
    """The jobs of one transport."""

    def __init__(self, silent: SilentHosts, late: Callable[[], None] = lambda: None) -> None:
        """`late` is called, in any thread, when a job ends that was not waited for to its end."""
        self._silent, self._late = silent, late
        self._at_work: set[Job[t.Any]] = set()

    def run(
        self,
        jobs: Mapping[str, Job[_Outcome]],
        forks: int,
        wait_limits: Mapping[str, float] | None = None,
    ) -> None:
        """Do the jobs, by host, at most `forks` at a time, until each has its outcome or was
        waited for long enough. Those with a limit below 0 are not waited for.
        """
        waiting = deque(jobs.items())
        running: dict[Job[_Outcome], str] = {}
        ended: queue.SimpleQueue[Job[_Outcome]] = queue.SimpleQueue()
        tick = time.monotonic() + _TICK
        while waiting or running:
            while waiting and len(running) < forks:
                host, job = waiting.popleft()
                self._at_work.add(job)
                job.start(ended)
                if (wait_limits or {}).get(host, math.inf) < 0:
                    job.leave(self._late)
                else:
                    running[job] = host
            if not running:
                continue
            with contextlib.suppress(queue.Empty):
                self._take(ended.get(timeout=max(0.0, tick - time.monotonic())), running)
            if time.monotonic() >= tick:
                tick = time.monotonic() + _TICK
                self._silent.waited({host: job.age for job, host in running.items()})
                for job, host in list(running.items()):
                    if job.over():
                        self._take(job, running)
                    elif job.age >= (wait_limits or {}).get(host, math.inf):
                        del running[job]
                        job.leave(self._late)
        self._at_work.difference_update([job for job in list(self._at_work) if job.outcome])

    def _take(self, job: Job[_Outcome], running: dict[Job[_Outcome], str]) -> None:
        """Take a job that is over out of those that run, and note if its host has answered."""
        host = running.pop(job, None)
        if host is not None and job.outcome and not job.outcome.unreachable:
            self._silent.answered(host)

    def abandon(self) -> None:
        """Kill the commands under way, where that can be done from here. Any thread may call
        this.
        """
        for job in list(self._at_work):
            job.kill()


def _name(host: str) -> str:
    return host or "the controller"


def _received(thread: threading.Thread) -> int:
    """Return how many bytes a thread has read so far. Linux; elsewhere 0."""
    try:
        with open(f"/proc/self/task/{thread.native_id}/io", "rb") as stream:
            return int(stream.readline().split()[1])
    except (OSError, IndexError, ValueError):
        return 0


def _kill_children(thread: threading.Thread) -> None:
    """Kill the processes that a thread started, and those they started. Linux; elsewhere they
    are left to themselves.
    """
    children = [f"/proc/self/task/{thread.native_id}/children"]
    pids: list[int] = []
    for path in children:  # the list grows meanwhile: all are found before the first is killed
        with contextlib.suppress(OSError), open(path, encoding="ascii") as stream:
            listed = [int(pid) for pid in stream.read().split()]
            pids += listed
            children += [f"/proc/{pid}/task/{pid}/children" for pid in listed]
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
