# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands of docs/examples/ci/github.yml, with processes of this machine."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import typing as t
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from ansible_collections.progressive.rollout.tests.support import pipelines
from ansible_collections.progressive.rollout.tests.support.playbook import Playground
from ansible_collections.progressive.rollout.tests.support.waiting import LONG, until


class Runner:
    """Runs jobs of the workflow; each has a workspace of its own, as in the CI."""

    def __init__(self, playground: Playground) -> None:
        self.playground, self.workspace = playground, playground.home / "workspace"
        self.summary = playground.home / "summary"

    def check_out(self) -> None:
        shutil.rmtree(self.workspace, ignore_errors=True)
        shutil.copytree(pipelines.EXAMPLE, self.workspace)
        given = self.workspace / "group_vars/all.yml"
        service = yaml.safe_load(given.read_text())
        service["rollout_steps"][-1] = {"pause": "1s"}
        mine = self.playground.variables
        for name in ("platform", "health", "store"):
            service[f"rollout_{name}"] = mine[f"rollout_{name}"]
        service["rollout_platform"] = {**service["rollout_platform"], "hosts": "web"}
        del service["rollout_traffic"]
        given.write_text(yaml.safe_dump(service))
        shutil.copy(self.playground.home / "hosts.json", self.workspace / "inventory.yml")
        (self.workspace / "reports").mkdir()  # the first step does it, and installs

    def job(self, name: str, revision: str) -> tuple[int, str]:
        """Run a job in a new workspace; return the exit code of its playbook, and the output."""
        self.check_out()
        self.summary.write_text("")
        rc, output = 0, ""
        for step in pipelines.github_steps(name):
            if step.get("name") != "Install" and (rc == 0 or step.get("if") == "always()"):
                process = self.start(step["run"], revision)
                printed, _none = process.communicate(timeout=LONG)
                rc, output = rc or process.returncode, output + printed
        return rc, output

    def start(self, command: str, revision: str) -> subprocess.Popen[str]:
        env = {
            **self.playground._environment(),
            **yaml.safe_load((pipelines.EXAMPLE / "github.yml").read_text())["env"],
            "REVISION": revision,
            "RESULTS": os.devnull,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "GITHUB_OUTPUT": os.devnull,
            "GITHUB_STEP_SUMMARY": str(self.summary),
        }
        return subprocess.Popen(
            ["bash", "-e", "-c", command],
            cwd=self.workspace,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def cancel(self, name: str, revision: str, when: t.Callable[[], bool]) -> int:
        """Cancel a job, as the CI does, once this is so; return the exit code of its playbook."""
        self.check_out()
        (command,) = (
            step["run"]
            for step in pipelines.github_steps(name)
            if step["run"].startswith("ansible-playbook")
        )
        process = self.start(command, revision)
        try:
            until(lambda: when() or process.poll() is not None, "the moment to cancel")
        finally:
            os.killpg(process.pid, signal.SIGINT)
        output, _none = process.communicate(timeout=LONG)
        assert when(), output
        return process.returncode

    def tests(self) -> dict[str, str]:
        """The verdict on each test case of the report: passed, failure or skipped."""
        (report,) = (self.workspace / "reports/shop").glob("*.xml")
        return {
            case.get("name", ""): next((child.tag for child in case), "passed")
            for case in ElementTree.parse(report).iter("testcase")
        }


@pytest.mark.long
def test_a_pipeline_waits_for_its_approval_and_goes_on_after_it_was_cancelled(
    playground: Playground,
) -> None:
    runner = Runner(playground)
    rc, output = runner.job("rollout", "1")
    assert rc == 0 and playground.revisions() == ["1"] * 6, output
    assert set(runner.tests().values()) == {"passed"}

    def begun() -> bool:
        return "2" in playground.revisions()

    assert runner.cancel("rollout", "2", begun) != 0
    assert playground.journal()["rollout"]["revision"] == "2"  # the rollout is still there
    assert "1" in playground.revisions()

    rc, output = runner.job("rollout", "2")
    assert rc == 0 and "parked" in output, output
    assert playground.journal()["rollout"]["phase"] == "paused"
    cases = runner.tests()
    assert "skipped" in cases.values() and "failure" not in cases.values()
    assert "In progress: paused" in runner.summary.read_text()

    rc, output = runner.job("promote", "2")
    assert rc == 0 and playground.revisions() == ["2"] * 6, output
    assert set(runner.tests().values()) == {"passed"}
    assert "Promoted: shop 1" in runner.summary.read_text()

    rc, output = runner.job("rollout", "3")
    assert rc == 0 and "3" in playground.revisions(), output
    rc, output = runner.job("abort", "3")
    assert rc == 0 and playground.revisions() == ["2"] * 6, output
    assert "failure" in runner.tests().values()
    assert "Aborted: shop 2" in runner.summary.read_text()

    rc, output = runner.job("promote", "3")
    assert rc != 0 and "[PR-700]" in output, output
