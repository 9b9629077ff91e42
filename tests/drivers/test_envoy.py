# SPDX-License-Identifier: GPL-3.0-or-later
"""The Envoy driver against real Envoys, each on a "host" of its own: its own directory and
ports.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import stat
import threading
import time
import typing as t
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import envoy as agent
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
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.traffic import Target
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.agents import Answer
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.connections import (
    Command,
    Result,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.traffic.envoy import (
    OPTIONS,
    Driver,
)
from ansible_collections.progressive.rollout.tests.drivers import traffic_contract as contract
from ansible_collections.progressive.rollout.tests.support import envoy as lab
from ansible_collections.progressive.rollout.tests.support.contexts import Knows
from ansible_collections.progressive.rollout.tests.support.ports import free_port
from ansible_collections.progressive.rollout.tests.support.waiting import PATIENCE, until


def place(endpoint: Endpoint) -> dict[str, t.Any]:
    return {"socket_address": {"address": endpoint.address, "port_value": endpoint.port}}


def made(given: Mapping[str, t.Any], context: DriverContext) -> Driver:
    return Driver(DriverModule(Driver, OPTIONS).check(given, "rollout_traffic"), context)


IN, OUT, SERVICE = contract.IN, contract.OUT, contract.SERVICE
HEALTH = {"http": "/healthz", "interval": "100ms", "timeout": "2s", "rise": 2, "fall": 2}
PATH = "/var/lib/envoy"
ADMIN = "127.0.0.1:9901"
LISTEN = "127.0.0.1:8080"
PREVIEW = "127.0.0.1:8081"


def by_hand(address: str, port: int, backend: Endpoint) -> dict[str, t.Any]:
    """What people write into Envoy's own configuration: a listener, and the cluster `old`."""

    def at(host: str, port: int) -> dict[str, t.Any]:
        return {"address": {"socket_address": {"address": host, "port_value": port}}}

    types = "type.googleapis.com/envoy.extensions.filters"
    router = {"@type": f"{types}.http.router.v3.Router"}
    everything = {
        "name": "all",
        "domains": ["*"],
        "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "old"}}],
    }
    manager = {
        "@type": f"{types}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "old",
        "route_config": {"virtual_hosts": [everything]},
        "http_filters": [{"name": "router", "typed_config": router}],
    }
    chain = {"filters": [{"name": "http", "typed_config": manager}]}
    endpoints = [{"lb_endpoints": [{"endpoint": at(*backend)}]}]
    cluster = {
        "name": "old",
        "type": "STATIC",
        "connect_timeout": "1s",
        "load_assignment": {"cluster_name": "old", "endpoints": endpoints},
    }
    listener = {"name": "by-hand", **at(address, port), "filter_chains": [chain]}
    return {"listeners": [listener], "clusters": [cluster]}


class Hosts:
    """Runs the agent for hosts that share this machine: the same path and ports mean other ones
    on each of them.
    """

    def __init__(self, envoys: Mapping[str, t.Any]) -> None:
        self.envoys = envoys

    def hosts(self, pattern: str) -> list[str]:
        return list(self.envoys) if pattern == "edges" else []

    def address(self, host: str) -> str:
        return "127.0.0.1"

    def run(self, commands: Mapping[str, Command], timeout: float) -> dict[str, Result]:
        raise NotImplementedError

    def ask(
        self, name: str, requests: Mapping[str, Mapping[str, t.Any]], timeout: float
    ) -> dict[str, Answer]:
        def one(host: str) -> Answer:
            envoy, text = self.envoys[host], json.dumps(requests[host])
            own = {
                PATH: envoy.path,
                "8080": envoy.listen,
                "8081": envoy.preview,
                "9901": envoy.admin,
            }
            text = re.sub("|".join(own), lambda found: str(own[found[0]]), text)
            return Answer(value={"envoy": agent.main, "leave": leave.main}[name](json.loads(text)))

        with ThreadPoolExecutor(len(requests)) as pool:
            return dict(zip(requests, pool.map(one, requests), strict=True))


