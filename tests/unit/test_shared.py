# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests of a file share a world until one of them fails: `tests/support/shared.py`."""

from __future__ import annotations

import re

import pytest

pytest_plugins = ["pytester"]

SHARING = """
import itertools
from contextlib import contextmanager

import pytest
from ansible_collections.progressive.rollout.tests.support.shared import Shared

numbers = itertools.count()


@contextmanager
def made():
    number = next(numbers)
    print("made", number)
    yield number
    print("ended", number)


@pytest.fixture(scope="module")
def worlds():
    with Shared(made) as worlds:
        yield worlds


@pytest.fixture
def world(worlds, request):
    with worlds.lend(request) as world:
        yield world
        assert request.node.name != "test_that_cannot_be_cleared_up"


def test_first(world):
    assert world == 0


def test_second(world):
    assert world == 0


def test_that_fails(world):
    assert world == 0
    raise ValueError


def test_after_a_failure(world):
    assert world == 1


def test_that_cannot_be_cleared_up(world):
    assert world == 1


def test_last(world):
    assert world == 2
"""


def test_after_a_test_that_failed_the_next_gets_another_world(
    pytester: pytest.Pytester,
) -> None:
    pytester.makeini("[pytest]\n")
    pytester.makepyfile(SHARING)
    result = pytester.runpytest_inprocess("-s")
    result.assert_outcomes(passed=5, failed=1, errors=1)
    said = re.findall(r"(made|ended) (\d)$", result.stdout.str(), re.MULTILINE)
    assert said == [(what, number) for number in "012" for what in ("made", "ended")]
