# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands that operators send by playbooks of their own. What each of them leads to:
tests/unit/test_control.py, tests/property/test_simulated_strategies.py.
"""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

from ansible_collections.progressive.rollout.tests.support.playbook import Playground

PLAYBOOKS = "progressive.rollout."


def sent(playground: Playground) -> list[tuple[str, str]]:
    """The commands in the journal, and their reasons."""
    path = playground.store / "journal" / "shop.words.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [(line["word"], line["why"]) for line in lines]


def test_a_playbook_sends_a_command_and_goes_on_with_it(playground: Playground) -> None:
    """Its reason is kept whole, although Ansible splits it at its blanks."""
    playground.variables["rollout_replicas"] = 1
    assert playground.steps({"begin": {}}).rc == 0
    pause = {"rollout_platform": None}
    outcome = playground.run(f"{PLAYBOOKS}pause", pause, "-e", "rollout_why=wrong prices shown")
    assert outcome.rc == 0 and not outcome.of("begin"), outcome.output
    assert sent(playground) == [("pause", "wrong prices shown")]
    outcome = playground.run(f"{PLAYBOOKS}control", {"rollout_command": "promote_full"})
    assert outcome.rc == 0 and outcome.rollout["outcome"] == "promoted", outcome.output
    assert playground.revisions() == ["1"]


PARKED = {
    "rollout_revision": "2",
    "rollout_strategy": "canary",
    "rollout_steps": [{"set_replicas": 1}, {"pause": {}}],
    "rollout_wait": 0,
}
HOOK: dict[str, t.Any] = {
    "driver": "web",
    "url": "http://127.0.0.1:1/",
    "headers": {"Authorization": "swordfish"},
    "method": "GET",
    "interval": "1h",
}


def test_a_command_needs_the_service_and_the_journal_only(playground: Playground) -> None:
    """The rollout goes on with what it began with: neither strategy, steps nor platform have to be
    given. What is secret is not in the journal: without it nobody can go on, and the command is
    withdrawn, so that it does not act later.
    """
    given = set(playground.variables) - {"rollout_service", "rollout_store"}
    alone: dict[str, t.Any] = dict.fromkeys(given)
    platform = {**playground.variables["rollout_platform"], "env": {"TOKEN": "trout"}}
    gates = {"rollback": [HOOK]}
    parked = {**PARKED, "rollout_platform": platform, "rollout_gates": gates}
    assert playground.run().rc == 0
    assert playground.run(variables=parked).rollout["phase"] == "paused"

    refused = playground.run(f"{PLAYBOOKS}promote", alone)
    assert refused.rc != 0
    assert "rollout_gates.rollback[0].headers: secret" in refused.output
    assert "[PR-116]" in refused.output and "[PR-702]" in refused.output
    again = playground.run(variables=parked)
    assert again.rc == 0 and again.rollout["phase"] == "paused", again.output
    files = [path for path in playground.store.glob("**/*") if path.is_file()]
    assert not any("swordfish" in path.read_text() for path in files)

    alone["rollout_gates"] = gates
    scaled = playground.run(f"{PLAYBOOKS}scale", {**alone, "rollout_replicas": 1000})
    assert scaled.rc != 0 and "needs 1" in scaled.failed.msg, scaled.output
    assert "PR-701" in scaled.failed.msg and playground.journal()["rollout"]["phase"] == "paused"

    # Whatever keeps it from being withdrawn does not hide why the rollout failed.
    lost = playground.home / "file"
    lost.touch()
    path = f"{{{{ '{lost}/store' if _rolling_sent is defined else '{playground.store}' }}}}"
    store = {"rollout_store": {"driver": "file", "path": path}}
    failed = playground.run(f"{PLAYBOOKS}promote", {**alone, **store})
    why, _and, rest = failed.failed.msg.partition(". The command could not be withdrawn")
    assert "[PR-" in why and rest.startswith(", and the next run obeys it"), failed.output

    outcome = playground.run(f"{PLAYBOOKS}promote", alone)
    assert outcome.rc == 0 and outcome.rollout["outcome"] == "promoted", outcome.output
    assert playground.revisions() == ["2"] * 3
    for record in playground.living():
        assert b"TOKEN=trout" in Path(f"/proc/{record['pid']}/environ").read_bytes()
    assert playground.journal()["history"][-1]["given"] == {}
