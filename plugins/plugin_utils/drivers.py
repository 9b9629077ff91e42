# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The interfaces of the outside world, one per driver folder, and how a driver is found by its name.

A driver decides nothing: it does what it is told, says what it sees, and raises when the two differ.
It is one file in its folder with a class `Driver` and a dictionary `OPTIONS` (an Ansible argument
spec of its own settings). A name with dots (`namespace.collection.name`) is looked for in that collection.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import re
import typing as t
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Process, Rotation
from ansible_collections.progressive.rollout.plugins.plugin_utils.errors import InputError

if t.TYPE_CHECKING:
    from ansible_collections.progressive.rollout.plugins.plugin_utils.journal import Deployment, InstanceSettings
    from ansible_collections.progressive.rollout.plugins.plugin_utils.transport import Transport

HERE = "progressive.rollout"
_NAME = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*){0,2}")


def _no_platform(transport: Transport) -> Platform:
    raise InputError("rollout_platform: not given; say where instances live")


@dataclass
class Context:
    """What every driver is made with, beside its own options."""

    service: str
    transport: Transport
    health: Mapping[str, t.Any] = field(default_factory=dict)  # `rollout_health` as given: http, interval, rise, ...
    platform: Callable[[Transport], Platform] = _no_platform  # makes one with connections of its own
    epoch: int = 0  # of the lease we act under; 0 while only looking. Hosts refuse commands of an older one
    deployed: Mapping[str, Deployment] = field(default_factory=dict)  # by instance, what the journal has of those in place
    # By host that did not answer when it was last asked, what was seen there before; the journal keeps it from run to run.
    away: dict[str, list[dict[str, t.Any]]] = field(default_factory=dict)
    settings: Mapping[int, InstanceSettings] = field(default_factory=dict)  # by generation, what the journal has of its settings
    secrets: dict[str, Mapping[str, t.Any]] = field(default_factory=dict)  # by key, what is secret of those; in memory only
    counted: Sequence[str] = ()  # what the load balancers count of each instance: errors, latency
    served: Callable[[], Mapping[str, Served]] = (
        dict  # by instance, what the load balancers have counted since this run looks at them
    )


@dataclass(frozen=True, order=True)
class Endpoint:
    """Where an instance listens. Load balancers know instances by this, never by name."""

    address: str
    port: int

    def __str__(self) -> str:
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"


@dataclass(frozen=True)
class Labels:
    """What an instance carries with it, so that a later run finds it and knows what it is."""

    id: str
    service: str
    revision: str
    generation: int
    host: str
    endpoint: Endpoint
    slot: int


@dataclass(frozen=True)
class Report:
    """What a platform sees of one instance."""

    labels: Labels
    process: Process
    created: float = 0.0  # seconds since the epoch by `clock.now()`; get it from the age, since hosts' clocks differ
    detail: str = ""  # of a failed one: how it ended and its last log lines
    restarts: int = 0  # how often somebody else, as systemd, has started it again
    restarted: float | None = None  # when that was for the first time, as `created`


@dataclass(frozen=True)
class Machine:
    """What a host has: memory in bytes, what of it is available now, and how many CPUs; 0: not known."""

    memory: int
    available: int
    cpus: int


@dataclass(frozen=True)
class Limits:
    """What an instance may use at most: memory in bytes, and CPUs; 0: there is no limit."""

    memory: int = 0
    cpus: float = 0.0


class Platform(t.Protocol):
    """Where instances live.

    One that starts instances with the settings of their generation (`Context.settings`) has an attribute `of_hosts`: the names of
    those of its options that are not among these, as they are of the hosts. It has methods `keep(key, content)` and `recall(key)`,
    which bring what is secret of them to the hosts and back.

    One that limits what an instance may use has a method `limits(kept)`, which returns the `Limits` of a generation with these settings,
    or the present ones without any, and an attribute `machines`: what `check` found, a `Machine` by host.

    One that spreads instances over zones before it spreads them over hosts has an attribute `zones`: the zone of each host.

    One whose instances the user's own tasks deploy where they are has an attribute `in_place`, true: nothing is started or
    stopped there, and what it does not see itself it reports from `Context.deployed`.
    """

    def hosts(self) -> Sequence[str]:
        """The hosts instances may be placed on, in inventory order."""

    def capacity(self) -> int:
        """How many instances fit on all hosts together."""

    def place(self, count: int, taken: Collection[Labels], generation: int) -> Sequence[tuple[str, Endpoint, int]]:
        """Where the next `count` instances of a generation go: host, endpoint and slot, that generation spread over the hosts.

        Fewer where a host that is to have one has not finished what it was told to do before.
        """

    def check(self) -> None:
        """Raise if the hosts cannot be reached or cannot run instances. Touches nothing."""

    def prepare(self, revision: str, generation: int | None = None) -> None:
        """Bring what instances of a revision need to every host, at the same time, or make sure that it is there; with the
        settings of a generation, where one is given that has its own.

        So that starting one later is quick, and what is missing is known before anything is touched. May be called again.
        Raises PlatformError with what is wrong on which host.
        """

    def sync(self, start: Sequence[Labels] = (), stop: Sequence[str] = (), forget: Sequence[str] = ()) -> Sequence[Report]:
        """Do the work given, then report every instance of the service; one command a host that has work.

        Hosts without any are reported from what was last seen there; with no work at all, every host is asked.
        `start` begins instances (one that exists already is left alone); `stop` asks instances, by id, to
        stop, and kills those that were asked `stop_timeout` ago (calling again is how it is driven);
        `forget` removes what is left of dead ones. A host that hangs keeps nobody waiting for long: instances on hosts that do
        not answer are reported UNREACHABLE, from what was last seen of them, and `Context.away` names the hosts.
        """


