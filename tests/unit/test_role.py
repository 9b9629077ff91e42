# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tasks of the role decide: which steps follow which results, and what failed tasks say."""

from __future__ import annotations

from collections.abc import Iterator
from unittest import mock

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import RolloutFailed
from ansible_collections.progressive.rollout.plugins.plugin_utils.config import remembered
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.rollout.rollback import (
    Rollback,
)
from ansible_collections.progressive.rollout.tests.support.tasks import Tasks

pytestmark = pytest.mark.usefixtures("virtual_time")

FAILS = {"rollout_gates": {"confirm_promotion": [{"driver": "command", "command": ["/bin/false"]}]}}
WHY = "confirm_promotion 1 (command): /bin/false ended with 1"


@pytest.fixture
def playground() -> Iterator[Tasks]:
    with Tasks() as made:
        yield made


def failing_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first attempt to roll back fails."""
    run, times = Rollback.run, iter([RolloutFailed("lb1 is away", "PR-608")])

    def failing(rollback: Rollback, *given: str) -> None:
        if failure := next(times, None):
            raise failure
        run(rollback, *given)

    monkeypatch.setattr(Rollback, "run", failing)


def test_the_role_rolls_back_what_the_step_could_not(
    playground: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert playground.rollout().rc == 0
    failing_once(monkeypatch)
    outcome = playground.rollout(rollout_revision="2", **FAILS)
    assert [task.status for task in outcome.tasks] == ["ok", "ok", "ok", "failed"]
    assert outcome.one("Roll back").result["rollout"]["outcome"] == "rolled_back"
    assert outcome.failed.msg == f"shop 2: now rolled back to 1. Why: {WHY} [PR-608]"
    assert playground.revisions() == ["1", "1", "1"]


def test_the_role_says_that_nothing_is_left(
    playground: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing_once(monkeypatch)
    outcome = playground.rollout(**FAILS)
    assert outcome.failed.msg.startswith("shop 1: now failed, nothing of it is left. Why: ")
    assert playground.revisions() == []


def test_the_role_fails_with_the_reason_of_the_step(playground: Tasks) -> None:
    assert playground.rollout().rc == 0
    outcome = playground.rollout(rollout_revision="2", **FAILS)
    assert outcome.failed.task == "Fail with the reason"
    assert outcome.one("Roll back").status == "skipped"
    assert outcome.failed.msg == outcome.one("replace").msg and WHY in outcome.failed.msg


def test_check_mode_shows_what_the_steps_would_do(playground: Tasks) -> None:
    assert playground.rollout().rc == 0
    outcome = playground.rollout(rollout_revision="2", check_mode=True)
    assert [task.task for task in outcome.tasks if task.status == "ok"] == [
        "Begin the rollout",
        "Show the plan",
        "Replace, promote and finish",
    ]
    assert outcome.rc == 0 and outcome.of("replace")[0].changed
    assert playground.revisions() == ["1", "1", "1"]
    nothing = playground.rollout(check_mode=True)
    assert nothing.of("replace") == [] and nothing.rc == 0


CANARY = {
    "rollout_revision": "2",
    "rollout_strategy": "canary",
    "rollout_steps": [{"set_replicas": 1}, {"pause": {}}],
    "rollout_wait": 0,
}


@pytest.fixture
def waiting(playground: Tasks) -> Tasks:
    """A canary of revision 2 waits for an operator."""
    assert playground.rollout().rc == 0
    assert playground.rollout(**CANARY).rc == 0
    return playground


def test_the_playbook_of_an_abort_is_green(waiting: Tasks) -> None:
    outcome = waiting.command("abort", **CANARY)
    assert outcome.rc == 0 and waiting.journal()["rollout"]["outcome"] == "aborted"
    assert outcome.one("begin").result["failed"], "the step itself fails, with what was done"


def test_a_command_continues_with_what_the_rollout_began_with(waiting: Tasks) -> None:
    """The service and its journal are enough."""
    others = waiting.variables.keys() - {"rollout_service", "rollout_store"}
    outcome = waiting.command("promote", **dict.fromkeys(others))
    assert outcome.rc == 0, outcome.output
    assert waiting.revisions() == ["2", "2", "2"]


def test_a_number_that_is_refused_fails_its_playbook(waiting: Tasks) -> None:
    platform = {**waiting.variables["rollout_platform"], "ports": "8100"}
    waiting.variables["rollout_platform"] = platform
    outcome = waiting.command("scale", **{**CANARY, "rollout_replicas": 900})
    assert outcome.rc != 0 and outcome.failed.task == "Fail if the command was refused"
    assert outcome.failed.msg.startswith("shop 2: the command was refused: ")
    assert outcome.failed.msg.endswith(" [PR-701]")
    assert waiting.journal()["rollout"]["phase"] == "paused"


def test_a_command_is_withdrawn_where_the_rollout_cannot_go_on(waiting: Tasks) -> None:
    gone = {"driver": "process", "hosts": "nobody", "command": ["/bin/true"], "ports": "8100-8199"}
    with mock.patch.object(remembered, "restored", return_value={"platform": gone}):
        outcome = waiting.command("promote", **CANARY)
    assert outcome.rc != 0 and outcome.failed.task == "Fail as the rollout did"
    assert outcome.failed.msg == outcome.one("begin").msg
    withdrawn = outcome.one("Withdraw the command unless it was obeyed")
    assert withdrawn.changed and "[PR-702]" in withdrawn.msg
    assert waiting.rollout(**CANARY).rc == 0
    assert waiting.journal()["rollout"]["phase"] == "paused", "it is not obeyed later"
