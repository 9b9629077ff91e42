# SPDX-License-Identifier: GPL-3.0-or-later
"""Preparation: a rollout passes once every host has what its revision needs.

What is missing is brought there.
"""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ..base.errors import RolloutError
from ..inputs.options import Options
from ..interfaces.context import DriverContext
from ..interfaces.gate import FAIL, PASS, Answer, GateDriver

OPTIONS = Options()


class Driver(GateDriver):
    """Prepares hosts over connections of its own, since others need the hosts meanwhile."""

    waiting = "preparing the hosts"

    def __init__(self, options: Mapping[str, t.Any], context: DriverContext) -> None:
        self._context = context

    def ask(self, rollout: Mapping[str, t.Any], waited: float) -> Answer:
        transport = self._context.transport.apart()
        try:
            self._context.platform(transport).prepare(rollout["revision"], rollout["generation"])
        except RolloutError as exc:
            return Answer(FAIL, str(exc))
        finally:
            transport.close()
        return Answer(PASS, "every host has what the revision needs")
