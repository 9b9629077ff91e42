# SPDX-License-Identifier: GPL-3.0-or-later
"""Servers that people wrote into a load balancer's configuration become the stable side of the
first rollout.
"""

from __future__ import annotations

import itertools
import typing as t
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest
from ansible_collections.progressive.rollout.plugins.action import (
    begin,
    plan,
    promote,
    rollback,
    scale,
)
from ansible_collections.progressive.rollout.plugins.action import replace as replaces
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    InputError,
    Interrupted,
    RolloutFailed,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Rotation
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    Endpoint,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.traffic import (
    Server,
    Target,
    TrafficDriver,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.record import Record
from ansible_collections.progressive.rollout.tests.support.memory import (
    Service,
    Traffic,
    World,
)

pytestmark = pytest.mark.usefixtures("virtual_time")

NAMES = tuple(f"app{number}" for number in range(1, 7))


@dataclass
class Before(World):
    """A load balancer with six servers of its configuration, which carry all requests."""

    by_hand: dict[str, Endpoint] = field(default_factory=dict)
    parked: list[str] = field(default_factory=list)  # of these, in maintenance

    def __post_init__(self) -> None:
        for number, name in enumerate(NAMES):
            self.by_hand[name] = Endpoint("10.0.0.1", 8001 + number)
            self.servers[self.by_hand[name]] = Server(
                Rotation.IN, True, 0, 1, ours=False, name=name
            )

    def traffic(self) -> TrafficDriver:
        return Adopting(self)

    def entered(self) -> dict[str, int]:
        """Return the weight of each server in rotation, by name."""
        return {s.name: s.weight for s in self.servers.values() if s.rotation is Rotation.IN}

    def check(self) -> None:
        """The promises, with the adopted servers as instances."""
        adopted = [server for at, server in self.servers.items() if at in self.by_hand.values()]
        inside = sum(server.rotation is Rotation.IN for server in adopted)
        if len(self.alive()) + len(adopted) > self.most:
            self.wrong.append(f"{len(self.alive())} instances and {len(adopted)} adopted ones")
        if self.serving() + inside < self.fewest:
            self.wrong.append(f"{self.serving()} and {inside} in rotation")


class Adopting(Traffic):
    """It turns servers of its configuration that were adopted, and leaves others alone."""

    adopts = True
    world: Before

    def observe(self) -> dict[str, dict[Endpoint, Server]]:
        self.world.called("observe")
        return {"lb": self.shown()}

    def shown(self) -> dict[Endpoint, Server]:
        known = self.world.known().adopted
        return {
            at: server._replace(ours=True, service="shop") if server.name in known else server
            for at, server in self.world.servers.items()
        }

    def apply(
        self, targets: Mapping[str, Mapping[Endpoint, Target]]
    ) -> dict[str, dict[Endpoint, Server]]:
        world, wanted = self.world, targets["lb"]
        known = world.known().adopted
        fixed = {at: name for name, at in world.by_hand.items() if name not in known}
        if touched := fixed.keys() & wanted.keys():
            world.wrong.append(f"{touched} are not adopted")
        world.called("apply before")
        for at in sorted(wanted, key=lambda at: wanted[at].rotation is not Rotation.IN):
            target = wanted[at]
            old = world.servers.get(at, Server(Rotation.OUT, True, 0))
            world.servers[at] = old._replace(
                rotation=target.rotation, weight=target.weight, name=target.name
            )
            world.check()
            world.called("apply between")
        for at in set(world.servers) - set(wanted) - fixed.keys():
            if world.servers[at].active and world.servers[at].rotation is Rotation.OUT:
                continue  # shown as long as clients are connected
            if world.servers.pop(at).rotation is Rotation.IN and at in world.by_hand.values():
                world.wrong.append(f"{at} was not drained")
        world.called("apply after")
        return {"lb": self.shown()}


def shop(world: World | None = None, **given: t.Any) -> Service:
    return Service(
        world or Before(most=8, fewest=6),
        **{
            "budget": {"max_surge": 2, "max_unavailable": 0},
            "replicas": 6,
            "adopt": {"revision": "2.3", "servers": list(NAMES)},
            "wait": 60,
        }
        | given,
    )


def state(service: Service) -> tuple[list[str], Record]:
    world = t.cast(Before, service.world)
    assert not world.wrong
    return sorted(name for name in world.entered() if name in NAMES), service.journal


def test_adopted_servers_leave_one_by_one_as_others_arrive() -> None:
    service = shop()
    result = service.play(revision="2.4")
    inside, record = state(service)
    assert (result["rollout"]["outcome"], inside) == ("promoted", [])
    assert service.running == {"2.4": 6}
    assert record.stable and (record.stable.revision, record.stable.replicas) == ("2.4", 6)
    assert record.before and record.before.revision == "2.3"
    assert record.adopted and sorted(record.adopted.out) == list(NAMES)
    assert record.rollout and record.rollout.replaced == 6
    (line,) = [line for line in service.said if "PR-349" in line]
    assert all(name in line for name in NAMES)
    again = service.play(revision="2.4")
    assert not again["changed"]
    assert not [line for line in service.said if "settings" in line]


def test_adopted_servers_with_open_connections_are_named_at_the_end() -> None:
    """As in TCP mode, where a connection lasts as long as its client wants it to."""
    world = Before(most=8, fewest=6)
    changed("app2", active=3)(world)
    service = shop(world)
    assert service.play(revision="2.4")["rollout"]["outcome"] == "promoted"
    (line,) = [line for line in service.said if "PR-349" in line]
    assert "not needed" not in line
    assert "once clients have closed their connections to app2 [PR-349]" in line


def test_one_new_instance_does_not_replace_six_servers() -> None:
    world = Before(most=8, fewest=6)
    service, seen = shop(world), []

    def look(call: str) -> None:
        if call == "apply between" and world.serving():
            seen.append(world.entered())

    world.fails = look
    service.play(revision="2.4")
    assert len(seen[0]) >= 6
    assert set(seen[0].values()) == {100}  # a share of each is an even one


def test_a_canary_holds_the_share_of_the_whole() -> None:
    service = shop(strategy="canary", steps=[{"set_weight": 25}, {"pause": {}}])
    service.play(revision="2.4")
    inside, _record = state(service)
    weights = t.cast(Before, service.world).entered()
    new = sum(weight for name, weight in weights.items() if name not in NAMES)
    assert 100 * new == 25 * sum(weights.values())
    assert inside
    with pytest.raises(RolloutFailed):
        service.say("abort")
        service.play(revision="2.4")
    inside, record = state(service)
    assert inside == list(NAMES)
    assert service.running == {}
    assert record.stable and record.stable.revision == "2.3"
    assert record.adopted and not record.adopted.out


def test_blue_green_keeps_adopted_servers_until_the_switch() -> None:
    service = shop(Before(most=12, fewest=6), strategy="blue_green", auto_promote=True, hold="10m")
    service.step(begin, revision="2.4")
    service.step(replaces, revision="2.4")
    assert state(service)[0] == list(NAMES)
    service.step(promote, revision="2.4")
    inside, record = state(service)
    assert (inside, record.adopted and record.adopted.out) == ([], [])
    with pytest.raises(RolloutFailed):
        service.say("abort")
        service.play(revision="2.4")
    assert state(service)[0] == list(NAMES)
    assert service.running == {}


@pytest.mark.parametrize("call", ["commit", "apply after", "sync before", "sync after"])
@pytest.mark.parametrize("number", [4, 7, 11, 16])
def test_a_killed_adoption_is_continued(call: str, number: int) -> None:
    world = Before(most=8, fewest=6)
    service, calls = shop(world), 0

    def kill(what: str) -> Exception | None:
        nonlocal calls
        calls += what == call
        return Interrupted("killed", "PR-505") if calls == number and what == call else None

    world.fails = kill
    try:
        service.play(revision="2.4")
    except Interrupted:
        pass
    world.fails = lambda _call: None
    service.play(revision="2.4")
    inside, record = state(service)
    assert (inside, service.running) == ([], {"2.4": 6})
    assert record.adopted and sorted(record.adopted.out) == list(NAMES)


@pytest.mark.slow
@pytest.mark.parametrize("fails", [False, True])
def test_a_kill_at_any_moment_loses_no_server(fails: bool) -> None:
    """Every third call to the outside; forward, and back since instances fail."""
    killed = 0
    for moment in itertools.count(1, 3):
        world = Before(most=8, fewest=6)
        service, calls = shop(world, headroom=0), itertools.count(1)
        if fails:
            world.crashes = lambda labels, world=world: len(world.instances) > 2

        def kill(_call: str, moment: int = moment, calls: t.Iterator[int] = calls) -> None:
            if next(calls) == moment:
                raise Interrupted("killed", "PR-505")

        world.fails = kill
        left = 3
        while left:
            try:
                service.play(revision="2.4")
                left = 0
            except Interrupted:
                killed, left = killed + 1, left - 1
            except RolloutFailed:
                left = 0
        inside, record = state(service)
        assert inside == (list(NAMES) if fails else []), moment
        assert service.running == ({} if fails else {"2.4": 6}), moment
        assert record.open is None, moment
        if next(calls) <= moment:
            break
    assert killed >= 15


def test_servers_that_left_return_when_the_rollout_fails() -> None:
    world = Before(most=8, fewest=6)
    world.crashes = lambda labels: len(world.instances) > 2
    service = shop(world, headroom=0)
    with pytest.raises(RolloutFailed):
        service.play(revision="2.4")
    inside, record = state(service)
    assert (inside, service.running) == (list(NAMES), {})
    assert record.adopted and not record.adopted.out
    world.crashes = lambda labels: False
    service.play(revision="2.5")
    assert (state(service)[0], service.running) == ([], {"2.5": 6})


def test_fewer_new_instances_keep_all_servers_until_promotion() -> None:
    service = shop(Before(most=8, fewest=6), replicas=4)
    service.world.capacity = 6
    service.world.fails = lambda call: (
        setattr(service.world, "fewest", 4) if service.journal.stable else None
    )
    service.step(begin, revision="2.4")
    rollout = service.journal.open
    assert rollout and rollout.base == 6


def test_the_same_revision_is_refused_unless_restarted() -> None:
    service = shop()
    with pytest.raises(InputError, match="what runs on the adopted"):
        service.play(revision="2.3")
    assert not service.running
    assert service.journal.rollout is None
    service.step(begin, {"restart": True}, revision="2.3")
    service.play(revision="2.3")
    assert (state(service)[0], service.running) == ([], {"2.3": 6})


def at_a_socket(world: Before) -> None:
    """Have the server app2 at a UNIX socket."""
    before, at = world.by_hand["app2"], Endpoint("app2", 0)
    world.by_hand["app2"], world.servers[at] = at, world.servers.pop(before)


def changed(name: str, **values: t.Any) -> t.Callable[[Before], None]:
    def change(world: Before) -> None:
        at = world.by_hand[name]
        world.servers[at] = world.servers[at]._replace(**values)

    return change


@pytest.mark.parametrize(
    ("adopt", "change", "why"),
    [
        (
            {"servers": ["app1", "app9"]},
            None,
            "app9 at load balancer lb: there is no such server with an",
        ),
        ({"servers": []}, None, "must not be empty"),
        ({"servers": None}, None, "rollout_adopt.servers: not given"),
        ({"servers": ["app1"]}, None, "5 servers more: app2, app3"),
        ({}, changed("app2", lb_healthy=False, detail="L4CON"), "app2 .* not passed .* .L4CON.;"),
        ({}, changed("app2", lb_healthy=False, status="UP 1/3"), "app2 .* not passed .* .UP 1/3.;"),
        ({}, changed("app2", rotation=Rotation.OUT), "app2 .* gets no requests"),
        ({}, changed("app2", service="cart"), "service cart"),
        ({}, changed("app2", ours=True), "app2 .* a rollout has made it"),
        ({}, changed("app2", backup=True), "app2 .* it is a backup"),
        ({}, at_a_socket, "app2 .* it has no address and port"),
        ({"servers": ["app1"]}, at_a_socket, "5 servers more: app2, app3"),
        ({}, changed("app2", weight=3), "weights differ .app1 1, app2 3"),
    ],
)
def test_a_server_that_cannot_be_adopted_is_refused(
    adopt: dict[str, t.Any], change: t.Callable[[Before], None] | None, why: str
) -> None:
    world = Before(most=8, fewest=0)
    if change:
        change(world)
    servers = dict(world.servers)
    given = {"revision": "2.3", "servers": list(NAMES)} | adopt
    service = shop(world, adopt={key: value for key, value in given.items() if value is not None})
    for step in (plan, begin):
        with pytest.raises(InputError, match=why) as refused:
            service.step(step, revision="2.4")
        assert refused.value.id in ("PR-125", "PR-346", "PR-347", "PR-314")
    assert (world.servers, world.instances) == (servers, {})


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (
            {
                "strategy": "canary",
                "steps": [
                    {"set_weight": 50},
                    {
                        "analysis": {
                            "baseline": True,
                            "metrics": [
                                {
                                    "name": "errors",
                                    "driver": "command",
                                    "command": ["true"],
                                    "failure_condition": "result > 1",
                                }
                            ],
                        }
                    },
                ],
            },
            "rollout_steps: .*baseline",
        ),
        ({"replicas": "per_host"}, "rollout_replicas: per_host"),
    ],
)
def test_variables_that_do_not_go_with_adoption_are_refused(
    given: dict[str, t.Any], why: str
) -> None:
    service = shop(Before(most=12, fewest=6), **given)
    with pytest.raises(InputError, match=why) as refused:
        service.step(plan, revision="2.4")
    assert refused.value.id == "PR-346"


