# SPDX-License-Identifier: GPL-3.0-or-later
"""Each step alone in somebody's playbook, and how rollouts end that do not go well."""

from __future__ import annotations

import json
import shlex
import shutil
import typing as t
from collections.abc import Iterator, Mapping

import pytest
from ansible_collections.progressive.rollout.tests.support.haproxy import HAProxy
from ansible_collections.progressive.rollout.tests.support.playbook import (
    ROLLOUT,
    Outcome,
    Playground,
    Task,
)

ROLLBACK = "progressive.rollout.rollback"
DEPLOY = ({"begin": {}}, {"replace": {}}, {"promote": {}}, {"finish": {}})
TO_2 = {"revision": "2"}


def thrice(
    playground: Playground, step: str, args: Mapping[str, t.Any], *before: Mapping[str, t.Any]
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
def balancer() -> Iterator[HAProxy]:
    made = HAProxy()
    yield made
    made.close()


@pytest.fixture
def balanced(playground: Playground, balancer: HAProxy) -> Playground:
    own = {"path": str(playground.home / "fences")}
    playground.variables["rollout_traffic"] = {
        "driver": "haproxy",
        "socket": balancer.api,
        "backend": "shop",
        **own,
    }
    return playground


# Each alone: in check mode, for real, and again.


def test_plan(playground: Playground) -> None:
    checked, done, again = tasks = thrice(playground, "plan", TO_2, *DEPLOY)
    assert changes(tasks) == [False, False, False]
    assert checked.result["diff"] == {"before": "shop 1: 3\n", "after": "shop 2: 3\n"}
    assert [(point["new"], point["old"], point["share"]) for point in done.result["waypoints"]] == [
        (3, 0, None)
    ]
    assert (done.result["peak_extra"], done.result["minimum_available"]) == (1, 3)
    assert sorted(done.result["order"]) == ["shop-1", "shop-2", "shop-3"]
    assert done.result["next"]["create"] == 1 and done.result["next"]["drain"] == []
    assert [line.partition(":")[0] for line in done.result["unknown"]] == ["who sends requests"]
    assert again.result["next"] == done.result["next"]


def test_begin(playground: Playground) -> None:
    checked, done, again = tasks = thrice(playground, "begin", TO_2, *DEPLOY)
    assert changes(tasks) == [True, True, False]
    assert checked.result["diff"] == {"before": "shop 1: 3\n", "after": "shop 2: 3\n"}
    assert checked.result["next"]["create"] == 1
    assert (done.result["rollout"]["phase"], done.result["rollout"]["previous"]) == (
        "progressing",
        "1",
    )
    assert again.result["rollout"]["id"] == done.result["rollout"]["id"] and "resuming" in again.msg


def test_scale(playground: Playground) -> None:
    checked, done, _again = tasks = thrice(playground, "scale", {"replicas": 5}, *DEPLOY)
    assert changes(tasks) == [True, True, False]
    assert checked.result["diff"] == {"before": "shop 1: 3\n", "after": "shop 1: 5\n"}
    assert done.result["rollout"]["outcome"] == "promoted"
    assert playground.revisions() == ["1"] * 5
    assert changes(thrice(playground, "scale", {"replicas": 1})) == [True, True, False]
    assert playground.revisions() == ["1"]


def test_health(playground: Playground) -> None:
    tasks = thrice(playground, "health", {"replicas": 3}, *DEPLOY)
    assert changes(tasks) == [False, False, False]
    assert [task.result["ready"] for task in tasks] == [3, 3, 3]


def test_traffic(balanced: Playground, balancer: HAProxy) -> None:
    assert balanced.steps(*DEPLOY).rc == 0
    assert set(balancer.servers().values()) == {"UP"}
    balancer.ask("set server shop/shop-2 state drain")
    checked, _done, _again = tasks = thrice(balanced, "traffic", {})
    assert changes(tasks) == [True, True, False]
    assert checked.result["diff"] == {"before": "shop-2: out\n", "after": "shop-2: in rotation\n"}
    assert set(balancer.servers().values()) == {"UP"}


def test_drain(balanced: Playground, balancer: HAProxy) -> None:
    checked, _done, _again = tasks = thrice(balanced, "drain", {"instances": ["shop-1"]}, *DEPLOY)
    assert changes(tasks) == [True, True, False]
    assert checked.result["diff"] == {"before": "shop 1: 3\n", "after": "shop 1: 2\n"}
    assert sorted(balancer.servers()) == ["shop-2", "shop-3"]
    assert sorted(record["id"] for record in balanced.living()) == ["shop-2", "shop-3"]


def test_replace(balanced: Playground, balancer: HAProxy) -> None:
    checked, _done, _again = tasks = thrice(balanced, "replace", TO_2, *DEPLOY, {"begin": TO_2})
    assert changes(tasks) == [True, True, False]
    assert checked.result["diff"] == {"before": "shop 1: 3\n", "after": "shop 2: 3\n"}
    assert balanced.revisions() == ["2", "2", "2"]
    assert balancer.servers() == dict.fromkeys(["shop-4", "shop-5", "shop-6"], "UP")


def test_promote(playground: Playground) -> None:
    checked, done, _again = tasks = thrice(
        playground, "promote", TO_2, *DEPLOY, {"begin": TO_2}, {"replace": TO_2}
    )
    assert changes(tasks) == [True, True, False]
    assert (checked.result["rollout"]["stable"], done.result["rollout"]["stable"]) == ("1", "2")


def test_finish(playground: Playground) -> None:
    checked, done, again = tasks = thrice(playground, "finish", {}, *DEPLOY[:3])
    assert changes(tasks) == [True, True, False]
    assert checked.result["diff"] == {"before": "promoting\n", "after": "finished\n"}
    assert (done.result["rollout"]["outcome"], again.result["rollout"]["phase"]) == (
        "promoted",
        "finished",
    )


def test_no_step_continues_the_rollout_of_another_revision(playground: Playground) -> None:
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


def test_rollback(playground: Playground) -> None:
    second = [{step: TO_2} for task in DEPLOY for step in task]
    checked, _done, again = tasks = thrice(
        playground, "rollback", {"revision": None}, *DEPLOY, *second
    )
    assert changes(tasks) == [True, True, False]
    assert checked.result["diff"]["before"] == "shop 2: 3\n"
    assert playground.revisions() == ["1", "1", "1"]
    assert "already rolled back to 1" in again.msg


def test_info(balanced: Playground) -> None:
    _checked, done, _again = tasks = thrice(balanced, "info", {"timeline": True}, *DEPLOY)
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


@pytest.fixture(scope="module")
def what_ifs() -> Iterator[Outcome]:
    with Playground() as playground:
        common = {"service": "shop", "revision": "2"}
        yield playground.steps(
            *(
                {
                    "name": name,
                    "plan": {
                        **common,
                        "replicas": replicas,
                        "budget": {"max_surge": surge, "max_unavailable": unavailable},
                        "fleet": fleet,
                    },
                }
                for name, replicas, surge, unavailable, fleet, _next in WHAT_IFS
            )
        )


@pytest.mark.parametrize(
    ("name", "expected"), [pytest.param(case[0], case[5], id=case[0]) for case in WHAT_IFS]
)
def test_what_if(what_ifs: Outcome, name: str, expected: dict[str, t.Any]) -> None:
    task = what_ifs.one(name)
    assert not task.changed
    plan = task.result["next"]
    got = {
        key: plan[key] if isinstance(plan[key], int) else len(plan[key])
        for key in ("create", "drain", "retire", "admit")
    }
    assert {**got, "reached": plan["reached"]} == {
        **dict.fromkeys(got, 0),
        "reached": False,
        **expected,
    }
    assert plan["reasons"] or not any(got.values())


def test_what_if_takes_the_instances_that_serve_nobody(what_ifs: Outcome) -> None:
    plan = what_ifs.one("those that serve nobody go first, and no other").result["next"]
    assert plan["drain"] == ["0002.1", "0002.2"]


# Whole rollouts.


def behaving(playground: Playground, **env: str) -> None:
    """Give the service an environment; `{revision}` in it lets a revision misbehave."""
    playground.variables["rollout_platform"]["env"] = env


def ended_red(outcome: Outcome, *words: str) -> str:
    assert outcome.rc != 0
    message = outcome.failed.msg
    for word in words:
        assert word in message
    assert "Traceback" not in outcome.output
    return message


def test_a_bad_revision_is_rolled_back(playground: Playground) -> None:
    behaving(playground, CRASH_AFTER="{revision}")  # a revision called 0.2 ends after that long
    playground.variables |= {
        "rollout_revision": "0",
        "rollout_failure_limit": 2,
        "rollout_min_ready": "1s",
    }
    assert playground.run().rc == 0
    before = {record["id"] for record in playground.living()}
    outcome = playground.run(variables={"rollout_revision": "0.2"})
    ended_red(
        outcome,
        "shop 0.2:",
        "(rollout_failure_limit 2)",
        "shop-",
        "on web",
        "now rolled back to 0",
    )
    assert "boom" in outcome.output  # the log, in the block before
    assert {record["id"] for record in playground.living()} == before
    assert playground.journal()["rollout"]["outcome"] == "rolled_back"
    assert playground.run(variables={"rollout_revision": "0"}).of("begin")[0].changed is False


@pytest.fixture
def held(playground: Playground) -> Playground:
    """Revision 1 runs, revision `fail` is held: it is not ready before there is its file."""
    behaving(playground, READY_FILE=f"{playground.home}/ready-{{revision}}")
    (playground.home / "ready-1").touch()
    playground.variables["rollout_health"]["deadline"] = "1s"
    playground.variables |= {"rollout_failure_limit": 1, "rollout_on_failure": "hold"}
    assert playground.run().rc == 0
    outcome = playground.run(variables={"rollout_revision": "fail"})
    ended_red(outcome, "shop fail:", "shop-4", "not ready within 1 s", "rollout held")
    assert (
        outcome.failed.task == "Fail with the reason"
        and playground.journal()["rollout"]["phase"] == "held"
    )
    assert playground.revisions().count("1") == 3
    return playground


def test_a_held_rollout_is_rolled_back_by_hand(held: Playground) -> None:
    refused = held.run(variables={"rollout_revision": "3"})
    ended_red(
        refused,
        "rollout_revision: cannot start '3'",
        "shop fail is in progress",
        "held",
        "rollback.yml",
        "PR-601",
    )
    outcome = held.run(ROLLBACK)
    assert outcome.rc == 0 and outcome.rollout["outcome"] == "rolled_back"
    assert held.revisions() == ["1", "1", "1"]
    (held.home / "ready-3").touch()
    assert held.run(variables={"rollout_revision": "3"}).rc == 0


def test_a_fleet_without_its_journal_is_adopted(playground: Playground) -> None:
    for revision in ("1", "2"):
        assert playground.run(variables={"rollout_revision": revision}).rc == 0
    shutil.rmtree(playground.store)
    outcome = playground.run(variables={"rollout_revision": "3"})
    assert outcome.rc == 0, outcome.output
    assert (outcome.rollout["previous"], outcome.rollout["replaced"]) == ("2", 3)
    assert playground.revisions() == ["3", "3", "3"]
    assert playground.run(ROLLBACK).rc == 0 and playground.revisions() == ["2", "2", "2"]


def test_another_store_is_refused_until_the_journal_is_moved_there(playground: Playground) -> None:
    assert playground.run().rc == 0
    elsewhere = {"driver": "file", "path": str(playground.home / "elsewhere")}
    before = {path: path.read_text() for path in playground.platform.rglob("instances/*.json")}
    for playbook, id in ((ROLLOUT, "PR-515"), (ROLLBACK, "PR-503")):
        refused = playground.run(playbook, {"rollout_revision": "2", "rollout_store": elsewhere})
        assert refused.rc == 2 and id in refused.failed.msg, refused.output
        for store in (str(playground.store), elsewhere["path"]):
            assert f"{store}/journal/shop.json" in refused.failed.msg
    assert {path: path.read_text() for path in before} == before
    assert playground.run("progressive.rollout.store", {"rollout_to_store": elsewhere}).rc == 0
    moved = playground.run(variables={"rollout_revision": "2", "rollout_store": elsewhere})
    assert moved.rc == 0 and playground.revisions() == ["2", "2", "2"], moved.output


def test_what_a_revision_needs_is_looked_for_before_anything_is_touched(
    playground: Playground,
) -> None:
    """The program comes with the revision, and with that of 2 it did not."""
    platform = playground.variables["rollout_platform"]
    program = playground.home / "shop-1"
    program.write_text(f"#!/bin/sh\nexec {shlex.join(platform['command'])}\n")
    program.chmod(0o755)
    playground.variables["rollout_platform"] = {
        **platform,
        "command": [str(playground.home / "shop-{revision}")],
    }
    assert playground.run().rc == 0
    before = playground.records()
    outcome = playground.run(variables={"rollout_revision": "2"})
    missing = (
        f"rollout_platform.command: {playground.home}/shop-2 is not there or cannot be executed (on"
        " web1, web2, web3)"
    )
    assert (
        outcome.rc != 0
        and missing in outcome.failed.msg
        and "shop 2: refused: nothing was started" in outcome.failed.msg
    )
    assert playground.records() == before


def test_tasks_of_ones_own_prepare_the_hosts_first(playground: Playground) -> None:
    """On all of them, or nothing is touched."""
    tasks = playground.home / "prepare.yml"
    done = {
        "ansible.builtin.file": {
            "path": f"{playground.home}/{{{{ inventory_hostname }}}}-{{{{ rollout_revision }}}}",
            "state": "touch",
        }
    }
    tasks.write_text(json.dumps([done]))
    playground.variables["rollout_prepare_tasks"] = str(tasks)
    outcome = playground.run()
    assert outcome.rc == 0, outcome.output
    assert sorted(path.name for path in playground.home.glob("web*-1")) == [
        "web1-1",
        "web2-1",
        "web3-1",
    ]

    journal = playground.journal()
    fail = {"ansible.builtin.fail": {"msg": "no room"}, "when": "inventory_hostname == 'web2'"}
    for task in (
        fail,
        {"ansible.builtin.ping": {}, "vars": {"ansible_connection": "ssh", "ansible_port": 1}},
    ):
        tasks.write_text(json.dumps([done, task]))
        outcome = playground.run(variables={"rollout_revision": "2"})
        assert outcome.rc != 0 and playground.journal() == journal
    assert (
        "rollout_prepare_tasks: web1, web2, web3: not prepared, so nothing was touched"
        in outcome.failed.msg
    )
    assert playground.run("progressive.rollout.restart").rc == 0


def test_tasks_of_ones_own_are_found_beside_the_playbook_and_where_they_were_looked_for_is_told(
    playground: Playground,
) -> None:
    """Of an imported playbook `playbook_dir` is the collection's; and the inventory may be
    anywhere.
    """
    project = playground.home / "project"
    project.mkdir()
    (project / "rollout.yml").write_text(
        json.dumps([{"ansible.builtin.import_playbook": "progressive.rollout.rollout"}])
    )
    playground.variables["rollout_prepare_tasks"] = "prepare.yml"
    missing = playground.run(str(project / "rollout.yml"))
    assert missing.rc != 0 and not playground.files()
    assert (
        f"rollout_prepare_tasks: file prepare.yml not found: looked in {project}, /"
        in missing.output
    ), missing.output
    assert f", {playground.home}; correct the path [PR-113]" in missing.output
    (project / "prepare.yml").write_text(
        json.dumps([{"ansible.builtin.debug": {"msg": "ready"}, "name": "Mine"}])
    )
    for inventories in ((), ("-i", "other,")):
        found = playground.run(str(project / "rollout.yml"), {}, *inventories)
        assert found.rc == 0 and len(found.of("Mine")) == 3, found.output


def test_a_limit_that_hides_instances_is_refused(playground: Playground) -> None:
    outcome = playground.run("progressive.rollout.rollout", None, "--limit", "localhost,web1")
    assert (
        outcome.rc != 0
        and "rollout_platform.hosts: --limit leaves out web2, web3, whose instances"
        in outcome.failed.msg
    )
    assert not playground.records()
    assert playground.run("progressive.rollout.rollout", None, "--limit", "all,localhost").rc == 0


def test_a_run_with_nothing_to_do_is_few_tasks(playground: Playground) -> None:
    """Each is a process, even where it is skipped."""
    assert playground.run().rc == 0
    for playbook, most in (("progressive.rollout.rollout", 5), ("progressive.rollout.status", 4)):
        outcome = playground.run(playbook)
        assert outcome.rc == 0
        assert outcome.output.count("\nTASK [") <= most, outcome.output
