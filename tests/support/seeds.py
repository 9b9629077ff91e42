# SPDX-License-Identifier: GPL-3.0-or-later
"""What random tests draw from: the same draws in every run, so that a failure can be repeated;
others in `make soak`.

`SEED` is 0 unless the environment has another. A test that draws takes the fixture `dice`, or is
Hypothesis'; both are marked `seeded`, which is what `make soak` runs.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from random import Random

from hypothesis import settings

SEED = int(os.environ.get("SEED", "0"))
# How many examples of Hypothesis, times what a test asks for.
PROFILES = {"quick": 0.1, "checkout": 1.0, "thorough": 4.0}
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "checkout")


def examples(count: int) -> settings:
    """Return settings of Hypothesis for that many examples; the `thorough` ones are other in
    every run.
    """
    scaled = max(1, round(count * PROFILES[PROFILE]))
    # No deadline for one example: a busy machine is no failure.
    return settings(max_examples=scaled, derandomize=PROFILE != "thorough", deadline=None)


def every(width: int, dice: Random) -> Iterator[int]:
    """Yield every `width`-th number from 0 on, from a random start; in `make soak`, each."""
    if PROFILE == "thorough":
        return itertools.count()
    return itertools.count(dice.randrange(width), width)


def dice(*names: object) -> Random:
    """Return a source of random numbers for each name."""
    return Random(" ".join(map(str, (SEED, *names))))
