# SPDX-License-Identifier: GPL-3.0-or-later
"""The ReplicaSets of a Deployment as a rollout sees them: groups of pods, and marks. Pure."""

from __future__ import annotations

import hashlib
import json
import typing as t
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ..base.text import clean
from ..engine import hand_back
from ._pod import Object, condition, ended, gone, labels_of, notes_of, owned_by

DOMAIN = "rollout.progressive"
SERVICE = f"{DOMAIN}/service"  # label of our ReplicaSets, and of those taken from the Deployment
MARK = f"{DOMAIN}/rollout"  # annotation of a ReplicaSet: what a rollout started in it
BASE = f"{DOMAIN}/base"  # of a ReplicaSet of ours: a digest of the Deployment's template before it
SHAPE = f"{DOMAIN}/base-shape"  # the same, without the annotations of that template
RELEASED = f"{DOMAIN}/released"  # of a ReplicaSet that was taken from the Deployment
ROLE = f"{DOMAIN}/role"  # label of pods, for dashboards
STABLE, CANARY = "stable", "canary"  # its values
STOPPED = f"{DOMAIN}/stopped"  # the pods that were to be stopped by lowering the number
EPOCH = f"{DOMAIN}/epoch"
PENDING = f"{DOMAIN}/hand-back"  # of the Deployment: the ReplicaSet that it is to take over
SEQUENCE = "deployment.kubernetes.io/revision"  # of a ReplicaSet, by the Deployment's controller
HASH = "pod-template-hash"
NUMBER = f"{DOMAIN}/replicas"  # of the Deployment: its number as a rollout has set it last
WANTED = f"{DOMAIN}/wanted-replicas"  # of the Deployment: its owner's number, if it was set during
# a hand-back, after the name of the ReplicaSet
PAUSED = f"{DOMAIN}/paused"  # of the Deployment: its owner had paused it before a hand-back
PASSING = (
    PAUSED,
    STOPPED,
    BASE,
    SHAPE,
    NUMBER,
    WANTED,
    PENDING,
)  # what is of no use once a rollout has ended
# the generation of the pods that no rollout has started; an earlier version gave it to the first
# rollout, too
ADOPTED = 1


def template_of(obj: Object) -> dict[str, t.Any]:
    """Return the pod template of a Deployment or ReplicaSet, without what tells sets apart."""
    template: dict[str, t.Any] = json.loads(json.dumps(obj["spec"]["template"]))
    metadata = template.setdefault("metadata", {})
    metadata.pop("creationTimestamp", None)
    labels = metadata.get("labels") or {}
    labels.pop(HASH, None)
    metadata["labels"] = labels
    return template


def digest(template: Object) -> str:
    """Return the same text for the same template."""
    return hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:16]


def shape_of(obj: Object) -> str:
    """Return a digest of the pod template of a Deployment or ReplicaSet without its annotations.

    `kubectl rollout restart` and tools that follow secrets change nothing else.
    """
    template = template_of(obj)
    template["metadata"].pop("annotations", None)
    return digest(template)


def service_of(deployment: Object) -> str:
    """Return the label of the ReplicaSets of a Deployment; names may be longer than labels."""
    name = str(deployment["metadata"]["name"])
    if len(name) <= 63:
        return name
    return f"{name[:46]}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def mark(name: str, generation: int, revision: str) -> str:
    """Return the annotation of a ReplicaSet of this name, for `Group.marked`."""
    return json.dumps({"set": name, "generation": generation, "revision": revision})


