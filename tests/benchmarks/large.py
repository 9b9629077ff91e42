# SPDX-License-Identifier: GPL-3.0-or-later
"""Many instances on many hosts, all on this machine."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.progressive.rollout.tests.benchmarks.history import Row
from ansible_collections.progressive.rollout.tests.benchmarks.rollouts import (
    APART,
    STOP,
    Fleet,
    apart,
    both,
    here,
    inventory,
)

# below the ports of outgoing connections
LARGE = Fleet(1000, 200, 100, {"START_DELAY": "2", "STOP_DELAY": str(STOP)}, 11000)


def rows(folder: Path) -> list[Row]:
    """Measure a replacement."""
    figures = here(folder / "large", inventory(folder, LARGE), LARGE)
    what = f"{LARGE.instances:,} instances on {LARGE.hosts} local hosts, surge {LARGE.surge}"
    return [
        (f"{what}: wall time", f"{figures['wall']:.1f} s", "under 30 s"),
        (
            "the ideal sliding window of the same start-up and stop times",
            f"{figures['ideal']:.1f} s",
            "",
        ),
        ("wall time over the ideal", f"{figures['wall'] / figures['ideal']:.2f}", "at most 1.30"),
        (APART, apart(figures, figures["instances"]), "at most 1.10"),
        ("controller CPU", f"{figures['cpu']:.1f} s", ""),
        ("controller memory, the largest process", f"{figures['memory']:.0f} MB", "under 250 MB"),
        ("lines and events printed", f"{figures['lines']}", "at most 300"),
        ("a run that finds nothing to do: wall time / CPU", both(figures["again"]), ""),
    ]
