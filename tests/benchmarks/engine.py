# SPDX-License-Identifier: GPL-3.0-or-later
"""What the engine takes for fleets of many sizes."""

from __future__ import annotations

import time
import typing as t
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.budget import (
    Budget,
    Percent,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.evaluate import evaluate
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.forecast import (
    forecast,
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
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.shares import Target
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import (
    Plan,
    RolloutTarget,
    Step,
    rolling,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.targets import stages
from ansible_collections.progressive.rollout.tests.benchmarks.history import Row
from ansible_collections.progressive.rollout.tests.benchmarks.rollouts import MEDIAN, STOP


def rows(_folder: Path) -> list[Row]:
    """One evaluate in the middle of a rollout, at three sizes, and a whole simulated one."""
    times = {size: _evaluate(size) for size in (1_000, 10_000, 100_000)}
    found = [
        (f"evaluate {size:,} instances", f"{seconds * 1000:.1f} ms", "")
        for size, seconds in times.items()
    ]
    found[-1] = (*found[-1][:2], "at most 150 ms")
    found.append(
        ("100k over 10k (linear is 10)", f"{times[100_000] / times[10_000]:.1f}", "about 10")
    )
    fleet = [_instance(number, 1) for number in range(100_000)]
    budget = Budget(Percent(Decimal(10)), 0)
    began = time.perf_counter()
    walked = forecast(fleet, [rolling(2, len(fleet))], budget, Rules(), MEDIAN, STOP)
    found.append(
        (
            "a simulated rollout of 100,000, surge 10 %",
            f"{time.perf_counter() - began:.1f} s, peak {walked.peak:,}",
            "",
        )
    )
    found.append(_regions(len(fleet), 50))
    return found


def _regions(size: int, regions: int) -> Row:
    """A simulated ramp over several targets at once."""
    targets = [Target(f"t{number}", frozenset({f"h{number}"})) for number in range(regions)]
    ramp = tuple(Step(f"{part} %", replicas=Percent(Decimal(part))) for part in (10, 20, 40, 80))
    budget = Budget(Percent(Decimal(10)), 0)
    goal = RolloutTarget(2, size, budget.resolve(size), before=size, stable=1)
    path = [stage.waypoint for stage in stages(Plan("canary", ramp), goal, targets)]
    fleet = [replace(_instance(n, 1), host=f"h{n % regions}") for n in range(size)]
    began = time.perf_counter()
    walked = forecast(fleet, path, budget, Rules(), MEDIAN, STOP)
    assert walked.seconds is not None and walked.replaced == size
    return (
        f"a simulated ramp of {size:,} over {regions} targets, surge 10 %",
        f"{time.perf_counter() - began:.1f} s, peak {walked.peak:,}",
        "",
    )


def _evaluate(size: int) -> float:
    fleet = [_instance(number, 1 + number % 2) for number in range(size)]
    waypoint, budget = rolling(2, size), Budget(size // 10, 0)
    return min(
        _timed(lambda: evaluate(fleet, waypoint, budget, Rules(), ProgressTracker(0.0), 10.0))
        for _turn in range(5)
    )


def _timed(call: t.Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _instance(number: int, generation: int) -> Instance:
    return Instance(
        f"i{number}",
        "r",
        generation,
        State.READY,
        created=number % 977,
        ready_since=0.0,
        rotation=Rotation.IN,
        lb_healthy=True,
    )
