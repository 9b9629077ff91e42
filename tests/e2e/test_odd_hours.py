# SPDX-License-Identifier: GPL-3.0-or-later
"""What operators do to a service when something is wrong already: steps by hand, twice, or in an
order nobody planned.
"""

from __future__ import annotations

from ansible_collections.progressive.rollout.tests.support.haproxy import HAProxy
from ansible_collections.progressive.rollout.tests.support.playbook import (
    Outcome,
    Playground,
)


def to(playground: Playground, revision: str) -> Outcome:
    outcome = playground.run(variables={"rollout_revision": revision})
    assert outcome.rc == 0, outcome.output
    return outcome


def test_steps_that_refuse_their_input_touch_nothing(playground: Playground) -> None:
    platform = {**playground.variables["rollout_platform"], "hosts": "nobody"}
    for step in ("replace", "rollback", "scale", "promote", "finish", "traffic"):
        outcome = playground.steps({step: {"platform": platform}})
        assert outcome.rc != 0 and "rollout_platform.hosts: 'nobody'" in outcome.failed.msg
    assert playground.files() == set()


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
        assert lines[0].startswith("unknown at present: cannot know what runs on web3: ")
        assert (
            lines[1].startswith("unknown at present: load balancer ")
            and "Connection refused" in lines[1]
        )
        assert "shop 1 promoted" in lines[2] and lines[3] == "lease: free"
        assert lines[-1].startswith("1 runs ")
        assert len(lines) == 4 + 1 + 2 + 1, "a heading, and the instances of the others"
    finally:
        balancer.close()
