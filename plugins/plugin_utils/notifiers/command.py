# SPDX-License-Identifier: GPL-3.0-or-later
"""A command on the controller or on one inventory host, without a shell.

It gets the notice as JSON on its standard input, with the message as `message`. `{event}`,
`{service}`, `{revision}`, `{previous}`, `{rollout}` and `{id}` are placeholders in each argument,
which stays one argument. It has told whoever it tells when it exits with 0.
"""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ..base.errors import NotifyError
from ..interfaces.context import DriverContext
from ..interfaces.notifier import Notice, NotifierDriver
from ..remote import command

NAMES = ("event", "service", "revision", "previous", "rollout", "id")
OPTIONS = command.options(NAMES)


class Driver(NotifierDriver):
    """Runs a command."""

    def __init__(self, options: Mapping[str, t.Any], context: DriverContext) -> None:
        self.timeout = options["answer_within"] + 5.0  # a connection may have to be opened
        self._program = command.Program(options, context.transport, "notify", NAMES, NotifyError)

    def send(self, notice: Notice, text: str) -> None:
        facts = notice.facts
        ended = self._program.run(facts, {**facts, "message": text or notice.text})
        if ended.code != 0:
            raise NotifyError(ended.text, "PR-631")

    def cancel(self) -> None:
        self._program.end()
