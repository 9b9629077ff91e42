# SPDX-License-Identifier: GPL-3.0-or-later
"""Simulates rollouts: `python tests/simulations/simulate.py 7` tells the story of seed 7;
`... 0 1000` runs a thousand seeds, and tells those that fail in short; `... 0 100000 600` ends after
ten minutes.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections import Counter

from ansible_collections.progressive.rollout.tests.simulations.world import draws, stories


def main(first: int, count: int, seconds: float) -> int:
    """Run so many seeds, or as many as the time is enough for or as Ctrl-C allows; return how
    many fail.
    """
    began = time.process_time()
    told = rollouts = faults = 0
    wrong: Counter[str] = Counter()
    until = time.monotonic() + seconds
    with contextlib.suppress(KeyboardInterrupt):
        for seed in range(first, first + count):
            end = stories.run(draws.drawn(seed))
            told, rollouts, faults = told + 1, rollouts + end.rollouts, faults + end.faults
            if count == 1:
                print((stories.shrunk(end.story) if end.wrong else end).text())
            if end.wrong:
                wrong[stories.kind_of(end.wrong)] += 1
                print(f"seed {seed}: {end.wrong}", flush=True)
            if time.monotonic() > until:
                break
    spent = time.process_time() - began
    print(f"{told} stories, {rollouts} rollouts, {faults} faults in {spent:.0f} s of CPU")
    for kind, number in wrong.most_common():
        print(f"{number:5} {kind}")
    return sum(wrong.values())


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:]]
    first, count, seconds = [*given, *(0, 1, 3600)[len(given) :]]
    sys.exit(1 if main(first, count, seconds) else 0)
