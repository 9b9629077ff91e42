# SPDX-License-Identifier: GPL-3.0-or-later
"""What the sender of a command is told by the run that it continues itself."""

from __future__ import annotations

import json
import typing as t
from collections.abc import Iterator

import pytest
from ansible_collections.progressive.rollout.tests.support.playbook import Playground

PARKED = {
    "rollout_revision": "2",
    "rollout_strategy": "canary",
    "rollout_steps": [{"set_replicas": 1}, {"pause": {}}],
    "rollout_wait": 0,
}


@pytest.fixture
def parked() -> Iterator[Playground]:
    """A canary that waits at its pause, and no run."""
    with Playground(hosts=2) as made:
        assert made.run().rc == 0 and made.run(variables=PARKED).rc == 0
        yield made


def overtaken(playground: Playground, earlier: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return variables with which another operator's command is read before the one that is sent,
    though it is seen only then: of no rollout first, and of this one from then on.
    """
    words = playground.store / "journal" / "shop.words.jsonl"
    rollout = playground.journal()["rollout"]["id"]
    command = {"number": 1, "rollout": "ROLLOUT", "by": "another", "at": 1.0, **earlier}
    words.write_text(json.dumps(command) + "\n")
    seen = f"sed -i s/ROLLOUT/{rollout}/ {words}; echo {playground.store}"
    path = (
        f"{{{{ lookup('pipe', '{seen}') if _rolling_sent is defined else '{playground.store}' }}}}"
    )
    return {**PARKED, "rollout_store": {"driver": "file", "path": path}}


def test_a_sender_whose_own_run_refuses_its_command_fails(parked: Playground) -> None:
    given = overtaken(parked, {"word": "exclude", "place": "web2"})
    sent = {"rollout_command": "exclude", "rollout_host": "web1"}
    outcome = parked.run("progressive.rollout.control", {**given, **sent})
    assert outcome.rc != 0, outcome.output
    assert "command was refused: no other host is left" in outcome.failed.msg
    assert outcome.failed.msg.endswith("[PR-700]")
    assert parked.journal()["rollout"]["phase"] == "paused", "it goes on as before"
