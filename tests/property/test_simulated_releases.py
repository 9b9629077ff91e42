# SPDX-License-Identifier: GPL-3.0-or-later
"""Releases of drawn services through the real steps: no member is started before what it comes
after is promoted, and in the end all are promoted, or all are back that can go back.
"""

from __future__ import annotations

import pytest
from ansible_collections.progressive.rollout.tests.simulations.world.releases import ReleaseStory
from ansible_collections.progressive.rollout.tests.support import seeds

WIDTH = 8  # stories of one test
MANY = range(20) if seeds.PROFILE == "thorough" else range(3)


@pytest.mark.slow
@pytest.mark.seeded
@pytest.mark.parametrize("part", MANY)
def test_releases_are_promoted_in_order_or_taken_back(part: int) -> None:
    first = 1_000_000 * seeds.SEED + WIDTH * part
    for seed in range(first, first + WIDTH):
        wrong = ReleaseStory(seed).tell()
        assert not wrong, f"\n{wrong}"


@pytest.mark.slow
def test_a_member_that_joined_and_never_began_keeps_no_release() -> None:
    """Its run was killed between the two, and the release is taken back meanwhile."""
    wrong = ReleaseStory(21039).tell()
    assert not wrong, f"\n{wrong}"
