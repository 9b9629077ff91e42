# SPDX-License-Identifier: GPL-3.0-or-later
"""What an object of Kubernetes, and a pod above all, tells of itself. Pure."""

from __future__ import annotations

import calendar
import time
import typing as t
from collections.abc import Mapping, Sequence

from ..base.text import clean

Object = Mapping[str, t.Any]
COST = "controller.kubernetes.io/pod-deletion-cost"
CHEAPEST = str(-(2**31))


def notes_of(obj: Object) -> Mapping[str, str]:
    """Return the annotations of an object."""
    return obj["metadata"].get("annotations") or {}


def labels_of(obj: Object) -> Mapping[str, str]:
    """Return the labels of an object."""
    return obj["metadata"].get("labels") or {}


def owned_by(obj: Object, owner: Object) -> bool:
    """Return whether an object is controlled by another."""
    return any(
        reference.get("uid") == owner["metadata"]["uid"] and reference.get("controller")
        for reference in obj["metadata"].get("ownerReferences") or ()
    )


def seconds(stamp: str | None) -> float:
    """Return a time of the API in seconds since the epoch; 0 if there is none."""
    try:
        return float(calendar.timegm(time.strptime(str(stamp)[:19], "%Y-%m-%dT%H:%M:%S")))
    except ValueError:
        return 0.0


def gone(pod: Object) -> bool:
    """Return whether nothing of a pod that was deleted runs any more.

    Kubernetes may list it for ten seconds after that.
    """
    if not pod["metadata"].get("deletionTimestamp"):
        return False
    statuses = containers(pod)
    return bool(statuses) and not any(
        "running" in (status.get("state") or {}) for status in statuses
    )


def containers(pod: Object) -> Sequence[Object]:
    """Return the statuses of a pod's containers, those that run before the others first."""
    status = pod.get("status") or {}
    kinds = ("initContainerStatuses", "containerStatuses")
    return [container_status for kind in kinds for container_status in status.get(kind) or ()]


def ended(pod: Object) -> bool:
    """Return whether a pod has ended by itself."""
    return (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded")


def condition(pod: Object, kind: str) -> Mapping[str, t.Any]:
    """Return a condition of a pod; empty if it has none of this kind."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return next((item for item in conditions if item.get("type") == kind), {})


def cheap() -> Object:
    """Return the patch by which a pod is deleted before others, from 1.22 on.

    The lowest cost there is: others may have one as well, of their users or of a run before.
    """
    return {"metadata": {"annotations": {COST: CHEAPEST}}}


def dear() -> Object:
    """Return the patch by which a pod that was to be deleted before others is like them again."""
    return {"metadata": {"annotations": {COST: None}}}


def labelled(name: str, value: str) -> Object:
    """Return the patch by which a pod, and not the template, has a label."""
    return {"metadata": {"labels": {name: value}}}


def is_cheap(pod: Object) -> bool:
    """Return whether a pod is to be deleted before others."""
    return notes_of(pod).get(COST) == CHEAPEST


def unready(pod: Object) -> Sequence[Object]:
    """Return the patch of a pod's status by which it is not ready; empty if it is not.

    Its kubelet corrects that within ten seconds.
    """
    conditions = (pod.get("status") or {}).get("conditions") or ()
    ready = [at for at, item in enumerate(conditions) if item.get("type") == "Ready"]
    if not ready or conditions[ready[0]].get("status") != "True":
        return ()
    path = f"/status/conditions/{ready[0]}"
    return [
        {"op": "test", "path": f"{path}/type", "value": "Ready"},
        {"op": "replace", "path": f"{path}/status", "value": "False"},
        {"op": "add", "path": f"{path}/reason", "value": "RolloutStopsIt"},
    ]


def reason(pod: Object) -> str:
    """Return why a pod does not run or is not ready, in the words of Kubernetes."""
    status = pod.get("status") or {}
    if ended(pod):
        words = [status.get("reason"), status.get("message")]
        return clean(": ".join(filter(None, words)) or f"it ended ({status.get('phase')})")
    for container in containers(pod):
        waiting = (container.get("state") or {}).get("waiting") or {}
        before = (container.get("lastState") or {}).get("terminated") or {}
        if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
            return clean(": ".join(filter(None, [waiting["reason"], waiting.get("message")])))
        if before and not container.get("ready"):
            return clean(f"restarted: {before.get('reason')}, exit code {before.get('exitCode')}")
    scheduled = condition(pod, "PodScheduled")
    if scheduled.get("status") == "False":
        return clean(f"{scheduled.get('reason')}: {scheduled.get('message')}")
    ready = condition(pod, "Ready")
    return clean(ready.get("message") or "") if ready.get("status") == "False" else ""
