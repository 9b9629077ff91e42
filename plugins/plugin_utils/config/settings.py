# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From what users write to what the code works with. Everything is refused here before anything is touched."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import InputError
from ansible_collections.progressive.rollout.plugins.plugin_utils.config import freeze, strategy
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.budget import Amount, Bounds, Budget
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import FailureAction
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.progress import Rules
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import Plan
from ansible_collections.progressive.rollout.plugins.plugin_utils.health import spec
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs import values
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs.options import Options
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs.values import amount, whole
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces import loader
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.check import HealthCheck
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.loader import D, DriverChoice, DriverModule
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.platform import PlatformDriver
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.store import StoreDriver
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.traffic import TrafficDriver

PREFIX = "rollout_"  # the names of the product: messages name variables as playbooks do
ON_FAILURE = tuple(FailureAction)
# For steps that do not work with the fleet.
NO_PLATFORM: DriverChoice[PlatformDriver] = DriverChoice("none", DriverModule(PlatformDriver, Options()), {})
ON_STABLE_LOST = ("repair", "promote", "hold")
# What every step takes; the role passes each as `rollout_<name>`.
COMMON = (
    "service",
    "revision",
    "replicas",
    "strategy",
    "budget",
    "platform",
    "traffic",
    "health",
    "min_ready",
    "progress_deadline",
    "failure_limit",
    "on_failure",
    "watch_new",
    "on_stable_lost",
    "headroom",
    "store",
    "lease",
    *strategy.VARIABLES,
    "freeze",
    "supersede",
    "wait",
)
OF_STEPS = (
    "restart",
    "rebalance",
    "fleet",
    "instances",
    "timeline",
    "command",
    "why",
    "force",
    "to",
    "gate",
    "label",
    "share",
    "prepare_tasks",
    "hosts",
    "results",
    "watch",
    "reached",
    "check_tasks",
    "deploy_tasks",
    "rollback_tasks",
)  # variables that one step or playbook takes


@dataclass(frozen=True)
class Settings:
    """One service's variables, checked. Durations in seconds."""

    service: str
    revision: str | None
    replicas: int | Bounds | None
    plan: Plan
    budget: Budget
    rules: Rules
    failure_total: Amount | None  # how many new instances that fail end the whole rollout; None: any number may
    on_failure: FailureAction
    on_stable_lost: str
    headroom: Fraction  # of the stable revision's instances on a way back; 0: they are never given more than usual
    platform: DriverChoice[PlatformDriver]
    traffic: DriverChoice[TrafficDriver]
    health: dict[str, t.Any]  # as given, for the journal
    checks: HealthCheck
    store: DriverChoice[StoreDriver]
    lease: float
    freeze: tuple[freeze.Window, ...]
    supersede: bool
    wait: float  # how long a run waits for somebody before it leaves the rollout parked


def parse(args: Mapping[str, t.Any], drivers: bool = True) -> Settings:
    """The settings of the arguments every step takes (see `COMMON`); raises InputError naming the variable.

    Without `drivers` a platform need not be given: for what does not work with the fleet.
    """
    values.refuse_unknown(args, COMMON, PREFIX)
    revision = args.get("revision")
    replicas = args.get("replicas")
    health = _mapping(args, "health")
    deadline = values.duration(args.get("progress_deadline", 600), PREFIX + "progress_deadline", minimum=1)
    checks = _health(health, deadline)
    on_failure = FailureAction(_choice(args, "on_failure", ON_FAILURE))
    min_ready = values.duration(args.get("min_ready", 0), PREFIX + "min_ready")
    if min_ready >= deadline:
        raise InputError(
            f"rollout_min_ready: {min_ready:g} s is not shorter than rollout_progress_deadline ({deadline:g} s); raise the deadline"
        )
    limit, total = failures(args.get("failure_limit", 3))
    return Settings(
        service=values.service(args.get("service"), PREFIX + "service"),
        revision=None if revision in (None, "") else values.revision(revision, PREFIX + "revision"),
        replicas=None if replicas in (None, "") else number(replicas),
        plan=strategy.parse(args),
        budget=budget(_mapping(args, "budget")),
        rules=Rules(
            min_ready=min_ready,
            progress_deadline=deadline,
            ready_deadline=checks.deadline,
            failure_limit=None if on_failure == FailureAction.CONTINUE else limit,
            watch_new=values.duration(args.get("watch_new", 120), PREFIX + "watch_new"),
        ),
        failure_total=None if on_failure == FailureAction.CONTINUE else total,
        on_failure=on_failure,
        on_stable_lost=_choice(args, "on_stable_lost", ON_STABLE_LOST),
        headroom=_headroom(args.get("headroom", "1.25")),
        platform=_driver(PlatformDriver, args, "platform") if drivers else NO_PLATFORM,
        traffic=_driver(TrafficDriver, args, "traffic", "none"),
        health=health,
        checks=checks,
        store=_driver(StoreDriver, args, "store", "file"),
        lease=values.duration(args.get("lease", 60), PREFIX + "lease", minimum=5, maximum=3600),
        freeze=freeze.parse(args.get("freeze") or None),
        supersede=values.boolean(args.get("supersede") or False, PREFIX + "supersede"),
        wait=values.duration(args.get("wait", 3600), PREFIX + "wait"),
    )


