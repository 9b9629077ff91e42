# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of a route of the Gateway API, their weights, and what Gateways report of them."""

from __future__ import annotations

import typing as t
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Rotation
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.weights import EVEN
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.traffic import Target
from ansible_collections.progressive.rollout.plugins.plugin_utils.traffic import (
    _gateway_route as routes,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.traffic._options import Match
from hypothesis import given
from hypothesis import strategies as st

Object = dict[str, t.Any]
HEADER = (Match("X-Preview", "yes"),)
HASHES = ("g1", "g2", "8686ffccdb")


def ref(name: str, weight: int = 1, **more: t.Any) -> Object:
    return {"group": "", "kind": "Service", "name": name, "port": 80, "weight": weight, **more}


def rule(*backends: Object, **more: t.Any) -> Object:
    return {"matches": [{"path": {"type": "PathPrefix", "value": "/"}}], **more} | {
        "backendRefs": list(backends)
    }


def route(*rules: Object, note: str | None = None) -> Object:
    notes = {} if note is None else {routes.NOTE: note}
    return {"metadata": {"name": "shop", "annotations": notes}, "spec": {"rules": list(rules)}}


def written(split: routes.Split, match: t.Sequence[Match] = HEADER) -> Object:
    """The route that a split makes."""
    return route(*split.render(match), note=split.note())


def weights(rules: list[Object]) -> list[dict[str, int]]:
    return [{one["name"]: one["weight"] for one in mine["backendRefs"]} for mine in rules]


# How requests are divided
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("backends", "shares", "expected"),
    [
        ({"shop": 1}, {}, {"shop": 1}),
        ({"shop": 1}, {"g1": 0}, {"shop": 1, "shop-g1": 0}),
        ({"shop": 5}, {"g1": 3}, {"shop": 0, "shop-g1": 1}),
        ({"shop": 1}, {"g1": 80, "g2": 20}, {"shop": 0, "shop-g1": 4, "shop-g2": 1}),
        ({"shop": 1}, {"g1": 4, "g2": 0}, {"shop": 0, "shop-g1": 1, "shop-g2": 0}),
        # other backends of the rule keep their part
        ({"shop": 9, "old": 1}, {"g1": 1}, {"shop": 0, "old": 1, "shop-g1": 9}),
        (
            {"shop": 1, "old": 1},
            {"g1": 2, "g2": 1},
            {"shop": 0, "old": 3, "shop-g1": 2, "shop-g2": 1},
        ),
        # rules that send no requests to the Service are left alone
        ({"other": 1}, {"g1": 1}, {"other": 1}),
        ({"shop": 0, "other": 1}, {"g1": 1}, {"shop": 0, "other": 1}),
        # no weight is higher than a route may have, and none that gets requests becomes 0
        (
            {"shop": 1_000_000, "old": 1},
            {"g1": 256, "g2": 1},
            {"shop": 0, "old": 1, "shop-g1": 1_000_000, "shop-g2": 3906},
        ),
    ],
)
def test_what_a_rule_becomes(
    backends: Mapping[str, int], shares: Mapping[str, int], expected: Mapping[str, int]
) -> None:
    split = routes.Split("shop", [rule(*(ref(name, one) for name, one in backends.items()))])
    split = split.naming(shares)
    if any(shares.values()):
        split = split.dividing(shares)
    assert weights(split.render(())) == [dict(expected)]


NAMES = st.sampled_from(["shop", "shop-api", "old", "new"])


def backends_up_to(most: int) -> st.SearchStrategy[list[tuple[str, int]]]:
    pair = st.tuples(NAMES, st.integers(0, most))
    return st.lists(pair, max_size=4, unique_by=lambda one: one[0])


def shares_up_to(most: int) -> st.SearchStrategy[dict[str, int]]:
    return st.dictionaries(st.sampled_from(HASHES), st.integers(0, most), max_size=3)


def exact(rules: list[Object]) -> list[dict[str, Fraction]]:
    """The part of its requests that each backend of each rule gets."""
    found = []
    for mine in weights(rules):
        total = sum(mine.values())
        found.append({name: Fraction(one, total) for name, one in mine.items() if one})
    return found


@given(
    rules=st.lists(backends_up_to(300), max_size=3),
    shares=shares_up_to(256),
    preview=st.booleans(),
)
def test_a_divided_route_is_read_as_it_was_written(
    rules: t.Any, shares: dict[str, int], preview: bool
) -> None:
    """And its owner gets back what was written, whatever was divided in between."""
    mine = [rule(*(ref(name, one) for name, one in backends)) for backends in rules]
    split = routes.read(route(*mine), "shop").naming(shares)
    if any(shares.values()):
        split = split.dividing(shares)
    serves = any(routes.serves(one, "shop") for one in mine)
    if preview and shares and serves:
        split = routes.replace(split, preview=sorted(shares)[0])
    now = written(split)
    again = routes.read(now, "shop")
    assert again.rules == split.rules
    assert written(again) == now if serves else again.shares == {}
    restored = routes.replace(again, shares={}, preview="")
    assert restored.render(HEADER) == mine
    assert restored.note() is None


