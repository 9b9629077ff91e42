# SPDX-License-Identifier: GPL-3.0-or-later
"""A rollout that another run works on, followed to its end; and a service after its promotion."""

from __future__ import annotations

import typing as t

from ansible_collections.progressive.rollout.tests.support.playbook import (
    Outcome,
    Playground,
)
from ansible_collections.progressive.rollout.tests.support.waiting import until

FOLLOW = {"rollout_follow": True}
STATUS, WATCH = "progressive.rollout.status", "progressive.rollout.watch"
CANARY = {
    "rollout_revision": "2",
    "rollout_replicas": 2,
    "rollout_strategy": "canary",
    "rollout_steps": [{"set_replicas": 1}, {"pause": {}}],
    "rollout_wait": "5m",
}


def shown(outcome: Outcome) -> list[str]:
    """The lines of progress in what a run printed."""
    return [line for line in outcome.output.splitlines() if line.startswith("shop 1 -> 2  ")]


def test_a_rollout_is_followed_to_a_wait_and_to_its_end(playground: Playground) -> None:
    assert playground.run(variables={"rollout_replicas": 2}).rc == 0
    run = playground.start(variables=CANARY)
    until(lambda: "new 0/1 ready" in run.output, "the rollout begins")
    waits = playground.run(STATUS, {**CANARY, **FOLLOW})
    assert waits.rc == 0 and waits.one("follow").result["waiting"] is True, waits.output
    assert "to continue: ansible-playbook progressive.rollout.promote" in waits.output
    alone = dict.fromkeys(playground.variables.keys() - {"rollout_service", "rollout_store"})
    follows = playground.run("progressive.rollout.promote", {**alone, **FOLLOW})
    assert follows.rc == 0, follows.output
    assert follows.one("follow").result["outcome"] == "promoted"
    done = run.wait()
    assert done.rc == 0 and "shop 2 promoted: 2 instances replaced" in follows.output
    assert shown(follows) and set(shown(follows)) < set(shown(done))
    after = playground.run(STATUS, {**CANARY, **FOLLOW})
    assert after.rc == 0 and not after.of("follow")


def test_who_follows_fails_as_the_rollout_does(playground: Playground) -> None:
    assert playground.run(variables={"rollout_replicas": 2}).rc == 0
    run = playground.start(variables=CANARY)
    until(lambda: "for promote" in run.output, "it waits")
    paused = playground.run(
        "progressive.rollout.abort", {**CANARY, **FOLLOW, "rollout_why": "wrong prices"}
    )
    assert paused.rc == 0 and paused.one("follow").result["outcome"] == "aborted", paused.output
    assert run.wait().rc != 0

    run = playground.start(variables={**CANARY, "rollout_revision": "3"})
    until(lambda: "for promote" in run.output, "it waits")
    # the follower begins with a rollout that nobody aborts but itself later: by the id
    follower = playground.start(
        [
            {
                "hosts": "localhost",
                "gather_facts": False,
                "tasks": [
                    {
                        "progressive.rollout.control": {
                            "service": "shop",
                            "store": "{{ rollout_store }}",
                            "command": "abort",
                        },
                        "register": "sent",
                    },
                    {
                        "progressive.rollout.follow": {
                            "service": "shop",
                            "store": "{{ rollout_store }}",
                            "id": "{{ sent.rollout.id }}",
                        }
                    },
                ],
            }
        ]
    ).wait()
    assert follower.rc != 0 and follower.failed.msg.endswith("[PR-705]"), follower.output
    assert "shop 3 aborted, back to 1" in follower.failed.msg
    assert run.wait().rc != 0


def test_a_rollout_that_nobody_works_on_is_not_followed_for_ever(playground: Playground) -> None:
    assert playground.run(variables={"rollout_replicas": 2}).rc == 0
    timed = {**CANARY, "rollout_steps": [{"set_replicas": 1}, {"pause": "1h"}]}
    run = playground.start(variables=timed)
    until(lambda: "waiting at step 2 pause" in run.output, "it waits")
    follower = playground.start(STATUS, {**timed, **FOLLOW})
    until(lambda: "TASK [progressive.rollout.rolling : Follow" in follower.output, "it follows")
    run.kill()
    outcome = follower.wait()
    assert outcome.rc != 0 and outcome.failed.msg.endswith("[PR-704]"), outcome.output
    assert "to roll back: ansible-playbook progressive.rollout.abort" in outcome.output


