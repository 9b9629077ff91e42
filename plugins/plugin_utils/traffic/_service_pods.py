# SPDX-License-Identifier: GPL-3.0-or-later
"""The pods of a Service of Kubernetes, by generation. Pure."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from ..base.errors import InputError
from ..inputs.options import Field, Kind
from ..interfaces.platform import Endpoint
from ..remote.kubernetes import Object

HASH = "pod-template-hash"  # the label that the pods of a generation have in common
EPOCH = "rollout.progressive/epoch"
ENDED = ("Succeeded", "Failed")  # phases
SLICES = ("v1", "v1beta1")  # versions of discovery.k8s.io
SLICE_OF = "kubernetes.io/service-name"  # label of EndpointSlices
MANAGED_BY = "endpointslice.kubernetes.io/managed-by"  # another one
SLICES_CONTROLLER = "endpointslice-controller.k8s.io"


def _name(value: t.Any, variable: str) -> str:
    if not re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", str(value)):
        raise InputError(f"{variable}: {value!r} is not the name of a Service", "PR-120")
    return str(value)


SERVICE = Field("service", Kind("str", _name), "The Service. It must exist.", required=True)


@dataclass(frozen=True)
class Pod:
    """A pod of the Service."""

    endpoint: Endpoint
    hash: str  # of its generation
    ready: bool
    since: float = 0.0  # by the server's clock, when it became so
    workload: str = ""  # that it belongs to; "": not known, or it has ended


def selector(service: Object) -> Mapping[str, str]:
    """Return the labels of the Service's pods, whatever their generation."""
    labels = service["spec"].get("selector") or {}
    return {key: value for key, value in labels.items() if key != HASH}


def read(pods: Object, port: int | str) -> list[Pod]:
    """Return the pods of a list that have an address and the port, and are not being deleted."""
    living = [pod for pod in pods.get("items", ()) if not pod["metadata"].get("deletionTimestamp")]
    return [known for pod in living if (known := _read(pod, port))]


def _read(pod: Object, port: int | str) -> Pod | None:
    status = pod.get("status") or {}
    endpoint = Endpoint(str(status.get("podIP") or ""), _number(pod, port))
    conditions = {item.get("type"): item for item in status.get("conditions") or ()}
    ready = conditions.get("Ready") or {}
    since = seconds(ready.get("lastTransitionTime"))
    labels = pod["metadata"].get("labels") or {}
    known = Pod(
        endpoint,
        str(labels.get(HASH) or ""),
        ready.get("status") == "True",
        since,
        "" if status.get("phase") in ENDED else workload_of(pod),
    )
    return known if endpoint.known else None


def workload_of(pod: Object) -> str:
    """Return what a pod belongs to, as `deployment/shop`, or itself; "" if that is not known.

    A ReplicaSet of a Deployment has its name and the hash of its pods.
    """
    metadata = pod["metadata"]
    owners = metadata.get("ownerReferences") or ()
    owner = next((owner for owner in owners if owner.get("controller")), None)
    if owner is None:
        return f"pod/{metadata['name']}"
    kind, name = str(owner.get("kind") or "").lower(), str(owner.get("name") or "")
    hashed = str((metadata.get("labels") or {}).get(HASH) or "")
    if kind == "replicaset" and hashed and name.endswith(f"-{hashed}"):
        kind, name = "deployment", name.removesuffix(f"-{hashed}")
    return f"{kind}/{name}" if kind and name else ""


def refuse_unnamed(pods: Object, port: int | str, where: str) -> None:
    """Refuse a port of a Service that has a name which no container of its pods has."""
    items = pods.get("items", ())
    ended = [pod for pod in items if (pod.get("status") or {}).get("phase") in ENDED]
    living = [pod for pod in items if pod not in ended]
    if isinstance(port, str) and living and not any(_number(pod, port) for pod in living):
        raise InputError(
            f"rollout_traffic.service: {where} sends requests to the port {port} of its pods, and"
            " no container of them names it; name it there, or write its number in the Service",
            "PR-258",
        )


def _number(pod: Object, port: int | str) -> int:
    """Return the number of a port of a pod; 0 where no container has that name."""
    if not isinstance(port, str) or port.isdecimal():
        return int(port)
    named = [
        int(item["containerPort"])
        for container in pod["spec"]["containers"]
        for item in container.get("ports") or ()
        if item.get("name") == port
    ]
    return named[0] if named else 0


def refuse_by_hand(slices: Iterable[Object], service: str, where: str) -> None:
    """Refuse a Service with EndpointSlices that somebody has made beside those of its pods.

    https://kubernetes.io/docs/concepts/services-networking/endpoint-slices/#management
    """
    names = [str(each["metadata"].get("name")) for each in slices if _is_by_hand(each, service)]
    if names:
        raise InputError(
            f"rollout_traffic.service: {where} also sends requests to the addresses in the"
            f" EndpointSlice {', '.join(sorted(names))}, which somebody has made and no rollout"
            " moves; delete it, or give those addresses a Service of their own",
            "PR-257",
        )


def _is_by_hand(each: Object, service: str) -> bool:
    labels = each["metadata"].get("labels") or {}
    owners = each["metadata"].get("ownerReferences") or ()
    made = labels.get(MANAGED_BY) == SLICES_CONTROLLER or any(o.get("controller") for o in owners)
    return labels.get(SLICE_OF) == service and not made and bool(each.get("endpoints"))


def seconds(stamp: t.Any) -> float:
    """Return a time of the API in seconds since the epoch, once its second is over; else 0."""
    try:
        return datetime.fromisoformat(str(stamp)).timestamp() + 1
    except ValueError:
        return 0.0
