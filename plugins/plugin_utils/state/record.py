# SPDX-License-Identifier: GPL-3.0-or-later
"""What is recorded of a service because it cannot be observed. Plain data, no I/O."""

from __future__ import annotations

import time
import typing as t
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ..base.errors import StoreError
from ..engine.model import Composition, Deployment, Phase
from ..engine.progress import ProgressTracker
from ..inputs import shapes
from ..interfaces.platform import Endpoint, InstanceSettings, Labels

# fields that the journal leaves out while they have these values
OMITTED: tuple[tuple[str, t.Any], ...] = (
    ("person", False),
    ("memory", None),
    ("id", None),
    ("order", None),
    ("release", None),
    ("wanted_new", 0),
    ("aim", {}),
    ("excluded", []),
    ("per_host", False),
    ("adopted", None),
)
KEPT = 20  # ended rollouts in the history
MOVED = "moved"  # in a journal that must not be used, since it was moved, or is being moved here


class RolloutKind(StrEnum):
    """What a rollout is for."""

    ROLLOUT = "rollout"
    ROLLBACK = "rollback"
    RESTART = "restart"
    SCALE = "scale"
    REBALANCE = "rebalance"

    @property
    def forward(self) -> bool:
        """Whether the rollout follows the strategy and starts instances with the settings given."""
        return self in (RolloutKind.ROLLOUT, RolloutKind.RESTART)


class Outcome(StrEnum):
    """How a rollout ended."""

    NONE = ""  # in progress
    PROMOTED = "promoted"
    ROLLED_BACK = "rolled_back"
    ABORTED = "aborted"
    FAILED = "failed"
    SUPERSEDED = "superseded"
    REFUSED = "refused"  # before anything of it was started


TAKEN_BACK = (Outcome.ROLLED_BACK, Outcome.ABORTED, Outcome.FAILED)


class GateState(StrEnum):
    """What has been decided about a gate."""

    WAITING = "waiting"
    PASSED = "passed"
    FAILED = "failed"


WITHOUT_VERDICT = "without a verdict"  # begins the reason of a promotion that measurements doubt

# The annotation says which values the journal may have; see `shapes.py`.
Strategy = t.Annotated[str, t.Literal["rolling", "canary", "blue_green"]]


@dataclass
class GateRecord:
    """What has been decided about a gate."""

    since: float  # when it was first asked, in seconds since the epoch
    state: GateState = GateState.WAITING
    message: str = ""
    by: str = ""  # what decided: answer | error | timeout, or the operator who let it pass
    id: str | None = None  # of the error that decided
    person: bool = False  # the gate cannot decide, and waits for a person
    # what its driver has measured so far
    memory: t.Annotated[dict[str, t.Any] | None, dict[str, t.Any] | None] = None


class Pause(t.TypedDict, total=False):
    """Who paused a rollout, when and why."""

    by: str
    why: str | None
    at: float | None


class CountedRequests(t.TypedDict, total=False):
    """What a load balancer had counted of an entry; see `interfaces.traffic.Server`."""

    requests: int
    errors: int
    answered: int
    mean: float | None
    client_errors: int
    retries: int
    aborts: int
    connect_failures: int


class SilentInstance(t.TypedDict):
    """An instance on a host that does not answer, as it was last seen."""

    labels: Labels
    created: float


@dataclass(frozen=True)
class MemberOf:
    """The release that a rollout is a member of."""

    release: str
    member: str
    reversible: bool = True
    with_canary: bool = False

    @property
    def together(self) -> bool:
        """Whether it takes the steps of its canary with the others."""
        return self.with_canary and self.reversible


