# SPDX-License-Identifier: GPL-3.0-or-later
"""Envoy with clients that stay on their side: the contract, and what only cohorts have."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import envoy as agent
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    TrafficError,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.traffic import Target
from ansible_collections.progressive.rollout.plugins.plugin_utils.traffic.envoy import Driver
from ansible_collections.progressive.rollout.tests.drivers import test_envoy
from ansible_collections.progressive.rollout.tests.drivers.cohort_contract import (
    CohortContract,
    Sides,
    settle,
    sides,
)
from ansible_collections.progressive.rollout.tests.drivers.traffic_contract import (
    IN,
    OUT,
    Backends,
    Client,
    Load,
    TrafficContract,
    apply,
    bring_in,
    kept,
    prove,
)
from ansible_collections.progressive.rollout.tests.support import envoy as lab
from ansible_collections.progressive.rollout.tests.support.waiting import until

USER: Mapping[str, t.Any] = {"cookie": "user"}


class Plane(test_envoy.Plane):
    def driver(self, *args: t.Any, **options: t.Any) -> Driver:
        return super().driver(*args, **{"cohort": USER} | options)

    def wrong(self) -> Sequence[tuple[Mapping[str, t.Any], str]]:
        return [
            ({"cohort": {"cookie": "user", "header": "x"}}, "is not one cookie or header"),
            ({"cohort": {"query": "user"}}, "is not one cookie or header"),
            ({"cohort": {"cookie": "a;b"}}, "rollout_traffic.cohort.cookie: 'a;b'"),
            ({"sticky": {"cookie": "bound"}}, "rollout_traffic.sticky: binds clients"),
        ]

    def options(self) -> Sequence[tuple[Mapping[str, t.Any], Callable[[], bool]]]:
        """Envoy's own dump tells."""

        def routes(envoy: t.Any) -> str:
            """Those of the listener; one that is drained still has its own."""
            kinds = "dynamic_listeners", "dynamic_route_configs"
            listeners, apart = (envoy.get(f"/config_dump?resource={kind}") for kind in kinds)
            return apart if '"rds"' in listeners else str(listeners)

        def dumped(*texts: str) -> Callable[[], bool]:
            every = {"use_hash_policy", "header_name", "~match", "~copies", "num_retries"}

            def agrees() -> bool:
                dumps = [routes(envoy) for envoy in self.envoys.values()]
                return all({text for text in every if text in dump} == set(texts) for dump in dumps)

            return agrees

        match = {"match": {"header": "X-Canary", "value": "always"}}
        return [
            (match | {"mirror": 50}, dumped("use_hash_policy", "~match", "~copies")),
            ({"retry": 3}, dumped("use_hash_policy", "num_retries")),
            ({"cohort": {"header": "X-User"}}, dumped("use_hash_policy", "header_name")),
            ({"cohort": None}, dumped()),
            ({}, dumped("use_hash_policy")),
        ]


@pytest.fixture
def plane() -> Iterator[Plane]:
    envoys: list[t.Any] = []
    try:
        envoys.extend(lab.Envoy() for _n in range(2))
        yield Plane(envoys)
    finally:
        for envoy in envoys:
            envoy.close()


class TestContract(TrafficContract):
    # each service has a cluster, and two cannot listen at one address
    test_an_entry_of_another_service_in_the_pool_is_told_apart = None
    test_whose_entries_are_is_known_without_their_names = None

    @pytest.fixture
    def plane(self, plane: Plane) -> Plane:
        return plane


class TestCohorts(CohortContract):
    pass


def test_a_header_can_identify_a_client(plane: Plane, backends: Backends) -> None:
    fleet = Sides(plane, backends)
    apply(plane.driver(cohort={"header": "X-User"}), fleet.targets(1, 1))
    front = plane.fronts[0]
    users = [{name[:3] for name in kept(front, 6, {"x-user": f"u{n}"})} for n in range(40)]
    assert {len(names) for names in users} == {1}
    assert 8 <= users.count({"new"}) <= 32


def test_clients_of_a_side_that_is_gone_get_the_other(plane: Plane, backends: Backends) -> None:
    fleet = Sides(plane, backends)
    apply(fleet.driver, fleet.targets(1, 1))
    for endpoint in fleet.new:
        backends.kill(endpoint)
    until(
        lambda: (
            not any(
                servers[e].lb_healthy
                for servers in fleet.driver.observe().values()
                for e in fleet.new
            )
        ),
        "Envoy knows that they are gone",
    )
    clients = [Client(plane.fronts[0], f"user={n}") for n in range(40)]
    assert set(sides(clients)) == {"old"}


