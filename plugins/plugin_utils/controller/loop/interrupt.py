# SPDX-License-Identifier: GPL-3.0-or-later
"""Ends a step with its run: a killed ansible-playbook leaves its workers running."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import typing as t
from collections.abc import Callable

from ...base.errors import Interrupted
from ...state import identity

GONE = "ansible-playbook is gone"
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_PR_SET_PDEATHSIG = 1


class Guard:
    """While inside, signals and the parent's death set a flag: the current action completes.

    Used in the worker process of a step. Outside the main thread only the parent is watched.
    """

    def __init__(self, wake: Callable[[], object] | None = None, outlives: bool = False) -> None:
        """Remember the parent.

        `wake` is called from the signal handler, so it may only do what is safe there (write to a
        pipe). `outlives`: this process was left behind by a worker of ansible-playbook.
        """
        # Not getppid(), which is another process if the parent has already died.
        forked_by = multiprocessing.parent_process()
        self.parent: int = forked_by.pid if forked_by and forked_by.pid else os.getppid()
        self._outlives = outlives
        self._began = identity.began(self.parent)
        self._wake = wake
        self._reason = ""
        self._previous: dict[signal.Signals, t.Any] = {}

    def __enter__(self) -> Guard:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                self._previous[number] = signal.signal(number, self._handle)
            if not self._outlives:
                _die_with_parent(signal.SIGTERM)
        self._watch_parent()  # it may have died before the kernel was asked
        return self

    def __exit__(self, *_exc: object) -> None:
        if self._previous:
            _die_with_parent(0)
            for number, handler in self._previous.items():
                # None: a handler that was not Python's and cannot be put back
                signal.signal(number, signal.SIG_DFL if handler is None else handler)
            self._previous = {}

    @property
    def stopped(self) -> str:
        """Why to stop; empty: there is no reason."""
        self._watch_parent()
        return self._reason

    def check(self) -> None:
        """Raise Interrupted once there is a reason to stop."""
        if reason := self.stopped:
            raise Interrupted(
                f"{reason}: stopped after completing the current action; rerun the playbook to"
                " resume",
                "PR-504",
            )

    def _watch_parent(self) -> None:
        """Set the flag once the parent is gone."""
        alive = (
            identity.lives(self.parent, self._began)
            if self._outlives
            else os.getppid() == self.parent
        )
        if not alive:
            self._reason = GONE

    def _handle(self, number: int, _frame: object) -> None:
        """Set the flag on a signal."""
        # At the parent's death getppid() changes a moment later, when its last thread is gone.
        self._reason = self._reason or signal.Signals(number).name
        if self._wake:
            self._wake()


def _die_with_parent(number: int) -> None:
    """Ask the kernel for a signal at the parent's death (0: for none). Only Linux can do that."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
