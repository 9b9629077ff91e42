# SPDX-License-Identifier: GPL-3.0-or-later
"""Calls to hosts that are busy: what such a host is told, it does later, and answers then."""

from __future__ import annotations

import typing as t
from collections.abc import Callable

from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import RolloutError
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.agents import Answer

from .world import Host, World

PATIENCE = 5.0  # seconds that a run waits for a host that is busy, before it goes on
AT_ONCE = 1.0  # seconds after an answer, in which it tells a host what is left


class UnderWay:
    """The calls of one process that were not answered in time. Their hosts get no other ones."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._calls: dict[str, list[Answer]] = {}  # by host; empty: it has not finished

    def __contains__(self, host: str) -> bool:
        return host in self._calls

    @property
    def at_work(self) -> set[str]:
        """Return the hosts that can be reached and have not finished."""
        return {
            name
            for name, answers in self._calls.items()
            if not answers and self._world.hosts[name].away <= self._world.now
        }

    @property
    def has_answers(self) -> bool:
        return any(self._calls.values())

    def answers(self) -> dict[str, Answer]:
        """Return what hosts have answered since, and which cannot be reached any more."""
        answers = {name: late.pop() for name, late in self._calls.items() if late}
        for name in answers:
            del self._calls[name]
        gone = [name for name in self._calls if self._world.hosts[name].away > self._world.now]
        return answers | {name: silent(self._world.hosts[name]) for name in gone}

    def begin(self, host: Host, work: Callable[[], Answer]) -> None:
        """Have a busy host work once it has the time, unless it is restarted before."""
        world, boots, answers = self._world, host.boots, t.cast("list[Answer]", [])
        self._calls[host.name] = answers
        if world.now > host.locked + AT_ONCE:  # else it is told the rest of what it was told then
            host.begun = world.now
        host.locked = host.busy
        machine, job = world.machine, world.machine.current

        def finish() -> None:
            if host.boots != boots:
                answers.append(silent(host))
                return
            machine.current, other = job, machine.current
            try:
                answers.append(work())
            except RolloutError as exc:
                answers.append(Answer(error=str(exc), unreachable=True))
            machine.current = other

        machine.at(host.busy, finish)

    def wait(self) -> None:
        """Wait for busy hosts for a while, as the real calls do."""
        busy = [self._world.hosts[name].locked for name in self._calls]
        if busy:
            self._world.machine.sleep(min(PATIENCE, max(busy) - self._world.now))


def silent(host: Host) -> Answer:
    """Return the answer of a host that gives none."""
    return Answer(error=f"{host.name} does not answer", unreachable=True)
