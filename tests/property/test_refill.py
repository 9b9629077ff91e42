# SPDX-License-Identifier: GPL-3.0-or-later
"""Platforms that fill places themselves: whatever ends by itself, and however many places there
are, a rollout gets where it goes, within its budget, and then leaves everything alone.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ansible_collections.progressive.rollout.plugins.plugin_utils.engine import refill
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.budget import Budget
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.evaluate import (
    Decision,
    evaluate,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.instances import (
    is_available,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import (
    Instance,
    Rotation,
    State,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.progress import (
    ProgressTracker,
    Rules,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import Waypoint
from hypothesis import event, given
from hypothesis import strategies as st

OLD, NEW = 1, 2
RULES = Rules(progress_deadline=10_000.0)


@dataclass
class Place:
    """A place and what is in it: an instance that starts, runs or ends, or none."""

    number: int
    generation: int = OLD
    since: int = -100
    ends: int | None = None  # when the instance is gone
    serial: int = 0

    def instance(self, now: int, start: int, going: set[str]) -> Instance:
        name = f"{self.number}/{self.serial}"
        if self.ends is not None:
            state = State.DRAINING
        elif name in going:
            state = State.DRAINING
        else:
            state = State.READY if now - self.since >= start else State.STARTING
        return Instance(
            name,
            str(self.generation),
            self.generation,
            state,
            created=float(self.since),
            ready_since=float(self.since + start) if state is State.READY else None,
            rotation=Rotation.IN if state is State.READY else Rotation.ABSENT,
            lb_healthy=True,
            draining_since=0.0 if state is State.DRAINING else None,
            precedence=self.number,
        )


@dataclass
class World:
    """Places, and what their platform fills them with."""

    places: list[Place]
    start: int
    stop: int
    template: int = OLD
    going: set[str] = field(default_factory=set)
    now: int = 0

    def fleet(self) -> list[Instance]:
        return [place.instance(self.now, self.start, self.going) for place in self.places]

    def step(self, waypoint: Waypoint, budget: Budget) -> Decision:
        """One iteration, and what it promises."""
        fleet = self.fleet()
        fitted = refill.fitted(waypoint, len(self.places))
        decision = evaluate(fleet, fitted, budget, RULES, ProgressTracker(0.0), float(self.now))
        assert not decision.failed
        assert (decision.create, decision.create_old) == (0, 0), "nothing is started beside others"
        available = {i.id for i in fleet if is_available(i, RULES, float(self.now))}
        left = len(available - set(decision.drain))
        floor = len(fleet) - budget.resolve(len(fleet)).unavailable
        assert left >= min(len(available), floor), "the budget"
        self.template = refill.next_generation(fleet, fitted)
        self.going.update(decision.drain)
        for place in self.places:
            if f"{place.number}/{place.serial}" in decision.retire and place.ends is None:
                place.ends = self.now + self.stop
        self.pass_time()
        return decision

    def pass_time(self) -> None:
        self.now += 1
        for place in self.places:
            if place.ends is not None and place.ends <= self.now:
                self.fill(place)

    def fill(self, place: Place) -> None:
        place.generation, place.since, place.ends = self.template, self.now, None
        place.serial += 1

    def resize(self, number: int) -> None:
        for one in range(len(self.places), number):
            self.places.append(Place(one, self.template, self.now, serial=1000 + self.now))
        del self.places[number:]


@st.composite
def waypoints(draw: st.DrawFn, places: int) -> Waypoint:
    """Of a canary, of the end, of a rollback, or of a pause anywhere."""
    new = draw(st.integers(0, places))
    back = draw(st.booleans())
    if back:
        return Waypoint(OLD, new=places, old=0, desired=places, stable=NEW)
    return Waypoint(NEW, new=new, old=places - new, desired=places, stable=OLD)


@given(st.data())
def test_a_rollout_arrives_and_then_leaves_everything_alone(data: st.DataObject) -> None:
    number = data.draw(st.integers(1, 7))
    generations = data.draw(st.lists(st.sampled_from([0, OLD, NEW]), min_size=7, max_size=7))
    places = [Place(one, generations[one]) for one in range(number)]
    world = World(places, data.draw(st.integers(0, 3)), data.draw(st.integers(0, 3)))
    waypoint = data.draw(waypoints(number))
    budget = Budget(0, data.draw(st.integers(1, 3)))
    for _step in range(data.draw(st.integers(0, 25))):
        world.step(waypoint, budget)
        trouble = data.draw(st.sampled_from(["none", "none", "ends", "more", "fewer"]))
        if trouble == "ends":
            world.fill(data.draw(st.sampled_from(world.places)))
        elif trouble in ("more", "fewer"):
            change = 1 if trouble == "more" else -1
            world.resize(max(1, min(9, len(world.places) + change)))
    for _step in range(200):
        if world.step(waypoint, budget).reached:
            break
    else:
        raise AssertionError(f"never at {waypoint}: {world.fleet()}")
    event("arrived")
    wanted = refill.fitted(waypoint, len(world.places))
    serials = [place.serial for place in world.places]
    for _step in range(20):
        world.step(waypoint, budget)
        assert world.template == (wanted.stable if wanted.old else wanted.generation)
    assert [place.serial for place in world.places] == serials, "nothing is replaced any more"
    generations = [place.generation for place in world.places]
    assert generations.count(wanted.generation) == wanted.new


@given(st.integers(2, 8), st.data())
def test_a_canary_takes_the_highest_numbers(number: int, data: st.DataObject) -> None:
    new = data.draw(st.integers(1, number - 1))
    world = World([Place(one) for one in range(number)], start=1, stop=1)
    waypoint: t.Any = Waypoint(NEW, new=new, old=number - new, desired=number, stable=OLD)
    for _step in range(200):
        if world.step(waypoint, Budget(0, data.draw(st.integers(1, 3)))).reached:
            break
    found = [place.number for place in world.places if place.generation == NEW]
    assert found == list(range(number - new, number))


def test_a_canary_that_is_replaced_comes_back_new() -> None:
    places = [Place(0), Place(1), Place(2, NEW)]
    waypoint = Waypoint(NEW, new=1, old=2, desired=3, stable=OLD)
    world = World(places, start=0, stop=1)
    assert refill.next_generation(world.fleet(), waypoint) == OLD
    world.going.add("2/0")
    assert refill.next_generation(world.fleet(), waypoint) == NEW
