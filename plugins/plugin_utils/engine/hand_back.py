# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
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
class Deployment:
    """The user's Deployment."""

    replicas: int  # it is to have
    template: str
    paused: bool = False
    observed: bool = True  # its controller has seen what it is to be
    pending: str = ""  # the ReplicaSet that it was paused for, by a hand-back


class Step(Enum):
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

    step: Step
    name: str = ""


class Blocked(ValueError):
    """The Deployment cannot take the ReplicaSet over as it is. The text says why."""


def next_step(deployment: Deployment, sets: Collection[ReplicaSet], new: str | None) -> Action:
    """Return the next step until the Deployment consists of the ReplicaSet `new`.

    None: no ReplicaSet of the rollouts is to stay. Raises Blocked.
    """
    if new is None:
        return _delete_rest(sets, "") or Action(Step.DONE)
    others = [one for one in sets if one.name != new]
    found = next((one for one in sets if one.name == new), None)
    if found is None:
        raise Blocked(f"ReplicaSet {new} is gone")
    if busy := [one for one in others if one.replicas]:
        raise Blocked(f"ReplicaSet {busy[0].name} is still to have {busy[0].replicas} pods")
    if not found.owned:
        return _take_over(deployment, found, others)
    if found.template != deployment.template:
        raise Blocked("somebody else has changed the Deployment's pod template")
    return _complete(deployment, found, others)


def _take_over(deployment: Deployment, new: ReplicaSet, others: Collection[ReplicaSet]) -> Action:
    """Return the next step until the Deployment owns the new ReplicaSet."""
    if deployment.template not in (new.template, new.base or deployment.template):
        raise Blocked("somebody else has changed the Deployment's pod template")
    if deployment.paused and deployment.pending != new.name:
        raise Blocked("somebody else has paused the Deployment; resume it (kubectl rollout resume)")
    aimed = (deployment.template, deployment.replicas) == (new.template, new.replicas)
    mine = sorted(one.name for one in others if one.owned or one.labelled)
    if not deployment.paused:
        return Action(Step.PAUSE)
    if not deployment.observed:
        return Action(Step.WAIT)
    if new.labelled:
        return Action(Step.WAIT)
    if mine:
        return Action(Step.RELEASE, mine[0])
    return Action(Step.ADOPT, new.name) if aimed else Action(Step.RETARGET, new.name)


def _complete(deployment: Deployment, new: ReplicaSet, others: Collection[ReplicaSet]) -> Action:
    """Return the next step from where the Deployment owns the new ReplicaSet.

    One of its history with the same template is not given back: the Deployment would prefer it to
    the new one, as it is older. A rollback by `kubectl` leaves no second one, either.
    """
    if action := _delete_rest(others, new.template):
        return action
    if back := sorted(one.name for one in others if one.released and not one.labelled):
        return Action(Step.GIVE_BACK, back[0])
    adopted = all(one.owned for one in others)
    if not adopted or not deployment.observed or deployment.replicas != new.replicas:
        return Action(Step.WAIT)
    ours = deployment.paused and deployment.pending == new.name
    return Action(Step.RESUME if ours else Step.DONE)


def _delete_rest(sets: Collection[ReplicaSet], template: str) -> Action | None:
    """Return the deletion of a ReplicaSet of another rollout, or of a second one of a template."""
    rest = [
        one
        for one in sets
        if not (one.owned or one.labelled) and (not one.released or one.template == template)
    ]
    if busy := [one for one in rest if one.replicas]:
        raise Blocked(f"ReplicaSet {busy[0].name} is still to have {busy[0].replicas} pods")
    return Action(Step.DELETE, min(one.name for one in rest)) if rest else None
