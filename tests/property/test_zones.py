# SPDX-License-Identifier: GPL-3.0-or-later
"""The floor of each zone, in random rollouts in which instances die: no instance is taken out in a
zone that has no more to spare, and rollouts end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.budget import Budget
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.evaluate import evaluate
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
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.shares import (
    Target,
    counted,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import rolling
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.targets import divide
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.zones import ZoneFloor
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    Labels,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms._placement import place
from ansible_collections.progressive.rollout.tests.support.seeds import examples
from hypothesis import given
from hypothesis import strategies as st

OLD, NEW, PORTS = 1, 2, range(8100, 8140)
budgets = (
    st.tuples(st.integers(0, 4), st.integers(0, 4)).filter(any).map(lambda pair: Budget(*pair))
)
zones_of_hosts = st.lists(st.sampled_from("abc"), min_size=1, max_size=6)
deaths = st.dictionaries(st.integers(0, 20), st.integers(0, 20), max_size=5)


class Fleet:
    """Instances on hosts in zones: one is ready a turn after it was started."""

    def __init__(self, zones: Sequence[str], size: int, unavailable: int) -> None:
        self.zones = {f"web{number}": zone for number, zone in enumerate(zones)}
        self.rules = Rules(progress_deadline=10_000, zone_floor=ZoneFloor(self.zones, unavailable))
        self.unavailable, self.now, self.number = unavailable, 100.0, 0
        self.alive: dict[str, Instance] = {}
        self.labels: dict[str, Labels] = {}
        self.targets: Sequence[Target] = ()
        self.start(size, OLD, list(self.zones), well=True)

    def start(self, count: int, generation: int, hosts: Sequence[str], well: bool = False) -> None:
        taken = [self.labels[name] for name in self.alive]
        addresses = {host: host for host in hosts}
        places = place(hosts, addresses, PORTS, count, taken, generation, zones=self.zones)
        for host, endpoint, slot in places:
            self.number += 1
            name = f"shop-{self.number}"
            self.labels[name] = Labels(name, "shop", "1", generation, host, endpoint, slot)
            one = Instance(name, "1", generation, State.STARTING, self.now, host=host)
            self.alive[name] = self.ready(replace(one, rotation=Rotation.IN)) if well else one

    def ready(self, one: Instance) -> Instance:
        return replace(one, state=State.READY, ready_since=self.now, lb_healthy=True)

    def available(self) -> list[Instance]:
        return [i for i in self.alive.values() if is_available(i, self.rules, self.now)]

    def check_zones(self, drain: Sequence[str], desired: int) -> None:
        """Each zone keeps its share less what may be missing, or what it has if that is less."""
        parts = [(list(self.zones), desired)]
        if self.targets:
            each = -(-desired // len(self.targets))
            parts = [(sorted(target.hosts), each) for target in self.targets]
        for hosts, number in parts:
            names = {self.zones[host] for host in hosts}
            here = [i for i in self.available() if i.host in hosts]
            before = Counter(self.zones[i.host] for i in here)
            after = Counter(self.zones[i.host] for i in here if i.id not in drain)
            for zone in names:
                floor = number // len(names) - self.unavailable
                assert after[zone] >= min(before[zone], floor), (zone, before, after)

    def turn(self, desired: int, budget: Budget, progress: ProgressTracker) -> ProgressTracker:
        point, allowed = divide(rolling(NEW, desired), self.targets), budget.resolve(desired)
        fleet = list(self.alive.values())
        decision = evaluate(fleet, point, budget, self.rules, progress, self.now)
        assert not decision.failed, decision.failed
        self.check_zones(decision.drain, desired)
        available = self.available()
        left = [i for i in available if i.id not in decision.drain]
        assert len(left) >= min(len(available), point.desired - allowed.unavailable)
        self.now += 1
        for name in decision.retire:
            del self.alive[name]
        for name, one in self.alive.items():
            if one.state is State.STARTING:
                self.alive[name] = self.ready(one)
            if name in decision.admit:
                self.alive[name] = replace(self.alive[name], rotation=Rotation.IN)
            if name in decision.drain:
                self.alive[name] = replace(
                    one, state=State.DRAINING, rotation=Rotation.OUT, draining_since=self.now
                )
        for start in decision.starts:
            hosts = sorted(start.target.hosts) if start.target else list(self.zones)
            self.start(start.create, NEW, hosts)
        self.reached = decision.reached
        return decision.progress


def roll(fleet: Fleet, size: int, budget: Budget, deaths: dict[int, int]) -> None:
    progress = ProgressTracker(100.0)
    for turn in range(60 + 20 * size):
        if turn in deaths and fleet.alive:
            del fleet.alive[sorted(fleet.alive)[deaths[turn] % len(fleet.alive)]]
        progress = fleet.turn(size, budget, progress)
        if fleet.reached and turn > max(deaths, default=0):
            break
    assert fleet.reached, Counter((i.generation, fleet.zones[i.host]) for i in fleet.available())
    assert all(i.generation == NEW for i in fleet.alive.values())


@given(zones_of_hosts, st.integers(1, 12), budgets, st.integers(1, 3), deaths)
@examples(200)
def test_each_zone_keeps_its_floor_and_the_rollout_ends(
    zones: list[str], size: int, budget: Budget, unavailable: int, deaths: dict[int, int]
) -> None:
    roll(Fleet(zones, size, unavailable), size, budget, deaths)


@given(st.integers(1, 4), st.integers(2, 12), budgets, st.integers(1, 2), deaths)
@examples(100)
def test_each_zone_of_each_target_keeps_its_floor(
    hosts: int, size: int, budget: Budget, unavailable: int, deaths: dict[int, int]
) -> None:
    """What a target may not use of the budget, since its zones have no more, is for another."""
    fleet = Fleet(["a", "b"] * hosts + ["c"], 0, unavailable)
    names = sorted(fleet.zones)
    fleet.targets = [
        Target("eu", frozenset(names[::2]), Fraction(1)),
        Target("us", frozenset(names[1::2]), Fraction(1)),
    ]
    for target in fleet.targets:
        fleet.start(-(-size // 2), OLD, sorted(target.hosts), well=True)
    roll(fleet, counted(len(fleet.alive), fleet.targets), budget, deaths)


def test_a_zone_that_lacks_instances_loses_none() -> None:
    """Without the floor the oldest would go, wherever they are."""
    fleet = Fleet(["a", "a", "b", "b"], 8, 1)
    gone = [name for name, one in fleet.alive.items() if fleet.zones[one.host] == "a"][:1]
    for name in gone:
        del fleet.alive[name]
    fleet.start(3, NEW, list(fleet.zones), well=True)
    budget = Budget(3, 4)
    progress = ProgressTracker(100.0, old=7)
    free = evaluate(
        list(fleet.alive.values()),
        rolling(NEW, 8),
        budget,
        replace(fleet.rules, zone_floor=None),
        progress,
        fleet.now,
    )
    kept = evaluate(
        list(fleet.alive.values()), rolling(NEW, 8), budget, fleet.rules, progress, fleet.now
    )
    assert len(kept.drain) < len(free.drain)
    fleet.check_zones(kept.drain, 8)
