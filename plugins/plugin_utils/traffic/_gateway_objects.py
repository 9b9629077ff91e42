# SPDX-License-Identifier: GPL-3.0-or-later
"""The objects that a route's requests depend on: the route, its Service, those of generations."""

from __future__ import annotations

import typing as t
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from ..base import clock
from ..base.errors import InputError, LeaseLost, RolloutFailed, TrafficError
from ..interfaces.context import DriverContext
from ..remote import kubernetes_notes, kubernetes_rights
from ..remote.kubernetes import ApiError, Cluster, Object
from . import _gateway_route as routes
from ._gateway_route import Split
from ._options import Match
from ._service_pods import (
    EPOCH,
    HASH,
    SLICE_OF,
    SLICES,
    Pod,
    read,
    refuse_by_hand,
    seconds,
    selector,
)

GROUP = "gateway.networking.k8s.io"
VERSIONS = ("v1", "v1beta1")  # the first that the cluster has is used
LABEL = "rollout.progressive/service"  # of the Services of generations
NEEDED = (
    ("", "services", ("get", "list", "create", "patch", "delete")),
    ("", "pods", ("list",)),
    ("discovery.k8s.io", "endpointslices", ("list",)),
)
ROLE = "progressive-rollout-traffic"
NOT_COPIED = ("kubectl.kubernetes.io/", "argocd.argoproj.io/")  # annotations of one object alone
# fields of a Service that decide which pod gets a request, and over which protocol
SHAPING = (
    "sessionAffinity",
    "sessionAffinityConfig",
    "ipFamilyPolicy",
    "ipFamilies",
    "internalTrafficPolicy",
    "trafficDistribution",
    "publishNotReadyAddresses",
)
# domains of labels that name what an object is, and not what a mesh does with its requests
NAMING = ("app.kubernetes.io", "kubernetes.io", "helm.sh", "argocd.argoproj.io")


