# SPDX-License-Identifier: GPL-3.0-or-later
"""Canary and blue-green with whatever operators send to them, and where they fail. Real load
balancers under load: tests/e2e/test_strategies.py.
"""

from __future__ import annotations

import math
import time
import typing as t
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    RolloutError,
    RolloutFailed,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Rotation
from ansible_collections.progressive.rollout.tests.simulations.world.runs import journal, lease
from ansible_collections.progressive.rollout.tests.simulations.world.world import Life
from ansible_collections.progressive.rollout.tests.support.simulated_shop import (
    CANARY,
    SimulatedShop,
    result_of,
    simulated_shop,
)

REPLICAS, SURGE = 4, 2
PERSON: dict[str, t.Any] = {"pause": {}}
ASK = [{"driver": "approval"}]


@pytest.fixture
def shop() -> Iterator[SimulatedShop]:
    """Four instances of revision 1, all of which are needed."""
    budget = {"max_surge": SURGE, "max_unavailable": 0}
    with simulated_shop(replicas=REPLICAS, budget=budget) as made:
        made.to("1")
        made.world.floor = made.world.wanted = REPLICAS
        made.world.ceiling = REPLICAS + SURGE
        yield made


def shares(shop: SimulatedShop) -> dict[str, float]:
    """The share of the requests of each revision, the same at each load balancer, in percent."""
    known = []
    for balancer in shop.world.balancers.values():
        parts: defaultdict[str, float] = defaultdict(float)
        for at, part in shop.world.shares(balancer).items():
            instance = shop.world.at(at)
            assert instance
            parts[instance.labels.revision] += 100 * part
        known.append({revision: round(part) for revision, part in parts.items()})
    assert known[0] == known[1]
    return known[0]


def settled(shop: SimulatedShop, revision: str) -> None:
    """All instances are of the revision and in rotation, and nothing is left of anything else."""
    assert shop.running == {revision: REPLICAS}
    for balancer in shop.world.balancers.values():
        entries = balancer.entries.values()
        assert {entry.name for entry in entries} == shop.names
        assert {entry.rotation for entry in entries} == {Rotation.IN}
    assert lease(shop.world) is None and shop.world.phase() == "finished"


def stands_at(shop: SimulatedShop, phase: str, stage: str) -> bool:
    return (shop.rollout.phase, shop.rollout.name) == (phase, stage)


def test_a_command_promotes_a_canary_and_its_share_never_falls(shop: SimulatedShop) -> None:
    steps = [{"set_weight": 20}, PERSON, {"set_weight": 50}, {"pause": "1s"}]
    job = shop.to_beside("2", strategy="canary", steps=steps, wait=600)
    shop.wait_until(lambda: shop.world.phase() == "paused")
    shop.machine.sleep(30.0)
    assert shares(shop) == {"1": 80, "2": 20}
    sent = shop.world.recorded("rollout")["sent"]
    assert abs(100 * sent["new"] / sent["all"] - 20) <= 1, sent
    shop.send("promote")
    assert result_of(job)["rollout"]["outcome"] == "promoted"
    seen = [event["shares"] for event in shop.timeline("traffic")]
    assert {"1": 50.0, "2": 50.0} in seen
    assert all(before.get("2", 0) <= after.get("2", 0) for before, after in pairwise(seen))
    settled(shop, "2")


def test_blue_green_keeps_its_old_set_for_its_time(shop: SimulatedShop) -> None:
    shop.world.ceiling = 2 * REPLICAS
    shop.to("2", strategy="blue_green", hold="30s")
    (hold,) = [e["at"] for e in shop.timeline("phase") if e["phase"] == "holding"]
    drained = [e["at"] for e in shop.timeline("state") if e["state"] == "draining"]
    assert len(drained) == REPLICAS and min(drained) >= hold + 30
    assert {max(event["shares"].values()) for event in shop.timeline("traffic")} == {100.0}
    assert len(shop.timeline("switch")) == 1
    settled(shop, "2")


# strategy, the stage at which a rollout waits for somebody, and its variables
WAITS: list[tuple[str, str, dict[str, t.Any]]] = [
    ("canary", "begin", {"steps": [PERSON, {"set_weight": 25}]}),
    ("canary", "step 1", {"steps": [{"set_weight": 25}, PERSON]}),
    ("canary", "step 2", {"steps": [{"set_weight": 25}, {"set_weight": 50}, PERSON]}),
    ("canary", "promote", {"steps": [{"set_weight": 25}], "gates": {"post_rollout": ASK}}),
    ("blue_green", "confirm", {"gates": {"confirm_rollout": ASK}}),
    ("blue_green", "prepare", {"auto_promote": False}),
    ("blue_green", "switch", {"gates": {"post_rollout": ASK}}),
]


