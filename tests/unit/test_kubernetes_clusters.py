# SPDX-License-Identifier: GPL-3.0-or-later
"""Rollouts of a Deployment in two clusters, each over an API server in memory.

With a Service in each, pods of different clusters have the same addresses here.
"""

from __future__ import annotations

import typing as t
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    InputError,
    LeaseLost,
    RolloutFailed,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Process
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.check import (
    HealthCheck,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import (
    DriverContext,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    NOWHERE,
    Labels,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms import (
    _pods,
    kubernetes,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.kubernetes import ApiError
from ansible_collections.progressive.rollout.plugins.plugin_utils.traffic import (
    gateway_api,
    kubernetes_service,
)
from ansible_collections.progressive.rollout.tests.support import kubernetes as api
from ansible_collections.progressive.rollout.tests.support.contexts import Knows, leased, tell
from ansible_collections.progressive.rollout.tests.support.memory import Service, World
from ansible_collections.progressive.rollout.tests.support.waiting import until
from ansible_collections.progressive.rollout.tests.unit.test_kubernetes import is_ordinary

GIVEN = {"workload": "deployment/shop", "image": "local/shop:{revision}"}
EACH_ITS_WAVE = [{"name": "first", "clusters": ["eu"]}, {"name": "second", "clusters": ["us"]}]


class Cluster(api.Server):
    """An API server that may be gone."""

    def __init__(self, replicas: int, network: str) -> None:
        super().__init__()
        self.network, self.gone = network, False
        self.asked: Callable[[], None] = lambda: None  # while it is gone
        self.create(f"{api.APPS}/deployments", api.deployment("1", replicas))
        ports = [{"port": 80, "targetPort": 8080}]
        spec = {"selector": {"app": "shop"}, "ports": ports}
        self.create(f"{api.CORE}/services", {"metadata": {"name": "shop"}, "spec": spec})

    def _answer(self) -> None:
        if self.gone:
            self.asked()
            raise ApiError("the API server does not answer: refused")

    def get(self, path: str, **query: str) -> t.Any:
        self._answer()
        return super().get(path, **query)

    def post(self, path: str, body: t.Any, **query: str) -> t.Any:
        self._answer()
        return super().post(path, body, **query)

    def patch(self, path: str, body: t.Any, **query: str) -> t.Any:
        self._answer()
        return super().patch(path, body, **query)


@dataclass
class Clusters(World):
    """Pods in clusters, perhaps with a Service in each as its load balancer."""

    apis: dict[str, Cluster] = field(default_factory=dict)
    factors: dict[str, t.Any] = field(default_factory=dict)
    balanced: bool = False
    fewest: int = 0

    @property
    def listed(self) -> list[dict[str, t.Any]]:
        return [
            {"name": name, "context": name, "factor": self.factors.get(name, 1)}
            for name in self.apis
        ]

    def platform(self) -> t.Any:
        assert self.context
        options = kubernetes.OPTIONS.parse({**GIVEN, "clusters": self.listed}, "rollout_platform.")
        made = kubernetes.Driver.variant(options)(options, leased(self.context))
        assert isinstance(made, kubernetes.InClusters)
        for name, server in self.apis.items():
            made._members[name].driver.__dict__["_cluster"] = server
        return made

    def traffic(self) -> t.Any:
        assert self.context
        if not self.balanced:
            return super().traffic()
        given = {"service": "shop", "clusters": self.listed, "settle": "0s"}
        options = kubernetes_service.OPTIONS.parse(given, "rollout_traffic.")
        made = kubernetes_service.Driver.variant(options)(options, leased(self.context))
        assert isinstance(made, kubernetes_service.InClusters)
        for name, server in self.apis.items():
            made._members[name].__dict__["_cluster"] = server
        return made


class Shop(Service):
    """The service `shop` in the clusters eu and us, with notes on what it had at worst."""

    world: Clusters

    def __init__(
        self,
        replicas: int = 4,
        factors: t.Any = (),
        balanced: bool = False,
        **given: t.Any,
    ) -> None:
        each = replicas // 2
        # a load balancer outside of the clusters knows pods by addresses that differ
        networks = {"eu": "198.18.65", "us": "198.18.65" if balanced else "198.18.66"}
        servers = {
            name: Cluster(int(each * dict(factors).get(name, 1)), network)
            for name, network in networks.items()
        }
        for number, server in enumerate(servers.values(), 1):
            server.objects[api.SHOP]["metadata"]["uid"] = f"uid-0-{number}"
            _claim_again(server)
        self.eu, self.us = servers.values()
        world = Clusters(apis=servers, factors=dict(factors), balanced=balanced)
        super().__init__(world, replicas=replicas, **given)
        self.least, self.most = self.total, self.total
        for server in servers.values():
            self._watch(server)

    @property
    def total(self) -> int:
        return sum(api.serving(server) for server in (self.eu, self.us))

    def _watch(self, server: Cluster) -> None:
        put = server._put

        def watched(path: str, one: t.Any) -> None:
            put(path, one)
            self.least = min(self.least, self.total)
            self.most = max(self.most, len(self.eu.living()) + len(self.us.living()))

        server._put = watched  # type: ignore[method-assign]


def _claim_again(server: Cluster) -> None:
    """Let the Deployment own its ReplicaSet, by the uid that it has now."""
    mine = server.objects[api.SHOP]
    for path, one in server.objects.items():
        if path.startswith(api.SETS):
            owner = {"uid": mine["metadata"]["uid"], "controller": True}
            one["metadata"]["ownerReferences"] = [owner]


@pytest.mark.parametrize("balanced", [False, True])
def test_one_walk_over_both(balanced: bool) -> None:
    shop = Shop(8, {"us": 2}, balanced)
    shop.play(revision="2")
    is_ordinary(shop.eu, "2", 4)
    is_ordinary(shop.us, "2", 8)
    assert (shop.least, shop.most) == (12, 13)
    for server in (shop.eu, shop.us):
        assert server.objects[api.SERVICE]["spec"]["selector"] == {"app": "shop"}
    assert not shop.play(revision="2")["changed"]


@pytest.mark.parametrize("balanced", [False, True])
def test_a_canary_has_its_part_in_each_cluster(balanced: bool) -> None:
    shop = Shop(8, {}, balanced)
    given = {"strategy": "canary", "steps": [{"set_replicas": "25%"}, {"pause": {}}]}
    shop.play(revision="2", **given)
    assert [server.counts() for server in (shop.eu, shop.us)] == [{"1": 3, "2": 1}] * 2
    shop.say("promote")
    shop.play(revision="2", **given)
    is_ordinary(shop.eu, "2", 4)
    is_ordinary(shop.us, "2", 4)
    assert (shop.least, shop.most) == (8, 9)


def test_a_cluster_after_the_other() -> None:
    shop = Shop(targets=EACH_ITS_WAVE, balanced=True)
    at_first_change: list[dict[str, int]] = []
    shop.us.fails = lambda change: (
        at_first_change.append(shop.eu.counts()) if change == "create shop-g2" else None
    )
    shop.play(revision="2")
    assert at_first_change == [{"2": 2}], "the first cluster was done"
    is_ordinary(shop.eu, "2", 2)
    is_ordinary(shop.us, "2", 2)
    assert (shop.least, shop.most) == (4, 5)


def test_a_failure_in_the_second_takes_the_first_back() -> None:
    shop = Shop(targets=EACH_ITS_WAVE, progress_deadline="1s")
    shop.us.starts = lambda pod: not pod["spec"]["containers"][0]["image"].endswith("2")
    with pytest.raises(RolloutFailed):
        shop.play(revision="2")
    assert shop.journal.rollout and shop.journal.rollout.outcome == "rolled_back"
    is_ordinary(shop.eu, "1", 2)
    is_ordinary(shop.us, "1", 2)
    assert (shop.least, shop.most) == (4, 5)


@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.slow
def test_a_cluster_that_is_gone_holds_the_rollout_until_it_is_back(balanced: bool) -> None:
    """Of the other cluster, the rollout goes on where the budget lets it."""
    shop = Shop(8, {}, balanced, budget={"max_surge": 2, "max_unavailable": 4})
    seen: list[dict[str, int]] = []

    def asked() -> None:
        seen.append(shop.us.counts())
        if len(seen) > 40:
            shop.eu.gone = False

    shop.eu.asked = asked

    def go(change: str) -> None:
        if change == "patch shop-g2":
            shop.eu.gone, shop.eu.fails = True, lambda change: None

    shop.eu.fails = go
    shop.play(revision="2")
    assert len(seen) > 40 and seen[-1] == {"2": 4}, "the other cluster went on meanwhile"
    is_ordinary(shop.eu, "2", 4)
    is_ordinary(shop.us, "2", 4)
    assert shop.most <= 10
    assert any("eu does not answer" in line for line in shop.said)


def test_without_a_cluster_nothing_begins() -> None:
    shop = Shop()
    shop.us.gone = True
    with pytest.raises((ApiError, RolloutFailed), match="cluster us: the API server does not"):
        shop.play(revision="2", progress_deadline="1s")
    assert (shop.eu.changes, shop.us.changes) == ([], [])


# What a driver of several reports
# --------------------------------------------------------------------------------------------------


def both() -> tuple[Shop, t.Any]:
    shop = Shop()
    transport = t.cast(t.Any, None)
    shop.world.context = DriverContext("shop", transport, HealthCheck(), known=Knows(epoch=1))
    return shop, shop.world.platform()


def test_instances_have_the_names_of_their_clusters() -> None:
    _shop, driver = both()
    found = driver.sync()
    assert {report.labels.id.partition("/")[0] for report in found} == {"eu", "us"}
    assert {report.labels.host for report in found} == {"eu/node1", "us/node1"}
    assert len({report.labels.id for report in found}) == 4
    assert {name.partition("-")[0] for name in (r.labels.id for r in found)} == {
        "eu/made",
        "us/made",
    }


def test_what_a_lost_cluster_may_have_started_counts() -> None:
    shop, driver = both()
    driver.sync()
    shop.eu.gone = True
    found = driver.sync([Labels("", "shop", "2", 2, "eu", NOWHERE, 0)])
    mine = [report for report in found if report.labels.id.startswith("eu/")]
    assert [report.process for report in mine] == [Process.UNREACHABLE] * 3
    assert list(driver.away) == ["eu"]
    tell(shop.world, away=driver.away)
    later = shop.world.platform()  # of another run, with the same journal
    assert [r.labels for r in later.sync() if r.labels.host.startswith("eu")] == [
        report.labels for report in mine
    ]
    shop.eu.gone = False
    until_answered(later)
    assert later.away == {}
    assert sum(r.labels.id.startswith("eu/") for r in later.sync()) == 2


def until_answered(driver: t.Any) -> None:
    until(lambda: driver.sync() and not driver.away)


def test_a_newer_lease_in_one_cluster_ends_the_run() -> None:
    shop, driver = both()
    driver.sync()
    shop.us.objects[api.SHOP]["metadata"]["annotations"] = {_pods.EPOCH: "7"}
    with pytest.raises(LeaseLost, match=r"cluster us: .*epoch 7"):
        driver.sync()


def test_the_same_deployment_twice_is_refused() -> None:
    shop, driver = both()
    driver._members["us"].driver.__dict__["_cluster"] = shop.eu
    with pytest.raises(InputError, match="'us' and 'eu' lead to the same workload"):
        driver.check()


@pytest.mark.parametrize(
    "clusters, message",
    [
        ([{"name": "eu"}, {"name": "eu", "context": "x"}], "'eu' is the same cluster as 'eu'"),
        ([{"name": "eu"}, {"name": "us"}], "'us' is the same cluster as 'eu'"),
        ([{"context": "eu"}], r"clusters\[0\].name: not given"),
        ([{"name": "e/u"}], r"clusters\[0\].name: 'e/u' must not have a slash"),
        ([{"name": "eu", "factor": 0}], r"clusters\[0\].factor: "),
        ([{"name": "eu", "kubeconfig": "here"}], r"clusters\[0\].kubeconfig: "),
        ([{"name": "eu", "region": "x"}], "region"),
        ("eu", "rollout_platform.clusters: "),
    ],
)
def test_what_is_no_list_of_clusters_is_refused(clusters: t.Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        made({"clusters": clusters})


def made(given: dict[str, t.Any]) -> None:
    options = kubernetes.OPTIONS.parse({**GIVEN, **given}, "rollout_platform.")
    kubernetes.Driver.variant(options)(options, DriverContext("shop", t.cast(t.Any, None)))


def test_another_template_in_a_cluster_waits_for_a_person() -> None:
    shop = Shop()
    us = shop.world.apis["us"]

    def edited(change: str) -> None:
        if change == "create shop-g2":
            us.fails = lambda change: None
            us.patch(api.SHOP, {"spec": {"template": api.template("hotfix")}})

    us.fails = edited
    result = shop.play(revision="2")
    assert result["parked"]
    assert "cluster us: somebody else has changed the pod template" in result["msg"]
    assert "hotfix" in us.counts()
    us.patch(api.SHOP, {"spec": {"template": api.template("1")}})
    shop.play(revision="2")
    assert [one.counts() for one in shop.world.apis.values()] == [{"2": 2}, {"2": 2}]


def test_places_are_refused() -> None:
    with pytest.raises(InputError, match="statefulset/db in several clusters"):
        made({"workload": "statefulset/db", "clusters": [{"name": "eu"}]})


def test_a_match_is_refused() -> None:
    given = {
        "route": "httproute/shop",
        "service": "shop",
        "match": {"header": "X-Preview", "value": "yes"},
        "clusters": [{"name": "eu"}],
    }
    options = gateway_api.OPTIONS.parse(given, "rollout_traffic.")
    with pytest.raises(InputError, match=r"rollout_traffic\.match: "):
        gateway_api.Driver.variant(options)(options, DriverContext("shop", t.cast(t.Any, None)))
