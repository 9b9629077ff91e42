# SPDX-License-Identifier: GPL-3.0-or-later
"""What random tests draw from: other draws for each commit, so that they search; the same ones in
every run of a commit, so that a failure can be repeated.

`SEED` is the commit's hash, as a number, unless the environment has another; it is printed in the
head of a run. A test that draws takes the fixture `dice`, or is Hypothesis'; both are marked
`seeded`, which is what `make soak` runs, for hours and with seeds of its own.
"""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random

from hypothesis import settings


def of_commit() -> int:
    """Return the hash of the commit that is checked out, as a number; 0 where there is none."""
    command = ["git", "rev-parse", "--short=8", "HEAD"]
    answer = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, check=False)
    return int(answer.stdout[:8] or b"0", 16)


SEED = int(os.environ.get("SEED") or of_commit())
# How many examples of Hypothesis, times what a test asks for.
PROFILES = {"quick": 0.1, "checkout": 1.0, "thorough": 4.0}
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "checkout")


def examples(count: int) -> settings:
    """Return settings of Hypothesis for that many examples, times the profile's factor."""
    scaled = max(1, round(count * PROFILES[PROFILE]))
    # No deadline for one example: a busy machine is no failure. No database: what is tried depends
    # on the seed alone.
    return settings(max_examples=scaled, database=None, deadline=None)


def every(width: int, dice: Random) -> Iterator[int]:
    """Yield every `width`-th number from 0 on, from a random start; in `make soak`, each."""
    if PROFILE == "thorough":
        return itertools.count()
    return itertools.count(dice.randrange(width), width)


def dice(*names: object) -> Random:
    """Return a source of random numbers for each name."""
    return Random(" ".join(map(str, (SEED, *names))))
