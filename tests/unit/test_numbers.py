# SPDX-License-Identifier: GPL-3.0-or-later
"""The number of replicas changes while a rollout is under way, as users change it: by running it
again, and by a word.
"""

from __future__ import annotations

import json
import typing as t
from dataclasses import replace

import pytest
from ansible_collections.progressive.rollout.plugins.action import begin, plan
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    InputError,
    RolloutFailed,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.config import variables
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.budget import Bounds, whole
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Process
from ansible_collections.progressive.rollout.tests.support.memory import Service, World

pytestmark = pytest.mark.usefixtures("virtual_time")

GROUPS = {"group_size": 1, "cycles": 3, "acceptance": "checks", "gates": [{"driver": "approval"}]}
CANARY: dict[str, t.Any] = {"revision": "2", "strategy": "canary", "steps": GROUPS}


@pytest.fixture
def shop() -> Service:
    """Six instances of revision 1."""
    service = Service(World(most=7, fewest=0))
    service.play(revision="1", replicas=6)
    assert service.running == {"1": 6}
    service.world.fewest = 6
    return service


def at(shop: Service) -> str:
    """Where the rollout waits."""
    rollout = shop.journal.open
    return rollout.waiting[0].partition(":")[0] if rollout else ""


def pass_(shop: Service, times: int, **given: t.Any) -> None:
    """Promote it so many times where it waits, and let it walk on."""
    for _time in range(times):
        shop.say("promote")
        shop.play(**CANARY, **given)


def test_fewer_replicas_skip_no_gate_of_the_groups(shop: Service) -> None:
    assert shop.play(**CANARY, replicas=6)["parked"] and at(shop) == "group 1 gate 1"
    pass_(shop, 1, replicas=6)
    assert at(shop) == "group 2 gate 1"
    shop.world.fewest = 1
    # One replica is one group: nobody has approved of all being new.
    assert shop.play(**CANARY, replicas=1)["parked"] and at(shop) == "group 1 gate 1"
    pass_(shop, 1, replicas=1)
    journal = shop.journal
    assert (
        journal.open is None
        and journal.stable
        and (journal.stable.revision, journal.stable.replicas) == ("2", 1)
    )
    assert shop.running == {"2": 1}


def test_a_journal_that_only_counts_stages_goes_on(shop: Service) -> None:
    shop.play(**CANARY, replicas=6)
    pass_(shop, 2, replicas=6)
    assert at(shop) == "group 3 gate 1"
    texts = shop.world.journals["shop"].texts
    record = json.loads(texts["record"])
    record["rollout"]["stage"] = len(record["rollout"].pop("passed"))
    texts["record"] = json.dumps(record).encode()
    shop.world.fewest = 2
    assert shop.play(**CANARY, replicas=2)["parked"] and at(shop) == "group 2 gate 1"
    shop.play(**CANARY, replicas=6)
    waited = [pass_(shop, 1, replicas=6) or at(shop) for _time in range(3)]
    assert waited == ["group 3 gate 1", "group 4 gate 1", ""]
    assert shop.running == {"2": 6}


def test_what_is_recorded_at_the_end_is_what_runs(shop: Service) -> None:
    shop.play(**CANARY, replicas=6)
    pass_(shop, 3, replicas=6)
    assert at(shop) == "group 4 gate 1" and shop.running == {"2": 6}
    shop.world.fewest, made = 2, shop.journal.serial
    assert shop.play(**CANARY, replicas=2)["parked"] and at(shop) == "group 2 gate 1"
    # nothing is started that is not to stay
    assert shop.running == {"2": 6} and shop.journal.serial == made
    pass_(shop, 1, replicas=2)
    stable = shop.journal.stable
    assert stable and (stable.revision, stable.replicas) == ("2", 2) and shop.running == {"2": 2}


