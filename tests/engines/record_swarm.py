# SPDX-License-Identifier: GPL-3.0-or-later
"""Record what a real Docker Swarm answers, for tests that have none:

    scripts/run python tests/engines/record_swarm.py

The swarm is that of `scripts/swarm up 3`. What is recorded is replayed by
tests/unit/test_swarm_recorded.py.
"""

from __future__ import annotations

import json
import time
import typing as t

from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    NOWHERE,
    Labels,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms import (
    _swarm_spec,
)
from ansible_collections.progressive.rollout.tests.engines.swarms import PLATFORM, ROOT, Swarm
from ansible_collections.progressive.rollout.tests.support.waiting import until

FOLDER = ROOT / "tests/support/recorded"
SERVICE = "recorded"
LABEL = [f"progressive.rollout.service={SERVICE}"]
KINDS: dict[str, dict[str, t.Any]] = {
    "running": {},
    "moved": {},
    "stopped": {},
    "rejected": {"image": "nowhere:9-{revision}"},
    "failed": {"command": ["/bin/sh", "-c", "exit 3"]},
    "ended": {"command": ["/bin/sh", "-c", "exit 3"], "restart": "none"},
    "pending": {"constraints": ["node.labels.zone == none"]},
    "starting": {
        "healthcheck": {"command": "false", "interval": "60s", "retries": 9},
    },
}


def main() -> None:
    """Write everything into one file, which is named after Docker's version."""
    swarm = Swarm()
    swarm.mend()
    api = swarm.api
    for kind in KINDS:
        api.create("services", spec(kind))
    until(lambda: running(swarm, "moved") and running(swarm, "stopped"), "all run", 60)
    home = running(swarm, "moved")[0]["NodeID"]
    drained = next(name for name, one in swarm.nodes().items() if one["ID"] == home)
    swarm.availability(drained, "drain")
    api.change("services", f"{SERVICE}-stopped", stop)
    time.sleep(12)
    answers = {
        "conflict": refused(swarm, f"/services/{SERVICE}-running/update?version=1", "running"),
        "exists": refused(swarm, "/services/create", "running"),
        "unknown": api.ask("GET", "/services/none"),
    }
    version = api.get("/version")["Version"]
    found = {
        "version": version,
        "services": api.get("/services", label=LABEL),
        "tasks": api.get("/tasks", label=LABEL),
        "nodes": [bare(one) for one in api.get("/nodes")],
        "answers": answers,
    }
    path = FOLDER / f"swarm-{version.partition('+')[0]}.json"
    path.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    swarm.mend()


def spec(kind: str) -> dict[str, t.Any]:
    given = {key: value for key, value in PLATFORM.items() if key != "driver"}
    options = _swarm_spec.OPTIONS.parse({**given, **KINDS[kind]}, "rollout_platform.")
    labels = Labels(f"{SERVICE}-{kind}", SERVICE, "1", 7, "", NOWHERE, 0)
    made = _swarm_spec.service(options, labels, 0)
    made["TaskTemplate"]["RestartPolicy"]["Delay"] = 4_000_000_000
    return made


def stop(found: dict[str, t.Any]) -> None:
    found["Mode"]["Replicated"]["Replicas"] = 0


def running(swarm: Swarm, kind: str) -> list[dict[str, t.Any]]:
    mine = swarm.api.find(f"/services/{SERVICE}-{kind}")["ID"]
    return [one for one in swarm.tasks(SERVICE) if one["ServiceID"] == mine]


def refused(swarm: Swarm, path: str, kind: str) -> tuple[int, t.Any]:
    return swarm.api.ask("POST", path, spec(kind))


def bare(node: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return a node without what fills pages and means nothing to us."""
    return {**node, "Description": {"Hostname": node["Description"]["Hostname"]}}


if __name__ == "__main__":
    main()
