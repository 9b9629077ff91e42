# SPDX-License-Identifier: GPL-3.0-or-later
"""The HAProxy driver against real HAProxy processes: the contract, and what only HAProxy has."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import socket
import socketserver
import struct
import threading
import time
import typing as t
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import haproxy as agent
from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import leave
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    InputError,
    TrafficError,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.health.spec import parse
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import (
    DriverContext,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.loader import (
    DriverModule,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    Endpoint,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.traffic import (
    Target,
    TrafficDriver,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.agents import Answer
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.connections import (
    Command,
    Result,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.transport import Transport
from ansible_collections.progressive.rollout.plugins.plugin_utils.traffic.haproxy import (
    OPTIONS,
    Driver,
)
from ansible_collections.progressive.rollout.tests.drivers.traffic_contract import (
    ENDLESS,
    IN,
    OUT,
    SERVICE,
    Backends,
    Client,
    Late,
    TrafficContract,
    answers,
    apply,
    bring_in,
    entries,
    everywhere,
    get,
    hostile,
    left_by_9a6312c,
    prove,
    raise_the_share,
    remove,
)
from ansible_collections.progressive.rollout.tests.support.contexts import Knows
from ansible_collections.progressive.rollout.tests.support.haproxy import HAProxy
from ansible_collections.progressive.rollout.tests.support.ports import free_port
from ansible_collections.progressive.rollout.tests.support.processes import stopped
from ansible_collections.progressive.rollout.tests.support.waiting import PATIENCE, until

HEALTH = parse({"http": "/healthz", "interval": "200ms"})


def made(given: Mapping[str, t.Any], context: DriverContext) -> Driver:
    return Driver(DriverModule(Driver, OPTIONS).check(given, "rollout_traffic"), context)


class Here:
    """A transport whose every host is this one. It keeps the lines it carried."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []  # socket, line
        self.printed: list[str] = []
        self.print_line = self.printed.append

    def hosts(self, pattern: str) -> list[str]:
        return [name for name in pattern.split(",") if name.startswith(("lb", "::"))]

    def address(self, host: str) -> str:
        return "127.0.0.1"

    def run(self, commands: Mapping[str, Command], timeout: float) -> dict[str, Result]:
        raise NotImplementedError

    def ask(
        self, agent_name: str, requests: Mapping[str, Mapping[str, t.Any]], timeout: float
    ) -> dict[str, Answer]:
        if agent_name == "leave":
            return {host: Answer(leave.main(dict(request))) for host, request in requests.items()}
        assert agent_name == "haproxy"
        self.asked += [
            (a, line)
            for r in requests.values()
            for a, work in r["sockets"].items()
            for line in work["lines"]
        ]
        return {host: Answer(agent.main(dict(request))) for host, request in requests.items()}

    def changes(self) -> int:
        """How many commands were meant to change something; those of `check` name the server
        `-`.
        """
        commands = [command for _socket, line in self.asked for command in line.split(";")]
        return sum(not command.startswith("show ") and "/-" not in command for command in commands)


def context(
    transport: Here,
    epoch: int = 1,
    service: str = SERVICE,
    adopted: Sequence[str] = (),
    adopting: Sequence[str] = (),
) -> DriverContext:
    known = Knows(epoch=epoch, adopted=adopted)
    return DriverContext(
        service, t.cast(Transport, transport), HEALTH, known=known, adopting=adopting
    )


PREVIEW = """\
frontend look
    bind 127.0.0.1:{port}
    default_backend preview
backend preview
    balance roundrobin
    option httpchk GET /healthz
{servers}
"""