@pytest.mark.parametrize(("strategy", "stage", "given"), WAITS)
def test_an_abort_of_a_parked_rollout_goes_back(
    shop: SimulatedShop, strategy: str, stage: str, given: dict[str, t.Any]
) -> None:
    """Nobody runs it then, so the playbook that sends the command goes back."""
    shop.world.ceiling = 2 * REPLICAS if strategy == "blue_green" else REPLICAS + SURGE
    given = {**given, "strategy": strategy, "wait": 0, "revision": "2"}
    parked = shop.to(**given)
    assert parked["parked"] and parked["rollout"]["stage"] == stage
    with pytest.raises(RolloutFailed, match=r"now aborted, back to 1\. Why: .*abort sent") as back:
        shop.send("abort", **given)
    assert back.value.id == "PR-608" and shop.rollout.outcome == "aborted"
    settled(shop, "1")


def test_an_analysis_in_the_hold_of_blue_green_switches_back(shop: SimulatedShop) -> None:
    """The old set is kept warm for exactly that, and nobody has to be awake for it."""
    shop.world.ceiling = 2 * REPLICAS
    rate = {"name": "error-rate", "success_condition": "result.new.error_rate < 0.01"}
    job = shop.to_beside(
        "2", strategy="blue_green", hold=600, analysis={"interval": "1s", "metrics": [rate]}
    )
    shop.wait_until(lambda: shop.world.phase() == "holding")
    shop.machine.sleep(30.0)
    assert shares(shop) == {"2": 100}
    for instance in shop.world.alive():
        if instance.labels.revision == "2":
            instance.life = Life(errors=0.05)
    with pytest.raises(RolloutFailed, match="error-rate"):
        result_of(job)
    assert len(shop.timeline("switch")) == 2, "back in one switch"
    assert shop.rollout.outcome == "rolled_back"
    settled(shop, "1")


def test_operators_send_commands_all_along(shop: SimulatedShop) -> None:
    """Paused in the middle, resumed, past a gate, held, tried again, parked, promoted, and
    straight to the end.
    """
    steps = [{"set_weight": 25}, PERSON, {"set_weight": 50}, PERSON, {"set_weight": 75}, PERSON]
    given: dict[str, t.Any] = {"revision": "2", "strategy": "canary", "steps": steps, "wait": 600}
    shop.lives = lambda _revision, _number: Life(start=math.inf)
    job = shop.to_beside(**given)
    shop.wait_until(lambda: shop.running == {"1": REPLICAS, "2": 1})
    assert shop.send("pause")["running"]
    assert stands_at(shop, "paused", "step 1")
    shop.mend()
    shop.machine.sleep(10.0)
    assert shop.running == {"1": REPLICAS, "2": 1} and stands_at(shop, "paused", "step 1")
    shop.send("resume")
    shop.wait_until(lambda: shop.timeline("wait")[-1]["what"].startswith("waiting at step 2 pause"))
    assert shop.running == {"1": REPLICAS, "2": 1} and shares(shop) == {"1": 75, "2": 25}
    shop.lives = lambda _revision, _number: Life(start=math.inf)
    shop.send("skip")
    shop.wait_until(lambda: stands_at(shop, "progressing", "step 3"))
    shop.send("hold")
    with pytest.raises(RolloutFailed, match="rollout held"):
        result_of(job)
    assert shop.rollout.phase == "held" and lease(shop.world) is None
    shop.mend()
    given["wait"] = 0
    for command, stage in (("retry", "step 3"), ("promote", "step 5")):
        assert shop.send(command, **given)["parked"] and shop.rollout.name == stage
    shop.send("promote_full", **given)
    assert not [event for event in shop.timeline("word") if event["refused"]]
    sent = [event["word"] for event in shop.timeline("word")]
    assert sent == ["pause", "resume", "skip", "hold", "retry", "promote", "promote_full"]
    settled(shop, "2")


