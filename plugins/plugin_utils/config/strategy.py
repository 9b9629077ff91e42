# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parse the variables of canary and blue-green rollouts, gates and analyses into a plan."""

from __future__ import annotations

import hashlib
import json
import math
import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from ..analysis import spec
from ..analysis.spec import THRESHOLD
from ..base.errors import InputError
from ..base.text import span
from ..engine.model import FailureAction
from ..engine.strategy import LISTS, Gate, Groups, Plan, Step
from ..inputs import values
from ..inputs.options import (
    AMOUNT,
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
    whole,
)
from ..interfaces import loader
from ..interfaces.gate import GateDriver

WARM = "30s"  # that the old set of blue_green is kept by default
DAY = 86400.0  # seconds that a person is waited for by default
# to the field of a Step
SETS = {"set_weight": "weight", "set_replicas": "replicas", "instance_weight": "instances"}
KINDS = (*SETS, "pause", "gate", "analysis")
CALLS = {
    "confirm_rollout": "Gates before anything is started.",
    "confirm_traffic_increase": (
        "Gates before each increase of the new instances' share of requests."
    ),
    "confirm_promotion": "Gates before the new instances get all requests for good.",
    "post_rollout": "Gates when they have all requests, before the new revision is the stable one.",
    "rollback": (
        "Gates that are asked throughout. One that passes rolls back, and any other answer has no"
        " effect."
    ),
}
_STEPS = "rollout_steps"
_ANALYSIS = "rollout_analysis"


# Options --------------------------------------------------------------------------------------


def _timeout(value: t.Any, variable: str) -> float:
    return math.inf if value == "unlimited" else values.duration(value, variable, 1)


