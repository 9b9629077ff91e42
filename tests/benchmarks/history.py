# SPDX-License-Identifier: GPL-3.0-or-later
"""Figures of `make bench` in history.csv, a row each: commit those of a quiet machine, and see
what a change did.
"""

from __future__ import annotations

import csv
import os
import platform
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

FILE = Path(__file__).with_name("history.csv")
Row = tuple[str, str, str]  # measurement, figure, goal
HEAD = ("at", "commit", "machine", "part", "measurement", "figure")


def append(part: str, rows: Iterable[Row], file: Path = FILE) -> None:
    """Add the figures of a part of the measurements."""
    commit = _git("describe", "--always") or "unknown"
    # this file changes with each part that is measured
    if _git("status", "--porcelain", "--", ":/", f":!{FILE.name}"):
        commit += "-dirty"
    # of the last five minutes: nearly all of it is the run's own, or the figures are worth little
    load = os.getloadavg()[1]
    machine = (
        f"{os.cpu_count()} CPUs, load {load:.1f}, Python {platform.python_version()}, Linux"
        f" {platform.release().partition('-')[0]}"
    )
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    new = not file.exists()
    with file.open("a", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerows([HEAD] if new else [])
        writer.writerows(
            (at, commit, machine, part, measurement, figure) for measurement, figure, _goal in rows
        )


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=FILE.parent, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()
