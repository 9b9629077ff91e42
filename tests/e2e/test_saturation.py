# SPDX-License-Identifier: GPL-3.0-or-later
"""A revision that leaks memory, under load: it is taken back, and a good one is promoted."""

from __future__ import annotations

import typing as t
from collections.abc import Iterator

import pytest
from ansible_collections.progressive.rollout.tests.support.shop import (
    BehindHAProxy,
    Load,
    Shop,
    failures,
)

KINDS = (("GET", True), ("GET", False))
RATE = 50  # requests a second, of each kind of client
SATURATION = {"name": "saturation", "driver": "saturation", "of": "memory", "warm_up": "1s"}
# Runs the program that follows, with a process beside it that leaks.
LEAKS = """
import os, sys, time
if os.fork():
    os.execv(sys.argv[1], sys.argv[1:])
kept, service = [], os.getppid()
while os.getppid() == service:
    kept.append(b"x" * 2**20)
    time.sleep(0.4)
"""


@pytest.fixture
def shop() -> Iterator[Shop]:
    front = BehindHAProxy()
    with Shop(
        front,
        env={"START_DELAY": "0.2"},
        rollout_budget={"max_surge": 6, "max_unavailable": 0},
    ) as shop:
        shop.to("1")
        yield shop
    front.close()


def canary(shop: Shop, revision: str, count: int, *around: str) -> tuple[t.Any, list[t.Any]]:
    """Give a revision half of the requests, and measure it so many times."""
    platform = shop.variables["rollout_platform"]
    analysis = {"interval": "500ms", "count": count, "metrics": [SATURATION]}
    variables = {
        "rollout_revision": revision,
        "rollout_strategy": "canary",
        "rollout_steps": [{"set_weight": 50}, {"analysis": analysis}],
        "rollout_platform": {**platform, "command": [*around, *platform["command"]]},
    }
    with Load(shop.fronts[0].url, KINDS, connections=4, rate=RATE) as load:
        outcome = shop.run(variables=variables)
        return outcome, load.stop()


def test_a_leak_is_taken_back_and_a_good_revision_promoted(shop: Shop) -> None:
    python = shop.variables["rollout_platform"]["command"][0]
    bad, reports = canary(shop, "2", 120, python, "-c", LEAKS)
    assert bad.rc != 0, bad.output
    assert "resident memory grows by" in bad.failed.msg, bad.failed.msg
    assert failures(reports) == []
    shop.settled("1")
    good, reports = canary(shop, "3", 24)
    assert good.rc == 0, good.output
    assert "no more than stable ones" in good.output
    assert failures(reports) == []
    shop.settled("3")
