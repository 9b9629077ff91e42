# SPDX-License-Identifier: GPL-3.0-or-later
"""A load balancer pool of new instances alone, for previews or copies of requests."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ...engine.model import Rotation
from ...interfaces.platform import Report
from ...interfaces.traffic import Table, TrafficDriver
from . import fleet as fleets
from . import timing


class PreviewPool:
    """Keeps one such pool. It is observed as long as it has instances, or is to have some, and
    seldom otherwise: its load balancer may return to an older state.
    """

    def __init__(self, traffic: TrafficDriver, idle_only: bool) -> None:
        """`idle_only`: fill the pool only while the new instances get no requests of clients."""
        self.traffic, self.idle_only = traffic, idle_only
        self.wanted = False  # whether it is to have instances
        self.filled = True  # whether it may have some
        self.table: Table = {}
        self._next = float("-inf")  # when to observe it although it is not in use

    @property
    def in_use(self) -> bool:
        """Whether the pool has instances, or is to have some."""
        return self.wanted or self.filled

    @property
    def has_entries(self) -> bool:
        """Whether the pool has managed entries, as last observed."""
        return any(server.ours for servers in self.table.values() for server in servers.values())

    def observe(self, now: float) -> None:
        """Observe the pool's entries."""
        if self.in_use or now >= self._next:
            self.table = self.traffic.observe()
            self.filled = self.filled or self.has_entries
            self._next = now + timing.UNUSED

    def apply(self, new: Sequence[Report], ready: Collection[str]) -> None:
        """Make the pool contain exactly `new`; ready instances get requests once healthy there."""
        if not self.in_use:
            return
        targets = self._targets(new, ready)
        if fleets.differs(self.table, targets):
            self.table = self.traffic.apply(targets)
        self.filled = self.wanted or self.has_entries

    def is_done(self, new: Sequence[Report], ready: Collection[str]) -> bool:
        """Return whether the pool is as `apply` makes it, with every ready instance in rotation."""
        if not self.in_use:
            return True
        targets = self._targets(new, ready)
        pending = any(
            target.name in ready and target.rotation is not Rotation.IN
            for servers in targets.values()
            for target in servers.values()
        )
        return not pending and not fleets.differs(self.table, targets)

    def _targets(self, new: Sequence[Report], ready: Collection[str]) -> fleets.Targets:
        """Return what the pool's load balancers are to show.

        An instance at the endpoint of one that ended is not in rotation before it is ready.
        """
        shown = new if self.wanted else ()
        begun = [r.labels.id for r in shown if r.labels.id not in ready and self._takes_over(r)]
        return fleets.targets(shown, self.table, ready, begun, ())

    def _takes_over(self, report: Report) -> bool:
        """Return whether the pool has another instance's entry at the endpoint of this one."""
        name, endpoint = report.labels.id, report.labels.endpoint
        entries = (servers.get(endpoint) for servers in self.table.values())
        return any(entry is not None and entry.name not in ("", name) for entry in entries)
