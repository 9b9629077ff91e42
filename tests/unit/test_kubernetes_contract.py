# SPDX-License-Identifier: GPL-3.0-or-later
"""What every platform promises, kept by the driver for Kubernetes over an API server in memory.

tests/engines/test_kubernetes_contract.py has the same on a real one.
"""

from __future__ import annotations

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms.kubernetes import Driver
from ansible_collections.progressive.rollout.tests.drivers import platform_contract as contract
from ansible_collections.progressive.rollout.tests.support import kubernetes as api
from ansible_collections.progressive.rollout.tests.unit.test_kubernetes import cluster, driver


class Site:
    """A Deployment without pods, as the contract wants it."""

    told = "restarted: Error, exit code 3"

    def __init__(self) -> None:
        self.server = cluster(0)

    def driver(self, epoch: int = 1) -> Driver:
        return driver(self.server, epoch)

    def ending(self) -> Driver:
        self.server.ends = True
        return self.driver()

    def left(self) -> list[str]:
        mine = self.server.objects[api.SHOP]
        sets = [one for path, one in self.server.objects.items() if path.startswith(api.SETS)]
        added = [one for one in sets if one["metadata"]["name"] != "made-0"]
        assert mine["spec"] == api.deployment("1", 0)["spec"]
        return [one["metadata"]["name"] for one in [*added, *self.server.living()]]


class TestKubernetes(contract.OrchestratorContract):
    @pytest.fixture
    def site(self) -> Site:
        return Site()
