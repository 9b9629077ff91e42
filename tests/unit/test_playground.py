# SPDX-License-Identifier: GPL-3.0-or-later
"""What end-to-end tests read while rollouts write it."""

from __future__ import annotations

from ansible_collections.progressive.rollout.tests.support.playbook import Playground


def test_of_a_timeline_that_is_being_written_the_whole_events_are_read() -> None:
    with Playground() as playground:
        folder = playground.store / "journal" / "shop"
        folder.mkdir(parents=True)
        (folder / "r1.jsonl").write_text('{"n": 1}\n{"n": 2}\n{"n"')
        assert playground.timeline("r1") == [{"n": 1}, {"n": 2}]
