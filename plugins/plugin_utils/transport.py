# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands on many inventory hosts at once, over their own Ansible connections."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

CONTROLLER = ""  # the host name that means "here, in this process"


@dataclass(frozen=True)
class Command:
    """An argument vector and what it reads from standard input."""

    argv: Sequence[str]
    stdin: bytes = b""


@dataclass(frozen=True)
class Result:
    """How a command ended, or why the host was not reached (then `unreachable` says so and rc is -1)."""

    rc: int
    stdout: str = ""
    stderr: str = ""
    unreachable: str = ""


@dataclass(frozen=True)
class Answer:
    """What an agent answered: a value, or an error (the host's, when `unreachable`)."""

    value: dict[str, t.Any] | None = None
    error: str = ""
    unreachable: bool = False


class Transport(t.Protocol):
    """Runs commands on hosts."""

    def hosts(self, pattern: str) -> list[str]:
        """The inventory hosts of a pattern, in inventory order; empty when there are none."""

    def address(self, host: str) -> str:
        """The IP address the host is known by: its `ansible_host`, or 127.0.0.1 with a local connection."""

    def run(self, commands: Mapping[str, Command], timeout: float) -> dict[str, Result]:
        """Run one command on each of the hosts, at the same time; every host is in the answer."""

    def ask(self, agent: str, requests: Mapping[str, Mapping[str, t.Any]], timeout: float) -> dict[str, Answer]:
        """Run `agents/<agent>.py`'s `main(request)` on each of the hosts; every host is in the answer."""
