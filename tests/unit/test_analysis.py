# SPDX-License-Identifier: GPL-3.0-or-later
"""What operators write of an analysis: taken as they mean it, or refused with the variable and
what to do, as when a rollout begins.
"""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.analysis import spec
from ansible_collections.progressive.rollout.plugins.plugin_utils.analysis.spec import (
    SEQUENTIAL,
    THRESHOLD,
    Metric,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import InputError
from ansible_collections.progressive.rollout.plugins.plugin_utils.config import strategy
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.loop import gate_runner
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import Plan, Step
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import (
    DriverContext,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.traffic import (
    envoy,
    haproxy,
    nginx,
)

Given = Mapping[str, t.Any]
HAPROXY, ENVOY, NGINX = (module.Driver.counts for module in (haproxy, envoy, nginx))
ONE = {"set_weight": 20}
PLACE = "rollout_steps[1].analysis"
METRIC = f"{PLACE}.metrics[0]"


def begun(given: Given, counted: Sequence[str] = HAPROXY) -> Plan:
    """The plan of a rollout, with all its gates made, as they are before anything is touched."""
    plan = strategy.parse(given)
    gate_runner.check(plan.gates, DriverContext("shop", t.cast(t.Any, None), counted=counted))
    return plan


def step(**options: t.Any) -> Given:
    """A canary with an analysis after its first step."""
    return {"strategy": "canary", "steps": [ONE, {"analysis": options}]}


def of(**metric: t.Any) -> Given:
    """One with a single metric."""
    return step(metrics=[{"name": "m", **metric}])


def background(**options: t.Any) -> Given:
    return {"strategy": "canary", "steps": [ONE, {"pause": "1m"}], "analysis": options}


def gate(**options: t.Any) -> Given:
    return {"gates": {"post_rollout": [{"driver": "analysis", **options}]}}


GATE = "rollout_gates.post_rollout[0]"
PROMETHEUS = {"driver": "prometheus", "address": "https://p:9090"}

# Name, what is given, words the message must have.
REFUSED: list[tuple[str, Given, tuple[str, ...]]] = [
    (
        "no mapping",
        {"strategy": "canary", "steps": [ONE, {"analysis": "errors"}]},
        (PLACE, "expected a mapping"),
    ),
    ("unknown key", step(metric=[]), (f"{PLACE}.metric:", f"{PLACE}.metrics?")),
    (
        "a driver of the whole",
        step(driver="prometheus"),
        (f"{PLACE}.driver:", f"in {PLACE}.metrics"),
    ),
    ("count of none", step(count=0), (f"{PLACE}.count: 0", "must be at least 1")),
    ("count in words", step(count="some"), (PLACE, "count", "some")),
    ("count of none of a gate", gate(count=0), (f"{GATE}.count: 0", "must be at least 1")),
    ("interval in words", step(interval="often"), (f"{PLACE}.interval: 'often'", "duration")),
    (
        "interval of nothing",
        step(interval="0.01s"),
        (f"{PLACE}.interval: '0.01s'", "at least 0.1 s"),
    ),
    ("a baseline of a gate", gate(baseline=True), (f"{GATE}.baseline:", "rollout_steps")),
    (
        "a baseline before the first step",
        {"strategy": "canary", "steps": [{"analysis": {"baseline": True}}, ONE]},
        ("rollout_steps[0].analysis.baseline:", "nothing to compare"),
    ),
    (
        "a baseline of a gate before the first step",
        {"strategy": "canary", "steps": [{"gate": {"driver": "analysis", "baseline": True}}, ONE]},
        ("rollout_steps[0].gate.baseline:",),
    ),
    (
        "a reason to go back",
        {"gates": {"rollback": [{"driver": "analysis"}]}},
        ("rollback[0].driver:", "rollout_analysis"),
    ),
    # metrics
    (
        "metrics of one",
        step(metrics={"name": "errors"}),
        (f"{PLACE}.metrics:", "expected a list", "[{name: errors}]"),
    ),
    ("metrics of text", step(metrics="errors"), (f"{PLACE}.metrics:", "expected a list")),
    (
        "a metric of text",
        step(metrics=["errors"]),
        (f"{METRIC}: expected a mapping", "{name: errors}"),
    ),
    ("metrics of none", step(metrics=[]), (f"{PLACE}.metrics:", "must not be empty")),
    ("no name", step(metrics=[{"judge": "kayenta"}]), (f"{METRIC}.name:", "required")),
    (
        "a name of two lines",
        step(metrics=[{"name": "a\nb"}]),
        (f"{METRIC}.name: 'a\\nb'", "not a name"),
    ),
    (
        "two of one name",
        step(metrics=[{"name": "a"}, {"name": "a"}]),
        (f"{PLACE}.metrics: two", "'a'", "its own"),
    ),
    ("unknown key of a metric", of(toleranc=2), (f"{METRIC}.toleranc:", f"{METRIC}.tolerance?")),
    (
        "unknown driver",
        of(driver="statsd"),
        (f"{METRIC}.driver: ", "'statsd'", "load_balancer"),
    ),
    ("driver of two", of(driver=["web"]), (f"{METRIC}.driver:", "got list")),
    ("unknown judge", of(judge="solomon"), (f"{METRIC}.judge: 'solomon'", "sequential")),
    ("judge of two", of(judge=["kayenta"]), (f"{METRIC}.judge: ['kayenta']", "sequential")),
    (
        "limit of a condition that is not there",
        of(failure_limit=2),
        (f"{METRIC}.failure_limit:", "judge threshold", "sequential"),
    ),
    *(
        (
            f"values of the past, and the judge {judge}",
            of(**PROMETHEUS, query="up", range="1h", judge=judge),
            (f"{METRIC}.range:", "judge kayenta", f"metric's is {judge}"),
        )
        for judge in (THRESHOLD, SEQUENTIAL)
    ),
    (
        "alpha of Kayenta",
        of(judge="kayenta", alpha=0.1),
        (f"{METRIC}.alpha:", "judge sequential", "metric's is kayenta"),
    ),
    (
        "direction of sequential",
        of(direction="increase"),
        (f"{METRIC}.direction:", "judge kayenta"),
    ),
    (
        "condition of sequential",
        of(judge="sequential", success_condition="result > 1"),
        (f"{METRIC}.success_condition:", "judge threshold"),
    ),
    ("option of another driver", of(query="up"), (f"{METRIC}.query:", "unknown option")),
    ("interval of a metric", of(interval="often"), (f"{METRIC}.interval: 'often'", "duration")),
    ("count of a metric", of(count=0), (f"{METRIC}.count: 0", "must be at least 1")),
    (
        "delay of a metric",
        of(initial_delay="later"),
        (f"{METRIC}.initial_delay: 'later'", "duration"),
    ),
    (
        "errors of a metric",
        of(consecutive_error_limit=-1),
        (f"{METRIC}.consecutive_error_limit: -1", "at least 0"),
    ),
    (
        "dry run of a metric",
        of(dry_run="perhaps"),
        (f"{METRIC}.dry_run: 'perhaps'", "must be true or false"),
    ),
    # what load balancers do not count
    ("latency", of(of="latensy"), (METRIC, "of", "latensy", "latency")),
    # conditions
    (
        "a condition that does not compile",
        of(success_condition="result >"),
        (f"{METRIC}.success_condition: 'result >'", "write it"),
    ),
    (
        "a condition of Go",
        of(failure_condition="a && b"),
        (f"{METRIC}.failure_condition:", "&&", "write `and`"),
    ),
    (
        "a condition of a template",
        of(success_condition="{{ result }}"),
        (f"{METRIC}.success_condition:", "remove {{"),
    ),
    (
        "a condition of something else",
        of(success_condition="value > 1"),
        (f"{METRIC}.success_condition:", "'value'", "result"),
    ),
    (
        "a condition that is a number",
        of(success_condition=1),
        (f"{METRIC}.success_condition:", "expected a string"),
    ),
    (
        "a limit in words",
        of(success_condition="result > 1", failure_limit="few"),
        (f"{METRIC}.failure_limit: 'few'", "whole number"),
    ),
    (
        "a limit below none",
        of(success_condition="result > 1", failure_limit=-2),
        (f"{METRIC}.failure_limit: -2", "at least -1"),
    ),
    # numbers
    *(
        (
            f"{key} {value!r}",
            of(judge=judge, **{key: value}),
            (f"{METRIC}.{key}: {value!r}", "between"),
        )
        for judge, key, value in (
            ("sequential", "alpha", 0),
            ("sequential", "alpha", 0.5),
            ("sequential", "alpha", "little"),
            ("sequential", "alpha", float("nan")),
            ("sequential", "tolerance", -1),
            ("sequential", "tolerance", True),
            ("sequential", "quantile", 99),
            ("sequential", "detect", 1),
            ("kayenta", "outlier_factor", 0),
            ("kayenta", "allowed_increase", 0),
            ("kayenta", "critical_decrease", "much"),
        )
    ),
    (
        "a direction",
        of(judge="kayenta", direction="up"),
        (f"{METRIC}.direction: 'up'", "increase, decrease, either"),
    ),
    (
        "a strategy of NaN",
        of(judge="kayenta", nan_strategy="keep"),
        (f"{METRIC}.nan_strategy: 'keep'", "remove, replace"),
    ),
    (
        "outliers",
        of(judge="kayenta", outliers="drop"),
        (f"{METRIC}.outliers: 'drop'", "keep, remove"),
    ),
    (
        "an effect",
        of(judge="kayenta", effect_size="big"),
        (f"{METRIC}.effect_size: 'big'", "mean_ratio, cles"),
    ),
    (
        "critical neither",
        of(judge="kayenta", critical="very"),
        (f"{METRIC}.critical: 'very'", "must be true or false"),
    ),
    # scores
    ("pass over all", step(**{"pass": 101}), (f"{PLACE}.pass: 101", "from 0 to 100")),
    ("pass in words", step(**{"pass": "good"}), (f"{PLACE}.pass: 'good'", "from 0 to 100")),
    (
        "marginal over pass",
        step(marginal=96),
        (f"{PLACE}.marginal: 96", "more than pass (95)", "lower one"),
    ),
    (
        "weights of a part",
        step(
            metrics=[{"name": n, "judge": "kayenta", "group": n} for n in "ab"], weights={"a": 50}
        ),
        (f"{PLACE}.weights:", "50", "must be 100", "those of b"),
    ),
    (
        "more false alarms than there may be",
        step(alpha=0.01, metrics=[{"name": "m", "alpha": 0.02}]),
        (f"{PLACE}.alpha:", "0.02", "0.01", "lower theirs"),
    ),
    (
        "no false alarms left",
        step(metrics=[{"name": "m", "alpha": 0.02}, {"name": "n"}]),
        (f"{PLACE}.alpha:", "0.02"),
    ),
    (
        "weights over all",
        step(
            metrics=[{"name": n, "judge": "kayenta", "group": n} for n in "ab"],
            weights={"a": 60, "b": 50},
        ),
        (f"{PLACE}.weights:", "110", "must be 100"),
    ),
    (
        "weight of nobody",
        step(weights={"system": 50}),
        (f"{PLACE}.weights.system:", "unknown option"),
    ),
    (
        "weight of an unknown group",
        step(metrics=[{"name": "a", "judge": "kayenta"}], weights={"metric": 50}),
        (f"{PLACE}.weights.metric:", f"{PLACE}.weights.metrics?"),
    ),
    (
        "weight in words",
        step(metrics=[{"name": "a", "judge": "kayenta"}], weights={"metrics": "half"}),
        (f"{PLACE}.weights.metrics: 'half'", "from 0 to 100"),
    ),
    ("weights of a list", step(weights=["a"]), (PLACE, "weights", "expected a mapping")),
    # in the background
    (
        "in the background, a count",
        background(count=5),
        ("rollout_analysis.count:", "rollout_steps"),
    ),
    (
        "in the background, a timeout",
        background(timeout="5m"),
        ("rollout_analysis.timeout:", "rollout_steps"),
    ),
    (
        "in the background, a baseline",
        background(baseline=True),
        ("rollout_analysis.baseline:", "rollout_steps"),
    ),
    (
        "in the background, Kayenta",
        background(metrics=[{"name": "a"}, {"name": "b", "judge": "kayenta"}]),
        ("rollout_analysis.metrics[1].judge:", "at the end", "sequential"),
    ),
    (
        "from a step that is not there",
        background(starting_step=3),
        ("rollout_analysis.starting_step:", "no step 3"),
    ),
    (
        "from step 0",
        background(starting_step=0),
        ("rollout_analysis.starting_step: 0", "must be at least 1"),
    ),
    (
        "from a step of rolling",
        {"analysis": {"starting_step": 2}},
        ("rollout_analysis.starting_step:", "no step 2"),
    ),
    (
        "a bake in words",
        background(bake="a while"),
        ("rollout_analysis.bake: 'a while'", "duration"),
    ),
    (
        "in the background, a list",
        {"analysis": ["errors"]},
        ("rollout_analysis:", "expected a mapping, got list"),
    ),
    (
        "in the background, an unknown key",
        background(baking="5m"),
        ("rollout_analysis.baking:", "unknown option"),
    ),
    # drivers' own
    ("no query", of(**PROMETHEUS), (f"{METRIC}: has no query", "give either")),
    ("no address", of(driver="prometheus", query="up"), (METRIC, "address")),
    (
        "an address of a password",
        of(driver="web", url="http://ann:pw@h"),
        (f"{METRIC}.url:", "header"),
    ),
    (
        "a placeholder",
        of(driver="web", url="http://h/{port}"),
        (f"{METRIC}.url:", "'{port}'", "{revision}"),
    ),
    (
        "a path",
        of(driver="web", url="http://h", path="a..b"),
        (f"{METRIC}.path: 'a..b'", "write it like"),
    ),
    ("a command as text", of(driver="command", command="echo 1"), (f"{METRIC}.command:", "list")),
]


@pytest.mark.parametrize(
    ("given", "words"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_is_refused_with_the_variable_and_the_value(given: Given, words: tuple[str, ...]) -> None:
    with pytest.raises(InputError) as refusal:
        begun(given)
    message = str(refusal.value)
    assert all(word in message for word in words), message
    assert len(message) < 600


@pytest.mark.parametrize(
    ("counted", "of_what", "there"),
    [
        (ENVOY, "latency", "but errors and connect_failures;"),
        (NGINX, "errors", "but nothing;"),
        (NGINX, "latency", "but nothing;"),
    ],
)
def test_what_the_load_balancers_do_not_count_is_refused(
    counted: Sequence[str], of_what: str, there: str
) -> None:
    with pytest.raises(InputError) as refusal:
        begun(of(of=of_what), counted)
    assert all(
        word in str(refusal.value)
        for word in (f"{METRIC}.of:", f"{of_what!r}, {there}", "prometheus")
    )


# What is taken


def taken(given: Given, counted: Sequence[str] = HAPROXY) -> spec.Analysis:
    """The analysis after the first step."""
    plan = begun(given, counted)
    assert isinstance(plan.steps[0], Step)
    return spec.parse(plan.steps[0].gates[0].options, "gate", spec.standard(counted, False))


def only(given: Given) -> Metric:
    (metric,) = taken(given).metrics
    return metric


def test_without_metrics_it_is_what_the_load_balancers_count() -> None:
    said = [
        (metric.name, metric.driver, metric.judge, metric.options["of"])
        for metric in taken(step()).metrics
    ]
    assert said == [
        ("errors", "load_balancer", SEQUENTIAL, "errors"),
        ("latency", "load_balancer", SEQUENTIAL, "latency"),
    ]
    assert [metric.name for metric in taken(step(), ENVOY).metrics] == ["errors"]


def test_what_cannot_alarm_falsely_takes_no_part_of_alpha() -> None:
    """No more than a dry run does."""
    metrics = [
        {"name": "errors"},
        {"name": "saturation", "driver": "saturation"},
        {"name": "tried", "of": "latency", "dry_run": True},
    ]
    parts = {one.name: one.rules["alpha"] for one in taken(step(metrics=metrics)).metrics}
    assert parts == {"errors": 0.02, "saturation": 0.02, "tried": 0.02}


def test_a_metric_is_judged_by_its_conditions_where_it_has_some() -> None:
    assert only(of(success_condition="result.new.requests > 1")).judge == THRESHOLD
    assert only(of(failure_condition="result.new.requests > 1")).judge == THRESHOLD
    assert only(of()).judge == SEQUENTIAL
    assert only(of(judge="threshold")).judge == THRESHOLD  # which is inconclusive, as it says
    assert only(of(judge="kayenta")).rules["group"] == "metrics"


def test_what_a_metric_does_not_say_the_analysis_does() -> None:
    own, other = taken(
        step(
            interval="2s",
            count=7,
            metrics=[{"name": "a", "interval": "1m", "count": 3}, {"name": "b"}],
        )
    ).metrics
    assert (own.limits.interval, own.limits.count) == (60, 3)
    assert (other.limits.interval, other.limits.count) == (2, 7)


def test_minus_one_is_no_limit() -> None:
    keys = ("failure_limit", "inconclusive_limit", "consecutive_failure_limit")
    limits = only(of(success_condition="result > 1", **dict.fromkeys(keys, -1))).limits
    assert [getattr(limits, key) for key in keys] == [-1, -1, -1]


def test_groups_have_weights() -> None:
    metrics = [
        {"name": "a", "judge": "kayenta"},
        {"name": "b", "judge": "kayenta", "group": "system"},
    ]
    assert taken(step(metrics=metrics, weights={"metrics": 60, "system": 40})).weights == {
        "metrics": 60,
        "system": 40,
    }


def test_in_the_background_it_has_no_end() -> None:
    plan = begun(background(interval="10s", starting_step=2))
    (endless,) = plan.background
    assert (endless.options["count"], endless.timeout) == (0, None)
    # the pause belongs to step 1
    assert [one.watched for one in t.cast("tuple[Step, ...]", plan.steps)] == [False]


def test_no_secret_is_shown() -> None:
    shown = repr(
        taken(
            of(
                **PROMETHEUS,
                query="up",
                bearer_token="swordfish",
                success_condition="result[0] > 0",
            )
        )
    )
    assert "prometheus" in shown and "swordfish" not in shown
