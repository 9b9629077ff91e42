# SPDX-License-Identifier: GPL-3.0-or-later
"""HAProxy with clients that stay on their side: the contract, and what only cohorts have."""

from __future__ import annotations

import tempfile
import typing as t
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    TrafficError,
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
from ansible_collections.progressive.rollout.plugins.plugin_utils.traffic.haproxy import (
    OPTIONS,
    Driver,
)
from ansible_collections.progressive.rollout.tests.drivers.cohort_contract import (
    Sides,
    settle,
    sides,
)
from ansible_collections.progressive.rollout.tests.drivers.test_haproxy import (
    HAProxyPlane,
    Here,
    context,
)
from ansible_collections.progressive.rollout.tests.drivers.traffic_contract import (
    IN,
    OUT,
    SERVICE,
    Backends,
    Client,
    Load,
    TrafficContract,
    answers,
    apply,
    entries,
    prove,
    remove,
)
from ansible_collections.progressive.rollout.tests.support.waiting import until

RULES = """\
    http-request set-var(txn.bucket) rand(10000)
    http-request set-var(txn.bucket) req.cook(user),xxh32,mod(10000) if { req.cook(user) -m found }
    http-request set-var(txn.share) str(shop),map_str_int({map},0)
    use_backend shop-new if { var(txn.bucket),sub(txn.share) lt 0 } { nbsrv(shop-new) gt 0 }
    use_backend shop-new if { nbsrv(shop) eq 0 }
"""
SECOND = """\
backend shop-new
    balance roundrobin
    option httpchk GET /healthz
"""
SLOTS = "".join(
    f"    server slot{n} 127.0.0.1:1 check inter 100ms fall 2 rise 1 disabled\n" for n in range(6)
)


class CohortPlane(HAProxyPlane):
    """A pair of balancers with a second backend and the rules of the guide."""

    slots = ""

    def __init__(self) -> None:
        with tempfile.NamedTemporaryFile("w", prefix="map", delete=False) as file:
            file.write("shop 0\n")
        self.map = Path(file.name)
        rules = RULES.replace("{map}", file.name)
        super().__init__(self.slots + SECOND + self.slots, self.slots, rules)

    def driver(self, epoch: int = 1, service: str = SERVICE, **options: t.Any) -> TrafficDriver:
        given = {
            "socket": [f"tcp://{name}" for name in self.names],
            "backend": "shop",
            "path": self.path,
            **({"cohort": self.cohort()} if service == SERVICE else {}),
            **({"slots": "slot"} if self.slots else {}),
        } | options
        checked = DriverModule(Driver, OPTIONS).check(given, "rollout_traffic")
        return Driver.variant(checked)(checked, context(self.transport, epoch, service))

    def cohort(self, **options: str) -> dict[str, str]:
        return {"backend": "shop-new", "map": str(self.map)} | options

    def wrong(self) -> Sequence[tuple[Mapping[str, t.Any], str]]:
        if self.slots:
            return [({"slots": "other"}, "rollout_traffic.slots: backend shop")]
        return [
            *super().wrong(),
            ({"cohort": {"cookie": "user"}}, "rollout_traffic.cohort.cookie"),
            ({"cohort": {"backend": "shop-new"}}, "rollout_traffic.cohort.map: not given"),
            ({"cohort": "user"}, "rollout_traffic.cohort: expected a mapping"),
            ({"cohort": self.cohort(backend="shop")}, "rollout_traffic.cohort.backend: 'shop'"),
            ({"cohort": self.cohort(backend="none")}, "rollout_traffic.cohort.backend: 'none'"),
            ({"cohort": self.cohort(map="/no.map")}, "rollout_traffic.cohort.map: '/no.map'"),
            ({"cohort": self.cohort(map="a b")}, "rollout_traffic.cohort.map: 'a b'"),
        ]

    def shares(self) -> list[int]:
        lines = [one.ask(f"show map {self.map}").split() for one in self.balancers]
        return [int(line[2]) for line in lines]

    def close(self) -> None:
        super().close()
        self.map.unlink()


class SlotCohortPlane(CohortPlane):
    """The same with servers prepared in the configuration of both backends."""

    slots = SLOTS
    left = "slots"

    def spoil(self, endpoint: Endpoint, name: str) -> None:
        """Somebody else uses all the other slots."""
        self.balancers[1].ask(
            ";".join(
                f"set server shop/slot{n} addr 127.0.0.2 port {9000 + n};set server shop/slot{n}"
                " state drain"
                for n in range(1, 6)
            )
        )


class TestContract(TrafficContract):
    pool_of_shop: t.ClassVar = {"backend": "shop"}

    @pytest.fixture
    def plane(self) -> Iterator[HAProxyPlane]:
        plane = CohortPlane()
        yield plane
        plane.close()


class TestContractWithSlots(TrafficContract):
    pool_of_shop: t.ClassVar = {"backend": "shop"}

    @pytest.fixture
    def plane(self) -> Iterator[HAProxyPlane]:
        plane = SlotCohortPlane()
        yield plane
        plane.close()


@pytest.fixture(params=[CohortPlane, SlotCohortPlane], ids=["added", "slots"])
def plane(request: pytest.FixtureRequest) -> Iterator[CohortPlane]:
    plane = request.param()
    yield plane
    plane.close()


