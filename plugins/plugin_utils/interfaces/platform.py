# SPDX-License-Identifier: GPL-3.0-or-later
"""Where instances live: the base class of platform drivers, and what they see."""

from __future__ import annotations

import abc
import hashlib
import json
import typing as t
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from fractions import Fraction

from ..base.errors import PlatformError
from ..engine.model import Composition, Health, Process
from ..inputs.options import Options
from .driver import BaseDriver


class Endpoint(t.NamedTuple):
    """Where an instance listens. Load balancers know instances by this, not by their names."""

    address: str
    port: int

    @property
    def known(self) -> bool:
        """Whether the instance can be reached there; otherwise it is `NOWHERE` yet."""
        return bool(self.address and self.port)

    def __str__(self) -> str:
        return (
            f"[{self.address}]:{self.port}"
            if ":" in self.address
            else f"{self.address}:{self.port}"
        )


NOWHERE = Endpoint("", 0)  # of an instance that its platform has not placed yet


@dataclass(frozen=True)
class Labels:
    """What is stored with an instance, so that a later run recognizes it.

    A platform that names its instances is asked for one without id, host and endpoint.
    """

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
    # By `clock.now()`, computed from the age, since hosts' clocks differ.
    created: float = 0.0
    detail: str = ""  # of a failed instance: how it ended, and its last log lines
    restarts: int = 0  # by a supervisor of the host, as systemd
    restarted: float | None = None  # time of the first restart, as `created`
    # By the platform's own checks, and since when, as `created`; NONE: it has none. Where
    # `rollout_health` checks it, too, both have to pass.
    health: Health = Health.NONE
    health_since: float = 0.0
    precedence: int = 0  # of instances that may go, those with the highest go first


class Notable(Enum):
    """What happens to a rollout, as platforms that have a list of events name it."""

    BEGUN = "RolloutBegun"
    STAGE = "RolloutStage"
    HELD = "RolloutHeld"
    PROMOTED = "RolloutPromoted"
    ENDED = "RolloutEnded"  # otherwise

    @property
    def is_failure(self) -> bool:
        """Whether it is shown as a warning."""
        return self in (Notable.HELD, Notable.ENDED)


@dataclass(frozen=True)
class Machine:
    """A host's memory in bytes, how much of it is available, and its CPUs; 0: unknown."""

    memory: int
    available: int
    cpus: int


@dataclass(frozen=True)
class Usage:
    """What an instance uses of its host.

    `found` has what is known of: cpu (seconds), memory (bytes), threads, fds, throttled (seconds),
    pressure and oom (events), and restarts. CPU, throttling and events are counted from its start.
    """

    host: str
    generation: int
    age: float  # seconds
    found: Mapping[str, float]


@dataclass(frozen=True)
class Limits:
    """What an instance may use at most: memory in bytes, and CPUs; 0: no limit."""

    memory: int = 0
    cpus: float = 0.0


@dataclass(frozen=True)
class InstanceSettings:
    """What the instances of a generation run with. Secret values are on their hosts only."""

    driver: str  # of the platform
    platform: Mapping[str, t.Any]  # its options that shape an instance
    health: Mapping[str, t.Any]
    # by option, the keys of its values
    secret: Mapping[str, list[str]] = field(default_factory=dict)
    key: str = ""  # under which hosts keep the secret values; empty: there are none
    # by ConfigMap or Secret that the instances read when they start, a digest of it
    references: Mapping[str, str] = field(default_factory=dict, compare=False)
    # whether the revision ran before, so that its instances are to be as they were then
    again: bool = field(default=False, compare=False)

    def of_part(self, part: str) -> InstanceSettings:
        """Return the settings of one part of the platform; of a platform without parts, its own."""
        if not part:
            return self
        platform = of_part(self.platform, part)
        known = {f"platform.{name}": names for name, names in self._secret_of(part).items()}
        others = {name: value for name, value in self.secret.items() if name.startswith("health.")}
        driver = platform.pop("driver", self.driver)
        return replace(self, driver=driver, platform=platform, secret={**known, **others})

    def _secret_of(self, part: str) -> dict[str, list[str]]:
        named = {
            name.removeprefix("platform."): keys
            for name, keys in self.secret.items()
            if name.startswith("platform.")
        }
        return of_part(named, part)


PARTS = "parts"  # the option of a platform of several parts, which each have options of their own


def of_part(options: Mapping[str, t.Any], part: str) -> dict[str, t.Any]:
    """Return the options of one part, among those of all, which are named `parts.PART.OPTION`.

    Options without any of these are those of a platform without parts: a part may have been it.
    """
    if not part or not any(name.startswith(f"{PARTS}.") for name in options):
        return dict(options)
    prefix = f"{PARTS}.{part}."
    return {
        name.removeprefix(prefix): value
        for name, value in options.items()
        if name.startswith(prefix)
    }