class Plane:
    """Two Envoys, as the contract wants them."""

    names = ("edge1", "edge2")

    def __init__(self, envoys: Sequence[t.Any]) -> None:
        self.envoys = dict(zip(self.names, envoys, strict=True))
        self.fronts = [("127.0.0.1", envoy.listen) for envoy in envoys]
        for envoy in envoys:
            envoy.preview = free_port()
        self.previews = [("127.0.0.1", envoy.preview) for envoy in envoys]

    def driver(
        self,
        epoch: int = 1,
        service: str = SERVICE,
        health: Mapping[str, t.Any] | None = None,
        **options: t.Any,
    ) -> Driver:
        settings = {
            "hosts": "edges",
            "path": PATH,
            "admin": ADMIN,
            "listen": LISTEN,
            "retry": 0,
            **options,
        }
        return made(
            settings,
            DriverContext(
                service,
                Hosts(self.envoys),
                parse(HEALTH if health is None else health),
                known=Knows(epoch=epoch),
            ),
        )

    def halting(self) -> Driver:
        """Its file of endpoints cannot be written: what is in the way is no file. (Root may
        write to any.)
        """
        (self.envoys[self.names[1]].path / ".eds-shop.json.tmp").mkdir()
        return self.driver()

    def previewing(self) -> tuple[Driver, Driver]:
        driver = self.driver(preview=PREVIEW)
        (preview,) = driver.previews()
        assert not preview.idle_only
        return driver, t.cast(Driver, preview.traffic)

    def wrong(self) -> Sequence[tuple[Mapping[str, t.Any], str]]:
        closed = f"127.0.0.1:{free_port()}"
        return [
            ({"admin": closed}, f"rollout_traffic.admin: '{closed}': Envoy on edge1"),
            ({"admin": "nonsense"}, "rollout_traffic.admin: 'nonsense'"),
            (
                {"admin": "http://127.0.0.1:99999"},
                "rollout_traffic.admin: 'http://127.0.0.1:99999'",
            ),
            ({"path": "relative"}, "rollout_traffic.path: 'relative'"),
            (
                {"path": "/nowhere/at/all"},
                "rollout_traffic.path: '/nowhere/at/all': Envoy on edge1",
            ),
            (
                {"path": "/tmp"},
                (
                    "rollout_traffic.path: '/tmp': Envoy on edge1 (admin 127.0.0.1:9901): Envoy"
                    " reads its lds from"
                ),
            ),
            ({"listen": "8080"}, "rollout_traffic.listen: '8080'"),
            ({"listen": "localhost:8080"}, "rollout_traffic.listen: 'localhost'"),
            ({"preview": "8081"}, "rollout_traffic.preview: '8081'"),
            ({"preview": "localhost:8081"}, "rollout_traffic.preview: 'localhost'"),
            (
                {"preview": LISTEN},
                f"rollout_traffic.preview: '{LISTEN}' is where the service listens",
            ),
            (
                {"match": {"header": "X-Canary"}},
                "rollout_traffic.match: {'header': 'X-Canary'} is not one header or cookie",
            ),
            (
                {"match": {"header": "X Canary", "value": "1"}},
                "rollout_traffic.match.header: 'X Canary'",
            ),
            ({"match": {"header": "X-Canary", "value": True}}, "rollout_traffic.match.value: True"),
            ({"match": {"cookie": "lab", "value": "a;b"}}, "rollout_traffic.match.value: 'a;b'"),
            ({"mirror": 101}, "rollout_traffic.mirror: 101 is too large; must be at most 100"),
            ({"mirror": "some"}, "rollout_traffic.mirror: 'some'"),
            (
                {"sticky": {"header": "user"}},
                "rollout_traffic.sticky: {'header': 'user'} is not a cookie",
            ),
            ({"sticky": {"cookie": "a b"}}, "rollout_traffic.sticky.cookie: 'a b'"),
            ({"hosts": "nobody"}, "rollout_traffic.hosts: 'nobody'"),
            ({"drain_timeout": "soon"}, "rollout_traffic.drain_timeout: 'soon'"),
        ]

    def neighbour(self, **options: t.Any) -> Driver:
        return self.driver(service="cart", **{"listen": PREVIEW} | options)

    def options(self) -> Sequence[tuple[Mapping[str, t.Any], t.Callable[[], bool]]]:
        """Envoy's own dump tells."""

        def dumped(*texts: str) -> t.Callable[[], bool]:
            every = {"~match", "~copies", "stateful_session", "access_log", "num_retries"}

            def agrees() -> bool:
                dumps = [
                    envoy.get("/config_dump?resource=dynamic_listeners")
                    for envoy in self.envoys.values()
                ]
                return all({text for text in every if text in dump} == set(texts) for dump in dumps)

            return agrees

        match = {"match": {"header": "X-Canary", "value": "always"}}
        return [
            (match, dumped("~match")),
            (match | {"mirror": 50}, dumped("~match", "~copies")),
            ({"mirror": 20}, dumped("~copies")),
            ({}, dumped()),
            ({"sticky": {"cookie": "bound"}}, dumped("stateful_session")),
            ({"retry": 3, "access_log": "/dev/null"}, dumped("num_retries", "access_log")),
            ({"preview": PREVIEW, "drain_timeout": "5s"}, dumped()),
            ({}, dumped()),
        ]

    def older(self, endpoints: Sequence[Endpoint]) -> Driver:
        for envoy in self.envoys.values():
            envoy.stop()
            ports = {PATH: envoy.path, "8080": envoy.listen}
            for name, text in contract.left_by_9a6312c("envoy", endpoints, ports).items():
                (envoy.path / name).write_text(text)
            envoy.start()
        return self.driver(retry=3)

    def changes(self) -> object:
        """Every write makes another file, whatever stands in it."""
        files = [file for envoy in self.envoys.values() for file in sorted(envoy.path.iterdir())]
        return [(str(file), file.stat().st_ino, file.stat().st_mtime_ns) for file in files]

    def by_hand(self, endpoint: Endpoint) -> str | None:
        cluster = {
            "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            "name": "shop",
            "type": "STATIC",
            "load_assignment": {
                "cluster_name": "shop",
                "endpoints": [{"lb_endpoints": [{"endpoint": {"address": place(endpoint)}}]}],
            },
        }
        for envoy in self.envoys.values():
            file = envoy.path / "cds.json"
            file.write_text(json.dumps({"version_info": "1", "resources": [cluster]}))
        return None

    def spoil(self, endpoint: Endpoint, name: str) -> None:
        """Put a copy in the place of the directory that the second Envoy watches: it sees no
        update any more.
        """
        path = self.envoys[self.names[1]].path
        path.rename(path.with_name("before"))
        shutil.copytree(path.with_name("before"), path)

    def stop(self, index: int) -> None:
        self.envoys[self.names[index]].stop()

    def start(self, index: int) -> None:
        self.envoys[self.names[index]].start()