ON_FAILURE = choice(*(action.value for action in FailureAction))
TIMEOUT = Kind("raw", _timeout, "A duration, or V(unlimited).")
ON_TIMEOUT = choice(
    rollback="Roll back.", hold="Stop until a person decides.", promote="Let the rollout pass."
)
GATE = Options(
    Field("driver", TEXT, "Name of the driver.", required=True),
    Field(
        "interval",
        duration(0.1),
        "How long after an answer the gate is asked again. V(5s) if not given.",
    ),
    Field("timeout", TIMEOUT, "How long the rollout waits for the gate. V(1d) if not given."),
    Field("on_timeout", ON_TIMEOUT, "What happens then. As O(on_failure) says if not given."),
    Field(
        "on_error",
        choice(fail="The gate fails.", ignore="It lets the rollout pass."),
        "What happens if it cannot be asked.",
    ),
)
APPROVAL = Options(
    Field("timeout", TIMEOUT, "How long a person is waited for. V(1d) if not given."),
    Field("on_timeout", ON_TIMEOUT, "What happens then. As O(on_failure) says if not given."),
    Field(
        "file",
        TEXT,
        "File on the controller that approves like V(promote), as of the gate driver V(approval).",
    ),
    Field("url", TEXT, "Web service that approves, likewise."),
)
PAUSE = Options(
    Field("duration", DURATION, "How long the rollout pauses. Without it, it waits for a person."),
    *(APPROVAL[name] for name in ("timeout", "on_timeout")),
)
MARKS = Options(
    Field("name", NAME, "Name of the step."),
    Field("on_failure", ON_FAILURE, "Replaces O(on_failure) in this step."),
    Field(
        "reversible",
        FLAG,
        "V(false) where there is no rollback from this step on, so that a failure holds.",
        default=True,
    ),
)
STEP = Options(
    Field(
        "set_weight",
        whole(1, 100),
        "Percentage of requests that goes to new instances, each time more than before. There are"
        " as many new instances as that takes, or as C(set_replicas) said.",
    ),
    Field(
        "set_replicas",
        AMOUNT,
        "Number of new instances. Percentages are of O(replicas). Without any C(set_weight) their"
        " number is their share.",
    ),
    Field(
        "instance_weight",
        whole(1, 100),
        "Percentage of instances that are new, with one more than O(replicas) meanwhile. Waits for"
        " a person after it, unless a C(pause) follows.",
    ),
    Field(
        "pause",
        Kind("raw", as_it_is, fields=PAUSE),
        "A duration, a mapping, or an empty mapping, which waits for a person.",
    ),
    Field("gate", MAPPING, "A gate, as of M(progressive.rollout.gate)."),
    Field(
        "analysis",
        MAPPING,
        "An analysis, as O(analysis), that ends after its C(count) of measurements.",
    ),
    *MARKS.fields,
)
GROUPS = Options(
    Field("group_size", whole(1, values.MOST), "Number of instances in a group.", default=1),
    Field("cycles", whole(0, values.MOST), "Number of groups, before all others.", default=3),
    Field(
        "acceptance",
        choice(none="Nothing.", timed="C(wait).", checks="C(gates)."),
        "What is waited for after each group.",
        default="none",
    ),
    Field("wait", DURATION, "How long to wait with C(acceptance=timed).", default=0),
    Field(
        "allowed_failures",
        whole(0),
        "Number of failing new instances that are tolerated.",
        default=0,
    ),
    Field(
        "gates",
        Kind("list", as_it_is, elements="dict"),
        "Gates with C(acceptance=checks), as of M(progressive.rollout.gate).",
    ),
)
ANALYSIS = Options(
    *(one for one in spec.OPTIONS.fields if one.name not in ("count", "baseline")),
    GATE["on_error"],
    Field(
        "starting_step",
        whole(1),
        "Number of the step in O(steps) from which on it measures.",
        default=1,
    ),
    Field(
        "bake",
        DURATION,
        "How long it goes on when the new instances have all requests, before the new revision is"
        " the stable one. There is no stable revision to compare with by then, so it takes a metric"
        " with a condition.",
        default=0,
    ),
)
VARIABLES = Options(
    Field(
        "steps",
        Kind("raw", as_it_is, fields=Options(*STEP.fields, *GROUPS.fields)),
        "The steps of O(strategy=canary), a list. After the last one all instances are new. Each"
        " item has exactly one of C(set_weight), C(set_replicas), C(instance_weight), C(pause),"
        " C(gate) and C(analysis), and may have C(name), C(on_failure) and C(reversible).\nOr a"
        " mapping with C(group_size), C(cycles), C(acceptance), C(wait), C(gates) and"
        " C(allowed_failures): as many groups of that size, one after the other, then all others.",
        default=[],
    ),
    Field(
        "gates",
        Kind(
            "dict",
            as_it_is,
            fields=Options(
                *(
                    Field(name, Kind("list", as_it_is, elements="dict"), text)
                    for name, text in CALLS.items()
                )
            ),
        ),
        "What has to let a rollout pass at which moment, with any O(strategy). Each moment has a"
        " list of gates, asked one after the other. M(progressive.rollout.gate) has the options of"
        " gates.",
        default={},
    ),
    Field(
        "analysis",
        Kind("dict", as_it_is, fields=ANALYSIS),
        "What is measured from a step on, and judged after each measurement. A metric that fails"
        " ends the rollout as O(on_failure) says. One that cannot be measured holds the fleet as it"
        " is and waits for a person.",
        default={},
    ),
    Field(
        "approval",
        Kind("dict", as_it_is, fields=APPROVAL),
        "How a rollout waits for a person.",
        default={},
    ),
    Field(
        "auto_promote",
        FLAG,
        "With O(strategy=blue_green), whether the switch needs no person.",
        default=True,
    ),
    Field(
        "promote_delay",
        DURATION,
        "With O(strategy=blue_green) and O(auto_promote=true), how long the new set is ready before"
        " the switch.",
        default=0,
    ),
    Field(
        "hold",
        DURATION,
        "With O(strategy=blue_green), how long the old set stays ready after the switch, without"
        " requests. Until then a rollback is one switch.",
        default=WARM,
    ),
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


def parse(args: Mapping[str, t.Any]) -> Plan:
    """Return the plan of `strategy` and `VARIABLES` among the arguments of a step; raise
    InputError.
    """
    strategy = values.choice(args.get("strategy") or "rolling", "rollout_strategy", tuple(LISTS))
    known = VARIABLES.parse(VARIABLES.part(args), "rollout_")
    person = _person(known["approval"])
    background, bake, first = _background(known["analysis"])
    steps, opening = _steps(known["steps"], strategy, person, first)
    calls = _calls(known["gates"], person)
    auto, delay, warm = known["auto_promote"], known["promote_delay"], known["hold"]
    _refuse_unused(strategy, auto, delay, warm)
    return Plan(
        strategy,
        steps,
        opening,
        promotion=(
            _lasting(_timer("promotion delay", delay))
            if auto
            else (person.gate("promotion approval"),)
        ),
        hold=_lasting(_timer("hold", warm)),
        confirm_rollout=calls["confirm_rollout"],
        confirm_traffic_increase=calls["confirm_traffic_increase"],
        confirm_promotion=calls["confirm_promotion"],
        post_rollout=bake + calls["post_rollout"],
        background=background,
        rollback_gates=calls["rollback"],
    )


def _refuse_unused(strategy: str, auto: bool, delay: float, hold: float) -> None:
    """Refuse what has no effect. Defaults count as not given, since roles pass every variable."""
    if strategy != "blue_green":
        unlike = {
            "rollout_auto_promote": not auto,
            "rollout_promote_delay": delay > 0,
            "rollout_hold": hold != VARIABLES["hold"].parse(WARM, ""),
        }
        for variable in (variable for variable, given in unlike.items() if given):
            raise InputError(
                f"{variable}: has no effect with rollout_strategy {strategy}, only with blue_green;"
                " remove it",
                "PR-107",
            )
    if delay and not auto:
        raise InputError(
            "rollout_promote_delay: has no effect with rollout_auto_promote: false, where a person"
            " promotes; remove it",
            "PR-107",
        )


def fingerprint(plan: Plan) -> str:
    """Return a short hash of the plan, the same in every run. It reveals nothing."""
    text = json.dumps(asdict(plan), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def check_gate(driver: t.Any, given: Mapping[str, t.Any], variable: str) -> dict[str, t.Any]:
    """Return the options of a gate's driver, parsed. An option that both have is the driver's."""
    module = loader.load(GateDriver, GATE["driver"].parse(driver, f"{variable}.driver"), variable)
    values.refuse_unknown(given, {*module.options, *GATE}, variable + ".")
    return module.check(module.options.part(given), variable)


# Steps
# --------------------------------------------------------------------------------------------------


def _steps(
    given: t.Any, strategy: str, person: Person, first: int
) -> tuple[tuple[Step, ...] | Groups, tuple[Gate, ...]]:
    """Return the steps of a canary, and the gates before the first step."""
    if first > 1 and (
        strategy != "canary" or not isinstance(given, Sequence) or first > len(given)
    ):
        raise InputError(
            f"{_ANALYSIS}.starting_step: {_STEPS} has no step {first}; write the number of one of"
            " its steps",
            "PR-109",
        )
    if strategy != "canary":
        if given:
            raise InputError(
                f"{_STEPS}: has no effect with rollout_strategy {strategy}; remove it, or set"
                " rollout_strategy: canary",
                "PR-109",
            )
        return (), ()
    if isinstance(given, Mapping) and given:
        return _groups(given, person), ()
    if not given:
        raise InputError(
            f"{_STEPS}: must not be empty: a canary needs a step, as in [{{set_weight: 20}},"
            " {pause: {}}]",
            "PR-109",
        )
    given = values.sequence(given, _STEPS, "steps, as in [{set_weight: 20}]")
    kinds = [_kind(item, f"{_STEPS}[{index}]") for index, item in enumerate(given)]
    steps, opening = _list(given, kinds, person, first)
    _check_order(steps, kinds)
    return steps, opening


def _kind(item: t.Any, variable: str) -> str:
    """Return which of the `KINDS` an item is."""
    item = values.mapping(item, variable, "a step: {set_weight: 20}")
    values.refuse_unknown(item, STEP, f"{variable}.")
    kinds = [kind for kind in KINDS if kind in item]
    if len(kinds) != 1:
        raise InputError(
            f"{variable}: a step has exactly one of {', '.join(KINDS)}, not"
            f" {' and '.join(kinds) or 'none'}",
            "PR-109",
        )
    return kinds[0]


def _list(
    items: Sequence[t.Any], kinds: Sequence[str], person: Person, first: int
) -> tuple[tuple[Step, ...], tuple[Gate, ...]]:
    """Return the steps of a list as in Argo Rollouts. A pause or gate belongs to the step before
    it, unless it is marked.
    """
    steps: list[Step] = []
    opening: list[Gate] = []
    for index, (item, kind) in enumerate(zip(items, kinds, strict=True)):
        variable, number = f"{_STEPS}[{index}]", f"step {index + 1}"
        step = replace(_marked(item, number, variable), watched=index + 1 >= first)
        if kind in SETS:
            waits = kind == "instance_weight" and "pause" not in kinds[index + 1 : index + 2]
            gates = (person.gate(f"{number} pause"),) if waits else ()
            steps.append(
                replace(
                    step,
                    gates=gates,
                    **{SETS[kind]: _target(item[kind], kind, f"{variable}.{kind}")},
                )
            )
            continue
        key = step.name if item.get("name") else f"{number} {kind}"
        gate = READ[kind](item[kind], key, f"{variable}.{kind}", person)
        if gate.options.get("baseline"):
            if not steps:
                raise InputError(
                    f"{variable}.{kind}.baseline: before the first set_weight there is nothing to"
                    " compare with; move it after",
                    "PR-109",
                )
            steps[-1] = replace(steps[-1], baseline=True)
        if step.on_failure or not step.reversible:
            steps.append(replace(step, gates=(gate,)))
        elif steps:
            steps[-1] = replace(steps[-1], gates=(*steps[-1].gates, gate))
        else:
            opening.append(gate)
    return tuple(steps), tuple(opening)


def _marked(item: Mapping[str, t.Any], number: str, variable: str) -> Step:
    """Return a step with its name, and how it fails."""
    marks = MARKS.parse(MARKS.part(item), f"{variable}.")
    return Step(
        f"{number} {marks['name']}" if marks["name"] else number,
        on_failure=FailureAction(marks["on_failure"]) if marks["on_failure"] else None,
        reversible=marks["reversible"],
    )


def _target(value: t.Any, kind: str, variable: str) -> t.Any:
    """Return the target of a step: a percentage, or an amount of instances."""
    if kind == "set_replicas":
        amount = values.amount(value, variable)
        if not (amount if isinstance(amount, int) else amount.value):
            raise InputError(f"{variable}: {value!r} is too small; must be at least 1", "PR-104")
        return amount
    return values.whole(value, variable, 1, "write a percentage without the sign (20)", 100)


def _check_order(steps: Sequence[Step], kinds: Sequence[str]) -> None:
    """Refuse a canary that shrinks. Amounts of replicas are checked once their number is known."""
    if not set(SETS).intersection(kinds):
        raise InputError(
            f"{_STEPS}: no step starts new instances; add {{set_weight: 20}}", "PR-109"
        )
    if "instance_weight" in kinds and {"set_weight", "set_replicas"}.intersection(kinds):
        raise InputError(
            f"{_STEPS}: instance_weight cannot be mixed with set_weight or set_replicas; use one"
            " kind",
            "PR-109",
        )
    weight = instances = 0
    for step in steps:
        if step.weight is not None and step.weight <= weight:
            raise InputError(
                f"{_STEPS}: {step.name} sets the weight {step.weight} after {weight}; each must be"
                " higher",
                "PR-109",
            )
        if step.instances is not None and step.instances < instances:
            raise InputError(
                f"{_STEPS}: {step.name} sets instance_weight {step.instances} after {instances};"
                " none may be lower",
                "PR-109",
            )
        if step.replicas is not None and weight == 100:
            raise InputError(
                f"{_STEPS}: {step.name} sets replicas after the weight 100, when all instances are"
                " new; remove it",
                "PR-109",
            )
        weight, instances = step.weight or weight, step.instances or instances


def _groups(given: Mapping[str, t.Any], person: Person) -> Groups:
    """Return the steps of a mapping, as [Singularity](https://github.com/HubSpot/Singularity)
    has them.
    """
    found = GROUPS.parse(given, f"{_STEPS}.")
    acceptance, wait = found["acceptance"], _timer("wait", found["wait"])
    gates = _gates(found["gates"], "gate", f"{_STEPS}.gates", person)
    if gates and acceptance != "checks":
        raise InputError(
            f"{_STEPS}.gates: has no effect with acceptance: {acceptance}, only with checks",
            "PR-107",
        )
    if _lasting(wait) and acceptance != "timed":
        raise InputError(
            f"{_STEPS}.wait: has no effect with acceptance: {acceptance}, only with timed", "PR-107"
        )
    return Groups(
        found["group_size"], found["cycles"], gates or _lasting(wait), found["allowed_failures"] + 1
    )


# Gates
# --------------------------------------------------------------------------------------------------


def _calls(given: t.Any, person: Person) -> dict[str, tuple[Gate, ...]]:
    """Return the gates of `rollout_gates`, by moment; the names are those of
    [Flagger](https://docs.flagger.app).
    """
    given = values.mapping(given, "rollout_gates")
    values.refuse_unknown(given, CALLS, "rollout_gates.")
    found = {call: _gates(given.get(call), call, f"rollout_gates.{call}", person) for call in CALLS}
    for gate in found["rollback"]:
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
    return found


def _gates(given: t.Any, prefix: str, variable: str, person: Person) -> tuple[Gate, ...]:
    if given in (None, ""):
        return ()
    given = values.sequence(given, variable, "[{driver: web, url: ...}]")
    found = (
        _gate(item, f"{prefix} {n}", f"{variable}[{n - 1}]", person)
        for n, item in enumerate(given, 1)
    )
    return tuple(_without_baseline(gate) for gate in found)


def gate(given: t.Any, key: str, variable: str) -> Gate:
    """Return the gate of the step `gate`."""
    return _without_baseline(_gate(given, key, variable, Person()))


def _without_baseline(gate: Gate) -> Gate:
    """Return the gate; refuse `baseline`, which only steps have."""
    if gate.options.get("baseline"):
        raise InputError(
            f"{gate.variable}.baseline: fresh instances are started for a step; write it in an"
            f" analysis of {_STEPS}",
            "PR-109",
        )
    return gate


def _gate(given: t.Any, key: str, variable: str, person: Person) -> Gate:
    given = values.mapping(given, variable)
    driver = given.get("driver")
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
    gate = _bounded(gate, common)
    if driver == "analysis":
        _check_end(gate)
    return gate


def _check_end(gate: Gate) -> None:
    """Refuse an analysis without an end, or with a timeout before its end."""
    values.whole(gate.options["count"], gate.variable + ".count", 1)
    if gate.timeout is None:
        return
    lasts = spec.parse(gate.options, gate.variable, True).lasts
    if lasts >= gate.timeout:
        raise InputError(
            f"{gate.variable}.timeout: {span(gate.timeout)} is shorter than the analysis, which"
            f" takes {span(lasts)}; raise it, or lower count",
            "PR-104",
        )


def _analysis(given: t.Any, key: str, variable: str, person: Person) -> Gate:
    given = values.mapping(given, variable)
    if "driver" in given:
        raise InputError(
            f"{variable}.driver: an analysis has no driver, its metrics have; write it in"
            f" {variable}.metrics",
            "PR-107",
        )
    return _gate({**given, "driver": "analysis"}, key, variable, person)


def _background(given: t.Any) -> tuple[tuple[Gate, ...], tuple[Gate, ...], int]:
    """Return the background analysis of `rollout_analysis`, the gate of its bake time, and the
    first step it watches.
    """
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
        _analysis({**given, "timeout": "unlimited"}, "analysis", _ANALYSIS, Person())
    )
    gate = replace(gate, options={**gate.options, "count": 0})
    if not bake:
        return (gate,), (), first
    metrics = spec.parse(gate.options, _ANALYSIS, False).metrics
    limits = [
        metric.limits for metric in metrics if metric.judge == THRESHOLD and not metric.dry_run
    ]
    if not limits:
        raise InputError(
            f"{_ANALYSIS}.bake: there is no stable instance to compare with by then; give metrics a"
            " success_condition or failure_condition, or remove bake",
            "PR-107",
        )
    # Long enough for one more measurement.
    once = min(one.interval or 0.0 for one in limits)
    return (gate,), (_timer("bake", max(bake, once)),), first


def _pause(given: t.Any, key: str, variable: str, person: Person) -> Gate:
    """Return a pause for a time (`10m` or `{duration: 10m}`), or until `promote` is sent (`{}`)."""
    if given is not None and not isinstance(given, Mapping):
        return _timer(key, values.duration(given, variable))
    found = PAUSE.parse(given or {}, f"{variable}.")
    if found["duration"] is None:
        return _bounded(person.gate(key), found)
    if given and len(given) > 1:
        raise InputError(
            f"{variable}: timeout and on_timeout have no effect with a duration; remove them",
            "PR-107",
        )
    return _timer(key, found["duration"])


def _bounded(gate: Gate, common: Mapping[str, t.Any]) -> Gate:
    """Return the gate with the `timeout` and `on_timeout` given, if any. Nothing waits without
    end by default.
    """
    timeout, on_timeout = common["timeout"], common["on_timeout"]
    if timeout is not None:
        gate = replace(gate, timeout=None if timeout == math.inf else timeout)
    return replace(gate, on_timeout=on_timeout) if on_timeout else gate


def _timer(key: str, seconds: float) -> Gate:
    return Gate(key, "pause", {"duration": seconds})


def _lasting(timer: Gate) -> tuple[Gate, ...]:
    """Return the timer, nothing where its time is 0."""
    return (timer,) if timer.options["duration"] else ()


def _person(given: t.Any) -> Person:
    variable = "rollout_approval"
    given = values.mapping(given, variable)
    found = APPROVAL.parse(given, f"{variable}.")
    places = {key: value for key, value in given.items() if key in ("file", "url")}
    bounds = _bounded(Person().gate(""), found)
    return Person(bounds.timeout, bounds.on_timeout, _set(check_gate("approval", places, variable)))


def _set(options: Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return the options that are given or have a default."""
    return {name: value for name, value in options.items() if value is not None}


READ = {"pause": _pause, "gate": _gate, "analysis": _analysis}  # by the kind of an item that waits
