# SPDX-License-Identifier: GPL-3.0-or-later
"""Several services as one release: by the playbook that rolls all out, and by their own runs."""

from __future__ import annotations

import sys
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from ansible_collections.progressive.rollout.tests.drivers.traffic_contract import Load
from ansible_collections.progressive.rollout.tests.support.playbook import (
    APP,
    ROLLOUT,
    ROOT,
    Outcome,
    Playground,
)
from ansible_collections.progressive.rollout.tests.support.shop import BehindEnvoy
from ansible_collections.progressive.rollout.tests.support.waiting import until

EXAMPLE = ROOT / "docs/examples/release"
RELEASE, STATUS = "progressive.rollout.release", "progressive.rollout.status"
MEMBERS: dict[str, t.Any] = {"api": {}, "worker": {"after": ["api"]}}
PORTS = {"api": "8100-8119", "worker": "8120-8139", "schema": "8140-8159"}


def of_member(playground: Playground, name: str, revision: str, **more: t.Any) -> dict[str, t.Any]:
    """The variables of one member."""
    platform = {**playground.variables["rollout_platform"], "ports": PORTS[name]}
    platform |= more.pop("platform", {})
    return {
        "rollout_service": name,
        "rollout_revision": revision,
        "rollout_replicas": 1,
        "rollout_platform": platform,
        **more,
    }


def release(
    playground: Playground,
    name: str,
    revision: str,
    members: t.Mapping[str, t.Any] = MEMBERS,
    **of_one: t.Mapping[str, t.Any],
) -> dict[str, t.Any]:
    """The variables of a release."""
    given = {m: of_member(playground, m, revision, **dict(of_one.get(m, {}))) for m in members}
    declared = {"name": name, "members": dict(members)}
    return {
        "rollout_release": declared,
        "rollout_members": given,
        "rollout_revision": None,
        "rollout_service": None,
    }


def recorded(playground: Playground, name: str) -> dict[str, t.Any]:
    """The release as its journal has it."""
    return t.cast("dict[str, t.Any]", playground.journal("all.releases")["releases"][name])


def places(playground: Playground, name: str) -> dict[str, str]:
    members = recorded(playground, name)["members"]
    return {member: known["place"] for member, known in members.items()}


def running(playground: Playground) -> dict[str, set[str]]:
    """The revisions that run, by service."""
    found: dict[str, set[str]] = {}
    for record in playground.living():
        found.setdefault(record["id"].rpartition("-")[0], set()).add(record["revision"])
    return found


BROKEN = {"platform": {"command": ["false"]}, "rollout_failure_limit": 1}


def released(
    playground: Playground, name: str, revision: str, **of_one: t.Mapping[str, t.Any]
) -> Outcome:
    outcome = playground.run(RELEASE, release(playground, name, revision, **of_one))
    assert outcome.rc == 0, outcome.output
    return outcome


@pytest.fixture
def front() -> Iterator[BehindEnvoy]:
    front = BehindEnvoy()
    yield front
    front.close()


@pytest.mark.essential
@pytest.mark.long
def test_a_release_is_promoted_in_order_or_taken_back(
    playground: Playground, front: BehindEnvoy
) -> None:
    """Clients of the API notice nothing of it."""
    api = {"rollout_traffic": front.traffic}
    first = released(playground, "1", "1", api=api)
    assert recorded(playground, "1")["phase"] == "promoted"
    assert places(playground, "1") == {"api": "done", "worker": "done"}
    assert running(playground) == {"api": {"1"}, "worker": {"1"}}
    log = [note["text"] for note in recorded(playground, "1")["log"]]
    assert log.index("api: promoted") < log.index("worker: moving"), log
    assert "release 1 is promoted" in first.output

    with Load([("127.0.0.1", front.listen)]) as load:
        _fail_and_succeed(playground, api)
    assert not load.bad, load.bad
    assert {"1", "2", "3"} <= {text.split()[0] for text in load.good}, load.good


