# SPDX-License-Identifier: GPL-3.0-or-later
"""A process that watches the load balancers while the user's own tasks run, between two steps.

`vacate` leaves it behind, `settle` ends it before it acts itself, and it ends with
ansible-playbook. It is forked before its step has threads, connections or locks, and makes its own.
"""

from __future__ import annotations

import os
import signal
import typing as t
from collections.abc import Callable, Mapping

from ...base import clock
from ...base.errors import InputError
from ...state import identity

JOIN_INTERVAL = 0.02  # seconds between two checks of a watch that was told to end


class Watch:
    """A forked process that does `work` once begun; without a beginning, it ends with `close`."""

    def __init__(self, work: Callable[[], object]) -> None:
        begun, self._begin = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _watch(work, begun, self._begin)
        os.close(begun)
        self._begun = False

    def begin(self) -> dict[str, int]:
        """Let it work, and return what `end` needs to find it."""
        os.write(self._begin, b"!")
        self._begun = True
        return {"pid": self.pid, "began": identity.began(self.pid)}

    def close(self) -> None:
        """Close the connection to the process: without a beginning it ends now."""
        os.close(self._begin)
        if not self._begun:
            os.waitpid(self.pid, 0)


def _watch(work: Callable[[], object], begun: int, begin: int) -> t.NoReturn:
    """Do everything the forked process does.

    It must not return to where the other one continues.
    """
    try:
        os.close(begin)
        os.setsid()  # signals for the worker's process group are not for this process
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)  # Ansible's handlers would end others
        if os.read(begun, 1):
            work()
    finally:
        os._exit(0)


def end(known: t.Any, check: Callable[[], object]) -> None:
    """End a watch and wait until its current action is completed; `check` is called meanwhile, and
    may raise.
    """
    if not known:
        return
    if not isinstance(known, Mapping) or not all(
        isinstance(known.get(key), int) for key in ("pid", "began")
    ):
        raise InputError(f"rollout_watch: expected what vacate returned, got {known!r}", "PR-118")
    pid, began = known["pid"], known["began"]
    if identity.lives(pid, began):
        os.kill(pid, signal.SIGTERM)
    while identity.lives(pid, began):
        check()
        clock.sleep(JOIN_INTERVAL)
