# SPDX-License-Identifier: GPL-3.0-or-later
"""A command: a rollout passes when it exits with 0. 75 is not yet, anything else fails.

It runs on the controller, or on one inventory host over a connection of its own, without a shell,
and gets the rollout as JSON on its standard input. `{service}`, `{revision}`, `{previous}` and
`{id}` are placeholders in each argument, which stays one argument. A command on another host may
outlive its timeout: only its connection can be ended from here.
"""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ..base.errors import GateError
from ..inputs.placeholders import OF_GATES
from ..interfaces.context import DriverContext
from ..interfaces.gate import FAIL, PASS, WAIT, Answer, GateDriver
from ..remote import command

OPTIONS = command.options(OF_GATES)

_NOT_YET = 75  # EX_TEMPFAIL of sysexits.h


class Driver(GateDriver):
    """Passes when a command exits with 0."""

    def __init__(self, options: Mapping[str, t.Any], context: DriverContext) -> None:
        self._program = command.Program(options, context.transport, "gate", OF_GATES, GateError)

    def cancel(self) -> None:
        self._program.end()

    def ask(self, rollout: Mapping[str, t.Any], waited: float) -> Answer:
        ended = self._program.run(rollout, rollout)
        return Answer({0: PASS, _NOT_YET: WAIT}.get(ended.code, FAIL), ended.text)
