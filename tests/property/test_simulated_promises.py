# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulated world notices where a promise is broken: the product is broken on purpose."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping
from dataclasses import replace

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.loop import (
    fleet,
    timing,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.loop.actuator import (
    Actuator,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.loop.observer import (
    Snapshot,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.loop.preview import (
    PreviewPool,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.loop.reconcile_loop import (
    ReconcileLoop,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.loop.supervisor import (
    Supervisor,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.rollout.rollback import (
    Rollback,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine import evaluate
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.budget import (
    ResolvedBudget,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.fleet_count import (
    FleetCount,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import (
    Instance,
    Rotation,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.progress import Rules
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import Waypoint
from ansible_collections.progressive.rollout.plugins.plugin_utils.gates import pause
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import Report
from ansible_collections.progressive.rollout.plugins.plugin_utils.state import commands
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.record import (
    Record,
    Rollout,
)
from ansible_collections.progressive.rollout.tests.property.test_simulated_defects import GIVEN
from ansible_collections.progressive.rollout.tests.simulations.world import stories
from ansible_collections.progressive.rollout.tests.simulations.world.draws import FORCE, Story
from ansible_collections.progressive.rollout.tests.simulations.world.world import HOSTS, Fault, Life

WAITS = {"strategy": "canary", "steps": [{"set_weight": 50}, {"pause": {}}], "wait": 20}


def wrong(
    *faults: Fault, bad: t.Sequence[Life] = (Life(),), quiet: bool = False, **given: t.Any
) -> str:
    """Return which promise is not kept in a story with these faults."""
    variables = {**GIVEN, **given}
    later = {**variables, "supersede": True}
    story = Story(2040, variables, faults, bad, (), next_given=later, quiet=quiet)
    return stories.run(story).wrong


@pytest.mark.slow
def test_a_stable_instance_that_dies_in_a_wait_and_stays_dead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    death = Fault("instance killed", 5.0, 1.0)
    assert not wrong(death, **WAITS)
    monkeypatch.setattr(Waypoint, "repairs", property(lambda _waypoint: False))
    assert "died in a wait" in wrong(death, **WAITS)


def test_dead_instances_that_a_slow_host_still_removes(monkeypatch: pytest.MonkeyPatch) -> None:
    def ends() -> set[str]:
        """The hosts become busy at about the end of the rollout."""
        times = [at / 10 for at in range(60, 70)]
        return {wrong(*(Fault("host is busy", at, 40.0, host) for host in HOSTS)) for at in times}

    assert ends() == {""}
    monkeypatch.setattr(timing, "REMOVAL", 0.0)
    assert any("was not removed" in end for end in ends())


def test_an_abort_that_is_not_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    sent, obey = Fault("command", 5.0, 0.0, "abort"), Supervisor._obey
    assert not wrong(sent, **WAITS)

    def deaf(supervisor: Supervisor, command: Mapping[str, t.Any], text: str) -> bool:
        return command["word"] != "abort" and obey(supervisor, command, text)

    monkeypatch.setattr(Supervisor, "_obey", deaf)
    assert "abort was sent" in wrong(sent, **WAITS)


def test_a_hold_that_ends_early(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"strategy": "blue_green", "hold": "15s"}
    assert not wrong(**given)
    ask = pause.Driver.ask
    monkeypatch.setattr(
        pause.Driver, "ask", lambda driver, rollout, waited: ask(driver, rollout, 2 * waited)
    )
    assert "before the hold is over" in wrong(**given)


def test_a_good_revision_that_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"strategy": "blue_green"}
    assert not wrong(**given)
    monkeypatch.setattr(evaluate, "_may_switch", lambda _part: False)
    assert "nothing went wrong, and the rollout is rolled_back" in wrong(**given)


def test_a_drain_that_a_run_forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one before it was killed while an instance drained."""
    killed, load = Fault("dies before", 72), Record.load
    assert not wrong(killed)

    def forgets(service: str, data: Mapping[str, t.Any], where: str = "") -> Record:
        return load(service, {**data, "draining": {}}, where)

    monkeypatch.setattr(Record, "load", forgets)
    assert "has forgotten" in wrong(killed)


def test_an_action_before_its_decision_is_in_the_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not wrong()
    apply, commit = Actuator.apply, Actuator._commit
    decisions: list[t.Any] = []

    def act(actuator: Actuator, *args: t.Any, **kwargs: t.Any) -> None:
        apply(actuator, *args, **kwargs)
        commit(actuator, *decisions.pop())

    monkeypatch.setattr(Actuator, "_commit", lambda _actuator, *args: decisions.append(args))
    monkeypatch.setattr(Actuator, "apply", act)
    assert "the journal" in wrong()


def test_a_way_back_that_ends_before_it_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next run would complete it; requests would go to the bad revision until then."""
    sent, listed = Fault("command", 15.0, 0.0, "abort"), Rollback._stages
    assert not wrong(sent, **WAITS)
    monkeypatch.setattr(Rollback, "_stages", lambda *args: listed(*args)[:-1])
    assert "the rollout ends, and" in wrong(sent, **WAITS)


def test_failures_without_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    crashing = [Life(crash=0.0)]
    assert not wrong(bad=crashing, failure_limit=2)
    counted = evaluate.count_fleet
    monkeypatch.setattr(evaluate, "count_fleet", lambda *args: replace(counted(*args), failures=[]))
    assert "of its revision failed" in wrong(bad=crashing, failure_limit=2)


def test_more_are_started_than_may_still_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    crashing = [Life(start=5.0, crash=0.5 + number) for number in range(3)]
    given = {"budget": {"max_surge": 3, "max_unavailable": 0}}
    assert not wrong(bad=crashing, **given)
    monkeypatch.setattr(evaluate, "_may_fail", lambda wanted, *_args: max(0, wanted))
    assert "5: 1 are started beside 2 that start" in wrong(bad=crashing, **given)


def test_what_is_judged_bad_stays_though_others_carry_the_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent = Fault("command", 6.0, 0.0, "abort")
    given = {"replicas": 6, "headroom": 1.25}
    assert not wrong(sent, **given)
    monkeypatch.setattr(evaluate, "_judged_bad", lambda *_args: [])
    assert "14: judged bad, and not needed" in wrong(sent, **given)


def test_an_instance_is_stopped_that_gets_requests_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A load balancer has an older state again when its last request has ended."""
    restored = Fault("balancer restores", 5.8, 0.0, "lb1")
    assert not wrong(restored, quiet=True)
    may_stop = evaluate.can_stop

    def stops(instance: Instance, rules: Rules, now: float) -> bool:
        return may_stop(replace(instance, rotation=Rotation.OUT), rules, now)

    monkeypatch.setattr(evaluate, "can_stop", stops)
    assert "is stopped in rotation" in wrong(restored, quiet=True)


def test_a_switch_to_a_set_that_is_not_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless an operator forces it: then the rollout is promoted with what is ready."""
    waits = [Life(), Life(start=20.0)]
    forced = Fault("command", 5.0, 0.0, FORCE)
    given = {"strategy": "blue_green"}
    assert not wrong(bad=waits, **given)
    assert not wrong(forced, bad=waits, **given)
    reached = evaluate._is_reached

    def some_are_enough(count: FleetCount, waypoint: Waypoint, allowed: ResolvedBudget) -> bool:
        return reached(count, waypoint, allowed) or (waypoint.new_idle and count.new.arrived > 0)

    monkeypatch.setattr(evaluate, "_is_reached", some_are_enough)
    monkeypatch.setattr(evaluate, "_needed_to_switch", lambda _waypoint: 1)
    assert "6: reached with fewer" in wrong(bad=waits, **given)


PREVIEWED = {
    "strategy": "blue_green",
    "traffic": {"driver": "simulated", "preview": True},
    "gates": {"confirm_promotion": [{"driver": "simulated", "after": 15, "answer": "pass"}]},
    "wait": 20,
}


def test_new_instances_that_are_in_no_preview(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not wrong(**PREVIEWED)
    monkeypatch.setattr(PreviewPool, "apply", lambda *_args: None)
    monkeypatch.setattr(PreviewPool, "is_done", lambda *_args: True)
    assert "a gate is asked, and lb1 previews no shop-" in wrong(**PREVIEWED)


def test_a_preview_that_keeps_what_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = Fault("command", 10.0, 0.0, "abort")
    assert not wrong(sent, **PREVIEWED)
    presentable = Actuator._presentable

    def keeps(actuator: Actuator, snapshot: Snapshot) -> tuple[list[Report], set[str]]:
        actuator._session.record.draining, draining = {}, actuator._session.record.draining
        try:
            return presentable(actuator, snapshot)
        finally:
            actuator._session.record.draining = draining

    monkeypatch.setattr(Actuator, "_presentable", keeps)
    monkeypatch.setattr(fleet, "_shown", lambda instance, _entries: instance)
    wanted = property(lambda _pool: True, lambda _pool, _wanted: None)
    monkeypatch.setattr(PreviewPool, "wanted", wanted, raising=False)
    assert "is told to stop, and the preview of lb1 has it" in wrong(sent, **PREVIEWED)


def test_a_preview_that_is_not_looked_at_while_it_is_not_in_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its balancer returns to a state in which it had the instances that go back."""
    sent, restored = (
        Fault("command", 8.0, 0.0, "abort"),
        Fault("balancer restores", 9.5, what="lb1"),
    )
    given = {"replicas": 4, "traffic": {"driver": "simulated", "preview": True}}
    assert not wrong(sent, restored, bad=[Life(work=4)], **given)
    monkeypatch.setattr(timing, "UNUSED", 1e6)
    assert "the preview of lb1 has it" in wrong(sent, restored, bad=[Life(work=4)], **given)


def test_what_was_observed_a_while_ago_is_acted_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal takes its time for the decision."""
    late = [Fault("is slow", call, 8.0) for call in range(40, 60, 2)]
    assert not any(map(wrong, late))
    monkeypatch.setattr(timing, "OUTDATED", 1e6)
    assert any("by a look 8 s ago" in wrong(fault) for fault in late)


def test_a_host_that_is_brought_back_stays_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = Fault("command", 4.0, 0.0, "exclude"), Fault("command", 8.0, 0.0, "include")
    assert not wrong(*sent, **WAITS)
    listed = commands.left_out

    def keeps(rollout: Rollout, listing: t.Sequence[Mapping[str, t.Any]]) -> list[str]:
        return [*{*rollout.excluded, *listed(rollout, listing)}]

    monkeypatch.setattr(commands, "left_out", keeps)
    assert "is left out" in wrong(*sent, **WAITS)


def test_an_abort_that_only_stops_the_rollout(monkeypatch: pytest.MonkeyPatch) -> None:
    sent, obey = Fault("command", 5.0, 0.0, "abort"), Supervisor._obey
    assert not wrong(sent, **WAITS)

    def holds(supervisor: Supervisor, command: Mapping[str, t.Any], text: str) -> bool:
        return obey(supervisor, {**command, "word": "hold"}, text)

    monkeypatch.setattr(Supervisor, "_obey", holds)
    assert "abort was sent, and the rollout is held" in wrong(sent, **WAITS)


def test_instances_that_stay_on_a_host_that_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = Fault("command", 4.0, 0.0, "exclude"), Fault("command", 15.0, 0.0, "promote")
    assert not wrong(*sent, **WAITS)
    monkeypatch.setattr(ReconcileLoop, "_drain_excluded", lambda _loop, _fleet: False)
    told = wrong(*sent, **WAITS)
    assert "stays on web1" in told or "gets requests from" in told
