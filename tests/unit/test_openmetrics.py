# SPDX-License-Identifier: GPL-3.0-or-later
"""The text of the metrics: bounded, escaped, and the same for OpenMetrics and Prometheus."""

from __future__ import annotations

import re
import typing as t
from pathlib import Path

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import InputError
from ansible_collections.progressive.rollout.plugins.plugin_utils.config import variables
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.store import Lease
from ansible_collections.progressive.rollout.plugins.plugin_utils.report.openmetrics import (
    GATES,
    HELP,
    exposition,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.record import Record
from ansible_collections.progressive.rollout.tests.support.memory import Service, World
from ansible_collections.progressive.rollout.tests.support.pages import read
from ansible_collections.progressive.rollout.tests.support.timelines import rollout
from ansible_collections.progressive.rollout.tests.support.web import Server
from hypothesis import given
from hypothesis import strategies as st

SAMPLE = re.compile(
    r'(?P<name>[a-z_]+)\{(?P<labels>[a-z_]+="(?:[^"\\\n]|\\["\\n])*"'
    r'(?:,[a-z_]+="(?:[^"\\\n]|\\["\\n])*")*)\} (?P<value>[0-9.e+-]+)'
)


def samples(text: str) -> dict[str, float]:
    """Read the metrics, strictly; raises where a line is none."""
    lines = text.split("\n")
    assert lines[-2:] == ["# EOF", ""]
    found: dict[str, float] = {}
    for line in lines[:-2]:
        if line.startswith("#"):
            assert re.fullmatch(r"# (HELP \w+ [ -~]+|TYPE \w+ gauge)", line)
            continue
        match = SAMPLE.fullmatch(line)
        assert match, line
        key = f"{match['name']}{{{match['labels']}}}"
        assert key not in found and match["name"] in HELP
        found[key] = float(match["value"])
    return found


def record(**changes: t.Any) -> Record:
    return Record.load(
        "shop", {"rollout": {**rollout(3), "replicas": 3, "strategy": "canary", **changes}}
    )


def test_a_service_without_a_rollout_has_metrics() -> None:
    found = samples(exposition(Record("shop"), (), None))
    assert found['rollout_lease_held{service="shop"}'] == 0
    assert not any(name.startswith("rollout_phase") for name in found)


def test_instances_verdicts_and_the_lease_are_counted() -> None:
    known = record()
    assert known.rollout
    new = known.rollout.generation
    timeline = [
        {"kind": "state", "instance": "a", "state": "ready", "generation": new},
        {"kind": "state", "instance": "b", "state": "starting", "generation": new},
        {"kind": "state", "instance": "c", "state": "ready", "generation": new - 1},
        {"kind": "state", "instance": "d", "state": "ready", "generation": new - 1},
        {"kind": "state", "instance": "d", "state": "gone"},
        {"kind": "verdict", "gate": "analysis", "verdict": "person"},
        {"kind": "verdict", "gate": "analysis", "verdict": "fail"},
        {"kind": "notified", "error": "no"},
        {"kind": "notified"},
        {"kind": "requests", "new": {"requests": 3, "errors": 1}, "old": {"requests": 5}},
        {"kind": "requests", "new": {"requests": 1}, "old": {"requests": 5, "errors": 0}},
    ]
    lease = Lease("token", "ann", 1.0, 61.5, 7)
    text = exposition(known, timeline, lease)
    found = samples(text)
    here = 'service="shop"'
    assert found[f'rollout_instances{{{here},side="new",state="ready"}}'] == 1
    assert found[f'rollout_instances{{{here},side="old",state="ready"}}'] == 1
    assert found[f'rollout_verdict{{{here},gate="analysis",verdict="fail"}}'] == 1
    assert found[f'rollout_verdict{{{here},gate="analysis",verdict="person"}}'] == 0
    assert found[f"rollout_notification_failures{{{here}}}"] == 1
    assert found[f'rollout_requests{{{here},side="new"}}'] == 4
    assert found[f'rollout_request_errors{{{here},side="new"}}'] == 1
    assert found[f"rollout_lease_expires_timestamp_seconds{{{here}}}"] == 61.5
    assert "token" not in text


def test_the_share_is_the_one_asked_and_the_one_measured() -> None:
    found = samples(exposition(record(asked=25, sent={"new": 26, "all": 100}), (), None))
    assert found['rollout_share_asked_ratio{service="shop"}'] == 0.25
    assert found['rollout_share_measured_ratio{service="shop"}'] == 0.26


@given(st.lists(st.text(max_size=300), max_size=40))
def test_labels_are_bounded_and_escaped(gates: list[str]) -> None:
    timeline = [{"kind": "verdict", "gate": gate, "verdict": "pass"} for gate in gates]
    text = exposition(record(), timeline, None)
    assert sum(line.startswith("rollout_verdict{") for line in text.splitlines()) <= 3 * GATES
    assert all(len(line) < 600 for line in text.splitlines())
    samples(text)  # none is there twice


def test_the_page_names_every_metric() -> None:
    page = read("docs/how-to/metrics.md")
    assert re.findall(r"^\| `(rollout_\w+)` \|", page, re.M) == list(HELP)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"textfile": "/srv/x.txt"}, r"textfile: .*\.prom"),
        ({"textfile": "x.prom"}, "absolute"),
        ({"pushgateway": "push:9091"}, "URL"),
        ({"pushgateway": "http://ann:pass@push"}, "name and password"),
        ({"push": "x"}, "unknown option"),
    ],
)
def test_wrong_places_are_refused(given: dict[str, str], words: str) -> None:
    with pytest.raises(InputError, match=words):
        variables.metrics(given, "rollout_metrics")
    assert variables.metrics({}, "rollout_metrics") is None


def test_a_gateway_that_fails_is_told_and_holds_nothing_up(tmp_path: Path) -> None:
    server = Server()
    try:
        server.replies = [(500, "no")]
        store = {"driver": "file", "path": str(tmp_path / "store")}
        metrics = {"pushgateway": server.url, "textfile": f"{tmp_path}/nowhere/x.prom"}
        given = {"replicas": 2, "store": store, "metrics": {"pushgateway": server.url}}
        service = Service(World(fewest=0, most=9), **given)
        service.play(revision="1")
        service.play(revision="2", metrics=metrics)
    finally:
        server.close()
    assert service.journal.stable and service.journal.stable.revision == "2"
    said = [line for line in service.said if "PR-632" in line]
    assert any("answered 500" in line for line in said)
    assert any(f"{tmp_path}/nowhere" in line for line in said)
