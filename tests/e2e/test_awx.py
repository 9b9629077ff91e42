# SPDX-License-Identifier: GPL-3.0-or-later
"""What awx.yml makes in AWX, by the modules of awx.awx as they are published, which check their
arguments, and an API that keeps what it is told.
"""

from __future__ import annotations

import typing as t
from collections import Counter
from collections.abc import Iterator

import pytest
import yaml
from ansible_collections.progressive.rollout.tests.support.awx import TOKEN, Awx
from ansible_collections.progressive.rollout.tests.support.pages import SNIPPETS
from ansible_collections.progressive.rollout.tests.support.playbook import (
    ROOT,
    Outcome,
    Playground,
)

PROJECT = ROOT / "docs/examples/awx"
RELEASE = ROOT / "docs/examples/release"
TWICE = [{"set_weight": 10}, {"pause": {}}, {"set_weight": 50}, {"pause": "1m"}, {"pause": {}}]


@pytest.fixture
def awx() -> Iterator[Awx]:
    made = Awx({path.name for path in (*PROJECT.glob("*.yml"), *RELEASE.glob("*.yml"))})
    for kind, name in (
        ("credentials", "shop hosts"),
        ("teams", "shop operators"),
        ("teams", "shop approvers"),
        ("users", "ann"),
        ("notification_templates", "pager"),
    ):
        made.create(kind, {"username" if kind == "users" else "name": name, "organization": 1})
    yield made
    made.close()


AWX = {
    "project": {"url": "https://git.example.com/shop.git", "branch": "main"},
    "image": "registry.example.com/ee-rollout:1",
    "credentials": ["shop hosts"],
    "approvers": {"teams": ["shop approvers"], "users": ["ann"]},
    "operators": {"teams": ["shop operators"]},
    "notifications": [
        {"name": "pager"},
        {
            "name": "shop chat",
            "type": "webhook",
            "configuration": {
                "url": "https://chat.example.com/",
                "http_method": "POST",
                "headers": {},
            },
            "on": ["started", "success", "error"],
        },
    ],
    "schedules": [
        {
            "name": "shop report on Mondays",
            "playbook": "report",
            "rrule": "DTSTART:20260105T060000Z RRULE:FREQ=WEEKLY;INTERVAL=1",
        }
    ],
}


def test_the_example_has_a_playbook_for_every_job_template() -> None:
    surveys = yaml.safe_load((ROOT / "roles/awx/vars/main.yml").read_text())["_awx_surveys"]
    there = {path.stem: yaml.safe_load(path.read_text()) for path in PROJECT.glob("*.yml")}
    there.pop("inventory")
    assert there.keys() == {*surveys, "awx"}
    for name, (play,) in there.items():
        assert play["ansible.builtin.import_playbook"] == f"progressive.rollout.{name}"
        assert (ROOT / f"playbooks/{name}.yml").exists(), name


def make(playground: Playground, awx: Awx, steps: t.Any, *options: str, **more: t.Any) -> Outcome:
    variables = {"rollout_strategy": "canary", "rollout_steps": steps, "rollout_awx": AWX, **more}
    env = {"CONTROLLER_HOST": awx.url, "CONTROLLER_OAUTH_TOKEN": TOKEN}
    return playground.run("progressive.rollout.awx", variables, *options, env=env, timeout=600)


def nodes(awx: Awx) -> dict[str, tuple[list[str], list[str]]]:
    """What follows each node of the workflow, on success and on failure."""
    return {
        one["identifier"]: (awx.of(one, "success_nodes"), awx.of(one, "failure_nodes"))
        for one in awx.objects["workflow_job_template_nodes"].values()
    }


def changed(outcome: Outcome) -> Iterator[str]:
    """The nodes and the job templates of which a task changed something."""
    for task in outcome.tasks:
        for item in task.result.get("results", ()):
            if item.get("changed"):
                yield item["item"].get("identifier") or f"template {item['item']['key']}"


ONE_WAIT = {
    "rollout": (["approval 1"], []),
    "approval 1": (["promote 1"], ["abort"]),
    "promote 1": ([], []),
    "abort": ([], []),
}
TWO_WAITS_AND_A_WATCH = {
    **ONE_WAIT,
    "promote 1": (["approval 2"], []),
    "approval 2": (["promote 2"], ["abort"]),
    "promote 2": (["watch"], []),
    "watch": ([], []),
}


