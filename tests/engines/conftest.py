# SPDX-License-Identifier: GPL-3.0-or-later
"""A real cluster of Kubernetes, and a namespace for each test (tests/support/namespaces.py)."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.kubernetes import Cluster
from ansible_collections.progressive.rollout.tests.support.namespaces import (
    EXTERNAL,
    IMAGE,
    KUBECONFIG,
    Namespace,
)
from ansible_collections.progressive.rollout.tests.support.playbook import Playground

_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    if not KUBECONFIG.exists():
        pytest.fail("there is no cluster: run scripts/kubernetes up")
    return Cluster(str(KUBECONFIG))


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[Namespace]:
    name = f"rollout-{os.getpid()}-{next(_NUMBERS)}"
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    cluster.post("/api/v1/namespaces", body)
    yield Namespace(cluster, name)
    cluster.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture
def own() -> None:
    """The cluster is the tests' own: its nodes and its API server may be interfered with."""
    if EXTERNAL:
        pytest.skip("only on the cluster of scripts/kubernetes")


@pytest.fixture
def playground(namespace: Namespace) -> Iterator[Playground]:
    """A controller, and a Deployment `shop` that it rolls out."""
    platform = {
        "driver": "kubernetes",
        "kubeconfig": str(KUBECONFIG),
        "namespace": namespace.name,
        "workload": "deployment/shop",
        "image": IMAGE,
    }
    none = {"rollout_replicas": None, "rollout_health": None}
    made = Playground(1, {"rollout_platform": platform, **none})
    yield made
    made.close()
