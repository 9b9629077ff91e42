# SPDX-License-Identifier: GPL-3.0-or-later
"""The step that decides rolls back: what was judged bad has no request as soon as the stable ones
can carry them all.
"""

from __future__ import annotations

import dataclasses
import typing as t
from fractions import Fraction
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from ansible_collections.progressive.rollout.plugins.action import (
    begin,
    drain,
    finish,
    promote,
    rollback,
)
from ansible_collections.progressive.rollout.plugins.action import replace as replaces
from ansible_collections.progressive.rollout.plugins.plugin_utils.base import clock
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    Interrupted,
    LeaseLost,
    PlatformError,
    RolloutFailed,
    StoreAway,
    StoreError,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.loop import (
    stage_run,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.loop.interrupt import (
    Guard,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.loop.reconcile_loop import (
    ReconcileLoop,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.loop.supervisor import (
    Proceed,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.rollout import forward
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.rollout.stages import (
    LaunchStages,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.step.context import (
    Result,
    StepContext,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Rotation
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import Stage
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs.options import Options
from ansible_collections.progressive.rollout.plugins.plugin_utils.state import store_retry
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.record import RolloutKind
from ansible_collections.progressive.rollout.tests.support.memory import (
    MemoryRun,
    Service,
    Store,
    World,
)

pytestmark = pytest.mark.usefixtures("virtual_time")


@pytest.fixture
def shop() -> Service:
    """Six instances of revision 1."""
    service = Service(
        World(most=8, fewest=0),
        budget={"max_surge": 2, "max_unavailable": 0},
        replicas=6,
        wait=60,
    )
    service.play(revision="1")
    return service


def shares(shop: Service) -> dict[str, Fraction]:
    """The share of the requests of each revision that has any."""
    weights: dict[str, int] = {}
    for report in shop.world.alive():
        server = shop.world.servers.get(report.labels.endpoint)
        if server and server.rotation is Rotation.IN:
            weights[report.labels.revision] = weights.get(report.labels.revision, 0) + server.weight
    return {
        revision: Fraction(weight, sum(weights.values())) for revision, weight in weights.items()
    }


def first_shares(shop: Service, then: Exception | None = None) -> list[dict[str, Fraction]]:
    """Notes the shares after each change of the load balancer in a rollback; `then` ends the run
    after the first one.
    """
    seen: list[dict[str, Fraction]] = []

    def note(call: str) -> Exception | None:
        if call != "apply after" or not shop.journal.open:
            return None
        if shop.journal.open.phase != "rolling_back":
            return None
        seen.append(shares(shop))
        return then

    shop.world.fails = note
    return seen


def canary(weight: int, path: Path) -> dict[str, t.Any]:
    """Its gate says no."""
    (path / "answer").write_text("no")
    gate = {"driver": "approval", "file": str(path / "answer"), "interval": 0.1}
    return {
        "revision": "2",
        "strategy": "canary",
        "steps": [{"set_weight": weight}, {"gate": gate}],
    }


def test_check_mode_tells_where_a_rollback_would_lead(shop: Service) -> None:
    """Without --diff, silence looks as if there was nothing to do."""
    shop.play(revision="2")
    shop.said.clear()
    shop.step(rollback, check_mode=True)
    assert shop.said == ["shop: would roll back from 2 to 1"]
    shop.said.clear()
    shop.step(rollback, check_mode=True, strategy="canary", steps=[{"set_replicas": 1}])
    assert shop.said == ["shop: would roll back from 2 to 1: step 1, promote"]
    shop.step(begin, revision="3")
    shop.said.clear()
    shop.step(rollback, check_mode=True)
    assert shop.said == ["shop: would roll back from 3 to 2"]


def test_where_the_old_side_is_whole_the_step_that_decides_takes_the_requests_away(
    shop: Service, tmp_path: Path
) -> None:
    shop.world.fewest = 6
    seen = first_shares(shop)
    shop.step(begin, **canary(20, tmp_path))
    with pytest.raises(RolloutFailed, match=r"2: now rolled back to 1\. Why: .*step 2 gate"):
        shop.step(replaces, **canary(20, tmp_path))
    assert seen[0] == {"1": 1}
    assert shop.running == {"1": 6} and shop.world.wrong == []
    assert shop.journal.rollout and shop.journal.rollout.outcome == "rolled_back"
    assert shop.store.lease() is None


STOPS = {"strategy": "canary", "steps": [{"set_weight": 20}, {"pause": {}}]}


@pytest.mark.parametrize(
    ("given", "trouble", "id"),
    [
        ({}, "crash", "PR-604"),
        ({"progress_deadline": 1}, "refused", "PR-226"),
        (STOPS, "abort", "PR-608"),
        (STOPS, "alarm", "PR-403"),
    ],
)
def test_whatever_decides_it_the_rollback_step_finds_nothing_to_do(
    shop: Service, tmp_path: Path, given: dict[str, t.Any], trouble: str, id: str
) -> None:
    alarm = {"driver": "approval", "file": str(tmp_path / "alarm"), "interval": 0.1}
    given = {**given, "revision": "2", "gates": {"rollback": [alarm]}, "wait": 0}
    steps: list[t.Any] = [begin, replaces]
    if trouble == "crash":
        shop.world.crashes = lambda labels: labels.revision == "2"
    elif trouble == "refused":
        shop.world.fails = lambda call: (
            PlatformError("no quota", "PR-226")
            if call == "sync after"
            and shop.journal.open
            and shop.journal.open.phase == "progressing"
            and shop.running.get("2")
            else None
        )
    else:
        for step in steps:
            shop.step(step, **given)
        given["wait"] = 60
        shop.step(steps.pop(0), **given)
        shop.say("abort") if trouble == "abort" else (tmp_path / "alarm").touch()
    with pytest.raises(RolloutFailed, match=r"now (rolled back|aborted, back) to 1\. Why: ") as why:
        for step in steps:
            shop.step(step, **given)
    assert why.value.id == id and shop.running == {"1": 6} and shares(shop) == {"1": 1}
    left = shop.step(rollback, **given)
    assert not left["changed"] and "already rolled back to 1" in left["msg"]
    assert shop.running == {"1": 6} and shop.world.wrong == []


def test_a_rollback_that_another_run_finishes_keeps_the_id_of_its_cause(
    shop: Service, tmp_path: Path
) -> None:
    shop.step(begin, **canary(20, tmp_path))
    first_shares(shop, LeaseLost("killed"))
    with pytest.raises(LeaseLost):
        shop.step(replaces, **canary(20, tmp_path))
    assert shop.journal.open and shop.journal.open.phase == "rolling_back"
    assert shares(shop) == {"1": 1}, "the requests go first"
    shop.world.fails = lambda _call: None
    shop.step(begin, **canary(20, tmp_path))
    with pytest.raises(RolloutFailed, match="rollback pending") as again:
        shop.step(replaces, **canary(20, tmp_path))
    assert again.value.id == "PR-402"
    assert shop.step(rollback, **canary(20, tmp_path))["changed"] and shop.running == {"1": 6}


def test_check_mode_says_that_a_killed_run_was_rolling_back(shop: Service, tmp_path: Path) -> None:
    shop.step(begin, **canary(20, tmp_path))
    first_shares(shop, LeaseLost("killed"))
    with pytest.raises(LeaseLost):
        shop.step(replaces, **canary(20, tmp_path))
    shop.world.fails = lambda _call: None
    for step in (begin, replaces):
        checked = shop.step(step, check_mode=True, **canary(20, tmp_path))
        assert checked["diff"]["after"] == "shop 1: 6\n"


@pytest.mark.parametrize("step", [replaces, begin])
def test_the_step_that_finds_an_abort_carries_it_out(
    shop: Service, tmp_path: Path, step: ModuleType
) -> None:
    given = {**canary(20, tmp_path), "wait": 0}
    (tmp_path / "answer").unlink()
    shop.step(begin, **given)
    shop.step(replaces, **given)
    shop.say("abort")
    with pytest.raises(RolloutFailed, match=r"aborted, back to 1.*abort sent") as aborted:
        shop.step(step, **given)
    assert aborted.value.id == "PR-608"
    assert shop.running == {"1": 6} and shares(shop) == {"1": 1}
    last = shop.journal.rollout
    assert last and last.outcome == "aborted"
    assert shop.store.lease() is None


@pytest.mark.parametrize(
    ("headroom", "expected"),
    # Three new and five old ones: 1 - 5/6 would be left for the bad ones without headroom.
    [(0, Fraction(1, 6)), (1, Fraction(1, 6)), (1.1, 1 - Fraction(11, 12)), (1.25, 0)],
)
def test_otherwise_they_keep_what_the_others_cannot_carry(
    shop: Service, tmp_path: Path, headroom: float, expected: Fraction
) -> None:
    seen = first_shares(shop)
    shop.step(begin, **canary(50, tmp_path))
    with pytest.raises(RolloutFailed, match="step 2 gate"):
        shop.step(replaces, headroom=headroom, **canary(50, tmp_path))
    assert abs(seen[0].get("2", Fraction(0)) - expected) <= Fraction(1, 200)
    assert shop.running == {"1": 6} and shares(shop) == {"1": 1}


def test_a_step_whose_end_cannot_be_written_down_gives_the_lease_back(
    shop: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.step(begin, **canary(20, tmp_path))

    def stop(_guard: Guard) -> None:
        shop.world.fails = lambda call: StoreError("it is full") if call == "commit" else None
        raise Interrupted("SIGTERM: stopped")

    monkeypatch.setattr(Guard, "check", stop)
    with pytest.raises(Interrupted):
        shop.step(replaces, **canary(20, tmp_path))
    assert shop.store.lease() is None


def test_a_step_beside_a_held_rollout_leaves_the_lease_to_others(
    shop: Service, tmp_path: Path
) -> None:
    given = {**canary(20, tmp_path), "on_failure": "hold"}
    shop.step(begin, **given)
    assert shop.store.lease(), "kept for the next step of this run"
    with pytest.raises(RolloutFailed, match="rollout held"):
        shop.step(replaces, **given)
    assert shop.journal.open and shop.journal.open.phase == "held" and shop.store.lease() is None
    result = shop.step(drain, {"instances": ["shop-1"]}, **given)
    assert result["changed"] and "shop-1" not in {r.labels.id for r in shop.world.alive()}
    assert shop.store.lease() is None


class Draining:
    """A step that ends when it has decided to drain an instance."""

    options = Options()

    def perform(self, step: StepContext) -> Result:
        step.begin()
        step.loop.observe_fleet()
        step.record.draining["shop-1"] = clock.now()
        step.loop.commit()
        return step.report(True)


def test_an_instance_that_was_to_go_and_still_runs_stays_in_a_rollback(
    shop: Service, tmp_path: Path
) -> None:
    given = canary(20, tmp_path)
    shop.step(begin, **given)
    shop.step(SimpleNamespace(ActionModule=Draining), **given)
    before = {report.labels.id for report in shop.world.alive()}
    shop.step(rollback, **given)
    assert {report.labels.id for report in shop.world.alive()} == before
    assert shares(shop) == {"1": 1} and shop.journal.draining == {}


def test_a_rollback_after_a_promotion_is_not_rolled_back(shop: Service) -> None:
    shop.play(revision="2")
    assert shop.journal.before and shop.journal.before.revision == "1"
    assert shop.step(rollback)["changed"] and shop.running == {"1": 6}
    assert shop.journal.stable and shop.journal.stable.revision == "1"
    assert shop.journal.before is None
    again = shop.step(rollback)
    assert not again["changed"] and "already rolled back" in again["msg"]


@pytest.mark.parametrize("step", [begin, rollback])
def test_a_step_that_begins_waits_for_a_store_that_is_away(
    shop: Service, monkeypatch: pytest.MonkeyPatch, step: t.Any
) -> None:
    shop.play(revision="2")
    load, away = Store.load, iter([StoreAway("no route to db1", "PR-508")])

    def silent(store: Store) -> t.Any:
        if error := next(away, None):
            raise error
        return load(store)

    monkeypatch.setattr(Store, "load", silent)
    monkeypatch.setattr(store_retry, "PAUSE", 0.01)
    shop.said.clear()
    assert shop.step(step, revision="3")["changed"]
    assert "no route to db1 [PR-508]" in shop.said[0] and "going on" in shop.said[1]


def test_an_alarm_in_the_hold_switches_back(shop: Service, tmp_path: Path) -> None:
    shop.world.most = 12
    alarm = tmp_path / "alarm"
    asked = {"driver": "approval", "file": str(alarm), "interval": 0.1}
    given = {"revision": "2", "strategy": "blue_green", "hold": 60, "gates": {"rollback": [asked]}}
    for step in (begin, replaces, promote):
        shop.step(step, **given)
    assert shares(shop) == {"2": 1}
    alarm.touch()
    seen = first_shares(shop)
    with pytest.raises(RolloutFailed, match=r"rollback requested by gate rollback 1 \(approval\)"):
        shop.step(finish, **given)
    assert seen[0] == {"1": 1}
    assert shop.running == {"1": 6} and shop.journal.stable and shop.journal.stable.revision == "1"


def test_nothing_is_started_of_what_a_rollback_leads_away_from(shop: Service) -> None:
    shop.play(revision="2")
    shop.step(rollback)
    rollout = shop.journal.rollout
    assert rollout and rollout.kind == "rollback" and shop.running == {"1": 6}
    with MemoryRun(shop, {}, {}, False) as run:
        assert not any(stage.waypoint.repairs for stage in LaunchStages(run).of(rollout))
        forward = dataclasses.replace(rollout, kind=RolloutKind.ROLLOUT)
        assert all(stage.waypoint.repairs for stage in LaunchStages(run).of(forward))


def test_a_failure_while_old_ones_are_retired_is_held(
    shop: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.world.most = 12
    given = {"revision": "2", "strategy": "blue_green", "hold": 0, "failure_limit": 1}
    for step in (begin, replaces, promote):
        shop.step(step, **given)

    def run(loop: ReconcileLoop, stage: Stage, *args: t.Any, **kwargs: t.Any) -> Proceed:
        if stage.name == "retire":
            raise RolloutFailed("no progress for 60 s")
        return stage_run.run_stage(loop, stage, *args, **kwargs)

    monkeypatch.setattr(forward, "run_stage", run)
    with pytest.raises(RolloutFailed, match="rollout held"):
        shop.step(finish, **given)
    assert shop.journal.open and shop.journal.open.phase == "held" and shares(shop) == {"2": 1}


def test_progress_lines_leave_out_failures_of_an_earlier_attempt(shop: Service) -> None:
    shop.world.crashes = lambda labels: labels.revision == "2"
    given = {"revision": "2", "on_failure": "hold", "failure_limit": 1}
    with pytest.raises(RolloutFailed):
        shop.play(**given)
    assert any("2 failed)" in line for line in shop.said)
    shop.world.crashes = lambda labels: False
    shop.said.clear()

    shop.play(**given)

    progress = [line for line in shop.said if "  new " in line]
    assert progress and not any("failed" in line for line in progress)
    assert shop.running == {"2": 6}


# -- what a rollback does not follow ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"rollout_strategy": "rolling", "rollout_steps": []},
            "rollout_strategy and rollout_steps",
        ),
        ({"rollout_steps": "x"}, "rollout_steps has no effect"),
        ({"rollout_to": "1"}, ""),
    ],
)
def test_a_rollback_says_that_it_has_no_steps(
    shop: Service, monkeypatch: pytest.MonkeyPatch, given: dict[str, t.Any], words: str
) -> None:
    shop.play(revision="2")
    shop.said.clear()
    monkeypatch.setattr(rollback.ActionModule, "_demanded", given)
    shop.step(rollback)
    told = [line for line in shop.said if "no effect" in line]
    assert len(told) == bool(words)
    for line in told:
        assert line.startswith(f"shop: {words}") and "rollout_budget" in line
    assert shop.running == {"1": 6}
