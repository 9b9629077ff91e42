# SPDX-License-Identifier: GPL-3.0-or-later
"""A rollout that another run works on, followed to its end; and a service after its promotion."""

from __future__ import annotations

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
    """By the playbooks that show it, and that send a command; what becomes of it is theirs."""
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

    run = playground.start(variables={**CANARY, "rollout_revision": "3"})
    until(lambda: "for promote" in run.output, "it waits")
    aborted = playground.run(
        "progressive.rollout.abort", {**CANARY, **FOLLOW, "rollout_why": "wrong prices"}
    )
    assert aborted.rc == 0 and aborted.one("follow").result["outcome"] == "aborted", aborted.output
    assert run.wait().rc != 0
    after = playground.run(STATUS, {**CANARY, **FOLLOW})
    assert after.rc == 0 and not after.of("follow")


def test_a_failure_is_told_in_one_block_and_its_results_are_small(playground: Playground) -> None:
    one = {"rollout_replicas": 1, "rollout_failure_limit": 1}
    assert playground.run(variables=one).rc == 0
    before = playground.living()
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
    message = outcome.failed.msg
    for word in ("shop 2:", "(rollout_failure_limit 1)", "on web", "now rolled back to 1"):
        assert word in message
    assert playground.living() == before
    assert playground.journal()["rollout"]["outcome"] == "rolled_back"


def test_an_alarm_after_the_promotion_rolls_back(playground: Playground) -> None:
    alarm = playground.home / "alarm"
    gate = {"driver": "command", "command": ["test", "-e", str(alarm)], "interval": "1s"}
    variables = {
        "rollout_revision": "2",
        "rollout_replicas": 1,
        "rollout_watch": "1h",
        "rollout_gates": {"rollback": [gate]},
    }
    assert playground.run(variables={"rollout_replicas": 1}).rc == 0
    assert playground.run(variables=variables).rc == 0
    alarm.touch()
    outcome = playground.run(WATCH, variables)
    assert outcome.rc != 0 and outcome.failed.msg.endswith("[PR-706]"), outcome.output
    assert "shop 2: watched until" in outcome.output
    why = "rolled back from 2: rollout_watch: rollback requested by gate rollback 1 (command)"
    assert playground.journal()["history"][-1]["reason"] == why
    assert playground.revisions() == ["1"]
