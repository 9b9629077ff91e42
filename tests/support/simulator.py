# SPDX-License-Identifier: GPL-3.0-or-later
"""A simulated fleet that `evaluate` leads to a waypoint, for examples of what it decides and when.

Platform, load balancers and checks are abstract; what the fleet looks like to the engine is made by
the real code. Whole rollouts, with all that can go wrong, are in the simulated world
(`tests/simulations/world`). Every action is checked at the moment it is done, by this file's own
idea of what is available, and after every iteration the load balancers are compared with what the
waypoint asks for. One tick of the clock is one second. Assertions begin with the number of an
invariant:

1. The total is at most desired + surge.
2. What is available is at least desired - unavailable, or as much as there was.
3. Nothing is stopped while in rotation, or put in rotation unless it is ready and health-checked.
4. Every walk has an end.
5. A walk ends once its deadline or a limit of failures is over.
6. A waypoint is reached only with what it asks for, and a switch is one update.
8. Each instance is in one state and one group of a decision, and every end has a reason.
11. Each instance has its entries at the load balancers, and there are no others.
14. Weights: capacity before traffic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.loop import (
    fleet as fleets,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.budget import Budget
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.evaluate import (
    Decision,
    evaluate,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import (
    Health,
    Instance,
    Process,
    Rotation,
    State,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.progress import (
    ProgressTracker,
    Rules,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import (
    Waypoint,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.weights import (
    WeightSplit,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.health.monitor import HealthStatus
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    Endpoint,
    Labels,
    Report,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.traffic import (
    Server,
    Table,
    Target,
)
from ansible_collections.progressive.rollout.tests.support.decisions import (
    carries,
    check,
    check_parts,
    lost,
)

HOSTS = 3
BOUND = 5000  # ticks no walk may take: one that does has no end


@dataclass(frozen=True)
class Life:
    """How an instance behaves. Seconds, counted from its creation where not said otherwise."""

    start: int = 2  # until it answers
    stop: int = 1  # from being told to stop until it is gone
    work: int = 1  # from leaving rotation until its last request is done
    crash: int | None = None  # when it ends by itself
    flap: int | None = None  # answers and does not, in turns of so many seconds
    never: bool = False  # never answers


@dataclass(frozen=True)
class World:
    """What happens to the fleet from outside; spans are (from, to) in seconds of the clock, `to`
    None: for ever.
    """

    lives: Sequence[Life] = (Life(),)  # of the instances the walk makes, over and over
    repairs: Sequence[Life] = (Life(),)  # likewise, of those it makes of the stable revision
    unreachable: Sequence[tuple[int, int, int | None]] = ()  # host, from, to
    resize: Mapping[int, int] = field(default_factory=dict)  # when: the desired number
    balancers: int = 1  # 0: there is none


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
    rotation: Rotation = Rotation.OUT
    left: int | None = None  # rotation, since
    weight: int = 100


class Balancer:
    """One load balancer: puts nothing in rotation that does not answer."""

    def __init__(self, simulator: Simulator) -> None:
        self.sim = simulator
        self.entries: dict[Endpoint, Entry] = {}

    def observe(self) -> dict[Endpoint, Server]:
        return {
            endpoint: Server(
                entry.rotation,
                self.lb_healthy(entry),
                self.active(entry),
                entry.weight,
                name=entry.name,
            )
            for endpoint, entry in self.entries.items()
        }

    def lb_healthy(self, entry: Entry) -> bool:
        node = self.sim.nodes.get(entry.name)
        return node is not None and self.sim.answers(node)

    def active(self, entry: Entry) -> int:
        node = self.sim.nodes.get(entry.name)
        if (
            node is None
            or node.gone
            or not (entry.left is not None or entry.rotation is Rotation.IN)
        ):
            return 0
        return int(entry.left is None or self.sim.clock < entry.left + node.life.work)

    def order(self, wanted: Mapping[Endpoint, Target]) -> None:
        for endpoint in {*wanted, *self.entries}:
            target, entry = wanted.get(endpoint), self.entries.get(endpoint)
            enters = (
                target
                and target.rotation is Rotation.IN
                and not (entry and entry.rotation is Rotation.IN)
            )
            assert not enters or target.name not in self.sim.marks, (
                f"3: {target.name} is put in rotation while it is going"
            )
            self._do(endpoint, target)

    def _do(self, endpoint: Endpoint, target: Target | None) -> None:
        if target is None:
            self.entries.pop(endpoint, None)
            return
        entry = self.entries.setdefault(endpoint, Entry(target.name))
        entry.weight = target.weight
        if (
            target.rotation is Rotation.IN
            and entry.rotation is Rotation.OUT
            and self.lb_healthy(entry)
        ):
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
        self.vitals: dict[str, HealthStatus] = {}
        # What the journal has.
        self.marks: dict[str, float] = {}
        self.progress: ProgressTracker | None = None
        self.serial = 0
        # What a run has in memory only.
        self.split: WeightSplit | None = None
        self.known: set[str] = set()  # instances that were there before the run
        self.out: dict[str, float] = {}  # draining ones, since when they were seen out of rotation
        self.seen_ready: set[str] = set()  # those that have been seen ready
        self.silent: dict[str, float] = {}  # since when their hosts have not answered
        # What was seen.
        self.made_as: dict[str, int] = {}  # the generation of each instance there ever was
        self.shown: set[int] = set()  # generations that were to have requests
        self.fleet: list[Instance] = []
        self.made = 0
        self.repaired = 0  # stable ones that were made beside the new ones
        self.peak = 0
        self.least: int | None = None
        self.log: list[tuple[int, Decision]] = []

    def populate(self, lives: Iterable[Life], generation: int = 1) -> None:
        """Instances that are there, and in rotation, from the start."""
        for number, life in enumerate(lives):
            node = self._node("old", generation, life, -1000 + number)
            if node.life.crash == 0:
                node.gone = Process.FAILED
            self.vitals[node.labels.id] = HealthStatus(Health.PASSING, float(node.created))
            for balancer in self.balancers:
                balancer.entries[node.labels.endpoint] = Entry(node.labels.id, Rotation.IN)
        self.known = set(self.nodes)
        self.shown.add(generation)

    def _node(self, revision: str, generation: int, life: Life, created: int) -> Node:
        self.serial += 1
        # On a host that answers, if there is one.
        name, hosts = f"i-{self.serial}", [(self.serial + more) % HOSTS for more in range(HOSTS)]
        host = next((host for host in hosts if self.reachable(f"h{host}")), hosts[0])
        labels = Labels(
            name,
            "shop",
            revision,
            generation,
            f"h{host}",
            Endpoint("127.0.0.1", self.serial),
            self.serial,
        )
        node = self.nodes[name] = Node(labels, life, created)
        self.made_as[name] = generation
        return node

    # -- how things really are ---------------------------------------------------------------------

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
        """Those on a host that does not answer count until no balancer sends requests there any
        more.
        """
        return sum(1 for node in self.nodes.values() if not node.gone and not self._lost(node))

    def _unseen(self, node: Node) -> bool:
        """Return whether its host does not answer, so that its state is unknown."""
        return not self.reachable(node.labels.host)

    def _lost(self, node: Node) -> bool:
        balancers = [balancer.observe().get(node.labels.endpoint) for balancer in self.balancers]
        out = bool(balancers) and not any(
            entry and entry.rotation is Rotation.IN for entry in balancers
        )
        return out and node.labels.id in self.marks and self._unseen(node)

    def _live(self) -> None:
        """One second passes."""
        self.clock += 1
        for node in self.nodes.values():
            # The old ones are a thousand seconds old: what happens to them is counted from the clock's
            # beginning.
            age = self.clock - max(0, node.created)
            if node.gone:
                continue
            if node.told is not None and self.clock >= node.told + node.life.stop:
                node.gone = Process.STOPPED
            elif node.life.crash is not None and age >= node.life.crash:
                node.gone = Process.STOPPED if node.told is not None else Process.FAILED

    # -- what is observed of it --------------------------------------------------------------------

    def look(self) -> list[Instance]:
        for node in self.nodes.values():
            self._check(node)
        table = (
            {f"lb{n}": b.observe() for n, b in enumerate(self.balancers)}
            if self.balancers
            else None
        )
        self.reports = [self._report(node) for node in self.nodes.values()]
        target = self.split.waypoint.generation if self.split else None
        known = {
            name
            for name in self.known
            if name in self.nodes and self.nodes[name].labels.generation != target
        }
        going = {name: self.out.get(name, float(self.clock)) for name in self.marks}
        self.silent = {
            report.labels.id: self.silent.get(report.labels.id, float(self.clock))
            for report in self.reports
            if report.process is Process.UNREACHABLE
        }
        self.fleet = fleets.assemble(
            self.reports,
            table,
            self.vitals,
            going,
            known,
            seen_ready=self.seen_ready,
            silent=self.silent,
        )
        self.seen_ready |= {i.id for i in self.fleet if i.state is State.READY}
        self.out = {i.id: going[i.id] for i in self.fleet if i.id in going and not i.in_rotation}
        return self.fleet

    def _report(self, node: Node) -> Report:
        if not self.reachable(node.labels.host):
            process = Process.UNREACHABLE
        elif node.gone:
            process = node.gone
        elif node.told is not None:
            process = Process.STOPPING
        else:
            process = (
                Process.STARTING
                if self.clock - node.created < node.life.start // 2
                else Process.RUNNING
            )
        return Report(node.labels, process, float(node.created))

    def _check(self, node: Node) -> None:
        name = node.labels.id
        before = self.vitals.get(name, HealthStatus(Health.PENDING, float(node.created)))
        if self.answers(node):
            health = Health.PASSING
        else:
            health = Health.PENDING if before.health is Health.PENDING else Health.FAILING
        self.vitals[name] = (
            before
            if health is before.health and name in self.vitals
            else HealthStatus(health, float(self.clock))
        )

    def ripe(self, instance: Instance) -> bool:
        """This file's own idea of one that may be given requests."""
        since = instance.ready_since
        ready = instance.state is State.READY and instance.lb_healthy
        return (
            ready
            and not instance.crashed
            and since is not None
            and self.clock - since >= self.rules.min_ready
        )

    def available(self, instance: Instance) -> bool:
        """This file's own idea of it."""
        return self.ripe(instance) and instance.rotation is Rotation.IN

    # -- the walk, as the reconcile loop does it ---------------------------------------------------

    def walk(
        self,
        waypoint: Waypoint,
        revision: str = "new",
        until: int | None = None,
        stays: bool = False,
    ) -> Decision:
        """To its end, or to a moment of the clock; `stays`: waits there for that, as for gates."""
        self.progress = None
        new, old, progressed = 0, 10**9, self.clock
        begun = self.clock
        while True:
            assert self.clock - begun < BOUND, "4: a walk without an end"
            if self.clock in self.world.resize:
                number = self.world.resize[self.clock]
                waypoint = replace(waypoint, new=number if waypoint.new else 0, desired=number)
            self.split = WeightSplit(waypoint)
            decision = self._turn(waypoint, revision)
            ready = sum(
                1 for i in self.fleet if i.generation == waypoint.generation and self.available(i)
            )
            left = self._left(waypoint)
            if ready > new or left < old:
                new, old, progressed = max(new, ready), min(old, left), self.clock
            if decision.failed or self.clock == until or (decision.reached and not stays):
                return decision
            if decision.reached:
                progressed = self.clock
                self.progress = replace(decision.progress, since=float(progressed))
            # 5: the deadline counts from the last progress, whatever happens meanwhile.
            assert self.clock - progressed <= self.rules.progress_deadline, "5: past the deadline"
            self._live()

    def _left(self, waypoint: Waypoint) -> int:
        """How many old ones there are."""
        without = lost(self.fleet)
        return sum(
            1
            for i in self.fleet
            if i.generation != waypoint.generation and i.state.counted and i not in without
        )

    def _turn(self, waypoint: Waypoint, revision: str) -> Decision:
        fleet = self.look()
        allowed = self.budget.resolve(waypoint.desired)
        progress = self.progress or ProgressTracker(float(self.clock))
        decision = evaluate(fleet, waypoint, self.budget, self.rules, progress, float(self.clock))
        self.progress = decision.progress
        self.log.append((self.clock, decision))
        # On a way back those that carry all requests are in service, however long they have been
        # ready.
        back, stable = waypoint.headroom is not None, (waypoint.generation, waypoint.baseline)
        available = sum(
            self.available(i) or (back and i.generation in stable and carries(i)) for i in fleet
        )
        self.peak = max(self.peak, self.counted())
        self.least = available if self.least is None else min(self.least, available)
        check(fleet, decision, waypoint, self.budget, self.rules, float(self.clock))
        if not decision.failed:
            clean = not self._differs(decision)
            self._act(decision, revision, waypoint, allowed.surge)
            if decision.reached and clean:
                self._check_reached(waypoint)
            # the balancers still show something of the dead: it is not over yet
            elif decision.reached:
                decision = replace(decision, reached=False)
        return decision

    def _wanted(self, decision: Decision) -> tuple[Table, dict[str, dict[Endpoint, Target]]]:
        table = {f"lb{n}": b.observe() for n, b in enumerate(self.balancers)}
        out = {*self.marks, *decision.standby}
        return table, fleets.targets(
            self.reports, table, decision.admit, out, decision.retire, split=self.split
        )

    def _differs(self, decision: Decision) -> bool:
        return fleets.differs(*self._wanted(decision))

    def _act(self, decision: Decision, revision: str, waypoint: Waypoint, surge: int) -> None:
        self.marks.update(dict.fromkeys(decision.drain, float(self.clock)))
        _table, wanted = self._wanted(decision)
        numbers = range(self.serial + 1, self.serial + 1 + decision.create + decision.create_old)
        self.serial += len(numbers)
        for number, balancer in enumerate(self.balancers):
            self._allow(waypoint)
            balancer.order(wanted[f"lb{number}"])
        for number in numbers:
            self._start(number, revision, waypoint, surge, number - numbers[0] >= decision.create)
        for name in decision.retire:
            self._stop(name)
        for instance in self.fleet:
            if instance.state is State.STOPPED and instance.rotation is Rotation.ABSENT:
                self.nodes.pop(instance.id, None)
                self.marks.pop(instance.id, None)
        self._check_traffic(waypoint)

    def _start(
        self, number: int, revision: str, waypoint: Waypoint, surge: int, stable: bool
    ) -> None:
        serial = self.serial
        self.serial = number - 1
        back = stable or revision == "old"
        lives, number = (
            (self.world.repairs, self.repaired) if back else (self.world.lives, self.made)
        )
        generation = waypoint.stable if stable else waypoint.generation
        node = self._node(
            "old" if back else revision, generation, lives[number % len(lives)], self.clock
        )
        self.repaired, self.made = self.repaired + stable, self.made + (not stable)
        self.serial = serial
        most = max(waypoint.desired + surge, waypoint.new + waypoint.old)
        assert self.counted() <= most, f"1: {node.labels.id} is one too many"

    def _stop(self, name: str) -> None:
        node = self.nodes[name]
        for balancer in self.balancers:
            entry = balancer.entries.get(node.labels.endpoint)
            assert entry is None or entry.rotation is Rotation.OUT, (
                f"3: {name} is stopped while in rotation"
            )
        if node.told is None and self.reachable(node.labels.host):
            node.told = self.clock

    def _check_reached(self, waypoint: Waypoint) -> None:
        without = {
            name
            for name, node in self.nodes.items()
            if self._lost(node) or (node.gone and self._unseen(node))
        }
        alive = [node for name, node in self.nodes.items() if not node.gone and name not in without]
        new = [node for node in alive if node.labels.generation == waypoint.generation]
        assert len(new) == waypoint.new, "6, 9: as many new ones as the waypoint asks for"
        assert all(self.answers(node) for node in new), "6: all of them ready"
        assert len(alive) - len(new) <= waypoint.old, "11: no orphan instance"
        for balancer in self.balancers:
            served = {entry.name for entry in balancer.entries.values()} - without
            assert served == {node.labels.id for node in alive}, (
                "11: an entry for each instance, and no other"
            )
            ins = {
                entry.name for entry in balancer.entries.values() if entry.rotation is Rotation.IN
            }
            fresh = {node.labels.id for node in new}
            dark = waypoint.generation in self.shown or not ins & fresh
            assert dark if waypoint.new_idle else fresh <= ins, (
                "6: new instances in rotation, or on standby"
            )
            assert not waypoint.switches or ins <= fresh, (
                "6: switched, and an old one is in rotation"
            )

    # -- what the balancers show -------------------------------------------------------------------

    def _allow(self, waypoint: Waypoint) -> None:
        """Note whether the new ones may have requests, as soon as one balancer is told: the run
        may die before the next is.
        """
        standing = sum(
            1 for i in self.fleet if i.generation == waypoint.generation and self.ripe(i)
        )
        need = waypoint.new if waypoint.switch_at is None else waypoint.switch_at
        if not waypoint.new_idle and (
            not waypoint.switches or standing >= max(1, need) or not need
        ):
            self.shown.add(waypoint.generation)

    def _check_traffic(self, waypoint: Waypoint) -> None:
        """After every iteration: only instances that may get requests get any, and the new ones no
        more than was asked for.
        """
        for balancer in self.balancers:
            ins = [entry for entry in balancer.entries.values() if entry.rotation is Rotation.IN]
            for entry in ins:
                assert self.made_as[entry.name] in self.shown, (
                    f"{entry.name} has requests and is to have none"
                )
            if self.split is None or not self.split.waypoint.weight:
                continue
            new = [entry.weight for entry in ins if self.split.is_new(self.made_as[entry.name])]
            old = [entry.weight for entry in ins if not self.split.is_new(self.made_as[entry.name])]
            if new and old:
                assert len(set(new)) == len(set(old)) == 1, "all of a side are alike"
                if self.split.waypoint.headroom is None:
                    check_parts(
                        self.split.waypoint,
                        len(new),
                        len(old),
                        Fraction(new[0], sum(new) + sum(old)),
                    )


class Seen(Simulator):
    """Keeps what there is at the end of each second: of the stable revision, and in service."""

    def __init__(self, world: World, budget: Budget, rules: Rules) -> None:
        super().__init__(world, budget, rules)
        self.stable_there: dict[int, int] = {}
        self.in_service: dict[int, int] = {}

    def _live(self) -> None:
        there = [i for i in self.look() if i.state is State.READY]
        self.stable_there[self.clock] = sum(1 for i in there if i.generation == 1)
        self.in_service[self.clock] = sum(1 for i in there if i.rotation is Rotation.IN)
        super()._live()
