# SPDX-License-Identifier: GPL-3.0-or-later
"""The changes of objects by which a Deployment takes over a ReplicaSet. Pure.

Their order is in `engine/hand_back.py`.
"""

from __future__ import annotations

import json
import typing as t

from ..engine.hand_back import HandBackStep
from . import _pod, _pods
from ._pod import Object
from ._pods import Group


def _released(group: Group) -> dict[str, t.Any]:
    """Return how a ReplicaSet is taken from the Deployment, and found without its labels."""
    gone = dict.fromkeys(_pods.selector(group.deployment))
    epoch = _pod.notes_of(group.deployment).get(_pods.EPOCH)
    return {
        "labels": {**gone, _pods.SERVICE: _pods.service_of(group.deployment)},
        "annotations": {_pods.RELEASED: "true", _pods.EPOCH: epoch},
        "ownerReferences": None,
    }


def _given_back(group: Group) -> dict[str, t.Any]:
    """Return how a ReplicaSet becomes one of the Deployment's history again."""
    return {**_adoptable(group), "annotations": {_pods.RELEASED: None}}


def _adoptable(group: Group) -> dict[str, t.Any]:
    """Return how the Deployment finds a ReplicaSet: by the labels of its pods."""
    return {"labels": dict(group.obj["spec"]["template"]["metadata"]["labels"])}


CAUSE = "kubernetes.io/change-cause"  # annotation of a Deployment, and of its history
METADATA = {
    HandBackStep.RELEASE: _released,
    HandBackStep.GIVE_BACK: _given_back,
    HandBackStep.ADOPT: _adoptable,
}


def retarget(deployment: Object, group: Group, cause: str) -> list[Object]:
    """Return how the Deployment gets the template and the number of a ReplicaSet.

    `cause` is for `kubectl rollout history`, of a template that the owner has not written.
    """
    notes = {**_pod.notes_of(deployment), _pods.STOPPED: json.dumps(group.stopped)}
    notes[_pods.NUMBER] = str(group.replicas)
    if (number := _pods.asked(deployment)) is not None:
        notes[_pods.WANTED] = f"{group.name}={number}"
    if _pods.template_of(deployment) != _pods.template_of(group.obj):
        notes[CAUSE] = cause
    template, version = _pods.template_of(group.obj), deployment["metadata"]["resourceVersion"]
    return [
        {"op": "test", "path": "/metadata/resourceVersion", "value": version},
        {"op": "add", "path": "/metadata/annotations", "value": notes},
        {"op": "replace", "path": "/spec/template", "value": template},
        {"op": "add", "path": "/spec/replicas", "value": group.replicas},
    ]
