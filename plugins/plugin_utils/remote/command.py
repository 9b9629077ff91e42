# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A command of the operator's that is asked something: on the controller or on one inventory host, without a shell."""

from __future__ import annotations

import json
import typing as t
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import InputError, RolloutError
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs import values
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs.placeholders import fill
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.connections import CONTROLLER, Command, Result, Transport

OPTIONS: dict[str, t.Any] = {
    "command": {"type": "raw", "required": True},  # not a list of Ansible's, which a string becomes without a word
    "host": {"type": "str"},
    "answer_within": {"type": "str", "default": "60s"},
}

_SHOWN = 200  # characters of its output


@dataclass(frozen=True)
class Ended:
    """How it ended. `text` says it to people, with the end of its output."""

    code: int
    stdout: str
    text: str


class Program:
    """Made of checked `OPTIONS` of a gate or a metric, which `variable` names; `names` are the placeholders it may have."""

    def __init__(
        self, options: Mapping[str, t.Any], transport: Transport, variable: str, names: Collection[str], error: type[RolloutError]
    ) -> None:
        self._variable, self._names, self._error = variable, names, error
        self._command = self._words(options.get("command"))
        self._timeout = values.duration(options.get("answer_within") or "60s", f"{variable}.answer_within", minimum=0.01)
        self._host = options.get("host") or CONTROLLER
        if self._host != CONTROLLER and (found := transport.hosts(self._host)) != [self._host]:
            what = f"names {len(found)} hosts" if found else "is not in the inventory"
            raise InputError(f"{variable}.host: {self._host!r} {what}; name one inventory host, or none for the controller")
        self._transport = transport.apart()  # a command may take long, and others need the host meanwhile

    def run(self, facts: Mapping[str, t.Any], rollout: Mapping[str, t.Any]) -> Ended:
        """Run it, each argument filled in and still one argument, with the rollout as JSON on its standard input.

        Raises `error` where it cannot be run, or takes too long.
        """
        argv = [fill(word, f"{self._variable}.command", facts, names=self._names) for word in self._command]
        command = Command(argv, json.dumps(dict(rollout)).encode())
        try:
            result = self._transport.run({self._host: command}, self._timeout)[self._host]
        finally:
            self._transport.close()
        if result.unreachable:
            raise self._error(f"{argv[0]} on {self._host or 'the controller'}: {result.unreachable}")
        return Ended(result.rc, result.stdout, f"{argv[0]} ended with {result.rc}{_said(result)}")

    def end(self) -> None:
        """Nobody waits for it any more: one under way is killed, since it would outlive the run."""
        self._transport.abandon()

    def _words(self, given: t.Any) -> list[str]:
        variable = f"{self._variable}.command"
        if not isinstance(given, (list, tuple)) or not given:
            raise InputError(f'{variable}: it is not a list of words; write ["/opt/shop/smoke-test", "{{revision}}"]')
        for word in given:
            if isinstance(word, bool) or not isinstance(word, (str, int)):
                raise InputError(f"{variable}: a word of the type {type(word).__name__} is not text; put it in quotes")
            if "\0" in str(word):
                raise InputError(f"{variable}: a NUL character cannot be passed to a command")
            fill(str(word), variable, names=self._names)
        if not str(given[0]):
            raise InputError(f"{variable}: its first word, the program, is empty")
        return [str(word) for word in given]


def _said(result: Result) -> str:
    """The end of its output, as one line."""
    words = " ".join(f"{result.stdout}\n{result.stderr}".split())
    text = "".join(char if char.isprintable() else "?" for char in words)[-_SHOWN:]
    return f": {text}" if text else ""
