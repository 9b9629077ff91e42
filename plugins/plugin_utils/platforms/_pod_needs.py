# SPDX-License-Identifier: GPL-3.0-or-later
"""What a pod takes of the resources that quotas and nodes have. Pure.

As the scheduler counts it: https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/
(init containers and sidecars), https://kubernetes.io/docs/concepts/scheduling-eviction/pod-overhead/
and https://kubernetes.io/docs/tasks/configure-pod-container/assign-pod-level-resources/
"""

from __future__ import annotations

import re
import typing as t
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation

from ._pod import Object

Amounts = dict[str, Decimal]  # by resource
_UNITS = {"m": Decimal("0.001"), "": Decimal(1)}
_UNITS |= {unit: Decimal(1000) ** at for at, unit in enumerate("kMGTPE", 1)}
_UNITS |= {f"{unit}i": Decimal(1024) ** at for at, unit in enumerate("KMGTPE", 1)}


def amount(quantity: t.Any) -> Decimal:
    """Return a quantity of the API as a number: `500m`, `1Gi`, `4`; 0 if it is none."""
    match = re.fullmatch(r"([0-9.]+(?:[eE][-+]?[0-9]{1,3})?)([a-zA-Z]{0,2})", str(quantity))
    try:
        return Decimal(match[1]) * _UNITS[match[2]] if match else Decimal(0)
    except (InvalidOperation, KeyError):
        return Decimal(0)


def needs(template: Object) -> Amounts:
    """Return what a pod takes of each resource, as quotas and nodes name them."""
    spec = template["spec"]
    overhead = _amounts(spec.get("overhead") or {})
    totals = {"pods": Decimal(1), "count/pods": Decimal(1)}
    for kind in ("requests", "limits"):
        amounts = _of_containers(spec, kind) | _given(spec.get("resources") or {}, kind)
        for resource, value in overhead.items():
            # a limit that is not there is not made by the overhead
            if kind == "requests" or resource in amounts:
                amounts[resource] = amounts.get(resource, Decimal(0)) + value
        totals |= {f"{kind}.{resource}": value for resource, value in amounts.items()}
        if kind == "requests":
            totals |= amounts
    return totals


def _of_containers(spec: Object, kind: str) -> Amounts:
    """Return the most that containers take at any moment.

    Sidecars, which are init containers that are always restarted, run until the pod ends; other
    init containers run one after the other, each beside the sidecars before it.
    """
    sidecars: Amounts = {}
    peaks: list[Amounts] = []
    for container in spec.get("initContainers") or ():
        requests = _given(container.get("resources") or {}, kind)
        if container.get("restartPolicy") == "Always":
            sidecars = _sum(sidecars, requests)
        else:
            peaks.append(_sum(sidecars, requests))
    total = sidecars
    for container in spec["containers"]:
        total = _sum(total, _given(container.get("resources") or {}, kind))
    resources = {resource for amounts in (total, *peaks) for resource in amounts}
    return {
        resource: max(amounts.get(resource, Decimal(0)) for amounts in (total, *peaks))
        for resource in resources
    }


def _given(resources: Object, kind: str) -> Amounts:
    """Return the requests or the limits; what has a limit alone requests as much."""
    limits = resources.get("limits") or {}
    asked = {**limits, **(resources.get("requests") or {})}
    return _amounts(asked if kind == "requests" else limits)


def _amounts(given: Mapping[str, t.Any]) -> Amounts:
    return {resource: amount(value) for resource, value in given.items()}


def _sum(first: Amounts, other: Amounts) -> Amounts:
    return {
        resource: first.get(resource, Decimal(0)) + other.get(resource, Decimal(0))
        for resource in {*first, *other}
    }
