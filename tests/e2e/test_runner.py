# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs as AWX runs them: by ansible-runner, in a directory that is new for each job, with the
variables of the job template and the answers of its survey as extra variables.
"""

from __future__ import annotations

import json
import shutil
import threading
import typing as t
from collections.abc import Iterator, Mapping
from pathlib import Path

import ansible_runner
import pytest
from ansible_collections.progressive.rollout.tests.support.playbook import Playground
from ansible_collections.progressive.rollout.tests.support.waiting import until

SECRETS = {"env": "hunter2-the-env", "header": "hunter2-the-header", "survey": "hunter2-the-answer"}
AWX_VARIABLES = {"awx_job_id": 42, "awx_user_name": "ann"}  # as AWX adds them


class Job:
    """A job of a template, launched: its events as they arrive, and what it leaves."""

    def __init__(
        self, controller: Controller, playbook: str, answers: Mapping[str, t.Any], **options: t.Any
    ) -> None:
        self.home = controller.prepare(answers)
        self.events: list[dict[str, t.Any]] = []
        self.cancel = threading.Event()
        self.thread, self.runner = ansible_runner.run_async(
            private_data_dir=str(self.home),
            playbook=f"{playbook}.yml",
            event_handler=self._heard,
            cancel_callback=self.cancel.is_set,
            quiet=True,
            verbosity=options.pop("verbosity", 3),
            envvars=controller.environment,
            settings={"suppress_env_files": True},
            **options,
        )

    def _heard(self, event: dict[str, t.Any]) -> bool:
        self.events.append(event)
        return True  # written to a file as well

    def until(self, text: str) -> None:
        """Wait until an event that shows a text arrives, while the job runs."""
        try:
            until(lambda: self.shows(text) or not self.thread.is_alive(), f"{text!r} arrives")
        finally:
            assert self.shows(text) and self.thread.is_alive(), self.output

    def shows(self, text: str) -> bool:
        """Whether an event that has arrived shows a text."""
        return any(text in event.get("stdout", "") for event in list(self.events))

    def wait(self) -> str:
        """The job's status, once it is over."""
        self.thread.join(240)
        assert not self.thread.is_alive(), self.output
        return str(self.runner.status)

    @property
    def output(self) -> str:
        return "\n".join(event.get("stdout", "") for event in list(self.events))

    def kept(self) -> str:
        """All that AWX keeps of it: events and output."""
        files = [path for path in (self.home / "artifacts").rglob("*") if path.is_file()]
        assert any(path.parent.name == "job_events" for path in files)
        return "\n".join(path.read_text(errors="replace") for path in files)


class Controller:
    """An AWX: a project and an inventory, and no files that outlive a job."""

    def __init__(self, playground: Playground) -> None:
        self.playground = playground
        self.jobs: list[Job] = []
        self.environment = {
            name: value
            for name, value in playground._environment().items()
            if name.startswith("ANSIBLE_") and "CALLBACK" not in name
        }
        self.project: dict[str, str] = {
            f"{name}.yml": f"- ansible.builtin.import_playbook: progressive.rollout.{name}\n"
            for name in ("rollout", "promote", "status")
        }

    def prepare(self, answers: Mapping[str, t.Any]) -> Path:
        """Make the directory of a job."""
        home = self.playground.home / f"job{len(self.jobs)}"
        for folder in ("project", "inventory/group_vars", "env"):
            (home / folder).mkdir(parents=True)
        for name, text in self.project.items():
            (home / "project" / name).write_text(text)
        shutil.copy(self.playground.home / "hosts.json", home / "inventory/hosts.json")
        # one place for what all job templates need
        (home / "inventory/group_vars/all.yml").write_text(json.dumps(self.playground.variables))
        (home / "env/extravars").write_text(json.dumps({**AWX_VARIABLES, **answers}))
        return home

    def launch(self, playbook: str, answers: Mapping[str, t.Any], **options: t.Any) -> Job:
        job = Job(self, playbook, answers, **options)
        self.jobs.append(job)
        return job

    def close(self) -> None:
        for job in self.jobs:
            job.cancel.set()
            job.thread.join(30)


@pytest.fixture
def controller(playground: Playground) -> Iterator[Controller]:
    made = Controller(playground)
    yield made
    made.close()


def deploy(controller: Controller, revision: str = "1") -> None:
    """The first deployment, without a job."""
    outcome = controller.playground.run(variables={"rollout_revision": revision})
    assert outcome.rc == 0, outcome.output


