# SPDX-License-Identifier: GPL-3.0-or-later
"""Random budgets and rules for the properties; the number of examples is set by
`seeds.py`.
"""

from __future__ import annotations

from decimal import Decimal

from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.budget import (
    Budget,
    Percent,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.progress import Rules
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
