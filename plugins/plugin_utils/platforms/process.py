# SPDX-License-Identifier: GPL-3.0-or-later
"""Plain processes on inventory hosts; no agent stays there.

`agents/process.py` does the work.

A command must stay in the foreground: its process is the instance. Its output goes to a log on the
host.
"""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ..inputs.options import Field, Options
from ..interfaces.context import DriverContext
from ..interfaces.platform import Labels
from . import _options
from ._hosts import Hosts

OPTIONS = Options(
    *_options.OPTIONS.fields,
    Field(
        "command",
        _options.COMMAND,
        "The program and its arguments. The program must stay in the foreground.",
        required=True,
    ),
    Field("cwd", _options.DIRECTORY, "Working directory.", default="/"),
    Field("stop_signal", _options.SIGNAL, "Signal that asks an instance to stop.", default="TERM"),
)


class Driver(Hosts):
    """A service's processes on the hosts of `rollout_platform.hosts`."""

    _agent, _table, _tells_ends = "process", OPTIONS, True

    def __init__(self, options: Mapping[str, t.Any], context: DriverContext) -> None:
        self._command = options["command"]
        self._cwd = options["cwd"]
        self._signal = options["stop_signal"]
        super().__init__(options, context)

    def log_of(self, id: str, host: str) -> str:
        """Return the file of an instance's log."""
        return f"{host}:{self.log_source(id, host)['file']}"

    def log_source(self, id: str, host: str) -> Mapping[str, str]:
        return {"file": f"{self._path}/{host}/{self.context.service}/logs/{id}.log"}

    def _common(self) -> dict[str, t.Any]:
        return {"stop_signal": self._signal}

    def _order(self, labels: Labels, known: Mapping[str, str]) -> dict[str, t.Any]:
        return {
            "argv": [
                _options.fill(word, "rollout_platform.command", known) for word in self._command
            ],
            "cwd": _options.fill(self._cwd, "rollout_platform.cwd", known),
            "stop_signal": self._signal,
        }

    def _needs(self) -> dict[str, t.Any]:
        program = self._command[0]
        return {
            # what a placeholder names may only come with the revision
            "program": "" if "{" in program else program,
            "search": self._env.get("PATH", ""),
            "cwd": "" if "{" in self._cwd else self._cwd,
        }

    def _artefacts(self, known: Mapping[str, str]) -> dict[str, t.Any]:
        program, cwd = (_options.fill_known(text, known) for text in (self._command[0], self._cwd))
        return {"program": program, "search": self._env.get("PATH", ""), "cwd": cwd}