def _fail_and_succeed(playground: Playground, api: t.Mapping[str, t.Any]) -> None:
    # the worker fails, after the API was promoted
    bad = release(playground, "2", "2", api=api, worker=BROKEN)
    failed = playground.run(RELEASE, bad)
    assert failed.rc != 0 and "[PR-636]" in failed.failed.msg, failed.output
    assert recorded(playground, "2")["phase"] == "back"
    assert places(playground, "2") == {"api": "back", "worker": "back"}
    assert running(playground) == {"api": {"1"}, "worker": {"1"}}
    log = [note["text"] for note in recorded(playground, "2")["log"]]
    promoted = log.index("api: promoted")
    gone = next(n for n, text in enumerate(log) if text.startswith("worker: back"))
    back = next(n for n, text in enumerate(log) if text.startswith("api: going back"))
    assert promoted < gone < back, log

    # its name is used up, and the next one is promoted
    again = playground.run(RELEASE, release(playground, "2", "2", api=api))
    assert again.rc != 0 and "[PR-634]" in again.output, again.output
    released(playground, "3", "3", api=api)
    assert running(playground) == {"api": {"3"}, "worker": {"3"}}
    events = playground.timeline(playground.journal("api")["rollout"]["id"], "api")
    seen = [event for event in events if event["kind"] == "release"]
    assert seen[-1]["phase"] == "promoted" and "worker done" in seen[-1]["members"]


def test_members_that_run_on_their_own_wait_for_each_other(playground: Playground) -> None:
    released(playground, "1", "1")
    given = release(playground, "2", "2")

    def own(name: str) -> dict[str, t.Any]:
        return {**given["rollout_members"][name], "rollout_release": given["rollout_release"]}

    worker = playground.start(ROLLOUT, own("worker"))
    until(lambda: "for the promotion of api" in worker.output, "the worker waits for the API")
    shown = playground.run(
        STATUS, {**dict.fromkeys(playground.variables), **_found(playground, "worker")}
    )
    assert shown.rc == 0 and "release 2 is progressing" in shown.output, shown.output

    # a command lets no member pass its release
    forced = playground.run(
        "progressive.rollout.control",
        {
            **dict.fromkeys(playground.variables),
            **_found(playground, "worker"),
            "rollout_command": "promote_full",
        },
    )
    assert forced.rc == 0, forced.output
    until(lambda: "promote_full sent by" in worker.output, "the worker obeys")

    # the API is killed once it is promoted, and run again
    api = playground.start(ROLLOUT, own("api"))
    until(lambda: places(playground, "2")["api"] == "promoted", "the API is promoted")
    api.kill()
    assert playground.journal("api")["stable"]["revision"] == "2"
    api = playground.start(ROLLOUT, own("api"))
    assert worker.wait().rc == 0, worker.output
    assert api.wait().rc == 0, api.output
    assert recorded(playground, "2")["phase"] == "promoted"
    assert running(playground) == {"api": {"2"}, "worker": {"2"}}
    log = [note["text"] for note in recorded(playground, "2")["log"]]
    assert log.index("api: promoted") < log.index("worker: moving"), log


def _found(playground: Playground, service: str) -> dict[str, t.Any]:
    """What is enough to find a service's journal."""
    return {"rollout_service": service, "rollout_store": playground.variables["rollout_store"]}


def test_a_failure_after_a_migration_holds_the_release(playground: Playground) -> None:
    members = {"schema": {"reversible": False}, "api": {"after": ["schema"]}}
    first = playground.run(RELEASE, release(playground, "1", "1", members))
    assert first.rc == 0, first.output
    failed = playground.run(RELEASE, release(playground, "2", "2", members, api=BROKEN))
    assert failed.rc != 0 and "schema cannot go back" in failed.output, failed.output
    assert recorded(playground, "2")["phase"] == "held"
    assert places(playground, "2") == {"schema": "done", "api": "held"}
    given = release(playground, "2", "2", members, api=BROKEN)
    back = playground.run(RELEASE, {**given, "rollout_command": "abort", "rollout_why": "wrong"})
    assert back.rc == 0, back.output
    assert recorded(playground, "2")["phase"] == "back"
    assert running(playground) == {"schema": {"2"}, "api": {"1"}}


