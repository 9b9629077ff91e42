# SPDX-License-Identifier: GPL-3.0-or-later
"""What drivers must do whose clients stay on their side, told apart by the cookie `user`."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence

from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.loop.fleet import (
    differs,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    Endpoint,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.traffic import (
    Server,
    Target,
    TrafficDriver,
)
from ansible_collections.progressive.rollout.tests.drivers.traffic_contract import (
    IN,
    OUT,
    Backends,
    Client,
    Plane,
    answers,
    apply,
    bring_in,
    prove,
    remove,
)
from ansible_collections.progressive.rollout.tests.support.waiting import until

NAMES = ("old", "new")


class Sides:
    """Two old and two new instances, all of them known and healthy; the old ones serve."""

    def __init__(self, plane: Plane, backends: Backends) -> None:
        self.driver = plane.driver()
        self.old, self.new = ([backends.start(f"{side}{n}") for n in range(2)] for side in NAMES)
        self.names = {e: f"shop-{number}" for number, e in enumerate([*self.old, *self.new])}
        bring_in(self.driver, self.targets(0, 1))
        prove(self.driver, *self.new)

    def targets(self, new: int, old: int, back: bool = False) -> dict[Endpoint, Target]:
        """The targets with these weights; 0: out. `back`: the old side is the one that comes."""
        return {
            e: Target(IN if weight else OUT, weight or 1, self.names[e], new=is_new != back)
            for side, weight, is_new in ((self.old, old, False), (self.new, new, True))
            for e in side
        }


def sides(clients: Sequence[Client]) -> list[str]:
    """The side that answers each client."""
    for client in clients:
        client.go()
    return [client.at[:3] for client in clients]


def settle(driver: TrafficDriver, wanted: Mapping[Endpoint, Target]) -> None:
    """Do as the reconcile loop does, until the balancers show what is wanted."""

    def done() -> bool:
        table = driver.observe()
        asked = {
            name: {e: _possible(target, servers.get(e)) for e, target in wanted.items()}
            for name, servers in table.items()
        }
        if differs(table, asked):
            driver.apply(asked)
        return not differs(driver.observe(), dict.fromkeys(table, wanted))

    until(done, "the change is completed")


def _possible(target: Target, shown: Server | None) -> Target:
    """What the loop asks for: no instance goes in that is not healthy at the balancer."""
    fits = shown and (shown.rotation is IN or shown.lb_healthy)
    return target if fits else target._replace(rotation=OUT)


class CohortContract:
    """The cases."""

    def test_clients_follow_a_rising_share_and_never_go_back(
        self, plane: t.Any, backends: Backends
    ) -> None:
        fleet = Sides(plane, backends)
        clients = [Client(front, f"user={n}") for n in range(150) for front in plane.fronts]
        before = sides(clients)
        assert set(before) == {"old"}
        for new, old, share in ((1, 9, 0.1), (1, 3, 0.25), (1, 1, 0.5), (4, 1, 0.8), (1, 0, 1.0)):
            # a new process each time: what is apart is known from the balancers
            table = apply(plane.driver(), fleet.targets(new, old))
            assert {e: s.rotation for e, s in table["edge1"].items()} == {
                e: target.rotation for e, target in fleet.targets(new, old).items()
            }
            after = sides(clients)
            assert ("new", "old") not in set(zip(before, after, strict=True))
            assert abs(after.count("new") / len(clients) - share) < 0.1
            assert after[::2] == after[1::2], "the same side at both balancers"
            before = after
        targets = {e: t for e, t in fleet.targets(1, 0).items() if e in fleet.new}
        remove(fleet.driver, targets, *fleet.old)
        assert set(sides(clients)) == {"new"}

    def test_on_the_way_back_all_leave_at_once(self, plane: t.Any, backends: Backends) -> None:
        fleet = Sides(plane, backends)
        clients = [Client(plane.fronts[0], f"user={n}") for n in range(100)]
        apply(fleet.driver, fleet.targets(1, 1))
        before = sides(clients)
        apply(fleet.driver, fleet.targets(1, 3, back=True))
        after = sides(clients)
        assert ("old", "new") not in set(zip(before, after, strict=True))
        assert 5 <= after.count("new") <= 45
        apply(fleet.driver, fleet.targets(0, 1, back=True))
        assert set(sides(clients)) == {"old"}

    def test_clients_without_the_cookie_are_divided_at_random(
        self, plane: t.Any, backends: Backends
    ) -> None:
        fleet = Sides(plane, backends)
        apply(fleet.driver, fleet.targets(1, 1))
        got = answers(plane, 100)
        assert 60 < got["new0"] + got["new1"] < 140, got
