# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fleet on a virtual clock, walked by `evaluate` as the conductor does it, with faults.

Platform, load balancers and checks are abstract; what lies between them and the engine (`fleet.assemble`,
`fleet.targets`) is the real thing. Every action is checked against DESIGN's invariants at the moment it is done, with
this file's own idea of what is available. One tick is one second.
"""

from __future__ import annotations

import copy
import typing as t
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ansible_collections.progressive.rollout.plugins.plugin_utils import fleet as fleets
from ansible_collections.progressive.rollout.plugins.plugin_utils.checker import Vital
from ansible_collections.progressive.rollout.plugins.plugin_utils.drivers import Endpoint, Labels, Report, Server, Table, Target
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.budget import Budget
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.evaluate import Decision, evaluate
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Health, Instance, Process, Rotation, State
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.progress import Rules, Tally
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import Waypoint, rolling

HOSTS = 3
BOUND = 5000  # ticks no walk may take: one that does has no end


class Killed(Exception):
    """The run died between two actions."""


@dataclass(frozen=True)
class Life:
    """How an instance behaves. Seconds, counted from its creation where not said otherwise."""

    start: int = 2  # until it answers
    stop: int = 1  # from being told to stop until it is gone
    work: int = 1  # from leaving rotation until its last request is done
    crash: int | None = None  # when it ends by itself
    vanish: int | None = None  # when nothing is reported of it any more
    flap: int | None = None  # answers and does not, in turns of so many seconds
    never: bool = False  # never answers


@dataclass(frozen=True)
class World:
    """What befalls the fleet from outside; spans are (from, to) in seconds of the clock, `to` None: for ever."""

    lives: Sequence[Life] = (Life(),)  # of the instances the walk makes, over and over
    unreachable: Sequence[tuple[int, int, int | None]] = ()  # host, from, to
    restarts: Sequence[tuple[int, int]] = ()  # balancer, when it loses all its entries
    blips: Sequence[tuple[int, int]] = ()  # our own checks fail everything; the balancers' do not
    resize: Mapping[int, int] = field(default_factory=dict)  # when: how many instances there shall be
    kills: frozenset[int] = frozenset()  # before which of all actions the run dies
    balancers: int = 1  # 0: there is none
    latency: int = 0  # until a balancer has done what it was told
    prove: int = 0  # until a balancer's own check has passed a new entry


@dataclass
class Node:
    """An instance as it really is."""

    labels: Labels
    life: Life
    created: int
    told: int | None = None  # to stop, since
    gone: Process | None = None


@dataclass
class Entry:
    """A load balancer's entry."""

    name: str
    since: int
    rotation: Rotation = Rotation.OUT
    left: int | None = None  # rotation, since


class Balancer:
    """One load balancer: does what it is told `latency` later, puts nothing in rotation that it has not proven."""

    def __init__(self, simulator: Simulator) -> None:
        self.sim = simulator
        self.entries: dict[Endpoint, Entry] = {}
        self.orders: dict[Endpoint, tuple[int, Target | None]] = {}

    def observe(self) -> dict[Endpoint, Server]:
        return {
            endpoint: Server(entry.rotation, self.proven(entry), self.active(entry), name=entry.name)
            for endpoint, entry in self.entries.items()
        }

    def proven(self, entry: Entry) -> bool:
        node = self.sim.nodes.get(entry.name)
        return node is not None and self.sim.clock >= entry.since + self.sim.world.prove and self.sim.answers(node)

    def active(self, entry: Entry) -> int:
        node = self.sim.nodes.get(entry.name)
        if node is None or node.gone or not (entry.left is not None or entry.rotation is Rotation.IN):
            return 0
        return int(entry.left is None or self.sim.clock < entry.left + node.life.work)

    def order(self, wanted: Mapping[Endpoint, Target]) -> None:
        for endpoint in {*wanted, *self.entries, *self.orders}:
            target = wanted.get(endpoint)
            if endpoint not in self.orders or self.orders[endpoint][1] != target:
                self.orders[endpoint] = (self.sim.clock + self.sim.world.latency, target)
        self.work()

    def work(self) -> None:
        for endpoint, (due, target) in list(self.orders.items()):
            if due <= self.sim.clock:
                del self.orders[endpoint]
                self._do(endpoint, target)

    def _do(self, endpoint: Endpoint, target: Target | None) -> None:
        if target is None:
            self.entries.pop(endpoint, None)
            return
        entry = self.entries.setdefault(endpoint, Entry(target.name, self.sim.clock))
        if target.rotation is Rotation.IN and entry.rotation is Rotation.OUT and self.proven(entry):
            assert target.name not in self.sim.marks, f"3: {target.name} is put in rotation while it is going"
            entry.rotation, entry.left = Rotation.IN, None
        elif target.rotation is Rotation.OUT and entry.rotation is Rotation.IN:
            entry.rotation, entry.left = Rotation.OUT, self.sim.clock