def test_a_driver_that_cannot_adopt_refuses() -> None:
    world = Before(most=8, fewest=6)
    service = shop(world)
    world.traffic = lambda: Traffic(world)  # type: ignore[method-assign]
    with pytest.raises(InputError, match="memory cannot adopt") as refused:
        service.step(begin, revision="2.4")
    assert refused.value.id == "PR-346"


def test_adoption_after_a_promotion_has_no_effect() -> None:
    world = Before(most=8, fewest=6)
    service = shop(world)
    service.play(revision="2.4")
    world.fewest = 6
    service.play(revision="2.5")
    assert [line for line in service.said if "rollout_adopt has no effect" in line]
    assert service.running == {"2.5": 6}
    assert state(service)[0] == []


def test_a_plan_has_the_adopted_servers_as_old_ones() -> None:
    service = shop()
    shown = service.step(plan, revision="2.4")
    assert (shown["previous"], shown["order"]) == ("2.3", list(NAMES))
    assert shown["traffic_changes"] == {"enter": 6, "leave": 6}
    assert shown["minimum_available"] == 6
    assert service.journal.adopted is None


def test_a_server_that_a_restart_puts_back_leaves_again() -> None:
    service = shop()
    service.play(revision="2.4")
    world = t.cast(Before, service.world)
    at = world.by_hand["app3"]
    world.servers[at] = Server(Rotation.IN, True, 0, 1, ours=False, name="app3")
    assert state(service)[0] == ["app3"]
    service.play(revision="2.4")
    world.wrong.clear()  # as any entry of no instance, it has nothing to be drained for
    assert (state(service)[0], service.running) == ([], {"2.4": 6})


