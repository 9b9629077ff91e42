# SPDX-License-Identifier: GPL-3.0-or-later
"""What keeps a workload as it is in Git or in a chart, and would undo a rollout.

`managedFields` tell who has written the pod template or the number of replicas:
https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..base.text import clean
from ..remote.kubernetes import Object

TRACKING = "argocd.argoproj.io/tracking-id"  # annotation of Argo CD, by default from 3.0 on
INSTANCE = "app.kubernetes.io/instance"  # label of Argo CD before, and of many others
FLUX = {"kustomization": "kustomize.toolkit.fluxcd.io", "helmrelease": "helm.toolkit.fluxcd.io"}
ARGO_CD = ("argocd-controller", "argocd-application-controller")  # field managers
FLUX_CD = ("kustomize-controller", "helm-controller")
HELM = ("helm", "Helm")
ROLLED_OUT = ("f:template", "f:replicas", "f:paused")  # fields of the spec that rollouts change


def of_sync(workload: Object, kind: str, where: str) -> Iterable[str]:
    """Yield what keeps the workload as it is in Git, with the recipe against it.

    `kind` is its kind in lower case.
    """
    metadata = workload["metadata"]
    managers = _managers(metadata)
    labels, notes = metadata.get("labels") or {}, metadata.get("annotations") or {}
    application = str(notes.get(TRACKING, "")).partition(":")[0]
    if application or managers.intersection(ARGO_CD):
        yield _of_argo_cd(application or str(labels.get(INSTANCE, "")), kind, where)
    suspended = False
    flux = []
    for resource, domain in FLUX.items():
        name, space = labels.get(f"{domain}/name"), labels.get(f"{domain}/namespace")
        suspended = suspended or notes.get(f"{domain}/reconcile") == "disabled"
        if name:
            flux.append((resource, clean(name), clean(space)))
    if suspended:
        return
    for resource, name, space in flux:
        yield (
            f"the {resource} {name} of Flux keeps {where} as it is in Git, and may undo the"
            f" rollout; suspend it meanwhile: flux suspend {resource} {name} -n {space}"
        )
    if not flux and (names := managers.intersection(FLUX_CD)):
        yield (
            f"Flux ({', '.join(sorted(names))}) keeps {where} as it is in Git, and may undo the"
            " rollout; suspend it meanwhile: flux suspend"
        )
    if not flux and managers.intersection(HELM):
        yield (
            f"Helm has written the pod template of {where}: the next helm upgrade sets it, and the"
            " image, to what the chart's values say; give them the new revision after the rollout"
        )


def _of_argo_cd(application: str, kind: str, where: str) -> str:
    named = f"the application {clean(application)} of Argo CD" if application else "Argo CD"
    fields = ".spec.replicas, .spec.paused, .spec.template"
    if kind != "deployment":
        fields = ".spec.template"
    written = {"statefulset": "StatefulSet", "daemonset": "DaemonSet"}.get(kind, "Deployment")
    return (
        f"{named} keeps {where} as it is in Git, and may undo the rollout; add to its spec:"
        f" ignoreDifferences: [{{group: apps, kind: {written}, jqPathExpressions: [{fields}]}}],"
        " syncPolicy: {syncOptions: [RespectIgnoreDifferences=true]}"
    )


def _managers(metadata: Object) -> set[str]:
    """Return who has written the fields that rollouts change."""
    managers: set[str] = set()
    for entry in metadata.get("managedFields") or ():
        fields = entry.get("fieldsV1")
        spec = (fields.get("f:spec") or {}) if isinstance(fields, Mapping) else {}
        if any(name in spec for name in ROLLED_OUT):
            managers.add(str(entry.get("manager", "")))
    return managers
