# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The journal's record, also as another version of the collection, or somebody's editor, left it."""

from __future__ import annotations

import json
import typing as t

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.progress import Failure, Tally
from ansible_collections.progressive.rollout.plugins.plugin_utils.errors import StoreError
from ansible_collections.progressive.rollout.plugins.plugin_utils.journal import Composition, Record, Rollout

STABLE = Composition("1", 1, 3)
TALLY = Tally(5.0, 1, 2, (Failure("shop-4", "it ended"),), frozenset({"shop-4", "shop-5"}))
ROLLOUT = Rollout("shop-x", "2", 2, 3, "rolling", STABLE, 1.0, tally=TALLY)
RECORD = Record("shop", STABLE, STABLE, ROLLOUT, 2, 5, {"shop-1": 4.0})


def dumped() -> dict[str, t.Any]:
    return t.cast("dict[str, t.Any]", json.loads(json.dumps(RECORD.dump())))


def test_there_and_back() -> None:
    assert Record.load("shop", dumped()) == RECORD
    assert Record.load("shop", {}) == Record("shop")


def test_what_a_newer_version_added_is_passed_over() -> None:
    data = dumped()
    for part in (data, data["stable"], data["rollout"], data["rollout"]["previous"], data["rollout"]["tally"]):
        part["novelty"] = 1
    data["rollout"]["tally"]["failures"][0]["novelty"] = 1
    assert Record.load("shop", data) == RECORD


def test_what_an_older_version_did_not_write_has_its_default() -> None:
    data = dumped()
    del data["serial"], data["rollout"]["kind"], data["rollout"]["tally"]["judged"], data["rollout"]["tally"]["new"]
    loaded = Record.load("shop", data)
    assert loaded.serial == 0 and loaded.rollout and loaded.rollout.tally
    assert (loaded.rollout.kind, loaded.rollout.tally.new, loaded.rollout.tally.judged) == ("rollout", 0, frozenset())


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("stable",), {"revision": "1"}),
        (("stable",), "1"),
        (("rollout",), []),
        (("rollout", "tally"), {"new": 1}),
        (("rollout", "tally", "failures"), ["shop-4"]),
        (("rollout", "previous"), 1),
        (("draining",), ["shop-1"]),
        (("history",), 1),
        (("serial",), "five"),
    ],
)
def test_a_record_that_is_not_one_is_refused_in_plain_words(path: tuple[str, ...], value: t.Any) -> None:
    data = dumped()
    part = data
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    with pytest.raises(StoreError, match=rf"the journal of shop: {path[0]}.* restore it, or move it away"):
        Record.load("shop", data)
