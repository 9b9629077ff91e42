# SPDX-License-Identifier: GPL-3.0-or-later
"""Parse the options of an analysis into metrics and their judges."""

from __future__ import annotations

import typing as t
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..base.errors import InputError
from ..engine.judges.threshold import Limits
from ..inputs import values
from ..inputs.options import (
    DURATION,
    FLAG,
    MAPPING,
    NAME,
    TEXT,
    Field,
    Kind,
    Options,
    choice,
    duration,
    number,
    unparsed,
    whole,
)
from ..interfaces import loader
from ..interfaces.loader import DriverModule
from ..interfaces.metric import MetricDriver

if t.TYPE_CHECKING:
    from ..inputs.expressions import Expression

THRESHOLD, SEQUENTIAL, KAYENTA, NEW_MESSAGES = JUDGES = (
    "threshold",
    "sequential",
    "kayenta",
    "new_messages",
)
CONDITIONS = ("success_condition", "failure_condition")


def _condition(given: t.Any, variable: str) -> Expression:
    from ..inputs.expressions import Expression  # few metrics have a condition

    return Expression(given, variable)


CONDITION = Kind("str", _condition)
_ABOVE_0 = number(0.0, 1e6, exclusive=True)
_LIMIT = whole(-1)
METRIC = Options(
    Field("name", NAME, "Name of the metric.", required=True),
    Field("driver", TEXT, "Driver that measures it.", default="load_balancer"),
    Field(
        "judge",
        choice(
            threshold="Checks conditions on each measurement.",
            sequential=(
                "Compares new and stable instances after each measurement, and may decide after any"
                " of them."
            ),
            kayenta="Compares new and stable instances at the end, as Kayenta does.",
            new_messages="Finds messages that only new instances log, for C(driver=instance_log).",
        ),
        "How it is judged. If not given, V(threshold) with a condition, V(new_messages) with"
        " C(driver=instance_log), and V(sequential) otherwise.",
    ),
    Field("interval", duration(0.1), "How often it is measured. As in the analysis if not given."),
    Field(
        "initial_delay",
        DURATION,
        "How long after the start of the analysis the first measurement is made.",
        default=0,
    ),
    Field("count", whole(1), "Number of measurements. As in the analysis if not given."),
    Field(
        "consecutive_error_limit",
        whole(0),
        "Number of failed measurements in a row that are tolerated.",
        default=4,
    ),
    Field("dry_run", FLAG, "Whether it is only measured and reported.", default=False),
)
LIMITS = Options(
    Field(
        "failure_limit",
        _LIMIT,
        "Number of failures that are tolerated, V(-1) for any number. V(0) if not given.",
    ),
    Field(
        "inconclusive_limit",
        _LIMIT,
        "Number of inconclusive results that are tolerated, V(-1) for any number.",
        default=0,
    ),
    Field(
        "consecutive_failure_limit",
        _LIMIT,
        "Number of failures in a row that are tolerated, V(-1) for any number.",
    ),
    Field(
        "consecutive_success_limit",
        whole(0),
        "Number of successes in a row after which the metric passes at once, V(0) for never.",
        default=0,
    ),
)
OF_JUDGE: Mapping[str, Options] = {
    THRESHOLD: Options(
        Field(
            "success_condition",
            CONDITION,
            "Expression over V(result) that is true for a success (V(result[0] >= 0.99)).",
        ),
        Field(
            "failure_condition",
            CONDITION,
            "Expression over V(result) that is true for a failure. A result that meets neither"
            " condition is inconclusive, and so is a NaN that no condition tests for with"
            " V(is_nan).",
        ),
        *LIMITS.fields,
    ),
    SEQUENTIAL: Options(
        Field(
            "alpha",
            number(0.0, 0.5, True),
            "Probability of a false alarm by this metric, a share of the analysis' C(alpha). An"
            " equal share if not given.",
        ),
        Field(
            "tolerance",
            number(0.0, 1000.0, True),
            "Multiple of the stable instances' errors, or seconds, that is tolerated.",
            default=1.2,
        ),
        Field(
            "quantile",
            number(0.0, 1.0, True),
            "Quantile of the seconds that is compared.",
            default=0.5,
        ),
        Field(
            "detect",
            number(0.0, 1.0, True),
            "Error rate that must be detected. It determines how many requests a verdict takes.",
            default=0.05,
        ),
        Field(
            "at_least",
            number(0.0, 1.0),
            "Error rate of the new instances from which they may count as worse. Lower rates never"
            " do, whatever the rate of the stable instances.",
            default=0,
        ),
    ),
    KAYENTA: Options(
        Field(
            "direction",
            choice("increase", "decrease", "either"),
            "Direction of change that is bad.",
            default="either",
        ),
        Field(
            "nan_strategy",
            choice("remove", "replace"),
            "Whether a NaN is removed, or replaced by 0.",
            default="remove",
        ),
        Field(
            "outliers",
            choice("keep", "remove"),
            "Whether outliers are kept or removed.",
            default="keep",
        ),
        Field(
            "outlier_factor",
            number(0.0, 1000.0, True),
            "Multiple of the interquartile range that makes a value an outlier.",
            default=3.0,
        ),
        Field("critical", FLAG, "Whether its failure by itself fails the analysis.", default=False),
        Field("must_have_data", FLAG, "Whether missing data is a failure.", default=False),
        Field("muted", FLAG, "Whether it is left out of the judgment.", default=False),
        Field(
            "effect_size",
            choice("mean_ratio", "cles"),
            "Measure of the difference, for the four options that follow.",
            default="mean_ratio",
        ),
        Field("allowed_increase", _ABOVE_0, "Tolerated effect of an increase."),
        Field("allowed_decrease", _ABOVE_0, "Tolerated effect of a decrease."),
        Field(
            "critical_increase",
            _ABOVE_0,
            "Effect of an increase that by itself fails the analysis.",
        ),
        Field(
            "critical_decrease", _ABOVE_0, "Effect of a decrease that by itself fails the analysis."
        ),
        Field("group", NAME, "Group of the metric, for C(weights).", default="metrics"),
    ),
    NEW_MESSAGES: Options(
        Field(
            "failure",
            choice(
                never="None: they are named in reasons, the timeline and the report.",
                any="One that occurred three times or in two measurements, and that no old instance"
                " logged in the following two measurements.",
            ),
            "Which of the error messages that only new instances log count as a failure.",
            default="never",
        ),
    ),
}
OPTIONS = Options(
    Field(
        "metrics",
        Kind(
            "list",
            unparsed,
            elements="dict",
            fields=Options(
                *METRIC.fields,
                *(
                    replace(field, text=f"I({judge}): {field.text}")
                    for judge, table in OF_JUDGE.items()
                    for field in table.fields
                ),
            ),
            drivers="metrics",
        ),
        "What is measured. If not given, errors and, where the load balancers measure or log it,"
        " latency.",
    ),
    Field("interval", duration(0.1), "How often each metric is measured.", default="10s"),
    Field(
        "count",
        whole(0),
        "Number of measurements of each metric. Up to six more are taken while a verdict waits.",
        default=30,
    ),
    Field(
        "alpha",
        number(0.0, 0.5, True),
        "Probability that a good revision fails, over all metrics, instances and measurements of"
        " the judge V(sequential). The analyses of a rollout share the greatest one.",
        default=0.02,
    ),
    Field(
        "on_enough",
        choice(
            **{
                "pass": "It passes by itself.",
                "ask": "The operator is notified, and still has to decide.",
            }
        ),
        "What happens if an operator was asked because there was too little data, and now there is"
        " enough and all is well.",
        default="pass",
    ),
    Field(
        "pass",
        number(0, 100),
        "Score of the judge V(kayenta) that passes. A lower one waits for an operator.",
        default=95,
    ),
    Field(
        "marginal",
        number(0, 100),
        "Score of the judge V(kayenta) below which the analysis fails.",
        default=75,
    ),
    Field(
        "weights",
        MAPPING,
        "Weights of the metric groups for the judge V(kayenta), in percent. Equal if not given.",
    ),
    Field(
        "probe",
        MAPPING,
        "Synthetic requests to the new instances in service, for times of little traffic. They are"
        " counted together with those of clients. A mapping like O(health), with its C(http), and"
        " with its C(interval) as the time between two requests to an instance.",
        no_log=True,
    ),
    Field(
        "baseline",
        FLAG,
        "Whether fresh instances of the stable revision are started for comparison, as many as"
        " there are new ones. Only in O(steps). They are started before the first new one, and with"
        " the settings of this rollout, so that only the revision differs.",
        default=False,
    ),
    Field(
        "dry_run",
        FLAG,
        "Whether the analysis is only measured, judged and reported. It then never fails the"
        " rollout, and never asks an operator.",
        default=False,
    ),
)