class HAProxyPlane:
    """A pair of balancers (Plane)."""

    left = "added"  # what an older version left there

    def __init__(self, servers: str = "", preview: str = "", rules: str = "") -> None:
        """`servers` and `preview`: more lines of the two backends; `rules`, of the frontend."""
        self.previews = [("127.0.0.1", free_port()) for _n in range(2)]
        self.balancers = [
            HAProxy(f"{servers}{PREVIEW.format(port=port, servers=preview)}", rules)
            for _host, port in self.previews
        ]
        self.transport = Here()
        self.path = str(self.balancers[0].directory / "rollout")
        self.fronts = [one.front for one in self.balancers]
        self.names = [one.api for one in self.balancers]

    def driver(
        self,
        epoch: int = 1,
        service: str = SERVICE,
        adopted: Sequence[str] = (),
        adopting: Sequence[str] = (),
        **options: t.Any,
    ) -> TrafficDriver:
        given = {
            "socket": [f"tcp://{name}" for name in self.names],
            "backend": "shop",
            "path": self.path,
        } | options
        return made(given, context(self.transport, epoch, service, adopted, adopting))

    def halting(self) -> TrafficDriver:
        """By what the second's socket lets us do."""
        return self.driver(
            hosts="lb1", socket=[self.balancers[0].socket, self.balancers[1].socket + ".operator"]
        )

    def previewing(self) -> tuple[TrafficDriver, TrafficDriver]:
        driver = self.driver(preview="preview")
        (preview,) = driver.previews()
        assert not preview.idle_only
        return driver, preview.traffic

    def wrong(self) -> Sequence[tuple[Mapping[str, t.Any], str]]:
        path = self.balancers[0].socket
        return [
            ({"backend": "nope"}, "rollout_traffic.backend: 'nope'"),
            ({"backend": "fixed"}, "must use a dynamic load balancing"),
            ({"backend": "shop;x"}, "rollout_traffic.backend: 'shop;x'"),
            (
                {"hosts": "lb1", "socket": path + ".operator"},
                (
                    f"rollout_traffic.socket: '{path}.operator' at load balancer lb1 needs `level"
                    " admin`"
                ),
            ),
            (
                {"hosts": "lb1", "socket": path + ".none"},
                (
                    f"load balancer lb1 (rollout_traffic.socket {path}.none): No such file or"
                    " directory; does HAProxy run,"
                ),
            ),
            ({"hosts": "web", "socket": path}, "rollout_traffic.hosts: 'web' matches no host"),
            ({"socket": path}, f"rollout_traffic.socket: '{path}' is a path"),
            ({"socket": "nonsense"}, "rollout_traffic.socket: 'nonsense'"),
            (
                {"hosts": "lb1", "socket": ["/run/a/b", "/run/a_b"]},
                "rollout_traffic.socket: '/run/a/b' and '/run/a_b' on lb1",
            ),
            (
                {"match": {"header": "X-Canary", "value": "always"}},
                "rollout_traffic.match: HAProxy routes requests",
            ),
            ({"mirror": 10}, "rollout_traffic.mirror: HAProxy"),
            ({"sticky": {"cookie": "user"}}, "`stick on req.cook(NAME)`"),
            ({"slots": "slot"}, "rollout_traffic.slots: backend shop at load balancer"),
            ({"state_file": "/x"}, "rollout_traffic.state_file: '/x'"),
            ({"drain_timeout": "soon"}, "rollout_traffic.drain_timeout: 'soon'"),
        ]

    def neighbour(self, **options: t.Any) -> TrafficDriver:
        return self.driver(service="cart", **{"backend": "preview"} | options)

    def options(self) -> Sequence[tuple[Mapping[str, t.Any], t.Callable[[], bool]]]:
        def as_before() -> bool:
            states = [list(one.servers().values()) for one in self.balancers]
            return all((its.count("UP"), its.count("DRAIN")) == (1, 1) for its in states)

        return [({"preview": "preview"}, as_before), ({"drain_timeout": "5s"}, as_before)]

    def older(self, endpoints: Sequence[Endpoint]) -> TrafficDriver:
        for balancer in self.balancers:
            commands = left_by_9a6312c("haproxy", endpoints, {})[self.left]
            balancer.ask(commands.replace("\n", ";"))
        return self.driver()

    def changes(self) -> object:
        return self.transport.changes()

    def by_hand(self, endpoint: Endpoint) -> str | None:
        for balancer in self.balancers:
            balancer.ask(
                f"add server shop/app1 {endpoint} weight 10;set server shop/app1 state ready"
            )
        return "app1"

    def spoil(self, endpoint: Endpoint, name: str) -> None:
        """Its name is taken by a server of somebody else's."""
        assert "New server" in self.balancers[1].ask(
            f"add server shop/{name} 127.0.0.1:{free_port()}"
        )

    def stop(self, index: int) -> None:
        self.balancers[index].stop()

    def start(self, index: int) -> None:
        self.balancers[index].start()

    def close(self) -> None:
        for one in self.balancers:
            one.close()


class TestContract(TrafficContract):
    pool_of_shop: t.ClassVar = {"backend": "shop"}

    @pytest.fixture
    def plane(self) -> Iterator[HAProxyPlane]:
        plane = HAProxyPlane()
        yield plane
        plane.close()

    def test_raising_the_share_moves_no_client_back(self, backends: Backends) -> None:
        numbers = itertools.count()
        plane = HAProxyPlane(
            "    stick-table type string len 64 size 100k expire 1h\n    stick on req.cook(user)\n"
        )
        try:
            stay = raise_the_share(
                plane,
                plane.driver(),
                backends,
                lambda front: Client(front, f"user={next(numbers)}"),
            )
            assert stay > 0, "as the docs say: until it is taken away"
        finally:
            plane.close()

    @pytest.mark.parametrize("name", ["shop-7d9f8b-x7x2p", "eu/shop-7d9f8b-x7x2p", "my-shop.1.k2"])
    def test_servers_with_names_of_pods_and_tasks_are_ours(
        self, plane: HAProxyPlane, backends: Backends, name: str
    ) -> None:
        """The run that removes them need not be the one that has added them."""
        bring_in(plane.driver(), {backends.start("a"): Target(IN, name=name)})
        driver = plane.driver()
        assert [one.ours for one in driver.observe()[plane.names[0]].values()] == [True]
        driver.apply({balancer: {} for balancer in plane.names})
        assert not any(driver.observe().values())

    def test_servers_of_a_service_that_begins_alike_are_not_ours(self, plane: HAProxyPlane) -> None:
        for balancer in plane.balancers:
            balancer.ask(
                "add server shop/shop-api-1 127.0.0.1:9 id 1000050; set server shop/shop-api-1"
                " state drain"
            )
        driver = plane.driver()
        (theirs,) = driver.observe()[plane.names[0]].values()
        assert (theirs.name, theirs.ours) == ("shop-api-1", False)
        driver.apply({name: {} for name in plane.names})
        assert [server.name for server in driver.observe()[plane.names[0]].values()] == [
            "shop-api-1"
        ]


class NamedAlike(HAProxy):
    """Its frontend has the name of the backend."""

    def start(self) -> None:
        text = self.config.read_text().replace("frontend front\n", "frontend shop\n")
        self.config.write_text(text)
        super().start()


def test_a_frontend_named_like_the_backend_hides_no_server(backends: Backends) -> None:
    balancer = NamedAlike("    server by-hand 127.0.0.1:9 disabled\n")
    try:
        driver = made({"backend": "shop", "socket": balancer.api}, context(Here()))
        driver.check()
        assert [one.name for one in driver.observe()[balancer.api].values()] == ["by-hand"]
        endpoint = backends.start("a")
        bring_in(driver, {endpoint: Target(IN, name="shop-1")})
        assert get(balancer.front) == (200, "a")
        remove(driver, {}, endpoint)
    finally:
        balancer.close()


def test_a_frontend_named_like_an_empty_backend_hides_no_server(backends: Backends) -> None:
    balancer = NamedAlike()
    try:
        driver = made({"backend": "shop", "socket": balancer.api}, context(Here()))
        endpoint = backends.start("a")
        bring_in(driver, {endpoint: Target(IN, name="shop-1")})
        assert get(balancer.front) == (200, "a")
    finally:
        balancer.close()


