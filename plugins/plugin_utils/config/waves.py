# SPDX-License-Identifier: GPL-3.0-or-later
"""Parse the targets of a rollout, which becomes a wave for each."""

from __future__ import annotations

import typing as t

from ..base.errors import InputError
from ..engine.strategy import Plan, Wave, lasting, timer
from ..inputs import values
from ..inputs.options import DURATION, FACTOR, NAME, TEXT, Field, Kind, Options, unparsed
from . import gates
from .gates import Person

VARIABLE = "rollout_targets"


FACTOR_OF_TARGET = Field(
    "factor",
    FACTOR,
    "Multiplier for its even share of O(replicas): O(replicas) divided by the number of targets and"
    " rounded up, times this factor, rounded up again. For clusters, O(platform) sets it.",
    default=1,
)
TARGET = Options(
    Field("name", NAME, "Name of the target, such as that of a region.", required=True),
    Field(
        "hosts",
        TEXT,
        "Its hosts among those of O(platform), an inventory pattern.",
    ),
    Field(
        "clusters",
        Kind("list", unparsed, elements="str"),
        "Its clusters, by their names in C(clusters) of O(platform), instead of C(hosts).",
        default=[],
    ),
    Field(
        "parts",
        Kind("list", unparsed, elements="str"),
        "Its parts, by their names in C(parts) of O(platform), instead of C(hosts).",
        default=[],
    ),
    FACTOR_OF_TARGET,
    Field(
        "load_balancers",
        Kind("list", unparsed, elements="str"),
        "The load balancers that send requests to this target alone, by the names that C(status)"
        " shows. All others send requests to all instances.",
        default=[],
    ),
    Field(
        "gates",
        Kind("list", unparsed, elements="dict"),
        "Gates before the next target, with the options of M(progressive.rollout.gate).",
    ),
    Field(
        "soak",
        DURATION,
        "How long the target serves with the new revision before its gates are asked.",
        default=0,
    ),
)


def parse(given: t.Any, plan: Plan, person: Person) -> tuple[Wave, ...]:
    """Return the waves of `rollout_targets`, which this plan is carried out in."""
    given = values.sequence(given or (), VARIABLE, "targets, as in [{name: eu, hosts: eu}]")
    waves = tuple(
        _wave(target, f"{VARIABLE}[{number}]", person) for number, target in enumerate(given)
    )
    _refuse_twice("name", [wave.name for wave in waves])
    _refuse_twice("load_balancers", [name for wave in waves for name in wave.balancers])
    _refuse_twice("clusters", [name for wave in waves for name in wave.clusters])
    if waves:
        _check_plan(plan, waves)
    return waves


def _wave(given: t.Any, variable: str, person: Person) -> Wave:
    options = TARGET.parse(values.mapping(given, variable), f"{variable}.")
    name = options["name"]
    named = values.sequence(options["load_balancers"], f"{variable}.load_balancers", "names")
    soak = lasting(timer(f"{name} soak", options["soak"]))
    asked = gates.in_list(options["gates"], f"{name} gate", f"{variable}.gates", person)
    balancers = tuple(values.text(balancer, f"{variable}.load_balancers") for balancer in named)
    clusters = _clusters(options, variable)
    return Wave(name, options["hosts"] or "", options["factor"], balancers, soak + asked, clusters)


def _clusters(options: dict[str, t.Any], variable: str) -> tuple[str, ...]:
    """Return the clusters or parts of a target; raises InputError for what they cannot have."""
    option = "parts" if options["parts"] else "clusters"
    where = f"{variable}.{option}"
    names = tuple(
        values.text(cluster, where) for cluster in values.sequence(options[option], where, "names")
    )
    if not (names or options["hosts"]):
        raise InputError(
            f"{variable}.hosts: not given; name its hosts, its clusters, or its parts", "PR-102"
        )
    others = [
        name
        for name in ("hosts", "clusters", "factor")
        if name != option and options[name] not in (None, "", [], 1)
    ]
    if names and others:
        raise InputError(
            f"{variable}.{others[0]}: given, and {option} as well; remove it (factors of {option}"
            f" are in rollout_platform.{option})",
            "PR-151",
        )
    if len(names) > 1 and options["load_balancers"]:
        raise InputError(
            f"{variable}.load_balancers: given, and {len(names)} {option}; a load balancer sends"
            " requests to one of them: make a target of each",
            "PR-151",
        )
    return names


def _refuse_twice(option: str, names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise InputError(
                f"{VARIABLE}: {option} {name!r} is given twice; each target has its own", "PR-151"
            )


def _check_plan(plan: Plan, waves: tuple[Wave, ...]) -> None:
    """Refuse what cannot be done in one target after the other."""
    refuse_undivided(plan, VARIABLE)
    if weighted(plan) and not all(wave.balancers or wave.clusters for wave in waves):
        refuse_weights()


def refuse_undivided(plan: Plan, variable: str) -> None:
    """Refuse what cannot be done in parts of a fleet, which `variable` asks for."""
    if plan.strategy == "blue_green":
        raise InputError(
            f"{variable}: blue_green switches the requests of all targets at once; use rolling or"
            " canary",
            "PR-107",
        )
    if plan.standby is not None:
        raise InputError(
            f"rollout_hold: keeps old instances of all targets on standby, and {variable} has"
            " several; remove it",
            "PR-107",
        )
    if plan.baseline:
        raise InputError(
            "rollout_steps: baseline compares with fresh instances of all targets, and"
            f" {variable} has several; remove it",
            "PR-107",
        )


def weighted(plan: Plan) -> bool:
    """Return whether steps divide requests by weights."""
    steps = plan.steps if isinstance(plan.steps, tuple) else ()
    return any(step.weight is not None for step in steps)


def refuse_weights() -> t.NoReturn:
    """Refuse weights where targets have no load balancers of their own."""
    raise InputError(
        "rollout_steps: set_weight divides the requests of one target, which needs load"
        f" balancers of its own in {VARIABLE}; name them, use set_replicas, or remove {VARIABLE}"
        " if the same load balancers serve all clusters or parts",
        "PR-107",
    )
