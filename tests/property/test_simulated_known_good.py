# SPDX-License-Identifier: GPL-3.0-or-later
"""Revisions that are known to be good, back and forth within a minute."""

from __future__ import annotations

from ansible_collections.progressive.rollout.tests.property.test_simulated_operators import shop
from ansible_collections.progressive.rollout.tests.support.simulated_shop import (
    CANARY,
    GIVEN,
    SimulatedShop,
)

__all__ = ["shop"]
KNOWN_GOOD = {**CANARY, "known_good": 3600}


def test_known_good_revisions_go_back_and_forth_without_steps(shop: SimulatedShop) -> None:
    shop.to("1")
    shop.to("2")
    shop.world.floor = 3
    began = shop.machine.time
    for revision in ("1", "2", "1", "2"):
        assert shop.to(revision, **KNOWN_GOOD)["rollout"]["outcome"] == "promoted"
        assert shop.running == {revision: 3}
    assert shop.machine.time - began < 60.0, "they are replaced at once"


def test_a_known_good_rollout_that_was_aborted_takes_its_steps(shop: SimulatedShop) -> None:
    shop.to("1")
    shop.to("2")
    shop.to("1", **KNOWN_GOOD)
    shop.world.floor = 3
    job = shop.beside(lambda run: run.rollout({**GIVEN, **KNOWN_GOOD, "revision": "2"}))
    shop.wait_until(lambda: shop.running["2"] > 0)
    shop.play(lambda run: run.control("abort", GIVEN))
    job.join()
    shop.machine.sleep(5.0)
    assert shop.running == {"1": 3}
    assert shop.to("2", **KNOWN_GOOD)["parked"] and shop.running == {"1": 2, "2": 1}
