# SPDX-License-Identifier: GPL-3.0-or-later
"""An API server of Kubernetes in memory, with the controllers of Deployments and ReplicaSets.

Its answers to patches are those of a real server (`tests/engines`); its Deployment controller is the
model that the hand-back is tested with (`deployments.py`).
"""

from __future__ import annotations

import copy
import json
import threading
import time
import typing as t
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

from ansible_collections.progressive.rollout.plugins.plugin_utils.base import clock
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms import _pod, _pods
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.kubernetes import ApiError
from ansible_collections.progressive.rollout.tests.simulations.world.store import Journal
from ansible_collections.progressive.rollout.tests.support import deployments

APPS, CORE = "/apis/apps/v1/namespaces/web", "/api/v1/namespaces/web"
SERVICES = f"{CORE}/services"
SERVICE = f"{SERVICES}/shop"
DEPLOYMENTS, SETS, PODS = f"{APPS}/deployments", f"{APPS}/replicasets", f"{CORE}/pods"
SHOP = f"{DEPLOYMENTS}/shop"
AUTOSCALERS = "/apis/autoscaling/v1/namespaces/web/horizontalpodautoscalers"
Object = dict[str, t.Any]


def template(revision: str, **more: t.Any) -> Object:
    container = {
        "name": "shop",
        "image": f"local/shop:{revision}",
        "ports": [{"containerPort": 8080}],
        "readinessProbe": {"httpGet": {"path": "/", "port": 8080}},
    }
    return {"metadata": {"labels": {"app": "shop"}}, "spec": {"containers": [container], **more}}


