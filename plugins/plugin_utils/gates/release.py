# SPDX-License-Identifier: GPL-3.0-or-later
"""A release: a member passes once its release lets it. `rollout_release` adds these gates."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ..base.errors import InputError, StoreError
from ..engine.release import BEGIN, LEAVE, PROMOTION, RETIRE, RETREAT
from ..inputs.options import TEXT, Field, Options, choice
from ..interfaces.context import DriverContext
from ..interfaces.gate import PASS, WAIT, Answer, GateDriver

AGAIN = 1.0  # seconds until asking again, as often as commands are read
OPTIONS = Options(
    Field(
        "point",
        choice(BEGIN, LEAVE, PROMOTION, RETIRE, RETREAT),
        "Where the member is. O(release) sets it.",
        required=True,
    ),
    Field("step", TEXT, "The step that it leaves. O(release) sets it."),
)


class Driver(GateDriver):
    """Asks the release of the rollout."""

    waiting = "waiting for the release"
    commanded = False

    def __init__(self, options: Mapping[str, t.Any], context: DriverContext) -> None:
        if context.release is None:
            raise InputError(
                "gate.driver: 'release' needs a release; set rollout_release, which adds these"
                " gates where they belong",
                "PR-107",
            )
        self._ask = context.release
        self._point, self._step = options["point"], options["step"] or ""

    def ask(self, rollout: Mapping[str, t.Any], waited: float) -> Answer:
        try:
            passage = self._ask(self._point, self._step)
        except StoreError as exc:  # nothing passes meanwhile, and nothing fails
            return Answer(WAIT, str(exc))
        if passage.may:
            return Answer(PASS, passage.why)
        return Answer(WAIT, passage.why, again=AGAIN, others=not passage.alone)
