# SPDX-License-Identifier: GPL-3.0-or-later
"""Parse the strategy, its steps and the gates between them into a plan."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal

from ..base.errors import InputError
from ..engine.budget import Amount, Percent
from ..engine.strategy import LISTS, Gate, Groups, Plan, Step, lasting, timer
from ..inputs import values
from ..inputs.options import AMOUNT, DURATION, FLAG, Field, Kind, Options, unparsed

ALL = Percent(Decimal(100))
_WARM = 30.0  # seconds that the old set of blue_green is kept by default
# the variables that make a plan more than one stage and its hold
GATED = ("targets", "steps", "gates", "analysis", "approval", "auto_promote")


# Options of options -----------------------------------------------------------------------------
# They are written with what parses them, which few services need.


def _of_targets() -> Options:
    from . import waves

    return waves.TARGET


def _of_steps() -> Options:
    from . import steps

    return steps.OPTIONS


def _of_moments() -> Options:
    from . import gates

    return gates.MOMENTS


def _of_analysis() -> Options:
    from . import gates

    return gates.ANALYSIS


def _of_approval() -> Options:
    from . import gates

    return gates.APPROVAL


VARIABLES = Options(
    Field(
        "targets",
        Kind("list", unparsed, elements="dict", fields=_of_targets),
        "The parts that the fleet is divided into, such as regions, in the order in which they are"
        " rolled out. O(strategy) is carried out in one target after the other. A failure in any"
        " of them rolls all of them back. Each host, cluster or part of O(platform) is in exactly"
        " one.",
        default=[],
    ),
    Field(
        "steps",
        Kind("raw", unparsed, fields=_of_steps),
        "The steps of O(strategy=canary), a list. After the last one, all instances are new. Each"
        " item has exactly one of C(set_weight), C(set_replicas), C(instance_weight), C(pause),"
        " C(gate) and C(analysis), and may have C(name), C(on_failure) and C(reversible).\nOr a"
        " mapping with C(group_size), C(cycles), C(acceptance), C(wait), C(gates) and"
        " C(allowed_failures): C(cycles) groups of that size, one after the other, then all the"
        " others.\nOr a mapping with C(ramp), C(start), C(factor) or C(increment), C(every),"
        " C(max), C(gates) and C(ahead): shares that rise by themselves.",
        default=[],
    ),
    Field(
        "gates",
        Kind(
            "dict",
            unparsed,
            fields=_of_moments,
        ),
        "What must let a rollout pass, and when, with any O(strategy). Each moment has a list of"
        " gates, which are asked one after the other. M(progressive.rollout.gate) documents their"
        " options.",
        default={},
    ),
    Field(
        "analysis",
        Kind("dict", unparsed, fields=_of_analysis),
        "What is measured from a given step on, and judged after each measurement. A metric that"
        " fails ends the rollout as O(on_failure) says. One that cannot be measured holds the fleet"
        " as it is and waits for an operator. If not given, and there is no analysis in O(steps),"
        " O(gates) or O(targets) either, the load balancers' requests to new and old instances are"
        " compared as long as both get some (not with O(strategy=blue_green)): a new revision that"
        " is worse is a failure, and nothing else has an effect. V({}) means no analysis.",
    ),
    Field(
        "approval",
        Kind("dict", unparsed, fields=_of_approval),
        "How a rollout waits for an operator.",
        default={},
    ),
    Field(
        "auto_promote",
        FLAG,
        "With O(strategy=blue_green), whether the switch happens without an operator.",
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
        "How long old instances stay ready after the promotion, without requests. During that time,"
        " a rollback is one switch. With O(strategy=blue_green), V(30s) if not given. With"
        " O(strategy=canary), none stay if not given; if given, all of them also stay until the"
        " promotion.",
    ),
    Field(
        "known_good",
        DURATION,
        "With O(strategy=canary), how long ago a revision may have been the stable one to be rolled"
        " out again without O(steps) and O(targets): all instances are replaced in one walk, which"
        " is watched as usual. It needs the settings that it had. A revision that a rollback left"
        " is not known to be good. With V(0), each revision takes the steps.",
        default=0,
    ),
    Field(
        "hold_replicas",
        AMOUNT,
        "With O(strategy=canary) and O(hold), how many old instances stay. Percentages are of the"
        " number before the rollout. V(100%) if not given. With fewer, a rollback starts the"
        " others.",
    ),
)


def parse(args: Mapping[str, t.Any]) -> Plan:
    """Return the plan of `strategy` and `VARIABLES` among the arguments of a step.

    Raises InputError.
    """
    strategy = values.choice(args.get("strategy") or "rolling", "rollout_strategy", tuple(LISTS))
    known = VARIABLES.parse(VARIABLES.part(args), "rollout_")
    if strategy == "canary" or any(known[name] != VARIABLES[name].default for name in GATED):
        return _gated(strategy, known)
    _refuse_unused(strategy, True, known["promote_delay"], known["hold"])
    _standby(strategy, (), known["hold"], known["hold_replicas"])
    return Plan(
        strategy,
        promotion=lasting(timer("promotion delay", known["promote_delay"])),
        hold=_hold(known["hold"]),
    )


def _gated(strategy: str, known: Mapping[str, t.Any]) -> Plan:
    """Return a plan with steps, targets or gates."""
    from . import gates, steps, waves  # many plans have none

    person = gates.person_of(known["approval"])
    background, bake, first = gates.background(known["analysis"])
    listed, opening = steps.parse(known["steps"], strategy, person, first)
    calls = gates.by_moment(known["gates"], person)
    auto, delay, warm = known["auto_promote"], known["promote_delay"], known["hold"]
    _refuse_unused(strategy, auto, delay, warm)
    plan = Plan(
        strategy,
        listed,
        opening,
        promotion=(
            lasting(timer("promotion delay", delay))
            if auto
            else (person.gate("promotion approval"),)
        ),
        hold=_hold(warm),
        standby=_standby(strategy, listed, warm, known["hold_replicas"]),
        confirm_rollout=calls["confirm_rollout"],
        confirm_traffic_increase=calls["confirm_traffic_increase"],
        confirm_promotion=calls["confirm_promotion"],
        post_rollout=bake + calls["post_rollout"],
        background=background,
        rollback_gates=calls["rollback"],
    )
    return replace(plan, waves=waves.parse(known["targets"], plan, person))


def _hold(given: float | None) -> tuple[Gate, ...]:
    """Return how long the old set of blue_green is kept."""
    return lasting(timer("hold", _WARM if given is None else given))


def _refuse_unused(strategy: str, auto: bool, delay: float, hold: float | None) -> None:
    """Refuse what has no effect. Defaults count as not given, since roles pass every variable."""
    if strategy != "blue_green":
        unlike = {
            "rollout_auto_promote": not auto,
            "rollout_promote_delay": delay > 0,
            "rollout_hold": strategy == "rolling" and hold not in (None, _WARM),
        }
        for variable in (variable for variable, given in unlike.items() if given):
            raise InputError(
                f"{variable}: has no effect with rollout_strategy {strategy}, only with"
                f" {'canary and ' if variable == 'rollout_hold' else ''}blue_green; remove it",
                "PR-107",
            )
    if delay and not auto:
        raise InputError(
            "rollout_promote_delay: has no effect with rollout_auto_promote: false, where a person"
            " promotes; remove it",
            "PR-107",
        )


def _standby(
    strategy: str, steps: tuple[Step, ...] | Groups, hold: float | None, given: Amount | None
) -> Amount | None:
    """Return how many old instances of a canary stay on standby; None: none."""
    if given is not None and (strategy != "canary" or not hold):
        raise InputError(
            "rollout_hold_replicas: has no effect without rollout_hold and rollout_strategy:"
            " canary; remove it",
            "PR-107",
        )
    if strategy != "canary" or not hold:
        return None
    listed = () if isinstance(steps, Groups) else steps
    weights = [step.weight for step in listed if step.weight is not None]
    if not weights or weights[-1] == 100:
        raise InputError(
            "rollout_hold: the requests switch from the old instances at the promotion; write"
            " rollout_steps with set_weight below 100",
            "PR-107",
        )
    if given is not None and not (given if isinstance(given, int) else given.value):
        raise InputError("rollout_hold_replicas: must be at least 1", "PR-104")
    return ALL if given is None else given
