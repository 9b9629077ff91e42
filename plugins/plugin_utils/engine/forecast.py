# SPDX-License-Identifier: GPL-3.0-or-later
"""Forecast a rollout in which nothing goes wrong: its time, and the most and fewest instances.
Pure, on a clock of its own.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from .budget import Budget
from .evaluate import Decision, evaluate
from .instances import is_available
from .model import Instance, Rotation, State, total
from .progress import ProgressTracker, Rules
from .strategy import Waypoint


@dataclass(frozen=True)
class Forecast:
    """A rollout without trouble. `seconds` is None where it cannot arrive."""

    seconds: float | None
    peak: int  # the most instances at once
    least: int  # the fewest available at once
    replaced: int


def ideal(starts: Sequence[float], stops: Sequence[float], width: int) -> float:
    """Return the shortest time of a sliding window of `width`.

    Each place in it starts an instance, stops the one it replaces, and takes the next.
    """
    ends = [0.0] * max(1, width)
    for index, start in enumerate(starts):
        heapq.heapreplace(ends, ends[0] + start + (stops[index] if index < len(stops) else 0.0))
    return max(ends)


def forecast(
    fleet: Sequence[Instance],
    path: Sequence[Waypoint],
    budget: Budget,
    rules: Rules,
    start: float,
    stop: float,
    *,
    looks: float = math.inf,
) -> Forecast:
    """Forecast a rollout of `fleet` along `path`, where an instance takes `start` seconds to be
    ready and `stop` to end.

    After so many `looks` at single instances, the rest is taken to go on at the same pace.
    """
    simulation = _Simulation(fleet, path, budget, rules, start, stop)
    arrived = simulation.run(looks)
    return Forecast(
        simulation.seconds if arrived else None,
        simulation.peak,
        simulation.least,
        simulation.replaced,
    )


def settled(instance: Instance) -> Instance:
    """Return a ready instance that has been in rotation for long, as a forecast begins with."""
    return Instance(
        instance.id,
        instance.revision,
        instance.generation,
        State.READY,
        ready_since=float("-inf"),
        rotation=Rotation.IN,
        lb_healthy=True,
        host=instance.host,
    )


def observed(fleet: Iterable[Instance], now: float) -> list[Instance]:
    """Return the fleet as it is, on the clock of a forecast: 0 is now, what was before is less.

    What is not ready is taken to start, what is ready to pass the load balancers' checks, and what
    has ended or does not answer is left out.
    """
    instances = []
    for instance in fleet:
        since, place = instance.ready_since, Rotation.IN if instance.in_rotation else Rotation.OUT
        instance = replace(instance, created=instance.created - now, active=0, lb_healthy=True)
        if instance.state is State.READY:
            since = float("-inf") if since is None else since - now
            instances.append(replace(instance, ready_since=since, rotation=place))
        elif instance.state in (State.STARTING, State.NOT_READY):
            instances.append(replace(instance, state=State.STARTING, rotation=Rotation.OUT))
        elif instance.state is State.DRAINING:
            since = 0.0 if instance.draining_since is None else instance.draining_since - now
            instances.append(replace(instance, draining_since=since, rotation=Rotation.OUT))
    return instances


class _Simulation:
    """A fleet in which every instance becomes ready and ends in time."""

    def __init__(
        self,
        fleet: Iterable[Instance],
        path: Sequence[Waypoint],
        budget: Budget,
        rules: Rules,
        start: float,
        stop: float,
    ) -> None:
        self.budget = budget
        self.rules = rules
        self.start = start
        self.stop = max(stop, rules.settle)
        self.path = list(path)
        self.instances = {instance.id: instance for instance in fleet}
        self.clock, self.created, self.replaced = 0.0, 0, 0
        self.progress = ProgressTracker(0.0)
        self.alarms = list(self._under_way())  # when an instance becomes ready or ends
        heapq.heapify(self.alarms)
        self.cut = False  # whether the rest of the path is left out
        self.peak, self.least = 0, len(self.instances)

    def _under_way(self) -> Iterator[tuple[float, str]]:
        """Yield when what has begun will be over; what is late may be so at any moment."""
        for name, instance in self.instances.items():
            if instance.state is State.STARTING:
                yield max(0.0, instance.created + self.start), name
                self.instances[name] = replace(instance, created=max(instance.created, -self.start))
            elif instance.state is State.DRAINING and instance.draining_since is not None:
                yield max(0.0, instance.draining_since + self.stop), name

    @property
    def seconds(self) -> float:
        """How long the whole path takes: as long as it took, or at the same pace."""
        old = sum(
            instance.generation != self.path[-1].generation for instance in self.instances.values()
        )
        left = max(0, old - self.path[-1].old)
        return self.clock * (1 + left / self.replaced) if self.cut else self.clock

    def run(self, looks: float) -> bool:
        """Go along the path, or a part of it; return whether its end can be reached."""
        while True:
            looks -= len(self.instances)
            if looks < 0 and self.replaced:
                self.cut = True
                return True
            self._measure()
            fleet = list(self.instances.values())
            decision = evaluate(
                fleet, self.path[0], self.budget, self.rules, self.progress, self.clock
            )
            self.progress = decision.progress
            if decision.reached and len(self.path) > 1:
                self.path.pop(0)
                self.progress = ProgressTracker(self.clock)
            elif decision.reached or decision.failed:
                return decision.reached
            elif not self._act(decision) and not self._wait():
                return False

    def _measure(self) -> None:
        self.peak = max(self.peak, total(self.instances.values()))
        available = sum(is_available(i, self.rules, self.clock) for i in self.instances.values())
        self.least = min(self.least, available)

    def _act(self, decision: Decision) -> bool:
        """Do what a decision says; return whether there was anything but to stop instances,
        which end by alarm.
        """
        waypoint = self.path[0]
        for rotation, names in ((Rotation.IN, decision.admit), (Rotation.OUT, decision.standby)):
            for name in names:
                self.instances[name] = replace(self.instances[name], rotation=rotation)
        for name in decision.drain:
            # what makes room for a baseline: the baseline is, later
            self.replaced += not waypoint.is_baseline
            self.instances[name] = replace(
                self.instances[name],
                state=State.DRAINING,
                rotation=Rotation.OUT,
                draining_since=self.clock,
            )
            heapq.heappush(self.alarms, (self.clock + self.stop, name))
        for start in decision.starts:
            host = min(start.target.hosts) if start.target else ""
            self._launch([waypoint.generation] * start.create, host)
            self._launch([waypoint.stable] * start.create_old, host)
        return bool(
            decision.create
            or decision.create_old
            or decision.admit
            or decision.standby
            or decision.drain
        )

    def _launch(self, generations: Iterable[int], host: str) -> None:
        """Start an instance of each of these generations."""
        for generation in generations:
            self.created += 1
            name = f"+{self.created}"
            self.instances[name] = Instance(
                name, "", generation, State.STARTING, created=self.clock, host=host
            )
            heapq.heappush(self.alarms, (self.clock + self.start, name))

    def _wait(self) -> bool:
        """Advance the clock to the next change; return whether there is one."""
        ready = (i.ready_since for i in self.instances.values() if i.ready_since is not None)
        moments = [since + self.rules.min_ready for since in ready]
        moments = [moment for moment in moments if moment > self.clock]
        moments += [moment for moment, _name in self.alarms[:1]]
        if not moments:
            return False
        self.clock = min(moments)
        while self.alarms and self.alarms[0][0] <= self.clock:
            self._change(heapq.heappop(self.alarms)[1])
        return True

    def _change(self, name: str) -> None:
        """Make a starting instance ready, or a draining one end.

        One that was drained as it started has an alarm of each, and ends by the second.
        """
        instance = self.instances.get(name)
        if instance is None:
            return
        if instance.state is State.DRAINING:
            if (instance.draining_since or 0.0) + self.stop <= self.clock:
                del self.instances[name]
        else:
            self.instances[name] = replace(
                instance,
                state=State.READY,
                ready_since=self.clock,
                rotation=Rotation.OUT,
                lb_healthy=True,
            )