def test_members_take_the_steps_of_their_canaries_together(playground: Playground) -> None:
    released(playground, "1", "1")
    steps = [{"set_replicas": 1}, {"pause": "1s"}, {"set_replicas": 2}]
    canary = {"rollout_strategy": "canary", "rollout_steps": steps, "rollout_replicas": 3}
    given = release(playground, "2", "2", api=canary, worker=canary)
    given["rollout_release"]["with_canary"] = True
    outcome = playground.run(RELEASE, given)
    assert outcome.rc == 0, outcome.output
    log = [note["text"] for note in recorded(playground, "2")["log"]]
    first, second = (
        [log.index(f"{name}: {step} passed") for name in MEMBERS] for step in ("step 1", "step 3")
    )
    assert max(first) < min(second), log
    assert max(second) < log.index("api: promoted") < log.index("worker: promoted"), log
    other = release(playground, "3", "3", api=canary)
    other["rollout_release"]["with_canary"] = True
    refused = playground.run(RELEASE, other)
    assert refused.rc != 0 and refused.failed.msg.endswith("[PR-134]"), refused.output
    assert "3" not in playground.journal("all.releases")["releases"]


@pytest.mark.parametrize(
    ("members", "id"),
    [
        ({"api": {"after": ["worker"]}, "worker": {"after": ["api"]}}, "PR-134"),
        ({"api": {"after": ["cron"]}}, "PR-134"),
        ({"api": {"service": "worker"}, "worker": {}}, "PR-134"),
        ({"api": {"soak": "soon"}}, "PR-104"),
    ],
)
def test_a_release_that_cannot_be_is_refused_before_anything_is_touched(
    playground: Playground, members: dict[str, t.Any], id: str
) -> None:
    outcome = playground.run(RELEASE, release(playground, "1", "1", members))
    assert outcome.rc != 0 and "[PR-1" in outcome.failed.msg, outcome.output
    assert not playground.living() and not playground.store.exists()


def test_the_example_releases_four_services_in_order(playground: Playground) -> None:
    home = playground.home
    for revision in ("2.4.1", "2.4.2"):
        programs = home / "opt" / revision
        programs.mkdir(parents=True)
        for name in ("migrate", "api", "worker", "web"):
            (programs / name).write_text(f"#!/bin/sh\nexec {sys.executable} -I -S {APP}\n")
            (programs / name).chmod(0o755)
    text = (EXAMPLE / "group_vars/all.yml").read_text()
    for before, after in (
        ("/opt/shop", f"{home}/opt"),
        ("/var/lib/rollout", f"{home}/store"),
        ("hosts: app", f"path: {home}/platform\n      hosts: web"),
        ("soak: 10m", "soak: 1s"),
    ):
        assert before in text
        text = text.replace(before, after)
    given = {**dict.fromkeys(playground.variables), **yaml.safe_load(text)}
    playbook = str(EXAMPLE / "release.yml")
    for revision in ("2.4.1", "2.4.2"):
        outcome = playground.run(playbook, {**given, "rollout_revision": revision})
        assert outcome.rc == 0, outcome.output
        log = [note["text"] for note in recorded(playground, revision)["log"]]
        done = [log.index(f"{name}: promoted") for name in ("api", "worker", "web")]
        assert log.index("schema: done") < done[0] < min(done[1:]), log
        assert {name: {revision} for name in given["rollout_members"]} == running(playground)
    shown = playground.run(playbook, {**given, "rollout_revision": "2.4.3"}, "--check")
    assert shown.rc == 0 and "release 2.4.3 is progressing" in shown.output, shown.output
    assert [name in shown.output for name in given["rollout_members"]] == [True] * 4
    assert "2.4.3" not in playground.journal("all.releases")["releases"]
    assert {name: {"2.4.2"} for name in given["rollout_members"]} == running(playground)


