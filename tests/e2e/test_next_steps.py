# SPDX-License-Identifier: GPL-3.0-or-later
"""What a rollout prints as next step works as printed, wherever its variables are written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.progressive.rollout.tests.support.playbook import Playground

BROKEN = {"command": ["/bin/false"]}


@pytest.fixture
def playground() -> Iterator[Playground]:
    usual = {"rollout_replicas": 2, "rollout_failure_limit": 1, "rollout_wait": 0}
    with Playground(hosts=1, variables=usual) as made:
        yield made


class Operator:
    """Runs commands in a shell, as they are printed."""

    def __init__(self, playground: Playground, layout: str) -> None:
        self.home, self.layout, self.variables = playground.home, layout, playground.variables
        programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.environment = {**playground._environment(), "PATH": programs}
        (self.home / "group_vars").mkdir()

    def types(self, line: str) -> tuple[int, str]:
        """Return the exit status and the output of a command."""
        ended = subprocess.run(
            ["sh", "-c", line],
            cwd=self.home,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=240,
        )
        return ended.returncode, ended.stdout + ended.stderr

    def rolls_out(self, revision: str, **more: t.Any) -> tuple[int, str]:
        """Write the variables where they belong, and roll out."""
        given = self.variables | {f"rollout_{key}": value for key, value in more.items()}
        platform = given["rollout_platform"]
        if self.layout == "play":
            given |= {"rollout_revision": revision, "rollout_platform": platform}
            tasks = [{"import_role": {"name": "progressive.rollout.rolling"}}]
            play = {"hosts": "localhost", "gather_facts": False, "vars": given, "tasks": tasks}
            (self.home / "deploy.yml").write_text(json.dumps([play]))
            return self.types("ansible-playbook -i hosts.json deploy.yml")
        del given["rollout_revision"]
        (self.home / "group_vars/all.yml").write_text(json.dumps(given))
        return self.types(
            "ansible-playbook -i hosts.json progressive.rollout.rollout"
            f" -e rollout_revision={revision}"
        )


def printed(output: str, what: str) -> str:
    """The command that is printed to do this; rollouts print it once."""
    lines = [line for line in output.splitlines() if "ansible-playbook progressive." in line]
    return next(
        line[line.index("ansible-playbook") :]
        for line in lines
        if line.startswith(f"{what} ") or f" to {what}: " in line
    )


@pytest.mark.parametrize("layout", ["group_vars", "play"])
def test_next_steps_work_as_printed(playground: Playground, layout: str) -> None:
    ann = Operator(playground, layout)
    assert ann.rolls_out("1")[0] == 0

    steps = {"strategy": "canary", "steps": [{"set_replicas": 1}, {"pause": {}}]}
    status, parked = ann.rolls_out("2", **steps)
    assert status == 0 and playground.journal()["rollout"]["phase"] == "paused", parked
    status, output = ann.types(printed(parked, "continue"))
    assert status == 0 and playground.revisions() == ["2", "2"], output

    broken = {**playground.variables["rollout_platform"], **BROKEN}
    status, held = ann.rolls_out("3", platform=broken, on_failure="hold")
    assert status != 0 and playground.journal()["rollout"]["phase"] == "held", held
    status, output = ann.types(printed(held, "look"))
    assert status == 0 and "shop-3" in output and "held" in output, output
    status, output = ann.types(printed(held, "roll back"))
    assert status == 0 and playground.journal()["rollout"]["outcome"] == "aborted", output
    assert playground.revisions() == ["2", "2"]
    if layout == "play":
        return  # what is printed after a failure looks the same

    status, failed = ann.rolls_out("4", platform=broken)
    assert status != 0
    for what in ("look", "compare"):
        status, output = ann.types(printed(failed, what))
        assert status == 0 and "4" in output, output