class SlotPlane(HAProxyPlane):
    """The same with servers prepared in the configuration."""

    left = "slots"

    def __init__(self) -> None:
        slots = "".join(
            f"    server slot{n} 127.0.0.1:1 check inter 100ms fall 2 rise 1 disabled\n"
            for n in range(6)
        )
        super().__init__(slots, slots)

    def driver(self, epoch: int = 1, service: str = SERVICE, **options: t.Any) -> TrafficDriver:
        return super().driver(epoch, service, **{"slots": "slot"} | options)

    def wrong(self) -> Sequence[tuple[Mapping[str, t.Any], str]]:
        return [({"slots": "other"}, "rollout_traffic.slots: backend shop")]

    def spoil(self, endpoint: Endpoint, name: str) -> None:
        """Somebody else uses all the other slots."""
        self.balancers[1].ask(
            ";".join(
                f"set server shop/slot{n} addr 127.0.0.2 port {9000 + n};set server shop/slot{n}"
                " state drain"
                for n in range(1, 6)
            )
        )


class TestContractWithSlots(TrafficContract):
    pool_of_shop: t.ClassVar = {"backend": "shop"}

    @pytest.fixture
    def plane(self) -> Iterator[HAProxyPlane]:
        plane = SlotPlane()
        yield plane
        plane.close()

    def test_an_empty_pool_has_no_entries(self, plane: HAProxyPlane) -> None:  # type: ignore[override]
        assert plane.driver().observe() == {name: {} for name in plane.names}
        assert set(plane.balancers[0].servers().values()) == {"MAINT"}


BROWNFIELD = """\
    cookie S insert
    server shop-web1 127.0.0.1:{one} check inter 100ms cookie w1
    server web2 127.0.0.1:{two} cookie w2
    server legacy 127.0.0.1:{three} check fall 1 backup
"""


