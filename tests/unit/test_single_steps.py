# SPDX-License-Identifier: GPL-3.0-or-later
"""Each step alone in somebody's playbook: in check mode, for real, and again."""

from __future__ import annotations

import shlex
import shutil
import socket
import typing as t
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace

import pytest
from ansible_collections.progressive.rollout.plugins.action import rollback
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import RolloutFailed
from ansible_collections.progressive.rollout.plugins.plugin_utils.config import settings
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Rotation
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.traffic import (
    TrafficDriver,
)
from ansible_collections.progressive.rollout.tests.support.memory import Service, World, choice
from ansible_collections.progressive.rollout.tests.support.playbook import Task
from ansible_collections.progressive.rollout.tests.support.tasks import Tasks

pytestmark = pytest.mark.usefixtures("virtual_time")
DEPLOY = ({"begin": {}}, {"replace": {}}, {"promote": {}}, {"finish": {}})
TO_2 = {"revision": "2"}


def thrice(
    playground: Tasks, step: str, args: Mapping[str, t.Any], *before: Mapping[str, t.Any]
) -> tuple[Task, Task, Task]:
    """After the tasks `before`: the step in check mode with a diff (which must touch nothing),
    for real, and again.
    """
    task = {step: dict(args), "name": "the step"}
    look: dict[str, t.Any] = {"info": {}, "name": "look"}
    outcome = playground.steps(
        *before, look, {**task, "check_mode": True, "diff": True}, look, task, task
    )
    assert outcome.rc == 0, outcome.output
    first, second = (seen(look) for look in outcome.of("look"))
    assert first == second
    checked, done, again = outcome.of("the step")
    return checked, done, again


def seen(look: Task) -> t.Any:
    """What `info` shows, without what passes by itself."""
    rollout = {key: value for key, value in look.result["rollout"].items() if key != "updated"}
    instances = [
        {key: value for key, value in one.items() if key != "age"}
        for one in look.result["instances"]
    ]
    return rollout, instances, look.result["history"]


def changes(tasks: tuple[Task, Task, Task]) -> list[bool]:
    return [task.changed for task in tasks]


@pytest.fixture
def playground() -> Iterator[Tasks]:
    with Tasks() as made:
        yield made


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> World:
    """A load balancer, which all steps of a test have."""
    world, parse = World(fewest=0), settings.parse

    def parsed(*given: t.Any) -> settings.Settings:
        return replace(parse(*given), traffic=choice(TrafficDriver, world.traffic))

    monkeypatch.setattr(settings, "parse", parsed)
    return world


def rotations(pool: World) -> dict[str, Rotation]:
    """The servers of a load balancer."""
    return {server.name: server.rotation for server in pool.servers.values()}


def serving(*numbers: int) -> dict[str, Rotation]:
    return {f"shop-{number}": Rotation.IN for number in numbers}


def test_plan(playground: Tasks) -> None:
    checked, done, again = tasks = thrice(playground, "plan", TO_2, *DEPLOY)
    assert changes(tasks) == [False, False, False]
    assert checked.result["diff"] == {"before": "shop 1: 3\n", "after": "shop 2: 3\n"}
    assert [(point["new"], point["old"], point["share"]) for point in done.result["waypoints"]] == [
        (3, 0, None)
    ]
    assert (done.result["peak_extra"], done.result["minimum_available"]) == (1, 3)
    assert sorted(done.result["order"]) == ["shop-1", "shop-2", "shop-3"]
    assert done.result["next"]["create"] == 1 and done.result["next"]["drain"] == []
    assert [line.partition(":")[0] for line in done.result["unknown"]] == [
        "how long an instance takes to start",  # no time at all so far
        "who sends requests",
    ]
    assert again.result["next"] == done.result["next"]


def test_begin(playground: Tasks) -> None:
    checked, done, again = tasks = thrice(playground, "begin", TO_2, *DEPLOY)
    assert changes(tasks) == [True, True, False]
    assert checked.result["diff"] == {"before": "shop 1: 3\n", "after": "shop 2: 3\n"}
    assert checked.result["next"]["create"] == 1
    assert (done.result["rollout"]["phase"], done.result["rollout"]["previous"]) == (
        "progressing",
        "1",
    )
    assert again.result["rollout"]["id"] == done.result["rollout"]["id"] and "resuming" in again.msg


