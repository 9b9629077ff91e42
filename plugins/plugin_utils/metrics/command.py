# SPDX-License-Identifier: GPL-3.0-or-later
"""Measurements from a command that exits with 0 and prints JSON, such as a number.

Anything else is an error, not a failure.

It runs on the controller, or on one inventory host over a connection of its own, without a shell,
and gets the rollout as JSON on its standard input. A judge that compares needs a mapping with `new`
and `stable`. `{service}`, `{revision}`, `{stable}`, `{previous}`, `{step}`, `{start}`, `{elapsed}`
and `{id}` are placeholders in each argument, which stays one argument.
"""

from __future__ import annotations

import json
import typing as t
from collections.abc import Mapping

from ..base.errors import MetricError
from ..inputs.placeholders import OF_METRICS
from ..interfaces.context import DriverContext
from ..interfaces.metric import MetricDriver, Question
from ..remote import command
from ._facts import facts

OPTIONS = command.options(OF_METRICS)


class Driver(MetricDriver):
    """Measures by running a command."""

    def __init__(self, options: Mapping[str, t.Any], context: DriverContext) -> None:
        self._program = command.Program(
            options, context.transport, "metric", OF_METRICS, MetricError
        )

    def cancel(self) -> None:
        self._program.end()

    def measure(self, question: Question) -> t.Any:
        ended = self._program.run(facts(question), question.rollout)
        if ended.code:
            raise MetricError(ended.text, "PR-426")
        try:
            return json.loads(ended.stdout)
        except (ValueError, RecursionError):
            raise MetricError(f"{ended.text}, which is not JSON", "PR-426") from None