def test_a_cancelled_job_is_launched_again_and_goes_on(controller: Controller) -> None:
    """Its events arrive while it runs, and of what AWX keeps nothing is secret."""
    playground = controller.playground
    playground.variables["rollout_platform"]["env"] = {"KEY": SECRETS["env"]}
    playground.variables["rollout_health"]["headers"] = {"X-Key": SECRETS["header"]}
    playground.variables |= {
        "rollout_strategy": "canary",
        "rollout_steps": [{"set_replicas": 1}, {"pause": {}}],
    }
    deploy(controller)
    job = controller.launch("rollout", {"rollout_revision": "2"})
    job.until("waiting at step 2")
    assert playground.revisions().count("2") == 1
    job.cancel.set()
    assert job.wait() == "canceled"
    first = playground.journal()["rollout"]

    again = controller.launch("rollout", {"rollout_revision": "2", "rollout_wait": "0"})
    assert again.wait() == "successful", again.output
    parked = playground.journal()["rollout"]
    assert (parked["id"], parked["phase"]) == (first["id"], "paused")
    assert playground.revisions().count("2") == 1

    promoted = controller.launch("promote", {"rollout_why": "the figures are good"})
    assert promoted.wait() == "successful", promoted.output
    assert playground.revisions() == ["2"] * 3
    words = (playground.store / "journal/shop.words.jsonl").read_text()
    assert "AWX job 42 of ann" in words and "the figures are good" in words
    status = controller.launch("status", {})
    assert status.wait() == "successful" and status.shows("promoted"), status.output
    assert {
        (number, name)
        for number, one in enumerate(controller.jobs)
        for name, secret in SECRETS.items()
        if secret in one.kept()
    } == set()


# What a survey of AWX makes of each kind of question that nobody answered.
EMPTY = dict.fromkeys(
    (
        "rollout_strategy",
        "rollout_replicas",
        "rollout_budget",
        "rollout_steps",
        "rollout_min_ready",
        "rollout_on_failure",
        "rollout_failure_limit",
        "rollout_restart",
        "rollout_supersede",
        "rollout_auto_promote",
        "rollout_freeze",
        "rollout_wait",
        "rollout_why",
        "rollout_report",
        "rollout_prepare_tasks",
    ),
    "",
)


def test_unanswered_questions_count_as_not_given(controller: Controller) -> None:
    del controller.playground.variables["rollout_replicas"]
    job = controller.launch("rollout", {**EMPTY, "rollout_revision": "1", "rollout_replicas": "2"})
    assert job.wait() == "successful", job.output
    assert controller.playground.revisions() == ["1"] * 2


def test_answers_are_texts(controller: Controller) -> None:
    """A secret in a text of JSON is a secret: it is not in the journal."""
    health = controller.playground.variables["rollout_health"]
    answers = {
        "rollout_health": json.dumps({**health, "headers": {"X-Key": SECRETS["survey"]}}),
        "rollout_revision": "1",
        "rollout_replicas": "4",
        "rollout_budget": '{"max_surge": "2", "max_unavailable": "0"}',
        "rollout_strategy": "canary",
        "rollout_steps": '[{"set_replicas": "1"}, {"pause": "0"}]',
        "rollout_restart": "false",
        "rollout_supersede": "true",
        "rollout_failure_limit": "5",
        "rollout_wait": "0",
    }
    job = controller.launch("rollout", answers)
    assert job.wait() == "successful", job.output
    assert controller.playground.revisions() == ["1"] * 4
    again = controller.launch("rollout", {**answers, "rollout_revision": "2"})
    assert again.wait() == "successful", again.output
    playground = controller.playground
    stages = [
        event["stage"]
        for event in playground.timeline(playground.journal()["history"][-1]["id"])
        if event["kind"] == "stage"
    ]
    assert "step 1" in stages
    journal = [path for path in (playground.store / "journal").rglob("*") if path.is_file()]
    assert journal and not [path for path in journal if SECRETS["survey"] in path.read_text()]


@pytest.mark.parametrize("answer", ["true", "false", ""])
def test_a_restart_alone_needs_no_prepared_hosts(controller: Controller, answer: str) -> None:
    """As a text, too: what is not a restart fails where hosts are not prepared."""
    controller.playground.variables["rollout_prepare_tasks"] = "prepare.yml"
    controller.project["prepare.yml"] = "- ansible.builtin.debug: {msg: prepared}\n"
    controller.project["alone.yml"] = json.dumps(
        [
            {
                "hosts": "localhost",
                "gather_facts": False,
                "tasks": [
                    {"ansible.builtin.include_role": {"name": "progressive.rollout.rolling"}}
                ],
            }
        ]
    )
    deployed = controller.launch("rollout", {"rollout_revision": "1"})
    assert deployed.wait() == "successful" and deployed.shows("prepared"), deployed.output
    job = controller.launch("alone", {"rollout_revision": "1", "rollout_restart": answer})
    assert (job.wait() == "successful") == (answer == "true"), job.output
    assert job.shows("[PR-224]") == (answer != "true")


def test_a_limit_is_refused(controller: Controller) -> None:
    job = controller.launch("rollout", {"rollout_revision": "1"}, limit="web1")
    assert job.wait() == "failed" and job.shows("[PR-114]"), job.output
    assert controller.playground.files() == set()
