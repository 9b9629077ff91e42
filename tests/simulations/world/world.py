# SPDX-License-Identifier: GPL-3.0-or-later
"""What is outside of the controller: hosts with instances, load balancers and a journal; the faults
that befall calls to them; and the promises, checked at each change.
"""

from __future__ import annotations

import json
import math
import typing as t
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random

from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import (
    Phase,
    Rotation,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import (
    Process as Sees,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    Endpoint,
    Labels,
)

from .by_hand import AGAIN, ByHand
from .by_hand import labels as labels_by_hand
from .clients import Clients
from .decided import Decided
from .machine import START, Machine, Process
from .store import Journal
from .waits import UNSEEN, Waits

HOSTS = ("web1", "web2", "web3")
ADDRESSES = {name: f"10.0.0.{number}" for number, name in enumerate(HOSTS, 1)}
BALANCERS = ("lb1", "lb2")
SOON = 10.0  # in which it knows by its checks that one does not answer
RECENT = 6.0  # in which it acts on what balancers showed
LATE = 10.0  # after which it asks balancers once more
CHECKED = 1.0  # in which checks find out that one is ready
SELDOM = 5.0  # in which it looks at a preview pool that is not in use
REQUESTS = 100  # a second, at each balancer
ROUNDING = 0.05  # weights are whole numbers
MANY = 20_000  # calls of drivers that no story takes
BURST, BURST_INTERVAL = 5, 10.0  # restarts after which, within seconds, there are no more
IN_PLACE = 7000  # the port of instances that tasks deploy
# A balancer that sends requests to a host again, on which tasks work, is told otherwise so soon.
WATCHED = 5.0
BY_HAND = Endpoint("10.9.9.9", 80)  # of a server that an operator has added


@dataclass(frozen=True)
class Life:
    """How an instance behaves. Seconds, since its start where not said otherwise."""

    start: float = 1.0  # until it answers; inf: never
    stop: float = 0.5  # from being told to stop until it is gone; inf: it has to be killed
    work: float = 0.5  # from leaving rotation until its last request is done
    crash: float | None = None
    flap: tuple[float, float] | None = None  # from when on it does not answer, and for how long
    errors: float = 0.0  # the part of its answers that are errors


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong, at a call of a driver or at a moment of the story.

    `at` is the number of the call, or seconds.
    """

    kind: str
    at: float
    span: float = 0.0
    what: str = ""

    def __str__(self) -> str:
        when = f"call {self.at:g}" if self.kind in AT_CALLS else f"{self.at:g} s"
        span = f" for {self.span:g} s" if self.span else ""
        return f"{self.kind} {self.what}".rstrip() + f" at {when}{span}"


AT_CALLS = {
    "fails": "refused, and nothing is done",
    "is lost": "done, and the answer is lost",
    "is half done": "done at some hosts or balancers only",
    "is slow": "done late",
    "answers late": "done, and answered late",
    "dies before": "the controller is killed before it",
    "dies after": "the controller is killed after it",
    "freezes": "the controller is frozen before it, perhaps for longer than its lease",
    "is interrupted": "the run gets a signal",
}


@dataclass
class Instance:
    """An instance as it really is."""

    labels: Labels
    life: Life
    created: float
    told: float | None = None  # to stop, since
    leaves: int = 0  # the run that takes it for stopping, which its busy host is yet to do
    gone: Sees | None = None  # how it ended
    lost: float | None = None  # when it was last well before something befell it
    began: float = 0.0  # when its platform started it again, or is to
    restarts: int = 0  # by its platform
    restarted: float = 0.0  # when it first was
    flaps: bool = False  # it does not answer, for a while
    recovered: float = float("-inf")  # when it last answered again after that, or a restart
    served: bool = False  # whether it has answered
    patience: float = 10.0  # seconds to stop, until it is killed
    detail: str = ""  # how it ended
    flavour: str = ""  # the setting that it was started with
    by_hand: bool = False  # no platform knows it: a person started it

    def well(self, now: float) -> bool:
        """Return whether it answers."""
        ended = self.gone or self.told is not None or self.flaps
        return not ended and now - self.up >= self.life.start

    @property
    def up(self) -> float:
        """Since when its process is there, or will be."""
        return max(self.created, self.began)


@dataclass
class Entry:
    """A load balancer's entry."""

    name: str
    rotation: Rotation = Rotation.OUT
    weight: int = 100
    left: float = float("-inf")  # rotation, at
    joined: float = float("-inf")  # rotation, at
    ours: bool = True
    since: float = float("-inf")  # which it is known
    requests: float = 0.0  # sent to it so far, by this balancer's own account
    errors: float = 0.0
    restored: bool = False  # by the balancer itself, and not changed by a controller since
    formerly: str = ""  # the instance that it was for in the restored state
    parked: bool = False  # not checked, and clients that are bound to it are sent elsewhere
    by_hand: bool = False  # the configuration has it, whatever a rollout does
    unused: bool = False  # of these: in maintenance


@dataclass
class Balancer:
    name: str
    entries: dict[Endpoint, Entry] = field(default_factory=dict)
    before: dict[Endpoint, Entry] = field(default_factory=dict)  # an older state
    epoch: int = 0
    away: float = 0.0  # until
    disturbed: float = float("-inf")  # when it lost its state
    disordered: bool = False  # it lost its state, and no controller has changed it since
    counted: float = START  # to when its requests are counted
    blind: float = 0.0  # until when its own checks fail, and its counters are wrong
    hosts: Collection[str] = HOSTS  # to whose instances it sends requests
    # of these: how many have to serve, and the part of the requests that each may always get
    floor: int | None = None  # None: as of all
    even: float | None = None

    def keep(self) -> None:
        """Keep the present state, which it may return to."""
        self.before = {at: Entry(**vars(entry)) for at, entry in self.entries.items()}


@dataclass
class Host:
    name: str
    instances: dict[str, Instance] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)  # by service
    left: float = float("-inf")  # since when it does not answer
    away: float = 0.0  # until
    back: float = float("-inf")
    busy: float = 0.0  # until when it does later what it is told
    begun: float = 0.0  # when it was told so last
    locked: float = 0.0  # until when nobody else gets an answer, since it works
    boots: int = 0

    @property
    def seen(self) -> float:
        """Return since when it can be seen again."""
        return max(self.back, self.locked)


