# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What operators write of an analysis becomes metrics with their judges, or is refused before anything is touched."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import InputError
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.judges.threshold import Limits
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs import values
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs.expressions import Expression
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces import loader
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.loader import DriverModule
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.metric import MetricDriver

THRESHOLD, SEQUENTIAL, KAYENTA = JUDGES = ("threshold", "sequential", "kayenta")
CONDITIONS = ("success_condition", "failure_condition")
ENDLESS = ("failure_limit", "inconclusive_limit", "consecutive_failure_limit")  # where -1 is no limit
COUNTS = (*ENDLESS, "consecutive_success_limit")
OF_ALL = ("name", "driver", "judge", "interval", "initial_delay", "count", "consecutive_error_limit", "dry_run")
# What a judge takes, with its default.
OF_JUDGE: Mapping[str, Mapping[str, t.Any]] = {
    THRESHOLD: dict.fromkeys((*CONDITIONS, *COUNTS)),
    SEQUENTIAL: {"alpha": 0.02, "tolerance": 1.2, "quantile": 0.5, "detect": 0.05},
    KAYENTA: {
        "direction": "either",
        "nan_strategy": "remove",
        "outliers": "keep",
        "outlier_factor": 3.0,
        "critical": False,
        "must_have_data": False,
        "muted": False,
        "effect_size": "mean_ratio",
        "allowed_increase": None,
        "allowed_decrease": None,
        "critical_increase": None,
        "critical_decrease": None,
        "group": "metrics",
    },
}
CHOICES = {
    "direction": ("increase", "decrease", "either"),
    "nan_strategy": ("remove", "replace"),
    "outliers": ("keep", "remove"),
    "effect_size": ("mean_ratio", "cles"),
}
RANGES = {  # numbers, with the least and the most they may be; both of them excluded
    "alpha": (0.0, 0.5),
    "tolerance": (0.0, 1000.0),
    "quantile": (0.0, 1.0),
    "detect": (0.0, 1.0),
    "outlier_factor": (0.0, 1000.0),
    "allowed_increase": (0.0, 1e6),
    "allowed_decrease": (0.0, 1e6),
    "critical_increase": (0.0, 1e6),
    "critical_decrease": (0.0, 1e6),
}
STANDARD = ({"name": "errors"}, {"name": "latency", "of": "latency"})  # where no metrics are given


@dataclass(frozen=True)
class Metric:
    """One thing that is measured again and again, and how it is judged."""

    name: str
    driver: str
    options: Mapping[str, t.Any] = field(repr=False)  # the driver's own; may hold secrets
    module: DriverModule[MetricDriver]
    judge: str
    rules: Mapping[str, t.Any]  # the judge's own
    limits: Limits
    success: Expression | None = None
    failure: Expression | None = None
    dry_run: bool = False  # measured and told, and of no consequence
    variable: str = "metric"  # where it was written, for messages


@dataclass(frozen=True)
class Analysis:
    """What is judged together."""

    metrics: tuple[Metric, ...]
    passing: float  # of the score of all metrics that Kayenta's judge is for, 0 to 100
    marginal: float
    weights: Mapping[str, float]  # of their groups

    @property
    def lasts(self) -> float:
        """Seconds that it takes where nothing goes wrong."""
        limits = [metric.limits for metric in self.metrics]
        return max(one.initial_delay + (one.measurements or 0) * (one.interval or 0.0) for one in limits)


def parse(options: Mapping[str, t.Any], variable: str, times: bool) -> Analysis:
    """The analysis of a gate's options. `times`: whether the load balancers measure how long answers take."""
    interval = values.duration(options.get("interval") or "10s", variable + ".interval", 0.1)
    count = values.whole(options.get("count", 30), variable + ".count", 0)
    given = options.get("metrics")
    if given is None:
        given = STANDARD if times else STANDARD[:1]
    if not isinstance(given, Sequence) or isinstance(given, str) or not given:
        raise InputError(f"{variable}.metrics: {given!r} is no list of metrics; write [{{name: errors}}], or leave it out")
    metrics = tuple(_metric(one, interval, count, f"{variable}.metrics[{index}]") for index, one in enumerate(given))
    names = [metric.name for metric in metrics]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{variable}.metrics: two of them are named {name!r}; give each a name of its own")
    passing, marginal = (
        _number(options.get(key, value), f"{variable}.{key}", 0, 100) for key, value in (("pass", 95), ("marginal", 75))
    )
    if marginal > passing:
        raise InputError(f"{variable}.marginal: {marginal:g} is more than pass ({passing:g}); it is the lower one")
    weights = options.get("weights") or {}
    groups = {str(metric.rules["group"]) for metric in metrics if metric.judge == KAYENTA}
    values.refuse_unknown(weights, groups, f"{variable}.weights.")
    found = {group: _number(weight, f"{variable}.weights.{group}", 0, 100) for group, weight in weights.items()}
    if sum(found.values()) > 100:
        raise InputError(f"{variable}.weights: they come to {sum(found.values()):g}, which is more than 100; lower one")
    return Analysis(metrics, passing, marginal, found)


