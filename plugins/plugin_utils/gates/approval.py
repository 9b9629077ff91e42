# SPDX-License-Identifier: GPL-3.0-or-later
"""An approval: an approver lets a rollout pass.

The command `promote` always does, which is not this driver's business. So can

- a file on the controller (`file`): it passes once it exists. If its first word is `no` or
  `rejected`, the gate fails.
- a web service (`url`), asked by GET: 2xx passes; 202, 404, 409 and 425 are not yet; anything else
  fails.

`{service}`, `{revision}`, `{previous}` and `{id}` are placeholders in both. A file that decides
goes before the service.
"""

from __future__ import annotations

import os
import stat
import typing as t
from collections.abc import Mapping

from ..base import clock
from ..base.errors import GateError
from ..inputs import values
from ..inputs.options import Field, Kind, Options
from ..inputs.placeholders import Template
from ..interfaces.context import DriverContext
from ..interfaces.gate import FAIL, PASS, WAIT, Answer, GateDriver
from ..remote.http_client import Client, origin, url


def _file(value: t.Any, variable: str) -> str:
    path = values.absolute(value, variable)
    Template(path, variable)
    return path


OPTIONS = Options(
    Field(
        "file",
        Kind("str", _file, "An absolute path."),
        "File on the controller. The gate passes once the file exists, and fails if its first word"
        " is V(no) or V(rejected).",
    ),
    Field(
        "url",
        Kind("str", url),
        "URL that is polled with GET. 2xx passes, 202, 404, 409 and 425 mean not yet, anything else"
        " fails.",
    ),
)

_NOT_YET = (202, 404, 409, 425)
_NO = ("no", "rejected")
_LIMIT = 2000  # characters read of a file
_SETTLED = 1.0  # seconds until an empty file counts: `echo no > file` is empty for a moment, too
_TIMEOUT = 10.0  # seconds for the answer of the service


class Driver(GateDriver):
    """Passes once a person has approved."""

    def __init__(self, options: Mapping[str, t.Any], context: DriverContext) -> None:
        file, address = options.get("file"), options.get("url")
        self._file = Template(file, "gate.file") if file else None
        self._url = Template(address, "gate.url") if address else None
        if address:
            self._client = Client(timeout=_TIMEOUT)
        self.blocking = bool(file or address)

    def ask(self, rollout: Mapping[str, t.Any], waited: float) -> Answer:
        file = self._file.render(rollout) if self._file else ""
        if file and (answer := _read(file)):
            return answer
        if self._url:
            return self._get(self._url.render(rollout, quoted=True))
        return Answer(WAIT, f"for promote, or for the file {file}" if file else "for promote")

    def _get(self, address: str) -> Answer:
        reply = self._client.ask("GET", address)
        if reply.status in _NOT_YET:
            return Answer(WAIT, f"for promote, or for {origin(address)} ({reply})")
        return Answer(
            PASS if 200 <= reply.status < 300 else FAIL, f"{origin(address)} returned {reply}"
        )


def _read(path: str) -> Answer | None:
    """Return the answer of a file; None if it does not exist, or may not be written yet."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            raise GateError(
                f"{path} is not a regular file; remove it, or name another in gate.file", "PR-404"
            )
        with open(path, encoding="utf-8", errors="replace") as stream:
            words = stream.read(_LIMIT).split()
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise GateError(f"{path} cannot be read: {exc.strerror}", "PR-404") from None
    if not words and 0 <= clock.wall() - status.st_mtime < _SETTLED:
        return None
    if words and words[0].lower().rstrip(".,:;!") in _NO:
        return Answer(
            FAIL, " ".join(["rejected:", *words[1:]]) if words[1:] else f"rejected by {path}"
        )
    return Answer(PASS, f"approved by {path}")
