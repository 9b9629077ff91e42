# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a walk will be like if nothing goes wrong: how long, how high, how low. Pure; on a clock of its own."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.budget import Budget
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.evaluate import evaluate
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.instances import is_available
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Instance, Rotation, State, total
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.progress import ProgressTracker, Rules
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import Waypoint


@dataclass(frozen=True)
class Forecast:
    """Of a walk without trouble. `seconds` is None where the walk cannot arrive."""

    seconds: float | None
    peak: int  # the most instances at once
    least: int  # the fewest available at once
    replaced: int


def ideal(starts: Sequence[float], stops: Sequence[float], lanes: int) -> float:
    """The shortest a sliding window of `lanes` can take: each lane starts one, stops the one it replaces, takes the next."""
    ends = [0.0] * max(1, lanes)
    for index, start in enumerate(starts):
        heapq.heapreplace(ends, ends[0] + start + (stops[index] if index < len(stops) else 0.0))
    return max(ends)


def forecast(
    fleet: Sequence[Instance], path: Sequence[Waypoint], budget: Budget, rules: Rules, start: float, stop: float
) -> Forecast:
    """Walk `fleet` along `path` with instances that take `start` seconds to be ready and `stop` seconds to go."""
    left = list(path)
    there = {instance.id: instance for instance in fleet}
    clock, made, replaced, progress = 0.0, 0, 0, ProgressTracker(0.0)
    peak, least = total(fleet), sum(is_available(i, rules, clock) for i in fleet)
    alarms: list[tuple[float, str]] = []
    while True:
        now = list(there.values())
        peak, least = max(peak, total(now)), min(least, sum(is_available(i, rules, clock) for i in now))
        decision = evaluate(now, left[0], budget, rules, progress, clock)
        progress = decision.progress
        if decision.reached and len(left) > 1:
            left.pop(0)
            progress = ProgressTracker(clock)
            continue
        if decision.reached or decision.failed:
            return Forecast(clock if decision.reached else None, peak, least, replaced)
        for name in decision.admit:
            there[name] = replace(there[name], rotation=Rotation.IN)
        for name in decision.standby:
            there[name] = replace(there[name], rotation=Rotation.OUT)
        for name in decision.drain:
            replaced += not left[0].is_baseline  # what makes room for a baseline: the baseline is, later
            there[name] = replace(there[name], state=State.DRAINING, rotation=Rotation.OUT, draining_since=clock)
            heapq.heappush(alarms, (clock + max(stop, rules.settle), name))
        for generation in [left[0].generation] * decision.create + [left[0].stable] * decision.create_old:
            made += 1
            name = f"+{made}"
            there[name] = Instance(name, "", generation, State.STARTING, created=clock)
            heapq.heappush(alarms, (clock + start, name))
        if decision.create or decision.create_old or decision.admit or decision.standby or decision.drain:
            continue
        ready = [i.ready_since + rules.min_ready for i in there.values() if i.ready_since is not None]
        later = [moment for moment in ready if moment > clock]
        if not alarms and not later:
            return Forecast(None, peak, least, replaced)
        clock = min([*later, *(moment for moment, _name in alarms[:1])])
        while alarms and alarms[0][0] <= clock:
            _at(there, heapq.heappop(alarms)[1], clock)


def _at(there: dict[str, Instance], name: str, clock: float) -> None:
    """What was awaited of an instance happens: a starting one is ready, a draining one is gone."""
    instance = there[name]
    if instance.state is State.DRAINING:
        del there[name]
    else:
        there[name] = replace(instance, state=State.READY, ready_since=clock, rotation=Rotation.OUT, lb_healthy=True)
