# SPDX-License-Identifier: GPL-3.0-or-later
"""A service in memory: drivers as a third party's would be, and the steps that a play runs over
them. The journal keeps the rules of every shared store. With `virtual_time` waiting takes none.
"""

from __future__ import annotations

import typing as t
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ansible_collections.progressive.rollout.plugins.action import (
    begin,
    control,
    finish,
    promote,
    rollback,
)
from ansible_collections.progressive.rollout.plugins.action import replace as replaces
from ansible_collections.progressive.rollout.plugins.plugin_utils.base import clock
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    AutoscalerError,
    AutoscalerGone,
    Parked,
    PlatformError,
    RolloutFailed,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.config.autoscaler import (
    Autoscaler,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.config.settings import parse
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.loop.interrupt import (
    Guard,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.step.context import (
    Result,
    StepContext,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import (
    Phase,
    Process,
    Rotation,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.health.monitor import (
    HealthMonitor,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs.options import Options
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.autoscaler import (
    AutoscalerDriver,
    State,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import (
    DriverContext,
    Known,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.loader import (
    D,
    DriverChoice,
    DriverModule,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    Endpoint,
    Labels,
    PlatformDriver,
    Report,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.store import (
    StoreDriver,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.traffic import (
    Preview,
    Server,
    Target,
    TrafficDriver,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.state import identity
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.lease import Session
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.record import Record
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.store_retry import (
    StoreRetry,
)
from ansible_collections.progressive.rollout.tests.simulations.world.store import (
    Journal,
    MemoryStore,
)


@dataclass
class World:
    """What is outside, and what goes wrong there."""

    instances: dict[str, Report] = field(default_factory=dict)
    servers: dict[Endpoint, Server] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    fails: Callable[[str], Exception | None] = lambda call: None
    wrong: list[str] = field(default_factory=list)
    asks: int = 1  # how often an instance is told to stop until it has
    told: Counter[str] = field(default_factory=Counter)
    preview: dict[Endpoint, Server] = field(default_factory=dict)
    mirror: dict[Endpoint, Server] = field(default_factory=dict)
    capacity: int = 99  # for how many there is room
    most: int = 4  # instances at once
    fewest: int = 3  # of them in rotation
    scaler: dict[str, t.Any] = field(default_factory=dict)  # the autoscaler's state; none without
    mode: str = "hold"
    limit: float = 3600
    # how many instances it wants, or a function as `AutoscalerDriver.wanted`
    wants: int | Callable[[int, int], int | None] | None = None
    # which new instance ends as soon as it is started
    crashes: Callable[[Labels], bool] = lambda labels: False
    context: DriverContext | None = None  # of the step that runs
    missing: str = ""  # what a host lacks of what revisions need
    journals: defaultdict[str, Journal] = field(default_factory=lambda: defaultdict(Journal))

    def known(self) -> Known:
        """What the journal of the present step has; the epoch stays the same."""
        return replace(self.context.known(), epoch=1) if self.context else Known(epoch=1)

    def called(self, what: str) -> None:
        self.calls.append(what)
        if exc := self.fails(what):
            raise exc

    def alive(self) -> list[Report]:
        return [report for report in self.instances.values() if report.process is Process.RUNNING]

    def serving(self) -> int:
        alive = {report.labels.endpoint for report in self.alive()}
        return sum(
            1
            for endpoint, server in self.servers.items()
            if server.rotation is Rotation.IN and endpoint in alive
        )

    def check(self) -> None:
        """The promises: never fewer in rotation than asked for, never more than the surge
        allows.
        """
        if len(self.alive()) > self.most:
            self.wrong.append(f"{len(self.alive())} instances")
        if self.serving() < self.fewest:
            self.wrong.append(f"{self.serving()} in rotation")

    def platform(self) -> Platform:
        return Platform(self)

    def traffic(self) -> TrafficDriver:
        return Traffic(self)

    def store(self, service: str) -> StoreDriver:
        return Store(self, service)

    def autoscaler(self) -> Autoscaler | None:
        """The autoscaler, as settings have it."""
        chosen = choice(AutoscalerDriver, lambda: Scaler(self))
        return Autoscaler(chosen, self.mode, self.limit) if self.scaler else None


def choice(kind: type[D], make: Callable[[], D]) -> DriverChoice[D]:
    """A driver of a world in memory, as settings choose one by its name."""
    driver = type("Driver", (kind,), {"__new__": lambda _class, _options, _context: make()})
    return DriverChoice("memory", DriverModule(driver, Options()), {})


class Platform(PlatformDriver):
    def __init__(self, world: World) -> None:
        self.world = world

    def hosts(self) -> list[str]:
        return ["web"]

    def capacity(self, among: Collection[str] | None = None) -> int:
        return self.world.capacity

    def check(self) -> None:
        """Every host is there."""

    def prepare(self, revision: str, generation: int | None = None) -> None:
        if self.world.missing:
            raise PlatformError(self.world.missing, "PR-224")

    def place(
        self,
        count: int,
        taken: Collection[Labels],
        generation: int,
        among: Collection[str] | None = None,
    ) -> list[tuple[str, Endpoint, int]]:
        used = {labels.endpoint.port for labels in taken}
        free = [port for port in range(1, 100) if port not in used][:count]
        return [("web", Endpoint("127.0.0.1", port), port) for port in free]

    def sync(
        self, start: Sequence[Labels] = (), stop: Sequence[str] = (), forget: Sequence[str] = ()
    ) -> list[Report]:
        world = self.world
        world.called("sync before")
        for labels in start:
            ended = world.crashes(labels)
            world.instances[labels.id] = Report(
                labels, Process.FAILED if ended else Process.RUNNING, clock.now()
            )
        for name in stop:
            report = world.instances[name]
            entry = world.servers.get(report.labels.endpoint)
            if entry:
                world.wrong.append(f"{name} was stopped with an entry ({entry.rotation.value})")
            if report.labels.endpoint in world.preview | world.mirror:
                world.wrong.append(f"{name} was stopped at the preview")
            world.told[name] += 1
            if world.told[name] >= world.asks:
                world.instances[name] = replace(report, process=Process.STOPPED)
        for name in forget:
            del world.instances[name]
        world.check()
        world.called("sync after")
        return list(world.instances.values())


class Traffic(TrafficDriver):
    drain_timeout = 0.05

    def __init__(self, world: World) -> None:
        self.world = world

    def check(self) -> None:
        """There is a place for every instance."""

    def observe(self) -> dict[str, dict[Endpoint, Server]]:
        self.world.called("observe")
        return {"lb": dict(self.world.servers)}

    def apply(
        self, targets: Mapping[str, Mapping[Endpoint, Target]]
    ) -> dict[str, dict[Endpoint, Server]]:
        world = self.world
        world.called("apply before")
        wanted = targets["lb"]
        # Those that enter first; an error may come between any two entries.
        for endpoint in sorted(
            wanted, key=lambda endpoint: wanted[endpoint].rotation is not Rotation.IN
        ):
            target = wanted[endpoint]
            world.servers[endpoint] = Server(
                target.rotation, True, 0, target.weight, name=target.name
            )
            world.check()
            world.called("apply between")
        for endpoint in set(world.servers) - set(wanted):
            if world.servers[endpoint].ours:
                del world.servers[endpoint]
        world.called("apply after")
        return {"lb": dict(world.servers)}


class Previewed(Traffic):
    """One that has a preview and a mirror besides."""

    def previews(self) -> list[Preview]:
        return [
            Preview(Window(self.world, "preview")),
            Preview(Window(self.world, "mirror"), idle_only=True),
        ]


class Window(TrafficDriver):
    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name

    def check(self) -> None:
        """There is a place for every instance."""

    def observe(self) -> dict[str, dict[Endpoint, Server]]:
        self.world.called(f"{self.name} observe")
        return {"lb": dict(getattr(self.world, self.name))}

    def apply(
        self, targets: Mapping[str, Mapping[Endpoint, Target]]
    ) -> dict[str, dict[Endpoint, Server]]:
        self.world.called(f"{self.name} apply")
        shown = {
            endpoint: Server(target.rotation, True, 0, name=target.name)
            for endpoint, target in targets["lb"].items()
        }
        setattr(self.world, self.name, shown)
        return {"lb": dict(shown)}


class Scaler(AutoscalerDriver):
    """It changes numbers unless it is `off`."""

    name = "scaler"
    follows = True

    def __init__(self, world: World) -> None:
        self.world = world

    def check(self) -> None:
        self.read()

    def read(self) -> dict[str, t.Any]:
        self.world.called("read")
        if self.world.scaler.get("gone"):
            raise AutoscalerGone("there is no scaler")
        return dict(self.world.scaler)

    def write(self, before: State, after: State) -> None:
        self.world.called("write")
        if self.world.scaler != before:
            raise AutoscalerError("changed meanwhile")
        self.world.scaler = dict(after)
        self.world.called("written")

    def held(self, state: State, replicas: int) -> State:
        return {**state, "min": 1, "off": True}

    def followed(self, state: State) -> State:
        return self.held(state, 0)

    def wanted(self, present: int, replicas: int) -> int | None:
        self.world.called("wanted")
        wants = self.world.wants
        return wants(present, replicas) if callable(wants) else wants


class Here:
    """The transport of a service that has no hosts."""

    def apart(self) -> Here:
        return self

    def close(self) -> None:
        """Nothing is open."""


class Store(MemoryStore):
    """The journal, which may fail like everything else."""

    def __init__(self, world: World, service: str) -> None:
        super().__init__(service, world.journals[service])
        self.world = world

    def commit(self, *args: t.Any, **kwargs: t.Any) -> None:
        self.world.called("commit")
        super().commit(*args, **kwargs)


class MemoryRun(StepContext):
    """One step of a run over a world in memory, without Ansible."""

    def __init__(
        self,
        service: Service,
        given: Mapping[str, t.Any],
        options: Mapping[str, t.Any],
        check_mode: bool,
    ) -> None:
        self.given = {**service.given, **given}
        settings, world = parse(self.given, drivers=False), service.world
        # that of the service, and that of its release
        made = {"__new__": lambda _class, _options, context: world.store(context.service)}
        journals = type("Driver", (StoreDriver,), made)
        self.settings = replace(
            settings,
            store=DriverChoice("memory", DriverModule(journals, Options()), {}),
            platform=choice(PlatformDriver, world.platform),
            traffic=choice(TrafficDriver, world.traffic),
            autoscaler=world.autoscaler(),
        )
        self.options = options
        self.check_mode = check_mode
        self._parked = False
        self.print_line = service.said.append
        self.transport = t.cast(t.Any, Here())
        self.context = DriverContext(
            settings.service,
            self.transport,
            settings.checks,
            lambda _transport: t.cast(t.Any, world.platform()),
            release=self._ask_release,
        )
        world.context = replace(self.context, known=lambda: self.session.known())
        self.checker = HealthMonitor(settings.checks, self.transport)
        self.guard = Guard(self.checker.wake)
        longest = settings.rules.progress_deadline
        self.store_retry = StoreRetry(longest, self.print_line, self.guard.check)
        self.session = Session(
            self.settings.store.make(self.context),
            settings.service,
            service.identity,
            settings.lease,
            self.store_retry,
        )


class Service:
    """`shop`, or another service, in memory. `play` is what the role does with these variables, step by step."""

    def __init__(self, world: World, **given: t.Any) -> None:
        self.world = world
        self.given = {
            "service": "shop",
            "budget": {"max_surge": 1, "max_unavailable": 0},
            "wait": 0,
            **given,
        }
        self.name = str(self.given["service"])
        self.identity = identity.identity(Guard().parent)
        self.said: list[str] = []

    def step(
        self,
        step: t.Any,
        options: Mapping[str, t.Any] | None = None,
        check_mode: bool = False,
        **given: t.Any,
    ) -> Result:
        """One step, as its action plugin runs it."""
        parsed = step.ActionModule.options.parse(options or {}, "rollout_")
        with MemoryRun(
            self,
            given,
            {name: value for name, value in parsed.items() if value is not None},
            check_mode,
        ) as run:
            try:
                return t.cast(Result, step.ActionModule.__new__(step.ActionModule).perform(run))
            except Parked as exc:
                return run.parked(str(exc))

    def play(self, **given: t.Any) -> Result:
        """The role's steps, to the end or to where it is parked; raises RolloutFailed after the
        way back.
        """
        result = self.step(begin, **given)
        if not result["changed"] and result["rollout"]["phase"] in (None, "finished"):
            return result
        try:
            for step in (replaces, promote, finish):
                result = self.step(step, **given)
                if result.get("parked"):
                    break
        except RolloutFailed:
            if self.journal.open and self.journal.open.phase == Phase.ROLLING_BACK:
                self.step(rollback, **given)
            raise
        return result

    def say(self, word: str, **given: t.Any) -> Result:
        """Send an operator's command."""
        return self.step(control, {"command": word}, **given)

    @property
    def store(self) -> MemoryStore:
        """The journal, which does not fail."""
        return MemoryStore(self.name, self.world.journals[self.name])

    def timeline(self, rollout: str) -> list[dict[str, t.Any]]:
        """Return the events of a rollout, by its id."""
        return list(self.store.timeline(rollout))

    @property
    def journal(self) -> Record:
        """The record as it is."""
        return Session(self.store, self.name, self.identity, 60).read()

    @property
    def running(self) -> dict[str, int]:
        """How many instances of each revision are alive."""
        return dict(Counter(report.labels.revision for report in self.world.alive()))
