# SPDX-License-Identifier: GPL-3.0-or-later
"""Whoever reads the output of a run may leave: the run goes on, and ends with its own exit status."""

from __future__ import annotations

from ansible_collections.progressive.rollout.tests.support.playbook import ROLLOUT, Playground


def test_readers_that_leave(playground: Playground) -> None:
    def read_by(reader: str, playbook: str = ROLLOUT, **variables: object) -> int:
        return playground.start(playbook, variables, reader=reader).wait(60).rc

    assert read_by("true") == 0  # it leaves at once
    assert playground.revisions() == ["1"] * 3
    assert playground.journal()["rollout"]["outcome"] == "promoted"
    assert read_by("grep -q new", rollout_revision="2") == 0
    assert playground.revisions() == ["2"] * 3
    assert read_by("head -1", "progressive.rollout.status") == 0
    assert read_by("head -1", rollout_budget={"max_surge": 0, "max_unavailable": 0}) == 2
