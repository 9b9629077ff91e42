# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What can go wrong, as exceptions of our own. `step.py` alone turns them into a failed task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class RolloutError(Exception):
    """Something the operator has to know; its text is the message of the failed task.

    `facts` go into the failed task's result beside it.
    """

    facts: Mapping[str, object] = {}


class InputError(RolloutError):
    """A variable is wrong. The text names the variable, its value and what to do; nothing was touched."""


class TransportError(RolloutError):
    """Hosts could not be reached or a command of ours failed on them."""


class PlatformError(RolloutError):
    """The platform refused or could not do what was asked (start, stop, look); `seen` are the reports there are all the same."""

    seen: Sequence[object] = ()


class TrafficError(RolloutError):
    """A load balancer could not be reached, refused a change, or did not show it when read back."""


class GateError(RolloutError):
    """A gate could not be asked."""


class MetricError(RolloutError):
    """A metric could not be measured, which says nothing about the revision."""


class StoreError(RolloutError):
    """The journal cannot be read or written."""


class LeaseHeld(RolloutError):
    """Somebody else holds the lease of this service; the text says who, since when and until when."""


class AlreadyWalked(LeaseHeld):
    """Another worker of the same run walks this service; `details` are those of its lease."""

    def __init__(self, service: str, details: Mapping[str, object]) -> None:
        super().__init__(
            f"service {service}: the task {details.get('task')!r} for {details.get('host')} in this run already walks {service} (worker pid "
            f"{details.get('worker_pid')}); run each step once: with run_once: true, or in a play on localhost"
        )
        self.details = details


class LeaseLost(RolloutError):
    """We held the lease and no longer do: stop before the next action."""


class Interrupted(RolloutError):
    """The run that started this step is gone or was told to stop; the action in hand was finished."""


class GaveWay(Interrupted):
    """Another run was told to supersede this rollout, and takes it over as it is."""


class RolloutFailed(RolloutError):
    """The walk ended without reaching its waypoint; the text names the instance and the reason.

    `then` says what follows where that is not for `rollout_on_failure` to say (rollback or hold), and `ending` the
    outcome once it is back.
    """

    def __init__(self, message: str, then: str | None = None, ending: str = "") -> None:
        super().__init__(message)
        self.then = then
        self.ending = ending


class GateFailed(RolloutFailed):
    """A gate did not let the rollout pass; the fleet itself is as it should be."""


class Parked(RolloutError):
    """There is nothing to do but wait for somebody: the run ends, and the rollout goes on with the next one."""
