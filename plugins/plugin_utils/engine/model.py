# SPDX-License-Identifier: GPL-3.0-or-later
"""The model of the engine: instances, their states, and what those follow from. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, StrEnum


class Process(str, Enum):
    """The process of an instance as its platform reports it. A driver maps anything else to
    UNKNOWN.
    """

    STARTING = "starting"  # accepted, not running yet
    RUNNING = "running"
    STOPPING = "stopping"  # was told to stop and still exists
    STOPPED = "stopped"  # ended because it was told to
    FAILED = "failed"  # ended by itself
    UNREACHABLE = "unreachable"  # its host does not answer
    UNKNOWN = "unknown"


class Health(str, Enum):
    """The health status of an instance, by our own checks."""

    NONE = "none"  # there is no check, so a running instance is ready
    PENDING = "pending"  # has not passed yet
    PASSING = "passing"  # passed `rise` times in a row
    FAILING = "failing"  # had passed, then failed `fall` times in a row


class Rotation(str, Enum):
    """The place of an instance at the load balancers, over all of them."""

    ABSENT = "absent"  # no load balancer has an entry of it
    OUT = "out"  # has entries, and gets no new requests
    PARTIAL = "partial"  # in rotation at some, not at all
    IN = "in"  # in rotation at every load balancer, or there is none


class State(str, Enum):
    """The state of an instance, from its process, its health and whether it drains."""

    STARTING = "starting"
    READY = "ready"
    NOT_READY = "not_ready"
    DRAINING = "draining"
    STOPPED = "stopped"
    FAILED = "failed"
    UNREACHABLE = "unreachable"

    @property
    def counted(self) -> bool:
        """Whether an instance in this state counts in the total, and so against surge."""
        return self not in (State.STOPPED, State.FAILED)


@dataclass(frozen=True, slots=True)
class Instance:
    """One instance as observed in this iteration.

    Times are in seconds, on the clock passed to `evaluate`. `generation` tells new from old
    instances: each rollout has its own, so a restart of the same revision is a rollout like any
    other.
    """

    id: str
    revision: str
    generation: int
    state: State
    created: float = 0.0  # when it was started
    ready_since: float | None = None  # since when it has been ready without interruption
    rotation: Rotation = Rotation.ABSENT
    lb_healthy: bool = False  # every load balancer's own health check passes
    served: bool = False  # at least one load balancer sends it requests, and its check passes
    active: int = 0  # requests in flight, summed over the load balancers
    weight: int = 0  # its traffic weight while in rotation, summed over the load balancers
    draining_since: float | None = None  # since when it is to be stopped
    silent_since: float | None = None  # since when its host has not answered
    # Out of rotation, where load balancers bind clients: whether those that are bound to it are
    # still sent there; whether one of them parks it, and so does not check it; and since when all
    # of them do.
    bound: bool = False
    parked: bool = False
    parked_since: float | None = None
    host: str = ""
    detail: str = ""  # why it is not ready, or how it ended
    was_ready: bool = False  # it failed, and had been ready before
    was_unready: bool = False  # its host does not answer, and it was not ready when it last did
    crashed: bool = False  # it ended soon after its start; its platform may have restarted it
    redundant: bool = False  # its host has another available instance (`per_host.py`)
    precedence: int = 0  # of instances that may go, those with the highest go first

    @property
    def in_rotation(self) -> bool:
        """Whether any load balancer has it in rotation."""
        return self.rotation in (Rotation.IN, Rotation.PARTIAL)

    @property
    def order(self) -> tuple[int, float, str]:
        """Sort key: as the platform prefers, then the oldest first, and by id where times are
        equal.
        """
        return (-self.precedence, self.created, self.id)


def classify(process: Process, health: Health, draining: bool) -> State:
    """Return the state for what a platform and a check report; anything unknown is `not_ready`."""
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
    """Count the instances that count against desired + surge."""
    return sum(1 for instance in fleet if instance.state.counted)


class Phase(StrEnum):
    """Where a rollout is. It is over when it is finished; in every other phase a run continues
    it.
    """

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
        """Whether the rollout waits for something outside the fleet, so that nothing fails for
        taking its time.
        """
        return self in (Phase.PAUSED, Phase.AWAITING_PROMOTION, Phase.HOLDING)


class FailureAction(StrEnum):
    """What follows from a failure."""

    ROLLBACK = "rollback"
    HOLD = "hold"
    CONTINUE = "continue"


UNKNOWN = "unknown"  # the revision of an instance for which no deployment was recorded


@dataclass(frozen=True)
class Composition:
    """A revision that all instances of a service have, or had."""

    revision: str
    generation: int
    replicas: int
    order: int | None = None  # of the revision among all, where users say


@dataclass(frozen=True)
class Deployment:
    """What was deployed on an instance that cannot tell itself; `at` is in seconds since the
    epoch.
    """

    revision: str
    generation: int
    at: float
    failed: str = ""  # why the instance is not in service with it
    # what it served with when it was taken out, and has until it is touched
    before: Composition | None = None
