# SPDX-License-Identifier: GPL-3.0-or-later
"""The measurements: `make bench`. One table, printed and written to tests/output/benchmarks.md.

What counts are the ratios from one run: the times depend on the machine and on what else it does.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ansible_collections.progressive.rollout.tests.benchmarks import (
    engine,
    history,
    judges,
    large,
    local,
    many_hosts,
    orchestrators,
    over_ssh,
    reports,
    stores,
    swarm,
)
from ansible_collections.progressive.rollout.tests.benchmarks.history import Row

PARTS = {
    part.__name__.rpartition(".")[2]: part.rows
    for part in (
        local,
        large,
        over_ssh,
        many_hosts,
        stores,
        orchestrators,
        swarm,
        engine,
        reports,
        judges,
    )
}
OUTPUT = Path(__file__).resolve().parents[1] / "output/benchmarks.md"


def main() -> None:
    """Measure what ONLY names, by default everything, and print the table."""
    chosen = os.environ.get("ONLY", "").split() or PARTS
    if unknown := set(chosen).difference(PARTS):
        sys.exit(f"ONLY: no measurement {', '.join(unknown)}; there are {', '.join(PARTS)}")
    rows: list[Row] = []
    for name in chosen:
        with tempfile.TemporaryDirectory(prefix="rollout-bench-") as folder:
            measured = PARTS[name](Path(folder))
        history.append(name, measured)
        rows += measured
    text = table([("measurement", "figure", "goal"), *rows])
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(text)
    print(text, end="")


def table(rows: Sequence[Row]) -> str:
    """Return the rows, below their first one, as a table of Markdown."""
    width = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [
        f"| {' | '.join(cell.ljust(size) for cell, size in zip(row, width, strict=True))} |"
        for row in rows
    ]
    lines.insert(1, f"|{'|'.join('-' * (size + 2) for size in width)}|")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
