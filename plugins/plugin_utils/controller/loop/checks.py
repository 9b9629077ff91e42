# SPDX-License-Identifier: GPL-3.0-or-later
"""How the instances of each generation are asked whether they are ready: as when it was rolled out,
so that a rollback does not depend on the check of the revision that it leaves.
"""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Mapping

from ...base.errors import InputError, PlatformError
from ...config.settings import Settings
from ...engine.model import Health, Instance, State
from ...health import spec
from ...health.monitor import HealthMonitor
from ...interfaces.check import HealthCheck
from ...interfaces.context import DriverContext
from ...interfaces.platform import InstanceSettings, PlatformDriver, Report
from ...state.lease import Session

UNCHECKED = HealthCheck()


class Checks:
    """The checks of a service: that of this run, and those in the settings of generations."""

    def __init__(
        self, settings: Settings, context: DriverContext, session: Session, platform: PlatformDriver
    ) -> None:
        self._shown, self._secret = spec.table(settings.health).parted(settings.health)
        self._context = context
        self._session = session
        self._platform = platform
        self._known: dict[int, tuple[InstanceSettings, HealthCheck]] = {}

    def of(self, generation: int) -> HealthCheck:
        """Return the check of a generation; this run's where it is the same, or not known."""
        record = self._session.record
        if record.is_adopted(generation):
            return UNCHECKED  # the load balancers' own checks of them count
        kept = record.settings.get(generation)
        if kept is None or kept.health == self._shown:
            return self._context.health
        if generation not in self._known or self._known[generation][0] != kept:
            self._known[generation] = kept, self._parsed(kept)
        return self._known[generation][1]

    def _parsed(self, kept: InstanceSettings) -> HealthCheck:
        """Return the check in these settings, with the secrets that hosts have, or this run's."""
        secret: Mapping[str, t.Any] | None = {}
        if any(option.startswith("health.") for option in kept.secret):
            try:
                secret = (self._platform.recall(kept.key) or {}).get("health", self._secret)
            except PlatformError:  # the hosts that have them do not answer
                secret = self._secret
        try:
            return spec.parse({**kept.health, **(secret or {})})
        except InputError:  # of a check that is not installed any more
            return self._context.health

    def tried(
        self, reports: Iterable[Report], fleet: Iterable[Instance], generation: int, timeout: float
    ) -> dict[str, str] | None:
        """Ask the serving instances of a generation by this run's check.

        Return why each does not pass, "" if it does; None where nothing new would be learned.
        """
        health, kept = self._context.health, self._session.record.settings.get(generation)
        enabled = health.enabled and self.of(generation).enabled
        if not enabled or (kept and kept.health == self._shown):
            return None
        serving = {
            instance.id
            for instance in fleet
            if instance.generation == generation
            and (instance.state is State.READY or (instance.in_rotation and instance.lb_healthy))
        }
        asked = {r.labels.id: r for r in reports if r.labels.id in serving}
        monitor = HealthMonitor(health, self._context.transport)
        try:
            monitor.watch(
                {i: (r.labels.endpoint, r.labels.host, True, r.created) for i, r in asked.items()}
            )
            monitor.settle(timeout)
            statuses = {i: monitor.health(i) for i in asked}
        finally:
            monitor.close()
        return {
            i: "" if status.health is Health.PASSING else status.detail
            for i, status in statuses.items()
        }
