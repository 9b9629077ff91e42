# SPDX-License-Identifier: GPL-3.0-or-later
"""The pipelines of docs/examples/ci; tests/e2e/test_ci.py runs the commands of one."""

from __future__ import annotations

import shlex
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible_collections.progressive.rollout.plugins.plugin_utils.config import (
    settings,
    step_options,
    variables,
)
from ansible_collections.progressive.rollout.tests.support import pipelines
from ansible_collections.progressive.rollout.tests.support.pages import read

CI = pipelines.EXAMPLE
COMMANDS = {
    "github.yml": pipelines.github(),
    "gitlab-ci.yml": pipelines.gitlab(),
    "Jenkinsfile": pipelines.jenkins(),
}
PLAYBOOKS = [
    "progressive.rollout.abort",
    "progressive.rollout.promote",
    "progressive.rollout.rollout",
]


def loaded(name: str) -> t.Any:
    return yaml.safe_load((CI / name).read_text())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_names_a_playbook_files_and_variables_that_exist(name: str) -> None:
    known = {*variables.COMMON, *step_options.OF_STEPS, *step_options.OF_ROLES}
    played = []
    for line in "\n".join(COMMANDS[name]).splitlines():
        words = shlex.split(line)
        if words[0] != "ansible-playbook":
            continue
        option, inventory, playbook, *rest = words[1:]
        assert option == "-i" and (CI / inventory).exists(), line
        collection, _dot, stem = playbook.rpartition(".")
        assert collection == "progressive.rollout"
        assert (pipelines.ROOT / f"playbooks/{stem}.yml").exists(), line
        assert [word for word in rest if word != "-e" and not given(word, known)] == [], line
        played.append(playbook)
    assert sorted(played) == PLAYBOOKS


def given(word: str, known: set[str]) -> bool:
    """Whether a word sets a variable of the collection."""
    name, equals, _value = word.partition("=")
    return bool(equals) and name.removeprefix("rollout_") in known


@pytest.mark.parametrize("name", COMMANDS)
def test_shell_lines_pass_shellcheck(name: str, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("\n".join(["#!/bin/bash", *COMMANDS[name], ""]))
    checker = Path(sys.executable).with_name("shellcheck")
    result = subprocess.run([checker, script], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout


def test_the_service_is_accepted_and_no_job_waits_for_people() -> None:
    given = loaded("group_vars/all.yml")
    assert given["rollout_wait"] == 0 and {"pause": {}} in given["rollout_steps"]
    assert "host" in given["rollout_store"]
    for name, environment in (("rollout_revision", "'REVISION')"), ("rollout_report", "'PWD')")):
        assert environment in given.pop(name)
    settings.parse({name.removeprefix("rollout_"): value for name, value in given.items()})


def test_requirements_and_inventory_are_those_of_the_awx_example() -> None:
    for name in ("inventory.yml", "collections/requirements.yml"):
        assert (CI / name).read_text() == (CI.parent / "awx" / name).read_text(), name


def test_github_jobs_follow_each_other_and_none_is_cancelled_by_a_newer_pipeline() -> None:
    workflow = loaded("github.yml")
    jobs = workflow["jobs"]
    assert workflow["concurrency"] == {"group": "shop", "cancel-in-progress": False}
    assert jobs["promote"]["needs"] == "rollout" and jobs["promote"]["environment"]
    assert jobs["abort"]["needs"] == ["rollout", "promote"]
    assert jobs["abort"]["if"].startswith("failure()")
    assert "needs.promote.outputs.approved != 'true'" in jobs["abort"]["if"]
    (first,) = (step for step in jobs["promote"]["steps"] if step.get("id") == "approved")
    assert first is jobs["promote"]["steps"][0] and "approved=true" in first["run"]
    for name, job in jobs.items():
        assert {step["name"] for step in job["steps"] if step.get("if") == "always()"} == {
            "Summary",
            "Report",
        }, name
    assert workflow["env"]["REVISION"] == "${{ inputs.revision }}"


def test_no_shell_line_has_what_the_ci_fills_in() -> None:
    """`${{ inputs.revision }}` in a shell line would be a part of the command."""
    lines = [line for name in COMMANDS for line in COMMANDS[name]]
    assert [line for line in lines if "${{" in line or "params." in line] == []


def test_gitlab_jobs_are_of_its_stages_one_at_a_time_and_wait_for_somebody() -> None:
    pipeline = loaded("gitlab-ci.yml")
    jobs = {name: pipeline[name] for name in ("rollout", "promote", "abort")}
    assert [job["stage"] for job in jobs.values()] == ["rollout", "decide", "decide"]
    assert pipeline["stages"] == ["rollout", "decide"]
    assert pipeline["default"]["interruptible"] is False
    assert pipeline["default"]["artifacts"]["when"] == "always"
    assert pipeline["default"]["artifacts"]["reports"] == {"junit": "reports/shop/*.xml"}
    assert jobs["rollout"]["resource_group"] == jobs["promote"]["resource_group"]
    assert "resource_group" not in jobs["abort"]  # it reaches a rollout that another job works on
    assert jobs["promote"]["rules"] == [{"when": "manual", "allow_failure": False}]
    assert jobs["abort"]["rules"] == [{"when": "manual", "allow_failure": True}]


def test_jenkins_has_balanced_braces_an_input_and_takes_a_denial_for_abort() -> None:
    text = (CI / "Jenkinsfile").read_text()
    assert text.count("{") == text.count("}") and "disableConcurrentBuilds()" in text
    approval = text.partition("stage('Approval')")[2].partition("stage('Promote')")[0]
    denied = approval.partition("aborted {")[2]
    assert "input message:" in approval and "progressive.rollout.abort" in denied
    assert "junit 'reports/shop/*.xml'" in text


def test_the_page_names_each_pipeline_and_where_it_goes() -> None:
    page = read("docs/how-to/ci.md")
    assert all(f"](../examples/ci/{name})" in page for name in COMMANDS)
    for name, place in (
        ("github.yml", ".github/workflows/rollout.yml"),
        ("gitlab-ci.yml", ".gitlab-ci.yml"),
    ):
        assert f"| `{place}` |" in page and (CI / name).read_text().startswith(f"---\n# {place}\n")
