# SPDX-License-Identifier: GPL-3.0-or-later
"""What who follows a rollout learns from its timeline."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.progressive.rollout.plugins.action import begin, follow
from ansible_collections.progressive.rollout.plugins.action import replace as replaces
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    InputError,
    RolloutFailed,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.step.follower import (
    Heard,
    known,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.record import (
    Outcome,
    Record,
    Rollout,
)
from ansible_collections.progressive.rollout.tests.support.memory import Service, World
from ansible_collections.progressive.rollout.tests.support.tasks import Tasks

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


@pytest.fixture
def shop() -> Service:
    """A canary of revision 2 that waits for an operator, and that no run works on."""
    service = Service(World(most=4, fewest=0), replicas=2)
    service.play(revision="1")
    waits = [{"set_replicas": 1}, {"pause": {}}]
    service.play(revision="2", strategy="canary", steps=waits)
    service.said.clear()
    return service


@pytest.mark.usefixtures("virtual_time")
def test_a_rollout_that_waits_for_a_person_is_no_failure(shop: Service) -> None:
    result = shop.step(follow)
    assert result["waiting"] is True and not result["changed"]
    ways = [line for line in shop.said if line.startswith("to ")]
    assert [line.partition(":")[0] for line in ways] == ["to continue", "to roll back"]


@pytest.mark.usefixtures("virtual_time")
@pytest.mark.parametrize("expected", ["promoted", "rolled_back"])
def test_an_abort_is_a_failure_where_a_promotion_is_expected(shop: Service, expected: str) -> None:
    assert shop.journal.open
    id = shop.journal.open.id
    shop.say("abort")
    with pytest.raises(RolloutFailed):
        shop.play(revision="2", strategy="canary", steps=[{"set_replicas": 1}, {"pause": {}}])
    asked = {"id": id, "expected": expected}
    if expected == "rolled_back":
        assert shop.step(follow, asked)["outcome"] == "aborted"
        return
    with pytest.raises(RolloutFailed, match="shop 2 aborted, back to 1") as failed:
        shop.step(follow, asked)
    assert failed.value.id == "PR-705"
    nothing = shop.step(follow)
    assert nothing["msg"].startswith("nothing to follow: shop 2 aborted, back to 1")


@pytest.mark.usefixtures("virtual_time")
def test_a_rollout_that_nobody_works_on_is_not_followed_for_ever() -> None:
    service = Service(World(most=4, fewest=0), replicas=2)
    service.play(revision="1")
    service.step(begin, revision="2")
    service.step(replaces, revision="2")
    lease = service.store.lease()
    assert lease is not None
    service.store.release(lease.token)  # as where its run was killed
    service.said.clear()
    with pytest.raises(
        RolloutFailed, match="shop 2 is progressing, and no run works on it"
    ) as left:
        service.step(follow)
    assert left.value.id == "PR-704"
    ways = [line.partition(":")[0] for line in service.said if line.startswith("to ")]
    assert ways == ["to continue", "to roll back"]


@pytest.mark.parametrize(
    ("word", "expected"),
    [("abort", "rolled_back"), ("hold", "held"), ("promote", "promoted"), ("retry", "promoted")],
)
def test_the_playbook_of_a_command_expects_what_it_asks_for(word: str, expected: str) -> None:
    with Tasks() as site:
        assert site.expected(word) == expected
