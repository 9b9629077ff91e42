# SPDX-License-Identifier: GPL-3.0-or-later
"""The history of benchmarks grows by a row for each figure, below one head."""

from __future__ import annotations

import csv
from pathlib import Path

from ansible_collections.progressive.rollout.tests.benchmarks import history


def test_figures_are_added_below_those_of_before(tmp_path: Path) -> None:
    file = tmp_path / "history.csv"
    history.append("local", [("100 instances, surge 10: wall time", "23.1 s", "")], file)
    history.append(
        "large", [("wall time", "22.0 s", ""), ("memory", "90 MB", "under 250 MB")], file
    )
    rows = list(csv.DictReader(file.open()))
    assert list(rows[0]) == list(history.HEAD)
    assert [(row["part"], row["measurement"], row["figure"]) for row in rows] == [
        ("local", "100 instances, surge 10: wall time", "23.1 s"),
        ("large", "wall time", "22.0 s"),
        ("large", "memory", "90 MB"),
    ]
    assert all(
        row["at"].endswith("Z") and row["commit"] and "CPUs" in row["machine"] for row in rows
    )


def test_the_history_has_every_figure_under_the_head() -> None:
    head, *rows = csv.reader(history.FILE.open())
    assert tuple(head) == history.HEAD
    assert rows and {len(row) for row in rows} == {len(head)}
