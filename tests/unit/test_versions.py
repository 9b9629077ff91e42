# SPDX-License-Identifier: GPL-3.0-or-later
"""Rollouts that an earlier version began are continued by this one, from what that version left
behind (`tests/support/record_version.py`).
"""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible_collections.progressive.rollout.plugins.action import begin, rollback
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    RolloutFailed,
    StoreError,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import (
    Process,
    Rotation,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    Endpoint,
    Labels,
    Report,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.traffic import Server
from ansible_collections.progressive.rollout.tests.simulations.world.machine import Machine
from ansible_collections.progressive.rollout.tests.simulations.world.store import Journal
from ansible_collections.progressive.rollout.tests.support.memory import Service, World

RECORDED = Path(__file__).parents[1] / "support" / "recorded" / "versions"
VERSIONS = ("9a6312c", "f6ccc42")
OPEN = ("parked", "killed", "holding")
ENDED = ("finished", "rolled_back")
Recording = dict[str, t.Any]


def recording(version: str, scenario: str) -> Recording:
    return t.cast(Recording, json.loads((RECORDED / f"{version}-{scenario}.json").read_text()))


def left_behind(found: Recording) -> Service:
    """The service as a version left it: journal, instances and servers."""
    world = World(fewest=2, most=8)
    record = found["record"]
    for settings in record.get("settings", {}).values():
        settings["health"] = {}  # nothing answers in memory
    world.journals["shop"] = Journal(
        {
            "record": json.dumps(record).encode(),
            "lease": json.dumps(found["lease"]).encode(),
            "timelines": "\n".join(found["timelines"]).encode(),
            **{
                f"timeline/{rollout}/{0:012d}": "".join(f"{line}\n" for line in lines).encode()
                for rollout, lines in found["timelines"].items()
            },
        }
    )
    world.journals["shop"].versions |= dict.fromkeys(world.journals["shop"].texts, 1)
    for one in found["instances"]:
        place = Endpoint(one["address"], one["port"])
        names = ("id", "service", "revision", "generation", "host")
        labels = Labels(**{name: one[name] for name in names}, endpoint=place, slot=one["slot"])
        ended = Process.STOPPED if "ended" in one else Process.RUNNING
        world.instances[one["id"]] = Report(labels, ended, one["created"])
    columns = found["servers"][1].removeprefix("# ").split()
    for line in found["servers"][2:]:
        server = dict(zip(columns, line.split(), strict=True))
        weight = int(server["srv_uweight"])
        place = Endpoint(server["srv_addr"], int(server["srv_port"]))
        inside = server["srv_admin_state"] == "0" and weight
        rotation = Rotation.IN if inside else Rotation.OUT
        world.servers[place] = Server(rotation, True, 0, weight)
    given = {
        name.removeprefix("rollout_"): value
        for name, value in found["variables"].items()
        if name in ("rollout_strategy", "rollout_steps", "rollout_hold")
    }
    return Service(world, revision="2", replicas=3, **given)


@pytest.fixture(autouse=True)
def shortly_after(virtual_time: Machine) -> None:
    """It is a minute after the last recording: nothing is overdue."""
    virtual_time.time = 60 + max(
        recording(version, scenario)["record"]["rollout"]["updated"]
        for version in VERSIONS
        for scenario in (*OPEN, *ENDED)
    )


@pytest.fixture
def begun(request: pytest.FixtureRequest) -> Service:
    return left_behind(recording(*request.param))


def each(*scenarios: str) -> pytest.MarkDecorator:
    cases = [(version, scenario) for version in VERSIONS for scenario in scenarios]
    ids = ["-".join(case) for case in cases]
    return pytest.mark.parametrize("begun", cases, indirect=True, ids=ids)


def without_steps(service: Service) -> None:
    """A command is sent with the service and the journal alone, and says nothing of steps."""
    for name in ("strategy", "steps", "hold"):
        service.given.pop(name, None)


@each("parked")
def test_a_parked_rollout_is_promoted(begun: Service) -> None:
    assert begun.play()["parked"]
    begun.say("promote")
    begun.play()
    assert (begun.running, begun.world.wrong) == ({"2": 3}, [])
    assert begun.journal.stable and begun.journal.stable.revision == "2"


@each("killed")
def test_a_killed_rollout_is_resumed(begun: Service) -> None:
    begun.play()
    assert (begun.running, begun.world.wrong) == ({"2": 3}, [])


@pytest.mark.parametrize("forget", [False, True], ids=["with steps", "without steps"])
@each("holding")
def test_a_hold_is_ended(begun: Service, forget: bool) -> None:
    if forget:
        without_steps(begun)
    begun.say("skip")
    begun.play()
    assert (begun.running, begun.world.wrong) == ({"2": 3}, [])


@each("holding")
def test_a_gate_added_since_leads_no_hold_back_to_the_start(begun: Service) -> None:
    begun.given["gates"] = {"confirm_rollout": [{"driver": "approval"}]}
    begun.say("skip")
    begun.play()
    assert (begun.running, begun.world.wrong) == ({"2": 3}, [])


@pytest.mark.parametrize("forget", [False, True], ids=["with steps", "without steps"])
@each(*OPEN)
def test_an_open_rollout_is_aborted(begun: Service, forget: bool) -> None:
    if forget:
        without_steps(begun)
    begun.say("abort")
    with pytest.raises(RolloutFailed, match="abort sent"):
        begun.play()
    assert begun.journal.rollout and begun.journal.rollout.outcome == "aborted"
    assert (begun.running, begun.world.wrong) == ({"1": 3}, [])


@each(*OPEN)
def test_an_open_rollout_is_rolled_back(begun: Service) -> None:
    without_steps(begun)
    begun.step(rollback)
    assert (begun.running, begun.world.wrong) == ({"1": 3}, [])


@each("finished")
def test_a_finished_rollout_is_rolled_back(begun: Service) -> None:
    begun.step(rollback)
    assert (begun.running, begun.world.wrong) == ({"1": 3}, [])


@each(*ENDED)
def test_the_next_revision_is_rolled_out(begun: Service) -> None:
    without_steps(begun)
    begun.play(revision="3")
    assert (begun.running, begun.world.wrong) == ({"3": 3}, [])


@each("parked", "killed")
def test_changed_steps_are_refused(begun: Service) -> None:
    """Of the first version, only what it wrote down is known: the strategy and the stage."""
    begun.given["strategy"] = "blue_green"
    begun.given.pop("steps", None)
    with pytest.raises(RolloutFailed, match="rollout_steps") as caught:
        begun.play()
    assert caught.value.id == "PR-602"


def kept(service: Service) -> Recording:
    """The record as it is stored."""
    return t.cast(Recording, json.loads(service.world.journals["shop"].texts["record"]))


@each("killed")
def test_a_run_that_is_refused_leaves_the_journal_to_the_version_that_wrote_it(
    begun: Service,
) -> None:
    before = kept(begun)
    with pytest.raises(RolloutFailed, match="in progress"):
        begun.step(begin, revision="3")
    begun.step(begin, check_mode=True)
    assert kept(begun) == before and before["schema"] == 1


@each("parked")
def test_a_run_that_continues_a_rollout_keeps_earlier_versions_out(begun: Service) -> None:
    begun.step(begin)
    assert kept(begun)["schema"] == 3
    assert (
        kept(begun)["needs"]
        <= yaml.safe_load((Path(__file__).parents[2] / "galaxy.yml").read_text())["version"]
    )


@each("parked")
def test_a_journal_of_a_newer_version_is_refused(begun: Service) -> None:
    texts = begun.world.journals["shop"].texts
    texts["record"] = text = json.dumps({**kept(begun), "schema": 4, "needs": "9.1.0"}).encode()
    for step in (begin, rollback):
        with pytest.raises(StoreError, match=r"schema 4.* install 9\.1\.0 or newer") as caught:
            begun.step(step)
        assert caught.value.id == "PR-507" and texts["record"] == text
