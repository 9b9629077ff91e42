# SPDX-License-Identifier: GPL-3.0-or-later
"""The HAProxy driver with a service that is deployed in place, against real HAProxy processes: the
servers are those of the configuration, and are only taken out and put in.
"""

from __future__ import annotations

import threading
import typing as t
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from http.client import HTTPException

import pytest
from ansible_collections.progressive.rollout.plugins.action import begin
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    InputError,
    RolloutFailed,
    TrafficError,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Composition
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    Endpoint,
    InstanceSettings,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.traffic import Target
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.lease import Session
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.record import Record
from ansible_collections.progressive.rollout.plugins.plugin_utils.traffic.haproxy import Driver
from ansible_collections.progressive.rollout.tests.drivers.test_haproxy import (
    Here,
    context,
    made,
)
from ansible_collections.progressive.rollout.tests.drivers.traffic_contract import (
    IN,
    OUT,
    Backends,
    Client,
    get,
    prove,
)
from ansible_collections.progressive.rollout.tests.support.haproxy import HAProxy
from ansible_collections.progressive.rollout.tests.support.in_place import InPlaceService
from ansible_collections.progressive.rollout.tests.support.ports import free_port
from ansible_collections.progressive.rollout.tests.support.waiting import until

CHECKED = "check inter 100ms fall 2 rise 1"
RESTORE = "    load-server-state-from-file local\n    server-state-file-name {directory}/state\n"


@pytest.fixture
def ends() -> Iterator[list[HAProxy]]:
    """Balancers that are ended after the test."""
    balancers: list[HAProxy] = []
    yield balancers
    for balancer in balancers:
        balancer.close()


def servers(endpoints: Mapping[str, Endpoint], options: str = CHECKED) -> str:
    """Return the lines of a configuration's servers."""
    return "".join(
        f"    server {name} {endpoint} {options}\n" for name, endpoint in endpoints.items()
    )


def driver(balancer: HAProxy, **options: t.Any) -> Driver:
    given = {
        "socket": balancer.api,
        "backend": "shop",
        "path": str(balancer.directory / "rollout"),
        **options,
    }
    return made(given, replace(context(Here()), in_place=True))


def turn(driver: Driver, **targets: Target) -> None:
    """Have the balancer show these targets, by the names of its servers."""
    (balancer, table) = next(iter(driver.observe().items()))
    by_name = {server.name: endpoint for endpoint, server in table.items()}
    driver.apply({balancer: {by_name[name]: target for name, target in targets.items()}})


def settings(balancer: HAProxy) -> Sequence[tuple[str, ...]]:
    """Return name, id, address, weights and port of each server, as HAProxy has them."""
    lines = [line.split() for line in balancer.ask("show servers state shop").splitlines()[2:]]
    return [(*line[2:5], *line[7:9], line[18]) for line in lines if line]


@pytest.mark.parametrize("balance", ["static-rr", "source", "uri", "roundrobin"])
def test_in_place_works_with_every_balance(
    balance: str, backends: Backends, ends: list[HAProxy]
) -> None:
    a, b = backends.start("a"), backends.start("b")
    lines = (
        f"    balance {balance}\n" + servers({"a": a}) + servers({"b": b}, f"{CHECKED} weight 7")
    )
    ends.append(balancer := HAProxy(lines))
    turned = driver(balancer)
    turned.check()
    before = settings(balancer)
    prove(turned, a, b)
    turn(turned, a=Target(IN), b=Target(OUT))
    assert [get(balancer.front)[1] for _n in range(4)] == ["a"] * 4
    turn(turned, a=Target(IN), b=Target(OUT, parked=True))
    assert balancer.servers() == {"a": "UP", "b": "MAINT"}
    turn(turned, a=Target(IN), b=Target(OUT))
    prove(turned, b)
    turn(turned, a=Target(OUT), b=Target(IN))
    assert [get(balancer.front)[1] for _n in range(4)] == ["b"] * 4
    assert settings(balancer) == before


