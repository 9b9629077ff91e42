# SPDX-License-Identifier: GPL-3.0-or-later
"""The step `remove` on orchestrators in memory: our notes go, and what runs stays as it is."""

from __future__ import annotations

import copy
import typing as t
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

import pytest
from ansible_collections.progressive.rollout.plugins.action import remove
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    RolloutFailed,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Rotation
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    Endpoint,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.traffic import (
    Server as Shown,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms import _pod, _pods
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms._hand_back import CAUSE
from ansible_collections.progressive.rollout.tests.support import kubernetes as api
from ansible_collections.progressive.rollout.tests.support.gateways import Gateways
from ansible_collections.progressive.rollout.tests.support.memory import Service, World
from ansible_collections.progressive.rollout.tests.support.statefulsets import Server
from ansible_collections.progressive.rollout.tests.support.swarm import Managers
from ansible_collections.progressive.rollout.tests.support.swarm import Server as Swarm
from ansible_collections.progressive.rollout.tests.unit import (
    test_gateway_api,
    test_kubernetes,
    test_kubernetes_in_place,
    test_several,
    test_swarm,
)

IN_PLACE = pytest.mark.parametrize(
    "given", [{"number": 3}, {"nodes": 3}], ids=["statefulset", "daemonset"]
)


def removed(shop: Service, objects: t.Any) -> list[str]:
    """Remove what rollouts have left, once it was named; return it."""
    before = copy.deepcopy(objects)
    named: list[str] = shop.step(remove, check_mode=True)["removed"]
    assert objects == before, "check mode touches nothing"
    assert shop.step(remove)["removed"] == named
    again = shop.step(remove)
    assert (again["removed"], again["changed"]) == ([], False)
    return named


def noted(server: api.Server) -> set[str]:
    """The paths of objects that have a label or an annotation of ours."""
    return {
        path
        for path, obj in server.objects.items()
        for key in [*_pod.notes_of(obj), *_pod.labels_of(obj)]
        if key.startswith(_pods.DOMAIN) or key == CAUSE
    }


def uids(server: api.Server) -> set[str]:
    return {pod["metadata"]["uid"] for pod in server.living()}


@IN_PLACE
def test_pods_that_were_replaced_at_their_places(given: dict[str, int]) -> None:
    server = Server(**given)
    shop = test_kubernetes_in_place.Shop(server)
    shop.play(revision="2")
    pods = uids(server)
    named = removed(shop, server.objects)
    kind = server.path.split("/")[-2]
    name = server.path.rpartition("/")[2]
    assert f"{kind}/{name}: annotation {_pods.EPOCH}" in named
    assert sum(line.endswith(f"label {_pods.ROLE}") for line in named) == 3
    server.reconcile()
    assert noted(server) == set()
    assert uids(server) == pods, "they run on"


def test_a_deployment_comes_back() -> None:
    """Its ReplicaSets have names of earlier rollouts, and their pods labels."""
    server = test_kubernetes.cluster()
    shop = test_kubernetes.Shop(server, progress_deadline="2s")
    for revision in ("2", "3"):
        shop.play(revision=revision)
    removed(shop, server.objects)
    pods = uids(server)
    server.starts = lambda pod: not pod["spec"]["containers"][0]["image"].endswith("broken")
    with pytest.raises(RolloutFailed, match="no progress"):
        shop.play(revision="broken")
    test_kubernetes.is_ordinary(server, "3", 4)
    assert (uids(server), server.changes.count("create shop-g2-2")) == (pods, 1)
    shop.play(revision="4")
    test_kubernetes.is_ordinary(server, "4", 4)


@IN_PLACE
def test_a_rollout_after_that_is_the_first_one_and_can_go_back(given: dict[str, int]) -> None:
    server = Server(**given)
    shop = test_kubernetes_in_place.Shop(server, progress_deadline="1s")
    shop.play(revision="2")
    removed(shop, server.objects)
    server.starts = lambda pod: not pod["spec"]["containers"][0]["image"].endswith("broken")
    with pytest.raises(RolloutFailed, match="no progress"):
        shop.play(revision="broken")
    test_kubernetes_in_place.is_over(server, "2", 3)
    shop.play(revision="3")
    test_kubernetes_in_place.is_over(server, "3", 3)


def test_a_route_is_its_owners() -> None:
    server = Gateways()
    shop = test_gateway_api.Shop(server, progress_deadline="5s")
    shop.play(revision="2")
    pods, spec = uids(server), copy.deepcopy(server.objects[server.route]["spec"])
    named = removed(shop, server.objects)
    assert f"httproutes/shop: annotation {_pods.EPOCH}" in named
    assert (uids(server), server.objects[server.route]["spec"]) == (pods, spec)
    assert noted(server) == set()
    assert server.lost == []
    shop.play(revision="3")
    shop.is_as_before("3")


def test_all_parts() -> None:
    shop = test_several.Shop()
    shop.play(revision="2")
    cloud = shop.world.cloud
    pods, hosted = uids(cloud), dict(shop.world.instances)
    shop.begin_watch()
    named = removed(shop, cloud.objects)
    assert f"cluster cloud: deployments/shop: annotation {_pods.EPOCH}" in named
    assert noted(cloud) == set()
    assert (uids(cloud), dict(shop.world.instances)) == (pods, hosted)


@pytest.fixture
def swarm() -> Swarm:
    return Swarm()


@dataclass
class Services(World):
    """A service whose instances are services of a swarm."""

    managers: Managers | None = None
    fewest: int = 0
    most: int = 99
    epoch: int = field(default=0)

    def platform(self) -> t.Any:
        assert self.managers
        made = test_swarm.driver(self.managers)
        made.context = replace(made.context, known=self.known)
        return made


def test_services_of_a_swarm(swarm: Swarm, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Service(Services(managers=Managers(swarm, monkeypatch)), replicas=3)
    shop.play(revision="1")
    shop.play(revision="2")
    tasks = {task["ID"] for task in swarm.tasks}
    services = copy.deepcopy(swarm.objects["services"])
    named = removed(shop, swarm.objects)
    assert {f"swarm: labels of service {name}" for name in services} < set(named)
    assert "swarm: config rollout.shop" in named
    assert swarm.objects["configs"] == {}
    assert {task["ID"] for task in swarm.tasks} == tasks, "they run on"
    for name, before in services.items():
        after = swarm.objects["services"][name]["Spec"]
        assert after["Labels"] == {}
        assert {**after, "Labels": None} == {**before["Spec"], "Labels": None}
    shop.play(revision="3")
    assert tasks < {task["ID"] for task in swarm.tasks}, "nobody's any more"


class Served(World):
    """A load balancer with servers of a service that was removed."""

    def serving(self) -> int:
        return sum(server.rotation is Rotation.IN for server in self.servers.values())


@pytest.mark.parametrize("ends", [False, True], ids=["promoted", "fails"])
def test_a_first_rollout_leaves_the_servers_that_it_finds_until_an_instance_serves(
    ends: bool,
) -> None:
    before = {
        Endpoint("127.0.0.1", port): Shown(Rotation.IN, True, 0, name=f"shop-{port}")
        for port in (50, 51)
    }
    world = Served(servers=dict(before), fewest=1)
    world.crashes = lambda _labels: ends
    shop = Service(world, replicas=3, failure_limit=1)
    with pytest.raises(RolloutFailed) if ends else nullcontext():
        shop.play(revision="1")
    assert world.wrong == []
    if ends:
        assert world.servers == before, "they serve on"
    else:
        assert not before.keys() & world.servers.keys()
