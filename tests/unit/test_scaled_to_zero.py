# SPDX-License-Identifier: GPL-3.0-or-later
"""A service whose owner has scaled it to 0 gets its next revision without an instance."""

from __future__ import annotations

import pytest
from ansible_collections.progressive.rollout.plugins.action import rollback
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import InputError
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    PlatformDriver,
)
from ansible_collections.progressive.rollout.tests.support import kubernetes as api
from ansible_collections.progressive.rollout.tests.support.memory import (
    Platform,
    Service,
    World,
)
from ansible_collections.progressive.rollout.tests.unit.test_asked_for import in_cluster

pytestmark = pytest.mark.usefixtures("virtual_time")


class Scaled(Platform):
    """Its owner asks for a number of instances there."""

    def replicas(self) -> int | None:
        asked: int | None = self.world.scaler.get("asked")
        return asked


class Scaler(World):
    def platform(self) -> PlatformDriver:
        return Scaled(self)

    def autoscaler(self) -> None:
        """None: the number is the workload's own."""


@pytest.fixture
def shop() -> Service:
    """Three instances of revision 1, which were scaled to 0."""
    service = Service(Scaler(fewest=0, most=9), replicas="current")
    service.world.scaler["asked"] = 3
    service.play(revision="1")
    assert service.running == {"1": 3}
    service.world.scaler["asked"] = 0
    service.world.instances.clear()
    service.world.servers.clear()
    return service


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"strategy": "canary", "steps": [{"set_weight": 25}, {"pause": {}}]},
        {"strategy": "blue_green"},
    ],
)
def test_service_at_zero_gets_its_next_revision(shop: Service, given: dict[str, object]) -> None:
    result = shop.play(revision="2", **given)
    assert result["rollout"]["outcome"] == "promoted"
    stable = shop.journal.stable
    assert stable is not None and (stable.revision, stable.replicas) == ("2", 0)
    assert shop.running == {}
    assert not shop.play(revision="2", **given)["changed"]
    shop.world.scaler["asked"] = 3
    shop.play(revision="3")
    assert shop.running == {"3": 3}


@pytest.mark.parametrize("given", [{}, {"replicas": "current"}])
def test_deployment_at_zero_gets_its_next_image(given: dict[str, object]) -> None:
    server = api.Server()
    server.create(api.DEPLOYMENTS, api.deployment("1", 2))
    world, running = in_cluster(server, "deployment/shop")
    shop = Service(world, **given)
    shop.play(revision="7")
    assert running() == {"7": 2}

    def scale(number: int) -> None:
        server.objects[api.SHOP]["spec"]["replicas"] = number
        server.reconcile()

    scale(0)
    assert not running()
    assert shop.play(revision="8")["rollout"]["outcome"] == "promoted"
    deployment = server.objects[api.SHOP]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "local/shop:8" and deployment["spec"]["replicas"] == 0
    assert not running() and not shop.play(revision="8")["changed"]
    scale(2)
    assert running() == {"8": 2}
    shop.play(revision="8")  # puts them into rotation
    shop.step(rollback)
    assert running() == {"7": 2}
    shop.play(revision="9")
    assert running() == {"9": 2}


def test_first_deployment_at_zero_needs_a_number() -> None:
    server = api.Server()
    server.create(api.DEPLOYMENTS, api.deployment("1", 0))
    world, running = in_cluster(server, "deployment/shop")
    with pytest.raises(InputError, match="rollout_replicas: required"):
        Service(world).play(revision="2")
    assert not running()