def test_a_server_at_a_unix_socket_is_shown_in_place(
    backends: Backends, ends: list[HAProxy]
) -> None:
    a = backends.start("a")
    lines = servers({"a": a}) + "    server b unix@/run/b.sock weight 3\n"
    ends.append(balancer := HAProxy(lines))
    (table,) = driver(balancer).observe().values()
    assert table.keys() == {a, Endpoint("b", 0)}
    server = table[Endpoint("b", 0)]
    assert (server.name, server.share_weight, server.parked) == ("b", 3, False)


def test_other_servers_that_send_requests_to_hosts_are_named(
    backends: Backends, ends: list[HAProxy]
) -> None:
    """They would send requests to a host while it is deployed, unless they track its server."""
    a, b = backends.start("a"), backends.start("b")
    lines = servers({"a": a}) + f"    server b {b} track checks/c\n"
    more = f"backend checks\n    server c {b} check\nbackend api\n    server x {a} check\n"
    more += f"    server y {b} track shop/b\n    server z {b} disabled\n"
    ends.append(balancer := HAProxy(lines + more))
    turned = driver(balancer)
    turned.check()
    (line,) = t.cast(Here, turned.context.transport).printed
    assert "api/x sends requests to the address of a" in line and "`track shop/a`" in line


def test_an_endpoint_without_a_server_is_never_given_one(
    backends: Backends, ends: list[HAProxy]
) -> None:
    a, new = backends.start("a"), backends.start("new")
    ends.append(balancer := HAProxy(servers({"a": a})))
    turned = driver(balancer)
    before = settings(balancer)
    for target in (Target(OUT), Target(IN)):
        with pytest.raises(TrafficError, match=f"shop has no server for {new}") as raised:
            turned.apply({balancer.api: {a: Target(IN), new: target}})
        assert raised.value.id == "PR-342"
    assert settings(balancer) == before
    assert turned.fixed and turned.binds


@pytest.mark.parametrize("option", [{"preview": "x"}, {"cohort": {"backend": "x", "map": "/m"}}])
def test_in_place_options_that_add_servers_are_refused(
    option: Mapping[str, t.Any], ends: list[HAProxy]
) -> None:
    ends.append(balancer := HAProxy())
    (name,) = option
    with pytest.raises(InputError, match=rf"rollout_traffic\.{name}: in place") as refused:
        driver(balancer, **option)
    assert refused.value.id == "PR-107"


def test_in_place_no_prepared_server_is_given_an_address(
    backends: Backends, ends: list[HAProxy]
) -> None:
    """One that an earlier version has given an address is a server as any other."""
    a, new = backends.start("a"), backends.start("new")
    slots = servers({f"slot{n}": Endpoint("127.0.0.1", 1) for n in (1, 2)}, f"{CHECKED} disabled")
    ends.append(balancer := HAProxy(slots))
    balancer.ask(f"set server shop/slot1 addr {a.address} port {a.port}")
    balancer.ask("set server shop/slot1 state ready")
    turned, before = driver(balancer, slots="slot"), settings(balancer)
    turned.check()
    prove(turned, a)
    for target in (Target(OUT), Target(OUT, parked=True)):
        turned.apply({balancer.api: {a: target}})
    assert turned.observe()[balancer.api][a].parked and not turned.capacity()
    with pytest.raises(TrafficError, match=f"no server for {new}"):
        turned.apply({balancer.api: {a: Target(OUT), new: Target(OUT)}})
    assert settings(balancer) == before


def test_a_user_that_may_not_turn_servers_is_refused(ends: list[HAProxy]) -> None:
    ends.append(balancer := HAProxy())
    path = f"{balancer.socket}.operator"
    with pytest.raises(TrafficError, match="needs `level admin`"):
        driver(balancer, hosts="lb1", socket=path).check()
    with pytest.raises(TrafficError, match="'nope'"):
        driver(balancer, backend="nope").check()


