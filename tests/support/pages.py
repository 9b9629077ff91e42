# SPDX-License-Identifier: GPL-3.0-or-later
"""The pages of the documentation and their snippets, by the marker `<!-- test: name -->`."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    "README.md",
    *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")),
]
EXAMPLES = [page for page in PAGES if page.startswith("docs/examples/")]
EXAMPLE = ROOT / "docs/examples/systemd-haproxy"  # which README.md shows
FENCE = re.compile(
    r"(?:<!-- test: (?P<name>\S+) -->\n)?^(?P<indent>"
    r" *)```(?P<language>\S*)\n(?P<text>.*?)^(?P=indent)```$",
    re.M | re.S,
)


def read(page: str) -> str:
    return (ROOT / page).read_text()


def snippets(page: str) -> list[tuple[str, str]]:
    """Name and text of each snippet of a page."""
    return [(found["name"] or "", found["text"]) for found in FENCE.finditer(read(page))]


def table(page: str, marker: str) -> list[list[str]]:
    """The rows of the table after this marker, the head included."""
    lines = read(page).partition(f"<!-- test: {marker} -->\n")[2].partition("\n\n")[0].splitlines()
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in lines
        if not line.startswith("|---")
    ]


SNIPPETS = {page: dict(snippets(page)) for page in PAGES}
