# SPDX-License-Identifier: GPL-3.0-or-later
"""Conditions on the header or the cookie of requests that the new instances get."""

from __future__ import annotations

import re
import typing as t

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import InputError
from ansible_collections.progressive.rollout.plugins.plugin_utils.traffic import _envoy_config
from ansible_collections.progressive.rollout.plugins.plugin_utils.traffic._options import (
    Match,
    match,
)

ALWAYS = {"header": "X-Canary", "value": "always"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, ()),
        ([], ()),
        (ALWAYS, (Match("X-Canary", "always"),)),
        ({"header": "A", "values": ["1", "2"]}, (Match("A", "1"), Match("A", "2"))),
        (
            [ALWAYS, {"cookie": "lab", "regex": "a|b"}],
            (Match("X-Canary", "always"), Match("lab", "a|b", cookie=True, pattern=True)),
        ),
    ],
)
def test_conditions_that_are_taken(given: t.Any, expected: tuple[Match, ...]) -> None:
    assert match(given, "rollout_traffic.match") == expected


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"header": "A"}, r"match: .* is not one header or cookie and its value, values or regex"),
        ({**ALWAYS, "regex": "a"}, "is not one header or cookie"),
        ([ALWAYS, "x"], r"match\[1\]: 'x' is not one header"),
        ([ALWAYS, {"header": "A B", "value": "1"}], r"match\[1\]\.header: 'A B'"),
        ({"header": "A", "values": ["1", True]}, r"match\.values: True is not a string"),
        ({"header": "A", "values": "1"}, r"match\.values"),
        ({"header": "A", "regex": "("}, r"match\.regex: '\(' is no regular expression"),
        ({"header": "A", "regex": "a(?=b)"}, "which RE2 does not know"),
        ({"header": "A", "regex": r"(a)\1"}, "which RE2 does not know"),
        ({"header": "A", "regex": "a\n"}, "not a printable string"),
        ({"header": "A", "regex": "a" * 201}, "at most 200 characters"),
    ],
)
def test_conditions_that_cannot_be_meant(given: t.Any, why: str) -> None:
    with pytest.raises(InputError, match=rf"^rollout_traffic\.(?:.*){why}"):
        match(given, "rollout_traffic.match")


@pytest.mark.parametrize(
    ("given", "carries", "others"),
    [
        ({"header": "A", "regex": "qa-[0-9]+"}, ["qa-7"], ["qa-", "my qa-7", "qa-7 "]),
        ({"header": "A", "regex": "a|b"}, ["a", "b"], ["ab", "a|b"]),
        ({"cookie": "lab", "regex": "a|b"}, ["x=1; lab=b; y=2", "lab=a"], ["lab=ab", "xlab=a"]),
        ({"cookie": "lab", "value": "a.b"}, ["lab=a.b"], ["lab=aXb"]),
    ],
)
def test_the_whole_value_has_to_match(given: t.Any, carries: list[str], others: list[str]) -> None:
    """As `safe_regex` of Envoy and `RegularExpression` of most Gateways do."""
    (found,) = match(given, "match")
    assert [bool(re.fullmatch(found.regex, one)) for one in carries] == [True] * len(carries)
    assert not [one for one in others if re.fullmatch(found.regex, one)]


def test_envoy_has_a_route_for_each_condition() -> None:
    wanted = match([{**ALWAYS, "header": "A"}, {"header": "B", "regex": "x.*"}], "match")
    config = _envoy_config.routes("shop", wanted, 0, 0, {"cluster": "shop"})
    routes = config["virtual_hosts"][0]["routes"]
    headers = [one["match"].get("headers") for one in routes]
    assert headers == [
        [{"name": "a", "string_match": {"exact": "always"}}],
        [{"name": "b", "string_match": {"safe_regex": {"regex": "(x.*)"}}}],
        None,
    ]
    assert [one["route"]["cluster"] for one in routes] == ["shop~match", "shop~match", "shop"]