# of metrics that find what most requests show: there is evidence enough for a small part
MOST_ALPHA = 0.001
# of an analysis: what says how results are judged
JUDGING = ("interval", "count", "alpha", "on_enough", "pass", "marginal", "weights", "dry_run")


@dataclass(frozen=True)
class Metric:
    """What is measured repeatedly, and how it is judged."""

    name: str
    driver: str
    options: Mapping[str, t.Any] = field(repr=False)  # the driver's; may hold secrets
    module: DriverModule[MetricDriver]
    judge: str
    rules: Mapping[str, t.Any]  # the judge's options
    limits: Limits
    success: Expression | None = None
    failure: Expression | None = None
    dry_run: bool = False  # only measured and reported
    variable: str = "metric"  # the option that defines it, for messages

    @property
    def spends_alpha(self) -> bool:
        """Whether its judge takes a part of the analysis' probability of a false alarm."""
        return self.judge == SEQUENTIAL and self.module.driver.spends_alpha

    @property
    def decides(self) -> bool:
        """Whether the rollout depends on it; any other metric is only reported."""
        return not self.dry_run and self.rules.get("failure") != "never"


@dataclass(frozen=True)
class Analysis:
    """Metrics that are judged together."""

    metrics: tuple[Metric, ...]
    passing: float  # the score that Kayenta's judge passes, 0 to 100
    marginal: float
    weights: Mapping[str, float]  # of groups of metrics
    passes_late: bool = True  # once there is enough data, though a person was asked
    dry_run: bool = False  # it never fails the rollout, and asks no person

    @property
    def lasts(self) -> float:
        """Seconds that it takes if nothing goes wrong."""
        limits = [metric.limits for metric in self.metrics]
        return max(
            metric_limits.initial_delay
            + (metric_limits.measurements or 0) * (metric_limits.interval or 0.0)
            for metric_limits in limits
        )


