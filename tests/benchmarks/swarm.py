# SPDX-License-Identifier: GPL-3.0-or-later
"""The same instances replaced on a real Docker Swarm, by this collection and by Swarm itself.

On the swarm of `scripts/swarm up 3`. Alone: scripts/run python tests/benchmarks/swarm.py
"""

from __future__ import annotations

import statistics
import time
import typing as t
from dataclasses import dataclass, field
from pathlib import Path

from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.forecast import ideal
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms._swarm_tasks import (
    ENDED,
    seconds,
)
from ansible_collections.progressive.rollout.tests.engines.swarms import (
    HOME,
    INVENTORY,
    PLATFORM,
    Swarm,
)
from ansible_collections.progressive.rollout.tests.support.playbook import Playground
from ansible_collections.progressive.rollout.tests.support.waiting import until

INSTANCES, SURGE, START = 20, 2, 2
Row = tuple[str, str, str]
LIVING = "most tasks at once, those that are ending included"
HEALTHY = "wget -q -O /dev/null http://127.0.0.1:8080/healthz"
NANO = 1_000_000_000


@dataclass
class Watch:
    """Tasks of one revision as they come, and how many of all there are at most."""

    swarm: Swarm
    image: str
    begun: float = field(default_factory=time.time)
    peak: int = 0
    tasks: list[dict[str, t.Any]] = field(default_factory=list)

    def look(self) -> None:
        found = self.swarm.api.get("/tasks")
        alive = [one for one in found if one["Status"]["State"] not in ENDED]
        self.peak = max(self.peak, len(alive))
        self.tasks = [
            one
            for one in alive
            if one["Spec"]["ContainerSpec"]["Image"] == self.image
            and one["Status"]["State"] == "running"
        ]

    def left(self) -> bool:
        """Whether others than those of the revision are there."""
        self.look()
        found = self.swarm.api.get("/tasks")
        return len([x for x in found if x["Status"]["State"] not in ENDED]) != len(self.tasks)


def rows(_folder: Path) -> list[Row]:
    """Measure both, where a swarm is up."""
    what = f"Docker Swarm, {INSTANCES} instances, start-up {START} s, surge {SURGE}"
    if not HOME.exists():
        return [(what, "not measured", "needs scripts/swarm up 3")]
    swarm = Swarm()
    try:
        swarm.mend()
        own = _native(what, swarm)
        swarm.mend()
        return [*own, *_ours(what, swarm)]
    finally:
        swarm.mend()


def _ours(what: str, swarm: Swarm) -> list[Row]:
    """A rolling rollout, without Ansible's start."""
    given = {
        "rollout_platform": {**PLATFORM, "env": {"START": str(START)}},
        "rollout_replicas": INSTANCES,
        "rollout_budget": {"max_surge": SURGE, "max_unavailable": 0},
        "rollout_health": {"http": "/healthz", "interval": "250ms", "rise": 1},
        "rollout_progress_deadline": "120s",
    }
    with Playground(1, given, INVENTORY) as playground:
        outcome = playground.run()
        assert outcome.rc == 0, outcome.output
        watch = Watch(swarm, "docker.io/local/shop:2")
        run = playground.start(variables={"rollout_revision": "2"})
        while run.process.poll() is None:
            watch.look()
            time.sleep(0.3)
        outcome = run.wait()
        assert outcome.rc == 0, outcome.output
        events = playground.timeline(outcome.rollout["id"])
    starts = spans(events, "2", "starting", "ready")
    stops = spans(events, "1", "draining", "stopped")
    took = outcome.rollout["elapsed"]
    return [
        (f"{what}, by a rollout: median of created to ready", median(starts), ""),
        ("median of asked to stop to gone", median(stops), ""),
        (
            "until the old ones are gone, over the ideal with those that are ending in the budget",
            f"{took / ideal(starts, stops, SURGE):.2f}",
            "at most 1.10",
        ),
        (f"{LIVING}", f"{watch.peak}", f"at most {INSTANCES + SURGE}"),
    ]


def spans(events: list[dict[str, t.Any]], revision: str, begin: str, end: str) -> list[float]:
    """How long the instances of a revision were seen from one state to another."""
    seen: dict[tuple[str, str], float] = {}
    for one in events:
        if one["kind"] == "state" and one.get("revision") == revision:
            seen.setdefault((one["instance"], one["state"]), one["at"])
    names = [name for name, state in seen if state == end and (name, begin) in seen]
    return [seen[name, end] - seen[name, begin] for name in names]


def _native(what: str, swarm: Swarm) -> list[Row]:
    """Swarm's own update of one service, which waits for a check of each container."""
    container = {
        "Image": "docker.io/local/shop:1",
        "Env": [f"START={START}"],
        "StopGracePeriod": 5 * NANO,
        "Healthcheck": {"Test": ["CMD-SHELL", HEALTHY], "Interval": 3 * NANO, "Retries": 9},
    }
    spec: dict[str, t.Any] = {
        "Name": "own",
        "TaskTemplate": {"ContainerSpec": container},
        "Mode": {"Replicated": {"Replicas": INSTANCES}},
        "UpdateConfig": {"Parallelism": SURGE, "Order": "start-first", "Monitor": NANO // 100},
    }
    swarm.api.create("services", spec)
    old = Watch(swarm, "docker.io/local/shop:1")
    until(lambda: old.look() or len(old.tasks) == INSTANCES, "the first revision runs", 300)

    def newer(spec: dict[str, t.Any]) -> None:
        spec["TaskTemplate"]["ContainerSpec"]["Image"] = "docker.io/local/shop:2"

    watch = Watch(swarm, "docker.io/local/shop:2")
    swarm.api.change("services", "own", newer)
    until(lambda: watch.look() or len(watch.tasks) == INSTANCES, "the second revision runs", 300)
    ready = time.time() - watch.begun
    until(lambda: not watch.left(), "the first revision is gone", 120)
    gone = time.time() - watch.begun
    starts = [seconds(x["Status"]["Timestamp"]) - seconds(x["CreatedAt"]) for x in watch.tasks]
    shortest = ideal(starts, [], SURGE)
    return [
        (f"{what}: median of created to ready", median(starts), ""),
        (
            "by Swarm's own update: until all new ones are ready, over the ideal",
            f"{ready / shortest:.2f}",
            "",
        ),
        ("until the old ones are gone, over the ideal", f"{gone / shortest:.2f}", ""),
        (f"{LIVING}", f"{watch.peak}", ""),
    ]


def median(times: list[float]) -> str:
    return f"{statistics.median(times):.1f} s"


if __name__ == "__main__":
    for measurement, figure, goal in rows(Path()):
        print(f"{measurement}: {figure}  {goal}")
