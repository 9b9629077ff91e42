# SPDX-License-Identifier: GPL-3.0-or-later
"""The adopted servers of a service, as a platform would report instances.

They can only be in rotation or out of it: to stop one is to note that it is out for good, and to
start one of their generation is to take that back. The journal has which of them are out.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...engine.model import Process
from ...interfaces.platform import Labels, Report
from ...state.lease import Session
from ...state.record import AdoptedServers


class Adopted:
    """The adopted servers in the journal of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def reports(self) -> list[Report]:
        """Return the reports of those that are not out for good.

        Whether one works is known by the load balancer's own check alone.
        """
        known = self._known
        if known is None or len(known.out) == len(known.servers):
            return []
        return [
            Report(self._labels(known, name), Process.RUNNING, known.since)
            for name in known.servers
            if name not in known.out
        ]

    def sync(
        self, start: Sequence[Labels], stop: Sequence[str], forget: Sequence[str]
    ) -> tuple[list[Labels], list[str], list[str]]:
        """Stop and forget those that are among these, and return what is left for the platform."""
        known = self._known
        if known is None:
            return list(start), list(stop), list(forget)
        out = [name for name in stop if name in known.servers]
        known.out += [name for name in out if name not in known.out]
        for name in out:
            self._session.record.draining.pop(name, None)
        return (
            [labels for labels in start if labels.generation != known.generation],
            [name for name in stop if name not in known.servers],
            [name for name in forget if name not in known.servers],
        )

    def put_back(self, count: int) -> list[Labels]:
        """Put at most `count` back, the last one first."""
        known = self._known
        if known is None:
            return []
        kept = max(0, len(known.out) - count)
        back, known.out = known.out[kept:], known.out[:kept]
        return [self._labels(known, name) for name in back]

    @property
    def _known(self) -> AdoptedServers | None:
        return self._session.record.adopted

    def _labels(self, known: AdoptedServers, name: str) -> Labels:
        endpoint, service = known.servers[name], self._session.service
        return Labels(
            name, service, known.revision, known.generation, endpoint.address, endpoint, 0
        )
