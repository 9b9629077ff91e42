# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What others wrote, made fit for a terminal, a log and the journal. Pure."""

from __future__ import annotations

import typing as t

SHOWN = 500  # characters of what a stranger said, at most


def clean(text: t.Any, limit: int = SHOWN) -> str:
    """One line of at most `limit` characters. What could move a terminal's cursor, or write into its title, becomes `?`."""
    words = " ".join(str(text)[: 4 * limit].split())
    line = "".join(char if char.isprintable() else "?" for char in words)
    return line if len(line) <= limit else f"{line[: limit - 3]}..."


def printable(text: str) -> str:
    """The same text, of any length and several lines, without what could move a terminal's cursor."""
    return "".join(char if char.isprintable() or char in "\n\t" else "?" for char in text)
