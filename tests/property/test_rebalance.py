# SPDX-License-Identifier: GPL-3.0-or-later
"""Rebalancing: for random spreads it ends even, never leaves the budget, and moves no more than it
has to.

Instances are placed as the platforms with hosts place them, and moved as `evaluate` says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import PlatformError
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
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.rebalance import (
    LEAVING,
    instances_to_move,
    mark_leaving,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.shares import (
    Target,
    counted,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import (
    Waypoint,
    rolling,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.targets import divide
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    Endpoint,
    Labels,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms._placement import place
from hypothesis import assume, given
from hypothesis import strategies as st

GENERATION = 3
RULES = Rules(progress_deadline=1000)


@dataclass
class Fleet:
    """Instances of one generation on hosts with so many ports each. What is started takes a turn
    to be ready, so does what stops.
    """

    hosts: Sequence[str]
    ports: range
    zones: dict[str, str] = field(default_factory=dict)
    there: dict[str, Instance] = field(default_factory=dict)
    labels: dict[str, Labels] = field(default_factory=dict)
    now: float = 100.0
    moved: int = 0
    targets: Sequence[Target] = ()

    def add(self, host: str, endpoint: Endpoint, well: bool) -> None:
        name = f"shop-{len(self.labels) + 1}"
        rotation, since = (Rotation.IN, 0.0) if well else (Rotation.ABSENT, None)
        self.labels[name] = Labels(name, "shop", "1", GENERATION, host, endpoint, len(self.labels))
        state = State.READY if well else State.STARTING
        self.there[name] = Instance(
            name, "1", GENERATION, state, self.now, since, rotation, well, host=host
        )

    def place(
        self, target: Target | None, count: int, gone: Collection[str]
    ) -> list[tuple[str, Endpoint, int]]:
        leave = {*gone, *(i.id for i in self.there.values() if i.draining_since is not None)}
        taken = [
            replace(self.labels[name], generation=LEAVING if name in leave else GENERATION)
            for name in self.there
        ]
        hosts = [host for host in self.hosts if target is None or host in target.hosts]
        return place(
            hosts, {h: h for h in hosts}, self.ports, count, taken, GENERATION, zones=self.zones
        )

    def hosts_of(self, target: Target | None, count: int, gone: Collection[str]) -> list[str]:
        try:
            return [host for host, _endpoint, _slot in self.place(target, count, gone)]
        except PlatformError:
            return []

    def waypoint(self, desired: int) -> Waypoint:
        return divide(rolling(GENERATION, desired), self.targets)

    def leaving(self, desired: int) -> frozenset[str]:
        fleet = [*self.there.values()]
        return instances_to_move(fleet, self.waypoint(desired), self.hosts_of, self.zones)

    def counts(self) -> dict[str, int]:
        counted = Counter(i.host for i in self.there.values())
        return {host: counted[host] for host in self.hosts}

    def available(self) -> int:
        return sum(is_available(i, RULES, self.now) for i in self.there.values())

    def turn(
        self, desired: int, budget: Budget, progress: ProgressTracker
    ) -> tuple[bool, ProgressTracker]:
        """One turn; whether the walk has arrived."""
        gone = self.leaving(desired)
        decision = evaluate(
            mark_leaving([*self.there.values()], gone),
            self.waypoint(desired),
            budget,
            RULES,
            progress,
            self.now,
        )
        assert not decision.failed, decision.failed
        self.now += 1
        for name in decision.retire:
            del self.there[name]
        for name, one in list(self.there.items()):
            if one.state is State.STARTING:
                self.there[name] = replace(
                    one, state=State.READY, ready_since=self.now, lb_healthy=True
                )
        for name in decision.admit:
            self.there[name] = replace(self.there[name], rotation=Rotation.IN)
        for name in decision.drain:
            self.moved += 1
            out = {"state": State.DRAINING, "rotation": Rotation.OUT, "draining_since": self.now}
            self.there[name] = replace(self.there[name], **out)  # type: ignore[arg-type]
        for start in decision.starts:
            for host, endpoint, _slot in self.place(start.target, start.create, gone):
                self.add(host, endpoint, False)
        return decision.reached, decision.progress


def fleet_of(counts: Sequence[int], ports: int, zones: Sequence[str] = ()) -> Fleet:
    hosts = [f"web{number}" for number in range(1, len(counts) + 1)]
    fleet = Fleet(hosts, range(8100, 8100 + ports), dict(zip(hosts, zones, strict=False)))
    for host, count in zip(hosts, counts, strict=True):
        for port in fleet.ports[:count]:
            fleet.now += 1
            fleet.add(host, Endpoint(host, port), True)
    return fleet


def walk(fleet: Fleet, budget: Budget) -> None:
    """To the end, within the budget all along."""
    desired, progress = len(fleet.there), ProgressTracker(fleet.now)
    desired = counted(desired, fleet.targets) if fleet.targets else desired
    allowed = budget.resolve(desired)
    for _dummy in range(40 + 20 * desired):
        done, progress = fleet.turn(desired, budget, progress)
        assert len(fleet.there) <= desired + allowed.surge
        assert fleet.available() >= desired - allowed.unavailable
        if done:
            break
    else:
        raise AssertionError(f"it does not end: {fleet.counts()}")
    assert len(fleet.there) == desired == fleet.available()
    assert not fleet.leaving(desired)


counts = st.lists(st.integers(0, 6), min_size=1, max_size=6).filter(any)
budgets = (
    st.tuples(st.integers(0, 3), st.integers(0, 3)).filter(any).map(lambda pair: Budget(*pair))
)


def moves_needed(counts: Sequence[int]) -> int:
    """How many have to move, until the hosts differ by one at most."""
    least, more = divmod(sum(counts), len(counts))
    return sum(
        max(0, count - least - (place < more))
        for place, count in enumerate(sorted(counts, reverse=True))
    )


@given(counts, budgets)
def test_it_ends_even_within_the_budget_with_as_few_moves_as_it_takes(
    counts: list[int], budget: Budget
) -> None:
    fleet = fleet_of(counts, 20)
    walk(fleet, budget)
    after = fleet.counts().values()
    assert max(after) - min(after) <= 1
    assert fleet.moved == moves_needed(counts)


@given(counts, budgets)
def test_it_ends_where_ports_are_few(counts: list[int], budget: Budget) -> None:
    ports, desired = max(counts), sum(counts)
    assume(len(counts) * ports >= desired + budget.resolve(desired).surge)
    walk(fleet_of(counts, ports), budget)


@given(counts, budgets, st.lists(st.sampled_from("ab"), min_size=6, max_size=6))
def test_zones_are_evened_out_before_hosts(
    counts: list[int], budget: Budget, zones: list[str]
) -> None:
    fleet = fleet_of(counts, 40, zones)
    walk(fleet, budget)
    after = fleet.counts()
    near = Counter(dict.fromkeys(fleet.zones.values(), 0))
    for host, count in after.items():
        near[fleet.zones[host]] += count
    assert max(near.values()) - min(near.values()) <= 1
    for zone in near:
        mine = [count for host, count in after.items() if fleet.zones[host] == zone]
        assert max(mine) - min(mine) <= 1


@given(st.lists(st.integers(0, 4), min_size=2, max_size=3), st.integers(1, 3), budgets)
def test_each_target_is_evened_out_by_itself(
    counts: list[int], targets: int, budget: Budget
) -> None:
    assume(any(counts))
    fleet = fleet_of(counts * targets, 20)
    sizes = range(0, len(fleet.hosts), len(counts))
    groups = [fleet.hosts[first : first + len(counts)] for first in sizes]
    fleet.targets = [Target(hosts[0], frozenset(hosts)) for hosts in groups]
    walk(fleet, budget)
    assert fleet.moved == targets * moves_needed(counts)
    for hosts in groups:
        after = [fleet.counts()[host] for host in hosts]
        assert sum(after) == sum(counts) and max(after) - min(after) <= 1


@given(st.lists(st.integers(2, 3), min_size=1, max_size=6))
def test_nothing_moves_where_all_is_even(counts: list[int]) -> None:
    assert not fleet_of(counts, 20).leaving(sum(counts))


def test_the_oldest_of_the_most_crowded_host_goes_first() -> None:
    assert fleet_of([2, 4, 0], 20).leaving(6) == {"shop-3", "shop-4"}


@pytest.mark.parametrize(
    ("counts", "zones", "desired", "gone"),
    [
        ([3, 1, 1], {}, 3, {"shop-1", "shop-2"}),
        ([1, 2, 2], {}, 4, {"shop-2"}),
        # zones come before hosts
        ([2, 2, 2], {"web1": "a", "web2": "a", "web3": "b"}, 4, {"shop-1", "shop-3"}),
        ([2, 0], {}, 0, {"shop-1", "shop-2"}),
    ],
)
def test_more_than_are_wanted_leave_the_most_crowded_hosts(
    counts: list[int], zones: dict[str, str], desired: int, gone: set[str]
) -> None:
    fleet = fleet_of(counts, 20)
    fleet.zones = zones

    assert fleet.leaving(desired) == gone


def test_nothing_leaves_where_nothing_can_be_placed() -> None:
    fleet = fleet_of([4, 1], 20)
    assert fleet.leaving(5)
    assert not instances_to_move(
        [*fleet.there.values()], rolling(GENERATION, 5), lambda _target, _count, _gone: (), {}
    )


def test_one_whose_host_does_not_answer_does_not_move() -> None:
    fleet = fleet_of([3, 0], 20)
    fleet.there = {name: replace(one, state=State.UNREACHABLE) for name, one in fleet.there.items()}
    assert not fleet.leaving(3)
