# SPDX-License-Identifier: GPL-3.0-or-later
"""A namespace of a real cluster of Kubernetes, and a client that counts lost requests.

The cluster is that of `scripts/kubernetes up 2`, whose images are needed. With CLUSTER=external it
is that of KUBECONFIG: its nodes need the images of `.cache/kubernetes-images`, and this machine has
to reach its pods. What interferes with the cluster itself is left out there.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import subprocess
import threading
import typing as t
from collections import Counter
from pathlib import Path

from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.kubernetes import (
    ApiError,
    Cluster,
    Reflector,
)
from ansible_collections.progressive.rollout.tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[2]
EXTERNAL = os.environ.get("CLUSTER") == "external"
KUBECONFIG = (
    Path(os.environ.get("KUBECONFIG", "KUBECONFIG"))
    if EXTERNAL
    else ROOT / ".cache/kubernetes" / os.environ.get("CLUSTER", "0") / "kubeconfig"
)
KUBECTL = (
    ["kubectl", "--kubeconfig", str(KUBECONFIG)]
    if EXTERNAL
    else [str(ROOT / "scripts/kubernetes"), "kubectl"]
)
IMAGE = "docker.io/local/shop:{revision}"


class Namespace:
    """A namespace with a Deployment and a Service `shop`."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster, self.name = cluster, name
        self.apps = f"/apis/apps/v1/namespaces/{name}"
        self.core = f"/api/v1/namespaces/{name}"

    def kubectl(self, *words: str, given: t.Any = None) -> str:
        done = subprocess.run(
            [*KUBECTL, "-n", self.name, *words],
            input=None if given is None else json.dumps(given),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def patch(self, what: str, given: t.Any) -> None:
        """A strategic merge, as `kubectl patch` does it."""
        self.kubectl("patch", what, "--patch", json.dumps(given))

    def deploy(
        self,
        replicas: int,
        start: float = 0.5,
        revision: str = "1",
        stop: float = 5,
        surge: t.Any = "25%",
    ) -> None:
        """`stop`: seconds until everybody who sends requests knows that a pod goes."""
        container = {
            "name": "shop",
            "image": f"docker.io/local/shop:{revision}",
            "imagePullPolicy": "Never",
            "env": [{"name": "START", "value": str(start)}],
            "ports": [{"containerPort": 8080}],
            "readinessProbe": {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1},
            "lifecycle": {"preStop": {"exec": {"command": ["sleep", str(stop)]}}},
        }
        labels = {"app": "shop"}
        template = {
            "metadata": {"labels": labels},
            "spec": {"terminationGracePeriodSeconds": 10, "containers": [container]},
        }
        selector = {"matchLabels": labels}
        rolling = {"maxSurge": surge, "maxUnavailable": 0}
        spec = {"replicas": replicas, "selector": selector, "template": template}
        spec["strategy"] = {"type": "RollingUpdate", "rollingUpdate": rolling}
        mine = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "shop"}}
        self.kubectl("apply", "-f", "-", given={**mine, "spec": spec})
        ports = [{"port": 80, "targetPort": 8080}]
        service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "shop"}}
        self.kubectl(
            "apply", "-f", "-", given={**service, "spec": {"selector": labels, "ports": ports}}
        )
        until(
            lambda: self.ready() == ({revision: replicas} if replicas else {}), "the pods are ready"
        )

    @property
    def deployment(self) -> dict[str, t.Any]:
        return dict(self.cluster.get(f"{self.apps}/deployments/shop"))

    def sets(self) -> dict[str, t.Any]:
        found = self.cluster.get(f"{self.apps}/replicasets")["items"]
        return {one["metadata"]["name"]: one for one in found}

    def pods(self) -> list[dict[str, t.Any]]:
        """Those that are not being deleted."""
        found = self.cluster.get(f"{self.core}/pods")["items"]
        return [one for one in found if "deletionTimestamp" not in one["metadata"]]

    def uids(self) -> set[str]:
        return {str(pod["metadata"]["uid"]) for pod in self.pods()}

    def notes(self, more: str = "service") -> list[str]:
        """What rollouts have noted at the Deployment, its pods and `more`, a line each."""
        listed = self.kubectl("get", f"deployment,rs,pod,{more}", "-o", "yaml")
        return [line for line in listed.splitlines() if "rollout.progressive" in line]

    def ready(self) -> dict[str, int]:
        """How many pods of each revision are ready."""
        return dict(
            Counter(
                pod["spec"]["containers"][0]["image"].rpartition(":")[2]
                for pod in self.pods()
                for one in pod["status"].get("conditions", ())
                if (one["type"], one["status"]) == ("Ready", "True")
            )
        )

    def is_ordinary(self, revision: str, replicas: int) -> None:
        """The Deployment is as if nothing but its template and number had been changed."""
        status = self.kubectl("rollout", "status", "deployment/shop", "--timeout=30s")
        assert "successfully rolled out" in status
        mine, sets = self.deployment, self.sets()
        image = mine["spec"]["template"]["spec"]["containers"][0]["image"]
        assert image == f"docker.io/local/shop:{revision}"
        assert (mine["spec"]["replicas"], mine["spec"].get("paused")) == (replicas, None)
        assert self.ready() == {revision: replicas}
        owners = {
            name: [owner["name"] for owner in one["metadata"].get("ownerReferences", ())]
            for name, one in sets.items()
        }
        assert owners == dict.fromkeys(sets, ["shop"]), "nothing else is left"
        assert sorted(one["spec"]["replicas"] for one in sets.values())[-2:] in (
            [replicas],
            [0, replicas],
        )


class Client:
    """Sends requests to the Service without a pause, balanced by its Endpoints as by kube-proxy."""

    def __init__(self, namespace: Namespace) -> None:
        path = f"{namespace.core}/endpoints"
        self.answers: Counter[str] = Counter()
        self.order: list[str] = []  # the answers as they came
        self.failed: list[str] = []
        self._end = threading.Event()
        self._endpoints = Reflector(
            namespace.cluster, path, lambda: None, fieldSelector="metadata.name=shop"
        )
        self._there = self._addresses()
        self._threads = [threading.Thread(target=self._send) for _one in range(2)]

    def __enter__(self) -> Client:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join()
        self._endpoints.close()

    def _addresses(self) -> list[str]:
        return [
            address["ip"]
            for one in self._endpoints.list()
            for subset in one.get("subsets") or ()
            for address in subset.get("addresses") or ()
        ]

    def _send(self) -> None:
        while not self._end.wait(0.01):
            with contextlib.suppress(ApiError):  # the last ones known
                self._there = self._addresses()
            try:
                address = random.choice(self._there)
                connection = http.client.HTTPConnection(address, 8080, timeout=5)
                connection.request("GET", "/")
                answer = connection.getresponse()
                assert answer.status == 200
                revision = answer.read().decode()
                self.answers[revision] += 1
                self.order.append(revision)
                connection.close()
            except (OSError, http.client.HTTPException, AssertionError, IndexError) as exc:
                self.failed.append(repr(exc))
