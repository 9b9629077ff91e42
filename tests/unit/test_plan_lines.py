# SPDX-License-Identifier: GPL-3.0-or-later
"""A plan as people read it."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.progressive.rollout.plugins.action import begin, plan, promote
from ansible_collections.progressive.rollout.plugins.action import replace as replaces
from ansible_collections.progressive.rollout.plugins.plugin_utils.report.plan import lines
from ansible_collections.progressive.rollout.tests.support.memory import Service, World

PLAN: dict[str, t.Any] = {
    "revision": "2.4.3",
    "previous": "2.4.2",
    "strategy": "canary",
    "replicas": 6,
    "settings": ["env.CACHE: off -> on"],
    "orders": [None, None],
    "stopped": "",
    "waypoints": [
        {"name": "step 1", "share": 10, "new": 1, "old": 6, "fresh": 0},
        {"name": "promote", "share": None, "new": 6, "old": 0, "fresh": 0},
    ],
    "peak_extra": 2,
    "minimum_available": 6,
    "order": [f"shop-{n}" for n in range(1, 11)],
    "traffic_changes": {"enter": 6, "leave": 6},
    "shares": "by the load balancers' weights",
    "seconds": 12.4,
    "measured": True,
    "waits": [
        {"gate": "step 2 pause", "driver": "pause", "person": False, "seconds": 600.0},
        {"gate": "step 3 analysis", "driver": "analysis", "person": False, "seconds": None},
        {"gate": "step 4 approval", "driver": "approval", "person": True, "seconds": None},
    ],
    "requests": [
        {
            "gate": "step 3 analysis",
            "metric": "errors",
            "share": 10.0,
            "detect": 0.05,
            "new": 139,
            "all": 1390,
            "seconds": 463.3,
            "lasts": 300.0,
        }
    ],
    "excluded": [],
    "watched": ["analysis: errors, latency (the default)"],
    "unknown": ["how long step 3 analysis (analysis) takes to pass"],
    "next": {"reached": False},
}


def test_a_plan() -> None:
    assert lines("shop", PLAN) == [
        "shop 2.4.2 -> 2.4.3 (canary, 6 instances)",
        "  settings    env.CACHE: off -> on",
        "  stages      step 1: 10 % of requests, 1 new, 6 old",
        "              promote: 6 new, 0 old",
        "  instances   at most 8 at once, at least 6 available",
        "  replaced    shop-1, shop-2, shop-3, shop-4, shop-5, shop-6, shop-7, shop-8 and 2 more,"
        " in this order",
        "  traffic     6 put in rotation, 6 taken out; divided by the load balancers' weights",
        "  time        about 12 s by what instances took in the last rollout, and 10 min 00 s of"
        " pauses",
        "  waits for   10 min 00 s, at step 2 pause",
        "              analysis, at step 3 analysis",
        "              an operator, at step 4 approval (promote.yml or abort.yml)",
        "  requests    139 of 1,390 (10 %) show a rate of 0.05: errors, at step 3 analysis; about"
        " 7 min 43 s as in the last rollout, and it measures for 5 min 00 s only: raise count,"
        " or add requests by probe",
        "  watched by  analysis: errors, latency (the default)",
        "  not known   how long step 3 analysis (analysis) takes to pass",
    ]


def test_the_order_and_what_it_waits_for_are_shown() -> None:
    stopped = "frozen: year end, until 2027-01-04 00:00:00Z"
    found = lines("shop", {**PLAN, "orders": [17, 18], "stopped": stopped})
    assert found[2:4] == ["  order       18, after 17", f"  begins      {stopped}"]


def test_hosts_that_are_left_out_are_named() -> None:
    assert "  left out    web2, web3" in lines("shop", {**PLAN, "excluded": ["web2", "web3"]})


def test_a_first_deployment_replaces_nothing() -> None:
    found = lines("shop", {**PLAN, "previous": None, "order": [], "settings": []})
    assert found[0] == "shop 2.4.3 (canary, 6 instances)"
    assert not any(line.startswith("  replaced") for line in found)


def test_what_is_there_already_takes_nothing() -> None:
    service = Service(World(fewest=0, most=9), replicas=3)
    service.play(revision="1")
    assert service.step(plan, revision="1")["lines"] == ["shop 1: nothing to do"]
    more = service.step(plan, revision="1", replicas=5)["lines"]
    assert more[0] == "shop 1 (rolling, 5 instances)"
    assert any("2 put in rotation, 0 taken out" in line for line in more), more


@pytest.mark.usefixtures("virtual_time")
def test_the_old_set_on_standby_is_what_is_left_after_the_switch() -> None:
    """The new revision is the stable one by then."""
    given = {"revision": "2", "strategy": "blue_green", "hold": "15m"}
    service = Service(World(fewest=0, most=9), replicas=3)
    service.play(revision="1")
    for step in (begin, replaces, promote):
        service.step(step, **given)
    shown = service.step(plan, **given)["lines"]
    assert shown[0] == "shop 1 -> 2 (blue_green, 3 instances)"
    assert any("0 put in rotation, 0 taken out" in line for line in shown), shown
    assert not any("stable lost" in line for line in shown), shown


@pytest.mark.usefixtures("virtual_time")
@pytest.mark.parametrize("gates", [{}, {"confirm_rollout": [{"driver": "approval"}]}])
def test_what_waits_has_something_left(gates: dict[str, t.Any]) -> None:
    """The fleet is where the first of the stages leads, and others follow."""
    given = {
        "revision": "2",
        "strategy": "canary",
        "steps": [{"set_replicas": 1}, {"pause": {}}],
        "gates": gates,
    }
    service = Service(World(fewest=0, most=9), replicas=3)
    service.play(revision="1")
    for _moment in ("before it begins", "while it waits"):
        shown = service.step(plan, **given)["lines"]
        assert shown[0] == "shop 1 -> 2 (canary, 3 instances)"
        assert any("promote: 3 new, 0 old" in line for line in shown), shown
        assert service.play(**given)["parked"]


def test_old_instances_that_are_started_first_are_told() -> None:
    few = {**PLAN, "order": ["shop-1", "shop-2"]}
    told = "              begins by starting 4 instances of 2.4.2: 2 run, a stage has 6"
    assert told in lines("shop", few)
    assert not [line for line in lines("shop", PLAN) if "begins by" in line]
    assert not [line for line in lines("shop", {**few, "previous": None}) if "begins by" in line]


def test_what_a_ready_second_set_does_where_no_stable_instance_serves_is_told() -> None:
    told = {}
    for then in ("repair", "promote", "hold"):
        found = lines("shop", {**PLAN, "strategy": "blue_green", "on_stable_lost": then})
        (told[then],) = (line for line in found if line.startswith("  stable lost"))
    assert "gets no requests before the switch" in told["repair"]
    assert "at once, without gates" in told["promote"] and "held" in told["hold"]
    assert not [line for line in lines("shop", PLAN) if line.startswith("  stable lost")]


def test_a_guess_is_called_one() -> None:
    assert "  time        about 12 s by a guess" in lines(
        "shop", {**PLAN, "measured": False, "waits": []}
    )


def test_a_budget_with_which_it_cannot_end_is_told() -> None:
    assert "  time        not known: with these numbers and this budget it cannot end" in lines(
        "shop", {**PLAN, "seconds": None}
    )


def test_control_characters_are_removed() -> None:
    assert not any("\x1b" in line for line in lines("shop", {**PLAN, "settings": ["a: \x1b[31m"]}))


def test_how_many_requests_an_analysis_needs() -> None:
    def row(**changes: object) -> str:
        needed = [{**PLAN["requests"][0], **changes}]
        found = lines("shop", {**PLAN, "requests": needed})
        return next(line for line in found if line.startswith("  requests"))

    start = "  requests    139 of 1,390 (10 %) show a rate of 0.05: errors, at step 3 analysis; "
    assert row(seconds=12.0) == f"{start}about 12 s as in the last rollout"
    unknown = "how long that takes is not known without counts of a last rollout"
    assert row(seconds=None) == f"{start}{unknown}"
    none = "  requests    no number shows a rate of 0.05: errors, at step 3 analysis"
    assert row(new=None, all=None) == none