def test_other_servers_may_be_adopted_after_an_abort() -> None:
    service = shop(strategy="canary", steps=[{"set_weight": 25}, {"pause": {}}])
    service.play(revision="2.4")
    with pytest.raises(RolloutFailed):
        service.say("abort")
        service.play(revision="2.4")
    world = t.cast(Before, service.world)
    gone = world.by_hand.pop("app6")
    del world.servers[gone]
    world.fewest = 5
    with pytest.raises(InputError, match=r"app6 .*no such server"):
        service.step(begin, revision="2.4")
    again = {"revision": "2.3", "servers": list(NAMES[:5])}
    service.step(begin, revision="2.4", adopt=again)
    record = service.journal
    assert record.adopted and list(record.adopted.servers) == list(NAMES[:5])
    assert record.open and record.open.previous and record.open.previous.replicas == 5


def test_a_rollout_that_supersedes_the_first_has_the_servers_too() -> None:
    service = shop(strategy="canary", steps=[{"set_weight": 25}, {"pause": {}}])
    service.play(revision="2.4")
    service.play(revision="2.5", supersede=True, strategy="rolling", steps=None)
    assert (state(service)[0], service.running) == ([], {"2.5": 6})
    assert [line for line in service.said if "PR-349" in line]


def test_the_number_of_adopted_servers_is_the_current_one() -> None:
    service = shop(replicas="current")
    service.play(revision="2.4")
    assert (state(service)[0], service.running) == ([], {"2.4": 6})


