# SPDX-License-Identifier: GPL-3.0-or-later
"""From reports to the fleet, and from decisions to what balancers shall show."""

from __future__ import annotations

import typing as t
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.loop.fleet import (
    assemble,
    differs,
    serving_at,
    summary,
    targets,
    with_predecessors,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.loop.preview import (
    PreviewPool,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import (
    Health,
    Instance,
    Process,
    Rotation,
    State,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.shares import (
    Target as Region,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import Waypoint
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.weights import WeightSplit
from ansible_collections.progressive.rollout.plugins.plugin_utils.health.monitor import HealthStatus
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    NOWHERE,
    Endpoint,
    Labels,
    Report,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.traffic import (
    Server,
    Target,
    TrafficDriver,
)

HERE = Endpoint("127.0.0.1", 8100)
IN, OUT = Rotation.IN, Rotation.OUT


def report(
    name: str = "shop-1", process: Process = Process.RUNNING, endpoint: Endpoint = HERE
) -> Report:
    return Report(Labels(name, "shop", "r1", 1, "h1", endpoint, 0), process, created=100.0)


def server(
    rotation: Rotation = IN, lb_healthy: bool = True, active: int = 0, ours: bool = True
) -> Server:
    return Server(rotation, lb_healthy, active, ours=ours)


def one(
    process: Process,
    health: Health,
    table: dict[str, dict[Endpoint, Server]] | None,
    known: bool = False,
) -> Instance:
    vitals = {"shop-1": HealthStatus(health, 120.0)}
    return assemble([report(process=process)], table, vitals, {}, {"shop-1"} if known else ())[0]


@pytest.mark.parametrize(
    ("process", "service", "rotation"),
    [
        (Process.FAILED, "shop2", Rotation.ABSENT),
        (Process.FAILED, "shop", Rotation.IN),
        (Process.FAILED, "", Rotation.IN),  # somebody's own server, which may lead to it
        (Process.RUNNING, "shop2", Rotation.IN),  # it has the port: the entry leads to it
    ],
)
def test_the_entry_of_another_service_is_not_that_of_an_instance_that_has_ended(
    process: Process, service: str, rotation: Rotation
) -> None:
    entry = server(ours=service == "shop")._replace(service=service)
    assert one(process, Health.PASSING, {"a": {HERE: entry}}).rotation is rotation


@pytest.mark.parametrize(
    ("entries", "rotation", "lb_healthy", "active"),
    [
        ((None, None), Rotation.ABSENT, False, 0),
        ((server(), server(active=2)), Rotation.IN, True, 2),
        ((server(active=1), server(OUT)), Rotation.PARTIAL, True, 1),
        ((server(), None), Rotation.PARTIAL, False, 0),
        ((server(OUT), server(OUT, lb_healthy=False)), Rotation.OUT, False, 0),
    ],
)
def test_placement_over_two_balancers(
    entries: tuple[Server | None, ...], rotation: Rotation, lb_healthy: bool, active: int
) -> None:
    table = {
        name: {} if entry is None else {HERE: entry}
        for name, entry in zip("ab", entries, strict=True)
    }
    instance = one(Process.RUNNING, Health.PASSING, table)
    assert (instance.rotation, instance.lb_healthy, instance.active) == (
        rotation,
        lb_healthy,
        active,
    )


@pytest.mark.parametrize(
    ("shown", "previewed", "draining", "rotation", "active"),
    [
        (server(OUT), server(active=2), False, OUT, 2),
        (server(OUT, active=1), server(active=2), True, Rotation.PARTIAL, 3),
        (server(OUT, active=1), server(OUT, active=2), True, OUT, 3),
        (server(), server(OUT), True, IN, 0),
    ],
)
def test_its_requests_at_the_preview_count_and_it_goes_when_it_is_out_there(
    shown: Server, previewed: Server, draining: bool, rotation: Rotation, active: int
) -> None:
    since = {"shop-1": 130.0} if draining else {}
    (instance,) = assemble(
        [report()], {"a": {HERE: shown}}, {}, since, previews=[{HERE: previewed}]
    )
    assert (instance.rotation, instance.active) == (rotation, active)


def test_the_dead_do_not_take_the_entry_of_one_that_lives_where_they_were() -> None:
    dead, living = report("shop-1", Process.FAILED), report("shop-2")
    table = {"a": {HERE: server()}}
    fleet = {
        i.id: i
        for i in assemble(
            [dead, living], table, {"shop-2": HealthStatus(Health.PASSING, 120.0)}, {}
        )
    }
    assert (fleet["shop-1"].rotation, fleet["shop-2"].rotation) == (Rotation.ABSENT, Rotation.IN)


def test_a_dead_one_in_an_entry_of_the_configuration_is_nowhere_once_that_is_out() -> None:
    assert (
        one(
            Process.FAILED, Health.PENDING, {"a": {HERE: server(OUT, lb_healthy=False, ours=False)}}
        ).rotation
        is Rotation.ABSENT
    )
    assert (
        one(Process.FAILED, Health.PENDING, {"a": {HERE: server(ours=False)}}).rotation
        is Rotation.IN
    )
    assert one(Process.FAILED, Health.PENDING, {"a": {HERE: server(OUT)}}).rotation is Rotation.OUT


def test_one_that_was_there_is_not_starting_because_its_first_check_failed() -> None:
    assert one(Process.RUNNING, Health.PENDING, None).state is State.STARTING
    was_there = one(Process.RUNNING, Health.PENDING, None, known=True)
    assert (was_there.state, was_there.rotation) == (State.NOT_READY, Rotation.IN)


def test_what_a_balancer_says_of_its_check_is_shown_of_a_ready_instance() -> None:
    table = {
        "a": {HERE: server(OUT)},
        "b": {HERE: server(OUT, lb_healthy=False)._replace(detail="its check: 404")},
    }
    assert one(Process.RUNNING, Health.PASSING, table).detail == "load balancer b: its check: 404"
    assert one(Process.RUNNING, Health.PENDING, table).detail == ""
    assert one(Process.STOPPING, Health.PASSING, table).detail == ""


@pytest.mark.parametrize("other", [{}, {HERE: server(OUT)}, {HERE: server(lb_healthy=False)}])
def test_a_load_balancer_that_lost_an_instance_does_not_hide_that_another_sends_it_requests(
    other: dict[Endpoint, Server],
) -> None:
    instance = one(Process.UNREACHABLE, Health.PENDING, {"a": {HERE: server()}, "b": other})
    assert instance.served
    for mine in (server(OUT), server(lb_healthy=False)):
        table = {"a": {HERE: mine}, "b": {}}
        assert not one(Process.UNREACHABLE, Health.PENDING, table).served


def test_ready_since_is_never_before_it_was_started() -> None:
    fleet = assemble([report()], None, {"shop-1": HealthStatus(Health.PASSING, 50.0)}, {})
    assert fleet[0].ready_since == 100.0


def test_targets_by_balancer() -> None:
    """Known from its start on; in rotation only where admitted and proven; gone before it is
    stopped.
    """
    two = Endpoint("127.0.0.1", 8101)
    fleet = [report("shop-1"), report("shop-2", endpoint=two)]
    table = {
        "a": {HERE: server(), two: server(OUT)},
        "b": {HERE: server(), two: server(OUT, lb_healthy=False)},
    }
    shall = targets(fleet, table, admit=["shop-2"], out=["shop-1"], leaving=[])
    assert shall == {
        "a": {HERE: Target(OUT, 100, "shop-1", 1), two: Target(IN, 100, "shop-2", 1)},
        "b": {HERE: Target(OUT, 100, "shop-1", 1), two: Target(OUT, 100, "shop-2", 1)},
    }
    assert targets(fleet, table, [], [], leaving=["shop-1"])["a"] == {
        two: Target(OUT, 100, "shop-2", 1)
    }


def test_what_is_out_stays_at_the_load_balancer_where_that_is_postponed() -> None:
    two = Endpoint("127.0.0.1", 8101)
    fleet = [report("shop-1"), report("shop-2", endpoint=two)]
    table = {name: {HERE: server(), two: server(OUT)} for name in "ab"}
    shall = targets(fleet, table, (), ["shop-1", "shop-2"], (), postponed={"a": ["shop-1"]})
    assert [shall["a"][at].rotation for at in (HERE, two)] == [IN, OUT]
    assert [shall["b"][at].rotation for at in (HERE, two)] == [OUT, OUT]


def test_what_serves_at_a_load_balancer_is_what_it_sends_requests_to_and_finds_healthy() -> None:
    two, three = Endpoint("127.0.0.1", 8101), Endpoint("127.0.0.1", 8102)
    reports = [
        report("shop-1"),
        report("shop-0", Process.STOPPED),  # it was there before
        report("shop-2", endpoint=two),
        report("shop-3", endpoint=three),
    ]
    table = {
        "a": {HERE: server(), two: server(OUT), three: server(lb_healthy=False)},
        "b": {two: server()},
    }
    fleet = assemble(reports, table, {}, {"shop-1": 130.0})
    assert [i.id for i in serving_at("a", reports, table, fleet)] == ["shop-1"]
    assert [i.id for i in serving_at("b", reports, table, fleet)] == ["shop-2"]
    elsewhere = [Region("eu", frozenset({"h2"}), balancers=frozenset({"b"}))]
    assert serving_at("b", reports, table, fleet, elsewhere) == []


def test_one_that_starts_at_the_endpoint_of_another_gets_no_requests_where_others_do() -> None:
    """A load balancer that was restored has the entry of the one that was there before."""
    two = Endpoint("127.0.0.1", 8102)
    fleet = [report("shop-1"), report("shop-2", endpoint=two)]
    old, other = server()._replace(name="shop-0"), server()._replace(name="shop-2")

    def rotations(*servers: Server, ready: str = "") -> list[Rotation]:
        table = {"a": dict(zip((HERE, two), servers, strict=True))}
        shall = targets(fleet, table, (), (), (), never_ready={"shop-1"}, ready=[ready])["a"]
        return [shall[at].rotation for at in (HERE, two)]

    assert rotations(old, other) == [OUT, IN]
    assert rotations(old, other._replace(rotation=OUT)) == [IN, OUT], "better than none"
    down = other._replace(lb_healthy=False)
    assert rotations(old, down) == [IN, IN], "the other is down"
    assert rotations(old, down, ready="shop-2") == [OUT, IN], "the load balancer's check is ill"
    assert rotations(old._replace(name=""), other) == [IN, IN], "an orchestrator made it"


def test_a_balancer_that_lost_its_state_on_a_way_back_shares_as_the_others() -> None:
    """Bad instances carry what stable ones cannot: they return to it with their part elsewhere, or,
    where all have lost it, with what stable ones cannot carry.
    """
    two = Endpoint("127.0.0.1", 8102)
    labels = Labels("shop-2", "shop", "r2", 2, "h1", two, 0)
    reports = [report("shop-1"), Report(labels, Process.RUNNING, created=100.0)]
    back = WeightSplit(Waypoint(1, 4, 0, 4, weight=100, stable=1, headroom=Fraction(1)))

    def weights(*tables: dict[Endpoint, Server]) -> list[int]:
        table = dict(zip("ab", tables, strict=False))
        shall = targets(reports, table, ["shop-2"], (), (), split=back)["a"]
        return [shall[at].weight for at in (HERE, two)]

    whole = {HERE: server()._replace(weight=3), two: server()._replace(weight=2)}
    lost = {HERE: server(), two: server(OUT)}
    assert weights(whole) == [3, 2], "the bad part does not grow"
    assert weights(lost, whole) == [3, 2]
    assert weights(lost, lost) == weights(lost) == [1, 1], "an even part"


def test_a_balancer_that_lost_its_state_on_a_way_back_has_no_peer_of_another_target() -> None:
    """There may be no bad instances any more."""
    regions = [
        Region(name, frozenset({f"h{name}"}), balancers=frozenset({name})) for name in ("1", "2")
    ]
    part = Waypoint(1, 4, 0, 4, weight=100, stable=1, headroom=Fraction(1))
    back = WeightSplit(replace(part, parts=tuple((region, part) for region in regions)))
    two, three = Endpoint("127.0.0.1", 8102), Endpoint("127.0.0.1", 8103)
    bad = Labels("shop-2", "shop", "r2", 2, "h1", two, 0)
    elsewhere = Labels("shop-3", "shop", "r1", 1, "h2", three, 0)
    reports = [report("shop-1")]
    reports += [Report(labels, Process.RUNNING, created=100.0) for labels in (bad, elsewhere)]
    table = {"1": {HERE: server(), two: server(OUT)}, "2": {three: server()}}
    shall = targets(reports, table, ["shop-2"], (), (), split=back, regions=regions)["1"]
    assert [shall[at].weight for at in (HERE, two)] == [1, 1], "an even part"


def test_an_instance_whose_check_fails_at_a_balancer_has_no_part_of_what_is_left_there() -> None:
    """On a way back it is taken out, and the bad ones keep the part that they really had."""
    two, three = Endpoint("127.0.0.1", 8102), Endpoint("127.0.0.1", 8103)
    bad = Report(Labels("shop-2", "shop", "r2", 2, "h1", two, 0), Process.RUNNING, created=100.0)
    reports = [report("shop-1"), bad, report("shop-3", endpoint=three)]
    back = WeightSplit(Waypoint(1, 4, 0, 4, weight=100, stable=1, headroom=Fraction(1)))
    for good, expected in ((False, [3, 2]), (True, [3, 1])):
        third = server(lb_healthy=good)._replace(weight=3)
        servers = {HERE: server()._replace(weight=3), two: server()._replace(weight=2)}
        shall = targets(reports, {"a": servers | {three: third}}, (), ["shop-3"], (), split=back)
        assert [shall["a"][at].weight for at in (HERE, two)] == expected


def test_a_bad_instance_whose_check_fails_at_a_balancer_leaves_its_part_to_the_other_bad_ones() -> (
    None
):
    """On a way back, stable instances do not get what it cannot carry."""
    two, three = Endpoint("127.0.0.1", 8102), Endpoint("127.0.0.1", 8103)
    reports = [
        report("shop-1"),
        *(
            Report(Labels(name, "shop", "r2", 2, "h1", at, 0), Process.RUNNING, created=100.0)
            for name, at in (("shop-2", two), ("shop-3", three))
        ),
    ]
    back = WeightSplit(Waypoint(1, 2, 0, 2, weight=100, stable=1, headroom=Fraction(1)))
    for good, expected in ((True, [2, 1, 1]), (False, [1, 1, 1])):
        servers = {HERE: server(OUT), two: server(), three: server(lb_healthy=good)}
        shall = targets(reports, {"a": servers}, ["shop-1"], (), (), split=back)["a"]
        assert [shall[at].weight for at in (HERE, two, three)] == expected


def test_one_without_a_place_has_no_entry() -> None:
    fleet = [report("ordered-1", Process.STARTING, NOWHERE), report("shop-2")]
    assert set(targets(fleet, {"a": {}}, [], [], [])["a"]) == {HERE}
    assert [i.rotation for i in assemble(fleet, {"a": {HERE: server()}}, {}, {})] == [
        Rotation.ABSENT,
        IN,
    ]


@pytest.mark.parametrize(
    ("platform", "ours", "health", "since"),
    [
        (Health.PASSING, Health.NONE, State.READY, 130.0),
        (Health.PASSING, Health.PASSING, State.READY, 130.0),
        (Health.PENDING, Health.PASSING, State.STARTING, None),
        (Health.PASSING, Health.PENDING, State.STARTING, None),
        (Health.FAILING, Health.PASSING, State.NOT_READY, None),
        (Health.PASSING, Health.FAILING, State.NOT_READY, None),
        (Health.NONE, Health.PASSING, State.READY, 120.0),
    ],
)
def test_the_platforms_checks_and_ours_have_to_pass(
    platform: Health, ours: Health, health: State, since: float | None
) -> None:
    checked = replace(report(), health=platform, health_since=130.0)
    (instance,) = assemble([checked], None, {"shop-1": HealthStatus(ours, 120.0)}, {})
    assert (instance.state, instance.ready_since) == (health, since)


@pytest.mark.parametrize("process", [Process.STOPPING, Process.FAILED, Process.STOPPED])
def test_what_stops_or_is_dead_gets_no_requests(process: Process) -> None:
    shall = targets([report(process=process)], {"a": {HERE: server()}}, ["shop-1"], [], [])["a"]
    assert HERE not in shall or shall[HERE].rotation is OUT


def test_entries_that_are_not_ours_are_no_difference() -> None:
    strange = Endpoint("127.0.0.1", 9000)
    wanted = {"a": {HERE: Target(IN)}}
    assert not differs({"a": {HERE: server(), strange: server(ours=False)}}, wanted)
    assert differs({"a": {HERE: server(), strange: server()}}, wanted)
    assert differs({"a": {}}, wanted)
    assert differs({"a": {HERE: server(OUT)}}, wanted)


def test_summary_counts_every_state_and_shares_the_traffic() -> None:
    table = {"a": {HERE: server(), Endpoint("127.0.0.1", 8101): server()}}
    fleet = assemble(
        [report(), report("shop-2", endpoint=Endpoint("127.0.0.1", 8101))],
        table,
        {"shop-1": HealthStatus(Health.PASSING, 0)},
        {},
    )
    counts = summary(fleet)["r1"]
    assert (counts["ready"], counts["starting"], counts["traffic"]) == (1, 1, 100.0)
    assert set(counts) == {state.value for state in State} | {"traffic"}


def test_targets_say_which_side_comes_and_a_baseline_does_not() -> None:
    def sides(waypoint: Waypoint) -> list[bool | None]:
        reports = [generation(number, 8100 + number) for number in (1, 2, 3)]
        split = WeightSplit(waypoint)
        given = targets(reports, {"lb1": {}}, (), (), (), split=split)["lb1"]
        return [given[r.labels.endpoint].new for r in reports]

    assert sides(Waypoint(2, 1, 2, desired=3, weight=20)) == [False, True, False]
    assert sides(Waypoint(3, 1, 2, desired=3, baseline=3)) == [False, False, False]
    table: dict[str, dict[Endpoint, Server]] = {"lb1": {}}
    assert targets([report()], table, (), (), ())["lb1"][HERE].new is None


def generation(number: int, port: int) -> Report:
    labels = Labels(f"shop-{number}", "shop", "r", number, "h1", Endpoint("127.0.0.1", port), 0)
    return Report(labels, Process.RUNNING, created=100.0)


@pytest.mark.parametrize(
    ("entry", "admitted", "slots", "replicas", "kept"),
    [
        (server(), False, 9, 1, True),
        (server(), True, 9, 1, False),  # all that are wanted are in rotation
        (server(), True, 9, 2, True),
        (server(), False, 1, 1, False),  # the instance's own entry needs the slot
        (server(OUT), False, 9, 1, False),
        (server(lb_healthy=False), False, 9, 1, False),
        (server(ours=False), False, 9, 1, False),  # nobody touches it
    ],
)
def test_servers_without_an_instance_stay_until_others_serve(
    entry: Server, admitted: bool, slots: int, replicas: int, kept: bool
) -> None:
    before = Endpoint("127.0.0.1", 8200)
    table = {"a": {HERE: server(OUT), before: entry._replace(name="shop-7", weight=30)}}
    shown = targets([report()], table, ["shop-1"] if admitted else [], [], [])
    wanted = with_predecessors(shown, table, [report()], replicas, lambda: {"a": slots})
    assert set(wanted["a"]) == {HERE, before} if kept else wanted == shown
    if kept:
        assert wanted["a"][before] == Target(IN, 30, "shop-7")
    gone = with_predecessors({"a": {}}, table, [report(endpoint=before)], replicas, dict)
    assert gone == {"a": {}}, "the instance that it leads to is leaving"


def test_each_instance_in_rotation_replaces_one_server() -> None:
    left = {Endpoint("127.0.0.1", 8200 + n): server()._replace(name=f"old-{n}") for n in range(4)}
    table = {"a": {HERE: server(OUT), **left}}
    shown = targets([report()], table, ["shop-1"], [], [])
    wanted = with_predecessors(shown, table, [report()], 3, lambda: {"a": 9})
    assert [target.name for target in wanted["a"].values()][1:] == ["old-0", "old-1"]


def test_in_a_preview_what_starts_at_the_endpoint_of_another_waits_until_it_is_ready() -> None:
    pool = PreviewPool(t.cast(TrafficDriver, SimpleNamespace()), idle_only=False)
    pool.wanted = True

    def shown(entry: Server, ready: Sequence[str] = ()) -> Rotation:
        pool.table = {"a": {HERE: entry}}
        return pool._targets([report("shop-1")], ready)["a"][HERE].rotation

    assert shown(server()._replace(name="shop-0")) is OUT
    assert shown(server()._replace(name="shop-0"), ["shop-1"]) is IN
    assert shown(server()._replace(name="shop-1")) is IN, "its check fails, and it had passed"
    assert shown(server()) is IN, "entries have no names"


def test_what_was_in_rotation_before_an_instance_is_not_its_own_until_it_is_ready() -> None:
    theirs = server(ours=False)
    for process in (Process.STARTING, Process.FAILED):
        table = {"a": {HERE: theirs}}
        born = report(process=process)
        (seen,) = assemble([born], table, {}, {}, unborn=["shop-1"])
        assert seen.rotation is Rotation.ABSENT and not seen.was_ready
        assert targets([born], table, [], [], [], unborn=["shop-1"]) == {"a": {}}
        (seen,) = assemble([born], table, {}, {})
        assert seen.rotation is IN, "of one that may have been ready"
    own = {"a": {HERE: server()}}
    (seen,) = assemble([report()], own, {}, {}, unborn=["shop-1"])
    assert seen.rotation is IN, "of an older state of the load balancer: it is to be taken out"
    ready = {"shop-1": HealthStatus(Health.PASSING, 0.0)}
    (seen,) = assemble([report()], {"a": {HERE: theirs}}, ready, {}, unborn=["shop-1"])
    assert seen.rotation is IN, "it answers there now"


def test_an_instance_that_waits_for_its_load_balancer_has_its_words() -> None:
    ready = {"shop-1": HealthStatus(Health.PASSING, 0.0)}
    waits = server(OUT, lb_healthy=False)._replace(status="DRAIN 1/2")
    for entry, words in (
        (waits, "load balancer a shows it as DRAIN 1/2"),
        (waits._replace(detail="its agent"), "load balancer a: its agent"),
        (waits._replace(lb_healthy=True, status="DRAIN"), ""),
    ):
        (seen,) = assemble([report()], {"a": {HERE: entry}}, ready, {})
        assert seen.detail == words
