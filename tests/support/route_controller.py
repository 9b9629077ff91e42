# SPDX-License-Identifier: GPL-3.0-or-later
"""A controller of the Gateway API for tests: it programs a real Envoy from HTTPRoutes and GRPCRoutes.

Backends are the ready addresses of their Services' EndpointSlices. What it reports is that of
https://gateway-api.sigs.k8s.io/reference/spec/#routeparentstatus: on time, late, refused, or of an
old generation.
"""

from __future__ import annotations

import json
import threading
import typing as t
from collections.abc import Callable, Mapping, Sequence

from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.kubernetes import (
    ApiError,
    Cluster,
    Reflector,
)
from ansible_collections.progressive.rollout.tests.support.envoy import Envoy

GATEWAYS = "/apis/gateway.networking.k8s.io/v1/namespaces"
NAME = "example.com/tests"
Object = Mapping[str, t.Any]
Condition = dict[str, t.Any]


class Controller:
    """Watches the routes and EndpointSlices of a namespace, and keeps an Envoy like them."""

    def __init__(self, cluster: Cluster, namespace: str, envoy: Envoy) -> None:
        self._cluster, self._envoy = cluster, envoy
        self.refuses: Callable[[Object], str] = lambda route: ""  # why, if it does
        self.stops = threading.Event()  # it reports nothing of what changes then
        self.behind = 0  # how many generations what it reports is old
        self.seen: list[t.Any] = []  # the rules as they were, one after the other
        self._changed, self._end = threading.Event(), threading.Event()
        slices = f"/apis/discovery.k8s.io/v1beta1/namespaces/{namespace}/endpointslices"
        self._routes = f"{GATEWAYS}/{namespace}/{{}}s"
        self._slices = Reflector(cluster, slices, self._changed.set)
        self._lists = {
            kind: Reflector(cluster, self._routes.format(kind), self._changed.set)
            for kind in ("httproute", "grpcroute")
        }
        self._files: dict[str, str] = {}
        self._dropped: set[str] = set()
        self._backends: set[str] = set()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._reconcile()
        self._thread.start()

    def close(self) -> None:
        self._end.set()
        self._changed.set()
        self._thread.join()
        for one in (self._slices, *self._lists.values()):
            one.close()

    def _run(self) -> None:
        while True:
            self._changed.wait()
            self._changed.clear()
            if self._end.is_set():
                return
            try:
                self._reconcile()
            except ApiError:
                self._changed.set()
                self._end.wait(0.2)

    def _reconcile(self) -> None:
        routes = [(kind, one) for kind, there in self._lists.items() for one in there.list()]
        for _kind, route in routes:
            if route["spec"]["rules"] not in self.seen[-1:]:
                self.seen.append(route["spec"]["rules"])
        if self.stops.is_set():
            return
        self._dropped = {one["metadata"]["name"] for _kind, one in routes if self.refuses(one)}
        self._program([one for kind, one in routes if kind == "httproute"])
        for kind, route in routes:
            self._report(kind, route)

    # -- Envoy -------------------------------------------------------------------------------------

    def _program(self, routes: Sequence[Object]) -> None:
        """Write what Envoy watches: endpoints before clusters before routes.

        Clusters stay, since requests may be on their way to them.
        """
        self._backends |= {
            ref["name"]
            for route in routes
            for rule in route["spec"]["rules"]
            for ref in [*(rule.get("backendRefs") or ()), *_copied(rule)]
        }
        for name in self._backends:
            self._write(f"eds-{name}", [self._endpoints(name)])
        clusters = [_cluster(str(self._envoy.path), name) for name in sorted(self._backends)]
        self._write("cds", clusters)
        kept = [route for route in routes if route["metadata"]["name"] not in self._dropped]
        found = [one for route in kept for one in _envoy_routes(route)]
        virtual_host = {"name": "tests", "domains": ["*"], "routes": found}
        kind = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
        self._write("rds", [{"@type": kind, "name": "tests", "virtual_hosts": [virtual_host]}])
        self._write("lds", [_listener(str(self._envoy.path), self._envoy.listen)])

    def _write(self, name: str, resources: Sequence[Object]) -> None:
        text = json.dumps({"resources": resources})
        if self._files.get(name) != text:
            self._files[name] = text
            new = self._envoy.path / f"{name}.new"
            new.write_text(text)
            new.replace(self._envoy.path / f"{name}.json")

    def _endpoints(self, name: str) -> Object:
        found = [
            {"address": address, "port_value": one["ports"][0]["port"]}
            for one in self._slices.list()
            if one["metadata"]["labels"].get("kubernetes.io/service-name") == name
            for endpoint in one.get("endpoints") or ()
            if endpoint["conditions"].get("ready")
            for address in endpoint["addresses"]
        ]
        members = [{"endpoint": {"address": {"socket_address": one}}} for one in found]
        kind = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
        return {"@type": kind, "cluster_name": name, "endpoints": [{"lb_endpoints": members}]}

    # -- status ------------------------------------------------------------------------------------

    def _report(self, kind: str, route: Object) -> None:
        why, generation = self.refuses(route), route["metadata"]["generation"] - self.behind
        conditions: list[Condition] = [
            {"type": "Accepted", "status": "True", "reason": "Accepted", "message": "fine"},
            {"type": "ResolvedRefs", "status": "True", "reason": "ResolvedRefs", "message": "fine"},
        ]
        if why:
            conditions[1] |= {"status": "False", "reason": "BackendNotFound", "message": why}
        for one in conditions:
            one |= {"observedGeneration": generation, "lastTransitionTime": "2026-01-01T00:00:00Z"}
        mine = [
            {"parentRef": ref, "controllerName": NAME, "conditions": conditions}
            for ref in route["spec"].get("parentRefs") or ()
        ]
        if (route.get("status") or {}).get("parents") != mine:
            path = f"{self._routes.format(kind)}/{route['metadata']['name']}/status"
            self._cluster.patch(path, {"status": {"parents": mine}})


