# SPDX-License-Identifier: GPL-3.0-or-later
"""Work beside a rollout that is done again and again, and never in its way."""

from __future__ import annotations

import abc
from collections.abc import Callable

from ...base import clock
from ...base.errors import RolloutError
from ...interfaces.store import StoreDriver
from ...state.record import Record

FIRST = 1.0  # seconds until the first time
EVERY = 5.0  # seconds between two, at least
PART = 20  # the work takes at most one part in so many of the time
JOIN_TIMEOUT = 10.0  # seconds for which the end of a step waits for the last time


class Beside(abc.ABC):
    """Works on the journal in a thread of its own until it is closed, and once more then.

    It reads the journal as anybody else does. Whatever goes wrong holds nothing up. It is told
    once, until the work succeeds again: what a system says of it may differ each time.
    """

    what: str  # the thread's name
    failure: str  # the message, with the reason: `failure.format(why)`

    def __init__(self, service: str, store: StoreDriver, report: Callable[[str], None]) -> None:
        self.service, self.store, self._print = service, store, report
        self._closed = clock.event()
        self._failing = False  # whether the work failed the last time
        self._thread = clock.alongside(self._run, self.what)

    @abc.abstractmethod
    def work(self, record: Record) -> None:
        """Do the work, with the record as it is now."""

    def close(self) -> None:
        """Do the work a last time, and end."""
        self._closed.set()
        self._thread.join(JOIN_TIMEOUT)
        if self._thread.is_alive():
            self._print(self._line(f"not done within {JOIN_TIMEOUT:g} s"))

    def _run(self) -> None:
        pause = FIRST
        while not self._closed.wait(pause):
            began = clock.monotonic()
            self._try()
            pause = max(EVERY, PART * (clock.monotonic() - began))
        self._try()

    def _try(self) -> None:
        try:
            self.work(Record.load(self.service, self.store.load(), self.store.place))
            self._failing = False
        except OSError as exc:
            self._report(f"{exc.filename or 'a file'}: {exc.strerror or exc}")
        except RolloutError as exc:
            self._report(str(exc))
        except Exception as exc:  # a defect here must not end the rollout
            self._report(f"internal error: {type(exc).__name__}: {exc}")

    def _report(self, why: str) -> None:
        new, self._failing = not self._failing, True
        if new:
            self._print(self._line(why))

    def _line(self, why: str) -> str:
        return f"{self.service}: {self.failure.format(why)}"
