# SPDX-License-Identifier: GPL-3.0-or-later
"""What only one new instance shows may be due to its clients or its host, unless it lasts."""

from __future__ import annotations

import json
import typing as t
from collections.abc import Sequence

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.analysis import judging, spec
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.threshold import (
    AnalysisPhase,
)

FEW, MANY = 1, 20  # errors of 200 requests
LOOKS = 30


def judged(of_new: Sequence[Sequence[int]], **options: t.Any) -> list[judging.Measurement]:
    """What is judged of the new instances' errors, look by look; eight stable ones have few."""
    given = spec.OPTIONS.parse(options, "analysis.")
    (metric,) = spec.parse(given, "analysis", [{"name": "errors"}]).metrics
    state: judging.State = {}
    found = []
    for look in of_new:
        sides = {
            "new": {f"new-{n}": {"requests": 200, "errors": one} for n, one in enumerate(look)},
            "stable": {f"old-{n}": {"requests": 200, "errors": FEW} for n in range(8)},
        }
        found.append(judging.judge_result(metric, state, {"spans": [sides]}))
        state = json.loads(json.dumps(state))  # as the journal keeps it
    return found


def end(of_new: Sequence[Sequence[int]], **options: t.Any) -> int | None:
    """The first look that fails the revision; None: none does."""
    ends = enumerate(judged(of_new, **options), 1)
    return next((look for look, one in ends if one.phase is AnalysisPhase.FAILED), None)


def troubled(
    first: int, looks: int, others: Sequence[int] = (FEW,), of: int = LOOKS
) -> list[list[int]]:
    """One new instance fails many requests for so many looks."""
    return [[MANY if first <= look < first + looks else FEW, *others] for look in range(of)]


@pytest.mark.parametrize("first", [0, 6])
@pytest.mark.parametrize("looks", [4, 8, 12])
def test_trouble_of_one_of_several_instances_that_ends_fails_nothing(
    first: int, looks: int
) -> None:
    assert end(troubled(first, looks)) is None
    assert end(troubled(first, looks, (FEW, FEW))) is None


def test_it_is_waited_for_and_said() -> None:
    waits = [one for one in judged(troubled(0, 12))[:12] if "only one new instance" in one.sentence]
    assert len(waits) >= 5 and all(one.lacking for one in waits)
    assert "to see whether it lasts" in waits[0].sentence
    assert not judged(troubled(0, 8))[-1].lacking


def test_an_instance_that_stays_bad_fails_the_revision() -> None:
    found = end(troubled(0, LOOKS))
    assert found is not None and 10 < found <= 20


def test_trouble_that_began_later_has_to_last_longer() -> None:
    """A bad instance fails requests from the start; a client or a neighbour may come later."""
    assert end(troubled(8, 18)) is None is not end(troubled(0, 18))
    assert judged(troubled(8, LOOKS))[-1].lacking, "an operator decides, or more measurements"
    found = end(troubled(8, 40, of=40))
    assert found is not None and LOOKS < found <= 36


def test_where_it_is_the_only_one_it_has_to_last_for_a_part_of_that() -> None:
    only = [look[:1] for look in troubled(0, LOOKS)]
    assert 6 <= (end(only) or 0) <= 12
    assert end([look[:1] for look in troubled(0, 5)]) is None


@pytest.mark.parametrize(
    ("of_new", "options"),
    [
        (troubled(0, LOOKS, (MANY,)), {}),  # all of them fail
        (troubled(0, LOOKS, (MANY // 2,)), {}),
        ([[150, FEW]] * LOOKS, {}),  # it loses most of its requests
        (troubled(0, LOOKS), {"interval": "2s"}),  # it is to decide within seconds
    ],
)
def test_no_verdict_waits_for_it_otherwise(
    of_new: Sequence[Sequence[int]], options: dict[str, t.Any]
) -> None:
    assert (end(of_new, **options) or LOOKS) <= 8


def test_a_sum_of_all_instances_is_not_a_single_one() -> None:
    (metric,) = spec.parse(
        spec.OPTIONS.parse({}, "analysis."), "analysis", [{"name": "errors"}]
    ).metrics
    state: judging.State = {}
    found = [
        judging.judge_result(
            metric,
            state,
            {
                "new": {"requests": 200 * look, "errors": MANY * look},
                "stable": {"requests": 1600 * look, "errors": 8 * look},
            },
        ).phase
        for look in range(1, 9)
    ]
    assert AnalysisPhase.FAILED in found


def test_it_waits_for_half_of_the_measurements_at_most() -> None:
    assert (end(troubled(0, LOOKS), count=12) or LOOKS) <= 12
