# SPDX-License-Identifier: GPL-3.0-or-later
"""Services of Kubernetes that send requests to more than the workload that is rolled out."""

from __future__ import annotations

import copy
import typing as t
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import pytest
from ansible_collections.progressive.rollout.plugins.action import begin, plan
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import InputError
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import (
    DriverContext,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms import kubernetes
from ansible_collections.progressive.rollout.plugins.plugin_utils.traffic import (
    gateway_api,
    kubernetes_service,
)
from ansible_collections.progressive.rollout.tests.support import kubernetes as api
from ansible_collections.progressive.rollout.tests.support.gateways import Gateways
from ansible_collections.progressive.rollout.tests.support.memory import Service, World

pytestmark = pytest.mark.usefixtures("virtual_time")

OF_SHOP = {"kubernetes.io/service-name": "shop"}


@dataclass
class Behind(World):
    """The Deployment `shop` behind its Service, alone or in the rule of a route."""

    server: Gateways = field(default_factory=lambda: Gateways(2))
    route: bool = False
    options: dict[str, t.Any] = field(default_factory=dict)  # of the platform
    fewest: int = 0
    most: int = 99

    def platform(self) -> t.Any:
        given = {"workload": "deployment/shop", "image": "local/shop:{revision}"}
        options = kubernetes.OPTIONS.parse({**given, **self.options}, "rollout_platform.")
        made = kubernetes.Driver(options, self._context)
        made.__dict__["_cluster"] = self.server
        return made

    def traffic(self) -> t.Any:
        given = {"service": "shop", "settle": "0s"}
        if not self.route:
            options = kubernetes_service.OPTIONS.parse(given, "rollout_traffic.")
            service = kubernetes_service.Driver(options, self._context)
            service.__dict__["_cluster"] = self.server
            return service
        options = gateway_api.OPTIONS.parse(
            {**given, "route": "httproute/shop"}, "rollout_traffic."
        )
        made = gateway_api.Driver(options, self._context)
        made.gateway.objects.__dict__["cluster"] = self.server
        made.gateway.objects.poll = 0.01
        return made

    @property
    def _context(self) -> DriverContext:
        assert self.context
        transport = t.cast(t.Any, SimpleNamespace(print_line=lambda text: None))
        return replace(self.context, transport=transport, known=self.known)


def pod(server: api.Server, name: str, owner: str = "", phase: str = "Running") -> None:
    """Add a pod that the Service selects, of the ReplicaSet `owner` of another workload."""
    body = copy.deepcopy(api.template("1"))
    metadata: dict[str, t.Any] = {"name": name, "labels": {"app": "shop"}, "ownerReferences": []}
    if owner:
        metadata["labels"]["pod-template-hash"] = owner.rpartition("-")[2]
        owners = [{"uid": owner, "controller": True, "kind": "ReplicaSet", "name": owner}]
        metadata["ownerReferences"] = owners
    status = {"phase": phase, "podIP": f"198.18.70.{len(server.objects)}"}
    ready = [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]
    body |= {"metadata": {**metadata, "uid": f"uid-{900 + len(server.objects)}"}}
    server.objects[f"{api.PODS}/{name}"] = {**body, "status": {**status, "conditions": ready}}


@pytest.mark.parametrize("route", [False, True], ids=["service", "route"])
@pytest.mark.parametrize("step", [begin, plan])
def test_a_service_of_other_workloads_is_refused(route: bool, step: t.Any) -> None:
    world = Behind(route=route)
    for number, owner in enumerate(["shop-v2-77f", "shop-v2-77f", "shop-v3-9bc"]):
        pod(world.server, f"other-{number}", owner)
    before = copy.deepcopy(world.server.objects)
    with pytest.raises(InputError) as refused:
        Service(world, replicas=2).step(step, revision="2")
    assert refused.value.id == "PR-257"
    assert "deployment/shop-v2 (2 pods), deployment/shop-v3 (1 pod)" in str(refused.value)
    others = [path for path in before if "/other-" in path]
    assert {p: world.server.objects[p] for p in others} == {p: before[p] for p in others}
    assert world.server.objects[api.SERVICE]["spec"] == before[api.SERVICE]["spec"]


def test_a_pod_that_nothing_owns_is_named() -> None:
    world = Behind()
    pod(world.server, "debug")
    with pytest.raises(InputError, match=r"pod/debug \(1 pod\)"):
        Service(world, replicas=2).step(begin, revision="2")


def test_a_service_of_another_workload_alone_is_refused() -> None:
    """As where the canary that was made by hand is rolled out, of which nothing runs yet."""
    world = Behind(server=Gateways(0))
    pod(world.server, "other", "shop-stable-77f")
    with pytest.raises(InputError, match="deployment/shop-stable"):
        Service(world, replicas=2).step(begin, revision="2")


@pytest.mark.parametrize("route", [False, True], ids=["service", "route"])
def test_pods_that_have_ended_are_nobodys(route: bool) -> None:
    world = Behind(route=route)
    pod(world.server, "job", "job-77f", "Succeeded")
    result = Service(world, replicas=2).play(revision="2")
    assert result["rollout"]["outcome"] == "promoted"


@pytest.mark.parametrize("route", [False, True], ids=["service", "route"])
@pytest.mark.parametrize("by_hand", [True, False])
def test_addresses_made_by_hand_are_refused(
    route: bool, by_hand: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = Behind(route=route)
    slices = [{"metadata": {"name": "old-vm", "labels": OF_SHOP}, "endpoints": [{}]}]
    if not by_hand:
        slices[0]["metadata"]["ownerReferences"] = [{"controller": True}]  # type: ignore[index]
    get = world.server.get

    def with_slices(path: str, **query: str) -> t.Any:
        found = get(path, **query)
        return {"items": [*found["items"], *slices]} if path.endswith("/endpointslices") else found

    monkeypatch.setattr(world.server, "get", with_slices)
    shop = Service(world, replicas=2)
    if not by_hand:
        assert shop.step(begin, revision="2")["changed"]
        return
    with pytest.raises(InputError, match="EndpointSlice old-vm") as refused:
        shop.step(begin, revision="2")
    assert refused.value.id == "PR-257"


# Endpoints that could never be known
# --------------------------------------------------------------------------------------------------


def deployed(change: t.Callable[[dict[str, t.Any]], None]) -> Gateways:
    """A server whose Deployment was made with another container."""
    server = Gateways(0)
    body = api.deployment("1", 2)
    change(body["spec"]["template"]["spec"]["containers"][0])
    del server.objects[api.SHOP]
    server.create(api.DEPLOYMENTS, body)
    return server


@pytest.mark.parametrize("step", [begin, plan])
def test_pods_without_a_port_are_refused(step: t.Any) -> None:
    world = Behind(server=deployed(lambda container: container.pop("ports")))
    with pytest.raises(InputError, match="container shop of deployment shop") as refused:
        Service(world, replicas=2).step(step, revision="2")
    assert refused.value.id == "PR-258"
    world.options = {"port": 8080}
    assert Service(world, replicas=2).play(revision="2")["rollout"]["outcome"] == "promoted"


def test_a_template_may_name_the_port() -> None:
    ports = [{"name": "shop", "ports": [{"containerPort": 8080}]}]
    world = Behind(server=deployed(lambda container: container.pop("ports")))
    world.options = {"template": {"spec": {"containers": ports}}}
    assert Service(world, replicas=2).step(begin, revision="2")["changed"]


def test_pods_that_nobody_has_to_reach_need_no_port() -> None:
    world = Behind(server=deployed(lambda container: container.pop("ports")), balancer="none")
    assert Service(world, replicas=2).play(revision="2")["rollout"]["outcome"] == "promoted"


def test_pods_known_at_another_port_are_refused() -> None:
    world = Behind(options={"port": 9090})
    with pytest.raises(InputError, match=r"to port 8080 .* at port 9090") as refused:
        Service(world, replicas=2).step(begin, revision="2")
    assert refused.value.id == "PR-258"


def test_a_named_port_that_no_container_has_is_refused() -> None:
    world = Behind()
    world.server.objects[api.SERVICE]["spec"]["ports"][0]["targetPort"] = "web"
    with pytest.raises(InputError, match="the port web of its pods") as refused:
        Service(world, replicas=2).step(begin, revision="2")
    assert refused.value.id == "PR-258"
