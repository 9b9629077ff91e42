# SPDX-License-Identifier: GPL-3.0-or-later
"""Tells receivers of a rollout that was refused before it began. It has no timeline, so nothing of
it is sent by another run.
"""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from ...base import clock
from ...base.errors import AlreadyRunning, InputError, Interrupted, RolloutError
from ...config import notify
from ...config.notify import Receiver
from ...interfaces.context import DriverContext
from ...interfaces.notifier import Notice
from ...remote.transport import Transport
from ...report import notices
from .announcer import AT_END, BETWEEN, Announcer


def concerns(error: BaseException | None) -> bool:
    """Return whether an error refuses what was to begin, and does not only end this run."""
    return isinstance(error, RolloutError) and not isinstance(error, Interrupted | AlreadyRunning)


def reason(error: RolloutError) -> str:
    """Return an error with its id, as the failed task shows it."""
    return f"{error} [{error.id}]"


def send(
    receivers: Sequence[Receiver],
    context: DriverContext,
    rejected: Notice,
    print_line: Callable[[str], None],
    stopped: Callable[[], object] = lambda: False,
) -> None:
    """Send a notice, and wait for it; holds no lease."""
    announcer = Announcer(receivers, context, print_line)
    announcer.send(rejected)
    try:
        announcer.wait(BETWEEN, stopped)
        if awaited := announcer.awaited:
            names = " and ".join(awaited)
            print_line(
                f"{rejected.service}: waiting for {names} to be notified, at most {AT_END:g} s"
            )
        announcer.wait(AT_END, stopped)
        announcer.outcomes()
    finally:
        announcer.close(last=False)


def of_arguments(
    args: Mapping[str, t.Any],
    transport: Transport,
    by: str,
    error: RolloutError,
    print_line: Callable[[str], None],
) -> None:
    """Tell receivers of arguments that are refused, as far as the receivers can be read."""
    service, revision = args.get("service"), args.get("revision")
    if not isinstance(service, str) or not isinstance(revision, str):
        return
    with suppress(InputError):
        receivers = notify.parse(args.get("notify"), "rollout_notify")
        rejected = notices.rejected(service, revision, clock.wall(), reason(error), by)
        send(receivers, DriverContext(service, transport), rejected, print_line)
