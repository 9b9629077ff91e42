# SPDX-License-Identifier: GPL-3.0-or-later
"""Parse the variables of a service into settings.

What is wrong is refused before anything is touched.
"""

from __future__ import annotations

import typing as t
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import cached_property

from ..base.errors import InputError
from ..engine.budget import Amount, Bounds, Budget, PerHost
from ..engine.model import FailureAction
from ..engine.progress import Rules
from ..engine.strategy import Plan
from ..health import spec
from ..inputs.options import Options
from ..interfaces.check import HealthCheck
from ..interfaces.loader import DriverChoice, DriverModule
from ..interfaces.platform import PlatformDriver
from ..interfaces.store import StoreDriver
from ..interfaces.traffic import TrafficDriver
from . import strategy
from .variables import COMMON, PREFIX

if t.TYPE_CHECKING:
    from .adoption import Adoption
    from .autoscaler import Autoscaler
    from .freeze import Window
    from .notify import Receiver
    from .release import Membership

# For steps that do not work with the fleet.
NO_PLATFORM: DriverChoice[PlatformDriver] = DriverChoice(
    "none", DriverModule(PlatformDriver, Options()), {}
)


@dataclass(frozen=True)
class Settings:
    """One service's variables, checked. Durations in seconds."""

    service: str
    revision: str | None
    replicas: int | Bounds | PerHost | None
    asked: Plan  # as the variables say; see `plan`
    default_analysis: bool  # whether what the load balancers count is judged, too
    budget: Budget
    rules: Rules
    # how many new instances that fail end the whole rollout; None: any number may
    failure_total: Amount | None
    on_failure: FailureAction
    on_stable_lost: str
    # of the stable revision's instances in a rollback; 0: they never get more than usual
    headroom: Fraction
    platform: DriverChoice[PlatformDriver]
    traffic: DriverChoice[TrafficDriver]
    health: dict[str, t.Any]  # as given, for the journal
    checks: HealthCheck
    store: DriverChoice[StoreDriver]
    lease: float
    freeze: tuple[Window, ...]
    window: tuple[Window, ...]  # in which alone it moves; none: always
    order: int | None  # of the revision among all
    older: bool  # whether an older revision may follow
    new_check: bool  # whether instances that run need not pass the check
    adopt: Adoption | None  # what runs before the first rollout
    supersede: bool
    known_good: float  # how long a revision that was stable needs no steps; 0: always
    wait: float  # how long a run waits for a person before it parks the rollout
    autoscaler: Autoscaler | None
    report: str | None  # the path of the rollout's report
    notify: tuple[Receiver, ...]
    metrics: dict[str, t.Any] | None  # where they are written and pushed
    release: Membership | None

    @cached_property
    def plan(self) -> Plan:
        """The plan, with the default analysis where it has one."""
        if not self.default_analysis:
            return self.asked
        from . import gates  # few steps move a rollout

        same_hardware = not self.platform.driver.capabilities.has_parts
        return gates.watched(self.asked, self.traffic, same_hardware)

    @property
    def to_find(self) -> dict[str, t.Any]:
        """The variables by which another run finds the journal, unless one of them is secret."""
        options, table = self.store.options, self.store.module.options
        given = {
            name: value
            for name, value in options.items()
            if name not in table or value != table[name].default
        }
        if not given and self.store.name == COMMON["store"].default["driver"]:
            return {}
        from .remembered import holds_secret  # with the interfaces of all drivers

        shown, secret = table.parted(given)
        hidden = secret or any(holds_secret(value) for value in shown.values())
        return {} if hidden else {"rollout_store": {"driver": self.store.name, **shown}}


