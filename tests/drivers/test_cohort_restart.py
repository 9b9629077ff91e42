# SPDX-License-Identifier: GPL-3.0-or-later
"""Two load balancers with one cohort, of which one restarts while its share rises."""

from __future__ import annotations

from ansible_collections.progressive.rollout.tests.drivers.cohort_contract import Sides, sides
from ansible_collections.progressive.rollout.tests.drivers.test_haproxy_cohort import (
    CohortPlane,
    plane,
)
from ansible_collections.progressive.rollout.tests.drivers.traffic_contract import (
    OUT,
    Backends,
    Client,
    Load,
    apply,
    prove,
)
from ansible_collections.progressive.rollout.tests.support.waiting import until

__all__ = ["plane"]


def test_a_cohort_is_the_same_after_a_restart(plane: CohortPlane, backends: Backends) -> None:
    fleet = Sides(plane, backends)
    users = [f"user={number}" for number in range(60)]
    first, second = plane.names
    before = fleet.targets(1, 1)
    apply(fleet.driver, before)
    clients = [Client(plane.fronts[1], user) for user in users]
    bound = sides(clients)
    with Load(plane.fronts[1:]) as load:
        plane.stop(0)
        plane.start(0)
        raised = fleet.targets(3, 1)
        known = fleet.driver.observe()[first]
        entered = {
            endpoint: target if endpoint in known else target._replace(rotation=OUT)
            for endpoint, target in raised.items()
        }
        fleet.driver.apply({first: entered, second: raised})  # the other one goes on meanwhile
        prove(fleet.driver, *fleet.old, *fleet.new)
        apply(fleet.driver, raised)
        seen = load.good.total()
        until(lambda: load.good.total() > seen + 50)
    assert not load.bad, load.bad
    assert plane.shares() == [7500, 7500]
    after = [sides([Client(front, user) for user in users]) for front in plane.fronts]
    assert after[0] == after[1], "the same side at both"
    assert ("new", "old") not in set(zip(bound, after[0], strict=True)), "nobody goes back"
