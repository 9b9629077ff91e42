# SPDX-License-Identifier: GPL-3.0-or-later
"""Run a command of the operator's on the controller or on one inventory host, without a shell."""

from __future__ import annotations

import json
import typing as t
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ..base.errors import InputError, RolloutError
from ..inputs import values
from ..inputs.options import TEXT, Field, Kind, Options, duration
from ..inputs.placeholders import Template
from .connections import Command, Result
from .inventory import host_or_controller, label
from .transport import Transport


def argv(names: Collection[str]) -> Kind:
    """Return the kind of a command whose arguments may have these placeholders."""

    def command(given: t.Any, variable: str) -> list[str]:
        words = values.sequence(given, variable, '["/opt/shop/smoke-test", "{revision}"]')
        for word in words:
            if isinstance(word, bool) or not isinstance(word, (str, int)):
                raise InputError(
                    f"{variable}: expected a string, got {type(word).__name__}; put it in quotes",
                    "PR-118",
                )
            if "\0" in str(word):
                raise InputError(
                    f"{variable}: a NUL character cannot be passed to a command", "PR-127"
                )
            Template(str(word), variable, names)
        if not words or not str(words[0]):
            raise InputError(f"{variable}: its first word, the program, is empty", "PR-125")
        return [str(word) for word in words]

    return Kind("list", command, elements="str")


HOST = Field("host", TEXT, "Inventory host that the command runs on, the controller if not given.")


def options(names: Collection[str]) -> Options:
    """Return the options of a command whose arguments may have these placeholders."""
    return Options(
        Field("command", argv(names), "The program and its arguments.", required=True),
        HOST,
        Field("answer_within", duration(0.01), "How long the command may take.", default="60s"),
    )


_SHOWN = 200  # characters of its output


@dataclass(frozen=True)
class Ended:
    """How a command ended. `text` is for people, with the end of its output."""

    code: int
    stdout: str
    text: str


class Program:
    """Made of checked `OPTIONS` of a gate or a metric, which `variable` names; `names` are the
    placeholders it may have.
    """

    def __init__(
        self,
        options: Mapping[str, t.Any],
        transport: Transport,
        variable: str,
        names: Collection[str],
        error: type[RolloutError],
    ) -> None:
        self._error, self._timeout = error, options["answer_within"]
        self._command = [
            Template(word, f"{variable}.command", names) for word in options["command"]
        ]
        self._host = host_or_controller(transport, options["host"], f"{variable}.host")
        # a command may take long, and others need the host meanwhile
        self._transport = transport.apart()

    def run(self, facts: Mapping[str, t.Any], rollout: Mapping[str, t.Any]) -> Ended:
        """Run it, each argument filled in and still one argument, with the rollout as JSON on its
        standard input.

        Raises `error` where it cannot be run, or takes too long.
        """
        words = [word.render(facts) for word in self._command]
        command = Command(words, json.dumps(dict(rollout)).encode())
        try:
            result = self._transport.run({self._host: command}, self._timeout)[self._host]
        finally:
            self._transport.close()
        if result.unreachable:
            raise self._error(f"{words[0]} on {label(self._host)}: {result.unreachable}", result.id)
        return Ended(result.rc, result.stdout, f"{words[0]} ended with {result.rc}{_text(result)}")

    def end(self) -> None:
        """Kill a command under way, since it would outlive the run."""
        self._transport.abandon()


def _text(result: Result) -> str:
    """Return the end of a command's output, as one line."""
    words = " ".join(f"{result.stdout}\n{result.stderr}".split())
    text = "".join(char if char.isprintable() else "?" for char in words)[-_SHOWN:]
    return f": {text}" if text else ""