@dataclass(frozen=True)
class Group:
    """A ReplicaSet of the service, and its pods."""

    obj: Object
    deployment: Object
    pods: Sequence[Object] = ()
    adopted: int = ADOPTED  # the generation of the Deployment's own pods that have no mark
    # generation and revision of the ReplicaSet in whose place it came by a change of the
    # Deployment; empty: the revision is another one
    inherited: tuple[int, str] | None = None
    # the ReplicaSet that the Deployment keeps pods in, where its owner has paused it with another
    # template; empty: that of its template
    kept: str = ""

    @cached_property
    def name(self) -> str:
        """The name of the ReplicaSet."""
        return str(self.obj["metadata"]["name"])

    @cached_property
    def template(self) -> str:
        """A digest of its pod template."""
        return digest(template_of(self.obj))

    @cached_property
    def shape(self) -> str:
        """A digest of its pod template without annotations."""
        return shape_of(self.obj)

    @property
    def owned(self) -> bool:
        """Whether it belongs to the Deployment."""
        return owned_by(self.obj, self.deployment)

    @cached_property
    def current(self) -> bool:
        """Whether it is the one that the Deployment keeps pods in."""
        if self.kept:
            return self.owned and self.name == self.kept
        return self.owned and self.template == digest(template_of(self.deployment))

    @property
    def released(self) -> bool:
        """Whether it was taken from the Deployment, to be given back."""
        return RELEASED in notes_of(self.obj) and not self.labelled

    @property
    def edited(self) -> bool:
        """Whether somebody else has changed the Deployment's template since this one was made."""
        if self.owned:
            return not self.current
        if shape := notes_of(self.obj).get(SHAPE):
            return shape_of(self.deployment) not in (self.shape, shape)
        return digest(template_of(self.deployment)) not in (self.template, self.base)

    @property
    def lags(self) -> bool:
        """Whether only annotations of the Deployment's template were changed since this one was
        made, or since the Deployment has its template.
        """
        present, shape = digest(template_of(self.deployment)), shape_of(self.deployment)
        if present == self.template:
            return False
        if notes_of(self.deployment).get(PENDING) == self.name and shape == self.shape:
            return True
        based = notes_of(self.obj).get(SHAPE) == shape
        return not self.owned and based and present != self.base

    @property
    def base(self) -> str:
        """The Deployment's template when a rollout made this one, as a digest; its own if none."""
        return notes_of(self.obj).get(BASE, self.template)

    @property
    def labelled(self) -> bool:
        """Whether the Deployment's selector finds it."""
        mine = labels_of(self.obj)
        return all(mine.get(key) == value for key, value in selector(self.deployment).items())

    @cached_property
    def marked(self) -> tuple[int, str] | None:
        """The generation and the revision that a rollout started in it.

        Annotations are copied from object to object by `kubectl rollout undo` and the Deployment's
        controller: only the one with the name of this ReplicaSet counts.
        """
        try:
            mark = json.loads(notes_of(self.obj).get(MARK, "null"))
            if mark and mark["set"] == self.name:
                return int(mark["generation"]), clean(mark["revision"])
        except (ValueError, KeyError, TypeError):
            pass
        return None

    @property
    def generation(self) -> int:
        """The generation of its pods."""
        known = self.marked or self.inherited
        return known[0] if known else self.adopted if self.current else 0

    @property
    def sequence(self) -> tuple[int, int]:
        """How recent it is among the ReplicaSets of the Deployment."""
        number = notes_of(self.obj).get(SEQUENCE, "")
        return int(number) if number.isdecimal() else 0, self.generation

    @property
    def scaled(self) -> Object:
        """The object whose number of replicas is its own."""
        return self.deployment if self.current else self.obj

    @property
    def replicas(self) -> int:
        """How many pods it is to have."""
        return int(self.scaled["spec"].get("replicas", 1))

    @property
    def stopped(self) -> list[str]:
        """The ids of the pods that were to be stopped by lowering the number, in this order."""
        try:
            return [str(id) for id in json.loads(notes_of(self.scaled).get(STOPPED, "[]"))]
        except (ValueError, TypeError):
            return []

    @cached_property
    def living(self) -> Mapping[str, Object]:
        """By name, the pods that count for its controller, and that it has not deleted."""
        return {
            str(pod["metadata"]["name"]): pod
            for pod in self.pods
            if not pod["metadata"].get("deletionTimestamp") and not ended(pod)
        }

    @cached_property
    def ids(self) -> Mapping[str, str]:
        """By name, the id of each living pod.

        The controller chooses which pod it deletes. One that was to be stopped and was kept in the
        place of another is another instance from then on.
        """
        stopped, leaving = self.stopped, self.leaving
        ids_by_name = {}
        for name in self.living:
            number, this = 1, name
            while this in stopped and this not in leaving:
                number += 1
                this = f"{name}/{number}"
            ids_by_name[name] = this
        return ids_by_name

    @cached_property
    def leaving(self) -> Collection[str]:
        """The ids of the living pods that the controller has yet to delete, or others for them."""
        surplus = len(self.living) - self.replicas
        mine = [id for id in self.stopped if id.partition("/")[0] in self.living]
        return mine[-surplus:] if surplus > 0 else []

    def goes_first(self, ids: Iterable[str]) -> bool:
        """Return whether its controller deletes these before others, and has seen that it is to.

        Its count of ready pods tells what it has seen.
        """
        ready = {
            n for n, pod in self.living.items() if condition(pod, "Ready").get("status") == "True"
        }
        seen = int((self.obj.get("status") or {}).get("readyReplicas", 0)) <= len(ready)
        return seen and not ready & {id.partition("/")[0] for id in ids}

    @property
    def missing(self) -> int:
        """How many pods are ordered, and not seen yet."""
        return max(0, self.replicas - len(self.living))

    @property
    def ordered(self) -> list[str]:
        """The ids of the pods that are ordered, and not seen yet.

        They are other ones after each change of the number: none that was to be stopped comes back.
        """
        return [f"{self.name}/ordered-{self.change}-{number + 1}" for number in range(self.missing)]

    @property
    def change(self) -> int:
        """A number that grows with each change of the number of replicas."""
        return int(self.scaled["metadata"].get("generation", 0))

    @property
    def refusal(self) -> str:
        """Why its controller cannot make pods, as the server says it: a quota, an admission."""
        conditions = (self.obj.get("status") or {}).get("conditions") or ()
        failures = [c for c in conditions if c.get("type") == "ReplicaFailure"]
        return clean(failures[0].get("message", "")) if failures and self.missing else ""

    def state(self) -> hand_back.ReplicaSet:
        """Return what matters of it for the hand-back."""
        return hand_back.ReplicaSet(
            self.name,
            int(self.obj["spec"].get("replicas", 1)),
            self.template,
            self.owned,
            self.labelled,
            self.released,
            "" if self.owned else self.base,
        )