def test_more_replicas_skip_no_gate_of_the_groups(shop: Service) -> None:
    shop.world.fewest, shop.world.most = 2, 9
    shop.play(revision="1", replicas=2)
    shop.play(**CANARY, replicas=2)
    pass_(shop, 1, replicas=2)
    assert at(shop) == "group 2 gate 1"  # with which all would be new
    shop.play(**CANARY, replicas=8)
    assert at(shop) == "group 2 gate 1"
    waited = [pass_(shop, 1, replicas=8) or at(shop) for _time in range(3)]
    assert waited == ["group 3 gate 1", "group 4 gate 1", ""]
    assert shop.running == {"2": 8}


# Fewer than run
# --------------------------------------------------------------------------------------------------

ASK = [{"driver": "approval"}]


def test_fewer_leave_at_the_promotion_and_not_before(shop: Service) -> None:
    shop.world.most = 8
    rolling: dict[str, t.Any] = {
        "revision": "2",
        "replicas": 2,
        "gates": {"confirm_promotion": ASK},
    }
    assert "6 run, 2 are asked for: 4 fewer" in shop.step(begin, check_mode=True, **rolling)["msg"]
    assert "6 run, 2 are asked for: 4 fewer" in shop.step(plan, **rolling)["msg"]
    assert shop.play(**rolling)["parked"]
    assert shop.running == {"1": 4, "2": 2} and any(
        "6 run, 2 are asked for: 4 fewer" in line for line in shop.said
    )
    shop.say("promote")
    shop.world.fewest = 2
    shop.play(**rolling)
    stable = shop.journal.stable
    assert stable and (stable.revision, stable.replicas) == ("2", 2) and shop.running == {"2": 2}


def test_who_goes_back_before_the_promotion_has_lost_nothing(shop: Service) -> None:
    shop.world.most = 8
    canary = {
        "revision": "2",
        "replicas": 2,
        "strategy": "canary",
        "steps": [{"set_weight": 50}, {"pause": {}}],
    }
    shop.play(**canary)
    # both sides carry half of what six carry, however few are asked for
    assert shop.running == {"1": 4, "2": 3}
    shop.say("abort")
    with pytest.raises(RolloutFailed, match="abort"):
        shop.play(**canary)
    stable = shop.journal.stable
    assert stable and (stable.revision, stable.replicas) == ("1", 6) and shop.running == {"1": 6}
    assert shop.world.told.total() == 5  # the new ones, and the old ones that made room


def test_fewer_of_the_same_revision_leave_at_once(shop: Service) -> None:
    shop.world.fewest = 2
    shop.play(revision="1", replicas=2)
    stable = shop.journal.stable
    assert stable and stable.replicas == 2 and shop.running == {"1": 2}


def test_what_does_not_run_is_not_kept(shop: Service) -> None:
    # Four of six are gone: two are kept until the promotion, not six made of them.
    for name in list(shop.world.instances)[:4]:
        shop.world.instances[name] = replace(shop.world.instances[name], process=Process.FAILED)
    shop.world.fewest = 2
    shop.play(revision="2", replicas=1, gates={"confirm_promotion": ASK})
    assert shop.running == {"1": 1, "2": 1}


def test_where_every_port_is_taken_one_makes_room(shop: Service) -> None:
    shop.world.capacity, shop.world.fewest = 6, 5
    shop.play(revision="2", replicas=2, gates={"confirm_promotion": ASK})
    assert shop.running == {"1": 3, "2": 2}


# By a word
# --------------------------------------------------------------------------------------------------

PAUSED: dict[str, t.Any] = {
    "revision": "2",
    "strategy": "canary",
    "steps": [{"set_replicas": 2}, {"pause": {}}],
    "replicas": 6,
}


