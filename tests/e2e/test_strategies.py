# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Canary and blue-green under load: not one failed request, whatever is said to them, and wherever they are ended.

All tests share one service at each load balancer. Each finds it settled at some revision, and leaves it so.
"""

from __future__ import annotations

import time
import typing as t
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest
from ansible_collections.progressive.rollout.tests.playbook import Outcome, Run, until
from ansible_collections.progressive.rollout.tests.shop import FRONTS, Front, Load, Shop, Watch, failures

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
    """Under load and watched: no request fails, nothing is stopped in rotation, and the budget is kept."""
    (front,) = shop.fronts
    with Watch(shop, front) as watch, Load(front.url, KINDS, connections=2, rate=RATE) as load:
        yield load
        assert failures(load.stop()) == []
    assert watch.wrong == [] and watch.looks
    assert watch.most <= most and watch.fewest >= fewest, (watch.most, watch.fewest)


class Walk:
    """One rollout of the shop to its next revision, with the variables that its operators use all along."""

    def __init__(self, shop: Shop, strategy: str, **variables: t.Any) -> None:
        self.shop = shop
        self.old = shop.journal()["stable"]["revision"]
        self.new = str(int(self.old) + 1)
        self.variables = {"rollout_revision": self.new, "rollout_strategy": strategy, **variables}
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
        return found if found["revision"] == self.new else {}

    def comes_to(self, phase: str, stage: str = "") -> None:
        """Wait until the run under way has come there."""

        def there() -> bool:
            record = self.record
            at = record.get("phase") == phase and stage in ("", record["name"])
            assert at or not self._run or self._run.process.poll() is None, self._run.output
            return at

        until(there, f"{phase} {stage}")

    def events(self, kind: str) -> list[dict[str, t.Any]]:
        return [event for event in self.shop.timeline(self.record["id"]) if event["kind"] == kind]

    def ended(self, outcome: str) -> None:
        """It has, in this way, and the fleet is as it has to be then; nothing is left of anything else."""
        assert self.record["outcome"] == outcome
        self.shop.settled(self.new if outcome == "promoted" else self.old)


def requests(shop: Shop, revision: str) -> dict[str, int]:
    """How many requests of clients came to each instance of a revision, as it counts them itself."""
    found = {}
    for record in shop.living():
        if record["revision"] == revision:
            with urllib.request.urlopen(f"http://{record['address']}:{record['port']}/requests", timeout=10) as answer:
                found[record["id"]] = int(answer.read())
    return found


def answered(load: Load, count: int) -> None:
    """Wait until so many more requests were answered."""
    before = sum(report["served"] for report in load.reports())
    until(lambda: sum(report["served"] for report in load.reports()) >= before + count, f"{count} requests")


def test_a_canary_is_promoted_by_a_word_from_elsewhere(shop: Shop) -> None:
    canary = Walk(shop, "canary", rollout_steps=[{"set_weight": 20}, PERSON, {"set_weight": 50}, {"pause": "1s"}])
    with loaded(shop) as load:
        run = canary.start()
        canary.comes_to("paused", "step 1")
        since = canary.events("wait")[-1]["at"]
        # The journal is written when the lease is renewed.
        until(lambda: canary.record["sent"].get("all", 0) >= 300, "the share is measured")
        sent = canary.record["sent"]
        assert abs(100 * sent["new"] / sent["all"] - 20) <= 3, sent
        served = load.served(since, time.time())
        assert abs(100 * served[canary.new] / served.total() - 20) <= 3, served
        canary.say("promote")
        outcome = run.wait()
        assert outcome.rc == 0, outcome.output
    said = canary.shop.words()[-1]
    heard = canary.events("word")[-1]
    assert heard["word"] == said["word"] == "promote" and heard["refused"] == ""
    assert 0 <= heard["at"] - said["at"] <= 2
    shares = [event["shares"] for event in canary.events("traffic")]
    assert {canary.old: 50.0, canary.new: 50.0} in shares
    assert [share.get(canary.new, 0) for share in shares] == sorted(share.get(canary.new, 0) for share in shares)
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
            requests(shop, pair.new) == dict.fromkeys(requests(shop, pair.new), 0) and len(requests(shop, pair.new)) == REPLICAS
        )
        pair.say("promote")
        pair.comes_to("holding", "hold")
        (switch,) = pair.events("switch")
        assert set(load.served(began, switch["at"])) == {pair.old}
        there, old = {record["id"] for record in shop.records()}, requests(shop, pair.old)
        answered(load, 150)
        assert requests(shop, pair.old) == old and min(requests(shop, pair.new).values()) > 0
        pair.say("abort")
        outcome = run.wait()
        assert outcome.rc != 0 and "abort is said by" in outcome.failed.msg
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


CANARY = {"rollout_steps": [{"set_weight": 25}, PERSON, {"set_weight": 50}, PERSON]}


@pytest.mark.parametrize(
    ("strategy", "stage", "variables"),
    [
        ("canary", "begin", {"rollout_steps": [PERSON, {"set_weight": 25}]}),
        ("canary", "step 1", {"rollout_steps": [{"set_weight": 25}, PERSON]}),
        ("canary", "step 2", {"rollout_steps": [{"set_weight": 25}, {"set_weight": 50}, PERSON]}),
        ("canary", "promote", {"rollout_steps": [{"set_weight": 25}], "rollout_gates": {"post_rollout": ASK}}),
        ("blue_green", "confirm", {"rollout_gates": {"confirm_rollout": ASK}}),
        ("blue_green", "prepare", {"rollout_auto_promote": False}),
        ("blue_green", "switch", {"rollout_gates": {"post_rollout": ASK}}),
    ],
)
def test_aborted_where_it_is_parked(shop: Shop, strategy: str, stage: str, variables: Mapping[str, t.Any]) -> None:
    """Nobody runs it then, so the play that says the word goes back with it."""
    walk = Walk(shop, strategy, rollout_wait=0, **variables)
    with loaded(shop, most=REPLICAS + (SURGE if strategy == "canary" else REPLICAS)):
        outcome = walk.run()
        assert outcome.rc == 0 and outcome.tasks[-1].status == "skipped", outcome.output
        assert walk.record["name"] == stage and shop.lease() is None
        walk.say("abort")
    walk.ended("aborted")
