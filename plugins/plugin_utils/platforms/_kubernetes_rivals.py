# SPDX-License-Identifier: GPL-3.0-or-later
"""What else changes a Deployment, and would undo a rollout: refused before anything is touched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..base.errors import InputError
from ..interfaces.autoscaler import Managed
from ..remote.kubernetes import ApiError, Cluster, Object
from . import _pod
from ._kubernetes_risks import selects


def refuse_overlap(deployment: Object, others: Iterable[Object], where: str) -> None:
    """Raise InputError where another Deployment would take our ReplicaSets for its own."""
    name = deployment["metadata"]["name"]
    labels = _pod.labels_of(deployment["spec"]["template"])
    for other in others:
        if other["metadata"]["name"] != name and selects(other["spec"]["selector"], labels):
            raise InputError(
                f"rollout_platform.workload: the selector of Deployment {other['metadata']['name']}"
                f" also finds the pods of {where}, and both would fight for them; give each"
                " Deployment a label of its own, in its selector and in its pods",
                "PR-243",
            )


@dataclass(frozen=True)
class OtherController:
    """A kind of object by which something else drives a Deployment."""

    group: str
    plural: str
    kind: str
    reference: str  # the field of its spec that names the Deployment


OTHER_CONTROLLERS = (
    OtherController("argoproj.io", "rollouts", "Argo Rollout", "workloadRef"),
    OtherController("flagger.app", "canaries", "Flagger Canary", "targetRef"),
)
KEDA = OtherController("keda.sh", "scaledobjects", "KEDA ScaledObject", "scaleTargetRef")
PAUSED = "autoscaling.keda.sh/paused"


def refuse_others(cluster: Cluster, namespace: str, name: str, where: str) -> list[str]:
    """Raise InputError where something else drives the Deployment; return what is not known."""
    unknown = []
    for other in OTHER_CONTROLLERS:
        objects = _driving(cluster, other, namespace, name)
        if objects is None:
            unknown.append(_not_known(other, where))
        for obj in objects or ():
            raise InputError(
                f"rollout_platform.workload: the {other.kind} {obj['metadata']['name']} drives"
                f" {where}, too, and would undo the rollout; roll out with it, or delete it",
                "PR-243",
            )
    return unknown


def refuse_autoscalers(
    cluster: Cluster, namespace: str, name: str, where: str, managed: Managed | None
) -> list[str]:
    """Raise InputError where an autoscaler changes the Deployment's number of replicas, too.

    `managed` is the one that the rollout manages. Returns what is not known.
    """
    autoscalers_of, unknown = autoscalers(cluster, namespace, name)
    for autoscaler, driver in autoscalers_of.items():
        if managed is None or managed.name != autoscaler:
            raise InputError(
                f"rollout_platform.workload: {autoscaler} scales {where}, too, and would undo each"
                " step of the rollout; have the rollout hold it: rollout_autoscaler: {driver:"
                f" {driver}, name: {autoscaler.rpartition('/')[2]}}}",
                "PR-243",
            )
        if managed.mode == "raise":
            raise InputError(
                f"rollout_autoscaler.mode: raise would undo each step of the rollout, in which"
                f" {where} gets fewer pods; use hold or follow",
                "PR-107",
            )
    return [_not_known(KEDA, where)] if unknown else []


def autoscalers(cluster: Cluster, namespace: str, name: str) -> tuple[dict[str, str], bool]:
    """Return what scales the Deployment, as KINDS/NAME with its driver here.

    KEDA's ScaledObjects have a HorizontalPodAutoscaler each, which counts as theirs, unless they
    are paused. The other value is whether ScaledObjects may not be listed.
    """
    active, paused = {}, set()
    objects = _driving(cluster, KEDA, namespace, name)
    for obj in objects or ():
        named = f"{KEDA.plural}/{obj['metadata']['name']}"
        if _pod.notes_of(obj).get(PAUSED) == "true":
            paused.add(named)
        else:
            active[named] = "keda"
    path = f"/apis/autoscaling/v1/namespaces/{namespace}/horizontalpodautoscalers"
    for obj in cluster.get(path).get("items", ()):
        target = obj["spec"]["scaleTargetRef"]
        if (target.get("kind"), target.get("name")) == ("Deployment", name):
            named, driver = _owner(obj)
            active[named] = driver
    return {named: driver for named, driver in active.items() if named not in paused}, (
        objects is None
    )


def _owner(autoscaler: Object) -> tuple[str, str]:
    """Return what a HorizontalPodAutoscaler belongs to: a ScaledObject, or itself."""
    for owner in autoscaler["metadata"].get("ownerReferences") or ():
        if owner.get("kind") == "ScaledObject":
            return f"{KEDA.plural}/{owner['name']}", "keda"
    return f"horizontalpodautoscalers/{autoscaler['metadata']['name']}", "hpa"


def _driving(
    cluster: Cluster, other: OtherController, namespace: str, name: str
) -> Sequence[Object] | None:
    """Return the objects of a kind that drive the Deployment; None: they may not be listed."""
    objects = listed(cluster, served(cluster).get(other.group), namespace, other.plural)
    if objects is None:
        return None
    targets = [(obj, (obj.get("spec") or {}).get(other.reference) or {}) for obj in objects]
    return [
        obj
        for obj, target in targets
        if (target.get("kind", "Deployment"), target.get("name")) == ("Deployment", name)
    ]


def _not_known(other: OtherController, where: str) -> str:
    return (
        f"not known: whether a {other.kind} drives {where}, too; give the account the right to list"
        f" {other.plural}.{other.group}"
    )


# -- lists that may not be there, or not be read ---------------------------------------------------


def served(cluster: Cluster) -> Mapping[str, str]:
    """Return the groups of kinds that the server has, each with its preferred version."""
    groups = cluster.get("/apis").get("groups", ())
    return {group["name"]: group["preferredVersion"]["groupVersion"] for group in groups}


def listed(
    cluster: Cluster, version: str | None, namespace: str, plural: str
) -> Sequence[Object] | None:
    """Return the objects of a kind, none if the server has none; None: they may not be listed."""
    return listed_at(cluster, f"/apis/{version}/namespaces/{namespace}/{plural}") if version else ()


def listed_at(cluster: Cluster, path: str) -> Sequence[Object] | None:
    """Return the objects of a list, none if there is no such list; None: it may not be read."""
    try:
        items: Sequence[Object] = cluster.get(path).get("items", ())
    except ApiError as exc:
        if exc.status not in (403, 404):
            raise
        return () if exc.status == 404 else None
    return items