def test_scale(playground: Tasks) -> None:
    checked, done, _again = tasks = thrice(playground, "scale", {"replicas": 5}, *DEPLOY)
    assert changes(tasks) == [True, True, False]
    assert checked.result["diff"] == {"before": "shop 1: 3\n", "after": "shop 1: 5\n"}
    assert done.result["rollout"]["outcome"] == "promoted"
    assert playground.revisions() == ["1"] * 5
    assert changes(thrice(playground, "scale", {"replicas": 1})) == [True, True, False]
    assert playground.revisions() == ["1"]


def test_health(playground: Tasks) -> None:
    tasks = thrice(playground, "health", {"replicas": 3}, *DEPLOY)
    assert changes(tasks) == [False, False, False]
    assert [task.result["ready"] for task in tasks] == [3, 3, 3]


def test_traffic(playground: Tasks, pool: World) -> None:
    assert playground.steps(*DEPLOY).rc == 0
    assert rotations(pool) == serving(1, 2, 3)
    (out,) = (place for place, server in pool.servers.items() if server.name == "shop-2")
    pool.servers[out] = pool.servers[out]._replace(rotation=Rotation.OUT)
    checked, _done, _again = tasks = thrice(playground, "traffic", {})
    assert changes(tasks) == [True, True, False]
    assert checked.result["diff"] == {"before": "shop-2: out\n", "after": "shop-2: in rotation\n"}
    assert rotations(pool) == serving(1, 2, 3)


def test_drain(playground: Tasks, pool: World) -> None:
    checked, _done, _again = tasks = thrice(playground, "drain", {"instances": ["shop-1"]}, *DEPLOY)
    assert changes(tasks) == [True, True, False]
    assert checked.result["diff"] == {"before": "shop 1: 3\n", "after": "shop 1: 2\n"}
    assert rotations(pool) == serving(2, 3)
    assert sorted(record["id"] for record in playground.living()) == ["shop-2", "shop-3"]


def test_replace(playground: Tasks, pool: World) -> None:
    checked, _done, _again = tasks = thrice(playground, "replace", TO_2, *DEPLOY, {"begin": TO_2})
    assert changes(tasks) == [True, True, False]
    assert checked.result["diff"] == {"before": "shop 1: 3\n", "after": "shop 2: 3\n"}
    assert playground.revisions() == ["2", "2", "2"]
    assert rotations(pool) == serving(4, 5, 6)


def test_promote(playground: Tasks) -> None:
    checked, done, _again = tasks = thrice(
        playground, "promote", TO_2, *DEPLOY, {"begin": TO_2}, {"replace": TO_2}
    )
    assert changes(tasks) == [True, True, False]
    assert (checked.result["rollout"]["stable"], done.result["rollout"]["stable"]) == ("1", "2")


def test_finish(playground: Tasks) -> None:
    checked, done, again = tasks = thrice(playground, "finish", {}, *DEPLOY[:3])
    assert changes(tasks) == [True, True, False]
    assert checked.result["diff"] == {"before": "promoting\n", "after": "finished\n"}
    assert (done.result["rollout"]["outcome"], again.result["rollout"]["phase"]) == (
        "promoted",
        "finished",
    )


def test_no_step_continues_the_rollout_of_another_revision(playground: Tasks) -> None:
    assert playground.steps(*DEPLOY[:2]).rc == 0
    before = playground.journal()["rollout"]
    steps = [
        {step: TO_2, "check_mode": check_mode, "ignore_errors": True}
        for step in ("replace", "promote", "finish")
        for check_mode in (True, False)
    ]
    outcome = playground.steps(*steps)
    assert len(outcome.tasks) == len(steps)
    for task in outcome.tasks:
        assert "cannot continue 2: rollout of shop 1 is in progress" in task.msg
        assert (task.result["failure"], task.changed) == ("PR-601", False)
    after = playground.journal()["rollout"]
    assert (after["revision"], after["phase"]) == (before["revision"], before["phase"])
    superseding = {"finish": {**TO_2, "supersede": True}, "check_mode": True}
    assert playground.steps(superseding).rc == 0  # `begin` would have superseded that of 1