def standard(counted: Collection[str], logged: bool) -> list[dict[str, str]]:
    """Return the metrics where none are given.

    `counted` is what the load balancers count; `logged`: they have an access log.
    """
    log = {"driver": "access_log"}
    metrics = [{"name": "errors", **(log if logged and "errors" not in counted else {})}]
    if "driver" in metrics[0]:
        metrics[0]["of"] = "errors"
    if logged:
        metrics.append({"name": "latency", **log})
    elif "latency" in counted:
        metrics.append({"name": "latency", "of": "latency"})
    return metrics


def refusals(counted: Collection[str], logged: bool) -> list[dict[str, t.Any]]:
    """Return the metrics that find a revision that refuses most requests, or answers with nothing.

    Fewer refusals, such as with 404, and fewer small answers may have good reasons, so that they
    are no part of `standard`.
    """
    most = {"tolerance": 2, "at_least": 0.5, "detect": 0.5, "alpha": MOST_ALPHA}
    log = {**most, "driver": "access_log"}
    metrics: list[dict[str, t.Any]] = []
    if "client_errors" in counted:
        metrics.append({"name": "4xx", **most, "of": "client_errors"})
    elif logged:
        metrics.append({"name": "4xx", **log, "of": "errors", "statuses": ["4xx"]})
    if logged:
        metrics.append({"name": "size", **log, "tolerance": 1.5, "of": "small_answers"})
    return metrics


def recorded(
    options: Mapping[str, t.Any], usual: Sequence[Mapping[str, t.Any]]
) -> dict[str, t.Any]:
    """Return the options of a gate that say how results are judged, none of which is a secret."""
    given = usual if options["metrics"] is None else options["metrics"]
    known = {"of", "warm_up", *METRIC, *(name for table in OF_JUDGE.values() for name in table)}
    metrics = [{name: metric[name] for name in metric if name in known} for metric in given]
    return {**{name: options[name] for name in JUDGING}, "metrics": metrics}


def parse(
    options: Mapping[str, t.Any],
    variable: str,
    usual: Sequence[Mapping[str, t.Any]],
    again: bool = False,
) -> Analysis:
    """Return the analysis of a gate's options, with the `usual` metrics if it has none.

    `again`: they were `recorded`, so that nothing can be measured, and results are judged again.
    """
    given = usual if options["metrics"] is None else options["metrics"]
    given = values.sequence(given, f"{variable}.metrics", "[{name: errors}], or leave it out")
    if not given:
        raise InputError(
            f"{variable}.metrics: must not be empty; write [{{name: errors}}], or leave it out",
            "PR-125",
        )
    metrics = tuple(
        _metric(metric, options, f"{variable}.metrics[{metric['name'] if again else index}]", again)
        for index, metric in enumerate(given)
    )
    names = [metric.name for metric in metrics]
    for name in names:
        if names.count(name) > 1:
            raise InputError(
                f"{variable}.metrics: two metrics are named {name!r}; give each its own name",
                "PR-126",
            )
    passing, marginal = options["pass"], options["marginal"]
    if marginal > passing:
        raise InputError(
            f"{variable}.marginal: {marginal:g} is more than pass ({passing:g}); it must be the"
            " lower one",
            "PR-104",
        )
    weights = options["weights"] or {}
    groups = {str(metric.rules["group"]) for metric in metrics if metric.judge == KAYENTA}
    values.refuse_unknown(weights, groups, f"{variable}.weights.")
    parsed_weights = {
        group: values.number(weight, f"{variable}.weights.{group}", 0, 100)
        for group, weight in weights.items()
    }
    if parsed_weights and abs(sum(parsed_weights.values()) - 100) > 0.01:
        missing = ", ".join(sorted(groups - parsed_weights.keys()))
        raise InputError(
            f"{variable}.weights: their sum is {sum(parsed_weights.values()):g}; it must be 100"
            f"{f', with those of {missing}' if missing else ''}",
            "PR-104",
        )
    metrics = _with_alpha(metrics, options["alpha"], f"{variable}.alpha")
    late = options["on_enough"] == "pass"
    return Analysis(metrics, passing, marginal, parsed_weights, late, options["dry_run"])


