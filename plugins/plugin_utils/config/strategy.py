# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What operators write of canary and blue-green becomes a plan, or is refused: all of it, before anything is touched."""

from __future__ import annotations

import hashlib
import json
import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from ansible_collections.progressive.rollout.plugins.plugin_utils.analysis import spec
from ansible_collections.progressive.rollout.plugins.plugin_utils.analysis.spec import THRESHOLD
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import InputError
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.text import span
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import FailureAction
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import LISTS, Gate, Groups, Plan, Step
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs import values
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces import loader
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.gate import GateDriver

VARIABLES = ("steps", "gates", "approval", "analysis", "auto_promote", "promote_delay", "hold")  # read here, beside `strategy`
ON_FAILURE = tuple(FailureAction)
ON_TIMEOUT = ("rollback", "hold", "promote")
ON_ERROR = ("fail", "ignore")
ACCEPTANCE = ("none", "timed", "checks")
WARM = 30.0  # s that the old set of blue_green is kept where nothing else is said
DAY = 86400.0  # s that somebody is waited for where nothing else is said
SETS = {"set_weight": "weight", "set_replicas": "replicas", "instance_weight": "instances"}  # to the field of a Step
KINDS = (*SETS, "pause", "gate", "analysis")
BESIDE = ("name", "on_failure", "reversible")
OF_GATES = ("driver", "interval", "timeout", "on_timeout", "on_error")
CALLS = ("confirm_rollout", "confirm_traffic_increase", "confirm_promotion", "post_rollout", "rollback")
_STEPS = "rollout_steps"
_ANALYSIS = "rollout_analysis"


@dataclass(frozen=True)
class Person:
    """How a person is waited for (`rollout_approval`)."""

    timeout: float | None = DAY
    on_timeout: str | None = None
    options: Mapping[str, t.Any] = field(default_factory=dict)  # where else the word may be said: file, url

    def gate(self, key: str) -> Gate:
        """A wait for them."""
        return Gate(key, "approval", self.options, timeout=self.timeout, on_timeout=self.on_timeout, variable="rollout_approval")


def parse(args: Mapping[str, t.Any]) -> Plan:
    """The plan of `strategy` and `VARIABLES` among the arguments of a step; raises InputError naming the variable."""
    strategy = _choice(args.get("strategy") or "rolling", tuple(LISTS), "rollout_strategy")
    person = _person(args.get("approval"))
    background, bake, first = _background(args.get("analysis"))
    steps, opening = _steps(args.get("steps"), strategy, person, first)
    calls = _calls(args.get("gates"), person)
    auto = args.get("auto_promote") in (None, "") or values.boolean(args["auto_promote"], "rollout_auto_promote")
    delay = _timer("promotion delay", args.get("promote_delay") or 0, "rollout_promote_delay")
    warm = args.get("hold")
    hold = _timer("hold", WARM if warm in (None, "") else warm, "rollout_hold")
    _refuse_unused(strategy, auto, delay.options["duration"], hold.options["duration"])
    return Plan(
        strategy,
        steps,
        opening,
        promotion=_lasting(delay) if auto else (person.gate("promotion approval"),),
        hold=_lasting(hold),
        confirm_rollout=calls["confirm_rollout"],
        confirm_traffic_increase=calls["confirm_traffic_increase"],
        confirm_promotion=calls["confirm_promotion"],
        post_rollout=bake + calls["post_rollout"],
        background=background,
        rollback_gates=calls["rollback"],
    )


def _refuse_unused(strategy: str, auto: bool, delay: float, hold: float) -> None:
    """Refuse what would do nothing; what is as by default counts as not given, since roles give every variable."""
    if strategy != "blue_green":
        unlike = {"rollout_auto_promote": not auto, "rollout_promote_delay": delay > 0, "rollout_hold": hold != WARM}
        for variable in (variable for variable, given in unlike.items() if given):
            raise InputError(f"{variable}: does nothing with rollout_strategy {strategy}, only with blue_green; leave it out")
    if delay and not auto:
        raise InputError(
            "rollout_promote_delay: does nothing with rollout_auto_promote: false, where a person promotes; leave it out"
        )


