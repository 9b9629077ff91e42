# SPDX-License-Identifier: GPL-3.0-or-later
"""Deployed in place in a simulated world: which hosts serve on, go back or stay out. With Ansible's
own ways to lose hosts, behind a real load balancer: tests/e2e/test_in_place.py.
"""

from __future__ import annotations

import math
import typing as t
from collections.abc import Iterator

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    RolloutError,
    RolloutFailed,
)
from ansible_collections.progressive.rollout.tests.simulations.world import in_place
from ansible_collections.progressive.rollout.tests.simulations.world.in_place import InPlaceRun
from ansible_collections.progressive.rollout.tests.simulations.world.runs import lease
from ansible_collections.progressive.rollout.tests.simulations.world.world import (
    HOSTS,
    Host,
    Life,
    World,
)
from ansible_collections.progressive.rollout.tests.support.simulated_shop import (
    InPlaceShop,
    in_place_shop,
)

EVERYWHERE = set(HOSTS)


@pytest.fixture
def shop() -> Iterator[InPlaceShop]:
    """Each of three hosts has revision 1; two of them are needed."""
    with in_place_shop() as made:
        made.to("1")
        made.world.floor = 2
        settled(made, "1")
        yield made


def settled(shop: InPlaceShop, revision: str) -> None:
    assert shop.revisions == dict.fromkeys(HOSTS, revision) and shop.serving == EVERYWHERE
    assert shop.world.phase() == "finished" and not shop.world.recorded("draining")
    assert lease(shop.world) is None


def sick_on(host: str) -> t.Callable[[str, int], Life]:
    """Revision 2 does not become ready where it is deployed as the one of this host is."""
    number = HOSTS.index(host) + 1
    return lambda revision, count: (
        Life(start=math.inf) if (revision, count) == ("2", number) else Life()
    )


def test_an_unreachable_host_serves_on_and_a_sick_one_stays_out(
    shop: InPlaceShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the next run, which deploys these two and no other."""
    unreachable = {"unreachable": True, "msg": "no route to host"}
    monkeypatch.setattr(InPlaceRun, "_reached", lambda _run: {"web2": unreachable})
    shop.lives = sick_on("web2")  # the second that is deployed
    before = len(shop.deployed())
    with pytest.raises(RolloutFailed, match="1 of 3 instances have it") as failed:
        shop.to("2")
    assert "web2: unreachable" in str(failed.value)
    assert "web3: not healthy" in str(failed.value)
    assert shop.world.phase() == "held" and shop.deployed()[before:] == ["2 on web1", "2 on web3"]
    assert shop.revisions["web2"] == "1"
    assert shop.serving == {"web1", "web2"}
    monkeypatch.undo()
    shop.lives = lambda _revision, _number: Life()
    shop.to("2")
    assert sorted(shop.deployed()[before + 2 :]) == ["2 on web2", "2 on web3"]
    settled(shop, "2")


def test_too_many_unreachable_hosts_are_refused(shop: InPlaceShop) -> None:
    for host in ("web1", "web2"):
        shop.world.hosts[host].away = math.inf
    before = shop.deployed()
    with pytest.raises(RolloutFailed, match=r"unreachable, and .*nothing was touched") as refused:
        shop.to("2", failure_limit=2)
    assert refused.value.id == "PR-614" and shop.deployed() == before
    shop.world.hosts["web1"].away = shop.world.hosts["web2"].away = 0.0
    shop.to("2")
    settled(shop, "2")


def test_too_many_failures_take_the_others_back(shop: InPlaceShop) -> None:
    before = len(shop.deployed())
    shop.lives = lambda revision, _number: Life(start=math.inf) if revision == "2" else Life()
    with pytest.raises(RolloutFailed, match=r"now rolled back to 1\. Why: web1: not healthy"):
        shop.to("2", failure_limit=1)
    assert shop.deployed()[before:] == ["2 on web1", "1 on web1"]
    settled(shop, "1")


def test_tasks_that_fail_take_the_others_back(
    shop: InPlaceShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deploy(world: World, host: Host, revision: str, looked: float) -> str:
        failed = (host.name, revision) == ("web2", "2")
        return "the disk is full" if failed else works(world, host, revision, looked)

    works = in_place.deploy
    monkeypatch.setattr(in_place, "deploy", deploy)
    before = len(shop.deployed())
    with pytest.raises(RolloutFailed, match=r"now rolled back to 1\. Why: web2: the disk is full"):
        shop.to("2", failure_limit=1)
    assert shop.deployed()[before:] == ["2 on web1", "1 on web2", "1 on web1"]
    settled(shop, "1")


def test_a_canary_waits_for_its_approval(shop: InPlaceShop) -> None:
    canary = {"strategy": "canary", "steps": [{"set_replicas": 1}, {"pause": {}}], "wait": 0}
    before = len(shop.deployed())
    assert shop.to("2", **canary)["parked"]
    assert shop.deployed()[before:] == ["2 on web1"] and shop.serving == EVERYWHERE
    shop.send("promote", revision="2", **canary)
    assert shop.deployed()[before + 1 :] == [], "tasks are run by the playbook alone"
    shop.to("2", **canary)
    assert shop.deployed()[before + 1 :] == ["2 on web2", "2 on web3"]
    settled(shop, "2")


def test_a_load_balancer_that_is_gone_leaves_a_line_of_what_was_decided(
    shop: InPlaceShop,
) -> None:
    shop.lives = sick_on("web2")
    job = shop.to_beside("2", failure_limit=1)
    shop.wait_until(lambda: shop.revisions.get("web2") == "2")
    shop.world.balancers["lb1"].away = math.inf
    job.join()
    assert isinstance(job.result, RolloutError)
    message = str(job.result)
    assert "2 of 3 instances have 2; rerun to finish the rollback" in message
    assert "shop 2: rolling back to 1" in message and "lb1 does not answer" in message
    job.process.kill()  # the playbook ends
    shop.world.balancers["lb1"].away = 0.0
    with pytest.raises(RolloutFailed, match="rolled back to 1"):
        shop.to("2", failure_limit=1)
    settled(shop, "1")
