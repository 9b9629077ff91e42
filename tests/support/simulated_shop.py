# SPDX-License-Identifier: GPL-3.0-or-later
"""The service `shop` in a simulated world: playbooks run on it one at a time or beside each other,
by a virtual clock, and every promise is checked at each change.
"""

from __future__ import annotations

import math
import typing as t
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from random import Random

from ansible_collections.progressive.rollout.plugins.action import begin
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Rotation
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    Endpoint,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.record import Rollout
from ansible_collections.progressive.rollout.tests.simulations.world.in_place import (
    PLATFORM,
    InPlaceRun,
    labels,
)
from ansible_collections.progressive.rollout.tests.simulations.world.machine import Job, Machine
from ansible_collections.progressive.rollout.tests.simulations.world.runs import (
    DRIVERS,
    Run,
    inside,
    journal,
)
from ansible_collections.progressive.rollout.tests.simulations.world.store import MemoryStore
from ansible_collections.progressive.rollout.tests.simulations.world.world import (
    ADDRESSES,
    HOSTS,
    IN_PLACE,
    Balancer,
    Life,
    World,
)

GIVEN: dict[str, t.Any] = {
    **DRIVERS,
    "replicas": 3,
    "budget": {"max_surge": 1, "max_unavailable": 0},
    "failure_limit": 1,
    "progress_deadline": 20,
}
CANARY: dict[str, t.Any] = {
    "strategy": "canary",
    "steps": [{"set_replicas": 1}, {"pause": {}}, {"set_replicas": 2}],
    "wait": 0,
}


def life(revision: str, _number: int) -> Life:
    """Return how instances of a revision behave."""
    lives = {"broken": Life(crash=0.0), "hangs": Life(start=math.inf)}
    return lives.get(revision, Life())


class SimulatedShop:
    """A service of which some revisions are broken, and the playbooks that are run."""

    run_class = Run

    def __init__(self, **given: t.Any) -> None:
        """`given`: variables in place of those of GIVEN."""
        self.machine = Machine(Random("machine"))
        self.world = World(self.machine, [], self._life, 0, 99, Random("world"))
        self.lives: Callable[[str, int], Life] = life
        self.given: Mapping[str, t.Any] = {**GIVEN, **given}

    def _life(self, revision: str, number: int) -> Life:
        return self.lives(revision, number)

    # -- playbooks ---------------------------------------------------------------------------------

    def beside(self, work: Callable[[Run], t.Any]) -> Job:
        """Begin a playbook, which works while others do."""
        process = self.machine.process("beside")
        run = self.run_class(self.world, process, "controller")
        return self.machine.start(process, lambda: work(run), "main")

    def play(self, work: Callable[[Run], t.Any]) -> t.Any:
        """Run a playbook to its end, and return its result."""
        process = self.machine.process("play")
        run = self.run_class(self.world, process, "controller")
        job = self.machine.start(process, lambda: work(run), "main")
        job.join()
        process.kill()
        return result_of(job)

    def to(self, revision: str, **more: t.Any) -> t.Any:
        """`rollout.yml`"""
        return self.play(lambda run: run.rollout({**self.given, "revision": revision, **more}))

    def to_beside(self, revision: str, **more: t.Any) -> Job:
        """`rollout.yml`, which works while other playbooks do."""
        return self.beside(lambda run: run.rollout({**self.given, "revision": revision, **more}))

    def restart(self) -> t.Any:
        """`restart.yml`"""
        return self.play(lambda run: run.rollout(self.given, restart=True))

    def rollback(self, **more: t.Any) -> t.Any:
        """`rollback.yml`"""
        return self.play(lambda run: run.rollback({**self.given, **more}))

    def scale(self, revision: str, replicas: int) -> t.Any:
        """The step `scale`, alone."""
        given = {**self.given, "revision": revision, "replicas": replicas}
        return self.play(lambda run: run.scale(given))

    def begin(self, revision: str) -> t.Any:
        """The step `begin`, alone."""
        return self.play(lambda run: run.step(begin, {**self.given, "revision": revision}))

    def send(
        self, command: str, host: str | None = None, count: int | None = None, **given: t.Any
    ) -> t.Any:
        """`control.yml`, which continues the rollout where no run obeys."""
        variables = {**self.given, **given}
        return self.play(lambda run: run.control(command, variables, host=host, count=count))

    def wait_until(self, reached: Callable[[], bool], seconds: float = 60.0) -> None:
        """Let time pass until a state is reached."""
        end = self.machine.time + seconds
        while not reached():
            assert self.machine.time < end, "\n".join(self.world.lines[-40:])
            self.machine.sleep(0.1)

    # -- what there is -----------------------------------------------------------------------------

    def on(self, host: str) -> int:
        """How many instances live on a host."""
        return sum(instance.labels.host == host for instance in self.world.alive())

    def mend(self) -> None:
        """Let every instance become ready, those that run and those that are started."""
        self.lives = lambda _revision, _number: Life()
        for instance in self.world.alive():
            instance.life = Life()

    @property
    def names(self) -> set[str]:
        """The instances that live."""
        return {instance.labels.id for instance in self.world.alive()}

    @property
    def running(self) -> Counter[str]:
        """How many instances of each revision live."""
        return Counter(self.world.summary())

    @property
    def rollout(self) -> Rollout:
        """The last rollout, as the journal has it."""
        rollout = journal(self.world).rollout
        assert rollout
        return rollout

    def timeline(self, *kinds: str) -> list[dict[str, t.Any]]:
        """Return the events of the last rollout, of these kinds alone if there are any."""
        events = MemoryStore("shop", self.world.journals["shop"]).timeline(self.rollout.id)
        return [event for event in events if not kinds or event["kind"] in kinds]