@pytest.mark.long
def test_the_workflow_has_an_approval_for_each_wait_and_a_second_run_changes_nothing_else(
    playground: Playground, awx: Awx
) -> None:
    outcome = make(playground, awx, TWICE[:2])
    assert outcome.rc == 0, outcome.output
    assert nodes(awx) == ONE_WAIT
    template = awx.named("job_templates", "shop rollout")
    assert template["playbook"] == "rollout.yml" and not template["ask_variables_on_launch"]
    assert yaml.safe_load(template["extra_vars"]) == {"rollout_service": "shop", "rollout_wait": 0}
    assert [one["variable"] for one in awx.survey(template)] == ["rollout_revision"]
    assert awx.of(template, "credentials") == ["shop hosts"]
    assert awx.of(template, "notification_templates_error") == ["pager", "shop chat"]
    workflow = awx.named("workflow_job_templates", "shop workflow")
    assert awx.of(workflow, "notification_templates_approvals") == ["pager"]
    assert awx.survey(workflow) == awx.survey(template)
    assert (awx.may(workflow, "approval", "teams"), awx.may(workflow, "execute", "teams")) == (
        ["shop approvers"],
        ["shop operators"],
    )
    promote = awx.named("job_templates", "shop promote")
    assert awx.may(promote, "execute", "teams") == ["shop approvers"]
    assert awx.names("schedules") == ["shop report on Mondays"]
    assert TOKEN not in outcome.output

    # Everything stays as it is, but what another wait and a watch add.
    more = make(playground, awx, TWICE, rollout_watch="1h")
    assert more.rc == 0 and nodes(awx) == TWO_WAITS_AND_A_WATCH, more.output
    assert Counter(changed(more)) == {
        "approval 2": 2,  # made, and linked
        "promote 1": 1,
        "promote 2": 2,
        "watch": 1,
        "template watch": 1,
    }
    (question,) = awx.survey(awx.named("job_templates", "shop watch"))
    assert (question["variable"], question["default"]) == ("rollout_watch", "1h")


@pytest.mark.long
def test_it_goes_on_after_an_update_of_the_project_that_failed(
    playground: Playground, awx: Awx
) -> None:
    little = {"project": AWX["project"]}
    awx.unreadable = True
    failed = make(playground, awx, TWICE[:2], rollout_awx=little)
    assert failed.rc != 0 and "Project Update" in failed.output, failed.output
    assert awx.names("projects") == ["shop"] and awx.names("job_templates") == []
    awx.unreadable = False
    after = make(playground, awx, TWICE[:2], rollout_awx=little)
    assert after.rc == 0 and "shop rollout" in awx.names("job_templates"), after.output


@pytest.mark.long
def test_waits_that_are_gone_leave_the_workflow(playground: Playground, awx: Awx) -> None:
    little = {"project": AWX["project"]}
    outcome = make(playground, awx, TWICE[:2], rollout_awx=little)
    assert outcome.rc == 0 and nodes(awx) == ONE_WAIT, outcome.output
    assert {
        name
        for name in awx.names("job_templates")
        if awx.named("job_templates", name)["allow_simultaneous"]
    } == {"shop status", "shop report", "shop plan", "shop history"}
    fewer = make(playground, awx, [], rollout_strategy="rolling", rollout_awx=little)
    assert fewer.rc == 0 and nodes(awx) == {"rollout": ([], [])}, fewer.output
    assert {task.task for task in fewer.tasks if task.changed} == {
        "Remove the nodes of waits that are gone"
    }


@pytest.mark.long
def test_a_release_has_one_workflow(playground: Playground, awx: Awx) -> None:
    """With the example, and what the page adds to it."""
    given = yaml.safe_load((RELEASE / "group_vars/all.yml").read_text())
    given |= yaml.safe_load(SNIPPETS["docs/how-to/awx.md"]["release.yml"])
    given |= {"rollout_platform": None, "rollout_steps": None, "rollout_strategy": None}
    outcome = make(playground, awx, [], **given)
    assert outcome.rc == 0, outcome.output
    assert nodes(awx) == {"release": ([], [])}
    assert awx.names("job_templates") == ["shop release"]
    template = awx.named("job_templates", "shop release")
    assert template["playbook"] == "release.yml" and template["allow_simultaneous"]
    assert yaml.safe_load(template["extra_vars"]) == {"rollout_wait": 0}
    asked = [one["variable"] for one in awx.survey(template)]
    assert asked == ["rollout_revision", "rollout_command", "rollout_why"]
    workflow = awx.named("workflow_job_templates", "shop workflow")
    assert awx.survey(workflow) == awx.survey(template)
    assert awx.may(workflow, "execute", "teams") == ["shop operators"]
    again = make(playground, awx, [], **given)
    assert again.rc == 0 and not list(changed(again)), again.output


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        pytest.param(
            {**AWX, "aprovers": {}}, "rollout_awx.aprovers: unknown option; did you", id="misspelt"
        ),
        pytest.param("", "rollout_awx: not given, but required", id="missing"),
        pytest.param({"project": "x"}, "rollout_awx.project: expected a mapping", id="kind"),
        pytest.param(
            {**AWX, "schedules": [{"name": "a", "playbook": "rolout", "rrule": "b"}]},
            "rollout_awx.schedules[0].playbook: 'rolout'",
            id="choice",
        ),
    ],
)
def test_a_wrong_value_is_refused_in_a_line_and_nothing_made(
    playground: Playground, awx: Awx, wrong: t.Any, told: str
) -> None:
    outcome = make(playground, awx, TWICE, rollout_awx=wrong)
    assert outcome.rc != 0 and outcome.failed.msg.startswith(told), outcome.output
    assert "argument_spec" not in outcome.output
    assert awx.written == []
