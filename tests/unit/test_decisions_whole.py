# SPDX-License-Identifier: GPL-3.0-or-later
"""What docs/explanation/decisions/ decides and only a whole rollout proves: the steps of a play,
over drivers in memory.
"""

from __future__ import annotations

import itertools
import re
import typing as t

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base import clock
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    LeaseLost,
    PlatformError,
    RolloutFailed,
    TrafficError,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.loop.stage_run import (
    frozen,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.budget import Budget
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.evaluate import evaluate
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.progress import (
    ProgressTracker,
    Rules,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import Waypoint
from ansible_collections.progressive.rollout.plugins.plugin_utils.gates import command
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.gate import (
    FAIL,
    PASS,
    Answer,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.record import Rollout
from ansible_collections.progressive.rollout.tests.support.decisions import some
from ansible_collections.progressive.rollout.tests.support.memory import Service, World

pytestmark = pytest.mark.usefixtures("virtual_time")

TOO_LONG = 400  # calls of a driver after which a rollout that has come to no end has none


@pytest.fixture
def shop() -> Service:
    """Three instances of revision 1."""
    service = Service(World(fewest=0), replicas=3)
    service.play(revision="1")
    service.world.fewest = 3
    service.said.clear()
    return service


def rollout_of(shop: Service) -> Rollout:
    return shop.journal.rollout or pytest.fail("no rollout is recorded")


def events(shop: Service, kind: str) -> list[dict[str, t.Any]]:
    return [event for event in shop.timeline(rollout_of(shop).id) if event["kind"] == kind]


def test_a_first_deployment_that_fails_is_failed_and_nothing_of_it_is_left() -> None:
    service = Service(World(fewest=0, crashes=lambda labels: True), replicas=3)
    with pytest.raises(RolloutFailed, match=r"\(rollout_failure_limit 3\)"):
        service.play(revision="1")
    journal = service.journal
    assert (rollout_of(service).phase, rollout_of(service).outcome, journal.stable) == (
        "finished",
        "failed",
        None,
    )
    assert (service.running, service.world.instances, service.world.servers) == ({}, {}, {})


def test_what_of_a_first_deployment_works_goes_too() -> None:
    started = itertools.count()
    service = Service(World(fewest=0, crashes=lambda labels: next(started) > 0), replicas=3)
    with pytest.raises(RolloutFailed, match=r"\(rollout_failure_limit 3\)"):
        service.play(revision="1")
    assert (rollout_of(service).outcome, service.running, service.world.servers) == (
        "failed",
        {},
        {},
    )


@pytest.mark.parametrize("again", ["a rollout", "the one that was killed"])
def test_the_budget_is_the_one_given_now(shop: Service, again: str) -> None:
    wide = {"revision": "2", "budget": {"max_surge": 3, "max_unavailable": 0}}
    most = []

    def fails(call: str) -> Exception | None:
        most.append(len(shop.world.alive()))
        killed = again != "a rollout" and shop.running.get("2") == 1
        return LeaseLost("killed") if killed else None

    shop.world.fails = fails
    if again != "a rollout":
        with pytest.raises(LeaseLost):
            shop.play(revision="2")
        assert max(most) == 4
        shop.world.fails = lambda _call: most.append(len(shop.world.alive()))  # type: ignore[func-returns-value]
    shop.world.most = 6
    shop.play(**wide)
    assert max(most) == 6 and shop.running == {"2": 3}


@pytest.mark.parametrize("call", ["apply before", "observe", "sync before"])
def test_what_fails_for_ever_has_an_end_and_so_has_the_way_back(shop: Service, call: str) -> None:
    calls: list[str] = []
    broken: list[bool] = []
    kind = PlatformError if call.startswith("sync") else TrafficError

    def fails(what: str) -> Exception | None:
        calls.append(what)
        assert len(calls) < TOO_LONG, "it has no end"
        broken.extend([True] if shop.world.serving() > 3 else [])
        if what != call or not broken:
            return None
        clock.sleep(20)
        return kind("lb1: it does not answer")

    shop.world.fails = fails
    with pytest.raises(
        RolloutFailed,
        match=r"no progress within rollout_progress_deadline \(60 s\): lb1: it does not answer",
    ):
        shop.play(revision="2", progress_deadline=60)
    assert shop.world.serving() >= 3 and shop.world.wrong == []
    end, reason = rollout_of(shop).phase, rollout_of(shop).reason
    shop.world.fails = lambda _call: None
    if call == "apply before":
        # It can look, and not act: the way back has its end as well, and who goes on goes forward.
        assert end == "held"
        assert (
            "; and the rollback failed: no progress within rollout_progress_deadline (60 s): lb1:"
            " it does not answer" in reason
        )
        shop.play(revision="2", progress_deadline=60)
        assert shop.running == {"2": 3} and rollout_of(shop).outcome == "promoted"
    else:
        # It sees nothing: the next run goes on with the way back.
        assert (end, reason) == (
            "rolling_back",
            "no progress within rollout_progress_deadline (60 s): lb1: it does not answer",
        )
        with pytest.raises(RolloutFailed, match="rollback pending"):
            shop.play(revision="2", progress_deadline=60)
        assert shop.running == {"1": 3} and rollout_of(shop).outcome == "rolled_back"


def test_what_is_refused_is_shown_tried_again_and_forgotten(shop: Service) -> None:
    # No room for one more, twice, each time for long; and it is nothing to end for.
    # by how many of the new ones there are: how often
    refusals: dict[int | None, int] = {1: 5, 2: 5}

    def fails(call: str) -> Exception | None:
        there = shop.running.get("2")
        if call != "sync before" or not refusals.get(there):
            return None
        refusals[there] -= 1
        clock.sleep(10)
        return PlatformError("web: the quota is used up")

    shop.world.fails = fails
    shop.play(revision="2", progress_deadline=60)
    assert shop.running == {"2": 3} and (rollout_of(shop).outcome, rollout_of(shop).reason) == (
        "promoted",
        "",
    )
    # Once each time, not at every attempt; and the last line says nothing of it.
    assert sum("retrying: web: the quota is used up" in line for line in shop.said) == 2
    assert [event["message"] for event in events(shop, "trouble")] == [
        "web: the quota is used up"
    ] * 2
    assert "quota" not in shop.said[-1]


def test_what_stays_refused_has_a_line_each_minute(shop: Service) -> None:
    refusals = iter(range(14))

    def fails(call: str) -> Exception | None:
        if call != "sync before" or shop.running.get("2") != 1 or next(refusals, None) is None:
            return None
        clock.sleep(10)
        return PlatformError("web: the quota is used up")

    shop.world.fails = fails
    shop.play(revision="2", progress_deadline=600)
    lines = [line for line in shop.said if "retrying: " in line]
    minutes = [re.search(r"\(for (6\d|2 min 0\d)", line) for line in lines]
    assert [bool(minute) for minute in minutes] == [False, True, True], lines


@pytest.mark.parametrize("weight", [60, 100])
def test_an_alarm_takes_it_back_however_far_it_is(
    shop: Service, monkeypatch: pytest.MonkeyPatch, weight: int
) -> None:
    alarm: list[bool] = []
    monkeypatch.setattr(command.Driver, "ask", lambda *_: Answer(PASS if alarm else FAIL, ""))
    shop.world.most = 6
    given: dict[str, t.Any] = {
        "revision": "2",
        "strategy": "canary",
        "steps": [{"set_weight": weight}, {"pause": {}}],
        "gates": {"rollback": [{"driver": "command", "command": ["alarm"], "interval": "100ms"}]},
        "wait": 3600,
    }

    def fails(_call: str) -> None:
        if shop.running.get("2", 0) >= 2 and rollout_of(shop).phase == "paused":
            alarm.append(True)

    shop.world.fails = fails
    with pytest.raises(RolloutFailed, match=r"rollback requested by gate rollback 1 \(command\)"):
        shop.play(**given)
    assert rollout_of(shop).outcome == "rolled_back" and shop.running == {"1": 3}


def test_a_pause_on_the_way_to_all_requests_is_no_switch() -> None:
    fleet = [*some(1), *some(2, 2)]
    held = frozen(fleet, Waypoint(2, 3, 0, 3, 100))
    assert (held.new, held.old, held.switches) == (2, 1, False)
    decision = evaluate(fleet, held, Budget(1, 0), Rules(), ProgressTracker(0.0), 100.0)
    assert decision.reached and decision.nothing_to_do
