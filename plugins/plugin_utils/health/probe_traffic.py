# SPDX-License-Identifier: GPL-3.0-or-later
"""Synthetic traffic: requests to the new instances that serve, where users send too few to judge
by.
"""

from __future__ import annotations

import typing as t
from collections import Counter
from collections.abc import Mapping, Sequence

from ..base.errors import InputError
from ..interfaces.check import Probe
from ..interfaces.context import DriverContext
from ..interfaces.traffic import Cut, Served
from . import spec
from .monitor import HealthMonitor


class Prober:
    """Sends requests in the terms of `rollout_health`, and adds them to what the balancers
    counted.
    """

    def __init__(self, given: Mapping[str, t.Any], context: DriverContext, variable: str) -> None:
        """Take the options; raise InputError for wrong ones."""
        self._health = spec.parse(given, variable)
        if not self._health.enabled:
            raise InputError(
                f"{variable}: has no check; write what to ask, as in {{http: /}}", "PR-102"
            )
        if self._health.deadline is not None:
            raise InputError(f"{variable}.deadline: has no effect on probes; remove it", "PR-107")
        self._context = context
        # The requests made here do not follow the share of the balancers.
        self.cuts: Sequence[Cut] = ()
        self._monitor: HealthMonitor | None = None
        self._asked: Counter[str] = Counter()  # by instance
        self._failed: Counter[str] = Counter()

    def look(self, generation: int) -> None:
        """From here on ask the instances of the generation that are in rotation now."""
        if self._monitor is None:
            self._monitor = HealthMonitor(
                self._health, self._context.transport.apart(), on_outcome=self._count
            )
        serving = {
            name: counted
            for name, counted in self._context.counters.served.items()
            if counted.serving and counted.generation == generation
        }
        self._monitor.watch(
            {name: (counted.endpoint, counted.host, True, 0.0) for name, counted in serving.items()}
        )

    def _count(self, name: str, probe: Probe) -> None:
        """Count an outcome. Failures first: another thread must not see more requests than
        outcomes.
        """
        self._failed[name] += not probe.passed
        self._asked[name] += 1

    @property
    def served(self) -> Mapping[str, Served]:
        """Return what the load balancers have counted, and the requests made here."""
        asked, failed = self._asked.copy(), self._failed.copy()
        return {
            name: counted._replace(
                requests=counted.requests + asked[name],
                errors=counted.errors + failed[name],
            )
            for name, counted in self._context.counters.served.items()
        }

    def close(self) -> None:
        """Stop asking."""
        if self._monitor is not None:
            self._monitor.watch({})
