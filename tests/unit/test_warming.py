# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sequential judge of times while the new side warms up."""

from __future__ import annotations

import json
import math

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.latency import (
    LatencyHistory,
    Samples,
    compare_quantile,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.warming import (
    FEW,
    Warming,
)

NOISE = (0.97, 1.03, 1.0, 0.98, 1.02)


def after(*ratios: float) -> Warming:
    """What is known after these looks; each time as the journal has it."""
    found = Warming()
    for ratio in ratios:
        found = Warming.load(json.loads(json.dumps(found.after(ratio).dump())))
    return found


def fading(times: float, tau: float, looks: int) -> list[float]:
    """How many times as long the new side takes, from a minute after its start."""
    return [1 + (times - 1) * math.exp(-(60 + 10 * look) / tau) for look in range(looks)]


@pytest.mark.parametrize(("times", "tau"), [(4, 60), (4, 120), (2, 120)])
def test_a_side_that_gets_faster_is_waited_for(times: float, tau: float) -> None:
    found = after(*fading(times, tau, 8))
    assert found.waits(30) and found.seen
    assert "falling to" in str(found) and str(found).endswith("See warm_up")


def test_it_is_waited_for_no_longer_than_told() -> None:
    assert not after(*fading(4, 600, 12)).waits(12)


def test_one_that_stays_slow_is_not_waited_for() -> None:
    assert not after(*(1.3 * noise for noise in NOISE * 2)).falls
    assert not after(*fading(4, 30, 6), *(1.3 * noise for noise in NOISE * 2)).falls


def test_a_verdict_on_times_waits_and_says_why() -> None:
    history, said = LatencyHistory(), []
    for ratio in (*fading(4, 60, 20), *[1.5 * noise for noise in NOISE * 3]):
        stable = [0.1 * noise for noise in NOISE]
        history = history.after(Samples.of_sides([ratio * one for one in stable], stable * 4))
        said.append(compare_quantile(history))
    assert not any(verdict.worse for verdict in said[FEW:20])
    assert any("still warming up" in verdict.sentence for verdict in said[:20])
    assert said[-1].worse
