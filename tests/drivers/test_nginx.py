# SPDX-License-Identifier: GPL-3.0-or-later
"""The nginx driver against real nginxes, each on a "host" of its own: its own files and ports."""

from __future__ import annotations

import json
import re
import socket
import time
import typing as t
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import leave, probe
from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import nginx as agent
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
from ansible_collections.progressive.rollout.plugins.plugin_utils.traffic.nginx import (
    OPTIONS,
    Driver,
)
from ansible_collections.progressive.rollout.tests.drivers import traffic_contract as contract
from ansible_collections.progressive.rollout.tests.support import nginx as lab
from ansible_collections.progressive.rollout.tests.support.contexts import Knows
from ansible_collections.progressive.rollout.tests.support.ports import free_port
from ansible_collections.progressive.rollout.tests.support.processes import stopped
from ansible_collections.progressive.rollout.tests.support.waiting import PATIENCE, until


def made(given: Mapping[str, t.Any], context: DriverContext) -> Driver:
    return Driver(DriverModule(Driver, OPTIONS).check(given, "rollout_traffic"), context)


IN, OUT, SERVICE = contract.IN, contract.OUT, contract.SERVICE
HEALTH = {"http": "/healthz", "interval": "100ms", "timeout": "2s", "rise": 2, "fall": 2}
PATH = "/etc/nginx/rollout"
CONFIG = "/etc/nginx/nginx.conf"
PID = "/run/nginx.pid"
STATUS = "127.0.0.1:9180"
OTHER_STATUS = "127.0.0.1:9181"


class Hosts:
    """Runs the agents for hosts that share this machine: the same paths and ports mean other
    ones on each of them.
    """

    def __init__(self, nginxes: Mapping[str, t.Any]) -> None:
        self.nginxes = nginxes

    def hosts(self, pattern: str) -> list[str]:
        return list(self.nginxes) if pattern == "edges" else []

    def address(self, host: str) -> str:
        return "127.0.0.1"

    def run(self, commands: Mapping[str, Command], timeout: float) -> dict[str, Result]:
        raise NotImplementedError

    def ask(
        self, name: str, requests: Mapping[str, Mapping[str, t.Any]], timeout: float
    ) -> dict[str, Answer]:
        def one(host: str) -> Answer:
            nginx, text = self.nginxes[host], json.dumps(requests[host])
            own = {PATH: nginx.path, CONFIG: nginx.config, PID: nginx.pid}
            own |= {"9180": nginx.status, "9181": nginx.other_status}
            text = re.sub("|".join(own), lambda found: str(own[found[0]]), text)
            return Answer(
                value={"nginx": agent.main, "probe": probe.main, "leave": leave.main}[name](
                    json.loads(text)
                )
            )

        with ThreadPoolExecutor(len(requests)) as pool:
            return dict(zip(requests, pool.map(one, requests), strict=True))


