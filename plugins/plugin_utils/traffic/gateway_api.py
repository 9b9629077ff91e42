# SPDX-License-Identifier: GPL-3.0-or-later
"""A Kubernetes Gateway API route, which divides requests between generations by weight.

While requests are to be divided, each generation has a Service of its own, made by this driver: the
owner's Service with `pod-template-hash` in the selector. In the rules of the route that send
requests to the owner's Service, those Services get them instead. The owner's Service is not
changed, and has all ready pods at any time, so that one patch of the route ends it.

A Service gets a weight once the route names it with weight 0, every Gateway accepts that, and its
pods have been listed for `settle` seconds.
"""

from __future__ import annotations

import re
import typing as t
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..base import clock
from ..base.errors import InputError, TrafficError
from ..engine.model import Rotation
from ..engine.weights import EVEN
from ..inputs.options import DURATION, Field, Kind, Options
from ..interfaces.context import DriverContext
from ..interfaces.platform import Endpoint
from ..interfaces.traffic import Preview, Server, Table, Target, TrafficDriver
from ..remote.kubernetes import CLUSTER, CLUSTERS
from . import _gateway_route as routes
from . import _options as shared
from ._clusters import ClustersDriver
from ._gateway import Gateway, Seen
from ._service_pods import SERVICE, Pod

KINDS = ("httproute", "grpcroute")


def _route(value: t.Any, variable: str) -> str:
    kind, _slash, name = str(value).partition("/")
    if kind not in KINDS or not re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", name):
        raise InputError(
            f"{variable}: {value!r} is not a route; write httproute/NAME or grpcroute/NAME",
            "PR-118",
        )
    return str(value)


def _match(value: t.Any, variable: str) -> tuple[shared.Match, ...]:
    matches = shared.match(value, variable)
    if cookies := [match.name for match in matches if match.cookie]:
        raise InputError(
            f"{variable}.cookie: {cookies[0]!r}, but routes match whole headers; use header",
            "PR-310",
        )
    return matches


OPTIONS = Options(
    Field(
        "route",
        Kind("str", _route),
        "The route, V(httproute/shop) or V(grpcroute/shop). It must exist, with rules that send"
        " requests to the Service.",
        required=True,
    ),
    SERVICE,
    *CLUSTER,
    CLUSTERS,
    Field(
        "match",
        Kind("raw", _match, shared.MATCH.note, fields=shared.MATCH.fields),
        "Requests that carry this header go only to the new instances, from the time they are ready"
        " until the rollout ends, whatever the share. All other requests are divided as they would"
        " be without it.",
    ),
    Field(
        "mirror",
        shared.PERCENT,
        "Percentage of requests that are also sent to the new instances, as long as these get no"
        " other traffic, by the filter C(RequestMirror) of the route. The answers are discarded."
        " Less than 100 needs Gateway API 1.3 and a Gateway that supports it.",
    ),
    Field(
        "settle",
        DURATION,
        "How long requests may still go where they went before, once every Gateway has accepted a"
        " change: until the change has reached all its proxies.",
        default="5s",
    ),
)


