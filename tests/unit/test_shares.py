# SPDX-License-Identifier: GPL-3.0-or-later
"""Weights of instances from the share of requests that a waypoint asks for."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from fractions import Fraction

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.budget import Budget
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.shares import Target
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import (
    Plan,
    RolloutTarget,
    Step,
    Waypoint,
    stages,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.targets import divide
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.weights import (
    EVEN,
    MOST,
    WeightSplit,
)
from ansible_collections.progressive.rollout.tests.support.decisions import check_parts
from ansible_collections.progressive.rollout.tests.support.seeds import examples
from hypothesis import assume, example, given
from hypothesis import strategies as st

HALF = Fraction(1, 2)  # a percentage point


def split(share: int | None, new: int, old: int, desired: int = 1) -> WeightSplit:
    """Of a waypoint with so many new and old ones, where all of them together are what the
    service needs unless it says more.
    """
    return WeightSplit(Waypoint(2, new, old, desired, share))


def achieved(weights: tuple[int, int], new: int, old: int) -> Fraction:
    """The share of the new ones that these weights come to, in percent."""
    return Fraction(100 * new * weights[0], new * weights[0] + old * weights[1])


@pytest.mark.parametrize(
    ("share", "asked", "new", "old", "expected"),
    [
        (50, 5, 5, 5, (1, 1)),
        (20, 2, 2, 8, (1, 1)),
        (10, 1, 1, 3, (1, 3)),
        (5, 1, 1, 9, (9, 19)),
        (1, 1, 1, 9, (1, 11)),
        (90, 9, 9, 1, (1, 1)),
        (50, 50, 50, 1, (1, 50)),  # 5/256 would be 49.4%
        (20, 43, 43, 1, (1, 172)),  # 1/256 would be 14.4%
        (20, 4, 1, 8, (8, 19)),  # one of four: a quarter of the 20%
        (20, 4, 2, 8, (4, 9)),
        (20, 4, 6, 8, (1, 3)),  # more than asked for do not raise the share
        (1, 50, 1, 1, (1, MOST)),  # nothing is less than the least
        (99, 1, 1, 50, (MOST, 1)),
        (100, 3, 3, 3, (MOST, 1)),
    ],
)
def test_vectors(share: int, asked: int, new: int, old: int, expected: tuple[int, int]) -> None:
    assert split(share, asked, old).weights(new, old) == expected


@pytest.mark.parametrize(
    ("share", "new", "old"),
    [(None, 3, 5), (0, 0, 5), (0, 3, 5), (20, 0, 5), (20, 3, 0), (100, 3, 0)],
)
def test_where_there_is_nothing_to_divide_all_are_alike(
    share: int | None, new: int, old: int
) -> None:
    assert split(share, 3, old).weights(new, old) == (EVEN, EVEN)


counts = st.integers(1, 50)
shares = st.integers(1, 99)


@examples(500)
@given(shares, counts, counts)
@example(20, 43, 1)
@example(50, 50, 1)
@example(80, 1, 43)
def test_the_share_is_what_was_asked_for(share: int, new: int, old: int) -> None:
    # Within half a percentage point, wherever one instance need not have more than so many times
    # another's requests.
    ratio = Fraction(share * old, (100 - share) * new)
    assume(Fraction(1, MOST) <= ratio <= MOST)
    assert abs(achieved(split(share, new, old).weights(new, old), new, old) - share) <= HALF


@examples(500)
@given(shares, counts, counts, counts)
@example(90, 50, 49, 1)
def test_k_of_n_have_no_more_than_their_part(share: int, asked: int, there: int, old: int) -> None:
    # Capacity before traffic: each new one at most what it has when all are there, the old ones
    # carry the rest.
    there = min(there, asked)
    part = Fraction(share * there, asked)
    weights = split(share, asked, old).weights(there, old)
    least = achieved((1, MOST), there, old)  # what cannot be undercut
    assert achieved(weights, there, old) <= max(part + HALF, least)
    assert all(1 <= weight <= MOST for weight in weights)


@given(shares, counts, counts)
def test_the_share_grows_with_those_that_are_there(share: int, asked: int, old: int) -> None:
    whole = split(share, asked, old)
    grown = [achieved(whole.weights(there, old), there, old) for there in range(1, asked + 1)]
    assert all(after >= before - HALF / 5 for before, after in itertools.pairwise(grown))


# Not whatever is left: those that have least have what is missing
# ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("point", "new", "old", "expected"),
    [
        # 10 replicas, 4 may be unavailable: five new and one old are in service on the way to all
        # new. Even is a sixth each.
        (Waypoint(2, 10, 0, 10, 100), 5, 1, (1, 1)),
        (Waypoint(2, 10, 0, 10, 100), 9, 1, (1, 1)),
        # they carry it all: a tenth for each new one, as it is to stay
        (Waypoint(2, 10, 0, 10, 100), 5, 7, (7, 5)),
        # Three of four stable ones died beside a canary of 20 %: half each, not 20 and 80.
        (Waypoint(2, 1, 4, 4, 20), 1, 1, (1, 1)),
        (Waypoint(2, 1, 4, 4, 20), 1, 4, (1, 1)),
        # Without surge nine old ones carry 99 %: that is what was asked for. With one of them gone
        # none has more than an even part.
        (Waypoint(2, 1, 9, 10, 1), 1, 9, (1, 11)),
        (Waypoint(2, 1, 9, 10, 1), 1, 8, (1, 1)),
        # Two new ones have 24.5 % each of 49 %. One dies: it keeps that, which is nearly even, and
        # the old ones have the rest.
        (Waypoint(2, 2, 3, 5, 49), 1, 3, (1, 1)),
        (Waypoint(2, 2, 3, 5, 60), 1, 3, (9, 7)),
    ],
)
def test_what_is_missing_is_levelled(
    point: Waypoint, new: int, old: int, expected: tuple[int, int]
) -> None:
    assert WeightSplit(point).weights(new, old) == expected


@st.composite
def points(draw: st.DrawFn) -> Waypoint:
    return Waypoint(
        2, draw(counts), draw(st.integers(0, 50)), draw(counts), draw(st.integers(1, 100))
    )


@examples(1000)
@given(points(), counts, counts)
@example(Waypoint(2, 10, 0, 10, 100), 5, 1)
@example(Waypoint(2, 1, 9, 10, 1), 1, 8)
def test_no_instance_has_more_than_its_part(point: Waypoint, new: int, old: int) -> None:
    # 14, for every composition of the waypoint and of what is in service.
    each, rest = WeightSplit(point).weights(new, old)
    check_parts(point, new, old, Fraction(each, each * new + rest * old))


@examples(500)
@given(st.integers(1, 50), counts, counts, st.integers(1, 100))
def test_where_each_is_to_have_an_even_part_none_ever_has_more(
    desired: int, new: int, old: int, percent: int
) -> None:
    # The end of every walk by weights, and steps whose number goes evenly into the share.
    point = Waypoint(2, desired, 0, desired, 100)
    if desired * percent % 100 == 0:
        point = Waypoint(2, desired * percent // 100, desired, desired, percent)
    each, rest = WeightSplit(point).weights(new, old)
    whole = each * new + rest * old
    assert (
        max(Fraction(each, whole), Fraction(rest, whole))
        <= max(Fraction(1, desired), Fraction(1, new + old)) + HALF / 100
    )


# On the way from one share to the next
# --------------------------------------------------------------------------------------------------

STEPS = st.lists(st.integers(1, 99), min_size=1, max_size=5, unique=True).map(sorted)


def way(replicas: int, surge: int, steps: list[int]) -> list[Waypoint]:
    """The waypoints of a canary with these shares."""
    plan = Plan("canary", tuple(Step(f"step {weight}", weight=weight) for weight in steps))
    target = RolloutTarget(2, replicas, Budget(surge, 0).resolve(replicas), replicas, stable=1)
    return [stage.waypoint for stage in stages(plan, target)]


def walked(listed: list[Waypoint], order: random.Random) -> Iterator[tuple[Waypoint, int, int]]:
    """Yield each composition on the way: new ones start and old ones leave in any order."""
    new, old = 0, listed[0].desired
    for point in listed:
        while new < point.new or old > point.old:
            more = new < point.new and (new + old <= point.desired or order.random() < 0.5)
            if more or old <= point.old:
                new += 1
            else:
                old -= 1
            if new:
                yield point, new, old


@examples(500)
@given(st.integers(1, 30), st.integers(1, 30), STEPS, st.randoms(use_true_random=False))
@example(4, 4, [25, 26], random.Random(0))
@example(20, 20, [5, 6], random.Random(0))
@example(3, 3, [33, 34], random.Random(0))
@example(4, 4, [10, 20, 30], random.Random(0))
@example(3, 3, [5, 25, 26, 50, 70], random.Random(0))
def test_the_share_never_falls_on_the_way_forward(
    replicas: int, surge: int, steps: list[int], order: random.Random
) -> None:
    """And where an instance fails, it falls by what that instance carried."""
    before = Fraction(0)
    for point, new, old in walked(way(replicas, surge, steps), order):
        split = WeightSplit(point)
        share = achieved(split.weights(new, old), new, old)
        assert share >= before - HALF, (point, new, old)
        before = share
        if new > 1:
            left = achieved(split.weights(new - 1, old), new - 1, old)
            assert left >= share - share / new - HALF


def test_raising_a_share_by_one_percent_keeps_what_instances_carry() -> None:
    point = way(4, 4, [25, 26])[1]
    assert (point.weight, point.new) == (26, 2)
    assert [round(achieved(WeightSplit(point).weights(new, 4), new, 4)) for new in (1, 2)] == [
        25,
        26,
    ]


def test_each_target_keeps_what_its_instances_carry() -> None:
    targets = [Target(name, frozenset({name})) for name in ("eu", "us")]
    divided = divide(way(8, 8, [25, 26])[1], targets)
    for _target, part in divided.parts:
        assert round(achieved(WeightSplit(part).weights(1, 4), 1, 4)) == 25


# A way back
# --------------------------------------------------------------------------------------------------


def back(desired: int, headroom: str = "1.25") -> WeightSplit:
    return WeightSplit(Waypoint(1, desired, 0, desired, 100, headroom=Fraction(headroom)))


@pytest.mark.parametrize(
    ("split", "stable", "bad", "left", "expected"),
    [
        (back(6), 3, 3, 50, Fraction(75, 2)),
        (back(6, "0"), 3, 3, 50, 50),
        (back(6), 4, 3, 50, Fraction(50, 3)),
        (back(6), 5, 2, 20, 0),
        (back(6), 2, 1, 20, 20),  # it does not grow
        (back(10), 4, 1, 60, 20),  # and one alone has no more than is even
        (back(10), 4, 1, 3, 3),
    ],
)
def test_the_share_of_what_was_judged_bad(
    split: WeightSplit, stable: int, bad: int, left: int, expected: Fraction
) -> None:
    weights = split.weights(stable, bad, Fraction(left, 100))
    least = achieved((1, MOST), bad, stable)
    assert abs(100 - achieved(weights, stable, bad) - max(expected, least)) <= HALF / 5


@examples(500)
@given(
    st.integers(1, 50),
    counts,
    counts,
    st.fractions(0, 1, max_denominator=256),
    st.sampled_from(["0", "1", "1.25", "3"]),
)
def test_the_share_of_what_was_judged_bad_only_falls(
    desired: int, stable: int, bad: int, left: Fraction, headroom: str
) -> None:
    weights = back(desired, headroom).weights(stable, bad, left)
    got = 1 - achieved(weights, stable, bad) / 100
    assert got <= max(left, achieved((1, MOST), bad, stable) / 100) + HALF / 100
    assert (
        got / bad
        <= max(Fraction(1, desired), Fraction(1, stable + bad), Fraction(1, bad + MOST * stable))
        + HALF / 100
    )
