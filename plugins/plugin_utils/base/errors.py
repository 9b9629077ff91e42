# SPDX-License-Identifier: GPL-3.0-or-later
"""The collection's exceptions. Only `controller/step/action.py` turns them into a failed task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class RolloutError(Exception):
    """An error for the operator: its text and id are the message of the failed task.

    `facts` are added to the failed task's result. `id` is a key of `messages.MESSAGES`; those of
    the classes are for drivers of other collections.
    """

    facts: Mapping[str, object] = {}
    id = "PR-900"

    def __init__(self, text: str = "", id: str = "") -> None:
        super().__init__(text)
        if id:
            self.id = id


class InputError(RolloutError):
    """A variable is wrong; nothing was touched.

    The text names the variable, its value and what to do.
    """

    id = "PR-100"


class TransportError(RolloutError):
    """A host could not be reached, or a command of the collection failed on it."""

    id = "PR-200"

    @property
    def silent(self) -> bool:
        """Whether what was asked does not answer, or cannot now, and is to be asked again."""
        return False


class PlatformError(RolloutError):
    """The platform refused to start, stop or report instances, or could not.

    `seen` are the reports that it made nevertheless, `hosts` those that made none.
    """

    id = "PR-201"

    seen: Sequence[object] = ()
    hosts: Sequence[str] = ()


class TrafficError(RolloutError):
    """A load balancer could not be reached, refused a change, or does not show it."""

    id = "PR-300"


class GateError(RolloutError):
    """A gate could not be asked."""

    id = "PR-400"


class MetricError(RolloutError):
    """A metric could not be measured, which says nothing about the revision."""

    id = "PR-420"


class AutoscalerError(RolloutError):
    """An autoscaler could not be read, refused a change, or was changed meanwhile."""

    id = "PR-260"


class AutoscalerGone(AutoscalerError):
    """The autoscaler does not exist any more."""

    id = "PR-261"


class StoreError(RolloutError):
    """The journal cannot be read or written."""

    id = "PR-500"


class StoreAway(StoreError):
    """The store of the journal does not answer, or cannot write now."""

    id = "PR-508"


class StoreGone(RolloutError):
    """The store of the journal stayed away for too long: stop, and leave all as it is."""

    id = "PR-511"


class ReportError(RolloutError):
    """The report of a rollout cannot be written, which concerns no rollout."""

    id = "PR-630"


class NotifyError(RolloutError):
    """A receiver could not be told of a rollout, which goes on.

    `again`: another attempt may succeed.
    """

    id = "PR-631"

    def __init__(self, text: str = "", id: str = "", again: bool = True) -> None:
        super().__init__(text, id)
        self.again = again


class MetricsError(RolloutError):
    """The metrics of a rollout cannot be written or pushed, which concerns no rollout."""

    id = "PR-632"


# Errors that may pass: nothing is changed until they have.
TRANSIENT = (PlatformError, TrafficError, TransportError, StoreError, AutoscalerError)


class LeaseHeld(RolloutError):
    """Another run holds the lease of this service; the text names it, with its times."""

    id = "PR-501"


class AlreadyRunning(LeaseHeld):
    """Another worker of the same run works on this service; `details` are those of its lease."""

    id = "PR-502"

    def __init__(self, service: str, details: Mapping[str, object]) -> None:
        super().__init__(
            f"service {service}: the task {details.get('task')!r} for {details.get('host')} of this"
            f" run already works on {service} (worker pid {details.get('worker_pid')}); run each"
            " step once: with run_once: true, or in a play on localhost"
        )
        self.details = details


class LeaseLost(RolloutError):
    """This run no longer holds the lease: stop before the next action."""

    id = "PR-503"


class Interrupted(RolloutError):
    """The run that started this step ended or was stopped; the current action was completed."""

    id = "PR-504"


class GaveWay(Interrupted):
    """Another run was told to supersede this rollout, and takes it over as it is."""

    id = "PR-505"


class RolloutFailed(RolloutError):
    """A stage ended without reaching its waypoint; the text names the instance and the reason.

    `then` is what follows, rollback or hold; None: what the stage or `rollout_on_failure` says.
    """

    id = "PR-600"

    def __init__(self, text: str, id: str = "", then: str | None = None) -> None:
        super().__init__(text, id)
        self.then = then


class Aborted(RolloutFailed):
    """An operator asked for a rollback; nothing has failed."""

    id = "PR-608"


class GateFailed(RolloutFailed):
    """A gate did not let the rollout pass; the fleet itself is as it should be."""

    id = "PR-402"


class Parked(RolloutError):
    """The rollout waits for a person: this run ends, and the next one continues."""

    id = "PR-612"
