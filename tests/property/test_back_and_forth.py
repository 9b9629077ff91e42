# SPDX-License-Identifier: GPL-3.0-or-later
"""The number of new instances that an operator sets, and revisions that are known to be good."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.aim import (
    aimed_stage,
    with_aim,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.budget import Budget
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.evaluate import limit
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.plans import (
    back_in_steps,
    one_walk,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import (
    REPLACE,
    Gate,
    InvalidSteps,
    Plan,
    RolloutTarget,
    Stage,
    Step,
    remaining,
    stages,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.record import Record
from hypothesis import given
from hypothesis import strategies as st

WATCH = Gate("analysis", "analysis")


def target(desired: int, before: int, surge: int) -> RolloutTarget:
    allowed = Budget(surge, 0 if surge else 1).resolve(desired)
    return RolloutTarget(2, desired, allowed, before=before, stable=1)


@st.composite
def canaries(draw: st.DrawFn) -> tuple[Plan, RolloutTarget]:
    """A canary by number."""
    desired = draw(st.integers(2, 12))
    counts = sorted(draw(st.sets(st.integers(1, desired), min_size=1, max_size=4)))
    steps = tuple(Step(f"step {n}", replicas=count) for n, count in enumerate(counts, 1))
    return Plan("canary", steps, background=(WATCH,)), target(
        desired, draw(st.integers(1, 12)), draw(st.integers(0, 3))
    )


@given(canaries(), st.data())
def test_a_number_that_is_set_keeps_to_the_budget_and_the_canary_grows(
    canary: tuple[Plan, RolloutTarget], data: st.DataObject
) -> None:
    plan, leads_to = canary
    budget = leads_to.allowed
    listed = stages(plan, leads_to)
    passed = [stage.name for stage in listed[: data.draw(st.integers(0, len(listed) - 1))]]
    ahead = remaining(listed, passed)
    number = data.draw(st.integers(1, leads_to.desired))
    if not any(stage.part == REPLACE and stage.waypoint.new for stage in ahead):
        with pytest.raises(InvalidSteps):
            aimed_stage(ahead, number, leads_to.desired)
        return
    name = aimed_stage(ahead, number, leads_to.desired)
    aimed = with_aim(ahead, {name: number})
    assert [stage.name for stage in aimed] == [stage.name for stage in ahead]
    here = next(stage for stage in aimed if stage.name == name)
    assert here.waypoint.new == number
    of_steps = [stage.waypoint.new for stage in aimed if stage.part == REPLACE]
    assert of_steps == sorted(of_steps)
    for stage, planned in zip(aimed, ahead, strict=True):
        assert limit(stage.waypoint, budget) <= max(
            limit(planned.waypoint, budget), leads_to.base + budget.surge
        )
        assert stage.waypoint.desired == planned.waypoint.desired
    assert aimed[-1] == ahead[-1]
    # the next stage is not smaller, once this one is passed
    after = with_aim(remaining(listed, [*passed, name]), {name: number})
    assert all(s.waypoint.new >= number for s in after if s.part == REPLACE and s.waypoint.new)


@given(canaries())
def test_a_number_that_does_not_fit_is_refused(canary: tuple[Plan, RolloutTarget]) -> None:
    plan, leads_to = canary
    with pytest.raises(InvalidSteps, match="is more than"):
        aimed_stage(stages(plan, leads_to), leads_to.desired + 1, leads_to.desired)
    weighted = Plan("canary", (Step("step 1", weight=50),))
    with pytest.raises(InvalidSteps, match="by weights"):
        aimed_stage(stages(weighted, target(4, 4, 1)), 2, 4)


@given(canaries())
def test_a_revision_that_is_known_to_be_good_takes_one_watched_walk(
    canary: tuple[Plan, RolloutTarget],
) -> None:
    plan, leads_to = canary
    short = one_walk(plan)
    listed: tuple[Stage, ...] = stages(short, leads_to)
    assert [stage.name for stage in listed] == ["replace", "promote"]
    assert all(stage.watched for stage in listed) and short.background == plan.background
    assert back_in_steps(plan).steps == plan.steps and not back_in_steps(plan).background


def ended(
    revision: str, previous: str, at: float, kind: str = "rollout", outcome: str = "promoted"
) -> dict[str, t.Any]:
    return {
        "revision": revision,
        "previous": {"revision": previous},
        "updated": at,
        "kind": kind,
        "outcome": outcome,
    }


@given(st.lists(st.tuples(st.sampled_from("123"), st.booleans(), st.booleans()), max_size=12))
def test_a_revision_is_good_until_a_promotion_replaced_it_and_bad_where_a_rollback_left_it(
    story: list[tuple[str, bool, bool]],
) -> None:
    stable, record = "1", Record("shop")
    known: dict[str, float | None] = {}
    for at, (revision, back, succeeds) in enumerate(story):
        kind = "rollback" if back else "rollout"
        outcome = "promoted" if succeeds else "rolled_back"
        record.history.append(ended(revision, stable, at, kind, outcome))
        if not succeeds:
            known[revision] = None
        elif revision != stable:
            known[stable] = None if back else at
            stable = revision
    for revision in "123":
        assert record.left_at(revision) == known.get(revision)
