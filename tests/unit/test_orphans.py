# SPDX-License-Identifier: GPL-3.0-or-later
"""What is left on hosts that do not answer in time: at a rollout's end, instances of a host that
answers again are stopped, those of one that does not are named, and a host at work is waited for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from dataclasses import field

import pytest
from ansible_collections.progressive.rollout.plugins.action import begin, finish, promote, rollback
from ansible_collections.progressive.rollout.plugins.action import replace as replaces
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.loop import timing
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Process
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    Labels,
    Report,
)
from ansible_collections.progressive.rollout.tests.support.memory import Platform, Service, World

pytestmark = pytest.mark.usefixtures("virtual_time")


@dataclasses.dataclass
class Cut(World):
    """A world where the hosts of some instances do not answer."""

    cut: set[str] = field(default_factory=set)  # ids of these instances
    # how often the fleet is looked at, once all other instances are of one revision, before these
    # hosts answer again; None: they never do
    looks: int | None = None
    removals: int = 0  # how often the fleet is looked at until a host has removed what ended

    def platform(self) -> Platform:
        return Behind(self)


class Behind(Platform):
    """What is told to an instance whose host does not answer is lost, and removals take a while."""

    world: Cut
    ended: frozenset[str] = frozenset()  # what is being removed

    @property
    def at_work(self) -> Collection[str]:
        return {"web"} if self.ended & self.world.instances.keys() else ()

    def sync(
        self, start: Sequence[Labels] = (), stop: Sequence[str] = (), forget: Sequence[str] = ()
    ) -> list[Report]:
        world = self.world
        self.ended |= set(forget)
        world.removals -= bool(self.ended)
        removed = [] if world.removals >= 0 else sorted(self.ended & world.instances.keys())
        reports = super().sync(start, [name for name in stop if name not in world.cut], removed)
        others = {r.labels.revision for r in world.alive() if r.labels.id not in world.cut}
        if world.looks is not None and len(others) == 1:
            world.looks -= 1
            if world.looks < 0:
                world.cut = set()
        return [
            dataclasses.replace(report, process=Process.UNREACHABLE)
            if report.labels.id in world.cut
            else report
            for report in reports
        ]


@pytest.fixture
def world() -> Cut:
    return Cut(most=5, fewest=0)


@pytest.fixture
def shop(world: Cut) -> Service:
    """Three instances of revision 1."""
    service = Service(world, replicas=3)
    service.play(revision="1")
    return service


def deploy(shop: Service, world: Cut) -> str:
    """Replace revision 1 while the host of an instance does not answer; return its id."""
    shop.step(begin, revision="2")
    name = next(iter(world.instances))
    world.cut = {name}
    shop.step(replaces, revision="2")
    assert shop.running == {"1": 1, "2": 3}
    return name


def test_what_is_left_on_a_host_that_answers_again_is_stopped(shop: Service, world: Cut) -> None:
    """The host is slower than what is left of the rollout."""
    deploy(shop, world)
    world.looks = 12
    shop.said.clear()
    shop.play(revision="2")
    assert shop.running == {"2": 3} and len(world.instances) == 3
    assert not shop.journal.draining
    assert not any("PR-610" in line for line in shop.said)


def test_what_is_left_after_a_rollback_is_stopped(shop: Service, world: Cut) -> None:
    shop.play(revision="2", gates={"confirm_promotion": [{"driver": "approval"}]})
    world.cut, world.looks = {next(iter(world.instances))}, 12
    shop.step(rollback)
    assert shop.running == {"1": 3} and len(world.instances) == 3


@pytest.mark.slow
def test_an_instance_that_takes_long_to_end_is_waited_for(
    shop: Service, world: Cut, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as it takes, once its host answers."""
    monkeypatch.setattr(timing, "LAST_LOOK", 0.0)
    deploy(shop, world)
    shop.step(promote, revision="2")
    world.cut, world.asks = set(), 9
    shop.step(finish, revision="2")
    assert shop.running == {"2": 3}


def test_a_host_that_does_not_answer_again_is_named(shop: Service, world: Cut) -> None:
    name = deploy(shop, world)
    shop.said.clear()
    shop.play(revision="2")
    assert shop.journal.rollout and shop.journal.rollout.outcome == "promoted"
    assert shop.running == {"1": 1, "2": 3} and name in shop.journal.draining
    assert [line for line in shop.said if "PR-610" in line and name in line]


def test_a_host_that_removes_slowly_is_waited_for(shop: Service, world: Cut) -> None:
    """As one that removes containers on a slow disk, and answers after the step went on."""
    world.removals = 5
    shop.said.clear()
    shop.play(revision="2")
    assert not any("removing" in line for line in shop.said)
    assert len(world.instances) == 3 and shop.running == {"2": 3}


def test_a_host_that_never_removes_what_ended_is_named(shop: Service, world: Cut) -> None:
    world.removals = 1_000_000
    shop.said.clear()
    shop.play(revision="2")
    assert shop.journal.rollout and shop.journal.rollout.outcome == "promoted"
    assert [line for line in shop.said if "PR-621" in line and "shop-3" in line], shop.said
    waits = [line for line in shop.said if line.startswith("shop removing dead instances (for ")]
    assert len(waits) == 1 and "at most 60 s): shop-" in waits[0], "silence looks like a hang"


class Killed(list[str]):
    """Lines of a run that is killed while it waits for a host at the rollout's end."""

    def append(self, line: str) -> None:
        if "removing dead instances" in line:
            raise SystemExit


def test_what_a_killed_run_waited_for_is_removed_by_the_next(shop: Service, world: Cut) -> None:
    world.removals, shop.said = 1_000_000, Killed()
    with pytest.raises(SystemExit):
        shop.play(revision="2")
    assert shop.journal.open and len(world.instances) > 3
    world.removals, shop.said = 0, []
    shop.play(revision="2")
    assert shop.journal.rollout and shop.journal.rollout.outcome == "promoted"
    assert len(world.instances) == 3 and shop.running == {"2": 3}