@pytest.mark.parametrize(("to", "most"), [(9, 10), (3, 7)])
def test_a_word_scales_a_rollout_that_waits(shop: Service, to: int, most: int) -> None:
    shop.play(**PAUSED)
    shop.world.most, shop.world.fewest = most, min(6, to)
    assert (
        shop.say("scale", replicas=to)["changed"] and not shop.say("scale", replicas=to)["changed"]
    )
    # Obeyed by the next run, whatever that was given when it began; its gate is asked anew.
    assert shop.play(**PAUSED)["parked"] and shop.running == {"1": max(6, to) - 2, "2": 2}
    assert any(f"scaled from 6 to {to} replicas" in line for line in shop.said)
    shop.play(**PAUSED)  # the same play again takes nothing back
    assert (shop.journal.open or pytest.fail()).replicas == to
    shop.say("promote")
    shop.play(**PAUSED)
    assert shop.running == {"2": to} and (shop.journal.stable or pytest.fail()).replicas == to


def test_a_word_scales_what_is_held_once_it_goes_on(shop: Service) -> None:
    shop.play(**PAUSED)
    shop.say("hold")
    with pytest.raises(RolloutFailed):
        shop.play(**PAUSED)
    shop.world.most = 10
    assert (shop.journal.open or pytest.fail()).phase == "held"
    assert shop.say("scale", replicas=9)["changed"]
    shop.say("retry")
    assert shop.play(**PAUSED)["parked"] and shop.running == {"1": 7, "2": 2}


def test_promote_full_goes_straight_to_the_promotion(shop: Service) -> None:
    """No step on the way is walked to by itself, as its waits would be skipped anyway."""
    steps: list[dict[str, t.Any]] = [{"set_replicas": number} for number in (1, 3, 5)]
    canary = {**PAUSED, "steps": [steps[0], {"pause": {}}, *steps[1:]]}
    shop.play(**canary)
    rollout = (shop.journal.open or pytest.fail()).id
    shop.say("promote_full")
    shop.play(**canary)
    assert shop.running == {"2": 6}
    entered = [event["stage"] for event in shop.timeline(rollout) if event["kind"] == "stage"]
    assert "step 1" in entered and not {"step 3", "step 4"} & {*entered}


def test_instances_that_failed_do_not_lower_the_number(shop: Service) -> None:
    shop.world.fewest = 0
    for name in list(shop.world.instances)[:2]:
        shop.world.instances[name] = replace(shop.world.instances[name], process=Process.FAILED)
    shop.play(revision="2", replicas="current")
    assert shop.running == {"2": 6}


def test_a_word_scales_a_run_that_is_at_work(shop: Service) -> None:
    shop.world.most = 10
    said: list[str] = []

    def fails(call: str) -> None:
        if call == "apply before" and shop.running.get("2") == 2 and not said:
            said.append(call)
            shop.say("scale", replicas=9)

    shop.world.fails = fails
    shop.play(revision="2", replicas=6)
    assert (
        said and shop.running == {"2": 9} and (shop.journal.stable or pytest.fail()).replicas == 9
    )


def test_what_was_asked_for_last_is_what_there_is(shop: Service) -> None:
    shop.play(**PAUSED)
    shop.world.most, shop.world.fewest = 9, 4
    for to in (8, 5):
        shop.say("scale", replicas=to)
    shop.play(**PAUSED)
    assert (shop.journal.open or pytest.fail()).replicas == 5
    shop.play(**{**PAUSED, "replicas": 4})
    assert (shop.journal.open or pytest.fail()).replicas == 4
    shop.say("promote")
    shop.play(**{**PAUSED, "replicas": 4})
    assert shop.running == {"2": 4}


def test_a_word_scales_what_is_promoted(shop: Service) -> None:
    given = {"revision": "2", "strategy": "blue_green", "replicas": 6, "hold": "20ms"}
    shop.world.most = 16
    said: list[str] = []

    def fails(call: str) -> None:
        if (shop.journal.stable or pytest.fail()).revision == "2" and not said:
            said.append(call)
            shop.say("scale", replicas=8)

    shop.world.fails = fails
    shop.play(**given)
    assert (
        said and shop.running == {"2": 8} and (shop.journal.stable or pytest.fail()).replicas == 8
    )


