# SPDX-License-Identifier: GPL-3.0-or-later
"""An API server in memory that has the Gateway API, a route, and a Gateway that reports about it."""

from __future__ import annotations

import copy
import typing as t
from collections.abc import Callable

from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms import _pod
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.kubernetes import ApiError
from ansible_collections.progressive.rollout.tests.support import kubernetes as api

GROUP = "gateway.networking.k8s.io"
SERVICES = f"{api.CORE}/services"
Object = dict[str, t.Any]


class Gateways(api.Server):
    """With a Deployment, its Service, and a route whose requests go to the ready pods."""

    def __init__(self, replicas: int = 4, version: str = "v1", kind: str = "httproute") -> None:
        super().__init__()
        self.versions = {GROUP: {version: ["httproutes", "grpcroutes"]}}
        self.versions["discovery.k8s.io"] = {"v1beta1": ["endpointslices"]}
        self.route = f"/apis/{GROUP}/{version}/namespaces/web/{kind}s/shop"
        self.rejects: Callable[[Object], str] = lambda route: ""
        self.behind = 0  # generations that what is reported is old
        self.parents = ["edge"]
        self.sent: list[dict[str, int]] = []  # the weights, whenever they have changed
        self.changing = ""  # the path of what is being changed
        self.lost: list[str] = []  # what would have lost requests
        self.create(f"{api.APPS}/deployments", api.deployment("1", replicas))
        ports = [{"port": 80, "targetPort": 8080}]
        spec = {"selector": {"app": "shop"}, "ports": ports}
        self.create(SERVICES, {"metadata": {"name": "shop"}, "spec": spec})
        backend = {"kind": "Service", "name": "shop", "port": 80, "weight": 1}
        rules = [{"matches": [{"path": {"value": "/"}}], "backendRefs": [backend]}]
        self.create(
            self.route.rpartition("/")[0], {"metadata": {"name": "shop"}, "spec": {"rules": rules}}
        )

    @property
    def rules(self) -> t.Any:
        return self.objects[self.route]["spec"]["rules"]

    @rules.setter
    def rules(self, rules: t.Any) -> None:
        route = copy.deepcopy(self.objects[self.route])
        route["spec"]["rules"] = rules
        route["metadata"]["generation"] += 1
        self._put(self.route, route)

    def get(self, path: str, **query: str) -> Object:
        group, _slash, version = path.removeprefix("/apis/").partition("/")
        if group in self.versions and not version:
            return {"versions": [{"version": one} for one in self.versions[group]]}
        if version in self.versions.get(group, {}):
            return {"resources": [{"name": one} for one in self.versions[group][version]]}
        if path == SERVICES and "labelSelector" in query:
            key, _equals, value = query["labelSelector"].partition("=")
            there = [one for one in self._all(SERVICES) if _pod.labels_of(one).get(key) == value]
            return copy.deepcopy({"items": there})
        if path.endswith("/endpointslices"):
            return {"items": [self._slice(one) for one in self._all(SERVICES)]}
        return super().get(path, **query)

    def post(self, path: str, body: Object, **query: str) -> Object:
        self.changing = path
        return super().post(path, body, **query)

    def patch(self, path: str, body: t.Any, **query: str) -> Object:
        self.changing = path
        return super().patch(path, body, **query)

    def delete(self, path: str, body: Object | None = None) -> None:
        self.changing = path
        if not path.startswith(SERVICES):
            return super().delete(path, body)
        self._changes(f"delete {path.rpartition('/')[2]}")
        metadata = self.objects[path]["metadata"]
        wanted = (body or {})["preconditions"]
        if any(metadata[key] != value for key, value in wanted.items()):
            raise ApiError(f"DELETE {path}: the object has been modified (409)", 409)
        del self.objects[path]
        self._look()
        return None

    def _put(self, path: str, one: Object) -> None:
        super()._put(path, one)
        if path == self.route:
            self._report()
        self._look()

    def _report(self) -> None:
        """Have the Gateway report about the route."""
        route = self.objects[self.route]
        why, seen = self.rejects(route), route["metadata"]["generation"] - self.behind
        fine = {"status": "True", "reason": "Fine", "observedGeneration": seen}
        refused = {**fine, "status": "False", "reason": "Wrong", "message": why}
        conditions = [
            {"type": "Accepted", **fine},
            {"type": "ResolvedRefs", **(refused if why else fine)},
        ]
        parents = [
            {"parentRef": {"name": name}, "controllerName": "acme", "conditions": conditions}
            for name in self.parents
        ]
        super()._put(self.route, {**route, "status": {"parents": parents}})

    def _look(self) -> None:
        """Note the weights, and whether requests would have been lost."""
        if self.route not in self.objects:
            return
        backends = self.rules[-1]["backendRefs"] if self.rules else ()
        weights = {ref["name"]: ref["weight"] for ref in backends}
        if weights not in self.sent[-1:]:
            self.sent.append(weights)
        if self.living() and not any(weights.values()):
            self.lost.append(f"all weights are 0: {weights}")
        for name, weight in weights.items():
            service = self.objects.get(f"{SERVICES}/{name}")
            if weight and not (service and self._addresses(service)):
                self.lost.append(f"{name} has no pods: {weights}")

    def _addresses(self, service: Object) -> list[str]:
        wanted = service["spec"]["selector"].items()
        return [
            pod["status"]["podIP"]
            for pod in self.living()
            if wanted <= pod["metadata"]["labels"].items()
            and _pod.condition(pod, "Ready").get("status") == "True"
        ]

    def _slice(self, service: Object) -> Object:
        found = [{"addresses": [one], "conditions": {}} for one in self._addresses(service)]
        labels = {
            "kubernetes.io/service-name": service["metadata"]["name"],
            "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
        }
        return {"metadata": {"labels": labels}, "endpoints": found}