def test_clients_follow_a_rising_share_and_never_go_back(
    plane: CohortPlane, backends: Backends
) -> None:
    fleet = Sides(plane, backends)
    clients = [Client(front, f"user={n}") for n in range(150) for front in plane.fronts]
    before = sides(clients)
    assert set(before) == {"old"}
    for new, old, share in ((1, 9, 0.1), (1, 3, 0.25), (1, 1, 0.5), (4, 1, 0.8), (1, 0, 1.0)):
        table = apply(fleet.driver, fleet.targets(new, old))
        assert fleet.driver.observe() == table == plane.driver().observe()
        assert plane.shares() == [round(10_000 * share) % 10_000] * 2
        after = sides(clients)
        assert ("new", "old") not in set(zip(before, after, strict=True))
        assert abs(after.count("new") / len(clients) - share) < 0.1
        assert after[::2] == after[1::2], "the same side at both balancers"
        before = after
    targets = {e: t for e, t in fleet.targets(1, 0).items() if e in fleet.new}
    remove(fleet.driver, targets, *fleet.old)
    fleet.driver.conclude()
    assert set(plane.balancers[0].servers("shop-new").values()) <= {"MAINT"}
    assert set(sides(clients)) == {"new"}


def test_on_the_way_back_all_leave_at_once(plane: CohortPlane, backends: Backends) -> None:
    fleet = Sides(plane, backends)
    clients = [Client(plane.fronts[0], f"user={n}") for n in range(100)]
    apply(fleet.driver, fleet.targets(1, 1))
    before = sides(clients)
    apply(fleet.driver, fleet.targets(1, 3, back=True))
    after = sides(clients)
    assert ("old", "new") not in set(zip(before, after, strict=True))
    assert plane.shares() == [2500, 2500] and 5 <= after.count("new") <= 45
    apply(fleet.driver, fleet.targets(0, 1, back=True))
    assert plane.shares() == [0, 0] and set(sides(clients)) == {"old"}
    old = {e: t for e, t in fleet.targets(0, 1, back=True).items() if e in fleet.old}
    remove(fleet.driver, old, *fleet.new)
    assert not [
        s for one in plane.balancers for s in one.servers("shop-new").values() if s != "MAINT"
    ]


def test_clients_without_the_cookie_are_divided_at_random(
    plane: CohortPlane, backends: Backends
) -> None:
    fleet = Sides(plane, backends)
    apply(fleet.driver, fleet.targets(1, 1))
    got = answers(plane, 100)
    assert 60 < got["new0"] + got["new1"] < 140, got
    table = fleet.driver.observe()
    for endpoint in fleet.new:
        assert sum(s.requests for s in entries(table, endpoint)) in (got["new0"], got["new1"])


def test_a_drained_one_finishes_its_requests(plane: CohortPlane, backends: Backends) -> None:
    fleet = Sides(plane, backends)
    with Load(plane.fronts) as load:
        for new, old in ((1, 9), (1, 1), (9, 1), (1, 0), (1, 1), (0, 1), (1, 0)):
            apply(fleet.driver, fleet.targets(new, old))
            seen = load.good.total()
            until(lambda seen=seen: load.good.total() > seen + 100)  # type: ignore[misc]
    assert not load.bad, load.bad


class Breaks:
    """A transport whose next change ends after some commands, as when a run is killed."""

    def __init__(self, transport: Here, commands: int) -> None:
        self.transport, self.commands = transport, commands

    def __getattr__(self, name: str) -> t.Any:
        return getattr(self.transport, name)

    def ask(self, name: str, requests: Mapping[str, t.Any], timeout: float) -> t.Any:
        works = [w for r in requests.values() for w in r["sockets"].values() if "change" in w]
        for work in works:
            work["lines"] = [_cut(work["lines"][0].split(";"), self.commands)]
        answer = self.transport.ask(name, requests, timeout)
        if works:
            raise TrafficError("killed")
        return answer


def _cut(commands: list[str], count: int) -> str:
    """The first commands; those for one server are not cut in two."""
    while (
        0 < count < len(commands) and commands[count].split()[2] == commands[count - 1].split()[2]
    ):
        count += 1
    return ";".join(commands[:count])


@pytest.mark.parametrize("commands", range(1, 7))
@pytest.mark.parametrize("step", ["enter", "begin", "more", "end", "back"])
def test_whatever_a_killed_change_leaves_is_completed(
    backends: Backends, step: str, commands: int
) -> None:
    """By runs that know what instances are there, and nothing else."""
    plane = CohortPlane()
    try:
        _interrupt(plane, backends, step, commands)
    finally:
        plane.close()


def _interrupt(plane: CohortPlane, backends: Backends, step: str, commands: int) -> None:
    fleet = Sides(plane, backends)
    entering = backends.start("new2")
    weights = {"enter": (1, 3), "begin": (1, 3), "more": (1, 1), "end": (1, 0), "back": (0, 1)}[
        step
    ]
    if step != "begin":
        apply(fleet.driver, fleet.targets(1, 3))
    wanted = fleet.targets(*weights, back=step == "back")
    if step == "enter":
        wanted[entering] = Target(OUT, name="shop-9", new=True)
    broken = t.cast("t.Any", plane.driver())
    for driver in (broken, broken._apart):
        driver.context = replace(driver.context, transport=Breaks(plane.transport, commands))
    with pytest.raises(TrafficError, match="killed"):
        apply(broken, wanted)
    driver = plane.driver()
    settle(driver, wanted)
    if step == "enter":
        prove(driver, entering)
        wanted[entering] = Target(IN, 1, "shop-9", new=True)
        settle(driver, wanted)
        assert plane.shares() == [3333, 3333]
    else:
        assert plane.shares() == {"begin": [2500] * 2, "more": [5000] * 2}.get(step, [0, 0])
    assert {client[:3] for client in answers(plane, 40)} == {
        side for side, weight in zip(("new", "old"), weights, strict=True) if weight
    }
