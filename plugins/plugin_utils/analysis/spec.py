# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parse the options of an analysis into metrics and their judges."""

from __future__ import annotations

import typing as t
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from ..base.errors import InputError
from ..engine.judges.threshold import Limits
from ..inputs import values
from ..inputs.expressions import Expression
from ..inputs.options import (
    DURATION,
    FLAG,
    MAPPING,
    NAME,
    TEXT,
    Field,
    Kind,
    Options,
    as_it_is,
    choice,
    duration,
    number,
    whole,
)
from ..interfaces import loader
from ..interfaces.loader import DriverModule
from ..interfaces.metric import MetricDriver

THRESHOLD, SEQUENTIAL, KAYENTA = JUDGES = ("threshold", "sequential", "kayenta")
CONDITIONS = ("success_condition", "failure_condition")
CONDITION = Kind("str", Expression)
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
                "Compares new and stable instances after each measurement, and may decide at any of"
                " them."
            ),
            kayenta="Compares new and stable instances at the end, as Kayenta does.",
        ),
        "How it is judged. V(threshold) with a condition, else V(sequential) if not given.",
    ),
    Field(
        "interval", duration(0.1), "How often it is measured. As the analysis says if not given."
    ),
    Field(
        "initial_delay",
        DURATION,
        "How long after the start of the analysis the first measurement is.",
        default=0,
    ),
    Field("count", whole(1), "Number of measurements. As the analysis says if not given."),
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
        "Number of failures that are tolerated, V(-1) for any. V(0) if not given.",
    ),
    Field(
        "inconclusive_limit",
        _LIMIT,
        "Number of inconclusive results that are tolerated, V(-1) for any.",
        default=0,
    ),
    Field(
        "consecutive_failure_limit",
        _LIMIT,
        "Number of failures in a row that are tolerated, V(-1) for any.",
    ),
    Field(
        "consecutive_success_limit",
        whole(0),
        "Number of successes in a row that pass at once, V(0) for none.",
        default=0,
    ),
)
OF_JUDGE: Mapping[str, Options] = {
    THRESHOLD: Options(
        Field(
            "success_condition",
            CONDITION,
            "Expression over V(result) that a success fulfils (V(result[0] >= 0.99)).",
        ),
        Field(
            "failure_condition",
            CONDITION,
            "Expression over V(result) that a failure fulfils. A result that fits neither condition"
            " is inconclusive, and so is a NaN that no condition asks about with V(is_nan).",
        ),
        *LIMITS.fields,
    ),
    SEQUENTIAL: Options(
        Field(
            "alpha",
            number(0.0, 0.5, True),
            "Probability of a false alarm, over all measurements.",
            default=0.02,
        ),
        Field(
            "tolerance",
            number(0.0, 1000.0, True),
            "How many times the errors, or the seconds, of the stable instances are tolerated.",
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
            "Rate of errors that must be detected. It says how many requests a verdict takes.",
            default=0.05,
        ),
    ),
    KAYENTA: Options(
        Field(
            "direction",
            choice("increase", "decrease", "either"),
            "Change that is bad.",
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
            "How many times the interquartile range makes an outlier.",
            default=3.0,
        ),
        Field("critical", FLAG, "Whether its failure alone fails the analysis.", default=False),
        Field("must_have_data", FLAG, "Whether no data is a failure.", default=False),
        Field("muted", FLAG, "Whether it does not count.", default=False),
        Field(
            "effect_size",
            choice("mean_ratio", "cles"),
            "Measure of the difference, for the four options that follow.",
            default="mean_ratio",
        ),
        Field("allowed_increase", _ABOVE_0, "Effect of an increase that is tolerated."),
        Field("allowed_decrease", _ABOVE_0, "Effect of a decrease that is tolerated."),
        Field(
            "critical_increase", _ABOVE_0, "Effect of an increase that alone fails the analysis."
        ),
        Field("critical_decrease", _ABOVE_0, "Effect of a decrease that alone fails the analysis."),
        Field("group", NAME, "Group of the metric, for C(weights).", default="metrics"),
    ),
}
OPTIONS = Options(
    Field(
        "metrics",
        Kind(
            "list",
            as_it_is,
            elements="dict",
            fields=Options(
                *METRIC.fields,
                *(
                    replace(one, text=f"I({judge}): {one.text}")
                    for judge, table in OF_JUDGE.items()
                    for one in table.fields
                ),
            ),
            drivers="metrics",
        ),
        "What is measured. If not given, errors and, where the load balancers measure it, latency,"
        " as the load balancers count them.",
    ),
    Field("interval", duration(0.1), "How often each metric is measured.", default="10s"),
    Field("count", whole(0), "Number of measurements of each metric.", default=30),
    Field(
        "pass",
        number(0, 100),
        "Score of the judge V(kayenta) that passes. A lower one waits for a person.",
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
        "Weights of the groups of metrics of the judge V(kayenta), in percent. Equal if not given.",
    ),
    Field(
        "probe",
        MAPPING,
        "Synthetic requests to the new instances in service, for times of little traffic. They are"
        " counted with those of clients. A mapping as O(health), with its C(http), and its"
        " C(interval) between two requests to an instance.",
        no_log=True,
    ),
    Field(
        "baseline",
        FLAG,
        "Whether fresh instances of the stable revision are started to compare with, as many as"
        " there are new ones. Only in O(steps). They are started before the first new one, and with"
        " the settings of this rollout, so that only the revision differs.",
        default=False,
    ),
)
STANDARD = ({"name": "errors"}, {"name": "latency", "of": "latency"})  # where no metrics are given


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


