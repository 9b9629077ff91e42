# SPDX-License-Identifier: GPL-3.0-or-later
"""Targets: how many instances each has, which stages a rollout over them has, and what is refused."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping
from fractions import Fraction
from types import SimpleNamespace

import pytest
import yaml
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    InputError,
    PlatformError,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.config import strategy
from ansible_collections.progressive.rollout.plugins.plugin_utils.config.fingerprint import (
    fingerprint,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.loop.placement import (
    Placement,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.loop.regions import (
    refuse_unknown_balancers,
    targets_of,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.rollout.validation import (
    fewer,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.budget import Budget, up
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.evaluate import (
    Decision,
    Start,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.forecast import (
    forecast,
    settled,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import (
    Instance,
    Rotation,
    State,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.progress import Rules
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.shares import (
    Target,
    counted,
    share,
    total,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import (
    RolloutTarget,
    Stage,
    rolling,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.targets import (
    most_at,
    stages,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs import values
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    Capabilities,
    Endpoint,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.record import Record
from ansible_collections.progressive.rollout.tests.support.pages import SNIPPETS


def target(name: str, factor: str = "1", *balancers: str) -> Target:
    return Target(name, frozenset({f"{name}1", f"{name}2"}), Fraction(factor), frozenset(balancers))


# From Picchu's tests: controllers/incarnation_controller_test.go (github.com/medium/picchu).
@pytest.mark.parametrize(
    "percent, factors, each, together",
    [
        ("100%", (1, 1, 1, 1), [2, 2, 2, 2], 8),
        ("80%", (1, 1, 1, 1), [1, 1, 1, 1], 4),
        ("81%", (1, 1, 1, 1), [2, 2, 2, 2], 8),
        ("100%", (2, 2, 3, 1), [4, 4, 6, 2], 16),
        ("81%", (2, 2, 3, 1), [4, 4, 6, 2], 16),
    ],
)
def test_five_replicas_on_four_clusters(
    percent: str, factors: tuple[int, ...], each: list[int], together: int
) -> None:
    clusters = [target(f"c{number}", str(factor)) for number, factor in enumerate(factors)]
    count = up(values.amount(percent, "p"), 5)
    assert [share(count, 4, one.factor) for one in clusters] == each
    assert total(count, clusters) == together


def test_what_runs_is_counted_as_what_was_asked_for() -> None:
    even = [target(n) for n in "abc"]
    uneven = [target("a", "2"), target("b", "2"), target("c", "3"), target("d")]
    assert (counted(12, even), counted(7, even), counted(0, even)) == (12, 7, 0)
    assert total(counted(16, uneven), uneven) == 16
    assert total(counted(17, uneven), uneven) >= 17


WAVES = [
    {
        "name": "eu",
        "hosts": "eu",
        "soak": "10m",
        "gates": [{"driver": "command", "command": ["true"]}],
    },
    {"name": "us", "hosts": "us", "soak": "1h"},
    {"name": "ap", "hosts": "ap"},
]


def planned(goal: RolloutTarget | None = None, **given: t.Any) -> tuple[Stage, ...]:
    plan = strategy.parse({"targets": WAVES, **given})
    allowed = Budget(1, 0).resolve(12)
    targets = [target(wave.name, str(wave.factor), *wave.balancers) for wave in plan.waves]
    return stages(plan, goal or RolloutTarget(2, 12, allowed, before=12, stable=1), targets)


def shown(stage: Stage) -> tuple[str, list[tuple[int, int]], list[str]]:
    parts = [(part.new, part.old) for _target, part in stage.waypoint.parts]
    return stage.name, parts, [gate.key for gate in stage.gates]


def test_a_wave_after_the_other() -> None:
    assert [shown(stage) for stage in planned()] == [
        ("eu replace", [(4, 0), (0, 4), (0, 4)], ["eu soak", "eu gate 1"]),
        ("us replace", [(4, 0), (4, 0), (0, 4)], ["us soak"]),
        ("ap replace", [(4, 0), (4, 0), (4, 0)], []),
        ("promote", [(4, 0), (4, 0), (4, 0)], []),
    ]


def test_the_steps_of_a_canary_are_those_of_each_target() -> None:
    found = [shown(one) for one in planned(strategy="canary", steps=[{"set_replicas": "25%"}])]
    assert found[:4] == [
        ("eu step 1", [(1, 3), (0, 4), (0, 4)], []),
        ("eu all", [(4, 0), (0, 4), (0, 4)], ["eu soak", "eu gate 1"]),
        ("us step 1", [(4, 0), (1, 3), (0, 4)], []),
        ("us all", [(4, 0), (4, 0), (0, 4)], ["us soak"]),
    ]
    assert len({key for _name, _parts, keys in found for key in keys}) == sum(
        len(keys) for _name, _parts, keys in found
    ), "a gate's answer is kept by its key"


def test_a_target_that_was_not_reached_keeps_what_it_has() -> None:
    grows = planned(RolloutTarget(2, 24, Budget(1, 0).resolve(24), before=12, stable=1))
    first = grows[0].waypoint
    assert [(part.new, part.old, part.desired) for _target, part in first.parts] == [
        (8, 0, 8),
        (0, 4, 4),
        (0, 4, 4),
    ]


def test_a_first_deployment_is_everywhere_at_once() -> None:
    found = planned(RolloutTarget(1, 12, Budget(1, 0).resolve(12)))
    assert [shown(stage)[:2] for stage in found] == [
        ("replace", [(4, 0)] * 3),
        ("promote", [(4, 0)] * 3),
    ]


def test_plans_without_targets_are_known_by_the_hash_they_always_had() -> None:
    assert fingerprint(strategy.parse({})) == "30b0ddd06229cf40"
    assert fingerprint(strategy.parse({})) != fingerprint(strategy.parse({"targets": WAVES}))


@pytest.mark.parametrize(
    "given, message",
    [
        ({"targets": [{"name": "eu"}]}, r"rollout_targets\[0\].hosts: not given"),
        ({"targets": [{"name": "eu", "hosts": "eu", "factor": 0}]}, r"targets\[0\].factor: "),
        ({"targets": [{"name": "eu", "hosts": "eu", "factor": -1}]}, r"targets\[0\].factor: "),
        ({"targets": [{"name": "eu", "hosts": "eu", "faktor": 1}]}, "faktor"),
        ({"targets": [*WAVES, WAVES[0]]}, "'eu' is given twice"),
        (
            {"targets": [{**wave, "load_balancers": ["lb"]} for wave in WAVES]},
            "load_balancers 'lb' is given twice",
        ),
        ({"targets": WAVES, "strategy": "blue_green"}, "blue_green switches"),
        (
            {"targets": WAVES, "strategy": "canary", "steps": [{"set_weight": 20}]},
            "needs load balancers of its own",
        ),
    ],
)
def test_what_does_not_fit_is_refused(given: dict[str, t.Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        strategy.parse(given)


class Platform:
    has_parts = False

    def within(self, cluster: str) -> frozenset[str]:
        return frozenset({cluster})

    def at(self, _among: t.Any) -> Platform:
        return self

    def __init__(self, clusters: Mapping[str, Fraction] | None = None, **can: bool) -> None:
        self.clusters = clusters or {}
        self.capabilities = Capabilities(has_parts=self.has_parts, **can)

    def hosts(self) -> list[str]:
        return ["eu1", "eu2", "us1"]


class Inventory:
    GROUPS: t.ClassVar = {
        "eu": ["eu1", "eu2"],
        "us": ["us1"],
        "both": ["eu2", "us1"],
        "far": ["ap1"],
    }

    def hosts(self, pattern: str) -> list[str]:
        return self.GROUPS.get(pattern, [])


class Traffic:
    of_cluster = False

    def __init__(self, *clusters: str) -> None:
        self.clusters = clusters


def resolved(*groups: str, **more: t.Any) -> tuple[Target, ...]:
    return with_targets([{"name": one, "hosts": one} for one in groups], Platform(**more))


def with_targets(
    given: list[dict[str, t.Any]], platform: Platform, *balancers: str, **plan: t.Any
) -> tuple[Target, ...]:
    parts = platform, Traffic(*balancers), Inventory()
    return targets_of(
        strategy.parse({"targets": given, **plan}), *(t.cast(t.Any, p) for p in parts)
    )


def test_targets_are_the_hosts_of_their_patterns() -> None:
    assert [sorted(one.hosts) for one in resolved("us", "eu")] == [["us1"], ["eu1", "eu2"]]
    assert resolved() == ()


@pytest.mark.parametrize(
    "groups, more, message",
    [
        (("eu", "both"), {}, "eu2 is in the targets eu and both"),
        (("eu",), {}, "us1 is in no target"),
        (("eu", "us", "far"), {}, "ap1 of target far is not among rollout_platform.hosts"),
        (("eu", "moon"), {}, r"rollout_targets\[1\].hosts: 'moon' matches no host"),
        (("eu", "us"), {"starts_instances": False}, "has no hosts to divide"),
        (("eu", "us"), {"has_hosts": False, "names_instances": True}, "has no hosts to divide"),
    ],
)
def test_targets_divide_what_there_is(
    groups: tuple[str, ...], more: dict[str, t.Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        resolved(*groups, **more)


CLUSTERS = {"eu": Fraction(1), "us": Fraction(2), "ap": Fraction(1, 2)}
IN_WAVES = [{"name": "first", "clusters": ["us"]}, {"name": "rest", "clusters": ["eu", "ap"]}]


def in_clusters(
    given: list[dict[str, t.Any]], *balancers: str, **plan: t.Any
) -> tuple[Target, ...]:
    return with_targets(
        given, Platform(CLUSTERS, has_hosts=False, names_instances=True), *balancers, **plan
    )


def test_clusters_are_targets_with_their_own_load_balancers() -> None:
    assert [(one.name, one.factor) for one in in_clusters([])] == list(CLUSTERS.items())
    found = in_clusters(IN_WAVES, *CLUSTERS)
    assert [one.name for one in found] == ["us", "eu", "ap"]
    assert [one.balancers for one in found] == [frozenset({one.name}) for one in found]
    us = found[0]
    assert us.has("us/node1") and us.has("us/") and not us.has("eu/us") and not us.has("node1")


def test_a_wave_of_two_clusters() -> None:
    plan = strategy.parse(
        {"targets": IN_WAVES, "strategy": "canary", "steps": [{"set_replicas": "50%"}]}
    )
    goal = RolloutTarget(2, 12, Budget(1, 0).resolve(12), before=12, stable=1)
    found = [shown(stage)[:2] for stage in stages(plan, goal, in_clusters(IN_WAVES))]
    assert found == [
        ("first step 1", [(4, 4), (0, 4), (0, 2)]),
        ("first all", [(8, 0), (0, 4), (0, 2)]),
        ("rest step 1", [(8, 0), (2, 2), (1, 1)]),
        ("rest all", [(8, 0), (4, 0), (2, 0)]),
        ("promote", [(8, 0), (4, 0), (2, 0)]),
    ]


@pytest.mark.parametrize(
    "given, plan, message",
    [
        (IN_WAVES[:1], {}, "ap is in no target"),
        ([*IN_WAVES, {"name": "x", "clusters": ["moon"]}], {}, "moon of target x is not among"),
        ([*IN_WAVES, {"name": "x", "clusters": ["eu"]}], {}, "clusters 'eu' is given twice"),
        ([{"name": "x", "hosts": "eu"}], {}, "x names hosts, and instances are in clusters"),
        ([{"name": "x", "hosts": "eu", "clusters": ["eu"]}], {}, r"targets\[0\].hosts: given, and"),
        ([{"name": "x", "clusters": ["eu"], "factor": 2}], {}, r"targets\[0\].factor: given, and"),
        (
            [{"name": "x", "clusters": ["eu", "us"], "load_balancers": ["lb"]}],
            {},
            r"load_balancers: given, and 2 clusters",
        ),
        ([], {"strategy": "blue_green"}, "rollout_platform.clusters: blue_green switches"),
        (
            IN_WAVES,
            {"strategy": "canary", "steps": [{"set_weight": 20}]},
            "load balancers of its own",
        ),
    ],
)
def test_clusters_that_cannot_be_divided_are_refused(
    given: list[dict[str, t.Any]], plan: dict[str, t.Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        in_clusters(given, **plan)


def test_load_balancers_of_other_clusters_are_refused() -> None:
    with pytest.raises(InputError, match=r"rollout_traffic.clusters: eu, and rollout_platform"):
        in_clusters([], "eu")


@pytest.mark.parametrize(
    "platform, message",
    [
        ({}, r"names clusters, and instances are on hosts; name some of rollout_platform\.hosts"),
        (
            {"has_hosts": False, "names_instances": True},
            r"names clusters, and rollout_platform\.clusters has none",
        ),
        ({"has_hosts": False}, "has no hosts to divide"),
        ({"starts_instances": False}, "has no hosts to divide"),
    ],
)
def test_clusters_on_a_platform_without_any_are_refused(
    platform: dict[str, t.Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        with_targets(IN_WAVES, Platform(**platform))


@pytest.mark.parametrize(
    "clusters, message",
    [
        ({}, r"names clusters, and instances are on hosts; .*driver: several"),
        (CLUSTERS, "vms names hosts, and instances are in clusters"),
    ],
)
def test_hosts_and_clusters_need_a_platform_of_both(
    clusters: dict[str, Fraction], message: str
) -> None:
    both = [{"name": "vms", "hosts": "eu"}, *IN_WAVES]
    for given in (both, both[::-1]):
        with pytest.raises(InputError, match=message):
            with_targets(given, Platform(clusters=clusters))


class Parts(Platform):
    """Hosts of the inventory as one part, and pods as another."""

    has_parts = True

    def within(self, cluster: str) -> frozenset[str]:
        return frozenset(self.hosts()) if cluster == "vms" else frozenset({cluster})


PARTS = {"vms": Fraction(1), "cloud": Fraction(2)}


def test_parts_are_targets_with_their_hosts() -> None:
    there = frozenset({"eu1", "eu2", "us1"})
    given = [{"name": "first", "parts": ["vms"]}, {"name": "then", "parts": ["cloud"]}]
    vms, cloud = with_targets(given, Parts(clusters=PARTS))
    assert (vms.name, vms.hosts, vms.factor) == ("vms", there, 1)
    assert (cloud.name, cloud.hosts, cloud.factor) == ("cloud", {"cloud"}, 2)
    assert vms.has("us1") and cloud.has("cloud/node1") and not vms.has("cloud/node1")
    assert with_targets([], Parts(clusters=PARTS)) == (vms, cloud)


def test_hosts_of_a_part_may_be_several_targets() -> None:
    given = [
        {"name": "eu", "hosts": "eu"},
        {"name": "cloud first", "parts": ["cloud"]},
        {"name": "us", "hosts": "us", "factor": 3},
    ]
    found = with_targets(given, Parts(clusters=PARTS))
    assert [(one.name, one.factor) for one in found] == [("eu", 1), ("cloud", 2), ("us", 3)]
    assert [sorted(one.hosts) for one in found] == [["eu1", "eu2"], ["cloud"], ["us1"]]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([{"name": "a", "hosts": "eu"}, {"name": "b", "parts": ["cloud"]}], "us1 is in no target"),
        ([{"name": "a", "parts": ["vms"]}], "cloud is in no target"),
        (
            [{"name": "a", "parts": ["vms", "cloud"]}, {"name": "b", "parts": ["third"]}],
            r"third of target b is not among rollout_platform\.parts",
        ),
        (
            [{"name": "cloud", "hosts": "both"}, {"name": "b", "parts": ["cloud"]}],
            "two targets are called 'cloud'",
        ),
    ],
)
def test_targets_that_do_not_divide_the_parts_are_refused(
    given: list[dict[str, t.Any]], message: str
) -> None:
    with pytest.raises(InputError, match=message) as refused:
        with_targets(given, Parts(clusters=PARTS))
    assert refused.value.id == "PR-151"


class TwoParts(Parts):
    """Hosts of the inventory as two parts."""

    def within(self, cluster: str) -> frozenset[str]:
        return frozenset({"us1"} if cluster == "second" else {"eu1", "eu2"})


def test_a_target_with_hosts_of_two_parts_is_refused() -> None:
    parts = TwoParts(clusters={"first": Fraction(1), "second": Fraction(1)})
    with pytest.raises(InputError, match="target a has hosts of the parts first and second"):
        with_targets([{"name": "a", "hosts": "both"}, {"name": "b", "hosts": "eu"}], parts)


@pytest.mark.parametrize("clusters, of_cluster", [(("cloud",), False), ((), True)])
def test_load_balancers_of_a_cluster_are_refused_with_parts(
    monkeypatch: pytest.MonkeyPatch, clusters: tuple[str, ...], of_cluster: bool
) -> None:
    monkeypatch.setattr(Traffic, "of_cluster", of_cluster)
    with pytest.raises(InputError, match=r"rollout_platform\.parts has vms, cloud") as told:
        with_targets([], Parts(clusters=PARTS), *clusters)
    assert told.value.id == "PR-248"


def test_an_unknown_load_balancer_is_refused() -> None:
    with pytest.raises(InputError, match=r"'lb9' of target eu is not one of rollout_traffic.* lb1"):
        refuse_unknown_balancers([target("eu", "1", "lb9")], ["lb1"])


def test_the_most_instances_at_a_target() -> None:
    """The surge of the whole rollout may be used at one target, for no more than it has new."""
    budget, goal = Budget(3, 0), RolloutTarget(2, 12, Budget(3, 0).resolve(12), 12, 1)
    found = most_at(planned(goal), budget)
    assert {one.name: most for one, most in found.items()} == {"eu": 7, "us": 7, "ap": 7}
    small = [{**WAVES[0]}, {**WAVES[1]}, {**WAVES[2], "factor": 0.5}]
    found = most_at(planned(goal, targets=small), budget)
    assert {one.name: most for one, most in found.items()} == {"eu": 7, "us": 7, "ap": 4}


class Crowded(Platform):
    """A platform of which some hosts have no room."""

    def place(self, count: int, *_args: object, among: t.Any = None) -> list[t.Any]:
        if "eu1" in (among or ()):
            raise PlatformError("there is no room for 1 more instances", "PR-219")
        return [("us1", Endpoint("us1", 8100 + slot), slot) for slot in range(count)]


def test_a_target_without_room_does_not_hold_up_the_others_and_is_named_at_last() -> None:
    observer = SimpleNamespace(living=list, reports=[])
    placement = Placement(
        t.cast(t.Any, Crowded()),
        t.cast(t.Any, observer),
        t.cast(t.Any, SimpleNamespace(record=Record("shop"))),
        Budget(1, 0),
    )
    rollout, waypoint = t.cast(t.Any, SimpleNamespace(previous=None)), rolling(2, 8)
    eu, us = (Start(target(name), 1, 0) for name in ("eu", "us"))
    started = placement.starts(Decision(starts=(eu, us)), waypoint, "2", rollout, None)
    assert [labels.host for labels in started] == ["us1"]
    leaves = Decision(starts=(eu,), drain=("shop-1",))
    assert placement.starts(leaves, waypoint, "2", rollout, None) == []
    with pytest.raises(PlatformError, match=r"^target eu: there is no room"):
        placement.starts(Decision(starts=(eu,)), waypoint, "2", rollout, None)


def test_a_forecast_of_waves_comes_to_an_end() -> None:
    there = [
        Instance(f"i{number}", "1", 1, State.READY, 0.0, 0.0, Rotation.IN, True, host=f"{name}1")
        for number, name in enumerate(["eu", "us", "ap"] * 4)
    ]
    path = [stage.waypoint for stage in planned()]
    found = forecast([settled(one) for one in there], path, Budget(1, 0), Rules(), 2.0, 1.0)
    assert (found.peak, found.least, found.replaced) == (13, 12, 12)
    assert found.seconds == pytest.approx(36.0)


@pytest.mark.parametrize("replicas", [12, 10])
def test_the_numbers_are_as_the_page_says(replicas: int) -> None:
    given = yaml.safe_load(SNIPPETS["docs/how-to/regions.md"]["regions.yml"])
    goal = RolloutTarget(2, replicas, Budget(1, 0).resolve(replicas), before=replicas, stable=1)
    (end,) = (stage for stage in planned(goal, **given_as(given)) if stage.name == "promote")
    assert [part.new for _target, part in end.waypoint.parts] == [4, 4, 2]


def given_as(variables: dict[str, t.Any]) -> dict[str, t.Any]:
    return {name.removeprefix("rollout_"): value for name, value in variables.items()}


@pytest.mark.parametrize(
    ("base", "replicas", "message"),
    [
        (4, 3, ""),
        (6, 5, ""),
        (6, 4, "shop: 6 run, 4 are asked for: 2 fewer"),
        (6, 3, "shop: 6 run, 3 are asked for (4 with each target's share rounded up): 2 fewer"),
    ],
)
def test_a_share_that_is_rounded_up_is_no_fewer(base: int, replicas: int, message: str) -> None:
    targets = [Target(name, frozenset([name])) for name in ("eu", "us")]
    assert fewer("shop", base, replicas, targets).get("msg", "") == message
