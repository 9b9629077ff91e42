# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is recorded of a service because it cannot be observed. Plain data in and out; no I/O."""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ..base.errors import StoreError
from ..engine.model import Composition, Deployment, Phase
from ..engine.progress import ProgressTracker
from ..inputs import shapes
from ..interfaces.platform import InstanceSettings, Labels

# fields of gates that the journal does not have if they say nothing
OMITTED = (("person", False), ("memory", None))
KEPT = 20  # how many ended rollouts the history keeps


class Kind(StrEnum):
    """What a rollout is for."""

    ROLLOUT = "rollout"
    ROLLBACK = "rollback"
    RESTART = "restart"
    SCALE = "scale"
    REBALANCE = "rebalance"

    @property
    def forward(self) -> bool:
        """Whether it follows the strategy and starts instances with the settings given."""
        return self in (Kind.ROLLOUT, Kind.RESTART)


class Outcome(StrEnum):
    """How a rollout ended."""

    NONE = ""  # it has not
    PROMOTED = "promoted"
    ROLLED_BACK = "rolled_back"
    ABORTED = "aborted"
    FAILED = "failed"
    SUPERSEDED = "superseded"


class GateState(StrEnum):
    """What has been decided about a gate."""

    WAITING = "waiting"
    PASSED = "passed"
    FAILED = "failed"


# As an annotation it says what may be in the journal; see `shapes.py`.
Strategy = t.Annotated[str, t.Literal["rolling", "canary", "blue_green"]]


@dataclass
class GateRecord:
    """What has been decided about a gate."""

    since: float  # when it was first asked, in seconds since the epoch
    state: GateState = GateState.WAITING
    message: str = ""
    by: str = ""  # what decided it: answer | error | timeout, or the operator who let it pass
    person: bool = False  # it waits for a person, since the gate itself cannot decide
    memory: dict[str, t.Any] | None = None  # its driver's


class Pause(t.TypedDict, total=False):
    """By whom a rollout was paused, since when and why."""

    by: str
    why: str | None
    at: float | None


class Seen(t.TypedDict):
    """An instance on a host that does not answer, as it was last seen."""

    labels: Labels
    created: float


@dataclass
class Rollout:
    """One walk of a service from one composition to another. Times in seconds since the epoch."""

    id: str
    revision: str
    generation: int
    replicas: int
    strategy: Strategy
    previous: Composition | None
    started: float
    kind: Kind = Kind.ROLLOUT
    phase: Phase = Phase.PROGRESSING
    outcome: Outcome = Outcome.NONE
    reason: str = ""
    step: str = "begin"
    updated: float = 0.0
    elapsed: float = 0.0  # seconds spent walking
    # stable instances that are kept until the promotion, at most; 0: as many as `previous` has
    base: int = 0
    # how many the last play asked for: an operator's word may have changed it since
    played: int = 0
    wanted: int = 0  # how many an operator asked for, as long as that was not obeyed
    grown: int = 0  # new instances that were there when another number was asked for
    replaced: int = 0  # instances stopped in favour of new ones
    tally: ProgressTracker | None = None  # of the walk under way
    failed: int = 0  # new instances that failed in all
    pardoned: int = 0  # of them, those that failed before a person let it go on
    plan: str = ""  # what was asked for when it began, as a hash: steps are not changed under it
    # the strategy's stages that it has left behind, by name
    passed: list[str] = field(default_factory=list)
    stage: int = 0  # how many those are, in a journal that has no names of them yet
    name: str = ""  # of the stage that is walked to or waited at
    entered: float = 0.0  # since when it is in its phase
    # what those of the stage have come to
    gates: dict[str, GateRecord] = field(default_factory=dict)
    # what those that are asked all along have come to
    background: dict[str, GateRecord] = field(default_factory=dict)
    # where an operator said so
    paused: t.Annotated[dict[str, t.Any], Pause] = field(default_factory=dict)
    asked: int | None = None  # the share of requests the stage asks for, in percent
    # requests since the stage was reached: new, all
    sent: dict[str, int] = field(default_factory=dict)
    full: bool = False  # promote_full was said: no more gates
    force: bool = False  # the switch was to be done with however many are ready
    reversible: bool = True  # False: there is no way back any more
    # the generation of fresh instances of the stable revision, to compare with; 0: there are none
    baseline: int = 0
    ending: Outcome = Outcome.NONE  # the one once it is back: rolled_back | aborted | superseded
    # of the play that asked for it last, and for which of its hosts: not asked again for the others
    request: str = ""
    host: str = ""
    # what it goes on with by an operator's word; see `remembered`
    given: dict[str, t.Any] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        """Whether there is nothing left to do for it."""
        return self.phase == Phase.FINISHED

    @property
    def waiting(self) -> list[str]:
        """The gates that it waits at, with what they said last."""
        waiting = {key: gate for key, gate in self.gates.items() if gate.state == GateState.WAITING}
        waiting |= {
            k: gate
            for k, gate in self.background.items()
            if gate.person and gate.state == GateState.WAITING
        }
        return [f"{key}: {gate.message}" if gate.message else key for key, gate in waiting.items()]

    @property
    def analysis(self) -> dict[str, str]:
        """How each analysis stands that it is judged by now, in a sentence."""
        return {
            key: gate.message
            for key, gate in (self.background | self.gates).items()
            if gate.memory is not None
        }

    def counting(self, now: float) -> ProgressTracker:
        """The tally of the walk under way; a new one knows what failed in the stages before."""
        return self.tally or ProgressTracker(now, earlier=self.failed - self.pardoned)

    def count(self, tally: ProgressTracker) -> None:
        """Take the tally of a turn. What fails on a way back is not of the new revision."""
        self.tally = tally
        if self.phase != Phase.ROLLING_BACK:
            self.failed = self.pardoned + tally.total

    def turn_to(self, phase: Phase, reason: str, now: float) -> bool:
        """Enter a phase, with the moment; whether it was in another one."""
        if (self.phase, self.reason) == (phase, reason):
            return False
        if self.phase != phase:
            self.entered = now
        self.phase, self.reason = phase, reason
        return True

    def advance(self, passed: Iterable[str], name: str) -> None:
        """Leave stages behind for the one of this name: what gates and failures have come to was
        of those (E-39, E-3a).
        """
        self.passed, self.name = [*self.passed, *passed], name
        self.gates, self.sent, self.tally = {}, {}, None

    def end(self, outcome: Outcome, reason: str, now: float) -> None:
        """Close it."""
        self.phase, self.outcome, self.reason, self.updated, self.tally = (
            Phase.FINISHED,
            outcome,
            reason,
            now,
            None,
        )
        self.given = {}
        for gate in (*self.gates.values(), *self.background.values()):
            gate.memory = None  # no run continues it, and the history is kept for long