@given(backends=backends_up_to(routes.MOST), shares=shares_up_to(25_600))
def test_no_rule_that_had_a_backend_loses_all_of_them(
    backends: list[tuple[str, int]], shares: dict[str, int]
) -> None:
    """A sum of 0 is answered with 500."""
    mine = rule(*(ref(name, one) for name, one in backends))
    split = routes.read(route(mine), "shop").naming(shares)
    split = split.dividing(shares) if any(shares.values()) else split
    (after,) = weights(split.render(()))
    assert any(after.values()) == any(one for _name, one in backends)
    assert all(0 <= one <= routes.MOST for one in after.values())


@given(
    shop=st.integers(1, 100),
    old=st.integers(0, 100),
    shares=st.dictionaries(st.sampled_from(HASHES), st.integers(1, 2560), min_size=1),
)
def test_shares_are_exact(shop: int, old: int, shares: dict[str, int]) -> None:
    split = routes.Split("shop", [rule(ref("shop", shop), ref("old", old))])
    (found,) = exact(split.dividing(shares).render(()))
    part, total = Fraction(shop, shop + old), sum(shares.values())
    assert found == {
        **{f"shop-{name}": part * Fraction(one, total) for name, one in shares.items()},
        **({"old": 1 - part} if old else {}),
    }


def test_what_a_generation_gets_is_as_the_owners_but_for_its_name() -> None:
    filters = [{"type": "RequestHeaderModifier"}]
    split = routes.Split("shop", [rule(ref("shop", 7, port=8443, filters=filters), name="main")])
    (mine,) = split.dividing({"g2": 1}).render(())
    assert mine["backendRefs"][1] == ref("shop-g2", 1, port=8443, filters=filters)
    assert mine["name"] == "main"


def test_a_service_of_another_namespace_or_kind_is_another() -> None:
    others = [ref("shop", namespace="far"), ref("shop", kind="Bucket"), ref("shop", group="x.io")]
    assert not any(routes.serves(rule(one), "shop") for one in others)


def test_a_rule_that_its_owner_has_written_anew_is_taken_as_it_is() -> None:
    split = routes.Split("shop", [rule(ref("shop", 5)), rule(ref("shop", 3))])
    now = written(split.dividing({"g1": 1, "g2": 1}))
    now["spec"]["rules"][0] = rule(ref("shop", 8), ref("new", 2))
    again = routes.read(now, "shop")
    assert weights(list(again.rules)) == [{"shop": 8, "new": 2}, {"shop": 3}]
    assert weights(again.render(())) == [
        {"shop": 0, "new": 1, "shop-g1": 2, "shop-g2": 2},
        {"shop": 0, "shop-g1": 1, "shop-g2": 1},
    ]


@pytest.mark.parametrize("note", ["", "null", "[]", "{", '{"weights": 3}', '{"weights": [["a"]]}'])
def test_a_note_that_says_nothing_is_no_note(note: str) -> None:
    mine = rule(ref("shop", 2), ref("shop-g1", 3))
    assert routes.read(route(mine, note=note), "shop").rules == [mine]


def test_a_note_that_does_not_fit_leaves_the_owners_service_some_requests() -> None:
    note = '{"generations": ["g1"], "weights": []}'
    mine = rule(ref("shop", 0), ref("old", 4), ref("shop-g1", 3))
    found = routes.read(route(mine, note=note), "shop")
    assert weights(list(found.rules)) == [{"shop": 1, "old": 4}]


# Previews
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_matches", "expected"),
    [
        (None, [{"headers": [{"type": "Exact", "name": "X-Preview", "value": "yes"}]}]),
        (
            [{"method": {"service": "a.B"}}, {"headers": [{"name": "A", "value": "b"}]}],
            [
                {
                    "method": {"service": "a.B"},
                    "headers": [{"type": "Exact", "name": "X-Preview", "value": "yes"}],
                },
                {
                    "headers": [
                        {"name": "A", "value": "b"},
                        {"type": "Exact", "name": "X-Preview", "value": "yes"},
                    ]
                },
            ],
        ),
    ],
)
def test_matching_requests_have_a_more_specific_rule(given_matches: t.Any, expected: t.Any) -> None:
    mine = {"name": "main", "backendRefs": [ref("shop", 9), ref("old", 1)]}
    if given_matches:
        mine["matches"] = given_matches
    split = routes.Split("shop", [mine, rule(ref("other"))]).naming(["g1", "g2"])
    first, *rest = routes.replace(split, preview="g2").render(HEADER)
    assert first == {"matches": expected, "backendRefs": [ref("shop-g2")]}
    assert len(rest) == 2 and rest[0]["name"] == "main"
    assert len(split.render(HEADER)) == 2, "while no new instance serves"


