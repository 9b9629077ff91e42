# SPDX-License-Identifier: GPL-3.0-or-later
"""The events of a rollout's timeline, each with its fields and a sentence for each of them.

docs/reference/timeline-events.md is made from this module.
"""

from __future__ import annotations

import functools
import typing as t
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields

from ..engine.model import Phase
from ..inputs import shapes
from .record import Outcome, RolloutKind


@t.dataclass_transform(kw_only_default=True)
@dataclass(kw_only=True, eq=False, repr=False)
class Event:
    """Something that happened to a rollout.

    Each kind is a dataclass of keyword arguments alone: events are neither compared nor shown,
    and to make such methods for all kinds would take each start 15 ms.
    """

    kind: t.ClassVar[str]

    def __init_subclass__(cls) -> None:
        dataclass(kw_only=True, eq=False, repr=False)(cls)

    def to_dict(self) -> dict[str, t.Any]:
        """Return the event as plain data, without the optional fields that have no value."""
        kind: t.Any = type(self)
        known = ((name, getattr(self, name), optional) for name, optional in _fields(kind))
        return {"kind": self.kind} | {
            name: shapes.write(value)
            for name, value, optional in known
            if value is not None or not optional
        }


@functools.cache
def _fields(event: type[Event]) -> tuple[tuple[str, bool], ...]:
    """Return the names of an event's fields, and whether each is optional."""
    return tuple((field.name, field.default is None) for field in fields(event))


class Begin(Event):
    """A rollout begins."""

    kind = "begin"
    revision: t.Annotated[str, "the new revision"]
    generation: t.Annotated[int, "the number that its instances carry beside the revision"]
    replicas: t.Annotated[int, "how many instances there are to be"]
    rollout: t.Annotated[RolloutKind, "what the rollout is for"]
    by: t.Annotated[str, "who runs it"]
    why: t.Annotated[str | None, "the reason that they gave"] = None
    previous: t.Annotated[str | None, "the revision before; absent at the first deployment"] = None
    strategy: t.Annotated[str | None, "its strategy"] = None
    order: t.Annotated[int | None, "`rollout_order` of the new revision"] = None
    window: t.Annotated[str | None, "`always` where `rollout_window` is not to bind this run"] = (
        None
    )
    notify: t.Annotated[
        Sequence[str] | None, "the names of the receivers of `rollout_notify` from then on"
    ] = None


class Planned(Event):
    """The stages of the rollout are known, or follow from another number of replicas."""

    kind = "plan"
    stages: t.Annotated[
        Sequence[Mapping[str, t.Any]],
        "each stage with its name (`stage`), `share`, `new`, `old` and the names of its `gates`",
    ]


class Resume(Event):
    """Another run continues the rollout."""

    kind = "resume"
    phase: t.Annotated[Phase, "the phase that it continues in"]
    by: t.Annotated[str, "who runs it"]
    window: t.Annotated[str | None, "`always` where `rollout_window` is not to bind this run"] = (
        None
    )
    notify: t.Annotated[
        Sequence[str] | None, "the names of the receivers of `rollout_notify` from then on"
    ] = None


class StageEntered(Event):
    """A stage is entered."""

    kind = "stage"
    stage: t.Annotated[str, "its name"]
    share: t.Annotated[
        int | None,
        "the percentage of requests for the new instances; null where it follows from their number",
    ]
    new: t.Annotated[int, "how many new instances there are to be"]
    old: t.Annotated[int, "how many old ones"]
    floor: t.Annotated[int | None, "how many instances have to be available, by the budget"] = None
    ceiling: t.Annotated[int | None, "how many instances there may be, by the budget"] = None


class PhaseEntered(Event):
    """The [phase](states-and-phases.md#phases) changes."""

    kind = "phase"
    phase: t.Annotated[Phase, "the new phase"]
    reason: t.Annotated[str | None, "why"] = None


class LineShown(Event):
    """A run showed a line on its progress, which others who follow the rollout show, too."""

    kind = "line"
    text: t.Annotated[str, "the line"]


class DecisionMade(Event):
    """The reason of the next actions changes."""

    kind = "decision"
    reason: t.Annotated[str, "what is done, and why"]