def state_of(deployment: Object, groups: Iterable[Group] = ()) -> hand_back.UserDeployment:
    """Return what matters of a Deployment with these ReplicaSets for the hand-back."""
    seen = (deployment.get("status") or {}).get("observedGeneration", 0)
    return hand_back.UserDeployment(
        int(deployment["spec"].get("replicas", 1)),
        digest(template_of(deployment)),
        bool(deployment["spec"].get("paused")),
        seen >= deployment["metadata"]["generation"],
        notes_of(deployment).get(PENDING, ""),
        next((group.kept for group in groups), ""),
    )


def asked(deployment: Object) -> int | None:
    """Return the number of replicas that a Deployment's owner asks for; None: a rollout set it.

    Earlier versions have set it without a note.
    """
    notes, number = notes_of(deployment), int(deployment["spec"].get("replicas", 1))
    if NUMBER not in notes and STOPPED in notes:
        return None
    return None if notes.get(NUMBER) == str(number) else number


def wanted(deployment: Object, name: str) -> int | None:
    """Return the number that the owner set while a Deployment took over this ReplicaSet."""
    mine, _equals, number = notes_of(deployment).get(WANTED, "").rpartition("=")
    return int(number) if mine == name and number.isdecimal() else None


def passing(obj: Object) -> dict[str, None]:
    """Return the annotations of an object to remove once a rollout has ended."""
    return {key: None for key in PASSING if key in notes_of(obj)}