def test_of_several_conditions_one_has_to_hold() -> None:
    mine = {"matches": [{"path": {"value": "/a"}}, {}], "backendRefs": [ref("shop")]}
    split = replace(routes.Split("shop", [mine]).naming(["g2"]), preview="g2")
    wanted = (*HEADER, Match("X-User", "qa-[0-9]+", pattern=True))
    first, _rest = split.render(wanted)
    exact = {"type": "Exact", "name": "X-Preview", "value": "yes"}
    pattern = {"type": "RegularExpression", "name": "X-User", "value": "qa-[0-9]+"}
    assert first["matches"] == [
        {"path": {"value": "/a"}, "headers": [exact]},
        {"path": {"value": "/a"}, "headers": [pattern]},
        {"headers": [exact]},
        {"headers": [pattern]},
    ]
    assert routes.read(written(split, wanted), "shop") == split


FILTER = {"type": "RequestHeaderModifier", "requestHeaderModifier": {"remove": ["a"]}}


@pytest.mark.parametrize("filters", [(), (FILTER,)])
@pytest.mark.parametrize(("percent", "said"), [(10, {"percent": 10}), (100, {})])
def test_copies_go_to_the_new_generation_by_a_filter(
    filters: t.Any, percent: int, said: Object
) -> None:
    """https://gateway-api.sigs.k8s.io/guides/http-request-mirroring/ and GEP-3171 (percent)"""
    mine = rule(ref("shop", 9), ref("old", 1), **({"filters": list(filters)} if filters else {}))
    split = routes.Split("shop", [mine, rule(ref("other"))]).naming(["g1", "g2"])
    split = replace(split, mirror="g2")
    first, other = split.render(HEADER, percent)
    backend = {"group": "", "kind": "Service", "name": "shop-g2", "port": 80}
    copies = {"type": "RequestMirror", "requestMirror": {"backendRef": backend, **said}}
    assert first["filters"] == [*filters, copies]
    assert "filters" not in other, "its requests are not the Service's"
    made = route(first, other, note=split.note())
    assert routes.read(made, "shop") == split, "the owner's filters are the owner's"
    assert replace(split, mirror="").render(HEADER, percent)[0].get("filters", []) == list(filters)


def test_a_mirror_of_the_owner_is_left_alone() -> None:
    backend = {"name": "recorder", "port": 80}
    filters = [{"type": "RequestMirror", "requestMirror": {"backendRef": backend}}]
    mine = rule(ref("shop"), filters=filters)
    found = routes.read(route(mine), "shop")
    assert found.mirror == ""
    assert found.rules == [mine]


# What Gateways report
# --------------------------------------------------------------------------------------------------


def condition(kind: str, status: str = "True", generation: int | None = 4) -> Object:
    seen = {} if generation is None else {"observedGeneration": generation}
    return {"type": kind, "status": status, "reason": "Why", "message": "its words\x1b", **seen}


def parent(*conditions: Object, name: str = "edge") -> Object:
    return {"parentRef": {"name": name}, "controllerName": "acme", "conditions": list(conditions)}


FINE = parent(condition("Accepted"), condition("ResolvedRefs"))
REPORTS: list[tuple[list[Object], str, str]] = [
    ([FINE], "", ""),
    ([FINE, FINE], "", ""),
    ([], "", "no Gateway reports about it"),
    (
        [FINE, parent(condition("Accepted", generation=3), condition("ResolvedRefs"), name="b")],
        "",
        "Gateway b (acme) has not reported Accepted of generation 4 (its last report is of"
        " generation 3)",
    ),
    (
        [parent(condition("Accepted"))],
        "",
        "Gateway edge (acme) has not reported ResolvedRefs of generation 4",
    ),
    (
        [parent(condition("Accepted", generation=None), condition("ResolvedRefs"))],
        "",
        "Gateway edge (acme) has not reported Accepted of generation 4",
    ),
    (
        [parent(condition("Accepted", "Unknown"), condition("ResolvedRefs"))],
        "",
        "Gateway edge (acme) has not reported Accepted of generation 4 (its last report is of"
        " generation 4)",
    ),
    (
        [FINE, parent(condition("Accepted", "False"), condition("ResolvedRefs"))],
        "Gateway edge (acme): Accepted: Why: its words?",
        "",
    ),
    # of an old generation, a refusal says nothing
    (
        [parent(condition("Accepted", "False", 3), condition("ResolvedRefs"))],
        "",
        "Gateway edge (acme) has not reported Accepted of generation 4 (its last report is of"
        " generation 3)",
    ),
    (
        [parent(condition("Accepted"), condition("ResolvedRefs", "False", 5))],
        "Gateway edge (acme): ResolvedRefs: Why: its words?",
        "",
    ),
    (
        [parent(*FINE["conditions"], condition("PartiallyInvalid"))],
        "Gateway edge (acme): PartiallyInvalid: Why: its words?",
        "",
    ),
    ([parent(*FINE["conditions"], condition("PartiallyInvalid", generation=3))], "", ""),
]


