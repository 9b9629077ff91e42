# SPDX-License-Identifier: GPL-3.0-or-later
"""Others are told of rollouts, and metrics are kept, by the playbooks that users run."""

from __future__ import annotations

import json
import shlex
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.notifier import EVENTS
from ansible_collections.progressive.rollout.tests.support.playbook import (
    ROLLOUT,
    Playground,
)
from ansible_collections.progressive.rollout.tests.support.web import Server

SECRETS = {name: f"hunter2-the-{name}" for name in ("token", "key", "path", "query")}
Told = list[tuple[str, str]]  # events, and the revision that each is about


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


def webhook(url: str, **options: t.Any) -> dict[str, t.Any]:
    return {"driver": "webhook", "on": list(EVENTS), "url": url, **options}


def told(server: Server) -> Told:
    """What a webhook got, in its order; each message must have an id of its own."""
    got = [json.loads(request.body) for request in server.requests]
    assert len({one["id"] for one in got}) == len(got), "a message was sent twice"
    facts = [one["data"]["customData"] for one in got]
    return [(one["event"], one["revision"]) for one in facts]


def notified(playground: Playground) -> list[tuple[str, str]]:
    """What the timeline of the last rollout says was sent: events, and to whom."""
    timeline = playground.timeline(playground.journal()["rollout"]["id"])
    return [(one["event"], one["to"]) for one in timeline if one["kind"] == "notified"]


def metrics(file: Path) -> dict[str, float]:
    """The samples of a text file that are not 0."""
    lines = [one for one in file.read_text().splitlines() if not one.startswith("#")]
    found = {name: float(value) for name, value in (one.rsplit(" ", 1) for one in lines)}
    return {name: value for name, value in found.items() if value}


def test_rollouts_are_told_and_measured_without_a_secret(
    playground: Playground, server: Server
) -> None:
    """With -vvvv, by a webhook, by a command, and by a webhook that repeats all it is told in a
    refusal.
    """
    refusing, words = Server(), " ".join(SECRETS.values())
    refusing.replies = [(403, words)]
    got, textfile = playground.home / "got", playground.home / "shop.prom"
    confidential = {
        "headers": {"Authorization": f"Bearer {SECRETS['token']}"},
        "secret": SECRETS["key"],
    }
    below = f"{SECRETS['path']}/hook?key={SECRETS['query']}"
    program = f"cat >> {shlex.quote(str(got))}; echo >> {shlex.quote(str(got))}"
    variables = {
        "rollout_replicas": 1,
        "rollout_notify": [
            webhook(f"{server.url}/{below}", **confidential),
            {"driver": "command", "on": list(EVENTS), "command": ["sh", "-c", program, "{event}"]},
            webhook(f"{refusing.url}/{below}", **confidential),
        ],
        "rollout_metrics": {"textfile": str(textfile)},
    }
    try:
        first = playground.start(ROLLOUT, variables, "-vvvv")
        seen = first.shown(set(SECRETS.values()))
        promoted, after_first = first.wait(), metrics(textfile)
        broken = {**playground.variables["rollout_platform"], "command": ["/bin/false"]}
        changes = {**variables, "rollout_revision": "2", "rollout_platform": broken}
        second = playground.start(ROLLOUT, changes, "-vvvv")
        seen |= second.shown(set(SECRETS.values()))
        rolled_back, after_second = second.wait(), metrics(textfile)
        assert len(refusing.requests) == 4  # refused for good: each was tried once
    finally:
        refusing.close()

    assert promoted.rc == 0 and rolled_back.rc != 0, promoted.output + rolled_back.output
    expected = [("begun", "1"), ("promoted", "1"), ("begun", "2"), ("rolled_back", "2")]
    assert told(server) == expected
    facts = [json.loads(line) for line in got.read_text().splitlines()]
    assert [(one["event"], one["revision"]) for one in facts] == expected
    assert "rollout_failure_limit" in facts[-1]["reason"]
    assert server.requests[0].headers["Authorization"] == f"Bearer {SECRETS['token']}"
    assert sorted(notified(playground)) == sorted(
        (event, to)
        for event in ("begun", "rolled_back")
        for to in ("webhook 1", "command 2", "webhook 3")
    )

    shop = 'service="shop"'
    assert after_first[f'rollout_outcome{{{shop},outcome="promoted"}}'] == 1
    assert after_first[f'rollout_instances{{{shop},side="new",state="ready"}}'] == 1
    assert after_second[f'rollout_outcome{{{shop},outcome="rolled_back"}}'] == 1
    assert after_second[f'rollout_stable_info{{{shop},revision="1"}}'] == 1
    assert after_second[f"rollout_notification_failures{{{shop}}}"] == 2
    assert f"rollout_lease_held{{{shop}}}" not in after_second

    everywhere = {
        str(path): path.read_text(errors="replace")
        for path in [*map(Path, playground.files()), textfile, got]
        if path.is_file()
    }
    assert any(path.endswith(".jsonl") and "*** ***" in text for path, text in everywhere.items())
    everywhere |= {"processes": " ".join(seen), "1": promoted.output, "2": rolled_back.output}
    assert "webhook 3 could not be notified (rolled_back)" in " ".join(rolled_back.output.split())
    assert {
        (where, name)
        for where, text in everywhere.items()
        for name, word in SECRETS.items()
        if word in text
    } == set()
