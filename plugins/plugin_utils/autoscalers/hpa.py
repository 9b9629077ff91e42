# SPDX-License-Identifier: GPL-3.0-or-later
"""A Kubernetes HorizontalPodAutoscaler.

It is held by the select policy `Disabled` for both directions, and a minimum of 1, since a minimum
binds in spite of it:
https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/#configurable-scaling-behavior
It goes on measuring meanwhile, so that it can be followed.
"""

from __future__ import annotations

import re
import typing as t
from collections.abc import Iterator, Mapping
from fractions import Fraction

from ..base.errors import InputError
from ..interfaces.autoscaler import State
from ..remote.kubernetes import Object
from ._objects import ObjectDriver, options

OPTIONS = options("HorizontalPodAutoscaler")
VERSIONS = ("v2", "v2beta2")  # of the API that have a behavior, the first one that the server has
TOLERANCE = Fraction(1, 10)  # within which the controller, too, changes nothing
# What the server fills in where a behavior leaves a direction out, so that what it shows after a
# change is what was written:
# https://github.com/kubernetes/kubernetes/blob/v1.20.2/pkg/apis/autoscaling/v2beta2/defaults.go
_UP = {
    "stabilizationWindowSeconds": 0,
    "policies": [
        {"type": "Pods", "value": 4, "periodSeconds": 15},
        {"type": "Percent", "value": 100, "periodSeconds": 15},
    ],
}
_DOWN = {"policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]}
_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_UNITS |= {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_SMALL = {"n": 10**9, "u": 10**6, "m": 10**3}
_QUANTITY = re.compile(r"(\d{1,20})(?:\.(\d{1,12}))?([numkMGT]?|[KMGT]i)")


class Driver(ObjectDriver):
    """Disables the behavior of a HorizontalPodAutoscaler, or raises its minimum."""

    _group, _kinds = "autoscaling", "horizontalpodautoscalers"
    follows = True

    def _version(self) -> str:
        versions = self._cluster.get("/apis/autoscaling").get("versions", ())
        served = [version["version"] for version in versions]
        for version in VERSIONS:
            if version in served:
                return version
        raise InputError(
            "rollout_autoscaler.driver: the server has no version of the autoscaling API that knows"
            f" a behavior ({', '.join(VERSIONS)}); hpa needs Kubernetes 1.18 or later",
            "PR-261",
        )

    def held(self, state: State, replicas: int) -> State:
        given = state["behavior"] or {}
        behavior = {
            "scaleUp": {**(given.get("scaleUp") or _UP), "selectPolicy": "Disabled"},
            "scaleDown": {**(given.get("scaleDown") or _DOWN), "selectPolicy": "Disabled"},
        }
        return {**state, "min": 1, "behavior": behavior}

    def followed(self, state: State) -> State:
        return self.held(state, 0)

    def wanted(self, present: int, replicas: int) -> int | None:
        """Compute it from the metrics: what the status says is bounded by the held behavior."""
        scaler = self._get()
        current = scaler.get("status", {}).get("currentReplicas") or present
        numbers = list(_wishes(scaler, present, replicas, current))
        return max(numbers) if numbers else None

    def _state(self, scaler: Object) -> State:
        spec = scaler["spec"]
        return {
            "min": spec.get("minReplicas", 1),
            "max": spec["maxReplicas"],
            "behavior": spec.get("behavior"),
        }

    def _change(self, after: State) -> tuple[dict[str, t.Any], dict[str, t.Any]]:
        least, most, behavior = after["min"], after["max"], after["behavior"]
        return {}, {"minReplicas": least, "maxReplicas": most, "behavior": behavior}


def _wishes(scaler: Object, present: int, replicas: int, current_replicas: int) -> Iterator[int]:
    """Yield how many pods each metric asks for, as the controller computes it.

    `current_replicas` are the pods that an average of an object's or an external metric is of.
    https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/#algorithm-details
    """
    current = {
        _key(metric): metric for metric in scaler.get("status", {}).get("currentMetrics") or ()
    }
    for metric in scaler["spec"].get("metrics") or ():
        measured = current.get(_key(metric))
        if measured is None:
            continue
        kind = str(metric["type"])
        source = kind[:1].lower() + kind[1:]
        target, value = metric[source].get("target") or {}, measured[source].get("current") or {}
        name = next((n for n in _AVERAGES if n in target), "value")
        asked, reading = _quantity(target.get(name)), _quantity(value.get(name))
        if not asked or reading is None:
            continue
        total = (
            current_replicas
            if name == "averageValue" and kind in ("Object", "External")
            else present
        )
        steady = abs(reading / asked - 1) <= TOLERANCE
        yield replicas if steady else _up(total * reading / asked)


_AVERAGES = ("averageUtilization", "averageValue")


def _key(metric: Mapping[str, t.Any]) -> str:
    """Return what tells one metric from another."""
    kind = str(metric.get("type"))
    source = metric.get(kind[:1].lower() + kind[1:]) or {}
    named = [source.get(part) for part in ("name", "container", "metric", "describedObject")]
    return repr((kind, named))


def _quantity(given: t.Any) -> Fraction | None:
    """Return a quantity as a number; None for what is none.

    https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
    """
    match = _QUANTITY.fullmatch(str(given))
    if not match:
        return None
    number = Fraction(f"{match[1]}.{match[2] or 0}")
    return number / _SMALL[match[3]] if match[3] in _SMALL else number * _UNITS[match[3]]


def _up(number: Fraction) -> int:
    return -(-number.numerator // number.denominator)
