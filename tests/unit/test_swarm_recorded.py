# SPDX-License-Identifier: GPL-3.0-or-later
"""What real swarms have answered, by Docker's version: tests/engines/record_swarm.py has recorded
it.
"""

from __future__ import annotations

import json
import re
import typing as t

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import _http
from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import swarm as agent
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Process
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs import shapes
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import Report
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms import _swarm_tasks
from ansible_collections.progressive.rollout.tests.support.playbook import ROOT

RECORDED = {
    path.stem: json.loads(path.read_text())
    for path in sorted((ROOT / "tests/support/recorded").glob("swarm-*.json"))
}
RUNNING, STARTING = Process.RUNNING, Process.STARTING
INSTANCES = {  # process, detail, restarted, with an address
    "running": (RUNNING, "", False, True),
    "moved": (RUNNING, "", False, True),
    "stopped": (Process.STOPPED, "", False, False),
    "rejected": (STARTING, r"rejected: No such image: nowhere:9-1", True, False),
    "failed": (STARTING, r"failed: task: non-zero exit \(3\)", True, None),
    "ended": (Process.FAILED, r"failed: task: non-zero exit \(3\)", True, False),
    "pending": (STARTING, r"pending: no suitable node \(scheduling constraints", False, False),
    "starting": (STARTING, "", False, False),
}


@pytest.fixture(params=RECORDED)
def recorded(
    request: pytest.FixtureRequest, record_property: t.Callable[..., None]
) -> dict[str, t.Any]:
    record_property("replayed", f"Docker Swarm {request.param.partition('-')[2]}")
    return dict(RECORDED[request.param])


@pytest.fixture
def reports(recorded: dict[str, t.Any], monkeypatch: pytest.MonkeyPatch) -> dict[str, Report]:
    def ask(_socket: str, _method: str, path: str, *_more: t.Any) -> tuple[int, t.Any]:
        kind = path.rpartition("/")[2].partition("?")[0]
        return 200, {} if kind == "version" else recorded[kind]

    monkeypatch.setattr(_http, "ask", ask)
    seen = shapes.read(_swarm_tasks.Seen, agent.seen(agent.Api("/run/docker.sock"), "recorded"))
    found = _swarm_tasks.Reading("recorded").reports(seen, seen["now"])
    return {one.labels.id.partition("-")[2]: one for one in found}


def test_there_are_recordings() -> None:
    assert RECORDED


@pytest.mark.parametrize("kind", INSTANCES)
def test_an_instance_is_what_was_recorded(kind: str, reports: dict[str, Report]) -> None:
    process, detail, restarted, placed = INSTANCES[kind]
    found = reports[kind]
    assert (found.process, found.labels.generation) == (process, 7)
    assert re.search(f"^{detail}" if detail else "^$", found.detail), found.detail
    assert bool(found.restarts) is restarted
    assert placed is None or found.labels.endpoint.known is placed
    assert not found.labels.endpoint.address.startswith("0."), "a manager may not say its own"


def test_a_move_was_recorded(recorded: dict[str, t.Any], reports: dict[str, Report]) -> None:
    (drained,) = (
        one["Description"]["Hostname"]
        for one in recorded["nodes"]
        if one["Spec"]["Availability"] == "drain"
    )
    assert drained not in {one.labels.host for one in reports.values() if one.process is RUNNING}
    (service,) = (one for one in recorded["services"] if one["Spec"]["Name"] == "recorded-moved")
    assert reports["moved"].created > _swarm_tasks.seconds(service["CreatedAt"])


def test_what_is_refused_is_understood(recorded: dict[str, t.Any]) -> None:
    status, said = recorded["answers"]["conflict"]
    assert (status, agent.message(said)) == (500, "update out of sequence")
    status, said = recorded["answers"]["exists"]
    assert status == 409
    assert agent.message(said).startswith("name conflicts with an existing object")
    assert recorded["answers"]["unknown"][0] == 404
