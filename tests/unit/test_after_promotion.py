# SPDX-License-Identifier: GPL-3.0-or-later
"""The watch after a promotion rolls back itself, in the process that saw the reason."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from ansible_collections.progressive.rollout.plugins.action import rollback, watch
from ansible_collections.progressive.rollout.plugins.plugin_utils.base import clock
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    InputError,
    LeaseLost,
    RolloutFailed,
)
from ansible_collections.progressive.rollout.tests.simulations.world.machine import Machine
from ansible_collections.progressive.rollout.tests.support.memory import Service, World

pytestmark = pytest.mark.usefixtures("virtual_time")


@pytest.fixture
def shop(tmp_path: Path) -> Service:
    """Three instances of revision 2, after three of revision 1."""
    service = Service(World(most=4, fewest=0), replicas=3, wait=60)
    service.play(revision="1")
    service.play(revision="2")
    service.given["gates"] = gates(tmp_path)
    return service


def gates(path: Path) -> dict[str, t.Any]:
    """A gate that asks for a rollback once there is a file."""
    return {
        "rollback": [{"driver": "approval", "file": str(path / "alarm"), "interval": 0.1}],
    }


@pytest.mark.slow
def test_it_rolls_back_itself_and_says_why(shop: Service, tmp_path: Path) -> None:
    (tmp_path / "alarm").touch()
    with pytest.raises(RolloutFailed, match="requested by gate rollback 1") as failed:
        shop.step(watch, {"watch": "1h"}, revision="2")
    assert failed.value.id == "PR-706"
    last = shop.journal.rollout
    assert last and last.reason.startswith("rolled back from 2: rollout_watch: rollback requested")
    assert (shop.running, shop.world.wrong) == ({"1": 3}, [])
    assert shop.store.lease() is None


@pytest.mark.slow
def test_a_rollback_that_was_killed_is_finished(shop: Service, tmp_path: Path) -> None:
    (tmp_path / "alarm").touch()

    def die(call: str) -> Exception | None:
        moves = call == "apply before" and shop.journal.open
        return LeaseLost("killed") if moves else None

    shop.world.fails = die
    with pytest.raises(LeaseLost):
        shop.step(watch, {"watch": "1h"}, revision="2")
    assert shop.journal.open and shop.journal.open.kind == "rollback"
    shop.world.fails = lambda _call: None
    with pytest.raises(RolloutFailed, match="rollback requested by gate") as failed:
        shop.step(watch, {"watch": "1h"}, revision="2")
    assert failed.value.id == "PR-706" and shop.running == {"1": 3}


def test_a_rollback_by_somebody_else_is_not_undone(
    shop: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever rolls back between the alarm and the watch's own rollback has done what it wants."""
    (tmp_path / "alarm").touch()
    request = watch.AfterPromotion._roll_back

    def late(after: t.Any, *given: t.Any) -> None:
        shop.step(rollback)
        shop.play(revision="3", gates={})
        request(after, *given)

    monkeypatch.setattr(watch.AfterPromotion, "_roll_back", late)
    with pytest.raises(RolloutFailed, match="requested by gate"):
        shop.step(watch, {"watch": "1h"}, revision="2")
    assert shop.running == {"3": 3}


def test_an_alarm_after_a_while_rolls_the_revision_back(
    shop: Service, tmp_path: Path, virtual_time: Machine
) -> None:
    virtual_time.at(clock.monotonic() + 600, (tmp_path / "alarm").touch)
    with pytest.raises(RolloutFailed, match="requested by gate rollback 1"):
        shop.step(watch, {"watch": "1h"}, revision="2")
    assert shop.running == {"1": 3}
    assert any(line.startswith("shop 2: watched until ") for line in shop.said)
    again = shop.step(watch, {"watch": "1h"}, revision="2")
    assert not again["changed"] and again["msg"] == "shop: no promotion to watch"


def test_a_watch_ends_when_another_rollout_begins(shop: Service) -> None:
    looks: list[str] = []

    def begins(call: str) -> None:
        looks.append(call)
        if len(looks) == 20:
            shop.play(revision="3", gates={})

    shop.world.fails = begins
    result = shop.step(watch, {"watch": "1h"}, revision="2")
    assert result["msg"] == "shop 2: another rollout has begun, so this watch ends"
    assert shop.running == {"3": 3}


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_watch_that_could_notice_nothing_is_refused(shop: Service, dry_run: bool) -> None:
    asked = {"driver": "command", "command": ["echo", "1"], "failure_condition": "result > 0"}
    tried = {"dry_run": True, "metrics": [{"name": "bad", **asked}]}
    given = {"analysis": tried} if dry_run else {}
    why = "rollout_analysis is a dry run" if dry_run else "there is no stable instance to compare"
    with pytest.raises(InputError, match=f"rollout_watch: {why}"):
        shop.step(watch, {"watch": "1h"}, revision="2", gates={}, **given)


def test_a_revision_stays_where_failures_are_held(shop: Service, tmp_path: Path) -> None:
    (tmp_path / "alarm").touch()
    kept = "requested by gate rollback 1.*; not rolled back, as rollout_on_failure .hold. says"
    with pytest.raises(RolloutFailed, match=kept) as failed:
        shop.step(watch, {"watch": "1h"}, revision="2", on_failure="hold")
    assert failed.value.id == "PR-706" and shop.running == {"2": 3}