class Simulator:
    """A service, its journal, and the world around it."""

    def __init__(self, world: World, budget: Budget, rules: Rules) -> None:
        self.world, self.budget, self.rules = world, budget, rules
        self.clock = 0
        self.nodes: dict[str, Node] = {}
        self.balancers = [Balancer(self) for _dummy in range(world.balancers)]
        self.vitals: dict[str, Vital] = {}
        # The journal: what is in memory, and what was committed of it.
        self.marks: dict[str, float] = {}
        self.tally: Tally | None = None
        self.serial = 0
        self.committed: tuple[dict[str, float], Tally | None, int] = ({}, None, 0)
        # What was seen.
        self.fleet: list[Instance] = []
        self.actions = 0
        self.made = 0
        self.deaths = 0
        self.peak = 0
        self.least: int | None = None
        self.log: list[tuple[int, Decision]] = []

    def populate(self, lives: Iterable[Life], generation: int = 1) -> None:
        """Instances that are there, and in rotation, from the start."""
        for number, life in enumerate(lives):
            node = self._node("old", generation, life, -1000 + number)
            if node.life.crash == 0:
                node.gone = Process.FAILED
            self.vitals[node.labels.id] = Vital(Health.PASSING, float(node.created))
            for balancer in self.balancers:
                balancer.entries[node.labels.endpoint] = Entry(node.labels.id, -1000, Rotation.IN)
        self.committed = (dict(self.marks), self.tally, self.serial)

    def _node(self, revision: str, generation: int, life: Life, created: int) -> Node:
        self.serial += 1
        name, host = f"i-{self.serial}", self.serial % HOSTS
        labels = Labels(name, "shop", revision, generation, f"h{host}", Endpoint("127.0.0.1", self.serial), self.serial)
        node = self.nodes[name] = Node(labels, life, created)
        return node

    # -- how things really are ------------------------------------------------------------------------------------

    def answers(self, node: Node) -> bool:
        life, age = node.life, self.clock - node.created
        if node.gone or life.never or age < life.start or node.labels.id not in self.nodes:
            return False
        return life.flap is None or (age - life.start) // life.flap % 2 == 0

    def reachable(self, host: str) -> bool:
        return not any(
            host == f"h{number}" and begin <= self.clock and (end is None or self.clock < end)
            for number, begin, end in self.world.unreachable
        )

    def counted(self) -> int:
        return sum(1 for node in self.nodes.values() if not node.gone)

    def _live(self) -> None:
        """One second passes."""
        self.clock += 1
        for name, node in list(self.nodes.items()):
            # The old ones are a thousand seconds old: what befalls them is counted from the clock's beginning.
            age = self.clock - max(0, node.created)
            if node.gone:
                continue
            if node.told is not None and self.clock >= node.told + node.life.stop:
                node.gone = Process.STOPPED
            elif node.life.crash is not None and age >= node.life.crash:
                node.gone = Process.STOPPED if node.told is not None else Process.FAILED
            elif node.life.vanish is not None and age >= node.life.vanish:
                del self.nodes[name]
        for number, when in self.world.restarts:
            if when == self.clock and self.balancers:
                balancer = self.balancers[number % len(self.balancers)]
                balancer.entries, balancer.orders = {}, {}
        for balancer in self.balancers:
            balancer.work()

    # -- what is observed of it -----------------------------------------------------------------------------------

    def look(self) -> list[Instance]:
        for node in self.nodes.values():
            self._check(node)
        table = {f"lb{n}": b.observe() for n, b in enumerate(self.balancers)} if self.balancers else None
        self.reports = [self._report(node) for node in self.nodes.values()]
        self.fleet = fleets.assemble(self.reports, table, self.vitals, self.marks)
        return self.fleet

    def _report(self, node: Node) -> Report:
        if not self.reachable(node.labels.host):
            process = Process.UNREACHABLE
        elif node.gone:
            process = node.gone
        elif node.told is not None:
            process = Process.STOPPING
        else:
            process = Process.STARTING if self.clock - node.created < node.life.start // 2 else Process.RUNNING
        return Report(node.labels, process, float(node.created))

    def _check(self, node: Node) -> None:
        name = node.labels.id
        before = self.vitals.get(name, Vital(Health.PENDING, float(node.created)))
        blip = any(begin <= self.clock < end for begin, end in self.world.blips)
        if self.answers(node) and not blip:
            health = Health.PASSING
        else:
            health = Health.PENDING if before.health is Health.PENDING else Health.FAILING
        self.vitals[name] = before if health is before.health and name in self.vitals else Vital(health, float(self.clock))

    def available(self, instance: Instance) -> bool:
        """This file's own idea of it."""
        since = instance.ready_since
        return (
            instance.state is State.READY
            and instance.rotation is Rotation.IN
            and instance.proven
            and since is not None
            and self.clock - since >= self.rules.min_ready
        )

    # -- the walk, as the conductor does it -----------------------------------------------------------------------

    def walk(self, waypoint: Waypoint, revision: str = "new", until: int | None = None) -> Decision:
        """To its end, or to a moment of the clock; killed runs are followed by the next one."""
        self.tally, self.committed = None, (dict(self.marks), None, self.serial)
        new, old, progressed = 0, 10**9, self.clock
        begun = self.clock
        while True:
            assert self.clock - begun < BOUND, "4, 5: a walk without an end"
            if self.clock in self.world.resize:
                number = self.world.resize[self.clock]
                waypoint = replace(waypoint, new=number if waypoint.new else 0, desired=number)
            try:
                decision = self._turn(waypoint, revision)
            except Killed:
                self.marks, self.tally, self.serial = copy.deepcopy(self.committed)
                self.vitals = {}
                # Progress that was not committed is seen, and counted, once more.
                new, old = (self.tally.new, self.tally.old or 0) if self.tally else (0, 10**9)
                progressed = self.clock + 1
                self._live()
                continue
            ready = sum(1 for i in self.fleet if i.generation == waypoint.generation and self.available(i))
            left = sum(1 for i in self.fleet if i.generation != waypoint.generation and i.state.counted)
            if ready > new or left < old:
                new, old, progressed = max(new, ready), min(old, left), self.clock
            if decision.reached or decision.failed or self.clock == until:
                return decision
            # 5: the deadline counts from the last progress, whatever happens meanwhile.
            assert self.clock - progressed <= self.rules.progress_deadline, "5: past the deadline"
            self._live()

    def _turn(self, waypoint: Waypoint, revision: str) -> Decision:
        fleet = self.look()
        room = self.budget.resolve(waypoint.desired)
        tally = self.tally or Tally(float(self.clock))
        decision = evaluate(fleet, waypoint, self.budget, self.rules, tally, float(self.clock))
        self.tally = decision.tally
        self.log.append((self.clock, decision))
        available = sum(map(self.available, fleet))
        self.peak = max(self.peak, self.counted())
        self.least = available if self.least is None else min(self.least, available)
        check(fleet, decision, waypoint, self.budget, self.rules, float(self.clock))
        if not decision.failed:
            clean = not self._differs(decision)
            self._act(decision, revision, waypoint, room.surge)
            if decision.reached and clean:
                self._check_reached(waypoint)
            elif decision.reached:  # the balancers still show something of the dead: it is not over yet
                decision = replace(decision, reached=False)
        return decision

    def _wanted(self, decision: Decision) -> tuple[Table, dict[str, dict[Endpoint, Target]]]:
        table = {f"lb{n}": b.observe() for n, b in enumerate(self.balancers)}
        return table, fleets.targets(self.reports, table, decision.admit, self.marks, decision.retire)

    def _differs(self, decision: Decision) -> bool:
        return fleets.differs(*self._wanted(decision))

    def _act(self, decision: Decision, revision: str, waypoint: Waypoint, surge: int) -> None:
        self.marks.update(dict.fromkeys(decision.drain, float(self.clock)))
        table, wanted = self._wanted(decision)
        numbers = [self.serial + 1 + number for number in range(decision.create)]
        self.serial += decision.create
        if not decision.idle or fleets.differs(table, wanted):
            self._step()
            self.committed = copy.deepcopy((self.marks, self.tally, self.serial))
        for number, balancer in enumerate(self.balancers):
            self._step()
            balancer.order(wanted[f"lb{number}"])
        for number in numbers:
            self._start(number, revision, waypoint, surge)
        for name in decision.retire:
            self._stop(name)
        for instance in self.fleet:
            if instance.state is State.STOPPED and instance.rotation is Rotation.ABSENT:
                self.nodes.pop(instance.id, None)
                self.marks.pop(instance.id, None)

    def _start(self, number: int, revision: str, waypoint: Waypoint, surge: int) -> None:
        self._step()
        serial = self.serial
        self.serial = number - 1
        node = self._node(revision, waypoint.generation, self.world.lives[self.made % len(self.world.lives)], self.clock)
        self.serial = serial
        self.made += 1
        assert self.counted() <= max(waypoint.desired + surge, waypoint.new + waypoint.old), (
            f"1: {node.labels.id} is one too many"
        )

    def _stop(self, name: str) -> None:
        self._step()
        node = self.nodes[name]
        for balancer in self.balancers:
            entry = balancer.entries.get(node.labels.endpoint)
            assert entry is None or entry.rotation is Rotation.OUT, f"3: {name} is stopped while in rotation"
        if node.told is None and self.reachable(node.labels.host):
            node.told = self.clock

    def _step(self) -> None:
        self.actions += 1
        if self.actions in self.world.kills:
            raise Killed

    def _check_reached(self, waypoint: Waypoint) -> None:
        alive = [node for node in self.nodes.values() if not node.gone]
        new = [node for node in alive if node.labels.generation == waypoint.generation]
        assert len(new) == waypoint.new, "6, 9: as many new ones as the waypoint asks for"
        assert all(self.answers(node) for node in new), "6: all of them ready"
        assert len(alive) - len(new) <= waypoint.old, "11: no orphan instance"
        for balancer in self.balancers:
            served = {entry.name for entry in balancer.entries.values()}
            assert served == {node.labels.id for node in alive}, "11: an entry for each instance, and no other"


