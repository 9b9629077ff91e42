# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What real servers have answered, by version: tests/engines/record.py has recorded it."""

from __future__ import annotations

import json
import re
import typing as t

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import (
    Health,
    Process,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms import _pods
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.kubernetes import ApiError
from ansible_collections.progressive.rollout.tests.support import kubernetes as api
from ansible_collections.progressive.rollout.tests.support.playbook import ROOT

RECORDED = {
    path.stem: json.loads(path.read_text())
    for path in sorted((ROOT / "tests/support/recorded").glob("kubernetes-*.json"))
}
RUNNING, STARTING = Process.RUNNING, Process.STARTING
PODS = {
    "ready": (RUNNING, Health.PASSING, ""),
    "starting": (RUNNING, Health.PENDING, r"containers with unready status: \[shop\]"),
    "deleted": (Process.STOPPING, Health.NONE, ""),
    "pull": (STARTING, Health.NONE, 'ErrImageNeverPull: Container image "nowhere:1" is not'),
    "crash": (RUNNING, Health.PENDING, "CrashLoopBackOff: back-off 10s restarting failed"),
    "unschedulable": (STARTING, Health.NONE, "Unschedulable: 0/1 nodes are available"),
}


def test_something_is_replayed() -> None:
    assert sum(len(one["pods"]) + len(one["answers"]) for one in RECORDED.values()) >= 12


def read(pod: dict[str, t.Any]) -> t.Any:
    """The report of a pod, as at the end of its recording."""
    owner = {"metadata": {"name": "a", "uid": "set"}, "spec": {"replicas": 1}}
    owner["spec"]["template"] = api.template("1")
    group = _pods.Group(owner, api.deployment("1", 1), [pod])
    now = _pods.seconds(pod["metadata"]["creationTimestamp"]) + 10
    reading = _pods.Reading("shop", "shop", "docker.io/local/shop:{revision}", 0, now)
    return next(iter(reading.reports(group, 0.0)))


@pytest.mark.parametrize("name", PODS)
@pytest.mark.parametrize("recorded", RECORDED.values(), ids=RECORDED)
def test_what_a_pod_is(recorded: t.Any, name: str) -> None:
    process, health, detail = PODS[name]
    report = read(recorded["pods"][name])
    assert (report.process, report.health) == (process, health)
    assert re.match(detail, report.detail) and bool(detail) == bool(report.detail), report.detail
    assert bool(report.labels.host) == (name != "unschedulable")
    assert report.restarts == (name == "crash")
    assert not _pods.gone(recorded["pods"][name])


@pytest.mark.parametrize("recorded", RECORDED.values(), ids=RECORDED)
def test_a_pod_that_has_ended_is_gone(recorded: t.Any) -> None:
    assert _pods.gone(recorded["pods"]["ended"])


@pytest.mark.parametrize("recorded", RECORDED.values(), ids=RECORDED)
def test_why_a_quota_lets_no_pods_be_made(recorded: t.Any) -> None:
    one = recorded["refusal"]
    group = _pods.Group(one, {"metadata": {"name": "shop", "uid": "other"}})
    assert re.fullmatch(
        r'pods "shop-.*" is forbidden: exceeded quota: few, requested: pods=1, used: pods=\d+,'
        r" limited: pods=0",
        group.refusal,
    )


ANSWERS = [
    pytest.param(answer, id=f"{version} {answer['method']} {answer['status']}")
    for version, one in RECORDED.items()
    for answer in one["answers"]
]


@pytest.mark.parametrize("answer", ANSWERS)
def test_the_server_in_memory_refuses_as_the_real_one(answer: t.Any) -> None:
    server = api.Server()
    server.create(f"{api.APPS}/deployments", api.deployment("1", 2))
    given = [] if answer["body"] is None else [answer["body"]]
    with pytest.raises(ApiError) as found:
        getattr(server, answer["method"])(answer["path"], *given)
    assert found.value.status == answer["status"]
