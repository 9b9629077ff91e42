# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A command: lets a rollout pass when it exits with 0. With 75 it says `not yet`, with anything else no.

It runs on the controller, or on one inventory host over its own connection, without a shell, and gets the rollout as JSON
on its standard input. `{service}`, `{revision}`, `{previous}` and `{id}` are filled in in each argument, which stays one
argument. A command on another host that takes too long may go on there: only its connection can be ended from here.
"""

from __future__ import annotations

import json
import typing as t
from collections.abc import Mapping

from ansible_collections.progressive.rollout.plugins.plugin_utils import values
from ansible_collections.progressive.rollout.plugins.plugin_utils.drivers import FAIL, PASS, WAIT, Answer, Context
from ansible_collections.progressive.rollout.plugins.plugin_utils.errors import GateError, InputError
from ansible_collections.progressive.rollout.plugins.plugin_utils.gates._fill import fill
from ansible_collections.progressive.rollout.plugins.plugin_utils.transport import CONTROLLER, Command, Result

OPTIONS: dict[str, t.Any] = {
    "command": {"type": "raw", "required": True},  # not a list of Ansible's, which a string becomes without a word
    "host": {"type": "str"},
    "answer_within": {"type": "str", "default": "60s"},
}

_NOT_YET = 75  # EX_TEMPFAIL of sysexits.h
_SHOWN = 200  # characters of its output


class Driver:
    """A `drivers.GateDriver`."""

    def __init__(self, options: Mapping[str, t.Any], context: Context) -> None:
        self._command = _command(options.get("command"))
        self._timeout = values.duration(options.get("answer_within") or "60s", "gate.answer_within", minimum=0.01)
        self._host = options.get("host") or CONTROLLER
        if self._host != CONTROLLER and (found := context.transport.hosts(self._host)) != [self._host]:
            what = f"names {len(found)} hosts" if found else "is not in the inventory"
            raise InputError(f"gate.host: {self._host!r} {what}; name one inventory host, or none for the controller")
        self._transport = context.transport.apart()  # a command may take long, and others need the host meanwhile

    def ask(self, rollout: Mapping[str, t.Any], waited: float) -> Answer:
        argv = [fill(word, "gate.command", rollout) for word in self._command]
        command = Command(argv, json.dumps(dict(rollout)).encode())
        try:
            result = self._transport.run({self._host: command}, self._timeout)[self._host]
        finally:
            self._transport.close()
        if result.unreachable:
            raise GateError(f"{argv[0]} on {self._host or 'the controller'}: {result.unreachable}")
        verdict = {0: PASS, _NOT_YET: WAIT}.get(result.rc, FAIL)
        return Answer(verdict, f"{argv[0]} ended with {result.rc}{_said(result)}")

    def end(self) -> None:
        """Nobody waits for the answer any more: a command under way is killed, since it would outlive the run."""
        self._transport.abandon()


def _command(given: t.Any) -> list[str]:
    if not isinstance(given, (list, tuple)) or not given:
        raise InputError('gate.command: it is not a list of words; write ["/opt/shop/smoke-test", "{revision}"]')
    for word in given:
        if isinstance(word, bool) or not isinstance(word, (str, int)):
            raise InputError(f"gate.command: a word of the type {type(word).__name__} is not text; put it in quotes")
        if "\0" in str(word):
            raise InputError("gate.command: a NUL character cannot be passed to a command")
        fill(str(word), "gate.command")
    if not str(given[0]):
        raise InputError("gate.command: its first word, the program, is empty")
    return [str(word) for word in given]


def _said(result: Result) -> str:
    """The end of its output, as one line."""
    words = " ".join(f"{result.stdout}\n{result.stderr}".split())
    text = "".join(char if char.isprintable() else "?" for char in words)[-_SHOWN:]
    return f": {text}" if text else ""
