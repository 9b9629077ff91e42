# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a process is there."""

from __future__ import annotations

import contextlib
from pathlib import Path


def running(word: str) -> bool:
    """Return whether there is a process with this word in its command."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has just ended
            if word.encode() in path.read_bytes():
                return True
    return False
