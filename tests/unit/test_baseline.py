# SPDX-License-Identifier: GPL-3.0-or-later
"""Fresh instances of the stable revision, to compare with, in the journal. The lists of stages
are in `test_strategy.py`, the walks in `test_strategies.py`.
"""

from __future__ import annotations

import typing as t
from types import SimpleNamespace

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.config import settings
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.rollout.adoption import (
    adopt,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.rollout.lifecycle import (
    Lifecycle,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.rollout.stages import (
    LaunchStages,
    revision_of,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.step.context import (
    StepContext,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.budget import Budget
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.forecast import forecast
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import (
    Composition,
    Instance,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.progress import Rules
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import (
    Plan,
    RolloutTarget,
    Step,
    stages,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import (
    Capabilities,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.record import (
    Record,
    RolloutKind,
)
from ansible_collections.progressive.rollout.tests.support.decisions import some

PLAN = Plan("canary", (Step("step 1", weight=30, baseline=True),))
STABLE = Composition("1", 4, 10)


def running(
    plan: Plan = PLAN, stable: Composition | None = STABLE, fleet: list[Instance] | None = None
) -> StepContext:
    """As much of a run as opening and planning a rollout need."""
    traffic = SimpleNamespace(name="memory", options={})
    platform = settings.NO_PLATFORM
    chosen = SimpleNamespace(
        adopt=None,
        plan=plan,
        budget=Budget(1, 0),
        traffic=traffic,
        platform=platform,
        order=None,
        notify=(),
        replicas=None,
    )
    loop = SimpleNamespace(
        reports=(),
        fleet=fleet or [],
        event=lambda *_, **__: None,
        commit=int,
        recorder=SimpleNamespace(note_requests=int),
        platform=SimpleNamespace(
            capabilities=Capabilities(), asked=lambda: None, note=lambda *_: None
        ),
        targets=(),
    )
    session = SimpleNamespace(identity=SimpleNamespace(holder="me", request="", host=""))
    record = Record("shop", stable, generation=stable.generation if stable else 0)
    return t.cast(
        StepContext,
        SimpleNamespace(
            settings=chosen,
            given={},
            loop=loop,
            session=session,
            record=record,
            in_place=False,
            notify_release=lambda: None,
        ),
    )


def test_it_has_a_generation_that_no_rollout_after_it_takes() -> None:
    run = running()
    rollout = Lifecycle(run).open(RolloutKind.ROLLOUT, "2", 5, 10)
    assert (rollout.generation, rollout.baseline, run.record.generation) == (5, 6, 6)
    first, second, *_others = LaunchStages(run).of(rollout)
    assert first.waypoint.is_baseline and (
        first.waypoint.generation,
        first.waypoint.new,
        first.waypoint.old,
    ) == (6, 3, 7)
    assert [revision_of(rollout, stage.waypoint) for stage in (first, second)] == ["1", "2"]
    assert Record.load("shop", run.record.dump()).rollout == rollout


@pytest.mark.parametrize(
    ("kind", "plan", "stable"),
    [
        (RolloutKind.ROLLOUT, PLAN, None),
        (RolloutKind.SCALE, PLAN, STABLE),
        (RolloutKind.ROLLBACK, PLAN, STABLE),
        (RolloutKind.ROLLOUT, Plan(), STABLE),
    ],
)
def test_where_there_is_nothing_to_compare_there_is_none(
    kind: RolloutKind, plan: Plan, stable: Composition | None
) -> None:
    run = running(plan, stable)
    rollout = Lifecycle(run).open(kind, "2", 5, 10)
    assert (rollout.baseline, run.record.generation) == (0, 5)


def test_it_is_replaced_and_what_made_room_for_it_is_not() -> None:
    budget = Budget(1, 0)
    path = [
        stage.waypoint for stage in stages(PLAN, RolloutTarget(5, 10, budget.resolve(10), 10, 4, 6))
    ]
    assert path[0].is_baseline
    assert forecast(some(10, 4, ready_since=-99.0), path, budget, Rules(), 2.0, 1.0).replaced == 10


def test_with_the_journal_lost_it_counts_for_the_stable_revision() -> None:
    old, new, fresh = some(2, 1), some(4, 2), some(3, 3)
    fleet = [
        Instance(i.id, {2: "new"}.get(i.generation, "old"), i.generation, i.state)
        for i in (*new, *old, *fresh)
    ]
    run = running(stable=None, fleet=fleet)
    adopt(run)
    assert run.record.stable == Composition("old", 3, 5)
