# SPDX-License-Identifier: GPL-3.0-or-later
"""A [KEDA](https://keda.sh) ScaledObject, which creates its own HorizontalPodAutoscaler.

It is held by the annotation with which KEDA pauses it, since KEDA undoes changes of its
HorizontalPodAutoscaler: https://keda.sh/docs/latest/concepts/scaling-deployments/#pause-autoscaling
"""

from __future__ import annotations

import typing as t

from ..interfaces.autoscaler import State
from ..remote.kubernetes import Object
from ._objects import ObjectDriver, options

OPTIONS = options("ScaledObject")
PAUSED = "autoscaling.keda.sh/paused"
LEAST, MOST = 0, 100  # what KEDA takes where a ScaledObject says nothing


class Driver(ObjectDriver):
    """Pauses a ScaledObject, or raises its minimum."""

    _group, _kinds = "keda.sh", "scaledobjects"

    def _version(self) -> str:
        return "v1alpha1"

    def bounds(self, state: State) -> tuple[int, int]:
        least, most = state["min"], state["max"]
        return LEAST if least is None else least, MOST if most is None else most

    def held(self, state: State, replicas: int) -> State:
        return {**state, "paused": "true"}

    def _state(self, scaler: Object) -> State:
        spec, notes = scaler["spec"], scaler["metadata"].get("annotations") or {}
        least, most = spec.get("minReplicaCount"), spec.get("maxReplicaCount")
        return {"min": least, "max": most, "paused": notes.get(PAUSED)}

    def _change(self, after: State) -> tuple[dict[str, t.Any], dict[str, t.Any]]:
        spec = {"minReplicaCount": after["min"], "maxReplicaCount": after["max"]}
        return {PAUSED: after["paused"]}, spec
