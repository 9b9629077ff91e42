# SPDX-License-Identifier: GPL-3.0-or-later
"""What all workloads of Kubernetes have in common: the object, its pods, and who may change it."""

from __future__ import annotations

import abc
import time
import typing as t
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property

from ..base import clock
from ..base.errors import InputError, LeaseLost, PlatformError
from ..interfaces.context import DriverContext
from ..interfaces.platform import (
    Capabilities,
    Endpoint,
    Labels,
    Notable,
    PlatformDriver,
)
from ..remote import kubernetes_notes
from ..remote.kubernetes import ApiError, Cluster, Object, Reflector
from . import _pod, _pod_reports, _pods

LONGEST_EVENT = 1000  # characters of the text of an Event; the server takes 1024
AT_ONCE = 5  # pods that get another role in one look
ENOUGH = 10_000  # instances of a service; how many pods fit is for the scheduler to find


class WorkloadDriver(PlatformDriver):
    """The pods of one workload, which a controller of the cluster starts and stops."""

    capabilities = Capabilities(
        has_hosts=False,
        names_instances=True,
        unmarked_generation=_pods.ADOPTED,
        host_options=("workload", "namespace", "context", "kubeconfig", "clusters"),
    )
    _create = "create it first"  # what to do where there is none

    def __init__(self, options: Mapping[str, t.Any], context: DriverContext) -> None:
        self.context = context
        self._options = options
        self._kind, _slash, self._name = str(options["workload"]).partition("/")
        self._kinds = f"{self._kind}s"
        self.workloads = frozenset({str(options["workload"])})
        self._watched: dict[str, Reflector] = {}  # by kind
        self._notes = True  # whether Events may be made, as far as it is known
        self._seen = -1  # changes that the last reports have taken in

    @abc.abstractmethod
    def _check_rights(self) -> None:
        """Raise InputError where the account lacks rights."""

    def hosts(self) -> Sequence[str]:
        """Return none: the scheduler finds a node for a pod."""
        return ()

    def capacity(self, among: Collection[str] | None = None) -> int:
        return ENOUGH

    def _identity(self) -> str:
        """Return what no other workload has in common with this one, in any cluster."""
        return str(self._get()["metadata"]["uid"])

    def place(
        self,
        count: int,
        taken: Collection[Labels],
        generation: int,
        among: Collection[str] | None = None,
    ) -> Sequence[tuple[str, Endpoint, int]]:
        raise PlatformError("rollout_platform.driver: Kubernetes places pods itself", "PR-617")

    def check_endpoints(self) -> None:
        workload = self._get()
        only = self._container(workload)
        pods = [workload["spec"]["template"]["spec"], self._options["template"].get("spec") or {}]
        ports = [
            port
            for pod in pods
            for container in pod.get("containers") or ()
            if container.get("name") == only
            for port in container.get("ports") or ()
        ]
        if not ports and not self._options["port"]:
            raise InputError(
                f"rollout_platform.port: not given, and container {only} of {self._where} names no"
                " containerPort, so that neither a load balancer nor a check could reach its pods;"
                " give the port that it listens on",
                "PR-258",
            )

    def note(self, event: Notable, text: str) -> None:
        if self._notes:
            try:
                self._cluster.post(self._path("events"), self._event(event, text))
            except ApiError as exc:
                self._notes = exc.status != 403

    def _event(self, event: Notable, text: str) -> dict[str, t.Any]:
        """Return an Event on the workload, as `kubectl describe` shows it.

        https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/
        """
        workload, now = self._get(), clock.wall() - self._cluster.skew
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
        metadata = workload["metadata"]
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{self._name[:200]}.{uuid.uuid4().hex[:16]}",
                "namespace": self._namespace,
            },
            "involvedObject": {
                "apiVersion": "apps/v1",
                "kind": {"statefulset": "StatefulSet", "daemonset": "DaemonSet"}.get(
                    self._kind, "Deployment"
                ),
                "namespace": self._namespace,
                "name": self._name,
                "uid": metadata["uid"],
            },
            "type": "Warning" if event.is_failure else "Normal",
            "reason": event.value,
            "message": text[:LONGEST_EVENT],
            "source": {"component": "progressive.rollout"},
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "count": 1,
        }

    def leave(self, dry: bool) -> Sequence[str]:
        if not dry:
            self._refuse_without_lease()
        objects = [
            (self._path(kind, str(obj["metadata"]["name"])), obj)
            for kind, objects in self._own_objects().items()
            for obj in objects
        ]
        return kubernetes_notes.leave(self._cluster, objects, dry)

    def _own_objects(self) -> dict[str, list[Object]]:
        """Return the workload, the ReplicaSets that it has, and their pods, by kind.

        A Deployment gives its annotations to its ReplicaSet, so it comes first.
        """
        owners = self._list_all(self._kinds, fieldSelector=f"metadata.name={self._name}")
        objects_by_kind = {self._kinds: list(owners)}
        for kind in ("replicasets", "pods") if self._kinds == "deployments" else ("pods",):
            mine = [o for o in self._list_all(kind) if any(_pod.owned_by(o, w) for w in owners)]
            objects_by_kind[kind], owners = mine, mine
        return objects_by_kind

    def changed(self) -> bool:
        return bool(self._watched) and self._changes != self._seen

    def close(self) -> None:
        for reflector in self._watched.values():
            reflector.close()

    # -- helpers -----------------------------------------------------------------------------------

    @cached_property
    def _cluster(self) -> Cluster:
        options = self._options
        return Cluster(options["kubeconfig"], options["context"], "rollout_platform.context")

    @property
    def _namespace(self) -> str:
        return self._options["namespace"] or self._cluster.namespace

    @property
    def _where(self) -> str:
        return f"{self._kind} {self._name} in namespace {self._namespace}"

    def _path(self, kind: str, *names: str) -> str:
        group = "/api/v1" if kind in ("pods", "events") else "/apis/apps/v1"
        return "/".join([group, "namespaces", self._namespace, kind, *names])

    def _get(self, fresh: bool = False) -> Object:
        """Return the workload."""
        matching = self._list(self._kinds, fresh, fieldSelector=f"metadata.name={self._name}")
        if not matching:
            raise InputError(
                f"rollout_platform.workload: there is no {self._where}; {self._create}",
                "PR-242",
            )
        return matching[0]

    def _list(self, kind: str, fresh: bool = False, **query: str) -> Sequence[Object]:
        """Return objects of a kind, watched as long as a rollout lasts."""
        path = self._path(kind)
        if not self.context.known().epoch:
            return self._list_all(kind, **query)
        if kind not in self._watched:
            self._watched[kind] = Reflector(self._cluster, path, self.context.wake, **query)
        return self._watched[kind].list(fresh)

    def _list_all(self, kind: str, **query: str) -> Sequence[Object]:
        """Return objects of a kind, as they are now."""
        try:
            items: Sequence[Object] = self._cluster.get(self._path(kind), **query).get("items", ())
        except ApiError as exc:
            if exc.status == 403:
                self._check_rights()  # says which ones are missing
            raise
        return items

    @property
    def _changes(self) -> int:
        """How many changes the watches have told of."""
        return sum(reflector.changes for reflector in self._watched.values())

    def _refuse_without_lease(self) -> None:
        if not self.context.known().epoch:
            raise PlatformError(f"{self._where}: nothing is done without a lease", "PR-503")

    def _fence(self, obj: Object, kind: str) -> Object:
        """Write the lease's epoch to an object; raises LeaseLost where a newer one is."""
        notes, mine = _pod.notes_of(obj), self.context.known().epoch
        seen = int(notes[_pods.EPOCH]) if notes.get(_pods.EPOCH, "").isdecimal() else 0
        if seen > mine:
            raise LeaseLost(
                f"{self._where}: a newer lease holder has acted here (epoch {seen}, ours is {mine})"
            )
        if seen == mine:
            return obj
        patch = versioned(obj, {"annotations": {_pods.EPOCH: str(mine)}})
        return self._patch(kind, str(obj["metadata"]["name"]), patch)

    def _patch(self, kind: str, name: str, patch: Object | Sequence[Object]) -> Object:
        """Change an object that is watched."""
        patched = self._cluster.patch(self._path(kind, name), patch)
        self._watched[kind].note(patched)
        return patched

    def _label_roles(self, pods: Iterable[tuple[Object, int]], most: int | None = None) -> None:
        """Label pods, each given with its generation, as stable or canary, for dashboards.

        `most` at once, so that no look is late.
        """
        roles = [(pod, self._role(generation)) for pod, generation in pods]
        wrong = [pod for pod in roles if _pod.labels_of(pod[0]).get(_pods.ROLE) != pod[1]]
        for pod, role in wrong[:most]:
            self._patch_pod(str(pod["metadata"]["name"]), _pod.labelled(_pods.ROLE, role))

    def _role(self, generation: int) -> str:
        kept = self.context.settings_of(generation)
        is_new = generation > self.context.known().stable and not (kept and kept.again)
        return _pods.CANARY if is_new else _pods.STABLE

    def _patch_pod(self, name: str, patch: Object | Sequence[Object]) -> None:
        """Change a pod, or its status; that it is gone, or has changed, is no error."""
        try:
            self._patch("pods", name, patch)
        except ApiError as exc:
            if exc.status not in (404, 422):
                raise

    def _container(self, workload: Object) -> str:
        """Return the name of the container whose image is the revision's."""
        names = [str(c["name"]) for c in workload["spec"]["template"]["spec"]["containers"]]
        wanted = self._options["container"]
        if wanted not in names and (wanted or len(names) != 1):
            raise InputError(
                f"rollout_platform.container: {wanted or 'not given'}; the containers of"
                f" {self._where} are {', '.join(names)}",
                "PR-242",
            )
        return str(wanted or names[0])

    def _new_template(self, workload: Object, revision: str, generation: int) -> dict[str, t.Any]:
        """Return the workload's pod template with the patch and the image of a revision."""
        kept = self.context.settings_of(generation)
        options = {**self._options, **kept.platform} if kept else self._options
        changes = options["template"] if not kept else kept.platform.get("template")
        template = _pods.template_of(workload)
        if changes:
            body = {"spec": {"template": _filled(changes, revision)}}
            path = self._path(self._kinds, self._name)
            merged = self._cluster.patch_by_keys(path, body, dryRun="All")
            template = _pods.template_of(merged)
        only = self._container(workload)
        for container in template["spec"]["containers"]:
            if container["name"] == only:
                container["image"] = options["image"].replace("{revision}", revision)
        return template

    def _reading(self) -> _pod_reports.Reading:
        return _pod_reports.Reading(
            self.context.service,
            self._options["container"] or "",
            self._options["image"],
            self._options["port"] or 0,
            clock.now(),
            self._cluster.skew,
            self._images(),
        )

    def _images(self) -> dict[int, str]:
        """Return the image of each generation, with a placeholder, as far as it is known."""
        kept = {n: self.context.settings_of(n) for n in self.context.known().settings}
        return {n: str(known.platform.get("image") or "") for n, known in kept.items() if known}

    def _check_probe(self, workload: Object) -> None:
        only = self._container(workload)
        for container in workload["spec"]["template"]["spec"]["containers"]:
            if container["name"] == only and not container.get("readinessProbe"):
                raise InputError(
                    f"rollout_health: not given, and container {only} of {self._where} has no"
                    " readinessProbe, so that a pod would be ready as soon as it runs; add one of"
                    " them",
                    "PR-243",
                )


def _filled(changes: t.Any, revision: str) -> t.Any:
    """Return changes of a pod template with the revision in their texts."""
    if isinstance(changes, Mapping):
        return {key: _filled(value, revision) for key, value in changes.items()}
    if isinstance(changes, (list, tuple)):
        return [_filled(value, revision) for value in changes]
    return changes.replace("{revision}", revision) if isinstance(changes, str) else changes


def versioned(
    obj: Object, metadata: Mapping[str, t.Any], spec: Mapping[str, t.Any] | None = None
) -> dict[str, t.Any]:
    """Return a merging patch that is refused if the object was changed meanwhile."""
    version = {"resourceVersion": obj["metadata"]["resourceVersion"]}
    return {"metadata": {**metadata, **version}, **({"spec": dict(spec)} if spec else {})}