def fingerprint(plan: Plan) -> str:
    """A short hash of all that was asked for, the same in every run; nothing can be read out of it."""
    text = json.dumps(asdict(plan), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def check_gate(driver: t.Any, given: Mapping[str, t.Any], variable: str) -> dict[str, t.Any]:
    """The options of a gate's driver among what is given, checked, with the defaults filled in. What it has itself is the driver's,
    though every gate takes it."""
    if not isinstance(driver, str) or not driver:
        raise InputError(f"{variable}.driver: {driver!r} is not the name of a driver; give one, as in {{driver: web}}")
    module = loader.load(GateDriver, driver, variable)
    values.refuse_unknown(given, {*module.options, *OF_GATES}, variable + ".")
    return module.check(module.options.part(given), variable)


# Steps ----------------------------------------------------------------------------------------------------------------


def _steps(given: t.Any, strategy: str, person: Person, first: int) -> tuple[tuple[Step, ...] | Groups, tuple[Gate, ...]]:
    """The steps of a canary, and the gates before the first of them."""
    if first > 1 and (strategy != "canary" or not isinstance(given, Sequence) or first > len(given)):
        raise InputError(f"{_ANALYSIS}.starting_step: there is no step {first} in {_STEPS}; write the number of one of its steps")
    if strategy != "canary":
        if given:
            raise InputError(f"{_STEPS}: {strategy} has no steps; leave them out, or set rollout_strategy: canary")
        return (), ()
    if isinstance(given, Mapping) and given:
        return _groups(given, person), ()
    if not given:
        raise InputError(f"{_STEPS}: {given!r} has no step; a canary needs one, as in [{{set_weight: 20}}, {{pause: {{}}}}]")
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise InputError(
            f"{_STEPS}: a value of the type {type(given).__name__} is no list; write steps, as in [{{set_weight: 20}}]"
        )
    kinds = [_kind(item, f"{_STEPS}[{index}]") for index, item in enumerate(given)]
    steps, opening = _list(given, kinds, person, first)
    _check_order(steps, kinds)
    return steps, opening


def _kind(item: t.Any, variable: str) -> str:
    """Which of the `KINDS` an item is."""
    if not isinstance(item, Mapping):
        raise InputError(f"{variable}: a value of the type {type(item).__name__} is no step; write a mapping: {{set_weight: 20}}")
    values.refuse_unknown(item, (*KINDS, *BESIDE), variable + ".")
    kinds = [kind for kind in KINDS if kind in item]
    if len(kinds) != 1:
        raise InputError(f"{variable}: a step has exactly one of {', '.join(KINDS)}, and here is {' and '.join(kinds) or 'none'}")
    return kinds[0]


def _list(items: Sequence[t.Any], kinds: Sequence[str], person: Person, first: int) -> tuple[tuple[Step, ...], tuple[Gate, ...]]:
    """Argo's list. A pause or gate belongs to the step before it, unless it is marked: then it is one of its own."""
    steps: list[Step] = []
    opening: list[Gate] = []
    for index, (item, kind) in enumerate(zip(items, kinds, strict=True)):
        variable, number = f"{_STEPS}[{index}]", f"step {index + 1}"
        step = replace(_marked(item, number, variable), watched=index + 1 >= first)
        if kind in SETS:
            waits = kind == "instance_weight" and "pause" not in kinds[index + 1 : index + 2]
            gates = (person.gate(f"{number} pause"),) if waits else ()
            steps.append(replace(step, gates=gates, **{SETS[kind]: _target(item[kind], kind, f"{variable}.{kind}")}))
            continue
        key = step.name if item.get("name") else f"{number} {kind}"
        gate = READ[kind](item[kind], key, f"{variable}.{kind}", person)
        if gate.options.get("baseline"):
            if not steps:
                raise InputError(
                    f"{variable}.{kind}.baseline: before the first set_weight there is nothing to compare with; move it behind"
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
    """A step with what stands beside its kind."""
    name, on_failure, reversible = (item.get(key) for key in BESIDE)
    return Step(
        number if name is None else f"{number} {values.label(name, variable + '.name')}",
        on_failure=None if on_failure is None else FailureAction(_choice(on_failure, ON_FAILURE, variable + ".on_failure")),
        reversible=reversible is None or values.boolean(reversible, variable + ".reversible"),
    )


def _target(value: t.Any, kind: str, variable: str) -> t.Any:
    """How far a step goes: a percentage, or an amount of instances."""
    if kind == "set_replicas":
        amount = values.amount(value, variable)
        if not (amount if isinstance(amount, int) else amount.value):
            raise InputError(f"{variable}: {value!r} would be no canary; must be at least 1")
        return amount
    weight = values.whole(value, variable, 1, "write a percentage without the sign (20)")
    if weight > 100:
        raise InputError(f"{variable}: {value!r} is more than all; must be at most 100")
    return weight


def _check_order(steps: Sequence[Step], kinds: Sequence[str]) -> None:
    """A canary only grows. What its replicas come to is known when their number is."""
    if not set(SETS).intersection(kinds):
        raise InputError(f"{_STEPS}: no step sets anything, and a canary without a canary is rolling; add {{set_weight: 20}}")
    if "instance_weight" in kinds and {"set_weight", "set_replicas"}.intersection(kinds):
        raise InputError(f"{_STEPS}: instance_weight cannot be mixed with set_weight or set_replicas; use one of the two ways")
    weight = instances = 0
    for step in steps:
        if step.weight is not None and step.weight <= weight:
            raise InputError(f"{_STEPS}: {step.name} sets the weight {step.weight} after {weight}; each has to be higher")
        if step.instances is not None and step.instances < instances:
            raise InputError(f"{_STEPS}: {step.name} sets instance_weight {step.instances} after {instances}; none may be lower")
        if step.replicas is not None and weight == 100:
            raise InputError(f"{_STEPS}: {step.name} sets replicas after the weight 100, where all are new; leave it out")
        weight, instances = step.weight or weight, step.instances or instances


def _groups(given: Mapping[str, t.Any], person: Person) -> Groups:
    """Singularity's way to write steps (E-30). There are no older names of these (E-31)."""
    values.refuse_unknown(given, ("group_size", "cycles", "acceptance", "wait", "allowed_failures", "gates"), _STEPS + ".")
    size = values.whole(given.get("group_size", 1), _STEPS + ".group_size", 1, maximum=values.MOST)
    cycles = values.whole(given.get("cycles", 3), _STEPS + ".cycles", 0, maximum=values.MOST)
    failures = values.whole(given.get("allowed_failures", 0), _STEPS + ".allowed_failures", 0)
    acceptance = _choice(given.get("acceptance", "none"), ACCEPTANCE, _STEPS + ".acceptance")
    wait = _timer("wait", given.get("wait") or 0, _STEPS + ".wait")
    gates = _gates(given.get("gates"), "gate", _STEPS + ".gates", person)
    if gates and acceptance != "checks":
        raise InputError(f"{_STEPS}.gates: they are asked only with acceptance: checks, and it is {acceptance}")
    if _lasting(wait) and acceptance != "timed":
        raise InputError(f"{_STEPS}.wait: {given['wait']!r} is waited only with acceptance: timed, and it is {acceptance}")
    return Groups(size, cycles, gates or _lasting(wait), failures + 1)


# Gates ----------------------------------------------------------------------------------------------------------------


def _calls(given: t.Any, person: Person) -> dict[str, tuple[Gate, ...]]:
    """`rollout_gates`: Flagger's words for when a gate is asked."""
    given = _mapping(given, "rollout_gates")
    values.refuse_unknown(given, CALLS, "rollout_gates.")
    found = {call: _gates(given.get(call), call, f"rollout_gates.{call}", person) for call in CALLS}
    for gate in found["rollback"]:
        if gate.driver == "pause":
            raise InputError(
                f"{gate.variable}.driver: 'pause' would take every rollout back after its time; use web, command or approval"
            )
        if gate.driver == "analysis":
            raise InputError(
                f"{gate.variable}.driver: 'analysis' passes when all is well, which is no reason to go back; write it as {_ANALYSIS}"
            )
    return found


def _gates(given: t.Any, prefix: str, variable: str, person: Person) -> tuple[Gate, ...]:
    if given in (None, ""):
        return ()
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise InputError(f"{variable}: a value of the type {type(given).__name__} is no list; write [{{driver: web, url: ...}}]")
    found = (_gate(item, f"{prefix} {n}", f"{variable}[{n - 1}]", person) for n, item in enumerate(given, 1))
    return tuple(_without_baseline(gate) for gate in found)


def gate(given: t.Any, key: str, variable: str) -> Gate:
    """One gate by itself, as the step of that name takes it."""
    return _without_baseline(_gate(given, key, variable, Person()))


def _without_baseline(gate: Gate) -> Gate:
    """The gate, refused where it asks for what only steps have."""
    if gate.options.get("baseline"):
        raise InputError(f"{gate.variable}.baseline: fresh instances are started for a step; write it in an analysis of {_STEPS}")
    return gate


def _gate(given: t.Any, key: str, variable: str, person: Person) -> Gate:
    given = _mapping(given, variable)
    driver = given.get("driver")
    options = check_gate(driver, given, variable)
    gate = Gate(key, str(driver), options, timeout=None if driver == "pause" else DAY, variable=variable)
    if driver == "approval":
        gate = replace(person.gate(key), options={**person.options, **_set(options)}, variable=variable)
    if given.get("interval") is not None and "interval" not in options:
        gate = replace(gate, interval=values.duration(given["interval"], variable + ".interval", 0.1))
    if given.get("on_error") is not None:
        gate = replace(gate, on_error=_choice(given["on_error"], ON_ERROR, variable + ".on_error"))
    gate = _bounded(gate, given, variable)
    if driver == "analysis":
        _check_end(gate)
    return gate


def _check_end(gate: Gate) -> None:
    """Refuse an analysis that has no end, or is not waited for to its end."""
    values.whole(gate.options["count"], gate.variable + ".count", 1)
    if gate.timeout is None:
        return
    lasts = spec.parse(gate.options, gate.variable, True).lasts
    if lasts >= gate.timeout:
        raise InputError(
            f"{gate.variable}.timeout: {span(gate.timeout)} are over before the analysis is, which takes {span(lasts)}; raise it, or lower count"
        )


def _analysis(given: t.Any, key: str, variable: str, person: Person) -> Gate:
    given = _mapping(given, variable)
    if "driver" in given:
        raise InputError(
            f"{variable}.driver: an analysis has none, and each of its metrics may; write it there, in {variable}.metrics"
        )
    return _gate({**given, "driver": "analysis"}, key, variable, person)


def _background(given: t.Any) -> tuple[tuple[Gate, ...], tuple[Gate, ...], int]:
    """`rollout_analysis`: the gate that is asked all along, the one that is waited for at the end, and the first step it is asked at."""
    given = dict(_mapping(given, _ANALYSIS))
    if not given:
        return (), (), 1
    first = values.whole(given.pop("starting_step", 1), _ANALYSIS + ".starting_step", 1)
    bake = values.duration(given.pop("bake", 0), _ANALYSIS + ".bake")
    for name in ("count", "timeout", "on_timeout"):
        if given.get(name) is not None:
            raise InputError(
                f"{_ANALYSIS}.{name}: it goes on as long as the rollout does; leave it out, or write an analysis in rollout_steps"
            )
    gate = _without_baseline(_analysis({**given, "timeout": "unlimited"}, "analysis", _ANALYSIS, Person()))
    gate = replace(gate, options={**gate.options, "count": 0})
    if not bake:
        return (gate,), (), first
    metrics = spec.parse(gate.options, _ANALYSIS, False).metrics
    limits = [metric.limits for metric in metrics if metric.judge == THRESHOLD and not metric.dry_run]
    if not limits:
        raise InputError(
            f"{_ANALYSIS}.bake: when all instances are new there is no stable one to compare with; give metrics one with success_condition or "
            "failure_condition, or leave bake out"
        )
    # One that is not measured once more is of no use.
    once = min(one.interval or 0.0 for one in limits)
    return (gate,), (_timer("bake", max(bake, once), _ANALYSIS + ".bake"),), first


def _pause(given: t.Any, key: str, variable: str, person: Person) -> Gate:
    """For a time (`10m` or `{duration: 10m}`), or until somebody says promote (`{}`)."""
    if given is not None and not isinstance(given, Mapping):
        return _timer(key, given, variable)
    given = given or {}
    values.refuse_unknown(given, ("duration", "timeout", "on_timeout"), variable + ".")
    if given.get("duration") is None:
        return _bounded(person.gate(key), given, variable)
    if len(given) > 1:
        raise InputError(f"{variable}: duration ends by itself; timeout and on_timeout are for a pause without one")
    return _timer(key, given["duration"], variable + ".duration")


def _bounded(gate: Gate, given: Mapping[str, t.Any], variable: str) -> Gate:
    """With the `timeout` and `on_timeout` given, if any. Nothing waits without end unless it is asked for (E-14)."""
    if given.get("timeout") is not None:
        unlimited = given["timeout"] == "unlimited"
        gate = replace(gate, timeout=None if unlimited else values.duration(given["timeout"], variable + ".timeout", 1))
    if given.get("on_timeout") is not None:
        gate = replace(gate, on_timeout=_choice(given["on_timeout"], ON_TIMEOUT, variable + ".on_timeout"))
    return gate


def _timer(key: str, duration: t.Any, variable: str) -> Gate:
    return Gate(key, "pause", {"duration": values.duration(duration, variable)})


def _lasting(timer: Gate) -> tuple[Gate, ...]:
    """Nothing, where the time is 0."""
    return (timer,) if timer.options["duration"] else ()


def _person(given: t.Any) -> Person:
    variable = "rollout_approval"
    given = _mapping(given, variable)
    places = {key: value for key, value in given.items() if key not in ("timeout", "on_timeout")}
    values.refuse_unknown(given, ("timeout", "on_timeout", "file", "url"), variable + ".")
    bounds = _bounded(Person().gate(""), given, variable)
    return Person(bounds.timeout, bounds.on_timeout, _set(check_gate("approval", places, variable)))


def _set(options: Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return the options that are given or have a default."""
    return {name: value for name, value in options.items() if value is not None}


def _mapping(given: t.Any, variable: str) -> Mapping[str, t.Any]:
    if given in (None, ""):
        return {}
    if not isinstance(given, Mapping):
        raise InputError(f"{variable}: a value of the type {type(given).__name__} is not a mapping; write it as key: value pairs")
    return given


READ = {"pause": _pause, "gate": _gate, "analysis": _analysis}  # by the kind of an item that waits


def _choice(value: t.Any, choices: Sequence[str], variable: str) -> str:
    if value not in choices:
        raise InputError(f"{variable}: {value!r} must be one of {', '.join(choices)}")
    return str(value)
