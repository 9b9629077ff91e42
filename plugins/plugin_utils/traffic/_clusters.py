# SPDX-License-Identifier: GPL-3.0-or-later
"""The same load balancer in several clusters of Kubernetes: a driver for each, and one table.

Each cluster is a load balancer of its own, by the cluster's name, for the pods of that cluster. One
that does not answer, as the platform has found, is shown as last seen and left alone meanwhile.
"""

from __future__ import annotations

import abc
import typing as t
from collections.abc import Callable, Mapping, Sequence

from ..base.errors import LeaseLost, RolloutError
from ..interfaces.context import DriverContext
from ..interfaces.platform import Endpoint
from ..interfaces.traffic import Server, Table, Target, TrafficDriver
from ..remote.kubernetes import each_cluster

Result = t.TypeVar("Result")


class ClustersDriver(TrafficDriver):
    """One load balancer of Kubernetes in each of several clusters."""

    def __init__(self, options: Mapping[str, t.Any], context: DriverContext) -> None:
        self.context = context
        given = each_cluster(options, "rollout_traffic")
        self._members = {name: self._in_one(cluster) for name, cluster in given.items()}
        self.clusters = tuple(self._members)
        cluster = next(iter(self._members.values()))
        self.divides, self.settle_time = cluster.divides, cluster.settle_time
        self.drain_timeout = cluster.drain_timeout
        self._last: dict[str, Mapping[Endpoint, Server]] = {}

    @abc.abstractmethod
    def _in_one(self, options: Mapping[str, t.Any]) -> TrafficDriver:
        """Return the driver for one cluster."""

    def check(self) -> None:
        self._each(self._members, lambda name: self._members[name].check())

    def observe(self) -> Table:
        return self._shown(lambda name: self._members[name].observe())

    def apply(self, targets: Mapping[str, Mapping[Endpoint, Target]]) -> Table:
        def apply_one(name: str) -> Table:
            (entry_name,) = self._members[name].observe()  # what the driver itself calls it
            return self._members[name].apply({entry_name: targets[name]})

        return self._shown(apply_one, targets)

    def begin(self, divided: bool) -> None:
        for member in self._members.values():
            member.begin(divided)

    def conclude(self) -> None:
        self._each(self._members, lambda name: self._members[name].conclude())

    def leave(self, dry: bool) -> Sequence[str]:
        removed = self._each(self._members, lambda name: self._members[name].leave(dry))
        return [f"cluster {name}: {what}" for name, whole in removed.items() for what in whole]

    def close(self) -> None:
        for member in self._members.values():
            member.close()

    # -- helpers -----------------------------------------------------------------------------------

    def _shown(self, look: Callable[[str], Table], names: t.Collection[str] = ()) -> Table:
        """Return the entries in these clusters, or in all, once those that answer were asked."""
        wanted = names or self._members.keys()
        answering = [name for name in wanted if name not in self.context.known().away]
        for name, table in self._each(answering, look).items():
            (self._last[name],) = table.values()
        return {name: self._last.get(name, {}) for name in wanted}

    def _each(self, names: t.Iterable[str], work: Callable[[str], Result]) -> dict[str, Result]:
        """Return what clusters answer; raises what is wrong once all were asked."""
        results: dict[str, Result] = {}
        problems: list[RolloutError] = []
        for name in names:
            try:
                results[name] = work(name)
            except RolloutError as exc:
                exc.args = (f"cluster {name}: {exc}",)
                problems.append(exc)
        for error in sorted(problems, key=lambda error: not isinstance(error, LeaseLost)):
            raise error
        return results
