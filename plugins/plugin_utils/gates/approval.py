# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A person: lets a rollout pass when somebody said so.

With the word `promote`, always (that is not this driver's business); with a file on the controller, if `file` names one;
or with the answer of a web service, if `url` does:

- The file lets it pass by being there. If its first word is `no` or `rejected`, the rest is why not.
- The service is asked by GET. 2xx lets it pass; 202, 404, 409 and 425 are `not yet`; anything else is a no.

`{service}`, `{revision}`, `{previous}` and `{id}` are filled in in both. A file that says something goes before the service.
"""

from __future__ import annotations

import os
import stat
import time
import typing as t
from collections.abc import Mapping

from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import GateError
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs import values
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs.options import Field, Kind, Options
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs.placeholders import fill
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import Context
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.gate import FAIL, PASS, WAIT, Answer, GateDriver
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.http import Client, origin, url


def _file(value: t.Any, variable: str) -> str:
    path = values.absolute(value, variable)
    fill(path, variable)
    return path


OPTIONS = Options(
    Field(
        "file",
        Kind("str", _file, "An absolute path."),
        "File on the controller. The gate passes once the file exists, and fails if its first word is V(no) or V(rejected).",
    ),
    Field(
        "url",
        Kind("str", url),
        "URL that is asked by GET. 2xx passes, 202, 404, 409 and 425 are not yet, anything else fails.",
    ),
)

_NOT_YET = (202, 404, 409, 425)
_NO = ("no", "rejected")
_LIMIT = 2000  # characters read of a file
_SETTLED = 1.0  # s after which an empty file is believed: `echo no > file` is empty, too, for a moment
_TIMEOUT = 10.0  # s the service has for an answer


class Driver(GateDriver):
    """A `drivers.GateDriver`."""

    def __init__(self, options: Mapping[str, t.Any], context: Context) -> None:
        self._file, self._url = options.get("file") or "", options.get("url") or ""
        if self._url:
            self._client = Client(timeout=_TIMEOUT)
        self.blocking = bool(self._file or self._url)

    def ask(self, rollout: Mapping[str, t.Any], waited: float) -> Answer:
        file = fill(self._file, "gate.file", rollout)
        return (
            (_read(file) if file else None)
            or (self._get(rollout) if self._url else None)
            or Answer(WAIT, f"for promote, or for the file {file}" if file else "for promote")
        )

    def _get(self, rollout: Mapping[str, t.Any]) -> Answer:
        address = fill(self._url, "gate.url", rollout, quoted=True)
        reply = self._client.ask("GET", address)
        if reply.status in _NOT_YET:
            return Answer(WAIT, f"for promote, or for {origin(address)} ({reply})")
        return Answer(PASS if 200 <= reply.status < 300 else FAIL, f"{origin(address)} said {reply}")


def _read(path: str) -> Answer | None:
    """What a file says; None if it is not there, or perhaps not written yet."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            raise GateError(f"{path} is not a file; remove it, or name another in gate.file")
        with open(path, encoding="utf-8", errors="replace") as stream:
            words = stream.read(_LIMIT).split()
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise GateError(f"{path} cannot be read: {exc.strerror}") from None
    if not words and 0 <= time.time() - status.st_mtime < _SETTLED:
        return None
    if words and words[0].lower().rstrip(".,:;!") in _NO:
        return Answer(FAIL, " ".join(["rejected:", *words[1:]]) if words[1:] else f"rejected by {path}")
    return Answer(PASS, f"approved by {path}")
