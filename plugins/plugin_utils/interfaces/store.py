# SPDX-License-Identifier: GPL-3.0-or-later
"""The journal and the lease: the base class of store drivers."""

from __future__ import annotations

import abc
import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..base.errors import StoreError
from .driver import BaseDriver


@dataclass(frozen=True)
class Lease:
    """Who may act on a service. Times are seconds since the epoch by the store's own clock."""

    token: str
    holder: str
    since: float
    until: float
    epoch: int  # grows with every new holder: the fencing number
    details: Mapping[str, t.Any] = field(default_factory=dict)
    mark: str = ""  # differs after every renewal, in a store whose times may not


class StoreDriver(BaseDriver):
    """The journal and the lease of one service.

    Every write but `post` checks the token of the lease and renews the lease, in one step.
    """

    kind = "store"
    folder = "stores"

    place: str = ""
    """Where people find the record; empty: nowhere that they could look at it."""

    home: str = ""
    """The same for hosts, which remember it: told apart from every other place, and without
    secrets; empty: `place`."""

    def check(self) -> None:
        """Raise InputError for what would fail in the middle of a rollout, such as rights."""

    @abc.abstractmethod
    def load(self) -> dict[str, t.Any]:
        """Return the record, or an empty one."""

    @abc.abstractmethod
    def lease(self) -> Lease | None:
        """Return the lease in force; None if there is none, or it has expired."""

    @abc.abstractmethod
    def acquire(
        self,
        token: str,
        holder: str,
        ttl: float,
        details: Mapping[str, t.Any],
        above: int = 0,
    ) -> Lease:
        """Take the lease, or renew it for the same token. Raises LeaseHeld.

        `details["previous"]` of the lease returned is the expired lease it replaces, if there was
        one. The epoch of a new holder is higher than all before, and than `above`.
        """

    @abc.abstractmethod
    def take_over(
        self, lease: Lease, token: str, holder: str, ttl: float, details: Mapping[str, t.Any]
    ) -> Lease:
        """Replace exactly this lease, expired or not, because its holder is known to be gone.

        Raises LeaseHeld if it was renewed or replaced since.
        """

    @abc.abstractmethod
    def commit(
        self,
        token: str,
        ttl: float,
        record: Mapping[str, t.Any] | None = None,
        events: Sequence[Mapping[str, t.Any]] = (),
    ) -> None:
        """Renew the lease and, in the same step, replace the record and append to the timeline.

        The events belong to the rollout that the record names in `id`; without a record, to the
        one of the record stored. Raises LeaseLost.
        """

    @abc.abstractmethod
    def release(self, token: str) -> None:
        """Give the lease back; do nothing if another token holds it."""

    def erase(self, token: str) -> None:
        """Remove all that there is of the service, the lease last; raises LeaseLost."""
        raise StoreError(
            f"rollout_store.driver: it cannot remove {self.place or 'the journal'}; remove that"
            " there",
            "PR-516",
        )

    @abc.abstractmethod
    def timeline(self, rollout: str) -> Sequence[dict[str, t.Any]]:
        """Return the events of one rollout, oldest first."""

    @abc.abstractmethod
    def post(self, command: Mapping[str, t.Any]) -> int:
        """Add an operator's command, which needs no lease; return its number: the last one plus
        1.
        """

    @abc.abstractmethod
    def commands(self, after: int) -> Sequence[dict[str, t.Any]]:
        """Return commands with numbers higher than `after`, oldest first, each with its
        `number`.
        """