class StateChanged(Event):
    """An instance's [state](states-and-phases.md#states-of-instances) changes."""

    kind = "state"
    instance: t.Annotated[str, "the instance"]
    state: t.Annotated[str, "its new state; `gone` when nothing is left of it"]
    revision: t.Annotated[str | None, "its revision"] = None
    generation: t.Annotated[int | None, "its generation"] = None
    host: t.Annotated[str | None, "its host"] = None
    detail: t.Annotated[str | None, "why it is not ready"] = None


class RotationChanged(Event):
    """An instance enters or leaves rotation at the load balancers."""

    kind = "rotation"
    instance: t.Annotated[str, "the instance"]
    serving: t.Annotated[bool, "whether any load balancer sends it new requests"]


class RequestsCounted(Event):
    """The load balancers have counted requests since the event before of this kind."""

    kind = "requests"
    new: t.Annotated[
        Mapping[str, t.Any],
        "of the new instances: `requests`, `errors` and `latency` (the mean in seconds, null where"
        " it is not measured)",
    ]
    old: t.Annotated[Mapping[str, t.Any], "likewise of all others"]
    beside: t.Annotated[
        int | None, "requests to servers of the pool that lead to no instance; absent if none"
    ] = None
    gap: t.Annotated[
        bool | None, "whether others came before, between two steps, that were not counted"
    ] = None


class TrafficChanged(Event):
    """The shares of the revisions change."""

    kind = "traffic"
    shares: t.Annotated[
        Mapping[str, float], "the percentage of new requests, of the whole, by revision"
    ]
    unmanaged: t.Annotated[
        Mapping[str, t.Any] | None,
        "the servers of the pool that no rollout manages and that get requests: their names"
        " (`servers`), the `pool`, and their `share` in percent; absent if there are none",
    ] = None


class ShareMeasured(Event):
    """A stage is left whose share of requests was measured by the load balancers."""

    kind = "share"
    asked: t.Annotated[int, "the percentage of requests asked for"]
    new: t.Annotated[int, "requests that the new instances got since the stage was reached"]
    all: t.Annotated[int, "requests that all instances got"]


class Switched(Event):
    """All load balancers have switched from the old instances to the new ones, or back."""

    kind = "switch"
    milliseconds: t.Annotated[float, "how long it took"]


class Repair(Event):
    """Stable instances failed, and others are started in their place."""

    kind = "repair"
    failed: t.Annotated[Sequence[str], "the instances that failed"]
    started: t.Annotated[int, "how many are started"]
    there: t.Annotated[int, "how many old instances are left"]
    wanted: t.Annotated[int, "how many there are to be"]


class Scaled(Event):
    """An operator asked for another number of replicas."""

    kind = "scale"
    replicas: t.Annotated[int, "the number asked for"]
    refused: t.Annotated[str | None, "why the number cannot be; absent if it is the number now"] = (
        None
    )


class TargetSet(Event):
    """An operator set the number of new instances of a canary."""

    kind = "target"
    new: t.Annotated[int, "the number set"]
    stage: t.Annotated[str | None, "the stage that has that number from then on"] = None
    refused: t.Annotated[str | None, "why the number cannot be"] = None


class Trouble(Event):
    """A host or load balancer did not answer or refused; the call is retried."""

    kind = "trouble"
    message: t.Annotated[str, "the error"]


class AutoscalerChanged(Event):
    """The [autoscaler](../how-to/autoscalers.md) is changed, put back, or left alone."""

    kind = "autoscaler"
    message: t.Annotated[str, "what is done, and why"]


class WaitingFor(Event):
    """What the rollout waits for changes."""

    kind = "wait"
    what: t.Annotated[str, "what it waits for"]
    person: t.Annotated[bool | None, "whether an operator has to end the wait"] = None


class GateDecided(Event):
    """A gate has passed or failed."""

    kind = "gate"
    gate: t.Annotated[str | None, "the gate that failed"] = None
    message: t.Annotated[str, "why"]
    passed: t.Annotated[bool, "whether the rollout may continue"]


class Measured(Event):
    """An analysis has measured, and has no verdict yet."""

    kind = "measured"
    gate: t.Annotated[str, "the analysis"]
    message: t.Annotated[str, "what is known by now"]
    samples: t.Annotated[Mapping[str, t.Any], "the last measurement, by metric"]


class Looked(Event):
    """An analysis has judged results, which `judge.yml` can judge again."""

    kind = "look"
    gate: t.Annotated[str, "the analysis"]
    results: t.Annotated[
        Mapping[str, str | None],
        "each as JSON, compressed by zlib and in base64, by metric; null where there is no room",
    ]
    settings: t.Annotated[
        Mapping[str, t.Any] | None, "how they are judged, with the first results of each run"
    ] = None
    resumed: t.Annotated[bool | None, "whether a run continues the analysis of another run"] = None
    by_default: t.Annotated[bool | None, "whether it is the analysis that nobody asked for"] = None


