# SPDX-License-Identifier: GPL-3.0-or-later
"""What who follows a rollout learns from its timeline."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import InputError
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.step.follower import (
    Heard,
    known,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.record import (
    Outcome,
    Record,
    Rollout,
)

WAIT = {"kind": "wait", "what": "waiting at step 2 (approval): for promote", "person": True}


def line(text: str) -> dict[str, t.Any]:
    return {"kind": "line", "text": text}


def test_lines_are_shown_once_and_of_the_past_the_last() -> None:
    heard, timeline = Heard(), [{"kind": "begin"}, line("one"), line("two")]
    assert heard.take(timeline) == ["two"]
    assert heard.take(timeline) == []
    assert heard.take([*timeline, line("three"), {"kind": "end"}, line("four")]) == [
        "three",
        "four",
    ]


@pytest.mark.parametrize(
    ("events", "waits"),
    [
        ([WAIT], WAIT["what"]),
        ([WAIT, line("told"), {"kind": "share"}], WAIT["what"]),
        ([WAIT, {"kind": "wait", "what": "waiting at step 3 (pause)", "person": False}], ""),
        ([{"kind": "wait", "what": "of an earlier version"}], ""),
        ([WAIT, {"kind": "word", "word": "promote", "refused": ""}], ""),
        ([WAIT, {"kind": "word", "word": "retry", "refused": "it waits"}], WAIT["what"]),
        ([WAIT, {"kind": "stage"}], ""),
        ([WAIT, {"kind": "resume"}], ""),
        ([WAIT, {"kind": "end"}], ""),
        ([WAIT, {"kind": "parked", "reason": "parked"}], "parked"),
    ],
)
def test_who_is_waited_for(events: list[dict[str, t.Any]], waits: str) -> None:
    heard = Heard()
    heard.take(events)
    assert heard.waits == waits
    one_by_one = Heard()
    for number in range(len(events)):
        one_by_one.take(events[: number + 1])
    assert one_by_one.waits == waits


def test_a_rollout_is_found_when_others_have_begun_since() -> None:
    record = Record("shop", rollout=Rollout("shop-1", "1", 1, 3, "rolling", None, 0.0))
    assert known(record, "shop-1") is record.rollout
    record.close(Outcome.ROLLED_BACK, "it crashed", 1.0)
    record.rollout = Rollout("shop-2", "2", 2, 3, "rolling", None, 2.0)
    found = known(record, "shop-1")
    assert (found.over, found.outcome, found.reason) == (True, "rolled_back", "it crashed")
    with pytest.raises(InputError, match="has no rollout 'shop-3'") as caught:
        known(record, "shop-3")
    assert caught.value.id == "PR-130"


def test_ids_of_one_second_and_process_differ() -> None:
    record = Record("shop")
    ids = []
    for revision in "1234":
        ids.append(record.new_id(1000.5, 77))
        record.rollout = Rollout(ids[-1], revision, 1, 3, "rolling", None, 0.0)
        record.close(Outcome.PROMOTED, "", 1.0)
    stamp = "shop-19700101T001640-77"
    assert ids == [stamp, f"{stamp}.2", f"{stamp}.3", f"{stamp}.4"]
