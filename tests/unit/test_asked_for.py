# SPDX-License-Identifier: GPL-3.0-or-later
"""What is promoted is what was asked for, whatever ran before, and whoever has changed it since."""

from __future__ import annotations

import typing as t
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import pytest
from ansible_collections.progressive.rollout.plugins.action import rollback
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import RolloutFailed
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import (
    Composition,
    Phase,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import (
    DriverContext,
    Known,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    InstanceSettings,
    PlatformDriver,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms import (
    kubernetes,
    swarm,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.record import Record
from ansible_collections.progressive.rollout.tests.simulations.world.store import Journal
from ansible_collections.progressive.rollout.tests.support import kubernetes as api
from ansible_collections.progressive.rollout.tests.support import statefulsets
from ansible_collections.progressive.rollout.tests.support import swarm as swarms
from ansible_collections.progressive.rollout.tests.support.memory import Service, World

pytestmark = pytest.mark.usefixtures("virtual_time")

IMAGE = "local/shop:{revision}"
Running = Callable[[], Mapping[str, int]]  # how many instances run, by the revision of their image


@dataclass
class On(World):
    """A service whose instances are on an engine."""

    driver: Callable[[DriverContext], PlatformDriver] = lambda context: t.cast(t.Any, None)
    images: bool = False  # whether the journal has the image of each rollout's generation
    said: list[str] = field(default_factory=list)
    swarm: swarms.Server | None = None
    fewest: int = 0
    most: int = 99

    def platform(self) -> t.Any:
        assert self.context
        transport = t.cast(t.Any, SimpleNamespace(print_line=self.said.append))
        return self.driver(replace(self.context, transport=transport, known=self.known))

    def known(self) -> Known:
        """With the settings of rollouts: those of a world in memory have no options."""
        known, settings = super().known(), InstanceSettings("kubernetes", {"image": IMAGE}, {})
        numbers = range(2, 9) if self.images else ()
        return replace(known, settings={**dict.fromkeys(numbers, settings), **known.settings})


def in_cluster(server: api.Server, workload: str) -> tuple[World, Running]:
    given = {"workload": workload, "image": IMAGE}
    options = kubernetes.OPTIONS.parse(given, "rollout_platform.")

    def driver(context: DriverContext) -> PlatformDriver:
        made = kubernetes.Driver.variant(options)(options, context)
        made.__dict__["_cluster"] = server
        return made

    return On(driver=driver, images=True), server.counts


def of_deployment(count: int, monkeypatch: pytest.MonkeyPatch) -> tuple[World, Running]:
    server = api.Server()
    server.create(api.DEPLOYMENTS, api.deployment("1", count))
    return in_cluster(server, "deployment/shop")


def of_statefulset(count: int, monkeypatch: pytest.MonkeyPatch) -> tuple[World, Running]:
    return in_cluster(statefulsets.Server(count), "statefulset/db")


def of_swarm(count: int, monkeypatch: pytest.MonkeyPatch) -> tuple[World, Running]:
    server = swarms.Server()
    managers = swarms.Managers(server, monkeypatch)
    given = {"hosts": "managers", "image": IMAGE, "port": 8080}
    options = swarm.OPTIONS.parse(given, "rollout_platform.")

    def driver(context: DriverContext) -> PlatformDriver:
        return swarm.Driver(options, replace(context, transport=t.cast(t.Any, managers)))

    def running() -> Mapping[str, int]:
        found: dict[str, int] = defaultdict(int)
        for service in server.objects["services"].values():
            image = service["Spec"]["TaskTemplate"]["ContainerSpec"]["Image"]
            number = service["Spec"]["Mode"]["Replicated"]["Replicas"]
            found[image.rpartition(":")[2]] += number
        return {revision: number for revision, number in found.items() if number}

    return On(driver=driver, swarm=server), running


def of_hosts(count: int, monkeypatch: pytest.MonkeyPatch) -> tuple[World, Running]:
    world = World(fewest=0, most=99)
    return world, lambda: Service(world).running


ENGINES = [of_deployment, of_statefulset, of_swarm, of_hosts]
# of a StatefulSet, only what runs can be replaced
CASES = [(e, n) for e in ENGINES for n in (0, 1, 3) if n or e is not of_statefulset]


@pytest.mark.parametrize("before", ["as found", "rolled out", "with a lost journal"])
@pytest.mark.parametrize(("engine", "count"), CASES)
def test_what_is_promoted_runs(
    engine: t.Any, count: int, before: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, running = engine(count, monkeypatch)
    in_place = engine is of_statefulset
    number = count if in_place else max(count, 2)
    given = {} if in_place else {"replicas": number}
    budget = {"max_surge": 0, "max_unavailable": 1} if in_place else {"max_surge": 1}
    shop = Service(world, budget=budget, headroom=0, **given)
    if before != "as found":
        shop.play(revision="7")
        assert running() == {"7": number}
    if before == "with a lost journal":
        world.journals["shop"] = Journal()
    assert shop.play(revision="2")["rollout"]["outcome"] == "promoted"
    assert running() == {"2": number}
    assert not shop.play(revision="2")["changed"]
    assert shop.play(revision="3")["rollout"]["outcome"] == "promoted"
    assert running() == {"3": number}


def test_a_generation_of_a_lost_journal_is_another() -> None:
    """Its ReplicaSet, which has no pods, is in the history of the Deployment."""
    server = api.Server()
    server.create(api.DEPLOYMENTS, api.deployment("1", 2))
    world, running = in_cluster(server, "deployment/shop")
    shop = Service(world, replicas=2)
    shop.play(revision="7")
    server.objects[api.SHOP]["spec"]["replicas"] = 0
    server.reconcile()
    world.journals["shop"] = Journal()
    shop.play(revision="2")
    assert running() == {"2": 2}


def of_an_earlier_version(shop: Service, stable: Composition, known: bool) -> None:
    """Give a service the journal of a version that adopted pods as its first generation.

    `known`: a rollout of that version has begun the generation.
    """
    settings = {1: InstanceSettings("kubernetes", {"image": IMAGE}, {})} if known else {}
    record = Record("shop", stable, generation=stable.generation, settings=settings, journal="j")
    shop.store.acquire("a", "ann", 60, {})
    shop.store.commit("a", 60, record.dump())
    shop.store.release("a")


def test_a_revision_promoted_but_never_run_earlier_runs() -> None:
    """With replicas 0, its first rollout scaled the template that was there."""
    server = api.Server()
    server.create(api.DEPLOYMENTS, api.deployment("1", 2))
    world, running = in_cluster(server, "deployment/shop")
    shop = Service(world, replicas=2)
    of_an_earlier_version(shop, Composition("2", 1, 2), known=True)
    shop.play(revision="2")
    assert running() == {"2": 2}
    assert not shop.play(revision="2")["changed"]


def test_pods_that_an_earlier_version_adopted_are_stable_still() -> None:
    server = api.Server()
    server.create(api.DEPLOYMENTS, api.deployment("1", 2))
    pods = {pod["metadata"]["name"] for pod in server.living()}
    world, running = in_cluster(server, "deployment/shop")
    shop = Service(world, replicas=2)
    of_an_earlier_version(shop, Composition("1", 1, 2), known=False)
    shop.play(revision="1")  # puts them into rotation
    assert {pod["metadata"]["name"] for pod in server.living()} == pods
    shop.play(revision="2")
    shop.step(rollback)
    assert running() == {"1": 2}


@pytest.mark.parametrize(
    "plan",
    [
        {"strategy": "rolling"},
        {"strategy": "canary", "steps": [{"set_weight": 30}]},
        {"strategy": "blue_green"},
    ],
)
def test_a_revision_that_became_another_is_not_promoted(plan: dict[str, t.Any]) -> None:
    world = World(fewest=0, most=99)
    shop = Service(world, replicas=3, **plan)
    shop.play(revision="1")

    def change(call: str) -> None:
        for name, report in world.instances.items():
            if call == "sync after" and report.labels.revision == "2":
                world.instances[name] = replace(report, labels=replace(report.labels, revision="9"))

    world.fails = change
    with pytest.raises(RolloutFailed, match=r"run another revision: shop-\d+ \(9\)") as failed:
        shop.play(revision="2")
    assert failed.value.id == "PR-256"
    assert shop.journal.open and shop.journal.open.phase == Phase.HELD
    assert shop.journal.stable and shop.journal.stable.revision == "1"
    shop.step(rollback)
    assert shop.running == {"1": 3}


def test_an_image_that_was_changed_meanwhile_is_not_promoted() -> None:
    server = api.Server()
    server.create(api.DEPLOYMENTS, api.deployment("1", 2))
    world, running = in_cluster(server, "deployment/shop")
    shop = Service(world, replicas=2)
    started = server.starts

    def change(pod: t.Any) -> bool:
        container = pod["spec"]["containers"][0]
        if container["image"].endswith(":2"):
            container["image"] = "local/shop:9"
        return started(pod)

    server.starts = change
    with pytest.raises(RolloutFailed) as failed:
        shop.play(revision="2")
    assert failed.value.id == "PR-256"
    assert shop.journal.stable and shop.journal.stable.revision == "1"
    shop.step(rollback)
    assert running() == {"1": 2}


@pytest.mark.parametrize("image", ["local/shop:2@sha256:77", "mirror.example/shop:2"])
def test_an_image_that_a_webhook_writes_otherwise_is_the_same(image: str) -> None:
    server = api.Server()
    server.create(api.DEPLOYMENTS, api.deployment("1", 2))
    world, _running = in_cluster(server, "deployment/shop")

    def change(pod: t.Any) -> bool:
        container = pod["spec"]["containers"][0]
        if container["image"].endswith(":2"):
            container["image"] = image
        return True

    server.starts = change
    shop = Service(world, replicas=2)
    assert shop.play(revision="2")["rollout"]["outcome"] == "promoted"


def test_a_swarm_service_that_a_stranger_has_is_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, running = of_swarm(0, monkeypatch)
    server = t.cast(t.Any, world).swarm
    theirs = {
        "Name": "shop-1",
        "Labels": {},
        "Mode": {"Replicated": {"Replicas": 1}},
        "TaskTemplate": {"ContainerSpec": {"Image": "theirs:9"}},
    }
    server._object("POST", server.objects["services"], ["create"], theirs, {})
    shop = Service(world, replicas=2, failure_limit=1)
    result = shop.play(revision="2")
    assert result["rollout"]["outcome"] == "promoted"
    assert running() == {"9": 1, "2": 2}