def test_a_number_that_there_is_no_room_for_is_refused_and_said(shop: Service) -> None:
    shop.world.capacity = 8
    shop.play(**PAUSED)
    shop.say("scale", replicas=12)
    assert shop.play(**PAUSED)["parked"]
    assert any("needs 13" in line and "[PR-701]" in line for line in shop.said)
    assert (shop.journal.open or pytest.fail()).replicas == 6


def test_scale_needs_a_number_and_a_rollout(shop: Service) -> None:
    with pytest.raises(InputError, match="rollout_replicas: required"):
        shop.say("scale")
    with pytest.raises(InputError, match="rollout_replicas: current is not a whole number"):
        shop.say("scale", replicas="current")
    with pytest.raises(InputError, match="rollout_replicas: 0 is too small"):
        shop.say("scale", replicas=0)
    with pytest.raises(
        RolloutFailed, match=r"no rollout is in progress; run rollout.yml .* rollout_replicas"
    ):
        shop.say("scale", replicas=3)


# As many as there are
# -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "there", "expected"),
    [
        ("current", 9, 9),
        ({"min": 4, "max": 40}, 9, 9),
        ({"min": 12}, 9, 12),
        ({"max": 20}, 1000, 20),
        ({"min": 0, "max": 60}, 0, 60),
        ({"min": 16}, 0, 16),
        ({"min": "16", "max": "96"}, 40, 40),
        ("current", 0, None),
        ({"max": 20}, 0, 1),
    ],
)
def test_bounds(given: t.Any, there: int, expected: int | None) -> None:
    asked = variables.replicas(given, "rollout_replicas")
    assert isinstance(asked, Bounds) and asked.of(there) == expected


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (0, "rollout_replicas: 0 is too small"),
        (
            "many",
            (
                "rollout_replicas: 'many' is not a whole number; write one .6., current, per_host, or {min:"
                " 4, max: 40}"
            ),
        ),
        ({"min": 5, "max": 4}, "rollout_replicas: min 5 is more than max 4"),
        ({"max": 0}, "rollout_replicas.max: 0 is too small"),
        ({"min": -1}, "rollout_replicas.min: -1 is too small"),
        ({"min": 1.5}, "rollout_replicas.min: 1.5 is not a whole number"),
        ({"min": 0}, "rollout_replicas.min: 0 starts with as many as max"),
        ({}, "rollout_replicas: must not be empty"),
        ({"least": 4}, "rollout_replicas.least: unknown option"),
    ],
)
def test_bounds_that_are_refused(given: t.Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        variables.replicas(given, "rollout_replicas")


def test_as_many_as_there_are(shop: Service) -> None:
    shop.world.most = 10
    shop.play(revision="1", replicas=9)
    shop.play(revision="2", replicas="current")
    assert shop.running == {"2": 9}
    shop.play(**{**PAUSED, "revision": "3", "replicas": {"min": 4, "max": 40}})
    assert shop.running == {"2": 7, "3": 2}
    # Its own instances are not counted, and run again it does not creep.
    assert shop.play(**{**PAUSED, "revision": "3", "replicas": {"min": 4, "max": 40}})["parked"]
    assert (shop.journal.open or pytest.fail()).replicas == 9


def test_as_many_as_there_are_where_there_is_nothing() -> None:
    service = Service(World(most=7, fewest=0))
    with pytest.raises(
        InputError, match="rollout_replicas: current follows the number of running instances"
    ):
        service.play(revision="1", replicas="current")
    service.play(revision="1", replicas={"min": 4})
    assert service.running == {"1": 4}


def test_a_journal_that_is_lost_is_no_reason_for_fewer(shop: Service) -> None:
    del shop.world.journals["shop"].texts["record"]
    shop.play(revision="2", replicas={"min": 2, "max": 40})
    assert shop.running == {"2": 6}


def test_of_a_canary_whose_journal_is_lost_the_stable_ones_are_as_many_as_all_requests_need() -> (
    None
):
    assert [whole(36, 90, 100), whole(60, 60, 100), whole(163, 163, 163), whole(5, 0, 0)] == [
        40,
        100,
        163,
        5,
    ]
