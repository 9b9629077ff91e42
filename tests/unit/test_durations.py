# SPDX-License-Identifier: GPL-3.0-or-later
"""A forecast is of the fleet as it is, by the times that instances took in this rollout."""

from __future__ import annotations

import typing as t
from dataclasses import replace

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.background.durations import (
    Durations,
    MedianTimes,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.budget import Budget
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.forecast import (
    forecast,
    observed,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import (
    Instance,
    Rotation,
    State,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.progress import Rules
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import rolling
from hypothesis import given
from hypothesis import strategies as st

NOW = 1000.0
STATES = [*(kind.value for kind in State), "gone"]


def state(instance: str, name: str, at: float) -> dict[str, t.Any]:
    return {"kind": "state", "instance": instance, "state": name, "at": at}


def durations(*events: dict[str, t.Any]) -> Durations:
    found = Durations()
    for event in events:
        found.take(event)
    return found


def test_what_instances_took_in_this_rollout_comes_before_what_they_took_in_the_last() -> None:
    before = MedianTimes(9.0, 3.0)
    assert durations().times() is None
    assert durations({"kind": "line", "text": "x", "at": 1.0}).times(before) == before
    one = durations(state("a", "starting", 1.0), state("a", "ready", 3.0))
    assert one.times(before) == MedianTimes(2.0, 3.0) and one.times() == MedianTimes(2.0, 0.0)
    two = durations(state("old", "ready", 0.0), state("old", "draining", 4.0))
    two.take(state("old", "stopped", 5.5))
    assert two.times(before) == MedianTimes(9.0, 1.5)
    assert two.times() is None  # a stop alone tells nothing of starts


def test_an_instance_in_place_takes_what_each_of_its_ways_took() -> None:
    """It was ready before it was drained, and starts after that."""
    events = [("ready", 0), ("draining", 30), ("stopped", 35), ("starting", 36), ("ready", 40)]
    again = [("draining", 100), ("ready", 101), ("draining", 200), ("gone", 203)]
    took = durations(*(state("a", name, float(at)) for name, at in events + again))
    assert took.times() == MedianTimes(4.0, 5.0)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(STATES), st.floats(0, 99))))
def test_no_instance_takes_less_than_no_time(seen: list[tuple[str, str, float]]) -> None:
    times = durations(*(state(*one) for one in seen)).times(MedianTimes(1.0, 1.0))
    assert times and min(times.start, times.stop) >= 0


def instance(name: str, generation: int, kind: State, age: float = 500.0) -> Instance:
    ready, drains = kind is State.READY, kind is State.DRAINING
    return Instance(
        name,
        str(generation),
        generation,
        kind,
        created=NOW - age,
        ready_since=NOW - age if ready else None,
        rotation=Rotation.IN if ready else Rotation.OUT,
        lb_healthy=ready,
        draining_since=NOW - age if drains else None,
    )


def left(*fleet: Instance, replicas: int = 2) -> float | None:
    path = [rolling(2, replicas)]
    return forecast(observed(fleet, NOW), path, Budget(1, 0), Rules(), 4.0, 2.0).seconds


@pytest.mark.parametrize(
    ("age", "seconds"),
    # what is left of the first start, then the drain of 2 s for the room that the second needs
    [(0.0, 4 + 2 + 4 + 2), (3.0, 1 + 2 + 4 + 2), (60.0, 0 + 2 + 4 + 2)],
)
def test_what_has_begun_takes_what_is_left_of_its_time(age: float, seconds: float) -> None:
    old = [instance("a", 1, State.READY), instance("b", 1, State.READY)]
    assert left(*old, instance("c", 2, State.STARTING, age)) == seconds
    ready = instance("c", 2, State.READY)
    assert left(ready, old[0], instance("b", 1, State.DRAINING, min(age, 2.0))) == (
        max(0.0, 2.0 - age) + 4 + 2
    )


def test_what_is_there_takes_nothing_and_what_has_ended_counts_for_nothing() -> None:
    new = [instance("c", 2, State.READY), instance("d", 2, State.READY)]
    assert left(*new) == 0
    assert left(*new, instance("e", 1, State.FAILED), instance("f", 1, State.STOPPED)) == 0


@pytest.mark.parametrize("rotation", list(Rotation))
def test_what_is_ready_is_in_service_soon_wherever_the_load_balancers_have_it(
    rotation: Rotation,
) -> None:
    fresh = replace(instance("c", 2, State.READY), rotation=rotation, lb_healthy=False)
    assert left(instance("d", 2, State.READY), fresh, instance("a", 1, State.READY)) == 2.0


@pytest.mark.parametrize("surge", [1, 10])
def test_the_rest_of_a_long_rollout_is_taken_to_go_on_at_the_same_pace(surge: int) -> None:
    fleet = observed([instance(str(number), 1, State.READY) for number in range(60)], NOW)
    path, budget = [rolling(2, 60)], Budget(surge, 0)
    whole = forecast(fleet, path, budget, Rules(), 4.0, 2.0).seconds
    part = forecast(fleet, path, budget, Rules(), 4.0, 2.0, looks=60 * 20).seconds
    assert whole and part == pytest.approx(whole, rel=0.25)
