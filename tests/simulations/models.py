# SPDX-License-Identifier: GPL-3.0-or-later
"""The sequential judge at its default settings, over whole analyses of traffic as in production.

`python tests/simulations/models.py [RUNS]` prints the tables of the page: how many analyses of each
model, and of each family of models, it fails.
`python tests/simulations/models.py drawn SEED MODELS RUNS` draws so many models of each family, and
prints the twenty of which it fails most analyses.
"""

from __future__ import annotations

import sys
import typing as t
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import numpy as np
from ansible_collections.progressive.rollout.plugins.plugin_utils.agents.access_log import (
    FINE,
    LEAST,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.analysis import judging, spec
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.threshold import (
    AnalysisPhase,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.metrics import load_balancer
from ansible_collections.progressive.rollout.tests.support import traffic_families, traffic_models
from ansible_collections.progressive.rollout.tests.support.traffic_models import (
    INTERVAL,
    Fleet,
    Latency,
    Requests,
    Traffic,
)

# As without any options, where the load balancers count both.
ERRORS, LATENCY = spec.parse(
    spec.OPTIONS.parse({}, "analysis."), "analysis", spec.standard(("errors", "latency"), False)
).metrics
WARM_UP = load_balancer.OPTIONS.parse({}, "metric.")["warm_up"]
GOOD = traffic_models.GOOD | traffic_models.GOOD_LATENCY | traffic_models.GOOD_REQUESTS
BAD = {
    **traffic_models.BAD,
    **traffic_models.BAD_LATENCY,
    **traffic_models.BAD_REQUESTS,
    **{name: traffic_families.family(name) for name in traffic_families.BAD_FAMILIES},
}
TROUBLES = {
    **traffic_families.TROUBLES,
    **{f"drawn: {name}": traffic_families.family(name) for name in traffic_families.FAMILIES},
}
MOST_ALARMS = 0.03  # of the analyses of any model
WORST = 20  # models drawn at random that are told
# families with models of which more analyses fail than `MOST_ALARMS`: tenants that stay
UNMET = ("sticky tenants",)
RUNS, RUNS_OF_REQUESTS = 400, 100  # analyses of a model for the table; single requests take long


@dataclass(frozen=True)
class End:
    """How an analysis ends."""

    failed: int | None  # the look after which the judge fails it; None: it does not
    asked: bool  # whether there is too little data after the last measurement: a person is asked


def found(drawn: Traffic | Latency | Requests, age: float = 0.0) -> int | None:
    """The look after which the judge fails an analysis; None: it does not."""
    return end_of(drawn, age).failed


def end_of(drawn: Traffic | Latency | Requests, age: float = 0.0) -> End:
    """How an analysis ends; of errors, where new instances began so many seconds before."""
    state: judging.State = {}
    lacking = waits = False
    metric, looks = ERRORS, errors_by_look(drawn, age) if isinstance(drawn, Traffic) else iter(())
    if isinstance(drawn, Latency):
        metric, looks = LATENCY, times_by_look(drawn)
    elif isinstance(drawn, Requests):
        metric, looks = LATENCY, requests_by_look(drawn)
    for number, look in enumerate(looks, 1):
        judged = judging.judge_result(metric, state, look)
        if judged.phase is AnalysisPhase.FAILED:
            return End(number, False)
        if waits or number <= (metric.limits.count or number):
            lacking, waits = judged.lacking, judged.waits
    return End(None, lacking)


def errors_by_look(drawn: Traffic, age: float = 0.0) -> t.Iterator[dict[str, t.Any]]:
    """What the load balancers counted in each look, of instances that began `age` s before, or with
    their first request.
    """
    ages = np.full(drawn.fleet.size, age)
    for requests, errors in zip(drawn.requests, drawn.errors, strict=True):
        ages = np.where((ages > 0) | (requests > 0), ages + INTERVAL, 0.0)
        counted = [
            {"requests": one, "errors": failed, "host": f"web{host}", "age": seconds}
            for one, failed, host, seconds in zip(
                requests.tolist(), errors.tolist(), drawn.fleet.host, ages.tolist(), strict=True
            )
        ]
        yield {"spans": [sides(drawn.fleet, counted)]}


def times_by_look(drawn: Latency) -> t.Iterator[dict[str, t.Any]]:
    """The samples of each look; new instances have some once they are warm."""
    hosts = {str(number): f"web{host}" for number, host in enumerate(drawn.fleet.host)}
    for look, seconds in enumerate(drawn.seconds.tolist(), 1):
        found = sides(drawn.fleet, [[one] for one in seconds])
        if look * INTERVAL < WARM_UP:
            found["new"] = {}
        yield {"samples": found, "hosts": hosts}


def requests_by_look(drawn: Requests) -> t.Iterator[dict[str, t.Any]]:
    """The times of single requests in each look; those of new instances once they are warm."""
    hosts = {str(number): f"web{host}" for number, host in enumerate(drawn.fleet.host)}
    for look, seconds in enumerate(drawn.seconds, 1):
        found = sides(drawn.fleet, [buckets(one) for one in seconds])
        if look * INTERVAL < WARM_UP:
            found["new"] = {}
        yield {"times": {**found, "hosts": hosts}}


def buckets(seconds: t.Any) -> dict[int, int]:
    """How many of them are in each bucket, as the agent counts them."""
    found, counts = np.unique(
        np.ceil(FINE * np.log2(np.maximum(seconds, LEAST))).astype(int), return_counts=True
    )
    return dict(zip(found.tolist(), counts.tolist(), strict=True))


def sides(fleet: Fleet, values: list[t.Any]) -> dict[str, dict[str, t.Any]]:
    """Values of instances, by side."""
    named = {str(number): value for number, value in enumerate(values)}
    return {
        "new": {name: one for name, one in named.items() if int(name) < fleet.new},
        "stable": {name: one for name, one in named.items() if int(name) >= fleet.new},
    }


def ends(
    model: Callable[[np.random.Generator], t.Any], dice: Random, runs: int
) -> list[int | None]:
    """The look after which each of so many analyses fails."""
    return [found(model(np.random.default_rng(dice.getrandbits(64)))) for _run in range(runs)]


def part(model: Callable[[np.random.Generator], t.Any], dice: Random, runs: int) -> float:
    """The part of the analyses that the judge fails."""
    return sum(end is not None for end in ends(model, dice, runs)) / runs


def row(name: str, runs: int | None = None) -> str:
    """The row of a model in the table."""
    requests = "requests: " in name
    runs = runs or (RUNS_OF_REQUESTS if requests else RUNS)
    failed = part((GOOD | BAD | TROUBLES)[name], Random(name), runs)
    return f"| {name} | {runs} | {100 * failed:.3g} % |"


def worst(seed: str, number: int, runs: int) -> list[tuple[int, str, str]]:
    """How many analyses fail of so many models of each family, the family, and the parameters."""
    failed = []
    for family, draw in traffic_families.FAMILIES.items():
        for one in range(number):
            dice = Random(f"{seed} {family} {one}")
            text, model = draw(np.random.default_rng(dice.getrandbits(64)))
            alarms = sum(end is not None for end in ends(model, dice, runs))
            failed.append((alarms, family, text))
    return sorted(failed, reverse=True)


def main() -> None:
    """Print the rows of all models, or the worst of those drawn."""
    if sys.argv[1:2] == ["drawn"]:
        seed, number, runs = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
        for alarms, family, text in worst(seed, number, runs)[:WORST]:
            print(f"{alarms} of {runs}: {family}: {text}")
        return
    for name in GOOD | BAD | TROUBLES:
        print(row(name, int(sys.argv[1]) if len(sys.argv) > 1 else None), flush=True)


if __name__ == "__main__":
    main()
