# SPDX-License-Identifier: GPL-3.0-or-later
"""Walks of a fleet to waypoints that a test chooses: the real loop in a simulated world, with a
journal that the test opens its rollouts in.
"""

from __future__ import annotations

import math
import typing as t
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from random import Random
from unittest import mock

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    Interrupted,
    RolloutFailed,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.loop import timing
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.loop.stage_run import (
    run_stage,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.rollout.rollback import (
    Rollback,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import (
    Composition,
    Phase,
    Rotation,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import (
    Stage,
    Waypoint,
    timer,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    Endpoint,
    Labels,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms._placement import place
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.record import Rollout
from ansible_collections.progressive.rollout.tests.support.decisions import check_parts

from .machine import START, Machine
from .runs import DRIVERS, Run, Step, inside
from .world import ADDRESSES, BALANCERS, HOSTS, Balancer, Entry, Instance, Life, World

LONGEST = 7200.0  # seconds that a walk may take
LATE = 10.0  # seconds after its deadline in which a walk ends
TICK = 0.25  # seconds between two samples
POLL = (0.1, 0.5)  # as `timing.POLL`, with fewer looks at what is still the same
WELL = Life(start=0.05, stop=0.0, work=0.0)  # quick, since the loop looks again and again meanwhile


class Sample(t.NamedTuple):
    """What there is at a moment."""

    at: float  # seconds since the world began
    stable: int  # ready instances of revision 1
    serving: int  # at the load balancer where the fewest do


class Walks(World):
    """A service whose instances are of revision 1, and what is seen of its walks."""

    def __init__(
        self,
        running: int | Sequence[Life],
        surge: int | str = 1,
        unavailable: int | str = 0,
        *,
        new: Sequence[Life] = (WELL,),
        again: Sequence[Life] = (WELL,),
        balancers: int = 1,
        **given: t.Any,
    ) -> None:
        """`running`: how the instances behave that run already; `new`, `again`: over and over,
        those that are started of a new revision, and of revision 1; `given`: more variables.
        """
        super().__init__(Machine(Random(0)), [], self._life, 0, 99, Random(0))
        for name in BALANCERS[balancers:]:
            del self.balancers[name]
        self._old = [WELL] * running if isinstance(running, int) else list(running)
        self._new, self._again = new, again
        budget = {"max_surge": surge, "max_unavailable": unavailable}
        self._given = {**DRIVERS, "budget": budget, "progress_deadline": 60, **given}
        if not balancers:
            self._given["traffic"] = {"driver": "none"}
        self._run = Run(self, self.machine.process("walk"), "controller")
        self._waypoint: Waypoint | None = None  # of the present walk
        self._best, self._progressed = (0, 0, 0), START
        self.samples: list[Sample] = []
        self.peak, self.fewest = 0, 99  # the most instances at once, and the fewest that serve
        self._populate()
        self._tick()

    def _life(self, revision: str, number: int) -> Life:
        if revision != "1":
            return self._new[(number - 1) % len(self._new)]
        later = number - 1 - len(self._old)
        return self._old[number - 1] if later < 0 else self._again[later % len(self._again)]

    def _populate(self) -> None:
        """Let the instances of revision 1 be in rotation for long, but those that never answer."""
        places = place(HOSTS, ADDRESSES, range(8000, 8020), len(self._old), (), 1)
        for number, (host, endpoint, slot) in enumerate(places, 1):
            labels = Labels(f"shop-{number}", "shop", "1", 1, host, endpoint, slot)
            self.begin(labels).created -= 1000.0
            rotation = Rotation.IN if self._old[number - 1].start < math.inf else Rotation.OUT
            for balancer in self.balancers.values():
                balancer.entries[endpoint] = Entry(labels.id, rotation)
        self.stable = 1

    # -- the walks ---------------------------------------------------------------------------------

    def walk(self, waypoint: Waypoint, stays: float = 0.0, until: float = math.inf) -> None:
        """Walk to a waypoint, and stay there for so many seconds; raises RolloutFailed.

        The run is interrupted where the world is older than `until`.
        """
        self._do(partial(self._walk, waypoint, stays), until)

    def failure(self, waypoint: Waypoint, stays: float = 0.0) -> RolloutFailed:
        """Walk to a waypoint where this fails, or to stay there does, and return why."""
        with pytest.raises(RolloutFailed) as caught:
            self.walk(waypoint, stays)
        return caught.value

    def roll_back(self) -> None:
        """Roll the rollout of the last walk back to revision 1."""
        self._do(self._roll_back, math.inf)

    def _do(self, work: Callable[[], None], until: float) -> None:
        """Do it in the process of the run."""
        process = self._run.process
        process.interrupted = ""
        with inside(self, self.calls), mock.patch.object(timing, "POLL", POLL):
            job = self.machine.start(process, work, "main")
            if until < math.inf:
                signal = partial(self.machine.signal, process.pid)
                self.machine.at(START + until, lambda: None if job.done else signal())
            self.machine.wait_for(lambda: job.done or bool(self.wrong), job.waiters, LONGEST)
        self._waypoint = None
        assert not self.wrong, "\n".join((*self.lines[-50:], self.wrong))
        assert job.done, "4: a walk without an end"
        if isinstance(job.result, BaseException) and not isinstance(job.result, Interrupted):
            raise job.result

    def _walk(self, waypoint: Waypoint, stays: float) -> None:
        stage = Stage("walk", waypoint, (timer("stays", stays),) if stays else ())
        with Step(self._run, self._given, {}) as step:
            rollout = self._open(step, waypoint)
            self._bound(step, waypoint.desired, waypoint.enough)
            self.ceiling = max(self.ceiling, waypoint.new + waypoint.old)
            self.hidden = {str(waypoint.generation)} if waypoint.new_idle else set()
            self._waypoint, self._best, self._progressed = waypoint, (0, -99, 0), self.now
            run_stage(step.loop, stage, str(waypoint.generation), rollout, step.describe)
            self._check_reached(waypoint)

    def _open(self, step: Step, waypoint: Waypoint) -> Rollout:
        """Return the rollout that the walk belongs to, as the journal has it from now on."""
        step.begin()
        record, generation = step.record, waypoint.generation
        if not record.generation:
            record.stable = Composition("1", 1, len(self._old)) if self._old else None
            record.generation, record.serial = 1, len(self._old)
        rollout = record.open
        if rollout is None or generation not in (1, rollout.generation):
            record.generation, revision, desired = generation, str(generation), waypoint.desired
            rollout = record.rollout = Rollout(
                f"r{revision}", revision, generation, desired, "canary", record.stable, self.now
            )
        rollout.phase = Phase.ROLLING_BACK if generation == 1 else Phase.PROGRESSING
        rollout.asked, rollout.tally, rollout.gates = waypoint.weight, None, {}
        step.loop.commit()
        return rollout

    def _bound(self, step: Step, desired: int, enough: int) -> None:
        """Set what the budget allows on the way to so many, of which some are enough for all
        requests.
        """
        allowed = step.settings.budget.resolve(desired)
        self.floor = self.wanted = max(0, enough - allowed.unavailable)
        self.ceiling, self.unavailable = desired + allowed.surge, allowed.unavailable

    def _roll_back(self) -> None:
        with Step(self._run, self._given, {}) as step:
            step.begin()
            desired = len(self._old)
            self._bound(step, desired, math.ceil(desired / step.settings.headroom))
            Rollback(step).run(t.cast(Rollout, step.record.open))

    # -- what is seen ------------------------------------------------------------------------------

    @property
    def elapsed(self) -> float:
        """Seconds since the world began."""
        return self.now - START

    def of(self, generation: int) -> list[Instance]:
        """Return all instances of a generation that ever were, in the order of their start."""
        return [one for one in self.born.values() if one.labels.generation == generation]

    def begin(self, labels: Labels, lost: float | None = None) -> Instance:
        """An instance begins its life."""
        instance = super().begin(labels, lost)
        self.peak = max(self.peak, len(self.alive()))
        return instance

    def count(self, balancer: Balancer) -> None:
        """No walk depends on how many requests there were."""

    def check_shares(self, balancer: Balancer, before: Mapping[Endpoint, float]) -> None:
        """A balancer was changed: each instance gets the part that the waypoint asks for."""
        super().check_shares(balancer, before)
        self.fewest = min(self.fewest, len(self.serving(balancer)))
        point = self._waypoint
        if point is None or not point.weight or point.headroom is not None:
            return
        weights: dict[bool, list[int]] = {True: [], False: []}
        for at in self.rotating(balancer):
            entry = balancer.entries[at]
            generation = self.born[entry.name].labels.generation
            weights[generation == point.generation].append(entry.weight)
        new, old = weights[True], weights[False]
        if new and old:
            assert len(set(new)) == len(set(old)) == 1, "all of a side are alike"
            check_parts(point, len(new), len(old), Fraction(new[0], sum(new) + sum(old)))

    def rotating(self, balancer: Balancer) -> set[Endpoint]:
        """Return what a balancer has in rotation."""
        return {at for at, one in balancer.entries.items() if one.rotation is Rotation.IN}

    def _answering(self) -> set[str]:
        """Return the addresses of the hosts that answer the run."""
        hosts = self.hosts.values()
        return {ADDRESSES[one.name] for one in hosts if max(one.away, one.locked) <= self.now}

    def _sides(self, generation: int) -> tuple[set[Endpoint], set[Endpoint]]:
        """Return where instances of a generation live, and where all others do, as far as their
        hosts answer.
        """
        answering, sides = self._answering(), (set[Endpoint](), set[Endpoint]())
        for labels in (one.labels for one in self.alive()):
            if labels.endpoint.address in answering:
                sides[labels.generation != generation].add(labels.endpoint)
        return sides

    def _tick(self) -> None:
        """Keep what there is now. 5: the deadline counts from the last progress, or from when gates
        were waited for.
        """
        self.machine.at(self.now + TICK, self._tick)
        stable = sum(one.well(self.now) and self.reachable(one) for one in self.of(1))
        serving = min((len(self.serving(one)) for one in self.balancers.values()), default=0)
        self.samples.append(Sample(self.elapsed, stable, serving))
        self.fewest = min(self.fewest, serving)
        if self._waypoint is None:
            return
        new, old = self._sides(self._waypoint.generation)
        inside = set.union(set(), *map(self.rotating, self.balancers.values()))
        best = len(new & inside), -len(old), len(old & inside)
        best = tuple(map(max, best, self._best))
        if best != self._best or self.phase() == Phase.PAUSED:
            self._best, self._progressed = best, self.now
        if self.now - self._progressed > self._given["progress_deadline"] + LATE:
            self.broken("5: the walk goes on past its deadline")

    def _check_reached(self, waypoint: Waypoint) -> None:
        """6, 11: what the waypoint asks for is there, and in rotation or on standby."""
        new, old = self._sides(waypoint.generation)
        assert len(new) == waypoint.new, "6: as many new ones as the waypoint asks for"
        assert all(map(self.answers, new)), "6: all of them ready"
        assert len(old) <= waypoint.old, "11: no orphan instance"
        for balancer in self.balancers.values():
            inside, answering = self.rotating(balancer), self._answering()
            known = {at for at in balancer.entries if at.address in answering}
            assert known == new | old, "11: an entry for each instance, and no other"
            assert not inside & new if waypoint.new_idle else new <= inside, "6: in rotation"
            assert not waypoint.switches or inside <= new, "6: switched, and an old one serves"