@dataclass(frozen=True)
class Target:
    """What one load balancer entry shall be."""

    rotation: Rotation  # IN, or OUT: known, health-checked, without new requests
    weight: int = 100
    name: str = ""  # the instance's id, for balancers that name their entries


@dataclass(frozen=True)
class Server:
    """What one load balancer says about one of its entries."""

    rotation: Rotation  # IN, OUT
    proven: bool  # the balancer's own check passes it (or it has no check)
    active: int  # requests in flight and queued
    weight: int = 100
    ours: bool = True  # made by us: we may remove it
    name: str = ""
    # Counters since the balancer began to count, which may begin again:
    requests: int = 0  # that it was sent
    errors: int = 0  # of these, that were answered with 5xx, or not at all
    answered: int = 0  # those that `mean` is of
    mean: float | None = (
        None  # seconds to the answer, over all of them or the last `WINDOW`; None: the balancer does not measure it
    )


WINDOW = 512  # requests that a `Server.mean` is of, at most

Table = Mapping[str, Mapping[Endpoint, Server]]  # by load balancer


@dataclass(frozen=True)
class Served:
    """What an instance was sent by all load balancers while we looked; `answered` and `seconds` of answers whose time is measured."""

    revision: str
    generation: int
    host: str
    endpoint: Endpoint
    serving: bool = False  # whether it is in rotation at any of them
    requests: int = 0
    errors: int = 0
    answered: int = 0
    seconds: float = 0.0


class Traffic(t.Protocol):
    """A set of load balancers that are kept in the same state.

    One with a way to the new instances alone has a method `previewing`, one that copies requests to dark ones `mirroring`. Each returns
    another `Traffic`, of a pool of its own at the same load balancers, or None where its options do not ask for it.
    One whose load balancers have room for so many instances only has a method `capacity`, which returns how many, by load
    balancer, and touches nothing; one that is not in the answer has no limit.

    What changes something carries `Context.epoch`, and so does a look where it is not 0: whoever acts keeps the highest epoch
    seen, and refuses a lower one (LeaseLost), under a lock that is held as long as a command takes.
    """

    def check(self) -> None:
        """Raise if a balancer cannot be reached or lacks what we need. Touches nothing."""

    def observe(self) -> Table:
        """Every entry of the service, at every balancer."""

    def apply(self, targets: Mapping[str, Mapping[Endpoint, Target]]) -> Table:
        """Bring each balancer to its `targets` and return what each of them then shows.

        Per balancer, because one that was restarted has to prove its entries anew while the others go on. Entries
        of ours that are not among the targets are taken out of rotation and removed, as far as the balancer lets us
        in this call; entries that are not ours stay. A balancer without targets is not asked, and may be away. An entry put
        IN that the balancer's own check has not passed is refused. An update that a balancer refuses or does not show is an error.
        """


@dataclass(frozen=True)
class Probe:
    """The outcome of asking one instance once."""

    passed: bool
    detail: str = ""  # why not, in a few words: "503, expected 200", "connection refused"


class Check(t.Protocol):
    """How an instance is asked whether it is ready. Pure: who carries the bytes is not its business."""

    tls: bool

    def payload(self, endpoint: Endpoint) -> bytes:
        """What to send once connected; empty to send nothing."""

    def judge(self, reply: bytes) -> Probe | None:
        """The verdict on the bytes received so far; None while more are needed. Called once more at the end of
        the stream with everything, when None means failed."""


PASS, WAIT, FAIL, PERSON = "pass", "wait", "fail", "person"