@dataclass(frozen=True)
class Capabilities:
    """What a kind of platform does itself, and what it leaves to others.

    The defaults are those of hosts, on which instances are started and stopped one by one.
    """

    # It starts and stops instances; otherwise the user's own tasks deploy them in place, and it
    # reports from `Known.deployed` what it cannot see itself.
    starts_instances: bool = True
    # It has hosts, on which `place` finds room; otherwise it places instances itself, which are
    # started by labels without host and endpoint, and reports these once they are known.
    has_hosts: bool = True
    # It names instances, as an orchestrator does: `sync` is told how many to start, by labels
    # without id, has to report what it has ordered and not seen yet, or that is ordered again, and
    # may end another instance than the one named where it cannot choose.
    names_instances: bool = False
    # It fills the place of each instance that ends, as with the pods of a StatefulSet: their number
    # is the platform's (`replicas`), none are started beside others, `refill` says of which
    # revision the next ones are, and an instance is stopping until another has its place.
    refills_places: bool = False
    # The generation of instances from before the first rollout, which the platform reports without
    # a mark of any; no rollout gets it. 0: there are none.
    unmarked_generation: int = 0
    # Its `clusters` are parts of different kinds, so that latencies do not compare, and only a
    # load balancer before all of them can divide the requests.
    has_parts: bool = False
    # It starts the instances of a generation with the settings they had
    # (`DriverContext.settings_of`), of which `keep` and `recall` know the secret ones: all options
    # but these, which are those of the hosts. None: all are started with the present options.
    host_options: Collection[str] | None = None

    @property
    def clusters_option(self) -> str:
        """The option that has the `clusters`, for messages."""
        return PARTS if self.has_parts else "clusters"