class VerdictReached(Event):
    """An analysis has a verdict."""

    kind = "verdict"
    gate: t.Annotated[str, "the analysis"]
    verdict: t.Annotated[str, "`pass`, `fail` or `person` (inconclusive)"]
    message: t.Annotated[str, "why"]
    samples: t.Annotated[Mapping[str, t.Any], "the data behind it, by metric"]


class StableLost(Event):
    """No stable instance serves any more."""

    kind = "stable_lost"
    message: t.Annotated[str, "which revision is lost"]
    then: t.Annotated[str, "what follows, by `rollout_on_stable_lost`"]


class CommandTaken(Event):
    """An operator's command was obeyed or refused, or had no effect."""

    kind = "word"
    word: t.Annotated[str, "the command"]
    by: t.Annotated[str, "who sent it"]
    why: t.Annotated[str | None, "the operator's reason"] = None
    replicas: t.Annotated[int | None, "of `scale` and `set_target`: how many"] = None
    host: t.Annotated[str | None, "of `exclude` and `include`: which host"] = None
    refused: t.Annotated[str, "why it was refused; empty if it was obeyed"]
    ineffective: t.Annotated[str | None, "why it had no effect, though it was not refused"] = None
    number: t.Annotated[int | None, "number of the command in the journal"] = None

    @classmethod
    def of(cls, command: Mapping[str, t.Any], refused: str, ineffective: str = "") -> CommandTaken:
        """Return the event of a command as the journal has it."""
        return cls(
            number=command["number"],
            ineffective=ineffective or None,
            word=command["word"],
            by=command["by"],
            why=command.get("why") or None,
            replicas=command.get("replicas") or None,
            host=command.get("place") or None,
            refused=refused,
        )


class Deployed(Event):
    """The user's tasks deployed an instance [in place](../how-to/in-place.md)."""

    kind = "deployed"
    instance: t.Annotated[str, "the instance"]
    host: t.Annotated[str, "its host"]
    revision: t.Annotated[str, "the revision deployed"]


class DeploymentFailed(Event):
    """The user's tasks did not deploy an instance [in place](../how-to/in-place.md)."""

    kind = "deployment_failed"
    instance: t.Annotated[str, "the instance"]
    host: t.Annotated[str, "its host"]
    reason: t.Annotated[str, "why"]


class RunParked(Event):
    """The run ended, and the rollout waits."""

    kind = "parked"
    reason: t.Annotated[str, "what it waits for"]


class RunInterrupted(Event):
    """The run was stopped."""

    kind = "interrupted"
    reason: t.Annotated[str, "by what"]


class Notified(Event):
    """A receiver of `rollout_notify` was told, or could not be."""

    kind = "notified"
    notice: t.Annotated[str, "the id of what the receiver was told, which it gets as well"]
    event: t.Annotated[str, "of what, as in `on` of `rollout_notify`"]
    to: t.Annotated[str, "the receiver: its driver, and its place in `rollout_notify`"]
    error: t.Annotated[str | None, "why all attempts failed; absent if one succeeded"] = None


class ReleaseSeen(Event):
    """The release that the rollout is a member of, when the rollout told it of something."""

    kind = "release"
    release: t.Annotated[str, "its name"]
    phase: t.Annotated[str, "its phase"]
    members: t.Annotated[str, "its members, and where each of them is"]


class End(Event):
    """The rollout is over."""

    kind = "end"
    outcome: t.Annotated[Outcome, "how it ended"]
    reason: t.Annotated[str, "why"]


KINDS: Mapping[str, type[Event]] = {event.kind: event for event in Event.__subclasses__()}


def total(counted: Iterable[Mapping[str, t.Any]], side: str, what: str) -> int:
    """Return how many requests or errors (`what`) of a side these events of requests have."""
    return sum(int(event.get(side, {}).get(what) or 0) for event in counted)


def documented(event: type[Event]) -> dict[str, str]:
    """Return the sentence of each field of a kind of events, for the reference."""
    hints = t.get_type_hints(event, include_extras=True)
    return {field.name: hints[field.name].__metadata__[0] for field in fields(event)}
