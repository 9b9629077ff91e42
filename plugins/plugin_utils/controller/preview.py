# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A pool of its own at the load balancers, with the new instances of a rollout alone: to be looked at, or sent copies of requests."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ansible_collections.progressive.rollout.plugins.plugin_utils.controller import fleet as fleets
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Rotation
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import Report
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.traffic import Table, TrafficDriver


class PreviewPool:
    """What is there is looked at in every turn while anything is shown, or may be."""

    def __init__(self, traffic: TrafficDriver, dark: bool) -> None:
        """`dark`: only while the new ones get no requests of clients."""
        self.traffic, self.dark = traffic, dark
        self.showing = False  # whether new ones are to be there
        self.shown = True  # whether any may be there
        self.table: Table = {}

    def look(self) -> None:
        """See what is there."""
        if self.showing or self.shown:
            self.table = self.traffic.observe()

    def show(self, new: Sequence[Report], ready: Collection[str]) -> None:
        """Have these there, with requests for those that are ready and proven, and nobody else."""
        if not (self.showing or self.shown):
            return
        shall = self._targets(new, ready)
        if fleets.differs(self.table, shall):
            self.table = self.traffic.apply(shall)
        self.shown = self.showing or any(server.ours for servers in self.table.values() for server in servers.values())

    def shows(self, new: Sequence[Report], ready: Collection[str]) -> bool:
        """Whether it is so, as last seen, and all that are ready are proven."""
        if not (self.showing or self.shown):
            return True
        shall = self._targets(new, ready)
        out = [one for its in shall.values() for one in its.values() if one.name in ready and one.rotation is not Rotation.IN]
        return not out and not fleets.differs(self.table, shall)

    def _targets(self, new: Sequence[Report], ready: Collection[str]) -> fleets.Targets:
        return fleets.targets(new if self.showing else (), self.table, ready, (), ())