def test_a_parked_server_gets_no_bound_client(backends: Backends, ends: list[HAProxy]) -> None:
    """By a cookie, or by a stick table: a drained server gets their requests."""
    a, b = backends.start("a"), backends.start("b")
    for rules, cookie in (
        ("    cookie S insert indirect nocache\n", ""),
        ("    stick-table type string len 64 size 1k\n    stick on req.cook(user)\n", "user={n}"),
    ):
        named = [servers({name: e}, f"{CHECKED} cookie {name}") for name, e in (("a", a), ("b", b))]
        ends.append(balancer := HAProxy(rules + "".join(named)))
        turned = driver(balancer)
        prove(turned, a, b)
        clients = [Client(balancer.front, cookie.format(n=n)) for n in range(4)]
        for client in clients:
            client.go()
        bound = [client for client in clients if client.at == "a"]
        assert bound and len(bound) < len(clients)

        def all_at(name: str, clients: Sequence[Client] = bound) -> bool:
            for client in clients:
                client.go()
            return {client.at for client in clients} == {name}

        turn(turned, a=Target(OUT), b=Target(IN))
        assert all_at("a") and not turned.observe()[balancer.api][a].parked
        turn(turned, a=Target(OUT, parked=True), b=Target(IN))
        assert all_at("b") and turned.observe()[balancer.api][a].parked
        turn(turned, a=Target(OUT), b=Target(IN))
        prove(turned, a)
        assert not turned.observe()[balancer.api][a].parked
        turn(turned, a=Target(IN), b=Target(IN))


def test_what_returns_gets_nobody_before_its_check_passes(
    backends: Backends, ends: list[HAProxy]
) -> None:
    """A client that is bound to it would be sent to a server in drain that was not checked yet."""
    a, b = backends.start("a"), backends.start("b")
    checks = "check inter 400ms fall 2 rise 1"
    named = [servers({name: e}, f"{checks} cookie {name}") for name, e in (("a", a), ("b", b))]
    ends.append(balancer := HAProxy("    cookie S insert indirect nocache\n" + "".join(named)))
    turned = driver(balancer)
    prove(turned, a, b)
    turn(turned, a=Target(OUT, parked=True), b=Target(IN))
    backends.kill(a)
    turn(turned, a=Target(OUT), b=Target(IN))
    for _n in range(40):
        bound = Client(balancer.front, "S=a")
        bound.go()
        assert bound.at == "b"
    backends.start_at(a, "a")
    prove(turned, a)
    bound = Client(balancer.front, "S=a")
    bound.go()
    assert bound.at == "a"


def test_a_parked_server_finishes_its_requests(backends: Backends, ends: list[HAProxy]) -> None:
    a, b = backends.start("a"), backends.start("b")
    ends.append(balancer := HAProxy(servers({"a": a, "b": b})))
    turned = driver(balancer)
    prove(turned, a, b)
    turn(turned, a=Target(IN), b=Target(OUT))
    reply: list[tuple[int, str]] = []
    request = threading.Thread(target=lambda: reply.append(get(balancer.front, "/hold")))
    request.start()
    until(lambda: turned.observe()[balancer.api][a].active, "the request is active")
    turn(turned, a=Target(OUT, parked=True), b=Target(IN))
    assert turned.observe()[balancer.api][a].active == 1
    backends.ask(a, "/release")
    request.join()
    assert reply == [(200, "a")]
    until(lambda: not turned.observe()[balancer.api][a].active, "the request is finished")


def test_a_restart_leaves_what_is_parked_parked(backends: Backends, ends: list[HAProxy]) -> None:
    a, b = backends.start("a"), backends.start("b")
    ends.append(balancer := HAProxy(RESTORE + servers({"a": a, "b": b})))
    turned = driver(
        balancer,
        hosts="lb1",
        socket=balancer.socket,
        state_file=f"{balancer.directory}/state",
    )
    prove(turned, a, b)
    turn(turned, a=Target(OUT, parked=True), b=Target(IN))
    balancer.stop()
    balancer.start()
    table = turned.observe()["lb1"]
    assert (table[a].parked, table[a].rotation, table[b].rotation) == (True, OUT, IN)


def test_two_servers_at_one_address_keep_their_weights(
    backends: Backends, ends: list[HAProxy]
) -> None:
    a, b = backends.start("a"), backends.start("b")
    lines = servers({"a1": a}, f"{CHECKED} weight 3") + servers({"a2": a, "b": b})
    ends.append(balancer := HAProxy(lines))
    turned, before = driver(balancer), settings(balancer)
    prove(turned, a, b)
    for target in (Target(OUT), Target(OUT, parked=True), Target(OUT)):
        turned.apply({balancer.api: {a: target, b: Target(IN)}})
    prove(turned, a)
    turned.apply({balancer.api: {a: Target(IN), b: Target(IN)}})
    assert settings(balancer) == before and set(balancer.servers().values()) == {"UP"}


