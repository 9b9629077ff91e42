# SPDX-License-Identifier: GPL-3.0-or-later
"""Rolling, canary and blue-green under load, one path of each kind: not one failed request. What
operators send to them, and where they fail, in a simulated world:
tests/property/test_simulated_strategies.py.

All tests share one service at each load balancer. Each finds it settled at some revision, and
leaves it so.
"""

from __future__ import annotations

import time
import typing as t
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from ansible_collections.progressive.rollout.tests.support.playbook import Outcome, Run
from ansible_collections.progressive.rollout.tests.support.shop import (
    FRONTS,
    Front,
    Load,
    Shop,
    Watch,
    failures,
)
from ansible_collections.progressive.rollout.tests.support.waiting import until

REPLICAS, SURGE = 4, 2
RATE = 150  # requests a second, of each kind of client
KINDS = (("GET", True), ("POST", False))
SAID = ("abort", "pause", "promote", "resume")  # words that have a playbook of their own
PLAYBOOKS = "progressive.rollout."
PERSON: dict[str, t.Any] = {"pause": {}}


@pytest.fixture(scope="module")
def shops() -> Iterator[dict[str, Shop]]:
    made: dict[str, Shop] = {}
    yield made
    for shop in made.values():
        close(shop)


@pytest.fixture(params=["haproxy"])
def shop(request: pytest.FixtureRequest, shops: dict[str, Shop]) -> Iterator[Shop]:
    name = request.param
    if name not in shops:
        shops[name] = opened(FRONTS[name]())
    yield shops[name]
    if shops[name].journal()["rollout"]["phase"] != "finished" or shops[name].lease():
        close(shops.pop(name))  # a test failed


both = pytest.mark.parametrize("shop", sorted(FRONTS), indirect=True)


def opened(front: Front, ports: str = "8100-8103", **variables: t.Any) -> Shop:
    given = {
        "rollout_replicas": REPLICAS,
        "rollout_budget": {"max_surge": SURGE, "max_unavailable": 0},
        "rollout_health": {"http": "/healthz", "interval": "100ms", "rise": 1},
        "rollout_traffic": {**front.traffic, "drain_timeout": "2s"},
        "rollout_lease": 5,
        **variables,
    }
    shop = Shop(front, env={"START_DELAY": "0.2"}, **given)
    shop.variables["rollout_platform"]["ports"] = ports
    shop.to("1")
    return shop


def close(shop: Shop) -> None:
    shop.close()
    for front in shop.fronts:
        front.close()


@contextmanager
def loaded(shop: Shop, most: int = REPLICAS + SURGE, fewest: int = REPLICAS) -> Iterator[Load]:
    """Under load and watched: no request fails, nothing is stopped in rotation, and the budget
    is kept.
    """
    (front,) = shop.fronts
    with Watch(shop, front) as watch, Load(front.url, KINDS, connections=2, rate=RATE) as load:
        yield load
        assert failures(load.stop()) == []
    assert watch.wrong == [] and watch.looks
    assert watch.most <= most and watch.fewest >= fewest, (watch.most, watch.fewest)


class Walk:
    """One rollout of the shop to its next revision, with the variables that its operators use
    all along.
    """

    def __init__(self, shop: Shop, strategy: str, **variables: t.Any) -> None:
        self.shop = shop
        self.old = shop.journal()["stable"]["revision"]
        self.new = str(int(self.old) + 1)
        self.variables = {"rollout_revision": self.new, "rollout_strategy": strategy, **variables}
        self._last = shop.journal()["rollout"]["id"]
        self._run: Run | None = None

    def start(self, **variables: t.Any) -> Run:
        self._run = self.shop.start(variables={**self.variables, **variables})
        return self._run

    def run(self, **variables: t.Any) -> Outcome:
        return self.start(**variables).wait()

    def say(self, word: str, **variables: t.Any) -> Outcome:
        """By its playbook, in a process of its own."""
        playbook = word if word in SAID else "control"
        said = {"rollout_command": word} if playbook == "control" else {}
        outcome = self.shop.run(f"{PLAYBOOKS}{playbook}", {**self.variables, **said, **variables})
        assert outcome.rc == 0, outcome.output
        return outcome

    @property
    def record(self) -> dict[str, t.Any]:
        """What the journal has of it; empty before it has begun."""
        found: dict[str, t.Any] = self.shop.journal()["rollout"]
        return found if found["id"] != self._last else {}

    def comes_to(self, phase: str, stage: str = "") -> None:
        """Wait until the run under way has come there."""

        def there() -> bool:
            record = self.record
            at = record.get("phase") == phase and stage in ("", record["name"])
            assert at or not self._run or self._run.process.poll() is None, self._run.output
            return at

        until(there, f"{phase} {stage}")

    def timeline(self) -> list[dict[str, t.Any]]:
        """Its events so far; none before it has begun."""
        return self.shop.timeline(self.record["id"]) if self.record else []

    def events(self, kind: str) -> list[dict[str, t.Any]]:
        return [event for event in self.timeline() if event["kind"] == kind]

    def ended(self, outcome: str) -> None:
        """It has, in this way, and the fleet is as it has to be then; nothing is left of
        anything else.
        """
        assert self.record["outcome"] == outcome
        self.shop.settled(self.new if outcome == "promoted" else self.old)


