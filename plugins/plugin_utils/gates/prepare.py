# SPDX-License-Identifier: GPL-3.0-or-later
"""Preparation: a rollout passes once every host has what its revision needs.

What is missing is brought there.
"""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ..base.errors import RolloutError, TransportError
from ..inputs.options import DURATION, Field, Options
from ..interfaces.context import DriverContext
from ..interfaces.gate import FAIL, PASS, WAIT, Answer, GateDriver

OPTIONS = Options(
    Field(
        "longest",
        DURATION,
        "How long to wait for a server that is away. The preparation of a rollout waits for"
        " O(progress_deadline).",
        default=0,
    ),
)
RETRY = 1.0  # seconds until a server that is away is asked again


class Driver(GateDriver):
    """Prepares hosts over connections of its own, since others need the hosts meanwhile."""

    waiting = "preparing the hosts"

    def __init__(self, options: Mapping[str, t.Any], context: DriverContext) -> None:
        self._context = context
        self._longest: float = options["longest"]

    def ask(self, rollout: Mapping[str, t.Any], waited: float) -> Answer:
        transport = self._context.transport.apart()
        try:
            self._context.platform(transport).prepare(rollout["revision"], rollout["generation"])
        except TransportError as exc:
            waits = exc.silent and waited < self._longest
            if waits:
                return Answer(WAIT, f"{exc} [{exc.id}]", again=RETRY)
            return Answer(FAIL, str(exc))
        except RolloutError as exc:
            return Answer(FAIL, str(exc))
        finally:
            transport.close()
        return Answer(PASS, "every host has what the revision needs")
