# SPDX-License-Identifier: GPL-3.0-or-later
"""Instances that are ready, get requests, and crash: the rollout goes back, and load balancers
that retry lose no request.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from ansible_collections.progressive.rollout.tests.support.playbook import Outcome, Playground
from ansible_collections.progressive.rollout.tests.support.shop import (
    RETRYING,
    Load,
    RetryingEnvoy,
    RetryingHAProxy,
    Shop,
    failures,
)

IN_SERVICE = 3  # seconds from its first request, until it crashes
MIN_READY = "2s"  # by then it counts as available


@pytest.fixture(params=sorted(RETRYING))
def front(request: pytest.FixtureRequest) -> Iterator[RetryingHAProxy | RetryingEnvoy]:
    made = RETRYING[request.param]()
    yield made
    made.close()


def crash(playground: Playground, front: RetryingHAProxy | RetryingEnvoy) -> Outcome:
    """Roll out a revision that crashes, under load: 200 requests a second."""
    platform = playground.variables["rollout_platform"]
    env = {**platform.get("env", {}), "CRASH_IN_SERVICE": str(IN_SERVICE)}
    crashing = {**platform, "env": env}
    own = {"rollout_revision": "2", "rollout_min_ready": MIN_READY, "rollout_platform": crashing}
    with Load(front.url, [("GET", True), ("GET", False)], connections=4, rate=100) as load:
        outcome = playground.run(variables=own)
        reports = load.stop()
    assert all(report["by_revision"]["2"] for report in reports), "it was in service"
    assert failures(reports) == []
    assert outcome.rc != 0 and outcome.rollout["outcome"] == "rolled_back", outcome.output
    return outcome


def test_processes_that_crash(front: RetryingHAProxy | RetryingEnvoy) -> None:
    with Shop(front, env={"START_DELAY": "0.2"}) as shop:
        shop.to("1")
        outcome = crash(shop, front)
        assert "boom" in outcome.rollout["reason"]
        shop.settled("1")
