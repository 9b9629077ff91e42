# SPDX-License-Identifier: GPL-3.0-or-later
"""Parse gates and analyses, which a rollout waits for.

They are in steps, at the moments of `rollout_gates`, and in the background.
"""

from __future__ import annotations

import math
import typing as t
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ..analysis import spec
from ..analysis.spec import THRESHOLD
from ..base.errors import InputError
from ..base.text import span
from ..engine.judges.threshold import Limits
from ..engine.strategy import RELEASE, Gate, Plan, timer
from ..inputs import values
from ..inputs.options import (
    DURATION,
    TEXT,
    Field,
    Kind,
    Options,
    choice,
    duration,
    unparsed,
    whole,
)
from ..interfaces import loader
from ..interfaces.gate import GateDriver
from ..interfaces.loader import DriverChoice
from ..interfaces.traffic import TrafficDriver

DAY = 86400.0  # seconds that a person is waited for by default
CALLS = {
    "confirm_rollout": "Gates before anything is started.",
    "confirm_traffic_increase": (
        "Gates before each increase of the new instances' share of requests."
    ),
    "confirm_promotion": "Gates before the new instances get all requests for good.",
    "post_rollout": (
        "Gates once they get all requests, before the new revision becomes the stable one."
    ),
    "rollback": (
        "Gates that are asked throughout. If one passes, the rollout is rolled back; any other"
        " answer has no effect."
    ),
}
_ANALYSIS = "rollout_analysis"
_LOGGED = 20.0  # seconds between two looks at access logs: Envoy writes its own every 10 s
# Of the default analysis: how many looks at counters a rollout has if it takes as
# long as expected, a few more than ten since it may be quicker,
LOOKS = 15
# seconds between two of them, at least and at most: the shorter they are, the more looks one short
# outage of an instance is in, which the judge takes for several,
PACE = (1.0, 10.0)
UNKNOWN = 30.0  # and how many seconds a rollout takes of which nothing is known
_BESIDE = 0.002  # its probability of a false alarm beside an analysis that was asked for


# Options --------------------------------------------------------------------------------------


def _timeout(value: t.Any, variable: str) -> float:
    return math.inf if value == "unlimited" else values.duration(value, variable, 1)


TIMEOUT = Kind("raw", _timeout, "A duration, or V(unlimited).")
ON_TIMEOUT = choice(
    rollback="Roll back.", hold="Stop until an operator decides.", promote="Let the rollout pass."
)
GATE = Options(
    Field("driver", TEXT, "Name of the driver.", required=True),
    Field(
        "interval",
        duration(0.1),
        "How long after an answer the gate is asked again. V(5s) if not given.",
    ),
    Field("timeout", TIMEOUT, "How long the rollout waits for the gate. V(1d) if not given."),
    Field(
        "on_timeout",
        ON_TIMEOUT,
        "What happens after that time. As O(on_failure) says if not given.",
    ),
    Field(
        "on_error",
        choice(fail="The gate fails.", ignore="It lets the rollout pass."),
        "What happens if the gate cannot be asked.",
    ),
)
APPROVAL = Options(
    Field("timeout", TIMEOUT, "How long the rollout waits for an operator. V(1d) if not given."),
    Field(
        "on_timeout",
        ON_TIMEOUT,
        "What happens after that time. As O(on_failure) says if not given.",
    ),
    Field(
        "file",
        TEXT,
        "File on the controller that approves like V(promote), as with the gate driver"
        " V(approval).",
    ),
    Field("url", TEXT, "Web service that approves in the same way."),
)
ANALYSIS = Options(
    *(option for option in spec.OPTIONS.fields if option.name not in ("count", "baseline")),
    GATE["on_error"],
    Field(
        "starting_step",
        whole(1),
        "Number of the step in O(steps) from which it measures.",
        default=1,
    ),
    Field(
        "bake",
        DURATION,
        "How long it continues once the new instances get all requests, before the new revision"
        " becomes the stable one. By then there is no stable revision to compare with, so this"
        " needs a metric with a condition.",
        default=0,
    ),
)
MOMENTS = Options(
    *(Field(name, Kind("list", unparsed, elements="dict"), text) for name, text in CALLS.items())
)


@dataclass(frozen=True)
class Person:
    """How a person is waited for (`rollout_approval`)."""

    timeout: float | None = DAY
    on_timeout: str | None = None
    options: Mapping[str, t.Any] = field(default_factory=dict)  # other ways to approve: file, url

    def gate(self, key: str) -> Gate:
        """Return a gate that waits for a person."""
        return Gate(
            key,
            "approval",
            self.options,
            timeout=self.timeout,
            on_timeout=self.on_timeout,
            variable="rollout_approval",
        )


