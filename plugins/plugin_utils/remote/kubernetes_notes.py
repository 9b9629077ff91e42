# SPDX-License-Identifier: GPL-3.0-or-later
"""The labels and annotations that rollouts give objects of Kubernetes, to be removed at the end."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Iterable, Mapping, Sequence

from .kubernetes import ApiError, Cluster, Object

DOMAIN = "rollout.progressive/"
CAUSE, OUR_CAUSE = "kubernetes.io/change-cause", "progressive.rollout: "


def leave(cluster: Cluster, objects: Iterable[tuple[str, Object]], dry: bool) -> Sequence[str]:
    """Remove what rollouts have noted at these objects, each given with its path; return it.

    An object that is gone meanwhile has nothing left.
    """
    removed: list[str] = []
    for path, obj in objects:
        if not (patch := _patch(obj["metadata"])):
            continue
        if not dry:
            try:
                cluster.patch(path, {"metadata": patch})
            except ApiError as exc:
                if exc.status != 404:
                    raise
        where = "/".join(path.split("/")[-2:])
        removed += [f"{where}: {kind[:-1]} {key}" for kind, keys in patch.items() for key in keys]
    return removed


def _patch(metadata: Mapping[str, t.Any]) -> dict[str, dict[str, None]]:
    """Return the labels and annotations that are ours, each without a value."""
    ours: Mapping[str, Callable[[str, str], bool]] = {
        "labels": lambda key, _value: key.startswith(DOMAIN),
        "annotations": lambda key, value: (
            key.startswith(DOMAIN) or (key == CAUSE and value.startswith(OUR_CAUSE))
        ),
    }
    patch = {
        kind: {
            key: None for key, value in (metadata.get(kind) or {}).items() if is_ours(key, value)
        }
        for kind, is_ours in ours.items()
    }
    return {kind: keys for kind, keys in patch.items() if keys}
