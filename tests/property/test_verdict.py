# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The judges in whole analyses with drawn errors: bad revisions are found, good ones are not failed. Seeded; `make bench` draws more."""

from __future__ import annotations

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.evalue import ALPHA
from ansible_collections.progressive.rollout.tests.simulations.verdict import (
    RUNS,
    by_kayenta,
    by_sequential,
    canary,
    found,
    slow,
    steps,
)


def test_rare_errors_are_found() -> None:
    """No errors before, one in three intervals after: in 60 intervals, by the sequential judge."""
    assert found(by_sequential, 0, 0.3).runs >= 0.95 * RUNS


@pytest.mark.parametrize("rate", [0.05, 1, 5])
def test_alike_is_hardly_ever_failed(rate: float) -> None:
    assert found(by_sequential, rate, rate, 100).runs <= 100 * ALPHA


def test_more_errors_are_found_by_both() -> None:
    assert found(by_sequential, 5, 10, 30).runs == found(by_kayenta, 5, 10, 30).runs == 30


def test_a_good_canary_is_not_failed() -> None:
    """In three steps, looked at 60 times: hardly one in two hundred is failed, none of these fifty, and alpha is the bound."""
    assert [canary(f"fifty {run}", 0.001, 0.001, (10, 25, 50), looks=20) for run in range(50)] == [None] * 50
    ends = [canary(f"good {run}", 0.005, 0.005, (10, 25, 50), looks=20) for run in range(150)]
    assert sum(end is not None for end in ends) <= 150 * ALPHA


@pytest.mark.parametrize("before", [0.0, 0.001, 0.01])
def test_a_bad_canary_is_found_before_many_requests_failed(before: float) -> None:
    """It has 10 % of the requests and fails 5 % of them."""
    failed = [canary(f"bad {run}", 0.05, before) for run in range(50)]
    assert all(requests is not None and requests < 50 for requests in failed)


@pytest.mark.parametrize("number", [3, 10, 30, 99])
def test_twice_the_errors_are_found_however_often_the_share_changes(number: int) -> None:
    """In 99 looks of 1,000 requests."""
    ends = [canary(f"twice {run}", 0.01, 0.005, steps(number), 1000, looks=99 // number) for run in range(6)]
    assert None not in ends


def test_alike_is_hardly_ever_failed_however_often_the_share_changes() -> None:
    ends = [canary(f"alike {run}", 0.01, 0.01, steps(20), 100, looks=3) for run in range(100)]
    assert sum(end is not None for end in ends) <= 100 * ALPHA


def test_a_slow_canary_is_found() -> None:
    assert all(slow(f"slow {run}", 3.0) for run in range(40))
    assert [slow(f"good {run}", 1.0, tolerance=1.0) for run in range(50)] == [None] * 50
