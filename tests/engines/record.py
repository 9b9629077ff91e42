# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Record what a real server answers, for tests that have none: scripts/run python tests/engines/record.py

The cluster is that of `scripts/kubernetes up`. What is recorded is replayed by
tests/unit/test_kubernetes_recorded.py.
"""

from __future__ import annotations

import json
import time
import typing as t
from collections.abc import Callable

from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.kubernetes import (
    ApiError,
    Cluster,
)
from ansible_collections.progressive.rollout.tests.engines.conftest import (
    KUBECONFIG,
    ROOT,
    Namespace,
    until,
)

FOLDER = ROOT / "tests/support/recorded"
Found = dict[str, t.Any]


def main() -> None:
    """Write everything into one file, which is named after the server's version."""
    cluster = Cluster(str(KUBECONFIG))
    version = cluster.get("/version")["gitVersion"]
    namespace = Namespace(cluster, "web")
    cluster.delete("/api/v1/namespaces/web")
    until(lambda: _gone(cluster, "/api/v1/namespaces/web"), "the namespace is gone")
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "web"}}
    cluster.post("/api/v1/namespaces", body)
    found = {"version": version, "pods": pods(namespace), "refusal": quota(namespace)}
    found["answers"] = answers(namespace)
    path = FOLDER / f"kubernetes-{version}.json"
    path.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    cluster.delete("/api/v1/namespaces/web")


def pods(namespace: Namespace) -> dict[str, Found]:
    """Return a pod in each of the states that it may be in."""
    found: dict[str, Found] = {}
    namespace.deploy(1, start=0)
    (ready,) = namespace.pods()
    found["ready"] = ready
    name = ready["metadata"]["name"]
    path = f"{namespace.core}/pods"
    namespace.cluster.delete(f"{path}/{name}")
    deleted = _kept(namespace, name, lambda pod: "deletionTimestamp" in pod["metadata"])
    found["deleted"] = deleted
    found["ended"] = _kept(namespace, name, lambda pod: "running" not in _state(pod))
    for kind, image in (("pull", "nowhere:1"), ("crash", "docker.io/local/shop:broken")):
        found[kind] = _lone(namespace, kind, {"image": image})
    slow = {"image": "docker.io/local/shop:1", "env": [{"name": "START", "value": "600"}]}
    found["starting"] = _lone(namespace, "starting", slow)
    found["unschedulable"] = _lone(
        namespace,
        "unschedulable",
        {"image": "docker.io/local/shop:1"},
        {"nodeSelector": {"a": "b"}},
    )
    return {kind: _bare(one) for kind, one in found.items()}


def _lone(namespace: Namespace, name: str, container: Found, spec: Found | None = None) -> Found:
    """Return a pod of its own, once its state does not change any more for a while."""
    probe = {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1}
    whole = {"name": "shop", "imagePullPolicy": "Never", "readinessProbe": probe, **container}
    body = {"metadata": {"name": name}, "spec": {"containers": [whole], **(spec or {})}}
    namespace.cluster.post(f"{namespace.core}/pods", body)
    time.sleep(8)
    return dict(namespace.cluster.get(f"{namespace.core}/pods/{name}"))


def _kept(namespace: Namespace, name: str, condition: Callable[[Found], bool]) -> Found:
    found: list[Found] = []

    def seen() -> bool:
        found.append(dict(namespace.cluster.get(f"{namespace.core}/pods/{name}")))
        return condition(found[-1])

    until(seen, f"{name} is as it is to be")
    return found[-1]


def _state(pod: Found) -> Found:
    return dict(pod["status"]["containerStatuses"][0]["state"])


def quota(namespace: Namespace) -> Found:
    """Return a ReplicaSet whose pods a quota refuses."""
    body = {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "0"}}}
    namespace.cluster.post(f"{namespace.core}/resourcequotas", body)
    time.sleep(2)
    namespace.kubectl("scale", "deployment/shop", "--replicas=0")
    namespace.kubectl("scale", "deployment/shop", "--replicas=2")
    (name,) = namespace.sets()
    until(lambda: namespace.sets()[name]["status"].get("conditions"), "it says so")
    found = _bare(namespace.sets()[name])
    namespace.cluster.delete(f"{namespace.core}/resourcequotas/few")
    return found


def answers(namespace: Namespace) -> list[Found]:
    """Return how the server answers requests that a rollout may make in vain."""
    shop = f"{namespace.apps}/deployments/shop"
    old = {"metadata": {"resourceVersion": "1"}, "spec": {"replicas": 1}}
    wrong = [{"op": "test", "path": "/spec/replicas", "value": 77}]
    replace = [{"op": "replace", "path": "/spec/replicas", "value": 1}]
    mine = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "shop"}}
    labels = {"app": "shop"}
    spec = {
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "shop", "image": "shop"}]},
        },
    }
    tried = [
        ("patch", shop, old),
        ("patch", shop, wrong + replace),
        ("patch", f"{namespace.apps}/deployments/none", replace),
        ("get", f"{namespace.apps}/deployments/none", None),
        ("post", f"{namespace.apps}/deployments", {**mine, "spec": spec}),
    ]
    return [_tried(namespace.cluster, *one) for one in tried]


def _tried(cluster: Cluster, method: str, path: str, body: t.Any) -> Found:
    try:
        getattr(cluster, method)(path, *([] if body is None else [body]))
    except ApiError as exc:
        return {
            "method": method,
            "path": path,
            "body": body,
            "status": exc.status,
            "message": str(exc),
        }
    raise AssertionError(f"{method} {path} was not refused")


def _bare(one: Found) -> Found:
    """Return an object without what fills pages and means nothing to us."""
    metadata = {k: v for k, v in one["metadata"].items() if k != "managedFields"}
    return {**one, "metadata": metadata}


def _gone(cluster: Cluster, path: str) -> bool:
    try:
        cluster.get(path)
    except ApiError as exc:
        return exc.status == 404
    return False


if __name__ == "__main__":
    main()