@dataclass(frozen=True)
class Answer:
    """What a gate says when it is asked."""

    verdict: str  # PASS, WAIT (not yet), FAIL, or PERSON: it cannot say, a person has to; it is not asked again
    message: str = ""  # why, in a few words; shown to people and kept in the journal
    memory: Mapping[str, t.Any] | None = None  # plain data, for who is asked next time: kept in the journal
    samples: Mapping[str, t.Any] = field(default_factory=dict)  # plain data that a verdict stands on, for the timeline
    again: float | None = None  # seconds until it is worth asking again; None: as the gate's interval says


class GateDriver(t.Protocol):
    """Something that has to let a rollout pass. It is asked again until it passes or fails; who asks bounds the wait.

    One that needs nobody else for its answer may have an attribute `instant`, true: it is asked at every look, in no thread.
    One whose question leaves something behind may have a method `end`, called from another thread when nobody waits any more.
    One that works beyond its answers has a method `close`, called when nobody will ask any more.
    One that remembers has a method `recall`, which is given the last answer's memory before it is asked for the first time.
    """

    def ask(self, rollout: Mapping[str, t.Any], waited: float) -> Answer:
        """The answer for the rollout (the mapping every step returns) that has been waiting at this gate for `waited` seconds.

        Raises GateError where it cannot be asked. May be called in a thread, once at a time, and returns within its timeout.
        """


@dataclass(frozen=True)
class Question:
    """What a metric is measured for. Times in seconds since the epoch."""

    rollout: Mapping[str, t.Any]  # as every step returns it: id, service, revision, stable, previous, stage, ...
    start: float  # of the analysis
    now: float
    paired: bool = False  # the judge compares: new and stable are wanted apart
    counts: bool = False  # it compares numbers of errors where there are any: with how many requests they are of
    before: t.Any = None  # what was found last, also by a run before this one; None: nothing


class MetricDriver(t.Protocol):
    """Where the measurements of an analysis come from."""

    def measure(self, question: Question) -> t.Any:
        """The result as plain data. For conditions whatever was found: a number, a list, a mapping.

        With `paired` a mapping with `new` and `stable`, each a number, a list of numbers, or a mapping with `requests` and
        `errors`, both counted since `start`. Raises MetricError where nothing can be measured, which is an error and no
        failure. Called in a thread, once at a time, and returns within its timeout. One whose question leaves something behind
        may have a method `end`, called from another thread when nobody waits any more.
        """


class Store(t.Protocol):
    """The journal and the lease of one service. Every write checks the token, but for the operator's word.

    One whose record is somewhere that people can look at has an attribute `place` that names it.
    """

    def load(self) -> dict[str, t.Any]:
        """The record, or an empty one."""

    def lease(self) -> Lease | None:
        """Who holds the lease now (expired ones are nobody's)."""

    def acquire(self, token: str, holder: str, ttl: float, details: Mapping[str, t.Any]) -> Lease:
        """Take the lease, or renew our own; raises LeaseHeld."""

    def commit(
        self, token: str, ttl: float, record: Mapping[str, t.Any] | None = None, events: Sequence[Mapping[str, t.Any]] = ()
    ) -> None:
        """Renew the lease and, in the same step, replace the record and append to the timeline; raises LeaseLost."""

    def release(self, token: str) -> None:
        """Give the lease back; no error if it is no longer ours."""

    def timeline(self, rollout: str) -> Sequence[dict[str, t.Any]]:
        """The events of one rollout, oldest first."""

    def post(self, word: Mapping[str, t.Any]) -> int:
        """Add an operator's word, which needs no lease, and return its number: one more than the last."""

    def words(self, after: int) -> Sequence[dict[str, t.Any]]:
        """The words with numbers higher than `after`, oldest first, each with its `number`."""


@dataclass(frozen=True)
class Lease:
    """Who may act on a service. Times are seconds since the epoch by the store's own clock."""

    token: str
    holder: str
    since: float
    until: float
    epoch: int  # grows by one with every new holder: the fencing number
    details: Mapping[str, t.Any] = field(default_factory=dict)


def key_of(content: Mapping[str, t.Any]) -> str:
    """What is secret of a generation's settings is kept by this key, which says whether it is what was kept, and nothing else:
    the content has a salt."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


def load(folder: str, name: str, variable: str) -> t.Any:
    """The module of driver `name` in `folder` (`platforms`, `traffic`, `stores`); `variable` is what asked for it."""
    collection, _dot, short = name.rpartition(".")
    path = f"ansible_collections.{collection or HERE}.plugins.plugin_utils.{folder}.{short}"
    try:
        if not _NAME.fullmatch(name):
            raise ModuleNotFoundError(name=path)
        return importlib.import_module(path)
    except ModuleNotFoundError as exc:
        if not path.startswith(str(exc.name)):
            raise
        raise InputError(
            f"{variable}.driver: there is no driver {name!r}; write a name from the documentation, or namespace.collection.name"
        ) from None
