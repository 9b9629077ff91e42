# SPDX-License-Identifier: GPL-3.0-or-later
"""What operators do to a service when something is wrong already: steps by hand, twice, or in an
order nobody planned.
"""

from __future__ import annotations

import typing as t

from ansible_collections.progressive.rollout.tests.support.haproxy import HAProxy
from ansible_collections.progressive.rollout.tests.support.playbook import (
    Outcome,
    Playground,
)
from ansible_collections.progressive.rollout.tests.support.waiting import until

ROLLBACK = "progressive.rollout.rollback"
RESTART = "progressive.rollout.restart"


def broken(playground: Playground) -> dict[str, t.Any]:
    """The variables of a revision whose instances end at once."""
    return {
        "rollout_revision": "broken",
        "rollout_failure_limit": 1,
        "rollout_platform": {**playground.variables["rollout_platform"], "command": ["/bin/false"]},
    }


def to(playground: Playground, revision: str) -> Outcome:
    outcome = playground.run(variables={"rollout_revision": revision})
    assert outcome.rc == 0, outcome.output
    return outcome


def test_a_rollback_after_one_that_was_automatic_changes_nothing(playground: Playground) -> None:
    to(playground, "1")
    to(playground, "2")
    failed = playground.run(variables=broken(playground))
    assert failed.rc != 0 and "now rolled back to 2" in failed.failed.msg
    for options in (("--check",), ()):
        again = playground.run(ROLLBACK, None, *options)
        assert again.rc == 0 and not again.one("rollback").changed, again.output
        assert "was already rolled back to 2" in again.one("rollback").msg
    assert playground.revisions() == ["2"] * 3


def test_a_rollback_after_a_restart_goes_to_the_revision_before(playground: Playground) -> None:
    to(playground, "1")
    to(playground, "2")
    assert playground.run(RESTART, {"rollout_revision": None}).rc == 0
    assert playground.run(ROLLBACK).rc == 0
    assert playground.revisions() == ["1"] * 3


def test_a_rollback_after_a_failure_that_was_left_goes_to_the_stable_revision(
    playground: Playground,
) -> None:
    to(playground, "1")
    to(playground, "2")
    left = {
        **broken(playground),
        "rollout_on_failure": "continue",
        "rollout_progress_deadline": "1s",
    }
    left["rollout_platform"] = {**left["rollout_platform"], "command": ["/bin/sleep", "600"]}
    assert playground.run(variables={**left, "rollout_health": {"tcp": True}}).rc != 0
    assert playground.revisions() == ["2", "2", "2", "broken"]
    checked = playground.run(ROLLBACK, None, "--check", "--diff").one("rollback")
    assert checked.result["diff"]["after"] == "shop 2: 3\n"
    assert playground.run(ROLLBACK).rc == 0
    assert playground.revisions() == ["2"] * 3
    assert not playground.run(ROLLBACK).one("rollback").changed


def test_a_first_deployment_that_failed_and_was_left_is_gone_back_to(
    playground: Playground,
) -> None:
    """What of it serves must not go because the next revision fails, too."""
    platform = playground.variables["rollout_platform"]
    halting = [
        "/bin/sh",
        "-c",
        '[ "$SLOT" = 0 ] && exec sleep 600; exec "$@"',
        "sh",
        *platform["command"],
    ]
    first = {"rollout_platform": {**platform, "command": halting}, "rollout_health": {"tcp": True}}
    left = playground.run(
        variables={**first, "rollout_on_failure": "continue", "rollout_progress_deadline": "2s"}
    )
    assert left.rc != 0 and playground.journal()["stable"] is None, left.output
    failed = playground.run(
        variables={
            **broken(playground),
            "rollout_health": {"tcp": True},
            "rollout_progress_deadline": "2s",
        }
    )
    assert failed.rc != 0 and playground.revisions() == ["1"] * 3, failed.output


def test_scaling_another_revision_leaves_the_stable_one_as_it_is(playground: Playground) -> None:
    to(playground, "1")
    outcome = playground.steps({"scale": {"revision": "2", "replicas": 1}})
    assert outcome.rc == 0 and outcome.rollout["stable"] == "1", outcome.output
    assert playground.revisions() == ["1", "1", "1", "2"]
    assert playground.run(ROLLBACK).rc == 0
    assert playground.revisions() == ["1", "1", "1"]


