# SPDX-License-Identifier: GPL-3.0-or-later
"""A host whose packets are all dropped in the middle of a rollout, or of a rollback: it is left out
by an operator, answers again, and is brought back.
"""

from __future__ import annotations

import math

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Rotation
from ansible_collections.progressive.rollout.tests.property.test_simulated_operators import (
    canary_beside,
    command,
    shop,
    taken,
)
from ansible_collections.progressive.rollout.tests.simulations.world.machine import Job
from ansible_collections.progressive.rollout.tests.simulations.world.runs import journal
from ansible_collections.progressive.rollout.tests.support.simulated_shop import (
    CANARY,
    GIVEN,
    SimulatedShop,
)

__all__ = ["shop"]
SILENT = "web3"
BIG = {"replicas": 6, "budget": {"max_surge": 2, "max_unavailable": 0}}


def canary(shop: SimulatedShop) -> Job:
    """Let a run work on a canary of six instances until it waits at its pause."""
    shop.to("1", **BIG)
    shop.world.floor = 4  # those on the hosts that answer
    job = shop.beside(
        lambda run: run.rollout({**GIVEN, **CANARY, **BIG, "revision": "2", "wait": 600})
    )
    shop.wait_until(lambda: shop.world.phase() == "paused")
    return job


def elsewhere(shop: SimulatedShop) -> dict[str, int]:
    """Return how many instances of each revision serve on the hosts that answer."""
    counts: dict[str, int] = {}
    for instance in shop.world.alive():
        if instance.labels.host != SILENT and instance.well(shop.machine.time):
            revision = instance.labels.revision
            counts[revision] = counts.get(revision, 0) + 1
    return counts


def entries(shop: SimulatedShop) -> set[str]:
    """Return the instances that a load balancer sends requests to."""
    return {
        entry.name
        for balancer in shop.world.balancers.values()
        for entry in balancer.entries.values()
        if entry.rotation is Rotation.IN
    }


def silence(shop: SimulatedShop) -> set[str]:
    """Drop the packets of a host; return its instances."""
    shop.world.hosts[SILENT].away = math.inf
    return {one.labels.id for one in shop.world.alive() if one.labels.host == SILENT}


def test_a_host_that_falls_silent_in_a_rollout_is_left_out_and_comes_back(
    shop: SimulatedShop,
) -> None:
    job = canary(shop)
    shop.play(lambda run: run.control("promote", GIVEN))
    shop.wait_until(lambda: shop.world.phase() == "progressing")
    lost = silence(shop)
    sent = shop.play(lambda run: run.control("exclude", GIVEN, host=SILENT))
    assert "has obeyed" in sent["msg"]
    shop.wait_until(lambda: journal(shop.world).open is None)
    job.join()
    assert elsewhere(shop) == {"2": 6} and not entries(shop) & lost
    assert taken(shop)[-1] == ("exclude", False, False)
    shop.world.hosts[SILENT].away = 0.0
    shop.to("3", **BIG)
    assert shop.running == {"3": 6} and shop.on(SILENT) == 2, "the next rollout has it again"


@pytest.mark.parametrize("returns", [False, True])
def test_a_host_that_falls_silent_in_a_rollback_keeps_nobody(
    shop: SimulatedShop, returns: bool
) -> None:
    job = canary(shop)
    shop.play(lambda run: run.control("promote", GIVEN))
    shop.wait_until(lambda: shop.running["2"] >= 3)
    shop.play(lambda run: run.control("abort", GIVEN))
    lost = silence(shop)
    sent = shop.play(lambda run: run.control("exclude", GIVEN, host=SILENT))
    assert "has obeyed" in sent["msg"]
    if returns:
        shop.world.hosts[SILENT].away = 0.0
        sent = shop.play(lambda run: run.control("include", GIVEN, host=SILENT))
        assert "has obeyed" in sent["msg"]
    shop.wait_until(lambda: journal(shop.world).open is None)
    job.join()
    if returns:
        assert shop.running == {"1": 6}
    else:
        assert elsewhere(shop) == {"1": 6} and not entries(shop) & lost


def test_scale_while_held_keeps_what_is_there(shop: SimulatedShop) -> None:
    """The number is that of the rollout once it continues, and nothing moves before."""
    shop.world.floor = 3
    job = canary_beside(shop)
    shop.play(lambda run: run.control("hold", GIVEN))
    job.join()
    assert shop.world.phase() == "held" and shop.running == {"1": 2, "2": 1}
    given = {**GIVEN, **CANARY, "revision": "2", "replicas": 5}
    result = shop.play(lambda run: run.control("scale", given, replicas=5))
    assert result["rollout"]["phase"] == "paused"
    assert sum(shop.running.values()) == 5 and shop.running["2"] >= 1
    command(shop, "promote_full")
    assert shop.running == {"2": 5}
