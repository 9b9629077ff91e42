# SPDX-License-Identifier: GPL-3.0-or-later
"""One meaning a name: a class is called as no other one is, and a local name says what it is."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

UTILS = Path(__file__).parents[2] / "plugins" / "plugin_utils"

# every driver has the same name in its file, as every action of Ansible has
ALIKE = {"Driver"}
# names that more than one class still has: to become fewer
REPEATED = {
    "Answer",
    "Away",
    "ClustersDriver",
    "Failed",
    "InClusters",
    "Instance",
    "Journal",
    "Limits",
    "Machine",
    "Message",
    "Metric",
    "Outcome",
    "Reading",
    "Refused",
    "Result",
    "Row",
    "Seen",
    "Service",
    "Stale",
    "Target",
    "Verdict",
}

# names that say nothing of what they stand for
EMPTY = {
    *("alike", "both", "found", "its", "kin", "one", "rival", "rivals", "said", "say", "stories"),
    *("story", "tell", "there", "told", "trouble", "troubles", "walker", "wise"),
}
# and functions that talk
TALKING = {"said", "say", "story", "tell", "told", "trouble"}


def test_no_two_classes_have_one_name() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in UTILS.rglob("*.py"):
        for name in re.findall(r"^class ([A-Za-z]\w*)", path.read_text(), re.MULTILINE):
            places[name].append(path.relative_to(UTILS).as_posix())
    repeated = {name: at for name, at in places.items() if len(at) > 1 and name not in ALIKE}
    assert {name: at for name, at in repeated.items() if name not in REPEATED} == {}
    assert set(repeated) == REPEATED, "a name that only one class has leaves the list"


def test_local_names_say_what_they_are() -> None:
    root = UTILS.parents[1]
    empty = [
        f"{path.relative_to(root)}:{line}: {name}"
        for folder in ("plugins", "scripts")
        for path in sorted((root / folder).rglob("*.py"))
        for name, line in local_names(ast.parse(path.read_text()))
        if name in EMPTY
    ]
    assert not empty


def test_functions_do_not_talk() -> None:
    """A function returns, reports, notes or shows something; nobody is `told`."""
    plugins = UTILS.parent
    talking = [
        f"{path.relative_to(plugins)}:{node.lineno}: {node.name}"
        for path in sorted(plugins.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name.strip("_") in TALKING
    ]
    assert not talking


def local_names(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """The names that are given to values, each with its line; not the fields of a class."""
    fields = {
        statement.target
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for statement in node.body
        if isinstance(statement, ast.AnnAssign)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node not in fields:
            yield node.id, node.lineno
