# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods of a Deployment on Kubernetes. Nothing is installed in the cluster.

Those of StatefulSets and DaemonSets are replaced at their places: see `_on_delete.py`.

The user's Deployment keeps the old template and is only scaled while a rollout lasts. The new pods
are those of a ReplicaSet beside it, which it adopts at the end (`engine/hand_back.py`). So whatever
happens to a run, the Deployment has what is stable, and no pod is started for the end alone.
"""

from __future__ import annotations

import json
import typing as t
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from ..base import clock
from ..base.errors import InputError, PlatformError
from ..base.text import count
from ..engine import hand_back
from ..engine.hand_back import HandBackStep
from ..engine.model import Composition
from ..interfaces.context import DriverContext
from ..interfaces.platform import Labels, PlatformDriver, Report
from ..remote.kubernetes import ApiError, Object
from . import _kubernetes_risks as risks
from . import _kubernetes_rivals as rivals
from . import _pod, _pods, _references, _rights
from ._clusters import ClustersDriver
from ._hand_back import METADATA, retarget
from ._kubernetes_options import OPTIONS
from ._kubernetes_sync import of_sync
from ._on_delete import OnDeleteDriver
from ._pods import Group
from ._workload import AT_ONCE, WorkloadDriver, versioned

__all__ = ["OPTIONS", "Driver"]
STEPS = 100  # of a hand-back at once; more only if something undoes them
DELETION_GRACE = 5.0  # seconds that a controller has to see which pods are to be deleted first


class Driver(WorkloadDriver):
    """The pods of one Deployment."""

    _create = "create it first, with the number of replicas 0 if nothing is to run yet"

    @classmethod
    def variant(cls, options: Mapping[str, t.Any]) -> type[PlatformDriver]:
        in_deployment = str(options["workload"]).startswith("deployment/")
        if options["clusters"]:
            return InClusters
        return cls if in_deployment else OnDeleteDriver

    def __init__(self, options: Mapping[str, t.Any], context: DriverContext) -> None:
        super().__init__(options, context)
        # By ReplicaSet, which change of its number has ordered missing pods, and when.
        self._ordered: dict[str, tuple[int, float]] = {}
        # By instance that was asked to stop, since when its controller has to learn of it.
        self._steered: dict[str, float] = {}
        self._unknown: Sequence[str] = ()  # what the account may not see, as `check` found
        self._leaving: frozenset[str] = frozenset()  # pods that are to go, as last said
        self._kept: set[str] = set()  # instances that stay in the place of others, as told
        self._question = ""  # for a person, when it was last looked at
        self._asked: int | None = None  # by the Deployment's owner, when it was last looked at
        self._said: dict[str, str] = {}  # by ReplicaSet, why it makes no pods, as last said

    # -- before anything is touched ----------------------------------------------------------------

    def replicas(self) -> int | None:
        deployment = self._get()
        beside = [group.replicas for group in self._groups(deployment) if not group.owned]
        return int(deployment["spec"].get("replicas", 1)) + sum(beside)

    def asked(self) -> int | None:
        return self._asked

    def question(self) -> str:
        return self._question

    def check(self) -> None:
        cluster = self._cluster
        self._check_rights()
        deployment = self._get()
        groups = self._groups(deployment)
        _rights.check_deployment(deployment, self._where)
        self._container(deployment)
        if not self.context.health.enabled:
            self._check_probe(deployment)
        rivals.refuse_overlap(deployment, self._list_all("deployments"), self._where)
        mine = cluster, self._namespace, self._name, self._where
        self._unknown = [
            *rivals.refuse_others(*mine),
            *rivals.refuse_autoscalers(*mine, self.context.autoscaler),
        ]
        if busy := [
            group for group in groups if group.owned and not group.current and group.replicas
        ]:
            raise InputError(
                f"rollout_platform.workload: {self._where} is in its own rolling update"
                f" ({busy[0].name} is still to have {busy[0].replicas} pods); wait for it: kubectl"
                f" rollout status deployment/{self._name}",
                "PR-243",
            )

    def risks(self, replicas: int, least: int, most: int) -> Sequence[str]:
        deployment = self._get()
        present = sum(len(group.living) for group in self._groups(deployment))
        numbers = risks.Numbers(replicas, least, most, present)
        template = deployment["spec"]["template"]
        policy = rivals.served(self._cluster).get("policy")
        budgets = rivals.listed(self._cluster, policy, self._namespace, "poddisruptionbudgets")
        quotas, nodes = (
            rivals.listed_at(self._cluster, path)
            for path in (f"/api/v1/namespaces/{self._namespace}/resourcequotas", "/api/v1/nodes")
        )
        read = _references.digests(self._cluster, self._namespace, template)
        return [
            *_references.of_rights(template, read, self._where),
            *of_sync(deployment, self._kind, self._where),
            *self._unknown,
            *risks.of_budgets(budgets or (), _pod.labels_of(template), numbers),
            *risks.of_quotas(quotas or (), template, numbers),
            *risks.of_nodes(nodes or (), template, numbers),
            *risks.of_template(template),
            *risks.of_history(deployment),
        ]

    def prepare(self, revision: str, generation: int | None = None) -> None:
        """Have the server check the new ReplicaSet, and that it can be handed back.

        Admission webhooks see both, and may change the one otherwise than the other.
        """
        deployment = self._get()
        self._refuse_another_order(deployment, revision)
        body = self._replica_set(deployment, revision, generation or 1, 0)
        body["metadata"]["name"] = f"{self._name}-dry-run"
        made = self._cluster.post(self._path("replicasets"), body, dryRun="All")
        template = [{"op": "replace", "path": "/spec/template", "value": _pods.template_of(made)}]
        where = self._path("deployments", self._name)
        taken = self._cluster.patch(where, template, dryRun="All")
        if _pods.template_of(taken) != _pods.template_of(made):
            raise InputError(
                f"rollout_platform.workload: {self._where}: an admission webhook changes the pod"
                " template of Deployments otherwise than that of ReplicaSets, so that the"
                " Deployment could not take the new pods over; exempt it from that",
                "PR-243",
            )

    def references(self, revision: str, generation: int) -> Mapping[str, str] | None:
        deployment = self._get()
        if mine := _of_generation(self._groups(deployment), generation, revision):
            template = mine[0].obj["spec"]["template"]
        else:
            template = self._replica_set(deployment, revision, generation, 0)["spec"]["template"]
        return _references.digests(self._cluster, self._namespace, template)

    # -- the rollout -------------------------------------------------------------------------------

    def sync(
        self, start: Sequence[Labels] = (), stop: Sequence[str] = (), forget: Sequence[str] = ()
    ) -> Sequence[Report]:
        self._seen = self._changes
        deployment, groups = self._look()
        self._asked = _pods.asked(deployment)
        self._question = self._changed_template(groups)
        if start or stop or forget:
            self._refuse_without_lease()
        stop = [*stop, *(id for id in self._still_to_stop(groups) if id not in stop)]
        if start or stop:
            if new := _pods.pending(deployment, groups):
                self._complete_pending(new)
                deployment, groups = self._look()
            self._scale(deployment, groups, start, stop)
            deployment, groups = self._look()
        if self.context.known().epoch:
            self._label_roles(_roles(groups), AT_ONCE)
        return self._reports(groups)

    def leaving(self, ids: Collection[str]) -> None:
        """Say which pods go before others as early as that is known, and of which it is over.

        The controller hears of costs and of the number by two watches.
        """
        names = frozenset(id.partition("/")[0] for id in ids)
        if names != self._leaving and self.context.known().epoch and self._costs:
            for group in self._look()[1]:
                self._set_costs(group, names)
            self._leaving = names

    def _set_costs(self, group: Group, names: Collection[str]) -> None:
        """Make these pods cheap, and no others but those that are about to be deleted."""
        going = {id.partition("/")[0] for id in group.leaving}
        for name, pod in group.living.items():
            if name in names and not _pod.is_cheap(pod):
                self._patch_pod(name, _pod.cheap())
            elif _pod.is_cheap(pod) and name not in {*names, *going}:
                self._patch_pod(name, _pod.dear())

    def conclude(self, stable: Composition | None) -> str:
        self._refuse_without_lease()
        new = None
        if stable is not None:
            deployment, groups = self._look()
            mine = _of_generation(groups, stable.generation, stable.revision)
            if not mine and not stable.replicas:  # what is scaled to 0 has no pods either
                body = self._replica_set(deployment, stable.revision, stable.generation, 0)
                made = self._cluster.post(self._path("replicasets"), body)
                self._watched["replicasets"].note(made)
                return f"the ReplicaSet of {stable.revision} was made"
            if not mine:
                return f"no pods are of {stable.revision}"
            new = mine[0].name
        if left := self._hand_back(new):
            return left
        self._tidy(new or "")
        return ""

    # -- observe -----------------------------------------------------------------------------------

    def _check_rights(self) -> None:
        _rights.check(self._cluster, self._namespace)

    @cached_property
    def _costs(self) -> bool:
        return _rights.costs(self._cluster)

    def _look(self, fresh: bool = False) -> tuple[Object, list[Group]]:
        """Return the Deployment and its groups; under a lease, fence off older ones."""
        try:
            return self._fenced_look(fresh)
        except ApiError as exc:
            if exc.status != 409:
                raise
        return self._fenced_look(fresh=True)  # a controller has changed one meanwhile

    def _fenced_look(self, fresh: bool) -> tuple[Object, list[Group]]:
        deployment = self._get(fresh)
        if not self.context.known().epoch:
            return deployment, self._groups(deployment)
        deployment = self._fence(deployment, "deployments")
        groups = [self._fenced(group) for group in self._groups(deployment, fresh)]
        if lagging := [group for group in groups if group.lags]:
            self._take_annotations(lagging[0])
            return deployment, self._groups(deployment, fresh)
        return deployment, groups

    def _groups(self, deployment: Object, fresh: bool = False) -> list[Group]:
        wanted = ",".join(f"{key}={value}" for key, value in _pods.selector(deployment).items())
        pods = self._list("pods", labelSelector=wanted)
        # an earlier version began the first rollout with the generation of what it adopts
        adopts = self.context.settings_of(_pods.ADOPTED) is None
        return _pods.groups(deployment, self._list("replicasets", fresh), pods, adopts=adopts)

    def _reports(self, groups: Sequence[Group]) -> list[Report]:
        reading = self._reading()
        reports: list[Report] = []
        for group in groups:
            self._note_missing(group)
            self._note_kept(group)
            reports += reading.reports(group, self._ordered.get(group.name, (0, 0.0))[1])
        return reports

    def _note_kept(self, group: Group) -> None:
        """Tell of pods that were to go, and stay since Kubernetes has deleted others."""
        for name, known in group.ids.items():
            if name != known and known not in self._kept:
                self._kept.add(known)
                self.context.transport.print_line(
                    f"{group.name}: Kubernetes has deleted another pod than {name}, which stays, as"
                    f" {known}"
                )

    def _note_missing(self, group: Group) -> None:
        """Note since when pods are missing, and tell the operator why, in the server's words."""
        if not group.missing:
            self._ordered.pop(group.name, None)
            self._said.pop(group.name, None)
            return
        if self._ordered.get(group.name, (-1, 0.0))[0] != group.change:
            self._ordered[group.name] = group.change, clock.now()
        if group.refusal and group.refusal != self._said.get(group.name):
            self._said[group.name] = group.refusal
            self.context.transport.print_line(
                f"no more pods of {group.name}: {group.refusal} [PR-245]"
            )

    # -- act ---------------------------------------------------------------------------------------

    def _fenced(self, group: Group) -> Group:
        """Return a group whose number no older lease changes any more."""
        if group.owned:
            return group
        return replace(group, obj=self._fence(group.obj, "replicasets"))

    def _take_annotations(self, group: Group) -> None:
        """Give the new ReplicaSet the annotations that the Deployment's pods were given meanwhile,
        as `kubectl rollout restart` does. Its pods stay as they are.
        """
        template = _pods.template_of(group.deployment)
        mine = _pods.template_of(group.obj)["metadata"].get("annotations") or {}
        notes = template["metadata"].get("annotations") or {}
        metadata = {"annotations": {_pods.BASE: _pods.digest(template)}}
        spec = {"template": {"metadata": {"annotations": notes}}}
        self._patch("replicasets", group.name, versioned(group.obj, metadata, spec))
        if names := [name for name, value in notes.items() if mine.get(name) != value]:
            self.context.transport.print_line(
                f"{self._where}: its pods were given annotations meanwhile ({', '.join(names)}),"
                f" as by kubectl rollout restart, and {group.name} takes them over;"
                f" {count(len(group.living), 'pod')} of it started before that [PR-249]"
            )

    def _changed_template(self, groups: Sequence[Group]) -> str:
        """Return what a person has to decide about a template that somebody else has changed."""
        if not any(group.edited and group.marked and not group.owned for group in groups):
            return ""
        return (
            f"somebody else has changed the pod template of {self._where}, which the rollout"
            " neither overwrites nor takes over: change it back (kubectl rollout undo"
            f" deployment/{self._name}), and the rollout goes on; or roll back, to the pods of the"
            " changed template"
        )

    def _scale(
        self,
        deployment: Object,
        groups: Sequence[Group],
        start: Sequence[Labels],
        stop: Sequence[str],
    ) -> None:
        """Change the numbers of replicas: fewer pods first, so that the others have room."""
        restarting = any(group.owned and not group.current and group.replicas for group in groups)
        for group in groups:
            if group.owned and restarting:
                continue  # its controller replaces these pods itself, and goes on to its number
            ids = [*group.ids.values(), *group.ordered]
            going = [id for id in stop if id in ids and id not in group.stopped]
            if going and self._steer(group, going):
                self._set(group, group.replicas - len(going), going)
        more = Counter((labels.generation, labels.revision) for labels in start)
        for (generation, revision), number in more.items():
            mine = _of_generation(groups, generation, revision)
            if not mine:
                body = self._replica_set(deployment, revision, generation, number)
                made = self._cluster.post(self._path("replicasets"), body)
                self._watched["replicasets"].note(made)
            elif mine[0].edited:
                raise PlatformError(
                    f"{self._where}: somebody else has changed its pod template since"
                    f" {revision} was rolled out, so that no pods of it are started; change it back"
                    f" (kubectl rollout undo deployment/{self._name}), or roll back",
                    "PR-246",
                )
            else:
                self._set(mine[0], mine[0].replicas + number)

    def _steer(self, group: Group, ids: Sequence[str]) -> bool:
        """Have the controller delete these pods before others; return whether it would now.

        Servers before 1.22 know no costs. Their controllers delete pods first that are not ready:
        https://github.com/kubernetes/kubernetes/blob/v1.20.2/pkg/controller/controller_utils.go
        """
        for name in sorted({id.partition("/")[0] for id in ids} & set(group.living)):
            pod = group.living[name]
            if self._costs and not _pod.is_cheap(pod):
                self._patch_pod(name, _pod.cheap())
            elif not self._costs and (patch := _pod.unready(pod)):
                self._patch_pod(f"{name}/status", patch)
        return self._costs or self._has_seen(group, ids)

    def _still_to_stop(self, groups: Sequence[Group]) -> Collection[str]:
        """Return the instances that were asked to stop, of which the number does not tell yet."""
        present = {id for group in groups for id in group.ids.values()}
        self._steered = {id: since for id, since in self._steered.items() if id in present}
        return self._steered

    def _has_seen(self, group: Group, ids: Sequence[str]) -> bool:
        """Whether the controller knows which pods are not ready, or was waited for long enough.

        It hears of pods and of the number by two watches, and may hear of the number first.
        """
        since = min(self._steered.setdefault(id, clock.now()) for id in ids)
        known = all(other.goes_first(ids) for other in self._look()[1] if other.name == group.name)
        if not known and clock.now() - since < DELETION_GRACE:
            return False
        for id in ids:
            del self._steered[id]
        return True

    def _set(self, group: Group, replicas: int, going: Sequence[str] = ()) -> None:
        """Change a group's number, if it still is as seen, and note which pods are to go."""
        kept = [id for id in group.stopped if id.partition("/")[0] in group.living]
        kept += [id for id in going if id.partition("/")[0] in group.living]
        obj = group.scaled
        kind, name = ("deployments", self._name) if group.current else ("replicasets", group.name)
        notes = {**_pod.notes_of(obj), _pods.STOPPED: json.dumps(kept)}
        if group.current:
            notes[_pods.NUMBER] = str(max(0, replicas))
        patch: list[Object] = [
            {"op": "test", "path": "/spec/replicas", "value": group.replicas},
            {"op": "test", "path": "/metadata/annotations", "value": _pod.notes_of(obj)},
            {"op": "add", "path": "/metadata/annotations", "value": notes},
            {"op": "replace", "path": "/spec/replicas", "value": max(0, replicas)},
        ]
        try:
            self._patch(kind, name, patch)
        except ApiError as exc:
            if exc.status != 422:
                raise
            raise PlatformError(
                f"{name} was changed by somebody else meanwhile, and is looked at again: {exc}",
                "PR-246",
            ) from None

    def _replica_set(
        self, deployment: Object, revision: str, generation: int, replicas: int
    ) -> dict[str, t.Any]:
        """Return the ReplicaSet of a generation."""
        groups = self._groups(deployment)
        name, hashed = self._free_name(groups, generation)
        before = next((group.obj for group in groups if group.current), deployment)
        template = self._earlier(groups, revision, generation)
        if template is None and self._is_ordered(groups, deployment, revision):
            template = _pods.template_of(deployment)
        template = template or self._new_template(deployment, revision, generation)
        template["metadata"]["labels"] |= hashed
        return {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": name,
                "labels": {_pods.SERVICE: _pods.service_of(deployment)},
                "annotations": {
                    _pods.MARK: _pods.mark(name, generation, revision),
                    _pods.BASE: _pods.digest(_pods.template_of(before)),
                    _pods.SHAPE: _pods.shape_of(before),
                    _pods.EPOCH: str(self.context.known().epoch),
                },
            },
            "spec": {
                "replicas": replicas,
                "minReadySeconds": deployment["spec"].get("minReadySeconds", 0),
                "selector": {"matchLabels": {**_pods.selector(deployment), **hashed}},
                "template": template,
            },
        }

    def _free_name(self, groups: Sequence[Group], generation: int) -> tuple[str, Mapping[str, str]]:
        """Return a name for the ReplicaSet of a generation, and the label of its pods alone.

        A journal before the present one may have had the same generations.
        """
        names = {group.name for group in groups}
        first = f"g{generation}"
        more = (f"{first}-{number}" for number in range(2, len(names) + 3))
        free = next(each for each in (first, *more) if f"{self._name}-{each}" not in names)
        return f"{self._name}-{free}", {_pods.HASH: free}

    def _is_ordered(self, groups: Sequence[Group], deployment: Object, revision: str) -> bool:
        """Return whether the owner has paused the Deployment with the template of a revision."""
        paused = any(group.kept for group in groups)
        return paused and self._reading().imaged(deployment["spec"]["template"]) == revision

    def _refuse_another_order(self, deployment: Object, revision: str) -> None:
        """Refuse another revision than that which the owner has paused the Deployment with."""
        ordered = self._reading().imaged(deployment["spec"]["template"])
        paused = deployment["spec"].get("paused")
        if not paused or ordered == revision or _pods.pending(deployment, self._groups(deployment)):
            return
        raise InputError(
            f"rollout_revision: {revision} asked for, and {self._where} is paused by somebody else"
            f" with a pod template of {ordered}; give that template the image of {revision}, which"
            f" is rolled out then, or resume it first: kubectl rollout resume"
            f" deployment/{self._name}",
            "PR-243",
        )

    def _earlier(
        self, groups: Sequence[Group], revision: str, generation: int
    ) -> dict[str, t.Any] | None:
        """Return the pod template that a revision had which ran before, by the Deployment's
        history; None where the revision is new, or that is too long ago.
        """
        kept = self.context.settings_of(generation)
        if not (kept and kept.again):
            return None
        reading = self._reading()
        owned = [group for group in groups if group.owned]
        mine = [group for group in owned if reading.revision(group) == revision]
        if not mine:
            self.context.transport.print_line(
                f"{self._where}: the pod template of {revision} is not in its history any more"
                " (revisionHistoryLimit); its pods get the present one with the image of"
                f" {revision}"
            )
            return None
        return _pods.template_of(max(mine, key=lambda group: group.sequence).obj)

    # -- the end -----------------------------------------------------------------------------------

    def _complete_pending(self, new: str) -> None:
        """Complete the hand-back that a run was killed in; raises PlatformError while it lasts."""
        if left := self._hand_back(new):
            raise PlatformError(
                f"{self._where}: an earlier hand-back is not complete: {left}", "PR-246"
            )

    def _hand_back(self, new: str | None) -> str:
        """Go on with the hand-back until it is done or has to wait; return what it waits for."""
        before: hand_back.Action | None = None
        for _step in range(STEPS):
            deployment, groups = self._look(fresh=True)
            try:
                action = hand_back.next_step(
                    _pods.state_of(deployment, groups), [group.state() for group in groups], new
                )
            except hand_back.Blocked as exc:
                return str(exc)
            if action.step is HandBackStep.DONE:
                return ""
            if action.step is HandBackStep.WAIT or action == before:
                return f"{action.step.value}" + (f" ({action.name})" if action.name else "")
            self._take(action, deployment, {group.name: group for group in groups}, new or "")
            before = action
        return f"{action.step.value} ({action.name}), which something undoes"

    def _tidy(self, stable: str) -> None:
        """Remove the notes that only the rollout needed, and give a number back that the owner set
        during the hand-back. `stable`: the ReplicaSet that the Deployment consists of.
        """
        deployment, groups = self._look(fresh=True)
        if notes := _pods.passing(deployment):
            number = _pods.wanted(deployment, stable)
            spec = None if number is None else {"replicas": number}
            body = versioned(deployment, {"annotations": notes}, spec)
            self._patch("deployments", self._name, body)
        self._label_roles(_roles(groups))
        for group in groups:
            self._set_costs(group, ())
            if notes := _pods.passing(group.obj):
                body = versioned(group.obj, {"annotations": notes})
                self._patch("replicasets", group.name, body)

    def _take(
        self,
        action: hand_back.Action,
        deployment: Object,
        groups: Mapping[str, Group],
        new: str,
    ) -> None:
        """Do one step of the hand-back: one change of one object, if it still is as seen."""
        step, group = action.step, groups.get(action.name)
        if step is HandBackStep.PAUSE:
            notes = {_pods.NUMBER: str(deployment["spec"].get("replicas", 1))}
            notes |= {**_pod.notes_of(deployment), _pods.PENDING: new}
            if deployment["spec"].get("paused"):
                notes[_pods.PAUSED] = "true"  # and so it is given back
            body = versioned(deployment, {"annotations": notes}, {"paused": True})
            self._patch("deployments", self._name, body)
        elif step is HandBackStep.RESUME:
            paused = True if _pods.PAUSED in _pod.notes_of(deployment) else None
            gone = dict.fromkeys((_pods.PENDING, _pods.PAUSED))
            body = versioned(deployment, {"annotations": gone}, {"paused": paused})
            self._patch("deployments", self._name, body)
        elif group is None:
            raise PlatformError(f"{action.name} is gone", "PR-246")
        elif step is HandBackStep.RETARGET:
            revision = self._reading().revision(group)
            cause = f"progressive.rollout: {self.context.service} {revision}"
            self._patch("deployments", self._name, retarget(deployment, group, cause))
        elif step is HandBackStep.DELETE:
            self._delete(group)
        else:
            body = versioned(group.obj, METADATA[step](group))
            self._patch("replicasets", group.name, body)

    def _delete(self, group: Group) -> None:
        metadata = group.obj["metadata"]
        same = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
        body = {"preconditions": same, "propagationPolicy": "Background"}
        self._cluster.delete(self._path("replicasets", group.name), body)


class InClusters(ClustersDriver):
    """The pods of a Deployment in each of several clusters."""

    def _in_one(self, options: Mapping[str, t.Any]) -> Driver:
        if not str(options["workload"]).startswith("deployment/"):
            raise InputError(
                f"rollout_platform.workload: {options['workload']} in several clusters; only"
                " Deployments can be rolled out together",
                "PR-107",
            )
        return Driver(options, self.context)


def _roles(groups: Iterable[Group]) -> list[tuple[Object, int]]:
    """Return the pods that get a role, each with its generation. Those owned are stable."""
    return [
        (pod, 0 if group.owned else group.generation)
        for group in groups
        for pod in group.living.values()
    ]


def _of_generation(groups: Sequence[Group], generation: int, revision: str) -> list[Group]:
    """Return the ReplicaSets of a generation, the one that the Deployment keeps pods in first.

    A journal before the present one may have given the generation to another revision.
    """
    mine = [
        group
        for group in groups
        if group.generation == generation and (group.marked or (0, revision))[1] == revision
    ]
    return sorted(mine, key=lambda group: not group.current)
