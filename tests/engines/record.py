# SPDX-License-Identifier: GPL-3.0-or-later
"""Record what a real server answers, for tests that have none: scripts/run python tests/engines/record.py

The cluster is that of `scripts/kubernetes up`. What is recorded is replayed by
tests/unit/test_kubernetes_recorded.py.
"""

from __future__ import annotations

import json
import time
import typing as t
import urllib.parse
from collections.abc import Callable, Mapping

from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.kubernetes import (
    JSON,
    MERGE,
    ApiError,
    Cluster,
    _credentials,
)
from ansible_collections.progressive.rollout.tests.support.namespaces import (
    KUBECONFIG,
    ROOT,
    Namespace,
)
from ansible_collections.progressive.rollout.tests.support.waiting import until

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


def answers(namespace: Namespace) -> dict[str, Found]:
    """Return how the server answers requests of rollouts, also those that are in vain."""
    deployments, sets = f"{namespace.apps}/deployments", f"{namespace.apps}/replicasets"
    shop, mine = f"{deployments}/shop", namespace.deployment
    version = namespace.cluster.get(sets)["metadata"]["resourceVersion"]
    replace = [{"op": "replace", "path": "/spec/replicas", "value": 1}]
    wrong = [{"op": "test", "path": "/spec/replicas", "value": 77}, *replace]
    same = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "shop"}}
    body = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "shop-dry-run"},
        "spec": {key: mine["spec"][key] for key in ("selector", "template")},
    }
    bad = {**body, "spec": {**body["spec"], "selector": {"matchLabels": {"app": "other"}}}}
    watch = {"watch": "1", "timeoutSeconds": "2", "allowWatchBookmarks": "true"}
    pods = f"{namespace.core}/pods"
    requests: dict[str, tuple[t.Any, ...]] = {
        "list": ("GET", sets),
        "list of nothing": ("GET", pods, None, {"labelSelector": "app=none"}),
        "patch": ("PATCH", shop, {"metadata": {"annotations": {"note": "1"}}}),
        "patch of what has changed (409)": (
            "PATCH",
            shop,
            {"metadata": {"resourceVersion": "1"}, "spec": {"replicas": 1}},
        ),
        "test of what is otherwise (422)": ("PATCH", shop, wrong),
        "patch of what is not there (404)": ("PATCH", f"{deployments}/none", replace),
        "get of what is not there (404)": ("GET", f"{deployments}/none"),
        "create of what is there (409)": ("POST", deployments, {**same, "spec": mine["spec"]}),
        "dry run": ("POST", sets, body, {"dryRun": "All"}),
        "dry run that is refused (422)": ("POST", sets, bad, {"dryRun": "All"}),
        "watch": ("GET", sets, None, {**watch, "resourceVersion": version}),
        "watch from too long ago (410)": ("GET", pods, None, {**watch, "resourceVersion": "1"}),
    }
    found = {name: _asked(namespace.cluster, *one) for name, one in requests.items()}
    other = Cluster(str(KUBECONFIG.with_name("rollout.kubeconfig")))
    found["without the right (403)"] = _asked(other, "GET", pods)
    found["unknown to it (401)"] = _asked(namespace.cluster, "GET", pods, token="nobody")
    # Changes whatever is seen of the service: no more of it is needed.
    limits = {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "0"}}}
    namespace.cluster.post(f"{namespace.core}/resourcequotas", limits)
    time.sleep(2)
    lone = {"metadata": {"name": "lone"}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
    found["quota (403)"] = _asked(namespace.cluster, "POST", pods, lone)
    return found


def _asked(
    cluster: Cluster,
    method: str,
    path: str,
    body: t.Any = None,
    query: Mapping[str, str] | None = None,
    token: str = "",
) -> Found:
    """Return a request and what was answered, as it came but for what means nothing to us."""
    client = cluster._client
    kinds = {list: JSON, dict: MERGE} if method == "PATCH" else {dict: "application/json"}
    headers = {"Content-Type": kinds.get(type(body), ""), "Accept": "application/json"}
    headers["Authorization"] = f"Bearer {token}" if token else _credentials(client)["authorization"]
    reply = client.rest_client.pool_manager.request(
        method,
        f"{client.configuration.host}{path}?{urllib.parse.urlencode(query or {})}",
        body=json.dumps(body).encode(),
        headers=headers,
    )
    lines = reply.data.decode().strip().split("\n")
    texts = [json.dumps(_without(json.loads(line))) for line in lines if line]
    asked = {"method": method, "path": path, "query": dict(query or {}), "body": body}
    return {**asked, "status": reply.status, "text": "\n".join(texts) + "\n"}


def _without(found: t.Any) -> t.Any:
    """Return JSON without `managedFields`, which fill pages."""
    if isinstance(found, list):
        return [_without(one) for one in found]
    if isinstance(found, dict):
        return {key: _without(one) for key, one in found.items() if key != "managedFields"}
    return found


def _bare(one: Found) -> Found:
    """Return an object without what fills pages and means nothing to us."""
    return dict(_without(one))


def _gone(cluster: Cluster, path: str) -> bool:
    try:
        cluster.get(path)
    except ApiError as exc:
        return exc.status == 404
    return False


if __name__ == "__main__":
    main()
