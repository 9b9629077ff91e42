# SPDX-License-Identifier: GPL-3.0-or-later
"""Autoscalers that are objects of Kubernetes."""

from __future__ import annotations

import abc
import re
import typing as t
from collections.abc import Mapping
from functools import cached_property

from ..base.errors import AutoscalerError, AutoscalerGone, InputError, LeaseLost
from ..inputs.options import Field, Kind, Options
from ..interfaces.autoscaler import AutoscalerDriver, State
from ..interfaces.context import DriverContext
from ..remote import kubernetes_rights
from ..remote.kubernetes import CLUSTER, ApiError, Cluster, Object

_VARIABLE = "rollout_autoscaler"
_EPOCH = "rollout.progressive/epoch"  # of the last lease holder that has changed the object
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def _name(value: t.Any, variable: str) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value) or len(value) > 253:
        raise InputError(f"{variable}: {value!r} is not the name of an object", "PR-120")
    return value


def options(what: str) -> Options:
    """Return the options of an autoscaler that is an object: `what`."""
    return Options(
        Field("name", Kind("str", _name), f"Name of the {what}.", required=True), *CLUSTER
    )


class ObjectDriver(AutoscalerDriver):
    """An object of Kubernetes, changed only if it still is as it was seen."""

    _group: t.ClassVar[str]
    _kinds: t.ClassVar[str]

    def __init__(self, options: Mapping[str, t.Any], context: DriverContext) -> None:
        self._options, self._context = options, context

    @abc.abstractmethod
    def _version(self) -> str:
        """Return the version of the API to use; raises InputError if the server has none."""

    @abc.abstractmethod
    def _state(self, scaler: Object) -> State:
        """Return the state that an object shows."""

    @abc.abstractmethod
    def _change(self, after: State) -> tuple[dict[str, t.Any], dict[str, t.Any]]:
        """Return annotations and fields of the specification for a state; None: without it."""

    @property
    def name(self) -> str:
        return f"{self._kinds}/{self._options['name']}"

    def check(self) -> None:
        needed = ((self._group, self._kinds, ("get", "patch")),)
        role = kubernetes_rights.role("progressive-rollout-autoscaler", self._namespace, needed)
        kubernetes_rights.check(self._cluster, role, f"{_VARIABLE}.context")
        try:
            self.read()
        except AutoscalerGone as exc:
            raise InputError(f"{_VARIABLE}.name: {exc}; correct it", "PR-261") from None

    def read(self) -> State:
        return self._state(self._get())

    def write(self, before: State, after: State) -> None:
        scaler = self._get()
        self._check_epoch(scaler)
        if self._state(scaler) != before:
            raise AutoscalerError(f"{self._where} was changed by somebody else meanwhile", "PR-260")
        try:
            self._cluster.patch(self._path, self._patch(scaler, after))
        except ApiError as exc:
            raise AutoscalerError(f"{self._where}: {exc}", exc.id) from None

    # -- helpers -----------------------------------------------------------------------------------

    @cached_property
    def _cluster(self) -> Cluster:
        options = self._options
        return Cluster(options["kubeconfig"], options["context"], f"{_VARIABLE}.context")

    @property
    def _namespace(self) -> str:
        return self._options["namespace"] or self._cluster.namespace

    @property
    def _where(self) -> str:
        return f"{self.name} in namespace {self._namespace}"

    @cached_property
    def _path(self) -> str:
        api = f"/apis/{self._group}/{self._version()}/namespaces/{self._namespace}"
        return f"{api}/{self.name}"

    def _get(self) -> Object:
        try:
            return self._cluster.get(self._path)
        except ApiError as exc:
            if exc.status != 404:
                raise
        raise AutoscalerGone(f"there is no {self._where}", "PR-261")

    def _check_epoch(self, scaler: Object) -> None:
        """Raise LeaseLost where the holder of a newer lease has changed the object."""
        seen = str(_notes(scaler).get(_EPOCH, ""))
        if seen.isdecimal() and int(seen) > self._context.known().epoch:
            raise LeaseLost(
                f"{self._where}: a newer lease holder has acted here (epoch {seen}, ours is"
                f" {self._context.known().epoch})"
            )

    def _patch(self, scaler: Object, after: State) -> list[Object]:
        """Return the patch to a state, which fails if the object was changed since it was read."""
        notes, spec = self._change(after)
        kept = {**_notes(scaler), **notes, _EPOCH: str(self._context.known().epoch)}
        kept = {name: value for name, value in kept.items() if value is not None}
        version = scaler["metadata"]["resourceVersion"]
        patch: list[Object] = [
            {"op": "test", "path": "/metadata/resourceVersion", "value": version},
            {"op": "add", "path": "/metadata/annotations", "value": kept},
        ]
        for name, value in spec.items():
            if value is not None:
                patch.append({"op": "add", "path": f"/spec/{name}", "value": value})
            elif name in scaler["spec"]:
                patch.append({"op": "remove", "path": f"/spec/{name}"})
        return patch


def _notes(scaler: Object) -> Mapping[str, t.Any]:
    return scaler["metadata"].get("annotations") or {}