def person_of(given: t.Any) -> Person:
    """Return how a person is waited for, of `rollout_approval`."""
    variable = "rollout_approval"
    given = values.mapping(given, variable)
    if not given:
        return Person()
    parsed = APPROVAL.parse(given, f"{variable}.")
    places = {key: value for key, value in given.items() if key in ("file", "url")}
    bounds = bounded(Person().gate(""), parsed)
    return Person(bounds.timeout, bounds.on_timeout, _set(check_gate("approval", places, variable)))


def check_gate(driver: t.Any, given: Mapping[str, t.Any], variable: str) -> dict[str, t.Any]:
    """Return the options of a gate's driver, parsed. An option that both have is the driver's."""
    module = loader.load(GateDriver, GATE["driver"].parse(driver, f"{variable}.driver"), variable)
    values.refuse_unknown(given, {*module.options, *GATE}, variable + ".")
    return module.check(module.options.part(given), variable)


def by_moment(given: t.Any, person: Person) -> dict[str, tuple[Gate, ...]]:
    """Return the gates of `rollout_gates`, by moment.

    The names are those of [Flagger](https://docs.flagger.app).
    """
    given = values.mapping(given, "rollout_gates")
    values.refuse_unknown(given, CALLS, "rollout_gates.")
    parsed = {
        call: in_list(given.get(call), call, f"rollout_gates.{call}", person) for call in CALLS
    }
    for gate in parsed["rollback"]:
        if gate.driver == "pause":
            raise InputError(
                f"{gate.variable}.driver: 'pause' would roll back every rollout after its time; use"
                " web, command or approval",
                "PR-119",
            )
        if gate.driver == "analysis":
            raise InputError(
                f"{gate.variable}.driver: 'analysis' passes when all is well, which must not roll"
                f" back; write it as {_ANALYSIS}",
                "PR-119",
            )
    return parsed


def in_list(given: t.Any, prefix: str, variable: str, person: Person) -> tuple[Gate, ...]:
    """Return the gates of a list; `prefix` begins their keys."""
    if given in (None, ""):
        return ()
    given = values.sequence(given, variable, "[{driver: web, url: ...}]")
    parsed = (
        of_driver(item, f"{prefix} {n}", f"{variable}[{n - 1}]", person)
        for n, item in enumerate(given, 1)
    )
    return tuple(_without_baseline(gate) for gate in parsed)


def gate(given: t.Any, key: str, variable: str) -> Gate:
    """Return the gate of the step `gate`."""
    return _without_baseline(of_driver(given, key, variable, Person()))


def _without_baseline(gate: Gate) -> Gate:
    """Return the gate; refuse `baseline`, which only steps have."""
    if gate.options.get("baseline"):
        raise InputError(
            f"{gate.variable}.baseline: fresh instances are started for a step; write it in an"
            " analysis of rollout_steps",
            "PR-109",
        )
    return gate


def of_driver(given: t.Any, key: str, variable: str, person: Person) -> Gate:
    """Return a gate of its options, `driver` among them."""
    given = values.mapping(given, variable)
    driver = given.get("driver")
    if driver == RELEASE:
        raise InputError(
            f"{variable}.driver: 'release' is a gate that rollout_release adds where it belongs;"
            " set rollout_release, and remove this gate",
            "PR-119",
        )
    options = check_gate(driver, given, variable)
    common = GATE.parse(GATE.part(given), f"{variable}.")
    gate = Gate(
        key, str(driver), options, timeout=None if driver == "pause" else DAY, variable=variable
    )
    if driver == "approval":
        gate = replace(
            person.gate(key), options={**person.options, **_set(options)}, variable=variable
        )
    if common["interval"] and "interval" not in options:
        gate = replace(gate, interval=common["interval"])
    if common["on_error"]:
        gate = replace(gate, on_error=common["on_error"])
    gate = bounded(gate, common)
    if driver == "analysis":
        _check_end(gate)
        if options["dry_run"]:  # neither an error nor its timeout fails the rollout
            gate = replace(gate, on_error="ignore", on_timeout="promote")
    return gate


def _check_end(gate: Gate) -> None:
    """Refuse an analysis without an end, or with a timeout before its end."""
    values.whole(gate.options["count"], gate.variable + ".count", 1)
    if gate.timeout is None:
        return
    lasts = spec.parse(
        gate.options, gate.variable, spec.standard(("errors", "latency"), False)
    ).lasts
    if lasts >= gate.timeout:
        raise InputError(
            f"{gate.variable}.timeout: {span(gate.timeout)} is shorter than the analysis, which"
            f" takes {span(lasts)}; raise it, or lower count",
            "PR-104",
        )


