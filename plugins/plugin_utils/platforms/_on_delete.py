# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods of a StatefulSet or a DaemonSet on Kubernetes, replaced at their places.

With the update strategy OnDelete, a new pod template moves nothing: a pod that is deleted comes
back with it. So the template says what comes, and is that of the stable revision whenever no new
pods are missing. What the templates were is in the workload's own history.
"""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..base import clock
from ..base.errors import InputError, PlatformError
from ..base.text import clean
from ..engine.model import Composition
from ..interfaces.context import DriverContext
from ..interfaces.platform import Labels, Report
from ..remote.kubernetes import ApiError, Object
from . import _kubernetes_risks as risks
from . import _places, _pod, _pods, _references, _rights
from ._hand_back import CAUSE
from ._kubernetes_sync import of_sync
from ._places import Places
from ._workload import AT_ONCE, WorkloadDriver

TOLD_AFTER = 3.0  # seconds that a place is without a pod until the reason is asked for


class OnDeleteDriver(WorkloadDriver):
    """The pods of one StatefulSet or DaemonSet."""

    capabilities = replace(WorkloadDriver.capabilities, refills_places=True)

    def __init__(self, options: Mapping[str, t.Any], context: DriverContext) -> None:
        super().__init__(options, context)
        self._places: Places | None = None  # as last seen
        # of which version of the workload it is known what its template says, and what
        self._known: tuple[int, _places.Mark] | None = None
        self._vacant: float | None = None  # since when a place is without a pod
        self._said = ""  # why, as last said

    # -- before anything is touched ----------------------------------------------------------------

    def replicas(self) -> int | None:
        return (self._places or self._look()).number or None

    def check(self) -> None:
        self._check_rights()
        places = self._look()
        _rights.check_on_delete(places.workload, self._kind, self._where)
        if not places.number or not places.pods:
            raise InputError(
                f"rollout_platform.workload: {self._where} has no pods, and only what runs can be"
                " replaced; deploy the first revision with the workload itself, and wait for its"
                " pods",
                "PR-243",
            )
        self._container(places.workload)
        if not self.context.health.enabled:
            self._check_probe(places.workload)

    def risks(self, replicas: int, least: int, most: int) -> Sequence[str]:
        workload = self._look().workload
        template = workload["spec"]["template"]
        read = _references.digests(self._cluster, self._namespace, template)
        return [
            *_references.of_rights(template, read, self._where),
            *of_sync(workload, self._kind, self._where),
            *risks.of_template(template),
        ]

    def prepare(self, revision: str, generation: int | None = None) -> None:
        """Have the server check the new pod template, and admission webhooks see it."""
        template = self._template(self._look(), generation or 0, revision)
        path = self._path(self._kinds, self._name)
        self._cluster.patch(path, {"spec": {"template": template}}, dryRun="All")

    def references(self, revision: str, generation: int) -> Mapping[str, str] | None:
        template = self._template(self._look(), generation, revision)
        return _references.digests(self._cluster, self._namespace, template)

    # -- the rollout -------------------------------------------------------------------------------

    def sync(
        self, start: Sequence[Labels] = (), stop: Sequence[str] = (), forget: Sequence[str] = ()
    ) -> Sequence[Report]:
        """Delete pods that are to be stopped; those that follow need no start."""
        self._seen = self._changes
        if start or stop or forget:
            self._refuse_without_lease()
        places = self._look()
        if stop and places.is_observed:
            self._delete(places, stop)
            places = self._look()
        if self.context.known().epoch:
            self._label_roles(places.generations, AT_ONCE)
        return list(places.reports(self._reading(), *self._why_vacant(places)))

    def refill(self, revision: str, generation: int) -> None:
        self._refuse_without_lease()
        places, wanted = self._places or self._look(), (generation, revision)
        if self._comes(places) == wanted or self._known == (_version(places), wanted):
            return
        places = self._fenced_look(fresh=True)
        template = self._template(places, generation, revision)
        if not _is_same(template, places.workload["spec"]["template"]):
            self._set_template(places, template)
            places = self._look()
        self._known = _version(places), wanted

    def conclude(self, stable: Composition | None) -> str:
        self._refuse_without_lease()
        if stable is not None:
            self.refill(stable.revision, stable.generation)
        places = self._look()
        self._label_roles(places.generations)
        return "" if places.is_observed else f"the controller has not seen {self._where} yet"

    # -- observe -----------------------------------------------------------------------------------

    def _check_rights(self) -> None:
        _rights.check(self._cluster, self._namespace, _rights.in_place(self._kinds))

    def _look(self) -> Places:
        """Return what is there; under a lease, fence off older ones."""
        try:
            return self._fenced_look(fresh=False)
        except ApiError as exc:
            if exc.status != 409:
                raise
        return self._fenced_look(fresh=True)  # its controller has changed it meanwhile

    def _fenced_look(self, fresh: bool) -> Places:
        workload = self._get(fresh)
        if self.context.known().epoch:
            workload = self._fence(workload, self._kinds)
        wanted = ",".join(f"{key}={value}" for key, value in _pods.selector(workload).items())
        pods = self._list("pods", labelSelector=wanted)
        numbered = self._kind == "statefulset"
        self._places = Places(workload, pods, numbered, clock.now(), self._cluster.skew)
        return self._places

    def _why_vacant(self, places: Places) -> tuple[float, str]:
        """Return since when a place is without a pod, and why, in the server's words."""
        if not places.vacant():
            self._vacant, self._said = None, ""
            return clock.now(), ""
        if self._vacant is None:
            self._vacant = clock.now()
        if clock.now() - self._vacant > TOLD_AFTER and (why := self._refusal(places)):
            if why != self._said:
                self.context.transport.print_line(f"no more pods of {self._name}: {why} [PR-245]")
            self._said = why
        return self._vacant, self._said

    def _refusal(self, places: Places) -> str:
        """Return what the controller last said of a pod that it could not make."""
        uid = places.workload["metadata"]["uid"]
        wanted = f"involvedObject.uid={uid},reason=FailedCreate"
        events = self._cluster.get(self._path("events"), fieldSelector=wanted).get("items", ())
        last = max(events, key=lambda event: str(event.get("lastTimestamp")), default=None)
        return clean(last.get("message", "")) if last else ""

    # -- act ---------------------------------------------------------------------------------------

    def _delete(self, places: Places, ids: Sequence[str]) -> None:
        """Delete pods, if they still are the same ones."""
        known = places.by_id()
        for pod in (known[id] for id in ids if id in known):
            if pod["metadata"].get("deletionTimestamp"):
                continue
            path = self._path("pods", str(pod["metadata"]["name"]))
            try:
                self._cluster.delete(path, {"preconditions": {"uid": pod["metadata"]["uid"]}})
            except ApiError as exc:
                if exc.status != 409:
                    raise

    def _comes(self, places: Places) -> _places.Mark | None:
        """Return generation and revision of the pods that come, where the template says it."""
        return _places.marked(places.workload["spec"]["template"])

    def _template(self, places: Places, generation: int, revision: str) -> dict[str, t.Any]:
        """Return the pod template of a generation: as it was, or else the present one with the
        revision's image.
        """
        history = self._cluster.get(self._path("controllerrevisions")).get("items", ())
        kept = self.context.settings_of(generation)
        again = self._reading().imaged if kept and kept.again else None
        if recorded := _places.template_of(history, places, generation, revision, again):
            return recorded
        if generation == _pods.ADOPTED and any(not _places.marked(pod) for pod in places.pods):
            raise PlatformError(
                f"{self._where}: the pod template of {revision} is not in its history any more",
                "PR-246",
            )
        template = self._new_template(places.workload, revision, generation)
        return _places.mark(template, generation, revision)

    def _set_template(self, places: Places, template: Mapping[str, t.Any]) -> None:
        """Change the pod template, if nobody else has meanwhile."""
        workload = places.workload
        known = _places.marked(template)
        revision = known[1] if known else self._reading().imaged(template)
        cause = {CAUSE: f"progressive.rollout: {self.context.service} {revision}"}
        notes = {_places.FIRST: places.first, **_pod.notes_of(workload), **cause}
        patch: list[Object] = [
            {
                "op": "test",
                "path": "/metadata/resourceVersion",
                "value": workload["metadata"]["resourceVersion"],
            },
            {"op": "add", "path": "/metadata/annotations", "value": notes},
            {"op": "replace", "path": "/spec/template", "value": template},
        ]
        try:
            self._patch(self._kinds, self._name, patch)
        except ApiError as exc:
            if exc.status not in (409, 422):
                raise
            raise PlatformError(
                f"{self._where} was changed by somebody else meanwhile, and is looked at again",
                "PR-246",
            ) from None


def _version(places: Places) -> int:
    """Return a number that changes with the pod template."""
    return int(places.workload["metadata"]["generation"])


def _is_same(left: Object, other: Object) -> bool:
    """Return whether two pod templates are the same."""
    first, second = (_pods.template_of({"spec": {"template": each}}) for each in (left, other))
    return first == second
