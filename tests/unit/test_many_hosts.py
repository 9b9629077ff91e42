# SPDX-License-Identifier: GPL-3.0-or-later
"""Ten times as many hosts cost ten times as much: calls and what is sent are counted, no time."""

from __future__ import annotations

import sys
import typing as t
from collections.abc import Callable, Collection, Mapping, Sequence

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import PlatformError
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import (
    DriverContext,
    Known,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import Labels
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms._placement import place
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms.process import (
    OPTIONS,
    Driver,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.agents import Answer

FEW, MANY = 30, 300
LINEAR = 1.3 * MANY / FEW  # with a third more, for sorting and for the first of each kind
PORTS = range(8100, 8110)
Request = Mapping[str, t.Any]


class Fleet:
    """The part of a transport that a driver uses, with so many hosts that do what they are told."""

    def __init__(self, count: int) -> None:
        self.names = [f"web{number}" for number in range(count)]
        self.addresses = {
            name: f"10.0.{number // 250}.{number % 250}" for number, name in enumerate(self.names)
        }
        self.address = self.addresses.__getitem__
        self.asked: dict[str, Request] = {}  # the last requests, by host
        self.slow: Collection[str] = ()  # hosts that have not finished
        self.silent: Collection[str] = ()
        self._instances: dict[str, dict[str, Request]] = {name: {} for name in self.names}

    def hosts(self, _pattern: str) -> list[str]:
        return self.names

    def is_here(self, _host: str) -> bool:
        return False

    def apart(self) -> Fleet:
        return self

    def ask(
        self, _agent: str, requests: Mapping[str, Request], _timeout: float, _patience: object
    ) -> dict[str, Answer]:
        self.asked = dict(requests)
        return {
            host: Answer(later=lambda: None) if host in self.slow else self._answer(host, request)
            for host, request in requests.items()
        }

    def _answer(self, host: str, request: Request) -> Answer:
        if host in self.silent:
            return Answer(error="no answer", unreachable=True)
        here = self._instances[host]
        here.update({order["id"]: order for order in request["start"]})
        for name in (*request["stop"], *request["forget"]):
            here.pop(name, None)
        state = {"process": "running", "age": 1.0, "detail": ""}
        return Answer({"instances": [{**order, **state} for order in here.values()]})


def driver(fleet: Fleet, excluded: Collection[str] = ()) -> Driver:
    given = {"hosts": "all", "command": ["shop"], "ports": "8100-8109"}
    context = DriverContext("shop", t.cast(t.Any, fleet), known=lambda: Known(excluded=excluded))
    return Driver(OPTIONS.parse(given, ""), context)


def labels(fleet: Fleet, generation: int = 1) -> list[Labels]:
    """Two instances a host."""
    places = place(fleet.names, fleet.addresses, PORTS, 2 * len(fleet.names), [], generation)
    return [
        Labels(f"shop-{number}", "shop", "1", generation, *where)
        for number, where in enumerate(places)
    ]


def calls(work: Callable[[], object]) -> int:
    """How many functions it calls, Python's own too."""
    count = 0

    def note(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def growth(of: Callable[[int], int]) -> float:
    return of(MANY) / of(FEW)


@pytest.mark.parametrize("zones", [1, 3])
def test_placing_instances(zones: int) -> None:
    def placed(count: int) -> int:
        fleet = Fleet(count)
        there = labels(fleet)
        zone = {name: f"zone{number % zones}" for number, name in enumerate(fleet.names)}
        return calls(
            lambda: place(fleet.names, fleet.addresses, PORTS, 2 * count, there, 2, zones=zone)
        )

    assert growth(placed) < LINEAR


@pytest.mark.parametrize("work", ["start", "stop", "forget"])
def test_what_hosts_are_told(work: str) -> None:
    """Each host is told of its own instances, however many others there are."""

    def told(count: int) -> int:
        fleet = Fleet(count)
        platform, there = driver(fleet), labels(fleet)
        platform.sync(start=there)
        if work != "start":
            platform.sync(**{work: [one.id for one in there]})
        return sum(len(request[work]) for request in fleet.asked.values())

    assert told(MANY) == 2 * MANY and growth(told) == MANY / FEW


def test_an_instance_that_was_seen_nowhere_is_every_hosts() -> None:
    fleet = Fleet(3)
    platform, there = driver(fleet), labels(fleet)
    platform.sync(start=there)
    platform.sync(stop=["shop-0", "shop-99"])
    told = [request["stop"] for request in fleet.asked.values()]
    assert told == [["shop-0", "shop-99"], ["shop-99"], ["shop-99"]]


def test_a_silent_host_is_unknown_unless_it_is_left_out() -> None:
    fleet = Fleet(2)
    fleet.silent = {"web1"}
    with pytest.raises(PlatformError, match="cannot know what runs on web1"):
        driver(fleet).sync()
    platform = driver(fleet, excluded=["web1"])
    assert not platform.sync() and list(platform.away) == ["web1"]


def test_an_instance_is_stopping_from_when_its_host_is_told_so() -> None:
    """A host that takes its time may stop it at any moment: it must not be taken for running."""
    fleet = Fleet(2)
    platform = driver(fleet)
    leaving, *others = labels(fleet)
    platform.sync(start=[leaving, *others])
    fleet.slow = {leaving.host}
    reports = platform.sync(stop=[leaving.id])
    assert {report.labels.id: report.process.value for report in reports} == {
        leaving.id: "stopping",
        **{labels.id: "running" for labels in others},
    }
    assert platform.at_work == {leaving.host}


@pytest.mark.parametrize("work", ["look", "start", "stop"])
def test_asking_all_hosts(work: str) -> None:
    def asked(count: int) -> int:
        fleet = Fleet(count)
        platform, there = driver(fleet), labels(fleet)
        if work == "start":
            return calls(lambda: platform.sync(start=there))
        platform.sync(start=there)
        stop: Sequence[str] = [one.id for one in there] if work == "stop" else ()
        return calls(lambda: platform.sync(stop=stop))

    assert growth(asked) < LINEAR
