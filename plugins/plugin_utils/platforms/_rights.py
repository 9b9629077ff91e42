# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is refused on Kubernetes before anything is touched: rights, and workloads that cannot be
rolled out.
"""

from __future__ import annotations

import json
import typing as t
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..base.errors import InputError
from ..remote import kubernetes_rights
from ..remote.kubernetes import ApiError, Cluster, Object
from . import _pods
from ._kubernetes_risks import selects

NEEDED: kubernetes_rights.Needed = (
    ("apps", "deployments", ("list", "watch", "patch")),
    ("apps", "replicasets", ("list", "watch", "create", "patch", "delete")),
    ("", "pods", ("list", "watch", "patch")),
    ("autoscaling", "horizontalpodautoscalers", ("list",)),
)
NO_COSTS: kubernetes_rights.Needed = (("", "pods/status", ("patch",)),)


def costs(cluster: Cluster) -> bool:
    """Return whether the server deletes pods with a low `pod-deletion-cost` first."""
    return cluster.version() >= (1, 22)


def in_place(resource: str) -> kubernetes_rights.Needed:
    """Return what is needed of a workload whose pods are replaced at their places."""
    return (
        ("apps", resource, ("list", "watch", "patch")),
        ("apps", "controllerrevisions", ("list",)),
        ("", "pods", ("list", "watch", "delete")),
        ("", "events", ("list",)),
    )


def check(cluster: Cluster, namespace: str, needed: kubernetes_rights.Needed | None = None) -> None:
    """Raise InputError, with a Role that would do, where the account lacks rights."""
    if needed is None:
        needed = NEEDED if costs(cluster) else (*NEEDED, *NO_COSTS)
    kubernetes_rights.check(cluster, role(namespace, needed), "rollout_platform.context")


def role(namespace: str, needed: kubernetes_rights.Needed = NEEDED) -> dict[str, t.Any]:
    """Return the least rights that rollouts need."""
    return kubernetes_rights.role("progressive-rollout", namespace, needed)


def check_deployment(deployment: Object, found: Sequence[_pods.Group], where: str) -> None:
    """Raise InputError where a Deployment cannot be handed back, or is not to move."""
    for wrong, why in _obstacles(deployment, found):
        if wrong:
            raise InputError(f"rollout_platform.workload: {where} {why}", "PR-243")


def _obstacles(deployment: Object, found: Sequence[_pods.Group]) -> Iterable[tuple[bool, str]]:
    spec = deployment["spec"]
    selector = spec["selector"]
    yield (
        (spec.get("strategy") or {}).get("type") == "Recreate",
        "has the strategy Recreate, which never has old and new pods together; set RollingUpdate",
    )
    yield (
        bool(selector.get("matchExpressions")) or not selector.get("matchLabels"),
        "selects its pods by expressions; only labels (matchLabels) are supported",
    )
    yield (
        _pods.HASH in (selector.get("matchLabels") or {}),
        f"selects its pods by {_pods.HASH}, which differs from revision to revision",
    )
    yield (
        bool(spec.get("paused")) and not _pods.pending(deployment, found),
        "is paused by somebody else; resume it first: kubectl rollout resume",
    )


def check_overlap(deployment: Object, others: Iterable[Object], where: str) -> None:
    """Raise InputError where another Deployment would take our ReplicaSets for its own."""
    name = deployment["metadata"]["name"]
    labels = _pods.labels_of(deployment["spec"]["template"])
    for one in others:
        if one["metadata"]["name"] != name and selects(one["spec"]["selector"], labels):
            raise InputError(
                f"rollout_platform.workload: the selector of Deployment {one['metadata']['name']}"
                f" also finds the pods of {where}, and both would fight for them; give each"
                " Deployment a label of its own, in its selector and in its pods",
                "PR-243",
            )


@dataclass(frozen=True)
class Rival:
    """A kind of object by which something else drives a Deployment."""

    group: str
    plural: str
    kind: str
    reference: str  # the field of its spec that names the Deployment
    advice: str
    paused: str = ""  # the annotation by which it does not, for now


RIVALS = (
    Rival("argoproj.io", "rollouts", "Argo Rollout", "workloadRef", "delete one of the two"),
    Rival("flagger.app", "canaries", "Flagger Canary", "targetRef", "delete one of the two"),
    Rival(
        "keda.sh",
        "scaledobjects",
        "KEDA ScaledObject",
        "scaleTargetRef",
        'annotate it meanwhile with autoscaling.keda.sh/paused: "true"',
        "autoscaling.keda.sh/paused",
    ),
)


def check_rivals(cluster: Cluster, namespace: str, name: str, where: str) -> list[str]:
    """Raise InputError where something else drives the Deployment; return what is not known."""
    unknown = []
    for rival in RIVALS:
        found = listed(cluster, rival.group, namespace, rival.plural)
        if found is None:
            unknown.append(rival)
        for one in found or ():
            target = (one.get("spec") or {}).get(rival.reference) or {}
            paused = _pods.notes_of(one).get(rival.paused) == "true"
            mine = (target.get("kind", "Deployment"), target.get("name")) == ("Deployment", name)
            if mine and not paused:
                raise InputError(
                    f"rollout_platform.workload: the {rival.kind} {one['metadata']['name']} drives"
                    f" {where}, too, and would undo the rollout; {rival.advice}",
                    "PR-243",
                )
    return [
        f"not known: whether a {rival.kind} drives {where}, too; give the account the right to list"
        f" {rival.plural}.{rival.group}"
        for rival in unknown
    ]


def listed(cluster: Cluster, group: str, namespace: str, plural: str) -> Sequence[Object] | None:
    """Return the objects of a kind that the server may not have; None: they may not be listed."""
    groups = {one["name"]: one for one in cluster.get("/apis").get("groups", ())}
    if group not in groups:
        return ()
    served = groups[group]["preferredVersion"]["groupVersion"]
    return listed_at(cluster, f"/apis/{served}/namespaces/{namespace}/{plural}")


def listed_at(cluster: Cluster, path: str) -> Sequence[Object] | None:
    """Return the objects of a list, none if there is no such list; None: it may not be read."""
    try:
        found: Sequence[Object] = cluster.get(path).get("items", ())
    except ApiError as exc:
        if exc.status not in (403, 404):
            raise
        return () if exc.status == 404 else None
    return found


def check_on_delete(workload: Object, kind: str, where: str) -> None:
    """Raise InputError where a StatefulSet or DaemonSet would be moved by its own controller."""
    spec = workload["spec"]
    strategy = spec.get("updateStrategy") or {}
    if strategy.get("type") != "OnDelete":
        patch = {"spec": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": None}}}
        raise InputError(
            f"rollout_platform.workload: {where} has the update strategy"
            f" {strategy.get('type', 'RollingUpdate')}, with which its own controller replaces the"
            " pods; set OnDelete, which replaces none by itself: kubectl patch"
            f" {kind}/{workload['metadata']['name']} --type merge -p '{json.dumps(patch)}'",
            "PR-243",
        )
    if spec["selector"].get("matchExpressions") or not spec["selector"].get("matchLabels"):
        raise InputError(
            f"rollout_platform.workload: {where} selects its pods by expressions; only labels"
            " (matchLabels) are supported",
            "PR-243",
        )
    if spec.get("revisionHistoryLimit") == 0:
        raise InputError(
            f"rollout_platform.workload: {where} has the revisionHistoryLimit 0, and a rollback"
            " needs the stable pod template from its history; set at least 1",
            "PR-243",
        )


def check_autoscalers(cluster: Cluster, namespace: str, name: str, where: str) -> None:
    """Raise InputError where an autoscaler changes the Deployment's number of replicas, too."""
    path = f"/apis/autoscaling/v1/namespaces/{namespace}/horizontalpodautoscalers"
    for one in cluster.get(path).get("items", ()):
        target = one["spec"]["scaleTargetRef"]
        if (target.get("kind"), target.get("name")) == ("Deployment", name):
            raise InputError(
                f"rollout_platform.workload: the HorizontalPodAutoscaler {one['metadata']['name']}"
                f" scales {where}, too, and would undo each step of the rollout; delete it for as"
                " long as the rollout lasts",
                "PR-243",
            )
