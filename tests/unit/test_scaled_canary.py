# SPDX-License-Identifier: GPL-3.0-or-later
"""The share of a canary that an operator scales."""

from __future__ import annotations

import itertools

import pytest
from ansible_collections.progressive.rollout.plugins.action import control
from ansible_collections.progressive.rollout.tests.support.memory import Service, World

pytestmark = pytest.mark.usefixtures("virtual_time")

APPROVAL = {"gate": {"driver": "approval"}}


def shares(shop: Service, rollout: str) -> list[float]:
    """The percentage of the requests to the new revision, after each change."""
    traffic = [event for event in shop.timeline(rollout) if event["kind"] == "traffic"]
    return [event["shares"].get("2", 0.0) for event in traffic]


@pytest.mark.parametrize(
    ("weight", "replicas"),
    [(25, [5]), (25, [6]), (25, [8, 12]), (25, [12, 6]), (40, [5]), (40, [12]), (40, [12, 6])],
)
def test_share_of_a_scaled_canary_never_falls(weight: int, replicas: list[int]) -> None:
    shop = Service(World(fewest=0, most=99), replicas=4)
    given = {"strategy": "canary", "steps": [{"set_weight": weight}, APPROVAL, {"set_weight": 60}]}
    shop.play(revision="1")
    shop.play(revision="2", **given)
    rollout = shop.journal.open
    assert rollout
    for number in replicas:
        shop.step(control, {"command": "scale"}, replicas=number)
        shop.play(revision="2", replicas=4, **given)
    shop.say("promote")
    shop.play(revision="2", replicas=4, **given)
    seen = shares(shop, rollout.id)
    assert all(before <= after for before, after in itertools.pairwise(seen)), seen
    assert weight in seen and 60 in seen and seen[-1] == 100
