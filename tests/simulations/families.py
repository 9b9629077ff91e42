# SPDX-License-Identifier: GPL-3.0-or-later
"""How many good revisions the sequential judge fails of each family of traffic, and others do on
the same looks.

`python tests/simulations/families.py RUNS SEED [FAMILY]...` prints the table of the page, with
`power` instead of families, how many requests a verdict takes, and with `last`, how analyses end
of revisions that become bad in the last measurement.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from random import Random

import numpy as np
from ansible_collections.progressive.rollout.plugins.plugin_utils.analysis.progress import (
    MORE,
    MetricProgress,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges import (
    kayenta,
    threshold,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.evalue import ALPHA
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.threshold import (
    AnalysisPhase,
)
from ansible_collections.progressive.rollout.tests.simulations import models
from ansible_collections.progressive.rollout.tests.support.traffic_families import (
    BAD_FAMILIES,
    FAMILIES,
    small_service,
)
from ansible_collections.progressive.rollout.tests.support.traffic_models import (
    INTERVAL,
    Fleet,
    Service,
    Traffic,
)

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
    ends: list[models.End] = []
    others = dict.fromkeys(OTHERS, 0)
    for _run in range(runs):
        random = np.random.default_rng(dice.getrandbits(64))
        drawn = draw(random)[1](random)
        ends.append(models.end_of(drawn))
        if isinstance(drawn, Traffic):
            for judge, fails in OTHERS.items():
                others[judge] += fails(drawn)
    looks = [end.failed for end in ends if end.failed is not None]
    cells = [
        f"{100 * len(looks) / runs:.1f} %",
        f"{100 * upper(len(looks), runs):.1f} %",
        f"{statistics.median(looks):g}" if looks else "",
        f"{100 * sum(end.asked for end in ends) / runs:.1f} %",
        *(
            f"{100 * one / runs:.1f} %" if isinstance(drawn, Traffic) else ""
            for one in others.values()
        ),
    ]
    return f"| {name} | {runs} | {' | '.join(cells)} |"


# -- requests to a verdict -------------------------------------------------------------------------

TWO_OF_TEN = Fleet(2, 8, 10, 0.2)
# errors of stable and of the new revision, and requests to that in a look
FASTEST = (
    (0.01, 0.05, 20),
    (0.001, 0.01, 20),
    (0.0, 0.05, 20),
    (0.01, 0.05, 200),
    (0.001, 0.01, 200),
    (0.01, 0.03, 200),
)
LONG = 200  # looks
AGES = {"": 0.0, "began 5 min before": 300.0}  # of new instances, in seconds


def power(before: float, after: float, requests: int, runs: int, seed: str, began: str) -> str:
    """The row of a bad revision: how many are found, when, and what Wald's test needs for it.

    `began`: when its instances did. That test knows both rates, and that errors are independent; it has the same alpha.
    """
    dice, looks, ours, fastest = Random(f"{seed} {before} {after} {requests}"), [], 0.0, 0.0
    for _run in range(runs):
        random = np.random.default_rng(dice.getrandbits(64))
        service = Service(1.0, TWO_OF_TEN, LONG, requests / TWO_OF_TEN.share)
        sent = service.drawn_requests(random)
        rates = np.where(TWO_OF_TEN.is_new, after, before)
        drawn = service.traffic(sent, random.binomial(sent, rates))
        end = models.found(drawn, AGES[began])
        if end is not None:
            looks.append(end)
            ours += sum(number for number, _failed in _new(drawn)[:end])
        fastest += told_the_truth(before, after, requests, random)
    text = ", ".join(
        part
        for part in (f"{100 * before:g} -> {100 * after:g} %, {requests} a look", began)
        if part
    )
    ratio = ours / max(1, len(looks)) / (fastest / runs)
    return f"| {text} | {runs} | {len(looks)} | {statistics.median(looks):g} | {ratio:.1f} |"


def told_the_truth(before: float, after: float, requests: int, random: np.random.Generator) -> int:
    """The requests to the new side until Wald's test decides, after whole looks."""
    share, alpha = TWO_OF_TEN.share, models.judging.SIDES * models.ERRORS.rules["alpha"]
    others, evidence, sent = round(requests * (1 - share) / share), 0.0, 0
    while evidence < math.log(1 / alpha):
        new, stable = random.binomial(requests, after), random.binomial(others, before)
        sent += requests
        if before:
            evidence += new * math.log(after / before)
            evidence -= (new + stable) * math.log1p(share * (after / before - 1))
        else:  # odds without bound
            evidence += new * math.log(1 / share)
    return sent


# -- the last measurement --------------------------------------------------------------------------

BECOMES = (0.05, 0.2, 0.6, 1.0)  # the part of the requests that fails then
END = models.ERRORS.limits.count or 0  # planned measurements


def ended(drawn: Traffic) -> AnalysisPhase:
    """How an analysis ends, which may go on for longer than planned."""
    progress = MetricProgress(models.ERRORS)
    for number, look in enumerate(models.errors_by_look(drawn), 1):
        progress.judge(look, None, INTERVAL * number)
        if progress.phase.over:
            break
    return progress.phase


def last(rate: float, runs: int, seed: str) -> str:
    """The row of a revision that is good until the last planned measurement, and then so bad."""
    dice, ends = Random(f"{seed} {rate}"), Counter[AnalysisPhase]()
    for _run in range(runs):
        random = np.random.default_rng(dice.getrandbits(64))
        of = small_service(random, END + MORE)
        rates = of.rates()
        rates[END - 1 :, of.fleet.is_new] = np.maximum(rate, of.rate)
        sent = of.drawn_requests(random)
        ends[ended(of.traffic(sent, random.binomial(sent, rates)))] += 1
    phases = (AnalysisPhase.SUCCESSFUL, AnalysisPhase.INCONCLUSIVE, AnalysisPhase.FAILED)
    cells = [f"{100 * ends[phase] / runs:.1f} %" for phase in phases]
    return f"| {100 * rate:g} % | {runs} | {' | '.join(cells)} |"


def main() -> None:
    """Print the rows of the families, of all where none is named, or those of `power` or `last`."""
    runs, seed, *names = sys.argv[1:]
    if names == ["power"]:
        print("| errors | analyses | found | look (median) | requests, of those of Wald's test |")
        for began in AGES:
            for rates in FASTEST:
                print(power(*rates, int(runs), seed, began), flush=True)
        return
    if names == ["last"]:
        print("| fails | analyses | passed | asked | failed |")
        for rate in BECOMES:
            print(last(rate, int(runs), seed), flush=True)
        return
    head = "family | analyses | failed | at most (95 %) | look (median) | asked"
    print(f"| {head} | {' | '.join(OTHERS)} |")
    for name in names or (*FAMILIES, *BAD_FAMILIES):
        print(row(name, int(runs), seed), flush=True)


if __name__ == "__main__":
    main()
