# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The words of the engine: instances, their states, and what places them there. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, StrEnum


class Process(str, Enum):
    """What a platform reports about an instance. A driver maps anything else it meets to UNKNOWN."""

    STARTING = "starting"  # accepted, not running yet
    RUNNING = "running"
    STOPPING = "stopping"  # told to stop, still there
    STOPPED = "stopped"  # gone because it was told to
    FAILED = "failed"  # gone although nobody asked
    UNREACHABLE = "unreachable"  # its host does not answer
    UNKNOWN = "unknown"


class Health(str, Enum):
    """What the checks say about an instance."""

    NONE = "none"  # no check configured: running is ready (E-06)
    PENDING = "pending"  # has not passed yet
    PASSING = "passing"  # passed `rise` times in a row
    FAILING = "failing"  # had passed, then failed `fall` times in a row


class Rotation(str, Enum):
    """Where an instance stands at the load balancers, taken over all of them."""

    ABSENT = "absent"  # no entry anywhere
    OUT = "out"  # has entries, gets no new requests from any of them
    PARTIAL = "partial"  # in rotation at some, not at all
    IN = "in"  # in rotation at every one (or there is no load balancer)


class State(str, Enum):
    """The seven states of an instance (DESIGN, "Instance states, exhaustively")."""

    STARTING = "starting"
    READY = "ready"
    NOT_READY = "not_ready"
    DRAINING = "draining"
    STOPPED = "stopped"
    FAILED = "failed"
    UNREACHABLE = "unreachable"

    @property
    def counted(self) -> bool:
        """Whether an instance in this state counts in the total, that is against surge."""
        return self not in (State.STOPPED, State.FAILED)


@dataclass(frozen=True, slots=True)
class Instance:
    """One instance as observed in this turn.

    Times are seconds on the clock handed to `evaluate`. `generation` tells new from old;
    each rollout makes one, so a restart of the same revision is a rollout like any other.
    """

    id: str
    revision: str
    generation: int
    state: State
    created: float = 0.0  # when it was started
    ready_since: float | None = None  # since when it has been ready without a break
    rotation: Rotation = Rotation.ABSENT
    lb_healthy: bool = False  # every load balancer's own check passes it
    active: int = 0  # requests in flight, summed over the load balancers
    weight: int = 0  # of it among those in rotation, summed over the load balancers
    draining_since: float | None = None  # when we decided to take it out
    host: str = ""
    detail: str = ""  # why it is not ready, or how it died
    was_ready: bool = False  # of one that failed: it had been ready before
    crashed: bool = False  # it ended too soon after its start; its platform may have started it again

    @property
    def in_rotation(self) -> bool:
        """In rotation at any load balancer at all."""
        return self.rotation in (Rotation.IN, Rotation.PARTIAL)

    @property
    def order(self) -> tuple[float, str]:
        """Oldest first; equal times are told apart by id (E-6c)."""
        return (self.created, self.id)


def classify(process: Process, health: Health, draining: bool) -> State:
    """The one state for what a platform and a check report; anything unknown is `not_ready` (E-05)."""
    if process is Process.FAILED:
        return State.FAILED
    if process is Process.STOPPED:
        return State.STOPPED
    if process is Process.UNREACHABLE:
        return State.UNREACHABLE
    if process is Process.STOPPING or draining:
        return State.DRAINING
    if process is Process.STARTING:
        return State.STARTING
    if process is Process.RUNNING:
        if health in (Health.NONE, Health.PASSING):
            return State.READY
        if health is Health.PENDING:
            return State.STARTING
    return State.NOT_READY


def total(fleet: Iterable[Instance]) -> int:
    """How many instances count against desired + surge."""
    return sum(1 for instance in fleet if instance.state.counted)


class Phase(StrEnum):
    """Where a rollout is. It is over when it is finished; in every other phase a run continues it."""

    PROGRESSING = "progressing"
    PAUSED = "paused"
    AWAITING_PROMOTION = "awaiting_promotion"
    PROMOTING = "promoting"
    HOLDING = "holding"  # promoted; the old set is kept warm
    HELD = "held"  # stopped after a failure, for a person to decide
    ROLLING_BACK = "rolling_back"
    FINISHED = "finished"

    @property
    def waits(self) -> bool:
        """Whether the rollout waits for something outside the fleet, so that nothing fails for taking its time."""
        return self in (Phase.PAUSED, Phase.AWAITING_PROMOTION, Phase.HOLDING)


class FailureAction(StrEnum):
    """What follows from a failure."""

    ROLLBACK = "rollback"
    HOLD = "hold"
    CONTINUE = "continue"


UNKNOWN = "unknown"  # the revision of what runs where nobody has written down what was deployed


@dataclass(frozen=True)
class Composition:
    """A revision that is, or was, all of the service."""

    revision: str
    generation: int
    replicas: int


@dataclass(frozen=True)
class Deployment:
    """What was deployed on an instance that cannot tell itself; `at` in seconds since the epoch."""

    revision: str
    generation: int
    at: float
    failed: str = ""  # why it is not in service with it
    before: Composition | None = None  # what it served with until it was taken out for this one, and does until it is touched
