# SPDX-License-Identifier: GPL-3.0-or-later
"""The journal and the lease in a Kubernetes namespace.

The Lease `rollout-SERVICE` says who holds the lease, and which ConfigMap has the journal. That
ConfigMap is never changed: a commit makes another one, and then changes the Lease, if it still has
the version that was read. So a commit is done whole or not at all, and the API server refuses that
of a run that has lost its lease. What was made in vain is removed by the next holder.
https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions
"""

from __future__ import annotations

import json
import math
import secrets
import time
import typing as t
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property

from ..agents import _journal
from ..base.errors import InputError, StoreAway, StoreError
from ..inputs.options import Options
from ..interfaces.context import DriverContext
from ..interfaces.store import Lease
from ..remote import kubernetes_rights
from ..remote.kubernetes import CLUSTER, ApiError, Cluster, Object
from ._config_maps import EVENTS, Data, Journal, journal, packed, unpacked
from ._shared import COMMANDS, LEASE, RECORD, TIMELINES, Change, SharedStore, StoredTexts

OPTIONS = Options(*CLUSTER)

TIMEOUT = 5.0  # seconds for a part of an answer; a whole one takes milliseconds
DOMAIN = "rollout.progressive"
HELD, JOURNAL = f"{DOMAIN}/lease", f"{DOMAIN}/journal"  # annotations of the Lease
SERVICE, KIND = f"{DOMAIN}/service", f"{DOMAIN}/kind"  # labels
NEEDED: kubernetes_rights.Needed = (
    ("coordination.k8s.io", "leases", ("get", "create", "patch")),
    ("", "configmaps", ("get", "list", "create", "patch", "delete")),
)
ROLE = "progressive-rollout-store"
R = t.TypeVar("R")


