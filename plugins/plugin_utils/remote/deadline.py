# SPDX-License-Identifier: GPL-3.0-or-later
"""A bound on the time that work takes whose own timeouts do not cover all of it."""

from __future__ import annotations

import typing as t
from collections.abc import Callable
from concurrent.futures import Future

from ..base import clock

Result = t.TypeVar("Result")


def within(seconds: float, work: Callable[[], Result]) -> Result:
    """Return what `work` returns; raises TimeoutError if it takes longer, and leaves it alone."""
    call, answered = begin(work), clock.event()
    call.add_done_callback(lambda _call: answered.set())
    if not answered.wait(seconds):
        raise TimeoutError
    return call.result()


def begin(work: Callable[[], Result]) -> Future[Result]:
    """Begin work that nobody has to wait for: not even the end of this process does."""
    future: Future[Result] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as exc:
            future.set_exception(exc)

    clock.alongside(run, "rollout-call")
    return future
