# SPDX-License-Identifier: GPL-3.0-or-later
"""How often the reconcile loop does what. All in seconds."""

from __future__ import annotations

# between two observations of the platform, at least and at most; of which hosts: engine/looks.py
PLATFORM = (1.0, 30.0)
# the part of the time that these may take; checks report urgent changes sooner
PLATFORM_PART = 0.05
FIRST_CHECKS = 10.0  # that the first observation waits for every instance's first check
POLL = (0.015, 0.5)  # between two iterations while something is pending: the first, and the longest
COUNTERS = 0.5  # between two readings of the load balancers' counters, at least
UNUSED = 5.0  # between two looks at a preview pool that is not in use
GATES = 0.5  # between two iterations where only gates are waited for
# for which a rollout's end waits for hosts on which instances are to be stopped
LAST_LOOK = 10.0
REMOVAL = 60.0  # for which a rollout's end waits for hosts that remove dead instances
RETRY = 0.5  # before something that failed is tried again
IN_PLACE = 0.3  # between two observations of load balancers while the user's tasks deploy
OUTDATED = 5.0  # after which what was observed is not acted on any more, but observed again
LATE = 10.0  # after which what load balancers and checks answered is asked for again
RECENT = 1.0  # within which a look at load balancers tells what drains since then
COMMANDS = 1.0  # between two reads of operator commands
ANSWER = 5.0  # for which the sender of a command waits for the run that is to obey
AUTOSCALER = 10.0  # between two questions how many instances the autoscaler wants
# for which the highest of the numbers that the autoscaler wants counts: metrics come late, see
# https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/#stabilization-window
STEADY = 300.0
BACKGROUND = 0.25  # between two polls of the background gates
DATA = 2.0  # between two events of the timeline with numbers of the same kind, at least
NEWS = 30.0  # between two lines on the state of an analysis
HINTS = 5.0  # after which a wait that ends by itself is worth telling how to end it
HEARTBEAT = 60.0  # between two lines on a wait: some CI systems end a job that is silent
HAND_OVER = 5.0  # for which a rollout may be without a run: between two steps, or two runs
QUIET = 2.0  # for which waiting for a gate of the rollout's own is not worth a line


def platform_pause(took: float) -> float:
    """Return the time from an observation of the platform that took so long to the next one."""
    least, most = PLATFORM
    return min(most, max(least, took / PLATFORM_PART))


def thinned(elapsed: float) -> float:
    """Return the time to the next event with numbers: a rollout of days has a few hundred."""
    return max(DATA, elapsed / 100)


class Backoff:
    """Ever longer pauses, from the first to the longest of POLL."""

    def __init__(self) -> None:
        self._next = POLL[0]

    def reset(self) -> None:
        """Begin with the first pause again."""
        self._next = POLL[0]

    def pause(self) -> float:
        """Return the next pause."""
        pause, self._next = self._next, min(POLL[1], self._next * 1.2)
        return pause
