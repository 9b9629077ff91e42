# SPDX-License-Identifier: GPL-3.0-or-later
"""Instances of a systemd template unit on inventory hosts, `shop@<slot>.service`.

`agents/systemd.py` does the work.

The template is the same for all revisions. What differs, the command included, is in each
instance's environment file.
"""

from __future__ import annotations

import posixpath
import re
import shlex
import typing as t
from collections.abc import Mapping
from dataclasses import replace

from ..agents import systemd as agent
from ..base.errors import InputError
from ..inputs import values
from ..inputs.options import FLAG, Field, Kind, Options
from ..interfaces.context import DriverContext
from ..interfaces.platform import Labels
from . import _options
from ._hosts import Hosts


def _unit(value: t.Any, variable: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9:_.\\-]+@\.service", str(value)):
        raise InputError(
            f"{variable}: {value!r} is not a template of services; write a name like shop@.service",
            "PR-120",
        )
    return str(value)


def _path(value: t.Any, variable: str) -> str:
    """Return a directory that a unit can contain without quotes."""
    path = values.absolute(value, variable)
    if not re.fullmatch(r"[A-Za-z0-9/._+:@~,=-]+", path):
        raise InputError(
            f"{variable}: {path!r} cannot be in a unit; write it with letters, digits and / . _ -"
            " only",
            "PR-123",
        )
    return posixpath.normpath(path)


def _user(value: t.Any, variable: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]*", str(value)):
        raise InputError(
            f"{variable}: {value!r} is not the name of a user; write the name it has on the hosts",
            "PR-120",
        )
    return str(value)


def _environment(given: t.Any, variable: str) -> dict[str, str]:
    """Return environment variables; refuse names that systemd would silently leave out."""
    env = _options.environment(given, variable)
    for name in env:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or name.startswith("ROLLOUT_"):
            reserved = name.startswith("ROLLOUT_")
            why = "ROLLOUT_ is reserved" if reserved else "systemd knows letters, digits and _ only"
            raise InputError(
                f"{variable}: {name!r} cannot be the name of an environment variable; {why}",
                "PR-120",
            )
    return env


OPTIONS = Options(
    *_options.OPTIONS.fields,
    replace(_options.OPTIONS["path"], kind=Kind("str", _path, "An absolute path.")),
    replace(_options.OPTIONS["env"], kind=Kind("dict", _environment)),
    Field(
        "unit",
        Kind("str", _unit),
        "Template unit of your own (V(shop@.service)), which must contain"
        " C(EnvironmentFile=/var/lib/rollout/env/%n). Without it, the rollout writes one from the"
        " options that follow.",
    ),
    Field("command", _options.COMMAND, "The program and its arguments. Required without C(unit)."),
    Field("cwd", _options.DIRECTORY, "Working directory, V(/) if not given."),
    Field("user", Kind("str", _user), "User that runs the program, V(root) if not given."),
    Field(
        "notify",
        FLAG,
        "Whether the program itself tells systemd when it is ready (C(Type=notify)).",
    ),
    Field(
        "stop_signal",
        _options.SIGNAL,
        "Signal that asks an instance to stop, V(TERM) if not given.",
    ),
)
TEMPLATE_OPTIONS = (
    "command",
    "cwd",
    "user",
    "notify",
    "stop_signal",
)  # what the rollout's template is made of
SEARCH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"  # systemd's PATH for services

# the template's lines that may differ from revision to revision
SHAPE = ("Type=", "User=", "KillSignal=", "TimeoutStopSec=")
# Its program, and the arguments, are the shell's business: systemd would take none of a variable.
START = 'cd "$$ROLLOUT_CWD" && eval "unset ROLLOUT_CWD ROLLOUT_COMMAND; exec $$ROLLOUT_COMMAND"'
TEMPLATE = f"""\
{agent.OURS} for the service {{service}}, and again when it differs:
# put your changes into {{template}}.d/
[Unit]
Description={{service}}, slot %i
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
Type={{type}}
EnvironmentFile={{path}}/env/%n
ExecStart=/bin/sh -c '{START}'
User={{user}}
KillSignal=SIG{{signal}}
TimeoutStopSec={{stop_timeout}}ms
Restart=on-failure
RestartSec=2

[Install]
WantedBy=multi-user.target
"""


class Driver(Hosts):
    """A service's units on the hosts of `rollout_platform.hosts`."""

    _agent, _table = "systemd", OPTIONS

    def __init__(self, options: Mapping[str, t.Any], context: DriverContext) -> None:
        self._own = options["unit"] is not None
        self._template = options["unit"] or f"{context.service}@.service"
        super().__init__(options, context)
        if self._own:
            _only_unit(options)
        elif options["command"] is None:
            raise InputError(
                "rollout_platform.command: not given; give it, or a template of your own as"
                " rollout_platform.unit",
                "PR-102",
            )
        self._command = options["command"] or []
        self._cwd, self._user = options["cwd"] or "/", options["user"] or "root"
        self._text = (
            ""
            if self._own
            else self._rendered(bool(options["notify"]), options["stop_signal"] or "TERM")
        )

    def _rendered(self, notify: bool, signal: str) -> str:
        return TEMPLATE.format(
            service=self.context.service,
            template=self._template,
            type="notify" if notify else "simple",
            path=self._path,
            user=self._user,
            signal=signal,
            stop_timeout=max(1, round(self._stop_timeout * 1000)),
        )

    def log_of(self, id: str, host: str) -> str:
        """Return how the journal of an instance's host is read."""
        return f"on {host}: journalctl -u '{self._template.replace('@.', '@*.')}'"

    def log_source(self, id: str, host: str) -> Mapping[str, str]:
        """Return the instance's record, which has its unit."""
        return {"record": f"{self._path}/{host}/{self.context.service}/instances/{id}.json"}

    def _common(self) -> dict[str, t.Any]:
        return {"template": self._template, "text": self._text}

    def _order(self, labels: Labels, known: Mapping[str, str]) -> dict[str, t.Any]:
        if self._own:
            return {"command": "", "cwd": "", "template": self._template, "shape": []}
        words = [_options.fill(word, "rollout_platform.command", known) for word in self._command]
        return {
            "command": shlex.join(words),
            "cwd": _options.fill(self._cwd, "rollout_platform.cwd", known),
            "template": self._template,
            "shape": [line for line in self._text.splitlines() if line.startswith(SHAPE)],
        }

    def _needs(self) -> dict[str, t.Any]:
        return self._wants({})  # what a placeholder names may only come with the revision

    def _artefacts(self, known: Mapping[str, str]) -> dict[str, t.Any]:
        return self._wants(known)

    def _wants(self, known: Mapping[str, str]) -> dict[str, t.Any]:
        """Return what there has to be on a host, as far as the placeholders are known."""
        program = "" if self._own else self._command[0]
        return {
            **self._common(),
            "path": self._path,
            "home": (
                posixpath.join(self._path, known.get("host", ""), self.context.service)
                if known
                else ""
            ),
            "user": "" if self._own else self._user,
            "program": _options.fill_known(program, known),
            "search": self._env.get("PATH", SEARCH),
            "cwd": "" if self._own else _options.fill_known(self._cwd, known),
        }


def _only_unit(given: Mapping[str, t.Any]) -> None:
    """Refuse what a unit of the user's own says itself."""
    for name in TEMPLATE_OPTIONS:
        if given[name] is not None:
            raise InputError(
                f"rollout_platform.{name}: cannot be given with rollout_platform.unit;"
                f" {given['unit']} says it itself",
                "PR-107",
            )
