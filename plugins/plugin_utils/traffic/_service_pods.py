# SPDX-License-Identifier: GPL-3.0-or-later
"""The pods of a Service of Kubernetes, by generation. Pure."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from ..base.errors import InputError
from ..inputs.options import Field, Kind
from ..interfaces.platform import Endpoint
from ..remote.kubernetes import Object

HASH = "pod-template-hash"  # the label that the pods of a generation have in common
EPOCH = "rollout.progressive/epoch"


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
    if isinstance(port, str) and not port.isdecimal():
        named = [
            item["containerPort"]
            for container in pod["spec"]["containers"]
            for item in container.get("ports") or ()
            if item.get("name") == port
        ]
        port = named[0] if named else 0
    endpoint = Endpoint(str(status.get("podIP") or ""), int(port))
    conditions = {item.get("type"): item for item in status.get("conditions") or ()}
    ready = conditions.get("Ready") or {}
    since = seconds(ready.get("lastTransitionTime"))
    labels = pod["metadata"].get("labels") or {}
    known = Pod(endpoint, str(labels.get(HASH) or ""), ready.get("status") == "True", since)
    return known if endpoint.known else None


def seconds(stamp: t.Any) -> float:
    """Return a time of the API in seconds since the epoch, once its second is over; else 0."""
    try:
        return datetime.fromisoformat(str(stamp)).timestamp() + 1
    except ValueError:
        return 0.0
