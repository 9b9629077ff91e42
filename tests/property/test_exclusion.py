# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts that are left out, with hosts that hang and instances that die at random: the rollout ends
on the others, nothing is placed on hosts left out, and nothing else is taken out below the floor.
"""

from __future__ import annotations

from dataclasses import replace

from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.budget import Budget
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.evaluate import evaluate
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.exclusion import (
    ends_service,
    leaving,
    most_at_once,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.instances import (
    is_available,
    is_orphaned,
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
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import rolling
from ansible_collections.progressive.rollout.tests.support.decisions import some
from ansible_collections.progressive.rollout.tests.support.seeds import examples
from hypothesis import given
from hypothesis import strategies as st

OLD, NEW = 1, 2
RULES = Rules(progress_deadline=10_000)
HOSTS = [f"web{number}" for number in range(1, 6)]
budgets = (
    st.tuples(st.integers(0, 3), st.integers(0, 3)).filter(any).map(lambda pair: Budget(*pair))
)
# by turn, what happens: a host hangs, answers again, is left out or brought back; one dies
events = st.dictionaries(
    st.integers(0, 25),
    st.tuples(
        st.sampled_from(["hangs", "answers", "exclude", "include", "dies"]), st.integers(0, 4)
    ),
    max_size=12,
)


class Fleet:
    """Instances on hosts with room for all of them: one is ready a turn after it was started."""

    def __init__(self, size: int) -> None:
        self.now, self.number = 100.0, 0
        self.alive: dict[str, Instance] = {}
        self.silent: set[str] = set()
        self.excluded: set[str] = set()
        for number in range(size):
            self.start(HOSTS[number % len(HOSTS)], OLD)
        for name, one in self.alive.items():
            ready = {"state": State.READY, "ready_since": 0.0, "lb_healthy": True}
            self.alive[name] = replace(one, rotation=Rotation.IN, **ready)  # type: ignore[arg-type]

    def start(self, host: str, generation: int) -> None:
        assert host not in self.excluded
        self.number += 1
        name = f"shop-{self.number}"
        state = State.STARTING
        self.alive[name] = Instance(name, "1", generation, state, self.now, host=host)

    def place(self, count: int) -> None:
        usable = [host for host in HOSTS if host not in self.excluded | self.silent]
        for _dummy in range(count if usable else 0):
            hosts = [one.host for one in self.alive.values()]
            self.start(min(usable, key=hosts.count), NEW)

    def befall(self, what: str, number: int) -> None:
        host = HOSTS[number]
        if what == "hangs":
            self.silent.add(host)
        elif what == "answers":
            self.silent.discard(host)
        elif what == "include":
            self.excluded.discard(host)
        elif what == "dies" and self.alive:
            del self.alive[sorted(self.alive)[number % len(self.alive)]]
        elif what == "exclude":
            excluded = self.excluded | {host}
            if len(excluded) < len(HOSTS) and not ends_service(self.seen(), excluded):
                self.excluded = excluded

    def seen(self) -> list[Instance]:
        """The fleet, with what does not answer, and with what is on hosts left out drained."""
        for name in leaving(self.alive.values(), self.excluded):
            one = replace(self.alive[name], draining_since=self.now, rotation=Rotation.OUT)
            self.alive[name] = replace(one, state=State.DRAINING)
        return [
            replace(one, state=State.UNREACHABLE, silent_since=self.now)
            if one.host in self.silent
            else one
            for one in self.alive.values()
        ]

    def turn(self, desired: int, budget: Budget, progress: ProgressTracker) -> ProgressTracker:
        fleet, allowed = self.seen(), budget.resolve(desired)
        decision = evaluate(fleet, rolling(NEW, desired), budget, RULES, progress, self.now)
        assert not decision.failed, decision.failed
        available = [i for i in fleet if is_available(i, RULES, self.now)]
        left = [i for i in available if i.id not in decision.drain]
        assert len(left) >= min(len(available), desired - allowed.unavailable)
        counted = [i for i in fleet if not is_orphaned(i)]
        assert decision.create == 0 or len(counted) + decision.create <= desired + allowed.surge
        self.now += 1
        for name in decision.retire:
            if self.alive[name].host not in self.silent:
                del self.alive[name]
        for name, one in list(self.alive.items()):
            if one.state is State.STARTING and one.host not in self.silent:
                ready = {"state": State.READY, "ready_since": self.now, "lb_healthy": True}
                self.alive[name] = replace(one, **ready)  # type: ignore[arg-type]
        for name in decision.admit:
            self.alive[name] = replace(self.alive[name], rotation=Rotation.IN)
        for name in decision.drain:
            one = replace(self.alive[name], draining_since=self.now, rotation=Rotation.OUT)
            self.alive[name] = replace(one, state=State.DRAINING)
        self.place(decision.create)
        self.reached = decision.reached
        return decision.progress


@given(st.integers(1, 9), budgets, events)
@examples(150)
def test_the_rollout_ends_without_the_hosts_that_are_left_out(
    size: int, budget: Budget, events: dict[int, tuple[str, int]]
) -> None:
    fleet, progress = Fleet(size), ProgressTracker(100.0)
    for turn in range(26):
        if turn in events:
            fleet.befall(*events[turn])
        progress = fleet.turn(size, budget, progress)
    for host in sorted(fleet.silent):  # what hangs is left out, unless it is all that serves
        fleet.befall("exclude", HOSTS.index(host))
    fleet.silent &= fleet.excluded
    for _dummy in range(30 + 15 * size):
        progress = fleet.turn(size, budget, progress)
        if fleet.reached:
            break
    assert fleet.reached
    serving = [i for i in fleet.seen() if is_available(i, RULES, fleet.now)]
    assert len(serving) == size and all(i.generation == NEW for i in serving)
    assert not fleet.excluded & {i.host for i in serving}


@given(st.integers(1, 50), st.integers(0, 50), st.booleans(), budgets)
def test_the_room_that_is_asked_for_is_what_the_budget_needs(
    replicas: int, kept: int, second_set: bool, budget: Budget
) -> None:
    most = most_at_once(replicas, kept, second_set, budget)
    assert most >= max(replicas, kept) + budget.resolve(max(replicas, kept)).surge
    assert not second_set or most >= replicas + kept


def test_hosts_are_not_left_out_while_no_other_instance_serves_at_all_load_balancers() -> None:
    """The only instance serves, also where the check of one load balancer fails."""
    (only,) = (replace(instance, host="web1") for instance in some(1))
    failing = replace(only, lb_healthy=False)
    partly = replace(failing, state=State.NOT_READY, served=True)
    other = replace(only, id="other", host="web2")
    for instance in (only, failing, partly):
        assert ends_service([instance], {"web1"})
        assert ends_service([instance, replace(other, lb_healthy=False)], {"web1"})
        assert not ends_service([instance, other], {"web1"})
    assert not ends_service([replace(partly, served=False)], {"web1"}), "it serves nowhere"