class Plane:
    """Two nginxes, as the contract wants them."""

    names = ("edge1", "edge2")
    added = ""  # by hand to the file that an older version left

    def __init__(self, nginxes: Sequence[t.Any]) -> None:
        self.nginxes = dict(zip(self.names, nginxes, strict=True))
        self.fronts = [nginx.front for nginx in nginxes]
        for nginx in nginxes:
            nginx.other_status = free_port()

    def driver(
        self,
        epoch: int = 1,
        service: str = SERVICE,
        health: Mapping[str, t.Any] | None = None,
        adopted: Sequence[str] = (),
        adopting: Sequence[str] = (),
        in_place: bool = False,
        **options: t.Any,
    ) -> Driver:
        return made(
            {"hosts": "edges", **options},
            DriverContext(
                service,
                Hosts(self.nginxes),
                parse(HEALTH if health is None else health),
                known=Knows(epoch=epoch, adopted=adopted),
                adopting=adopting,
                in_place=in_place,
            ),
        )

    def halting(self) -> Driver:
        """Its file cannot be written: what is in the way is no file. (Root may write to any.)"""
        (self.nginxes[self.names[1]].path / ".shop.conf.tmp").mkdir()
        return self.driver()

    def wrong(self) -> Sequence[tuple[Mapping[str, t.Any], str]]:
        taken = f"127.0.0.1:{self.nginxes['edge1'].front[1]}"
        return [
            (
                {"pid": "/nowhere/nginx.pid"},
                "rollout_traffic.pid: '/nowhere/nginx.pid': nginx on edge1: it does not run",
            ),
            ({"pid": "nginx.pid"}, "rollout_traffic.pid: 'nginx.pid' is not an absolute path"),
            (
                {"config": "/nowhere.conf"},
                "rollout_traffic.config: '/nowhere.conf': nginx on edge1: nginx -T refuses it: ",
            ),
            (
                {"path": "/nowhere/at/all"},
                "rollout_traffic.path: '/nowhere/at/all': nginx on edge1: it is not a directory",
            ),
            (
                {"path": "/tmp"},
                (
                    "nginx.conf does not include /tmp/shop.conf; create it with `upstream shop {"
                    " server"
                ),
            ),
            ({"upstream": "cart"}, "rollout/cart.conf; create it with `upstream cart {"),
            ({"upstream": "shop; }"}, "rollout_traffic.upstream: 'shop; }'"),
            (
                {"status": taken},
                f"rollout_traffic.status: '{taken}': nginx on edge1: something else answers there",
            ),
            ({"status": "9180"}, "rollout_traffic.status: '9180'"),
            ({"status": "localhost:9180"}, "rollout_traffic.status: 'localhost'"),
            ({"match": {"header": "X-Canary", "value": "1"}}, "rollout_traffic.match: nginx"),
            (
                {"sticky": {"cookie": "user"}},
                "rollout_traffic.sticky: nginx distributes requests in turn",
            ),
            ({"mirror": 10}, "rollout_traffic.mirror: nginx"),
            ({"hosts": "nobody"}, "rollout_traffic.hosts: 'nobody'"),
            ({"drain_timeout": "soon"}, "rollout_traffic.drain_timeout: 'soon'"),
        ]

    def neighbour(self, **options: t.Any) -> Driver:
        for nginx in self.nginxes.values():
            (nginx.path / "cart.conf").write_text(
                "# nothing here yet: server\nupstream cart {\n    server 127.0.0.1:9 down;\n}\n"
            )
        return self.driver(service="cart", **{"upstream": "cart"} | options)

    def options(self) -> Sequence[tuple[Mapping[str, t.Any], t.Callable[[], bool]]]:
        def told(port: str) -> t.Callable[[], bool]:
            return lambda: all(
                contract.get(("127.0.0.1", getattr(nginx, port)))[1].startswith("rollout shop;")
                for nginx in self.nginxes.values()
            )

        return [
            ({"status": OTHER_STATUS}, told("other_status")),
            ({"drain_timeout": "5s"}, told("status")),
        ]

    def older(self, endpoints: Sequence[Endpoint]) -> Driver:
        for nginx in self.nginxes.values():
            nginx.stop()
            ports = {"9180": nginx.status}
            for name, text in contract.left_by_9a6312c("nginx", endpoints, ports).items():
                more = self.added if name == "shop.conf" else ""
                (nginx.path / name).write_text(text + more)
            nginx.start()
        return self.driver()

    def changes(self) -> object:
        """Every write makes another file, whatever stands in it; every reload makes other
        workers.
        """
        files = [file for nginx in self.nginxes.values() for file in sorted(nginx.path.iterdir())]
        crews = [
            sorted(agent.workers(nginx.process.pid))
            for nginx in self.nginxes.values()
            if nginx.process
        ]
        return [(str(file), file.stat().st_ino, file.stat().st_mtime_ns) for file in files], crews

    def by_hand(self, endpoint: Endpoint) -> str | None:
        for nginx in self.nginxes.values():
            text = f"upstream shop {{\n    server {endpoint};\n}}\n"
            (nginx.path / "shop.conf").write_text(text)
        return None

    def spoil(self, endpoint: Endpoint, name: str) -> None:
        (self.nginxes[self.names[1]].path / ".shop.json.tmp").mkdir()

    def stop(self, index: int) -> None:
        self.nginxes[self.names[index]].stop()

    def start(self, index: int) -> None:
        self.nginxes[self.names[index]].start()