@pytest.mark.parametrize(("parents", "refused", "late"), REPORTS)
def test_what_gateways_report(parents: list[Object], refused: str, late: str) -> None:
    mine = {"metadata": {"generation": 4}, "spec": {}, "status": {"parents": parents}}
    assert routes.reported(mine) == routes.Reported(refused, late)


def test_a_route_without_a_status_is_not_accepted() -> None:
    assert routes.reported({"metadata": {"generation": 1}, "spec": {}}).late


def of_parents(named: list[Object], reports: list[Object]) -> routes.Reported:
    metadata = {"generation": 4, "namespace": "web"}
    mine = {"metadata": metadata, "spec": {"parentRefs": named}, "status": {"parents": reports}}
    return routes.reported(mine)


def test_each_parent_that_the_route_names_has_to_report() -> None:
    named: list[Object] = [{"name": "edge"}, {"name": "inner", "sectionName": "https"}]
    found = of_parents(named, [FINE])
    assert (found.refused, found.late) == ("", "Gateway inner has not reported about it")
    other = {**FINE, "parentRef": {"name": "inner", "sectionName": "https"}}
    assert of_parents(named, [FINE, other]) == routes.Reported()
    elsewhere = {**FINE, "parentRef": {"name": "inner", "sectionName": "http"}}
    assert of_parents(named, [FINE, elsewhere]).late


def test_what_a_gateway_said_that_the_route_does_not_name_any_more_does_not_count() -> None:
    old = parent(condition("Accepted", "False", 3), condition("ResolvedRefs"), name="gone")
    refused = parent(condition("Accepted", "False"), condition("ResolvedRefs"), name="gone")
    for rest in (old, refused):
        assert of_parents([{"name": "edge"}], [FINE, rest]) == routes.Reported()
    whole = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "namespace": "web"}
    same = {**FINE, "parentRef": {**whole, "name": "edge"}}
    assert of_parents([{"name": "edge"}], [same]) == routes.Reported(), "with the defaults"
    assert of_parents([{"name": "edge"}], [{"controllerName": "acme"}]).late


# Between pods and generations
# --------------------------------------------------------------------------------------------------


def test_a_fold_is_of_pods_in_rotation() -> None:
    found = [
        ("g1", Target(Rotation.IN, 3)),
        ("g1", Target(Rotation.IN, 3)),
        ("g2", Target(Rotation.IN, 4)),
        ("g2", Target(Rotation.OUT, 4)),
        ("g3", Target(Rotation.OUT)),
    ]
    assert routes.fold(found) == {"g1": 6, "g2": 4}


@given(
    pods=st.dictionaries(
        st.sampled_from(HASHES), st.tuples(st.integers(1, 40), st.integers(1, 256)), min_size=1
    )
)
def test_weights_of_pods_are_found_again(pods: dict[str, tuple[int, int]]) -> None:
    """But for a common factor, which means nothing."""
    serving = [name for name, (count, _weight) in pods.items() for _pod in range(count)]
    targets = [(name, Target(Rotation.IN, pods[name][1])) for name in serving]
    split = routes.Split("shop", []).dividing(routes.fold(targets))
    found = routes.weights(split.shares, serving)
    assert set(found) == set(pods)
    assert routes.in_ratio((found[name], pods[name][1]) for name in pods)
    if len({weight for _count, weight in pods.values()}) == 1:
        assert set(found.values()) == {EVEN}
    counts = Counter(serving)
    total = sum(counts[name] * found[name] for name in pods)
    asked = sum(counts[name] * pods[name][1] for name in pods)
    for name in pods:
        share = Fraction(counts[name] * found[name], total)
        assert share == Fraction(counts[name] * pods[name][1], asked)
