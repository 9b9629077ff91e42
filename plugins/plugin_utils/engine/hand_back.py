# SPDX-License-Identifier: GPL-3.0-or-later
"""How a Deployment of Kubernetes takes over a ReplicaSet that was started beside it. Pure.

A rollout starts new instances in a ReplicaSet of its own, and scales the user's Deployment down. At
the end the Deployment adopts that ReplicaSet, without one pod started or stopped. `next_step`
returns the next change of one object; asked again and again, also by another run, it leads to the
end from wherever the run before was killed.

The order matters, because the Deployment's controller acts on what it owns also while it is paused:
it scales the only ReplicaSet with pods, or else the latest, to the Deployment's number
(https://github.com/kubernetes/kubernetes/blob/v1.20.2/pkg/controller/deployment/sync.go, `scale`).
So it must own nothing while the number changes, and has to have seen that number before it adopts.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True)
class ReplicaSet:
    """A ReplicaSet of the service."""

    name: str
    replicas: int  # it is to have
    template: str  # the same for the same pod template, whatever its hash label
    owned: bool = False  # by the Deployment
    labelled: bool = False  # so that the Deployment adopts it
    released: bool = False  # taken from the Deployment, to be given back
    base: str = ""  # the Deployment's template when a rollout made it; empty if that is not known


@dataclass(frozen=True)
class UserDeployment:
    """The user's Deployment."""

    replicas: int  # it is to have
    template: str
    paused: bool = False
    observed: bool = True  # its controller has seen what it is to be
    pending: str = ""  # the ReplicaSet that it was paused for, by a hand-back
    # the ReplicaSet that it keeps pods in although its template is another one: its owner has
    # paused it, and the template is what is to be rolled out; empty: that of its template
    keeps: str = ""


class HandBackStep(Enum):
    """A change of one object, or what to do instead."""

    PAUSE = "pause the Deployment"
    RELEASE = "take a ReplicaSet from the Deployment"
    RETARGET = "give the Deployment the new template and number"
    ADOPT = "let the Deployment adopt the new ReplicaSet"
    GIVE_BACK = "give the Deployment a ReplicaSet of its history back"
    DELETE = "delete a ReplicaSet without pods"
    RESUME = "resume the Deployment"
    WAIT = "wait for the controller of the Deployment"
    DONE = "nothing is left to do"


@dataclass(frozen=True)
class Action:
    """The next step, and the ReplicaSet that it is about."""

    step: HandBackStep
    name: str = ""


class Blocked(ValueError):
    """The Deployment cannot take the ReplicaSet over as it is. The text says why."""


def next_step(deployment: UserDeployment, sets: Collection[ReplicaSet], new: str | None) -> Action:
    """Return the next step until the Deployment consists of the ReplicaSet `new`.

    None: no ReplicaSet of the rollouts is to stay. Raises Blocked.
    """
    if new is None:
        return _delete_rest(sets, "") or Action(HandBackStep.DONE)
    others = [replica_set for replica_set in sets if replica_set.name != new]
    new_set = next((replica_set for replica_set in sets if replica_set.name == new), None)
    if new_set is None:
        raise Blocked(f"ReplicaSet {new} is gone")
    if busy := [replica_set for replica_set in others if replica_set.replicas]:
        raise Blocked(f"ReplicaSet {busy[0].name} is still to have {busy[0].replicas} pods")
    if not new_set.owned:
        return _take_over(deployment, new_set, others)
    if new_set.template != deployment.template and new != deployment.keeps:
        raise Blocked("somebody else has changed the Deployment's pod template")
    return _complete(deployment, new_set, others)


def _take_over(
    deployment: UserDeployment, new: ReplicaSet, others: Collection[ReplicaSet]
) -> Action:
    """Return the next step until the Deployment owns the new ReplicaSet."""
    if deployment.template not in (new.template, new.base or deployment.template):
        raise Blocked("somebody else has changed the Deployment's pod template")
    paused = deployment.paused and deployment.pending == new.name
    if deployment.paused and not paused and deployment.template != new.template:
        raise Blocked("somebody else has paused the Deployment; resume it (kubectl rollout resume)")
    aimed = (deployment.template, deployment.replicas) == (new.template, new.replicas)
    mine = sorted(
        replica_set.name for replica_set in others if replica_set.owned or replica_set.labelled
    )
    if not paused:
        return Action(HandBackStep.PAUSE)
    if not deployment.observed:
        return Action(HandBackStep.WAIT)
    if new.labelled:
        return Action(HandBackStep.WAIT)
    if mine:
        return Action(HandBackStep.RELEASE, mine[0])
    return (
        Action(HandBackStep.ADOPT, new.name) if aimed else Action(HandBackStep.RETARGET, new.name)
    )


def _complete(
    deployment: UserDeployment, new: ReplicaSet, others: Collection[ReplicaSet]
) -> Action:
    """Return the next step from where the Deployment owns the new ReplicaSet.

    One of its history with the same template is not given back: the Deployment would prefer it to
    the new one, as it is older. A rollback by `kubectl` leaves no second one, either.
    """
    if action := _delete_rest(others, new.template):
        return action
    if back := sorted(
        replica_set.name
        for replica_set in others
        if replica_set.released and not replica_set.labelled
    ):
        return Action(HandBackStep.GIVE_BACK, back[0])
    adopted = all(replica_set.owned for replica_set in others)
    if not adopted or not deployment.observed or deployment.replicas != new.replicas:
        return Action(HandBackStep.WAIT)
    ours = deployment.paused and deployment.pending == new.name
    return Action(HandBackStep.RESUME if ours else HandBackStep.DONE)


def _delete_rest(sets: Collection[ReplicaSet], template: str) -> Action | None:
    """Return the deletion of a ReplicaSet of another rollout, or of a second one of a template."""
    rest = [
        replica_set
        for replica_set in sets
        if not (replica_set.owned or replica_set.labelled)
        and (not replica_set.released or replica_set.template == template)
    ]
    if busy := [replica_set for replica_set in rest if replica_set.replicas]:
        raise Blocked(f"ReplicaSet {busy[0].name} is still to have {busy[0].replicas} pods")
    return (
        Action(HandBackStep.DELETE, min(replica_set.name for replica_set in rest)) if rest else None
    )
