# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of the platform `kubernetes`."""

from __future__ import annotations

import re
import typing as t

from ..base.errors import InputError
from ..inputs import values
from ..inputs.options import NAME, PORT, Field, Kind, Options
from ..inputs.placeholders import Template
from ..remote.kubernetes import CLUSTER, CLUSTERS

KINDS = ("deployment", "statefulset", "daemonset")
NAME_OF = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
LONGEST = 230  # characters of a workload's name: those of its ReplicaSets have a few more


def _workload(value: t.Any, variable: str) -> str:
    kind, _slash, name = str(value).partition("/")
    if kind not in KINDS or not NAME_OF.fullmatch(name) or len(name) > LONGEST:
        raise InputError(
            f"{variable}: {value!r} is not a workload; write deployment/NAME, statefulset/NAME or"
            " daemonset/NAME",
            "PR-118",
        )
    return str(value)


def _image(value: t.Any, variable: str) -> str:
    template = Template(str(value), variable, ("revision",))
    if not template.names or re.search(r"\s", str(value)):
        raise InputError(
            f"{variable}: {value!r} is the same for all revisions; write"
            " registry.example.com/shop:{revision}",
            "PR-118",
        )
    return str(value)


def _changes(value: t.Any, variable: str) -> dict[str, t.Any]:
    changes = values.mapping(value, variable, "{spec: {containers: [{name: shop, env: []}]}}")
    if other := sorted(str(name) for name in changes if name not in ("metadata", "spec")):
        raise InputError(
            f"{variable}: {', '.join(other)}: not a part of a pod template; write metadata and"
            " spec",
            "PR-118",
        )
    return changes


OPTIONS = Options(
    Field(
        "workload",
        Kind("str", _workload),
        "The workload, V(deployment/shop), V(statefulset/db) or V(daemonset/agent). It must exist,"
        " and stays as it is: only its pod template changes, and for a Deployment the number of"
        " replicas. A StatefulSet or DaemonSet needs the update strategy V(OnDelete); its pods are"
        " replaced in place, without a surge.",
        required=True,
    ),
    Field(
        "image",
        Kind("str", _image),
        "The image of a revision, V(registry.example.com/shop:{revision}). Everything else in a pod"
        " is as in the workload, or as C(template) says.",
        required=True,
    ),
    Field(
        "template",
        Kind("dict", _changes),
        "What else changes in the pod template, as a strategic merge patch of it: C(metadata) and"
        " C(spec), with containers, variables and volumes merged by their names. V({revision}) is"
        " filled in. The Deployment keeps the changes, and a rollback to an earlier revision takes"
        " its pod template from the Deployment's history.",
        default={},
    ),
    Field("container", NAME, "The container with that image. Required if a pod has several."),
    Field(
        "port",
        PORT,
        "The port on which checks and load balancers reach a pod, the container's first one if not"
        " given.",
    ),
    *CLUSTER,
    CLUSTERS,
)
