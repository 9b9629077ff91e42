# SPDX-License-Identifier: GPL-3.0-or-later
"""The service of docs/examples/vms-and-kubernetes under load: processes and a Deployment of a real
Kubernetes as one service behind a real HAProxy or Envoy, one after the other, and both back.

Its parts and targets are as they stand; hosts, load balancer and times are local.
"""

from __future__ import annotations

import os
import signal
import time
import typing as t
from collections import Counter
from collections.abc import Iterator

import pytest
import yaml
from ansible_collections.progressive.rollout.tests.support.namespaces import (
    IMAGE,
    KUBECONFIG,
    ROOT,
    Namespace,
)
from ansible_collections.progressive.rollout.tests.support.shop import (
    BehindEnvoy,
    BehindHAProxy,
    Front,
    Load,
    Place,
    Shop,
    failures,
)
from ansible_collections.progressive.rollout.tests.support.waiting import until

EXAMPLE = ROOT / "docs/examples/vms-and-kubernetes"
EACH = 3  # instances on hosts, and as many pods


class Site(Shop):
    """The example's service on hosts of this machine and in a namespace."""

    def __init__(self, front: Front, namespace: Namespace) -> None:
        shop = yaml.safe_load((EXAMPLE / "group_vars/all.yml").read_text())
        targets = shop["rollout_targets"]
        targets[0]["soak"] = "2s"
        super().__init__(
            front,
            rollout_replicas=2 * EACH,
            rollout_budget=shop["rollout_budget"],
            rollout_targets=targets,
        )
        self.front, self.namespace = front, namespace
        local = self.variables["rollout_platform"]
        parts = shop["rollout_platform"]["parts"]
        own = {"command": local["command"], "env": local["env"], "path": local["path"]}
        parts["vms"] = {"driver": "process", "hosts": "web", "ports": local["ports"], **own}
        parts["cloud"] |= {
            "kubeconfig": str(KUBECONFIG),
            "namespace": namespace.name,
            "image": IMAGE,
        }
        self.variables["rollout_platform"] = {**shop["rollout_platform"], "parts": parts}

    def places(self) -> set[Place]:
        """Where instances of both listen."""
        pods = {(str(pod["status"]["podIP"]), 8080) for pod in self.namespace.pods()}
        return pods | {(record["address"], record["port"]) for record in self.living()}

    def serves(self, revision: str) -> None:
        """All instances of both are of the revision, and the load balancer knows no others."""
        assert self.revisions() == [revision] * EACH
        self.namespace.is_ordinary(revision, EACH)
        assert self.front.serving() == self.front.known() == self.places()

    def share(self, revision: str) -> float:
        """The part of its weights that HAProxy gives to instances of a revision."""
        assert isinstance(self.front, BehindHAProxy)
        pods = self.namespace.cluster.get(f"{self.namespace.core}/pods")["items"]
        mine = {
            (str(pod["status"].get("podIP")), 8080)
            for pod in pods
            if pod["spec"]["containers"][0]["image"].endswith(f":{revision}")
        } | {
            (record["address"], record["port"])
            for record in self.records()
            if record["revision"] == revision
        }
        weights = Counter[bool]()
        for place, weight in self.front.weights().items():
            weights[place in mine] += weight
        return weights[True] / max(1, weights.total())

    def order(self, rollout: str, revision: str) -> list[str]:
        """The parts in which instances of a revision became ready, in order."""
        ready = [
            "cloud" if event["host"].startswith("cloud/") else "vms"
            for event in self.timeline(rollout)
            if (event["kind"], event.get("state"), event.get("revision"))
            == ("state", "ready", revision)
        ]
        return list(dict.fromkeys(ready))


@pytest.fixture
def site(namespace: Namespace, request: pytest.FixtureRequest) -> Iterator[Site]:
    front: Front = getattr(request, "param", BehindHAProxy)()
    namespace.deploy(EACH, start=0, stop=0)
    with Site(front, namespace) as found:
        found.to("1")
        found.serves("1")
        yield found
    front.close()


def load(site: Site) -> Load:
    kinds = [("GET", True), ("GET", False)]  # the program of the pods knows no others
    return Load(site.front.url, kinds, connections=2, rate=100)


def unscathed(reports: list[dict[str, t.Any]]) -> None:
    assert failures(reports) == []
    assert all("-" in report["by_revision"] for report in reports), "pods have answered"


@pytest.mark.parametrize("site", [BehindHAProxy, BehindEnvoy], indirect=True)
def test_a_wave_after_the_other(site: Site) -> None:
    with load(site) as requests:
        outcome = site.to("2")
        unscathed(requests.stop())
    site.serves("2")
    assert site.order(outcome.rollout["id"], "2") == ["vms", "cloud"]
    before = site.namespace.uids(), site.places()
    site.to("2")
    site.serves("2")
    assert (site.namespace.uids(), site.places()) == before, "there was nothing to do"


def test_weights_divide_the_requests_of_hosts_and_pods_behind_one_haproxy(site: Site) -> None:
    """10 % and then 60 % of all requests, whichever part a new instance is in."""
    steps = [{"set_weight": 10}, {"pause": "4s"}, {"set_weight": 60}, {"pause": "4s"}]
    canary = {
        "rollout_revision": "2",
        "rollout_strategy": "canary",
        "rollout_steps": steps,
        "rollout_targets": None,
    }
    shares: list[float] = []
    with load(site) as requests:
        run = site.start(variables=canary)
        while run.process.poll() is None:
            shares.append(site.share("2"))
            time.sleep(0.1)
        outcome = run.wait()
        unscathed(requests.stop())
    assert outcome.rc == 0, outcome.output
    site.serves("2")
    for wanted in (0.1, 0.6):
        assert any(abs(share - wanted) < 0.01 for share in shares), shares


def test_pods_that_do_not_start_take_the_first_wave_back(site: Site) -> None:
    """Then what rollouts left is removed, and a first one follows, for which processes end."""
    with load(site) as requests:
        outcome = site.run(variables={"rollout_revision": "broken", "rollout_failure_limit": 1})
        assert outcome.rc != 0 and outcome.rollout["outcome"] == "rolled_back", outcome.output
        site.serves("1")
        assert site.order(outcome.rollout["id"], "broken") == ["vms"], "the first wave was there"
        pods, places, processes = site.namespace.uids(), site.places(), site.living()
        removed = site.run("progressive.rollout.remove", {})
        assert removed.rc == 0 and "cloud: deployments/shop" in removed.output, removed.output
        until(lambda: not site.namespace.notes(), "pods have ended")
        assert (site.namespace.uids(), site.front.serving()) == (pods, places)
        unscathed(requests.stop())
    for process in processes:
        os.killpg(process["pid"], signal.SIGKILL)
    site.to("2")
    site.serves("2")


def test_a_run_that_was_killed_in_the_second_is_continued(site: Site) -> None:
    with load(site) as requests:
        run = site.start(variables={"rollout_revision": "2"})
        until(lambda: "2" in site.namespace.ready(), "the second wave is under way", 120)
        run.kill()
        site.to("2")
        unscathed(requests.stop())
    site.serves("2")