def test_the_name_of_a_member_is_refused_before_it_is_shown(playground: Playground) -> None:
    given = release(playground, "1", "1")
    given["rollout_release"]["members"] = {"web\x1b[31m\u202e": {}}
    refused = playground.run(RELEASE, given)
    assert refused.rc != 0 and "[PR-120]" in refused.failed.msg, refused.output
    assert "\x1b[31m" not in refused.output and "\u202e" not in refused.output
    assert playground.files() == set()


def test_shared_variables_have_name_and_revision_of_each_member(
    playground: Playground,
) -> None:
    given = {
        "rollout_service": None,
        "rollout_revision": None,
        "rollout_replicas": 1,
        "revisions": {"api": "7", "worker": "8"},
        "ports_of": PORTS,
        "rollout_platform": {
            **playground.variables["rollout_platform"],
            "ports": "{{ ports_of[rollout_service] }}",
            "env": {"NAME": "{{ rollout_service }} {{ rollout_revision }}"},
        },
        "rollout_release": {"name": "1", "members": MEMBERS},
        "rollout_members": {
            name: {"rollout_revision": f"{{{{ revisions['{name}'] }}}}"} for name in MEMBERS
        },
    }
    for_all = playground.run(RELEASE, {**given, "rollout_service": "shop"})
    assert for_all.rc != 0 and "[PR-639]" in for_all.failed.msg and playground.files() == set()
    outcome = playground.run(RELEASE, given)
    assert outcome.rc == 0, outcome.output
    assert running(playground) == {"api": {"7"}, "worker": {"8"}}
    for record in playground.living():
        name = record["id"].rpartition("-")[0]
        low, high = map(int, PORTS[name].split("-"))
        assert low <= record["port"] <= high, record


def test_shared_variables_have_the_variables_of_each_member(playground: Playground) -> None:
    """Those of rollouts and any other, which may refer to each other."""
    given = {
        "rollout_service": None,
        "rollout_revision": "1",
        "rollout_replicas": 1,
        "rollout_platform": {
            **playground.variables["rollout_platform"],
            "ports": "{{ ports }}",
            "env": {"TEXT": "{{ text }} {{ rollout_replicas }} {{ rollout_revision }}"},
        },
        "text": "none",
        "rollout_release": {"name": "1", "members": MEMBERS},
        "rollout_members": {
            "api": {
                "ports": PORTS["api"],
                "text": "{{ greeting }}, {{ rollout_service }}",
                "greeting": "hello",
                "rollout_replicas": 2,
                "rollout_revision": "{{ rollout_revision }}-{{ greeting }}",
            },
            "worker": {"ports": PORTS["worker"]},
        },
    }
    outcome = playground.run(RELEASE, given)
    assert outcome.rc == 0, outcome.output
    texts = {
        (record["id"].rpartition("-")[0], record["revision"], environment(record["pid"])["TEXT"])
        for record in playground.living()
    }
    assert texts == {
        ("api", "1-hello", "hello, api 2 1-hello"),
        ("worker", "1", "none 1 1"),
    }
    mistyped = {"api": {"ports": PORTS["api"], "rollout_replcas": 2}, "worker": {}}
    given["rollout_release"] = {"name": "2", "members": MEMBERS}
    refused = playground.run(RELEASE, {**given, "rollout_members": mistyped})
    assert refused.rc != 0 and "rollout_replcas" in refused.failed.msg, refused.output


def test_a_release_prepares_no_hosts_and_needs_none_prepared(playground: Playground) -> None:
    """prepare.yml has run before, for each member, in runs of its own."""
    given = release(playground, "1", "1", {"api": {}})
    outcome = playground.run(RELEASE, {**given, "rollout_prepare_tasks": "prepare.yml"})
    assert outcome.rc == 0 and running(playground) == {"api": {"1"}}, outcome.output


def environment(pid: int) -> dict[str, str]:
    """The environment of a process."""
    entries = Path(f"/proc/{pid}/environ").read_text().split("\0")
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)
