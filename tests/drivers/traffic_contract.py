# SPDX-License-Identifier: GPL-3.0-or-later
"""What every traffic driver must do, against running load balancers.

A driver's tests derive from `TrafficContract` and give it a fixture `plane`: two balancers of their
own on free loopback ports with an empty pool for the service `shop`, whose health check is `GET
/healthz`, often.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socketserver
import subprocess
import sys
import threading
import typing as t
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    InputError,
    LeaseLost,
    TrafficError,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Rotation
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import Journal
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    Endpoint,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.traffic import (
    Server,
    Table,
    Target,
    TrafficDriver,
)
from ansible_collections.progressive.rollout.tests.support.contexts import tell
from ansible_collections.progressive.rollout.tests.support.ports import free_port
from ansible_collections.progressive.rollout.tests.support.waiting import until

SERVICE = "shop"
IN, OUT = Rotation.IN, Rotation.OUT
Address = tuple[str, int]
LEFT = Path(__file__).parents[1] / "support/recorded/balancers-9a6312c.json"


class Plane(t.Protocol):
    """Two running load balancers of one kind."""

    @property
    def names(self) -> Sequence[str]:
        """The balancers, as the driver's tables call them."""

    @property
    def fronts(self) -> Sequence[Address]:
        """Where clients connect, one a balancer."""

    @property
    def previews(self) -> Sequence[Address]:
        """Where the preview of each listens."""

    def driver(self, epoch: int = 1, **options: t.Any) -> TrafficDriver:
        """A new driver for both of them, of the holder of this lease; `options` override its
        settings.
        """

    def halting(self) -> TrafficDriver:
        """A driver for both of them: the second can be looked at, and refuses every change."""

    def previewing(self) -> tuple[TrafficDriver, TrafficDriver]:
        """A new driver for both of them that has a preview, and the driver of the preview."""

    def wrong(self) -> Sequence[tuple[Mapping[str, t.Any], str]]:
        """Options that `check()` has to refuse, and a text its message has to contain."""

    def neighbour(self, **options: t.Any) -> TrafficDriver:
        """A new driver for both of them of the service `cart`, with a pool of its own unless the
        options name that of `shop`.
        """

    def options(self) -> Sequence[tuple[Mapping[str, t.Any], Callable[[], bool]]]:
        """The options of one rollout after the other, each other than those before, and what tells
        whether the balancers work by them.
        """

    def older(self, endpoints: Sequence[Endpoint]) -> TrafficDriver:
        """Have both balancers as `left_by_9a6312c` says; a new driver as users have it by
        default.
        """

    def changes(self) -> object:
        """Something that differs once the driver has changed anything at a balancer."""

    def by_hand(self, endpoint: Endpoint) -> str | None:
        """Have both balancers send requests there without a rollout; returns the entry's name, None
        where only a rollout can make entries of the pool, so that it has to be refused.
        """

    def spoil(self, endpoint: Endpoint, name: str) -> None:
        """Arrange that a balancer refuses (or never shows) the update that adds this entry."""

    def stop(self, index: int) -> None:
        """End one balancer."""

    def start(self, index: int) -> None:
        """Start a stopped balancer at its old ports, with nothing but its configuration files."""


def left_by_9a6312c(
    balancer: str, endpoints: Sequence[Endpoint], ports: Mapping[str, object]
) -> dict[str, str]:
    """What version 9a6312c left at a balancer with the servers shop-1 and shop-2, in rotation, and
    shop-3, out of it: by file, or commands. `ports` replaces more of what was recorded.
    """
    own = {f"1100{n}": str(endpoint.port) for n, endpoint in enumerate(endpoints, 1)}
    own |= {recorded: str(here) for recorded, here in ports.items()}
    files = json.loads(LEFT.read_text())[balancer]
    return {
        name: re.sub("|".join(own), lambda found: own[found[0]], text)
        for name, text in files.items()
    }


def get(address: Address, path: str = "/") -> tuple[int, str]:
    connection = http.client.HTTPConnection(*address, timeout=20)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


