# SPDX-License-Identifier: GPL-3.0-or-later
"""The drivers of a simulated world, by which the controller reaches it: `driver: simulated`."""

from __future__ import annotations

import math
import sys
import typing as t
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import ModuleType

from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    AutoscalerError,
    LeaseLost,
    NotifyError,
    PlatformError,
    StoreAway,
    StoreError,
    TrafficError,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import (
    Health,
    Process,
    Rotation,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs.options import (
    FLAG,
    TEXT,
    Field,
    Options,
    duration,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces import gate
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.autoscaler import (
    AutoscalerDriver,
    State,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.check import (
    HealthCheck,
    Probe,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import (
    DriverContext,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.notifier import (
    Notice,
    NotifierDriver,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    Capabilities,
    Endpoint,
    Labels,
    PlatformDriver,
    Report,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.traffic import (
    Preview,
    Server,
    Target,
    TrafficDriver,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms._last_seen import (
    LastSeen,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms._placement import place
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.agents import Answer
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.releases import JOURNAL
from ansible_collections.progressive.rollout.plugins.plugin_utils.stores._shared import (
    COMMANDS,
    LEASE,
    RECORD,
    Change,
    StoredTexts,
)

from .store import MemoryStore
from .under_way import UnderWay, silent
from .world import ADDRESSES, HOSTS, LATE, SOON, Balancer, Entry, Host, Instance, World

NAME = "simulated"
SILENT = 2.0  # seconds that a host without an answer is waited for
EAGER = 0.1  # seconds between two checks of a new instance
PROVE = 0.3  # seconds until a balancer has checked a new entry
worlds: list[World] = []  # the present one is the last


class Platform(PlatformDriver):
    """Instances on three hosts."""

    capabilities = Capabilities(host_options=())
    stop_timeout = 10.0  # seconds after which one that was told to stop is killed

    def __init__(self, options: Mapping[str, t.Any], context: DriverContext) -> None:
        self._world, self.context, self._seen = worlds[-1], context, LastSeen(context)
        self._occupied: dict[str, set[int]] = {}  # ports that others have, by address
        self.away = self._seen.away
        self._under_way = UnderWay(self._world)
        self._flavour = options.get("flavour", "")

    @property
    def at_work(self) -> Collection[str]:
        return self._under_way.at_work

    def hosts(self) -> Sequence[str]:
        return HOSTS

    def capacity(self, among: Collection[str] | None = None) -> int:
        return 20 * len(HOSTS if among is None else set(HOSTS) & set(among))

    def check(self) -> None:
        with self._world.call("check of the hosts", PlatformError):
            self._refuse_away()

    def prepare(self, revision: str, generation: int | None = None) -> None:
        with self._world.call(f"prepare {revision}", PlatformError):
            self._refuse_away()

    def _refuse_away(self) -> None:
        excluded = self.context.known().excluded
        for host in self._world.hosts.values():
            if host.away > self._world.now and host.name not in excluded:
                self._world.machine.sleep(SILENT)
                raise PlatformError(f"{host.name} does not answer", "PR-219")

    def place(
        self,
        count: int,
        taken: Collection[Labels],
        generation: int,
        among: Collection[str] | None = None,
    ) -> Sequence[tuple[str, Endpoint, int]]:
        hosts = [
            host for host in HOSTS if host not in self.away and (among is None or host in among)
        ]
        if not hosts:
            raise PlatformError(f"there is no room for {count} more instances", "PR-219")
        ports = range(8000, 8020)
        places = place(
            hosts, ADDRESSES, ports, count, taken, generation, zones={}, occupied=self._occupied
        )
        return [place for place in places if place[0] not in self.at_work]

    def changed(self) -> bool:
        return self._under_way.has_answers

    def sync(
        self, start: Sequence[Labels] = (), stop: Sequence[str] = (), forget: Sequence[str] = ()
    ) -> Sequence[Report]:
        return self._call(self._concerned(start, [*stop, *forget]), start, stop, forget)

    def look(self, hosts: Collection[str]) -> Sequence[Report]:
        known = len(self._seen.hosts) == len(HOSTS)
        return self._call([host for host in HOSTS if host in hosts or not known])

    def _call(
        self,
        concerned: Sequence[str],
        start: Sequence[Labels] = (),
        stop: Sequence[str] = (),
        forget: Sequence[str] = (),
    ) -> Sequence[Report]:
        world, self_seen = self._world, self._seen
        self_seen.restore(HOSTS)
        works = bool(start or stop or forget)
        what = _sentence(start, stop, forget)
        epoch = self.context.known().epoch
        if works and not epoch:
            raise PlatformError(f"{what}: without a lease", "PR-503")
        if works:
            world.tell(what)
            world.acts(what, epoch, self.context.service)
        with world.call(what, PlatformError) as half:
            answers: dict[str, Answer | None] = {**self._under_way.answers()}
            held: dict[str, Answer | None] = {}  # hosts that are not given another call
            for name in world.some(concerned, half):
                if name in self._under_way:
                    _leave(world, world.hosts[name], stop)
                    held[name] = None
                    continue
                if name in answers and not works:
                    continue
                mine = [labels for labels in start if labels.host == name]
                answers[name] = self._ask(world.hosts[name], mine, stop, forget)
            if any(answer and answer.unreachable for answer in answers.values()):
                world.machine.sleep(SILENT)
            elif None in answers.values():
                self._under_way.wait()
                answers |= self._under_way.answers()
        self._take({**held, **answers}, start, stop)
        return self_seen.reports(HOSTS)

    def _take(
        self,
        answers: Mapping[str, Answer | None],
        start: Sequence[Labels],
        stop: Collection[str],
    ) -> None:
        seen, excluded = self._seen, self.context.known().excluded
        unknown = [
            name
            for name, answer in answers.items()
            if (answer is None or answer.unreachable) and name not in seen.hosts
        ]
        for name in frozenset(excluded).intersection(unknown):
            seen.lose(name, (), self._world.now)
            unknown.remove(name)
        if unknown:
            raise PlatformError(f"cannot know what runs on {', '.join(unknown)}", "PR-216")
        for name, answer in answers.items():
            mine = [labels for labels in start if labels.host == name]
            seen.update(name, answer, mine, stop, self._world.now)

    def _concerned(self, start: Sequence[Labels], ids: Sequence[str]) -> Sequence[str]:
        homes = self._seen.homes()
        busy = {homes.get(name, "") for name in ids} | {labels.host for labels in start}
        known = busy and busy <= set(HOSTS) and len(self._seen.hosts) == len(HOSTS)
        return [host for host in HOSTS if host in busy] if known else HOSTS

    def _ask(
        self, host: Host, start: Sequence[Labels], stop: Sequence[str], forget: Sequence[str]
    ) -> Answer | None:
        """Return what a host answers; None: it has not finished."""
        world, epoch = self._world, self.context.known().epoch
        if max(host.away, host.locked) > world.now:
            if host.locked > world.now:
                _leave(world, host, stop)
            return silent(host)
        if epoch:
            newest = host.epochs.get(self.context.service, 0)
            if epoch < newest:
                who = f"epoch {newest}, ours is {epoch}"
                text = f"{host.name}: a newer lease holder has acted here ({who})"
                raise LeaseLost(text, "PR-503")
            host.epochs[self.context.service] = epoch
        if self.context.service == "shop":
            for labels in start:
                world.check_autoscaler(labels.id)
        looked = world.last_look()

        def work() -> Answer:
            return self._work(host, start, stop, forget, looked)

        if host.busy > world.now and (start or stop or forget):
            _leave(world, host, stop)
            self._under_way.begin(host, work)
            return None
        return work()

    def _work(
        self,
        host: Host,
        start: Sequence[Labels],
        stop: Sequence[str],
        forget: Sequence[str],
        looked: float,
    ) -> Answer:
        world = self._world
        for labels in start:
            self._start(host, labels)
        for name in stop:
            if name in host.instances:
                self._stop(host.instances[name], looked)
        for name in forget:
            instance = host.instances.get(name)
            if instance and not instance.gone:
                raise PlatformError(f"instance {name} is running", "PR-219")
            host.instances.pop(name, None)
        service = self.context.service
        mine = [one for one in host.instances.values() if one.labels.service == service]
        draining = world.recorded("draining") or {}
        for one in mine:
            if one.told is None and one.labels.id not in draining:
                one.leaves = 0  # the host says that it runs, and it is to go on
        return Answer({"instances": [_item(one, world.now) for one in mine]})

    def _start(self, host: Host, labels: Labels) -> None:
        world = self._world
        if labels.id in host.instances:
            return
        taken = world.at(labels.endpoint)
        if self._is_taken(host, labels):
            at = labels.endpoint
            self._occupied.setdefault(at.address, set()).add(at.port)
            return  # it is passed over
        if taken:
            world.broken(
                f"{labels.id} is started at {labels.endpoint}, which {taken.labels.id} has"
            )
        kept = self.context.settings_of(labels.generation)
        flavour = kept.platform.get("flavour", "") if kept else self._flavour
        if labels.service == "shop":
            world.check_settings(labels, flavour)
            world.check_host(labels)
            world.decided.check_start(labels)
        world.begin(labels).patience = self.stop_timeout
        world.check_ceiling()

    def _is_taken(self, host: Host, labels: Labels) -> bool:
        """Return whether another service has the port, also for an instance that crashed."""
        return any(
            one.labels.endpoint == labels.endpoint and one.gone is not Process.STOPPED
            for one in host.instances.values()
            if one.labels.service != labels.service
        )

    def _stop(self, instance: Instance, looked: float) -> None:
        world = self._world
        if instance.gone:
            return
        if instance.told is None:
            world.check_stop(instance, Traffic.drain_timeout, looked)
            instance.told = world.now
            world.clients.look()
            if instance.life.stop < math.inf:
                at = world.now + instance.life.stop
                world.machine.at(at, lambda: world.end(instance, Process.STOPPED))
        if world.now - instance.told > instance.patience:
            instance.detail = "did not stop in time and was killed"
            world.end(instance, Process.STOPPED)


def _leave(world: World, host: Host, stop: Collection[str]) -> None:
    """A run takes instances for stopping from when it tells a host so, or would have."""
    for name in host.instances.keys() & set(stop):
        host.instances[name].leaves = world.machine.current.process.run


def _item(one: Instance, now: float) -> dict[str, t.Any]:
    """Return an instance as an agent reports it."""
    labels = one.labels
    runs = Process.RUNNING if now >= one.began else Process.STARTING
    sees = one.gone or (Process.STOPPING if one.told is not None else runs)
    restarts = {"restarts": one.restarts, "restarted": now - one.restarted} if one.restarts else {}
    return {
        **restarts,
        "id": labels.id,
        "service": labels.service,
        "revision": labels.revision,
        "generation": labels.generation,
        "address": labels.endpoint.address,
        "port": labels.endpoint.port,
        "slot": labels.slot,
        "process": sees.value,
        "age": now - one.created,
        "detail": one.detail,
    }


def _sentence(start: Sequence[Labels], stop: Sequence[str], forget: Sequence[str]) -> str:
    """Return what the platform is to do."""
    parts = [f"start {', '.join(f'{one.id} ({one.revision})' for one in start)}"] if start else []
    parts += [f"stop {', '.join(stop)}"] if stop else []
    parts += [f"forget {', '.join(forget)}"] if forget else []
    return "; ".join(parts) or "look at the hosts"


class Traffic(TrafficDriver):
    """Two load balancers, which send requests to each entry in rotation that answers."""

    drain_timeout = 5.0
    counts = ("errors",)
    adopts = True
    _verb = "balance"

    def __init__(self, options: Mapping[str, t.Any], context: DriverContext) -> None:
        self._world, self._context = worlds[-1], context
        self._pool = self._world.pool(context.service)
        self.binds = context.in_place
        self._previews = [Preview(PreviewPool(context))] if options.get("preview") else []

    def previews(self) -> Sequence[Preview]:
        return self._previews

    def check(self) -> None:
        with self._world.call("check of the balancers", TrafficError):
            self._reach(self._pool)

    def observe(self) -> dict[str, dict[Endpoint, Server]]:
        world, run = self._world, self._world.machine.current.process.run
        began = world.looked[run] = world.now
        with world.call("look at the balancers", TrafficError):
            self._reach(self._pool)
            world.seen[run] = world.now
            shown = {name: self._show(balancer) for name, balancer in self._pool.items()}
        world.late_looks[run] = world.late_looks.get(run, 0) + 1 if world.now - began >= LATE else 0
        return shown

    def apply(
        self, targets: Mapping[str, Mapping[Endpoint, Target]]
    ) -> dict[str, dict[Endpoint, Server]]:
        world = self._world
        what = f"{self._verb} {'; '.join(f'{n}: {_shown(known)}' for n, known in targets.items())}"
        world.tell(what)
        world.acts(what, self._context.known().epoch, self._context.service)
        if self._context.service == "shop" and any(map(self._switches, targets.values())):
            world.at_switch()
        asked = world.now
        if self._verb == Traffic._verb:
            world.check_recent(what)
        with world.call(what, TrafficError) as half:
            self._reach(targets)
            for name in world.some(targets, half):
                self._change(self._pool[name], targets[name], asked)
        return {name: self._show(self._pool[name]) for name in targets}

    def _switches(self, wanted: Mapping[Endpoint, Target]) -> bool:
        """Return whether requests go from all instances that get some to others, at once."""
        inside = {at for at, target in wanted.items() if target.rotation is Rotation.IN}
        return bool(inside) and any(
            before and not before & inside
            for balancer in self._pool.values()
            if (before := {at for at, e in balancer.entries.items() if e.rotation is Rotation.IN})
        )

    def _reach(self, names: Iterable[str]) -> None:
        epoch = self._context.known().epoch
        for balancer in map(self._pool.__getitem__, names):
            if balancer.away > self._world.now:
                self._world.machine.sleep(SILENT)
                raise TrafficError(f"{balancer.name} does not answer", "PR-300")
            if epoch:
                if epoch < balancer.epoch:
                    raise LeaseLost(f"{balancer.name}: a newer lease has acted", "PR-503")
                balancer.epoch = epoch

    def _change(self, balancer: Balancer, wanted: Mapping[Endpoint, Target], asked: float) -> None:
        """Do what was asked for at that time, or refuse it before the first change."""
        world = self._world
        self._refuse(balancer, wanted)
        serving, shares = world.serving(balancer), world.shares(balancer)
        before = len(serving) - world.uncounted(balancer)
        balancer.disordered = False
        world.count(balancer)
        if self._context.service == "shop":
            world.decided.check_change(balancer, wanted)
        for at, target in wanted.items():
            entry = balancer.entries.get(at)
            if entry is None:
                entry = balancer.entries[at] = Entry(target.name, since=world.now)
            else:
                entry.name = target.name  # the endpoint may have another instance now
            if target.rotation is Rotation.IN and entry.rotation is not Rotation.IN:
                world.check_admitted(balancer, at)
                entry.joined = world.now
            if target.rotation is not Rotation.IN and entry.rotation is Rotation.IN:
                entry.left = world.now
            # an entry that is left as it is, for want of any that answers, is still the balancer's
            if entry.by_hand and not self._is_ours(entry):
                world.broken(f"{balancer.name}: {entry.name} was made by hand, and is changed")
            if entry.unused:
                entry.unused, entry.since = False, world.now  # which it is checked
            left = target.rotation is Rotation.IN and before <= 0
            entry.restored = entry.restored and left
            entry.rotation, entry.weight = target.rotation, target.weight
            if entry.parked and not target.parked:
                entry.since = world.now  # which it is checked
            entry.parked = target.parked
        for at, entry in list(balancer.entries.items()):
            if at in wanted or not self._is_ours(entry):
                continue
            entry.restored = False
            if entry.rotation is Rotation.IN:
                entry.rotation, entry.left = Rotation.OUT, world.now
            if not self._active(world.at(at), entry):
                entry.unused = entry.by_hand
                if not entry.by_hand:
                    del balancer.entries[at]
        world.clients.look()
        if self._context.service != "shop":
            return
        world.check_hidden(balancer, serving)
        if world.now - asked <= SOON:
            world.check_floor(f"{balancer.name} is changed", balancer, before)
            world.check_shares(balancer, shares)

    def _is_ours(self, entry: Entry) -> bool:
        """Return whether a server is one of the service: of those made by hand, an adopted one."""
        return entry.ours and (not entry.by_hand or entry.name in self._context.known().adopted)

    def _refuse(self, balancer: Balancer, wanted: Mapping[Endpoint, Target]) -> None:
        """Raise for an entry to be put in rotation that has not passed the balancer's check."""
        for at, target in wanted.items():
            entry = balancer.entries.get(at)
            if target.rotation is not Rotation.IN or (entry and entry.rotation is Rotation.IN):
                continue
            blind = balancer.blind > self._world.now
            if blind or entry is None or not self._passes(self._world.at(at), entry):
                raise TrafficError(f"{balancer.name}: {at} does not pass its check", "PR-308")

    def _passes(self, instance: Instance | None, entry: Entry) -> bool:
        """Return whether an instance passes the balancer's own check: it accepts connections."""
        return (
            instance is not None
            and not entry.parked
            and instance.told is None
            and self._world.now - max(instance.up, entry.since) >= PROVE
            and self._world.reachable(instance)
        )

    def _active(self, instance: Instance | None, entry: Entry) -> int:
        """Return the requests in flight at an entry."""
        if instance is None:
            return 0
        if entry.rotation is Rotation.IN:
            return int(not self._world.quiet)
        return int(self._world.now < entry.left + instance.life.work)

    def _show(self, balancer: Balancer) -> dict[Endpoint, Server]:
        world, blind = self._world, balancer.blind > self._world.now
        world.count(balancer)
        shown = {}
        for at, entry in balancer.entries.items():
            if entry.unused:
                continue
            instance = world.at(at)
            shown[at] = Server(
                entry.rotation,
                not blind and self._passes(instance, entry),
                99 if blind else self._active(instance, entry),
                entry.weight,
                ours=self._is_ours(entry),
                name=entry.name,
                service=self._context.service if self._is_ours(entry) else "",
                requests=int(entry.requests),
                errors=int(entry.errors),
                parked=entry.parked,
            )
        return shown


class PreviewPool(Traffic):
    """The balancers' pools of new instances alone."""

    _verb = "preview"

    def __init__(self, context: DriverContext) -> None:
        super().__init__({}, context)
        self._pool = self._world.previews

    def observe(self) -> dict[str, dict[Endpoint, Server]]:
        with self._world.call("look at the previews", TrafficError):
            self._reach(self._pool)
            return {name: self._show(balancer) for name, balancer in self._pool.items()}

    def _switches(self, wanted: Mapping[Endpoint, Target]) -> bool:
        return False

    def _change(self, balancer: Balancer, wanted: Mapping[Endpoint, Target], asked: float) -> None:
        world = self._world
        self._refuse(balancer, wanted)
        balancer.keep()
        balancer.entries = {
            at: Entry(
                target.name,
                target.rotation,
                since=entry.since if (entry := balancer.entries.get(at)) else world.now,
            )
            for at, target in wanted.items()
        }
        world.check_preview(balancer)


def _shown(wanted: Mapping[Endpoint, Target]) -> str:
    return ", ".join(
        f"{one.name or at} {one.rotation.value}" + (f" {one.weight}" if one.weight != 100 else "")
        for at, one in wanted.items()
    )


class Store(MemoryStore):
    """The journal, which may be away."""

    def __init__(self, options: Mapping[str, t.Any], context: DriverContext) -> None:
        super().__init__(context.service, worlds[-1].journals[context.service])
        self._world, self._context = worlds[-1], context
        self._followed = context.service == "shop"  # its promises are checked
        self._committed: Mapping[str, t.Any] = {}  # the last that was to be written

    def commit(
        self,
        token: str,
        ttl: float,
        record: Mapping[str, t.Any] | None = None,
        events: Sequence[Mapping[str, t.Any]] = (),
    ) -> None:
        self._committed = self._committed if record is None else record
        super().commit(token, ttl, record, events)

    def _away(self) -> None:
        if self._world.store_away > self._world.now:
            self._world.machine.sleep(0.5)
            raise StoreAway("the journal does not answer", "PR-508")

    def _read(self, names: Collection[str]) -> StoredTexts:
        if self._context.service == JOURNAL and not self.journal.texts:
            return super()._read(names)  # of no release: no moment for a fault of its own
        with self._world.call("read the journal", _away):
            self._away()
            return super()._read(names)

    def _write(self, change: Change) -> bool:
        with self._world.call("write the journal", _away):
            self._away()
            written = super()._write(change)
            if written and self._followed:
                self._check(change)
        return written

    def _check(self, change: Change) -> None:
        """Check what was written, and note who holds the lease."""
        world, process = self._world, self._world.machine.current.process
        if RECORD in change.texts:
            world.committed(self._committed, "shop")
            world.check_stable(world.recorded("stable"))
            world.waits.written()
            world.decided.written()
            world.by_hand.written()
        if COMMANDS in change.texts:
            world.waits.sent(change.texts[COMMANDS])
        if change.ttl is not None:
            lease = self._held(super()._read([LEASE]))[0]
            holder = lease["details"].get("pid", 0) if lease else 0
            world.held_since = world.held_since if holder == world.holder else world.now
            world.holder = holder
            world.expires = lease["until"] if lease else 0.0
            world.written[process.run] = world.now
            if lease and world.holder == process.run:
                world.leases[process.run] = lease["epoch"]

    def _texts(self, prefix: str) -> Iterable[bytes]:
        with self._world.call("read the timeline", _away):
            self._away()
            return super()._texts(prefix)


def _away(text: str) -> StoreError:
    return StoreAway(text, "PR-508")


class Gate(gate.GateDriver):
    """A gate that passes, fails or asks for a person after a time."""

    blocking = True

    def __init__(self, options: Mapping[str, t.Any], context: DriverContext) -> None:
        self._options = options

    def ask(self, rollout: Mapping[str, t.Any], waited: float) -> gate.Answer:
        worlds[-1].machine.sleep(0.2)
        if waited < self._options["after"]:
            return gate.Answer(gate.WAIT, "looking")
        worlds[-1].check_previewed()
        return gate.Answer(self._options["answer"] or gate.PASS, "looked")


class Notifier(NotifierDriver):
    """A receiver that gets a notice, late or never, or refuses it."""

    def __init__(self, options: Mapping[str, t.Any], context: DriverContext) -> None:
        self._world = worlds[-1]

    def send(self, notice: Notice, text: str) -> None:
        world = self._world
        how = world.receiving[len(world.received) % len(world.receiving)]
        world.received.append((notice.rollout, notice.event))
        world.tell(f"a receiver is told: {notice.event}; it {how}")
        if world.machine.current.name == "main":
            world.broken("the rollout itself waits for a receiver")
        if how == "is late":
            world.machine.sleep(8.0)
        if how == "hangs":
            world.machine.sleep(1e6)
        if how == "refuses":
            raise NotifyError("refused")


class Scaler(AutoscalerDriver):
    """It changes the number of instances unless it is `off`."""

    name = "scaler"
    follows = True

    def __init__(self, options: Mapping[str, t.Any], context: DriverContext) -> None:
        self._world, self._context = worlds[-1], context

    def check(self) -> None:
        self.read()

    def read(self) -> State:
        with self._world.call("read the autoscaler", AutoscalerError):
            return dict(self._world.scaler)

    def write(self, before: State, after: State) -> None:
        with self._world.call(f"change the autoscaler to {dict(after)}", AutoscalerError):
            epoch = self._context.known().epoch
            if epoch < self._world.scaler_epoch:
                raise LeaseLost(f"the autoscaler has epoch {self._world.scaler_epoch}, not {epoch}")
            if self._world.scaler != before:
                raise AutoscalerError("the autoscaler was changed meanwhile")
            self._world.scaler, self._world.scaler_epoch = dict(after), epoch

    def held(self, state: State, replicas: int) -> State:
        return {**state, "off": True}

    def followed(self, state: State) -> State:
        return self.held(state, 0)

    def wanted(self, present: int, replicas: int) -> int | None:
        with self._world.call("ask the autoscaler", AutoscalerError):
            return self._world.wish or replicas


class Worker:
    """Asks instances whether they are ready, in place of `health.monitor._Worker`."""

    def __init__(
        self,
        health: HealthCheck,
        _transport: object,
        _forks: int,
        note: Callable[[t.Any, Probe], None],
    ) -> None:
        self._health, self._note, self._world = health, note, worlds[-1]
        self._process = self._world.machine.current.process
        self._asked: set[t.Any] = set()
        self._failures: dict[str, int] = {}  # in a row, by instance

    def replace(self, begun: Sequence[t.Any], gone: Sequence[t.Any]) -> None:
        self._asked -= set(gone)
        for watched in begun:
            self._asked.add(watched)
            self._again(watched, 0.01)

    def close(self) -> None:
        self._asked.clear()

    def _again(self, watched: t.Any, pause: float) -> None:
        machine = self._world.machine
        machine.at(max(machine.time + pause, self._process.until), lambda: self._ask(watched))

    def _ask(self, watched: t.Any) -> None:
        if watched not in self._asked or not self._process.alive:
            return
        passed = self._world.answers(watched.target.endpoint) and self._is_asked_for(watched)
        self._count(watched.id, passed)
        self._note(watched, Probe(passed, "200" if passed else "no answer"))
        new = watched.vital.health is Health.PENDING and not watched.target.known
        self._again(watched, EAGER if new else self._health.interval)

    def _count(self, name: str, passed: bool) -> None:
        """Count the failures in a row: after some, the controller knows of them."""
        known, key = self._world.known, (self._process.run, name)
        self._failures[name] = 0 if passed else self._failures.get(name, 0) + 1
        if passed:
            known.pop(key, None)
        elif self._failures[name] >= self._health.fall:
            known.setdefault(key, self._world.now)

    def _is_asked_for(self, watched: t.Any) -> bool:
        """Return whether an instance answers the check that it is asked by."""
        if not self._world.settings:
            return True
        at = watched.target.endpoint
        instance = self._world.at(at)
        path = instance and self._world.settings.get(instance.labels.revision)
        return not path or f"GET /{path} " in self._health.check.payload(at).decode()


def install() -> None:
    """Make the drivers known by their name."""
    base = "ansible_collections.progressive.rollout.plugins.plugin_utils"
    text = Field("answer", TEXT, "What it answers.", default="pass")
    after = Field("after", duration(0), "When.", default="0s")
    preview = Field("preview", FLAG, "Whether there are preview pools.", default=False)
    for folder, driver, options in (
        ("platforms", Platform, Options(Field("flavour", TEXT, "A setting.", default=""))),
        ("traffic", Traffic, Options(preview)),
        ("stores", Store, Options()),
        ("gates", Gate, Options(text, after)),
        ("notifiers", Notifier, Options()),
        ("autoscalers", Scaler, Options()),
    ):
        name = f"{base}.{folder}.{NAME}"
        module = ModuleType(name)
        module.__dict__.update(Driver=driver, OPTIONS=options)
        sys.modules[name] = module
