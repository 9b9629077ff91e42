# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What else changes a Deployment, and would undo a rollout: refused before anything is touched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..base.errors import InputError
from ..remote.kubernetes import ApiError, Cluster, Object
from . import _pods
from ._kubernetes_risks import selects


def refuse_overlap(deployment: Object, others: Iterable[Object], where: str) -> None:
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
    Rival(
        "argoproj.io", "rollouts", "Argo Rollout", "workloadRef", "roll out with it, or delete it"
    ),
    Rival(
        "flagger.app", "canaries", "Flagger Canary", "targetRef", "roll out with it, or delete it"
    ),
    Rival(
        "keda.sh",
        "scaledobjects",
        "KEDA ScaledObject",
        "scaleTargetRef",
        'annotate it meanwhile with autoscaling.keda.sh/paused: "true"',
        "autoscaling.keda.sh/paused",
    ),
)


def refuse_others(cluster: Cluster, namespace: str, name: str, where: str) -> list[str]:
    """Raise InputError where something else drives the Deployment; return what is not known."""
    unknown, groups = [], served(cluster)
    for rival in RIVALS:
        found = listed(cluster, groups.get(rival.group), namespace, rival.plural)
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


def refuse_autoscalers(cluster: Cluster, namespace: str, name: str, where: str) -> None:
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


# -- lists that may not be there, or not be read ---------------------------------------------------


def served(cluster: Cluster) -> Mapping[str, str]:
    """Return the groups of kinds that the server has, each with its preferred version."""
    groups = cluster.get("/apis").get("groups", ())
    return {one["name"]: one["preferredVersion"]["groupVersion"] for one in groups}


def listed(
    cluster: Cluster, version: str | None, namespace: str, plural: str
) -> Sequence[Object] | None:
    """Return the objects of a kind, none if the server has none; None: they may not be listed."""
    return listed_at(cluster, f"/apis/{version}/namespaces/{namespace}/{plural}") if version else ()


def listed_at(cluster: Cluster, path: str) -> Sequence[Object] | None:
    """Return the objects of a list, none if there is no such list; None: it may not be read."""
    try:
        found: Sequence[Object] = cluster.get(path).get("items", ())
    except ApiError as exc:
        if exc.status not in (403, 404):
            raise
        return () if exc.status == 404 else None
    return found
