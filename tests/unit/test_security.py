# SPDX-License-Identifier: GPL-3.0-or-later
"""The trust boundaries of SECURITY.md: each row names a test, and the test exists."""

from __future__ import annotations

import ast
import re

import pytest
from ansible_collections.progressive.rollout.tests.support.pages import ROOT, read

TABLE = read("SECURITY.md").partition("## Who may do what\n")[2]
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in TABLE.splitlines()
    if line.startswith("| ") and not line.startswith("| What |")
]


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_a_trust_boundary_names_a_test_that_exists(row: list[str]) -> None:
    _what, who, holds, test = row
    assert who and holds
    file, name = re.fullmatch(r"`(tests/\S+\.py)::(test_\w+)`", test).groups()  # type: ignore[union-attr]
    tree = ast.parse((ROOT / file).read_text())
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_boundary_has_a_row() -> None:
    kinds = "journal lease agents sockets kubeconfig secrets reports notifications AWX CI".split()
    named = " ".join(row[0] for row in ROWS)
    assert [kind for kind in kinds if kind not in named] == []


def test_links_of_the_page_lead_somewhere() -> None:
    targets = re.findall(r"\]\((?!https?://)([^)#]+)", read("SECURITY.md"))
    assert targets and [name for name in targets if not (ROOT / name).exists()] == []