class Driver(TrafficDriver):
    """One route, which is one load balancer."""

    of_cluster = True
    unsupported: t.ClassVar[Mapping[str, str]] = {
        "preview": "a route has no other address; use match, or remove the option",
        "cohort": "routes divide requests, not clients; remove it",
        "sticky": "whether clients stay where they are is a matter of the Gateway; remove it",
    }

    @classmethod
    def variant(cls, options: Mapping[str, t.Any]) -> type[TrafficDriver]:
        return InClusters if options["clusters"] else cls

    def __init__(self, options: Mapping[str, t.Any], context: DriverContext) -> None:
        self.context = context
        self.settle_time = self.drain_timeout = options["settle"]
        self.gateway = Gateway(options, context)
        self._name: str = options["route"]
        self._divided = False  # whether requests are to be divided otherwise than by numbers
        # What only this driver knows: pods that are to go, and the weights that they were given.
        self._targets: Mapping[Endpoint, Target] = {}
        self._restored: float | None = None

    def check(self) -> None:
        self.gateway.check()

    def previews(self) -> Sequence[Preview]:
        pools = []
        if self.gateway.objects.match:
            pools.append(Preview(_RequestsApart(self.gateway, self.settle_time, "preview")))
        if self.gateway.objects.mirror:
            mirrored = _RequestsApart(self.gateway, self.settle_time, "mirror")
            pools.append(Preview(mirrored, idle_only=True))
        return pools

    def begin(self, divided: bool) -> None:
        self._divided = divided

    def observe(self) -> Table:
        seen = self.gateway.look()
        if self.context.known().epoch:
            seen = self._ready_to_divide(seen)
        return {self._name: self._shown(seen)}

    def apply(self, targets: Mapping[str, Mapping[Endpoint, Target]]) -> Table:
        self._targets = targets.get(self._name, {})
        seen = self.gateway.look()
        hashes = {pod.endpoint: pod.hash for pod in seen.pods}
        shares = routes.fold(
            (hashes[endpoint], target)
            for endpoint, target in self._targets.items()
            if hashes.get(endpoint) in seen.split.shares
        )
        if seen.split.divided and shares:  # not all of them 0: every request would be refused
            seen = self.gateway.write(seen, seen.split.dividing(shares))
        return {self._name: self._shown(seen)}

    def conclude(self) -> None:
        """Give the route back as its owner wrote it, and delete the Services when all is quiet."""
        self._divided = False
        # Whatever a Gateway says of the route as it is, it has accepted how it was.
        seen = self.gateway.look(accepted=False)
        self.gateway.write(seen, replace(seen.split, shares={}, preview="", mirror=""))
        if not self.gateway.objects.services():
            return
        self._restored = clock.now() if self._restored is None else self._restored
        if clock.now() - self._restored < self.settle_time:
            raise TrafficError(
                f"{self.gateway.objects.where}: its proxies have yet to follow", "PR-307"
            )
        self.gateway.objects.remove_services()

    def leave(self, dry: bool) -> Sequence[str]:
        return self.gateway.objects.leave(dry)

    # -- helpers -----------------------------------------------------------------------------------

    def _ready_to_divide(self, seen: Seen) -> Seen:
        """Return the same once the route divides requests, if it is to.

        Before there are others, which would get requests as soon as they are ready. The present
        pods get theirs as before: each the same part.
        """
        if not self._divided:
            return seen  # a generation that a Gateway has refused is not named again by a rollback
        seen = self.gateway.name(seen, {pod.hash for pod in seen.pods} - {""})
        if seen.split.divided or not seen.ready:
            return seen
        self.gateway.await_proven(seen)
        return self.gateway.write(seen, seen.split.dividing(Counter(seen.ready)))

    def _shown(self, seen: Seen) -> dict[Endpoint, Server]:
        """Return the entries: a pod that is to go is out, as far as that can be said."""
        divided, shares = seen.split.divided, seen.split.shares
        proven = (
            self.gateway.proven(seen)
            if divided
            else {pod.endpoint for pod in seen.pods if pod.ready}
        )
        served = [pod for pod in seen.pods if pod.ready and (not divided or shares.get(pod.hash))]
        each = routes.weights(shares, [pod.hash for pod in served])
        servers = {}
        given_weights = self._weights_by_pod([pod for pod in served if self._is_in(pod)], each)
        for pod in seen.pods:
            rotation = Rotation.IN if pod in served and self._is_in(pod) else Rotation.OUT
            weight = given_weights.get(pod.endpoint, each.get(pod.hash, EVEN))
            servers[pod.endpoint] = Server(
                rotation, pod.endpoint in proven, 0, weight, workload=pod.workload
            )
        return servers

    def _is_in(self, pod: Pod) -> bool:
        target = self._targets.get(pod.endpoint)
        return target is None or target.rotation is Rotation.IN

    def _weights_by_pod(self, pods: Sequence[Pod], each: Mapping[str, int]) -> dict[Endpoint, int]:
        """Return the weights that pods were given, where those of the route are in their ratio."""
        weights_of_pods = {
            pod.endpoint: self._targets[pod.endpoint].weight
            for pod in pods
            if pod.endpoint in self._targets
        }
        ratio = routes.in_ratio(
            (weights_of_pods[pod.endpoint], each.get(pod.hash, EVEN))
            for pod in pods
            if pod.endpoint in weights_of_pods
        )
        return weights_of_pods if ratio or not each else {}


class InClusters(ClustersDriver):
    """One route in each of several clusters."""

    unsupported = Driver.unsupported

    def _in_one(self, options: Mapping[str, t.Any]) -> Driver:
        for option in ("match", "mirror"):
            if options[option]:
                raise InputError(
                    f"rollout_traffic.{option}: given, and several clusters; only the route of one"
                    " cluster can have it: remove it",
                    "PR-310",
                )
        return Driver(options, self.context)


class _RequestsApart(TrafficDriver):
    """Requests that the new generation alone gets: those that match, or copies (`mirror`)."""

    def __init__(self, gateway: Gateway, settle: float, part: str) -> None:
        """`part`: the field of a `Split` that names the generation."""
        self._gateway, self._part = gateway, part
        self._name = gateway.objects.name
        self.settle_time = self.drain_timeout = settle
        self._targets: Mapping[Endpoint, Target] | None = None  # None: not told yet

    def check(self) -> None:
        self._gateway.check()

    def observe(self) -> Table:
        return {self._name: self._shown(self._gateway.look())}

    def apply(self, targets: Mapping[str, Mapping[Endpoint, Target]]) -> Table:
        self._targets = targets.get(self._name, {})
        seen = self._gateway.look()
        hashes = {pod.hash for pod in seen.pods if pod.endpoint in self._targets}
        serving = {pod.hash for pod in seen.pods if self._is_in(pod)}
        if hashes:
            seen = self._gateway.name(seen, hashes)
        chosen = max(serving & set(seen.split.shares), default="")
        parts = {"preview": seen.split.preview, "mirror": seen.split.mirror, self._part: chosen}
        split = replace(seen.split, preview=parts["preview"], mirror=parts["mirror"])
        seen = self._gateway.write(seen, split)
        return {self._name: self._shown(seen)}

    def _is_in(self, pod: Pod) -> bool:
        target = (self._targets or {}).get(pod.endpoint)
        return target is not None and target.rotation is Rotation.IN

    def _shown(self, seen: Seen) -> dict[Endpoint, Server]:
        proven, servers = self._gateway.proven(seen), {}
        for pod in seen.pods:
            chosen = getattr(seen.split, self._part)
            matched = bool(chosen) and pod.hash == chosen
            if pod.endpoint in self._targets if self._targets is not None else matched:
                serving = matched and pod.ready and (self._targets is None or self._is_in(pod))
                rotation = Rotation.IN if serving else Rotation.OUT
                servers[pod.endpoint] = Server(rotation, pod.endpoint in proven, 0)
        return servers