@dataclass(frozen=True)
class Analysis:
    """Metrics that are judged together."""

    metrics: tuple[Metric, ...]
    passing: float  # the score that Kayenta's judge passes, 0 to 100
    marginal: float
    weights: Mapping[str, float]  # of groups of metrics

    @property
    def lasts(self) -> float:
        """Seconds that it takes if nothing goes wrong."""
        limits = [metric.limits for metric in self.metrics]
        return max(
            one.initial_delay + (one.measurements or 0) * (one.interval or 0.0) for one in limits
        )


def parse(options: Mapping[str, t.Any], variable: str, times: bool) -> Analysis:
    """Return the analysis of a gate's options.

    `times`: whether the load balancers measure latency.
    """
    given = options["metrics"]
    if given is None:
        given = STANDARD if times else STANDARD[:1]
    given = values.sequence(given, f"{variable}.metrics", "[{name: errors}], or leave it out")
    if not given:
        raise InputError(
            f"{variable}.metrics: must not be empty; write [{{name: errors}}], or leave it out",
            "PR-125",
        )
    metrics = tuple(
        _metric(one, options["interval"], options["count"], f"{variable}.metrics[{index}]")
        for index, one in enumerate(given)
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
    found = {
        group: values.number(weight, f"{variable}.weights.{group}", 0, 100)
        for group, weight in weights.items()
    }
    if sum(found.values()) > 100:
        raise InputError(
            f"{variable}.weights: their sum is {sum(found.values()):g}, more than 100; lower one",
            "PR-104",
        )
    return Analysis(metrics, passing, marginal, found)


def _metric(given: t.Any, interval: float, count: int, variable: str) -> Metric:
    given = values.mapping(given, variable, "a metric: {name: errors}")
    usual = THRESHOLD if set(CONDITIONS).intersection(given) else SEQUENTIAL
    judge = METRIC["judge"].parse(given.get("judge"), f"{variable}.judge") or usual
    driver = METRIC["driver"].parse(given.get("driver"), f"{variable}.driver")
    module = loader.load(MetricDriver, driver, variable)
    _refuse_other_judges(set(given) - set(module.options), judge, variable)
    rules = OF_JUDGE[judge]
    values.refuse_unknown(given, {*METRIC, *rules, *module.options}, f"{variable}.")
    common, judged = (
        METRIC.parse(METRIC.part(given), f"{variable}."),
        rules.parse(rules.part(given), f"{variable}."),
    )
    limits = Limits(
        count=common["count"] or count,
        interval=common["interval"] or interval,
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
    return Metric(
        common["name"],
        driver,
        module.check(module.options.part(given), variable),
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
