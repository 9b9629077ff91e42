# SPDX-License-Identifier: GPL-3.0-or-later
"""A Kubernetes Service whose selector decides which generation gets requests.

Pods of a generation have one value of the label `pod-template-hash`. With that label in its
selector, the Service sends requests to this generation alone, so one patch is a switch; without it,
to every ready pod of the service. Requests cannot be divided otherwise, and no single pod can be
taken out: one that is to go leaves the Service when it is deleted.
"""

from __future__ import annotations

import typing as t
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property

from ..base.errors import InputError, LeaseLost, TrafficError
from ..engine.model import Rotation
from ..inputs.options import DURATION, TEXT, Field, Options
from ..interfaces.context import DriverContext
from ..interfaces.platform import Endpoint
from ..interfaces.traffic import Server, Table, Target, TrafficDriver
from ..remote import kubernetes_notes, kubernetes_rights
from ..remote.kubernetes import CLUSTER, CLUSTERS, ApiError, Cluster, Object, Reflector
from ._clusters import ClustersDriver
from ._service_pods import (
    EPOCH,
    HASH,
    SERVICE,
    SLICE_OF,
    SLICES,
    Pod,
    read,
    refuse_by_hand,
    refuse_unnamed,
    selector,
)

NEEDED = (("", "services", ("list", "watch", "patch")), ("", "pods", ("list", "watch")))
ROLE = "progressive-rollout-traffic"

OPTIONS = Options(
    SERVICE,
    *CLUSTER,
    CLUSTERS,
    Field(
        "port",
        TEXT,
        "Name or number of that port of the Service at which the platform knows its pods, by"
        " default its first one. Requests to all of its ports are switched.",
    ),
    Field(
        "settle",
        DURATION,
        "How long the old pods stay at least after a switch: until the switch has reached every"
        " node.",
        default="1s",
    ),
)