class InPlaceShop(SimulatedShop):
    """The service on three hosts, on each of which the user's tasks deploy it."""

    run_class = InPlaceRun

    def __init__(self, **given: t.Any) -> None:
        budget = {"max_unavailable": 1}
        health = {"http": "/healthz", "interval": "500ms", "deadline": "10s"}
        in_place = {"platform": PLATFORM, "budget": budget, "health": health}
        super().__init__(**{**in_place, "failure_limit": 3, "replicas": len(HOSTS), **given})
        self.world.waits.in_place = True
        for host in HOSTS:
            self.world.begin(labels(host, "0"))

    @property
    def serving(self) -> set[str]:
        """The hosts that every load balancer sends requests to."""
        places = [
            {host for host in HOSTS if balancer_sends(balancer, host)}
            for balancer in self.world.balancers.values()
        ]
        return set.intersection(*places)

    @property
    def revisions(self) -> dict[str, str]:
        """What each host runs."""
        return {one.labels.host: one.labels.revision for one in self.world.alive()}

    def deployed(self) -> list[str]:
        """Each deployment so far, as `1 on web1`."""
        lines = (line.partition("  deploy ") for line in self.world.lines)
        return [what for _before, found, what in lines if found]


def balancer_sends(balancer: Balancer, host: str) -> bool:
    """Return whether a load balancer sends requests to the instance of a host in place."""
    entry = balancer.entries.get(Endpoint(ADDRESSES[host], IN_PLACE))
    return entry is not None and entry.rotation is Rotation.IN and not entry.parked


def result_of(job: Job) -> t.Any:
    """Return what a playbook came to, or raise the error that it failed with."""
    job.join()
    if isinstance(job.result, BaseException):
        raise job.result
    return job.result


@contextmanager
def simulated_shop(**given: t.Any) -> Iterator[SimulatedShop]:
    """Make a shop; at its end every promise was kept."""
    with kept(SimulatedShop(**given)) as shop:
        yield shop


@contextmanager
def in_place_shop(**given: t.Any) -> Iterator[InPlaceShop]:
    """Make a shop that is deployed in place, likewise."""
    with kept(InPlaceShop(**given)) as shop:
        yield shop


Shop = t.TypeVar("Shop", bound=SimulatedShop)


@contextmanager
def kept(shop: Shop) -> Iterator[Shop]:
    """Let the product run in the world of a shop; at its end every promise was kept."""
    with inside(shop.world, 1):
        yield shop
        shop.machine.end()
    assert shop.world.wrong == "", "\n".join(shop.world.lines)
