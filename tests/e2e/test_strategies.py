# SPDX-License-Identifier: GPL-3.0-or-later
"""Canary and blue-green under load: not one failed request, whatever is said to them, and wherever
they are ended.

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
ASK = [{"driver": "approval"}]


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

    def say_and_wait(self, word: str) -> None:
        """Until the run under way has obeyed."""
        self.say(word)
        until(lambda: word in [event["word"] for event in self.events("word")], f"{word} is obeyed")

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

    def heard(self, word: str) -> float:
        """When the word was last obeyed."""
        return max(
            event["at"]
            for event in self.events("word")
            if event["word"] == word and not event["refused"]
        )

    def ended(self, outcome: str) -> None:
        """It has, in this way, and the fleet is as it has to be then; nothing is left of
        anything else.
        """
        assert self.record["outcome"] == outcome
        self.shop.settled(self.new if outcome == "promoted" else self.old)


class Switch:
    """Whether instances that are started become ready. They do not before it is turned on; those
    that are stay so.
    """

    def __init__(self, shop: Shop) -> None:
        self._file = shop.home / "ready"
        common = shop.variables["rollout_platform"]
        self.platform = {**common, "env": {**common["env"], "READY_FILE": str(self._file)}}

    def __enter__(self) -> Switch:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._file.unlink(missing_ok=True)

    def turn(self, on: bool) -> None:
        if on:
            self._file.touch()
        else:
            self._file.unlink(missing_ok=True)


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


def test_a_canary_is_promoted_by_a_word_from_elsewhere(shop: Shop) -> None:
    canary = Walk(
        shop,
        "canary",
        rollout_steps=[{"set_weight": 20}, PERSON, {"set_weight": 50}, {"pause": "1s"}],
    )
    with loaded(shop) as load:
        run = canary.start()
        canary.comes_to("paused", "step 1")
        since = canary.events("wait")[-1]["at"]
        # The journal is written when the lease is renewed.
        until(lambda: canary.record["sent"].get("all", 0) >= 300, "the share is measured")
        sent = canary.record["sent"]
        assert abs(100 * sent["new"] / sent["all"] - 20) <= 3, sent
        # Of the load whole seconds are counted, and what HAProxy sent may all be of one second.
        until(lambda: load.served(since, time.time()).total() >= 300, "the load has seen it")
        served = load.served(since, time.time())
        assert abs(100 * served[canary.new] / served.total() - 20) <= 3, served
        canary.say("promote")
        outcome = run.wait()
        assert outcome.rc == 0, outcome.output
    assert 0 <= canary.heard("promote") - shop.commands()[-1]["at"] <= 2
    shares = [event["shares"] for event in canary.events("traffic")]
    assert {canary.old: 50.0, canary.new: 50.0} in shares
    assert [share.get(canary.new, 0) for share in shares] == sorted(
        share.get(canary.new, 0) for share in shares
    )
    canary.ended("promoted")


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


def test_blue_green_that_asks_nobody(shop: Shop) -> None:
    pair = Walk(shop, "blue_green", rollout_hold="1s")
    with loaded(shop, most=2 * REPLICAS):
        outcome = pair.run()
        assert outcome.rc == 0, outcome.output
    (hold,) = [event["at"] for event in pair.events("phase") if event["phase"] == "holding"]
    drained = [event["at"] for event in pair.events("state") if event["state"] == "draining"]
    assert len(drained) == REPLICAS and min(drained) >= hold + 1
    pair.ended("promoted")


# by strategy, by the stage at which a rollout waits for somebody
WAITS: dict[str, dict[str, dict[str, t.Any]]] = {
    "canary": {
        "begin": {"rollout_steps": [PERSON, {"set_weight": 25}]},
        "step 1": {"rollout_steps": [{"set_weight": 25}, PERSON]},
        "step 2": {"rollout_steps": [{"set_weight": 25}, {"set_weight": 50}, PERSON]},
        "promote": {"rollout_steps": [{"set_weight": 25}], "rollout_gates": {"post_rollout": ASK}},
    },
    "blue_green": {
        "confirm": {"rollout_gates": {"confirm_rollout": ASK}},
        "prepare": {"rollout_auto_promote": False},
        "switch": {"rollout_gates": {"post_rollout": ASK}},
    },
}


@pytest.mark.parametrize("strategy", WAITS)
def test_aborted_where_it_is_parked(shop: Shop, strategy: str) -> None:
    """Nobody runs it then, so the play that says the word goes back with it, in the task that
    finds the word. One rollout after the other, in one go.
    """
    walk = Walk(shop, strategy, rollout_wait=0)
    plays = [
        {"import_playbook": f"{PLAYBOOKS}{playbook}", "vars": variables}
        for variables in WAITS[strategy].values()
        for playbook in ("rollout", "abort")
    ]
    with loaded(shop, most=REPLICAS + (SURGE if strategy == "canary" else REPLICAS)):
        outcome = shop.run(plays, walk.variables)
        assert outcome.rc == 0, outcome.output
    parked = [task.result["rollout"] for task in outcome.tasks if task.result.get("parked")]
    assert [rollout["stage"] for rollout in parked] == list(WAITS[strategy])
    back = [task.result["rollout"]["outcome"] for task in outcome.of("begin")[1::2]]
    assert back == ["aborted"] * len(parked)
    assert not any(task.status != "skipped" for task in outcome.of("rollback"))
    # by each rollout when it begins
    found = [task.result["rollout"]["fleet"] for task in outcome.of("begin")[::2]]
    assert [{revision: of["ready"] for revision, of in fleet.items()} for fleet in found] == [
        {walk.old: REPLICAS}
    ] * len(parked)
    assert not any(task.result["running"] for task in outcome.of("control"))
    walk.ended("aborted")


@pytest.mark.parametrize("kind", ["alarm", "analysis"])
def test_an_alarm_in_the_hold_of_blue_green_goes_back_by_one_switch(shop: Shop, kind: str) -> None:
    """The old set is kept warm for exactly that, and nobody has to be awake for it."""
    alarm = shop.home / "alarm"
    asked: dict[str, t.Any] = {
        "driver": "command",
        "command": ["test", "-e", str(alarm)],
        "interval": "200ms",
    }
    silent = {
        "driver": "command",
        "command": ["cat", str(shop.home / "errors")],
        "interval": "200ms",
        "failure_condition": "result > 0",
    }
    (shop.home / "errors").write_text("0")
    variables = {
        "alarm": {"rollout_gates": {"rollback": [asked]}},
        "analysis": {
            "rollout_analysis": {"interval": "200ms", "metrics": [{"name": "errors", **silent}]}
        },
    }
    pair = Walk(shop, "blue_green", rollout_hold="60s", **variables[kind])
    with loaded(shop, most=2 * REPLICAS) as load:
        run = pair.start()
        pair.comes_to("holding", "hold")
        answered(load, 100)
        alarm.touch()
        (shop.home / "errors").write_text("1")
        outcome = run.wait()
        assert outcome.rc != 0, outcome.output
        answered(load, 100)
    alarm.unlink()
    assert len(pair.events("switch")) == 2, "back in one switch"
    (decided,) = [event["at"] for event in pair.events("phase") if event["phase"] == "rolling_back"]
    print(
        f"without a request {pair.events('switch')[-1]['at'] - decided:.3f} s after it was decided"
    )
    pair.ended("rolled_back")


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


def test_operators_speak_all_along(shop: Shop) -> None:
    """Paused in the middle, resumed, past a gate, held, tried again, parked, promoted, and
    straight to the end.
    """
    steps = [{"set_weight": 25}, PERSON, {"set_weight": 50}, PERSON, {"set_weight": 75}, PERSON]
    canary = Walk(shop, "canary", rollout_steps=steps)
    with loaded(shop), Switch(shop) as ready:
        run = canary.start(rollout_platform=ready.platform)
        until(
            lambda: shop.revisions() == [canary.old] * REPLICAS + [canary.new],
            "the first is started",
        )
        assert canary.say("pause", rollout_why="lunch").one("control").result["running"]
        canary.comes_to("paused", "step 1")
        ready.turn(True)
        until(
            lambda: "ready" in [event["state"] for event in canary.events("state")[REPLICAS:]],
            "the one in hand is finished",
        )
        assert shop.revisions() == [canary.old] * REPLICAS + [canary.new]
        canary.say("resume")
        until(
            lambda: canary.events("wait")[-1]["what"].startswith("waiting at step 2 pause"),
            "it waits at its gate",
        )
        assert shop.revisions() == [canary.old] * REPLICAS + [canary.new]
        between = canary.heard("pause"), canary.heard("resume")
        assert not [
            e
            for e in canary.events("decision")
            if between[0] < e["at"] < between[1] and "drain" in e["reason"]
        ]
        ready.turn(False)
        canary.say("skip")
        canary.comes_to("progressing", "step 3")
        canary.say_and_wait("hold")
        ready.turn(True)
        outcome = run.wait()
        assert outcome.rc != 0 and "rollout held" in outcome.failed.msg
        assert canary.record["phase"] == "held" and shop.lease() is None
        parked = canary.say("retry", rollout_wait=0)
        assert parked.of("replace")[-1].result["parked"] and canary.record["name"] == "step 3"
        parked = canary.say("promote", rollout_wait=0)
        assert parked.of("replace")[-1].result["parked"] and canary.record["name"] == "step 5"
        canary.say("promote_full")
    assert not [event for event in canary.events("word") if event["refused"]]
    said = [
        command["word"] for command in shop.commands() if command["rollout"] == canary.record["id"]
    ]
    assert said == ["pause", "resume", "skip", "hold", "retry", "promote", "promote_full"]
    canary.ended("promoted")


def test_a_freeze_that_begins_in_the_middle(shop: Shop) -> None:
    """What is in hand is finished, the run parks, and a later one goes on."""
    canary = Walk(
        shop,
        "canary",
        rollout_steps=[{"set_weight": 25}, {"pause": "1h"}, {"set_weight": 50}],
        rollout_wait=0,
    )
    with loaded(shop):
        window = {"timezone": "UTC", "reason": "the fair"}
        asked = time.monotonic()
        shop.run("progressive.rollout.status")
        # the first is in rotation by then, on a busy machine, too
        soon = 2 + 3 * (time.monotonic() - asked)
        begin, end = (
            time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time.time() + after))
            for after in (soon, 3600)
        )
        outcome = canary.run(rollout_freeze=[{"from": begin, "to": end, **window}])
        assert outcome.rc == 0 and outcome.of("replace")[-1].result["parked"], outcome.output
        assert "the fair" in outcome.of("replace")[-1].msg and canary.record["phase"] == "paused"
        assert shop.lease() is None and shop.revisions().count(canary.new) == 1
        canary.say("promote_full", rollout_freeze=[{"from": "2020-01-01", "to": "2020-01-02"}])
    canary.ended("promoted")


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


def test_failures_that_hold_it(shop: Shop) -> None:
    """As its step says, and where there is no way back any more."""

    def there(name: str) -> dict[str, t.Any]:
        return {"gate": {"driver": "command", "command": ["test", "-e", str(shop.home / name)]}}

    steps = [
        {"set_weight": 25},
        {**there("one"), "on_failure": "hold"},
        {"set_weight": 50, "reversible": False},
        there("two"),
    ]
    canary = Walk(shop, "canary", rollout_steps=steps)
    with loaded(shop):
        outcome = canary.run()
        assert outcome.rc != 0 and "rollout held" in outcome.failed.msg, outcome.output
        assert (canary.record["phase"], canary.record["name"], shop.lease()) == (
            "held",
            "step 2",
            None,
        )
        assert shop.revisions().count(canary.new) == 1
        (shop.home / "one").touch()
        again = canary.run()
        assert again.rc != 0 and "rollout held" in again.failed.msg, again.output
        assert (canary.record["phase"], canary.record["name"]) == ("held", "step 3")
        assert shop.revisions().count(canary.new) == 2
        (shop.home / "two").touch()
        canary.say("retry")
    for name in ("one", "two"):
        (shop.home / name).unlink()
    canary.ended("promoted")


def test_a_rollout_that_waits_gives_way_to_one_that_supersedes_it(shop: Shop) -> None:
    """Its run is told to, and ends; the other goes on from there."""
    first = Walk(shop, "canary", rollout_steps=[{"set_weight": 25}, PERSON])
    last = str(int(first.new) + 1)
    with loaded(shop):
        run = first.start()
        first.comes_to("paused")
        refused = shop.run(variables={"rollout_revision": last})
        assert (
            refused.rc != 0
            and "or abort that rollout (abort.yml), or supersede it (rollout_supersede: true)"
            in refused.failed.msg
        )
        assert run.process.poll() is None
        began = time.monotonic()
        second = shop.run(variables={"rollout_revision": last, "rollout_supersede": True})
        ended = run.wait()
        assert second.rc == 0, second.output
    print(f"superseded and promoted in {time.monotonic() - began:.1f} s")
    assert f"shop {last}: told {first.new} to give way; waiting up to " in second.output
    assert ended.rc != 0 and f"shop {first.new}: superseded by {last}, which " in ended.failed.msg
    outcomes = [(one["revision"], one["outcome"]) for one in shop.journal()["history"][-2:]]
    assert outcomes == [(first.new, "superseded"), (last, "promoted")]
    shop.settled(last)
