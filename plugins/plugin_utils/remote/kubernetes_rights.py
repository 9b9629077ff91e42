# SPDX-License-Identifier: GPL-3.0-or-later
"""The rights that a driver needs in a namespace of Kubernetes."""

from __future__ import annotations

import json
import typing as t
from collections.abc import Sequence

from ..base.errors import InputError
from .kubernetes import Cluster

Needed = Sequence[tuple[str, str, tuple[str, ...]]]  # API group, resource, verbs


def check(cluster: Cluster, role: dict[str, t.Any], variable: str) -> None:
    """Raise InputError, with the Role that would do, where the account lacks rights."""
    namespace = role["metadata"]["namespace"]
    missing = [
        f"{verb} {resource}"
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        if not cluster.may(namespace, rule["apiGroups"][0], resource, verb)
    ]
    if missing:
        raise InputError(
            f"{variable}: in namespace {namespace} this account may not {', '.join(missing)}; apply"
            f" this Role, and bind it to the account: {json.dumps(role)}",
            "PR-244",
        )


def role(name: str, namespace: str, needed: Needed) -> dict[str, t.Any]:
    """Return the Role of this name that gives these rights."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": name, "namespace": namespace},
        "rules": [
            {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}
            for group, resource, verbs in needed
        ],
    }
