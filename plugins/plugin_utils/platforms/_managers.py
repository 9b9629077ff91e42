# SPDX-License-Identifier: GPL-3.0-or-later
"""The managers of a Docker Swarm, of which any answers for all.

Whatever is asked for may be asked for again: a manager that takes too long, or has lost the others,
is passed over for the next one, although it may still do what it was told.
"""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ..base.errors import LeaseLost, PlatformError
from ..base.text import clean
from ..remote.agents import Answer, shaped
from ..remote.transport import Transport
from ._answers import Failed, Stale

TIMEOUT = 60.0  # seconds that a request may take
MANAGER_TIMEOUT = 5.0  # seconds that a manager is waited for that has answered before
LONG = 20.0  # seconds for its first answer, connecting included, or to ask a registry


class Away(t.TypedDict):
    """Why a manager cannot do anything now."""

    away: str


class Managers:
    """Asks one manager, and the others while it does not answer."""

    def __init__(
        self, transport: Transport, hosts: Sequence[str], socket: Callable[[str], str]
    ) -> None:
        """Take the hosts, and the path of the API's socket on each."""
        self._transport, self._socket = transport, socket
        self._hosts = list(hosts)  # the one that answered last is the first
        self._answered: set[str] = set()
        self._under_way: dict[str, Callable[[], Answer | None]] = {}

    def ask(self, kind: t.Any, request: Mapping[str, t.Any]) -> dict[str, t.Any]:
        """Return the answer of the first manager that has one, read as a type.

        Raises PlatformError with what each of them says if none has, or with Swarm's own words if
        it refuses the request.
        """
        silent = []
        for host in list(self._hosts):
            answer = self.ask_one(host, kind, request)
            value = answer.value or {}
            if "stale" in value:
                raise LeaseLost(f"{host}: {value['stale']}", "PR-503")
            if "error" in value:
                raise PlatformError(f"Swarm refuses it: {clean(value['error'], 1000)}", "PR-254")
            if answer.value is not None and "away" not in value:
                self._hosts.remove(host)
                self._hosts.insert(0, host)
                return value
            silent.append(f"{host}: {clean(value.get('away') or answer.error)}")
        raise PlatformError(
            f"rollout_platform.hosts: no manager of the swarm answers ({'; '.join(silent)})",
            "PR-250",
        )

    def ask_one(self, host: str, kind: t.Any, request: Mapping[str, t.Any]) -> Answer:
        """Return the answer of one manager, if it comes in time."""
        if (late := self._under_way.get(host)) and late() is None:
            return Answer(error="no answer yet to an earlier request", unreachable=True)
        self._under_way.pop(host, None)
        quick = host in self._answered and not request.get("start")
        wait_limit = MANAGER_TIMEOUT if quick else LONG
        asked = {host: {**request, "socket": self._socket(host)}}
        answer = self._transport.ask("swarm", asked, TIMEOUT, {host: wait_limit})[host]
        if answer.later:
            self._under_way[host] = answer.later
            return replace(answer, later=None)
        shaped_answer = shaped(answer, kind | Away | Stale | Failed)
        if shaped_answer.value is not None:
            self._answered.add(host)
        return shaped_answer
