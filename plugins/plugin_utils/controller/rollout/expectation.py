# SPDX-License-Identifier: GPL-3.0-or-later
"""How long a rollout is expected to take, from what the service's instances take."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from ...base import clock
from ...base.errors import StoreError
from ...engine.forecast import forecast, observed
from ...engine.model import Instance
from ...engine.strategy import Stage
from ...report.progress import Expected
from ..background.durations import Durations, MedianTimes
from ..step.context import StepContext, StepPart

PART = 0.05  # of the time that forecasts may take: those of a large fleet are made less often,
LOOKS = 40_000  # and look at so many instances, which takes a tenth of a second


class Expectation(StepPart):
    """Expect instances to take as long as in this rollout so far, or else as in the one before."""

    @cached_property
    def times(self) -> MedianTimes | None:
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
        """Return what expects the seconds that this path still takes, without waits for gates."""
        left: float | None = None
        at = due = float("-inf")  # when that was forecast, and is to be again

        def expected(fleet: Sequence[Instance]) -> float | None:
            nonlocal left, at, due
            began = clock.now()
            if began >= due:
                left, at = self._forecast(fleet, path), began
                due = began + (clock.now() - began) / PART
            return None if left is None else max(0.0, left - (began - at))

        return expected

    def _forecast(self, fleet: Sequence[Instance], path: Sequence[Stage]) -> float | None:
        """Return the seconds that the path takes from this fleet; None: that is not known."""
        settings, times = self.step.settings, self.loop.recorder.durations.times(self.times)
        if times is None or not path:
            return None
        return forecast(
            observed(fleet, clock.now()),
            [stage.waypoint for stage in path],
            settings.budget,
            settings.rules,
            times.start,
            times.stop,
            looks=LOOKS,
        ).seconds


def measured(step: StepContext, rollout: str) -> MedianTimes | None:
    """Return what instances took in a rollout; None: no instance became ready in it."""
    durations = Durations()
    for event in step.session.store.timeline(rollout):
        durations.take(event)
    return durations.times()