class Driver(SharedStore):
    """The journal in ConfigMaps of Kubernetes."""

    def __init__(self, options: Mapping[str, t.Any], context: DriverContext) -> None:
        super().__init__(context.service)
        if "_" in context.service:
            raise InputError(
                f"rollout_service: {context.service!r} cannot be in the name of an object of"
                " Kubernetes, where rollout_store keeps the journal; use - instead of _",
                "PR-120",
            )
        self._options = options
        self._name = f"rollout-{context.service}"
        self._root = (0, "")  # the version of the Lease as last read, and the journal it names
        self._last = Journal()  # as last read or written
        self._replaced: list[Journal] = []  # or made in vain, and perhaps not removed yet
        self._worked = False  # the API server has answered as it should
        cluster = options["context"] or options["kubeconfig"] or "the current context"
        namespace = options["namespace"] or "that of the context"
        self.place = f"lease {self._name} in namespace {namespace} of Kubernetes ({cluster})"

    def check(self) -> None:
        with self._answered():
            role = self._role()
            kubernetes_rights.check(self._cluster, role, "rollout_store.context")

    # -- texts ---------------------------------------------------------------------------------

    def _read(self, names: Collection[str]) -> StoredTexts:
        with self._answered():
            texts: dict[str, bytes] = {}
            versions: dict[str, int] = {}
            if COMMANDS in names and (config_map := self._get(self._commands)):
                texts[COMMANDS], versions[COMMANDS] = (
                    self._text(config_map, COMMANDS),
                    _version(config_map),
                )
            if {RECORD, TIMELINES}.isdisjoint(names):
                version, held, _name = self._lease()
            else:
                version, held, kept = self._whole(lambda kept: kept)
                texts |= {name: text for name, text in kept.texts.items() if name in names}
            versions[LEASE] = version
            if held is not None:
                texts[LEASE] = held
            return StoredTexts(texts, versions, self._cluster.now)

    def _write(self, change: Change) -> bool:
        with self._answered():
            if change.guard == LEASE:
                return self._commit_whole(change)
            body = self._map(self._commands, "commands", packed(change.texts))
            return self._swap(self._maps, body, change.version)

    def _texts(self, prefix: str) -> Iterable[bytes]:
        rollout = prefix.split("/")[1]

        def events(kept: Journal) -> list[bytes]:
            chunks = [self._chunk(name) for name in kept.chunks.get(rollout, ())]
            return [*chunks, kept.events.encode() if kept.rollout == rollout else b""]

        with self._answered():
            return self._whole(events)[2]

    def _remove_all(self) -> None:
        with self._answered():
            selector = f"{SERVICE}={self._service}"
            for config_map in self._cluster.get(self._maps, labelSelector=selector).get(
                "items", ()
            ):
                self._cluster.delete(f"{self._maps}/{config_map['metadata']['name']}")
            try:
                self._cluster.delete(f"{self._leases}/{self._name}")
            except ApiError as exc:
                if exc.status != 403:
                    raise
                raise StoreError(
                    f"rollout_store: the account may not delete the Lease; delete it yourself:"
                    f" kubectl --namespace {self._namespace} delete lease {self._name}",
                    "PR-516",
                ) from None

    def _where(self, name: str) -> str:
        return f"{name} in {self.place}"

    # -- reading -------------------------------------------------------------------------------

    def _lease(self) -> tuple[int, bytes | None, str]:
        """Return the version of the Lease, its text, and the name of the journal."""
        lease = self._get(self._leases + f"/{self._name}")
        if lease is None:
            version, held, name = 0, *self._left_alone()
        else:
            notes = lease["metadata"].get("annotations") or {}
            version, name = _version(lease), str(notes.get(JOURNAL, ""))
            held = str(notes[HELD]).encode() if HELD in notes else b"{}"
        self._root = version, name
        return version, held, name

    def _left_alone(self) -> tuple[bytes | None, str]:
        """Return what there is without the Lease, which somebody has deleted: the last journal."""
        last = max(self._listed(), key=lambda journal: journal.order, default=None)
        if last is None or self._get(f"{self._leases}/{self._name}"):
            return None, ""
        return _journal.joined([{"epoch": last.epoch}]).encode(), last.name

    def _whole(self, work: Callable[[Journal], R]) -> tuple[int, bytes | None, R]:
        """Return the Lease, and what can be read of its journal.

        Where something is missing there, it was replaced meanwhile, or is lost.
        """
        before = None
        while True:
            version, held, name = self._lease()
            try:
                return version, held, work(self._journal(name))
            except _Missing as exc:
                if before == name:
                    raise _journal.Refused(
                        "damaged",
                        f"{self.place} names the ConfigMap {exc}, which is not there; restore it,"
                        f" or remove what is left (kubectl -n {self._namespace} delete"
                        f" lease,configmap -l {SERVICE}={self._service}): then the next rollout"
                        " begins from what it observes",
                    ) from None
                before = name

    def _journal(self, name: str) -> Journal:
        """Return the journal in this ConfigMap, which never changes."""
        if name != self._last.name:
            self._last = self._parsed(name, self._needed(name)) if name else Journal()
        return self._last

    def _parsed(self, name: str, config_map: Object) -> Journal:
        with self._whole_data(name):
            return journal(name, config_map)

    def _chunk(self, name: str) -> bytes:
        return self._text(self._needed(name), EVENTS)

    def _text(self, config_map: Object, name: str) -> bytes:
        with self._whole_data(str(config_map["metadata"]["name"])):
            return unpacked(config_map)[name]

    @contextmanager
    def _whole_data(self, name: str) -> Iterator[None]:
        """Refuse a ConfigMap that another program has written."""
        try:
            yield
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise _journal.Refused(
                "damaged", f"the ConfigMap {name} of {self.place} is damaged; {_journal.RECORD}"
            ) from None

    # -- writing -------------------------------------------------------------------------------

    def _commit_whole(self, change: Change) -> bool:
        """Make what is new, name it in the Lease, and remove what it replaces."""
        version, name = self._root
        if version != change.version:
            return False
        if set(change.texts) == {LEASE}:
            return self._swap(self._leases, self._changed(change, name), version)
        try:
            before = self._journal(name)
        except _Missing:  # it was replaced meanwhile
            return False
        after = self._make(before, change)
        if not self._swap(self._leases, self._changed(change, after.name), version):
            # it may have been sent twice by what is between
            if self._lease()[2] != after.name:
                self._remove(after, before)
                return False
        self._last = after
        # of writes whose outcome was not known, too: the Lease cannot name them any more
        self._replaced = [journal for journal in self._replaced if not self._remove(journal, after)]
        return True

    def _make(self, before: Journal, change: Change) -> Journal:
        """Make the ConfigMaps of a change; that of the journal, which names the others, first."""
        epoch = int(json.loads(change.texts[LEASE])["epoch"])
        after, chunks = before.after(change, f"{self._name}.{secrets.token_hex(8)}", epoch)
        self._replaced += [before, after]  # but for the one that the Lease names then
        bodies = [self._map(after.name, "journal", after.data())]
        for name, text in chunks.items():
            bodies.append(self._map(name, "timeline", packed({EVENTS: text})))
        for body in bodies:
            self._swap(self._maps, {**body, "immutable": True}, 0)  # no other has its name
        return after

    def _changed(self, change: Change, name: str) -> dict[str, t.Any]:
        """Return the Lease with this text, and this journal."""
        text = change.texts[LEASE]
        held = json.loads(text)
        free = "token" not in held
        spec = {
            "holderIdentity": None if free else held["holder"],
            "leaseDurationSeconds": None if free else math.ceil(held["ttl"]),
            "acquireTime": None if free else _moment(held["since"]),
            "renewTime": None if free else _moment(held["until"] - held["ttl"]),
        }
        labels = {SERVICE: self._service, KIND: "lease"}
        notes = {HELD: text, JOURNAL: name}
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._name, "labels": labels, "annotations": notes},
            "spec": spec,
        }

    def _map(self, name: str, kind: str, data: Data) -> dict[str, t.Any]:
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "labels": {SERVICE: self._service, KIND: kind}},
            **data,
        }

    def _swap(self, path: str, body: dict[str, t.Any], version: int) -> bool:
        """Create an object, or change it; return False if it has not the version given."""
        metadata = body["metadata"]
        try:
            if not version:
                self._cluster.post(path, body)
            else:
                known = {**metadata, "resourceVersion": str(version)}
                self._cluster.patch(f"{path}/{metadata['name']}", {**body, "metadata": known})
        except ApiError as exc:
            if exc.status == 409 or (version and exc.status == 404):
                return False
            raise
        return True

    # -- what was left behind ------------------------------------------------------------------

    def _acquire(self, request: dict[str, t.Any], instead: str | None) -> Lease:
        """Take the lease, then remove what earlier holders have left behind.

        It is listed first: of that, nothing can be named by the Lease any more once it is taken.
        """
        with self._answered():
            left = self._checked(self._listed)
        lease = super()._acquire(request, instead)
        if any(journal.name != self._root[1] for journal in left):
            with suppress(StoreError), self._answered():
                kept = self._checked(lambda: self._whole(lambda kept: kept)[2])
                for journal in left:
                    self._remove(journal, kept)
        return lease

    def _listed(self) -> list[Journal]:
        """Return the journals that are there: the one in use, and those made or kept in vain."""
        selector = f"{SERVICE}={self._service},{KIND}=journal"
        items = self._cluster.get(self._maps, labelSelector=selector).get("items", ())
        return [
            self._parsed(str(config_map["metadata"]["name"]), config_map) for config_map in items
        ]

    def _remove(self, journal: Journal, kept: Journal) -> bool:
        """Remove a journal but for what another one needs; return whether that worked.

        Where it did not, it is done later, by the next holder at the latest.
        """
        try:
            for name in sorted(journal.named() - kept.named()):
                self._cluster.delete(f"{self._maps}/{name}")
            if journal.name not in ("", kept.name):  # the last, since it names the others
                self._cluster.delete(f"{self._maps}/{journal.name}")
        except ApiError:
            return False
        return True

    # -- requests ------------------------------------------------------------------------------

    @cached_property
    def _cluster(self) -> Cluster:
        options = self._options
        return Cluster(options["kubeconfig"], options["context"], "rollout_store.context", TIMEOUT)

    @property
    def _namespace(self) -> str:
        return self._options["namespace"] or self._cluster.namespace

    @property
    def _leases(self) -> str:
        return f"/apis/coordination.k8s.io/v1/namespaces/{self._namespace}/leases"

    @property
    def _maps(self) -> str:
        return f"/api/v1/namespaces/{self._namespace}/configmaps"

    @property
    def _commands(self) -> str:
        return f"{self._name}.commands"

    def _role(self) -> dict[str, t.Any]:
        return kubernetes_rights.role(ROLE, self._namespace, NEEDED)

    def _get(self, path: str) -> Object | None:
        """Return an object, a ConfigMap if it is a name; None if it is not there."""
        try:
            return self._cluster.get(path if path.startswith("/") else f"{self._maps}/{path}")
        except ApiError as exc:
            if exc.status == 404:
                return None
            raise

    def _needed(self, name: str) -> Object:
        if (config_map := self._get(name)) is None:
            raise _Missing(name)
        return config_map

    @contextmanager
    def _answered(self) -> Iterator[None]:
        """Raise StoreError where the API server does not answer, or refuses."""
        try:
            yield
            self._worked = True
        except ApiError as exc:
            raise self._store_error(exc) from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise StoreAway(
                f"rollout_store.context: {self.place}: an answer that is not that of an API server",
                "PR-508",
            ) from None

    def _store_error(self, exc: ApiError) -> StoreError:
        text = f"rollout_store.context: {self.place}: {exc}"
        if exc.status in (0, 408, 429) or exc.status >= 500:
            return StoreAway(text, "PR-508")
        if "exceeded quota" in str(exc):
            return StoreAway(f"{text}; raise the quota of the namespace", "PR-508")
        if exc.status in (401, 403):
            role = json.dumps(self._role())
            text = f"{text}; apply this Role, and bind it to the account: {role}"
            # what worked before may work again: an API server that starts knows no roles yet
            return StoreAway(text, "PR-508") if self._worked else StoreError(text, "PR-510")
        if exc.status == 413 or "Too long" in str(exc):
            return StoreError(f"{text}; keep the journal in a store of another kind", "PR-509")
        return StoreError(text, "PR-500")


class _Missing(Exception):
    """A ConfigMap that is named is not there."""


def _version(resource: Object) -> int:
    return int(resource["metadata"]["resourceVersion"])


def _moment(seconds: float) -> str:
    """Return a moment as Leases have it."""
    whole, part = divmod(seconds, 1)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)) + f".{int(part * 1e6):06d}Z"