def test_scaling_the_stable_revision_within_a_rollout_starts_none_of_the_new_one(
    playground: Playground,
) -> None:
    to(playground, "1")
    outcome = playground.steps(
        {"begin": {"revision": "2"}}, {"scale": {"revision": "1", "replicas": 4}}
    )
    assert outcome.rc == 0, outcome.output
    assert playground.revisions() == ["1"] * 4


def test_steps_that_refuse_their_input_touch_nothing(playground: Playground) -> None:
    platform = {**playground.variables["rollout_platform"], "hosts": "nobody"}
    for step in ("replace", "rollback", "scale", "promote", "finish", "traffic"):
        outcome = playground.steps({step: {"platform": platform}})
        assert outcome.rc != 0 and "rollout_platform.hosts: 'nobody'" in outcome.failed.msg
    assert playground.files() == set()


def test_who_is_refused_leaves_no_lease(playground: Playground) -> None:
    """Otherwise a word that is said on another machine would be left to a run that is over."""
    refused = {"begin": {"revision": "2"}, "ignore_errors": True}
    outcome = playground.steps({"begin": {}}, {"info": {}}, refused, {"info": {}})
    assert "rollout of shop 1 is in progress" in outcome.of("begin")[1].msg, outcome.output
    assert [bool(task.result["lease"]) for task in outcome.of("info")] == [True, False]


def test_a_drain_that_does_not_come_to_an_end_says_of_whom(playground: Playground) -> None:
    platform = playground.variables["rollout_platform"]
    platform["env"] = {"STOP_DELAY": "600"}
    platform["stop_timeout"] = "1h"
    to(playground, "1")
    outcome = playground.steps({"drain": {"instances": ["shop-1"], "progress_deadline": "1s"}})
    assert outcome.rc != 0 and "not within 1 s: shop-1 is draining" in outcome.failed.msg


def test_check_mode_of_a_rollout_that_is_to_be_rolled_back_tells_so(playground: Playground) -> None:
    to(playground, "1")
    given = playground.killed_in_rollback()
    checked = playground.run("progressive.rollout.rollout", given, "--check", "--diff")
    for step in ("begin", "replace"):
        assert checked.one(step).result["diff"]["after"] == "shop 1: 3\n", checked.output


def test_status_tells_what_it_knows_while_a_load_balancer_and_a_host_are_down(
    playground: Playground,
) -> None:
    balancer = HAProxy()
    try:
        playground.variables["rollout_traffic"] = {
            "driver": "haproxy",
            "socket": balancer.api,
            "backend": "shop",
        }
        to(playground, "1")
        up = playground.steps({"info": {}}).one("info").result
        assert up["troubles"] == [] and {one["rotation"] for one in up["instances"]} == {"in"}
        balancer.stop()
        (playground.platform / "web3" / "shop" / "epoch").write_text("damaged")
        down = playground.run("progressive.rollout.status")
        assert down.rc == 0, down.output
        lines = down.one("info").result["lines"]
        assert "shop 1 promoted" in lines[0] and lines[1] == "lease: free"
        assert lines[2].startswith("unknown at present: cannot know what runs on web3: ")
        assert (
            lines[3].startswith("unknown at present: load balancer ")
            and "Connection refused" in lines[3]
        )
        assert lines[-1].startswith("1 runs ")
        assert len(lines) == 4 + 1 + 2 + 1, "a heading, and the instances of the others"
    finally:
        balancer.close()


def test_the_way_back_waits_for_a_load_balancer_that_restarts(playground: Playground) -> None:
    balancer = HAProxy()
    try:
        own = {"path": str(playground.home / "fences")}
        playground.variables["rollout_traffic"] = {
            "driver": "haproxy",
            "socket": balancer.api,
            "backend": "shop",
            **own,
        }
        to(playground, "1")
        playground.killed_in_rollback()
        balancer.stop()
        run = playground.start(ROLLBACK)
        until(
            lambda: "retrying:" in run.output or run.process.poll() is not None,
            "it waits, or gives up",
        )
        balancer.start()
        outcome = run.wait()
        assert outcome.rc == 0, outcome.output
        assert playground.journal()["rollout"]["outcome"] == "rolled_back"
    finally:
        balancer.close()
