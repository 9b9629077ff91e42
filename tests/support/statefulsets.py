# SPDX-License-Identifier: GPL-3.0-or-later
"""An API server of Kubernetes in memory, with the controllers of a StatefulSet or a DaemonSet.

They do what the real ones do with the update strategy OnDelete, which `tests/engines` shows.
"""

from __future__ import annotations

import copy
import typing as t

from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.kubernetes import ApiError
from ansible_collections.progressive.rollout.tests.support import kubernetes as api

DB, AGENT = f"{api.APPS}/statefulsets/db", f"{api.APPS}/daemonsets/agent"
HISTORY, EVENTS = f"{api.APPS}/controllerrevisions", f"{api.CORE}/events"
Object = dict[str, t.Any]


def _spec(**more: t.Any) -> Object:
    return {
        "selector": {"matchLabels": {"app": "shop"}},
        "template": api.template("1"),
        "updateStrategy": {"type": "OnDelete"},
        **more,
    }


class Server(api.Server):
    """With one of these workloads."""

    def __init__(self, number: int = 3, nodes: int = 0, ordered: bool = True) -> None:
        """Make a StatefulSet of so many pods, or a DaemonSet on so many nodes."""
        super().__init__()
        self.nodes = [f"node{one}" for one in range(nodes)]
        self.ordered = ordered  # whether a pod waits for those with lower numbers
        self.denies = ""  # why no pods are made
        self.blind = False  # whether the controller sees nothing
        self.path = AGENT if nodes else DB
        spec = _spec() if nodes else _spec(serviceName="db", replicas=number)
        body = {"metadata": {"name": "agent" if nodes else "db"}, "spec": spec}
        self.create(self.path.rpartition("/")[0], body)

    @property
    def template(self) -> str:
        """The revision that a pod comes back with."""
        image: str = self.objects[self.path]["spec"]["template"]["spec"]["containers"][0]["image"]
        return image.rpartition(":")[2]

    def revisions(self) -> dict[str, str]:
        """The revision of each pod that is not ending."""
        return {
            pod["metadata"]["name"]: pod["spec"]["containers"][0]["image"].rpartition(":")[2]
            for pod in self.living()
        }

    def get(self, path: str, **query: str) -> Object:
        if path not in (HISTORY, EVENTS, self.path.rpartition("/")[0]):
            return super().get(path, **query)
        found = {"items": self._all(path), "metadata": {"resourceVersion": str(self._version)}}
        return copy.deepcopy(found)

    def delete(self, path: str, body: Object | None = None) -> None:
        pod = self.objects.get(path)
        if pod is None:
            return
        wanted = (body or {}).get("preconditions", {}).get("uid")
        if wanted not in (None, pod["metadata"]["uid"]):
            raise ApiError(f"DELETE {path}: the UID in the precondition does not match (409)", 409)
        self._changes(f"delete {path.rpartition('/')[2]}")
        self.end(path)

    def end(self, path: str) -> None:
        """Let a pod end, as if it were deleted by somebody."""
        if self.stops_at_once:
            self._remove(path)
        else:
            pod = copy.deepcopy(self.objects[path])
            pod["metadata"]["deletionTimestamp"] = pod["metadata"]["creationTimestamp"]
            self._put(path, pod)
        self.reconcile()

    def ended(self) -> None:
        """Let all pods that are ending be gone."""
        for path, pod in list(self.objects.items()):
            if path.startswith(api.PODS) and "deletionTimestamp" in pod["metadata"]:
                self._remove(path)
        self.reconcile()

    def reconcile(self) -> None:
        before = None
        while before != self._version and not self.blind:
            before = self._version
            self._keep_history()
            names = self._missing()
            if names and self.denies:
                said = {"reason": "FailedCreate", "message": self.denies}
                self._put(f"{EVENTS}/1", {"metadata": {"name": "1"}, **said})
            elif names:
                self._make(names[0])

    def _keep_history(self) -> None:
        """Note the present template, as the latest."""
        mine = self.objects[self.path]
        data = {"spec": {"template": {**mine["spec"]["template"], "$patch": "replace"}}}
        known = self._all(HISTORY)
        last = max((one["revision"] for one in known), default=0)
        same = [one for one in known if one["data"] == data]
        name = same[0]["metadata"]["name"] if same else f"{mine['metadata']['name']}-{last + 1}"
        if not same or same[0]["revision"] != last:
            owner = {"uid": mine["metadata"]["uid"], "controller": True}
            metadata = {"name": name, "ownerReferences": [owner]}
            one = {"metadata": metadata, "data": copy.deepcopy(data), "revision": last + 1}
            self._put(f"{HISTORY}/{name}", one)
        self._latest = name
        status = {
            "observedGeneration": mine["metadata"]["generation"],
            "desiredNumberScheduled": len(self.nodes),
        }
        self._put(self.path, {**mine, "status": status})

    def _missing(self) -> list[str]:
        """The names of pods that are to be made now."""
        there = {pod["metadata"]["name"]: pod for pod in self._all(api.PODS)}
        if self.nodes:
            taken = {pod["spec"]["nodeName"] for pod in there.values()}
            return [f"agent-{self._version}@{node}" for node in self.nodes if node not in taken]
        found = []
        for number in range(self.objects[self.path]["spec"]["replicas"]):
            name = f"db-{number}"
            if name not in there:
                found.append(name)
            elif self.ordered and not _is_ready(there[name]):
                break
        return found

    def _make(self, name: str) -> None:
        name, _at, node = name.partition("@")
        mine = self.objects[self.path]
        hashed = self._latest.removeprefix("agent-") if self.nodes else self._latest
        owner = {**copy.deepcopy(mine), "metadata": {**mine["metadata"], "name": name}}
        owner["spec"]["template"]["metadata"]["labels"] |= {"controller-revision-hash": hashed}
        before = set(self.objects)
        self._start(owner)
        (path,) = set(self.objects) - before
        pod = self.objects[path]
        self._remove(path)
        pod["metadata"]["name"] = name
        pod["spec"]["nodeName"] = node or "node1"
        self._put(f"{api.PODS}/{name}", pod)


def _is_ready(pod: Object) -> bool:
    return "deletionTimestamp" not in pod["metadata"] and any(
        (one["type"], one["status"]) == ("Ready", "True") for one in pod["status"]["conditions"]
    )
