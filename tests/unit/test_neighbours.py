# SPDX-License-Identifier: GPL-3.0-or-later
"""Other services at the same load balancer and on the same hosts."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest
from ansible_collections.progressive.rollout.plugins.action import info, plan
from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import _service
from ansible_collections.progressive.rollout.plugins.plugin_utils.analysis.counters import Counters
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    InputError,
    RolloutFailed,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Rotation
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    Endpoint,
    Labels,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.traffic import Server
from ansible_collections.progressive.rollout.plugins.plugin_utils.pages import render, report_model
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


def test_occupied_ports_are_no_places() -> None:
    addresses = {"web1": "10.0.0.1", "web2": "10.0.0.2"}
    occupied = {"10.0.0.1": {8100, 8101, 9000}}
    places = place(list(addresses), addresses, range(8100, 8103), 4, (), 1, occupied=occupied)
    assert {endpoint.port for host, endpoint, _slot in places if host == "web1"} == {8102}
    assert len({endpoint for _host, endpoint, _slot in places}) == 4


def prepared(service: str = "", **fields: t.Any) -> Server:
    return server("shop")._replace(name="slot1", service=service, prepared=True, **fields)


def test_prepared_servers_of_nobody_known_are_refused_by_begin() -> None:
    world = World(fewest=0)
    world.servers[THEIRS] = prepared()
    shop = Service(world, replicas=2)
    with pytest.raises(
        InputError, match=rf"1 prepared server in use \(slot1 {THEIRS}\)"
    ) as refused:
        shop.play(revision="1")
    assert refused.value.id == "PR-336"
    assert world.servers == {THEIRS: prepared()} and not world.instances
    world.servers[THEIRS] = prepared("shop2")
    with pytest.raises(InputError, match="1 server of service shop2") as refused:
        shop.play(revision="1")
    assert refused.value.id == "PR-314"
    world.servers[THEIRS] = prepared("shop", ours=True)
    shop.play(revision="1")
    assert shop.running == {"1": 2} and THEIRS not in world.servers


def test_servers_that_another_program_steers_are_refused_by_begin() -> None:
    world = World(fewest=0)
    shop = Service(world, replicas=2)
    shop.play(revision="1")
    servers = {e: s._replace(steered_by="agent-check") for e, s in world.servers.items()}
    world.servers = dict(servers)
    with pytest.raises(InputError, match="has agent-check") as refused:
        shop.play(revision="2")
    assert refused.value.id == "PR-337" and world.servers == servers
    world.servers = {e: s._replace(steered_by="") for e, s in servers.items()}
    world.servers[THEIRS] = by_hand("app1")._replace(steered_by="agent-check")
    shop.play(revision="2")
    assert shop.running == {"2": 2}, "what is no instance of ours may have one"


def by_hand(name: str, weight: int = 100) -> Server:
    return Server(Rotation.IN, True, 0, weight, ours=False, name=name)


def test_servers_by_hand_are_named_with_their_share_of_the_whole() -> None:
    world = World(fewest=0, most=9)
    hand = {Endpoint("127.0.0.1", 8100 + n): by_hand(f"app{n}") for n in range(4)}
    world.servers |= hand
    shop = Service(world, replicas=4)
    planned = shop.step(plan, revision="1")
    assert planned["unmanaged"]["servers"] == ["app0", "app1", "app2", "app3"]
    assert any("that no rollout manages: app0, app1" in line for line in planned["lines"])
    result = shop.play(revision="1")
    assert any("app3, 100 % of the requests" in line and "PR-338" in line for line in shop.said)
    assert any("4/4 ready" in line and "traffic 50 %" in line for line in shop.said)
    assert not any("traffic 100 %" in line for line in shop.said)
    assert result["rollout"]["fleet"]["1"]["traffic"] == 50.0
    known = shop.step(info)
    assert known["unmanaged"] == {
        "pool": "",
        "servers": [*(s.name for s in hand.values())],
        "share": 50.0,
    }
    assert any("app3, 50 % of the requests" in line for line in known["lines"])
    shares = [
        event for event in shop.timeline(result["rollout"]["id"]) if event["kind"] == "traffic"
    ]
    assert shares[-1]["shares"] == {"1": 50.0} and shares[-1]["unmanaged"]["share"] == 50.0
    assert all(world.servers[endpoint] == server for endpoint, server in hand.items())


@pytest.mark.parametrize("where", [THEIRS, Endpoint("127.0.0.1", 1)])
def test_a_failed_rollout_beside_servers_by_hand_says_that_they_serve(where: Endpoint) -> None:
    """At a place of their own, or where an instance was to be."""
    world = World(fewest=0, most=9, crashes=lambda _labels: True)
    world.servers[where] = by_hand("app1")
    shop = Service(world, replicas=2, failure_limit=1)
    with pytest.raises(RolloutFailed):
        shop.play(revision="1")
    block = "\n".join(shop.said)
    assert "that no rollout manages: app1" in block and "nothing\n" not in block
    assert world.servers == {where: by_hand("app1")}
    assert "100 % of the requests" in block


@pytest.mark.parametrize("ours", [True, False])
def test_what_serves_at_the_place_of_a_failed_start_stays(ours: bool) -> None:
    """As after remove.yml: the processes run on, and have the port."""
    world = World(fewest=0, most=9, crashes=lambda _labels: True)
    before = {
        Endpoint("127.0.0.1", port): by_hand(f"shop-{port}")._replace(ours=ours) for port in (1, 2)
    }
    world.servers |= before
    shop = Service(world, replicas=2, failure_limit=1)
    with pytest.raises(RolloutFailed):
        shop.play(revision="1")
    assert {e: s.rotation for e, s in world.servers.items()} == dict.fromkeys(before, Rotation.IN)
    assert not world.alive() and not world.wrong


def test_reports_show_shares_of_the_whole_and_who_has_the_rest() -> None:
    requests = {"requests": 30, "errors": 0, "latency": None}
    timeline = [
        {"at": 1.0, "kind": "begin", "revision": "2", "generation": 2},
        {
            "at": 2.0,
            "kind": "traffic",
            "shares": {"2": 20.0},
            "unmanaged": {"pool": "backend shop", "servers": ["app1", "app2"], "share": 21.5},
        },
        {"at": 3.0, "kind": "requests", "new": requests, "old": requests, "beside": 40},
        {"at": 4.0, "kind": "end", "outcome": "promoted", "reason": ""},
    ]
    record = {"revision": "2", "generation": 2, "outcome": "promoted"}
    report = report_model.from_timeline("shop", record, timeline)
    assert [share for _since, _until, share in report.numbers.counted] == [30.0]
    rows = dict(render.facts(report))
    assert rows["Managed by no rollout"] == (
        "2 servers of backend shop: app1, app2, 21.5 % of the requests"
    )


def test_requests_to_no_instance_count_for_the_whole_alone() -> None:
    """No analysis takes servers by hand for stable ones."""
    mine = Labels("shop-1", "shop", "1", 1, "web", Endpoint("127.0.0.1", 1), 0)
    counters = Counters()
    for requests in (5, 12, 3):  # its load balancer was restarted
        hand = by_hand("app1")._replace(requests=requests)
        own = Server(Rotation.IN, True, 0, requests=requests)
        counters.take({"lb": {THEIRS: hand, mine.endpoint: own}}, [mine])
    assert counters.beside == 10
    assert list(counters.served) == ["shop-1"] and counters.served["shop-1"].requests == 10