def check(fleet: Sequence[Instance], decision: Decision, waypoint: Waypoint, budget: Budget, rules: Rules, now: float) -> None:
    """A decision against the invariants that can be seen in it, for any fleet whatsoever."""
    room = budget.resolve(waypoint.desired)
    by_id = {instance.id: instance for instance in fleet}
    counted = sum(1 for i in fleet if i.state not in (State.STOPPED, State.FAILED))
    assert decision.create == 0 or counted + decision.create <= max(waypoint.desired + room.surge, waypoint.new + waypoint.old), (
        "1"
    )
    # An unreachable one that was told to go goes as soon as its host is back.
    over = (State.STOPPED, State.FAILED, State.DRAINING)
    staying = [i for i in fleet if i.state not in over and (i.state is not State.UNREACHABLE or i.draining_since is None)]
    fresh = [i for i in staying if i.generation == waypoint.generation]
    assert decision.create == 0 or len(fresh) + decision.create <= waypoint.new, "1: more new ones than asked for"

    def serves(i: Instance) -> bool:
        return i.proven and i.rotation in (Rotation.IN, Rotation.PARTIAL)

    def available(i: Instance) -> bool:
        ripe = i.ready_since is not None and now - i.ready_since >= rules.min_ready
        return i.state is State.READY and i.rotation is Rotation.IN and i.proven and ripe

    floor = waypoint.desired - room.unavailable
    ready, serving = sum(map(available, staying)), sum(map(serves, staying))
    going = [by_id[name] for name in decision.drain]
    for instance in going:
        assert not available(instance) or ready > floor, f"2: {instance.id} is drained at {ready} available of {floor}"
        assert not serves(instance) or serving > floor, f"2: {instance.id} is drained at {serving} serving of {floor}"
        ready, serving = ready - available(instance), serving - serves(instance)
    sides = {i.generation == waypoint.generation for i in going if available(i)}
    for i in staying:
        useless = i.state is not State.READY and not serves(i)
        if useless and (i.generation == waypoint.generation) in sides:
            assert i in going, f"2: repair before replacing: {i.id} gives nothing and stays"
    for name in decision.admit:
        i = by_id[name]
        assert i.state is State.READY and i.proven and i.rotation is not Rotation.IN, "3"
    for name in decision.retire:
        i = by_id[name]
        assert i.state is State.DRAINING and i.rotation in (Rotation.OUT, Rotation.ABSENT), "3"
        assert i.draining_since is not None, "8"
        done = i.active == 0 and now - i.draining_since >= rules.settle
        assert done or now - i.draining_since >= rules.drain_timeout, "3: stopped with requests in flight"
    names = [*decision.admit, *decision.drain, *decision.retire]
    assert len(names) == len(set(names)), "8: one thing at a time for each instance"
    if decision.reached:
        new = [i for i in fleet if i.generation == waypoint.generation]
        assert sum(map(available, new)) == waypoint.new, "6"
    if decision.failed:
        assert decision.idle and not decision.reached and decision.reasons, "8: an end has a reason"


def some(count: int, generation: int = 1, state: State = State.READY, created: float = 0.0, **fields: t.Any) -> list[Instance]:
    """So many alike: ready ones in rotation for long, others nowhere. Ids go on from `created`."""
    ready: dict[str, t.Any] = {"ready_since": created, "rotation": Rotation.IN, "proven": True} if state is State.READY else {}
    return [
        Instance(
            f"{generation}-{state.value}-{created:g}-{number:03}",
            f"r{generation}",
            generation,
            state,
            created,
            **(ready | fields),
        )
        for number in range(count)
    ]


def all_new(generation: int, desired: int) -> Waypoint:
    """Where a rolling rollout goes, or one of scaling."""
    return rolling(generation, desired)
