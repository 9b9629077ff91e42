# SPDX-License-Identifier: GPL-3.0-or-later
"""The report of a rollout, as HTML, at two sizes."""

from __future__ import annotations

import time
from pathlib import Path

from ansible_collections.progressive.rollout.plugins.plugin_utils.pages import render, report_model
from ansible_collections.progressive.rollout.tests.support.timelines import (
    START,
    rollout,
    timeline,
)

FEW, MANY, TURNS = 100, 1000, 5


def rows(_folder: Path) -> list[tuple[str, str, str]]:
    """How long a report takes, its size, and how both grow."""
    (few, _small), (many, size) = _made(FEW), _made(MANY)
    return [
        (
            f"a report of {MANY:,} instances",
            f"{many:.2f} s of a core, {size:,} bytes",
            "below 1 s and 1,000,000 bytes",
        ),
        (f"{MANY:,} over {FEW} (linear is {MANY // FEW})", f"{many / few:.1f}", "about 10"),
    ]


def _made(count: int) -> tuple[float, int]:
    """Return the seconds of a core that the report takes at best, and its bytes."""
    events, size, best = timeline(count), 0, float("inf")
    for _turn in range(TURNS):
        began = time.process_time()
        text = render.html(
            report_model.from_timeline("shop", rollout(count), events), events, START
        )
        best, size = min(best, time.process_time() - began), len(text.encode())
    return best, size