class Driver(TrafficDriver):
    """One Service, which is one load balancer."""

    divides = False
    of_cluster = True
    unsupported: t.ClassVar[Mapping[str, str]] = {
        "cohort": "a Service does not divide requests; remove it"
    }

    @classmethod
    def variant(cls, options: Mapping[str, t.Any]) -> type[TrafficDriver]:
        return InClusters if options["clusters"] else cls

    def __init__(self, options: Mapping[str, t.Any], context: DriverContext) -> None:
        self.context = context
        self._options = options
        self._name: str = options["service"]
        self.settle_time = self.drain_timeout = options["settle"]
        self._in_progress = False
        self._watched: dict[tuple[str, str], Reflector] = {}  # by kind and selector
        # What only this driver knows: pods that are to go, and the weights that they were given.
        self._targets: Mapping[Endpoint, Target] = {}

    def check(self) -> None:
        service = self._get()
        spec = service["spec"]
        if not spec.get("selector"):
            raise InputError(f"rollout_traffic.service: {self._where} has no selector", "PR-304")
        port = self._port(service)
        if port is None:
            ports = [str(port.get("name") or port["port"]) for port in spec.get("ports") or ()]
            raise InputError(
                f"rollout_traffic.port: {self._options['port'] or 'not given'}, and the ports of"
                f" {self._where} are {', '.join(ports) or 'none'}; name one of them",
                "PR-304",
            )
        self._refuse_without_rights()
        refuse_unnamed(self._selected(service), port, self._where)
        refuse_by_hand(self._slices(), self._name, self._where)

    def observe(self) -> Table:
        service = self._get()
        pods = self._pods(service)
        if self.context.known().epoch:
            service = self._fence(service)
            hashes = {pod.hash for pod in pods}
            if self._in_progress and not _pin(service) and len(hashes) == 1:
                # before there are others, which would get requests as soon as they are ready
                service = self._select(service, next(iter(hashes)))
        return {self._name: self._shown(service, pods)}

    def apply(self, targets: Mapping[str, Mapping[Endpoint, Target]]) -> Table:
        self._targets = targets.get(self._name, {})
        service = self._fence(self._get(fresh=True))
        pods = self._pods(service)
        ins, outs = (
            {pod.hash for pod in pods if self._rotation(pod) is rotation}
            for rotation in (Rotation.IN, Rotation.OUT)
        )
        if len(ins) > 1:
            service = self._select(service, "")
        elif ins and (outs - ins or _pin(service) not in ins):
            service = self._select(service, next(iter(ins)))
        return {self._name: self._shown(service, pods)}

    def begin(self, divided: bool) -> None:
        self._in_progress = True

    def conclude(self) -> None:
        self._in_progress = False
        self._select(self._fence(self._get(fresh=True)), "")

    def leave(self, dry: bool) -> Sequence[str]:
        service = self._get()
        path = f"{self._path('services')}/{self._name}"
        return kubernetes_notes.leave(self._cluster, [(path, service)], dry)

    def close(self) -> None:
        for reflector in self._watched.values():
            reflector.close()

    # -- helpers -----------------------------------------------------------------------------------

    @cached_property
    def _cluster(self) -> Cluster:
        options = self._options
        return Cluster(options["kubeconfig"], options["context"], "rollout_traffic.context")

    @property
    def _namespace(self) -> str:
        return self._options["namespace"] or self._cluster.namespace

    @property
    def _where(self) -> str:
        return f"service {self._name} in namespace {self._namespace}"

    def _path(self, kind: str) -> str:
        return f"/api/v1/namespaces/{self._namespace}/{kind}"

    def _get(self, fresh: bool = False) -> Object:
        services = self._list("services", fresh, fieldSelector=f"metadata.name={self._name}")
        if not services:
            raise InputError(
                f"rollout_traffic.service: there is no {self._where}; create it first", "PR-304"
            )
        return services[0]

    def _list(self, kind: str, fresh: bool = False, **query: str) -> Sequence[Object]:
        """Return objects of a kind, watched as long as a rollout lasts."""
        if not self.context.known().epoch:
            items: Sequence[Object] = self._cluster.get(self._path(kind), **query).get("items", ())
            return items
        key = kind, ",".join(query.values())
        if key not in self._watched:
            made = Reflector(self._cluster, self._path(kind), self.context.wake, **query)
            self._watched[key] = made
        return self._watched[key].list(fresh)

    def _refuse_without_rights(self) -> None:
        needed = kubernetes_rights.role(ROLE, self._namespace, NEEDED)
        kubernetes_rights.check(self._cluster, needed, "rollout_traffic.context")

    def _slices(self) -> Sequence[Object]:
        """Return the EndpointSlices of the Service, as far as the account may list them."""
        for version in SLICES:
            path = f"/apis/discovery.k8s.io/{version}/namespaces/{self._namespace}/endpointslices"
            try:
                answer = self._cluster.get(path, labelSelector=f"{SLICE_OF}={self._name}")
            except ApiError as exc:
                if exc.status == 403:
                    return ()
                if exc.status != 404:
                    raise
            else:
                return answer.get("items", ())  # type: ignore[no-any-return]
        return ()

    def _pods(self, service: Object) -> Sequence[Pod]:
        """Return the pods that the Service selects, whatever their generation."""
        port = self._port(service)
        return () if port is None else read(self._selected(service), port)

    def _selected(self, service: Object) -> Object:
        wanted = ",".join(f"{key}={value}" for key, value in selector(service).items())
        return {"items": self._list("pods", labelSelector=wanted)}

    def _port(self, service: Object) -> int | str | None:
        """Return the port of pods that they are known by; None: the Service has no such port."""
        given = self._options["port"]
        for port in service["spec"].get("ports") or ():
            if given in (None, port.get("name"), str(port["port"])):
                return port.get("targetPort", port["port"])  # type: ignore[no-any-return]
        return None

    def _rotation(self, pod: Pod) -> Rotation | None:
        target = self._targets.get(pod.endpoint)
        return target.rotation if target else None

    def _shown(self, service: Object, pods: Collection[Pod]) -> dict[Endpoint, Server]:
        """Return the entries: a pod that is to go is out, as far as that can be said."""
        pin, servers = _pin(service), {}
        for pod in pods:
            target = self._targets.get(pod.endpoint, Target(Rotation.IN))
            selected = pod.ready and pin in ("", pod.hash) and target.rotation is Rotation.IN
            rotation = Rotation.IN if selected else Rotation.OUT
            servers[pod.endpoint] = Server(
                rotation, pod.ready, 0, target.weight, workload=pod.workload
            )
        return servers

    def _fence(self, service: Object) -> Object:
        """Write the lease's epoch to the Service; raises LeaseLost where a newer one is."""
        notes, mine = service["metadata"].get("annotations") or {}, self.context.known().epoch
        seen = int(notes[EPOCH]) if notes.get(EPOCH, "").isdecimal() else 0
        if not mine:
            raise TrafficError(f"{self._where}: nothing is done without a lease", "PR-503")
        if seen > mine:
            raise LeaseLost(
                f"{self._where}: a newer lease holder has acted here (epoch {seen}, ours is {mine})"
            )
        if seen == mine:
            return service
        return self._patch(service, {"metadata": {"annotations": {EPOCH: str(mine)}}})

    def _select(self, service: Object, pin: str) -> Object:
        """Select this generation alone, or every one."""
        if _pin(service) == pin:
            return service
        return self._patch(service, {"spec": {"selector": {HASH: pin or None}}})

    def _patch(self, service: Object, body: dict[str, t.Any]) -> Object:
        """Change the Service, if nobody else has meanwhile."""
        version = {"resourceVersion": service["metadata"]["resourceVersion"]}
        metadata = {**body.get("metadata", {}), **version}
        path = f"{self._path('services')}/{self._name}"
        patched = self._cluster.patch(path, {**body, "metadata": metadata})
        for (kind, _selector), watched in self._watched.items():
            if kind == "services":
                watched.note(patched)
        return patched


class InClusters(ClustersDriver):
    """One Service in each of several clusters."""

    def _in_one(self, options: Mapping[str, t.Any]) -> Driver:
        return Driver(options, self.context)


def _pin(service: Object) -> str:
    """Return the hash of the generation that alone is selected; empty if every one is."""
    return str((service["spec"].get("selector") or {}).get(HASH) or "")