@dataclass
class Rollout:
    """The change of a service from one composition to another. Times in seconds since the epoch."""

    id: str
    revision: str
    generation: int
    replicas: int
    strategy: Strategy
    previous: Composition | None
    started: float
    kind: RolloutKind = RolloutKind.ROLLOUT
    phase: Phase = Phase.PROGRESSING
    outcome: Outcome = Outcome.NONE
    reason: str = ""
    cause: str = ""  # id of the message that the reason of a rollback is
    step: str = "begin"
    updated: float = 0.0
    elapsed: float = 0.0  # seconds that steps spent on it, without waiting at gates
    # stable instances that are kept until the promotion, at most; 0: as many as `previous` has
    base: int = 0
    # replicas that the last play asked for: an operator may have scaled the rollout since
    played: int = 0
    wanted: int = 0  # replicas that an operator asked for, until that is obeyed
    wanted_new: int = 0  # new instances that an operator set, until that is obeyed
    aim: dict[str, int] = field(default_factory=dict)  # by stage, those that an operator has set
    # hosts that an operator has taken out: what is there goes, and nothing is placed there
    excluded: list[str] = field(default_factory=list)
    per_host: bool = False  # one instance on each host; `replicas` are the hosts then
    # replicas that the owner of the workload asked for there, as last taken; None: no others
    owner: int | None = None
    grown: int = 0  # new instances that existed when the rollout was scaled
    # the percentage of the requests that they had then, and how many had it; empty: never scaled
    carried: list[int] = field(default_factory=list)
    replaced: int = 0  # instances stopped in favor of new ones
    # other instances when it began; 0: none, or it was begun by an earlier version
    ran: int = 0
    tally: ProgressTracker | None = None  # progress of the current stage
    failed: int = 0  # new instances that failed in all stages
    pardoned: int = 0  # of them, those that failed before a person let the rollout continue
    plan: str = ""  # hash of the plan that the rollout began with, which may not change
    # names of the stages that were passed
    passed: list[str] = field(default_factory=list)
    stage: int = 0  # their number, in a journal of an earlier version, which has no names
    name: str = ""  # of the current stage
    entered: float = 0.0  # when the phase was entered
    gates: dict[str, GateRecord] = field(default_factory=dict)  # of the current stage
    # of background analyses, which outlive stages
    background: dict[str, GateRecord] = field(default_factory=dict)
    # if an operator paused it
    paused: t.Annotated[dict[str, t.Any], Pause] = field(default_factory=dict)
    asked: int | None = None  # percentage of the requests that the stage asks for
    # requests since the stage was reached, to `new` and to `all` instances
    sent: dict[str, int] = field(default_factory=dict)
    # by load balancer and entry, what was counted when the timeline last got it; None: not known
    counted: t.Annotated[
        dict[str, dict[str, t.Any]] | None, dict[str, dict[str, CountedRequests]] | None
    ] = None
    # instances whose checks pass, or have passed, since when they do, or may again
    ready: dict[str, float] = field(default_factory=dict)
    # new instances that have had requests, since when
    served: dict[str, float] = field(default_factory=dict)
    full: bool = False  # promote_full was sent: no more gates
    force: bool = False  # a forced promotion: switch with as many as are ready
    reversible: bool = True  # False: a failure holds, since a rollback is not possible any more
    # generation of the fresh instances of the stable revision to compare with; 0: there are none
    baseline: int = 0
    ending: Outcome = Outcome.NONE  # the outcome once it is rolled back, if not rolled_back
    # which play requested it last, and for which host: for its other hosts nothing is done again
    request: str = ""
    host: str = ""
    by: str = ""  # who began it
    why: str = ""  # the reason that they gave
    order: int | None = None  # of the revision among all, where users say
    release: MemberOf | None = None
    # variables with which a command continues it; see `remembered`
    given: t.Annotated[dict[str, t.Any], dict[str, t.Any]] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        """Whether the rollout is finished."""
        return self.phase == Phase.FINISHED

    @property
    def repairs(self) -> bool:
        """Whether only what is missing of the stable revision comes back: as many as before."""
        stable = self.previous
        return (
            self.kind == RolloutKind.SCALE
            and stable is not None
            and (stable.generation, stable.replicas) == (self.generation, self.replicas)
        )

    @property
    def waiting(self) -> list[str]:
        """The gates that the rollout waits at, each with its last message."""
        waiting = {key: gate for key, gate in self.gates.items() if gate.state == GateState.WAITING}
        waiting |= {
            k: gate
            for k, gate in self.background.items()
            if gate.person and gate.state == GateState.WAITING
        }
        return [f"{key}: {gate.message}" if gate.message else key for key, gate in waiting.items()]

    @property
    def analysis(self) -> dict[str, str]:
        """The state of each current analysis, in a sentence."""
        return {
            key: gate.message
            for key, gate in (self.background | self.gates).items()
            if gate.memory is not None
        }

    def counting(self, now: float) -> ProgressTracker:
        """Return the progress of the stage; at its start with the failures of earlier stages."""
        return self.tally or ProgressTracker(now, earlier=self.failed - self.pardoned)

    def count(self, tally: ProgressTracker) -> None:
        """Take the progress after an iteration; failures in a rollback do not count."""
        self.tally = tally
        if self.phase != Phase.ROLLING_BACK:
            self.failed = self.pardoned + tally.total

    def turn_to(self, phase: Phase, reason: str, now: float) -> bool:
        """Enter a phase; return whether the phase or the reason is new."""
        if (self.phase, self.reason) == (phase, reason):
            return False
        if self.phase != phase:
            self.entered = now
        self.phase, self.reason = phase, reason
        return True

    def advance(
        self, passed: Iterable[str], name: str, begun: Mapping[str, float] | None = None
    ) -> None:
        """Pass stages and enter the one of this name, without the results of gates and the
        failures before it. `begun` says since when gates of that stage count, before it is reached.
        """
        self.passed, self.name = [*self.passed, *passed], name
        self.gates = {key: GateRecord(since) for key, since in (begun or {}).items()}
        self.sent, self.tally = {}, None

    def end(self, outcome: Outcome, reason: str, now: float) -> None:
        """Finish the rollout."""
        self.phase = Phase.FINISHED
        self.outcome = outcome
        self.reason = reason
        self.updated = now
        self.tally = None
        self.given, self.counted, self.ready, self.served = {}, None, {}, {}
        for gate in (*self.gates.values(), *self.background.values()):
            gate.memory = None  # no run needs it any more, and it may be large


