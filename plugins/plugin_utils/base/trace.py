# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run does, shown with -vvv: each decision, and each call outside with the time it takes.

A call that takes long is shown before it ends, too: the last lines of a run that hangs name what it
waits for.
"""

from __future__ import annotations

import threading
import time
import typing as t
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

LONG = (1.0, 10.0, 60.0, 600.0)  # seconds after which a call in progress is shown


@dataclass(eq=False)
class Call:
    """A call in progress. Its caller may set `outcome`, in a few words."""

    what: str
    outcome: str = ""
    began: float = field(default_factory=time.monotonic)
    shown: int = 0  # how many times of LONG it was shown

    @property
    def took(self) -> str:
        """The time since it began."""
        seconds = time.monotonic() - self.began
        return f"{seconds:.1f} s" if seconds >= 1 else f"{1000 * seconds:.0f} ms"


class _Trace:
    """Calls in progress, and where lines go."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self.show = show
        self.calls: set[Call] = set()
        self.ended = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while not self.ended.wait(LONG[0] / 4):
            for call in list(self.calls):
                if call.shown < len(LONG) and time.monotonic() - call.began > LONG[call.shown]:
                    call.shown += 1
                    self.show(f"{call.what}: no answer after {call.took}")


_trace: _Trace | None = None


@contextmanager
def shown(show: Callable[[str], None] | None) -> Iterator[None]:
    """Show what is done in this context, a line at a time; None shows nothing."""
    global _trace
    before, _trace = _trace, _Trace(show) if show else None
    try:
        yield
    finally:
        if _trace:
            _trace.ended.set()
        _trace = before


def note(what: str, facts: t.Mapping[str, t.Any]) -> None:
    """Show what happened, with its facts."""
    if _trace:
        _trace.show(f"{what}: {words(facts)}")


@contextmanager
def trace(what: str) -> Iterator[Call]:
    """Show a call outside with its outcome, and how long it took."""
    call, trace = Call(what), _trace
    if trace is None:
        yield call
        return
    trace.calls.add(call)
    try:
        yield call
    except BaseException as exc:
        call.outcome = f"{type(exc).__name__}: {exc}"
        raise
    finally:
        trace.calls.discard(call)
        trace.show(f"{what}{call.outcome and ': '}{call.outcome} ({call.took})")


def words(facts: t.Mapping[str, t.Any]) -> str:
    """Return facts as `name=value`, without those that say nothing."""
    return ", ".join(
        f"{name}={value}" for name, value in facts.items() if value not in (None, "", (), [], {})
    )