def test_a_failure_is_told_in_one_block_and_its_results_are_small(playground: Playground) -> None:
    one = {"rollout_replicas": 1, "rollout_failure_limit": 1}
    assert playground.run(variables=one).rc == 0
    broken = "echo starting {revision}; echo cannot open /etc/shop.conf >&2; exit 3"
    platform = {
        **playground.variables["rollout_platform"],
        "command": ["/bin/sh", "-c", broken],
    }
    outcome = playground.run(
        variables={**one, "rollout_revision": "2", "rollout_platform": platform}
    )
    lines = outcome.output.splitlines()
    assert outcome.rc != 0 and outcome.output.count("consecutive instance failure") == 3
    assert len([line for line in lines if line.startswith("[ERROR]")]) == 1
    assert max(len(line) for line in lines) < 500
    (first,) = (
        n for n, line in enumerate(lines) if line.startswith("---- shop 2 rolled back to 1")
    )
    block = lines[first : lines.index("-" * 78, first)]
    assert [line[:12].strip() for line in block[1:]] == [
        "why",
        "where",
        "log",
        "",
        "whole log",
        "serves now",
        "look",
        "compare",
    ]
    assert block[4].strip() == "cannot open /etc/shop.conf"
    where = block[5].split()[-1].partition(":")[2]
    with open(where) as log:
        assert log.read() == "starting 2\ncannot open /etc/shop.conf\n"
    assert block[6].split()[-3:] == ["1:", "1", "ready"]


def watched(playground: Playground) -> dict[str, t.Any]:
    """Variables with a gate that wants a rollback as soon as there is a file `alarm`."""
    asks = ["test", "-e", str(playground.home / "alarm")]
    gate = {"driver": "command", "command": asks, "interval": "1s"}
    return {
        "rollout_revision": "2",
        "rollout_replicas": 1,
        "rollout_watch": "1h",
        "rollout_gates": {"rollback": [gate]},
    }


def test_an_alarm_after_the_promotion_rolls_back(playground: Playground) -> None:
    variables = watched(playground)
    assert playground.run(variables={"rollout_replicas": 1}).rc == 0
    assert playground.run(variables=variables).rc == 0
    first = playground.start(WATCH, variables)
    until(lambda: "shop 2: watched until" in first.output, "it watches")
    first.kill()
    assert not playground.journal()["rollout"]["kind"] == "rollback"
    (playground.home / "alarm").touch()
    outcome = playground.run(WATCH, variables)
    assert outcome.rc != 0 and outcome.failed.msg.endswith("[PR-706]"), outcome.output
    why = "rolled back from 2: rollout_watch: rollback requested by gate rollback 1 (command)"
    assert playground.journal()["history"][-1]["reason"] == why
    assert playground.revisions() == ["1"]
    again = playground.run(WATCH, variables)
    assert again.rc == 0 and "no promotion to watch" in again.output


def test_a_watch_ends_when_another_rollout_begins(playground: Playground) -> None:
    variables = watched(playground)
    assert playground.run(variables={"rollout_replicas": 1}).rc == 0
    assert playground.run(variables=variables).rc == 0
    watch = playground.start(WATCH, variables)
    until(lambda: "shop 2: watched until" in watch.output, "it watches")
    assert playground.run(variables={**variables, "rollout_revision": "3"}).rc == 0
    outcome = watch.wait()
    assert outcome.rc == 0 and "another rollout has begun" in outcome.output
    assert playground.revisions() == ["3"]


def test_a_watch_that_could_notice_nothing_is_refused(playground: Playground) -> None:
    assert playground.run(variables={"rollout_replicas": 1}).rc == 0
    refused = playground.run(WATCH, {"rollout_watch": "1h"})
    assert refused.rc != 0 and refused.failed.msg.startswith("rollout_watch: "), refused.output
    asked = {"driver": "command", "command": ["echo", "1"], "failure_condition": "result > 0"}
    tried = {"dry_run": True, "metrics": [{"name": "bad", **asked}]}
    refused = playground.run(WATCH, {"rollout_watch": "1h", "rollout_analysis": tried})
    assert "rollout_analysis is a dry run" in refused.failed.msg, refused.output
    held = {**watched(playground), "rollout_on_failure": "hold"}
    assert playground.run(variables=held).rc == 0
    (playground.home / "alarm").touch()
    kept = playground.run(WATCH, held)
    assert kept.rc != 0 and "rollout_on_failure" in kept.failed.msg, kept.output
    assert playground.revisions() == ["2"]
