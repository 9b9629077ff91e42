# SPDX-License-Identifier: GPL-3.0-or-later
"""Golden vectors of other systems: what their rollouts do with these numbers, ours do too.

One difference runs through all of them: here a drained instance counts in the total until it is
gone, so its room is used in a later turn, not in the one that drains it.
"""

from __future__ import annotations

from decimal import Decimal

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.budget import (
    Amount,
    Budget,
    Percent,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.evaluate import (
    Decision,
    evaluate,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.forecast import forecast
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import (
    Instance,
    State,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.progress import (
    ProgressTracker,
    Rules,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import Waypoint
from ansible_collections.progressive.rollout.tests.simulations.world.walks import Walks
from ansible_collections.progressive.rollout.tests.support.decisions import all_new, some

NOW = 100.0


def percent(value: str) -> Percent:
    return Percent(Decimal(value))


def turn(
    fleet: list[Instance], desired: int, budget: Budget, new: int | None = None, old: int = 0
) -> Decision:
    waypoint = Waypoint(2, desired if new is None else new, old, desired)
    return evaluate(fleet, waypoint, budget, Rules(), ProgressTracker(NOW), NOW)


def moves(decision: Decision) -> tuple[int, int]:
    return decision.create, len(decision.drain)


# Rolling, one turn (reference-systems 6.1)
# ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("desired", "surge", "unavailable", "old", "expected"),
    [
        (1, 1, 0, 1, (1, 0)),
        (3, 2, 0, 3, (2, 0)),
        (2, 3, 0, 2, (2, 0)),
        (2, 1, 0, 2, (1, 0)),
        (3, 1, 1, 3, (1, 1)),
        (4, 2, 1, 4, (2, 1)),
        (3, 3, 2, 3, (3, 2)),
        (1, 0, 5, 1, (0, 1)),
        # A change of the number meanwhile.
        (1, 1, 0, 3, (0, 2)),
        (5, 2, 0, 2, (5, 0)),
        (3, 1, 0, 1, (3, 0)),
    ],
)
def test_only_old_ones(
    desired: int, surge: int, unavailable: int, old: int, expected: tuple[int, int]
) -> None:
    assert moves(turn(some(old), desired, Budget(surge, unavailable))) == expected


@pytest.mark.parametrize(
    ("desired", "surge", "unavailable", "old", "new", "expected"),
    [
        (3, 1, 0, 3, 1, (0, 1)),
        (3, 1, 0, 2, 1, (1, 0)),
        (3, 1, 0, 2, 2, (0, 1)),
        (5, 2, 1, 5, 0, (2, 1)),
        (5, 2, 1, 4, 2, (1, 2)),
        (5, 2, 1, 2, 3, (2, 1)),
        (5, 2, 1, 1, 5, (0, 1)),
        (3, 0, 1, 3, 0, (0, 1)),
        (3, 0, 1, 2, 0, (1, 0)),
    ],
)
def test_old_and_new_ones(
    desired: int, surge: int, unavailable: int, old: int, new: int, expected: tuple[int, int]
) -> None:
    assert moves(turn([*some(old), *some(new, 2)], desired, Budget(surge, unavailable))) == expected


def test_all_new_is_reached() -> None:
    assert turn(some(5, 2), 5, Budget(2, 1)).reached


def test_a_new_one_that_is_not_ready_is_not_made_twice() -> None:
    assert turn([*some(2), *some(1, 2, State.NOT_READY)], 2, Budget(1, 0)).create == 0


@pytest.mark.parametrize(
    ("amount", "desired", "surge", "unavailable"),
    [
        ("25", 10, 3, 2),
        ("50", 4, 2, 2),
        ("10", 3, 1, 0),
        ("7", 100, 7, 7),
        ("29", 100, 29, 29),
        ("0.5", 1000, 5, 5),
    ],
)
def test_fractions(amount: str, desired: int, surge: int, unavailable: int) -> None:
    assert Budget(percent(amount), 0).resolve(desired).surge == surge
    assert Budget(1, percent(amount)).resolve(desired).unavailable == unavailable


def test_half_may_be_unavailable() -> None:
    assert moves(turn([*some(4), *some(2, 2)], 4, Budget(0, percent("50")))) == (0, 4)


def test_sacrifice_order() -> None:
    # Least useful first, then the oldest; the ready ones only as far as the floor lets them.
    fleet = [
        *some(2, 1, State.READY, 1.0),
        *some(1, 1, State.READY, 2.0),
        *some(1, 1, State.NOT_READY, 3.0),
        *some(1, 1, State.STARTING, 4.0),
        *some(1, 1, State.UNREACHABLE, 5.0),
    ]
    drained = turn(fleet, 3, Budget(0, 1)).drain
    assert [name.rpartition("-")[0] for name in drained] == [
        "1-unreachable-5",
        "1-starting-4",
        "1-not_ready-3",
        "1-ready-1",
    ]


# Whole rollouts
# --------------------------------------------------------------------------------------------------


def whole(desired: int, surge: int | str = 1, unavailable: int | str = 0, **given: object) -> Walks:
    shop = Walks(desired, surge, unavailable, **given)
    shop.walk(all_new(2, desired))
    assert len(shop.of(2)) == desired
    return shop


@pytest.mark.parametrize(
    ("desired", "surge", "unavailable"),
    # 6.1, then the group variant of 1.3.8.
    [(3, 1, 1), (5, 2, 1), (10, 3, 0), (3, 1, 0), (20, 1, 0), (4, 2, 0), (10, 1, 0), (4, 0, 2)],
)
def test_whole_rollouts_are_as_forecast(desired: int, surge: int, unavailable: int) -> None:
    shop = whole(desired, surge, unavailable)
    # The budget is kept, and used.
    assert (shop.peak, shop.fewest) == (desired + surge, desired - unavailable)
    fleet, budget = some(desired, ready_since=-99.0), Budget(surge, unavailable)
    expected = forecast(fleet, [all_new(2, desired)], budget, Rules(), 2.0, 1.0)
    forecasted = expected.peak, expected.least, expected.replaced
    assert forecasted == (shop.peak, shop.fewest, desired)


def test_zero_of_both_moves_with_one_unavailable() -> None:
    # 1.3.8: (3, 0, 0) is "stuck at (3, 0)" there.
    shop = whole(3, "0%", "1%")
    assert (shop.peak, shop.fewest) == (3, 2)


@pytest.mark.parametrize(
    ("desired", "flight", "peak"), [(50, 5, 55), (6, 1, 7), (6, 2, 8), (3, 100, 6), (1, 1, 2)]
)
@pytest.mark.slow
def test_whole_rollouts_of_cloud_foundry(desired: int, flight: int, peak: int) -> None:
    shop = whole(desired, budget={"max_in_flight": flight})
    assert (shop.peak, shop.fewest) == (peak, desired)


# Cloud Foundry's tick (6.3), as far as max_in_flight is it
# ------------------------------------------------------------


@pytest.mark.parametrize(
    ("desired", "old", "routable", "starting", "down", "flight", "expected"),
    [
        (6, 6, 0, 0, 0, 1, (1, 0)),
        (6, 6, 0, 0, 0, 2, (2, 0)),
        (6, 6, 0, 0, 0, 100, (6, 0)),
        (6, 6, 1, 0, 0, 1, (0, 1)),  # theirs: (1, 1) in one tick
        (6, 5, 1, 0, 0, 1, (1, 0)),  # ... here: as soon as it is gone
        (6, 1, 5, 0, 0, 5, (1, 0)),
        # what is not reported is not well, and given up where nobody sends requests
        (10, 10, 1, 0, 8, 5, (0, 8 + 1)),
        (6, 6, 1, 2, 0, 2, (0, 1)),
    ],
)
def test_cloud_foundry_tick(
    desired: int,
    old: int,
    routable: int,
    starting: int,
    down: int,
    flight: int,
    expected: tuple[int, int],
) -> None:
    new = [
        *some(routable, 2),
        *some(starting, 2, State.STARTING, 1.0),
        *some(down, 2, State.UNREACHABLE, 2.0),
    ]
    assert moves(turn([*some(old), *new], desired, Budget(max_in_flight=flight))) == expected


def test_cloud_foundry_interim_target() -> None:
    # T 6, I 3: old 6 and an interim 1, new 3 routable: the oldest are reduced to 2, the interim one
    # stays.
    oldest, interim, new = some(6), some(1, 1, created=5.0), some(3, 2)
    drained = turn([*oldest, *interim, *new], 6, Budget(max_in_flight=1), new=3, old=3).drain
    assert drained == tuple(instance.id for instance in oldest[:4])
    left = [*oldest[4:], *interim, *new]
    assert turn(left, 6, Budget(max_in_flight=1), new=3, old=3).reached


def test_cloud_foundry_oldest_first() -> None:
    # The oldest 1 and an interim 3, new 3 routable of 6: the oldest goes.
    assert turn(
        [*some(1), *some(3, 1, created=5.0), *some(3, 2)], 6, Budget(max_in_flight=1)
    ).drain == ("1-ready-0-000",)


def test_cloud_foundry_nothing_asked() -> None:
    assert turn([], 0, Budget(max_in_flight=1)).reached


# Kubernetes' budget (field 7)
# -----------------------------------------------------------------------------------------

K8S: list[tuple[int, list[tuple[int, int]]]] = [
    (1, [(1, 0), (0, 1), (1, 0), (0, 1), (1, 0), (1, 0)]),
    (4, [(1, 1), (0, 1), (1, 0), (0, 1), (1, 0), (2, 0)]),
    (10, [(3, 2), (0, 2), (3, 0), (0, 1), (1, 1), (5, 0)]),
    (100, [(25, 25), (0, 25), (25, 0), (0, 1), (10, 10), (50, 0)]),
]
COLUMNS: list[tuple[Amount, Amount]] = [
    (percent("25"), percent("25")),
    (0, percent("25")),
    (percent("25"), 0),
    (0, percent("1")),
    (percent("10"), percent("10")),
    (percent("50"), 0),
]


@pytest.mark.parametrize(("desired", "row"), K8S)
def test_kubernetes_budget(desired: int, row: list[tuple[int, int]]) -> None:
    rooms = [Budget(surge, unavailable).resolve(desired) for surge, unavailable in COLUMNS]
    assert [(room.surge, room.unavailable) for room in rooms] == row
