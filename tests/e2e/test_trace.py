# SPDX-License-Identifier: GPL-3.0-or-later
"""With -vvv a run shows every decision, and every call outside with its time; without it shows
none.
"""

from __future__ import annotations

import re

import pytest
from ansible_collections.progressive.rollout.tests.support.playbook import Playground
from ansible_collections.progressive.rollout.tests.support.waiting import until

TIME = r" \(\d+(\.\d)? m?s\)$"


def found(what: str, output: str) -> list[str]:
    """Return the lines that begin like this."""
    return re.findall(rf"^{what}.*$", output, re.MULTILINE)


@pytest.mark.essential
def test_every_decision_and_every_call_is_shown(playground: Playground) -> None:
    secret = "4dm1n-pw-of-the-shop"
    playground.variables["rollout_platform"]["env"] = {"PASSWORD": secret}
    plain = playground.run().output
    shown = playground.run("progressive.rollout.rollout", {"rollout_revision": "2"}, "-vvv").output
    rollout = playground.journal()["history"][-1]["id"]
    for host in playground.hosts:
        calls = found(f"{host}: process", shown)
        assert calls and all(re.search(TIME, line) for line in calls), shown
    assert found("controller: store commit" + TIME, shown)
    for event in playground.timeline(rollout):
        if event["kind"] == "decision":
            assert f"decision: reason={event['reason']}" in shown
    assert found("decision: reason=", shown)
    assert not re.search(TIME, plain, re.MULTILINE) and "decision: " not in plain
    assert secret not in shown


def test_what_a_run_that_hangs_waits_for_is_shown_while_it_does(playground: Playground) -> None:
    gate = {"driver": "command", "command": ["sleep", "3"], "answer_within": "30s"}
    variables = {"rollout_gates": {"post_rollout": [gate]}}
    run = playground.start("progressive.rollout.rollout", variables, "-vvv")
    late = r".*: sleep: no answer after \d+\.\d s"
    until(
        lambda: run.process.poll() is not None or found(late, run.output),
        "the call is shown before it ends",
    )
    assert not found(r".*: sleep: ended", run.output)
    assert run.wait().rc == 0
    assert found(r".*: sleep: ended with 0 \(\d+\.\d s\)$", run.output)
