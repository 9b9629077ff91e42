# SPDX-License-Identifier: GPL-3.0-or-later
"""Every error says what kind of trouble it is, by an id that docs/reference/messages.md explains."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from ansible_collections.progressive.rollout.plugins.plugin_utils.base import errors
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.messages import (
    MESSAGES,
    SECTIONS,
)

ROOT = Path(__file__).resolve().parents[2]
ERRORS = {
    name
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, errors.RolloutError)
}
# A class that is a kind of trouble itself, so that its own id says enough.
OWN = {"LeaseHeld", "AlreadyRunning", "LeaseLost", "Interrupted", "GaveWay", "Aborted", "Parked"}
# What drivers of other collections get that give none: they say next to nothing.
GENERAL = {"PR-100", "PR-201", "PR-600", "PR-900"}
ID = re.compile(r"\bPR-\d{3}\b")


def made(source: str, given: set[str] = ERRORS) -> Iterator[tuple[ast.Call, ast.expr | None]]:
    """Yield each error that a program makes, and what it gives for an id."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            # a class that a caller chooses is self._error
            if name.rpartition(".")[2] in given or name == "self._error":
                named = [word.value for word in node.keywords if word.arg == "id"]
                yield node, [*node.args[1:2], *named, None][0]


def without_id(source: str) -> list[str]:
    """Return the errors of a program that have no id of their own kind."""
    wrong = []
    for node, id in made(source, ERRORS - OWN):
        found = ast.unparse(id) if id else ""
        if not found or (set(ID.findall(found)) & GENERAL):
            wrong.append(f"{node.lineno}: {ast.unparse(node)[:100]}")
    return wrong


def programs() -> Iterator[Path]:
    yield from (ROOT / "plugins").rglob("*.py")


def test_every_error_has_the_id_of_its_kind_of_trouble():
    wrong = [f"{path}:{one}" for path in programs() for one in without_id(path.read_text())]
    assert not wrong, "\n".join(wrong)


def test_an_error_without_an_id_is_found():
    assert without_id('raise InputError("wrong")')
    assert without_id('raise InputError("wrong", "PR-100")')
    assert without_id('raise errors.PlatformError("wrong", id="PR-201")')
    assert without_id('raise self._error(f"{host}: wrong")')
    assert not without_id('raise InputError("wrong", "PR-104")')
    assert not without_id("raise GateError(str(exc), exc.id)")
    assert not without_id('raise LeaseLost("gone")')


def test_every_id_is_explained_and_used():
    used = {
        id
        for folder in ("plugins", "roles", "playbooks")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".yml") and path.parts[-2:] != ("base", "messages.py")
        for id in ID.findall(path.read_text())
    }
    assert used - set(MESSAGES) == set(), "not explained"
    assert set(MESSAGES) - used == set(), "not used"


def test_ids_are_in_order_and_belong_to_a_section():
    assert list(MESSAGES) == sorted(MESSAGES)
    assert {id[3] for id in MESSAGES} == set(SECTIONS)
