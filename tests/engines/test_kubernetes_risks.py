# SPDX-License-Identifier: GPL-3.0-or-later
"""What is told, or refused, before anything is touched, from the objects of a real Kubernetes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.kubernetes import (
    ApiError,
    Cluster,
)
from ansible_collections.progressive.rollout.tests.support.namespaces import Namespace
from ansible_collections.progressive.rollout.tests.support.playbook import Playground
from ansible_collections.progressive.rollout.tests.support.waiting import until


def test_a_plan_tells_what_may_go_wrong(playground: Playground, namespace: Namespace) -> None:
    namespace.deploy(2, start=0, stop=20)
    selector = {"matchLabels": {"app": "shop"}}
    keep = {"minAvailable": "100%", "selector": selector}
    made = {"apiVersion": "policy/v1beta1", "kind": "PodDisruptionBudget"}
    namespace.kubectl(
        "apply", "-f", "-", given={**made, "metadata": {"name": "keep"}, "spec": keep}
    )
    quota = {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "2"}}}
    namespace.cluster.post(f"{namespace.core}/resourcequotas", quota)
    where = f"{namespace.core}/resourcequotas/few"
    until(lambda: namespace.cluster.get(where)["status"].get("used"), "the quota is counted")
    note = "argocd.argoproj.io/tracking-id=web:apps/Deployment:x/shop"
    namespace.kubectl("annotate", "deployment/shop", note)
    before = ours(namespace)
    asked = {
        "service": "shop",
        "revision": "2",
        "budget": {"max_surge": 1, "max_unavailable": 1},
        "platform": playground.variables["rollout_platform"],
        "store": playground.variables["rollout_store"],
    }
    tasks = [{"progressive.rollout.plan": asked}]
    outcome = playground.run([{"hosts": "localhost", "gather_facts": False, "tasks": tasks}])
    assert outcome.rc == 0, outcome.output
    risks = outcome.one("plan").result["risks"]
    wanted = [
        "the application web of Argo CD keeps deployment shop",
        "PodDisruptionBudget keep promises 2 available pods, and rollout_budget lets there be 1",
        "ResourceQuota few has room for 0 more pods (pods: 2 of 2 used)",
        "the preStop of container shop takes 20 s, and terminationGracePeriodSeconds is 10",
    ]
    assert len(risks) == len(wanted), risks
    assert all(words in line for words, line in zip(wanted, risks, strict=True)), risks
    assert ours(namespace) == before


def ours(namespace: Namespace) -> object:
    """What a rollout would change of the Deployment; its controller changes the rest by itself."""
    found = namespace.deployment
    return found["spec"], found["metadata"]["annotations"]


KIND = "/apis/argoproj.io/v1alpha1"


@pytest.fixture
def rollouts(own: None, cluster: Cluster) -> Iterator[None]:
    """A cluster that has Argo's Rollouts, as far as the API goes."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1alpha1", "served": True, "storage": True}
    names = {"plural": "rollouts", "singular": "rollout", "kind": "Rollout"}
    spec = {"group": "argoproj.io", "scope": "Namespaced", "names": names}
    spec["versions"] = [{**version, "schema": {"openAPIV3Schema": schema}}]  # type: ignore[assignment]
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    cluster.post(path, {"metadata": {"name": "rollouts.argoproj.io"}, "spec": spec})
    until(lambda: serves(cluster, f"{KIND}/rollouts"), "the kind is served")
    yield
    cluster.delete(f"{path}/rollouts.argoproj.io")
    until(lambda: not serves(cluster, KIND), "nothing of it is left")


def serves(cluster: Cluster, path: str) -> bool:
    try:
        return bool(cluster.get(path))
    except ApiError as exc:
        assert exc.status == 404
        return False


@pytest.mark.usefixtures("rollouts")
def test_a_deployment_that_argo_rollouts_drives_is_refused(
    playground: Playground, namespace: Namespace
) -> None:
    namespace.deploy(1, start=0)
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "shop"}
    one = {"metadata": {"name": "busy"}, "spec": {"workloadRef": target}}
    made = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", **one}
    namespace.cluster.post(f"{KIND}/namespaces/{namespace.name}/rollouts", made)
    outcome = playground.run(variables={"rollout_revision": "2"})
    assert outcome.rc != 0
    assert "the Argo Rollout busy drives deployment shop" in outcome.failed.msg, outcome.output
    assert len(namespace.sets()) == 1


def test_a_deployment_without_a_history_is_rolled_out_and_back(
    playground: Playground, namespace: Namespace
) -> None:
    namespace.deploy(2, start=0)
    namespace.patch("deployment/shop", {"spec": {"revisionHistoryLimit": 0}})
    outcome = playground.run(variables={"rollout_revision": "2"})
    assert outcome.rc == 0, outcome.output
    assert "revisionHistoryLimit is 0" in outcome.output
    namespace.is_ordinary("2", 2)
    assert playground.run("progressive.rollout.rollback").rc == 0
    namespace.is_ordinary("1", 2)
