# SPDX-License-Identifier: GPL-3.0-or-later
"""The journal's record, also as another version of the collection, or somebody's editor, left
it.
"""

from __future__ import annotations

import json
import typing as t
from dataclasses import asdict

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import StoreError
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import (
    Composition,
    Deployment,
    Phase,
    Process,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.progress import (
    Failure,
    ProgressTracker,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    Endpoint,
    Labels,
    Report,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.platforms._last_seen import (
    noted,
    restored,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.report import status
from ansible_collections.progressive.rollout.plugins.plugin_utils.state import commands
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.record import (
    GateRecord,
    GateState,
    Record,
    Rollout,
)
from ansible_collections.progressive.rollout.tests.support.seeds import examples
from hypothesis import given
from hypothesis import strategies as st

STABLE = Composition("1", 1, 3)
TALLY = ProgressTracker(
    5.0, 1, 2, (Failure("shop-4", "it ended"),), frozenset({"shop-4", "shop-5"})
)
ROLLOUT = Rollout("shop-x", "2", 2, 3, "rolling", STABLE, 1.0, tally=TALLY)
RECORD = Record("shop", STABLE, STABLE, ROLLOUT, 2, 5, {"shop-1": 4.0})


def dumped() -> dict[str, t.Any]:
    return t.cast("dict[str, t.Any]", json.loads(json.dumps(RECORD.dump())))


def test_there_and_back() -> None:
    assert Record.load("shop", dumped()) == RECORD
    assert Record.load("shop", {}) == Record("shop")


def test_what_a_newer_version_added_is_passed_over() -> None:
    data = dumped()
    for part in (
        data,
        data["stable"],
        data["rollout"],
        data["rollout"]["previous"],
        data["rollout"]["tally"],
    ):
        part["novelty"] = 1
    data["rollout"]["tally"]["failures"][0]["novelty"] = 1
    assert Record.load("shop", data) == RECORD


def test_what_an_older_version_did_not_write_has_its_default() -> None:
    data = dumped()
    del (
        data["serial"],
        data["rollout"]["kind"],
        data["rollout"]["tally"]["judged"],
        data["rollout"]["tally"]["new"],
    )
    loaded = Record.load("shop", data)
    assert loaded.serial == 0 and loaded.rollout and loaded.rollout.tally
    assert (loaded.rollout.kind, loaded.rollout.tally.new, loaded.rollout.tally.judged) == (
        "rollout",
        0,
        frozenset(),
    )


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
def test_a_record_that_is_not_one_is_refused_in_plain_words(
    path: tuple[str, ...], value: t.Any
) -> None:
    data = dumped()
    part = data
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    with pytest.raises(
        StoreError,
        match=rf"^/j/shop.json on web1 is damaged: {path[0]}.* restore it, or move it away",
    ):
        Record.load("shop", data, "/j/shop.json on web1")


PARKED = Rollout(
    "shop-y",
    "3",
    4,
    3,
    "canary",
    STABLE,
    1.0,
    phase=Phase.PAUSED,
    tally=TALLY,
    passed=["step 1"],
    name="step 2",
    gates={"pause": GateRecord(3.0, message="for promote", person=True)},
    background={
        "errors": GateRecord(3.0, GateState.PASSED, "ok", "answer", memory={"counts": [1, 2.5]})
    },
    paused={"by": "ops", "why": "lunch", "at": 4.0},
    asked=20,
    sent={"new": 3, "all": 10},
)
LABELS = Labels("shop-1", "shop", "1", 1, "web1", Endpoint("10.0.0.1", 8100), 0)
WHOLE = Record(
    "shop",
    STABLE,
    STABLE,
    PARKED,
    4,
    9,
    {"shop-1": 4.0},
    [asdict(ROLLOUT)],
    7,
    "hash",
    {"web1": Deployment("1", 1, 2.0)},
    {"web2": [noted(Report(LABELS, Process.RUNNING, 3.0))]},
)
ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["waiting", "finished", "canary"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["id", "since", "state", "x"]), inner, max_size=2)
    ),
    max_leaves=4,
)


@given(data=st.data())
@examples(600)
def test_a_record_that_somebody_changed_is_used_or_refused_and_never_a_surprise(
    data: st.DataObject,
) -> None:
    whole = json.loads(json.dumps(WHOLE.dump() | {"history": [{**asdict(ROLLOUT), "tally": None}]}))
    part = whole
    while True:
        key = data.draw(
            st.sampled_from(sorted(part) if isinstance(part, dict) else range(len(part)))
        )
        deeper = isinstance(part[key], (dict, list)) and len(part[key]) > 0
        if not deeper or data.draw(st.booleans()):
            break
        part = part[key]
    if data.draw(st.booleans()):
        part[key] = data.draw(ANYTHING)
    else:
        del part[key]
    try:
        record = Record.load("shop", whole, "/j/shop.json")
    except StoreError as exc:
        assert str(exc).startswith("/j/shop.json is damaged: ")
        return
    assert status.lines(record, None, [])
    assert json.loads(json.dumps(record.dump(), allow_nan=False))
    for seen in record.away.values():
        assert all(restored(one).process is Process.UNREACHABLE for one in seen)
    if record.rollout:
        assert isinstance(commands.refusal(record.rollout.phase, "abort"), str)
        record.close("aborted", "", 5.0)


def test_a_gate_has_in_the_journal_only_what_it_says() -> None:
    """So that other versions read it: a gate without a memory has none, not an empty one."""
    gates = WHOLE.dump()["rollout"]["gates"] | WHOLE.dump()["rollout"]["background"]
    assert gates["pause"].keys() == {"since", "state", "message", "by", "person"}
    assert gates["errors"].keys() == {"since", "state", "message", "by", "memory"}
    assert repr(gates["pause"]["state"]) == "'waiting'"
