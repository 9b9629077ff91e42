# SPDX-License-Identifier: GPL-3.0-or-later
"""How many requests the analyses of a plan need: as many as the judge then asks for."""

from __future__ import annotations

import math
import typing as t

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.analysis.needs import (
    by_chance,
    needs,
    rate_of,
    too_short,
    undecidable,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.config import gates
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.counts import (
    Counts,
    Span,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.errors import (
    ErrorHistory,
    compare_errors,
    requests_for,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.verdict import Data
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import (
    Gate,
    Stage,
    Waypoint,
)
from ansible_collections.progressive.rollout.tests.support.seeds import examples
from hypothesis import given
from hypothesis import strategies as st

USUAL = ({"name": "errors"}, {"name": "latency", "of": "latency"})


def analysis(**options: t.Any) -> Gate:
    return gates.of_driver(
        {"driver": "analysis", **options}, "step 2 analysis", "rollout_steps[1]", gates.Person()
    )


def stage(gate: Gate, weight: int | None = 10, new: int = 1, old: int = 9) -> Stage:
    return Stage("step 1", Waypoint(2, new, old, 10, weight), (gate,))


def counted(at: float, requests: float) -> dict[str, t.Any]:
    half = {"requests": requests / 2, "errors": 0, "latency": None}
    return {"kind": "requests", "at": at, "new": half, "old": half}


@examples(100)
@given(
    st.floats(0.01, 0.9),
    st.floats(0.001, 0.1),
    st.floats(1.0, 1.5),
    st.floats(0.01, 0.5),
)
def test_the_judge_has_enough_with_so_many_requests_and_not_with_fewer(
    share: float, alpha: float, tolerance: float, detect: float
) -> None:
    found = requests_for(share, alpha, tolerance, detect)
    assert found is not None

    def data(requests: float) -> Data:
        others = requests * (1 - share) / share
        look = Span.of_sides(Counts(requests), Counts(others))
        history = ErrorHistory().after([look], alpha, tolerance)
        return compare_errors(history, alpha, tolerance, detect).data

    assert data(found + 0.5) is Data.ENOUGH
    assert data(found - 0.5) is Data.LACKING


def test_what_counts_errors_needs_requests_by_the_share_of_its_stage() -> None:
    """The numbers are the page's, for the default metrics behind HAProxy."""
    (found,) = needs([stage(analysis(metrics=[{"name": "errors"}]))], USUAL, 2.0)
    assert found == {
        "gate": "step 2 analysis",
        "metric": "errors",
        "share": 10.0,
        "detect": 0.05,
        "new": (new := found["new"]),
        "all": 10 * new,
        "seconds": 5.0 * new,
        "lasts": 300.0,
    }
    assert new == requests_for(0.1, 0.9 * 0.02, 1.2, 0.05)
    (usual,) = needs([stage(analysis())], USUAL, None)
    # half of alpha is latency's
    assert usual["new"] == requests_for(0.1, 0.9 * 0.01, 1.2, 0.05) and usual["seconds"] is None


def test_without_weights_the_share_is_that_of_the_instances() -> None:
    (found,) = needs([stage(analysis(), weight=None, new=2, old=6)], USUAL, None)
    assert found["share"] == 25.0


@pytest.mark.parametrize(
    "given",
    [
        stage(analysis(), weight=0),
        stage(analysis(), weight=100),
        stage(analysis(), weight=None, new=3, old=0),
        stage(analysis(baseline=True)),
        stage(analysis(metrics=[{"name": "errors", "dry_run": True}])),
        stage(analysis(metrics=[{"name": "errors", "judge": "kayenta"}])),
        stage(analysis(metrics=[{"name": "slow", "of": "latency"}])),
        stage(gates.of_driver({"driver": "pause", "duration": 9}, "step 2", "x", gates.Person())),
    ],
)
def test_what_compares_no_errors_needs_none(given: Stage) -> None:
    assert needs([given], USUAL, 1.0) == []


@pytest.mark.parametrize(
    ("new", "old", "compared"),
    [(1, 1, "1 new with 1 stable instance;"), (2, 1, "2 new with 1 stable"), (1, 2, "2 stable")],
)
def test_small_fleets_are_said_to_be_undecidable_before_they_are_judged(
    new: int, old: int, compared: str
) -> None:
    (found,) = undecidable([stage(analysis(), None, new, old)], USUAL)
    assert found.startswith("whether a worse instance is due to its revision, its host or its")
    assert f"step 2 analysis compares {compared}" in found or compared in found
    assert "set baseline: true there, or raise rollout_replicas" in found


@pytest.mark.parametrize(
    "given",
    [
        stage(analysis(), None, 1, 3),
        stage(analysis(), None, 1, 0),
        stage(analysis(), None, 0, 2),
        stage(analysis(baseline=True), None, 1, 1),
        stage(analysis(metrics=[{"name": "errors", "dry_run": True}]), None, 1, 1),
        stage(
            analysis(metrics=[{"name": "errors", "success_condition": "result.new.errors < 9"}]),
            None,
            1,
            1,
        ),
        stage(
            gates.of_driver({"driver": "pause", "duration": 9}, "step 2", "x", gates.Person()),
            None,
            1,
            1,
        ),
    ],
)
def test_what_compares_enough_or_nothing_is_not(given: Stage) -> None:
    assert undecidable([given], USUAL) == []


def test_what_several_analyses_alarm_falsely_is_said_in_all() -> None:
    """A metric without a part of alpha, and the search for refusals beside them, hardly count."""
    kayenta = analysis(metrics=[{"name": "errors", "judge": "kayenta"}])
    beside = analysis(alpha=0.0002)
    assert by_chance([analysis(), beside, kayenta, analysis(dry_run=True)]) == []
    assert by_chance([]) == by_chance([kayenta, kayenta]) == []
    (found,) = by_chance([analysis(alpha=0.01), analysis(alpha=0.0098), beside])
    assert ": 3 analyses, which share alpha, fail at most 2 % of the rollouts of a" in found


def test_the_traffic_is_that_between_the_counts_of_a_timeline() -> None:
    """What the first one counted began at a time that nobody knows."""
    events = [counted(100, 1_000_000), {"kind": "state", "at": 105}, counted(110, 30)]
    assert rate_of([*events, counted(120, 50)]) == 4.0


@pytest.mark.parametrize(
    "events", [[], [counted(100, 10)], [counted(100, 10), counted(100, 10)], [{"kind": "requests"}]]
)
def test_traffic_that_was_not_counted_is_not_known(events: list[dict[str, t.Any]]) -> None:
    assert rate_of(events) is None


@pytest.mark.parametrize(
    ("rate", "seconds", "told"),
    [
        (1.0, 20.0, True),
        (400.0, 20.0, False),
        (1.0, 3600.0, False),
        (1.0, math.inf, False),  # it waits for an operator
        (None, 20.0, False),
    ],
)
def test_a_rollout_that_ends_before_the_first_verdict_is_told(
    rate: float | None, seconds: float, told: bool
) -> None:
    assert bool(too_short(analysis(), USUAL, rate, seconds)) == told
    assert not too_short(analysis(), USUAL, rate, None)
    latency = analysis(metrics=[{"name": "latency", "of": "latency"}])
    assert not too_short(latency, USUAL, rate, seconds)