@contextlib.contextmanager
def agent_check(answer: bytes) -> Iterator[int]:
    """The port of an agent that HAProxy asks."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.sendall(answer)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever, args=(0.02,))
        thread.start()
        yield listening.server_address[1]
        listening.shutdown()
        thread.join()


class TestOnlyHAProxy:
    def test_servers_of_the_configuration_are_drained_but_never_deleted(
        self, backends: Backends
    ) -> None:
        one, two, three, new = (backends.start(name) for name in ("one", "two", "three", "new"))
        plane = HAProxyPlane(BROWNFIELD.format(one=one.port, two=two.port, three=three.port))
        try:
            driver = plane.driver()
            untouched = plane.balancers[0].ask("show servers state shop").splitlines()[-2]
            assert " legacy " in untouched
            assert not any(
                server.ours for e in (one, two, three) for server in entries(driver.observe(), e)
            )
            old = {one: Target(IN, 7), two: Target(IN, 7)}
            prove(driver, one, two)
            assert everywhere(apply(driver, old), one, lambda s: s.weight == 7)
            prove(
                driver,
                *apply(driver, old | {new: Target(OUT, 7, "new")})[plane.names[0]].keys() & {new},
            )
            apply(driver, {new: Target(IN, 7, "new"), one: Target(OUT, 7), two: Target(OUT, 7)})
            assert set(answers(plane)) == {"new"}
            apply(driver, {new: Target(IN, 7, "new")})
            for balancer in plane.balancers:
                assert balancer.servers() == {
                    "shop-web1": "MAINT",
                    "web2": "MAINT",
                    "legacy": balancer.servers()["legacy"],
                    "shop-new": "UP",
                }
            cut = re.compile(r"^(\d+ shop \d+ legacy \S+ \d+ \d+ \d+)")
            after = plane.balancers[0].ask("show servers state shop")
            assert cut.findall(untouched) == cut.findall(
                next(line for line in after.splitlines() if " legacy " in line)
            )
            # And back: in maintenance, so warmed up and proven anew before it is put in.
            apply(driver, {new: Target(IN, 7), one: Target(OUT, 7)})
            prove(driver, one)
            remove(driver, {one: Target(IN, 7)}, new)
            assert set(answers(plane)) == {"one"}
        finally:
            plane.close()

    def test_adopted_servers_leave_and_return_as_configured(self, backends: Backends) -> None:
        one, two, spare, new = (backends.start(name) for name in ("one", "two", "spare", "new"))
        plane = HAProxyPlane(
            f"    server web1 {one} check inter 100ms weight 3\n"
            f"    server web2 {two} weight 3\n"
            f"    server spare {spare} check backup\n"
        )
        try:
            driver = plane.driver(adopted=("web1", "web2"))
            before = driver.observe()
            assert everywhere(before, one, lambda s: (s.ours, s.service) == (True, SERVICE))
            assert everywhere(before, spare, lambda s: not s.ours and s.backup)
            old = {one: Target(IN, 100, "web1"), two: Target(IN, 100, "web2")}
            bring_in(driver, old | {new: Target(IN, 100, "shop-1")})
            apply(driver, old | {one: Target(OUT, 100, "web1"), new: Target(IN, 100, "shop-1")})
            assert {b.servers()["web1"] for b in plane.balancers} == {"DRAIN"}
            gone = apply(driver, {new: Target(IN, 100, "shop-1")})
            for balancer in plane.balancers:
                assert balancer.servers() == {
                    "web1": "MAINT",
                    "web2": "MAINT",
                    "spare": balancer.servers()["spare"],
                    "shop-1": "UP",
                }
            assert not any(entries(gone, at) for at in (one, two))
            assert set(answers(plane)) == {"new"}
            plane.driver(adopted=("web1", "web2")).conclude()  # another rollout has their place
            assert everywhere(driver.observe(), new, lambda s: s.weight == 100)
            bring_in(driver, old | {new: Target(IN, 100, "shop-1")})
            assert set(answers(plane)) == {"one", "two", "new"}
            remove(driver, old, new)
            driver.conclude()
            after = driver.observe()
            assert everywhere(after, one, lambda s: (s.rotation, s.weight) == (IN, 3))
            assert everywhere(after, two, lambda s: (s.rotation, s.weight) == (IN, 3))
            assert set(answers(plane)) == {"one", "two"}
        finally:
            plane.close()

    def test_servers_that_others_track_are_not_adopted(self, backends: Backends) -> None:
        """Those would go out of service with them, and no instance has their place."""
        one, two = backends.start("one"), backends.start("two")
        lines = f"    server web1 {one} check\n    server web2 {two} check\n"
        plane = HAProxyPlane(f"{lines}backend api\n    server x {one} track shop/web1\n")
        try:
            with pytest.raises(InputError, match=r"web1 .*: api/x has .track shop/web1") as raised:
                plane.driver(adopting=("web1", "web2")).check()
            assert raised.value.id == "PR-347"
            plane.driver(adopting=("web2",)).check()
            plane.driver(adopting=("web1",), adopted=("web1",)).check()
            plane.driver().check()
            assert not plane.transport.printed
        finally:
            plane.close()

    def test_others_at_the_addresses_of_adopted_servers_are_named(self, backends: Backends) -> None:
        one, two = backends.start("one"), backends.start("two")
        plane = HAProxyPlane(
            f"    server web1 {one} track checks/c\n    server web2 {two} check\n"
            f"backend checks\n    server c {one} check\n"
            f"backend api\n    server x {two} check\n    server y {two} disabled\n"
        )
        try:
            plane.driver(adopting=("web1", "web2")).check()
            (line, other) = plane.transport.printed
            assert plane.names[0] in line and ": api/x; a rollout changes backend shop" in line
            assert plane.names[1] in other
        finally:
            plane.close()

    def test_an_adopted_server_that_is_gone_is_never_added(self, backends: Backends) -> None:
        one, two = backends.start("one"), backends.start("two")
        plane = HAProxyPlane(f"    server web1 {one}\n    server web2 {two}\n")
        try:
            driver, changes = plane.driver(adopted=("web1", "web2")), plane.changes()
            elsewhere = Endpoint("127.0.0.1", free_port())
            with pytest.raises(TrafficError) as refused:
                apply(driver, {elsewhere: Target(OUT, 100, "web1"), two: Target(IN, 100, "web2")})
            assert refused.value.id == "PR-347"
            assert plane.changes() == changes
            assert driver.observe()[plane.names[0]].keys() == {one, two}
        finally:
            plane.close()

    def test_why_haproxys_own_check_fails_is_told(self, backends: Backends) -> None:
        plane, a = HAProxyPlane("    http-check expect string ok\n"), backends.start("a")
        gone = Endpoint("127.0.0.1", free_port())
        targets = {a: Target(OUT, name="shop-a"), gone: Target(OUT, name="shop-gone")}
        try:
            driver = plane.driver()
            assert everywhere(apply(driver, targets), a, lambda server: not server.detail)
            until(
                lambda: all(everywhere(driver.observe(), e, lambda s: s.detail) for e in targets),
                "both are checked",
            )
            wrong, refused = (entries(driver.observe(), e)[0].detail for e in targets)
            assert wrong.startswith("HAProxy's own check fails: L7RSP HTTP content check did not")
            assert "`option httpchk`" in wrong and "`http-check expect`" in wrong
            assert refused == "HAProxy's own check fails: L4CON Connection refused"
            with pytest.raises(TrafficError) as raised:
                apply(driver, targets | {a: Target(IN, name="shop-a")})
            assert raised.value.id == "PR-308" and "L7RSP" in str(raised.value)
        finally:
            plane.close()

    def test_a_server_with_an_agent_check_is_refused_or_named(self, backends: Backends) -> None:
        a, b = backends.start("a"), backends.start("b")
        with agent_check(b"drain\n") as port:
            more = f"check inter 100ms agent-check agent-port {port} agent-inter 100ms"
            plane = HAProxyPlane(
                f"    server web1 {a} {more}\n    server web2 {b} check backup\n"
                f"    server slot1 127.0.0.1:1 {more} fall 2 disabled\n"
            )
            try:
                driver = plane.driver()
                until(
                    lambda: everywhere(driver.observe(), a, lambda s: "agent" in s.status),
                    "the agent has answered",
                )
                (server, _other) = entries(driver.observe(), a)
                assert (server.steered_by, server.share_weight) == ("agent-check", 0)
                assert server.detail == "HAProxy shows it as DRAIN (agent)"
                assert everywhere(driver.observe(), b, lambda s: s.share_weight == 1 and s.by_hand)
                driver.check()
                with pytest.raises(TrafficError, match="disable agent shop/slot1") as refused:
                    plane.driver(slots="slot").check()
                assert refused.value.id == "PR-337" and plane.changes() == 0
                for balancer in plane.balancers:
                    balancer.ask("disable agent shop/slot1;disable agent shop/web1")
                plane.driver(slots="slot").check()
                assert everywhere(driver.observe(), a, lambda s: not s.steered_by)
            finally:
                plane.close()

    def test_whose_a_prepared_server_is_that_no_mark_has(self, backends: Backends) -> None:
        plane, a, left = SlotPlane(), backends.start("a"), backends.start("left")
        try:
            use = f"set server shop/slot5 addr {left.address} port {left.port};"
            for balancer in plane.balancers:
                balancer.ask(f"{use}set server shop/slot5 state ready")
            (unknown, _other) = entries(plane.driver().observe(), left)
            assert (unknown.ours, unknown.service, unknown.prepared) == (True, "", True), "no marks"
            bring_in(plane.driver(), {a: Target(IN, name="shop-1")})
            (parked, _other) = entries(plane.driver().observe(), left) or (None, None)
            assert parked is None, "the only service there puts it right"
            assert [one.servers()["slot5"] for one in plane.balancers] == ["MAINT"] * 2
            for balancer in plane.balancers:
                balancer.ask(f"{use}set server shop/slot5 state ready")
            cart = plane.neighbour(**TestContractWithSlots.pool_of_shop)
            assert everywhere(
                cart.observe(), left, lambda s: (s.ours, s.service) == (False, "shop")
            )
            b = backends.start("b")
            bring_in(cart, {b: Target(IN, name="cart-1")})
            for service in (cart, plane.driver()):
                assert everywhere(service.observe(), left, lambda s: s.by_hand and s.prepared)
            assert everywhere(cart.observe(), a, lambda s: s.service == "shop")
            assert everywhere(plane.driver().observe(), b, lambda s: s.service == "cart")
            assert everywhere(cart.observe(), left, lambda s: s.rotation is IN)
            remove(cart, {}, b)
            assert everywhere(plane.driver().observe(), left, lambda s: s.service == "shop")
        finally:
            plane.close()

    def test_a_backup_server_has_a_share_only_where_it_serves(self, backends: Backends) -> None:
        a, b = backends.start("a"), backends.start("b")
        plane = HAProxyPlane(
            f"    server app1 {a} check inter 100ms weight 3\n    server sorry {b} backup\n"
        )
        try:
            driver = plane.driver()
            assert everywhere(driver.observe(), a, lambda s: s.by_hand and s.share_weight == 3)
            assert everywhere(driver.observe(), b, lambda s: s.by_hand and s.share_weight == 0)
            backends.kill(a)
            until(
                lambda: everywhere(driver.observe(), b, lambda s: s.share_weight == 1), "it serves"
            )
            assert everywhere(driver.observe(), a, lambda s: s.share_weight == 0)
        finally:
            plane.close()

    def test_a_server_at_a_unix_socket_is_shown_and_left_alone(self, backends: Backends) -> None:
        a, new = backends.start("a"), backends.start("new")
        plane = HAProxyPlane(
            f"    server app1 {a} check inter 100ms weight 3\n"
            "    server app2 unix@/run/app2.sock weight 3\n"
            "    server app3 unix@/run/app3.sock disabled\n"
        )
        try:
            driver, at = plane.driver(), Endpoint("app2", 0)
            seen = driver.observe()
            assert {frozenset(servers) for servers in seen.values()} == {frozenset({a, at})}
            assert everywhere(seen, at, lambda s: s.by_hand and s.share_weight == 3)
            assert everywhere(seen, at, lambda s: s.name == "app2")
            bring_in(driver, {new: Target(IN, 7, "shop-1")})
            assert {b.servers()["app2"] for b in plane.balancers} == {"no check"}
        finally:
            plane.close()

    def test_answers_of_4xx_and_clients_that_left_are_counted(self, backends: Backends) -> None:
        plane, a = HAProxyPlane(), backends.start("a")
        try:
            driver = plane.driver()
            bring_in(driver, {a: Target(IN, name="shop-a")})
            assert [get(plane.fronts[0], "/missing")[0] for _n in range(3)] == [404] * 3
            with socket.create_connection(plane.fronts[0]) as client:
                client.sendall(b"GET /hold HTTP/1.1\r\nHost: shop\r\n\r\n")
                until(lambda: entries(driver.observe(), a)[0].active, "the request is active")
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            backends.ask(a, "/release")
            until(lambda: entries(driver.observe(), a)[0].aborts, "the client has left")
            first, second = entries(driver.observe(), a)
            assert (first.client_errors, first.aborts, first.errors) == (3, 1, 0)
            assert (second.client_errors, second.aborts) == (0, 0)
        finally:
            plane.close()

    def test_an_answer_may_take_as_long_as_the_backends_timeout(self, backends: Backends) -> None:
        """Not only as long as the time between two checks."""
        plane, a = HAProxyPlane(), backends.start("a")
        try:
            driver = plane.driver()
            bring_in(driver, {a: Target(IN, name="shop-a")})
            with stopped(backends.processes[a].pid):
                end = time.monotonic() + 5 * HEALTH.interval
                while time.monotonic() < end:
                    assert plane.balancers[0].servers() == {"shop-a": "UP"}
        finally:
            plane.close()

    def test_a_server_with_requests_is_parked_and_deleted_later(self, backends: Backends) -> None:
        plane, a, b = HAProxyPlane(), backends.start("a"), backends.start("b")
        try:
            driver = plane.driver()
            bring_in(driver, {a: Target(IN, name="shop-a")})
            reply: list[tuple[int, str]] = []
            request = threading.Thread(target=lambda: reply.append(get(plane.fronts[0], "/hold")))
            request.start()
            until(lambda: entries(driver.observe(), a)[0].active, "the request is active")
            apply(driver, {a: Target(IN, name="shop-a"), b: Target(OUT, name="shop-b")})
            prove(driver, b)
            apply(driver, {a: Target(IN, name="shop-a"), b: Target(IN, name="shop-b")})
            table = apply(driver, {b: Target(IN, name="shop-b")})
            parked = table[plane.names[0]][a]
            assert (parked.rotation, parked.active, parked.ours, parked.name) == (
                OUT,
                1,
                True,
                "shop-a",
            )
            assert plane.balancers[0].servers() == {"shop-a": "MAINT", "shop-b": "UP"}
            assert set(answers(plane)) == {"b"}
            backends.ask(a, "/release")
            request.join()
            assert reply == [(200, "a")]
            remove(driver, {b: Target(IN, name="shop-b")}, a)
            assert [one.servers() for one in plane.balancers] == [{"shop-b": "UP"}] * 2
        finally:
            plane.close()

    def test_the_state_file_restores_the_slots_at_a_restart(self, backends: Backends) -> None:
        words = "slot.invalid:1 check inter 100ms fall 2 init-addr last,127.0.0.1 disabled"
        slots = "".join(f"    server slot{n} {words}\n" for n in range(3))
        balancer = HAProxy(
            slots + "    load-server-state-from-file local\n    server-state-file-name"
            " {directory}/state\n"
        )
        try:
            a, b = backends.start("a"), backends.start("b")
            path = f"{balancer.directory}/state"
            options = {
                "hosts": "lb1",
                "socket": balancer.socket,
                "backend": "shop",
                "slots": "slot",
                "state_file": path,
                "path": f"{balancer.directory}/rollout",
            }
            driver = made(options, context(Here()))
            driver.check()
            bring_in(driver, {a: Target(IN, 30), b: Target(OUT, 7)})
            cart = {**options, "backend": "preview", "slots": ""}
            with pytest.raises(TrafficError, match="has servers of backend shop") as refused:
                made(cart, context(Here(), service="cart")).check()
            assert refused.value.id == "PR-339"
            balancer.stop()
            balancer.start()
            table = driver.observe()["lb1"]
            assert {e: (s.rotation, s.ours, s.weight) for e, s in table.items()} == {
                a: (IN, True, 30),
                b: (OUT, True, 7),
            }
            theirs = made(options, context(Here(), service="cart")).observe()["lb1"]
            assert {(s.service, s.ours) for s in theirs.values()} == {("shop", False)}
            assert get(balancer.front) == (200, "a")
            with pytest.raises(
                TrafficError,
                match=r"rollout_traffic.slots: load balancer lb1 has 1 free .* 2 are needed",
            ):
                apply(
                    driver,
                    {a: Target(IN), b: Target(OUT)}
                    | {Endpoint("127.0.0.1", p): Target(OUT) for p in (1001, 1002)},
                )
            remove(driver, {a: Target(IN)}, b)
        finally:
            balancer.close()

    def test_the_state_file_keeps_servers_with_addresses_out_at_a_restart(
        self, backends: Backends
    ) -> None:
        """As services have them that are deployed in place: by its configuration all would be in
        rotation.
        """
        a, b = backends.start("a"), backends.start("b")
        servers = "".join(
            f"    server {name} {endpoint} check inter 100ms fall 2 rise 1\n"
            for name, endpoint in (("a", a), ("b", b))
        )
        restore = (
            "    load-server-state-from-file local\n    server-state-file-name {directory}/state\n"
        )
        balancer = HAProxy(restore + servers)
        try:
            options = {
                "hosts": "lb1",
                "socket": balancer.socket,
                "backend": "shop",
                "state_file": f"{balancer.directory}/state",
            }
            driver = made(options, context(Here()))
            driver.check()
            apply(driver, {a: Target(IN, 1), b: Target(OUT, 1)})
            balancer.stop()
            balancer.start()
            assert {e: (s.rotation, s.weight) for e, s in driver.observe()["lb1"].items()} == {
                a: (IN, 1),
                b: (OUT, 1),
            }
            assert {get(balancer.front) for _n in range(4)} == {(200, "a")}
            bring_in(driver, {a: Target(IN, 1), b: Target(IN, 1)})
        finally:
            balancer.close()

    def test_a_slot_whose_address_the_state_file_would_not_restore_is_refused(self) -> None:
        balancer = HAProxy("    server slot1 127.0.0.1:1 check fall 2 disabled\n")
        try:
            options = {
                "hosts": "lb1",
                "socket": balancer.socket,
                "backend": "shop",
                "slots": "slot",
                "path": f"{balancer.directory}/rollout",
            }
            made(options, context(Here())).check()
            with pytest.raises(
                TrafficError, match=r"rollout_traffic.state_file: server slot1 .* has an address"
            ):
                made(
                    {**options, "state_file": f"{balancer.directory}/state"}, context(Here())
                ).check()
        finally:
            balancer.close()

    def test_a_crashed_server_in_rotation_is_no_refusal(self, backends: Backends) -> None:
        plane, a, b = HAProxyPlane(), backends.start("a"), backends.start("b")
        try:
            driver, targets = plane.driver(), {a: Target(IN), b: Target(IN)}
            bring_in(driver, targets)
            backends.kill(a)
            until(
                lambda: everywhere(driver.observe(), a, lambda s: not s.lb_healthy),
                "HAProxy sees that it is down",
            )
            apply(driver, targets)
            until(lambda: set(answers(plane)) == {"b"}, "HAProxy sends it no request")
        finally:
            plane.close()

    def test_a_thousand_servers_take_a_few_lines(self) -> None:
        plane = HAProxyPlane()
        try:
            driver = plane.driver()
            targets = {
                Endpoint("127.0.0.1", 20000 + n): Target(OUT, name=f"shop-{n:04}")
                for n in range(1000)
            }
            driver.apply(dict.fromkeys(plane.names, targets))
            assert len(plane.transport.asked) == 2 * (1 + 63 + 1)  # 3000 commands, at most 50 each
            assert [len(servers) for servers in driver.observe().values()] == [1000, 1000]
            remove(driver, {}, *targets)
        finally:
            plane.close()

    def test_a_change_that_is_killed_between_two_lines_leaves_no_server_without_checks(
        self,
    ) -> None:
        plane = HAProxyPlane()
        try:
            driver = plane.driver()
            assert isinstance(driver, Driver)
            targets = {
                Endpoint("127.0.0.1", 20000 + n): Target(OUT, name=f"shop-{n:02}")
                for n in range(30)
            }
            views = driver._look(plane.names)
            plans = {name: driver._plan(name, view, targets) for name, view in views.items()}
            for name, view in views.items():
                first = driver._work(name, plans[name], view)["lines"][:1]
                driver._ask({name: {"lines": first}})
            for one in plane.balancers:
                assert one.servers() and "MAINT" not in one.servers().values()
            remove(driver, {}, *targets)
        finally:
            plane.close()

    def test_a_balancer_that_never_answers_is_an_error(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr(
            "ansible_collections.progressive.rollout.plugins.plugin_utils.traffic.haproxy._TIMEOUT",
            0.1,
        )
        with socket.create_server(("127.0.0.1", 0)) as silent:
            name = f"127.0.0.1:{silent.getsockname()[1]}"
            driver = made(
                {"socket": name, "backend": "shop", "path": str(tmp_path)}, context(Here())
            )
            with pytest.raises(TrafficError, match=f"load balancer {name} .*timed out"):
                driver.observe()

    @pytest.mark.parametrize(
        ("answer", "complaint"),
        [
            (b"x", "timed out"),
            (b"x" * (1 << 20), "the answer is longer than 2 MB"),
            (b"\x00\xff\x1b]0;PWNED\x07\n" * 9, "'shop' at load balancer"),
            (
                b"1\n1 shop 1 a\n# pxname,svname,addr\nshop,a,1:1\n",
                "'shop' at load balancer .* the list of servers is not HAProxy's",
            ),
        ],
        ids=["trickle", "flood", "binary", "fields"],
    )
    def test_an_answer_is_bounded_and_one_that_is_none_is_told(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answer: bytes, complaint: str
    ) -> None:
        monkeypatch.setattr(
            "ansible_collections.progressive.rollout.plugins.plugin_utils.traffic.haproxy._TIMEOUT",
            1.0,
        )
        monkeypatch.setattr(agent._talk, "LIMIT", 2 << 20)
        with hostile(
            answer,
            pause=0.1 if answer == b"x" else 0.0,
            times=ENDLESS if set(answer) == set(b"x") else 1,
        ) as port:
            name = f"127.0.0.1:{port}"
            driver = made(
                {"socket": name, "backend": "shop", "path": str(tmp_path)}, context(Here())
            )
            for action in (driver.observe, driver.check):
                began = time.monotonic()
                with pytest.raises(TrafficError, match=f"{name}.*") as raised:
                    action()
                assert time.monotonic() - began < PATIENCE and "\x1b" not in str(raised.value)
                if action == driver.observe:
                    assert re.search(complaint, str(raised.value)), raised.value

    @pytest.mark.parametrize(
        "value",
        [[], 7, "text", {}, {"{name}": []}, {"{name}": {"texts": [1]}}, {"{name}": {"texts": []}}],
    )
    def test_an_agent_that_answers_something_else_is_told(
        self, tmp_path: Path, value: t.Any
    ) -> None:
        class Strange(Here):
            def ask(
                self, agent_name: str, requests: Mapping[str, t.Any], timeout: float
            ) -> dict[str, Answer]:
                return dict.fromkeys(
                    requests, Answer(json.loads(json.dumps(value).replace("{name}", "/s")))
                )

        driver = made(
            {"hosts": "lb1", "socket": "/s", "backend": "shop", "path": str(tmp_path)},
            context(Strange()),
        )
        for action in (driver.check, driver.observe):
            with pytest.raises(
                TrafficError, match=r"load balancer lb1 .*its agent does not answer as expected"
            ):
                action()

    def test_a_slot_that_was_given_to_another_instance_meanwhile_is_not_touched(
        self, backends: Backends
    ) -> None:
        plane, a, b = SlotPlane(), backends.start("a"), backends.start("b")
        try:
            bring_in(plane.driver(), {a: Target(IN), b: Target(IN)})
            (name,) = (
                server.name
                for e, server in plane.driver().observe()[plane.names[0]].items()
                if e == a
            )

            def taken() -> None:
                plane.balancers[0].ask(f"set server shop/{name} addr {b.address} port {b.port}")

            late = t.cast(Driver, plane.driver())
            delays = t.cast(Transport, Late(late.context.transport, taken))
            late.context = replace(late.context, transport=delays)
            before = plane.balancers[0].servers()
            with pytest.raises(
                TrafficError,
                match=(
                    rf"server {name} has the address {b.address} {b.port} and had {a.address}"
                    rf" {a.port}"
                ),
            ):
                apply(late, {a: Target(OUT), b: Target(IN)})
            assert plane.balancers[0].servers() == before
            remove(plane.driver(), {b: Target(IN)}, a)
        finally:
            plane.close()

    def test_a_socket_is_at_the_path_of_its_host(self) -> None:
        names = ("lb1", "lb-1.example.org", "::1")
        given = {"hosts": ",".join(names), "backend": "shop"}
        for place in ("/run/{host}/admin.sock", "{host}:9999", "[{host}]:9999"):
            driver = made({**given, "socket": place}, context(Here()))
            assert driver.balancers == {
                host: (host, place.replace("{host}", host)) for host in names
            }
        with pytest.raises(InputError, match=r"unknown placeholder '\{port\}'") as refused:
            made({**given, "socket": "/run/{port}.sock"}, context(Here()))
        assert refused.value.id == "PR-112"

    @pytest.mark.parametrize("place", ["::1", "::1:9999", "fe80::1:9999", "admin.sock", ":9999"])
    def test_what_may_be_an_address_without_a_port_is_refused(self, place: str) -> None:
        with pytest.raises(InputError, match=r"rollout_traffic\.socket.*\[IPv6\]:port") as refused:
            made({"socket": place, "backend": "shop"}, context(Here()))
        assert refused.value.id == "PR-122"
        assert made({"socket": "[::1]:9999", "backend": "shop"}, context(Here())).balancers

    def test_each_host_has_a_state_file_of_its_own(self, tmp_path: Path) -> None:
        balancer = HAProxy(
            "    server slot1 slot.invalid:1 init-addr last,127.0.0.1 check fall 2 disabled\n"
        )
        given = {
            "hosts": "lb1",
            "socket": balancer.socket,
            "backend": "shop",
            "slots": "slot",
            "path": str(tmp_path / "path"),
            "state_file": f"{tmp_path}/{{host}}.state",
        }
        try:
            apply(made(given, context(Here())), {Endpoint("127.0.0.1", free_port()): Target(OUT)})
            assert " slot1 " in (tmp_path / "lb1.state").read_text()
            with pytest.raises(InputError, match=r"state_file: unknown placeholder '\{port\}'"):
                made({**given, "state_file": "/{port}"}, context(Here()))
        finally:
            balancer.close()

    def test_who_lacks_slots_is_told_how_many_there_are(self) -> None:
        plane = SlotPlane()
        try:
            assert t.cast(Driver, plane.driver()).capacity() == dict.fromkeys(plane.names, 6)
            assert t.cast(Driver, HAProxyPlane.driver(plane)).capacity() == {}
            plane.balancers[1].ask(
                "set server shop/slot3 addr ::1 port 0;set server shop/slot3 state ready"
            )
            assert t.cast(Driver, plane.driver()).capacity() == {
                plane.names[0]: 6,
                plane.names[1]: 5,
            }, "somebody else's"
        finally:
            plane.close()

    @pytest.mark.parametrize("option", ["path", "state_file"])
    def test_a_directory_that_cannot_be_written_is_refused_at_first(
        self, tmp_path: Path, option: str
    ) -> None:
        balancer = HAProxy(
            "    server slot1 slot.invalid:1 init-addr last,127.0.0.1 check fall 2 disabled\n"
        )
        (tmp_path / "file").touch()
        try:
            options = {
                "hosts": "lb1",
                "socket": balancer.socket,
                "backend": "shop",
                "slots": "slot",
                "path": str(tmp_path / "new"),
            }
            made(options, context(Here(), epoch=0)).check()
            assert not (tmp_path / "new").exists()
            with pytest.raises(
                InputError,
                match=rf"rollout_traffic.{option}: {tmp_path}/file is not a directory .*lb1",
            ):
                made({**options, option: str(tmp_path / "file" / "x")}, context(Here())).check()
        finally:
            balancer.close()

    def test_a_link_beside_the_state_file_is_not_followed(self, tmp_path: Path) -> None:
        balancer = HAProxy(
            "    server slot1 slot.invalid:1 init-addr last,127.0.0.1 check fall 2 disabled\n"
        )
        victim, state = tmp_path / "victim", tmp_path / "state"
        victim.write_text("untouched")
        for name in (".state.tmp", "state.rollout.tmp", "state.tmp"):
            (tmp_path / name).symlink_to(victim)
        try:
            own = {"slots": "slot", "path": str(tmp_path), "state_file": str(state)}
            driver = made(
                {"hosts": "lb1", "socket": balancer.socket, "backend": "shop", **own},
                context(Here()),
            )
            apply(driver, {Endpoint("127.0.0.1", free_port()): Target(OUT)})
            assert " slot1 " in state.read_text() and victim.read_text() == "untouched"
            (tmp_path / ".state.tmp").touch()  # of a run that was killed
            made(driver.options, context(Here(), epoch=2)).observe()
            assert not (tmp_path / ".state.tmp").exists()
        finally:
            balancer.close()

    def test_an_algorithm_that_takes_no_weights_is_refused_before_an_entry_goes_in(self) -> None:
        balancer = HAProxy(
            "    balance static-rr\n    server slot1 127.0.0.1:1 check fall 2 disabled\n"
        )
        try:
            options = {
                "hosts": "lb1",
                "socket": balancer.socket,
                "backend": "shop",
                "slots": "slot",
                "path": f"{balancer.directory}/rollout",
            }
            with pytest.raises(
                TrafficError, match=r".*expected out with weight 20.*static LB algorithm"
            ):
                apply(
                    made(options, context(Here())),
                    {Endpoint("127.0.0.1", free_port()): Target(OUT, 20)},
                )
        finally:
            balancer.close()

    def test_a_preview_is_another_backend_that_is_there(self) -> None:
        plane = HAProxyPlane()
        try:
            assert not plane.driver().previews()
            for name in ("shop", "no name"):
                with pytest.raises(InputError, match=f"rollout_traffic.preview: '{name}'"):
                    plane.driver(preview=name)
            missing = plane.driver(preview="missing").previews()[0].traffic
            for action in (missing.check, missing.observe):
                with pytest.raises(
                    TrafficError, match=r"rollout_traffic.preview: 'missing' at load balancer"
                ):
                    action()
        finally:
            plane.close()

    def test_a_balancer_that_goes_between_the_look_and_the_change_is_named(
        self, backends: Backends
    ) -> None:
        plane, a, b = HAProxyPlane(), backends.start("a"), backends.start("b")
        old = {a: Target(IN, name="shop-a"), b: Target(OUT, name="shop-b")}

        class Ends(Here):
            def ask(self, *args: t.Any, **kwargs: t.Any) -> dict[str, Answer]:
                if len(self.asked) == 2:  # both were looked at
                    plane.stop(1)
                return super().ask(*args, **kwargs)

        try:
            bring_in(plane.driver(), old)
            prove(plane.driver(), b)
            driver = made(
                {"socket": plane.names, "backend": "shop", "path": plane.path}, context(Ends())
            )
            with pytest.raises(
                TrafficError, match=f"^load balancer {plane.names[1]} [^;]*; does HAProxy run"
            ):
                driver.apply(
                    dict.fromkeys(
                        plane.names, {a: Target(OUT, name="shop-a"), b: Target(IN, name="shop-b")}
                    )
                )
            assert get(plane.fronts[0]) == (200, "b")
            driver.apply({plane.names[0]: old})
            assert get(plane.fronts[0]) == (200, "a")
        finally:
            plane.close()

    def test_values_that_haproxy_cannot_take_are_refused(self) -> None:
        driver = made({"socket": "127.0.0.1:1", "backend": "shop"}, context(Here()))
        with pytest.raises(InputError, match=r"'web1.example' is not an IP address"):
            driver.apply({"127.0.0.1:1": {Endpoint("web1.example", 80): Target(OUT)}})
        with pytest.raises(TrafficError, match="weights are 1 to 256"):
            driver.apply({"127.0.0.1:1": {Endpoint("127.0.0.1", 80): Target(OUT, 257)}})
        assert driver.drain_timeout == 30.0