def budget(given: Mapping[str, t.Any]) -> Budget:
    """`{max_surge, max_unavailable}` or `{max_in_flight}`; surge 0 with unavailable 0 could never move (E-03)."""
    name = PREFIX + "budget"
    values.refuse_unknown(given, ("max_surge", "max_unavailable", "max_in_flight"), name + ".")
    if given.get("max_in_flight") is not None:
        if len(given) > 1:
            raise InputError(
                f"{name}: max_in_flight stands for max_surge with max_unavailable 0; give one or the other, not both"
            )
        flight = amount(given["max_in_flight"], name + ".max_in_flight")
        if _is_zero(flight):
            raise InputError(f"{name}.max_in_flight: {given['max_in_flight']!r} would start nothing; must be at least 1")
        return Budget(max_in_flight=flight)
    surge = amount(given.get("max_surge", "25%"), name + ".max_surge")
    unavailable = amount(given.get("max_unavailable", 0), name + ".max_unavailable")
    if _is_zero(surge) and _is_zero(unavailable):
        raise InputError(
            f"{name}: max_surge 0 with max_unavailable 0 leaves no room to replace anything; allow at least 1 of either"
        )
    return Budget(surge, unavailable)


def _headroom(given: t.Any) -> Fraction:
    name, value = PREFIX + "headroom", str(given)
    if isinstance(given, bool) or not re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,3})?", value):
        raise InputError(f"{name}: {given!r} is not a number like 1.25; write 1 or more, or 0")
    if 0 < Fraction(value) < 1:
        raise InputError(
            f"{name}: {value} is less than the usual number of requests; write 1 or more, or 0 for never more than usual"
        )
    return Fraction(value)


def number(given: t.Any) -> int | Bounds:
    """How many replicas: a number, `current`, or `{min, max}`."""
    name, hint = PREFIX + "replicas", "write a whole number (6), current, or {min: 4, max: 40}"
    if given == "current":
        return Bounds()
    if not isinstance(given, Mapping):
        return whole(given, name, 1, hint, values.MOST)
    values.refuse_unknown(given, ("min", "max"), name + ".")
    if not given:
        raise InputError(f"{name}: {given!r} says nothing; {hint}")
    least = whole(given.get("min", 1), name + ".min", 0, maximum=values.MOST)
    most = None if given.get("max") is None else whole(given["max"], name + ".max", 1, maximum=values.MOST)
    if most is not None and least > most:
        raise InputError(f"{name}: min {least} is more than max {most}; lower it, or raise max")
    if not least and most is None:
        raise InputError(f"{name}.min: 0 begins with as many as max, and that is not given; give it, or a min of 1 or more")
    return Bounds(least, most)


def failures(given: t.Any) -> tuple[int, Amount | None]:
    """How many new instances may fail in a row and in all: a number, or `{in_a_row, total}`."""
    name = PREFIX + "failure_limit"
    if not isinstance(given, Mapping):
        return whole(given, name, 1, "write a whole number (3), or {in_a_row: 3, total: 25%}"), None
    values.refuse_unknown(given, ("in_a_row", "total"), name + ".")
    limit = whole(given.get("in_a_row", 3), name + ".in_a_row", 1)
    if given.get("total") is None:
        return limit, None
    total = amount(given["total"], name + ".total")
    if _is_zero(total):
        raise InputError(f"{name}.total: {given['total']!r} would end every rollout; must be at least 1")
    return limit, total


def _is_zero(value: Amount) -> bool:
    return (value if isinstance(value, int) else value.value) == 0


def _mapping(args: Mapping[str, t.Any], key: str) -> dict[str, t.Any]:
    value = args.get(key)
    if value is None or value == "":
        return {}
    if not isinstance(value, Mapping):
        # What may hold secrets (env, headers) is not shown.
        what = f"a value of the type {type(value).__name__}" if key in ("platform", "health") else repr(value)
        raise InputError(f"{PREFIX}{key}: {what} is not a mapping; write it as key: value pairs")
    return dict(value)


def _choice(args: Mapping[str, t.Any], key: str, choices: tuple[str, ...]) -> str:
    value = args.get(key, choices[0])
    if value not in choices:
        raise InputError(f"{PREFIX}{key}: {value!r} must be one of {', '.join(choices)}")
    return str(value)


def _health(given: Mapping[str, t.Any], progress_deadline: float) -> HealthCheck:
    name = PREFIX + "health"
    health = spec.parse(given, name)
    if health.deadline is not None and health.deadline > progress_deadline:
        raise InputError(
            f"{name}.deadline: {health.deadline:g} s is longer than rollout_progress_deadline"
            f" ({progress_deadline:g} s); raise that one too",
            "PR-104",
        )
    return health


def _driver(kind: type[D], args: Mapping[str, t.Any], key: str, default: str | None = None) -> DriverChoice[D]:
    given = _mapping(args, key)
    name = given.pop("driver", default)
    variable = PREFIX + key
    if not isinstance(name, str) or not name:
        raise InputError(
            f"{variable}.driver: {name!r} is not the name of a driver; give one, as in {{driver: process}}", "PR-108"
        )
    module = loader.load(kind, name, variable)
    return DriverChoice(name, module, module.check(given, variable))
