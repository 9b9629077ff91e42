# SPDX-License-Identifier: GPL-3.0-or-later
"""What every platform promises, kept by the driver for Kubernetes on a real one."""

from __future__ import annotations

import typing as t
from types import SimpleNamespace

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.check import (
    HealthCheck,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import (
    DriverContext,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms import kubernetes
from ansible_collections.progressive.rollout.tests.drivers import platform_contract as contract
from ansible_collections.progressive.rollout.tests.support.contexts import Knows
from ansible_collections.progressive.rollout.tests.support.namespaces import KUBECONFIG, Namespace


class Site:
    """A Deployment without pods, as the contract wants it."""

    told = "restarted: Error, exit code 3|CrashLoopBackOff"

    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace
        namespace.deploy(0, start=0)
        self.made: list[kubernetes.Driver] = []

    def driver(self, epoch: int = 1) -> kubernetes.Driver:
        given = {
            "workload": "deployment/shop",
            "image": "docker.io/local/shop:{revision}",
            "namespace": self.namespace.name,
            "kubeconfig": str(KUBECONFIG),
        }
        options = kubernetes.OPTIONS.parse(given, "rollout_platform.")
        transport = t.cast(t.Any, SimpleNamespace(print_line=print))
        made = kubernetes.Driver(
            options, DriverContext("shop", transport, HealthCheck(), known=Knows(epoch=epoch))
        )
        self.made.append(made)
        return made

    def ending(self) -> kubernetes.Driver:
        command = {"name": "shop", "command": ["/bin/sh", "-c", "echo no; exit 3"]}
        patch = {"spec": {"template": {"spec": {"containers": [command]}}}}
        self.namespace.patch("deployment/shop", patch)
        return self.driver()

    def left(self) -> list[str]:
        uid = self.namespace.deployment["metadata"]["uid"]
        added = [
            name
            for name, one in self.namespace.sets().items()
            if uid not in [owner["uid"] for owner in one["metadata"].get("ownerReferences", ())]
        ]
        assert self.namespace.deployment["spec"]["replicas"] == 0
        return [*added, *(pod["metadata"]["name"] for pod in self.namespace.pods())]


class TestKubernetes(contract.OrchestratorContract):
    @pytest.fixture
    def site(self, namespace: Namespace) -> t.Iterator[Site]:
        made = Site(namespace)
        yield made
        for driver in made.made:
            driver.close()