def parse(args: Mapping[str, t.Any], drivers: bool = True, moves: bool = True) -> Settings:
    """Return the settings of a step's common arguments; raise InputError naming the variable.

    Without `drivers` the platform is ignored, for steps that do not work with the fleet. `moves`:
    whether the step may change it, which not every budget and strategy allows.
    """
    known = COMMON.parse(args if drivers else {**args, "platform": None}, PREFIX)
    health, deadline, min_ready = known["health"], known["progress_deadline"], known["min_ready"]
    checks = _health(health, deadline)
    if min_ready >= deadline:
        raise InputError(
            f"rollout_min_ready: {min_ready:g} s is not shorter than rollout_progress_deadline"
            f" ({deadline:g} s); raise the deadline",
            "PR-104",
        )
    if drivers and known["platform"] is None:
        raise InputError(
            "rollout_platform.driver: not given, but required; write one, such as driver: process",
            "PR-102",
        )
    on_failure = FailureAction(known["on_failure"])
    limit, total = (None, None) if on_failure is FailureAction.CONTINUE else known["failure_limit"]
    plan, platform = strategy.parse(args), known["platform"] or NO_PLATFORM
    can = platform.driver.capabilities
    if can.refills_places:
        if moves:
            _check_refilled(plan, known["budget"], known["autoscaler"])
        # Nothing is started beside what is there, and no part of a fleet with an identity is given
        # up at once.
        known["budget"] = replace(known["budget"], max_surge=0, max_in_flight=None)
        known["headroom"] = Fraction(0)
    if isinstance(known["replicas"], PerHost):
        _check_per_host(plan, platform, known["autoscaler"])
    plain = {field.name: known[field.name] for field in fields(Settings) if field.name in known}
    derived = {
        "asked": plan,
        "default_analysis": args.get("analysis") in (None, "") or bool(plan.background),
        "rules": Rules(
            min_ready=min_ready,
            progress_deadline=deadline,
            ready_deadline=checks.deadline,
            failure_limit=limit,
            watch_new=known["watch_new"],
        ),
        "failure_total": total,
        "on_failure": on_failure,
        "platform": platform,
        "checks": checks,
        "window": known["window"] or (),
        "known_good": _known_good(known["known_good"], plan, known["release"]),
        "release": _release(known["release"], known["service"]),
    }
    return Settings(**{**plain, **derived})


def _check_refilled(plan: Plan, budget: Budget, autoscaler: Autoscaler | None) -> None:
    """Refuse what needs extra instances, or a different number of them."""
    if autoscaler and autoscaler.mode == "follow":
        raise InputError(
            "rollout_autoscaler.mode: follow, but a rollout of this workload follows its number of"
            " instances anyway; use none",
            "PR-107",
        )
    if plan.strategy == "blue_green":
        raise InputError(
            "rollout_strategy: blue_green needs a second set of instances, and this workload"
            " replaces each instance at its place; use rolling or canary",
            "PR-107",
        )
    if plan.standby is not None:
        raise InputError(
            "rollout_hold: needs extra instances, and this workload replaces"
            " each instance at its place; remove it",
            "PR-107",
        )
    if plan.baseline:
        raise InputError(
            "rollout_steps: baseline needs extra instances, and this workload"
            " replaces each instance at its place; remove it",
            "PR-107",
        )
    if budget.max_in_flight is not None or budget.max_unavailable == 0:
        raise InputError(
            "rollout_budget: an instance of this workload is unavailable while it is replaced; set"
            " max_unavailable to at least 1",
            "PR-105",
        )


def _check_per_host(
    plan: Plan, platform: DriverChoice[PlatformDriver], autoscaler: Autoscaler | None
) -> None:
    """Refuse one instance a host where the platform or another variable decides their number."""
    can = platform.driver.capabilities
    if not can.starts_instances:
        why = "instances are deployed in place, which is one a host anyway; remove it"
    elif not can.has_hosts or can.has_parts or can.refills_places:
        why = (
            f"rollout_platform.driver {platform.name} places instances itself; deploy a DaemonSet"
            " (Kubernetes) or a global service (Docker Swarm) there, or use one of docker, podman,"
            " process and systemd"
        )
    elif autoscaler:
        why = "rollout_autoscaler sets another number; remove one of them"
    elif plan.standby is not None:
        why = (
            "rollout_hold keeps old instances of a canary, and a host has one; remove it, or use"
            " rollout_strategy: blue_green, for which a host has two"
        )
    elif plan.waves:
        why = "rollout_targets give each target an even share of a number; remove one of them"
    else:
        return
    raise InputError(f"rollout_replicas: per_host, but {why}", "PR-107")


def _known_good(given: float, plan: Plan, release: Mapping[str, t.Any] | None) -> float:
    """Return how long a revision that was stable needs no steps; refuse what has no effect."""
    if given and plan.strategy != "canary":
        raise InputError(
            f"rollout_known_good: has no effect with rollout_strategy {plan.strategy}, which has no"
            " steps, only with canary; remove it",
            "PR-107",
        )
    if given and (release or {}).get("with_canary"):
        raise InputError(
            "rollout_known_good: leaves out steps, which members of a release take together"
            " (with_canary of rollout_release); remove one of them",
            "PR-107",
        )
    return given


def _release(given: Mapping[str, t.Any] | None, service: str) -> Membership | None:
    if not given:
        return None
    from . import release  # few services are members of one

    return release.parse(given, service)


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