class PlatformDriver(BaseDriver):
    """Where instances live.

    A method may be called again at any time, also after a run was killed in the middle of it:
    doing what is done already is not an error. Raises PlatformError; the rollout then observes
    again, until its progress deadline.
    """

    kind = "platform"
    folder = "platforms"

    capabilities: Capabilities = Capabilities()
    clusters: Mapping[str, Fraction] = {}
    """The clusters or parts that instances run in, where there are several, each with its factor.

    An instance's host is CLUSTER/NODE then, and that of one to start is its cluster. A cluster that
    does not answer is named by `away`. Of a part with hosts (`within`), they are as they are
    without parts.
    """
    away: Mapping[str, list[dict[str, t.Any]]] = {}
    """By host or cluster that does not answer, what was last seen there.

    The journal keeps it, and has it for the drivers of later runs (`Known.away`).
    """
    machines: Mapping[str, Machine] = {}
    """By host, what `check` found there; used with `limits`."""
    workloads: Collection[str] = ()
    """What instances belong to at an orchestrator, as its own load balancers name it
    (`Server.workload`)."""
    zones: Mapping[str, str] = {}
    """By host, its zone; instances are spread over zones before they are spread over hosts."""

    @classmethod
    def shaping(
        cls, options: Mapping[str, t.Any], table: Options
    ) -> tuple[dict[str, t.Any], dict[str, t.Any]] | None:
        """Return the options that shape an instance: those that may be shown, and the secret ones.

        None where all instances are started with the present options.
        """
        of_hosts = cls.capabilities.host_options
        if of_hosts is None:
            return None
        return table.parted(
            {name: value for name, value in options.items() if name not in of_hosts}
        )

    def at(self, among: Collection[str]) -> PlatformDriver:
        """Return the platform of these hosts, or of this cluster: itself, unless it has parts."""
        return self

    def within(self, cluster: str) -> frozenset[str]:
        """Return the hosts of a part; the name itself where nodes are CLUSTER/NODE."""
        return frozenset({cluster})

    @property
    def at_work(self) -> Collection[str]:
        """Return the hosts that are alive and have not finished what they were told to do."""
        return ()

    @abc.abstractmethod
    def hosts(self) -> Sequence[str]:
        """Return the hosts that instances may be placed on, in inventory order."""

    @abc.abstractmethod
    def capacity(self, among: Collection[str] | None = None) -> int:
        """Return how many instances fit on all hosts together, or on those in `among`."""

    @abc.abstractmethod
    def place(
        self,
        count: int,
        taken: Collection[Labels],
        generation: int,
        among: Collection[str] | None = None,
    ) -> Sequence[tuple[str, Endpoint, int]]:
        """Return host, endpoint and slot of the next `count` instances, the generation spread over
        hosts, or over those `among` which they are to be.

        Fewer while a host that is to have an instance has not finished its earlier commands.
        """

    @abc.abstractmethod
    def check(self) -> None:
        """Raise if the hosts cannot be reached or cannot run instances. Touch nothing."""

    @abc.abstractmethod
    def sync(
        self, start: Sequence[Labels] = (), stop: Sequence[str] = (), forget: Sequence[str] = ()
    ) -> Sequence[Report]:
        """Do the work given, then report every instance of the service; one command for a host with
        work.

        Hosts without any are reported as last seen; with no work at all, every host is asked.
        `start` begins instances and leaves alone those that exist. `stop` asks instances, by id, to
        stop, and kills those that were asked `stop_timeout` ago: calling it again drives it.
        `forget` removes what is left of dead instances.

        A host that hangs does not delay the others for long: instances on hosts that do not answer
        are reported UNREACHABLE, as last seen, and `away` names these hosts.
        """

    def look(self, hosts: Collection[str]) -> Sequence[Report]:
        """Report every instance of the service, after a look at these hosts.

        Others are reported as last seen, and hosts that answer late are listened to. A platform
        that asks about all hosts at once looks at all.
        """
        return self.sync()

    def leaving(self, ids: Collection[str]) -> None:
        """Take note of the instances that are drained now, and are asked to stop once that is done;
        what is not among them any more stays.
        """

    def changed(self) -> bool:
        """Return whether something has changed since the last `sync`, which is then called at once.

        A platform that is told of changes calls `DriverContext.wake` as well.
        """
        return False

    def check_endpoints(self) -> None:
        """Raise where it could never be known at which endpoint an instance listens. Called after
        `check` where load balancers or checks are to reach instances.
        """

    def risks(self, replicas: int, least: int, most: int) -> Sequence[str]:
        """Return what may go wrong with a rollout, a line each, after `check` has passed.

        It keeps `least` instances available, and has up to `most` at once. Touch nothing.
        """
        return ()

    def log_of(self, id: str, host: str) -> str:
        """Return how a person reads the whole log of an instance, also after its end; "": unknown.

        Asks nobody.
        """
        return ""

    def log_source(self, id: str, host: str) -> Mapping[str, str]:
        """Return where `agents/instance_log.py` finds the log of an instance on its host; {}: that
        is not known.

        Asks nobody.
        """
        return {}

    def usage(self) -> Mapping[str, Usage]:
        """Return what each running instance uses, by id; those of hosts that answer."""
        raise PlatformError(
            "this platform does not know what instances use of their hosts", "PR-226"
        )

    def replicas(self) -> int | None:
        """Return how many instances the platform itself is asked for, 0 if its owner has scaled it
        so; None if only we ask.
        """
        return None

    def asked(self) -> int | None:
        """Return how many instances the owner of the workload asks for there, as last seen; None
        while the number is that of a rollout, or if only we ask.
        """
        return None

    def question(self) -> str:
        """Return what a person has to decide before a rollout goes on, as last seen; "": nothing.

        The fleet stays as it is until there is no question any more, or the rollout goes back.
        """
        return ""

    def note(self, event: Notable, text: str) -> None:
        """Have the platform show what happens to the rollout, to people who look there.

        A service to them: what goes wrong with it is no error.
        """

    def refill(self, revision: str, generation: int) -> None:
        """Have places that become free filled with this generation (`refills_places`)."""

    def conclude(self, stable: Composition | None) -> str:
        """Do what is left to do when a rollout ends, with what the service consists of now.

        Called again and again until it returns "". Otherwise it returns what it waits for.
        """
        return ""

    def close(self) -> None:
        """Stop what runs in the background. Nothing is asked of the driver any more."""

    def retry_silent_hosts(self) -> None:
        """Wait for hosts that did not answer at the next `sync`, as if they were asked first."""

    def prepare(self, revision: str, generation: int | None = None) -> None:
        """Bring what instances of a revision need to every host, or make sure that it is there.

        `generation` is given if it has settings of its own. Starting an instance later is then
        quick, and what is missing is known before anything is touched.
        """

    def keep(self, key: str, content: Mapping[str, t.Any]) -> None:
        """Keep the secret settings of a generation on the hosts, under this key."""
        raise PlatformError("the platform cannot keep secret settings", "PR-222")

    def recall(self, key: str) -> Mapping[str, t.Any] | None:
        """Return the secret settings kept under this key; None if no host has them.

        Raises PlatformError while hosts that may have them do not answer.
        """
        return None

    def references(self, revision: str, generation: int) -> Mapping[str, str] | None:
        """Return what the platform has outside of a generation's settings that its instances read
        when they start, by name, each with a digest; None: that may not be read.
        """
        return {}

    def limits(self, kept: InstanceSettings | None = None) -> Limits:
        """Return what an instance may use at most, with the settings `kept` or the present ones.

        A part of several takes its own of these settings (`InstanceSettings.of_part`).
        """
        return Limits()


def key_of(content: Mapping[str, t.Any]) -> str:
    """Return the key of secret settings: a digest, by which they are verified when they come back.

    The content has a salt, so nobody can check a guess of a secret against the key.
    """
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]