def test_rollback(playground: Tasks) -> None:
    second = [{step: TO_2} for task in DEPLOY for step in task]
    checked, _done, again = tasks = thrice(
        playground, "rollback", {"revision": None}, *DEPLOY, *second
    )
    assert changes(tasks) == [True, True, False]
    assert checked.result["diff"]["before"] == "shop 2: 3\n"
    assert playground.revisions() == ["1", "1", "1"]
    assert "already rolled back to 1" in again.msg


@pytest.mark.usefixtures("pool")
def test_info(playground: Tasks) -> None:
    _checked, done, _again = tasks = thrice(playground, "info", {"timeline": True}, *DEPLOY)
    assert changes(tasks) == [False, False, False]
    assert [(one["id"], one["state"], one["rotation"]) for one in done.result["instances"]] == [
        (f"shop-{number}", "ready", "in") for number in (1, 2, 3)
    ]
    assert done.result["lease"] is None
    assert {event["kind"] for event in done.result["timeline"]} >= {
        "begin",
        "state",
        "traffic",
        "decision",
        "phase",
        "end",
    }
    assert done.result["rollout"]["fleet"]["1"] == {
        **dict.fromkeys(STATES, 0),
        "ready": 3,
        "traffic": 100.0,
    }


STATES = ("starting", "ready", "not_ready", "draining", "stopped", "failed", "unreachable")


# What-if: the engine's answer for a fleet that is only thought of.


def of(revision: str, state: str, count: int = 1, **more: t.Any) -> dict[str, t.Any]:
    return {"revision": revision, "state": state, "count": count, **more}


WHAT_IFS: list[tuple[str, int, t.Any, t.Any, list[dict[str, t.Any]], dict[str, t.Any]]] = [
    ("3 of 3, surge 1, unavailable 1", 3, 1, 1, [of("1", "ready", 3)], {"create": 1, "drain": 1}),
    ("4 of 4, surge 2, unavailable 1", 4, 2, 1, [of("1", "ready", 4)], {"create": 2, "drain": 1}),
    ("3 of 3, surge 3, unavailable 2", 3, 3, 2, [of("1", "ready", 3)], {"create": 3, "drain": 2}),
    ("from nothing", 3, 1, 0, [], {"create": 4 - 1}),
    (
        "those that serve nobody go first, and no other",
        4,
        0,
        1,
        [of("1", "ready", 2), of("1", "not_ready", 2)],
        {"drain": 2},
    ),
    (
        "one of three is ready, two still start",
        10,
        3,
        0,
        [of("1", "ready", 10), of("2", "ready"), of("2", "starting", 2)],
        {"drain": 1},
    ),
    (
        "and once that one is gone, the next starts",
        10,
        3,
        0,
        [of("1", "ready", 9), of("2", "ready"), of("2", "starting", 2)],
        {"create": 1},
    ),
    ("not ready counts against surge", 2, 0, 1, [of("2", "not_ready", 2)], {}),
    (
        "a draining one without requests stops",
        3,
        1,
        0,
        [of("2", "ready", 3), of("1", "draining")],
        {"retire": 1},
    ),
    (
        "a draining one with requests waits",
        3,
        1,
        0,
        [of("2", "ready", 3), of("1", "draining", active=2, draining="5s")],
        {},
    ),
    (
        "but not for ever",
        3,
        1,
        0,
        [of("2", "ready", 3), of("1", "draining", active=2, draining="1h")],
        {"retire": 1},
    ),
    ("ready, out of rotation", 2, 1, 0, [of("2", "ready", 2, rotation="out")], {"admit": 2}),
    ("failed ones are replaced", 2, 0, 1, [of("2", "ready"), of("2", "failed")], {"create": 1}),
    ("too many", 2, 1, 0, [of("2", "ready", 4)], {"drain": 2}),
    ("there already", 2, 1, 0, [of("2", "ready", 2)], {"reached": True}),
]


