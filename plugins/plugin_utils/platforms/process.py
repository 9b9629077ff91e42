# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plain processes on inventory hosts; nothing of ours stays resident there. `agents/process.py` does the work.

A command must stay in the foreground: its process is the instance. Its output goes to a log on the host.
"""

from __future__ import annotations

import signal
import typing as t
from collections.abc import Mapping

from ansible_collections.progressive.rollout.plugins.plugin_utils.drivers import Context, Labels
from ansible_collections.progressive.rollout.plugins.plugin_utils.errors import InputError
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms import _hosts

OPTIONS: dict[str, t.Any] = {
    **_hosts.OPTIONS,
    "command": {"type": "raw", "required": True},  # a list; Ansible would make one of a text with commas
    "cwd": {"type": "str", "default": "/"},
    "stop_signal": {"type": "str", "default": "TERM"},
}
KEEP_LOGS = 20


class Driver(_hosts.Hosts):
    """A service's processes on the hosts of `rollout_platform.hosts`."""

    agent = "process"

    def __init__(self, options: Mapping[str, t.Any], context: Context) -> None:
        given = {name: options.get(name, spec.get("default")) for name, spec in OPTIONS.items()}
        self._command = _command(given["command"])
        self._cwd = _hosts.directory(given["cwd"], "rollout_platform.cwd")
        _hosts.fill(self._cwd, "rollout_platform.cwd")
        self._signal = _signal(given["stop_signal"])
        super().__init__(given, context)

    def _common(self) -> dict[str, t.Any]:
        return {"stop_signal": self._signal, "keep_logs": KEEP_LOGS}

    def _order(self, labels: Labels, known: Mapping[str, str]) -> dict[str, t.Any]:
        return {
            "argv": [_hosts.fill(word, "rollout_platform.command", known) for word in self._command],
            "cwd": _hosts.fill(self._cwd, "rollout_platform.cwd", known),
        }

    def _needs(self) -> dict[str, t.Any]:
        program = self._command[0]
        return {
            "program": "" if "{" in program else program,  # what a placeholder names may only come with the revision
            "search": self._env.get("PATH", ""),
            "cwd": "" if "{" in self._cwd else self._cwd,
        }

    def _artefacts(self, known: Mapping[str, str]) -> dict[str, t.Any]:
        program, cwd = (_hosts.fill_known(text, known) for text in (self._command[0], self._cwd))
        return {"program": program, "search": self._env.get("PATH", ""), "cwd": cwd}


def _command(given: t.Any) -> list[str]:
    if not isinstance(given, (list, tuple)) or not given:
        example = '["/opt/shop/shop", "--port", "{port}"]'
        raise InputError(f"rollout_platform.command: {given!r} is not a list of words; write {example}")
    words = [_hosts.text(word, "rollout_platform.command") for word in given]
    for word in words:
        _hosts.fill(word, "rollout_platform.command")
    if not words[0]:
        raise InputError("rollout_platform.command: its first word, the program, is empty")
    return words


def _signal(value: t.Any) -> str:
    name = str(value).upper().removeprefix("SIG")
    if f"SIG{name}" not in signal.Signals.__members__:
        raise InputError(f"rollout_platform.stop_signal: {value!r} is not a signal; write a name like TERM, INT or QUIT")
    return name
