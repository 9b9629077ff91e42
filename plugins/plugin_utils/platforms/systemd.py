# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Units of a systemd template on inventory hosts, `shop@<slot>.service`. `agents/systemd.py` does the work.

The template is the same for all revisions. What differs stands in each instance's environment file, our template's command too.
"""

from __future__ import annotations

import posixpath
import re
import shlex
import typing as t
from collections.abc import Mapping

from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import systemd as agent
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import InputError
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import Context
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import Labels
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms import _hosts

OPTIONS: dict[str, t.Any] = {
    **_hosts.OPTIONS,
    "unit": {"type": "str"},
    "command": {"type": "raw"},  # a list; Ansible would make one of a text with commas
    "cwd": {"type": "str"},
    "user": {"type": "str"},
    "notify": {"type": "bool"},
    "stop_signal": {"type": "str"},
}
OF_OURS = ("command", "cwd", "user", "notify", "stop_signal")  # what our own template is made of
SEARCH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"  # systemd's PATH for services

SHAPE = ("Type=", "User=", "KillSignal=", "TimeoutStopSec=")  # the template's lines that may differ from revision to revision
# Its program, and the arguments, are the shell's business: systemd would take none of a variable.
START = 'cd "$$ROLLOUT_CWD" && eval "unset ROLLOUT_CWD ROLLOUT_COMMAND; exec $$ROLLOUT_COMMAND"'
TEMPLATE = f"""\
{agent.OURS} for the service {{service}}, and again when it differs: put what you want to change into {{template}}.d/
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


class Driver(_hosts.Hosts):
    """A service's units on the hosts of `rollout_platform.hosts`."""

    agent = "systemd"

    def __init__(self, options: Mapping[str, t.Any], context: Context) -> None:
        given = {name: options.get(name, spec.get("default")) for name, spec in OPTIONS.items()}
        self._own = given["unit"] is not None
        self._template = _unit(given["unit"]) if self._own else f"{context.service}@.service"
        super().__init__(given, context)
        self._path = _path(self._path)
        _names(self._env)
        if self._own:
            _only_unit(given)
        self._command = [] if self._own else _program(given["command"])
        self._cwd = _hosts.directory(given["cwd"] or "/", "rollout_platform.cwd")
        _hosts.fill(self._cwd, "rollout_platform.cwd")
        self._user = _user(given["user"] or "root")
        self._text = (
            "" if self._own else self._rendered(bool(given["notify"]), _hosts.stop_signal(given["stop_signal"] or "TERM"))
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

    def _common(self) -> dict[str, t.Any]:
        return {"template": self._template, "text": self._text}

    def _order(self, labels: Labels, known: Mapping[str, str]) -> dict[str, t.Any]:
        if self._own:
            return {"command": "", "cwd": "", "template": self._template, "shape": []}
        words = [_hosts.fill(word, "rollout_platform.command", known) for word in self._command]
        return {
            "command": shlex.join(words),
            "cwd": _hosts.fill(self._cwd, "rollout_platform.cwd", known),
            "template": self._template,
            "shape": [line for line in self._text.splitlines() if line.startswith(SHAPE)],
        }

    def _needs(self) -> dict[str, t.Any]:
        return self._wants({})  # what a placeholder names may only come with the revision

    def _artefacts(self, known: Mapping[str, str]) -> dict[str, t.Any]:
        return self._wants(known)

    def _wants(self, known: Mapping[str, str]) -> dict[str, t.Any]:
        """What there has to be on a host, as far as the placeholders are known."""
        program = "" if self._own else self._command[0]
        return {
            **self._common(),
            "path": self._path,
            "home": posixpath.join(self._path, known.get("host", ""), self.context.service) if known else "",
            "user": "" if self._own else self._user,
            "program": _hosts.fill_known(program, known),
            "search": self._env.get("PATH", SEARCH),
            "cwd": "" if self._own else _hosts.fill_known(self._cwd, known),
        }


def _program(given: t.Any) -> list[str]:
    if given is None:
        raise InputError("rollout_platform.command: not given; give it, or a template of your own as rollout_platform.unit")
    return _hosts.command(given)


def _unit(value: t.Any) -> str:
    if not re.fullmatch(r"[A-Za-z0-9:_.\\-]+@\.service", str(value)):
        raise InputError(f"rollout_platform.unit: {value!r} is not a template of services; write a name like shop@.service")
    return str(value)


def _only_unit(given: Mapping[str, t.Any]) -> None:
    """Refuse what a unit of the user's own says itself."""
    for name in OF_OURS:
        if given[name] is not None:
            raise InputError(
                f"rollout_platform.{name}: cannot be given with rollout_platform.unit; {given['unit']} says it itself"
            )


def _path(path: str) -> str:
    """A directory that can stand in a unit as it is."""
    if not re.fullmatch(r"[A-Za-z0-9/._+:@~,=-]+", path):
        raise InputError(
            f"rollout_platform.path: {path!r} cannot stand in a unit; write it with letters, digits and / . _ - only"
        )
    return posixpath.normpath(path)


def _user(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]*", value):
        raise InputError(f"rollout_platform.user: {value!r} is not the name of a user; write the name it has on the hosts")
    return value


def _names(env: Mapping[str, str]) -> None:
    """Refuse variables that systemd would leave out without a word."""
    for name in env:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or name.startswith("ROLLOUT_"):
            why = "ROLLOUT_ is ours" if name.startswith("ROLLOUT_") else "systemd knows letters, digits and _ only"
            raise InputError(f"rollout_platform.env: {name!r} cannot be the name of an environment variable; {why}")
