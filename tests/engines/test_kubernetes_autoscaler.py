# SPDX-License-Identifier: GPL-3.0-or-later
"""A real HorizontalPodAutoscaler that would undo each step of a rollout: it is held, and put back."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.autoscalers import hpa
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.autoscaler import (
    AutoscalerDriver,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import (
    DriverContext,
)
from ansible_collections.progressive.rollout.tests.drivers.autoscaler_contract import (
    AutoscalerContract,
)
from ansible_collections.progressive.rollout.tests.support.contexts import Knows
from ansible_collections.progressive.rollout.tests.support.namespaces import (
    KUBECONFIG,
    Namespace,
)
from ansible_collections.progressive.rollout.tests.support.playbook import Playground
from ansible_collections.progressive.rollout.tests.support.waiting import until


class Hpa:
    """An autoscaler of the Deployment `shop`."""

    def __init__(self, namespace: Namespace, least: int, most: int) -> None:
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "shop"}
        bounds = {"minReplicas": least, "maxReplicas": most}
        metrics = [
            {
                "type": "Resource",
                "resource": {
                    "name": "cpu",
                    "target": {"type": "Utilization", "averageUtilization": 50},
                },
            }
        ]
        one = {
            "apiVersion": "autoscaling/v2beta2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "shop"},
            "spec": {"scaleTargetRef": target, "metrics": metrics, **bounds},
        }
        namespace.kubectl("apply", "-f", "-", given=one)
        self.namespace = namespace
        self.path = (
            f"/apis/autoscaling/v2beta2/namespaces/{namespace.name}/horizontalpodautoscalers/shop"
        )
        self.original = self.spec

    @property
    def spec(self) -> dict[str, t.Any]:
        return dict(self.namespace.cluster.get(self.path)["spec"])

    def variables(self, **more: t.Any) -> dict[str, t.Any]:
        given = {"driver": "hpa", "name": "shop", "namespace": self.namespace.name}
        return {"rollout_autoscaler": {**given, "kubeconfig": str(KUBECONFIG), **more}}


class TestHpa(AutoscalerContract):
    @pytest.fixture
    def scaler(self, namespace: Namespace) -> AutoscalerDriver:
        Hpa(namespace, 2, 12)
        options = {"name": "shop", "namespace": namespace.name, "context": None}
        context = DriverContext("shop", t.cast(t.Any, None), known=Knows(epoch=1))
        return hpa.Driver({**options, "kubeconfig": str(KUBECONFIG)}, context)


def test_it_is_held_while_the_rollout_lasts_and_put_back(
    playground: Playground, namespace: Namespace
) -> None:
    namespace.deploy(4, start=0)
    scaler = Hpa(namespace, 4, 8)
    refused = playground.run(variables={"rollout_revision": "2"})
    told = " ".join(refused.output.split())
    assert refused.rc != 0 and "rollout_autoscaler: {driver: hpa, name: shop}" in told, told
    assert scaler.spec == scaler.original
    outcome = playground.run(variables={"rollout_revision": "2", **scaler.variables()})
    assert outcome.rc == 0, outcome.output
    assert scaler.spec == scaler.original
    namespace.is_ordinary("2", 4)
    undone = {"rollout_revision": "broken", "rollout_failure_limit": 1, **scaler.variables()}
    outcome = playground.run(variables=undone)
    assert outcome.rollout["outcome"] == "rolled_back", outcome.output
    assert scaler.spec == scaler.original
    namespace.is_ordinary("2", 4)


PAUSED = {
    "rollout_strategy": "canary",
    "rollout_steps": [{"set_replicas": 1}, {"pause": {}}],
    "rollout_wait": "2m",
}


def test_it_is_put_back_after_an_abort(playground: Playground, namespace: Namespace) -> None:
    namespace.deploy(4, start=0)
    scaler = Hpa(namespace, 4, 8)
    refused = playground.run(variables={"rollout_revision": "2", **scaler.variables(mode="raise")})
    assert "rollout_autoscaler.mode: raise would undo" in " ".join(refused.output.split())
    assert refused.rc != 0 and scaler.spec == scaler.original
    playground.variables |= scaler.variables()
    waiting = playground.start(variables={"rollout_revision": "2", **PAUSED})
    until(lambda: scaler.spec != scaler.original and "2" in namespace.ready(), "it is at the pause")
    assert playground.run("progressive.rollout.abort").rc == 0
    outcome = waiting.wait()
    assert outcome.rollout["outcome"] == "aborted", outcome.output
    assert scaler.spec == scaler.original
