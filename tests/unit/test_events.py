# SPDX-License-Identifier: GPL-3.0-or-later
"""Every event of a timeline fits its schema, which names and explains each field."""

from __future__ import annotations

import dataclasses
import itertools
import json
import typing as t

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.analysis.counters import (
    MOST,
    Counters,
    dump,
    load,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import RolloutFailed
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.loop import timing
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.loop.recorder import (
    RequestCounts,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import (
    Phase,
    Rotation,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs import shapes
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    Endpoint,
    Labels,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.traffic import Server
from ansible_collections.progressive.rollout.plugins.plugin_utils.state import events
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.events import (
    RequestsCounted,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.record import Rollout
from ansible_collections.progressive.rollout.tests.support.memory import Service, World
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.usefixtures("virtual_time")

ASK = [{"driver": "approval"}]


def check(event: dict[str, t.Any]) -> None:
    """Raise unless the event is one of the schema, without another field."""
    kind = events.KINDS[event["kind"]]
    hints = t.get_type_hints(kind)
    known = {field.name for field in dataclasses.fields(kind)}
    given = {name: value for name, value in event.items() if name not in ("at", "kind")}
    assert isinstance(event["at"], float) and given.keys() <= known
    read = kind(**{name: shapes.read(hints[name], value, name) for name, value in given.items()})
    assert {"at": event["at"], **read.to_dict()} == event


@pytest.fixture
def shop() -> Service:
    service = Service(World(fewest=0, most=9), replicas=3)
    service.play(revision="1")
    return service


def test_every_event_of_rollouts_fits_its_schema(shop: Service) -> None:
    shop.play(revision="2", gates={"confirm_promotion": ASK})
    shop.say("scale", replicas=4)
    shop.play(revision="2", replicas=4, gates={"confirm_promotion": ASK})
    shop.say("promote")
    shop.play(revision="2", replicas=4, gates={"confirm_promotion": ASK})
    shop.world.crashes = lambda labels: labels.revision == "3"
    with pytest.raises(RolloutFailed):
        shop.play(revision="3", replicas=4)

    found: set[str] = set()
    for rollout in shop.world.journals["shop"].texts["timelines"].decode().split():
        for event in shop.timeline(rollout):
            check(event)
            found.add(event["kind"])
    assert found >= {
        "begin",
        "plan",
        "rotation",
        "resume",
        "stage",
        "phase",
        "decision",
        "state",
        "traffic",
        "wait",
        "gate",
        "word",
        "parked",
        "end",
    }


def test_a_stage_has_the_bounds_of_the_budget_and_was_planned(shop: Service) -> None:
    shop.play(revision="2")
    assert shop.journal.rollout
    events = shop.timeline(shop.journal.rollout.id)
    (begin,) = [e for e in events if e["kind"] == "begin" and e["revision"] == "2"]
    assert (begin["previous"], begin["strategy"]) == ("1", "rolling")
    stages = [event for event in events if event["kind"] == "stage" and event["new"]]
    assert stages[-1]["floor"] == 3 and stages[-1]["ceiling"] == 4
    plans = [event for event in events if event["kind"] == "plan"]
    planned = [stage["stage"] for plan in plans for stage in plan["stages"]]
    assert {stage["stage"] for stage in stages} <= set(planned)


def test_what_one_observation_shows_has_one_moment(shop: Service) -> None:
    """So nothing seems to be missing between two instances of the same observation."""
    shop.play(revision="2")
    assert shop.journal.rollout
    events = shop.timeline(shop.journal.rollout.id)
    # two rollouts of one process within a second have the same timeline
    begin = max(n for n, event in enumerate(events) if event["kind"] == "begin")
    first = [e for e in events[:begin] if e["kind"] in ("state", "rotation")][-6:]
    assert len(first) == 6 and len({event["at"] for event in first}) == 1


ENDPOINT = Endpoint("127.0.0.1", 1)
COUNTS = st.lists(
    st.tuples(
        st.floats(0, 10),  # seconds until it is counted
        st.integers(0, 50),  # requests to the new instance
        st.integers(0, 50),  # requests to the old instance, all of which fail
        st.booleans(),  # whether another run counts from then on
    ),
    min_size=1,
)
NEW = Labels("a", "shop", "2", 2, "web", ENDPOINT, 0)
OLD = Labels("b", "shop", "1", 1, "web", Endpoint("127.0.0.1", 2), 0)


class Counting:
    """Runs that count requests, one after the other."""

    def __init__(self, rollout: Rollout) -> None:
        self.rollout, self.table = rollout, {"lb": {NEW.endpoint: IDLE, OLD.endpoint: IDLE}}
        self.begin()

    def begin(self) -> None:
        """Another run, which knows the journal alone."""
        self.events = RequestCounts()
        kept = json.loads(json.dumps(self.rollout.counted))
        self.between = Counters(load(kept or {}))
        self.between.take(self.table, [NEW, OLD])
        self.now = Counters()

    def take(self, elapsed: float, final: bool = False) -> RequestsCounted | None:
        self.now.take(self.table, [NEW, OLD])
        return self.events.take(self.now, self.between, self.rollout, elapsed, final)

    def send(self, new: int, old: int) -> None:
        servers = self.table["lb"]
        for endpoint, more, wrong in ((NEW.endpoint, new, 0), (OLD.endpoint, old, old)):
            was = servers[endpoint]
            servers[endpoint] = was._replace(
                requests=was.requests + more, errors=was.errors + wrong
            )


IDLE = Server(Rotation.IN, True, 0, requests=1000, errors=10)


def a_rollout(counted: dict[str, t.Any] | None) -> Rollout:
    return Rollout("shop-1", "2", 2, 1, "rolling", None, 0.0, counted=counted)


@given(COUNTS)
def test_every_request_is_in_one_event(steps: list[tuple[float, int, int, bool]]) -> None:
    """Whichever run counts it, and also if it came between two runs."""
    runs, elapsed, began = Counting(a_rollout({})), 0.0, False
    made, times = [], []
    sent = {"new": 0, "old": 0}
    runs.take(elapsed)
    for seconds, new, old, ends in steps:
        elapsed += seconds
        sent["new"], sent["old"] = sent["new"] + new, sent["old"] + old
        runs.send(new, old)
        if ends:
            runs.begin()
            began = True
        if event := runs.take(elapsed):
            made.append(event)
            times.append((elapsed, began))
            began = False
    assert all(
        later - sooner >= timing.DATA or began
        for (sooner, _), (later, began) in itertools.pairwise(times)
    )
    if event := runs.take(elapsed, True):
        made.append(event)
    assert sum(one.new["requests"] for one in made) == sent["new"]
    assert sum(one.old["requests"] for one in made) == sent["old"]
    assert sum(one.old["errors"] for one in made) == sent["old"]
    assert not any(one.gap for one in made)
    assert runs.take(elapsed + 999, True) is None


def test_a_run_that_does_not_know_the_last_counters_says_so() -> None:
    runs = Counting(a_rollout(None))  # of an earlier version
    runs.take(0.0)
    runs.send(3, 0)
    first = runs.take(1.0, True)
    assert first and first.gap and first.new["requests"] == 3
    runs.send(2, 0)
    second = runs.take(2.0, True)
    assert second and not second.gap


def test_the_counters_of_very_many_entries_are_not_kept() -> None:
    runs = Counting(a_rollout({}))
    runs.table["lb"] |= {Endpoint("127.0.0.1", port): IDLE for port in range(3, MOST + 2)}
    runs.take(0.0)
    assert runs.rollout.counted is None


def test_counters_that_no_journal_can_hold_are_cut() -> None:
    server = Server(Rotation.IN, True, 0, requests=10**30, answered=-1, mean=float("nan"))
    kept = dump({("lb", ENDPOINT): server})
    assert shapes.read(shapes_of("counted"), kept) == kept
    assert load(kept or {})["lb", ENDPOINT].requests == 2**53


def shapes_of(name: str) -> t.Any:
    return t.get_type_hints(Rollout, include_extras=True)[name]


def test_a_long_rollout_has_few_events_with_numbers() -> None:
    elapsed, count = 0.0, 0
    while elapsed < 7 * 86400:
        elapsed, count = elapsed + timing.thinned(elapsed), count + 1
    assert count < 1000


def test_an_event_of_another_shape_does_not_fit() -> None:
    fits = {"at": 1.0, "kind": "phase", "phase": "held", "reason": "no"}
    check(fits)
    for wrong in ({"phase": "nowhere"}, {"reason": 3}, {"more": 1}):
        with pytest.raises((AssertionError, shapes.Misshapen)):
            check(fits | wrong)


@pytest.mark.parametrize("kind", events.KINDS.values(), ids=list(events.KINDS))
def test_each_kind_and_each_field_is_explained(kind: type[events.Event]) -> None:
    assert kind.__doc__ and kind.__doc__.endswith(".")
    assert all(events.documented(kind).values())


def test_optional_fields_without_a_value_are_left_out() -> None:
    assert events.PhaseEntered(phase=Phase.HELD).to_dict() == {"kind": "phase", "phase": "held"}
    assert events.StageEntered(stage="replace", share=None, new=3, old=0).to_dict()["share"] is None
