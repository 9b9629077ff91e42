# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The demo as it is, only with instances that start at once: nothing fails, and nothing is left."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
from ansible_collections.progressive.rollout.tests.support.playbook import ROOT

QUICK = {"demo_env": {"LATENCY": "0.005"}, "rollout_min_ready": 0}
OUTPUT = {  # as scripts/demo has it
    "ANSIBLE_CALLBACK_PLUGINS": str(ROOT / "scripts/demo.d"),
    "ANSIBLE_STDOUT_CALLBACK": "brief",
    "ANSIBLE_DISPLAY_SKIPPED_HOSTS": "false",
    "ANSIBLE_DISPLAY_OK_HOSTS": "false",
    "ANSIBLE_FORCE_COLOR": "1",
}
RED = "\033[0;31m"
HELPER = [sys.executable, "playbooks/files/demo.py"]


def demo(state: Path, **variables: t.Any) -> subprocess.CompletedProcess[str]:
    command = [
        str(Path(sys.executable).with_name("ansible-playbook")),
        *(
            "-i",
            "playbooks/files/demo-inventory.yml",
            "playbooks/demo.yml",
            "-e",
            json.dumps({"demo_state": str(state), **QUICK, **variables}),
        ),
    ]
    return subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | OUTPUT,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


def stop(state: Path) -> str:
    """What is ended."""
    helper = [*HELPER, "stop", "--state", str(state)]
    return subprocess.run(helper, cwd=ROOT, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("balancer", ["haproxy", "envoy"])
def test_demo_of_blue_green(tmp_path: Path, balancer: str) -> None:
    state = tmp_path / "demo"
    try:
        result = demo(state, rollout_strategy="blue_green", demo_balancer=balancer)
    finally:
        left = stop(state)
    assert result.returncode == 0, result.stdout + result.stderr
    assert not left
    assert RED not in result.stdout + result.stderr
    assert "TASK [" not in result.stdout  # what tasks say, without their names
    assert re.findall(r"requests failed +(\d+)", result.stdout) == ["0", "0"]
    assert "6 instances of revision 1 replaced by revision 2" in result.stdout
    assert "revision 3 aborted, and rolled back to revision 2" in result.stdout
    assert re.findall(r"(switch(?: back)?) +[0-9.]+ ms", result.stdout) == [
        "switch",
        "switch",
        "switch back",
    ]
    assert len(list((state / "report/demo").glob("*.html"))) == 4  # three rollouts and the index
    assert f"file://{state}/report/demo/index.html" in result.stdout


@pytest.mark.long
@pytest.mark.parametrize(
    ("strategy", "fail", "seen"),
    [
        ("rolling", "1", "serve all requests.*3 starts failed.*rolled back to revision 1"),
        ("rolling", "errors", "reject it.*analysis.*rolled back to revision 1"),
        ("canary", "errors", "reject it.*analysis.*rolled back to revision 1"),
    ],
)
def test_a_demo_of_a_broken_revision_says_what_to_expect_and_shows_no_red(
    tmp_path: Path, strategy: str, fail: str, seen: str
) -> None:
    state = tmp_path / "demo"
    try:
        result = demo(state, rollout_strategy=strategy, demo_fail=fail, rollout_min_ready="1s")
    finally:
        left = stop(state)
    assert result.returncode == 0, result.stdout + result.stderr
    assert not left
    assert RED not in result.stdout + result.stderr
    assert re.search(f"FAIL={fail}: revision 2 .*{seen}", result.stdout, re.S), result.stdout
    assert "As expected, " in result.stdout


@pytest.mark.long
def test_a_demo_that_stays_says_what_can_be_done_with_it(tmp_path: Path) -> None:
    """What it says is done: a canary is promoted, and one that is broken goes back
    by itself.
    """
    state = tmp_path / "demo"
    try:
        kept = demo(state, demo_keep=True, rollout_min_ready="1s")  # CRASH_AFTER is sooner
        assert kept.returncode == 0, kept.stdout + kept.stderr
        assert RED not in kept.stdout + kept.stderr and "TASK [" not in kept.stdout
        said = dict(re.findall(r"([A-Z][a-z ]+): +(scripts/run .+?)(?:\033|$)", kept.stdout, re.M))

        def do(what: str, rc: int = 0) -> str:
            done = subprocess.run(
                ["bash", "-euc", said[what]],
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=False,
                timeout=240,
            )
            assert done.returncode == rc, done.stdout + done.stderr
            return done.stdout

        assert "waiting at step 2 pause" in do("Roll out")
        assert "demo 3 promoted" in do("Promote")
        do("Break revision", rc=2)
        assert "rolled back to 3" in do("See it")
    finally:
        assert "none is left" in stop(state)
