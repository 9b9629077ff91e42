# SPDX-License-Identifier: GPL-3.0-or-later
"""Rollouts of StatefulSets and DaemonSets on a real Kubernetes of two nodes: `make test-engines`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import typing as t
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms import _rights
from ansible_collections.progressive.rollout.tests.support.namespaces import (
    KUBECONFIG,
    ROOT,
    Client,
    Namespace,
)
from ansible_collections.progressive.rollout.tests.support.playbook import Playground
from ansible_collections.progressive.rollout.tests.support.waiting import until

IMAGE = "docker.io/local/shop:{revision}"
BUDGET = {"rollout_budget": {"max_unavailable": 1}}
FAST = {"rollout_progress_deadline": "60s", "rollout_health": {"tcp": True, "deadline": "15s"}}


def playground(namespace: Namespace, workload: str) -> Playground:
    platform = {
        "driver": "kubernetes",
        "kubeconfig": str(KUBECONFIG),
        "namespace": namespace.name,
        "workload": workload,
        "image": IMAGE,
    }
    none = {"rollout_replicas": None, "rollout_health": None}
    return Playground(1, {"rollout_platform": platform, **none, **BUDGET})


@pytest.fixture
def db(namespace: Namespace) -> Iterator[Playground]:
    made = playground(namespace, "statefulset/db")
    yield made
    made.close()


@pytest.fixture
def agent(namespace: Namespace) -> Iterator[Playground]:
    made = playground(namespace, "daemonset/agent")
    yield made
    made.close()


def deploy(namespace: Namespace, kind: str, name: str, **more: t.Any) -> None:
    """Create a workload of pods that say their revision, and the Service of `Client`."""
    container = {
        "name": "shop",
        "image": "docker.io/local/shop:1",
        "imagePullPolicy": "Never",
        "env": [{"name": "START", "value": "0"}],
        "ports": [{"containerPort": 8080}],
        "readinessProbe": {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1},
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", "3"]}}},
    }
    labels = {"app": "shop"}
    pod = {"terminationGracePeriodSeconds": 8, "containers": [container]}
    spec = {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
        "updateStrategy": {"type": "OnDelete"},
        **more,
    }
    mine = {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}
    namespace.kubectl("apply", "-f", "-", given=mine)
    ports = [{"port": 80, "targetPort": 8080}]
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "shop"}}
    given = {**service, "spec": {"selector": labels, "ports": ports}}
    namespace.kubectl("apply", "-f", "-", given=given)


def deploy_db(namespace: Namespace, replicas: int = 3, **more: t.Any) -> None:
    deploy(namespace, "StatefulSet", "db", serviceName="shop", replicas=replicas, **more)
    until(lambda: namespace.ready() == {"1": replicas}, "the pods are ready")


def deploy_agent(namespace: Namespace) -> None:
    deploy(namespace, "DaemonSet", "agent")
    until(lambda: namespace.ready() == {"1": 2}, "the pods are ready, on two nodes")


def revisions(namespace: Namespace) -> dict[str, str]:
    """The revision of each pod that is ready."""
    return {
        pod["metadata"]["name"]: pod["spec"]["containers"][0]["image"].rpartition(":")[2]
        for pod in namespace.pods()
        for one in pod["status"].get("conditions", ())
        if (one["type"], one["status"]) == ("Ready", "True")
    }


def template(namespace: Namespace, kind: str, name: str) -> str:
    """The revision that a pod comes back with."""
    found = namespace.cluster.get(f"{namespace.apps}/{kind}/{name}")
    image: str = found["spec"]["template"]["spec"]["containers"][0]["image"]
    return image.rpartition(":")[2]


def remove(made: Playground, namespace: Namespace, workload: str, **given: t.Any) -> None:
    """Remove what rollouts have left; pods run on, and have nothing of it."""
    uids = namespace.uids()
    removed = made.run("progressive.rollout.remove", given)
    assert removed.rc == 0 and workload in removed.output, removed.output
    assert "rollout.progressive" not in namespace.kubectl("get", "pod,service", "-o", "yaml")
    assert namespace.uids() == uids


class Watched:
    """The fewest pods that were ready at once, and what else was seen, while it is entered."""

    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace
        self.fewest = 999
        self.seen: list[dict[str, str]] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Watched:
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._end.wait(0.05):
            now = revisions(self.namespace)
            self.fewest = min(self.fewest, len(now))
            if not self.seen or self.seen[-1] != now:
                self.seen.append(now)


# StatefulSets
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("managed", ["OrderedReady", "Parallel"])
def test_a_statefulset_is_walked_in_place(
    db: Playground, namespace: Namespace, managed: str
) -> None:
    deploy_db(namespace, 3, podManagementPolicy=managed)
    with Client(namespace) as client, Watched(namespace) as watched:
        outcome = db.run(variables={"rollout_revision": "2"})
        time.sleep(1)
    assert outcome.rc == 0, outcome.output
    assert outcome.rollout["outcome"] == "promoted"
    assert revisions(namespace) == {"db-0": "2", "db-1": "2", "db-2": "2"}
    assert template(namespace, "statefulsets", "db") == "2"
    assert watched.fewest == 2, watched.seen
    assert client.failed == []
    order = [name for seen in watched.seen for name in seen if seen[name] == "2"]
    assert list(dict.fromkeys(order)) == ["db-2", "db-1", "db-0"], "the highest number first"
    again = db.run(variables={"rollout_revision": "2"})
    assert (again.rc, again.rollout["changed"]) == (0, False), again.output


def test_a_broken_revision_is_rolled_back(db: Playground, namespace: Namespace) -> None:
    deploy_db(namespace)
    with Client(namespace) as client, Watched(namespace) as watched:
        given = {"rollout_revision": "broken", "rollout_failure_limit": 1, **FAST}
        outcome = db.run(variables=given)
    assert outcome.rc != 0, outcome.output
    assert outcome.rollout["outcome"] == "rolled_back"
    assert revisions(namespace) == {"db-0": "1", "db-1": "1", "db-2": "1"}
    assert template(namespace, "statefulsets", "db") == "1"
    assert watched.fewest == 2, watched.seen
    assert client.failed == []


CANARY = {
    "rollout_revision": "2",
    "rollout_strategy": "canary",
    "rollout_steps": [{"set_replicas": 1}, {"pause": "10m"}],
}


def canary_waits(db: Playground, namespace: Namespace) -> t.Any:
    """Start a canary of three pods, and return its run when it waits with one."""
    deploy_db(namespace)
    run = db.start(variables=CANARY)
    waiting = {"db-0": "1", "db-1": "1", "db-2": "2"}
    until(lambda: revisions(namespace) == waiting, "the highest number is the canary")
    until(lambda: template(namespace, "statefulsets", "db") == "1", "the others stay stable")
    return run


def test_what_ends_by_itself_does_not_make_a_canary_bigger(
    db: Playground, namespace: Namespace
) -> None:
    run, seen = canary_waits(db, namespace), Watched(namespace)
    with seen:
        for name in ("db-0", "db-2"):
            before = namespace.uids()
            namespace.kubectl("delete", "pod", name)
            until(lambda was=before: namespace.uids() - was, "another one follows")
            until(lambda: len(revisions(namespace)) == 3, "it is ready")
        until(lambda: revisions(namespace)["db-2"] == "2", "the canary is made again")
    assert max(list(one.values()).count("2") for one in seen.seen) == 1, seen.seen
    assert db.run("progressive.rollout.promote").rc == 0
    outcome = run.wait()
    assert outcome.rc == 0, outcome.output
    assert set(revisions(namespace).values()) == {"2"}


def test_a_canary_is_aborted(db: Playground, namespace: Namespace) -> None:
    run = canary_waits(db, namespace)
    stable = {pod["metadata"]["uid"] for pod in namespace.pods()[:2]}
    assert db.run("progressive.rollout.abort").rc == 0
    outcome = run.wait()
    assert outcome.rollout["outcome"] == "aborted", outcome.output
    assert set(revisions(namespace).values()) == {"1"}
    assert stable < namespace.uids(), "no other pod was touched"


def test_a_run_that_is_killed_is_continued(db: Playground, namespace: Namespace) -> None:
    """With a pod that ends by itself meanwhile, and a workload that is scaled."""
    deploy_db(namespace)
    with Client(namespace) as client:
        run = db.start(variables={"rollout_revision": "2"})
        until(lambda: "2" in revisions(namespace).values(), "the first new pod")
        run.kill()
        run.close()
        namespace.kubectl("scale", "statefulset/db", "--replicas=4")
        namespace.kubectl("delete", "pod", "db-0")
        until(lambda: len(revisions(namespace)) == 4, "all pods are there")
        outcome = db.run(variables={"rollout_revision": "2"})
    assert outcome.rc == 0, outcome.output
    assert revisions(namespace) == {f"db-{number}": "2" for number in range(4)}
    assert client.failed == []


def test_a_workload_that_is_scaled_meanwhile_is_followed(
    db: Playground, namespace: Namespace
) -> None:
    deploy_db(namespace, podManagementPolicy="Parallel")
    run = db.start(variables={"rollout_revision": "2"})
    until(lambda: "2" in revisions(namespace).values(), "the first new pod")
    namespace.kubectl("scale", "statefulset/db", "--replicas=2")
    until(lambda: len(namespace.pods()) == 2, "there are fewer")
    namespace.kubectl("scale", "statefulset/db", "--replicas=3")
    outcome = run.wait()
    assert outcome.rc == 0, outcome.output
    assert revisions(namespace) == {"db-0": "2", "db-1": "2", "db-2": "2"}


def test_kubectl_undoes_a_rollout_and_the_next_one_follows(
    db: Playground, namespace: Namespace
) -> None:
    deploy_db(namespace, 2)
    assert db.run(variables={"rollout_revision": "2"}).rc == 0
    namespace.kubectl("rollout", "undo", "statefulset/db")
    assert template(namespace, "statefulsets", "db") == "1"
    outcome = db.run(variables={"rollout_revision": "3"})
    assert outcome.rc == 0, outcome.output
    assert revisions(namespace) == {"db-0": "3", "db-1": "3"}
    outcome = db.run("progressive.rollout.rollback")
    assert outcome.rc == 0, outcome.output
    assert revisions(namespace) == {"db-0": "2", "db-1": "2"}


def test_what_rollouts_left_is_removed_and_a_first_rollout_can_go_back(
    db: Playground, namespace: Namespace
) -> None:
    deploy_db(namespace, 2)
    assert db.run(variables={"rollout_revision": "2"}).rc == 0
    assert db.run("progressive.rollout.status", {}).rc == 0
    remove(db, namespace, "statefulsets/db")
    given = {"rollout_revision": "broken", "rollout_failure_limit": 1, **FAST}
    assert db.run(variables=given).rollout["outcome"] == "rolled_back"
    assert revisions(namespace) == {"db-0": "2", "db-1": "2"}
    assert db.run(variables={"rollout_revision": "3"}).rc == 0
    assert revisions(namespace) == {"db-0": "3", "db-1": "3"}


# DaemonSets
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("balanced", [False, True], ids=["alone", "service"])
def test_a_daemonset_is_walked_in_place(
    agent: Playground, namespace: Namespace, balanced: bool
) -> None:
    """Twice, the second time after what the first one left was removed."""
    deploy_agent(namespace)
    balancer = {
        "driver": "kubernetes_service",
        "kubeconfig": str(KUBECONFIG),
        "namespace": namespace.name,
        "service": "shop",
    }
    given = {"rollout_traffic": balancer} if balanced else {}
    with Client(namespace) as client, Watched(namespace) as watched:
        outcome = agent.run(variables={"rollout_revision": "2", **given})
        assert outcome.rc == 0, outcome.output
        assert list(revisions(namespace).values()) == ["2", "2"]
        assert template(namespace, "daemonsets", "agent") == "2"
        remove(agent, namespace, "daemonsets/agent", **given)
        outcome = agent.run(variables={"rollout_revision": "3", **given})
        time.sleep(1)
    assert outcome.rc == 0, outcome.output
    assert list(revisions(namespace).values()) == ["3", "3"], "a first rollout"
    assert watched.fewest == 1, watched.seen
    assert client.failed == []


def test_a_node_that_leaves_and_returns_does_not_end_a_rollout(
    agent: Playground, namespace: Namespace
) -> None:
    deploy_agent(namespace)
    choose = {"spec": {"template": {"spec": {"nodeSelector": {"with-agent": "yes"}}}}}
    nodes = [pod["spec"]["nodeName"] for pod in namespace.pods()]
    namespace.kubectl("label", "node", *nodes, "with-agent=yes")
    try:
        patch = json.dumps(choose)
        namespace.kubectl("patch", "daemonset/agent", "--type", "merge", "-p", patch)
        run = agent.start(variables={"rollout_revision": "2"})
        until(lambda: "2" in revisions(namespace).values(), "the first new pod")
        namespace.kubectl("label", "node", nodes[0], "with-agent-")
        until(lambda: len(namespace.pods()) == 1, "one node has none any more")
        namespace.kubectl("label", "node", nodes[0], "with-agent=yes")
        outcome = run.wait()
        assert outcome.rc == 0, outcome.output
        until(lambda: list(revisions(namespace).values()) == ["2", "2"], "both are new")
    finally:
        namespace.kubectl("label", "node", *nodes, "with-agent-")


# What is refused
# --------------------------------------------------------------------------------------------------


def test_a_workload_that_its_own_controller_updates_is_refused(
    db: Playground, namespace: Namespace
) -> None:
    deploy_db(namespace, 1, updateStrategy={"type": "RollingUpdate"})
    uids = namespace.uids()
    outcome = db.run(variables={"rollout_revision": "2"})
    assert outcome.rc != 0
    message = outcome.failed.msg
    assert "with which its own controller replaces the pods" in message, message
    command = message.partition("kubectl ")[2].partition(" -p ")
    patch = json.JSONDecoder().raw_decode(command[2].strip("'"))[0]
    namespace.kubectl(*command[0].split(), "-p", json.dumps(patch))
    assert namespace.uids() == uids
    assert db.run(variables={"rollout_revision": "2"}).rc == 0


def test_the_rights_that_a_role_gives_are_enough(db: Playground, namespace: Namespace) -> None:
    deploy_db(namespace, 1)
    mine = {
        **db.variables["rollout_platform"],
        "kubeconfig": str(KUBECONFIG.with_name("rollout.kubeconfig")),
    }
    role = _rights.role(namespace.name, _rights.in_place("statefulsets"))
    reading = {**role, "rules": [{**rule, "verbs": ["get", "list"]} for rule in role["rules"]]}
    bound = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "rollout"},
        "roleRef": {"kind": "Role", "name": role["metadata"]["name"], "apiGroup": ""},
        "subjects": [{"kind": "User", "name": "rollout"}],
    }
    namespace.kubectl("apply", "-f", "-", given=reading)
    namespace.kubectl("apply", "-f", "-", given=bound)
    given = {"rollout_revision": "2", "rollout_platform": mine}
    outcome = db.run(variables=given)
    assert outcome.rc != 0
    assert (
        "may not watch statefulsets, patch statefulsets, watch pods, patch pods, delete pods"
        in outcome.failed.msg
    )
    namespace.kubectl("apply", "-f", "-", given=role)
    outcome = db.run(variables=given)
    assert outcome.rc == 0, outcome.output
    assert revisions(namespace) == {"db-0": "2"}


# The documentation
# --------------------------------------------------------------------------------------------------


def test_the_example_runs_as_it_is(namespace: Namespace, tmp_path: Path) -> None:
    """But for the image, which is on the nodes."""
    example = ROOT / "docs/examples/kubernetes-in-place"
    objects = (example / "statefulset.yaml").read_text()
    local = objects.replace("shop:1\n", "shop:1\n          imagePullPolicy: Never\n")
    (tmp_path / "statefulset.yaml").write_text(local)
    for path in (example / "role.yaml", example / "service.yaml", tmp_path / "statefulset.yaml"):
        namespace.kubectl("apply", "-f", str(path))
    until(lambda: len(revisions(namespace)) == 3, "the pods are ready")
    config = KUBECONFIG.read_text().replace("namespace: default", f"namespace: {namespace.name}")
    (tmp_path / "config").write_text(config)
    program = Path(sys.executable).with_name("ansible-playbook")
    done = subprocess.run(
        [program, "-i", "inventory.yml", "rollout.yml", "-e", "rollout_revision=2"],
        cwd=example,
        env={**os.environ, "HOME": str(tmp_path), "KUBECONFIG": str(tmp_path / "config")},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert revisions(namespace) == {"db-0": "2", "db-1": "2", "db-2": "2"}
