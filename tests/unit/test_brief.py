# SPDX-License-Identifier: GPL-3.0-or-later
"""The callback `brief`, in a run of ansible-playbook."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest

WHY = "shop 2: now rolled back to 1. " + "Why: " + "x" * 500


@pytest.mark.slow
def test_brief_shows_messages_and_failures_and_nothing_else(tmp_path: Path) -> None:
    tasks = [
        {"name": "a task", "ansible.builtin.set_fact": {"quiet": "of no interest"}},
        {"name": "a skipped task", "ansible.builtin.debug": {"msg": "skipped"}, "when": False},
        {"ansible.builtin.debug": {"msg": ["first line", "second line"]}},
        {"ansible.builtin.debug": {"msg": "item {{ item }}"}, "loop": [1, 2]},
        {"name": "a step", "progressive.rollout.begin": {}},
    ]
    rescue: list[dict[str, t.Any]] = [
        {"name": "a command", "ansible.builtin.command": "false", "ignore_errors": True},
        {"name": "a rescue", "block": [{"ansible.builtin.fail": {"msg": WHY}}]},
    ]
    rescue[-1]["rescue"] = [{"name": "the end", "ansible.builtin.fail": {"msg": WHY}}]
    block = [{"block": tasks, "rescue": rescue}]
    here = {"hosts": "localhost", "connection": "local", "gather_facts": False}
    play = {"name": "a play", **here, "tasks": block}
    empty = {"name": "an empty play", "hosts": "nobody", "tasks": []}
    playbook = tmp_path / "play.yml"
    playbook.write_text(json.dumps([empty, play]))
    env = os.environ | {
        "ANSIBLE_STDOUT_CALLBACK": "progressive.rollout.brief",
        "ANSIBLE_LOCALHOST_WARNING": "false",
        "ANSIBLE_NOCOLOR": "true",
    }
    program = str(Path(sys.executable).with_name("ansible-playbook"))
    run = subprocess.run(
        [program, "-i", "localhost,", str(playbook)],
        env=env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert run.returncode == 2, run.stderr
    lines = run.stdout.splitlines()
    assert lines[:4] == ["first line", "second line", "item 1", "item 2"]
    assert lines[4] == "failed: [localhost]: rollout_service: not given, but required [PR-102]"
    assert "TASK [a command]" in run.stdout and '"rc": 1' in run.stdout  # of others, everything
    assert lines[-1] == f"failed: [localhost]: {WHY}"
    assert run.stdout.count(WHY) == 1, "what a rescue repeats is shown once"
    for hidden in ("a play", "a task", "skipped", "of no interest", "RECAP", "the end"):
        assert hidden not in run.stdout
