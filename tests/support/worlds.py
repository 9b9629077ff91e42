# SPDX-License-Identifier: GPL-3.0-or-later
"""Random worlds, budgets and rules for the properties; the number of examples is set by
`seeds.py`.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.budget import (
    Budget,
    Percent,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.progress import Rules
from ansible_collections.progressive.rollout.tests.support.simulator import Life, World
from hypothesis import strategies as st

DEADLINE = 60.0

percents = st.integers(0, 100).map(lambda number: Percent(Decimal(number)))
amounts = st.one_of(st.integers(0, 4), percents)


@st.composite
def budgets(draw: st.DrawFn) -> Budget:
    """Any that settings let through."""
    if draw(st.booleans()) and draw(st.booleans()):
        return Budget(
            max_in_flight=draw(
                st.one_of(st.integers(1, 4), st.integers(1, 100).map(lambda n: Percent(Decimal(n))))
            )
        )
    surge, unavailable = draw(amounts), draw(amounts)
    if surge == 0 and unavailable == 0:
        surge = 1
    return Budget(surge, unavailable)


times = st.integers(0, 5)
working = st.builds(Life, start=times, stop=times, work=times)
rules_ = st.builds(
    Rules,
    min_ready=st.sampled_from([0.0, 0.0, 1.0, 4.0]),
    progress_deadline=st.just(DEADLINE),
    ready_deadline=st.sampled_from([None, None, 10.0]),
    failure_limit=st.sampled_from([None, 1, 3]),
    drain_timeout=st.integers(0, 8).map(float),
    settle=st.sampled_from([0.0, 0.0, 2.0]),
    watch_new=st.sampled_from([0.0, 5.0, 120.0]),
)
headrooms = st.sampled_from([Fraction(0), Fraction(1), Fraction(5, 4)])
calm = st.builds(
    World,
    lives=st.lists(working, min_size=1, max_size=4),
    repairs=st.lists(working, min_size=1, max_size=2),
    balancers=st.integers(0, 2),
    latency=st.integers(0, 2),
    prove=st.integers(0, 3),
    headroom=headrooms,
)
sizes = st.integers(1, 12)