def requests(shop: Shop, revision: str) -> dict[str, int]:
    """How many requests of clients came to each instance of a revision, as it counts them
    itself.
    """
    found = {}
    for record in shop.living():
        if record["revision"] == revision:
            with urllib.request.urlopen(
                f"http://{record['address']}:{record['port']}/requests", timeout=10
            ) as answer:
                found[record["id"]] = int(answer.read())
    return found


def answered(load: Load, count: int) -> None:
    """Wait until so many more requests were answered."""
    before = sum(report["served"] for report in load.reports())
    until(
        lambda: sum(report["served"] for report in load.reports()) >= before + count,
        f"{count} requests",
    )


UNATTENDED: dict[str, dict[str, t.Any]] = {
    "rolling": {},
    "canary": {"rollout_steps": [{"set_weight": 25}, {"pause": "1s"}]},
    "blue_green": {"rollout_hold": "1s"},
}


@pytest.mark.essential
@pytest.mark.parametrize("shop", ["envoy", "haproxy"], indirect=True)
@pytest.mark.parametrize("strategy", UNATTENDED)
def test_every_strategy_loses_no_request(shop: Shop, strategy: str) -> None:
    walk = Walk(shop, strategy, **UNATTENDED[strategy])
    surge = REPLICAS if strategy == "blue_green" else SURGE
    with loaded(shop, most=REPLICAS + surge):
        outcome = walk.run()
    assert outcome.rc == 0, outcome.output
    walk.ended("promoted")


@both
def test_blue_green_switches_at_once_and_back(shop: Shop) -> None:
    pair = Walk(shop, "blue_green", rollout_auto_promote=False, rollout_hold="60s")
    with loaded(shop, most=2 * REPLICAS) as load:
        began = time.time()
        run = pair.start()
        pair.comes_to("awaiting_promotion", "prepare")
        answered(load, 150)
        assert (
            requests(shop, pair.new) == dict.fromkeys(requests(shop, pair.new), 0)
            and len(requests(shop, pair.new)) == REPLICAS
        )
        pair.say("promote")
        pair.comes_to("holding", "hold")
        (switch,) = pair.events("switch")
        switched = switch["at"] - switch["milliseconds"] / 1000  # when it began
        assert set(load.served(began, switched)) == {pair.old}
        there, old = {record["id"] for record in shop.records()}, requests(shop, pair.old)
        answered(load, 150)
        assert requests(shop, pair.old) == old and min(requests(shop, pair.new).values()) > 0
        pair.say("abort")
        outcome = run.wait()
        assert outcome.rc != 0 and "abort sent by" in outcome.failed.msg
        assert {record["id"] for record in shop.records()} == set(old) < there
        switches = pair.events("switch")
        assert len(switches) == 2, "back in one switch"
        print([event["milliseconds"] for event in switches])
    pair.ended("aborted")


def test_an_abort_goes_on_where_the_rollout_is_parked(shop: Shop) -> None:
    """Nobody runs it then, so the playbook that sends the command goes back with it, in the task
    that finds the command, and succeeds. At each stage: tests/property/test_simulated_strategies.py.
    """
    walk = Walk(shop, "canary", rollout_steps=[{"set_weight": 25}, PERSON], rollout_wait=0)
    plays = [{"import_playbook": f"{PLAYBOOKS}{playbook}"} for playbook in ("rollout", "abort")]
    with loaded(shop):
        outcome = shop.run(plays, walk.variables)
        assert outcome.rc == 0, outcome.output
    (parked,) = [task.result["rollout"] for task in outcome.tasks if task.result.get("parked")]
    assert parked["stage"] == "step 1" and not outcome.one("control").result["running"]
    assert outcome.of("begin")[-1].result["rollout"]["outcome"] == "aborted"
    assert not any(task.status != "skipped" for task in outcome.of("rollback"))
    walk.ended("aborted")


@pytest.mark.essential
def test_an_alarm_goes_back_however_far_the_canary_has_come(shop: Shop) -> None:
    """At 60 % as well: nothing is gone on with because it is nearly done."""
    alarm = shop.home / "alarm"
    asked = {"driver": "command", "command": ["test", "-e", str(alarm)], "interval": "200ms"}
    canary = Walk(
        shop,
        "canary",
        rollout_steps=[{"set_weight": 60}, PERSON],
        rollout_gates={"rollback": [asked]},
    )
    with loaded(shop) as load:
        run = canary.start()
        canary.comes_to("paused", "step 1")
        answered(load, 100)
        alarm.touch()
        outcome = run.wait()
    alarm.unlink()
    assert (
        outcome.rc != 0 and "rollback requested by gate rollback 1 (command)" in outcome.failed.msg
    ), outcome.output
    canary.ended("rolled_back")


@pytest.mark.essential
def test_in_place_on_a_fixed_fleet() -> None:
    """No port is spare: one is drained and replaced, judged, then the others, one after the
    other.
    """
    shop = opened(
        FRONTS["haproxy"](),
        "8100-8100",
        rollout_replicas=3,
        rollout_budget={"max_surge": 0, "max_unavailable": 1},
    )
    try:
        canary = Walk(shop, "canary", rollout_steps=[{"set_weight": 33}, PERSON])
        with loaded(shop, most=3, fewest=2):
            run = canary.start()
            canary.comes_to("paused", "step 1")
            assert shop.revisions() == ["1", "1", "2"] and len(shop.fronts[0].serving()) == 3
            canary.say("promote")
            assert run.wait().rc == 0
        canary.ended("promoted")
    finally:
        close(shop)
