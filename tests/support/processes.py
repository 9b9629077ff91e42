# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a process is there, and one that hangs."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from ansible_collections.progressive.rollout.tests.support.waiting import until


def running(word: str) -> bool:
    """Return whether there is a process with this word in its command."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has just ended
            if word.encode() in path.read_bytes():
                return True
    return False


def stop(pid: int) -> None:
    """Stop a process as SIGSTOP does, and wait until none of its threads runs any more: on a busy
    machine, others answer for a while after the signal was sent.
    """
    os.kill(pid, signal.SIGSTOP)
    until(lambda: all(state == "T" for state in _states(pid)), f"process {pid} is stopped")


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    """A process hangs meanwhile."""
    stop(pid)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _states(pid: int) -> Iterator[str]:
    """The states of the threads of a process (man 5 proc_pid_stat)."""
    for path in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(OSError):  # the thread has just ended
            yield path.read_text(errors="replace").rpartition(")")[2].split()[0]
