# SPDX-License-Identifier: GPL-3.0-or-later
"""The ConfigMaps and Secrets that a pod template refers to, and whether they have changed.

Pods read them when they start, so they are a part of what a revision runs with. Of Secrets only the
metadata is asked for: what they contain does not leave the server, and a digest of it would help to
verify a guess.
"""

from __future__ import annotations

import hashlib
import json
import typing as t
from collections.abc import Iterable, Mapping

from ..remote.kubernetes import ApiError, Cluster
from ._pod import Object

CONFIG_MAP, SECRET = "ConfigMap", "Secret"
ABSENT = "absent"  # instead of a digest: there is no such object
MOST = 100  # objects that are looked at
PLURALS = {CONFIG_MAP: "configmaps", SECRET: "secrets"}
# by the field that refers to an object, its kind
SOURCES = {
    **dict.fromkeys(("configMapKeyRef", "configMapRef", "configMap"), CONFIG_MAP),
    **dict.fromkeys(("secretKeyRef", "secretRef", "secret"), SECRET),
}


def of_template(template: Object) -> list[tuple[str, str]]:
    """Return kind and name of each object that containers and volumes of a template refer to."""
    spec = template["spec"]
    references: set[tuple[str, str]] = set()
    for container in [*(spec.get("initContainers") or ()), *spec["containers"]]:
        for variable in container.get("env") or ():
            references.update(_referred(variable.get("valueFrom") or {}))
        for source in container.get("envFrom") or ():
            references.update(_referred(source))
    for volume in spec.get("volumes") or ():
        references.update(_referred(volume))
        for source in (volume.get("projected") or {}).get("sources") or ():
            references.update(_referred(source))
    return sorted(references)


def _referred(source: Object) -> Iterable[tuple[str, str]]:
    for reference, kind in SOURCES.items():
        given = source.get(reference) or {}
        if name := given.get("name") or given.get("secretName"):  # the latter of a volume
            yield kind, str(name)


def digests(cluster: Cluster, namespace: str, template: Object) -> dict[str, str] | None:
    """Return by `KIND NAME` a digest of each object; None: they may not be read."""
    digests_by_object = {}
    for kind, name in of_template(template)[:MOST]:
        path = f"/api/v1/namespaces/{namespace}/{PLURALS[kind]}/{name}"
        try:
            digests_by_object[f"{kind} {name}"] = _digest(_content(cluster, kind, path))
        except ApiError as exc:
            if exc.status not in (403, 404, 406):
                raise
            if exc.status != 404:
                return None
            digests_by_object[f"{kind} {name}"] = ABSENT
    return digests_by_object


def _content(cluster: Cluster, kind: str, path: str) -> t.Any:
    if kind == SECRET:
        metadata = cluster.metadata(path)
        return [metadata.get("uid"), metadata.get("resourceVersion")]
    obj = cluster.get(path)
    return [obj.get("data"), obj.get("binaryData")]


def _digest(content: t.Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def of_rights(
    template: Object, digests_by_object: Mapping[str, str] | None, where: str
) -> Iterable[str]:
    """Yield that it is not known whether what pods read has changed."""
    kinds = sorted({PLURALS[kind] for kind, _name in of_template(template)})
    if kinds and digests_by_object is None:
        yield (
            f"not known: whether {' and '.join(kinds)} that the pods of {where} read change later;"
            f" give the account the right to get {' and '.join(kinds)}"
        )