def analysis(given: t.Any, key: str, variable: str, person: Person) -> Gate:
    """Return the gate of an analysis."""
    given = values.mapping(given, variable)
    if "driver" in given:
        raise InputError(
            f"{variable}.driver: an analysis has no driver, its metrics have; write it in"
            f" {variable}.metrics",
            "PR-107",
        )
    return of_driver({**given, "driver": "analysis"}, key, variable, person)


def background(given: t.Any) -> tuple[tuple[Gate, ...], tuple[Gate, ...], int]:
    """Return the background analysis, the gate of its bake time, and the first step it watches."""
    given = values.mapping(given, _ANALYSIS)
    if not given:
        return (), (), 1
    first, bake = (
        ANALYSIS[name].parse(given.pop(name, None), f"{_ANALYSIS}.{name}")
        for name in ("starting_step", "bake")
    )
    for name in ("count", "timeout", "on_timeout"):
        if given.get(name) is not None:
            raise InputError(
                f"{_ANALYSIS}.{name}: has no effect, since this analysis lasts as long as the"
                " rollout; remove it, or write an analysis in rollout_steps",
                "PR-107",
            )
    gate = _without_baseline(
        analysis({**given, "timeout": "unlimited"}, "analysis", _ANALYSIS, Person())
    )
    gate = replace(gate, options={**gate.options, "count": 0})
    if not bake:
        return (gate,), (), first
    limits = absolute(gate)
    if not limits:
        raise InputError(
            f"{_ANALYSIS}.bake: there is no stable instance to compare with by then; give metrics a"
            " success_condition or failure_condition, or remove bake",
            "PR-107",
        )
    # Long enough for one more measurement.
    once = min(limit.interval or 0.0 for limit in limits)
    return (gate,), (timer("bake", max(bake, once)),), first


def watched(plan: Plan, traffic: DriverChoice[TrafficDriver], same_hardware: bool = True) -> Plan:
    """Return a plan with an analysis of what the load balancers count.

    Where it has an analysis that decides, the default one is of refusals alone, since that does not
    compare these. Latencies are compared where all instances run on the `same_hardware`.
    """
    logs, counted = bool(traffic.options.get("access_log")), traffic.module.driver.counts
    if plan.strategy == "blue_green":
        return plan
    has_own = any(gate.driver == "analysis" and not gate.options["dry_run"] for gate in plan.gates)
    standard = spec.standard(counted, logs) if (logs or counted) and not has_own else []
    metrics = [
        {**metric, "interval": _LOGGED} if metric.get("driver") == "access_log" else metric
        for metric in [*standard, *spec.refusals(counted, logs)]
        if same_hardware or metric["name"] != "latency"
    ]
    if not metrics:
        return plan
    key = "default analysis" if plan.background else "analysis"
    given = {"metrics": metrics, "timeout": "unlimited", **({"alpha": _BESIDE} if has_own else {})}
    gate = analysis(given, key, _ANALYSIS, Person())
    options = {**gate.options, "count": 0}
    gate = replace(gate, options=options, by_default=True, on_error="ignore")
    return replace(plan, background=(*plan.background, gate))


def paced(gate: Gate, seconds: float) -> Gate:
    """Return a background gate for a rollout that is expected to take so many seconds.

    The default analysis looks at counters often enough for it; any other stays.
    """
    if not gate.by_default:
        return gate
    least, most = PACE
    interval = min(most, max(least, seconds / LOOKS))
    return replace(gate, options={**gate.options, "interval": interval})


def waits(plan: Plan) -> float:
    """Return the seconds that the plan's gates take; infinite where that is not known."""
    throughout = {gate.key for gate in (*plan.background, *plan.rollback_gates)}
    return sum(_lasts(gate) for gate in plan.gates if gate.key not in throughout)


def _lasts(gate: Gate) -> float:
    if gate.driver == "pause" and gate.options.get("duration") is not None:
        return float(gate.options["duration"])
    if gate.driver == "analysis":
        standard = spec.standard(("errors", "latency"), False)
        return spec.parse(gate.options, gate.variable, standard).lasts
    return math.inf


def absolute(analysis: Gate) -> list[Limits]:
    """Return the limits of the metrics that need no stable instance to compare with."""
    metrics = spec.parse(analysis.options, _ANALYSIS, spec.standard(("errors",), False)).metrics
    return [metric.limits for metric in metrics if metric.judge == THRESHOLD and not metric.dry_run]


def bounded(gate: Gate, common: Mapping[str, t.Any]) -> Gate:
    """Return the gate with the `timeout` and `on_timeout` given, if any.

    Nothing waits without end by default.
    """
    timeout, on_timeout = common["timeout"], common["on_timeout"]
    if timeout is not None:
        gate = replace(gate, timeout=None if timeout == math.inf else timeout)
    return replace(gate, on_timeout=on_timeout) if on_timeout else gate


def _set(options: Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return the options that are given or have a default."""
    return {name: value for name, value in options.items() if value is not None}