def test_no_instance_gets_the_name_of_an_adopted_server() -> None:
    world = Before(most=8, fewest=6)
    at = world.by_hand.pop("app6")
    world.by_hand["shop-7"] = at
    world.servers[at] = world.servers[at]._replace(name="shop-7")
    names = [*NAMES[:5], "shop-7"]
    service = shop(world, adopt={"revision": "2.3", "servers": names})
    service.play(revision="2.4")
    assert (state(service)[0], service.running) == ([], {"2.4": 6})
    assert "shop-7" not in world.instances
    assert [line for line in service.said if "adopted as 2.3: app1" in line]


def test_going_back_after_the_end_starts_instances_instead() -> None:
    """By then the servers may have been deleted, and their programs stopped."""
    service = shop()
    service.play(revision="2.4")
    service.step(rollback, revision=None)
    assert (state(service)[0], service.running) == ([], {"2.3": 6})


def test_a_server_that_breaks_meanwhile_is_no_capacity() -> None:
    world = Before(most=8, fewest=5)
    service = shop(world)

    def fail(call: str) -> None:
        if call == "apply after" and world.serving() and world.by_hand["app6"] in world.servers:
            changed("app6", lb_healthy=False)(world)

    world.fails = fail
    seen: list[int] = []
    check = world.check

    def look() -> None:
        check()
        well = sum(s.lb_healthy and s.rotation is Rotation.IN for s in world.servers.values())
        seen.append(well)

    world.check = look  # type: ignore[method-assign]
    service.play(revision="2.4")
    assert (state(service)[0], service.running) == ([], {"2.4": 6})
    assert min(seen) >= 5  # one broke, and none was taken out for it


def test_scaling_what_was_adopted_is_refused() -> None:
    service = shop()
    with pytest.raises(InputError, match=r"2\.3 is what runs on the adopted servers"):
        service.step(scale, revision="2.3", replicas=7)
    assert not service.running


def test_a_journal_without_adoption_is_as_before() -> None:
    record = Record("shop")
    assert "adopted" not in record.dump()
    assert Record.load("shop", record.dump()) == record
    adopted = replace(record)
    assert adopted == record
