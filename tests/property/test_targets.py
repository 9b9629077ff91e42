# SPDX-License-Identifier: GPL-3.0-or-later
"""What holds for rollouts over several targets, whatever their sizes, factors and fleets are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.budget import (
    Budget,
    Percent,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.evaluate import (
    Decision,
    evaluate,
    limit,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.instances import (
    is_available,
    is_lost,
    is_serving,
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
    share,
    total,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import (
    InvalidSteps,
    Plan,
    RolloutTarget,
    Step,
    Wave,
    Waypoint,
    rolling,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.targets import (
    divide,
    stages,
)
from ansible_collections.progressive.rollout.tests.property.test_invariants import fleets, waypoints
from ansible_collections.progressive.rollout.tests.support.budgets import budgets, rules_
from ansible_collections.progressive.rollout.tests.support.seeds import examples
from hypothesis import given, reject
from hypothesis import strategies as st

factors = st.fractions(Fraction(1, 8), 8, max_denominator=8)


def targets_of(factors: Sequence[Fraction], own: bool = False) -> list[Target]:
    """Return a target for each factor, with load balancers of its `own` or without."""
    return [
        Target(f"t{number}", frozenset({f"h{number}"}), factor, frozenset({"lb"} if own else ()))
        for number, factor in enumerate(factors)
    ]


targets = st.lists(factors, min_size=1, max_size=5).map(targets_of)


@given(st.integers(0, 1000), targets)
@examples(100)
def test_all_targets_have_what_was_asked_for_and_hardly_more(
    count: int, found: list[Target]
) -> None:
    even = [replace(one, factor=Fraction(1)) for one in found]
    assert count <= total(count, even) <= count + len(found) - 1 or not count
    exact = Fraction(count, len(found)) * sum(one.factor for one in found)
    spare = sum(one.factor for one in found) + len(found)
    assert exact <= total(count, found) < exact + spare
    assert all(share(count, len(found), one.factor) >= 1 for one in found) or not count


@given(st.integers(0, 200), targets)
@examples(100)
def test_what_runs_is_counted_so_that_none_is_too_many(running: int, found: list[Target]) -> None:
    count = counted(running, found)
    assert total(count, found) >= running
    least = next(n for n in range(count + 1) if total(n, found) >= running)
    assert total(count, found) == total(least, found)


placed = st.tuples(
    fleets, st.lists(st.sampled_from(["h0", "h1", "h2", "h9"]), min_size=16, max_size=16)
).map(lambda both: [replace(i, host=host) for i, host in zip(both[0], both[1], strict=False)])


@given(
    placed, waypoints, st.lists(factors, min_size=3, max_size=3), budgets(), rules_, st.booleans()
)
@examples(100)
def test_a_decision_keeps_the_budget_of_all_targets_together(
    fleet: list[Instance],
    waypoint: Waypoint,
    factors: list[Fraction],
    budget: Budget,
    rules: Rules,
    own: bool,
) -> None:
    divided = divide(waypoint, targets_of(factors, own))
    progress = ProgressTracker(20.0, old=len(fleet))
    decision = evaluate(fleet, divided, budget, rules, progress, 31.0)
    if decision.failed:
        return
    allowed = budget.resolve(divided.desired)
    there = sum(
        i.state.counted
        and not (
            i.state is State.UNREACHABLE and i.draining_since is not None and not i.in_rotation
        )
        for i in fleet
    )
    made = decision.create + decision.create_old
    assert not made or there + made <= limit(divided, allowed)
    staying = [
        i
        for i in fleet
        if i.state.counted and i.state is not State.DRAINING and i.draining_since is None
    ]
    for fits in (lambda i: is_available(i, rules, 31.0) and not i.crashed, is_serving):
        short = Counter(before=0, after=0)
        for target, part in divided.parts:
            had = [i for i in staying if i.host in target.hosts and fits(i)]
            left = [i for i in had if i.id not in decision.drain]
            short["before"] += max(0, part.desired - len(had))
            short["after"] += max(0, part.desired - len(left))
        # each target keeps what it needs: what others have too many of is no use to it
        assert short["after"] <= max(short["before"], allowed.unavailable)
    made_at = Counter({s.target.name: s.create + s.create_old for s in decision.starts if s.target})
    assert made == made_at.total(), "each instance has a target"
    for target, part in divided.parts:
        # one that crashed, or whose host is lost, is replaced, and goes once enough others serve
        of_target = [
            i
            for i in staying
            if i.host in target.hosts
            and not i.crashed
            and not (is_serving(i) and is_lost(i, rules, 31.0))
        ]
        new = sum(i.generation == divided.generation for i in of_target)
        starts = sum(s.create for s in decision.starts if s.target == target)
        assert not starts or new + starts <= part.new


def steps_of(*steps: tuple[int | None, int | Percent | None]) -> tuple[Step, ...]:
    """The steps of a canary, each with a weight or a number of new instances."""
    return tuple(
        Step(f"step {number}", weight=weight, replicas=replicas)
        for number, (weight, replicas) in enumerate(steps)
    )


HALF = Percent(Decimal(50))
plans_of_waves = st.sampled_from(
    [
        Plan(),
        Plan(),
        Plan("canary", steps_of((20, None), (60, None))),
        Plan("canary", steps_of((50, None))),
        Plan("canary", steps_of((30, None), (100, None))),
        Plan("canary", steps_of((None, HALF))),
    ]
)


@given(
    plans_of_waves,
    st.lists(
        st.tuples(
            st.sampled_from([Fraction(1), Fraction(1), Fraction(2), Fraction(1, 2)]),
            st.integers(0, 8),
        ),
        min_size=1,
        max_size=4,
    ),
    st.booleans(),
    st.integers(1, 12),
    st.sampled_from([Budget(1, 0), Budget(0, 1), Budget(2, 1), Budget(max_in_flight=2)]),
    st.integers(0, 9),
    st.booleans(),
)
@examples(150)
def test_waves_get_there_one_after_the_other_and_all_go_back(
    plan: Plan,
    spread: list[tuple[Fraction, int]],
    evenly: bool,
    after: int,
    budget: Budget,
    bad_stage: int,
    own: bool,
) -> None:
    # 2: also where the instances are spread unevenly at first, and where fewer are asked for.
    found, world = targets_of([factor for factor, _there in spread], own), Fleet()
    running = sum(there for _factor, there in spread) or 1
    before = counted(running, found)
    for target, (_factor, there) in zip(found, spread, strict=True):
        world.populate(target, share(before, len(found), target.factor) if evenly else there)
    waves = tuple(Wave(one.name, one.name) for one in found)
    goal = RolloutTarget(2, after, budget.resolve(after), before=before, stable=1)
    try:
        listed = stages(replace(plan, waves=waves), goal, found)
    except InvalidSteps:
        reject()
    desired = [stage.waypoint.desired for stage in listed[:-1]]
    assert desired[0] >= total(before, found) and desired == sorted(desired), "capacity is kept"
    for stage in listed[:bad_stage]:
        here = next((n for n, one in enumerate(found) if stage.name.startswith(one.name)), None)
        world.wave = len(found) if here is None else here
        world.go(stage.waypoint, budget)
        for number, target in enumerate(found):
            on = Counter(i.generation for i in world.fleet if i.host in target.hosts)
            if here is None:
                assert on == {2: share(after, len(found), target.factor)}
            elif number > here:
                assert set(on) <= {1}, "a later wave is untouched"
            elif number < here:
                assert on[2] >= share(after, len(found), target.factor)
                assert not world.started[here, number, 1], "the old revision comes back"
    world.go(divide(rolling(1, before), found), budget)
    for one in found:
        on = Counter(i.generation for i in world.fleet if i.host in one.hosts)
        assert on == {1: share(before, len(found), one.factor)}, "every wave goes back"


class Fleet:
    """Instances that do what a decision says at once, one decision after the other."""

    def __init__(self) -> None:
        self.fleet: list[Instance] = []
        self.now, self.serial = 0.0, 0
        self.wave = 0  # which one is rolled out
        # instances by the wave they were started in, the number of their target, their generation
        self.started: Counter[tuple[int, int, int]] = Counter()

    def populate(self, target: Target, count: int, generation: int = 1) -> None:
        """Add instances that serve."""
        for _dummy in range(count):
            self.fleet.append(self._instance(generation, min(target.hosts), Rotation.IN))

    def go(self, waypoint: Waypoint, budget: Budget) -> None:
        """Go to a waypoint; no target has fewer, nor have all more, than the budget allows."""
        progress, allowed = ProgressTracker(self.now), budget.resolve(waypoint.desired)
        for _turn in range(40 + 12 * (waypoint.new + len(self.fleet))):
            self.now += 1
            decision = evaluate(self.fleet, waypoint, budget, Rules(), progress, self.now)
            assert not decision.failed, decision.failed
            if decision.reached:
                return
            progress = decision.progress
            before, serving = self.short(waypoint), self.serving(waypoint)
            self._do(decision, waypoint)
            assert self.short(waypoint) <= max(before, allowed.unavailable)
            least = waypoint.desired - allowed.unavailable
            assert self.serving(waypoint) >= min(serving, least), (
                "2: what is too much at one target serves in place of what another lacks"
            )
            assert not decision.starts or len(self.fleet) <= limit(waypoint, allowed)
        raise AssertionError(f"it does not get to {waypoint}: {decision.reasons}")

    def serving(self, waypoint: Waypoint) -> int:
        """How many instances serve, wherever they are; at a target with load balancers of its own,
        as far as it has use for them.
        """
        serving = Counter(i.host for i in self.fleet if i.rotation is Rotation.IN)
        for target, part in waypoint.parts:
            for host in target.hosts if target.balancers else ():
                serving[host] = min(serving[host], part.desired)
        return serving.total()

    def short(self, waypoint: Waypoint) -> int:
        """How many instances the targets lack, each by itself."""
        serving = Counter(i.host for i in self.fleet if i.rotation is Rotation.IN)
        return sum(
            max(0, part.desired - sum(serving[host] for host in target.hosts))
            for target, part in waypoint.parts
        )

    def _do(self, decision: Decision, waypoint: Waypoint) -> None:
        gone = {*decision.drain, *decision.retire}
        self.fleet = [
            replace(i, rotation=Rotation.IN) if i.id in decision.admit else i
            for i in self.fleet
            if i.id not in gone
        ]
        for start in decision.starts:
            assert start.target
            number = next(n for n, (one, _p) in enumerate(waypoint.parts) if one == start.target)
            for generation, count in (
                (waypoint.stable, start.create_old),
                (waypoint.generation, start.create),
            ):
                self.started[self.wave, number, generation] += count
                for _dummy in range(count):
                    host = min(start.target.hosts)
                    self.fleet.append(self._instance(generation, host, Rotation.OUT))

    def _instance(self, generation: int, host: str, rotation: Rotation) -> Instance:
        self.serial += 1
        return Instance(
            f"i{self.serial:04}",
            "r",
            generation,
            State.READY,
            created=self.now,
            ready_since=self.now,
            rotation=rotation,
            lb_healthy=True,
            host=host,
        )


# -- parts of a platform: hosts, and the pods of a cluster -----------------------------------------


@given(
    st.sampled_from([Fraction(1), Fraction(2), Fraction(1, 2)]),
    st.integers(2, 12),
    st.sampled_from([Budget(1, 0), Budget(0, 1), Budget(2, 1), Budget(max_in_flight=2)]),
    st.sampled_from(["vms", "cloud"]),
    st.integers(1, 20),
    st.integers(1, 30),
    st.booleans(),
)
@examples(60)
def test_floor_and_ceiling_hold_over_both_parts_while_one_is_away(
    factor: Fraction,
    replicas: int,
    budget: Budget,
    part: str,
    begin: int,
    turns: int,
    in_waves: bool,
) -> None:
    found = [
        Target("vms", frozenset({"web1", "web2"}), factor),
        Target("cloud", frozenset({"cloud"})),
    ]
    world = Parts(found)
    world.go(divide(rolling(1, replicas), found), budget)
    world.away, world.begin, world.end = part, world.now + begin, world.now + begin + turns
    waves = tuple(Wave(one.name, "", clusters=(one.name,)) for one in found) if in_waves else ()
    allowed = budget.resolve(replicas)
    goal = RolloutTarget(2, replicas, allowed, before=replicas, stable=1)
    for stage in stages(Plan(waves=waves), goal, found):
        world.go(stage.waypoint, budget)
    for one in found:
        there = Counter(i.generation for i in world.fleet if one.has(i.host))
        assert there == {2: share(replicas, 2, one.factor)}


class Parts(Fleet):
    """Of which one may be away: nothing is started or stopped there then."""

    def __init__(self, parts: Sequence[Target]) -> None:
        super().__init__()
        self.parts = {one.name: one for one in parts}
        self.away, self.begin, self.end = "", 0.0, 0.0

    def go(self, waypoint: Waypoint, budget: Budget) -> None:
        progress, allowed = ProgressTracker(self.now), budget.resolve(waypoint.desired)
        for _turn in range(100 + 12 * (waypoint.new + len(self.fleet))):
            self.now += 1
            seen = [self._seen(one) for one in self.fleet]
            decision = evaluate(seen, waypoint, budget, Rules(), progress, self.now)
            assert not decision.failed, decision.failed
            if decision.reached:
                return
            progress = decision.progress
            before, serving = self._lacking(waypoint), self._answering
            started = self._act(decision, waypoint)
            assert self._lacking(waypoint) <= max(before, allowed.unavailable)
            assert self._answering >= min(serving, waypoint.desired - allowed.unavailable), (
                "2: what is too much at one part serves in place of what is away"
            )
            # what was taken out of rotation where nothing answers is stopped when it does again
            counted = [i for i in self.fleet if i.draining_since is None]
            assert not started or len(counted) <= limit(waypoint, allowed)
        raise AssertionError(f"it does not get to {waypoint}: {decision.reasons}")

    def _gone(self, host: str) -> bool:
        part = self.parts.get(self.away)
        return bool(part and part.has(host) and self.begin <= self.now < self.end)

    def _seen(self, instance: Instance) -> Instance:
        if self._gone(instance.host):
            return replace(instance, state=State.UNREACHABLE, ready_since=None)
        return instance

    @property
    def _answering(self) -> int:
        """How many instances answer and serve, in any part."""
        return sum(i.rotation is Rotation.IN and not self._gone(i.host) for i in self.fleet)

    def _lacking(self, waypoint: Waypoint) -> int:
        """How many instances that answer and serve the parts lack, each by itself."""
        serving = [i for i in self.fleet if i.rotation is Rotation.IN and not self._gone(i.host)]
        return sum(
            max(0, part.desired - sum(target.has(i.host) for i in serving))
            for target, part in waypoint.parts
        )

    def _act(self, decision: Decision, waypoint: Waypoint) -> bool:
        """Do what can be done now; return whether anything was started."""
        leaving = {*decision.drain, *decision.retire}
        kept = [
            replace(i, rotation=Rotation.OUT, state=State.DRAINING, draining_since=self.now)
            for i in self.fleet
            if i.id in leaving and self._gone(i.host)
        ]
        starts = tuple(
            one for one in decision.starts if one.target and not self._gone(min(one.target.hosts))
        )
        self._do(replace(decision, starts=starts), waypoint)
        self.fleet = [
            replace(i, host="cloud/node1") if i.host == "cloud" else i for i in self.fleet
        ] + kept
        return bool(starts)