def what_if(
    playground: Tasks, replicas: int, surge: int, unavailable: int, fleet: list[dict[str, t.Any]]
) -> dict[str, t.Any]:
    """What is planned next for a fleet that is only thought of."""
    budget = {"max_surge": surge, "max_unavailable": unavailable}
    own = {"revision": "2", "replicas": replicas, "budget": budget, "fleet": fleet}
    playground.variables = {"rollout_service": "shop"}
    task = playground.steps({"plan": own}).one("plan")
    assert not task.changed
    planned: dict[str, t.Any] = task.result["next"]
    return planned


@pytest.mark.parametrize(
    ("replicas", "surge", "unavailable", "fleet", "expected"),
    [pytest.param(*case, id=name) for name, *case in WHAT_IFS],
)
def test_what_if(
    playground: Tasks,
    replicas: int,
    surge: int,
    unavailable: int,
    fleet: list[dict[str, t.Any]],
    expected: dict[str, t.Any],
) -> None:
    planned = what_if(playground, replicas, surge, unavailable, fleet)
    got = {
        key: planned[key] if isinstance(planned[key], int) else len(planned[key])
        for key in ("create", "drain", "retire", "admit")
    }
    nothing = {**dict.fromkeys(got, 0), "reached": False}
    assert {**got, "reached": planned["reached"]} == {**nothing, **expected}
    assert planned["reasons"] or not any(got.values())


def test_what_if_takes_the_instances_that_serve_nobody(playground: Tasks) -> None:
    fleet = [of("1", "ready", 2), of("1", "not_ready", 2)]
    assert what_if(playground, 4, 0, 1, fleet)["drain"] == ["0002.1", "0002.2"]


def test_report(playground: Tasks) -> None:
    task = {"report": {"report": f"{playground.home}/shop.html"}, "name": "the step"}
    nothing = playground.steps(task)
    assert nothing.rc == 0 and not nothing.one("the step").changed
    outcome = playground.steps(*DEPLOY, {**task, "check_mode": True}, task, task)
    assert [one.changed for one in outcome.of("the step")] == [True, True, False]
    result = outcome.of("the step")[-1].result
    assert result["history"][0]["outcome"] == "promoted" and "Promoted" in result["markdown"]

    missing = playground.steps({"report": {"report": "/nowhere/shop.html"}})
    assert "/nowhere" in missing.failed.msg and "PR-630" in missing.failed.msg
    unknown = playground.steps({"report": {"id": "shop-x"}})
    assert "shop-x" in unknown.failed.msg and "PR-130" in unknown.failed.msg


def test_the_report_of_a_rollout_that_is_not_the_last(playground: Tasks) -> None:
    for revision in ("1", "2"):
        playground.rollout(rollout_revision=revision)
    first = playground.journal()["history"][0]["id"]
    single = playground.home / "one.md"
    chosen = {"id": first, "report": str(single), "show": "report"}
    outcome = playground.steps({"report": chosen})
    assert outcome.one("report").result["files"] == [str(single)]
    assert outcome.output == str(single)
    assert single.read_text().startswith("# ✓ Promoted: shop 1")
    shown = playground.steps({"report": {"show": "report"}})
    assert shown.output.startswith("# ✓ Promoted: shop 1 → 2")


def test_remove_while_a_rollout_is_in_progress(playground: Tasks) -> None:
    assert playground.steps(*DEPLOY, {"begin": TO_2}).rc == 0
    before = playground.files()
    for check_mode in (False, True):
        refused = playground.steps({"remove": {}, "check_mode": check_mode})
        assert refused.rc != 0 and "PR-707" in refused.output, refused.output
    assert playground.files() == before


def test_control_of_a_host_that_is_none_of_the_service(playground: Tasks) -> None:
    assert playground.steps(*DEPLOY, {"begin": TO_2}).rc == 0
    refused = playground.command("exclude", rollout_revision="2", rollout_host="web9").failed.msg
    assert "web9 is not in rollout_platform.hosts" in refused and "[PR-700]" in refused


# Whole rollouts.


