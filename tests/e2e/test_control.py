# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An operator's word as it is said: refused, or written down for whoever runs the rollout."""

from __future__ import annotations

import json
import typing as t

from ansible_collections.progressive.rollout.tests.playbook import Playground, Task

NOBODY_ANSWERS = {
    "rollout_platform": {"driver": "away"},
    "rollout_traffic": {"driver": "haproxy", "socket": ["127.0.0.1:1"], "backend": "shop"},
}


def heard(playground: Playground) -> list[dict[str, t.Any]]:
    """The words in the journal."""
    path = playground.store / "journal" / "shop.words.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def say(playground: Playground, *words: dict[str, t.Any]) -> list[Task]:
    """The results of steps `control`, one after the other, whatever comes of each; no host or balancer can be asked."""
    tasks = [{"control": word, "ignore_errors": True} for word in words]
    return playground.steps(*tasks, variables=NOBODY_ANSWERS).of("control")


def test_without_a_rollout_every_word_is_refused_and_nothing_touched(playground: Playground) -> None:
    outcome = playground.run("progressive.rollout.promote", {"rollout_platform": None})
    assert outcome.rc != 0
    assert "shop: promote makes no sense now: no rollout is under way; rollout.yml begins one" in outcome.failed.msg
    assert playground.files() == set()


def test_a_word_is_written_down_for_whoever_runs_the_rollout(playground: Playground) -> None:
    begun = playground.steps({"begin": {}}, {"control": {"command": "pause"}})
    assert begun.rc == 0, begun.output
    pause = begun.one("control")
    assert pause.changed and pause.result["running"] and pause.result["number"] == 1
    assert pause.msg.startswith("shop 1: pause is said; the run of ") and pause.msg.endswith(" obeys it in a moment")
    told = "nobody runs it now: it obeys when it is next run"

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
    assert "pause was said by" in again.msg and again.msg.endswith(f"before and is not obeyed yet; {told}")
    assert (resume.changed, resume.result["number"], resume.result["running"]) == (True, 2, False)
    assert resume.msg == f"shop 1: resume is said; {told}"
    assert (resume.result["rollout"]["phase"], resume.result["rollout"]["fleet"]) == ("progressing", {})
    assert (twice.changed, twice.result["number"]) == (False, 2)
    assert abort.changed
    # After a resume that is not obeyed yet comes an abort, which leaves nothing to promote.
    assert early.msg.startswith("shop 1 is rolling back: promote makes no sense now: it is on its way back; hold stops it")
    assert "rollout_command: 'promot' is none of pause, resume, " in misspelt.msg
    assert "rollout_force: skip cannot be forced, only promote can; leave it out" in forced.msg

    words = heard(playground)
    assert [word["word"] for word in words] == ["pause", "resume", "abort"]
    assert words[1]["why"] == "lunch is over" and "ansible-playbook" in words[1]["by"] and words[1]["at"] >= words[0]["at"] > 0
    assert {word["rollout"] for word in words} == {resume.result["rollout"]["id"]}


def test_check_mode_says_nothing_and_a_playbook_says_its_word(playground: Playground) -> None:
    assert playground.steps({"begin": {}}).rc == 0
    pause = {"rollout_platform": None, "rollout_why": "lunch"}
    checked = playground.run("progressive.rollout.pause", pause, "--check").one("control")
    assert checked.changed and checked.result["number"] is None and "pause would be said" in checked.msg
    assert heard(playground) == []
    outcome = playground.run("progressive.rollout.pause", pause)
    assert outcome.rc == 0 and not outcome.of("begin"), outcome.output
    assert [(word["word"], word["why"]) for word in heard(playground)] == [("pause", "lunch")]


def test_where_nobody_runs_it_the_play_that_says_the_word_goes_on_with_it(playground: Playground) -> None:
    one = {"rollout_replicas": 1}
    assert playground.steps({"begin": {}}, variables=one).rc == 0
    outcome = playground.run("progressive.rollout.control", {**one, "rollout_command": "promote_full"})
    assert outcome.rc == 0 and outcome.rollout["outcome"] == "promoted", outcome.output
    assert playground.revisions() == ["1"]