class Objects:
    """The route and the Services, as they are, and their changes: one object at a time."""

    timeout = 10.0  # seconds that a Gateway has to accept a change, before it is looked at again
    poll = 0.1

    def __init__(self, options: Mapping[str, t.Any], context: DriverContext) -> None:
        self.context = context
        self._options = options
        self.name: str = options["route"]
        self.kind, _slash, self._name = self.name.partition("/")
        self.service: str = options["service"]
        self.match: Sequence[Match] = options["match"] or ()
        self.mirror: int = options["mirror"] or 0  # percent

    # -- observe -----------------------------------------------------------------------------------

    @cached_property
    def cluster(self) -> Cluster:
        """The cluster, logged in to."""
        options = self._options
        return Cluster(options["kubeconfig"], options["context"], "rollout_traffic.context")

    @property
    def namespace(self) -> str:
        """The namespace of the route and the Service."""
        return self._options["namespace"] or self.cluster.namespace

    @property
    def where(self) -> str:
        """The route, for messages."""
        return f"{self.kind} {self._name} in namespace {self.namespace}"

    def route(self) -> Object:
        """Return the route; raises InputError."""
        return self._get(self._route_path, "rollout_traffic.route", self.where)

    def owner(self) -> Object:
        """Return the owner's Service; raises InputError."""
        where = f"service {self.service} in namespace {self.namespace}"
        return self._get(self._core("services", self.service), "rollout_traffic.service", where)

    def split(self, route: Object) -> Split:
        """Return how a route divides the requests."""
        return routes.read(route, self.service)

    def pods(self, service: Object, split: Split) -> list[Pod]:
        """Return the pods of the owner's Service, at the port that the route names."""
        wanted = ",".join(f"{key}={value}" for key, value in selector(service).items())
        answer = self.cluster.get(self._core("pods"), labelSelector=wanted)
        return read(answer, _target_port(service, split))

    def check_slices(self) -> None:
        """Refuse addresses of the owner's Service that no pod has."""
        path = f"{self._slices}/namespaces/{self.namespace}/endpointslices"
        slices = self.cluster.get(path, labelSelector=f"{SLICE_OF}={self.service}").get("items", ())
        where = f"service {self.service} in namespace {self.namespace}"
        refuse_by_hand(slices, self.service, where)

    def listed(self, hashes: Iterable[str]) -> dict[str, set[str]]:
        """Return the ready addresses of the Services of generations, as Gateways see them."""
        names = {f"{self.service}-{name}": name for name in hashes}
        endpoints: dict[str, set[str]] = {name: set() for name in names.values()}
        if not names:
            return endpoints
        wanted = f"{SLICE_OF} in ({','.join(names)})"
        path = f"{self._slices}/namespaces/{self.namespace}/endpointslices"
        for service in self.cluster.get(path, labelSelector=wanted).get("items", ()):
            name = names.get(service["metadata"]["labels"][SLICE_OF], "")
            for endpoint in service.get("endpoints") or ():
                if (endpoint.get("conditions") or {}).get("ready") is not False and name:
                    endpoints[name].update(endpoint.get("addresses") or ())
        return endpoints

    # -- change ------------------------------------------------------------------------------------

    def fence(self, route: Object) -> Object:
        """Write the lease's epoch to the route; raises LeaseLost where a newer one is."""
        mine = self.context.known().epoch
        if _epoch(route) > mine:
            raise LeaseLost(
                f"{self.where}: a newer lease holder has acted here (epoch {_epoch(route)}, ours is"
                f" {mine})"
            )
        return route if _epoch(route) == mine else self._patch(self._route_path, route, self._mark)

    def accepted(self, route: Object) -> Object:
        """Wait until every parent accepts the route, and return it; raises TrafficError."""
        deadline = clock.monotonic() + self.timeout
        while True:
            accepted = routes.reported(route)
            if accepted.refused:
                raise Refused(f"{self.where} is refused: {accepted.refused}", "PR-313")
            if not accepted.late:
                return route
            if clock.monotonic() > deadline:
                raise TrafficError(
                    f"{self.where}: {accepted.late}; waited for {self.timeout:g} s", "PR-307"
                )
            clock.sleep(self.poll)
            route = self.route()

    def write(self, route: Object, split: Split) -> Object:
        """Have the route divide requests like this, and return it once it is accepted.

        A change that is refused is undone, since a Gateway may drop a route that it refuses.
        """
        if not self.context.known().epoch:
            raise TrafficError(f"{self.where}: nothing is done without a lease", "PR-503")
        rules, before = split.render(self.match, self.mirror), route["spec"].get("rules") or []
        notes = route["metadata"].get("annotations") or {}
        note = notes.get(routes.NOTE)
        if (rules, split.note()) == (before, note):
            return route
        body = _body(rules, split.note())
        try:
            return self.accepted(self._patch(self._route_path, route, body))
        except Refused as exc:
            self._undo(rules, _body(before, note))
            raise RolloutFailed(f"{exc}; its rules are as they were before", "PR-313") from None

    def check_mirror(self, route: Object, split: Split) -> None:
        """Raise InputError where the server drops the percentage, as before Gateway API 1.3: all
        requests would be copied.
        """
        if not 0 < self.mirror < 100:
            return
        trial = replace(split.naming(["trial"]), mirror="trial")
        body = {"spec": {"rules": trial.render((), self.mirror)}}
        taken = self.cluster.patch(self._route_path, body, dryRun="All")
        filters = [
            filter_ for rule in taken["spec"]["rules"] for filter_ in rule.get("filters") or ()
        ]
        if not any(routes.percent(filter_) == self.mirror for filter_ in filters):
            raise InputError(
                f"rollout_traffic.mirror: {self.mirror}, and the cluster's {self.kind}s know no"
                " percentage, so that all requests would be copied; set 100, or install Gateway API"
                " 1.3 or newer",
                "PR-310",
            )

    def make_services(self, owner: Object, hashes: Iterable[str]) -> None:
        """Make the Services of generations that are not there, and fence those that are."""
        services = {service["metadata"]["name"]: service for service in self._services()}
        for name in hashes:
            body = _service(owner, name, self.context.known().epoch)
            current = services.get(body["metadata"]["name"])
            if current and _epoch(current) != self.context.known().epoch:
                self._patch(
                    self._core("services", current["metadata"]["name"]), current, self._mark
                )
            elif not current:
                self._create(body)

    def remove_services(self) -> None:
        """Delete the Services of generations, if nobody has taken them over."""
        for service in self._services():
            metadata = service["metadata"]
            same = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
            body = {"preconditions": same}
            self.cluster.delete(self._core("services", metadata["name"]), body)

    def services(self) -> dict[str, float]:
        """Return the Services of generations: by hash, when they were made, by our clock."""
        return {
            str(service["spec"]["selector"][HASH]): seconds(
                service["metadata"].get("creationTimestamp")
            )
            + self.cluster.skew
            for service in self._services()
        }

    def leave(self, dry: bool) -> Sequence[str]:
        """Remove what rollouts have noted at the route; its Services are gone by then."""
        return kubernetes_notes.leave(self.cluster, [(self._route_path, self.route())], dry)

    # -- helpers -----------------------------------------------------------------------------------

    def check_rights(self) -> None:
        """Raise InputError, with the Role that would do, where the account lacks rights."""
        role = kubernetes_rights.role(ROLE, self.namespace, needed(self.kind))
        kubernetes_rights.check(self.cluster, role, "rollout_traffic.context")

    @cached_property
    def _route_path(self) -> str:
        version = self._version(GROUP, f"{self.kind}s", VERSIONS)
        return f"{version}/namespaces/{self.namespace}/{self.kind}s/{self._name}"

    @cached_property
    def _slices(self) -> str:
        return self._version("discovery.k8s.io", "endpointslices", SLICES)

    def _version(self, group: str, resource: str, versions: Collection[str]) -> str:
        """Return the path of the first version of a group that has a resource."""
        try:
            served = [
                version["version"] for version in self.cluster.get(f"/apis/{group}")["versions"]
            ]
        except ApiError as exc:
            if exc.status != 404:
                raise
            served = []
        for version in (version for version in versions if version in served):
            resources = self.cluster.get(f"/apis/{group}/{version}").get("resources", ())
            if any(kind["name"] == resource for kind in resources):
                return f"/apis/{group}/{version}"
        raise InputError(
            f"rollout_traffic.route: the cluster has no {resource} of {group} in version"
            f" {' or '.join(versions)}; install them, or use another load balancer",
            "PR-304",
        )

    def _core(self, *names: str) -> str:
        return "/".join([f"/api/v1/namespaces/{self.namespace}", *names])

    def _get(self, path: str, variable: str, where: str) -> Object:
        try:
            return self.cluster.get(path)
        except ApiError as exc:
            if exc.status != 404:
                raise
            raise InputError(
                f"{variable}: there is no {where}; create it first", "PR-304"
            ) from None

    @property
    def _mark(self) -> dict[str, t.Any]:
        return {"metadata": {"annotations": {EPOCH: str(self.context.known().epoch)}}}

    def _patch(self, path: str, obj: Object, body: dict[str, t.Any]) -> Object:
        """Change an object, if nobody else has meanwhile."""
        version = {"resourceVersion": obj["metadata"]["resourceVersion"]}
        return self.cluster.patch(path, {**body, "metadata": {**body["metadata"], **version}})

    def _undo(self, rules: list[Object], body: dict[str, t.Any]) -> None:
        """Undo a change of the route that was refused, unless somebody has changed it since."""
        route = self.fence(self.route())
        if route["spec"].get("rules") == rules:
            self._patch(self._route_path, route, body)

    def _services(self) -> list[Object]:
        """Return the Services of generations."""
        answer = self.cluster.get(self._core("services"), labelSelector=f"{LABEL}={self.service}")
        return list(answer.get("items", ()))

    def _create(self, body: Object) -> None:
        try:
            self.cluster.post(self._core("services"), body)
        except ApiError as exc:
            if exc.status != 409:
                raise
            raise TrafficError(
                f"{self.where}: the Service {body['metadata']['name']} is somebody else's, and a"
                " generation needs its name; rename it",
                "PR-304",
            ) from None


