# SPDX-License-Identifier: GPL-3.0-or-later
"""Wait for what is to happen, as long as it takes on a busy machine."""

from __future__ import annotations

import typing as t
from collections.abc import Callable

from ansible_collections.progressive.rollout.plugins.plugin_utils.base import clock

PATIENCE = 90.0  # s
LONG = 600.0  # s, for a whole rollout or demo

Value = t.TypeVar("Value")


def until(condition: Callable[[], Value], what: str = "", seconds: float = PATIENCE) -> Value:
    """Return the first true value of a condition, asked over and over; fail when it never comes."""
    end = clock.monotonic() + seconds
    while not (value := condition()):
        assert clock.monotonic() < end, f"not within {seconds:g} s: {what or condition}"
        clock.sleep(0.01)
    return value
