# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many good revisions the sequential judge fails of each family of traffic, and others do on
the same looks.

`python tests/simulations/families.py RUNS SEED [FAMILY]...` prints the table of the page.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from random import Random

import numpy as np
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges import (
    kayenta,
    threshold,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.evalue import ALPHA
from ansible_collections.progressive.rollout.tests.simulations import models
from ansible_collections.progressive.rollout.tests.support.traffic_families import (
    BAD_FAMILIES,
    FAMILIES,
)
from ansible_collections.progressive.rollout.tests.support.traffic_models import Traffic

SURE = 1.96  # standard deviations of the upper end
MOST = 0.01  # part of the requests to the new side that may fail in a look, for the threshold
LIMITS = threshold.Limits(count=models.ERRORS.limits.count, interval=10.0, failure_limit=2)
ODDS = 3.0  # that the plain test bets on: three times as many errors as stable
ERRORS = kayenta.Metric("errors", direction="increase", allowed_increase=1.0)


def by_threshold(drawn: Traffic) -> bool:
    """Whether more than 1 % of the requests to the new side fail in three looks."""
    tally = threshold.MeasurementCounts()
    for requests, failed in _new(drawn):
        tally = tally.add(threshold.phase_of(failed <= MOST * requests, None))
        if threshold.assess(LIMITS, tally)[0] is threshold.AnalysisPhase.FAILED:
            return True
    return False


def by_kayenta(drawn: Traffic) -> bool:
    """Whether Kayenta's judge finds the parts that fail in the looks high, once at the end."""
    new, stable = (
        [failed / requests for requests, failed in side if requests]
        for side in (_new(drawn), _stable(drawn))
    )
    if not new or not stable:
        return False
    return kayenta.classify(ERRORS, new, stable).judged is kayenta.Class.HIGH


def by_sprt(drawn: Traffic) -> bool:
    """Whether Wald's test of odds of 3, for errors that are independent, ever decides so."""
    evidence = 0.0
    for (requests, failed), (others, of_others) in zip(_new(drawn), _stable(drawn), strict=True):
        if not requests or not others:
            continue
        share = requests / (requests + others)
        evidence += failed * math.log(ODDS)
        evidence -= (failed + of_others) * math.log1p(share * (ODDS - 1))
        if evidence >= math.log(1 / ALPHA):
            return True
    return False


OTHERS: Mapping[str, Callable[[Traffic], bool]] = {
    "threshold": by_threshold,
    "kayenta": by_kayenta,
    "SPRT": by_sprt,
}


def _new(drawn: Traffic) -> list[tuple[float, float]]:
    """The requests to the new side and its errors, look by look."""
    return _side(drawn, drawn.fleet.is_new)


def _stable(drawn: Traffic) -> list[tuple[float, float]]:
    return _side(drawn, ~drawn.fleet.is_new)


def _side(drawn: Traffic, of_side: np.ndarray) -> list[tuple[float, float]]:
    requests, errors = (one[:, of_side].sum(axis=1) for one in (drawn.requests, drawn.errors))
    return list(zip(requests.tolist(), errors.tolist(), strict=True))


def upper(failed: int, runs: int) -> float:
    """The upper end of the Wilson interval of a part (95 %)."""
    part, square = failed / runs, SURE**2 / runs
    middle = part + square / 2
    return (middle + math.sqrt(square * (part * (1 - part) + square / 4))) / (1 + square)


def row(name: str, runs: int, seed: str) -> str:
    """The row of a family: how many analyses the judges fail, and when this one does."""
    draw, dice = (FAMILIES | BAD_FAMILIES)[name], Random(f"{seed} {name}")
    ends: list[int | None] = []
    others = dict.fromkeys(OTHERS, 0)
    for _run in range(runs):
        random = np.random.default_rng(dice.getrandbits(64))
        drawn = draw(random)[1](random)
        ends.append(models.found(drawn))
        if isinstance(drawn, Traffic):
            for judge, fails in OTHERS.items():
                others[judge] += fails(drawn)
    failed = [end for end in ends if end is not None]
    cells = [f"{100 * one / runs:.1f} %" for one in (len(failed), *others.values())]
    if not isinstance(drawn, Traffic):
        cells[1:] = [""] * len(OTHERS)
    cells.insert(1, f"{100 * upper(len(failed), runs):.1f} %")
    return f"| {name} | {runs} | {' | '.join(cells)} |"


def main() -> None:
    """Print the rows of the families, of all where none is named."""
    runs, seed, *names = sys.argv[1:]
    print(f"| family | analyses | failed | at most (95 %) | {' | '.join(OTHERS)} |")
    for name in names or (*FAMILIES, *BAD_FAMILIES):
        print(row(name, int(runs), seed), flush=True)


if __name__ == "__main__":
    main()
