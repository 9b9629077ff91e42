# SPDX-License-Identifier: GPL-3.0-or-later
"""Rollouts of a Deployment in two real clusters: that of CLUSTER, and the next one.

Both have to be up: `scripts/kubernetes up`, and the same with CLUSTER one higher.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import time
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.kubernetes import Cluster
from ansible_collections.progressive.rollout.tests.support.namespaces import (
    EXTERNAL,
    IMAGE,
    ROOT,
    Client,
    Namespace,
)
from ansible_collections.progressive.rollout.tests.support.playbook import Playground
from ansible_collections.progressive.rollout.tests.support.waiting import until

_COUNT = itertools.count(1)  # of namespaces: one that is being deleted has its name for a while
FIRST = 0 if EXTERNAL else int(os.environ.get("CLUSTER", "0"))
NUMBERS = {"eu": FIRST, "us": FIRST + 1}
WAVES = [{"name": "first", "clusters": ["eu"]}, {"name": "second", "clusters": ["us"]}]


def directory(name: str) -> Path:
    return ROOT / ".cache/kubernetes" / str(NUMBERS[name])


class Region(Namespace):
    """A namespace in one of the clusters, with the Deployment and the Service `shop`."""

    def __init__(self, name: str) -> None:
        self.kubeconfig = directory(name) / "kubeconfig"
        if not self.kubeconfig.exists():
            pytest.fail(f"no cluster: run CLUSTER={NUMBERS[name]} scripts/kubernetes up")
        self.region = name
        super().__init__(
            Cluster(str(self.kubeconfig)), f"rollout-{os.getpid()}-{next(_COUNT)}-{name}"
        )
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.name}}
        self.cluster.post("/api/v1/namespaces", body)

    def kubectl(self, *words: str, given: t.Any = None) -> str:
        before = os.environ.get("CLUSTER")
        os.environ["CLUSTER"] = str(NUMBERS[self.region])
        try:
            return super().kubectl(*words, given=given)
        finally:
            os.environ.pop("CLUSTER")
            if before is not None:
                os.environ["CLUSTER"] = before

    @property
    def listed(self) -> dict[str, str]:
        return {"name": self.region, "kubeconfig": str(self.kubeconfig), "namespace": self.name}

    @contextlib.contextmanager
    def gone(self) -> Iterator[None]:
        """Its API server is killed meanwhile."""
        number = int((directory(self.region) / "apiserver.pid").read_text())
        os.kill(number, signal.SIGKILL)
        try:
            yield
        finally:
            subprocess.run(
                [str(ROOT / "scripts/kubernetes"), "restart"],
                env={**os.environ, "CLUSTER": str(NUMBERS[self.region])},
                check=True,
                timeout=180,
            )


@pytest.fixture
def regions() -> Iterator[tuple[Region, Region]]:
    if EXTERNAL:
        pytest.skip("only on the clusters of scripts/kubernetes")
    both = Region("eu"), Region("us")
    yield both
    for one in both:
        one.cluster.delete(f"/api/v1/namespaces/{one.name}")


@pytest.fixture
def two(regions: tuple[Region, Region]) -> Iterator[Playground]:
    """A controller, and a Deployment `shop` in each cluster, with a Service before it."""
    clusters = [one.listed for one in regions]
    platform = {"driver": "kubernetes", "workload": "deployment/shop", "image": IMAGE}
    traffic = {"driver": "kubernetes_service", "service": "shop", "clusters": clusters}
    given = {
        "rollout_platform": {**platform, "clusters": clusters},
        "rollout_traffic": traffic,
        "rollout_replicas": 4,
        "rollout_health": None,
    }
    made = Playground(1, given)
    yield made
    made.close()


def test_both_are_rolled_out_and_lose_no_request(
    two: Playground, regions: tuple[Region, Region]
) -> None:
    for one in regions:
        one.deploy(2, start=0)
    with Client(regions[0]) as first, Client(regions[1]) as second:
        outcome = two.run(variables={"rollout_revision": "2"})
        time.sleep(1)
    assert outcome.rc == 0, outcome.output
    for one in regions:
        one.is_ordinary("2", 2)
    assert (first.failed, second.failed) == ([], [])
    assert min(first.answers["2"], second.answers["2"]) > 10
    again = two.run(variables={"rollout_revision": "2"})
    assert (again.rc, again.rollout["changed"]) == (0, False), again.output


def test_a_failure_in_the_second_takes_the_first_back(
    two: Playground, regions: tuple[Region, Region]
) -> None:
    for one in regions:
        one.deploy(2, start=0)
    gates = [{"driver": "command", "command": ["false"]}]
    waves = [WAVES[0], {**WAVES[1], "gates": gates}]
    with Client(regions[0]) as first, Client(regions[1]) as second:
        outcome = two.run(variables={"rollout_revision": "2", "rollout_targets": waves})
        time.sleep(1)
    assert outcome.rc != 0, outcome.output
    assert outcome.rollout["outcome"] == "rolled_back"
    for one in regions:
        one.is_ordinary("1", 2)
    assert (first.failed, second.failed) == ([], [])
    assert first.order.index("2") < len(first.order) and "2" in second.answers


def test_a_cluster_that_is_killed_in_the_middle_is_waited_for(
    two: Playground, regions: tuple[Region, Region]
) -> None:
    eu, us = regions
    for one in regions:
        one.deploy(2, start=1)
    budget = {"max_surge": 2, "max_unavailable": 2}
    with Client(us) as client:
        run = two.start(variables={"rollout_revision": "2", "rollout_budget": budget})
        until(lambda: any(name.endswith("-g2") for name in eu.sets()), "the rollout is under way")
        with eu.gone():
            until(lambda: us.ready() == {"2": 2}, "the other cluster goes on")
            assert run.process.poll() is None
        outcome = run.wait()
        time.sleep(1)
    assert outcome.rc == 0, outcome.output
    assert "eu does not answer" in outcome.output
    for one in regions:
        one.is_ordinary("2", 2)
    assert client.failed == []


EXAMPLE = ROOT / "docs/examples/kubernetes-two-clusters"


def test_the_example_runs(regions: tuple[Region, Region], tmp_path: Path) -> None:
    """As it is, but for the image, which is on the nodes, and the soak."""
    text = (EXAMPLE / "deployment.yaml").read_text()
    local = tmp_path / "deployment.yaml"
    local.write_text(text.replace("shop:1\n", "shop:1\n          imagePullPolicy: Never\n"))
    for one in regions:
        one.kubectl("apply", "-f", str(local), "-f", str(EXAMPLE / "service.yaml"))
    config: dict[str, t.Any] = {"apiVersion": "v1", "kind": "Config"}
    for one in regions:
        until(lambda one=one: one.ready() == {"1": 2}, "the pods are ready")  # type: ignore[misc]
        own = yaml.safe_load(one.kubeconfig.read_text())
        named = {"cluster": one.region, "user": one.region, "namespace": one.name}
        for kind in ("clusters", "users"):
            config.setdefault(kind, []).append({**own[kind][0], "name": one.region})
        config.setdefault("contexts", []).append({"name": one.region, "context": named})
    (tmp_path / "config").write_text(yaml.safe_dump({**config, "current-context": "eu"}))
    targets = yaml.safe_load((EXAMPLE / "group_vars/all.yml").read_text())["rollout_targets"]
    targets[0]["soak"] = "1s"
    (tmp_path / "waves.yml").write_text(yaml.safe_dump({"rollout_targets": targets}))
    program = Path(sys.executable).with_name("ansible-playbook")
    given = ["-i", "inventory.yml", "-e", f"@{tmp_path}/waves.yml", "-e", "rollout_revision=2"]
    done = subprocess.run(
        [program, "rollout.yml", *given],
        cwd=EXAMPLE,
        env={**os.environ, "HOME": str(tmp_path), "KUBECONFIG": str(tmp_path / "config")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for one in regions:
        one.is_ordinary("2", 2)
