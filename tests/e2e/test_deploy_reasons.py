# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a host could not be deployed in place, as its task says it: each reason by a real failure."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
MODULES = {
    "dies": 'import os, sys\nsys.stderr.write("loading\\nFatal: cannot load libssl\\n")\n'
    "sys.stderr.flush()\nos._exit(3)\n",
    "raises": 'raise ValueError("no database")\n',
    "prints": 'print("panic: no config")\nraise SystemExit(2)\n',
    "is_killed": "import os\nos.kill(os.getpid(), 9)\n",
    "is_silent": "raise SystemExit(4)\n",
}
NO_RESULT = "its module gave no result (exit code {})"
REASONS = {
    "dies": ({"dies": None}, f"{NO_RESULT.format(3)}: Fatal: cannot load libssl"),
    "raises": ({"raises": None}, "no database"),
    "prints": ({"prints": None}, f"{NO_RESULT.format(2)}: panic: no config"),
    "is killed": ({"is_killed": None}, f"{NO_RESULT.format(137)}: Killed"),
    "is silent": ({"is_silent": None}, NO_RESULT.format(4)),
    "command": (
        {"ansible.builtin.shell": "echo no license >&2; exit 3"},
        ": no license",
    ),
    "own words": ({"ansible.builtin.fail": {"msg": "disk is full"}}, "disk is full"),
    "hidden": (
        {"ansible.builtin.fail": {"msg": "s3cret"}, "no_log": True},
        "hidden by no_log",
    ),
}


@pytest.fixture(scope="module")
def reasons(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the role notes of each task that fails, in one run."""
    home = tmp_path_factory.mktemp("deploy")
    (home / "library").mkdir()
    for name, code in MODULES.items():
        text = f"#!/usr/bin/python3\nfrom ansible.module_utils.basic import AnsibleModule\n{code}"
        (home / "library" / f"{name}.py").write_text(text)
    tasks = []
    for number, (task, _said) in enumerate(REASONS.values()):
        (home / f"{number}.yml").write_text(yaml.safe_dump([{"name": "Deploy", **task}]))
        given = {
            "_in_place_batch": {"revision": "2", "back": False},
            "_in_place_gone": "gone",
            "_in_place_for_all": "for all",
            "_in_place_forth": str(home / f"{number}.yml"),
        }
        deploy = str(ROOT / "roles/in_place/tasks/deploy.yml")
        told = {"content": "{{ _in_place_why }}", "dest": str(home / f"{number}.txt")}
        tasks += [
            {"ansible.builtin.include_tasks": deploy, "vars": given},
            {"ansible.builtin.copy": told},
        ]
    play = [{"hosts": "localhost", "gather_facts": False, "tasks": tasks}]
    (home / "play.yml").write_text(json.dumps(play))
    command = ["ansible-playbook", "-c", "local", str(home / "play.yml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return {name: (home / f"{n}.txt").read_text() for n, name in enumerate(REASONS)}


@pytest.mark.parametrize("name", REASONS)
def test_failed_task_is_told_with_its_own_words(reasons: dict[str, str], name: str) -> None:
    assert reasons[name].startswith("Deploy: ")
    assert reasons[name].endswith(REASONS[name][1])
    assert "json char" not in reasons[name]