def _source(path: str, name: str) -> Object:
    watched = {"path": f"{path}/{name}.json", "watched_directory": {"path": path}}
    return {"resource_api_version": "V3", "path_config_source": watched}


def _cluster(path: str, name: str) -> Object:
    return {
        "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster",
        "name": name,
        "type": "EDS",
        "connect_timeout": "2s",
        "eds_cluster_config": {"eds_config": _source(path, f"eds-{name}")},
        "common_lb_config": {"healthy_panic_threshold": {"value": 0}, "update_merge_window": "0s"},
    }


def _envoy_routes(route: Object) -> list[Object]:
    """Return a route for each match; those with more headers come first."""
    found = []
    for rule in route["spec"]["rules"]:
        weights = {ref["name"]: ref["weight"] for ref in rule.get("backendRefs") or ()}
        clusters = [{"name": name, "weight": weight} for name, weight in weights.items()]
        action: Object = {"route": {"weighted_clusters": {"clusters": clusters}}}
        if mirrors := _mirrors(rule):
            action["route"]["request_mirror_policies"] = mirrors
        if not sum(weights.values()):
            action = {"direct_response": {"status": 500}}
        for match in rule.get("matches") or ({},):
            headers = [
                {"name": one["name"], "string_match": _text(one)}
                for one in match.get("headers") or ()
            ]
            path = {"prefix": (match.get("path") or {}).get("value", "/")}
            found.append((-len(headers), {"match": {**path, "headers": headers}, **action}))
    return [one for _order, one in sorted(found, key=lambda pair: pair[0])]


def _text(header: Object) -> Object:
    """Return how a header has to be: its very value, or a pattern of the whole."""
    if header.get("type") == "RegularExpression":
        return {"safe_regex": {"regex": header["value"]}}
    return {"exact": header["value"]}


def _copied(rule: Object) -> list[Object]:
    """Return the backends that copies of a rule's requests go to."""
    filters = rule.get("filters") or ()
    return [one["requestMirror"]["backendRef"] for one in filters if "requestMirror" in one]


def _mirrors(rule: Object) -> list[Object]:
    """Return how Envoy is told where copies of a rule's requests go."""
    copies = [one["requestMirror"] for one in rule.get("filters") or () if "requestMirror" in one]
    return [
        {
            "cluster": one["backendRef"]["name"],
            "runtime_fraction": {
                "default_value": {"numerator": one.get("percent", 100), "denominator": "HUNDRED"}
            },
        }
        for one in copies
    ]


def _listener(path: str, port: int) -> Object:
    extensions = "type.googleapis.com/envoy.extensions.filters"
    router = {"@type": f"{extensions}.http.router.v3.Router"}
    manager = {
        "@type": f"{extensions}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "tests",
        "rds": {"route_config_name": "tests", "config_source": _source(path, "rds")},
        "http_filters": [{"name": "envoy.filters.http.router", "typed_config": router}],
    }
    filters = [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]
    return {
        "@type": "type.googleapis.com/envoy.config.listener.v3.Listener",
        "name": "tests",
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": port}},
        "filter_chains": [{"filters": filters}],
    }
