# SPDX-License-Identifier: GPL-3.0-or-later
"""nginx with clients that stay on their side."""

from __future__ import annotations

import typing as t
from collections.abc import Iterator, Mapping, Sequence

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    Endpoint,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.traffic import Target
from ansible_collections.progressive.rollout.plugins.plugin_utils.traffic.nginx import Driver
from ansible_collections.progressive.rollout.tests.drivers import test_nginx
from ansible_collections.progressive.rollout.tests.drivers.traffic_contract import (
    IN,
    OUT,
    Backends,
    Client,
    TrafficContract,
    answers,
    apply,
    bring_in,
    prove,
    remove,
)
from ansible_collections.progressive.rollout.tests.support import nginx as lab

USER: Mapping[str, t.Any] = {"cookie": "user"}
SIDES = ("old", "new")


class Plane(test_nginx.Plane):
    def driver(self, *args: t.Any, **options: t.Any) -> Driver:
        cohort = {} if options.get("service") == "cart" else {"cohort": USER}
        return super().driver(*args, **(cohort | options))

    def wrong(self) -> Sequence[tuple[Mapping[str, t.Any], str]]:
        return [
            ({"cohort": {"cookie": "user", "header": "x"}}, "is not one cookie or header"),
            ({"cohort": {"query": "user"}}, "is not one cookie or header"),
            ({"cohort": {"cookie": "a;b"}}, "rollout_traffic.cohort.cookie: 'a;b'"),
            ({"cohort": {"cookie": "a-b"}}, "rollout_traffic.cohort.cookie: 'a-b': nginx has no"),
        ]


@pytest.fixture
def plane() -> Iterator[Plane]:
    nginxes: list[t.Any] = []
    try:
        nginxes.extend(
            lab.Nginx(proxy=lab.COHORT_PROXY, more=lab.COHORT_PLACEHOLDER) for _n in range(2)
        )
        yield Plane(nginxes)
    finally:
        for nginx in nginxes:
            nginx.close()


@pytest.fixture
def backends() -> Iterator[Backends]:
    backends = Backends()
    yield backends
    for endpoint in list(backends.processes):
        backends.kill(endpoint)


class TestContract(TrafficContract):
    pool_of_shop: t.ClassVar = {"upstream": "shop"}
    counts = False
    # it has no preview
    test_a_dark_set_can_be_looked_at = test_an_older_lease_is_refused_at_the_preview_as_well = None
    # files without the variable, which nginx refuses with this configuration
    test_an_entry_of_another_service_in_the_pool_is_told_apart = None
    test_what_an_older_version_left_is_continued = None

    @pytest.fixture
    def plane(self, plane: Plane) -> Plane:
        return plane


class Sides:
    """Two old and two new instances, all of them known and healthy; the old ones serve."""

    def __init__(self, plane: Plane, backends: Backends) -> None:
        self.driver = plane.driver()
        self.old, self.new = ([backends.start(f"{side}{n}") for n in range(2)] for side in SIDES)
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


def test_clients_follow_a_rising_share_and_never_go_back(plane: Plane, backends: Backends) -> None:
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


def test_on_the_way_back_all_leave_at_once(plane: Plane, backends: Backends) -> None:
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


def test_clients_without_the_cookie_are_divided_at_random(plane: Plane, backends: Backends) -> None:
    fleet = Sides(plane, backends)
    apply(fleet.driver, fleet.targets(1, 1))
    got = answers(plane, 100)
    assert 60 < got["new0"] + got["new1"] < 140, got


def test_clients_of_a_side_that_is_gone_get_the_other(plane: Plane, backends: Backends) -> None:
    for nginx in plane.nginxes.values():
        nginx.config.write_text(nginx.config.read_text().replace("proxy_next_upstream off;", ""))
    fleet = Sides(plane, backends)
    apply(fleet.driver, fleet.targets(1, 1))
    for endpoint in fleet.new:
        backends.kill(endpoint)
    clients = [Client(plane.fronts[0], f"user={n}") for n in range(40)]
    assert set(sides(clients)) == {"old"}


def test_a_header_can_identify_a_client(plane: Plane, backends: Backends) -> None:
    fleet = Sides(plane, backends)
    apply(plane.driver(cohort={"header": "X-User"}), fleet.targets(1, 1))
    assert "$http_x_user" in (plane.nginxes["edge1"].path / "shop.conf").read_text()


def test_a_configuration_that_does_not_use_the_variable_is_refused() -> None:
    nginxes = [lab.Nginx() for _n in range(2)]
    try:
        with pytest.raises(Exception, match=r"write `proxy_pass http://\$rollout_shop;`"):
            Plane(nginxes).driver().check()
    finally:
        for nginx in nginxes:
            nginx.close()