def deployment(revision: str, replicas: int) -> Object:
    """As users write it."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "shop", "labels": {"app": "shop"}},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "shop"}},
            "template": template(revision),
        },
    }


class Server:
    """What drivers use of `remote.kubernetes.Cluster`, without a network."""

    namespace, skew = "web", 0.0
    network = "198.18.65"  # of its pods

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.journals: defaultdict[str, Journal] = defaultdict(Journal)  # of services in it
        self.changes: list[str] = []  # each change of ours
        self.told: list[Object] = []  # Events
        self.labelled = 0  # how often a pod was given another label
        self.forbidden: set[tuple[str, str]] = set()  # verb, resource
        self.lists: set[str] = set()  # paths of those of other kinds
        self.groups: list[Object] = []  # of other APIs
        self.refuses: Callable[[str], bool] = lambda path: False  # to be read
        self.fails: Callable[[str], None] = lambda change: None  # may raise, before each change
        self.steers = True  # whether it knows the cost of deletion
        self.corrects = False  # whether kubelets correct at once what others write of a pod's state
        self.quota = 1000  # pods
        self.starts: Callable[[Object], bool] = lambda pod: True  # whether a pod becomes ready
        self.admits: Callable[[Object], Object] = lambda one: one  # a webhook, in dry runs
        self.ends = False  # whether pods end as soon as they are started, again and again
        self.stops_at_once = True
        self.watches = False  # without, each look is a list, and shows what is there
        self.requests: list[str] = []  # each one, but for those of users
        self._events: list[tuple[int, str, str, Object]] = []  # version, kind, path, object
        self._happened = threading.Condition()
        self._version = 0

    # -- for users ---------------------------------------------------------------------------------

    def create(self, path: str, body: Object) -> Object:
        one = copy.deepcopy(body)
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(clock.wall()))
        one["metadata"] |= {
            "uid": f"uid-{self._version}",
            "generation": 1,
            "creationTimestamp": now,
        }
        where = f"{path}/{one['metadata']['name']}"
        if where in self.objects:
            raise ApiError(f'POST {path}: "{one["metadata"]["name"]}" already exists (409)', 409)
        self._put(where, one)
        self.reconcile()
        return self.objects[where]

    def living(self) -> list[Object]:
        return [one for one in self._all(PODS) if "deletionTimestamp" not in one["metadata"]]

    def counts(self) -> dict[str, int]:
        """How many living pods there are, by image tag."""
        found: dict[str, int] = {}
        for pod in self.living():
            tag = pod["spec"]["containers"][0]["image"].rpartition(":")[2]
            found[tag] = found.get(tag, 0) + 1
        return found

    # -- as `Cluster` ------------------------------------------------------------------------------

    def get(self, path: str, **query: str) -> Object:
        self.requests.append(f"GET {path}")
        if self.refuses(path):
            raise ApiError(f"GET {path}: forbidden (403)", 403)
        if path in self.objects:
            return copy.deepcopy(self.objects[path])
        if path == "/apis":
            return {"groups": list(self.groups)}
        if path not in {DEPLOYMENTS, SETS, PODS, SERVICES, AUTOSCALERS, *self.lists}:
            raise ApiError(f"GET {path}: not found (404)", 404)
        items = [one for one in self._all(path) if _selected(one, query)]
        return copy.deepcopy({"metadata": {"resourceVersion": str(self._version)}, "items": items})

    def metadata(self, path: str) -> Object:
        return self.get(path)["metadata"]  # type: ignore[no-any-return]

    def may(self, namespace: str, group: str, resource: str, verb: str) -> bool:
        return (verb, resource) not in self.forbidden

    def version(self) -> tuple[int, int]:
        return (1, 22) if self.steers else (1, 20)

    def watch(self, path: str, version: str, **query: str) -> Iterator[tuple[str, Object]]:
        """Tell what happens for two seconds."""
        if not self.watches:
            raise ApiError("no watch in memory")
        self.requests.append(f"WATCH {path}")
        at, end = int(version), time.monotonic() + 2
        while (left := end - time.monotonic()) > 0:
            with self._happened:
                new = [event for event in self._events if event[0] > at]
                if not new:
                    self._happened.wait(left)
            for event in new:
                at, kind, where, one = event
                if where.startswith(f"{path}/") and _selected(one, query):
                    yield kind, one

    def post(self, path: str, body: Object, **query: str) -> Object:
        self.requests.append(f"POST {path}")
        if query.get("dryRun"):
            return copy.deepcopy(body)
        if path == f"{CORE}/events":
            if self.refuses(path):
                raise ApiError(f"POST {path}: forbidden (403)", 403)
            self.told.append(body)
            return body
        self._changes(f"create {body['metadata']['name']}")
        return self.create(path, body)

    def patch(self, path: str, body: t.Any, **query: str) -> Object:
        self.requests.append(f"PATCH {path}")
        if path.endswith("/status") and self.corrects:
            return copy.deepcopy(self.objects[path.removesuffix("/status")])
        path = path.removesuffix("/status")
        if path not in self.objects:
            raise ApiError(f"PATCH {path}: not found (404)", 404)
        before = self.objects[path]
        after = copy.deepcopy(before)
        if isinstance(body, Mapping):
            version = body.get("metadata", {}).get("resourceVersion")
            if version not in (None, before["metadata"]["resourceVersion"]):
                raise ApiError(f"PATCH {path}: the object has been modified (409)", 409)
            after = _merged(after, body)
        else:
            for operation in body:
                _apply(path, after, operation)
        if query.get("dryRun"):
            return self.admits(after)
        if after != before:
            if _is_label_of_pod(path, before, after):
                self.labelled += 1
            else:
                self._changes(f"patch {path.rpartition('/')[2]}")
            if after["spec"] != before["spec"]:
                after["metadata"]["generation"] += 1
            self._put(path, after)
            self.reconcile()
        return copy.deepcopy(self.objects[path])

    def patch_by_keys(self, path: str, body: Object, **query: str) -> Object:
        """A strategic merge patch, in dry runs."""
        self.requests.append(f"PATCH {path}")
        assert query == {"dryRun": "All"}
        return self.admits(t.cast(Object, _merged_by_keys(self.objects[path], body)))

    def delete(self, path: str, body: Object | None = None) -> None:
        self.requests.append(f"DELETE {path}")
        if path in self.objects:
            self._changes(f"delete {path.rpartition('/')[2]}")
            assert not self.objects[path]["spec"]["replicas"], "its pods would go with it"
            self._remove(path)

    def _changes(self, what: str) -> None:
        self.fails(what)
        self.changes.append(what)

    # -- controllers -------------------------------------------------------------------------------

    def reconcile(self) -> None:
        """Let the controllers act until nothing changes."""
        before = None
        while before != self._version:
            before = self._version
            self._deployment()
            for path, one in list(self.objects.items()):
                if path.startswith(SETS):
                    self._set(path, one)

    def _deployment(self) -> None:
        if SHOP not in self.objects:
            return
        mine = self.objects[SHOP]
        for path, one in list(self.objects.items()):
            if path.startswith(SETS):
                self._claim(path, one, mine)
        groups = [group for group in _pods.groups(mine, self._all(SETS), ()) if group.owned]
        groups.sort(key=lambda group: int(group.obj["metadata"]["uid"].partition("-")[2]))
        model = deployments.Cluster(
            _pods.state_of(mine), {group.name: group.state() for group in groups}
        )
        model.reconcile()
        for name, state in model.sets.items():
            path = f"{SETS}/{name}"
            if path not in self.objects:
                self.create(SETS, self._own_set(mine, name, state.replicas))
                return
            changed = copy.deepcopy(self.objects[path])
            changed["spec"]["replicas"] = state.replicas
            self._put(path, changed)
        seen = {"observedGeneration": mine["metadata"]["generation"]}
        self._put(SHOP, {**mine, "status": seen})

    def _own_set(self, mine: Object, name: str, replicas: int) -> Object:
        pods = copy.deepcopy(mine["spec"]["template"])
        pods["metadata"]["labels"] |= {_pods.HASH: name}
        owner = {"uid": mine["metadata"]["uid"], "controller": True}
        return {
            "metadata": {
                "name": name,
                "labels": dict(pods["metadata"]["labels"]),
                "ownerReferences": [owner],
                "annotations": dict(mine["metadata"].get("annotations") or {}),
            },
            "spec": {"replicas": replicas, "template": pods},
        }

    def _claim(self, path: str, one: Object, mine: Object) -> None:
        """Adopt what the selector finds, and release what it does not find any more."""
        labels = one["metadata"].get("labels") or {}
        wanted = mine["spec"]["selector"]["matchLabels"].items() <= labels.items()
        if wanted != _pod.owned_by(one, mine):
            changed = copy.deepcopy(one)
            owner = {"uid": mine["metadata"]["uid"], "controller": True}
            changed["metadata"]["ownerReferences"] = [owner] if wanted else []
            self._put(path, changed)

    def _set(self, path: str, one: Object) -> None:
        mine = [pod for pod in self.living() if _pod.owned_by(pod, one)]
        missing, room = one["spec"]["replicas"] - len(mine), self.quota - len(self._all(PODS))
        for _missing in range(max(0, min(missing, room))):
            self._start(one)
        conditions = []
        if missing > room:
            refused = f'pods "{one["metadata"]["name"]}-" is forbidden: exceeded quota: q'
            conditions = [{"type": "ReplicaFailure", "status": "True", "message": refused}]
        if one.get("status", {}).get("conditions", []) != conditions:
            self._put(path, {**one, "status": {"conditions": conditions}})
        for pod in sorted(mine, key=self._last)[: max(0, -missing)]:
            where = f"{PODS}/{pod['metadata']['name']}"
            if self.stops_at_once:
                self._remove(where)
            else:
                now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(clock.wall()))
                pod["metadata"]["deletionTimestamp"] = now
                self._put(where, pod)

    def _last(self, pod: Object) -> tuple[bool, int, int]:
        """Which pod is deleted first: not ready, cheap, new."""
        notes = pod["metadata"].get("annotations") or {}
        cost = int(notes.get(_pod.COST, 0)) if self.steers else 0
        ready = _pod.condition(pod, "Ready").get("status") == "True"
        return ready, cost, -int(pod["metadata"]["uid"].partition("-")[2])

    def _start(self, owner: Object) -> None:
        pod = copy.deepcopy(owner["spec"]["template"])
        name = f"{owner['metadata']['name']}-{self._version}"
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(clock.wall()))
        pod["metadata"] |= {
            "name": name,
            "uid": f"uid-{self._version}",
            "creationTimestamp": now,
            "ownerReferences": [_owned(owner)],
        }
        ready = self.starts(pod) and not self.ends
        pod["spec"]["nodeName"] = "node1"
        pod["status"] = {
            "phase": "Running",
            "podIP": f"{self.network}.{self._version % 250}",
            "conditions": [
                {
                    "type": "Ready",
                    "status": str(ready),
                    "lastTransitionTime": pod["metadata"]["creationTimestamp"],
                }
            ],
        }
        if self.ends:
            ended = {"reason": "Error", "exitCode": 3, "finishedAt": now}
            again = {"name": "shop", "restartCount": 1, "lastState": {"terminated": ended}}
            pod["status"]["containerStatuses"] = [again]
        self._put(f"{PODS}/{name}", pod)

    def _all(self, path: str) -> list[Object]:
        return [one for where, one in self.objects.items() if where.startswith(f"{path}/")]

    def _put(self, path: str, one: Object) -> None:
        known = self.objects.get(path)
        if known is None or _bare(known) != _bare(one):
            self._version += 1
            one["metadata"]["resourceVersion"] = str(self._version)
            self.objects[path] = one
            self._tell("MODIFIED" if known else "ADDED", path, one)

    def _remove(self, path: str) -> None:
        self._version += 1
        one = self.objects.pop(path)
        one["metadata"]["resourceVersion"] = str(self._version)
        self._tell("DELETED", path, one)

    def _tell(self, kind: str, path: str, one: Object) -> None:
        with self._happened:
            self._events.append((self._version, kind, path, copy.deepcopy(one)))
            self._happened.notify_all()


def _owned(owner: Object) -> Object:
    """The reference of a pod to its ReplicaSet: of the Deployment's, with a real one's name."""
    name = owner["metadata"]["name"]
    made = owner["spec"]["template"]["metadata"]["labels"].get(_pods.HASH) == name
    named = {"kind": "ReplicaSet", "name": f"shop-{name}" if made else name}
    return {"uid": owner["metadata"]["uid"], "controller": True, **named}


def _is_label_of_pod(path: str, before: Object, after: Object) -> bool:
    """Whether nothing else has changed: it has no effect on a rollout, and is not counted."""
    metadata = {**after["metadata"], "labels": before["metadata"].get("labels")}
    return path.startswith(PODS) and {**after, "metadata": metadata} == before


def _selected(one: Object, query: Mapping[str, str]) -> bool:
    """By the labels, or the name, that a request asks for."""
    wanted = dict(pair.split("=") for pair in query.get("labelSelector", "").split(",") if pair)
    name = query.get("fieldSelector", "").removeprefix("metadata.name=")
    labels = one["metadata"].get("labels") or {}
    return wanted.items() <= labels.items() and name in ("", one["metadata"]["name"])


def _bare(one: Object) -> str:
    rest = {key: value for key, value in one["metadata"].items() if key != "resourceVersion"}
    return json.dumps({**one, "metadata": rest}, sort_keys=True)


def _merged(one: t.Any, patch: t.Any) -> t.Any:
    """A JSON merge patch (RFC 7396)."""
    if not isinstance(patch, Mapping):
        return patch
    found = dict(one) if isinstance(one, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = _merged(found.get(key), value)
    return found


# The merge keys of the lists in a pod template, as in the API's reference (`patchMergeKey`):
# https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/
KEYS = {
    **dict.fromkeys(("containers", "initContainers", "env", "volumes"), "name"),
    "ports": "containerPort",
    "volumeMounts": "mountPath",
}


def _merged_by_keys(one: t.Any, patch: t.Any, key: str | None = None) -> t.Any:
    """A strategic merge patch: lists with a merge key are merged by it, others are replaced.

    https://kubernetes.io/docs/tasks/manage-kubernetes-objects/update-api-object-kubectl-patch/
    """
    if isinstance(patch, list) and key:
        known = {item[key]: item for item in one or ()}
        for item in patch:
            if item.get("$patch") == "delete":
                known.pop(item[key], None)
            else:
                known[item[key]] = _merged_by_keys(known.get(item[key]), item)
        return list(known.values())
    if not isinstance(patch, Mapping):
        return copy.deepcopy(patch)
    merged = dict(one) if isinstance(one, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = _merged_by_keys(merged.get(name), value, KEYS.get(name))
    return merged


def _apply(path: str, one: Object, operation: Mapping[str, t.Any]) -> None:
    """One operation of a JSON patch (RFC 6902), as far as drivers use them."""
    *folders, last = operation["path"].strip("/").split("/")
    for folder in folders:
        one = one[int(folder) if isinstance(one, list) else folder]
    if operation["op"] == "test" and one.get(last) != operation["value"]:
        raise ApiError(f"PATCH {path}: the server rejected our request (422)", 422)
    if operation["op"] in ("add", "replace"):
        one[last] = copy.deepcopy(operation["value"])
    if operation["op"] == "remove":
        del one[last]


def serving(server: Server, of: Sequence[str] = ()) -> int:
    """How many pods are ready."""
    return sum(_pod.condition(pod, "Ready").get("status") == "True" for pod in server.living())
