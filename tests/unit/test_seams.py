# SPDX-License-Identifier: GPL-3.0-or-later
"""What one step or run knows reaches the next: requests counted, and since when instances are
ready.
"""

from __future__ import annotations

import re
import threading
import typing as t
from collections import Counter
from dataclasses import dataclass, field

import pytest
from ansible_collections.progressive.rollout.plugins.action import begin, rollback
from ansible_collections.progressive.rollout.plugins.action import replace as replaces
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    LeaseLost,
    RolloutFailed,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Rotation
from ansible_collections.progressive.rollout.plugins.plugin_utils.health.monitor import (
    HealthMonitor,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    Endpoint,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.traffic import (
    Server,
    TrafficDriver,
)
from ansible_collections.progressive.rollout.tests.support.memory import (
    MemoryRun,
    Service,
    Traffic,
    World,
)

pytestmark = pytest.mark.usefixtures("virtual_time")

OK = {
    "name": "ok",
    "driver": "command",
    "command": ["/bin/echo", "1"],
    "success_condition": "result == 1",
}
CANARY = {
    "revision": "2",
    "strategy": "canary",
    "steps": [{"set_weight": 20}, {"pause": {}}],
}


@dataclass
class Busy(World):
    """With clients: each look at the load balancer finds one more request to whatever serves."""

    sent: Counter[Endpoint] = field(default_factory=Counter)
    busy: bool = False

    def traffic(self) -> TrafficDriver:
        return BusyTraffic(self)

    broken: set[Endpoint] = field(default_factory=set)  # at which each request fails

    def come(self) -> None:
        """One request to each entry in rotation."""
        serving = [e for e, server in self.servers.items() if server.rotation is Rotation.IN]
        self.sent.update(serving if self.busy else [])


class Broken(set[Endpoint]):
    """All entries but these."""

    def __contains__(self, endpoint: object) -> bool:
        return not super().__contains__(endpoint)


class BusyTraffic(Traffic):
    world: Busy

    def observe(self) -> dict[str, dict[Endpoint, Server]]:
        self.world.come()
        return {
            "lb": {
                endpoint: server._replace(
                    requests=1000 + self.world.sent[endpoint],
                    errors=self.world.sent[endpoint] * (endpoint in self.world.broken),
                )
                for endpoint, server in super().observe()["lb"].items()
            }
        }


@pytest.fixture
def shop() -> Service:
    """Five instances of revision 1."""
    service = Service(Busy(most=6, fewest=0), replicas=5, wait=0)
    service.play(revision="1")
    return service


def counted(shop: Service) -> int:
    """The requests in the events of the last rollout."""
    rollout = shop.journal.rollout
    assert rollout
    found = [e for e in shop.timeline(rollout.id) if e["kind"] == "requests"]
    assert not any(event.get("gap") for event in found)
    return sum(event[side]["requests"] for event in found for side in ("new", "old"))


@pytest.mark.parametrize("killed", [False, True])
def test_a_report_counts_what_came_between_steps_and_after_the_verdict(
    shop: Service, killed: bool
) -> None:
    world = t.cast(Busy, shop.world)
    shop.step(begin, **CANARY)
    world.busy = True
    shop.step(replaces, **CANARY)  # it parks
    for _client in range(50):
        world.come()  # nobody looks
    shop.say("abort")
    died: list[str] = []

    def die(call: str) -> Exception | None:
        back = shop.journal.open is None or shop.journal.open.phase == "rolling_back"
        if killed and call == "apply after" and back and not died:
            died.append(call)
            return LeaseLost("killed")
        return None

    world.fails = die
    with pytest.raises(LeaseLost if killed else RolloutFailed):
        shop.step(replaces, **CANARY)
    if killed:
        world.come()
        shop.step(rollback, **CANARY)
    assert shop.running == {"1": 5} and counted(shop) == world.sent.total()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, True),
        ({"analysis": {"dry_run": True, "metrics": [OK]}}, True),
        ({"analysis": {}}, False),
        ({"broken": False}, False),
    ],
)
def test_a_switch_that_nothing_compared_says_which_requests_failed(
    shop: Service, given: dict[str, t.Any], says: bool
) -> None:
    """The operator reads it where the rollout says that it was promoted."""
    world = t.cast(Busy, shop.world)
    world.busy, world.most, old = True, 10, set(world.servers)
    given = dict(given)
    if given.pop("broken", True):
        world.broken = Broken(old)
    shop.play(revision="2", strategy="blue_green", hold="300ms", **given)
    rollout = shop.journal.rollout
    assert rollout and rollout.outcome == "promoted"
    text = r"without a verdict: errors \d+ of \d+ \(100 %\) against 0 of \d+"
    assert bool(re.fullmatch(text, rollout.reason)) == says, rollout.reason
    assert says or not rollout.reason


@pytest.mark.parametrize("dry", [False, True])
def test_an_analysis_that_never_measured_is_named_at_the_end(shop: Service, dry: bool) -> None:
    """It was asked for, and the rollout was over before its first measurement."""
    asked = {"dry_run": dry, "metrics": [{**OK, "initial_delay": "1h"}]}
    shop.play(revision="2", analysis=asked)
    rollout = shop.journal.rollout
    assert rollout and rollout.outcome == "promoted"
    named = "without a verdict: no measurement of " + OK["name"]
    assert rollout.reason == ("" if dry else named)


def test_instances_are_ready_since_what_the_step_before_saw(shop: Service) -> None:
    shop.step(begin, **CANARY)
    shop.step(replaces, **CANARY)
    rollout = shop.journal.open
    assert rollout and len(rollout.ready) == 6
    with MemoryRun(shop, CANARY, {}, False) as run:
        run.begin()
        known = run.record.open
        assert known
        known.ready = {name: since + 5 for name, since in known.ready.items()}
        expected = dict(known.ready)
        run.loop.observe_fleet()
        assert {one.id: one.ready_since for one in run.loop.fleet} == expected


def test_new_instances_are_as_old_as_their_first_request_in_any_step(shop: Service) -> None:
    """An analysis of a rollout that was resumed need not wait for them to warm up."""
    t.cast(Busy, shop.world).busy = True
    shop.step(begin, **CANARY)
    shop.step(replaces, **CANARY)
    rollout = shop.journal.open
    assert rollout and len(rollout.served) == 1
    ((name, since),) = rollout.served.items()
    with MemoryRun(shop, CANARY, {}, False) as run:
        run.begin()
        known = run.record.open
        assert known
        known.served = {name: since - 3600}
        for _observation in range(3):
            run.loop.observe_fleet()
            run.loop.observer.count()
        assert run.loop.observer.counters.served[name].first == since - 3600
        assert known.served == {name: since - 3600}


def test_the_first_look_waits_for_the_checks_whatever_else_is_answered(
    shop: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a gate's answer, which wakes the loop."""
    answers = iter([False, False, True])
    monkeypatch.setattr(HealthMonitor, "settle", lambda _self, _timeout: next(answers))
    with MemoryRun(shop, {}, {}, False) as run:
        run.loop.observe_fleet()
    assert list(answers) == []


def test_a_run_that_is_told_to_stop_does_not_wait_for_the_checks(
    shop: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = threading.Event()

    def settle(_self: HealthMonitor, _timeout: float) -> bool:
        assert not asked.is_set(), "it goes on waiting"
        asked.set()
        return False

    monkeypatch.setattr(HealthMonitor, "settle", settle)
    with MemoryRun(shop, {}, {}, False) as run:
        run.loop.observer._stopped = lambda: True
        run.loop.observe_fleet()
    assert asked.is_set()