class Refused(TrafficError):
    """A Gateway refuses the route."""


def needed(kind: str) -> kubernetes_rights.Needed:
    """Return the rights that a route of this kind needs."""
    return ((GROUP, f"{kind}s", ("get", "patch")), *NEEDED)


def _body(rules: list[Object], note: str | None) -> dict[str, t.Any]:
    return {"metadata": {"annotations": {routes.NOTE: note}}, "spec": {"rules": rules}}


def _epoch(obj: Object) -> int:
    text = (obj["metadata"].get("annotations") or {}).get(EPOCH, "")
    return int(text) if text.isdecimal() else 0


def _service(owner: Object, name: str, epoch: int) -> dict[str, t.Any]:
    """Return the Service of a generation: as the owner's, with its pods alone."""
    metadata, spec = owner["metadata"], owner["spec"]
    kept = {
        key: value
        for key, value in (metadata.get("annotations") or {}).items()
        if not key.startswith(NOT_COPIED)
    }
    same = ("name", "port", "targetPort", "protocol", "appProtocol")
    ports = [{key: port[key] for key in same if key in port} for port in spec["ports"]]
    shaping = {key: spec[key] for key in SHAPING if key in spec}
    headless = {"clusterIP": "None"} if spec.get("clusterIP") == "None" else {}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": f"{metadata['name']}-{name}",
            "labels": {**_of_meshes(metadata.get("labels") or {}), LABEL: metadata["name"]},
            "annotations": {**kept, EPOCH: str(epoch)},
            "ownerReferences": [
                {
                    "apiVersion": "v1",
                    "kind": "Service",
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                }
            ],
        },
        "spec": {
            "selector": {**selector(owner), HASH: name},
            "ports": ports,
            **shaping,
            **headless,
        },
    }


def _of_meshes(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels by which meshes know what to do with requests, as `istio.io/use-waypoint`.

    Others, by which monitoring selects Services, would have each pod counted twice.
    """
    domains = {key: key.partition("/")[0] for key in labels if "/" in key}
    return {
        key: labels[key]
        for key, domain in domains.items()
        if domain not in NAMING and not domain.endswith(".toolkit.fluxcd.io")
    }


def _target_port(service: Object, split: Split) -> int | str:
    """Return the port of pods that the first rule for the Service sends its requests to."""
    ports = service["spec"].get("ports") or ()
    named = [ref.get("port") for rule in split.rules for ref in routes.named(rule, split.service)]
    port = next((port for port in ports if port["port"] in named[:1]), None)
    return port.get("targetPort", port["port"]) if port else 0
