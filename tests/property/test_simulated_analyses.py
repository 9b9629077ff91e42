# SPDX-License-Identifier: GPL-3.0-or-later
"""What an analysis of the load balancers' counters leads to, wherever a rollout is watched. Real
counters of real load balancers: tests/e2e/test_analysis.py.
"""

from __future__ import annotations

import re
import typing as t
from collections.abc import Callable, Iterator

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import RolloutFailed
from ansible_collections.progressive.rollout.tests.simulations.world import world
from ansible_collections.progressive.rollout.tests.simulations.world.machine import Job
from ansible_collections.progressive.rollout.tests.simulations.world.world import Fault, Life
from ansible_collections.progressive.rollout.tests.support.simulated_shop import (
    SimulatedShop,
    result_of,
    simulated_shop,
)

REPLICAS = 6
OFTEN = {"interval": "1s"}
ERRORS = {"name": "errors", "driver": "load_balancer"}
RATE = {
    "name": "error-rate",
    "driver": "load_balancer",
    "success_condition": "result.new.error_rate < 0.01",
    "failure_limit": 1,
}
TENTH, THIRD = {"set_weight": 10}, {"set_weight": 30}
BAD = Life(errors=0.05)


@pytest.fixture
def shop() -> Iterator[SimulatedShop]:
    """Six instances of revision 1, all of which are needed."""
    with simulated_shop(replicas=REPLICAS, budget={"max_surge": REPLICAS}) as made:
        made.to("1")
        made.world.wanted, made.world.floor = REPLICAS, 5  # with the headroom, on the way back
        made.world.ceiling = 2 * REPLICAS
        yield made


def canary(*steps: t.Any, **given: t.Any) -> dict[str, t.Any]:
    return {"revision": "2", "strategy": "canary", "steps": list(steps), "wait": 600, **given}


def is_bad(shop: SimulatedShop, which: Callable[[int], bool] = lambda number: True) -> None:
    """Let instances of revision 2 fail requests, those that run and those that are started."""
    shop.lives = lambda revision, number: BAD if revision == "2" and which(number) else Life()
    for instance in shop.world.alive():
        if instance.labels.revision == "2":
            instance.life = BAD


def waits_at(shop: SimulatedShop, gate: str) -> None:
    words = (f"waiting at {gate}", f"measuring for {gate}")
    shop.wait_until(
        lambda: (
            shop.world.phase() not in ("", "finished")
            and any(event["what"].startswith(words) for event in shop.timeline("wait"))
        )
    )


def measured(shop: SimulatedShop, gate: str) -> int:
    """How many measurements of errors the journal has."""
    rollout = shop.world.recorded("rollout")
    kept = {**rollout["gates"], **rollout["background"]}.get(gate, {})
    return int(kept.get("memory", {}).get("errors", {}).get("tally", {}).get("count", 0))


def verdict(shop: SimulatedShop) -> dict[str, t.Any]:
    (event,) = shop.timeline("verdict")
    return event


def went_back(shop: SimulatedShop, job: Job, *words: str) -> None:
    """It says why, at the measurement that shows it, and what was judged bad has no request from
    the next change on.
    """
    with pytest.raises(RolloutFailed) as failed:
        result_of(job)
    assert all(word in str(failed.value) for word in words), failed.value
    assert verdict(shop)["verdict"] == "fail" and words[0] in verdict(shop)["message"]
    samples = verdict(shop)["samples"].values()
    shown = max(one["at"] for listed in samples for one in listed if one["phase"] == "failed")
    events = shop.timeline()
    (back,) = [e for e in events if e.get("phase") == "rolling_back"]
    assert 0 <= back["at"] - shown <= 2
    traffic = [e for e in events[events.index(back) :] if e["kind"] == "traffic"]
    assert traffic and not traffic[0]["shares"].get("2")
    assert shop.rollout.outcome == "rolled_back" and shop.running == {"1": REPLICAS}


def test_one_that_fails_a_twentieth_of_its_requests_goes_back(shop: SimulatedShop) -> None:
    is_bad(shop)
    job = shop.to_beside(**canary(TENTH, {"analysis": {**OFTEN, "count": 60}}))
    went_back(shop, job, "errors ", "against 0 of ", "e-value ")


def test_a_good_one_is_promoted(shop: SimulatedShop) -> None:
    step = {"analysis": {**OFTEN, "count": 14, "metrics": [ERRORS]}}
    assert shop.to(**canary(THIRD, step))["rollout"]["outcome"] == "promoted"
    assert verdict(shop)["verdict"] == "pass" and "errors 0 of " in verdict(shop)["message"]
    samples = [s for e in shop.timeline("measured") for s in e["samples"].get("errors", ())]
    alpha = 0.02 * 0.9  # what new against old gets of it
    assert samples and all(
        sample["evidence"] < sample["threshold"] == pytest.approx(1 / alpha) for sample in samples
    )


def test_a_dry_run_says_what_it_would_do(shop: SimulatedShop) -> None:
    is_bad(shop)
    dry = {**OFTEN, "count": 60, "metrics": [ERRORS], "dry_run": True}
    shop.to(**canary(TENTH, {"analysis": dry}, analysis={}))
    assert shop.running == {"2": REPLICAS} and verdict(shop)["verdict"] == "pass"
    assert verdict(shop)["message"].startswith("dry run, would fail: errors ")


