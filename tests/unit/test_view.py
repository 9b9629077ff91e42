# SPDX-License-Identifier: GPL-3.0-or-later
"""What steps return: the mapping holds what is documented, and samples are of the documented
type.
"""

from __future__ import annotations

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.evaluate import (
    Decision,
    Start,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Composition
from ansible_collections.progressive.rollout.plugins.plugin_utils.report.view import (
    NextView,
    RolloutView,
    ShareView,
    documented,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.record import (
    Record,
    Rollout,
)

KINDS = {"str": str, "int": int, "float": (int, float), "bool": bool, "list": list, "dict": dict}


def record() -> Record:
    rollout = Rollout(
        "shop-1",
        "2",
        2,
        4,
        "canary",
        Composition("1", 1, 4),
        10.0,
        asked=25,
        sent={"new": 1, "all": 8},
    )
    return Record("shop", stable=Composition("1", 1, 4), rollout=rollout)


@pytest.mark.parametrize("view", [RolloutView, ShareView, NextView])
def test_a_sample_has_the_documented_type(view: type) -> None:
    for name, entry in documented(view).items():
        assert entry["description"].endswith("."), name
        if "contains" not in entry:
            assert isinstance(entry["sample"], KINDS[entry["type"]]), name


def test_the_mapping_has_the_documented_fields() -> None:
    fleet = {"2": {"ready": 1, "traffic": 25.0}}

    shown = RolloutView.of(record(), fleet, changed=True).to_dict()

    assert shown.keys() == documented(RolloutView).keys()
    assert shown["share"] == {"asked": 25, "set": 25.0, "measured": 12.5, "requests": 8}
    assert (shown["previous"], shown["stable"], shown["strategy"], shown["fleet"]) == (
        "1",
        "1",
        "canary",
        fleet,
    )


def test_without_a_rollout_most_fields_are_null() -> None:
    shown = RolloutView.of(Record("shop"), {}, changed=False).to_dict()

    assert shown.keys() == documented(RolloutView).keys()
    assert (shown["service"], shown["id"], shown["share"], shown["waiting"]) == (
        "shop",
        None,
        {},
        [],
    )


def test_next_is_plain_data() -> None:
    shown = NextView.of(Decision(starts=(Start(None, 1, 0),), drain=("shop-1",))).to_dict()

    assert (shown["create"], shown["drain"], shown["admit"]) == (1, ["shop-1"], [])
