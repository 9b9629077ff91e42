# SPDX-License-Identifier: GPL-3.0-or-later
"""What servers from 1.22 to 1.35 do otherwise than the one that is built for `tests/engines`, as
switches of the API server in memory. Each is written from the document that it names.
"""

from __future__ import annotations

import copy
import threading
import typing as t
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms import _pod
from ansible_collections.progressive.rollout.tests.support import kubernetes as api

Object = dict[str, t.Any]
DOCS, KEPS = (
    "https://kubernetes.io/docs",
    "https://github.com/kubernetes/enhancements/tree/master/keps",
)


@dataclass(frozen=True)
class Feature:
    """A switch: the server that has it by default, and the document it is written from."""

    since: str
    document: str


FEATURES: Mapping[str, Feature] = {
    "pod-deletion-cost": Feature(
        "1.22", f"{DOCS}/concepts/workloads/controllers/replicaset/#pod-deletion-cost"
    ),
    "managed fields": Feature(
        "1.22", f"{DOCS}/reference/using-api/server-side-apply/#field-management"
    ),
    "sidecar containers": Feature("1.29", f"{DOCS}/concepts/workloads/pods/sidecar-containers/"),
    "in-place resize": Feature(
        "1.33", f"{DOCS}/tasks/configure-pod-container/resize-container-resources/"
    ),
    "streaming lists": Feature("1.34", f"{DOCS}/reference/using-api/api-concepts/#streaming-lists"),
    "terminating replicas": Feature(
        "1.35", f"{KEPS}/sig-apps/3973-consider-terminating-pods-deployment"
    ),
    "pod replacement policy": Feature("alpha", "https://www.kubernetes.dev/resources/keps/5882/"),
}
LASTS = 0.05  # seconds that a pod takes to end


class Server(api.Server):
    """With some of these features. Pods take a moment to end."""

    def __init__(self, *features: str) -> None:
        super().__init__()
        unknown = set(features) - set(FEATURES)
        assert not unknown, f"no such features: {unknown}"
        self.features = set(features)
        self.steers = "pod-deletion-cost" in features
        self.watches = "streaming lists" in features
        self.stops_at_once = False
        self.bookmarks = 0
        self.most = 0  # pods at once, with those that are ending
        self._ends: set[str] = set()  # paths of pods that are ending
        self._lock = threading.RLock()

    # -- requests ----------------------------------------------------------------------------------

    def get(self, path: str, **query: str) -> Object:
        with self._lock:
            if "in-place resize" in self.features:
                self._resize()
            return super().get(path, **query)

    def post(self, path: str, body: Object, **query: str) -> Object:
        with self._lock:
            return super().post(path, body, **query)

    def patch(self, path: str, body: t.Any, **query: str) -> Object:
        with self._lock:
            return super().patch(path, body, **query)

    def delete(self, path: str, body: Object | None = None) -> None:
        with self._lock:
            super().delete(path, body)

    def watch(self, path: str, version: str, **query: str) -> Iterator[tuple[str, Object]]:
        """Tell first that all there was has been told, as at the end of a list that is streamed."""
        notes = {"k8s.io/initial-events-end": "true"}
        self.bookmarks += 1
        yield "BOOKMARK", {"metadata": {"resourceVersion": version, "annotations": notes}}
        yield from super().watch(path, version, **query)

    # -- controllers and kubelets ------------------------------------------------------------------

    def _put(self, path: str, one: Object) -> None:
        if "managed fields" in self.features and not path.startswith(api.PODS):
            fields = {f"f:{key}": {} for key in one.get("spec") or {}}
            entry = {"manager": "any", "operation": "Update", "fieldsV1": {"f:spec": fields}}
            one["metadata"]["managedFields"] = [entry]
        if path.startswith(f"{api.PODS}/"):
            self._note_pod(path, one)
        super()._put(path, one)
        self.most = max(self.most, len(self._all(api.PODS)))

    def _note_pod(self, path: str, pod: Object) -> None:
        if "deletionTimestamp" in pod["metadata"]:
            if path not in self._ends:
                self._ends.add(path)
                timer = threading.Timer(LASTS, self._end, [path])
                timer.daemon = True
                timer.start()
        if "sidecar containers" not in self.features:
            return
        running = {"running": {"startedAt": pod["metadata"]["creationTimestamp"]}}
        mine = {"running": running["running"]}
        if path in self._ends:  # sidecars end last
            mine = {"terminated": {"exitCode": 0}}
        pod["spec"]["initContainers"] = [{"name": "proxy", "restartPolicy": "Always"}]
        pod["status"]["initContainerStatuses"] = [
            {"name": "proxy", "state": running, "ready": True, "restartCount": 0}
        ]
        pod["status"]["containerStatuses"] = [
            {"name": "shop", "state": mine, "ready": path not in self._ends, "restartCount": 0}
        ]

    def _end(self, path: str) -> None:
        """Let a pod be gone."""
        with self._lock:
            if path in self.objects:
                self._remove(path)
            self._ends.discard(path)
            self.reconcile()

    def _resize(self) -> None:
        """Give each pod other resources than its template has, as an autoscaler does."""
        for path, pod in list(self.objects.items()):
            if path.startswith(f"{api.PODS}/") and "resources" not in pod["spec"]["containers"][0]:
                changed = copy.deepcopy(pod)
                resources = {"requests": {"cpu": "200m"}}
                changed["spec"]["containers"][0]["resources"] = resources
                condition = {"type": "PodResizeInProgress", "status": "True"}
                changed["status"]["conditions"].append(condition)
                self._put(path, changed)

    def _ending(self, owners: set[str]) -> int:
        return sum(
            "deletionTimestamp" in pod["metadata"]
            and pod["metadata"]["ownerReferences"][0]["uid"] in owners
            for pod in self._all(api.PODS)
        )

    def _set(self, path: str, one: Object) -> None:
        uid = one["metadata"]["uid"]
        if "pod replacement policy" in self.features and _pod.owned_by(one, self.objects[api.SHOP]):
            # TerminationComplete: what is ending counts, so that its successor waits for it
            room = max(0, one["spec"]["replicas"] - self._ending({uid}))
            there = sum(
                pod["metadata"]["ownerReferences"][0]["uid"] == uid for pod in self.living()
            )
            if there < one["spec"]["replicas"]:
                held = copy.deepcopy(one)
                held["spec"]["replicas"] = max(there, room)
                super()._set(path, held)
                self.objects[path]["spec"]["replicas"] = one["spec"]["replicas"]
                return
        super()._set(path, one)
        if "terminating replicas" in self.features:
            changed = copy.deepcopy(self.objects[path])
            changed.setdefault("status", {})["terminatingReplicas"] = self._ending({uid})
            self._put(path, changed)
