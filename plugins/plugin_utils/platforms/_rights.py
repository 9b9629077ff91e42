# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is refused on Kubernetes before anything is touched: rights, and workloads that cannot be
rolled out.
"""

from __future__ import annotations

import json
import typing as t
from collections.abc import Iterable

from ..base.errors import InputError
from ..remote import kubernetes_rights
from ..remote.kubernetes import Cluster, Object
from . import _pods

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
        ("", "pods", ("list", "watch", "patch", "delete")),
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


def check_deployment(deployment: Object, where: str) -> None:
    """Raise InputError where a Deployment cannot be handed back, or is not to move."""
    for wrong, why in _obstacles(deployment):
        if wrong:
            raise InputError(f"rollout_platform.workload: {where} {why}", "PR-243")


def _obstacles(deployment: Object) -> Iterable[tuple[bool, str]]:
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
