# SPDX-License-Identifier: GPL-3.0-or-later
"""What the agents on load balancers' hosts answer, looked at before it is believed."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import LeaseLost
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.agents import Answer
from ansible_collections.progressive.rollout.plugins.plugin_utils.traffic import _agents

GOOD = {"address": "127.0.0.1", "port": 1, "in": True, "weight": 1, "name": "shop-1", "active": 0}


def test_entries_and_errors_are_taken_as_they_are() -> None:
    said = {
        "": Answer({"entries": [GOOD]}),
        "lb1": Answer({"error": "no"}),
        "lb2": Answer(error="no route"),
        "lb3": Answer(),
    }
    told = _agents.read(said, "nginx")
    assert told[""] == {"entries": [GOOD]} and told["lb1"] == {"error": "no"}
    assert told["lb2"] == {"error": "no route", "id": "PR-200"}
    assert told["lb3"] == {"error": "its agent answered nothing", "id": "PR-200"}


def test_a_message_about_errors_has_the_id_of_the_first_one() -> None:
    def id_of(*values: dict[str, str]) -> str:
        return _agents.id_of({str(number): value for number, value in enumerate(values)})

    assert id_of({}, {"error": "no route", "id": "PR-221"}, {"error": "x"}) == "PR-221"
    assert id_of({"error": "refused", "field": "admin"}) == "PR-301"
    assert id_of({"error": "not included", "field": "path"}) == "PR-304"
    assert id_of({"error": "x", "field": ""}) == "PR-300"
    assert id_of({"error": "x", "id": "\x1b[2J"}) == "PR-300", "an agent's answer may be anything"


@pytest.mark.parametrize(
    "value",
    [
        [],
        7,
        "\x1b]0;PWNED\x07",
        {},
        {"entries": {}},
        {"entries": [{}]},
        {"entries": [7]},
        {"error": 7},
        {"entries": [GOOD | {"port": "1"}]},
    ],
)
def test_anything_else_is_told_and_cleaned(value: t.Any) -> None:
    (told,) = _agents.read({"lb1": Answer(value)}, "nginx").values()
    assert (
        told["error"].startswith("its agent does not answer as expected: ")
        and "\x1b" not in told["error"]
    )


def test_whoever_has_an_older_lease_is_told_where() -> None:
    said = {
        "lb1": Answer({"stale": "epoch 5, ours is 4"}),
        "": Answer({"error": "no"}),
        "lb2": Answer({"stale": "epoch 6"}),
    }
    with pytest.raises(
        LeaseLost, match=r"^Envoy on lb1: epoch 5, ours is 4; Envoy on lb2: epoch 6$"
    ):
        _agents.read(said, "Envoy")