def test_a_freeze_that_begins_in_the_middle_parks_the_run(shop: SimulatedShop) -> None:
    """What is in hand is finished, and a later run goes on."""
    begin, end = (
        time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(shop.machine.time + after))
        for after in (3, 3600)
    )
    frozen = {"from": begin, "to": end, "timezone": "UTC", "reason": "the fair"}
    steps = [{"set_weight": 25}, {"pause": "1h"}, {"set_weight": 50}]
    given = {"revision": "2", "strategy": "canary", "steps": steps, "wait": 0}
    parked = shop.to(**given, freeze=[frozen])
    assert parked["parked"] and "the fair" in parked["msg"]
    assert shop.rollout.phase == "paused" and lease(shop.world) is None
    assert shop.running["2"] == 1
    over = {**frozen, "from": "2020-01-01", "to": "2020-01-02"}
    shop.send("promote_full", **given, freeze=[over])
    settled(shop, "2")


def test_a_step_says_what_its_failure_comes_to(shop: SimulatedShop, tmp_path: Path) -> None:
    """It is held as its step says, and where there is no way back any more."""

    def file(name: str) -> dict[str, t.Any]:
        (tmp_path / name).write_text("no")
        return {"gate": {"driver": "approval", "file": str(tmp_path / name)}}

    steps = [
        {"set_weight": 25},
        {**file("one"), "on_failure": "hold"},
        {"set_weight": 50, "reversible": False},
        file("two"),
    ]
    given = {"revision": "2", "strategy": "canary", "steps": steps}
    for name, stage, new in (("one", "step 2", 1), ("two", "step 3", 2)):
        with pytest.raises(RolloutFailed, match="rollout held"):
            shop.to(**given)
        assert stands_at(shop, "held", stage) and lease(shop.world) is None
        assert shop.running["2"] == new
        (tmp_path / name).write_text("yes")
    shop.send("retry", **given)
    settled(shop, "2")


def test_a_waiting_rollout_gives_way_to_one_that_supersedes_it(shop: SimulatedShop) -> None:
    """Its run is told to, and ends; the other goes on from there."""
    steps = [{"set_weight": 25}, PERSON]
    job = shop.to_beside("2", strategy="canary", steps=steps, wait=600)
    shop.wait_until(lambda: shop.world.phase() == "paused")
    with pytest.raises(RolloutError) as refused:
        shop.to("3")
    assert "or abort that rollout (abort.yml), or supersede it (rollout_supersede: true)" in str(
        refused.value
    )
    assert not job.done
    shop.to("3", supersede=True)
    assert any("told 2 to give way; waiting up to " in line for line in shop.world.lines)
    with pytest.raises(RolloutError, match="superseded by 3, which "):
        result_of(job)
    history = [(past["revision"], past["outcome"]) for past in shop.world.recorded("history")]
    assert history[-2:] == [("2", "superseded"), ("3", "promoted")]
    settled(shop, "3")


def test_back_and_forth(shop: SimulatedShop) -> None:
    """A canary whose number an operator sets, a revision that is known to be good, and a rollback
    in steps.
    """
    given: dict[str, t.Any] = {**CANARY, "revision": "2"}
    shop.to(**given)
    assert shop.running == {"1": 3, "2": 1}
    for number in (3, 2):
        shop.send("set_target", count=number, **given)
        assert shop.running == {"1": REPLICAS - number, "2": number}
    with pytest.raises(RolloutError, match="5 is more than the 4 replicas"):
        shop.send("set_target", count=5, **given)
    shop.send("promote", **given)
    settled(shop, "2")

    shop.to("1", **CANARY, known_good="1h")
    assert [event["stage"] for event in shop.timeline("stage")] == ["prepare", "replace", "promote"]
    assert any("was stable" in line and "without steps" in line for line in shop.world.lines)
    settled(shop, "1")

    assert shop.rollback(**CANARY)["parked"] and shop.running == {"1": 3, "2": 1}
    shop.send("promote", **CANARY)
    assert shop.rollout.kind == "rollback"
    settled(shop, "2")

    # It was left by a rollback, so it is not known to be good.
    shop.to("1", **CANARY, known_good="1h")
    assert shop.running == {"1": 1, "2": 3} and journal(shop.world).open
    shop.send("promote_full", **CANARY, revision="1")
    settled(shop, "1")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "rollout_known_good: has no effect"),
        ({**CANARY, "release": {"with_canary": True}}, "rollout_known_good: leaves out steps"),
    ],
)
def test_what_leaves_out_no_steps_is_refused(
    shop: SimulatedShop, given: dict[str, t.Any], message: str
) -> None:
    before = shop.world.texts["record"]
    with pytest.raises(RolloutError, match=message):
        shop.to("2", **given, known_good="1h")
    assert shop.world.texts["record"] == before and shop.running == {"1": REPLICAS}
