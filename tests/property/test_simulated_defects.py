# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Defects that simulated stories found: each with the fewest faults that showed it."""

from __future__ import annotations

import typing as t

from ansible_collections.progressive.rollout.tests.simulations.world import stories
from ansible_collections.progressive.rollout.tests.simulations.world.runs import DRIVERS
from ansible_collections.progressive.rollout.tests.simulations.world.stories import Story
from ansible_collections.progressive.rollout.tests.simulations.world.world import Fault, Life

GIVEN: dict[str, t.Any] = {
    **DRIVERS,
    "replicas": 3,
    "budget": {"max_surge": 1, "max_unavailable": 0},
    "strategy": "rolling",
    "wait": 0,
    "lease": stories.LEASE,
    "progress_deadline": 120,
    "min_ready": 0,
    "on_failure": "rollback",
    "failure_limit": 3,
    "watch_new": 0,
    "headroom": 0,
}


def check(
    *faults: Fault,
    bad: t.Sequence[Life] = (Life(),),
    follows: t.Sequence[str] = (),
    **given: t.Any,
) -> None:
    """Every promise is kept in this story."""
    variables = {**GIVEN, **given}
    later = {**variables, "supersede": True}
    end = stories.run(Story(7, variables, faults, bad, follows, next_given=later))
    assert not end.wrong, f"\n{end.text()}"
    assert len(faults) <= end.faults, "each fault has happened"


def test_a_canary_that_is_continued_gives_no_instance_more_than_its_part() -> None:
    """A run ends after the first of two new instances, and hosts are prepared once more."""
    steps = [{"set_weight": 50}, {"pause": {}}]
    for call in range(50, 75, 5):
        check(Fault("is interrupted", call), strategy="canary", steps=steps)
