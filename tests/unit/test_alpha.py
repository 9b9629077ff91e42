# SPDX-License-Identifier: GPL-3.0-or-later
"""The analyses of a rollout share one alpha: together they fail no more good revisions than one."""

from __future__ import annotations

import typing as t
from types import SimpleNamespace

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.analysis import spec
from ansible_collections.progressive.rollout.plugins.plugin_utils.analysis.alpha import alpha_of
from ansible_collections.progressive.rollout.plugins.plugin_utils.config import settings
from ansible_collections.progressive.rollout.plugins.plugin_utils.config.fingerprint import (
    fingerprint,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.loop import stage_run
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.rollout.stages import (
    with_alpha,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.budget import Budget
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Phase
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import (
    Gate,
    Plan,
    RolloutTarget,
    Stage,
    stages,
)
from ansible_collections.progressive.rollout.tests.support.seeds import examples
from hypothesis import given
from hypothesis import strategies as st

HAPROXY = {"driver": "haproxy", "backend": "shop", "hosts": "lb", "socket": "/s"}
TARGET = RolloutTarget(2, 10, Budget(1, 0).resolve(10), 10, 1)
STEPS = [{"set_weight": 10}, {"analysis": {}}, {"set_weight": 50}, {"analysis": {}}]


def plan_of(**given: t.Any) -> Plan:
    known = {"service": "shop", "strategy": "canary", "traffic": HAPROXY, **given}
    return settings.parse(known, drivers=False).plan


def listed(plan: Plan) -> tuple[Stage, ...]:
    return with_alpha(stages(plan, TARGET), plan)


def gates_of(plan: Plan) -> list[Gate]:
    """All gates that are asked in a rollout, as they are asked."""
    path = listed(plan)
    background = [stage_run.with_share(gate, path[0].share) for gate in plan.background]
    return [*(gate for stage in path for gate in stage.gates), *background]


def test_the_analyses_of_two_steps_have_half_of_alpha_each() -> None:
    """The search for refusals beside them has its part of what it is given, too."""
    plan = plan_of(steps=STEPS)
    first, second, beside = map(alpha_of, gates_of(plan))
    assert first == second == pytest.approx(0.02 * 0.02 / 0.042, rel=0.05)
    assert 0 < beside < first / 10
    assert first + second + beside == pytest.approx(0.02)


def test_a_single_analysis_has_all_of_it() -> None:
    (default,) = gates_of(plan_of(strategy="rolling"))
    assert alpha_of(default) == pytest.approx(0.02)
    own = gates_of(plan_of(steps=STEPS[:2], analysis={}))
    assert [alpha_of(gate) for gate in own] == [0.02]


def test_a_gate_that_is_asked_at_each_step_is_an_analysis_each_time() -> None:
    gates = {"confirm_traffic_increase": [{"driver": "analysis"}]}
    steps = [{"set_weight": weight} for weight in (10, 20, 50)]
    asked = [alpha_of(gate) for gate in gates_of(plan_of(steps=steps, gates=gates, analysis={}))]
    assert len(asked) == 4 and asked == pytest.approx([0.005] * 4)


def test_what_decides_nothing_by_chance_takes_no_part() -> None:
    kayenta = {"metrics": [{"name": "errors", "judge": "kayenta"}]}
    steps = [*STEPS[:2], {"analysis": {"dry_run": True}}, {"analysis": kayenta}]
    asked = gates_of(plan_of(steps=steps, analysis={}))
    assert [alpha_of(gate) for gate in asked] == [0.02, 0, 0]


def test_the_settings_that_a_run_resumes_by_are_those_that_were_asked_for() -> None:
    plan = plan_of(steps=STEPS)
    before = fingerprint(plan)
    listed(plan)
    assert fingerprint(plan) == before


def test_the_background_analysis_is_asked_with_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Gate] = []
    monkeypatch.setattr(stage_run, "GateRunner", lambda gates, *_more: asked.extend(gates))
    plan = plan_of(steps=STEPS[:2], analysis={"alpha": 0.02, "metrics": [{"name": "errors"}]})
    loop: t.Any = SimpleNamespace(
        settings=SimpleNamespace(plan=plan),
        checker=SimpleNamespace(wake=None),
        background=None,
        fleet=[],
        context=None,
        now=None,
    )
    rollout: t.Any = SimpleNamespace(phase=Phase.PROGRESSING, background={})
    stage_run._background_gates(loop, listed(plan)[-1], rollout, lambda _fleet: 60.0)
    own, beside = map(alpha_of, asked)  # of 0.02 and 0.001, beside another of 0.02
    assert own == pytest.approx(20 * beside) == pytest.approx(0.02 * 0.02 / 0.041)


METRICS = st.one_of(
    st.none(),
    st.lists(
        st.one_of(st.none(), st.floats(0.0001, 0.005), st.just("0.001")), min_size=1, max_size=3
    ).map(
        lambda alphas: [
            {"name": f"m{number}", "of": "errors", **({"alpha": alpha} if alpha else {})}
            for number, alpha in enumerate(alphas)
        ]
    ),
)
ANALYSIS = st.builds(
    lambda alpha, metrics, dry_run: {"alpha": alpha, "metrics": metrics, "dry_run": dry_run},
    st.floats(0.02, 0.4),
    METRICS,
    st.booleans(),
)


@examples(100)
@given(
    st.lists(ANALYSIS, max_size=4),
    st.one_of(st.none(), ANALYSIS),
    st.lists(ANALYSIS, max_size=2),
)
def test_the_analyses_of_a_rollout_never_have_more_than_one(
    in_steps: list[dict[str, t.Any]],
    beside: dict[str, t.Any] | None,
    raised: list[dict[str, t.Any]],
) -> None:
    steps: list[dict[str, t.Any]] = [{"set_weight": 10}, {"set_weight": 60}]
    steps += [{"analysis": analysis} for analysis in in_steps]
    calls = [{"driver": "analysis", **analysis} for analysis in raised]
    more = {} if beside is None else {"analysis": beside}
    plan = plan_of(steps=steps, gates={"confirm_traffic_increase": calls}, **more)
    stated = [alpha_of(gate) for gate in plan.gates]
    asked = [alpha_of(gate) for gate in gates_of(plan)]
    assert sum(asked) <= max(stated, default=0.0) + 1e-9
    assert max(stated, default=0.0) == pytest.approx(sum(asked))
    for gate in gates_of(plan):
        if gate.driver == "analysis":  # it is still one that users may write
            spec.parse(gate.options, gate.variable, spec.standard(("errors",), False))
            assert 0 < gate.options["alpha"] <= 0.5
