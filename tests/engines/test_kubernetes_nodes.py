# SPDX-License-Identifier: GPL-3.0-or-later
"""A node that is drained in the middle of a rollout, on a real Kubernetes with two nodes."""

from __future__ import annotations

import time
import typing as t
from collections.abc import Iterator

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.kubernetes import (
    ApiError,
    Cluster,
)
from ansible_collections.progressive.rollout.tests.support.namespaces import (
    Client,
    Namespace,
)
from ansible_collections.progressive.rollout.tests.support.playbook import Playground
from ansible_collections.progressive.rollout.tests.support.waiting import until


class Node:
    """A node, and how `kubectl drain` empties it, as far as the pods of a namespace go."""

    def __init__(self, cluster: Cluster, name: str, namespace: Namespace) -> None:
        self.cluster, self.name, self.namespace = cluster, name, namespace

    def close(self, closed: bool = True) -> None:
        self.cluster.patch(f"/api/v1/nodes/{self.name}", {"spec": {"unschedulable": closed}})

    def pods(self) -> list[dict[str, t.Any]]:
        found = self.cluster.get(f"{self.namespace.core}/pods")["items"]
        return [pod for pod in found if pod["spec"].get("nodeName") == self.name]

    def drain(self) -> None:
        self.close()
        until(lambda: not [self.evict(pod) for pod in self.pods()], "the node is empty")

    def evict(self, pod: dict[str, t.Any]) -> None:
        name = pod["metadata"]["name"]
        body = {"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": name}}
        try:
            self.cluster.post(f"{self.namespace.core}/pods/{name}/eviction", body)
        except ApiError as exc:
            assert exc.status in (404, 429), "it is gone, or the budget has no room now"


@pytest.fixture
def node(own: None, cluster: Cluster, namespace: Namespace) -> Iterator[Node]:
    names = [one["metadata"]["name"] for one in cluster.get("/api/v1/nodes")["items"]]
    if len(names) < 2:
        pytest.fail("there is one node only: run scripts/kubernetes up 2")
    made = Node(cluster, names[0], namespace)
    yield made
    made.close(False)


def test_a_node_that_is_drained_in_the_middle(
    playground: Playground, namespace: Namespace, node: Node
) -> None:
    namespace.deploy(6, start=0)
    assert node.pods(), "it has some of them"
    budget = {"minAvailable": 5, "selector": {"matchLabels": {"app": "shop"}}}
    keep = {"apiVersion": "policy/v1beta1", "kind": "PodDisruptionBudget", "spec": budget}
    namespace.kubectl("apply", "-f", "-", given={**keep, "metadata": {"name": "keep"}})
    with Client(namespace) as client:
        run = playground.start(variables={"rollout_revision": "2"})
        until(lambda: namespace.ready().get("2", 0) >= 2, "some new pods are ready")
        assert run.process.poll() is None
        node.drain()
        outcome = run.wait()
        time.sleep(1)
    assert outcome.rc == 0, outcome.output
    namespace.is_ordinary("2", 6)
    assert node.pods() == []
    assert client.failed == []
    assert min(client.answers["1"], client.answers["2"]) > 100
