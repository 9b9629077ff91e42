# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts are looked at for a reason: each look over SSH is a command."""

from __future__ import annotations

import typing as t
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from types import SimpleNamespace

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.analysis.counters import Counters
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.loop.observer import (
    Observer,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.loop.stops import Stops
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.loop.timing import (
    LATE,
    RECENT,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.looks import (
    REPEATED,
    SLOW,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import (
    Health,
    Process,
    Rotation,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.health.monitor import HealthStatus
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.check import (
    HealthCheck,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    Capabilities,
    Endpoint,
    Labels,
    PlatformDriver,
    Report,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.traffic import Server
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.record import Record

HOSTS = ["web1", "web2", "web3"]


@dataclass
class Fleet:
    """An instance on each host, all checks of which pass, and what is asked of the hosts."""

    now: float = 1000.0
    asked: list[str] = field(default_factory=list)
    process: dict[str, Process] = field(default_factory=lambda: dict.fromkeys(HOSTS, RUNNING))
    health: dict[str, HealthStatus] = field(
        default_factory=lambda: {host: HealthStatus(Health.PASSING, 0.0) for host in HOSTS}
    )
    away: dict[str, list[dict[str, t.Any]]] = field(default_factory=dict)
    takes: float = 0.0  # seconds that a look takes
    renewed: list[float] = field(default_factory=list)  # when all checks began anew
    capabilities: t.ClassVar = Capabilities()

    # -- the platform

    def hosts(self) -> Sequence[str]:
        return HOSTS

    def changed(self) -> bool:
        return False

    def look(self, hosts: Collection[str]) -> list[Report]:
        self.asked += sorted(hosts)
        self.now += self.takes
        return self._reports()

    def sync(
        self, start: Sequence[Labels] = (), stop: Sequence[str] = (), forget: Sequence[str] = ()
    ) -> list[Report]:
        for name in stop:
            self.process[name] = Process.STOPPING
        self.asked += sorted({*stop, *forget}) or HOSTS
        return self._reports()

    def _reports(self) -> list[Report]:
        return [
            Report(
                Labels(host, "shop", "1", 1, host, Endpoint("10.0.0.1", port), port),
                self.process[host],
            )
            for port, host in enumerate(HOSTS, 8000)
            if host in self.process
        ]

    # -- a test's view

    def pass_time(self, observer: Observer, seconds: float) -> list[str]:
        """Observe four times a second; return what was asked meanwhile."""
        self.asked.clear()
        for _quarter in range(int(4 * seconds)):
            self.now += 0.25
            observer.observe()
        return self.asked


RUNNING = Process.RUNNING


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


@pytest.fixture
def observer(fleet: Fleet) -> Iterator[Observer]:
    made = observer_of(fleet)
    made.observe()
    assert fleet.asked == HOSTS, "every host is looked at first"
    yield made


def observer_of(fleet: Fleet, traffic: t.Any = None) -> Observer:
    record = Record("shop")
    record.away = fleet.away
    checker = SimpleNamespace(
        health=lambda name: fleet.health[name],
        watch=lambda _targets, _checks: None,
        settle=lambda _seconds: True,
        renew=lambda: fleet.renewed.append(fleet.now),
    )
    return Observer(
        t.cast(PlatformDriver, fleet),
        traffic,
        (),
        session=t.cast(t.Any, SimpleNamespace(record=record, epoch=1)),
        counters=Counters(),
        checker=t.cast(t.Any, checker),
        watch_new=120.0,
        check_of=lambda _generation: HealthCheck(),
        print_line=lambda _line: None,
        now=lambda: fleet.now,
    )


@pytest.mark.parametrize(("seconds", "times"), [(0.0, 1), (9.0, 1), (10.0, 2), (60.0, 2)])
def test_load_balancers_that_answer_late_are_looked_at_once_more(
    fleet: Fleet, seconds: float, times: int
) -> None:
    """Meanwhile they may have sent requests elsewhere. The second look counts, however late."""
    late = SlowBalancers(fleet, seconds)
    late_observer = observer_of(fleet, late)
    late_observer.observe()
    assert late.looks == times
    assert late_observer.snapshot.table == {"lb1": late.shown[-1]}


def test_after_a_while_without_a_look_all_checks_begin_anew(
    fleet: Fleet, observer: Observer
) -> None:
    """The process was frozen, or waited: what was ready then may be dead now."""
    for seconds in (LATE, LATE + 1, 1.0):
        fleet.now += seconds
        observer.observe()
    assert fleet.renewed == [fleet.now - 1.0]


@dataclass
class SlowBalancers:
    """A load balancer that answers late, and sends requests to another instance each time."""

    pool_name = ""
    fixed = binds = False

    fleet: Fleet
    takes: float
    shown: list[dict[Endpoint, Server]] = field(default_factory=list)

    @property
    def looks(self) -> int:
        return len(self.shown)

    def observe(self) -> dict[str, dict[Endpoint, Server]]:
        self.fleet.now += self.takes
        at = Endpoint("10.0.0.1", 8000 + self.looks)
        self.shown.append({at: Server(Rotation.IN, True, 0)})
        return {"lb1": self.shown[-1]}


@pytest.mark.parametrize(
    ("known", "answered", "unready"),
    [(True, True, True), (True, False, False), (False, True, False)],
)
def test_of_a_silent_host_it_is_known_what_was_not_ready_while_it_answered(
    fleet: Fleet, observer: Observer, known: bool, answered: bool, unready: bool
) -> None:
    """A check that fails afterwards says nothing: it fails since the host is silent."""
    if known:
        fleet.health["web2"] = HealthStatus(Health.FAILING, fleet.now)
    if answered:
        fleet.pass_time(observer, 2)
    fleet.process["web2"] = Process.UNREACHABLE
    fleet.away["web2"] = []
    observer.refresh()
    silent = next(i for i in observer.observe().fleet if i.host == "web2")
    assert silent.was_unready is unready


@pytest.mark.parametrize("started", [True, False])
def test_what_its_host_was_silent_about_was_never_ready_where_this_step_started_it(
    fleet: Fleet, started: bool
) -> None:
    """What was there before may serve, also the stable instances that a rollback moves to."""
    silent = observer_of(fleet)
    silent.generation = 1
    if started:
        del fleet.process["web2"]
        silent.observe()
    fleet.process["web2"] = Process.UNREACHABLE
    fleet.health["web2"] = HealthStatus(Health.PENDING, 0.0)
    silent.refresh()
    silent.observe()
    assert silent.never_ready() == ({"web2"} if started else set())


def test_what_drains_has_its_time_from_the_last_change_of_load_balancers_that_came_late(
    fleet: Fleet,
) -> None:
    """Between the look that it follows and the change, one may have had an older state again."""
    balancers = SlowBalancers(fleet, 0.0)
    late = observer_of(fleet, balancers)
    late.observe()
    late._session.record.draining["web1"] = fleet.now
    began = fleet.now
    late.observe()
    for seconds in (RECENT, RECENT + 0.1):
        fleet.now += seconds
        late.note_balanced()
        drains = next(i for i in late.observe().fleet if i.id == "web1")
        assert drains.draining_since == (began if seconds == RECENT else fleet.now)


def test_where_nothing_is_expected_hosts_are_looked_at_slowly_and_not_together(
    fleet: Fleet, observer: Observer
) -> None:
    assert fleet.pass_time(observer, SLOW[0] - 0.5) == []
    asked = fleet.pass_time(observer, 60)
    counts = {host: asked.count(host) for host in HOSTS}
    assert all(60 / (SLOW[1] + 1.5) - 1 <= count <= 60 / SLOW[0] + 1 for count in counts.values())
    assert len(set(counts.values())) > 1, counts


@pytest.mark.parametrize(
    "changes",
    [
        {"health": HealthStatus(Health.PENDING, 0.0)},
        {"health": HealthStatus(Health.NONE, 0.0)},
        {"process": Process.STARTING},
        {"process": Process.UNKNOWN},
    ],
)
def test_a_host_is_looked_at_often_where_an_instance_may_change_unnoticed(
    fleet: Fleet, observer: Observer, changes: Mapping[str, t.Any]
) -> None:
    for name, value in changes.items():
        getattr(fleet, name)["web2"] = value
    observer.refresh()
    observer.observe()
    assert fleet.pass_time(observer, SLOW[0] - 0.5).count("web2") >= 3
    assert {*fleet.asked} == {"web2"}


def test_a_host_is_looked_at_at_once_and_once_when_a_check_begins_to_fail(
    fleet: Fleet, observer: Observer
) -> None:
    fleet.now += 0.1
    fleet.health["web3"] = HealthStatus(Health.FAILING, fleet.now)
    fleet.asked.clear()
    fleet.now += 0.01
    observer.observe()
    observer.observe()
    assert fleet.asked == ["web3"]


def test_a_host_that_does_not_answer_is_asked_at_each_occasion(
    fleet: Fleet, observer: Observer
) -> None:
    fleet.away["web1"] = []
    assert fleet.pass_time(observer, 4).count("web1") >= 3
    assert {*fleet.asked} == {"web1"}


def test_hosts_that_answer_slowly_are_looked_at_more_rarely_whatever_is_due(
    fleet: Fleet, observer: Observer
) -> None:
    fleet.health["web2"] = HealthStatus(Health.PENDING, 0.0)
    fleet.takes = 0.5
    observer.refresh()
    observer.observe()  # the next occasion is ten seconds later, and web2 alone is due then
    fleet.takes = 0.0
    assert fleet.pass_time(observer, 9) == []
    observer.next_platform = fleet.now
    fleet.process["web2"] = Process.STOPPED
    observer._reports = fleet._reports()
    observer.looked = dict.fromkeys(HOSTS, fleet.now)
    assert fleet.pass_time(observer, 1) == [], "nothing is due"
    assert observer.next_platform > fleet.now + 8


def test_before_a_stage_ends_hosts_are_looked_at_that_were_not_lately(
    fleet: Fleet, observer: Observer
) -> None:
    fleet.pass_time(observer, 3)
    observer.sync(forget=["web2"])
    fleet.asked.clear()
    assert observer.catch_up(), "hosts were not looked at lately"
    observer.observe()
    assert fleet.asked == ["web1", "web3"]
    assert not observer.catch_up(), "they were now"


def test_after_an_error_every_host_is_looked_at(fleet: Fleet, observer: Observer) -> None:
    fleet.asked.clear()
    observer.refresh()
    observer.observe()
    assert fleet.asked == HOSTS


def test_an_instance_is_told_to_stop_once_and_looked_at_when_it_may_have_ended(
    fleet: Fleet, observer: Observer
) -> None:
    stops, began, asked = Stops(observer, lambda: fleet.now), fleet.now, []
    while fleet.now < began + 20:
        if due := stops.due(["web2"]):
            asked.append(fleet.now - began)
            observer.sync(stop=due)
            stops.note_orders(due, fleet.now)
        assert stops.next_look > fleet.now
        assert stops.next_look - fleet.now <= 2.0
        fleet.now += 0.01
    assert asked[0] == 0.0
    assert 8 <= len(asked) <= 28
    fleet.process["web2"] = Process.STOPPED
    observer.sync()
    assert stops.due([]) == []
    assert stops.next_look == float("inf")


def test_an_instance_is_told_again_however_often_its_host_is_looked_at(
    fleet: Fleet, observer: Observer
) -> None:
    """Only one that is told again after its time is killed: looks are no reason to wait longer."""
    stops, began, told = Stops(observer, lambda: fleet.now), fleet.now, []
    fleet.process["web2"] = Process.STOPPING
    while fleet.now < began + 60:
        observer.sync()
        if due := stops.due(["web2"]):
            told.append(fleet.now - began)
            stops.note_orders(due, fleet.now)
        fleet.now += 0.5
    assert max(after - before for before, after in pairwise(told)) <= REPEATED + 0.5


def test_how_long_instances_take_to_stop_is_learned(fleet: Fleet, observer: Observer) -> None:
    stops, looks = Stops(observer, lambda: fleet.now), 0
    for _instance in range(50):
        began, looks = fleet.now, 0
        fleet.process["web2"] = RUNNING
        observer.sync()
        while fleet.process["web2"] is not Process.STOPPED:
            if due := stops.due(["web2"]):
                looks += 1
                observer.sync(stop=due)
                if fleet.now - began >= 0.3:
                    fleet.process["web2"] = Process.STOPPED
                    observer.sync()
                stops.note_orders(due, fleet.now)
            fleet.now += 0.01
    assert looks <= 3, "told, looked at, and perhaps once more"


def test_an_instance_that_another_run_told_to_stop_is_told_at_once(
    fleet: Fleet, observer: Observer
) -> None:
    fleet.process["web2"] = Process.STOPPING
    observer.sync()
    assert Stops(observer, lambda: fleet.now).due(["web2"]) == ["web2"]