class TestNginx(contract.TrafficContract):
    pool_of_shop: t.ClassVar = {"upstream": "shop"}
    counts = False
    # it has no preview
    test_a_dark_set_can_be_looked_at = test_an_older_lease_is_refused_at_the_preview_as_well = None

    @pytest.fixture
    def plane(self) -> Iterator[Plane]:
        nginxes: list[t.Any] = []
        try:
            nginxes.extend(lab.Nginx() for _n in range(2))
            yield Plane(nginxes)
        finally:
            for nginx in nginxes:
                nginx.close()

    def test_what_nginx_refuses_is_said_and_put_back(
        self, plane: Plane, backends: t.Any, monkeypatch: t.Any
    ) -> None:
        driver, a = plane.driver(), backends.start("a")
        contract.bring_in(driver, {a: Target(IN, name="shop-a")})
        edge = plane.nginxes["edge1"]
        before = plane.changes()[0]  # type: ignore[index]
        config = edge.config.read_text()
        lighter = {"edge1": {a: Target(IN, 50, "shop-a")}}

        edge.config.write_text(config.replace("http {", "http { nonsense on;"))
        with pytest.raises(
            TrafficError,
            match=(
                r"nginx.conf': nginx on edge1: nginx -t refuses it: .*unknown directive"
                r" \"nonsense\""
            ),
        ):
            driver.apply(lighter)

        with socket.create_server(("127.0.0.1", 0)) as taken:  # which `nginx -t` does not see
            monkeypatch.setattr(agent, "RELOAD_TIMEOUT", 1.0)
            line = f"http {{ server {{ listen 127.0.0.1:{taken.getsockname()[1]}; }}"
            edge.config.write_text(config.replace("http {", line))
            with pytest.raises(
                TrafficError,
                match=(
                    r"nginx on edge1: it was reloaded and does not serve it within 1 s; its"
                    r" error log"
                ),
            ):
                driver.apply(lighter)
        assert "Address already in use" in edge.log()

        texts = [Path(name).read_text() for name, *_rest in before]
        assert [Path(name).read_text() for name, *_rest in plane.changes()[0]] == texts  # type: ignore[index]
        assert contract.everywhere(driver.observe(), a, lambda s: s.weight == 100)
        edge.config.write_text(config)

        worker = min(agent.workers(edge.process.pid))
        with (
            stopped(worker),
            pytest.raises(
                TrafficError,
                match=(
                    r"nginx on edge1: it was reloaded and has old workers that do not quit within 1"
                    r" s"
                ),
            ),
        ):
            driver.apply(lighter)
        monkeypatch.undo()
        assert [s.weight for s in contract.entries(driver.apply(lighter), a)] == [50]

    def test_a_request_that_an_old_worker_is_still_reading_counts(
        self, plane: Plane, backends: t.Any
    ) -> None:
        driver, a, b = plane.driver(), backends.start("a"), backends.start("b")
        contract.bring_in(driver, {a: Target(IN, name="shop-a"), b: Target(OUT, name="shop-b")})
        contract.prove(driver, b)

        def active(endpoint: Endpoint) -> list[int]:
            return [server.active for server in contract.entries(driver.observe(), endpoint)]

        with socket.create_connection(plane.fronts[0], 20) as early:
            early.sendall(b"GET / HTTP/1.1\r\nHost: shop\r\n")
            contract.apply(driver, {a: Target(OUT, name="shop-a"), b: Target(IN, name="shop-b")})
            assert (active(a), active(b)) == ([1, 0], [0, 0])
            with socket.create_connection(plane.fronts[0], 20) as late:
                late.sendall(b"GET / HTTP/1.1\r\nHost: shop\r\n")
                contract.apply(driver, {b: Target(IN, 50, "shop-b")})
                # it is not forgotten, and what knows it as gone does not count
                assert active(a) == [1]
                early.sendall(b"\r\n")
                assert early.recv(65536).endswith(b"\r\n\r\na")
                contract.remove(driver, {b: Target(IN, 50, "shop-b")}, a)
                late.sendall(b"\r\n")
                assert late.recv(65536).endswith(b"\r\n\r\nb")

    def test_what_a_killed_run_wrote_and_nginx_was_not_told_is_not_taken_for_true(
        self, plane: Plane, backends: t.Any
    ) -> None:
        driver, a, b = plane.driver(), backends.start("a"), backends.start("b")
        both = {a: Target(IN, name="shop-a"), b: Target(IN, name="shop-b")}
        contract.bring_in(driver, both)
        file = plane.nginxes["edge1"].path / "shop.conf"
        written = file.read_text()
        contract.apply(driver, both | {b: Target(OUT, name="shop-b")})
        file.write_text(written)
        assert [s.rotation for s in contract.entries(plane.driver().observe(), b)] == [OUT, OUT]
        contract.apply(driver, both | {b: Target(OUT, name="shop-b")})
        assert file.read_text() != written
        plane.stop(0)
        plane.start(0)
        assert set(contract.answers(plane)) == {"a"}

    def test_an_instance_that_nginx_does_not_reach_any_more(
        self, plane: Plane, backends: t.Any
    ) -> None:
        driver, a, b = plane.driver(), backends.start("a"), backends.start("b")
        both = {a: Target(IN, name="shop-a"), b: Target(IN, name="shop-b")}
        contract.bring_in(driver, both)
        backends.kill(a)
        until(
            lambda: contract.everywhere(driver.observe(), a, lambda s: not s.lb_healthy),
            f"{a} is not proven any more",
        )
        new = both | {a: Target(IN, name="shop-c")}
        with pytest.raises(TrafficError, match=f"{a} is not put in rotation: it has no entry"):
            contract.apply(driver, new)
        backends.start_at(a, "c")
        contract.apply(driver, new | {a: Target(OUT, name="shop-c")})
        contract.prove(driver, a)
        contract.apply(driver, new)
        assert set(contract.answers(plane)) == {"b", "c"}

    def test_what_nginx_has_from_somebody_else_is_not_written_over(
        self, plane: Plane, backends: t.Any
    ) -> None:
        new = backends.start("new")
        (plane.nginxes["edge2"].path / "shop.conf").write_text(
            "upstream shop { server 10.0.0.1; server 10.0.0.2:80 down; } # server\n"
        )
        with pytest.raises(
            TrafficError,
            match=r"nginx on edge2: .*no rollout wrote: 10.0.0.1:80; .*name them .*rollout_adopt",
        ):
            plane.driver().check()
        with pytest.raises(TrafficError, match=r"10.0.0.1:80; they would get no more requests"):
            contract.apply(plane.driver(), {new: Target(OUT, name="shop-1")})

    @pytest.mark.parametrize(
        ("line", "todo"),
        [
            ("least_conn", "take it out"),
            ("keepalive 16", "take it out"),
            ("ip_hash", "take it out"),
            ("server 10.0.0.1:80 backup", "give the server an address, a port, and no options but"),
            ("server unix:/run/app", "give the server an address, a port, and no options but"),
            ("server localhost:80", "give the server an address, a port, and no options but"),
        ],
    )
    def test_what_a_rollout_would_not_keep_is_named(
        self, plane: Plane, line: str, todo: str
    ) -> None:
        """Without a server that serves, requests would fail, so none is to be taken out."""
        (plane.nginxes["edge2"].path / "shop.conf").write_text(
            f"upstream shop {{ server 10.0.0.9:80; {line}; }}\n"
        )
        found = f"shop.conf has `{line}`, which a rollout would not keep.*; {todo}"
        with pytest.raises(TrafficError, match=found):
            plane.driver(adopting=["10.0.0.9:80"]).check()

    def test_in_place_servers_written_by_hand_are_those_of_hosts(
        self, plane: Plane, backends: t.Any
    ) -> None:
        one, two = backends.start("one"), backends.start("two")
        for nginx in plane.nginxes.values():
            (nginx.path / "shop.conf").write_text(
                f"upstream shop {{ server {one} weight=2; server {two} weight=2; }}\n"
            )
            nginx.stop()
            nginx.start()
        driver = plane.driver(in_place=True)
        driver.check()
        with pytest.raises(TrafficError, match=f"no rollout wrote: {two}"):
            contract.apply(driver, {one: Target(IN, 2, "web1")})
        contract.apply(driver, {one: Target(OUT, 2, "web1"), two: Target(IN, 2, "web2")})
        assert set(contract.answers(plane)) == {"two"}
        contract.prove(driver, one)
        contract.apply(driver, {one: Target(IN, 2, "web1"), two: Target(IN, 2, "web2")})
        assert set(contract.answers(plane)) == {"one", "two"}

    def test_adopted_servers_leave_and_return(self, plane: Plane, backends: t.Any) -> None:
        one, two, new = (backends.start(name) for name in ("one", "two", "new"))
        for nginx in plane.nginxes.values():
            (nginx.path / "shop.conf").write_text(
                f"# ours\nupstream shop {{\n    server {one} weight=3 max_fails=2; # first\n"
                f"    server {two} weight=3;\n}}\n"
            )
            nginx.stop()
            nginx.start()
        names = [str(one), str(two)]
        plane.driver(adopting=names).check()
        by_hand = plane.driver(adopting=names).observe()
        assert contract.everywhere(
            by_hand,
            one,
            lambda s: (s.ours, s.name, s.weight, s.lb_healthy) == (False, names[0], 3, True),
        )
        driver = plane.driver(adopted=names)
        old = {one: Target(IN, 100, names[0]), two: Target(IN, 100, names[1])}
        contract.bring_in(driver, old | {new: Target(IN, 100, "shop-1")})
        assert set(contract.answers(plane)) == {"one", "two", "new"}
        assert contract.everywhere(
            driver.observe(), one, lambda s: (s.ours, s.service) == (True, SERVICE)
        )
        contract.remove(
            driver, {two: Target(IN, 100, names[1]), new: Target(IN, 100, "shop-1")}, one
        )
        assert set(contract.answers(plane)) == {"two", "new"}
        contract.bring_in(driver, old | {new: Target(IN, 100, "shop-1")})
        contract.remove(driver, old, new)
        assert set(contract.answers(plane)) == {"one", "two"}
        plane.driver(adopted=names).check()
        with pytest.raises(TrafficError, match="no rollout wrote"):  # the journal was lost
            plane.driver().check()

    def test_idle_connections_that_a_reload_closes_are_named(
        self, plane: Plane, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lines: list[str] = []
        driver, config = plane.driver(), plane.nginxes["edge2"].config
        monkeypatch.setattr(driver.transport, "print_line", lines.append, raising=False)
        driver.check()
        assert lines == []
        config.write_text(config.read_text().replace("keepalive_timeout 0;", ""))
        driver.check()
        assert [line.partition(":")[0] for line in lines] == ["nginx on edge2"]
        assert "keepalive_timeout 75s" in lines[0]

    def test_nothing_but_names_and_addresses_comes_into_its_configuration(
        self, plane: Plane
    ) -> None:
        here = Endpoint("127.0.0.1", 1)
        for endpoint, target in (
            (here, Target(OUT, 0, "a")),
            (here, Target(OUT, name="a; }")),
            (Endpoint("a.b", 1), Target(OUT)),
        ):
            with pytest.raises(
                (InputError, TrafficError), match=r"weight 0|'a; }'|'a.b' is not an IP address"
            ):
                contract.apply(plane.driver(), {endpoint: target})

    def test_links_beside_the_files_are_not_followed(
        self, plane: Plane, backends: t.Any, tmp_path: Path
    ) -> None:
        victim = tmp_path / "victim"
        victim.write_text("untouched")
        victim.chmod(0o600)
        for nginx in plane.nginxes.values():
            for name in ("shop.conf.tmp", "shop.json.tmp", ".shop.conf.tmp", ".shop.json.tmp"):
                (nginx.path / name).symlink_to(victim)
        contract.bring_in(plane.driver(), {backends.start("a"): Target(IN, name="shop-a")})
        assert (victim.read_text(), victim.stat().st_mode & 0o777) == ("untouched", 0o600)

    @pytest.mark.parametrize("answer", [b"x", b"x" * (1 << 20)], ids=["trickle", "flood"])
    def test_an_answer_is_bounded(self, monkeypatch: pytest.MonkeyPatch, answer: bytes) -> None:
        monkeypatch.setattr(agent, "ANSWER", 1.0)
        monkeypatch.setattr(agent._talk, "LIMIT", 2 << 20)
        with contract.hostile(answer, 0.1 if answer == b"x" else 0.0, contract.ENDLESS) as port:
            began = time.monotonic()
            with pytest.raises(
                agent.Failed,
                match=r"nothing is answered there: (timed out|the answer is longer than 2 MB)",
            ):
                agent.status({"status": ["127.0.0.1", port], "upstream": "shop"})
        assert time.monotonic() - began < PATIENCE

    @pytest.mark.parametrize("said", ["a b;", "127.0.0.1 x 1 shop-1;", "\x1b]0;PWNED\x07;"])
    def test_what_no_rollout_wrote_is_told(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: str
    ) -> None:
        monkeypatch.setattr(agent, "status", lambda _request: f"rollout shop;{said}")
        with pytest.raises(agent.Failed, match=r"was not written by a rollout") as raised:
            agent.look({"path": str(tmp_path), "upstream": "shop"}, 1)
        assert "\x1b" not in str(raised.value)
