# SPDX-License-Identifier: GPL-3.0-or-later
"""Parse the steps of a canary: a list, groups or a ramp."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..base.errors import InputError
from ..engine import ramp
from ..engine.model import FailureAction
from ..engine.strategy import Gate, Groups, Step, lasting, timer
from ..inputs import values
from ..inputs.options import (
    AMOUNT,
    DURATION,
    FLAG,
    MAPPING,
    NAME,
    Field,
    Kind,
    Options,
    choice,
    unparsed,
    whole,
)
from . import gates
from .gates import Person

# to the field of a Step
SETS = {"set_weight": "weight", "set_replicas": "replicas", "instance_weight": "instances"}
KINDS = (*SETS, "pause", "gate", "analysis")
_STEPS = "rollout_steps"


# Options --------------------------------------------------------------------------------------

ON_FAILURE = choice(*(action.value for action in FailureAction))
PAUSE = Options(
    Field(
        "duration",
        DURATION,
        "How long the rollout pauses. Without it, the rollout waits for an operator.",
    ),
    *(gates.APPROVAL[name] for name in ("timeout", "on_timeout")),
)
MARKS = Options(
    Field("name", NAME, "Name of the step."),
    Field("on_failure", ON_FAILURE, "Replaces O(on_failure) in this step."),
    Field(
        "reversible",
        FLAG,
        "V(false) if there is no rollback from this step on, so that a failure holds the rollout.",
        default=True,
    ),
)
STEP = Options(
    Field(
        "set_weight",
        whole(1, 100),
        "Percentage of requests that goes to new instances, higher in each step than before. There"
        " are as many new instances as that takes, or as C(set_replicas) said.",
    ),
    Field(
        "set_replicas",
        AMOUNT,
        "Number of new instances. Percentages are of O(replicas). Without any C(set_weight), their"
        " number determines their share.",
    ),
    Field(
        "instance_weight",
        whole(1, 100),
        "Percentage of instances that are new, with one more than O(replicas) meanwhile. The"
        " rollout then waits for an operator, unless a C(pause) follows.",
    ),
    Field(
        "pause",
        Kind("raw", unparsed, fields=PAUSE),
        "A duration, a mapping, or an empty mapping, which waits for an operator.",
    ),
    Field("gate", MAPPING, "A gate, with the options of M(progressive.rollout.gate)."),
    Field(
        "analysis",
        MAPPING,
        "An analysis, like O(analysis), that ends after C(count) measurements.",
    ),
    *MARKS.fields,
)
GROUPS = Options(
    Field("group_size", whole(1, values.MOST), "Number of instances in a group.", default=1),
    Field("cycles", whole(0, values.MOST), "Number of groups before all the others.", default=3),
    Field(
        "acceptance",
        choice(none="Nothing.", timed="C(wait).", checks="C(gates)."),
        "What the rollout waits for after each group.",
        default="none",
    ),
    Field("wait", DURATION, "How long to wait with C(acceptance=timed).", default=0),
    Field(
        "allowed_failures",
        whole(0),
        "Number of failed new instances that are tolerated.",
        default=0,
    ),
    Field(
        "gates",
        Kind("list", unparsed, elements="dict"),
        "Gates with C(acceptance=checks), or, in a C(ramp), after C(every) at each share, with the"
        " options of M(progressive.rollout.gate).",
    ),
)
RAMP = Options(
    Field(
        "ramp",
        choice(
            geometric="Each share is C(factor) times the one before.",
            linear="Each share is C(increment) more than the one before.",
        ),
        "How the share of requests rises from step to step.",
        required=True,
    ),
    Field(
        "start",
        whole(1, 99),
        "The first percentage. V(10) with C(ramp=geometric), C(increment) with C(ramp=linear).",
    ),
    Field("factor", whole(2, 100), "With C(ramp=geometric). V(2) if not given."),
    Field("increment", whole(1, 99), "With C(ramp=linear). V(5) if not given."),
    Field(
        "every",
        DURATION,
        "How long each share stays, once the load balancers have it and its instances are ready.",
        default=0,
    ),
    Field(
        "max",
        whole(1, 100),
        "The last percentage. Below 100, the rollout stays there until an operator promotes it.",
        default=100,
    ),
    GROUPS["gates"],
    Field(
        "ahead",
        FLAG,
        "Whether the next step's new instances already start during a share, as far as O(budget)"
        " has room for them. They do not raise the share.",
        default=False,
    ),
)
OF_KIND = {"geometric": ("factor", 2), "linear": ("increment", 5)}  # with the default
OPTIONS = Options(*STEP.fields, *GROUPS.fields, *RAMP.fields)


# Steps ----------------------------------------------------------------------------------------


def parse(
    given: t.Any, strategy: str, person: Person, first: int
) -> tuple[tuple[Step, ...] | Groups, tuple[Gate, ...]]:
    """Return the steps of a canary, and the gates before the first step."""
    is_ramp = isinstance(given, Mapping) and "ramp" in given
    if first > 1 and (
        strategy != "canary"
        or not (isinstance(given, Sequence) or is_ramp)
        or first > (len(_shares(given)) if is_ramp else len(given))
    ):
        raise InputError(
            f"rollout_analysis.starting_step: {_STEPS} has no step {first}; write the number of one"
            " of its steps",
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
    if is_ramp:
        return _ramp(given, person, first), ()
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
    """Return the steps of a list as in Argo Rollouts.

    A pause or gate belongs to the step before it, unless it is marked.
    """
    steps: list[Step] = []
    opening: list[Gate] = []
    for index, (item, kind) in enumerate(zip(items, kinds, strict=True)):
        variable, number = f"{_STEPS}[{index}]", f"step {index + 1}"
        step = replace(_marked(item, number, variable), watched=index + 1 >= first)
        if kind in SETS:
            waits = kind == "instance_weight" and "pause" not in kinds[index + 1 : index + 2]
            steps.append(
                replace(
                    step,
                    gates=(person.gate(f"{number} pause"),) if waits else (),
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


def _shares(given: Mapping[str, t.Any]) -> tuple[int, ...]:
    """Return the percentages of a ramp."""
    options = RAMP.parse(given, f"{_STEPS}.")
    kind, most = options["ramp"], options["max"]
    name, default = OF_KIND[kind]
    for other in {"factor", "increment"} - {name}:
        if options[other] is not None:
            raise InputError(
                f"{_STEPS}.{other}: has no effect with ramp: {kind}; write {name}, or remove it",
                "PR-107",
            )
    rise = default if options[name] is None else options[name]
    start = options["start"] or (10 if kind == "geometric" else rise)
    if most < start:
        raise InputError(
            f"{_STEPS}.max: {most} is less than start ({start}); raise it, or lower start", "PR-104"
        )
    return (ramp.geometric if kind == "geometric" else ramp.linear)(start, rise, most)


def _ramp(given: Mapping[str, t.Any], person: Person, first: int) -> tuple[Step, ...]:
    """Return the steps of a ramp.

    Its words are those of [Picchu](https://github.com/Medium/picchu).
    """
    shares, options = _shares(given), RAMP.parse(given, f"{_STEPS}.")
    waits: list[tuple[Gate, ...]] = []
    for number, share in enumerate(shares, 1):
        name = f"step {number}"
        asked = gates.in_list(options["gates"], f"{name} gate", f"{_STEPS}.gates", person)
        stays = share == options["max"] < 100
        every = () if stays else lasting(timer(f"{name} every", options["every"]))
        waits.append((*every, *asked, *([person.gate(f"{name} max")] if stays else [])))
    if not any(waits):
        raise InputError(
            f"{_STEPS}.every: without it and gates, no share would stay; write one, as in"
            " every: 10m",
            "PR-109",
        )
    return tuple(ramp.steps(shares, waits, options["ahead"], first))


def _groups(given: Mapping[str, t.Any], person: Person) -> Groups:
    """Return the steps of a mapping.

    They are those of [Singularity](https://github.com/HubSpot/Singularity).
    """
    options = GROUPS.parse(given, f"{_STEPS}.")
    acceptance, wait = options["acceptance"], timer("wait", options["wait"])
    asked = gates.in_list(options["gates"], "gate", f"{_STEPS}.gates", person)
    if asked and acceptance != "checks":
        raise InputError(
            f"{_STEPS}.gates: has no effect with acceptance: {acceptance}, only with checks",
            "PR-107",
        )
    if lasting(wait) and acceptance != "timed":
        raise InputError(
            f"{_STEPS}.wait: has no effect with acceptance: {acceptance}, only with timed", "PR-107"
        )
    return Groups(
        options["group_size"],
        options["cycles"],
        asked or lasting(wait),
        options["allowed_failures"] + 1,
    )


def _pause(given: t.Any, key: str, variable: str, person: Person) -> Gate:
    """Return a pause for a time (`10m` or `{duration: 10m}`), or until `promote` is sent (`{}`)."""
    if given is not None and not isinstance(given, Mapping):
        return timer(key, values.duration(given, variable))
    options = PAUSE.parse(given or {}, f"{variable}.")
    if options["duration"] is None:
        return gates.bounded(person.gate(key), options)
    if given and len(given) > 1:
        raise InputError(
            f"{variable}: timeout and on_timeout have no effect with a duration; remove them",
            "PR-107",
        )
    return timer(key, options["duration"])


READ = {
    "pause": _pause,
    "gate": gates.of_driver,
    "analysis": gates.analysis,
}  # by the kind of an item that waits
