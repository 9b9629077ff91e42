# SPDX-License-Identifier: GPL-3.0-or-later
"""Ramps, the old instances that a canary keeps on standby, and how many instances a canary takes
where something else scales the service. Most of what goes wrong there went wrong in Picchu:
https://github.com/Medium/picchu/pull/602.
"""

from __future__ import annotations

import typing as t
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from ansible_collections.progressive.rollout.plugins.action import begin, finish, promote
from ansible_collections.progressive.rollout.plugins.action import replace as replaces
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    InputError,
    RolloutFailed,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.config import strategy
from ansible_collections.progressive.rollout.plugins.plugin_utils.config.fingerprint import (
    fingerprint,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.config.variables import replicas
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.loop.stage_run import (
    frozen,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.budget import (
    Bounds,
    ResolvedBudget,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import (
    Phase,
    Process,
    Rotation,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import (
    InvalidSteps,
    RolloutTarget,
    Stage,
    Waypoint,
    carrying,
    stages,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.weights import WeightSplit
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    Labels,
    Report,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.traffic import (
    Server,
)
from ansible_collections.progressive.rollout.tests.support.memory import Service, Traffic, World
from ansible_collections.progressive.rollout.tests.support.seeds import examples
from hypothesis import assume, given
from hypothesis import strategies as st

pytestmark = pytest.mark.usefixtures("virtual_time")

ASK = [{"driver": "approval"}]


def parsed(ramp: dict[str, t.Any], **more: t.Any) -> tuple[t.Any, ...]:
    steps = {"every": "10m", **ramp}
    found = strategy.parse({"strategy": "canary", "steps": steps, **more}).steps
    assert isinstance(found, tuple)
    return found


def listed(
    ramp: dict[str, t.Any], desired: int = 30, surge: int = 30, **more: t.Any
) -> list[Stage]:
    plan = strategy.parse({"strategy": "canary", "steps": {"every": "10m", **ramp}, **more})
    return list(stages(plan, goal(desired, surge)))


def goal(desired: int, surge: int, unavailable: int = 0) -> RolloutTarget:
    return RolloutTarget(2, desired, ResolvedBudget(surge, unavailable), desired, stable=1)


# Shares
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ramp", "shares"),
    [
        ({"ramp": "geometric"}, [10, 20, 40, 80, 100]),
        ({"ramp": "geometric", "start": 5}, [5, 10, 20, 40, 80, 100]),
        ({"ramp": "geometric", "start": 25}, [25, 50, 100]),
        ({"ramp": "geometric", "start": 25, "max": 50}, [25, 50]),
        ({"ramp": "geometric", "max": 50}, [10, 20, 40, 50]),
        ({"ramp": "geometric", "factor": 10}, [10, 100]),
        ({"ramp": "linear"}, [*range(5, 101, 5)]),
        ({"ramp": "linear", "increment": 20}, [20, 40, 60, 80, 100]),
        ({"ramp": "linear", "start": 10, "increment": 20, "max": 90}, [10, 30, 50, 70, 90]),
        ({"ramp": "linear", "increment": 1}, [*range(1, 101)]),
        ({"ramp": "linear", "start": 99, "increment": 99}, [99, 100]),
        ({"ramp": "linear", "start": 50, "max": 50}, [50]),
    ],
)
def test_the_shares_of_a_ramp(ramp: dict[str, t.Any], shares: list[int]) -> None:
    found = [stage.waypoint.weight for stage in listed(ramp, 200, 200)]
    # below 100 a person leads to all
    assert found == (shares if shares[-1] == 100 else [*shares, 100])


def test_a_ramp_is_the_same_as_a_list() -> None:
    ramp = parsed({"ramp": "geometric", "start": 25})
    items = [{"set_weight": 25}, {"pause": "10m"}, {"set_weight": 50}, {"pause": "10m"}]
    named = strategy.parse({"strategy": "canary", "steps": items}).steps
    assert isinstance(named, tuple)
    assert [(s.weight, s.replicas, [g.options for g in s.gates]) for s in ramp] == [
        (s.weight, s.replicas, [g.options for g in s.gates]) for s in named
    ]


def test_a_list_has_the_hash_that_it_had_before_there_were_ramps() -> None:
    listed = {"strategy": "canary", "steps": [{"set_weight": 20}, {"pause": "10m"}]}
    assert fingerprint(strategy.parse(listed)) == "9c5c925ab52ea4fc"
    assert fingerprint(strategy.parse({"strategy": "rolling"})) == "30b0ddd06229cf40"
    switched = strategy.parse({"strategy": "blue_green", "hold": "5m"})
    assert fingerprint(switched) == "ad6fed75ee8b4ff9"


def test_gates_are_asked_after_the_time_at_each_share() -> None:
    steps = parsed({"ramp": "geometric", "start": 40, "max": 80, "gates": ASK})
    assert [[gate.key for gate in step.gates] for step in steps] == [
        ["step 1 every", "step 1 gate 1"],
        ["step 2 gate 1", "step 2 max"],
    ]
    assert steps[-1].gates[-1].driver == "approval"


def test_an_analysis_may_begin_at_a_later_share() -> None:
    metrics = [{"name": "errors", "success_condition": "result < 1"}]
    late = {"analysis": {"starting_step": 3, "metrics": metrics}}
    assert [step.watched for step in parsed({"ramp": "geometric"}, **late)] == [
        False,
        False,
        True,
        True,
    ]
    with pytest.raises(InputError, match="rollout_steps has no step 9"):
        parsed({"ramp": "geometric"}, analysis={"starting_step": 9, "metrics": metrics})


@pytest.mark.parametrize(
    ("ramp", "words"),
    [
        ({"ramp": "steep"}, "rollout_steps.ramp: 'steep'"),
        ({"ramp": ""}, "rollout_steps.ramp: not given"),
        ({"ramp": "geometric", "factor": 1}, "rollout_steps.factor: 1 is too small"),
        ({"ramp": "geometric", "factor": 1.5}, "rollout_steps.factor: 1.5 is not a whole number"),
        ({"ramp": "linear", "increment": 0}, "rollout_steps.increment: 0 is too small"),
        ({"ramp": "linear", "increment": 101}, "rollout_steps.increment: 101 is too large"),
        ({"ramp": "linear", "start": 0}, "rollout_steps.start: 0 is too small"),
        ({"ramp": "geometric", "start": 101}, "rollout_steps.start: 101 is too large"),
        ({"ramp": "geometric", "start": 2.5}, "rollout_steps.start: 2.5 is not a whole number"),
        ({"ramp": "geometric", "max": 9}, "rollout_steps.max: 9 is less than start .10."),
        ({"ramp": "linear", "max": 101}, "rollout_steps.max: 101 is too large"),
        ({"ramp": "linear", "every": -1}, "rollout_steps.every: -1"),
        ({"ramp": "linear", "every": 0}, "rollout_steps.every: without it and gates"),
        ({"ramp": "linear", "factor": 2}, "rollout_steps.factor: has no effect with ramp: linear"),
        ({"ramp": "geometric", "increment": 2}, "rollout_steps.increment: has no effect"),
        ({"ramp": "linear", "group_size": 2}, "rollout_steps.group_size: unknown option"),
        ({"ramp": "linear", "ahead": "perhaps"}, "rollout_steps.ahead: 'perhaps'"),
    ],
)
def test_ramps_that_are_refused(ramp: dict[str, t.Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        parsed(ramp)


def test_a_ramp_in_a_list_is_refused() -> None:
    with pytest.raises(InputError, match=r"rollout_steps\[0\].ramp: unknown option"):
        strategy.parse({"strategy": "canary", "steps": [{"ramp": "linear"}]})


# Ahead
# --------------------------------------------------------------------------------------------------


def test_the_instances_of_the_next_share_are_ready_before_it() -> None:
    found = [(s.waypoint.weight, s.waypoint.new) for s in listed({"ramp": "geometric"})]
    assert found == [(10, 3), (20, 6), (40, 12), (80, 24), (100, 30)]
    ahead = listed({"ramp": "geometric", "ahead": True})
    assert [(s.waypoint.weight, s.waypoint.new) for s in ahead if "ahead" in s.name] == [
        (10, 6),
        (20, 12),
        (40, 24),
        (80, 30),
    ]
    assert [(s.waypoint.weight, s.waypoint.new) for s in ahead if "ahead" not in s.name] == found


def test_ahead_takes_the_room_there_is() -> None:
    found = listed({"ramp": "geometric", "start": 40, "ahead": True}, surge=8)
    # 40 % of 30 leave 18 old ones, which carry the rest
    assert [(s.waypoint.new, s.waypoint.old) for s in found] == [
        (12, 26),
        (20, 18),
        (24, 14),
        (30, 8),
        (30, 0),
    ]
    with pytest.raises(InvalidSteps, match=r"step 1 ahead: no surge .* set max_surge"):
        listed({"ramp": "geometric", "ahead": True}, surge=0)


@examples(200)
@given(
    weight=st.integers(5, 95),
    carry=st.integers(1, 10),
    more=st.integers(0, 10),
    old=st.integers(1, 20),
    missing=st.integers(0, 10),
)
def test_instances_ahead_do_not_raise_the_share(
    weight: int, carry: int, more: int, old: int, missing: int
) -> None:
    point, there = Waypoint(2, carry + more, old, old + carry, weight, carrying=carry), carry + more
    there = max(carry, there - missing)
    asked = Fraction(weight, 100)
    wanted = (asked / there) / ((1 - asked) / old)
    assume(Fraction(1, 20) <= wanted <= 20)  # beyond, whole weights are less exact
    new, each = WeightSplit(point).weights(there, old)
    assert abs(Fraction(new * there, new * there + each * old) - asked) <= Fraction(1, 100)


# In a service
# --------------------------------------------------------------------------------------------------


@pytest.fixture
def shop() -> Service:
    """Ten instances of revision 1."""
    service = Service(World(most=20, fewest=0), budget={"max_surge": "100%"})
    service.play(revision="1", replicas=10)
    service.world.fewest = 10
    return service


def shares(shop: Service) -> dict[str, Fraction]:
    """The share of the requests of each revision that has any."""
    weights: dict[str, int] = {}
    for report in shop.world.alive():
        server = shop.world.servers.get(report.labels.endpoint)
        if server and server.rotation is Rotation.IN:
            weights[report.labels.revision] = weights.get(report.labels.revision, 0) + server.weight
    return {one: Fraction(weight, sum(weights.values())) for one, weight in weights.items()}


RAMP: dict[str, t.Any] = {
    "revision": "2",
    "replicas": 10,
    "strategy": "canary",
    "steps": {"ramp": "geometric", "start": 20, "every": "1ms", "gates": ASK, "ahead": True},
}


def pass_(shop: Service, given: dict[str, t.Any]) -> None:
    shop.say("promote")
    shop.play(**given)


def test_a_ramp_from_share_to_share(shop: Service) -> None:
    seen = []
    shop.play(**RAMP)
    while (rollout := shop.journal.open) is not None:
        seen.append((rollout.name, shares(shop)["2"], shop.running["2"]))
        assert rollout.phase == Phase.PAUSED
        pass_(shop, RAMP)
    assert seen == [
        ("step 1 ahead", Fraction(20, 100), 4),
        ("step 2 ahead", Fraction(40, 100), 8),
        ("step 3 ahead", Fraction(80, 100), 10),
    ]
    assert shop.running == {"2": 10} and not shop.world.wrong


def test_the_time_counts_from_when_the_share_was_there(shop: Service) -> None:
    shop.play(**RAMP)
    rollout = shop.journal.open
    assert rollout
    events = shop.timeline(rollout.id)
    entered = {e["stage"]: e["at"] for e in events if e["kind"] == "stage"}
    ready = [
        e["at"]
        for e in events
        if e["kind"] == "state" and e["state"] == "ready" and e.get("revision") == "2"
    ]
    since = round(rollout.gates["step 1 every"].since, 3)  # as events are
    # two carry the share, and the two of the next share became ready later
    assert len(ready) == 4 and sorted(ready)[1] <= since <= entered["step 1 ahead"]
    assert since <= sorted(ready)[2]


def test_the_last_share_stays_until_a_person_raises_it(shop: Service) -> None:
    given = {**RAMP, "steps": {"ramp": "linear", "increment": 20, "every": "1ms", "max": 40}}
    shop.play(**given)
    for _again in range(2):
        rollout = shop.journal.open
        assert rollout and (rollout.name, rollout.phase) == ("step 2", Phase.PAUSED)
        assert shares(shop)["2"] == Fraction(40, 100)
        shop.play(**given)
    pass_(shop, given)
    assert shop.running == {"2": 10}


# Old instances on standby
# --------------------------------------------------------------------------------------------------

HOLD: dict[str, t.Any] = {
    "revision": "2",
    "replicas": 10,
    "strategy": "canary",
    "steps": [{"set_weight": 50}],
    "hold": "300ms",
}


def stages_of(given: dict[str, t.Any]) -> list[Stage]:
    return list(stages(strategy.parse(given), goal(10, 10)))


def test_a_canary_keeps_its_old_instances_for_a_while(shop: Service) -> None:
    for step in (begin, replaces, promote):
        shop.step(step, **HOLD)
    assert shares(shop) == {"2": 1} and shop.running == {"1": 10, "2": 10}
    stable = shop.journal.stable
    assert stable and stable.revision == "2"
    assert [s.name for s in stages_of(HOLD)][-2:] == ["hold", "retire"]
    shop.step(finish, **HOLD)
    assert shop.running == {"2": 10} and shop.journal.open is None and not shop.world.wrong


def test_a_rollback_from_standby_is_one_switch(shop: Service, tmp_path: Path) -> None:
    alarm = tmp_path / "alarm"
    asked = {"driver": "approval", "file": str(alarm), "interval": 0.1}
    given = {**HOLD, "hold": 60, "gates": {"rollback": [asked]}}
    for step in (begin, replaces, promote):
        shop.step(step, **given)
    alarm.touch()
    changes: list[tuple[dict[str, Fraction], int]] = []

    def note(call: str) -> None:
        if call == "apply after":
            changes.append((shares(shop), len(shop.world.alive())))

    shop.world.fails = note
    with pytest.raises(RolloutFailed, match="rollback requested by gate rollback 1"):
        shop.step(finish, **given)
    assert changes[0] == ({"1": 1}, 20)
    assert shop.running == {"1": 10} and not shop.world.wrong


def test_some_of_the_old_instances_stay(shop: Service) -> None:
    given = {**HOLD, "hold_replicas": "30%"}
    for step in (begin, replaces, promote):
        shop.step(step, **given)
    assert shares(shop) == {"2": 1} and shop.running == {"1": 3, "2": 10}


def test_while_it_is_paused_before_the_switch_the_shares_stay(shop: Service) -> None:
    given = {**HOLD, "gates": {"confirm_promotion": ASK}}
    shop.play(**given)
    assert shares(shop) == {"1": Fraction(1, 2), "2": Fraction(1, 2)}
    assert shop.running == {"1": 10, "2": 10}
    shop.say("promote")
    shop.say("pause")
    shop.play(**given)
    assert shares(shop) == {"1": Fraction(1, 2), "2": Fraction(1, 2)}


def test_no_old_instance_goes_that_is_to_stay() -> None:
    found = listed({"ramp": "geometric", "start": 40}, surge=3, hold="5m")
    assert [(s.waypoint.new, s.waypoint.old) for s in found] == [
        (12, 30),
        (24, 30),
        (30, 30),
        (30, 30),
        (30, 30),
        (30, 0),
    ]


def test_what_serves_before_a_switch_keeps_its_share_in_a_pause() -> None:
    switch = Waypoint(2, 4, 4, 4, 100, stable=1, weight_before=80)
    assert frozen([], switch).weight == 80
    assert frozen([], replace(switch, weight_before=0)).weight == 0  # as of blue-green


# How many there are, and what scales a service meanwhile
# --------------------------------------------------------------------------------------------------


def test_without_a_minimum_the_share_is_of_the_maximum() -> None:
    bounds = replicas({"min": 0, "max": 60}, "rollout_replicas")
    assert isinstance(bounds, Bounds) and bounds.of(0) == 60
    (first, *_others) = listed({"ramp": "geometric"}, 60, 15)
    assert (first.waypoint.weight, first.waypoint.new) == (10, 6)


def test_without_others_the_minimum_counts() -> None:
    service = Service(World(most=16, fewest=0))
    service.play(revision="1", replicas={"min": 16})
    assert service.running == {"1": 16}


@pytest.mark.slow
def test_its_own_instances_are_never_counted(shop: Service) -> None:
    given = {**RAMP, "replicas": "current"}
    for _turn in range(50):
        shop.play(**given)
        assert shop.running["2"] <= 10 and sum(shop.running.values()) <= 20
    assert (shop.journal.open or pytest.fail()).replicas == 10
    for number in range(3, 8):  # nor those of the rollout that gives way
        shop.play(**{**given, "revision": str(number), "supersede": True})
        assert (shop.journal.open or pytest.fail()).replicas == 10


def test_the_number_is_at_most_the_maximum(shop: Service) -> None:
    shop.world.most, shop.world.fewest = 40, 10
    scale(shop, 30)
    shop.play(revision="2", replicas={"min": 4, "max": 12})
    assert shop.running == {"2": 12}


def scale(shop: Service, number: int) -> None:
    """Something else starts instances of the stable revision, as an autoscaler does."""
    world = shop.world
    for port in range(50, 50 + number - len(world.alive())):
        some = next(iter(world.alive()))
        name = f"shop-{port}"
        endpoint = some.labels.endpoint._replace(port=port)
        labels = replace(some.labels, id=name, endpoint=endpoint, slot=port)
        assert isinstance(labels, Labels)
        world.instances[name] = Report(labels, Process.RUNNING, some.created)
        world.servers[endpoint] = Server(Rotation.IN, True, 0, 100)


def test_nothing_that_was_scaled_up_is_cut_before_the_new_revision_serves(shop: Service) -> None:
    shop.world.most = 60
    scale(shop, 30)
    shop.world.fewest = 30
    given = {**RAMP, "replicas": 10, "steps": [{"set_weight": 20}, {"pause": {}}]}
    shop.play(**given)
    assert shop.running["1"] == 30 and shares(shop)["2"] == Fraction(20, 100)
    shop.say("abort")
    with pytest.raises(RolloutFailed, match="abort"):
        shop.play(**given)
    assert shop.running == {"1": 30} and not shop.world.wrong


def test_what_runs_now_is_current(shop: Service) -> None:
    shop.world.most = 60
    scale(shop, 30)
    shop.play(revision="2", replicas="current")
    assert shop.running == {"2": 30}


def test_instances_that_failed_do_not_make_it_fewer(shop: Service) -> None:
    shop.world.fewest = 0
    for name in list(shop.world.instances)[:4]:
        shop.world.instances[name] = replace(shop.world.instances[name], process=Process.FAILED)
    shop.play(revision="2", replicas="current")
    assert shop.running == {"2": 10}


# What carries the requests
# --------------------------------------------------------------------------------------------------


class Late(Traffic):
    """Load balancers that show what they were told only when they are asked again, and that note
    the share that they are told, with what was ready.
    """

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.old: dict[t.Any, Server] | None = None
        self.told: list[tuple[Fraction, int, bool]] = []

    def observe(self) -> t.Any:
        shown, self.old = self.old, None
        return {"lb": shown} if shown is not None else super().observe()

    def apply(self, targets: t.Any) -> t.Any:
        confirmed, before = self.old is None, dict(self.world.servers)
        super().apply(targets)
        ports = {r.labels.endpoint: r.labels.revision for r in self.world.alive()}
        shown = {e: s for e, s in self.world.servers.items() if s.rotation is Rotation.IN}
        every = sum(server.weight for server in shown.values())
        new = sum(server.weight for e, server in shown.items() if ports.get(e) == "2")
        count = sum(1 for e in shown if ports.get(e) == "2")
        self.told.append((Fraction(new, every or 1), count, confirmed))
        self.old = before
        return {"lb": before}


def test_the_share_rises_after_what_carries_it_and_after_the_last_is_seen(
    shop: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = Late(shop.world)
    monkeypatch.setattr(shop.world, "traffic", lambda: late, raising=False)
    steps = {"ramp": "geometric", "start": 20, "every": "1ms", "ahead": True}
    shop.play(**{**RAMP, "steps": steps})
    assert shop.running == {"2": 10}
    highest = Fraction(0)
    for share, count, _seen in late.told:
        assert share <= Fraction(count, 10) + Fraction(1, 100), "more than what is ready carries"
        highest = max(highest, share)
    rises = [share for share, _count, _seen in late.told]
    assert highest == 1 and {Fraction(1, 5), Fraction(2, 5), Fraction(4, 5)} <= set(rises)


@examples(200)
@given(
    desired=st.integers(1, 60),
    surge=st.integers(1, 60),
    unavailable=st.integers(0, 5),
    start=st.integers(1, 99),
    ahead=st.booleans(),
)
def test_each_share_has_the_instances_that_carry_it(
    desired: int, surge: int, unavailable: int, start: int, ahead: bool
) -> None:
    ramp = {"ramp": "geometric", "start": start, "every": 1, "ahead": ahead}
    plan = strategy.parse({"strategy": "canary", "steps": ramp})
    to = goal(desired, surge, min(unavailable, desired - 1))
    found = stages(plan, to)
    assert found == stages(plan, to), "asked twice, the answer is the same"
    for stage in found:
        point = stage.waypoint
        if 0 < (point.weight or 0) < 100:
            assert point.new >= carrying(desired, to.allowed, point.weight or 0)
            assert point.old >= carrying(desired, to.allowed, 100 - (point.weight or 0))
            assert point.new + point.old <= desired + surge


def test_nothing_is_lost_between_the_last_share_and_the_promotion(shop: Service) -> None:
    given = {**RAMP, "gates": {"confirm_promotion": ASK}}
    shop.play(**given)
    for _share in range(2):
        pass_(shop, given)
    for _again in range(3):
        rollout = shop.journal.open
        assert rollout and rollout.name == "step 3 ahead"
        assert shop.running["2"] == 10 and shares(shop)["2"] == Fraction(80, 100)
        shop.play(**given)


def test_an_alarm_counts_whatever_the_share(shop: Service, tmp_path: Path) -> None:
    alarm = tmp_path / "alarm"
    asked = {"driver": "approval", "file": str(alarm), "interval": 0.1}
    steps = [{"set_weight": 60}, {"pause": {}}]
    given = {**RAMP, "steps": steps, "gates": {"rollback": [asked]}}
    shop.play(**given)
    assert shares(shop)["2"] == Fraction(60, 100)
    alarm.touch()
    with pytest.raises(RolloutFailed, match="rollback requested by gate rollback 1"):
        shop.play(**{**given, "wait": 60})
    assert shop.running == {"1": 10}
