# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Weights of instances from the share of requests that a waypoint asks for."""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.shares import EVEN, MOST, Split
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

HALF = Fraction(1, 2)  # a percentage point


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
        (20, 4, 6, 8, (4, 7)),  # more than asked for, which have their part each: 30%
        (1, 50, 1, 1, (1, MOST)),  # nothing is less than the least
        (99, 1, 1, 50, (MOST, 1)),
        (100, 3, 3, 3, (MOST, 1)),
    ],
)
def test_vectors(share: int, asked: int, new: int, old: int, expected: tuple[int, int]) -> None:
    assert Split(2, share, asked).weights(new, old) == expected


@pytest.mark.parametrize(("share", "new", "old"), [(None, 3, 5), (0, 0, 5), (0, 3, 5), (20, 0, 5), (20, 3, 0), (100, 3, 0)])
def test_where_there_is_nothing_to_divide_all_are_alike(share: int | None, new: int, old: int) -> None:
    assert Split(2, share, 3).weights(new, old) == (EVEN, EVEN)


counts = st.integers(1, 50)
shares = st.integers(1, 99)


@settings(max_examples=500)
@given(shares, counts, counts)
@example(20, 43, 1)
@example(50, 50, 1)
@example(80, 1, 43)
def test_the_share_is_what_was_asked_for(share: int, new: int, old: int) -> None:
    # Within half a percentage point, wherever one instance need not have more than so many times another's requests.
    ratio = Fraction(share * old, (100 - share) * new)
    assume(Fraction(1, MOST) <= ratio <= MOST)
    assert abs(achieved(Split(2, share, new).weights(new, old), new, old) - share) <= HALF


@settings(max_examples=500)
@given(shares, counts, counts, counts)
@example(90, 50, 49, 1)
def test_k_of_n_have_no_more_than_their_part(share: int, asked: int, there: int, old: int) -> None:
    # Capacity before traffic (E-4h): each new one at most what it has when all are there, the old ones carry the rest.
    there = min(there, asked)
    part = Fraction(share * there, asked)
    weights = Split(2, share, asked).weights(there, old)
    least = achieved((1, MOST), there, old)  # what cannot be undercut
    assert achieved(weights, there, old) <= max(part + HALF, least)
    assert all(1 <= weight <= MOST for weight in weights)


@given(shares, counts, counts)
def test_the_share_grows_with_those_that_are_there(share: int, asked: int, old: int) -> None:
    split = Split(2, share, asked)
    grown = [achieved(split.weights(there, old), there, old) for there in range(1, asked + 1)]
    assert all(after >= before - HALF / 5 for before, after in itertools.pairwise(grown))
