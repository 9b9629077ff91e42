# SPDX-License-Identifier: GPL-3.0-or-later
"""Load balancers: the base class of traffic drivers, and what they show."""

from __future__ import annotations

import abc
import typing as t
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ..engine.model import Rotation
from .driver import BaseDriver
from .platform import Endpoint


class Target(t.NamedTuple):
    """What one load balancer entry is to be."""

    rotation: Rotation  # IN, or OUT: known, health-checked, without new requests
    weight: int = 100
    name: str = ""  # the instance's id, for balancers that name their entries
    generation: int = 0  # the instance's, for balancers that weigh groups of entries
    # Whether it belongs to the side that the stage leads to, for balancers that keep clients on
    # their side; None: not known, it stays where it is.
    new: bool | None = None
    # OUT alone, of a driver that `binds`: also without the requests of clients bound to it.
    parked: bool = False


class Server(t.NamedTuple):
    """What one load balancer shows of one of its entries."""

    rotation: Rotation  # IN, OUT: as the driver set it, whatever the balancer's own check finds
    lb_healthy: bool  # it passes the balancer's own check (or the balancer has none)
    active: int  # requests in flight and queued
    weight: int = 100
    ours: bool = True  # made by the driver, which may remove it
    name: str = ""
    service: str = ""  # whose rollout made it; "": none, or not known
    detail: str = ""  # why it does not pass the balancer's own check, where that says so
    # The weight by which it gets new requests now, where the balancer shows that; None: `weight`,
    # as long as it is in rotation and passes the balancer's own check.
    effective: int | None = None
    prepared: bool = False  # made for rollouts by the balancer's configuration
    status: str = ""  # in the balancer's own words, where it has more of them than these fields
    steered_by: str = ""  # another program that may change its state or weight; "": none
    # Counters since the balancer began to count; it may start again from 0:
    requests: int = 0  # sent to it
    errors: int = 0  # of these: answered with 5xx, or not at all
    answered: int = 0  # the requests that `mean` is of
    # Seconds to the answer, of all of them or the last `WINDOW`; None: not measured.
    mean: float | None = None
    client_errors: int = 0  # requests answered with 4xx
    retries: int = 0  # connections to it that were tried again, here or at another server
    aborts: int = 0  # clients that left before their answer was complete
    connect_failures: int = 0  # connections to it that could not be opened
    # What it belongs to at an orchestrator, in `PlatformDriver.workloads` or not; "": not known.
    workload: str = ""
    backup: bool = False  # it gets requests only while no other entry can
    # OUT, of a driver that `binds`: no client is sent there, and it is not checked.
    parked: bool = False

    @property
    def by_hand(self) -> bool:
        """Whether no rollout made it, as far as is known: neither ours nor another service's."""
        return not self.ours and not self.service

    @property
    def share_weight(self) -> int:
        """The weight by which it gets new requests now; 0: it gets none."""
        if self.rotation is not Rotation.IN:
            return 0
        if self.effective is not None:
            return self.effective
        return self.weight if self.lb_healthy else 0


# beside the requests
COUNTS = ("errors", "client_errors", "retries", "aborts", "connect_failures")

WINDOW = 512  # requests that a `Server.mean` is of, at most

Table = Mapping[str, Mapping[Endpoint, Server]]  # by load balancer


class Served(t.NamedTuple):
    """What all load balancers sent to an instance during this run."""

    revision: str
    generation: int
    host: str
    endpoint: Endpoint
    serving: bool = False  # whether it is in rotation at any of them
    requests: int = 0
    errors: int = 0
    answered: int = 0  # answers whose time is measured,
    seconds: float = 0.0  # and the sum of these times
    client_errors: int = 0
    retries: int = 0
    aborts: int = 0
    connect_failures: int = 0
    first: float = 0.0  # when it first had requests; 0: not known

    def age(self, now: float) -> float:
        """Return for how long it has had requests, as far as is known."""
        return max(0.0, now - self.first) if self.first else 0.0

    def since(self, before: Served | None) -> Served:
        """Return what was counted in between.

        An instance deployed in place is a new one, counted from 0.
        """
        if before is None or before.generation != self.generation:
            return self
        return self._replace(
            requests=self.requests - before.requests,
            errors=self.errors - before.errors,
            answered=self.answered - before.answered,
            seconds=self.seconds - before.seconds,
            client_errors=self.client_errors - before.client_errors,
            retries=self.retries - before.retries,
            aborts=self.aborts - before.aborts,
            connect_failures=self.connect_failures - before.connect_failures,
        )


