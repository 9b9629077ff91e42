# SPDX-License-Identifier: GPL-3.0-or-later
"""An operator's word as it is said: refused, or written down for whoever runs the rollout."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

from ansible_collections.progressive.rollout.tests.support.playbook import Playground, Task

NOBODY_ANSWERS = {
    "rollout_platform": {"driver": "away"},
    "rollout_traffic": {"driver": "haproxy", "socket": ["127.0.0.1:1"], "backend": "shop"},
}


def heard(playground: Playground) -> list[dict[str, t.Any]]:
    """The words in the journal."""
    path = playground.store / "journal" / "shop.words.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def say(playground: Playground, *words: dict[str, t.Any]) -> list[Task]:
    """The results of steps `control`, one after the other, whatever comes of each; no host or
    balancer can be asked.
    """
    tasks = [{"control": word, "ignore_errors": True} for word in words]
    return playground.steps(*tasks, variables=NOBODY_ANSWERS).of("control")


def test_without_a_rollout_every_word_is_refused_and_nothing_touched(
    playground: Playground,
) -> None:
    outcome = playground.run("progressive.rollout.promote", {"rollout_platform": None})
    assert outcome.rc != 0
    assert (
        "shop" in outcome.failed.msg
        and "rollout.yml" in outcome.failed.msg
        and outcome.failed.msg.endswith("[PR-700]")
    )
    assert playground.files() == set()


def test_a_word_is_written_down_for_whoever_runs_the_rollout(playground: Playground) -> None:
    begun = playground.steps({"begin": {}}, {"control": {"command": "pause"}})
    assert begun.rc == 0, begun.output
    pause = begun.one("control")
    assert pause.changed and pause.result["running"] and pause.result["number"] == 1
    assert pause.msg.startswith(
        "shop 1: command 'pause' recorded; the run of "
    ) and pause.msg.endswith(" obeys shortly; then resume would continue, abort would roll back")
    told = "no run is active, it takes effect on the next run"

    again, resume, twice, abort, early, misspelt, forced = say(
        playground,
        {"command": "pause"},
        {"command": "resume", "why": "lunch is over"},
        {"command": "resume"},
        {"command": "abort"},
        {"command": "promote"},
        {"command": "promot"},
        {"command": "skip", "force": True},
    )
    assert (again.changed, again.result["number"]) == (False, 1)
    assert "command 'pause' was sent by" in again.msg and again.msg.endswith(
        f"still pending; {told}"
    )
    assert (resume.changed, resume.result["number"], resume.result["running"]) == (True, 2, False)
    assert resume.msg == f"shop 1: command 'resume' recorded; {told}"
    assert (resume.result["rollout"]["phase"], resume.result["rollout"]["fleet"]) == (
        "progressing",
        {},
    )
    assert (twice.changed, twice.result["number"]) == (False, 2)
    assert abort.changed
    # After a resume that is not obeyed yet comes an abort, which leaves nothing to promote.
    assert early.msg.startswith("cannot promote: shop 1 is rolling back: ") and early.msg.endswith(
        "use hold to stop here [PR-700]"
    )
    assert "rollout_command: 'promot' must be one of pause, resume, " in misspelt.msg
    assert "rollout_force: only promote can be forced, not skip" in forced.msg

    words = heard(playground)
    assert [word["word"] for word in words] == ["pause", "resume", "abort"]
    assert (
        words[1]["why"] == "lunch is over"
        and "ansible-playbook" in words[1]["by"]
        and words[1]["at"] >= words[0]["at"] > 0
    )
    assert {word["rollout"] for word in words} == {resume.result["rollout"]["id"]}


def test_check_mode_says_nothing_and_a_playbook_says_its_word(playground: Playground) -> None:
    assert playground.steps({"begin": {}}).rc == 0
    pause = {"rollout_platform": None, "rollout_why": "lunch"}
    checked = playground.run("progressive.rollout.pause", pause, "--check").one("control")
    assert (
        checked.changed
        and checked.result["number"] is None
        and "command 'pause' would be recorded" in checked.msg
    )
    assert heard(playground) == []
    outcome = playground.run("progressive.rollout.pause", pause)
    assert outcome.rc == 0 and not outcome.of("begin"), outcome.output
    assert [(word["word"], word["why"]) for word in heard(playground)] == [("pause", "lunch")]


def test_where_nobody_runs_it_the_play_that_says_the_word_goes_on_with_it(
    playground: Playground,
) -> None:
    one = {"rollout_replicas": 1}
    assert playground.steps({"begin": {}}, variables=one).rc == 0
    outcome = playground.run(
        "progressive.rollout.control", {**one, "rollout_command": "promote_full"}
    )
    assert outcome.rc == 0 and outcome.rollout["outcome"] == "promoted", outcome.output
    assert playground.revisions() == ["1"]


def test_a_reason_on_the_command_line_is_kept_whole(playground: Playground) -> None:
    """Ansible splits it at its blanks."""
    assert playground.steps({"begin": {}}).rc == 0
    outcome = playground.run(
        "progressive.rollout.pause", {}, "-e", "rollout_why=wrong prices shown"
    )
    assert outcome.rc == 0, outcome.output
    assert [word["why"] for word in heard(playground)] == ["wrong prices shown"]


PARKED = {
    "rollout_revision": "2",
    "rollout_strategy": "canary",
    "rollout_steps": [{"set_replicas": 1}, {"pause": {}}],
    "rollout_wait": 0,
}


def alone(playground: Playground) -> dict[str, None]:
    """Variables that leave the service and the journal, and no other."""
    return dict.fromkeys(playground.variables.keys() - {"rollout_service", "rollout_store"})


def test_a_word_to_a_parked_rollout_needs_the_service_and_the_journal_only(
    playground: Playground,
) -> None:
    """It goes on with what it began with: neither strategy, steps nor platform have to be given."""
    platform = {**playground.variables["rollout_platform"], "env": {"TOKEN": "swordfish"}}
    assert playground.run().rc == 0
    parked = playground.run(variables={**PARKED, "rollout_platform": platform})
    assert parked.rc == 0 and parked.rollout["phase"] == "paused", parked.output
    scaled = {**alone(playground), "rollout_replicas": 1000}
    refused = playground.run("progressive.rollout.scale", scaled)
    assert refused.rc != 0 and "needs 1" in refused.failed.msg, refused.output
    assert "PR-701" in refused.failed.msg and playground.journal()["rollout"]["phase"] == "paused"
    outcome = playground.run("progressive.rollout.promote", alone(playground))
    assert outcome.rc == 0 and outcome.rollout["outcome"] == "promoted", outcome.output
    assert playground.revisions() == ["2"] * 3
    for record in playground.living():
        assert b"TOKEN=swordfish" in Path(f"/proc/{record['pid']}/environ").read_bytes()
    assert playground.journal()["history"][-1]["given"] == {}


def test_a_word_that_ends_red_does_not_act_later(playground: Playground) -> None:
    """What is secret is not in the journal. Without it nobody can go on, and the command is
    withdrawn.
    """
    assert playground.run().rc == 0
    hook = {
        "driver": "web",
        "url": "http://127.0.0.1:1/",
        "headers": {"Authorization": "swordfish"},
        "method": "GET",
    }
    parked = {**PARKED, "rollout_gates": {"rollback": [{**hook, "interval": "1h"}]}}
    assert playground.run(variables=parked).rc == 0
    refused = playground.run("progressive.rollout.promote", alone(playground))
    assert refused.rc != 0
    assert (
        "rollout_gates.rollback[0].headers: secret" in refused.output
        and "[PR-116]" in refused.output
    )
    assert "[PR-702]" in refused.output
    again = playground.run(variables=parked)
    assert again.rc == 0 and again.rollout["phase"] == "paused", again.output
    assert not any(
        "swordfish" in path.read_text() for path in playground.store.glob("**/*") if path.is_file()
    )

    given = {**alone(playground), "rollout_gates": parked["rollout_gates"]}
    outcome = playground.run("progressive.rollout.promote", given)
    assert outcome.rc == 0 and outcome.rollout["outcome"] == "promoted", outcome.output


def test_a_word_that_cannot_be_withdrawn_does_not_hide_why_the_rollout_failed(
    playground: Playground,
) -> None:
    assert playground.run().rc == 0 and playground.run(variables=PARKED).rc == 0
    lost = playground.home / "file"
    lost.touch()
    path = f"{{{{ '{lost}/store' if _rolling_sent is defined else '{playground.store}' }}}}"
    given = {**alone(playground), "rollout_store": {"driver": "file", "path": path}}
    refused = playground.run("progressive.rollout.promote", given)
    assert refused.rc != 0
    why, _and, rest = refused.failed.msg.partition(". The command could not be withdrawn")
    assert "[PR-" in why and rest.startswith(", and the next run obeys it"), refused.output
