# SPDX-License-Identifier: GPL-3.0-or-later
"""Let whoever reads the output leave (`status | head`, a pager) without harm to the run.

What a task displays is written by a thread of Ansible's main process (`results_thread_main` in
ansible/plugins/strategy). That thread ends without a word at the first write that fails, so the
task's result is never read and the run hangs for ever.
"""

from __future__ import annotations

import os
import sys
import typing as t

from ansible import context


class Forgiving:
    """A standard stream that discards everything from the first write that fails."""

    def __init__(self, stream: t.TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> t.Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError:
            self._discard()
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError:
            self._discard()

    def _discard(self) -> None:
        """Send what is still buffered, and all that follows, to the null device."""
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self._stream.fileno(), inheritable=False)
        os.close(null)


def forgive_readers() -> None:
    """Make the standard streams of a run of Ansible forgiving.

    A program that only imports this, such as a test, keeps its streams.
    """
    if not context.CLIARGS:
        return
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(stream, Forgiving):
            setattr(sys, name, Forgiving(stream))