def test_what_removal_left_at_the_only_ports_keeps_its_requests(
    playground: Tasks, pool: World
) -> None:
    playground.variables |= {
        "rollout_replicas": "per_host",
        "rollout_budget": {"max_surge": 0, "max_unavailable": 1},
        "rollout_failure_limit": 1,
    }
    playground.variables["rollout_platform"]["ports"] = "8100"
    assert playground.rollout().rc == 0
    servers = dict(pool.servers)
    assert playground.steps({"remove": {}}).rc == 0
    with ExitStack() as listening:
        for place in servers:
            listening.enter_context(socket.create_server(place))
        failed = playground.rollout(rollout_revision="2")
    assert failed.rc != 0 and "taken by another program" in failed.output
    assert {place: server.rotation for place, server in pool.servers.items()} == dict.fromkeys(
        servers, Rotation.IN
    )


def test_a_held_rollout_is_rolled_back_by_hand() -> None:
    world = World(fewest=0, crashes=lambda labels: labels.revision == "fail")
    shop = Service(world, replicas=3, failure_limit=1, on_failure="hold")
    shop.play(revision="1")
    with pytest.raises(RolloutFailed, match=r"shop fail: .*shop-4.*rollout held"):
        shop.play(revision="fail")
    assert shop.journal.open and shop.journal.open.phase == "held" and shop.running == {"1": 3}
    held = "rollout_revision: cannot start '3': .*shop fail is in progress .*held.*rollback.yml"
    with pytest.raises(RolloutFailed, match=held) as refused:
        shop.play(revision="3")
    assert refused.value.id == "PR-601"
    assert shop.step(rollback)["rollout"]["outcome"] == "rolled_back"
    assert shop.running == {"1": 3}
    shop.play(revision="3")
    assert shop.running == {"3": 3}


def test_a_fleet_without_its_journal_is_adopted(playground: Tasks) -> None:
    for revision in ("1", "2"):
        assert playground.rollout(rollout_revision=revision).rc == 0
    shutil.rmtree(playground.store)
    outcome = playground.rollout(rollout_revision="3")
    assert outcome.rc == 0, outcome.output
    assert (outcome.rollout["previous"], outcome.rollout["replaced"]) == ("2", 3)
    assert playground.revisions() == ["3", "3", "3"]
    assert playground.rollback().rc == 0 and playground.revisions() == ["2", "2", "2"]


def test_another_store_is_refused_until_the_journal_is_there(playground: Tasks) -> None:
    assert playground.rollout().rc == 0
    elsewhere = {"driver": "file", "path": str(playground.home / "elsewhere")}
    before = {path: path.read_text() for path in playground.platform.rglob("instances/*.json")}
    for playbook, id in ((playground.rollout, "PR-515"), (playground.rollback, "PR-503")):
        refused = playbook(rollout_revision="2", rollout_store=elsewhere)
        assert refused.rc == 2 and id in refused.failed.msg, refused.output
        for store in (str(playground.store), elsewhere["path"]):
            assert f"{store}/journal/shop.json" in refused.failed.msg
    assert {path: path.read_text() for path in before} == before
    assert playground.steps({"move": {"to_store": elsewhere}}).rc == 0
    moved = playground.rollout(rollout_revision="2", rollout_store=elsewhere)
    assert moved.rc == 0 and playground.revisions() == ["2", "2", "2"], moved.output


def test_what_a_revision_needs_is_looked_for_first(playground: Tasks) -> None:
    """The program comes with the revision, and with that of 2 it did not."""
    platform, program = playground.variables["rollout_platform"], playground.home / "shop-1"
    program.write_text(f"#!/bin/sh\nexec {shlex.join(platform['command'])}\n")
    program.chmod(0o755)
    command = [str(playground.home / "shop-{revision}")]
    playground.variables["rollout_platform"] = {**platform, "command": command}
    assert playground.rollout().rc == 0
    before = playground.records()
    outcome = playground.rollout(rollout_revision="2")
    missing = (
        f"rollout_platform.command: {playground.home}/shop-2 is not there or cannot be executed (on"
        " web1, web2, web3)"
    )
    assert outcome.rc != 0 and missing in outcome.failed.msg
    assert "shop 2: refused: nothing was started" in outcome.failed.msg
    assert playground.records() == before
