# SPDX-License-Identifier: GPL-3.0-or-later
"""The judges in whole analyses with random errors: bad revisions are found, good ones are not
failed.

Each bound holds for every seed, but for one in a million: of so many analyses no more are failed,
or no fewer found, than the binomial distribution allows. `make bench` draws more of them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import scipy
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.evalue import ALPHA
from ansible_collections.progressive.rollout.tests.simulations import models
from ansible_collections.progressive.rollout.tests.simulations.verdict import (
    by_kayenta,
    by_sequential,
    canary,
    drawn,
    slow,
    steps,
)
from ansible_collections.progressive.rollout.tests.support.seeds import PROFILE, PROFILES
from ansible_collections.progressive.rollout.tests.support.traffic_models import Fleet, Traffic

RARE = 1e-6


def seeds(dice: Random, count: int) -> Iterator[str]:
    return (str(dice.random()) for _analysis in range(count))


def most_alarms(runs: int, alpha: float = ALPHA) -> float:
    return float(scipy.stats.binom.isf(RARE, runs, alpha))


def least_found(runs: int, power: float) -> float:
    return float(scipy.stats.binom.ppf(RARE, runs, power))


def number(ends: Iterable[int | None]) -> int:
    return sum(end is not None for end in ends)


@pytest.mark.slow
def test_rare_errors_are_found(dice: Random) -> None:
    """No errors before, one in three intervals after: in 60 intervals, by the sequential judge."""
    ends = [by_sequential(drawn(seed, 0, 0.3)) for seed in seeds(dice, 100)]
    assert number(ends) >= least_found(100, 0.9)


@pytest.mark.parametrize("rate", [0.05, 1, 5])
@pytest.mark.slow
def test_alike_is_hardly_ever_failed(dice: Random, rate: float) -> None:
    ends = [by_sequential(drawn(seed, rate, rate)) for seed in seeds(dice, 100)]
    assert number(ends) <= most_alarms(100)


def test_more_errors_are_found_by_both(dice: Random) -> None:
    analyses = [drawn(seed, 5, 10) for seed in seeds(dice, 30)]
    for judge in (by_sequential, by_kayenta):
        assert number(map(judge, analyses)) >= least_found(30, 0.99)


@pytest.mark.parametrize("rate", [0.001, 0.005])
@pytest.mark.slow
def test_a_good_canary_is_hardly_ever_failed(dice: Random, rate: float) -> None:
    """In three steps, looked at 60 times."""
    ends = [canary(seed, rate, rate, (10, 25, 50), looks=20) for seed in seeds(dice, 60)]
    assert number(ends) <= most_alarms(60)


@pytest.mark.parametrize("before", [0.0, 0.001, 0.01])
def test_a_bad_canary_is_found_before_many_requests_failed(dice: Random, before: float) -> None:
    """It has 10 % of the requests and fails 5 % of them."""
    failed = [canary(seed, 0.05, before) for seed in seeds(dice, 30)]
    soon = [requests for requests in failed if requests is not None and requests < 50]
    assert len(soon) >= least_found(30, 0.99)


@pytest.mark.parametrize("count", [3, 10, 30, 99])
def test_twice_the_errors_are_found_however_often_the_share_changes(
    dice: Random, count: int
) -> None:
    """In at most 99 looks of 1,000 requests; of 400, three were not found."""
    ends = [
        canary(seed, 0.01, 0.005, steps(count), 1000, looks=99 // count) for seed in seeds(dice, 12)
    ]
    assert number(ends) >= least_found(12, 0.97)


def test_alike_is_hardly_ever_failed_however_often_the_share_changes(dice: Random) -> None:
    ends = [canary(seed, 0.01, 0.01, steps(20), 100, looks=3) for seed in seeds(dice, 60)]
    assert number(ends) <= most_alarms(60)


def test_a_slow_canary_is_found(dice: Random) -> None:
    assert number(slow(seed, 3.0) for seed in seeds(dice, 20)) >= least_found(20, 0.99)
    assert number(slow(seed, 1.0, tolerance=1.0) for seed in seeds(dice, 40)) <= most_alarms(40)


# -- traffic as in production ----------------------------------------------------------------------

# So many analyses of each model; the bounds follow from the number. `make soak` draws more.
FEW = round(6 * PROFILES[PROFILE]) or 1


def with_earlier_rounds(failed: Mapping[str, int]) -> tuple[int, dict[str, int]]:
    """Return how many analyses of each model all rounds of `make soak` drew, and the failed ones."""
    if "SOAK_TOTALS" not in os.environ:
        return FEW, dict(failed)
    kept = Path(os.environ["SOAK_TOTALS"])
    runs, before = json.loads(kept.read_text() or "[0, {}]")
    total = {name: number + before.get(name, 0) for name, number in failed.items()}
    kept.write_text(json.dumps([runs + FEW, total]))
    return runs + FEW, total


def test_an_instance_is_as_old_as_its_first_request() -> None:
    """Errors that fade are told from those that stay by the age."""
    fleet = Fleet(new=2, stable=1, hosts=3)
    requests = np.array([[9, 0, 9], [9, 0, 9], [9, 9, 9], [9, 0, 9]])
    looks = models.errors_by_look(Traffic(fleet, requests, 0 * requests, [0.5] * 4))
    ages = [[instance["age"] for instance in _new(look)] for look in looks]
    assert ages == [[10, 0], [20, 0], [30, 10], [40, 20]]


def _new(look: Mapping[str, Any]) -> Iterable[Mapping[str, float]]:
    (span,) = look["spans"]
    return span["new"].values()


@pytest.mark.slow
def test_a_good_revision_is_hardly_ever_failed_whatever_the_traffic(dice: Random) -> None:
    """All models together, since so few analyses of one say little."""
    good = models.GOOD
    drawn_now = {name: number(models.ends(model, dice, FEW)) for name, model in good.items()}
    runs, failed = with_earlier_rounds(drawn_now)
    assert sum(failed.values()) <= most_alarms(len(good) * runs, models.MOST_ALARMS), failed
    assert all(found <= most_alarms(runs, models.MOST_ALARMS) for found in failed.values()), failed


@pytest.mark.slow
def test_trouble_that_lasts_returns_or_fades_hardly_ever_fails_a_good_revision(
    dice: Random,
) -> None:
    """One model of each family, drawn at random; `make soak` keeps the worst twenty of all."""
    drawn_now = models.worst(str(dice.random()), 1, FEW)
    if "SOAK_WORST" in os.environ:
        kept = Path(os.environ["SOAK_WORST"])
        told = [f"{alarms:3} of {FEW}: {family}: {text}" for alarms, family, text in drawn_now]
        worst = sorted([*kept.read_text().splitlines(), *told], reverse=True)
        kept.write_text("\n".join(worst[: models.WORST]))
    usual = [alarms for alarms, family, _text in drawn_now if family not in models.UNMET]
    assert sum(usual) <= most_alarms(FEW * len(usual), models.MOST_ALARMS), drawn_now


# The part that is found, as the page says; at least nine tenths of what a judge finds that relies
# on independent errors.
TAILS = {
    "requests: 5 % four times as slow": 0.95,
    "requests: 1 % take 2 s more": 0.95,
    "requests: 5 % four times as slow, half of the requests": 0.95,
    "requests: 1 % take 2 s more, half of the requests": 0.95,
    "requests: 5 % four times as slow, one new instance": 0.93,
    "requests: 1 % take 2 s more, one new instance": 0.93,
}
HARD = {"1 -> 2 %": 0.40, "1 -> 2 %, half of the requests": 0.82}


def test_a_bad_revision_is_found_whatever_the_traffic(dice: Random) -> None:
    bad = models.BAD
    found = {name: number(models.ends(model, dice, FEW)) for name, model in bad.items()}
    assert all(found[name] >= least_found(FEW, HARD.get(name, 0.95)) for name in bad), found
    easy = [name for name in bad if name not in HARD]
    assert sum(found[name] for name in easy) >= least_found(len(easy) * FEW, 0.95), found


def test_slow_tails_are_found_soon(dice: Random) -> None:
    """In ten looks after the warm-up, with 100 requests to each instance in a look."""
    until = 10 + models.WARM_UP / models.INTERVAL
    for name, power in TAILS.items():
        ends = models.ends(models.BAD[name], dice, FEW)
        soon = number(end if end is not None and end <= until else None for end in ends)
        assert soon >= least_found(FEW, power), (name, ends)
