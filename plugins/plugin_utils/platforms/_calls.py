# SPDX-License-Identifier: GPL-3.0-or-later
"""Calls to hosts, of which any may hang: the others do not wait for it.

What it answers later is not lost.
"""

from __future__ import annotations

import time
import typing as t
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

from ..remote.agents import Answer, shaped
from ..remote.transport import Transport

LOOK = 20.0  # seconds a host has for a look, connecting included
WORK = 60.0  # seconds it has to start, stop and forget instances
HOST_TIMEOUT = 5.0  # seconds that all others wait for a host, at least
SLOWER = 3.0  # times as long as its last answer took they wait for it
AGAIN = 2.0  # seconds they wait for one that did not answer the step before
UNTIL_END = 0.5  # seconds for which a call waits on a host for the end of instances
FREE = 4  # one host in so many may have such a call, since it can do nothing else meanwhile


@dataclass
class _Call:
    """A call that was not answered in time and goes on."""

    later: Callable[[], Answer | None]
    works: bool  # it starts or stops something, which may take its time
    pinged: float = 0.0  # when the host was last asked whether it is alive
    ping: Callable[[], Answer | None] | None = None


class Calls:
    """Ask a platform's agent on many hosts.

    A host that has a call under way is not given another one.
    """

    def __init__(self, transport: Transport, agent: str, kind: t.Any) -> None:
        """Take the agent, and the type of its answers (see `inputs/shapes.py`)."""
        self._transport, self._agent, self._kind = transport, agent, kind
        self._under_way: dict[str, _Call] = {}
        self._took: dict[str, float] = {}  # seconds, by host, its last answer
        self._silent: dict[str, Answer] = {}  # hosts that do not answer, and how
        self._aside: Transport | None = None  # for pings, since the other connections are busy

    @property
    def at_work(self) -> set[str]:
        """Return the hosts that are alive and have not finished what they were told to do."""
        return {
            host
            for host, call in self._under_way.items()
            if call.works and host not in self._silent
        }

    def free_to_wait(self, hosts: Iterable[str], count: int) -> list[str]:
        """Return which of these hosts, of so many, may have a call that waits (a `wait` in its
        request).

        On this machine, asking again is cheaper.
        """
        room = max(0, count // FREE - len(self._under_way))
        known = (h for h in hosts if h in self._took and h not in self._silent)
        return [h for h in islice(known, room) if not self._transport.is_here(h)]

    @property
    def answered_late(self) -> bool:
        """Whether there are answers to earlier calls."""
        return any(call.later() for call in self._under_way.values())

    def ask(
        self, requests: Mapping[str, Mapping[str, t.Any]], works: bool, known: Collection[str]
    ) -> dict[str, Answer]:
        """Return what these hosts answer within their time, and late answers of others.

        Hosts without an answer are at work; those that are to wait answer later. Hosts that are not
        `known`, of which nothing has been seen yet, are waited for.
        """
        answers = self._late()
        free = {
            h: request
            for h, request in requests.items()
            if h not in self._under_way and (works or h not in answers)
        }
        if free:
            wait_limits = {
                host: -1.0 if "wait" in request else self._wait_limit(host)
                for host, request in free.items()
                if host in known
            }
            asked = self._transport.ask(self._agent, free, WORK if works else LOOK, wait_limits)
            self._under_way |= {
                host: _Call(
                    answer.later, works, time.monotonic() if wait_limits.get(host, 0.0) < 0 else 0.0
                )
                for host, answer in asked.items()
                if answer.later
            }
            answers |= {
                host: answer for host, answer in asked.items() if not (answer.later and works)
            }
        answers = {host: shaped(answer, self._kind) for host, answer in answers.items()}
        for host, answer in answers.items():
            if answer.unreachable:
                self._silent[host] = answer
            else:
                self._silent.pop(host, None)
                self._took[host] = answer.took
        for host, call in self._under_way.items():
            if call.works:
                self._look_after(host, call)
        return self._silent | answers

    def retry_silent(self) -> None:
        """Give hosts that did not answer time again, as at the beginning of a step."""
        for host in self._silent.keys() - self._under_way.keys():
            del self._silent[host]
            self._took.pop(host, None)

    def _late(self) -> dict[str, Answer]:
        """Return the answers to earlier calls that have come since."""
        late = {host: answer for host, call in self._under_way.items() if (answer := call.later())}
        for host in late:
            del self._under_way[host]
        return late

    def _wait_limit(self, host: str) -> float:
        if host in self._silent:
            return 0.0
        return max(HOST_TIMEOUT, SLOWER * self._took[host]) if host in self._took else AGAIN

    def _look_after(self, host: str, call: _Call) -> None:
        """Find out whether a host that is at work is alive.

        It may have been given much to do, or be gone.
        """
        if call.ping is None and time.monotonic() - call.pinged > HOST_TIMEOUT:
            self._aside = self._aside or self._transport.apart()
            call.pinged = time.monotonic()
            answer = self._aside.ask("ping", {host: {}}, HOST_TIMEOUT, {host: 0.0})[host]
            call.ping = answer.later or (lambda: answer)
        answer_ = call.ping() if call.ping else None
        if answer_ is None:
            return
        call.ping = None
        if answer_.unreachable:
            self._silent[host] = answer_
        else:
            self._silent.pop(host, None)
