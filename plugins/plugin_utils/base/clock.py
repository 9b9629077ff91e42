# SPDX-License-Identifier: GPL-3.0-or-later
"""Time, waiting and background work of the controller, all through one machine.

It is this computer, unless a simulation has installed another.
"""

from __future__ import annotations

import threading
import time
import typing as t
from collections.abc import Callable
from queue import SimpleQueue


class Machine:
    """This computer: its clocks and its threads."""

    def __init__(self) -> None:
        self.offset = time.time() - time.monotonic()

    def wall(self) -> float:
        """Return the seconds since the epoch, by the clock that people set."""
        return time.time()

    def monotonic(self) -> float:
        """Return seconds since an arbitrary moment."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)

    def event(self) -> threading.Event:
        """Return an event to wait for."""
        return threading.Event()

    def lock(self) -> threading.Lock:
        """Return a lock."""
        return threading.Lock()

    def queue(self) -> SimpleQueue[t.Any]:
        """Return a queue to wait at."""
        return SimpleQueue()

    def alongside(self, work: Callable[[], object], name: str) -> threading.Thread:
        """Begin work that ends with the process at the latest."""
        thread = threading.Thread(target=work, name=name, daemon=True)
        thread.start()
        return thread


_machine = Machine()


def install(machine: Machine) -> Machine:
    """Use another machine from now on; return the one used so far."""
    global _machine
    _machine, before = machine, _machine
    return before


def now() -> float:
    """Return the seconds since the epoch, by the machine's clock when this process began: the
    clock for decisions, which setting the machine's clock does not move.
    """
    return _machine.offset + _machine.monotonic()


def wall() -> float:
    """Return the seconds since the epoch by the machine's clock, for people and calendars."""
    return _machine.wall()


def monotonic() -> float:
    """Return seconds since an arbitrary moment, for durations."""
    return _machine.monotonic()


def sleep(seconds: float) -> None:
    """Wait."""
    _machine.sleep(seconds)


def event() -> threading.Event:
    """Return an event to wait for."""
    return _machine.event()


def lock() -> threading.Lock:
    """Return a lock."""
    return _machine.lock()


def queue() -> SimpleQueue[t.Any]:
    """Return a queue to wait at; a signal handler may put something into it."""
    return _machine.queue()


def alongside(work: Callable[[], object], name: str) -> threading.Thread:
    """Begin work alongside the caller, in a thread that does not keep the process alive."""
    return _machine.alongside(work, name)
