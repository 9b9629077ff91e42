# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
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

    wall = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)
    event = staticmethod(threading.Event)
    lock = staticmethod(threading.Lock)
    queue = staticmethod(SimpleQueue)

    def __init__(self) -> None:
        self._began = time.time() - time.monotonic()

    def now(self) -> float:
        """Return the seconds since the epoch; setting the clock does not move it."""
        return self._began + time.monotonic()

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
    return _machine.now()


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