@dataclass(frozen=True)
class Cut:
    """What was counted when the share of the requests changed; changes are numbered."""

    number: int
    served: Mapping[str, Served]  # by instance


@dataclass(frozen=True)
class Preview:
    """A pool of its own at the same load balancers, for the new instances of a rollout."""

    traffic: TrafficDriver
    idle_only: bool = False  # only while the new instances get no requests of clients


class TrafficDriver(BaseDriver):
    """A set of load balancers that are kept in the same state.

    Every change carries `Known.epoch`, and so does every observation if it is not 0. Whatever
    acts at a load balancer keeps the highest epoch seen and refuses a lower one (LeaseLost), under
    a lock that is held as long as a command takes. Raises TrafficError; the rollout then observes
    again, until its progress deadline. What `apply` refuses with the same text each time ends a
    rollout sooner that has replaced nothing yet.
    """

    kind = "load balancer"
    folder = "traffic"

    pool_name: str = ""
    """What the entries are entries of, for people: `backend shop`."""
    counts: Collection[str] = ()
    """What is counted of each server: of `COUNTS`, and `latency` (with `answered`)."""
    of_cluster: bool = False
    """Whether requests are sent only to instances of the one cluster that this belongs to."""
    clusters: Collection[str] = ()
    """The clusters that each have a load balancer of this name, for their own instances alone."""
    divides: bool = True
    """Whether requests can be divided by weights, other than none and all of them."""
    adopts: bool = False
    """Whether it takes entries of a balancer's configuration out of rotation, and puts them back,
    once the service has adopted them (`Known.adopted`): by name, at their addresses, and without
    removing them. Those that are out and have no requests are not observed.
    """
    instead_of_adopting: str = ""
    """What to do where it does not, for a message."""
    keeps_adopted: bool = True
    """Whether adopted entries that are out stay in its configuration."""
    shares_check: bool = False
    """Whether all instances are asked by the present `rollout_health`, whatever their revision."""
    fixed: bool = False
    """Whether the entries are those of the balancer's own configuration: they are only taken out of
    rotation and put in."""
    binds: bool = False
    """Whether an entry out of rotation still gets requests of clients that are bound to it, until
    it is parked."""
    drain_timeout: float = 30.0
    """Seconds that requests in flight have until an instance is stopped."""
    settle_time: float = 0.0
    """Seconds at least between leaving rotation and being stopped."""

    @abc.abstractmethod
    def check(self) -> None:
        """Raise if a balancer cannot be reached or lacks what the driver needs. Touch nothing."""

    @abc.abstractmethod
    def observe(self) -> Table:
        """Return every entry of the service, at every balancer."""

    @abc.abstractmethod
    def apply(self, targets: Mapping[str, Mapping[Endpoint, Target]]) -> Table:
        """Bring each balancer to its targets, and return what each of them then shows.

        Targets are per balancer, because a balancer that was restarted has to check its entries
        again while the others continue. Entries of the driver's own that are not among the targets
        are taken out of rotation and removed, as far as the balancer lets it in this call; others
        stay. A balancer without targets is not asked, and may be unreachable. An entry put IN that
        has not passed the balancer's own check is refused. An update that a balancer refuses, or
        does not show, is an error.
        """

    def begin(self, divided: bool) -> None:
        """Note that a rollout is in progress, until `conclude`. Called before each of its stages.

        `divided`: new instances are to get another part of the requests than that of their number,
        as soon as they are ready. Touch nothing; the next `observe` or `apply` may.
        """

    def conclude(self) -> None:
        """Undo what is only for as long as a rollout lasts. Called when it ends, perhaps again."""

    def close(self) -> None:
        """Stop what runs in the background. Nothing is asked of the driver any more."""

    def capacity(self) -> Mapping[str, int]:
        """Return for how many instances a balancer has servers, without those that have no
        limit.
        """
        return {}

    def previews(self) -> Sequence[Preview]:
        """Return the pools for new instances that the options ask for."""
        return ()