def _metric(given: t.Any, interval: float, count: int, variable: str) -> Metric:
    if not isinstance(given, Mapping):
        raise InputError(
            f"{variable}: a value of the type {type(given).__name__} is no metric; write a mapping: {{name: errors}}"
        )
    name = values.label(given.get("name"), variable + ".name")
    driver = given.get("driver") or "load_balancer"
    judge = given.get("judge") or (THRESHOLD if set(CONDITIONS).intersection(given) else SEQUENTIAL)
    if judge not in JUDGES:
        raise InputError(f"{variable}.judge: {judge!r} must be one of {', '.join(JUDGES)}")
    if not isinstance(driver, str):
        raise InputError(f"{variable}.driver: {driver!r} is not the name of a driver; write one, as in {{driver: prometheus}}")
    module = loader.load(MetricDriver, driver, variable)
    mine = OF_JUDGE[judge]
    for key in sorted(set(given) - set(module.options)):
        others = [other for other, keys in OF_JUDGE.items() if key in keys and key not in mine]
        if others:
            raise InputError(
                f"{variable}.{key}: it is for the judge {' or '.join(others)}, and this one is {judge}; leave one of them out"
            )
    values.refuse_unknown(given, {*OF_ALL, *mine, *module.options}, variable + ".")
    own = {key: value for key, value in given.items() if key in module.options}
    limits = _limits(given, interval, count, variable)
    if judge == KAYENTA and not limits.measurements:
        raise InputError(f"{variable}.judge: kayenta judges at the end, and this analysis has none; use sequential or threshold")
    success, failure = (Expression(given[key], f"{variable}.{key}") if given.get(key) is not None else None for key in CONDITIONS)
    return Metric(
        name,
        driver,
        module.check(own, variable),
        module,
        judge,
        {
            key: _rule(key, given.get(key, default), f"{variable}.{key}")
            for key, default in mine.items()
            if key not in (*CONDITIONS, *COUNTS)
        },
        limits,
        success,
        failure,
        values.boolean(given.get("dry_run") or False, variable + ".dry_run"),
        variable,
    )


def _limits(given: Mapping[str, t.Any], interval: float, count: int, variable: str) -> Limits:
    limits = {
        key: values.whole(given[key], f"{variable}.{key}", -1 if key in ENDLESS else 0)
        for key in (*COUNTS, "consecutive_error_limit")
        if given.get(key) is not None
    }
    return Limits(
        count=values.whole(given["count"], variable + ".count", 1) if given.get("count") is not None else count,
        interval=values.duration(given["interval"], variable + ".interval", 0.1)
        if given.get("interval") is not None
        else interval,
        initial_delay=values.duration(given.get("initial_delay") or 0, variable + ".initial_delay"),
        **limits,
    )


def _rule(key: str, value: t.Any, variable: str) -> t.Any:
    """One option of a judge."""
    if key in CHOICES:
        if value not in CHOICES[key]:
            raise InputError(f"{variable}: {value!r} must be one of {', '.join(CHOICES[key])}")
        return value
    if key in RANGES:
        return None if value is None else _number(value, variable, *RANGES[key], exclusive=True)
    if key == "group":
        return values.label(value, variable)
    return values.boolean(value, variable)


def _number(value: t.Any, variable: str, least: float, most: float, exclusive: bool = False) -> float:
    try:
        number = float("nan") if isinstance(value, bool) else float(str(value))
    except ValueError:
        number = float("nan")
    if not (least < number < most if exclusive else least <= number <= most):
        between = f"between {least:g} and {most:g}" if exclusive else f"from {least:g} to {most:g}"
        raise InputError(f"{variable}: {value!r} is not a number {between}; write one, as in {(least + min(most, 2.0)) / 2:g}")
    return number
