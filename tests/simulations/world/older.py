# SPDX-License-Identifier: GPL-3.0-or-later
"""What an earlier version left behind (`tests/support/record_version.py`), in a simulated world."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import (
    Process,
    Rotation,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import (
    DriverContext,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    Endpoint,
    Labels,
)

from .drivers import Store
from .world import ADDRESSES, Entry, Life, World

RECORDED = Path(__file__).parents[2] / "support" / "recorded" / "versions"
NAMES = sorted(path.stem for path in RECORDED.glob("*.json"))
RECENT = 1.75e9  # seconds since the epoch; numbers above are times of a recording


def recording(name: str) -> dict[str, t.Any]:
    """Return what was recorded."""
    return t.cast(dict[str, t.Any], json.loads((RECORDED / f"{name}.json").read_text()))


def given(name: str) -> dict[str, t.Any]:
    """Return the variables of its rollout that belong to its plan."""
    variables = {
        name.removeprefix("rollout_"): value
        for name, value in recording(name)["variables"].items()
        if name != "rollout_revision"
    }
    budget = {"max_surge": 1, "max_unavailable": 0}
    return {"strategy": "rolling", "replicas": 3, "budget": budget, **variables}


def leave(world: World, name: str, drivers: t.Mapping[str, t.Any]) -> None:
    """Have the world as it was left: hosts, balancers and the journal. `drivers`: of this world, in
    place of those of the recording.
    """
    found = recording(name)
    found = _shifted(found, world.now - found["at"])
    for one in found["instances"]:
        at = Endpoint(ADDRESSES[one["host"]], one["port"])
        names = ("id", "service", "revision", "generation", "host", "slot")
        labels = Labels(**{key: one[key] for key in names}, endpoint=at)
        instance = world.begin(labels)
        instance.created, instance.life = one["created"], Life()
        instance.gone = Process.STOPPED if "ended" in one else None
    homes = {one["address"]: ADDRESSES[one["host"]] for one in found["instances"]}
    columns = found["servers"][1].removeprefix("# ").split()
    for line in found["servers"][2:]:
        server = dict(zip(columns, line.split(), strict=True))
        at = Endpoint(homes[server["srv_addr"]], int(server["srv_port"]))
        weight = int(server["srv_uweight"])
        inside = server["srv_admin_state"] == "0" and weight
        for balancer in world.balancers.values():
            rotation = Rotation.IN if inside else Rotation.OUT
            balancer.entries[at] = Entry(server["srv_name"], rotation, weight)
    world.stable = found["record"]["stable"]["generation"]
    _write(found, drivers)


def _write(found: dict[str, t.Any], drivers: t.Mapping[str, t.Any]) -> None:
    """Write the journal."""
    record, store = found["record"], Store({}, DriverContext("shop", t.cast(t.Any, None)))
    for settings in record.get("settings", {}).values():
        settings |= {"driver": drivers["platform"]["driver"], "platform": {}}
        settings["health"] = drivers["health"]
    for rollout in filter(None, [record.get("rollout"), *record["history"]]):
        if rollout.get("given"):
            rollout["given"] |= {key: drivers[key] for key in ("platform", "traffic", "health")}
    store.acquire("left", "an earlier version", 60, {}, above=found["lease"]["epoch"])
    for rollout, lines in found["timelines"].items():
        store.commit("left", 60, {**record, "id": rollout}, [json.loads(line) for line in lines])
    store.commit("left", 60, record)
    store.release("left")


def _shifted(value: t.Any, by: float) -> t.Any:
    """Return data with all its times moved."""
    if isinstance(value, dict):
        return {key: _shifted(one, by) for key, one in value.items()}
    if isinstance(value, list):
        return [_shifted(one, by) for one in value]
    if isinstance(value, str) and value.startswith('{"'):  # a line of a timeline
        return json.dumps(_shifted(json.loads(value), by))
    return value + by if isinstance(value, float) and value > RECENT else value
