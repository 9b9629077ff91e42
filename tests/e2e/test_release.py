# SPDX-License-Identifier: GPL-3.0-or-later
"""Several services as one release, by the playbook that rolls all out. Runs of their own, failures and
canaries: tests/unit/test_release_playbook.py, test_release_members.py.
"""

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
    ROOT,
    Outcome,
    Playground,
)
from ansible_collections.progressive.rollout.tests.support.shop import BehindEnvoy

EXAMPLE = ROOT / "docs/examples/release"
RELEASE = "progressive.rollout.release"
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
