# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run does not use is not imported: Ansible compiles a collection's code at each start."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.step import action

ROOT = Path(__file__).resolve().parents[2]
# What `begin` and `info` import for the service of README.md, with its drivers.
KNOWN = Path(__file__).with_name("startup_modules.yml")
# In an interpreter of its own, by Ansible's loader, as the process of a task does.
PROGRAM = """
import json, sys
from ansible.plugins.loader import action_loader, init_plugin_loader

given = json.load(sys.stdin)
init_plugin_loader()
imported = {}
for step in given["steps"]:
    action_loader.get(f"progressive.rollout.{step}", class_only=True)
    from ansible_collections.progressive.rollout.plugins.plugin_utils.config import settings

    settings.parse(given["settings"])
    start = "ansible_collections.progressive.rollout.plugins.plugin_utils."
    imported[step] = [
        name.removeprefix(start)
        for name, module in sys.modules.items()
        if name.startswith(start) and not hasattr(module, "__path__")
    ]
print(json.dumps(imported))
"""


def _of_readme() -> dict[str, object]:
    """The variables of the service in README.md, without their prefix."""
    text = (ROOT / "README.md").read_text()
    block = text.split("<!-- test: group_vars/all.yml -->\n```yaml\n")[1].split("```")[0]
    return {name.removeprefix("rollout_"): value for name, value in yaml.safe_load(block).items()}


@pytest.fixture(scope="module")
def imported() -> dict[str, list[str]]:
    """The modules that have been imported after each step, the first one with nothing before."""
    given = {"steps": ["info", "begin", "replace"], "settings": _of_readme()}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("step", ["info", "begin"])
def test_a_step_imports_what_it_uses(imported: dict[str, list[str]], step: str) -> None:
    listed = yaml.safe_load(KNOWN.read_text())
    known = {*listed["info"], *(listed["begin"] if step == "begin" else ())}
    more, fewer = sorted({*imported[step]} - known), sorted(known - {*imported[step]})
    assert not more, (
        f"{step} imports {', '.join(more)} as well, which each start compiles; import it in the"
        f" function that uses it or for types alone, or, if a run with nothing to do uses it, add it"
        f" to {KNOWN.name}"
    )
    assert not fewer, (
        f"{step} does not import {', '.join(fewer)} any more; remove from {KNOWN.name}"
    )


def test_the_step_that_may_follow_a_long_one_is_loaded_before_it(
    imported: dict[str, list[str]],
) -> None:
    """Ansible's main process loads it even where it is skipped; by then, another version may be
    installed, and a part of each is no version.
    """
    assert "controller.rollout.rollback_request" not in imported["begin"]
    assert "controller.rollout.rollback_request" in imported["replace"]


@pytest.mark.parametrize(("loaded", "id"), [(math.inf, "PR-900"), (0.0, "PR-901")])
def test_an_error_after_another_version_was_installed_says_so(
    monkeypatch: pytest.MonkeyPatch, loaded: float, id: str
) -> None:
    """No operator can report a defect of a mixture."""
    monkeypatch.setattr(action, "LOADED", loaded)
    failed, message = action._unexpected(AttributeError("no attribute 'excluded'"))
    assert failed == id
    assert ("please report" in message) is (id == "PR-900")
    assert ("run again" in message) is (id == "PR-901")
