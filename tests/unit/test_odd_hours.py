# SPDX-License-Identifier: GPL-3.0-or-later
"""What operators do to a service when something is wrong already, step by step."""

from __future__ import annotations

import pytest
from ansible_collections.progressive.rollout.plugins.action import drain, info
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    PlatformError,
    RolloutFailed,
    TrafficError,
)
from ansible_collections.progressive.rollout.tests.support.memory import Service, World

pytestmark = pytest.mark.usefixtures("virtual_time")


@pytest.fixture
def shop() -> Service:
    """Three instances of revision 1."""
    service = Service(World(fewest=0), replicas=3)
    service.play(revision="1")
    return service


def test_a_drain_that_does_not_end_names_the_instance(shop: Service) -> None:
    shop.world.asks = 1_000_000  # it does not stop
    with pytest.raises(RolloutFailed, match="not within 1 s: shop-1 is draining"):
        shop.step(drain, {"instances": ["shop-1"]}, progress_deadline=1)
    assert shop.running == {"1": 3} and shop.world.serving() == 2


def test_status_says_what_is_not_known(shop: Service) -> None:
    """A load balancer and a host do not answer."""
    known = shop.step(info)
    assert known["troubles"] == [] and {one["rotation"] for one in known["instances"]} == {"in"}
    down = {
        "observe": TrafficError("load balancer lb1: Connection refused", "PR-300"),
        "sync before": PlatformError("cannot know what runs on web3: no answer", "PR-216"),
    }
    shop.world.fails = down.get
    result = shop.step(info)
    unknown, lines = result["lines"][:2], result["lines"][2:]
    assert all(line.startswith("unknown at present: ") for line in unknown)
    assert "shop 1 promoted" in lines[0] and lines[1] == "lease: free"
    assert len(result["troubles"]) == 2
    assert "cannot know what runs on web3" in unknown[0] and "Connection refused" in unknown[1]
