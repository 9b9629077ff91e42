# SPDX-License-Identifier: GPL-3.0-or-later
"""The whole controller in a simulated world: whatever goes wrong, every promise is kept.

`scripts/run python tests/simulations/simulate.py N` tells the story of one seed.
"""

from __future__ import annotations

import pytest
from ansible_collections.progressive.rollout.tests.simulations.world import draws, stories
from ansible_collections.progressive.rollout.tests.support import seeds

WIDTH = 40  # stories of one test
MANY = range(20) if seeds.PROFILE == "thorough" else range(6)


def check(seed: int) -> None:
    """Let the story of a seed happen; tell it, as short as it still fails, if it fails."""
    end = stories.run(draws.drawn(seed))
    assert not end.wrong, f"\n{stories.shrunk(end.story).text()}"


def test_a_few_stories_keep_every_promise() -> None:
    for seed in range(6):
        check(seed)


@pytest.mark.slow
@pytest.mark.seeded
@pytest.mark.parametrize("part", MANY)
def test_stories_keep_every_promise(part: int) -> None:
    first = 1_000_000 * seeds.SEED + WIDTH * part
    for seed in range(first, first + WIDTH):
        check(seed)


def test_a_story_is_the_same_each_time() -> None:
    assert stories.run(draws.drawn(7)) == stories.run(draws.drawn(7))
