# SPDX-License-Identifier: GPL-3.0-or-later
"""What real servers have answered, by version: tests/engines/record.py has recorded it."""

from __future__ import annotations

import json
import re
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base import text
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import (
    Health,
    Process,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms import (
    _pod,
    _pod_reports,
    _pods,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.kubernetes import (
    ApiError,
    Cluster,
    Expired,
    Reflector,
)
from ansible_collections.progressive.rollout.tests.support import kubernetes as api
from ansible_collections.progressive.rollout.tests.support import web
from ansible_collections.progressive.rollout.tests.support.playbook import ROOT
from ansible_collections.progressive.rollout.tests.unit.test_kubernetes_api import kubeconfig

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


@pytest.fixture(autouse=True)
def replayed(request: pytest.FixtureRequest, record_property: t.Callable[..., None]) -> None:
    """Count what is replayed, for the summary (tests/conftest.py)."""
    if found := re.search(r"kubernetes-(v[\d.]+)", request.node.name):
        record_property("replayed", f"Kubernetes {found[1]}")


def test_everything_that_matters_was_recorded() -> None:
    for one in RECORDED.values():
        statuses = {answer["status"] for answer in one["answers"].values()}
        assert {200, 401, 403, 404, 409, 422} <= statuses
        assert "410" in one["answers"]["watch from too long ago (410)"]["text"]


def read(pod: dict[str, t.Any]) -> t.Any:
    """The report of a pod, as at the end of its recording."""
    owner = {"metadata": {"name": "a", "uid": "set"}, "spec": {"replicas": 1}}
    owner["spec"]["template"] = api.template("1")
    group = _pods.Group(owner, api.deployment("1", 1), [pod])
    now = _pod.seconds(pod["metadata"]["creationTimestamp"]) + 10
    reading = _pod_reports.Reading("shop", "shop", "docker.io/local/shop:{revision}", 0, now)
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
    assert not _pod.gone(recorded["pods"][name])


@pytest.mark.parametrize("recorded", RECORDED.values(), ids=RECORDED)
def test_a_pod_that_has_ended_is_gone(recorded: t.Any) -> None:
    assert _pod.gone(recorded["pods"]["ended"])


@pytest.mark.parametrize("recorded", RECORDED.values(), ids=RECORDED)
def test_why_a_quota_lets_no_pods_be_made(recorded: t.Any) -> None:
    one = recorded["refusal"]
    group = _pods.Group(one, {"metadata": {"name": "shop", "uid": "other"}})
    assert re.fullmatch(
        r'pods "shop-.*" is forbidden: exceeded quota: few, requested: pods=1, used: pods=\d+,'
        r" limited: pods=0",
        group.refusal,
    )


def answered(*names: str) -> list[t.Any]:
    """What was answered to these requests, or to all that were refused."""
    return [
        pytest.param(answer, id=f"{version} {name}")
        for version, one in RECORDED.items()
        for name, answer in one["answers"].items()
        if (name in names if names else answer["status"] >= 400)
    ]


@pytest.fixture
def server() -> Iterator[web.Server]:
    made = web.Server()
    yield made
    made.close()


def asked(cluster: t.Any, answer: t.Any) -> t.Any:
    """Ask for what was asked for when it was recorded."""
    given = [] if answer["body"] is None else [answer["body"]]
    return getattr(cluster, answer["method"].lower())(answer["path"], *given, **answer["query"])


@pytest.fixture
def cluster(tmp_path: Path, server: web.Server) -> Cluster:
    return Cluster(kubeconfig(tmp_path, server.url))


@pytest.mark.parametrize("answer", answered())
def test_a_refusal_is_told_in_the_words_of_the_server(
    cluster: Cluster, server: web.Server, answer: t.Any
) -> None:
    server.replies = [(answer["status"], answer["text"])]
    with pytest.raises(ApiError) as found:
        asked(cluster, answer)
    assert found.value.status == answer["status"]
    assert text.clean(json.loads(answer["text"])["message"]) in str(found.value)


@pytest.mark.parametrize("answer", answered("list", "list of nothing"))
def test_a_list_is_read(cluster: Cluster, server: web.Server, answer: t.Any) -> None:
    server.replies = [(answer["status"], answer["text"])]
    items = json.loads(answer["text"])["items"]
    found = Reflector(cluster, answer["path"], lambda: None)._listed()[0]
    assert list(found) == [one["metadata"]["name"] for one in items]


@pytest.mark.parametrize("answer", answered("patch", "dry run"))
def test_what_was_written_comes_back(cluster: Cluster, server: web.Server, answer: t.Any) -> None:
    server.replies = [(answer["status"], answer["text"])]
    found = asked(cluster, answer)
    template = _pods.template_of(found)
    assert template["spec"]["containers"][0]["image"] == "docker.io/local/shop:1"
    assert _pods.digest(template) == _pods.digest(_pods.template_of(found))


@pytest.mark.parametrize("answer", answered("watch"))
def test_a_watch_is_read(cluster: Cluster, server: web.Server, answer: t.Any) -> None:
    server.replies = [(answer["status"], answer["text"])]
    told = list(cluster.watch(answer["path"], "1"))
    kinds = {kind for kind, _one in told}
    assert "MODIFIED" in kinds and kinds <= {"MODIFIED", "ADDED", "BOOKMARK"}
    versions = [int(one["metadata"]["resourceVersion"]) for _kind, one in told]
    assert [int(answer["query"]["resourceVersion"]), *versions] == sorted(
        {int(answer["query"]["resourceVersion"]), *versions}
    )


@pytest.mark.parametrize("answer", answered("watch from too long ago (410)"))
def test_a_watch_that_has_expired_says_so(
    cluster: Cluster, server: web.Server, answer: t.Any
) -> None:
    server.replies = [(answer["status"], answer["text"])]
    with pytest.raises(Expired, match="too old resource version"):
        list(cluster.watch(answer["path"], "1"))


REFUSED = ("patch of what has changed (409)", "test of what is otherwise (422)")
MISSING = ("patch of what is not there (404)", "get of what is not there (404)")


@pytest.mark.parametrize("answer", answered(*REFUSED, *MISSING, "create of what is there (409)"))
def test_the_server_in_memory_refuses_as_the_real_one(answer: t.Any) -> None:
    server = api.Server()
    server.create(f"{api.APPS}/deployments", api.deployment("1", 2))
    with pytest.raises(ApiError) as found:
        asked(server, answer)
    assert found.value.status == answer["status"]
