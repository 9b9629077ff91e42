# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The journal and the lease: the interface of a store driver."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Lease:
    """Who may act on a service. Times are seconds since the epoch by the store's own clock."""

    token: str
    holder: str
    since: float
    until: float
    epoch: int  # grows by one with every new holder: the fencing number
    details: Mapping[str, t.Any] = field(default_factory=dict)


class Store(t.Protocol):
    """The journal and the lease of one service. Every write checks the token, but for the operator's word.

    One whose record is somewhere that people can look at has an attribute `place` that names it.
    """

    def load(self) -> dict[str, t.Any]:
        """The record, or an empty one."""

    def lease(self) -> Lease | None:
        """Who holds the lease now (expired ones are nobody's)."""

    def acquire(self, token: str, holder: str, ttl: float, details: Mapping[str, t.Any]) -> Lease:
        """Take the lease, or renew our own; raises LeaseHeld."""

    def commit(
        self, token: str, ttl: float, record: Mapping[str, t.Any] | None = None, events: Sequence[Mapping[str, t.Any]] = ()
    ) -> None:
        """Renew the lease and, in the same step, replace the record and append to the timeline; raises LeaseLost."""

    def release(self, token: str) -> None:
        """Give the lease back; no error if it is no longer ours."""

    def timeline(self, rollout: str) -> Sequence[dict[str, t.Any]]:
        """The events of one rollout, oldest first."""

    def post(self, word: Mapping[str, t.Any]) -> int:
        """Add an operator's word, which needs no lease, and return its number: one more than the last."""

    def words(self, after: int) -> Sequence[dict[str, t.Any]]:
        """The words with numbers higher than `after`, oldest first, each with its `number`."""
