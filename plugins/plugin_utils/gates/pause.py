# SPDX-License-Identifier: GPL-3.0-or-later
"""A pause: a rollout passes after a set time."""

from __future__ import annotations

import math
import typing as t
from collections.abc import Mapping

from ..base.text import span
from ..inputs.options import DURATION, Field, Options
from ..interfaces.context import DriverContext
from ..interfaces.gate import PASS, WAIT, Answer, GateDriver

OPTIONS = Options(
    Field("duration", DURATION, "How long the gate waits before it passes.", required=True)
)


class Driver(GateDriver):
    """Passes after a time."""

    blocking = False

    def __init__(self, options: Mapping[str, t.Any], context: DriverContext) -> None:
        self._duration = options["duration"]

    def ask(self, rollout: Mapping[str, t.Any], waited: float) -> Answer:
        left = self._duration - waited
        return (
            Answer(WAIT, f"{span(math.ceil(left))} left")
            if left > 0
            else Answer(PASS, f"{span(self._duration)} over")
        )
