# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The execution environment for AWX: ansible-builder accepts it, and nothing is missing in it."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import yaml
from ansible_collections.progressive.rollout.tests.support.playbook import ROOT

WHERE = ROOT / "execution-environment"
# An import at the beginning of a line or of a function, or one that may be missing.
IMPORT = re.compile(r"^\s*(?:import|from) (\w+)|import_module\(\"(\w+)", re.MULTILINE)
WITH_ANSIBLE = {"ansible", "ansible_collections", "jinja2", "yaml"}
BROUGHT = {"urllib3": "requests"}  # comes with the other one


def builder(*arguments: str) -> str:
    program = str(Path(sys.executable).with_name("ansible-builder"))
    done = subprocess.run(
        [program, *arguments], cwd=WHERE, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_ansible_builder_makes_a_context_of_it(tmp_path: Path) -> None:
    builder("create", "--context", str(tmp_path), "--output-filename", "Containerfile")
    text = (tmp_path / "Containerfile").read_text()
    assert "ansible-galaxy collection install" in text
    listed = text.index("cyclonedx-py environment --output-file /usr/share/sbom.cdx.json $PYCMD")
    assert "\nUSER root" in text[:listed] and "\nUSER" in text[listed:]  # root writes it
    asked = yaml.safe_load((tmp_path / "_build/requirements.yml").read_text())
    assert "progressive.rollout" in asked["collections"][0]["name"]
    pinned = (ROOT / "requirements/run.txt").read_text() + (
        ROOT / "requirements/test.txt"
    ).read_text()
    wanted = yaml.safe_load((WHERE / "execution-environment.yml").read_text())["dependencies"]
    assert wanted["ansible_core"]["package_pip"] in pinned
    assert wanted["ansible_runner"]["package_pip"] in pinned


def test_it_has_every_package_that_the_collection_imports() -> None:
    listed = yaml.safe_load(builder("introspect", str(ROOT / ".cache/collections")))
    named = [line for line in listed["python"] if "progressive.rollout" in line]
    there = {re.split(r"[\[#=<> ]", line)[0] for line in named}
    imported: set[str] = set()
    for path in (ROOT / "plugins").rglob("*.py"):
        imported |= {a or b for a, b in IMPORT.findall(path.read_text())}
    packages = metadata.packages_distributions()
    others = imported & packages.keys() - sys.stdlib_module_names - WITH_ANSIBLE
    wanted = {BROUGHT.get(name, name) for name in others}
    assert wanted - {"_pytest"} <= there, wanted - there
    assert {"requests", "psycopg", "kubernetes", "cronsim"} <= wanted
    system = " ".join(listed["system"])
    assert "openssh-clients [platform:rpm]" in system and "sshpass" in system