@dataclass
class ChangedAutoscaler:
    """An autoscaler that a rollout has changed, or is about to change. States are its driver's."""

    driver: str
    options: dict[str, t.Any]
    original: dict[str, t.Any]  # of the fields that nobody else has changed since
    before: dict[str, t.Any]  # its state before the last change
    now: dict[str, t.Any]  # and after it, if it was made


@dataclass
class AdoptedServers:
    """Entries of the load balancers' configuration that were the service before its first rollout.

    They are the instances of this generation, each named as its entry.
    """

    revision: str
    generation: int
    servers: dict[str, Endpoint]  # by name
    since: float = 0.0  # when they were adopted
    out: list[str] = field(default_factory=list)  # those that were replaced, and are out for good


@dataclass
class Record:
    """The journal's record of one service."""

    service: str
    stable: Composition | None = None
    before: Composition | None = None  # what was stable before it, to roll back to
    rollout: Rollout | None = None  # in progress, or the last one
    generation: int = 0  # the last one used
    serial: int = 0  # of the last instance started
    # instances that are to be stopped, since when
    draining: dict[str, float] = field(default_factory=dict)
    history: t.Annotated[list[dict[str, t.Any]], list[Rollout]] = field(default_factory=list)
    obeyed: int = 0  # number of the last operator command that was read
    # hash of the load balancers' settings, which a canary may not change:
    # docs/explanation/decisions/0011-load-balancers-stay-the-same.md
    balancers: str = ""
    # by instance, of a service that is deployed in place
    deployed: dict[str, Deployment] = field(default_factory=dict)
    # by unreachable host, the instances last seen there
    away: t.Annotated[dict[str, list[dict[str, t.Any]]], dict[str, list[SilentInstance]]] = field(
        default_factory=dict
    )
    # by generation, of those that a rollback may lead to
    settings: dict[int, InstanceSettings] = field(default_factory=dict)
    # by host, the instances there when the last rollout ended
    placed: dict[str, list[str]] = field(default_factory=dict)
    autoscaler: ChangedAutoscaler | None = None  # until it is put back
    adopted: AdoptedServers | None = None  # what was the service before its first rollout
    # random, in the journal wherever it is moved to: hosts remember which journal they belong to
    journal: str = ""

    @property
    def open(self) -> Rollout | None:
        """The rollout in progress."""
        return self.rollout if self.rollout and not self.rollout.over else None

    def is_adopted(self, generation: int) -> bool:
        """Return whether the instances of a generation are the adopted servers."""
        return self.adopted is not None and self.adopted.generation == generation

    def order_of(self, revision: str) -> int | None:
        """Return the place of a known revision among all; None: not known."""
        known: list[Composition | Rollout | None] = [self.open, self.stable, self.before]
        orders = [
            composition.order
            for composition in known
            if composition and composition.revision == revision
        ]
        orders += [
            past.get("order") for past in reversed(self.history) if past.get("revision") == revision
        ]
        return next((order for order in orders if order is not None), None)

    def left_at(self, revision: str) -> float | None:
        """Return when a newer revision replaced this one as the stable one; None: not known, or it
        was not good: a rollback left it, or a later rollout of it was taken back.
        """
        for past in reversed(self.history):
            if past.get("revision") == revision and past.get("outcome") in TAKEN_BACK:
                return None
            previous = past.get("previous") or {}
            changed = past.get("outcome") == Outcome.PROMOTED and previous.get(
                "revision"
            ) != past.get("revision")
            if changed and previous.get("revision") == revision:
                return None if past.get("kind") == RolloutKind.ROLLBACK else past.get("updated")
        return None

    def new_id(self, now: float, pid: int) -> str:
        """Return an id for a rollout that this process begins now, other than those known."""
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now))
        first = f"{self.service}-{stamp}-{pid}"
        known = {
            self.rollout.id if self.rollout else "",
            *(rollout.get("id") for rollout in self.history),
        }
        names = (first, *(f"{first}.{number}" for number in range(2, len(known) + 2)))
        return next(name for name in names if name not in known)

    def close(self, outcome: Outcome, reason: str, now: float) -> None:
        """Finish the rollout in progress and add it to the history."""
        if self.rollout is None or self.rollout.over:
            return
        self.rollout.end(outcome, reason, now)
        self.history = [*self.history, shapes.write(self.rollout, OMITTED)][-KEPT:]

    def dump(self) -> dict[str, t.Any]:
        """Return plain data; `id` names the timeline that events go to."""
        return {**shapes.write(self, OMITTED), "id": self.rollout.id if self.rollout else ""}

    @classmethod
    def load(cls, service: str, data: Mapping[str, t.Any], where: str = "") -> Record:
        """Read plain data, which is kept `where`; an empty mapping is a service without a journal.

        Unknown fields, which another version wrote, are ignored, and missing ones have their
        defaults. Raises StoreError for damaged data.
        """
        given = {key: value for key, value in data.items() if value is not None}
        if MOVED in given:
            raise _moved(service, given[MOVED], where)
        try:
            return t.cast(Record, shapes.read(cls, {**given, "service": service}))
        except shapes.Misshapen as exc:
            raise StoreError(
                f"{where or f'the journal of {service}'} is damaged: {exc}; restore it, or move it"
                " away: then the next rollout begins from what it observes",
                "PR-506",
            ) from None


def _moved(service: str, mark: t.Any, where: str) -> StoreError:
    """Return why a journal cannot be used that store.yml has marked."""
    if isinstance(mark, Mapping) and "to" in mark:
        return StoreError(
            f"rollout_store: the journal of {service} was moved to {mark['to']}; change"
            " rollout_store",
            "PR-512",
        )
    return StoreError(
        f"{where or f'the journal of {service}'} is a copy that is not complete; run store.yml"
        " again, or set rollout_store to where it is copied from",
        "PR-512",
    )
