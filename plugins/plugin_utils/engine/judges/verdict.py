# SPDX-License-Identifier: GPL-3.0-or-later
"""The verdict of a sequential test. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Data(str, Enum):
    """Whether what was measured so far is enough to rely on a verdict that finds nothing."""

    ENOUGH = "enough"
    LACKING = "lacking"  # more is needed
    WAITING = "waiting"  # a few more looks tell
    HOPELESS = "hopeless"  # no amount of it would do


@dataclass(frozen=True)
class Verdict:
    """What a sequential test finds."""

    worse: bool  # whether the new side is worse than stable
    sentence: str
    e_value: float | None = None  # of errors
    threshold: float | None = None  # 1/alpha: the e-value that is evidence enough
    data: Data = Data.ENOUGH
    missing: int = 0  # requests or samples, where the data is lacking