def _with_alpha(metrics: tuple[Metric, ...], alpha: float, variable: str) -> tuple[Metric, ...]:
    """Return the metrics, each with its part of the analysis' probability of a false alarm.

    Those that decide nothing, or take no part of it, have all of it.
    """
    deciding = [metric for metric in metrics if metric.spends_alpha and metric.decides]
    given = [metric.rules["alpha"] for metric in deciding if metric.rules["alpha"] is not None]
    rest, others = alpha - sum(given), len(deciding) - len(given)
    if rest < -1e-9 or (others and rest <= 0):
        raise InputError(
            f"{variable}: the metrics' own alpha sum to {sum(given):g}, and {alpha:g} is for all;"
            " raise it, or lower theirs",
            "PR-104",
        )

    def part(metric: Metric) -> Metric:
        alpha_of_metric = metric.rules["alpha"] or (rest / others if metric in deciding else alpha)
        return replace(metric, rules={**metric.rules, "alpha": alpha_of_metric})

    return tuple(part(metric) if metric.judge == SEQUENTIAL else metric for metric in metrics)


def _metric(given: t.Any, analysis: Mapping[str, t.Any], variable: str, again: bool) -> Metric:
    given = values.mapping(given, variable, "a metric: {name: errors}")
    driver = METRIC["driver"].parse(given.get("driver"), f"{variable}.driver")
    module = loader.load(MetricDriver, driver, variable)
    required_judge = module.driver.judge
    usual = required_judge or (THRESHOLD if set(CONDITIONS).intersection(given) else SEQUENTIAL)
    judge = METRIC["judge"].parse(given.get("judge"), f"{variable}.judge") or usual
    if judge != required_judge and NEW_MESSAGES in (judge, required_judge):
        raise InputError(
            f"{variable}.judge: {judge} cannot judge what the driver {driver} measures; leave judge"
            " out",
            "PR-107",
        )
    past = module.driver.past
    if judge != KAYENTA and past and given.get(past) is not None:
        raise InputError(
            f"{variable}.{past}: values of the past are for the judge kayenta, and this metric's is"
            f" {judge}; set judge to kayenta, or leave {past} out",
            "PR-107",
        )
    _refuse_other_judges(set(given) - set(module.options), judge, variable)
    rules = OF_JUDGE[judge]
    values.refuse_unknown(given, {*METRIC, *rules, *module.options}, f"{variable}.")
    common, judged = (
        METRIC.parse(METRIC.part(given), f"{variable}."),
        rules.parse(rules.part(given), f"{variable}."),
    )
    limits = Limits(
        count=common["count"] or analysis["count"],
        interval=common["interval"] or analysis["interval"],
        initial_delay=common["initial_delay"],
        consecutive_error_limit=common["consecutive_error_limit"],
        **LIMITS.part(judged),
    )
    if judge == KAYENTA and not limits.measurements:
        raise InputError(
            f"{variable}.judge: kayenta judges at the end, which this analysis does not have; use"
            " sequential or threshold",
            "PR-107",
        )
    measured = module.options.part(given)
    return Metric(
        common["name"],
        driver,
        {
            name: module.options[name].parse(measured[name], f"{variable}.{name}")
            for name in measured
        }
        if again
        else module.check(measured, variable),
        module,
        judge,
        {} if judge == THRESHOLD else judged,
        limits,
        judged.get("success_condition"),
        judged.get("failure_condition"),
        common["dry_run"],
        variable,
    )


def _refuse_other_judges(given: Collection[str], judge: str, variable: str) -> None:
    """Refuse options of judges other than the metric's own."""
    for key in sorted(given):
        others = [
            other
            for other, table in OF_JUDGE.items()
            if key in table and key not in OF_JUDGE[judge]
        ]
        if others:
            raise InputError(
                f"{variable}.{key}: belongs to the judge {' or '.join(others)}, and this metric's"
                f" is {judge}; remove one of them",
                "PR-107",
            )
