# SPDX-License-Identifier: GPL-3.0-or-later
"""The stable revision of a service, where the fleet knows it better than the journal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from ...engine.budget import whole
from ...engine.model import UNKNOWN, Composition, Deployment, Instance, Process
from ...engine.shares import counted
from ..step.context import StepContext


def declare(step: StepContext) -> None:
    """Note what runs in place before the first rollout, where the variables say it.

    What tasks have deployed is known better.
    """
    record, declared = step.record, step.settings.adopt
    known = record.stable is not None and record.stable.revision != UNKNOWN
    if declared is None or not step.in_place or known or record.open:
        return
    reports = [report for report in step.loop.platform.sync() if report.labels.generation == 0]
    record.generation = max(record.generation, 1)
    replicas = step.loop.platform.capacity()
    record.stable = Composition(declared.revision, record.generation, replicas)
    record.deployed |= {
        report.labels.id: Deployment(declared.revision, record.generation, report.created)
        for report in reports
    }


def adopt(step: StepContext) -> None:
    """Rebuild a record without a stable revision from the labels of running instances."""
    record, fleet = step.record, step.loop.fleet
    present = [
        report.labels for report in step.loop.reports if report.process is not Process.STOPPED
    ]
    unmarked = step.loop.platform.capabilities.unmarked_generation
    generations = [labels.generation for labels in present]
    record.generation = max([record.generation, unmarked, *generations])
    record.serial = max(record.serial, highest(labels.id for labels in present))
    alive = [i for i in fleet if i.state.counted]
    if record.stable is None and record.open is None and alive:
        record.stable = _most_common(step, alive)
    if step.settings.adopt and record.open is None and not step.in_place:
        from .adopted import take  # before the first rollout alone

        take(step, step.settings.adopt)
    if record.stable and record.open is None:
        record.stable = replace(record.stable, replicas=_number(step, record.stable))


def highest(names: Iterable[str]) -> int:
    """Return the highest number of instances with these names; 0: none has one."""
    numbers = [name.rpartition("-")[2] for name in names]
    return max((int(number) for number in numbers if number.isdecimal()), default=0)


def _most_common(step: StepContext, alive: Iterable[Instance]) -> Composition:
    """Return the revision that most instances have, with the number that it needs."""
    revision, count = Counter(i.revision for i in alive).most_common(1)[0]
    generations = Counter(i.generation for i in alive if i.revision == revision)
    # Other revisions in rotation take their part of the requests: without them, more of this one
    # are needed.
    serving = [i for i in alive if i.in_rotation]
    mine = sum(i.weight for i in serving if i.revision == revision)
    needed = whole(count, mine, sum(i.weight for i in serving))
    return Composition(revision, generations.most_common(1)[0][0], _replicas(step, needed))


def _number(step: StepContext, stable: Composition) -> int:
    """Return the number of stable replicas that follows from what runs, where others may scale
    them.

    So no rollout begins, or is rolled back, with fewer than carry the requests. What the owner of a
    workload asks for there is the number, also where it was lowered.
    """
    platform = step.loop.platform
    if platform.capabilities.refills_places:
        return platform.replicas() or stable.replicas
    number = platform.asked()
    if number is not None:
        return number
    return max(stable.replicas, _replicas(step, running(step.loop.fleet, stable)))


def _replicas(step: StepContext, instances: int) -> int:
    """Return the number of replicas that so many instances are, over all targets."""
    targets = step.loop.targets
    return counted(instances, targets) if targets else instances


def running(fleet: Iterable[Instance], stable: Composition) -> int:
    """Return how many instances of the stable generation there are, without those that go."""
    return sum(
        i.generation == stable.generation and i.state.counted and i.draining_since is None
        for i in fleet
    )