@pytest.mark.parametrize("balance", ["source", "static-rr"])
def test_prepared_servers_with_static_weights_are_refused(
    balance: str, ends: list[HAProxy]
) -> None:
    """Each rollout but the first would fail: HAProxy refuses to change the weights."""
    slots = f"    balance {balance}\n    server slot1 127.0.0.1:1 {CHECKED} disabled\n"
    ends.append(balancer := HAProxy(slots))
    given = {"socket": balancer.api, "backend": "shop", "slots": "slot"}
    given["path"] = str(balancer.directory / "rollout")
    with pytest.raises(TrafficError, match="has a `balance` algorithm") as refused:
        made(given, context(Here())).check()
    assert refused.value.id == "PR-304" and "hash-type consistent" in str(refused.value)


def test_the_oldest_haproxy_that_turns_servers_is_enough(ends: list[HAProxy]) -> None:
    ends.append(balancer := HAProxy())
    turned = driver(balancer)
    turned._check_version("lb", "Name: HAProxy\nVersion: 2.4.0\n")
    with pytest.raises(TrafficError, match=r"2\.4 or later"):
        turned._check_version("lb", "Name: HAProxy\nVersion: 2.3.9\n")


class Fleet:
    """Two hosts with a service that was there before, in the configuration of a HAProxy."""

    def __init__(
        self, backends: Backends, rules: str = "", more: Mapping[str, str] | None = None
    ) -> None:
        """`rules`: more lines of the backend; `more`: options of single servers."""
        port = free_port()
        self.backends = backends
        self.places = {f"web{n}": Endpoint(f"127.0.0.{n}", port) for n in (1, 2)}
        for name, place in self.places.items():
            backends.start_at(place, f"{name} 101")
        self.lines = {
            name: servers({name: place}, f"{CHECKED} cookie {name} {(more or {}).get(name, '')}")
            for name, place in self.places.items()
        }
        self.balancer = HAProxy(rules + "".join(self.lines.values()))
        self.deployed: list[tuple[str, str, str]] = []  # host, revision, and what HAProxy showed
        self.service = InPlaceService(
            {name: place.address for name, place in self.places.items()},
            self.deploy,
            platform={"driver": "static", "hosts": "web", "port": port},
            traffic={
                "driver": "haproxy",
                "socket": self.balancer.api,
                "backend": "shop",
                "path": str(self.balancer.directory / "rollout"),
                "drain_timeout": "4s",
            },
            health={"http": "/healthz", "interval": "100ms", "rise": 1, "deadline": "10s"},
        )

    def reconfigure(self, old: str, new: str) -> None:
        """Change HAProxy's configuration, and restart it."""
        config = self.balancer.config
        assert old in config.read_text()
        config.write_text(config.read_text().replace(old, new))
        self.balancer.stop()
        self.balancer.start()

    def refused(self, **given: t.Any) -> InputError:
        """Return why a rollout is refused before anything is touched."""
        before = settings(self.balancer)
        with pytest.raises(InputError) as refused:
            self.service.to("102", **given)
        assert settings(self.balancer) == before
        assert not self.deployed and self.service.journal.open is None
        return refused.value

    def deploy(self, host: str, revision: str) -> str:
        """Restart the program of a host, which takes a moment."""
        self.deployed.append((host, revision, self.balancer.servers()[host]))
        self.backends.kill(self.places[host])
        self.backends.start_at(self.places[host], f"{host} {revision}")
        return ""


@pytest.fixture
def fleets(backends: Backends) -> Iterator[Callable[..., Fleet]]:
    """What makes fleets, which are ended after the test."""
    made: list[Fleet] = []

    def make(rules: str = "", more: Mapping[str, str] | None = None) -> Fleet:
        made.append(Fleet(backends, rules, more))
        return made[-1]

    yield make
    for fleet in made:
        fleet.balancer.close()


