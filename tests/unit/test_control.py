# SPDX-License-Identifier: GPL-3.0-or-later
"""What a command that is sent says of who obeys it."""

from __future__ import annotations

import pytest
from ansible_collections.progressive.rollout.plugins.action import begin, control, rollback
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    LeaseHeld,
    RolloutError,
    RolloutFailed,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.step.context import (
    Result,
)
from ansible_collections.progressive.rollout.tests.support.memory import Service, World

pytestmark = pytest.mark.usefixtures("virtual_time")

WAITS = [{"set_weight": 34}, {"gate": {"driver": "approval"}}]
NEXT = "no run is active, it takes effect on the next run"


@pytest.fixture
def shop() -> Service:
    """A canary that is parked at an approval."""
    service = Service(World(fewest=0), replicas=3)
    service.play(revision="1")
    service.play(revision="2", strategy="canary", steps=WAITS)
    return service


def sent(
    shop: Service, command: str, check_mode: bool = False, **given: object
) -> tuple[str, bool]:
    """What is said of the command, and whether the playbook continues the rollout."""
    own = {"command": command, "continues": True}
    result = shop.step(control, own, check_mode, **given)
    return result["msg"].partition("; ")[2], result["continues"]


@pytest.mark.parametrize("command", ["promote", "abort", "skip"])
def test_the_playbook_that_sends_it_and_goes_on_says_so(shop: Service, command: str) -> None:
    assert sent(shop, command) == ("no run is active, continuing here", True)


def test_a_command_that_was_sent_before_is_continued_here_too(shop: Service) -> None:
    shop.step(control, {"command": "promote"})
    assert sent(shop, "promote") == (
        "no run is active, continuing here",
        True,
    )


def test_a_hold_leaves_the_rollout_to_the_next_run(shop: Service) -> None:
    assert sent(shop, "hold") == (NEXT, False)


def test_check_mode_continues_nothing(shop: Service) -> None:
    assert sent(shop, "promote", check_mode=True) == (NEXT, False)


def test_a_task_of_its_own_continues_nothing(shop: Service) -> None:
    result = shop.step(control, {"command": "promote"})
    assert result["msg"].endswith(NEXT) and not result["continues"]


def test_what_continues_is_told_which_rollout_it_is(shop: Service) -> None:
    rollout = shop.journal.open
    assert (
        rollout and shop.step(control, {"command": "promote"})["settings"]["rollout"] == rollout.id
    )


def test_a_pause_at_a_gate_says_what_each_command_would_do(shop: Service) -> None:
    assert sent(shop, "pause") == (
        f"{NEXT}; then resume would wait at step 2 gate as before, promote would pass step 2"
        " gate and continue, abort would roll back",
        False,
    )


def test_an_abort_repeated_after_the_rollback_succeeds(shop: Service) -> None:
    shop.step(control, {"command": "abort"})
    with pytest.raises(RolloutFailed, match="abort"):
        shop.play(revision="2", strategy="canary", steps=WAITS)
    result = shop.step(control, {"command": "abort", "continues": True})
    assert result["msg"] == "shop: 2 was already rolled back to 1; nothing to abort"
    assert not (result["changed"] or result["continues"])
    shop.play(revision="2")
    with pytest.raises(RolloutFailed, match=r"no rollout is in progress; use rollback\.yml"):
        shop.step(control, {"command": "abort"})


def test_a_rollback_to_another_revision_says_to_abort_first(shop: Service) -> None:
    other = Service(shop.world, replicas=3)
    shop.store.acquire("theirs", "ann", 60, {})
    with pytest.raises(
        LeaseHeld, match=r"held by ann .*; or abort that rollout first \(abort.yml\)"
    ):
        other.step(rollback, {"to": "0"})
    assert other.step(rollback, {"to": "1"})["sent"]


def test_a_held_rollout_is_continued_by_resume(shop: Service) -> None:
    shop.step(control, {"command": "hold"})
    with pytest.raises(RolloutFailed):
        shop.play(revision="2", strategy="canary", steps=WAITS)
    with pytest.raises(RolloutFailed, match="use resume to continue"):
        shop.step(control, {"command": "promote"})


def commands(shop: Service) -> list[str]:
    """The commands in the journal."""
    return [command["word"] for command in shop.store.commands(0)]


def test_without_a_rollout_a_command_is_refused_and_nothing_written() -> None:
    shop = Service(World(fewest=0))
    with pytest.raises(RolloutError, match=r"shop.*rollout\.yml") as refused:
        shop.step(control, {"command": "promote"})
    assert refused.value.id == "PR-700" and not shop.world.journals["shop"].texts


def test_check_mode_writes_no_command(shop: Service) -> None:
    result = shop.step(control, {"command": "pause"}, check_mode=True)
    assert result["changed"] and result["number"] is None
    assert "command 'pause' would be recorded" in result["msg"] and commands(shop) == []


def test_a_command_is_written_for_the_run_that_is_under_way(shop: Service) -> None:
    shop = Service(World(fewest=0), replicas=3)
    shop.step(begin, revision="1")
    result = shop.step(control, {"command": "pause"})
    assert (result["changed"], result["running"], result["number"]) == (True, True, 1)
    assert result["msg"].startswith("shop 1: command 'pause' recorded; the run of ")
    assert result["msg"].endswith(
        " obeys shortly; then resume would continue, abort would roll back"
    )


def test_each_command_is_judged_by_those_before_it(shop: Service) -> None:
    rollout = shop.journal.open
    assert rollout

    def send(command: str, **options: object) -> Result:
        return shop.step(control, {"command": command, **options})

    assert send("pause")["number"] == 1
    again = send("pause")
    assert (again["changed"], again["number"]) == (False, 1)
    assert "command 'pause' was sent by" in again["msg"]
    assert again["msg"].endswith(f"still pending; {NEXT}")
    resume = send("resume", why="lunch is over")
    assert (resume["changed"], resume["number"], resume["running"]) == (True, 2, False)
    assert resume["msg"] == f"shop 2: command 'resume' recorded; {NEXT}"
    twice = send("resume")
    assert (twice["changed"], twice["number"]) == (False, 2)
    assert send("abort")["changed"]
    for command, options, message in (
        # after an abort nothing is left to promote
        ("promote", {}, "cannot promote: shop 2 is rolling back: .*use hold to stop here"),
        ("promot", {}, "rollout_command: 'promot' must be one of pause, resume, "),
        ("skip", {"force": True}, "rollout_force: only promote can be forced, not skip"),
    ):
        with pytest.raises(RolloutError, match=message):
            send(command, **options)
    assert commands(shop) == ["pause", "resume", "abort"]
    sent = list(shop.store.commands(0))
    assert sent[1]["why"] == "lunch is over" and {one["rollout"] for one in sent} == {rollout.id}
    assert sent[1]["at"] >= sent[0]["at"] > 0 and sent[0]["by"]
