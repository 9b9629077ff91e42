# SPDX-License-Identifier: GPL-3.0-or-later
"""A ramp under load, a rollback from the old instances that a canary keeps, times in which a
rollout may move, and revisions in their order.
"""

from __future__ import annotations

import typing as t
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from ansible_collections.progressive.rollout.tests.support.shop import (
    BehindHAProxy,
    Load,
    Shop,
    Watch,
    failures,
)
from ansible_collections.progressive.rollout.tests.support.waiting import until

ABORT = "progressive.rollout.abort"
RAMP: dict[str, t.Any] = {
    "rollout_revision": "2",
    "rollout_strategy": "canary",
    "rollout_budget": {"max_surge": 6, "max_unavailable": 0},
    "rollout_steps": {"ramp": "geometric", "start": 20, "every": "1s", "ahead": True},
    "rollout_hold": "5m",
}


@pytest.fixture
def front() -> Iterator[BehindHAProxy]:
    made = BehindHAProxy()
    yield made
    made.close()


def test_a_ramp_and_a_rollback_from_standby_without_a_failed_request(front: BehindHAProxy) -> None:
    with Shop(front) as shop:
        shop.to("1")
        with Watch(shop, front) as watch, Load(front.url, connections=3, rate=200) as load:
            run = shop.start(variables=RAMP)
            until(lambda: shop.journal()["rollout"]["phase"] == "holding", "it holds", 120)
            assert sorted(shop.revisions()) == ["1"] * 6 + ["2"] * 6
            assert shop.run(ABORT, variables=RAMP).rc == 0
            outcome = run.wait()
            reports = load.stop()
        assert failures(reports) == []
        assert all(report["by_revision"].keys() == {"1", "2"} for report in reports)
        assert outcome.rc != 0 and outcome.rollout["outcome"] == "aborted", outcome.output
        shop.settled("1")
        events = shop.timeline(outcome.rollout["id"])
        _check_ramp(events)
        _check_switch_back(events)
        assert "step 1/3 20 %, readying the next" in outcome.output
        assert watch.wrong == [] and watch.most == 12 and watch.fewest >= 6


def _check_ramp(events: list[dict[str, t.Any]]) -> None:
    """Each share lasts its time from when it was there, and the next needs no start."""
    entered = [(e["stage"], e["share"], e["at"]) for e in events if e["kind"] == "stage"]
    steps = [one for one in entered if one[0].startswith("step")]
    assert [(name, share) for name, share, _at in steps] == [
        ("step 1", 20),
        ("step 1 ahead", 20),
        ("step 2", 40),
        ("step 2 ahead", 40),
        ("step 3", 80),
        ("step 3 ahead", 80),
    ]
    ready = [
        e["at"]
        for e in events
        if e["kind"] == "state" and e["state"] == "ready" and e.get("revision") == "2"
    ]
    assert len(ready) == 6
    for (name, _share, begin), (_name, _next, end) in pairwise(steps[2:]):
        if "ahead" not in name:
            assert not [at for at in ready if begin < at < end], f"{name} waited for a start"


def _check_switch_back(events: list[dict[str, t.Any]]) -> None:
    """The rollback starts nothing: it is one switch."""
    back = next(n for n, e in enumerate(events) if e.get("phase") == "rolling_back")
    kinds = [event["kind"] for event in events[back:]]
    assert kinds.count("switch") == 1
    assert not [e for e in events[back:] if e["kind"] == "state" and e["state"] == "starting"]


def test_windows_and_the_order_of_revisions(front: BehindHAProxy) -> None:
    with Shop(front, rollout_replicas=2, rollout_budget={"max_surge": 1}) as shop:
        shop.to("2", rollout_order=200)
        older = shop.run(variables={"rollout_revision": "1", "rollout_order": 100})
        assert older.rc != 0
        assert "rollout_order: 1 (100) is older than 2 (200), which is stable" in older.failed.msg
        assert older.failed.msg.endswith("[PR-131]")
        tomorrow = datetime.now(UTC) + timedelta(days=1)
        window = {"from": tomorrow.isoformat(), "to": (tomorrow + timedelta(hours=1)).isoformat()}
        newer = {"rollout_revision": "3", "rollout_order": 300, "rollout_window": [window]}
        parked = shop.run(variables=newer)
        assert parked.rc == 0 and parked.rollout["phase"] == "paused", parked.output
        assert "outside rollout_window" in parked.output
        assert shop.revisions() == ["2", "2"]
        moved = shop.run(variables={**newer, "rollout_window": "always"})
        assert moved.rc == 0, moved.output
        shop.settled("3")
        assert shop.journal()["stable"]["order"] == 300