class BoundClients:
    """Clients that keep their cookie, each sending one request after the other, without retries."""

    def __init__(self, front: tuple[str, int], cookie: str, number: int) -> None:
        self.good = 0
        self.bad: list[str] = []
        self._stop = threading.Event()
        clients = [Client(front, cookie.format(n=n)) for n in range(number)]
        self._threads = [threading.Thread(target=self._run, args=(one,)) for one in clients]

    def _run(self, client: Client) -> None:
        while not self._stop.wait(0.01):
            try:
                client.go()
                fine = client.at.startswith("web")
            except (OSError, HTTPException) as exc:
                fine, client.at = False, repr(exc)
            self.good += fine
            if not fine:
                self.bad.append(client.at)

    def __enter__(self) -> BoundClients:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


@pytest.mark.parametrize(
    ("rules", "cookie"),
    [
        ("    cookie S insert indirect nocache\n", ""),
        ("    stick-table type string len 64 size 1k\n    stick on req.cook(user)\n", "user={n}"),
    ],
    ids=["cookie", "stick"],
)
def test_in_place_bound_clients_lose_no_request(
    rules: str, cookie: str, fleets: Callable[..., Fleet]
) -> None:
    fleet = fleets(rules)
    before = settings(fleet.balancer)
    with BoundClients(fleet.balancer.front, cookie, 6) as clients:
        fleet.service.to("102")
    assert not clients.bad and clients.good
    assert not [line for line in fleet.service.lines if "PR-345" in line]
    assert {(host, status) for host, _revision, status in fleet.deployed} == {
        ("web1", "MAINT"),
        ("web2", "MAINT"),
    }
    assert set(fleet.balancer.servers().values()) == {"UP"} and settings(fleet.balancer) == before


def test_in_place_a_host_without_a_server_is_refused(fleets: Callable[..., Fleet]) -> None:
    fleet = fleets()
    fleet.reconfigure(fleet.lines["web2"], "")
    refusal = fleet.refused()
    web1, web2 = fleet.places.values()
    assert refusal.id == "PR-342" and f"no server for web2 ({web2}); it has web1 {web1}." in str(
        refusal
    )
    assert str(refusal).startswith("rollout_platform.hosts: ")


def test_in_place_management_addresses_are_refused(fleets: Callable[..., Fleet]) -> None:
    fleet = fleets()
    fleet.service.addresses = {"web1": "127.0.1.1", "web2": "127.0.1.2"}
    refusal = fleet.refused()
    web1, web2 = fleet.places.values()
    assert f"no server for web1 (127.0.1.1:{web1.port}), web2 (127.0.1.2:" in str(refusal)
    assert f"it has web1 {web1}, web2 {web2}. " in str(refusal) and "ansible_host" in str(refusal)


def test_in_place_a_port_from_the_state_file_is_refused(
    fleets: Callable[..., Fleet], backends: Backends
) -> None:
    """HAProxy takes the port from there, and not from its configuration."""
    fleet = fleets(RESTORE)
    old, new = fleet.places["web1"].port, free_port()
    state = fleet.balancer.directory / "state"
    state.write_text(fleet.balancer.ask("show servers state shop"))
    fleet.reconfigure(f":{old} ", f":{new} ")
    refusal = fleet.refused(platform={"driver": "static", "hosts": "web", "port": new})
    assert f"no server for web1 (127.0.0.1:{new})" in str(refusal)
    assert f"it has web1 127.0.0.1:{old}" in str(refusal) and refusal.id == "PR-342"
    state.unlink()
    fleet.reconfigure(f":{new} ", f":{new}  ")
    for host, place in fleet.places.items():
        fleet.places[host] = place._replace(port=new)
        backends.start_at(fleet.places[host], f"{host} 101")
    fleet.service.to("102", platform={"driver": "static", "hosts": "web", "port": new})


def test_in_place_a_server_of_weight_0_is_refused(fleets: Callable[..., Fleet]) -> None:
    """It gets no requests, and whoever set the weight has not said when it is to."""
    fleet = fleets(more={"web2": "weight 0"})
    refusal = fleet.refused()
    assert refusal.id == "PR-343" and "web2 at load balancer" in str(refusal)


