# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A bound on the time that work takes whose own timeouts do not cover all of it."""

from __future__ import annotations

import queue
import threading
import typing as t
from collections.abc import Callable

Result = t.TypeVar("Result")


def within(seconds: float, work: Callable[[], Result]) -> Result:
    """Return what `work` returns; raises TimeoutError if it takes longer, and leaves it alone."""
    outcomes: queue.SimpleQueue[tuple[Result | None, Exception | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            outcomes.put((work(), None))
        except Exception as exc:
            outcomes.put((None, exc))

    threading.Thread(target=run, daemon=True).start()
    try:
        result, failure = outcomes.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError from None
    if failure is not None:
        raise failure
    return t.cast(Result, result)
