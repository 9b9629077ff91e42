# SPDX-License-Identifier: GPL-3.0-or-later
"""The releases in a store: one journal beside those of the services, under a lease of moments."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Mapping
from contextlib import suppress

from ..base import clock
from ..base.errors import LeaseHeld, LeaseLost, RolloutError, StoreError
from ..engine.release import Release
from ..inputs import shapes
from ..interfaces.store import StoreDriver

# Their journal's name among those of the services; no service's name has a dot.
JOURNAL = "all.releases"
KEPT = 20  # releases that have ended
TTL = 10.0  # seconds of the lease; a change takes milliseconds
PAUSE = 0.05  # seconds between two attempts to take it
LONGEST = 3 * TTL  # seconds for all attempts: a killed run leaves a lease
Change = Callable[[Mapping[str, Release]], Mapping[str, Release]]


class Releases:
    """Read and change the releases in a store. Any thread may do so."""

    def __init__(self, store: StoreDriver, token: str, holder: str) -> None:
        self._store, self._token, self._holder = store, token, holder
        self._changing = clock.lock()

    def read(self) -> dict[str, Release]:
        """Return the releases by name, oldest first; raises StoreError."""
        with self._changing:
            return self._load()

    def change(self, change: Change) -> dict[str, Release]:
        """Change the releases, each time as they are now; return them.

        `change` returns the same mapping where nothing changes; what it raises leaves all as it
        is.
        """
        with self._changing:
            if _same(self._load(), change):
                return self._load()
            self._acquire()
            try:
                before = self._load()
                after = change(before)
                if after is not before:
                    self._store.commit(self._token, TTL, _dump(after))
                return dict(after)
            finally:
                with suppress(RolloutError):  # it expires
                    self._store.release(self._token)

    def forget(self, service: str, dry: bool) -> list[str]:
        """Remove the releases that have a service as a member, and the journal with the last one;
        return their names. `dry`: only return them.
        """
        with self._changing:
            if dry or not self._of(service):
                return self._of(service)
            self._acquire()
            names = self._of(service)
            kept = {name: release for name, release in self._load().items() if name not in names}
            if kept:
                self._store.commit(self._token, TTL, _dump(kept))
                self._store.release(self._token)
            else:
                self._store.erase(self._token)
            return names

    def _of(self, service: str) -> list[str]:
        """Return the names of the releases that have a service as a member."""
        return [
            name
            for name, release in self._load().items()
            if any(member.service == service for member in release.members.values())
        ]

    def _load(self) -> dict[str, Release]:
        try:
            given = self._store.load().get("releases") or {}
            return dict(shapes.read(dict[str, Release], given))
        except shapes.Misshapen as exc:
            raise self._damaged(str(exc)) from None
        except StoreError as exc:
            if exc.id != "PR-506":
                raise
            raise self._damaged(str(exc).partition(";")[0]) from None

    def _damaged(self, what: str) -> StoreError:
        return StoreError(
            f"{self._store.place or 'the journal of the releases'}: the record of the releases is"
            f" damaged: {what}; restore it, or move it away when no release is in progress",
            "PR-506",
        )

    def _acquire(self) -> None:
        until = clock.monotonic() + LONGEST
        while True:
            try:
                self._store.acquire(self._token, self._holder, TTL, {})
                return
            except (LeaseHeld, LeaseLost) as exc:
                if clock.monotonic() > until:
                    raise StoreError(
                        f"rollout_store: the journal of the releases is busy: {exc}; run again",
                        "PR-500",
                    ) from None
            clock.sleep(PAUSE)


def _same(releases: Mapping[str, Release], change: Change) -> bool:
    """Return whether a change changes nothing, so that no lease is needed."""
    return change(releases) is releases


def _dump(releases: Mapping[str, Release]) -> dict[str, t.Any]:
    """Return plain data, without the oldest releases that have ended."""
    ended = [name for name, release in releases.items() if release.phase.over]
    dropped = ended[: max(0, len(ended) - KEPT)]
    kept = {name: release for name, release in releases.items() if name not in dropped}
    return {"releases": shapes.write(kept), "id": ""}