def test_in_place_a_failing_check_of_haproxy_is_shown(fleets: Callable[..., Fleet]) -> None:
    """Before the rollout, and for the host that does not get in."""
    fleet = fleets(more={"web2": f"port {free_port()}"})
    until(lambda: fleet.balancer.servers()["web2"] == "DOWN", "HAProxy's check of web2 fails")
    why = "HAProxy's own check fails: L4CON Connection refused"
    with pytest.raises(RolloutFailed) as failed:
        fleet.service.to("102", health={**fleet.service.given["health"], "deadline": "2s"})
    assert any(
        "web2 is ready, and would not get into rotation" in line and why in line
        for line in fleet.service.lines
    )
    assert f"web2: not healthy: load balancer {fleet.balancer.api}: {why}" in str(failed.value)
    assert [host for host, _revision, _status in fleet.deployed] == ["web2"]


def test_in_place_a_server_that_a_reload_removes_is_named(fleets: Callable[..., Fleet]) -> None:
    fleet = fleets()
    restart = fleet.service.deploy

    def deploy(host: str, revision: str) -> str:
        if host == "web2":
            fleet.reconfigure(fleet.lines["web2"], "")
        return restart(host, revision) if host == "web1" else ""

    fleet.service.deploy = deploy
    with pytest.raises(RolloutFailed) as failed:
        fleet.service.to("102", health={**fleet.service.given["health"], "deadline": "2s"})
    lacking = f"it has no server for {fleet.places['web2']}"
    assert f"web2: not healthy: load balancer {fleet.balancer.api}: {lacking}" in str(failed.value)
    assert fleet.balancer.servers() == {"web1": "UP"}


def test_in_place_what_runs_can_be_declared(fleets: Callable[..., Fleet]) -> None:
    fleet = fleets()
    adopt = {"adopt": {"revision": "101"}}
    assert fleet.service.to("101", **adopt) == [] and not fleet.deployed
    begun = fleet.service.step(begin, check_mode=True, revision="102", **adopt)
    assert begun["rollout"]["stable"] == "101" and begun["batches"] == [["web1"], ["web2"]]
    restart = fleet.service.deploy
    fleet.service.deploy = lambda host, revision: (
        "the disk is full" if (host, revision) == ("web2", "102") else restart(host, revision)
    )
    with pytest.raises(RolloutFailed, match="rolled back to 101") as failed:
        fleet.service.to("102", failure_limit=1, **adopt)
    assert failed.value.id == "PR-604"
    assert [(host, revision) for host, revision, _status in fleet.deployed] == [
        ("web1", "102"),
        ("web2", "101"),
        ("web1", "101"),
    ]
    fleet.service.deploy = restart
    fleet.service.to("102", adopt={"revision": "100"})  # what was deployed is known better
    assert fleet.service.journal.stable and fleet.service.journal.stable.revision == "102"


def test_in_place_servers_cannot_be_declared(fleets: Callable[..., Fleet]) -> None:
    refusal = fleets().refused(adopt={"revision": "101", "servers": ["web1"]})
    assert refusal.id == "PR-107" and str(refusal).startswith("rollout_adopt.servers: ")


def test_a_service_in_place_is_not_taken_for_instances(fleets: Callable[..., Fleet]) -> None:
    """Nor the other way round: whichever strategy it has, all would start at once."""
    fleet = fleets()
    fleet.service.to("101")
    instances = {
        "platform": {"driver": "process", "hosts": "web", "command": ["a"], "ports": "9000-9009"},
        "revision": "102",
        "replicas": 2,
    }
    for known in ("stable", "open"):
        with pytest.raises(InputError, match=r"rollout_platform\.driver: process starts") as no:
            fleet.service.step(begin, in_play=False, **instances)
        assert no.value.id == "PR-344" and "rollout_adopt: {revision: 10" in str(no.value), known
        fleet.service.step(begin, revision="102")
    other = InPlaceService(fleet.service.addresses, fleet.deploy, **fleet.service.given)
    record = Record("shop", stable=Composition("7", 3, 2))
    record.settings[3] = InstanceSettings("process", {}, {})
    session = Session(other.store("shop"), "shop", other.identity, 60)
    session.acquire(lambda: None)
    session.record = record
    session.commit()
    session.release()
    with pytest.raises(
        InputError, match=r"rollout_platform\.driver: static deploys hosts in place"
    ):
        other.to("8")
