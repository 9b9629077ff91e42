# SPDX-License-Identifier: GPL-3.0-or-later
"""How many of the same simulated analyses each judge fails, and after how many intervals; and
what a bad canary costs.
"""

from __future__ import annotations

import math
import statistics
import time
from pathlib import Path

from ansible_collections.progressive.rollout.plugins.plugin_utils.agents import access_log
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.evalue import ALPHA
from ansible_collections.progressive.rollout.tests.benchmarks.history import Row
from ansible_collections.progressive.rollout.tests.simulations import verdict

GOALS = {"0 -> 0.3": f"at least {math.ceil(0.95 * verdict.RUNS)} by sequential"}
GOALS |= {
    f"{rate} -> {rate}": f"at most {verdict.RUNS * ALPHA:.0f} by sequential"
    for rate, same in verdict.RATES
    if rate == same
}
CANARIES = 500


def rows(_folder: Path) -> list[Row]:
    """Judge them."""
    what = (
        f"errors an interval {{}}: failed of {verdict.RUNS} (median of {verdict.INTERVALS}"
        " intervals)"
    )
    found = [
        (
            what.format(name),
            ", ".join(f"{judge} {of}" for judge, of in by.items()),
            GOALS.get(name, ""),
        )
        for name, by in verdict.table()
    ]
    good = [
        verdict.canary(f"good {run}", 0.01, 0.01, (10, 25, 50), looks=20) for run in range(CANARIES)
    ]
    bad = [verdict.canary(f"bad {run}", 0.05, 0.001) for run in range(CANARIES)]
    cost = [failed for failed in bad if failed is not None]
    twice = {
        number: [
            verdict.canary(
                f"twice {run}", 0.01, 0.005, verdict.steps(number), 1000, looks=99 // number
            )
            for run in range(50)
        ]
        for number in (3, 10, 30, 99)
    }
    failed = sum(end is not None for end in good)
    return [
        *found,
        (
            f"canaries of 10, 25 and 50 % as good as stable: failed of {CANARIES}",
            f"{failed}",
            f"at most {CANARIES * ALPHA:.0f}",
        ),
        (
            f"canaries of 10 % that fail 5 % of requests: found of {CANARIES}",
            f"{len(cost)}",
            f"{CANARIES}",
        ),
        (
            "requests failed until then, mean / most",
            f"{statistics.mean(cost):.1f} / {max(cost)}",
            "under 50",
        ),
        *(
            (
                f"1 % of requests failed instead of 0.5 %, over {number} shares: found of 50",
                f"{50 - ends.count(None)}",
                "at least 45",
            )
            for number, ends in twice.items()
        ),
        (
            "lines of an access log counted in a second of a core",
            f"{_lines():,}",
            "at least 50,000",
        ),
    ]


def _lines() -> int:
    """How many lines of HAProxy the agent counts in a second of a core."""
    lines = [
        f"Nov 22 20:00:01 lb1 haproxy[7]: rollout-haproxy|10.0.0.{number % 20}:80|200"
        f"|{number * 7919 % 5000}|90|--|/shop/item/{number}".encode()
        for number in range(200_000)
    ]
    addresses = [f"10.0.0.{number}:80" for number in range(20)]
    counter = access_log.Counter(
        {"addresses": addresses, "errors": ["5"], "path": "/", "whole": False, "sizes": False}
    )
    start = time.process_time()
    counter.count(lines)
    return int(len(lines) / (time.process_time() - start))