class TestEnvoy(contract.TrafficContract):
    @pytest.fixture
    def plane(self) -> Iterator[Plane]:
        envoys = []
        try:
            envoys.extend(lab.Envoy() for _n in range(2))
            yield Plane(envoys)
        finally:
            for envoy in envoys:
                envoy.close()

    def test_what_envoy_refuses_is_said_and_put_back(self, plane: Plane, backends: t.Any) -> None:
        driver, a = plane.driver(), backends.start("a")
        contract.bring_in(driver, {a: Target(IN, name="shop-a")})
        path = plane.envoys["edge1"].path
        before = (path / "eds-shop.json").read_text()
        with pytest.raises(
            TrafficError, match=r"Envoy on edge1 .*eds-shop.json: it refused the update"
        ):
            contract.apply(
                driver,
                {
                    a: Target(IN, name="shop-a"),
                    Endpoint("no-address", 80): Target(OUT, name="shop-b"),
                },
            )
        assert (path / "eds-shop.json").read_text() == before
        assert not list(path.glob(".*.tmp"))
        assert set(contract.answers(plane)) == {"a"}
        with pytest.raises(InputError, match=r"rollout_traffic.listen"):
            plane.driver(listen="127.0.0.1:0")
        with pytest.raises(
            TrafficError, match=r"lds.json: it refused the update.*Address already in use"
        ):
            contract.apply(plane.driver(service="other", listen=ADMIN), {})

    def test_a_new_instance_at_a_known_address_has_to_prove_itself(
        self, plane: Plane, backends: t.Any
    ) -> None:
        driver, a, b = plane.driver(), backends.start("a"), backends.start("b")
        contract.bring_in(driver, {a: Target(IN, name="shop-a"), b: Target(IN, name="shop-b")})
        backends.kill(a)
        new = {a: Target(IN, name="shop-c"), b: Target(IN, name="shop-b")}
        with pytest.raises(TrafficError, match=f"{a} is not put in rotation"):
            contract.apply(driver, new)
        table = contract.apply(driver, {**new, a: Target(OUT, name="shop-c")})
        assert contract.everywhere(table, a, lambda s: not s.lb_healthy and s.name == "shop-c")
        backends.start_at(a, "c")
        contract.prove(driver, a)
        contract.apply(driver, new)
        assert set(contract.answers(plane)) == {"b", "c"}

    def test_an_envoy_that_is_starting_is_not_taken_for_an_empty_one(
        self, plane: Plane, backends: t.Any
    ) -> None:
        driver, a, seen = plane.driver(), backends.start("a"), set[str]()
        # never answers: Envoy waits for its first check
        with socket.create_server(("127.0.0.1", 0)) as silent:
            targets = {
                a: Target(IN, name="shop-a"),
                Endpoint("127.0.0.1", silent.getsockname()[1]): Target(OUT, name="shop-b"),
            }
            contract.bring_in(driver, targets)
            plane.stop(0)
            starting = threading.Thread(target=plane.start, args=(0,))
            starting.start()
            end = time.monotonic() + 30
            while "table" not in seen:
                assert time.monotonic() < end, (seen, plane.envoys["edge1"].log())
                try:
                    table = driver.observe()
                except TrafficError as exc:
                    seen.add("INITIALIZING" if "INITIALIZING" in str(exc) else "no answer")
                else:
                    assert set(table["edge1"]) == set(targets)
                    seen.add("table")
            starting.join()
        assert "INITIALIZING" in seen

    def test_an_entry_of_another_service_in_the_pool_is_told_apart(
        self, plane: Plane, backends: t.Any
    ) -> None:
        """Each service has a cluster, but two cannot listen at one address."""
        contract.apply(plane.driver(), {})
        before = plane.changes()
        with pytest.raises(
            TrafficError,
            match=rf"rollout_traffic.listen: '{LISTEN}': Envoy on edge1 .* service shop listens",
        ):
            plane.neighbour(listen=LISTEN).check()
        assert plane.changes() == before
        plane.driver().check()

    def test_a_static_listener_is_left_alone_and_refused(
        self, plane: Plane, backends: t.Any
    ) -> None:
        """A service that runs already is rolled out beside it, at another port."""
        old, new = backends.start("old"), backends.start("new")
        for envoy in plane.envoys.values():
            envoy.stop()
            file = envoy.home / "bootstrap.json"
            whole = {"static_resources": by_hand("0.0.0.0", envoy.listen, old)}
            file.write_text(json.dumps(json.loads(file.read_text()) | whole))
            envoy.start()
        before = plane.changes()
        with pytest.raises(TrafficError) as refused:
            plane.driver().check()
        assert refused.value.id == "PR-304" and "has a listener there (by-hand)" in str(
            refused.value
        )
        with pytest.raises(TrafficError, match="has a cluster old, which no rollout can change"):
            plane.driver(service="old", listen=PREVIEW).check()
        assert plane.changes() == before
        driver = plane.driver(listen=PREVIEW)
        driver.check()
        contract.bring_in(driver, {new: Target(IN, name="shop-1")})
        assert set(contract.answers(plane)) == {"old"}
        assert {contract.get(front)[1] for front in plane.previews} == {"new"}

    def test_whose_entries_are_is_known_without_their_names(
        self, plane: Plane, backends: t.Any
    ) -> None:
        """Each service has a cluster, but its own configuration may have what it needs."""
        envoy = plane.envoys["edge1"]
        boot = json.loads((envoy.home / "bootstrap.json").read_text())
        cluster = {"name": "shop", "type": "STATIC", "load_assignment": {"cluster_name": "shop"}}
        listener = {"address": place(Endpoint("127.0.0.1", envoy.listen))}
        manager = plane.driver().common["listeners"][0]["filter_chains"]
        other = {**cluster, "name": "old", "load_assignment": {"cluster_name": "old"}}
        manager = json.loads(json.dumps(manager).replace('"cluster": "shop"', '"cluster": "old"'))
        listener["filter_chains"] = manager
        for static, text in (
            ({"clusters": [cluster]}, "has a cluster shop"),
            ({"clusters": [other], "listeners": [listener]}, "has a listener there"),
        ):
            envoy.stop()
            text_of = json.dumps({**boot, "static_resources": static})
            (envoy.home / "bootstrap.json").write_text(text_of)
            envoy.start()
            before = plane.changes()
            with pytest.raises(TrafficError, match=text) as refused:
                plane.driver().check()
            assert refused.value.id == "PR-304" and plane.changes() == before

    def test_a_listener_of_another_service_that_envoy_refuses_keeps_none_of_ours_back(
        self, plane: Plane, backends: t.Any
    ) -> None:
        """As when its port was taken by another program before Envoy was started again."""
        targets = {backends.start("a"): Target(IN, name="shop-a")}
        contract.bring_in(plane.driver(), targets)
        for envoy in plane.envoys.values():
            listeners = json.loads((envoy.path / "lds.json").read_text())
            (ours,) = listeners["resources"]
            taken = {"socket_address": {"address": "127.0.0.1", "port_value": envoy.admin}}
            listeners["resources"].append({**ours, "name": "cart", "address": taken})
            (envoy.path / "new").write_text(json.dumps(listeners))
            (envoy.path / "new").rename(envoy.path / "lds.json")
        for match in ({"header": "X-Canary", "value": "1"}, None):
            contract.apply(plane.driver(match=match), targets)
            dumps = [
                e.get("/config_dump?resource=dynamic_listeners") for e in plane.envoys.values()
            ]
            assert [("~match" in dump, "Address already in use" in dump) for dump in dumps] == [
                (bool(match), True)
            ] * 2
        assert set(contract.answers(plane)) == {"a"}

    @pytest.mark.parametrize(
        ("match", "carries", "others"),
        [
            (
                {"header": "X-Canary", "value": "always"},
                {"x-canary": "always"},
                [{}, {"X-Canary": "always, not"}],
            ),
            (
                [{"header": "X-Other", "value": "1"}, {"header": "X-User", "regex": "qa-[0-9]+"}],
                {"x-user": "qa-42"},
                [{"X-User": "my qa-42"}, {"X-User": "qa-"}],
            ),
            (
                {"cookie": "lab", "value": "a.b"},
                {"Cookie": "one=1; lab=a.b; two=2"},
                [{"Cookie": "lab=aXb"}, {"Cookie": "xlab=a.b"}],
            ),
        ],
        ids=["header", "list", "cookie"],
    )
    def test_what_matches_goes_to_the_new_ones_alone(
        self,
        plane: Plane,
        backends: t.Any,
        match: t.Any,
        carries: dict[str, str],
        others: list[dict[str, str]],
    ) -> None:
        driver = plane.driver(match=match)
        preview = driver.previews()[0].traffic
        assert not plane.driver().previews()
        old, new = (
            {backends.start(f"{kind}{n}"): f"shop-{kind}{n}" for n in range(2)}
            for kind in ("old", "new")
        )

        def go(headers: dict[str, str]) -> set[str]:
            return {
                name[:3] for front in plane.fronts for name in contract.kept(front, 50, headers)
            }

        contract.bring_in(
            driver,
            {e: Target(IN, name=n) for e, n in old.items()}
            | {e: Target(OUT, name=n) for e, n in new.items()},
        )
        assert go(carries) == {"old"}, "nobody is new yet"
        contract.bring_in(preview, {e: Target(IN, name=n) for e, n in new.items()})
        assert go(carries) == {"new"} and all(go(other) == {"old"} for other in ({}, *others))
        contract.bring_in(driver, {e: Target(IN, 50, n) for e, n in (old | new).items()})
        assert go(carries) == {"new"} and go({}) == {"old", "new"}
        for number, dead in enumerate(new, 1):
            backends.kill(dead)
            for asked in (driver, preview):
                until(
                    lambda d=dead, a=asked: (
                        not any(s.lb_healthy for s in contract.entries(a.observe(), d))
                    ),
                    f"{dead} is dead",
                )  # type: ignore[misc]
            assert go(carries) == ({"new"} if number < len(new) else {"old"})
        contract.remove(preview, {}, *new)
        assert go(carries) == {"old"} and preview.observe() == {name: {} for name in plane.names}

    def test_a_part_of_the_requests_is_copied_to_the_dark_ones(
        self, plane: Plane, backends: t.Any
    ) -> None:
        driver, a, b = plane.driver(mirror=25), backends.start("a"), backends.start("b")
        (mirror,) = driver.previews()
        copies = mirror.traffic
        assert mirror.idle_only

        def go() -> int:
            """The requests that come to b of 400 that a answers."""
            before = int(backends.ask(b, "/hits"))
            assert sum(
                (contract.kept(front, 200) for front in plane.fronts), contract.Counter()
            ) == {"a": 400}
            until(
                lambda: not any(s.active for s in contract.entries(copies.observe(), b)),
                "the copies are answered",
            )
            return int(backends.ask(b, "/hits")) - before

        contract.bring_in(driver, {a: Target(IN, name="shop-a"), b: Target(OUT, name="shop-b")})
        assert go() == 0, "nobody is shown yet"
        contract.bring_in(copies, {b: Target(IN, name="shop-b")})
        sent = go()
        assert 50 <= sent <= 150, sent  # five times the deviation to either side
        assert sum(contract.sent(copies.observe(), b)) == sent and contract.sent(
            driver.observe(), b
        ) == [0, 0]
        backends.kill(b)
        assert set(contract.answers(plane)) == {"a"}
        backends.start_at(b, "b")
        contract.remove(copies, {}, b)
        assert go() == 0

    def test_raising_the_share_moves_no_client_back(self, plane: Plane, backends: t.Any) -> None:
        assert (
            contract.raise_the_share(
                plane, plane.driver(sticky={"cookie": "bound"}), backends, contract.Client
            )
            == 0
        )

    def test_a_weight_of_0_is_refused(self, plane: Plane) -> None:
        with pytest.raises(TrafficError, match=r"weight 0"):
            contract.apply(plane.driver(), {Endpoint("127.0.0.1", 1): Target(IN, 0, "shop-a")})

    def test_a_new_health_check_replaces_the_old_one(self, plane: Plane, backends: t.Any) -> None:
        a = backends.start("a")
        contract.bring_in(plane.driver(), {a: Target(IN, name="shop-a")})
        health = {
            "http": "/other",
            "status": [201, "200-204"],
            "headers": {"Host": "shop.example", "X-Probe": "1"},
        }
        for given, shows in ((health, '"shop.example"'), ({}, '"tcp_health_check"')):
            driver = plane.driver(health=given)
            table = contract.apply(driver, {a: Target(IN, name="shop-a")})
            assert contract.everywhere(table, a, lambda s: s.rotation is IN and s.lb_healthy)
            assert shows in plane.envoys["edge1"].get(
                "/config_dump?resource=dynamic_active_clusters"
            )
            assert set(contract.answers(plane)) == {"a"}

    @pytest.mark.parametrize(
        ("retry", "method", "lost"), [(3, "GET", 0), (3, "POST", 1), (0, "GET", 1)]
    )
    def test_a_request_without_an_answer_goes_to_another_instance(
        self, plane: Plane, backends: t.Any, retry: int, method: str, lost: int
    ) -> None:
        """One that accepts and ends the connection when it has the request: it may have worked
        on it.
        """
        a, driver = backends.start("a"), plane.driver(retry=retry, health={"tcp": True})
        with contract.hostile(b"", 0.0, 0) as port:
            contract.bring_in(
                driver,
                {
                    a: Target(IN, name="shop-a"),
                    Endpoint("127.0.0.1", port): Target(IN, name="shop-b"),
                },
            )
            found = sum(
                (contract.kept(plane.fronts[0], 1, method=method) for _n in range(20)),
                contract.Counter(),
            )
        assert (found["503"] > 0) == bool(lost) and found["a"] + found["503"] == 20, found

    @pytest.mark.parametrize("method", ["GET", "POST"])
    def test_a_connection_that_fails_is_tried_at_another_instance(
        self, plane: Plane, backends: t.Any, method: str
    ) -> None:
        a = backends.start("a")
        b = backends.start("b")
        driver = plane.driver(retry=3, health={**HEALTH, "interval": "60s"})
        contract.bring_in(driver, {a: Target(IN, name="shop-a"), b: Target(IN, name="shop-b")})
        backends.kill(b)
        found = sum(
            (contract.kept(plane.fronts[0], 1, method=method) for _n in range(20)),
            contract.Counter(),
        )
        assert found == {"a": 20}
        table = driver.observe()
        first, failed = (contract.entries(table, endpoint)[0] for endpoint in (a, b))
        assert (first.connect_failures, first.requests) == (0, 20)
        assert 0 < failed.connect_failures <= failed.requests, failed
        assert failed.errors <= failed.requests, "a judge compares errors with requests"

    def test_headers_of_checks_are_for_the_owner_and_the_group(
        self, plane: Plane, backends: t.Any
    ) -> None:
        a = backends.start("a")
        for health, mode in (
            (HEALTH, 0o644),
            ({**HEALTH, "headers": {"X-Token": "hunter2"}}, 0o640),
        ):
            contract.apply(plane.driver(health=health), {a: Target(OUT, name="shop-a")})
            for envoy in plane.envoys.values():
                assert stat.S_IMODE((envoy.path / "cds.json").stat().st_mode) == mode
                assert ("hunter2" in (envoy.path / "cds.json").read_text()) == (mode == 0o640)
                assert stat.S_IMODE((envoy.path / "eds-shop.json").stat().st_mode) == 0o644
                others = [file for file in envoy.path.iterdir() if file.name != "cds.json"]
                assert not [file for file in others if "hunter2" in file.read_text()]

    def test_links_beside_the_files_are_not_followed(
        self, plane: Plane, backends: t.Any, tmp_path: Path
    ) -> None:
        victim = tmp_path / "victim"
        victim.write_text("untouched")
        victim.chmod(0o600)
        for envoy in plane.envoys.values():
            for name in ("eds-shop.json", "cds.json", "lds.json"):
                for draft in (f"{name}.tmp", f".{name}.tmp"):
                    (envoy.path / draft).symlink_to(victim)
        contract.bring_in(plane.driver(), {backends.start("a"): Target(IN, name="shop-a")})
        assert (victim.read_text(), stat.S_IMODE(victim.stat().st_mode)) == ("untouched", 0o600)

    @pytest.mark.parametrize(
        ("answer", "complaint"),
        [
            (b"x", "timed out"),
            (b"x" * (1 << 20), "the answer is longer than 2 MB"),
            (b"\x00\xff\x1b]0;PWNED\x07\r\n\r\n", "its admin interface answers"),
            (b"HTTP/1.1 200 OK\r\n\r\n\x1b]0;PWNED\x07", "no JSON"),
            (b"HTTP/1.1 200 OK\r\n\r\n[]", "no JSON object"),
            (b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 100_000, "no JSON"),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}", "broken chunks"),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n{}", "broken chunks"),
            (
                b'HTTP/1.1 200 OK\r\n\r\n{"cluster_statuses": [{}]}',
                "something else than an Envoy's does",
            ),
            (
                b'HTTP/1.1 200 OK\r\n\r\n{"cluster_statuses": {"a": 1}}',
                "something else than an Envoy's does",
            ),
            (
                (
                    b'HTTP/1.1 200 OK\r\n\r\n{"cluster_statuses": [{"name": "shop",'
                    b' "host_statuses": [{}]}]}'
                ),
                "something else than",
            ),
        ],
        ids=[
            "trickle",
            "flood",
            "binary",
            "text",
            "list",
            "deep",
            "chunk",
            "negative",
            "name",
            "mapping",
            "host",
        ],
    )
    def test_an_answer_is_bounded_and_one_that_is_none_is_told(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answer: bytes, complaint: str
    ) -> None:
        monkeypatch.setattr(agent, "ANSWER", 1.0)
        monkeypatch.setattr(agent._talk, "LIMIT", 2 << 20)
        with contract.hostile(
            answer,
            0.1 if answer == b"x" else 0.0,
            contract.ENDLESS if set(answer) == set(b"x") else 1,
        ) as port:
            request = {
                "op": "observe",
                "path": str(tmp_path),
                "owner": "shop",
                "service": "shop",
                "epoch": 0,
                "journal": {},
            }
            began = time.monotonic()
            said = agent.main({**request, "admin": ["127.0.0.1", port]})["error"]
        assert (
            re.search(complaint, said)
            and time.monotonic() - began < PATIENCE
            and "\x1b" not in said
        ), said
