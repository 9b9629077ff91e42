# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The judge, under load and through a real load balancer: bad canaries go back by themselves, and good ones do not."""

from __future__ import annotations

import typing as t
from collections.abc import Iterator

import pytest
from ansible_collections.progressive.rollout.tests.shop import BehindHAProxy, Load, Shop, failures

RATE = 200  # requests a second, of each kind of client
KINDS = (("GET", True), ("POST", False))
ANALYSIS = {"interval": "500ms", "count": 40}
STEPS = [{"set_weight": 10}, {"analysis": ANALYSIS}]


@pytest.fixture(scope="module")
def shop() -> Iterator[Shop]:
    front = BehindHAProxy()
    try:
        with Shop(front) as shop:
            shop.to("1")
            yield shop
    finally:
        front.close()


class Told:
    """One canary of the shop under load."""

    def __init__(self, shop: Shop, revision: str, env: t.Mapping[str, str] | None = None, **variables: t.Any) -> None:
        platform = shop.variables["rollout_platform"]
        bad = {**platform, "env": {**platform["env"], **(env or {})}}
        with Load(shop.fronts[0].url, KINDS, connections=4, rate=RATE) as load:
            given = {"rollout_strategy": "canary", "rollout_steps": STEPS, "rollout_platform": bad, **variables}
            self.outcome = shop.run(variables={"rollout_revision": revision, **given})
            self.reports = load.stop()
        self.failed = sum(sum(report["failures"].values()) for report in self.reports)
        self.timeline = shop.timeline(shop.journal()["rollout"]["id"])
        self.verdicts = [event for event in self.timeline if event["kind"] == "verdict"]


def test_one_that_fails_a_twentieth_of_its_requests_is_taken_back(shop: Shop) -> None:
    told = Told(shop, "2", {"FAIL_EVERY": "20"})
    assert told.outcome.rc != 0 and "e-value" in told.outcome.failed.msg, told.outcome.output
    assert 0 < told.failed < 50
    print(told.failed, told.outcome.failed.msg, told.verdicts)
    shop.settled("1")


def test_one_that_is_three_times_as_slow_is_taken_back(shop: Shop) -> None:
    told = Told(shop, "3", {"LATENCY": "0.03"})
    assert told.outcome.rc != 0 and "median" in told.outcome.failed.msg, told.outcome.output
    print(told.outcome.failed.msg, told.verdicts)
    assert failures(told.reports) == []
    shop.settled("1")


def test_a_good_one_is_promoted(shop: Shop) -> None:
    told = Told(shop, "4")
    assert told.outcome.rc == 0, told.outcome.output
    print(told.outcome.output)
    assert failures(told.reports) == []
    shop.settled("4")


def beside(condition: str) -> list[dict[str, t.Any]]:
    """Steps that compare with a baseline, until this is so."""
    metric = {"name": "alike", "judge": "threshold", "failure_condition": condition, "success_condition": "true"}
    return [{"set_weight": 10}, {"analysis": {"interval": "1s", "count": 2, "metrics": [metric], "baseline": True}}]


def test_a_baseline_is_of_the_stable_revision_and_what_is_compared_with(shop: Shop) -> None:
    stable = shop.journal()["stable"]["revision"]
    # An old one has about as many requests as a new one: all of them together have many times as many.
    told = Told(shop, "5", rollout_steps=beside("not 0.3 < result.stable.requests / result.new.requests < 3"))
    assert told.outcome.rc == 0, told.outcome.output
    assert failures(told.reports) == []
    assert [event["stage"] for event in told.timeline if event["kind"] == "stage"] == ["prepare", "baseline", "step 1", "promote"]
    rollout = shop.journal()["rollout"]
    fresh = {event["revision"] for event in told.timeline if event.get("generation") == rollout["baseline"]}
    assert fresh == {stable} and "1/1 baseline ready" in told.outcome.output
    shop.settled("5")


def test_a_baseline_goes_with_the_canary(shop: Shop) -> None:
    stable = shop.journal()["stable"]["revision"]
    told = Told(shop, "6", rollout_steps=beside("result.new.requests > 0"))
    assert told.outcome.rc != 0 and "alike" in told.outcome.failed.msg, told.outcome.output
    assert failures(told.reports) == []
    shop.settled(stable)