class Broken(Exception):
    """A promise was not kept."""


class World:
    """One service, and all that it runs on."""

    def __init__(
        self,
        machine: Machine,
        faults: t.Sequence[Fault],
        lives: Callable[[str, int], Life],
        floor: int,
        ceiling: int,
        dice: Random,
    ) -> None:
        """`lives`: of the next instance of a revision; `floor` and `ceiling`: what the budget
        allows.
        """
        self.machine, self.lives = machine, lives
        self.floor, self.ceiling, self.dice = floor, ceiling, dice
        self.hosts = {name: Host(name) for name in HOSTS}
        self.balancers = {name: Balancer(name) for name in BALANCERS}
        self.pools = {"shop": self.balancers}  # by service
        self.previews = {name: Balancer(name) for name in BALANCERS}  # of new instances alone
        self.previewed = False  # whether they are used
        self.journals: defaultdict[str, Journal] = defaultdict(Journal)  # by service
        # by service, the text of its record, and what that says
        self._records: dict[str, tuple[bytes, Mapping[str, t.Any]]] = {}
        self.store_away = 0.0  # until
        self.calls = 0
        self.at_calls = {int(one.at): one for one in faults if one.kind in AT_CALLS}
        self.happened: list[Fault] = []
        self.lines: list[str] = []
        self.wrong = ""  # the first promise that was not kept
        self.leases: dict[int, int] = {}  # by process, the epoch that it was given
        self.looked: dict[int, float] = {}  # by process, when it last looked at the balancers
        self.seen: dict[int, float] = {}  # by process, of when what these showed it is
        self.late_looks: dict[int, int] = {}  # by process, late answers of balancers in a row
        # by process and instance, since when it knows that the instance does not answer
        self.known: dict[tuple[int, str], float] = {}
        self.hampered: dict[int, float] = {}  # by process, until when a call of it is delayed
        self.delayed: dict[int, float] = {}  # by process, when a call of it was last delayed
        self.late: dict[int, float] = {}  # by process, for how long its calls were delayed
        self.unwatched: set[int] = (
            set()
        )  # runs of which the process that keeps hosts vacated was ended, or lost their lease
        self.written: dict[int, float] = {}  # by process, when it last proved its lease
        self.expires = 0.0  # the lease, by the wall clock
        self.held_since = 0.0  # the lease, by that run
        self.holder = 0  # the process that took the lease last; 0: it was given back
        self.numbers: dict[str, int] = {}  # instances of each revision so far
        self.stable = 0  # the generation
        self.receiving: t.Sequence[str] = ["gets it"]  # what a receiver does with a notice, in turn
        self.received: list[tuple[str, str]] = []  # notices: of which rollout, and which event
        self.scaler: dict[str, t.Any] = {"min": 1, "max": 9, "off": False}
        self.scaler_epoch = 0
        self.wish: int | None = None  # how many instances the autoscaler wants
        self.unavailable = 0  # instances that may be missing, by the budget
        self.even = 1.0  # the part of the requests that an instance may always get
        self.weights: t.Sequence[float] = ()  # of the new instances, at the steps of the rollout
        self.unfit: set[str] = set()  # revisions that no gate passes: not to be promoted
        self.wanted = floor  # so many are to serve, but on a way back, where `floor` is enough
        self.hidden: set[str] = set()  # of these, those that get no requests before a gate passes
        self.managed = ""  # how rollouts keep it from changing numbers, if they do
        self.inherited = False  # whether an earlier version began the first rollout
        self.settings: Mapping[str, str] = {}  # by revision, if each has a setting of its own
        self.at_switch: Callable[[], None] = _nothing  # what happens when requests are switched
        self.born: dict[str, Instance] = {}  # by id, all that ever were
        self._last: dict[Endpoint, Instance] = {}  # by endpoint, the last that began there
        self.retries = False  # whether balancers send a refused request to another entry once
        self.clients = Clients(self)
        self.waits = Waits(self)
        self.decided = Decided(self)
        self.by_hand = ByHand(self)
        self.one_a_host = False  # whether no host may have two instances of a revision
        self.quiet = False  # whether requests are few and long
        self.tasks = 1.0  # seconds that the user's tasks take on a host, in place
        # seconds after which platforms start what ended by itself again; 0: they do not
        self.again = 0.0

    @property
    def texts(self) -> dict[str, bytes]:
        """The journal of the service that is rolled out."""
        return self.journals["shop"].texts

    def recorded(self, name: str, service: str = "shop") -> t.Any:
        """Return a part of the record of a service, as its journal has it."""
        text = self.journals[service].texts.get("record")
        if text is None:
            return None
        if service not in self._records or self._records[service][0] is not text:
            self._records[service] = text, json.loads(text)
        return self._records[service][1].get(name)

    def committed(self, record: Mapping[str, t.Any], service: str) -> None:
        """Keep a record that was written, which is not read again."""
        self._records[service] = self.journals[service].texts["record"], record

    @property
    def now(self) -> float:
        return self.machine.time

    # -- the story ---------------------------------------------------------------------------------

    def tell(self, text: str) -> None:
        """Add a line to the story."""
        process = self.machine.current.process
        line = f"{process.name:10}  {text}"
        if not (self.lines and self.lines[-1].endswith(line)):  # it is done again and again
            self.lines.append(f"{self.now - START:9.2f}  {line}")

    def broken(self, promise: str) -> None:
        """Note that a promise is not kept: the story ends there."""
        if not self.wrong:
            self.wrong = promise
            self.tell(f"BROKEN: {promise}")
            self.machine.wake(self.machine.main)

    # -- calls -------------------------------------------------------------------------------------

    @contextmanager
    def call(self, what: str, error: Callable[[str], Exception]) -> Iterator[bool]:
        """A call of a driver: what is inside is what it does, to half of those concerned if True is
        given.
        """
        process = self.machine.current.process
        process.check()
        self.calls += 1
        if self.calls == MANY:
            self.broken(f"{MANY} calls, and no end: {what}")
        if self.wrong:
            self.machine.sleep(1.0)  # the story is over
        fault = self.at_calls.pop(self.calls, None)
        kind = fault.kind if fault else ""
        if fault:
            self.happened.append(fault)
            self.waits.disturb(fault.span)
            self.tell(
                f"FAULT: call {self.calls}, {what}, {kind}"
                + (f" ({fault.span:g} s)" if fault.span else "")
            )
        if process.pid != process.run and fault and self._ends_watch(fault):
            self.unwatched.add(process.run)
        if kind == "dies before":
            process.kill()
            process.check()
        if kind == "is interrupted":
            process.interrupted = "SIGTERM"
            process.on_signal()
        if fault and kind in ("is slow", "freezes"):
            self.delay(process, fault.span, kind == "freezes")
        if kind == "fails":
            raise error(f"{what}: refused")
        yield kind == "is half done"
        if fault and kind == "answers late":
            self.delay(process, fault.span, False)
        if kind == "dies after":
            process.kill()
            process.check()
        if kind in ("is lost", "is half done"):
            raise error(f"{what}: no answer")

    def _ends_watch(self, fault: Fault) -> bool:
        """Return whether the process that it befalls keeps nothing from a host any more."""
        outlives = fault.kind == "freezes" and self.machine.wall() + fault.span > self.expires
        return outlives or fault.kind.startswith(("dies", "is interrupted"))

    def some(self, names: t.Collection[str], half: bool) -> t.Collection[str]:
        """Return those that a call reaches: all, or half of them."""
        return self.dice.sample(list(names), len(names) // 2) if half else names

    def delay(self, process: Process, span: float, whole: bool) -> None:
        """Let time pass in a call, for the whole process if it is frozen."""
        if whole:
            process.until = self.now + span
        self.hampered[process.run] = max(self.now + span, self.hampered.get(process.run, 0.0))
        self.machine.sleep(span)
        self.delayed[process.run] = self.now
        self.late[process.run] = self.late.get(process.run, 0.0) + span

    # -- promises ----------------------------------------------------------------------------------

    def pool(self, service: str) -> dict[str, Balancer]:
        """Return the balancers as a service sees them, with entries of its own."""
        return self.pools.setdefault(service, {name: Balancer(name) for name in BALANCERS})

    def instances(self, service: str = "shop") -> list[Instance]:
        return [
            one
            for host in self.hosts.values()
            for one in host.instances.values()
            if one.labels.service == service
        ]

    def alive(self) -> list[Instance]:
        return [one for one in (*self.instances(), *self.by_hand.used()) if not one.gone]

    def at(self, endpoint: Endpoint) -> Instance | None:
        """Return the living instance that listens there."""
        instance = self._last.get(endpoint)
        return None if instance is None or instance.gone else instance

    def reachable(self, instance: Instance) -> bool:
        return self.hosts[instance.labels.host].away <= self.machine.time

    def answers(self, endpoint: Endpoint) -> bool:
        """Return whether an instance there passes a check."""
        instance = self._last.get(endpoint)
        if instance is None or instance.gone or not self.reachable(instance):
            return False
        if well := instance.well(self.machine.time):
            instance.served = True
            instance.lost = None
        return well

    def serving(self, balancer: Balancer) -> Collection[Endpoint]:
        """Return where a balancer sends requests to that are answered."""
        return [
            endpoint
            for endpoint, entry in balancer.entries.items()
            if entry.rotation is Rotation.IN
            and entry.weight
            and self.answers(endpoint)
            and not self._is_leaving(self._last[endpoint])
        ]

    def _is_leaving(self, instance: Instance) -> bool:
        """Return whether a run takes an instance for stopping: that which has told its busy host so,
        or would have. The next run knows what the host does.
        """
        if not instance.leaves or self.hosts[instance.labels.host].locked > self.now:
            return bool(instance.leaves)
        return any(one.run == instance.leaves for one in self.machine.processes if one.alive)

    def count(self, balancer: Balancer) -> None:
        """Count the requests since the last time: each gets its part of them, by its weight."""
        sent = (self.now - balancer.counted) * REQUESTS
        balancer.counted = self.now
        serving = [
            (entry, self._last[at])
            for at, entry in balancer.entries.items()
            if entry.rotation is Rotation.IN and self.answers(at)
        ]
        weights = sum(entry.weight for entry, _instance in serving)
        for entry, instance in serving if weights else ():
            part = sent * entry.weight / weights
            entry.requests += part
            entry.errors += part * instance.life.errors

    def shares(self, balancer: Balancer) -> dict[Endpoint, float]:
        """Return which part of the requests each instance gets that answers, or flaps: it still
        accepts connections, which is what the balancer checks.
        """
        weights = {
            at: entry.weight
            for at, entry in balancer.entries.items()
            if entry.rotation is Rotation.IN and entry.weight
            if self.answers(at) or ((flapping := self.at(at)) and flapping.flaps)
        }
        total = sum(weights.values())
        return {at: weight / total for at, weight in weights.items()}

    def check_shares(self, balancer: Balancer, before: Mapping[Endpoint, float]) -> None:
        """No instance gets more than an even part, or than it had before, or has at another
        balancer: one that had lost its state gets that of the others.
        """
        after = self.shares(balancer)
        if self.is_unseen(balancer) or self.lost_unseen():
            return
        others = [self.shares(one) for one in self.balancers.values() if one is not balancer]
        for at, share in after.items():
            had = max(one.get(at, 0.0) for one in (before, *others))
            even = self.even if balancer.even is None else balancer.even
            asked = max(self.asked(balancer, at), self.left_to(at, before, after))
            if share > max(even, 1 / len(after), had, asked) + ROUNDING:
                self.broken(
                    f"{at} gets {share:.0%} of the requests at {balancer.name}, before"
                    f" {before.get(at, 0.0):.0%}, and {len(after)} serve"
                )

    def asked(self, balancer: Balancer, at: Endpoint) -> float:
        """Return which part of the requests an instance may get by the weight of its step: as few
        carry that of their side as the budget says are enough. So one of the old side, too, that is
        started again for one that died.
        """
        rollout, instance = self.recorded("rollout") or {}, self.at(at)
        weight, previous = rollout.get("asked"), rollout.get("previous") or {}
        weights: t.Sequence[float] = () if weight is None else (weight,)
        if weight is None and balancer.even is not None:
            weights = self.weights  # the journal does not have at which step each target is
        if instance is None or not rollout:
            return 0.0
        targets = 1 if balancer.even is None else len(BALANCERS)
        replicas = math.ceil(rollout["replicas"] / targets)  # of those that it knows
        asked = [0.0]
        for new in (weight / 100 for weight in weights):
            parts = {previous.get("generation"): 1 - new, rollout["generation"]: new}
            part = parts.get(instance.labels.generation, 0.0)
            asked.append(part / max(1, math.ceil(part * (replicas - self.unavailable))))
        return max(asked)

    def left_to(
        self, at: Endpoint, before: Mapping[Endpoint, float], after: Mapping[Endpoint, float]
    ) -> float:
        """Return which part of the requests a stable instance may get on a way back: what the bad
        ones have not had, of which none gets more than before, however many of the stable ones an
        operator takes out.
        """
        previous = (self.recorded("rollout") or {}).get("previous") or {}
        generation = previous.get("generation")
        stable = {one for one in after if (i := self.at(one)) and i.labels.generation == generation}
        if self.phase() != Phase.ROLLING_BACK or at not in stable:
            return 0.0
        bad = sum(
            share
            for one, share in before.items()
            if (i := self.at(one)) and i.labels.generation != generation
        )
        return (1.0 - bad) / len(stable)

    def lost_unseen(self) -> int:
        """Return how many instances were lost so recently that the controller may not know."""
        known = self.now - SOON - self.late.get(self.machine.current.process.run, 0.0)
        cut_off = sum(
            len(host.instances) + len(self.by_hand.on(host.name))
            for host in self.hosts.values()
            if known < max(host.left, host.seen)
        )
        those = (*self.instances(), *self.by_hand.servers.values())
        return cut_off + sum(one.lost is not None and one.lost > known for one in those)

    def noticed(self, instance: Instance) -> bool:
        """Return whether a run has had the time to see that an instance ended. Nobody watches another
        service after its rollout.
        """
        if instance.labels.service != "shop":
            return False
        since = self.now - UNSEEN
        ended = instance.gone and instance.lost is not None and instance.lost < since
        in_place = not instance.labels.generation  # its own tasks deploy it again
        watched = instance.labels.service == "shop" and not in_place
        return bool(ended) and watched and self.waits.works(since)

    def is_unseen(self, balancer: Balancer) -> bool:
        """Return whether a balancer lost its state after the process that acts last looked at it."""
        return balancer.disturbed > self.last_look()

    def last_look(self) -> float:
        """Return when the process that acts last looked at the balancers."""
        return self.looked.get(self.machine.current.process.run, 0.0)

    def check_recent(self, what: str) -> None:
        """Balancers are to be changed: by what they showed a moment ago, or where they answer late,
        when they were asked again.
        """
        run = self.machine.current.process.run
        since = self.now - self.seen.get(run, 0.0)
        if since > RECENT and self.late_looks.get(run, 0) < 2:
            self.broken(f"{what}, by a look {since:.0f} s ago")

    def unknown(self, balancer: Balancer) -> int:
        """Return how many instances that a balancer sends requests to do not answer, while the
        process that acts could not know that when it last looked.
        """
        run = self.machine.current.process.run
        looked = self.looked.get(run, 0.0)
        return sum(
            self.known.get((run, entry.name), math.inf) >= looked
            for at, entry in balancer.entries.items()
            if entry.ours and entry.rotation is Rotation.IN and not self.answers(at)
        )

    def is_deployed(self, service: str) -> bool:
        """Return whether a service has a stable revision, as its journal has it."""
        return bool(self.recorded("stable", service))

    def acts(self, what: str, epoch: int, service: str) -> None:
        """A controller changes something: it has to hold the lease, and say so."""
        if service != "shop":
            return
        process = self.machine.current.process
        if epoch != self.leases.get(process.run):
            self.broken(f"{what} with epoch {epoch}, lease {self.leases.get(process.run)}")
        proved = self.written.get(process.run, 0.0)
        if self.holder != process.run and self.delayed.get(process.run, 0.0) <= proved:
            self.broken(f"{what} without the lease")

    def check_floor(self, what: str, balancer: Balancer, before: int) -> None:
        """A controller has changed what a balancer sends requests to."""
        after = len(self.serving(balancer))
        if self.is_unseen(balancer):
            return
        if after < min(before, least := self.least(balancer)) - self.unknown(balancer):
            self.broken(f"{what}: {after} serve at {balancer.name}, {least} have to")

    def least(self, balancer: Balancer | None = None) -> int:
        """Return how many instances have to serve: with a forced promotion, one is enough."""
        rollout, floor = self.recorded("rollout") or {}, self.floor_of(balancer)
        return min(1, floor) if rollout.get("force") else floor

    def has_recovered(self, at: Endpoint) -> bool:
        """Return whether an instance answers again, or its host, and checks cannot know it yet."""
        instance = self.at(at)
        if instance is None:
            return False
        back = max(instance.recovered, self.hosts[instance.labels.host].back)
        return 0 <= self.now - back < CHECKED

    def floor_of(self, balancer: Balancer | None) -> int:
        """Return how many instances have to serve at a load balancer."""
        own = balancer and balancer.floor
        return self.floor if own is None else own

    def check_ceiling(self) -> None:
        # what is cut off and out of rotation is replaced
        seen = self.now - UNSEEN - self.late.get(self.machine.current.process.run, 0.0)
        cut_off = {host.name for host in self.hosts.values() if max(host.away, host.seen) > seen}
        there = [one for one in self.alive() if one.labels.host not in cut_off]
        if len(there) > self.ceiling:
            self.broken(f"{len(there)} instances, {self.ceiling} are allowed")

    def check_host(self, labels: Labels) -> None:
        """An instance is started: where each host has one, no other of its service and generation
        is there.
        """
        host = self.hosts[labels.host]
        same = [
            one.labels.id
            for one in host.instances.values()
            if not one.gone
            and (one.labels.service, one.labels.generation) == (labels.service, labels.generation)
        ]
        if self.one_a_host and same:
            self.broken(f"{labels.id} is started on {host.name} beside {', '.join(same)}")

    def check_autoscaler(self, name: str) -> None:
        """An instance is started: an autoscaler that is managed leaves what there is alone."""
        if not self.managed or self.phase() not in ("progressing", "promoting"):
            return
        if self.inherited and "autoscaler" not in self.recorded("rollout")["given"]:
            return  # a command continues a rollout as it began
        least = min(self.floor, self.scaler["max"], len(self.alive()))
        if self.scaler["min"] < least if self.managed == "raise" else not self.scaler["off"]:
            self.broken(f"{name} is started while the autoscaler may change the numbers")

    def check_settings(self, labels: Labels, flavour: str) -> None:
        """An instance is started: with the settings of its revision, whatever runs say now."""
        if flavour != self.settings.get(labels.revision, flavour):
            self.broken(f"{labels.id} of {labels.revision} is started with {flavour}")

    def check_vacated(self, host: Host, run: int) -> None:
        """The user's tasks work on a host: it gets no requests, others do at each balancer, and the
        run keeps its lease.
        """
        quiet = self.now - WATCHED
        if run in self.unwatched:
            return
        if max(self.store_away, self.hampered.get(run, 0.0)) > quiet - UNSEEN or self.machine.jump:
            return
        if self.holder != run or self.expires < self.machine.wall():
            self.broken(f"tasks work on {host.name} without the lease")
        at, pool = Endpoint(ADDRESSES[host.name], IN_PLACE), self.balancers.values()
        for balancer in pool:
            entry = balancer.entries.get(at)
            if max(balancer.disturbed, *(one.away for one in pool)) >= quiet:
                continue
            if entry and not entry.parked:
                self.broken(f"tasks work on {host.name}, and {balancer.name} sends requests there")
            ill = max(one.blind for one in pool) > quiet
            if not (ill or self.serving(balancer)) and any(map(self.serving, pool)):
                self.broken(f"tasks work on {host.name}, and nothing serves at {balancer.name}")

    def uncounted(self, balancer: Balancer) -> int:
        """Return how many instances it sends requests to for the wrong reason: on hosts
        that an operator left out, or by an older state, in which another had their endpoint, or
        where tasks have worked since, or before anybody could see that they are ready, or are
        again.
        """
        rollout = self.recorded("rollout") or {}
        out = [ADDRESSES[host] for host in rollout.get("excluded", ())]
        return sum(
            entry.rotation is Rotation.IN
            and (
                at.address in out
                or self._is_mistaken(at, entry)
                or (entry.restored and entry.name in self._worked_on(rollout))
                or (entry.restored and self._is_just_ready(at))
                or self.has_recovered(at)
            )
            for at, entry in balancer.entries.items()
        )

    def _is_just_ready(self, at: Endpoint) -> bool:
        instance, run = self.at(at), self.machine.current.process.run
        if instance is None:
            return False
        ready = instance.up + instance.life.start
        return self.now - max(ready, self.hampered.get(run, ready)) < CHECKED

    def _worked_on(self, rollout: Mapping[str, t.Any]) -> set[str]:
        """Return the instances in place that stay out until tasks deploy them again: nobody knows
        what those of this rollout have left there.
        """
        deployed, draining = self.recorded("deployed") or {}, self.recorded("draining") or {}
        generation = rollout.get("generation")
        return {name for name in draining if deployed.get(name, {}).get("generation") == generation}

    def _is_mistaken(self, at: Endpoint, entry: Entry) -> bool:
        instance = self.at(at)
        named = instance is not None and instance.labels.id == entry.formerly
        return entry.restored and not named and self.answers(at)

    def phase(self) -> str:
        """Return the phase of the rollout, as the journal has it."""
        rollout = self.recorded("rollout")
        return t.cast(str, rollout["phase"]) if rollout else ""

    def check_stable(self, stable: Mapping[str, t.Any] | None) -> None:
        """The journal says what is stable: when that changes, it is there, and ready."""
        before, self.stable = self.stable, stable["generation"] if stable else 0
        if stable is None or self.stable == before:
            return
        if stable["revision"] in self.unfit:
            self.broken(f"{stable['revision']} is stable, and its gates did not pass")
        ready = sum(
            (one.labels.generation or self.stable) == self.stable
            and one.labels.revision == stable["revision"]
            and one.well(self.now)
            for one in self.alive()
        )
        if ready < min(self.least(), stable["replicas"]) - self.lost_unseen():
            self.broken(f"{stable['revision']} is stable with {ready} instances ready")

    def check_stop(self, instance: Instance, drain: float, looked: float) -> None:
        """An instance is told to stop, by a look at the balancers at that time."""
        self.waits.check_hold(instance)
        at, name = instance.labels.endpoint, instance.labels.id
        for balancer in self.pool(instance.labels.service).values():
            entry = balancer.entries.get(at)
            if entry is None or balancer.disturbed > looked:
                continue
            if entry.rotation is Rotation.IN:
                self.broken(f"{name} is told to stop, and {balancer.name} sends requests to it")
            elif instance.well(self.now) and self.now < entry.left + min(drain, instance.life.work):
                self.broken(f"{name} is told to stop, and has requests from {balancer.name}")

        for balancer in self.previews.values() if instance.labels.service == "shop" else ():
            entry = balancer.entries.get(at)
            inside = entry is not None and entry.rotation is Rotation.IN
            if inside and balancer.disturbed <= looked - SELDOM:
                self.broken(f"{name} is told to stop, and the preview of {balancer.name} has it")

    def check_preview(self, balancer: Balancer) -> None:
        """A preview pool is changed: it has new instances alone, which were ready."""
        generation = (self.recorded("rollout") or {}).get("generation")
        for at, entry in balancer.entries.items():
            instance = self.at(at) if entry.rotation is Rotation.IN else None
            if instance and instance.labels.generation != generation:
                self.broken(f"the preview of {balancer.name} has {instance.labels.id}, an old one")
            elif instance and not (self.answers(at) or instance.served):
                self.broken(f"the preview of {balancer.name} has {instance.labels.id} too soon")

    def check_previewed(self) -> None:
        """A gate passes or fails: before, the new instances could be looked at in the preview."""
        rollout, since = self.recorded("rollout") or {}, self.now - SOON
        if not self.previewed or self.waits.disturbed > since:
            return
        for balancer in self.previews.values():
            entries = balancer.entries
            for one in self.alive() if balancer.disturbed < since else ():
                new = one.labels.generation == rollout.get("generation") and one.up < since
                entry = entries.get(one.labels.endpoint)
                inside = entry is not None and entry.rotation is Rotation.IN
                if new and one.well(self.now) and one.lost is None and not inside:
                    self.broken(f"a gate is asked, and {balancer.name} previews no {one.labels.id}")

    def check_admitted(self, balancer: Balancer, endpoint: Endpoint) -> None:
        instance = self.at(endpoint)
        if instance is None or not (
            self.answers(endpoint) or instance.served or instance.well(self.now)
        ):
            self.broken(f"{balancer.name} sends requests to {endpoint}, which was never ready")

    def check_hidden(self, balancer: Balancer, served: Collection[Endpoint]) -> None:
        """A balancer is changed: what no gate has passed gets requests from now on only where too
        few others of those that `served` before serve beside it, as was seen at all balancers.
        """
        if not self.hidden or self.is_unseen(balancer):
            return
        asked = (self.recorded("rollout") or {}).get("replicas", 0) - self.unavailable
        carried = self._carried_by()
        inside = {at for at, e in balancer.entries.items() if e.rotation is Rotation.IN}
        for at in inside:
            instance, others = self.at(at), inside.intersection(served) - {at}
            others = set(filter(self._is_seen_inside, others))
            # one that serves stays as long as the budget asks for more, also of a greater number
            needed = max(carried, asked) if at in served else carried
            least = max(1, needed if balancer.floor is None else balancer.floor)
            if instance and instance.labels.revision in self.hidden and len(others) >= least:
                name = instance.labels.id
                self.broken(f"{balancer.name} sends requests to {name} before its gate")

    def check_superseded(self) -> None:
        """The record is written while the next set is prepared: what no gate has passed has left
        the balancers where enough others have served for a while.
        """
        rollout, since = self.recorded("rollout") or {}, self.now - SOON
        phases = ("progressing", "paused", "awaiting_promotion")
        moving = rollout.get("strategy") == "blue_green" and rollout.get("phase") in phases
        if not (self.hidden and moving) or self.waits.disturbed > since:
            return
        least = max(1, self._carried_by(), rollout["replicas"] - self.unavailable)
        for balancer in self.balancers.values() if not rollout["asked"] else ():
            inside = {
                at: instance.labels
                for at, entry in balancer.entries.items()
                if entry.rotation is Rotation.IN and entry.joined < since
                if (instance := self.at(at)) and self.answers(at)
            }
            hidden = [of.id for of in inside.values() if of.revision in self.hidden]
            if hidden and balancer.floor is None and len(inside) - len(hidden) >= least:
                self.broken(f"{balancer.name} goes on sending requests to {', '.join(hidden)}")

    def _is_seen_inside(self, at: Endpoint) -> bool:
        """Return whether each balancer that has an endpoint had it in rotation at the last look."""
        look = self.last_look()
        entries = [entry for one in self.balancers.values() if (entry := one.entries.get(at))]
        return all(entry.rotation is Rotation.IN and entry.joined <= look for entry in entries)

    def _carried_by(self) -> int:
        """Return how many instances are to carry all requests: as many as have until now, since
        capacity is not lowered before the promotion.
        """
        rollout = self.recorded("rollout") or {}
        previous = rollout.get("previous") or rollout
        return max(self.wanted, previous.get("replicas", 0) - self.unavailable)

    # -- what befalls it ---------------------------------------------------------------------------

    def strike(self, fault: Fault) -> None:
        """A fault of a moment."""
        until = self.now + fault.span
        if fault.kind not in ("instance killed", "stable dies", "server by hand"):
            self.waits.disturb(fault.span)
        if fault.kind == "host away":
            host = self.hosts[fault.what]
            host.left = self.now
            host.away = max(host.away, until)
            self.machine.at(until, lambda: setattr(host, "back", until))
        elif fault.kind == "host is busy":
            self.hosts[fault.what].busy = until
        elif fault.kind == "host reboots":
            host = self.hosts[fault.what]
            host.boots += 1
            host.left = self.now
            host.away = max(host.away, until)
            ended = [one for one in host.instances.values() if not one.gone]
            for one in ended:
                self.end(one, Sees.FAILED, again=False)
            self.by_hand.reboot(host.name, until)
            self.clients.look()
            self.machine.at(until, lambda: self.boot(host, ended))
        elif fault.kind == "balancer away":
            for pool in (*self.pools.values(), self.previews):
                pool[fault.what].away = until
        elif fault.kind == "store away":
            self.store_away = until
        elif fault.kind in ("balancer forgets", "balancer restores"):
            for pool in (*self.pools.values(), self.previews):
                self.forget(pool[fault.what], fault.kind == "balancer restores")
        elif fault.kind == "balancer is blind":
            self.balancers[fault.what].blind = until
        elif fault.kind == "server by hand":
            entries = self.balancers[fault.what].entries
            entries[BY_HAND] = Entry("by hand", Rotation.IN, 7, ours=False)
        elif fault.kind == "stable dies":
            old = [one for one in self.alive() if one.labels.revision == "1"]
            for number, one in enumerate(old):
                later = self.now + number * fault.span
                self.machine.at(later, lambda one=one: self.end(one, Sees.FAILED))
        elif fault.kind == "autoscaler is changed":
            self.scaler = {**self.scaler, "max": self.scaler["max"] + 1}
        elif fault.kind == "autoscaler wants":
            self.wish = int(fault.span)
        elif fault.kind == "clock jumps":
            self.machine.jump += fault.span
        elif fault.kind == "instance killed":
            alive = self.alive()
            if alive:
                self.end(alive[int(fault.span) % len(alive)], Sees.FAILED)
        self.happened.append(fault)
        self.tell(f"FAULT: {fault}")

    def begin(self, labels: Labels, before: Instance | None = None) -> Instance:
        """An instance begins its life; `before`: the same, which was lost with its host."""
        number = self.numbers[labels.revision] = self.numbers.get(labels.revision, 0) + 1
        life = self.lives(labels.revision, number)
        instance = Instance(labels, life, self.now)
        if before:
            instance.lost, instance.served = before.lost or self.now, before.served
            instance.recovered = self.now + life.start
        self.hosts[labels.host].instances[labels.id] = self.born[labels.id] = instance
        self._last[labels.endpoint] = instance
        self._crash_later(instance)
        if life.flap:
            begins, seconds = self.now + life.flap[0], life.flap[1]
            self.machine.at(begins, lambda: self.flap(instance, seconds))
        self.clients.look()
        return instance

    def flap(self, instance: Instance, seconds: float) -> None:
        """An instance does not answer for so long."""
        instance.flaps, instance.lost = True, self.now
        self.machine.at(self.now + seconds, lambda: self._recover(instance))

    def _recover(self, instance: Instance) -> None:
        instance.flaps, instance.recovered = False, self.now

    def forget(self, balancer: Balancer, restores: bool) -> None:
        """A balancer loses its state, or has an older one again."""
        old = balancer.before if restores else {}
        others = {at: one for at, one in balancer.entries.items() if not one.ours}
        others |= {
            at: Entry(one.name, Rotation.IN, restored=True, formerly=one.name, by_hand=True)
            for at, one in balancer.entries.items()
            if one.by_hand and at not in old
        }
        balancer.entries = {
            at: Entry(**{**vars(entry), "restored": True, "formerly": entry.name})
            for at, entry in old.items()
        } | others
        balancer.disturbed, balancer.disordered = self.now, True
        self.clients.look()

    def _crash_later(self, instance: Instance) -> None:
        """An instance that crashes does so again each time that it is started."""
        crash, number = instance.life.crash, instance.restarts
        if crash is not None:
            self.machine.at(
                instance.up + crash,
                lambda: self.end(instance, Sees.FAILED) if instance.restarts == number else None,
            )

    def _start_again(self, instance: Instance) -> bool:
        """Let its platform start an instance again, unless that was in vain too often."""
        again = AGAIN if instance.by_hand else self.again
        if not again or not instance.labels.generation:
            return False
        instance.restarted = instance.restarted or self.now
        often = instance.restarts >= BURST and self.now - instance.restarted < BURST_INTERVAL
        if often and not instance.by_hand:
            return False
        instance.restarts += 1
        instance.began = self.now + again
        instance.recovered = instance.began + instance.life.start
        instance.detail = f"restarted {instance.restarts} times: exit code 1"
        self.tell(f"{instance.labels.id} ({instance.labels.revision}) crashed, and is restarted")
        self._crash_later(instance)
        self.clients.look()
        return True

    def end(self, instance: Instance, how: Sees, again: bool = True) -> None:
        """An instance ends; `again`: its platform may start it again."""
        if not instance.gone:
            if how is Sees.FAILED and instance.told is None:
                instance.lost = self.now
                self.waits.lost(instance)
                if again and self._start_again(instance):
                    return
            instance.gone = how
            instance.detail = instance.detail or ("exit code 1" if how is Sees.FAILED else "")
            self.tell(f"{instance.labels.id} ({instance.labels.revision}) {how.value}")
            self.clients.look()

    def boot(self, host: Host, ended: t.Sequence[Instance]) -> None:
        """A host is back: in place its own init system starts what ran there."""
        host.back = self.now
        for one in ended:
            if not one.labels.generation and host.instances.get(one.labels.id) is one:
                self.begin(one.labels, one)

    def heal(self) -> None:
        """End all faults."""
        self.at_calls = {}
        self.waits.disturbed = 0.0
        self.store_away = self.machine.jump = self.again = 0.0
        self.unfit = self.hidden = set()
        self.receiving = ["gets it"]
        self.lives = lambda _revision, _number: Life()
        for host in self.hosts.values():
            host.away = host.busy = 0.0
            self.boot(host, [one for one in host.instances.values() if one.gone is Sees.FAILED])
        for pool in (*self.pools.values(), self.previews):
            for balancer in pool.values():
                balancer.away = balancer.blind = 0.0

    def leave_servers(self, service: str, count: int) -> None:
        """Let balancers have servers that serve, and that no platform knows."""
        for number, host in enumerate(HOSTS[:count]):
            at = Endpoint(ADDRESSES[host], 9000)
            labels = Labels(f"left-{number}", service, "0", -number, host, at, 0)
            self._last[at] = Instance(labels, Life(), self.now - 60.0)
            for balancer in self.pool(service).values():
                balancer.entries[at] = Entry(labels.id, Rotation.IN)

    def write_by_hand(self, count: int) -> None:
        """Let the balancers' configuration have so many servers of what people have started."""
        for labels in labels_by_hand(count, ADDRESSES):
            instance = Instance(labels, Life(), self.now - 60.0, served=True, by_hand=True)
            self._last[labels.endpoint] = self.born[labels.id] = instance
            self.by_hand.servers[labels.id] = instance
            for balancer in self.balancers.values():
                entry = Entry(labels.id, Rotation.IN, since=instance.created, by_hand=True)
                balancer.entries[labels.endpoint] = entry

    def snapshot(self) -> None:
        """Keep the balancers' state, which one may return to."""
        for balancer in self.balancers.values():
            balancer.keep()

    def summary(self) -> Mapping[str, int]:
        """Return how many instances of each revision are alive."""
        found: dict[str, int] = {}
        for one in self.alive():
            found[one.labels.revision] = found.get(one.labels.revision, 0) + 1
        return found


def _nothing() -> None:
    """Nothing happens at the switch."""