@dataclass
class Record:
    """The journal's record of one service."""

    service: str
    stable: Composition | None = None
    before: Composition | None = None  # what was stable before it, and can be gone back to
    rollout: Rollout | None = None  # the one under way, or the last one
    generation: int = 0  # the last one made
    serial: int = 0  # of the last instance made
    draining: dict[str, float] = field(default_factory=dict)  # instances that are to go, since when
    history: list[t.Annotated[dict[str, t.Any], Rollout]] = field(default_factory=list)
    obeyed: int = 0  # the number of the last operator's word taken in
    balancers: str = ""  # the settings of the load balancers of the last rollout, as a hash (E-35)
    # by instance, of a service that is deployed in place
    deployed: dict[str, Deployment] = field(default_factory=dict)
    # By host that does not answer: what was last seen there.
    away: t.Annotated[dict[str, list[dict[str, t.Any]]], dict[str, list[Seen]]] = field(
        default_factory=dict
    )
    # by generation, of those that can be gone back to
    settings: dict[int, InstanceSettings] = field(default_factory=dict)
    # by host, the instances there when the last rollout ended
    placed: dict[str, list[str]] = field(default_factory=dict)

    @property
    def open(self) -> Rollout | None:
        """The rollout under way."""
        return self.rollout if self.rollout and not self.rollout.over else None

    def close(self, outcome: Outcome, reason: str, now: float) -> None:
        """End the rollout under way and write it into the history."""
        if self.rollout is None or self.rollout.over:
            return
        self.rollout.end(outcome, reason, now)
        self.history = [*self.history, shapes.write(self.rollout, OMITTED)][-KEPT:]

    def dump(self) -> dict[str, t.Any]:
        """As plain data; `id` names the timeline that events go to."""
        return {**shapes.write(self, OMITTED), "id": self.rollout.id if self.rollout else ""}

    @classmethod
    def load(cls, service: str, data: Mapping[str, t.Any], where: str = "") -> Record:
        """From plain data, which is kept `where`; an empty mapping is a service nothing is recorded
        of.

        What another version of ours wrote is passed over, and what it did not write has its
        default; anything else that is not what we write raises StoreError.
        """
        given = {key: value for key, value in data.items() if value is not None}
        try:
            return t.cast(Record, shapes.read(cls, {**given, "service": service}))
        except shapes.Misshapen as exc:
            raise StoreError(
                f"{where or f'the journal of {service}'} is damaged: {exc}; "
                "restore it, or move it away: then the next rollout begins from what it observes"
            ) from None