class Backends:
    """Real backend processes, ended by their pids."""

    def __init__(self) -> None:
        self.processes: dict[Endpoint, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> Endpoint:
        endpoint = Endpoint("127.0.0.1", free_port())
        self.start_at(endpoint, name)
        return endpoint

    def start_at(self, endpoint: Endpoint, name: str) -> None:
        argv = [
            sys.executable,
            "-I",
            "-S",
            str(Path(__file__).with_name("backend.py")),
            endpoint.address,
            str(endpoint.port),
            name,
        ]
        self.processes[endpoint] = subprocess.Popen(argv)

        def ours() -> bool:
            try:
                return get((endpoint.address, endpoint.port), "/healthz") == (200, name)
            except OSError:
                return False

        until(ours, f"{name} listens on {endpoint}")

    def ask(self, endpoint: Endpoint, path: str) -> str:
        return get((endpoint.address, endpoint.port), path)[1]

    def kill(self, endpoint: Endpoint) -> None:
        process = self.processes.pop(endpoint)
        process.kill()
        process.wait()


class Load:
    """Closed-loop clients without retries: at each front one with keep-alive and one without."""

    def __init__(self, fronts: Sequence[Address]) -> None:
        self.good: Counter[str] = Counter()  # by the name of the backend that answered
        self.bad: Counter[str] = Counter()  # by reason
        self.lock, self.stop = threading.Lock(), threading.Event()
        self.threads = [
            threading.Thread(target=self._client, args=(f, keep))
            for f in fronts
            for keep in (True, False)
        ]

    def _client(self, front: Address, keep: bool) -> None:
        connection = http.client.HTTPConnection(*front, timeout=20)
        while not self.stop.is_set():
            try:
                connection.request("GET", "/", headers={} if keep else {"Connection": "close"})
                response = connection.getresponse()
                status, text = response.status, response.read().decode()
            except (OSError, http.client.HTTPException) as exc:
                status, text = 0, repr(exc)
                connection.close()
            with self.lock:
                if status == 200:
                    self.good[text] += 1
                else:
                    self.bad[f"{status} {text.strip()[:80]}"] += 1
        connection.close()

    def __enter__(self) -> Load:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.stop.set()
        for thread in self.threads:
            thread.join()


def belonging(driver: TrafficDriver, journal: Journal) -> TrafficDriver:
    """The driver, in a run with this journal."""
    tell(driver, journal=journal)
    return driver


def entries(table: Table, endpoint: Endpoint) -> list[Server]:
    """The entry at every balancer that has one."""
    return [servers[endpoint] for servers in table.values() if endpoint in servers]


def everywhere(table: Table, endpoint: Endpoint, fits: Callable[[Server], bool]) -> bool:
    found = entries(table, endpoint)
    return len(found) == len(table) and all(map(fits, found))


def prove(driver: TrafficDriver, *endpoints: Endpoint) -> None:
    """Wait until every balancer's own check has passed them."""
    until(
        lambda: all(everywhere(driver.observe(), e, lambda s: s.lb_healthy) for e in endpoints),
        f"the balancers prove {endpoints}",
    )


def apply(driver: TrafficDriver, targets: Mapping[Endpoint, Target]) -> Table:
    """The same targets for every balancer."""
    return driver.apply(dict.fromkeys(driver.observe(), targets))


def bring_in(driver: TrafficDriver, targets: dict[Endpoint, Target]) -> None:
    """Warm up, wait for the balancers' checks, put in."""
    apply(
        driver,
        {
            e: Target(OUT, target.weight, target.name) if target.rotation is IN else target
            for e, target in targets.items()
        },
    )
    prove(driver, *(e for e, target in targets.items() if target.rotation is IN))
    apply(driver, targets)


def remove(driver: TrafficDriver, targets: Mapping[Endpoint, Target], *gone: Endpoint) -> None:
    """Apply until what is not among the targets has left."""
    until(lambda: not any(entries(apply(driver, targets), e) for e in gone), f"{gone} are removed")


def answers(plane: Plane, count: int = 20) -> Counter[str]:
    """Who answers `count` requests at each balancer; a failed one counts by its status."""
    replies = (get(front) for front in plane.fronts for _n in range(count))
    return Counter(text if status == 200 else str(status) for status, text in replies)


def kept(
    front: Address, count: int, headers: Mapping[str, str] | None = None, method: str = "GET"
) -> Counter[str]:
    """Who answers `count` requests over one connection; a failed one counts by its status."""
    found: Counter[str] = Counter()
    connection = http.client.HTTPConnection(*front, timeout=20)
    for _n in range(count):
        connection.request(method, "/", headers=dict(headers or {}))
        response = connection.getresponse()
        text = response.read().decode()
        found[text if response.status == 200 else str(response.status)] += 1
    connection.close()
    return found


def sent(table: Table, endpoint: Endpoint) -> list[int]:
    """The requests that each balancer says it sent there."""
    return [server.requests for server in entries(table, endpoint)]


class Client:
    """A user's browser: it keeps the cookies it is given."""

    def __init__(self, front: Address, cookie: str = "") -> None:
        self.front, self.cookie, self.at = front, cookie, ""

    def go(self) -> None:
        connection = http.client.HTTPConnection(*self.front, timeout=20)
        connection.request("GET", "/", headers={"Cookie": self.cookie} if self.cookie else {})
        response = connection.getresponse()
        self.at = response.read().decode() if response.status == 200 else str(response.status)
        self.cookie = (response.getheader("Set-Cookie") or self.cookie).partition(";")[0]
        connection.close()


def raise_the_share(
    plane: Plane, driver: TrafficDriver, backends: Backends, client: Callable[[Address], Client]
) -> int:
    """Three old ones become three new ones by steps: a client that was at a new one stays there,
    and all get there. How many clients of an instance are still sent there once it is drained.
    """
    old, new = ([backends.start(f"{kind}{n}") for n in range(3)] for kind in ("old", "new"))
    clients: list[Client] = []
    names = {endpoint: f"shop-{number}" for number, endpoint in enumerate([*old, *new])}
    bring_in(driver, {e: Target(IN if e in old else OUT, name=names[e]) for e in names})
    prove(driver, *new)
    shares = []
    # how many new and old ones, and their weights: as of 10, 20, 50, 50 and 100 percent
    for young, weight, left, other in (
        (1, 1, 3, 3),
        (1, 3, 2, 6),
        (2, 100, 2, 100),
        (3, 50, 1, 150),
        (3, 100, 0, 1),
    ):
        targets = {e: Target(IN, weight, names[e]) for e in new[:young]} | {
            e: Target(OUT, name=names[e]) for e in new[young:]
        }
        targets |= {e: Target(IN, other, names[e]) for e in old[:left]}
        apply(driver, targets)
        remove(driver, targets, *old[left:])
        # the share is that of clients who come new
        clients += [client(front) for front in plane.fronts for _n in range(20)]
        before = [one.at for one in clients]
        for one in clients:
            one.go()
        assert not [
            (was, one.at)
            for was, one in zip(before, clients, strict=True)
            if was.startswith("new") and one.at != was
        ]
        shares.append(sum(one.at.startswith("new") for one in clients) / len(clients))
    assert 0 < shares[0] and shares == sorted(shares) and shares[-1] == 1, shares
    leaving = clients[0].at
    apply(
        driver,
        {e: Target(OUT if backends.ask(e, "/") == leaving else IN, name=names[e]) for e in new},
    )
    its = [one for one in clients if one.at == leaving]
    for one in its:
        one.go()
    return sum(one.at == leaving for one in its)


class Late:
    """A transport whose commands that change something arrive late: after `before` was called."""

    def __init__(self, transport: t.Any, before: Callable[[], object]) -> None:
        self.transport, self.before = transport, before

    def __getattr__(self, name: str) -> t.Any:
        return getattr(self.transport, name)

    def ask(self, name: str, requests: Mapping[str, t.Any], timeout: float) -> t.Any:
        text = json.dumps(requests)
        if '"change"' in text or ('"apply"' in text and '"dry"' not in text):
            self.before()
        return self.transport.ask(name, requests, timeout)


def delayed(driver: t.Any, newer: TrafficDriver) -> TrafficDriver:
    """A driver whose changes arrive after a newer lease holder has looked, which is enough to
    fence it.
    """
    driver.transport = Late(driver.context.transport, newer.observe)
    driver.context = replace(driver.context, transport=driver.transport)
    return t.cast(TrafficDriver, driver)


ENDLESS = 10_000  # answers of a hostile port: at a trickle they take a quarter of an hour


@contextlib.contextmanager
def hostile(answer: bytes, pause: float, times: int) -> Iterator[int]:
    """A port at which every question is answered with this, again and again, and nothing else."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError):
                self.request.recv(1000)
                for _n in range(times):
                    self.request.sendall(answer)
                    if over.wait(pause):
                        return

    over = threading.Event()
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server.server_address[1]
        over.set()
        server.shutdown()
        thread.join()


class TrafficContract:
    """The cases."""

    pool_of_shop: t.ClassVar[Mapping[str, t.Any]]  # the options that name it
    counts = True  # whether this kind of balancer counts the requests it sends to each instance

    @pytest.fixture
    def plane(self) -> Iterator[Plane]:
        raise NotImplementedError("give the contract a fixture `plane`")

    def test_check_accepts_the_plane_and_touches_nothing(self, plane: Plane) -> None:
        before = plane.changes()
        plane.driver().check()
        assert plane.changes() == before

    def test_check_refuses_a_wrong_configuration(self, plane: Plane) -> None:
        for options, text in plane.wrong():
            with pytest.raises((InputError, TrafficError)) as refused:
                plane.driver(**options).check()
            assert text in str(refused.value), options

    def test_an_empty_pool_has_no_entries(self, plane: Plane) -> None:
        assert plane.driver().observe() == {name: {} for name in plane.names}

    def test_what_rollouts_left_is_removed_and_requests_go_on(
        self, plane: Plane, backends: Backends
    ) -> None:
        journal = Journal("a1b2", "the journal")
        driver, a = belonging(plane.driver(), journal), backends.start("a")
        bring_in(driver, {a: Target(IN, name="shop-a")})
        older = plane.driver(epoch=0)
        with pytest.raises(TrafficError, match="without a lease"):
            older.leave(dry=False)
        stranger = belonging(plane.driver(), Journal("c3d4", "another one"))
        with pytest.raises(LeaseLost, match="another one"):
            stranger.leave(dry=False)
        named = driver.leave(dry=True)
        assert len(named) >= 3 * len(plane.names), "a lock, an epoch and a mark at each"
        load = Load(plane.fronts)
        with load:
            assert list(driver.leave(dry=False)) == list(named)
            assert list(driver.leave(dry=False)) == [], "again"
            until(lambda: load.good["a"] > 20)
        assert not load.bad
        assert set(answers(plane)) == {"a"}
        belonging(plane.driver(), Journal("c3d4", "another one")).check()

    def test_a_warm_entry_is_proven_and_gets_no_request(
        self, plane: Plane, backends: Backends
    ) -> None:
        driver, a, b = plane.driver(), backends.start("a"), backends.start("b")
        targets = {a: Target(IN, name="shop-a"), b: Target(OUT, name="shop-b")}
        bring_in(driver, targets)
        prove(driver, b)
        assert set(answers(plane)) == {"a"}
        assert backends.ask(b, "/hits") == "0"
        table = driver.observe()
        assert list(table) == list(plane.names)
        assert everywhere(table, a, lambda s: s.rotation is IN) and everywhere(
            table, b, lambda s: s.rotation is OUT
        )

    def test_an_entry_the_check_did_not_pass_is_not_put_in(
        self, plane: Plane, backends: Backends
    ) -> None:
        driver, a, late = plane.driver(), backends.start("a"), Endpoint("127.0.0.1", free_port())
        targets = {a: Target(IN, name="shop-a"), late: Target(OUT, name="shop-late")}
        bring_in(driver, targets)
        targets[late] = Target(IN, name="shop-late")
        with pytest.raises(TrafficError, match=str(late.port)):
            apply(driver, targets)
        with pytest.raises(TrafficError, match=str(late.port)):  # before anything else is done
            apply(driver, {late: Target(IN, name="shop-late")})
        assert not any(s.rotation is IN or s.lb_healthy for s in entries(driver.observe(), late))
        assert set(answers(plane)) == {"a"}
        backends.start_at(late, "late")
        prove(driver, late)
        apply(driver, targets)
        assert set(answers(plane)) == {"a", "late"}

    def test_an_instance_that_dies_in_rotation_is_in_until_it_is_taken_out(
        self, plane: Plane, backends: Backends
    ) -> None:
        driver, a, b = plane.driver(), backends.start("a"), backends.start("b")
        targets = {a: Target(IN, name="shop-a"), b: Target(IN, name="shop-b")}
        bring_in(driver, targets)
        backends.kill(a)
        until(
            lambda: everywhere(driver.observe(), a, lambda s: not s.lb_healthy),
            "the balancers notice that it is dead",
        )
        assert everywhere(driver.observe(), a, lambda s: s.rotation is IN)
        apply(driver, {**targets, a: Target(OUT, name="shop-a")})
        backends.start_at(a, "a")
        prove(driver, a)
        assert everywhere(driver.observe(), a, lambda s: s.rotation is OUT)
        assert set(answers(plane)) == {"b"}
        apply(driver, targets)
        assert set(answers(plane)) == {"a", "b"}

    def test_an_unknown_entry_is_not_put_in_at_once(self, plane: Plane, backends: Backends) -> None:
        driver, a = plane.driver(), backends.start("a")
        with pytest.raises(TrafficError, match=str(a.port)):
            apply(driver, {a: Target(IN, name="shop-a")})
        assert not any(s.rotation is IN for s in entries(driver.observe(), a))

    def test_a_drained_entry_finishes_its_request_and_gets_no_other(
        self, plane: Plane, backends: Backends
    ) -> None:
        driver, a, b = plane.driver(), backends.start("a"), backends.start("b")
        bring_in(driver, {a: Target(IN, name="shop-a"), b: Target(OUT, name="shop-b")})
        prove(driver, b)
        reply: list[tuple[int, str]] = []
        request = threading.Thread(target=lambda: reply.append(get(plane.fronts[0], "/hold")))
        request.start()
        until(
            lambda: [s.active for s in entries(driver.observe(), a)] == [1, 0],
            "the held request is active at the first balancer",
        )
        apply(driver, {a: Target(OUT, name="shop-a"), b: Target(IN, name="shop-b")})
        assert set(answers(plane)) == {"b"}
        assert [s.active for s in entries(driver.observe(), a)] == [1, 0]
        backends.ask(a, "/release")
        request.join()
        assert reply == [(200, "a")]
        until(
            lambda: [s.active for s in entries(driver.observe(), a)] == [0, 0],
            "nothing is active any more",
        )
        assert backends.ask(a, "/hits") == "1"

    def test_what_is_no_longer_a_target_leaves_no_entry(
        self, plane: Plane, backends: Backends
    ) -> None:
        driver, a, b = plane.driver(), backends.start("a"), backends.start("b")
        bring_in(driver, {a: Target(IN, name="shop-a"), b: Target(IN, name="shop-b")})
        remove(driver, {b: Target(IN, name="shop-b")}, a)
        assert set(answers(plane)) == {"b"}
        remove(driver, {}, b)
        assert driver.observe() == {name: {} for name in plane.names}

    def test_an_address_can_be_used_again_by_another_instance(
        self, plane: Plane, backends: Backends
    ) -> None:
        driver, a, b = plane.driver(), backends.start("a"), backends.start("b")
        bring_in(driver, {a: Target(IN, name="shop-a"), b: Target(IN, name="shop-b")})
        remove(driver, {b: Target(IN, name="shop-b")}, a)
        backends.kill(a)
        backends.start_at(a, "again")
        bring_in(driver, {a: Target(IN, name="shop-c"), b: Target(IN, name="shop-b")})
        assert set(answers(plane)) == {"again", "b"}

    def test_several_endpoints_in_one_apply_at_both_balancers(
        self, plane: Plane, backends: Backends
    ) -> None:
        driver = plane.driver()
        apps = [backends.start(f"n{n}") for n in range(5)]
        old = {e: Target(IN, name=f"shop-{n}") for n, e in enumerate(apps[:3])}
        bring_in(driver, old)
        assert set(answers(plane)) == {"n0", "n1", "n2"}
        bring_in(
            driver, old | {e: Target(OUT, name=f"shop-{n}") for n, e in enumerate(apps) if n > 2}
        )
        prove(driver, *apps)
        new = {apps[0]: Target(OUT, name="shop-0")} | {
            e: Target(IN, name=f"shop-{n}") for n, e in enumerate(apps) if n > 1
        }
        remove(driver, new, apps[1])
        assert set(answers(plane)) == {"n2", "n3", "n4"}
        tables = [
            {e: s.rotation for e, s in servers.items()} for servers in driver.observe().values()
        ]
        assert tables == [{e: target.rotation for e, target in new.items()}] * len(plane.names)

    def test_a_dead_balancer_is_named(self, plane: Plane, backends: Backends) -> None:
        driver, a = plane.driver(), backends.start("a")
        bring_in(driver, {a: Target(IN, name="shop-a")})
        plane.stop(1)
        before = plane.changes()
        drained = {name: {a: Target(OUT, name="shop-a")} for name in plane.names}
        for action in (driver.check, driver.observe, lambda: driver.apply(drained)):
            with pytest.raises(TrafficError) as refused:
                action()
            assert plane.names[1] in str(refused.value)
        assert plane.changes() == before
        assert get(plane.fronts[0]) == (200, "a")

    def test_a_second_apply_changes_nothing(self, plane: Plane, backends: Backends) -> None:
        driver, a, b = plane.driver(), backends.start("a"), backends.start("b")
        targets = {a: Target(IN, name="shop-a"), b: Target(OUT, name="shop-b")}
        bring_in(driver, targets)
        prove(driver, b)
        before = plane.changes()
        table = apply(driver, targets)
        assert plane.changes() == before
        assert everywhere(table, a, lambda s: s.rotation is IN) and everywhere(
            table, b, lambda s: s.rotation is OUT
        )
        assert apply(plane.driver(), targets).keys() == table.keys() and plane.changes() == before

    def test_a_restarted_balancer_is_brought_back(self, plane: Plane, backends: Backends) -> None:
        driver, a, b = plane.driver(), backends.start("a"), backends.start("b")
        targets = {a: Target(IN, name="shop-a"), b: Target(IN, name="shop-b")}
        bring_in(driver, targets)
        plane.stop(0)
        plane.start(0)
        first, second = plane.names
        seen = driver.observe()[first]
        warming = {e: x if e in seen else Target(OUT, name=x.name) for e, x in targets.items()}
        # The other balancer goes on meanwhile.
        table = driver.apply({first: warming, second: targets})
        assert all(table[second][e].rotation is IN for e in targets)
        assert get(plane.fronts[1])[0] == 200
        prove(driver, a, b)
        table = apply(driver, targets)
        assert all(everywhere(table, e, lambda s: s.rotation is IN) for e in targets)
        assert set(answers(plane)) == {"a", "b"}

    def test_each_balancer_has_its_own_targets(self, plane: Plane, backends: Backends) -> None:
        driver, a, b = plane.driver(), backends.start("a"), backends.start("b")
        both = {a: Target(IN, name="shop-a"), b: Target(IN, name="shop-b")}
        bring_in(driver, both)
        driver.apply(
            {
                plane.names[0]: both | {a: Target(OUT, name="shop-a")},
                plane.names[1]: both | {b: Target(OUT, name="shop-b")},
            }
        )
        assert [{get(front)[1] for _n in range(20)} for front in plane.fronts] == [{"b"}, {"a"}]
        assert [s.rotation for s in entries(driver.observe(), a)] == [OUT, IN]

    def test_a_rejected_update_is_noticed(self, plane: Plane, backends: Backends) -> None:
        driver, a, b = plane.driver(), backends.start("a"), backends.start("b")
        bring_in(driver, {a: Target(IN, name="shop-a")})
        plane.spoil(b, "shop-b")
        with pytest.raises(TrafficError) as refused:
            apply(driver, {a: Target(IN, name="shop-a"), b: Target(OUT, name="shop-b")})
        assert any(name in str(refused.value) for name in plane.names)
        assert set(answers(plane)) == {"a"}

    def test_replacing_three_instances_under_load_fails_no_request(
        self, plane: Plane, backends: Backends
    ) -> None:
        driver = plane.driver()
        targets = {backends.start(f"old{n}"): Target(IN, name=f"shop-old{n}") for n in range(3)}
        bring_in(driver, targets)
        with Load(plane.fronts) as load:
            for n, old in enumerate(list(targets)):
                until(lambda n=n: load.good.total() > 300 * n, "requests before")  # type: ignore[misc]
                new = backends.start(f"new{n}")
                targets[new] = Target(OUT, name=f"shop-new{n}")
                apply(driver, targets)
                prove(driver, new)
                targets[new] = Target(IN, name=f"shop-new{n}")
                apply(driver, targets)
                targets[old] = Target(OUT, name=targets[old].name)
                apply(driver, targets)
                until(
                    lambda old=old: not any(s.active for s in entries(driver.observe(), old)),
                    f"{old} is drained",
                )  # type: ignore[misc]
                del targets[old]
                remove(driver, targets, old)
                backends.kill(old)
            until(
                lambda: (
                    load.good.total() > 2000 and {f"new{n}" for n in range(3)} <= load.good.keys()
                ),
                "enough requests",
                60,
            )
        assert not load.bad, f"{load.bad} beside {load.good}"

    def test_requests_go_by_weight_and_are_counted(self, plane: Plane, backends: Backends) -> None:
        driver = plane.driver()
        a, b, new = (backends.start(name) for name in ("a", "b", "new"))

        def fleet(old: int, young: int) -> dict[Endpoint, Target]:
            return {
                a: Target(IN, old, "shop-a"),
                b: Target(IN, old, "shop-b"),
                new: Target(IN, young, "shop-new"),
            }

        bring_in(driver, fleet(45, 10))
        for old, young in ((45, 10), (10, 80), (100, 200), (256, 1)):
            table = apply(driver, fleet(old, young))  # weights alone differ: one call
            assert driver.observe() == table
            assert all(
                everywhere(table, e, lambda s, w=w: s.weight == w)
                for e, w in ((a, old), (b, old), (new, young))
            )  # type: ignore[misc]
            for name, front in zip(plane.names, plane.fronts, strict=True):
                before = driver.observe()[name]
                got = kept(front, 200)
                after = driver.observe()[name]
                assert not self.counts or got == {
                    who: after[e].requests - before[e].requests
                    for e, who in ((a, "a"), (b, "b"), (new, "new"))
                    if after[e].requests > before[e].requests
                }
                assert (
                    abs(got["new"] - 200 * young / (2 * old + young)) <= 3
                    and abs(got["a"] - got["b"]) <= 3
                ), got

    def test_the_weight_of_an_entry_that_is_out_is_kept(
        self, plane: Plane, backends: Backends
    ) -> None:
        driver, a, b = plane.driver(), backends.start("a"), backends.start("b")
        bring_in(driver, {a: Target(IN, 90, "shop-a"), b: Target(OUT, 10, "shop-b")})
        prove(driver, b)
        assert everywhere(driver.observe(), b, lambda s: s.weight == 10)
        table = apply(driver, {a: Target(IN, 90, "shop-a"), b: Target(OUT, 30, "shop-b")})
        assert everywhere(table, b, lambda s: s.weight == 30 and s.rotation is OUT)
        assert set(answers(plane)) == {"a"}
        apply(driver, {a: Target(IN, 90, "shop-a"), b: Target(IN, 30, "shop-b")})
        assert all(abs(kept(front, 200)["b"] - 50) <= 3 for front in plane.fronts)

    def test_a_dark_set_gets_no_request_and_one_apply_switches_there_and_back(
        self, plane: Plane, backends: Backends
    ) -> None:
        driver = plane.driver()
        old, new = ([backends.start(f"{kind}{n}") for n in range(3)] for kind in ("old", "new"))

        def fleet(up: list[Endpoint]) -> dict[Endpoint, Target]:
            return {
                e: Target(IN if e in up else OUT, name=f"shop-{n}")
                for n, e in enumerate([*old, *new])
            }

        bring_in(driver, fleet(old))
        prove(driver, *new)
        with Load(plane.fronts) as load:

            def more(count: int = 300) -> None:
                end = load.good.total() + count
                until(lambda: load.good.total() >= end, "more requests")

            more()
            assert all(
                sent(driver.observe(), e) == [0, 0] and backends.ask(e, "/hits") == "0" for e in new
            )
            for up, out in ((new, old), (old, new)):
                table = apply(driver, fleet(up))
                until(
                    lambda out=out: (
                        not any(s.active for e in out for s in entries(driver.observe(), e))
                    ),
                    "they are done",
                )  # type: ignore[misc]
                hits = [backends.ask(e, "/hits") for e in (*out, *up)]
                more()
                seen = driver.observe()
                assert all(sent(seen, e) == sent(table, e) for e in out), (
                    "a request after the switch"
                )
                after = [backends.ask(e, "/hits") for e in (*out, *up)]
                assert after[:3] == hits[:3] and not set(after[3:]) & set(hits[3:]), (
                    "a request after the switch"
                )
                assert all(
                    everywhere(seen, e, lambda s: s.rotation is OUT and s.lb_healthy) for e in out
                )
                assert not self.counts or all(min(sent(seen, e)) > 0 for e in up)
        assert not load.bad, f"{load.bad} beside {load.good}"
        table = driver.observe()
        assert not self.counts or all(
            int(backends.ask(e, "/hits")) == sum(sent(table, e)) for e in (*old, *new)
        )

    def test_two_services_at_one_balancer(self, plane: Plane, backends: Backends) -> None:
        a, b = backends.start("a"), backends.start("b")
        shop, cart = plane.driver(), plane.neighbour()
        cart.check()
        jobs = [
            threading.Thread(target=bring_in, args=(driver, {e: Target(IN, name=name)}))
            for driver, e, name in ((shop, a, "shop-1"), (cart, b, "cart-1"))
        ]
        for job in jobs:
            job.start()
        for job in jobs:
            job.join()
        for driver, e, service in ((shop, a, "shop"), (cart, b, "cart")):
            driver.check()
            for servers in driver.observe().values():
                assert set(servers) == {e} and servers[e].service in ("", service)
        assert set(answers(plane)) == {"a"}
        remove(cart, {}, b)
        assert set(answers(plane)) == {"a"}

    def test_an_entry_of_another_service_in_the_pool_is_told_apart(
        self, plane: Plane, backends: Backends
    ) -> None:
        a, b = backends.start("a"), backends.start("b")
        bring_in(plane.neighbour(**self.pool_of_shop), {b: Target(IN, name="cart-1")})
        assert everywhere(plane.driver().observe(), b, lambda s: s.service == "cart")
        apply(plane.driver(), {a: Target(OUT, name="shop-1"), b: Target(IN, name="cart-1")})
        assert everywhere(plane.driver().observe(), a, lambda s: s.service == "shop")

    def test_whose_entries_are_is_known_without_their_names(
        self, plane: Plane, backends: Backends
    ) -> None:
        """Names may be of the configuration, or of hosts."""
        mine = belonging(plane.driver(), Journal("aa", "journal"))
        a = backends.start("a")
        bring_in(mine, {a: Target(IN, name="web1")})
        later = belonging(plane.driver(epoch=2), Journal("aa", "journal"))
        assert everywhere(later.observe(), a, lambda s: (s.ours, s.by_hand) == (True, False))
        other = plane.neighbour(**self.pool_of_shop, epoch=2)
        assert everywhere(other.observe(), a, lambda s: s.service == "shop" and not s.by_hand)
        later.leave(dry=False)
        assert set(answers(plane)) == {"a"}

    def test_entries_made_by_hand_are_shown_and_left_alone(
        self, plane: Plane, backends: Backends
    ) -> None:
        a, hand = backends.start("a"), backends.start("hand")
        made = plane.by_hand(hand)
        driver = plane.driver()
        if made is None:  # there is no room for them beside ours
            with pytest.raises(TrafficError) as refused:
                driver.check()
            assert refused.value.id == "PR-304"
            return
        bring_in(driver, {a: Target(IN, 10, name="shop-1")})
        for server in entries(driver.observe(), hand):
            assert (server.name, server.by_hand, server.rotation) == (made, True, IN)
            assert server.share_weight > 0
        assert everywhere(driver.observe(), a, lambda s: not s.by_hand and s.share_weight == 10)
        assert set(answers(plane)) == {"a", "hand"}
        remove(driver, {}, a)
        assert set(answers(plane)) == {"hand"}

    def test_options_change_between_two_rollouts(self, plane: Plane, backends: Backends) -> None:
        a, b = backends.start("a"), backends.start("b")
        targets = {a: Target(IN, name="shop-a"), b: Target(OUT, name="shop-b")}
        bring_in(plane.driver(), targets)
        for options, in_effect in plane.options():
            driver = plane.driver(**options)
            driver.check()
            pools = [driver, *(preview.traffic for preview in driver.previews())]
            for pool in pools[1:]:
                apply(pool, {})
            table = apply(driver, targets)
            assert everywhere(table, a, lambda s: s.rotation is IN), options
            assert in_effect(), options
            before = plane.changes()
            for pool in pools:
                apply(pool, targets if pool is driver else {})
            assert plane.changes() == before, options
            assert set(answers(plane, 5)) == {"a"}, options

    def test_what_an_older_version_left_is_continued(
        self, plane: Plane, backends: Backends
    ) -> None:
        old, new = [backends.start(f"old{n}") for n in range(3)], backends.start("new")
        driver = plane.older(old)
        driver.check()
        assert [
            {e: (s.rotation, s.ours) for e, s in servers.items()}
            for servers in driver.observe().values()
        ] == [{e: (OUT if e == old[-1] else IN, True) for e in old}] * 2
        targets = {e: Target(IN, name=f"shop-{n}") for n, e in enumerate([*old, new], 1)}
        out = {e: Target(OUT, name=targets[e].name) for e in (old[-1], new)}
        with Load(plane.fronts) as load:
            apply(driver, targets | out)
            prove(driver, *targets)
            apply(driver, targets)
            assert set(answers(plane)) == {"old0", "old1", "old2", "new"}
            remove(driver, {new: targets[new]}, *old)
            assert set(answers(plane)) == {"new"}
        assert not load.bad

    def test_a_late_command_of_an_older_lease_changes_nothing(
        self, plane: Plane, backends: Backends
    ) -> None:
        first, a, b = plane.driver(epoch=1), backends.start("a"), backends.start("b")
        bring_in(first, {a: Target(IN, name="shop-a"), b: Target(OUT, name="shop-b")})
        prove(first, b)
        shown, before, epoch = first.observe(), set(answers(plane)), 1
        for targets in (
            {a: Target(IN, name="shop-a"), b: Target(IN, name="shop-b")},
            {a: Target(OUT, name="shop-a"), b: Target(OUT, name="shop-b")},
            {a: Target(IN, name="shop-a"), Endpoint("127.0.0.1", 9): Target(OUT, name="shop-c")},
            {},
        ):
            newer = plane.driver(epoch=epoch + 1)
            late = delayed(plane.driver(epoch=epoch), newer)
            prove(late, a, b)
            with pytest.raises(
                LeaseLost,
                match=(
                    rf"a newer lease holder has acted here \(epoch {epoch + 1}, ours is {epoch}\)"
                ),
            ) as lost:
                late.apply(dict.fromkeys(plane.names, targets))
            assert plane.names[0] in str(lost.value)
            assert {
                name: {e: s.rotation for e, s in its.items()}
                for name, its in newer.observe().items()
            } == {name: {e: s.rotation for e, s in its.items()} for name, its in shown.items()}
            epoch += 1
        with pytest.raises(LeaseLost):
            first.observe()
        assert set(answers(plane)) == before == {"a"}
        looks = plane.driver(epoch=0)
        assert {name: set(its) for name, its in looks.observe().items()} == {
            name: set(its) for name, its in shown.items()
        }
        with pytest.raises(TrafficError, match=r"nothing is changed without a lease"):
            apply(looks, {a: Target(OUT, name="shop-a"), b: Target(OUT, name="shop-b")})
        prove(newer, a, b)
        apply(newer, {a: Target(OUT, name="shop-a"), b: Target(IN, name="shop-b")})
        assert set(answers(plane)) == {"b"}

    def test_a_run_with_another_journal_is_refused_and_leaves_no_trace(
        self, plane: Plane, backends: Backends
    ) -> None:
        a, b = backends.start("a"), backends.start("b")
        mine, mistyped = Journal("aa", "/journal on lb1"), Journal("bb", "/jurnal on lb1")
        bring_in(plane.driver(epoch=1), {a: Target(IN, name="shop-a")})  # of an older version
        belonging(plane.driver(epoch=2), mistyped).observe()  # a look claims nothing
        owner = belonging(plane.driver(epoch=3), mine)
        owner.check()
        bring_in(owner, {a: Target(IN, name="shop-a"), b: Target(OUT, name="shop-b")})
        before = plane.changes()
        for journal in (mistyped, Journal("", mistyped.place)):
            with pytest.raises(InputError, match="/journal on lb1") as refused:
                belonging(plane.driver(epoch=0), journal).check()
            assert refused.value.id == "PR-515" and "/jurnal" in str(refused.value)
        other = belonging(plane.driver(epoch=4), mistyped)
        for act in (other.observe, lambda: other.apply(dict.fromkeys(plane.names, {}))):
            with pytest.raises(LeaseLost, match=r"/journal on lb1.*/jurnal on lb1"):
                act()
        assert plane.changes() == before
        owner.observe()
        for epoch, kept in enumerate((Journal("aa", "moved"), Journal("cc", "moved")), 5):
            later = belonging(plane.driver(epoch=epoch), kept)
            later.check()
            name = "shop-b" if epoch % 2 else "shop-c"
            remove(later, {a: Target(IN, name="shop-a")}, b)
            apply(later, {a: Target(IN, name="shop-a"), b: Target(OUT, name=name)})
        with pytest.raises(InputError, match="to moved"):
            belonging(plane.driver(epoch=0), mine).check()
        assert set(answers(plane)) == {"a"}

    def test_an_older_lease_is_refused_at_the_preview_as_well(
        self, plane: Plane, backends: Backends
    ) -> None:
        (_driver, preview), a = plane.previewing(), backends.start("a")
        bring_in(preview, {a: Target(IN, name="shop-a")})
        plane.driver(epoch=2).observe()
        with pytest.raises(LeaseLost):
            apply(preview, {})
        assert all(kept(address, 1) == {"a": 1} for address in plane.previews)

    def test_what_one_balancer_did_before_another_refused_is_put_back_there_alone(
        self, plane: Plane, backends: Backends
    ) -> None:
        a, b = backends.start("a"), backends.start("b")
        old = {a: Target(IN, name="shop-a"), b: Target(OUT, name="shop-b")}
        bring_in(plane.driver(), old)
        prove(plane.driver(), b)
        driver = plane.halting()
        first, second = driver.observe()
        with pytest.raises(TrafficError) as refused:
            apply(driver, {a: Target(OUT, name="shop-a"), b: Target(IN, name="shop-b")})
        assert second in str(refused.value) and first not in str(refused.value)
        assert [{get(front)[1] for _n in range(10)} for front in plane.fronts] == [{"b"}, {"a"}]
        plane.stop(1)
        table = driver.apply({first: old})
        assert list(table) == [first] and everywhere(table, a, lambda s: s.rotation is IN)
        assert kept(plane.fronts[0], 10) == {"a": 10}

    def test_a_dark_set_can_be_looked_at(self, plane: Plane, backends: Backends) -> None:
        (driver, preview), a, b = plane.previewing(), backends.start("a"), backends.start("b")
        driver.check()
        preview.check()
        bring_in(driver, {a: Target(IN, name="shop-a"), b: Target(OUT, name="shop-b")})
        assert preview.observe() == {name: {} for name in plane.names}
        bring_in(preview, {b: Target(IN, name="shop-b")})
        assert set(answers(plane)) == {"a"}
        assert all(kept(address, 20) == {"b": 20} for address in plane.previews)
        assert sent(driver.observe(), b) == [0, 0] and sent(preview.observe(), b) == [20, 20]
        remove(preview, {}, b)
        assert all(kept(address, 1) == {"503": 1} for address in plane.previews)
        assert preview.observe() == {name: {} for name in plane.names}
        assert all(everywhere(driver.observe(), e, lambda s: s.lb_healthy) for e in (a, b)) and set(
            answers(plane)
        ) == {"a"}