def test_one_bad_instance_among_several_is_named(shop: SimulatedShop) -> None:
    is_bad(shop, lambda number: number == 2)
    step = {"analysis": {**OFTEN, "count": 60, "metrics": [ERRORS]}}
    job = shop.to_beside(**canary({"set_weight": 50}, step))
    waits_at(shop, "step 2 analysis")
    (name,) = {one.labels.id for one in shop.world.alive() if one.life is BAD}
    went_back(shop, job, f"{name}: errors ", "on all others")


def test_too_little_traffic_is_a_persons(
    shop: SimulatedShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says how many requests it is short of, and goes on when somebody says so."""
    monkeypatch.setattr(world, "REQUESTS", 5)
    step = {"analysis": {**OFTEN, "count": 4, "metrics": [ERRORS]}}
    given = canary(TENTH, step, wait=0)
    parked = shop.to(**given)
    assert parked["parked"] and verdict(shop)["verdict"] == "person"
    (waiting,) = parked["rollout"]["waiting"]
    assert waiting.startswith("step 2 analysis: inconclusive: errors 0 of ")
    assert re.search(r"; needs \d+ more requests, about .+ at this rate$", waiting), waiting
    words = "the run ended while waiting (parked). Continue with promote.yml"
    assert f": {waiting.partition(': ')[2]}; {words}" in parked["msg"]
    shop.send("promote", **given)
    assert shop.running == {"2": REPLICAS}


def test_a_run_after_a_killed_one_goes_on_counting(shop: SimulatedShop) -> None:
    given = canary(THIRD, {"analysis": {"interval": "5s", "count": 8, "metrics": [ERRORS]}})
    job = shop.to_beside(**given)
    shop.wait_until(lambda: measured(shop, "step 2 analysis") >= 3)
    job.process.kill()
    kept = shop.world.recorded("rollout")["gates"]["step 2 analysis"]["memory"]["errors"]
    shop.to(**given)
    samples, counted = verdict(shop)["samples"]["errors"], kept["tally"]["count"]
    assert counted < 8 == len(samples) and samples[:counted] == kept["recent"]
    requests = [one["value"]["new"]["requests"] for one in samples]
    assert requests == sorted(requests) and requests[counted - 1] > 0
    assert shop.running == {"2": REPLICAS}


def test_a_load_balancer_that_begins_anew_misleads_nobody(shop: SimulatedShop) -> None:
    """Its counters do, too."""
    given = canary(THIRD, {"analysis": {"interval": "5s", "count": 8, "metrics": [ERRORS]}})
    job = shop.to_beside(**given)
    shop.wait_until(lambda: measured(shop, "step 2 analysis") >= 3)
    shop.world.strike(Fault("balancer forgets", 0.0, what="lb1"))
    assert result_of(job)["rollout"]["outcome"] == "promoted"
    requests = [one["value"]["new"]["requests"] for one in verdict(shop)["samples"]["errors"]]
    assert requests == sorted(requests) and requests[-1] > requests[0]


def test_one_that_turns_bad_in_the_middle_goes_back(shop: SimulatedShop) -> None:
    """The analysis runs in the background, from the second step on."""
    analysis = {**OFTEN, "metrics": [ERRORS], "starting_step": 2}
    steps = ({"set_weight": 5}, TENTH, {"pause": "5m"}, {"set_weight": 50})
    job = shop.to_beside(**canary(*steps, analysis=analysis))
    waits_at(shop, "step 3 pause")
    shop.wait_until(lambda: measured(shop, "analysis") >= 2)
    is_bad(shop)
    went_back(shop, job, "errors ", "against 0 of ", "e-value ")
    assert shop.timeline("stage")[-1]["stage"] == "step 2"


def test_a_pause_is_watched_without_any_analysis(shop: SimulatedShop) -> None:
    """What load balancers count is compared by default, and what it shows is acted on."""
    job = shop.to_beside(**canary(TENTH, {"pause": {}}))
    waits_at(shop, "step 2 pause")
    is_bad(shop)
    went_back(shop, job, "errors ", "against 0 of ", "e-value ")


def test_one_that_turns_bad_while_it_bakes_goes_back(shop: SimulatedShop) -> None:
    """When all are new; there was never anything wrong before."""
    analysis = {**OFTEN, "metrics": [ERRORS, RATE], "bake": "5m"}
    job = shop.to_beside("2", analysis=analysis)
    waits_at(shop, "bake")
    assert shop.running == {"2": REPLICAS}
    is_bad(shop)
    with pytest.raises(RolloutFailed, match=r"error-rate .*2 failed > failure_limit 1"):
        result_of(job)
    assert shop.rollout.outcome == "rolled_back" and shop.running == {"1": REPLICAS}


def test_blue_green_goes_back_in_one_switch(shop: SimulatedShop) -> None:
    is_bad(shop)
    gate = {"driver": "analysis", **OFTEN, "count": 60, "metrics": [RATE]}
    job = shop.to_beside("2", strategy="blue_green", gates={"post_rollout": [gate]})
    went_back(shop, job, "error-rate ", "2 failed > failure_limit 1")
    assert len(shop.timeline("switch")) == 2