def test_no_request_fails_whatever_the_share(plane: Plane, backends: Backends) -> None:
    fleet = Sides(plane, backends)
    with Load(plane.fronts) as load:
        for new, old in ((1, 9), (1, 1), (9, 1), (1, 0), (1, 1), (0, 1), (1, 0)):
            apply(fleet.driver, fleet.targets(new, old))
            seen = load.good.total()
            until(lambda seen=seen: load.good.total() > seen + 100)  # type: ignore[misc]
    assert not load.bad, load.bad


def test_the_next_rollout_moves_clients_forward_as_well(plane: Plane, backends: Backends) -> None:
    fleet = Sides(plane, backends)
    for new, old in ((1, 3), (1, 0)):
        apply(fleet.driver, fleet.targets(new, old))
    clients = [Client(front, f"user={n}") for n in range(60) for front in plane.fronts]
    before = sides(clients)
    fleet.old, fleet.new = fleet.new, fleet.old
    for new, old in ((0, 1), (1, 3), (1, 1), (3, 1), (1, 0)):
        apply(plane.driver(), fleet.targets(new, old))
        after = sides(clients)
        assert ("old", "new") not in set(zip(before, after, strict=True))
        assert after[::2] == after[1::2], "the same side at both balancers"
        assert abs(after.count("old") / len(clients) - new / (new + old)) < 0.15
        before = after


@pytest.mark.parametrize("updates", [0, 1, 2, 3])
@pytest.mark.parametrize("step", ["begin", "more", "end", "back"])
def test_a_change_that_is_cut_moves_no_client_the_wrong_way_and_is_completed(
    plane: Plane, backends: Backends, monkeypatch: pytest.MonkeyPatch, step: str, updates: int
) -> None:
    """As many updates as are written at both together before the run is killed."""
    fleet, publish, count = Sides(plane, backends), agent.publish, iter(range(100))
    clients = [Client(front, f"user={n}") for n in range(60) for front in plane.fronts]
    if step != "begin":
        apply(fleet.driver, fleet.targets(1, 3))
    before = sides(clients)
    weights = {"begin": (1, 3), "more": (1, 1), "end": (1, 0), "back": (0, 1)}[step]
    wanted = fleet.targets(*weights, back=step == "back")

    def cut(*args: t.Any) -> None:
        if next(count) >= updates:
            raise agent.Failed("killed")
        publish(*args)

    monkeypatch.setattr(agent, "publish", cut)
    with pytest.raises(TrafficError, match="killed"):
        apply(plane.driver(), wanted)
    monkeypatch.undo()
    wrong = ("old", "new") if step == "back" else ("new", "old")
    for _time in range(2):
        after = sides(clients)
        assert wrong not in set(zip(before, after, strict=True))
        before = after
        settle(plane.driver(), wanted)
    after = sides(clients)
    assert wrong not in set(zip(before, after, strict=True)) and after[::2] == after[1::2]
    share = weights[0] / sum(weights)
    assert abs(after.count("new") / len(clients) - share) < 0.15


def test_a_service_gets_a_cohort_under_load(plane: Plane, backends: Backends) -> None:
    """The cluster and the listener it had are changed, and changed back."""
    a, b = backends.start("a"), backends.start("b")
    targets = {a: Target(IN, name="shop-a"), b: Target(OUT, name="shop-b")}
    bring_in(plane.driver(cohort=None), targets)
    with Load(plane.fronts) as load:
        for cohort in (USER, None, USER):
            driver = plane.driver(cohort=cohort)
            apply(driver, targets)
            prove(driver, b)
            seen = load.good.total()
            until(lambda seen=seen: load.good.total() > seen + 100)  # type: ignore[misc]
    assert not load.bad and set(load.good) == {"a"}


def test_an_envoy_that_divides_requests_only_is_refused(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    def older(request: agent.Request, path: str) -> dict[str, t.Any]:
        answer = fetch(request, path)
        return {**answer, "version": "abc/1.35.3/Clean"} if path == "/server_info" else answer

    fetch = agent.fetch
    monkeypatch.setattr(agent, "fetch", older)
    plane.driver(cohort=None).check()
    with pytest.raises(TrafficError, match=r"rollout_traffic.cohort: Envoy on edge1 is 1\.35") as e:
        plane.driver().check()
    assert e.value.id == "PR-302"
