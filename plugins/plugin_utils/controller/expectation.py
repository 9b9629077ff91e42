# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long a rollout is expected to take, from what the service's instances took before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median

from ..base.errors import StoreError
from ..engine.forecast import forecast, settled
from ..engine.model import Instance, State
from ..engine.strategy import Stage
from ..report.progress import Expected
from .context import StepContext, StepPart


@dataclass(frozen=True)
class Times:
    """What an instance takes, in seconds (medians)."""

    start: float  # until it is ready
    stop: float  # from the drain to its end


class Expectation(StepPart):
    """Expect a rollout to take as long as the service's instances took in the one before."""

    @cached_property
    def times(self) -> Times | None:
        """What instances took in the last rollout that ended; None: not known."""
        record = self.step.record
        ids = [past["id"] for past in record.history[-1:] if "id" in past]
        if not ids:
            return None
        try:
            return measured(self.step, ids[0])
        except StoreError:
            return None  # an estimate is not worth a failure

    def along(self, path: Sequence[Stage]) -> Expected:
        """Return what expects the seconds that this path takes, without waits for gates."""

        def expected(fleet: Sequence[Instance]) -> float | None:
            if self.times is None or not path:
                return None
            settings, times = self.step.settings, self.times
            return forecast(
                [settled(instance) for instance in fleet if instance.state is State.READY],
                [stage.waypoint for stage in path],
                settings.budget,
                settings.rules,
                times.start,
                times.stop,
            ).seconds

        return expected


def measured(step: StepContext, rollout: str) -> Times | None:
    """Return what instances took in a rollout; None: no instance became ready in it."""
    first: dict[str, dict[str, float]] = {}
    for event in step.session.store.timeline(rollout):
        if event.get("kind") == "state" and event.keys() >= {"instance", "state", "at"}:
            first.setdefault(event["instance"], {}).setdefault(event["state"], event["at"])
    starts = _between(first.values(), "starting", "ready")
    stops = _between(first.values(), "draining", "stopped")
    return Times(median(starts), median(stops) if stops else 0.0) if starts else None


def _between(instances: Iterable[Mapping[str, float]], begin: str, end: str) -> list[float]:
    """Return how long each instance that was in both states took from one to the other."""
    return [states[end] - states[begin] for states in instances if states.keys() >= {begin, end}]
