# SPDX-License-Identifier: GPL-3.0-or-later
"""Other services at the same load balancer and on the same hosts."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest
from ansible_collections.progressive.rollout.plugins.action import plan
from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import _service
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import InputError
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Rotation
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    Endpoint,
    Labels,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.traffic import Server
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms._placement import place
from ansible_collections.progressive.rollout.tests.support.memory import Platform, Service, World

pytestmark = pytest.mark.usefixtures("virtual_time")

THEIRS = Endpoint("127.0.0.1", 8100)


def server(service: str) -> Server:
    return Server(Rotation.IN, True, 0, ours=False, name=f"{service}-1", service=service)


def test_a_pool_with_servers_of_another_service_is_refused_before_anything_is_touched() -> None:
    world = World(fewest=0)
    shop = Service(world, replicas=2)
    shop.play(revision="1")
    servers = dict(world.servers)
    world.servers[THEIRS] = server("shop2")
    for begin in (
        lambda: shop.play(revision="2"),
        lambda: shop.step(plan, revision="2"),
    ):
        with pytest.raises(InputError, match=rf"service shop2 \(shop2-1 {THEIRS}\)") as refused:
            begin()
        assert refused.value.id == "PR-314"
        assert world.servers == {**servers, THEIRS: server("shop2")}
        assert shop.running == {"1": 2} and shop.journal.open is None
    world.servers[THEIRS] = server("")  # somebody's own server
    shop.play(revision="2")
    assert shop.running == {"2": 2} and not world.wrong


def test_a_name_that_looks_like_another_service_is_ours_where_our_instance_is() -> None:
    """As older versions named the servers of pods."""
    world = World(fewest=0)
    shop = Service(world, replicas=2)
    shop.play(revision="1")
    world.servers = dict.fromkeys(world.servers, server("shop-7d9f8b"))
    shop.play(revision="2")
    assert shop.running == {"2": 2} and not world.wrong


def test_ports_of_neighbours_are_looked_up_without_reading_the_service_s_own_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand of them, of hosts that are one machine, were read at each start."""
    for host, service in (("web1", "shop"), ("web2", "shop"), ("web1", "blog")):
        folder = tmp_path / host / service / "instances"
        folder.mkdir(parents=True)
        (folder / f"{service}-1.json").write_text(json.dumps({"service": service, "port": 8100}))
        (folder / f".{service}-2.json.tmp").write_text('{"service"')
    (tmp_path / "web1" / "blog" / "instances" / "blog-3.json").write_text("damaged")
    (tmp_path / "owner").touch()
    read: list[str] = []
    monkeypatch.setattr(
        _service, "open", lambda name: (read.append(name), open(name))[1], raising=False
    )
    assert [record["port"] for record in _service.neighbours(str(tmp_path), "shop")] == [8100]
    assert sorted(Path(name).name for name in read) == ["blog-1.json", "blog-3.json"]
    assert not list(_service.neighbours(str(tmp_path / "nowhere"), "shop"))


def test_a_port_that_was_passed_over_is_no_failure() -> None:
    class Occupied(Platform):
        def sync(self, start: t.Sequence[Labels] = (), *work: t.Any, **more: t.Any) -> t.Any:
            taken = [labels.endpoint.port for labels in start if labels.endpoint.port < 3]
            occupied.update(taken)
            started = [labels for labels in start if labels.endpoint.port not in taken]
            return super().sync(started, *work, **more)

        def place(self, count: int, taken: t.Any, *more: t.Any, **options: t.Any) -> t.Any:
            passed = [
                Labels("", "", "", 0, "web", Endpoint("127.0.0.1", port), 0) for port in occupied
            ]
            return super().place(count, [*taken, *passed], *more, **options)

    class Street(World):
        def platform(self) -> Platform:
            return Occupied(self)

    occupied: set[int] = set()
    world = Street(fewest=0)
    shop = Service(world, replicas=2, failure_limit=1)
    result = shop.play(revision="1")
    assert shop.running == {"1": 2} and occupied == {1, 2}
    states = [event.get("state") for event in shop.timeline(result["rollout"]["id"])]
    assert "failed" not in states


def test_names_that_others_have_are_passed_over() -> None:
    class Named(Platform):
        """Starts none by the name of a stranger."""

        def sync(self, start: t.Sequence[Labels] = (), *work: t.Any, **more: t.Any) -> t.Any:
            free = [labels for labels in start if labels.id not in ("shop-1", "shop-2")]
            return super().sync(free, *work, **more)

    class Street(World):
        def platform(self) -> Platform:
            return Named(self)

    shop = Service(Street(fewest=0), replicas=2, failure_limit=1)
    result = shop.play(revision="1")
    assert result["rollout"]["outcome"] == "promoted"
    states = [event.get("state") for event in shop.timeline(result["rollout"]["id"])]
    assert shop.running == {"1": 2} and "failed" not in states


def test_occupied_ports_are_no_places() -> None:
    addresses = {"web1": "10.0.0.1", "web2": "10.0.0.2"}
    occupied = {"10.0.0.1": {8100, 8101, 9000}}
    given = list(addresses), addresses, range(8100, 8103), 4, (), 1
    places = place(*given, occupied=occupied, slots=(0, 2))
    assert sorted(slot for _host, _endpoint, slot in places) == [1, 3, 4, 5]
    assert {endpoint.port for host, endpoint, _slot in places if host == "web1"} == {8102}
    assert len({endpoint for _host, endpoint, _slot in places}) == 4
