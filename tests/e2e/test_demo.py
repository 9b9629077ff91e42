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
from ansible_collections.progressive.rollout.tests.support.waiting import LONG

QUICK = {"demo_env": {"LATENCY": "0.005"}, "rollout_min_ready": 0, "rollout_replicas": 3}
# the strategies whose rollouts notice that a revision fails requests
REJECTED = {"canary", "rolling"}
OUTPUT = {  # as scripts/demo has it
    "ANSIBLE_STDOUT_CALLBACK": "progressive.rollout.brief",
    "ANSIBLE_FORCE_COLOR": "1",
}
RED = "\033[0;31m"
HELPER = [sys.executable, "playbooks/files/demo.py"]


def demo(
    state: Path, environment: dict[str, str] | None = None, **variables: t.Any
) -> subprocess.CompletedProcess[str]:
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
        env=os.environ
        | OUTPUT
        | ({"ANSIBLE_COLOR_ERROR": "normal"} if variables.get("demo_fail") else {})
        | (environment or {}),
        capture_output=True,
        text=True,
        check=False,
        timeout=LONG,
    )


def stop(state: Path) -> str:
    """What is ended."""
    helper = [*HELPER, "stop", "--state", str(state)]
    return subprocess.run(helper, cwd=ROOT, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def environment(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """As on a machine with HAProxy, and as without one that the demo can use: Envoy steps in."""
    return {} if request.param == "haproxy" else old_haproxy(tmp_path)


def old_haproxy(tmp_path: Path) -> dict[str, str]:
    old = tmp_path / "bin/haproxy"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho HAProxy version 2.4.0\n")
    old.chmod(0o755)
    return {"PATH": f"{old.parent}:{os.environ['PATH']}"}


def test_a_balancer_that_is_missing_is_named_and_nothing_else(tmp_path: Path) -> None:
    result = demo(tmp_path / "demo", old_haproxy(tmp_path), demo_balancer="haproxy")
    assert result.returncode != 0 and "TASK [" not in result.stdout, result.stdout
    assert "needs HAProxy 2.6 or later: apt-get install haproxy" in result.stdout


def run_demo(tmp_path: Path, environment: dict[str, str], **variables: t.Any) -> str:
    """What the demo prints; it succeeds, shows no red, and leaves nothing."""
    state = tmp_path / "demo"
    try:
        result = demo(state, environment, **variables)
    finally:
        left = stop(state)
    assert result.returncode == 0, result.stdout + result.stderr
    assert not left
    assert RED not in result.stdout + result.stderr
    assert "TASK [" not in result.stdout  # what tasks say, without their names
    assert ("behind Envoy" in result.stdout) == bool(environment), result.stdout
    assert len(list((state / "report/demo").glob("*.html"))) == (
        4 if "Revision 3" in result.stdout else 3
    )  # rollouts and the index
    assert f"file://{state}/report/demo/index.html" in result.stdout
    return result.stdout


@pytest.mark.parametrize(
    ("environment", "strategy"),
    [("haproxy", "rolling"), ("haproxy", "canary"), ("haproxy", "blue_green"), ("envoy", "canary")],
    indirect=["environment"],
)
def test_demo(tmp_path: Path, environment: dict[str, str], strategy: str) -> None:
    out = run_demo(tmp_path, environment, rollout_strategy=strategy)
    assert re.findall(r"requests failed +(\d+)", out) == ["0", "0"]
    assert "3 instances of revision 1 replaced by revision 2" in out
    assert "revision 3 aborted, and rolled back to revision 2" in out
    # what is waited for is said before and after, once, with a clock
    seen, ended = "until customers see revision 3", "for the other run to end"
    assert re.search(rf"{seen}\nCustomers see revision 3 after \d+ s\n", out), out
    assert re.search(rf"{ended}[^\n]*\nThe other run ended after \d+ s\n", out), out
    if strategy == "blue_green":
        switches = re.findall(r"(switch(?: back)?) +[0-9.]+ ms", out)
        assert switches == ["switch", "switch", "switch back"]


@pytest.mark.parametrize(
    ("environment", "strategy", "fail"),
    [  # each strategy, failure and load balancer
        ("haproxy", "rolling", "1"),
        ("envoy", "blue_green", "1"),
        ("envoy", "rolling", "errors"),
        ("haproxy", "canary", "errors"),
        ("haproxy", "blue_green", "errors"),
    ],
    indirect=["environment"],
)
def test_a_demo_of_a_broken_revision_says_what_to_expect(
    tmp_path: Path, environment: dict[str, str], strategy: str, fail: str
) -> None:
    # Three instances are replaced before the load balancers were asked twice.
    least = {"rollout_replicas": 6} if (strategy, fail) == ("rolling", "errors") else {}
    out = run_demo(
        tmp_path,
        environment,
        rollout_strategy=strategy,
        demo_fail=fail,
        rollout_min_ready="1s",
        **least,
    )
    if fail == "1":
        seen = "serve all requests.*3 starts failed.*rolled back to revision 1"
    elif strategy in REJECTED:
        seen = "reject it.*analysis.*rolled back to revision 1"
    else:
        seen = r"Expect failed requests.*demo 2 promoted without a verdict: errors [1-9]\d* of .*"
        seen += "revision 2 was promoted.*failed: [1-9]"
    assert re.search(f"FAIL={fail}: revision 2 .*{seen}", out, re.S), out
    assert "As expected, " in out


@pytest.mark.long
def test_a_demo_that_stays_says_what_can_be_done_with_it() -> None:
    """What it says is done, literally, and what failed rollouts say in turn: a canary is aborted,
    one is promoted, and one that is broken goes back by itself.
    """
    here = os.environ | {"KEEP": "1", "DISPLAY": "", "WAYLAND_DISPLAY": ""}

    def run(command: str, rc: int = 0) -> str:
        done = subprocess.run(
            ["bash", "-euc", command],
            cwd=ROOT,
            env=here,
            capture_output=True,
            text=True,
            check=False,
            timeout=LONG,
        )
        assert done.returncode == rc, done.stdout + done.stderr
        return done.stdout

    try:
        out = run("scripts/run scripts/demo")
        said = dict(re.findall(r"^([A-Z][a-z ]+): +(scripts/\S+ .+)$", out, re.M))
        assert {"Roll out", "Promote", "Abort", "See it", "Break revision", "End it"} == {*said}
        assert "Before a command that these print in turn, write scripts/run." in out
        assert "waiting at step 2 pause" in run(said["Roll out"])
        run(said["Abort"])
        assert "aborted" in run(said["See it"])
        parked = run(said["Roll out"])
        (promote,) = re.findall(r"to continue: (ansible-playbook .+)$", parked, re.M)
        assert "demo 3 promoted" in run(f"scripts/run {promote}")
        failed = run(said["Break revision"], rc=2)
        commands = re.findall(r"^(?:look|compare) +(ansible-playbook .+)$", failed, re.M)
        look, compare = (run(f"scripts/run {command}") for command in commands)
        assert "rolled back to 3" in look and "demo" in compare
        run(said["Roll out"].replace("=3", "=5"))
        assert "demo 5 promoted" in run(said["Promote"])
    finally:
        ended = run("scripts/demo stop")
    assert "none is left" in ended
    assert not run("scripts/demo stop")