def pending(deployment: Object, groups: Iterable[Group]) -> str:
    """Return the ReplicaSet that the Deployment is being handed back with; empty if it is not.

    `kubectl rollout undo` brings old annotations back: only of a paused Deployment it counts, all
    of whose pods are in that ReplicaSet.
    """
    name = notes_of(deployment).get(PENDING, "")
    having = [group.name for group in groups if group.obj["spec"].get("replicas", 1)]
    return name if deployment["spec"].get("paused") and having == [name] else ""


def selector(deployment: Object) -> Mapping[str, str]:
    """Return the labels that the Deployment selects by."""
    return deployment["spec"]["selector"].get("matchLabels") or {}


def groups(
    deployment: Object,
    sets: Iterable[Object],
    pods: Iterable[Object],
    *,
    adopts: bool = True,
) -> list[Group]:
    """Return the ReplicaSets of the service, each with its pods, both in the order of names.

    `adopts`: whether `ADOPTED` is the generation of pods without a mark, and not of a rollout.
    """
    mine = service_of(deployment)
    by_owner: dict[str, list[Object]] = {}
    for pod in sorted(pods, key=lambda pod: str(pod["metadata"]["name"])):
        if gone(pod):
            continue
        for owner in pod["metadata"].get("ownerReferences") or ():
            if owner.get("controller"):
                by_owner.setdefault(str(owner["uid"]), []).append(pod)
    groups_found = [
        Group(replica_set, deployment, by_owner.get(str(replica_set["metadata"]["uid"]), ()))
        for replica_set in sets
        if labels_of(replica_set).get(SERVICE) == mine or owned_by(replica_set, deployment)
    ]
    if not adopts or any(group.marked and group.marked[0] == ADOPTED for group in groups_found):
        groups_found = [replace(group, adopted=0) for group in groups_found]
    kept = _kept(deployment, groups_found)
    groups_found = [replace(group, kept=kept) for group in groups_found]
    groups_found = [
        replace(group, inherited=_inherited(group, groups_found)) for group in groups_found
    ]
    return sorted(groups_found, key=lambda group: group.name)


def _kept(deployment: Object, groups: Sequence[Group]) -> str:
    """Return the ReplicaSet that a Deployment keeps pods in although its owner has paused it with
    another template: the only one with pods, or what the new one is to replace; "" if it is not so.
    """
    if not deployment["spec"].get("paused") or PENDING in notes_of(deployment):
        return ""
    owned = [group for group in groups if group.owned]
    bases = {group.base for group in groups if not group.owned and group.marked}
    having = [group for group in owned if group.obj["spec"].get("replicas", 1)]
    mine = having or [group for group in owned if group.template in bases]
    other = len(mine) == 1 and mine[0].template != digest(template_of(deployment))
    return mine[0].name if other else ""


def _inherited(group: Group, groups: Sequence[Group]) -> tuple[int, str] | None:
    """Return the generation and the revision that an unmarked ReplicaSet of the Deployment has from
    another one, in whose place it came.

    The same template but for annotations is the same revision. Another template, in the middle of a
    rollout, is what the Deployment has instead of what was stable.
    """
    if group.marked or not group.owned:
        return None
    owned = [other for other in groups if other.owned and other.name != group.name]
    if marks := [other.marked for other in owned if other.marked and other.shape == group.shape]:
        return max(marks)
    if not group.current:
        twins = [other for other in owned if other.current and other.shape == group.shape]
        return (group.adopted, "") if twins else None
    bases = {group.base for group in groups if not group.owned and group.marked}
    marks = [group.marked for group in owned if group.marked and group.template in bases]
    return (max(marks)[0], "") if marks else None
