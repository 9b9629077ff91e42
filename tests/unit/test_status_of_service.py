# SPDX-License-Identifier: GPL-3.0-or-later
"""What `status` says of a whole service: shares, commands that wait, hosts that are not known."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.progressive.rollout.plugins.action import control, info
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    PlatformError,
    TrafficError,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    PlatformDriver,
)
from ansible_collections.progressive.rollout.tests.support.memory import (
    Platform,
    Service,
    World,
)

pytestmark = pytest.mark.usefixtures("virtual_time")

UNKNOWN = "cannot know what runs on web2: no route to host"
CANARY = {
    "revision": "2",
    "strategy": "canary",
    "steps": [{"set_weight": 25}, {"pause": {}}],
}


class TwoHosts(Platform):
    """`web` and `web2`, which does not answer."""

    def hosts(self) -> list[str]:
        return ["web", "web2"]

    def sync(self, *work: t.Any, **more: t.Any) -> t.Any:
        reports = super().sync(*work, **more)
        if self.world.calls[-1] == "sync after" and self.world.preview:
            error = PlatformError(UNKNOWN, "PR-216")
            error.seen, error.hosts = reports, ("web2",)
            raise error
        return reports


class Street(World):
    def platform(self) -> PlatformDriver:
        return TwoHosts(self)


@pytest.fixture
def shop() -> Service:
    service = Service(Street(fewest=0, most=9), replicas=3)
    service.play(revision="1")
    return service


def lines(shop: Service, lost: bool = False) -> list[str]:
    if lost:
        shop.world.preview = t.cast(t.Any, {"web2": "lost"})
    return list(shop.step(info)["lines"])


def test_status_shows_the_share_of_each_revision(shop: Service) -> None:
    assert "requests: 100 % to 1" in lines(shop)
    shop.play(**CANARY)
    assert "requests: 75 % to 1, 25 % to 2" in lines(shop)


def test_status_without_an_answer_of_balancers_has_no_share(shop: Service) -> None:
    shop.world.fails = lambda call: TrafficError("lb1: gone") if call == "observe" else None
    shown = lines(shop)
    assert shown[0] == "unknown at present: lb1: gone"
    assert not any(line.startswith("requests:") for line in shown)


def test_status_names_an_unknown_host_in_its_first_line(shop: Service) -> None:
    first, second, *rest = lines(shop, lost=True)
    assert first == f"unknown at present: {UNKNOWN}"
    assert "shop 1 promoted" in second
    assert not any("exclude" in line for line in rest), "it is refused between rollouts"


def test_status_names_exclude_where_it_helps(shop: Service) -> None:
    shop.play(**CANARY)
    first, second, *_rest = lines(shop, lost=True)
    assert "web2" in first
    assert second.startswith("to go on without web2: ansible-playbook progressive.rollout.control")
    assert " -e rollout_command=exclude -e rollout_host=web2" in second


def test_status_names_no_exclude_that_is_refused(shop: Service) -> None:
    shop.play(**CANARY)
    shop.world.capacity = 1
    assert not any("exclude" in line for line in lines(shop, lost=True))


def test_status_shows_commands_that_wait_to_be_obeyed(shop: Service) -> None:
    shop.play(**CANARY)
    assert not any("pending" in line for line in lines(shop))
    shop.step(control, {"command": "pause", "why": "lunch"})
    (line,) = [line for line in lines(shop) if line.startswith("pending: ")]
    assert line.startswith("pending: pause sent by ") and ": lunch; the next run" in line
    shop.play(**CANARY)
    assert not any("pending" in line for line in lines(shop))
