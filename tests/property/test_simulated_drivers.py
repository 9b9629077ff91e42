# SPDX-License-Identifier: GPL-3.0-or-later
"""The drivers of the simulated world keep the contracts of the real ones, so that a simulation
promises nothing that the real things do not do. Time is the world's.

Left out is what needs processes: a kill in the middle of a write, threads of clients, agents on
hosts.
"""

from __future__ import annotations

import math
import typing as t
from collections.abc import Callable, Iterator
from random import Random
from types import SimpleNamespace

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base import clock
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import (
    Process,
    Rotation,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import (
    DriverContext,
    Known,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    Endpoint,
    Labels,
    Report,
)
from ansible_collections.progressive.rollout.tests.drivers import (
    platform_contract,
    store_contract,
    traffic_contract,
)
from ansible_collections.progressive.rollout.tests.simulations.world import drivers
from ansible_collections.progressive.rollout.tests.simulations.world.machine import Machine
from ansible_collections.progressive.rollout.tests.simulations.world.runs import inside
from ansible_collections.progressive.rollout.tests.simulations.world.world import (
    BALANCERS,
    Entry,
    Life,
    World,
)

TIME = SimpleNamespace(time=clock.wall, monotonic=clock.monotonic, sleep=clock.sleep)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A world with nothing in it, whose time is that of the contracts."""
    world = World(Machine(Random(0)), [], lambda _revision, _number: Life(), 0, 99, Random(0))
    for contract in (platform_contract, store_contract):
        monkeypatch.setattr(contract, "time", TIME)
    with inside(world, 0):
        yield world


def context(epoch: int, service: str = "shop") -> DriverContext:
    known = Known(epoch=epoch)
    return DriverContext(service, t.cast(t.Any, None), known=lambda: known)


class Hosts:
    """The simulated hosts, as the contract wants them."""

    told = "exit code 1"

    def __init__(self, world: World) -> None:
        self.world = world

    def driver(self, epoch: int = 1) -> drivers.Platform:
        return drivers.Platform({}, context(epoch))

    def neighbour(self) -> drivers.Platform:
        return drivers.Platform({}, context(1, "cart"))

    def ending(self) -> drivers.Platform:
        self.world.lives = lambda _revision, _number: Life(crash=0.1)
        return self.driver()

    def stubborn(self, stop_timeout: str) -> drivers.Platform:
        self.world.lives = lambda _revision, _number: Life(stop=math.inf)
        driver = self.driver()
        driver.stop_timeout = {"5s": 5.0, "1ms": 0.001}[stop_timeout]
        return driver

    def up(self, report: Report) -> bool:
        return self.world.answers(report.labels.endpoint)

    def left(self) -> list[str]:
        return [one.labels.id for one in self.world.instances()]


class TestPlatform(platform_contract.HostsContract):
    test_each_error_in_the_log_of_an_instance_is_found_once = None  # type: ignore[assignment]
    test_secret_settings_are_kept_on_the_hosts = None  # type: ignore[assignment]

    @pytest.fixture
    def site(self, world: World) -> Hosts:
        return Hosts(world)


def test_an_instance_that_its_platform_starts_again_is_reported_as_restarted(world: World) -> None:
    world.again = 2.0
    TestPlatform().test_one_that_ends_is_told_until_it_is_forgotten(Hosts(world))
    assert all(instance.restarts for instance in world.born.values())


class TestStore(store_contract.StoreContract):
    test_of_two_that_come_at_once_exactly_one_gets_it = None  # type: ignore[assignment]
    test_killed_at_any_moment_the_journal_is_whole = None  # type: ignore[assignment]
    test_of_many_that_speak_at_once_each_is_heard = None  # type: ignore[assignment]

    @pytest.fixture
    def make(self, world: World) -> Callable[..., drivers.Store]:
        return lambda service="shop": drivers.Store({}, context(0, service))


class Balancers:
    """The simulated balancers, as the contract wants them. Clients come one after the other."""

    names = BALANCERS
    fronts = tuple((name, 80) for name in BALANCERS)

    def __init__(self, world: World) -> None:
        self.world, self.asked = world, 0

    def driver(self, epoch: int = 1, **_options: t.Any) -> drivers.Traffic:
        return drivers.Traffic({}, context(epoch))

    def changes(self) -> object:
        return [
            (at, entry.name, entry.rotation, entry.weight)
            for balancer in self.world.balancers.values()
            for at, entry in balancer.entries.items()
        ]

    def by_hand(self, endpoint: Endpoint) -> str | None:
        for balancer in self.world.balancers.values():
            balancer.entries[endpoint] = Entry("app1", Rotation.IN, 10, ours=False)
        return "app1"

    def stop(self, index: int) -> None:
        self.world.balancers[BALANCERS[index]].away = math.inf

    def start(self, index: int) -> None:
        balancer = self.world.balancers[BALANCERS[index]]
        balancer.away, balancer.entries = 0.0, {}

    def get(self, address: tuple[str, int], _path: str = "/") -> tuple[int, str]:
        """Return what a client gets: the answer of one of those in rotation."""
        entries = self.world.balancers[address[0]].entries
        serving = [
            instance.labels.revision
            for at, entry in entries.items()
            if entry.rotation is Rotation.IN and (instance := self.world.at(at))
        ]
        self.asked += 1
        return 200, serving[self.asked // len(BALANCERS) % len(serving)]


class Backends:
    """Simulated instances behind the balancers."""

    processes: t.ClassVar[dict[Endpoint, t.Any]] = {}

    def __init__(self, world: World) -> None:
        self.world, self.ports = world, iter(range(9000, 9100))

    def start(self, name: str) -> Endpoint:
        endpoint = Endpoint("10.0.0.1", next(self.ports))
        self.start_at(endpoint, name)
        return endpoint

    def start_at(self, endpoint: Endpoint, name: str) -> None:
        self.world.begin(Labels(f"shop-{name}", "shop", name, 1, "web1", endpoint, 0))
        self.world.machine.sleep(1.0)

    def kill(self, endpoint: Endpoint) -> None:
        instance = self.world.at(endpoint)
        assert instance
        instance.gone = Process.FAILED

    def ask(self, endpoint: Endpoint, path: str) -> str:
        (entry, *_others) = (
            balancer.entries[endpoint] for balancer in self.world.balancers.values()
        )
        return str(int(entry.requests))


class TestTraffic(traffic_contract.TrafficContract):
    @pytest.fixture
    def plane(  # type: ignore[override]
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> Balancers:
        balancers = Balancers(world)
        monkeypatch.setattr(traffic_contract, "get", balancers.get)
        return balancers

    @pytest.fixture
    def backends(self, world: World) -> Backends:  # type: ignore[override]
        return Backends(world)


LEFT_OUT = (
    "a_drained_entry_finishes_its_request_and_gets_no_other",
    "replacing_three_instances_under_load_fails_no_request",
    "requests_go_by_weight_and_are_counted",
    "the_weight_of_an_entry_that_is_out_is_kept",
    "a_dark_set_gets_no_request_and_one_apply_switches_there_and_back",
    "two_services_at_one_balancer",
    "an_entry_of_another_service_in_the_pool_is_told_apart",
    "whose_entries_are_is_known_without_their_names",
    "options_change_between_two_rollouts",
    "what_an_older_version_left_is_continued",
    "a_late_command_of_an_older_lease_changes_nothing",
    "an_older_lease_is_refused_at_the_preview_as_well",
    "what_one_balancer_did_before_another_refused_is_put_back_there_alone",
    "a_dark_set_can_be_looked_at",
    "a_rejected_update_is_noticed",
    "check_refuses_a_wrong_configuration",
    "a_run_with_another_journal_is_refused_and_leaves_no_trace",
    "what_rollouts_left_is_removed_and_requests_go_on",
)
for name in LEFT_OUT:
    setattr(TestTraffic, f"test_{name}", None)
