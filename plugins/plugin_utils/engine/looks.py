# SPDX-License-Identifier: GPL-3.0-or-later
"""When to look at a host again, since over SSH each look is a command. Pure. All in seconds.

Work on a host is a look at it, too: the host reports what runs there.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from .model import Health, Process

SLOW = (5.0, 10.0)  # between two looks at a host where nothing is expected, by its name
TIDY = 4.0  # after a look, leftovers of stopped instances are removed by a separate command
SHORTLY = 0.1  # that an instance takes to stop, as long as none was seen to
LONGEST = 1.0  # that an instance is given to stop before the first look
BACKOFF = 0.25  # of its age is waited from one look at an instance that stops to the next,
PAUSES = (0.015, 2.0)  # at least and at most
# At the latest it is told again then, also where looks show that it still stops: only an instance
# that is told again is killed.
REPEATED = 5.0
ON_ITS_WAY = 1.0  # after it was told to stop, one that is seen to run has not heard it
LEARNS = 0.3  # weight of the last instance in what one takes to stop


@dataclass(frozen=True)
class HostView:
    """What is known of a host."""

    looked: float = float("-inf")  # when it was last looked at
    silent: bool = False  # it does not answer
    moves: bool = False  # an instance there may change any moment
    failed: float = float("-inf")  # when a check of an instance there began to fail


def hosts_to_look_at(hosts: Mapping[str, HostView], pause: float, now: float) -> list[str]:
    """Return the hosts to look at now, where there is a look each `pause`."""
    return [
        name
        for name, host in hosts.items()
        if host.silent
        or host.failed > host.looked
        or now - host.looked >= (pause if host.moves else slow_pace(name))
    ]


def is_moving(process: Process, *checks: Health) -> bool:
    """Return whether an instance may change without any of its checks noticing, or is to.

    `checks`: how it fares by ours, and by those of its platform.
    """
    if process in (Process.STOPPED, Process.FAILED):
        return False
    settled = Health.PASSING in checks and {*checks} <= {Health.PASSING, Health.NONE}
    return process is not Process.RUNNING or not settled


def slow_pace(host: str) -> float:
    """Return the time between two looks at a host where nothing is expected."""
    least, most = SLOW
    return least + (most - least) * zlib.crc32(host.encode()) / 2**32


def next_look_at_stopping(asked: float, looked: float, usual: float) -> float:
    """Return when to look again at an instance that was told to stop.

    Args:
        told: When it was told.
        looked: When its host was last looked at.
        usual: How long instances take to stop.
    """
    first = asked + min(0.95 * usual, LONGEST)
    if looked < first:
        return first
    least, most = PAUSES
    return looked + min(most, max(least, BACKOFF * (looked - asked)))


def usual_stop(usual: float, took: float) -> float:
    """Return how long instances take to stop, after one was seen to."""
    return usual + LEARNS * (min(took, LONGEST) - usual)
