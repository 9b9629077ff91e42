# SPDX-License-Identifier: GPL-3.0-or-later
"""Clean texts from outside for terminals, logs and the journal; write numbers and times. Pure."""

from __future__ import annotations

import time
import typing as t
from collections.abc import Sequence

SHOWN = 500  # characters of a text from outside, at most


def clean(text: t.Any, limit: int = SHOWN) -> str:
    """Return one line of at most `limit` characters.

    What could move a terminal's cursor, or write into its title, becomes `?`.
    """
    words = " ".join(str(text)[: 4 * limit].split())
    line = "".join(char if char.isprintable() else "?" for char in words)
    return line if len(line) <= limit else f"{line[: limit - 3]}..."


def printable(text: str) -> str:
    """Return a text of any length and several lines without what could move a terminal's cursor."""
    return "".join(char if char.isprintable() or char in "\n\t" else "?" for char in text)


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table whose columns are aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def size(memory: float) -> str:
    """Return a number of bytes for people: 512 MiB, 3.8 GiB."""
    return f"{memory / 2**30:.1f} GiB" if memory >= 2**30 else f"{memory / 2**20:.0f} MiB"


def count(number: int, noun: str) -> str:
    """Return a number of things: `1 instance`, `2 instances`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def span(seconds: float) -> str:
    """Return a span of time as people read it, in two units at most."""
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    if whole < 7200:
        return f"{whole // 60} min {whole % 60:02d} s"
    return (
        f"{whole // 3600} h {whole % 3600 // 60:02d} min"
        if whole < 172800
        else f"{whole // 86400} d {whole % 86400 // 3600} h"
    )


def moment(seconds: float) -> str:
    """Return a moment as people and logs write it, in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
