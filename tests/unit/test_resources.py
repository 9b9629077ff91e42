# SPDX-License-Identifier: GPL-3.0-or-later
"""Instances that may use more memory or CPUs than their hosts have."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.progressive.rollout.plugins.action import begin, control, plan, scale
from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import container
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    InputError,
    PlatformError,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.rollout.resources import (
    demand,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import (
    DriverContext,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    InstanceSettings,
    Limits,
    Machine,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms import podman
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.agents import Answer
from ansible_collections.progressive.rollout.tests.support import memory

pytestmark = pytest.mark.usefixtures("virtual_time")

GIB = 2**30
KEPT = InstanceSettings("podman", {"memory": "1g"}, {})


class Platform(memory.Platform):
    """A host with 4 GiB and two CPUs."""

    limit = Limits(GIB, 0.5)
    available = 4 * GIB

    def check(self) -> None:
        self.machines = {"web": Machine(4 * GIB, self.available, 2)}

    def limits(self, _kept: InstanceSettings | None = None) -> Limits:
        return self.limit


class World(memory.World):
    def platform(self) -> memory.Platform:
        return Platform(self)


@pytest.fixture
def shop() -> memory.Service:
    return memory.Service(World(most=99, fewest=0))


@pytest.mark.parametrize(("step", "check_mode"), [(begin, False), (begin, True), (plan, False)])
def test_more_memory_than_a_host_has_is_refused_before_anything_is_touched(
    shop: memory.Service, step: t.Any, check_mode: bool
) -> None:
    message = (
        "^rollout_platform.memory: web has 4.0 GiB, but rollout_replicas 4 with a surge of 1 needs"
        " 5: 5 instances on a host, which may use 5.0 GiB; lower rollout_platform.memory or"
        " rollout_budget.max_surge, or add hosts$"
    )
    with pytest.raises(InputError, match=message):
        shop.step(step, check_mode=check_mode, revision="1", replicas=4)
    assert shop.running == {} and shop.journal.rollout is None


def test_scaling_asks_for_memory_too(shop: memory.Service) -> None:
    shop.play(revision="1", replicas=3)

    with pytest.raises(InputError) as caught:
        shop.step(scale, revision="1", replicas=5)

    assert caught.value.id == "PR-203" and shop.running == {"1": 3}


def test_the_command_scale_asks_for_memory_too(shop: memory.Service) -> None:
    shop.play(revision="1", replicas=3)
    canary = {
        "revision": "2",
        "strategy": "canary",
        "steps": [{"set_replicas": 1}, {"pause": {}}],
        "wait": 0,
    }
    assert shop.play(**canary, replicas=3)["parked"]
    shop.step(control, {"command": "scale"}, replicas=5)

    shop.play(**canary, replicas=3)

    assert [line for line in shop.said if "[PR-701]" in line and "has 4.0 GiB" in line]
    assert shop.journal.open and shop.journal.open.replicas == 3


def test_what_fits_is_not_spoken_of(shop: memory.Service) -> None:
    shop.play(revision="1", replicas=3)
    assert shop.running == {"1": 3}
    assert not [line for line in shop.said if "may use" in line]


def test_less_memory_available_and_fewer_cpus_are_only_told(
    shop: memory.Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Platform, "available", 2 * GIB)
    monkeypatch.setattr(Platform, "limit", Limits(GIB, 0.75))
    shop.play(revision="1", replicas=3)
    assert [line for line in shop.said if "may use" in line] == [
        (
            "shop: 4 instances on a host may use 4.0 GiB of memory, and there is only 2.0 GiB on"
            " web for them"
        ),
        "shop: 4 instances on a host may use 3 CPUs, and there are only 2 on web",
    ]
    assert shop.running == {"1": 3}
    shop.said.clear()
    # what runs there may already use three of the four it takes
    shop.play(revision="2", replicas=3)
    assert [line for line in shop.said if "of memory" in line] == []
    shop.said.clear()
    shop.play(revision="2", replicas=3)
    assert [line for line in shop.said if "may use" in line] == [], "there is nothing to do"


def podmans(answers: dict[str, t.Any], **options: t.Any) -> podman.Driver:
    """The driver for hosts that answer so to its check."""

    class Transport:
        def hosts(self, _pattern: str) -> list[str]:
            return list(answers)

        def address(self, host: str) -> str:
            return host

        def left_out(self, _hosts: list[str]) -> list[str]:
            return []

        def ask(
            self, _agent: str, requests: dict[str, t.Any], _timeout: float
        ) -> dict[str, Answer]:
            return {host: Answer(answers[host]) for host in requests}

    given = {
        "hosts": "all",
        "ports": "8100",
        "image": "shop:{revision}",
        "container_port": 80,
        **options,
    }
    return podman.Driver(
        podman.OPTIONS.parse(given, "rollout_platform."),
        DriverContext("shop", t.cast(t.Any, Transport())),
    )


def test_what_the_hosts_answer_and_what_the_settings_say() -> None:
    machine = {"memory": 4 * GIB, "available": GIB, "cpus": 2}
    driver = podmans(
        {"web1": {"problems": {}, "machine": machine}, "web2": {"problems": {}}},
        memory="512m",
        cpus=1.5,
    )
    driver.check()
    assert driver.machines == {"web1": Machine(4 * GIB, GIB, 2)}
    assert driver.limits() == Limits(GIB // 2, 1.5)
    assert driver.limits(KEPT) == Limits(GIB)
    sizes = {"1000": 1000, 1000: 1000, "7b": 7, "3K": 3072, "2G": 2 * GIB, None: 0}
    assert {given: podmans({"web1": {}}, memory=given).limits().memory for given in sizes} == sizes


def test_a_host_that_answers_nonsense_counts_as_one_that_does_not_answer() -> None:
    with pytest.raises(
        PlatformError,
        match=r"web1: its answer is not that of an agent \(answer.machine.memory is text",
    ):
        podmans(
            {"web1": {"problems": {}, "machine": {"memory": "much", "available": 0, "cpus": 1}}}
        ).check()


@pytest.mark.parametrize(
    ("given", "replicas", "peak", "needed"),
    [
        ("1g", 6, 8, 4),  # four on each of two hosts
        # at the end all are new, and of the old ones only the surge is left
        ("3g", 6, 8, 3 * 3 + 1),
        ("512m", 6, 8, 4 * 0.5),  # old ones that may use more are no reason to keep it so
        ("3g", 5, 5, 9),  # a host may have the odd one
        (None, 6, 8, 0),  # without a limit nothing is known
    ],
)
def test_what_instances_on_a_host_may_use(
    given: str | None, replicas: int, peak: int, needed: float
) -> None:
    answer = {"problems": {}, "machine": {"memory": 4 * GIB, "available": GIB, "cpus": 2}}
    driver = podmans({"web1": answer, "web2": answer}, memory=given)
    driver.check()
    assert demand(driver, KEPT, replicas, peak).limits.memory == needed * GIB


def test_a_host_tells_what_it_has() -> None:
    machine = container._machine()["machine"]
    assert 0 < machine["available"] < machine["memory"]
    assert machine["cpus"] > 0
