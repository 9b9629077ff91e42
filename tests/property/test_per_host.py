# SPDX-License-Identifier: GPL-3.0-or-later
"""One instance on each host, with hosts that hang or are left out and instances that die: never two
new ones on a host, never more hosts without an available one than the budget says, and in the end
each host has one.
"""

from __future__ import annotations

import typing as t
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from types import SimpleNamespace

from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import PlatformError
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.loop.placement import (
    Placement,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.budget import Budget
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.evaluate import evaluate
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.exclusion import leaving
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.instances import (
    is_available,
    is_orphaned,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import (
    Composition,
    Instance,
    Phase,
    Process,
    Rotation,
    State,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.per_host import (
    OnePerHost,
    fitted,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.progress import (
    ProgressTracker,
    Rules,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import (
    Waypoint,
    rolling,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    Endpoint,
    Labels,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms._placement import place
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.record import (
    Record,
    Rollout,
)
from ansible_collections.progressive.rollout.tests.support.seeds import examples
from hypothesis import given
from hypothesis import strategies as st

OLD, NEW = 1, 2
budgets = st.one_of(
    st.tuples(st.integers(0, 3), st.integers(0, 3)).filter(any).map(lambda pair: Budget(*pair)),
    st.integers(1, 3).map(lambda number: Budget(max_in_flight=number)),
)
zones_of_hosts = st.lists(st.sampled_from("abc"), min_size=1, max_size=7)
events = st.dictionaries(
    st.integers(0, 25),
    st.tuples(
        st.sampled_from(["hangs", "answers", "exclude", "include", "dies"]), st.integers(0, 6)
    ),
    max_size=12,
)


class Fleet:
    """Old instances on each host: a new one is ready a turn after it was started."""

    def __init__(
        self, zones: Sequence[str], budget: Budget, crowds: Sequence[int] = (1,), wait: float = 0.0
    ) -> None:
        """`crowds`: how many old ones hosts have, over and over; `wait`: until one is available."""
        self.zones = {f"web{number}": zone for number, zone in enumerate(zones)}
        self.names = list(self.zones)
        marks = OnePerHost(self.zones)
        self.rules = Rules(progress_deadline=10_000, min_ready=wait, one_per_host=marks)
        self.budget, self.now, self.number = budget, 100.0, 0
        self.beside = budget.resolve(len(zones)).surge > 0
        self.ports = range(8100, 8100 + max(crowds) + self.beside)
        self.alive: dict[str, Instance] = {}
        self.silent: set[str] = set()
        stable = Composition("1", OLD, len(zones))
        self.rollout = Rollout("", "2", NEW, len(zones), "rolling", stable, 0.0, per_host=True)
        self.rollout.phase = Phase.PROGRESSING
        self.record = Record("shop", rollout=self.rollout)
        self.placement = Placement(
            t.cast("t.Any", self), t.cast("t.Any", self), t.cast("t.Any", self), budget
        )
        self.labels = {
            f"old-{host}-{copy}": Labels(
                f"old-{host}-{copy}", "shop", "1", OLD, host, Endpoint(host, 8100 + copy), 0
            )
            for number, host in enumerate(self.names)
            for copy in range(crowds[number % len(crowds)])
        }
        for name, labels in self.labels.items():
            old = Instance(name, "1", OLD, State.READY, 0.0, 1.0, Rotation.IN, True)
            self.alive[name] = replace(old, host=labels.host)

    # -- what the placement asks of platform, observer and session

    capabilities = SimpleNamespace(names_instances=False, has_hosts=True)

    def hosts(self) -> Sequence[str]:
        return self.names

    @property
    def reports(self) -> list[t.Any]:
        return [SimpleNamespace(process=Process.RUNNING, labels=one) for one in self.living()]

    def living(self) -> list[Labels]:
        return [self.labels[name] for name in self.alive]

    def place(
        self, count: int, taken: Collection[Labels], generation: int, among: Collection[str]
    ) -> Sequence[tuple[str, Endpoint, int]]:
        usable = [host for host in self.names if host in among]
        assert not self.silent.intersection(usable)
        addresses = {host: host for host in usable}
        return place(usable, addresses, self.ports, count, taken, generation, zones=self.zones)

    # -- what happens

    def start(self, labels: Labels) -> None:
        beside = [one for one in self.living() if one.host == labels.host]
        assert all(one.generation != labels.generation for one in beside), labels
        assert self.beside or not beside, labels
        assert labels.host not in self.rollout.excluded
        self.labels[labels.id] = labels
        self.alive[labels.id] = Instance(
            labels.id,
            labels.revision,
            labels.generation,
            State.STARTING,
            self.now,
            host=labels.host,
        )

    def ready(self, one: Instance, rotation: Rotation) -> Instance:
        since = one.ready_since or self.now
        return replace(
            one, state=State.READY, ready_since=since, lb_healthy=True, rotation=rotation
        )

    def befall(self, what: str, number: int) -> None:
        host, excluded = self.names[number % len(self.names)], self.rollout.excluded
        if what == "hangs":
            self.silent.add(host)
        elif what == "answers":
            self.silent.discard(host)
        elif what == "include":
            self.rollout.excluded = [name for name in excluded if name != host]
        elif what == "dies" and self.alive:
            del self.alive[sorted(self.alive)[number % len(self.alive)]]
        elif what == "exclude" and len({*excluded, host}) < len(self.names):
            self.rollout.excluded = sorted({*excluded, host})

    def seen(self) -> list[Instance]:
        for name in leaving(self.alive.values(), self.rollout.excluded):
            self.drained(name)
        for name, one in list(self.alive.items()):  # a host left out is not asked
            if one.host in self.rollout.excluded:
                del self.alive[name]
        self.record.away = dict.fromkeys(self.silent, [])
        return [
            replace(one, state=State.UNREACHABLE, silent_since=self.now)
            if one.host in self.silent
            else one
            for one in self.alive.values()
        ]

    def drained(self, name: str) -> None:
        self.alive[name] = replace(
            self.alive[name],
            state=State.DRAINING,
            draining_since=self.now,
            rotation=Rotation.OUT,
        )

    def covered(self, fleet: Sequence[Instance], without: Collection[str] = ()) -> set[str]:
        """The hosts with an available instance."""
        return {
            i.host for i in fleet if is_available(i, self.rules, self.now) and i.id not in without
        }

    def spare(self, fleet: Sequence[Instance], without: Collection[str]) -> list[str]:
        """The hosts with an old and a new available instance."""
        left = [i for i in fleet if is_available(i, self.rules, self.now) and i.id not in without]
        new = {i.host for i in left if i.generation == NEW}
        return [i.host for i in left if i.generation == OLD and i.host in new]

    def turn(self, asked: Waypoint, progress: ProgressTracker) -> ProgressTracker:
        fleet = self.seen()
        hosts = len(self.names) - len(self.rollout.excluded)
        point = fitted(asked, hosts)
        allowed = self.budget.resolve(point.desired)
        decision = evaluate(fleet, point, self.budget, self.rules, progress, self.now)
        assert not decision.failed, decision.failed
        before, after = self.covered(fleet), self.covered(fleet, decision.drain)
        assert len(after) >= min(len(before), hosts - allowed.unavailable), (before, after)
        if before != after:  # no host is emptied while another has an old instance to spare
            assert not self.spare(fleet, decision.drain), decision.drain
        self.now += 1
        for name in decision.retire:
            if self.alive[name].host not in self.silent:
                del self.alive[name]
        for name, one in list(self.alive.items()):
            if one.state is State.STARTING and one.host not in self.silent:
                self.alive[name] = self.ready(one, one.rotation)
        for name in decision.admit:
            self.alive[name] = replace(self.alive[name], rotation=Rotation.IN)
        for name in decision.drain:
            self.drained(name)
        try:
            starts = self.placement.starts(decision, point, "2", self.rollout, None)
        except PlatformError as exc:  # the loop tries again
            raise AssertionError from exc
        counted = [i for i in fleet if i.state.counted and not is_orphaned(i)]
        assert not starts or len(counted) + len(starts) <= point.desired + allowed.surge, starts
        for labels in starts:
            self.start(labels)
        self.reached = decision.reached
        return decision.progress

    def walk_through(
        self,
        events: dict[int, tuple[str, int]],
        point: Waypoint,
        progress: ProgressTracker,
    ) -> None:
        """Take turns in which these events happen, by their turn, and then those without any."""
        for turn in range(26):
            if turn in events:
                self.befall(*events[turn])
            progress = self.turn(point, progress)
        self.silent.clear()
        self.walk(point, progress)

    def walk(self, point: Waypoint, progress: ProgressTracker | None = None) -> None:
        progress = progress or ProgressTracker(self.now)
        for _dummy in range(60 + 30 * len(self.names)):
            progress = self.turn(point, progress)
            if self.reached:
                break
        assert self.reached, sorted((i.host, i.generation, i.state) for i in self.alive.values())


@given(
    zones_of_hosts,
    budgets,
    events,
    st.lists(st.integers(1, 3), min_size=1, max_size=3),
    st.sampled_from([0.0, 3.0]),
)
@examples(100)
def test_each_host_ends_with_one_new_instance(
    zones: list[str],
    budget: Budget,
    events: dict[int, tuple[str, int]],
    crowds: list[int],
    wait: float,
) -> None:
    fleet, progress = Fleet(zones, budget, crowds, wait), ProgressTracker(100.0)
    point = rolling(NEW, len(zones))
    fleet.walk_through(events, point, progress)
    included = set(fleet.names).difference(fleet.rollout.excluded)
    serving = [i.host for i in fleet.seen() if is_available(i, fleet.rules, fleet.now)]
    assert sorted(serving) == sorted(included)
    assert all(i.generation == NEW for i in fleet.alive.values())


@given(
    zones_of_hosts,
    budgets,
    st.integers(1, 7),
    st.lists(st.integers(1, 3), min_size=1, max_size=3),
    events,
)
@examples(100)
def test_a_canary_has_one_on_each_host_spread_over_zones(
    zones: list[str],
    budget: Budget,
    number: int,
    crowds: list[int],
    events: dict[int, tuple[str, int]],
) -> None:
    """No zone has two new instances more than another one that has hosts left for them, unless
    something happened.
    """
    fleet, new = Fleet(zones, budget, crowds), min(number, len(zones))
    point = Waypoint(NEW, new=new, old=len(zones) - new, desired=len(zones), stable=OLD)
    progress = ProgressTracker(100.0)
    fleet.walk_through(events, point, progress)
    included = set(fleet.names).difference(fleet.rollout.excluded)
    assert sorted(i.host for i in fleet.alive.values()) == sorted(included)
    hosts = Counter(fleet.zones.values())
    counts = Counter(fleet.zones[i.host] for i in fleet.alive.values() if i.generation == NEW)
    assert sum(counts.values()) == min(new, len(included))
    left = [counts[zone] for zone in hosts if counts[zone] < hosts[zone]]
    calm = not events and max(crowds) == 1
    assert not calm or not left or max(counts.values()) - min(left) <= 1, (hosts, counts)
