# SPDX-License-Identifier: GPL-3.0-or-later
"""Strategies as lists of stages, each a waypoint and its gates. A new strategy is a new list,
not a new code path. Pure.
"""

from __future__ import annotations

import math
import typing as t
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import pairwise

from .budget import Amount, Budget, ResolvedBudget, up
from .model import FailureAction, Phase
from .shares import Target

# the steps that stages belong to, in order
REPLACE, PROMOTE, FINISH = PARTS = ("replace", "promote", "finish")
RELEASE = "release"  # the driver of the gates of a release
BACK, SWITCH_BACK = "back", "switch back"  # the stages of a rollback


class InvalidSteps(ValueError):
    """The steps of a canary do not fit the number of replicas and the budget. The text says
    which, and what would fit.
    """


@dataclass(frozen=True)
class Waypoint:
    """The composition of a fleet that a stage leads to.

    `generation` is the one that counts as new; instances of all others are old. `desired` is what
    the budget is counted from: the capacity that the service needs on the way. `weight` is the
    percentage of the requests for the new instances: None for an even share, 0 for a new set on
    standby, 100 for an old set on standby. From a waypoint of 0 to one of 100 is one switch, at all
    load balancers.
    """

    generation: int
    new: int
    old: int
    desired: int
    weight: int | None = None
    # how many new instances have to be ready for a switch; None: all; 0: it is done
    switch_at: int | None = None
    # generation of the stable revision: its instances go last, and are replaced if they end
    stable: int = 0
    # generation of the fresh stable instances that new ones are compared with; 0: none
    baseline: int = 0
    # On a rollback: how many times its usual part a stable instance takes, so that the old ones,
    # which were judged bad, go as soon as the stable ones can carry all requests; 0: never more
    # than usual. None: this is not a rollback.
    headroom: Fraction | None = None
    rebalance: bool = False  # whether instances move from crowded to emptier hosts (`rebalance.py`)
    # how many new instances take the whole weight: those beyond them do not raise it; 0: all
    carrying: int = 0
    # the weights of the stages before, and how many new instances carried each: what an instance
    # had there, it keeps on the way to a higher weight
    carried: tuple[tuple[int, int], ...] = ()
    # before a switch: the weight of new instances that serve already
    weight_before: int = 0
    # how many stable instances carried all requests before the rollout; 0: not known
    before: int = 0
    # of each target; together they are this waypoint (`targets.py`)
    parts: tuple[tuple[Target, Waypoint], ...] = ()

    @property
    def new_idle(self) -> bool:
        """Whether the new instances are ready and get no requests."""
        return self.weight == 0

    @property
    def switches(self) -> bool:
        """Whether the new instances take over at once, and the old ones stay on standby."""
        return self.weight == 100 and self.old > 0

    @property
    def enough(self) -> int:
        """How many instances can carry all requests: on a rollback, each more than usual."""
        return math.ceil(self.desired / max(1, self.headroom or 1))

    @property
    def repairs(self) -> bool:
        """Whether stable instances are replaced if they end."""
        return self.stable not in (0, self.generation)

    @property
    def is_baseline(self) -> bool:
        """Whether the instances that count as new are the baseline."""
        return 0 != self.generation == self.baseline


@dataclass(frozen=True)
class Gate:
    """What a rollout has to pass before it leaves a stage. Times in seconds; `options` are its
    driver's.
    """

    key: str  # identifies it in the journal, among all gates of the rollout
    driver: str
    options: Mapping[str, t.Any] = field(default_factory=dict, repr=False)  # may hold secrets
    interval: float = 5.0  # between two times it is asked
    timeout: float | None = None  # how long a rollout waits for it; None: without limit
    on_timeout: str | None = None  # rollback | hold | promote; None: as `on_failure` says
    on_error: str = "fail"  # fail | ignore: what happens if it cannot be asked
    variable: str = field(default="gate", compare=False)  # the option that defines it, for messages
    early: bool = False  # whether its time counts from when its stage is entered, not reached
    by_default: bool = False  # nobody asked for it: it may fail, and never waits for a person


def timer(key: str, seconds: float) -> Gate:
    """Return a gate that passes after a time."""
    return Gate(key, "pause", {"duration": seconds})


def lasting(timer: Gate) -> tuple[Gate, ...]:
    """Return the timer, nothing where its time is 0."""
    return (timer,) if timer.options["duration"] else ()


@dataclass(frozen=True)
class Stage:
    """A waypoint, and the gates before the rollout continues to the next one."""

    name: str
    waypoint: Waypoint
    gates: tuple[Gate, ...] = ()
    part: str = REPLACE  # the step that it belongs to
    waiting: Phase = Phase.PAUSED  # the phase while its gates are waited for
    on_failure: FailureAction | None = None  # None: as for the whole rollout
    reversible: bool = True  # False: from here on a failure holds, since it cannot be rolled back
    failure_limit: int | None = None  # of this stage alone; None: as for the whole rollout
    watched: bool = False  # whether the background gates are asked on the way to it, and at it
    share: float = 1.0  # of its alpha, that each background analysis has


@dataclass(frozen=True)
class Step:
    """One step of a canary: at most one of `weight`, `replicas` and `instances`; without any,
    nothing changes.
    """

    name: str
    weight: int | None = None  # traffic weight of the new instances, in percent
    replicas: Amount | None = None  # how many new instances
    # how many new instances, in percent, and one old more (Cloud Foundry's instance_weight)
    instances: int | None = None
    gates: tuple[Gate, ...] = ()
    on_failure: FailureAction | None = None
    reversible: bool = True
    failure_limit: int | None = None
    watched: bool = True  # see Stage
    baseline: bool = False  # its gates compare the new instances with as many fresh stable ones
    # the weight of the next step: its new instances become ready, and the weight stays as it is
    ahead: int | None = None


@dataclass(frozen=True)
class Groups:
    """The steps of a canary as groups of instances, as in Singularity: `cycles` groups of
    `size`, then all others.
    """

    size: int
    cycles: int
    gates: tuple[Gate, ...] = ()  # asked after each group
    failure_limit: int | None = None

    def steps(self, desired: int) -> tuple[Step, ...]:
        """Return the steps for so many replicas."""
        targets = [*range(self.size, desired, self.size)[: self.cycles], desired]
        return tuple(
            self._step(f"group {number}", target) for number, target in enumerate(targets, 1)
        )

    def _step(self, name: str, target: int) -> Step:
        gates = tuple(replace(gate, key=f"{name} {gate.key}") for gate in self.gates)
        return Step(name, replicas=target, gates=gates, failure_limit=self.failure_limit)


@dataclass(frozen=True)
class Wave:
    """Targets whose instances are replaced together, after those of the waves before it."""

    name: str
    hosts: str  # a pattern of the inventory
    factor: Fraction = Fraction(1)
    balancers: tuple[str, ...] = ()
    gates: tuple[Gate, ...] = ()  # before the next wave
    clusters: tuple[str, ...] = ()  # in place of hosts, each a target of its own

    @property
    def targets(self) -> tuple[str, ...]:
        """The names of its targets."""
        return self.clusters or (self.name,)


@dataclass(frozen=True)
class Plan:
    """What an operator asks for, whatever the number of replicas."""

    strategy: str = "rolling"
    steps: tuple[Step, ...] | Groups = ()  # of canary
    opening: tuple[Gate, ...] = ()  # of canary: before the first step
    promotion: tuple[Gate, ...] = ()  # of blue_green: a delay or an approval
    hold: tuple[Gate, ...] = ()  # how long the old set stays on standby after the switch
    standby: Amount | None = None  # of canary: how many old instances stay so; None: none
    confirm_rollout: tuple[Gate, ...] = ()  # before anything
    # before the traffic weight of the new instances rises
    confirm_traffic_increase: tuple[Gate, ...] = ()
    confirm_promotion: tuple[Gate, ...] = ()
    post_rollout: tuple[Gate, ...] = ()  # when the new instances get all requests
    # asked continuously at watched stages; one that fails ends the rollout
    background: tuple[Gate, ...] = ()
    rollback_gates: tuple[Gate, ...] = ()  # asked continuously; one that passes requests a rollback
    waves: tuple[Wave, ...] = ()  # one target after the other; none: everywhere at once

    @property
    def gates(self) -> tuple[Gate, ...]:
        """All gates of the plan."""
        of_steps = (
            self.steps.gates
            if isinstance(self.steps, Groups)
            else sum((step.gates for step in self.steps), ())
        )
        calls = (
            self.confirm_rollout
            + self.confirm_traffic_increase
            + self.confirm_promotion
            + self.post_rollout
        )
        return (
            *self.opening,
            *of_steps,
            *self.promotion,
            *self.hold,
            *calls,
            *(gate for wave in self.waves for gate in wave.gates),
            *self.background,
            *self.rollback_gates,
        )

    @property
    def baseline(self) -> bool:
        """Whether any step compares with fresh stable instances."""
        return not isinstance(self.steps, Groups) and any(step.baseline for step in self.steps)


@dataclass(frozen=True)
class RolloutTarget:
    """What a rollout leads to, and from where."""

    generation: int
    desired: int
    allowed: ResolvedBudget  # the budget for `desired`
    before: int = 0  # stable instances to replace; 0: a first deployment
    stable: int = 0  # their generation
    baseline: int = 0  # the generation of fresh stable instances, where the plan compares with them
    # new instances that existed when the rollout was scaled down: they stay until the promotion
    grown: int = 0
    # the weight of new instances when the rollout was scaled, and how many had it
    carried: tuple[int, int] | None = None

    def waypoint(self, new: int, old: int, weight: int | None = None) -> Waypoint:
        """Return a waypoint before the promotion: until then capacity is not lowered, however
        few are asked for.
        """
        return Waypoint(
            self.generation,
            new,
            old,
            self.base,
            weight,
            stable=self.stable,
            baseline=self.baseline,
            before=self.before,
        )

    def end(self, weight: int | None = None, old: int = 0) -> Waypoint:
        """Return the last waypoint: all are new, with `old` instances on standby."""
        return replace(self.waypoint(self.desired, old, weight), desired=self.desired)

    @property
    def base(self) -> int:
        """How many instances there are until the promotion: what serves now, or what is asked
        for if that is more.
        """
        same = self.generation == self.stable  # scaling alone: nothing is promoted
        return self.desired if same else max(self.before, self.desired)

    def grow(self, waypoint: Waypoint) -> Waypoint:
        """Return the waypoint with no fewer new instances than exist: old ones are not started
        in their place.
        """
        more = min(self.grown - waypoint.new, waypoint.old) if waypoint.weight is None else 0
        return (
            replace(waypoint, new=waypoint.new + more, old=waypoint.old - more)
            if more > 0
            else waypoint
        )


def rolling(generation: int, desired: int) -> Waypoint:
    """Return the waypoint where all instances are new."""
    return Waypoint(generation, new=desired, old=0, desired=desired)


def stages(plan: Plan, target: RolloutTarget) -> tuple[Stage, ...]:
    """Return the stages of a plan. A first deployment is always rolling. Raises InvalidSteps."""
    listed = (LISTS[plan.strategy] if target.before else _rolling)(plan, target)
    return tuple(_rising(listed, target.carried))


def _rising(listed: Iterable[Stage], scaled: tuple[int, int] | None) -> Iterator[Stage]:
    """Yield the stages, each with what new instances carried in those before, and when the rollout
    was `scaled`.
    """
    carried: dict[tuple[int, int], None] = {scaled: None} if scaled else {}
    for stage in listed:
        point = stage.waypoint
        own = (point.weight or 0, point.carrying or point.new)
        before = tuple(part for part in carried if part != own)
        yield replace(stage, waypoint=replace(point, carried=before))
        if point.weight and point.new and not point.is_baseline:
            carried[own] = None


def remaining(listed: Sequence[Stage], passed: Collection[str]) -> Sequence[Stage]:
    """Return the stages from the first that is not among the names of those passed."""
    place = next(
        (place for place, stage in enumerate(listed) if stage.name not in passed), len(listed)
    )
    return listed[place:]


def still_passed(
    before: Sequence[Stage], after: Sequence[Stage], passed: Collection[str]
) -> list[str]:
    """Return which stages are passed once the number of replicas, and with it the list, has
    changed.

    Fewer replicas may make fewer groups. Where the current group is gone, the last group, which now
    leads to all replicas, remains to be passed with its gates. Where all are passed, the last stage
    remains, to arrive at the new number.
    """
    names, left = [stage.name for stage in after], remaining(before, passed)
    again = after[-1].name if not left else ""
    if left and left[0].name not in names:
        again = next(stage.name for stage in reversed(after) if stage.part == REPLACE)
    return [name for name in names if name in passed and name != again]


def peak(listed: Iterable[Stage], budget: Budget) -> int:
    """Return the most instances that any of these stages allows at once."""
    points = [stage.waypoint for stage in listed]
    return max(
        max(point.desired + budget.resolve(point.desired).surge, point.new + point.old)
        for point in points
    )


def _rolling(plan: Plan, target: RolloutTarget) -> Iterator[Stage]:
    yield from _confirm(
        target.waypoint(0, target.before), plan.confirm_rollout + plan.confirm_traffic_increase
    )
    replaced = target.grow(target.waypoint(target.desired, target.base - target.desired))
    yield Stage("replace", replaced, plan.confirm_promotion, watched=True)
    yield Stage("promote", target.end(), plan.post_rollout, PROMOTE, watched=True)


def _blue_green(plan: Plan, target: RolloutTarget) -> Iterator[Stage]:
    new, old = target.desired, target.base
    switched = target.end(100, old)
    gates = plan.promotion + plan.confirm_promotion + plan.confirm_traffic_increase
    yield from _confirm(target.waypoint(0, target.before, 0), plan.confirm_rollout)
    yield Stage("prepare", target.waypoint(new, old, 0), gates, waiting=Phase.AWAITING_PROMOTION)
    yield Stage("switch", switched, plan.post_rollout, PROMOTE, watched=True)
    yield from _hold(plan, target, switched, True)


def _confirm(waypoint: Waypoint, gates: tuple[Gate, ...]) -> Iterator[Stage]:
    if gates:
        yield Stage("confirm", waypoint, gates)


def _canary(plan: Plan, target: RolloutTarget) -> Iterator[Stage]:
    steps = plan.steps.steps(target.desired) if isinstance(plan.steps, Groups) else plan.steps
    weighted = any(step.weight is not None for step in steps)
    kept = 0 if plan.standby is None else min(target.before, up(plan.standby, target.before))
    reached = target.waypoint(0, target.before, 0 if weighted else None)
    asked, reversible = None, True
    listed, fresh = [Stage("begin", reached, plan.confirm_rollout + plan.opening)], 0
    for step in steps:
        asked = asked if step.replicas is None else up(step.replicas, target.desired)
        reached = _reach(step, reached, asked, target)
        reached = replace(reached, old=max(reached.old, kept))
        reversible = reversible and step.reversible
        fresh = max(fresh, _fresh(step, reached)) if step.baseline else fresh
        listed.append(
            Stage(
                step.name,
                target.grow(reached),
                step.gates,
                on_failure=step.on_failure,
                reversible=reversible,
                failure_limit=step.failure_limit,
                watched=step.watched,
            )
        )
    if kept:
        ready = _complete(reached, kept, target)
        listed.append(Stage("prepare", ready, reversible=reversible, watched=True))
    end = target.end(100 if weighted else None, kept)
    end = replace(end, weight_before=reached.weight or 0) if kept else end
    listed.append(
        Stage("promote", end, plan.post_rollout, PROMOTE, reversible=reversible, watched=True)
    )
    yield from _with_gates(plan, target, listed, fresh)
    if kept:
        yield from _hold(plan, target, end, reversible)


def _with_gates(
    plan: Plan, target: RolloutTarget, listed: Sequence[Stage], fresh: int
) -> Iterator[Stage]:
    """Yield the stages with the gates between them, and after the first that of the baseline.

    `fresh`: how many instances the baseline has.
    """
    for stage, following in pairwise(listed):
        gates = stage.gates + _before(plan, stage, following)
        if gates or stage.name != "begin":
            yield replace(stage, gates=gates)
        if fresh and stage is listed[0]:
            waypoint = replace(
                stage.waypoint,
                generation=target.baseline,
                new=fresh,
                old=target.base - fresh,
                weight=None,
            )
            yield Stage("baseline", waypoint)
    yield listed[-1]


def _complete(last: Waypoint, kept: int, target: RolloutTarget) -> Waypoint:
    """Return the waypoint before a switch: the new set is complete, and the weight stays."""
    rest = carrying(target.base, target.allowed, 100 - (last.weight or 0))
    new = max(target.desired, last.new)
    old = max(kept, rest, min(last.old, target.base + target.allowed.surge - new))
    return replace(last, new=new, old=old, carrying=last.new)


def _hold(plan: Plan, target: RolloutTarget, end: Waypoint, reversible: bool) -> Iterator[Stage]:
    """Yield the stages after a switch: the old set stays on standby, then it goes."""
    switched = replace(end, switch_at=0)
    yield Stage(
        "hold",
        switched,
        plan.hold,
        FINISH,
        waiting=Phase.HOLDING,
        reversible=reversible,
        watched=True,
    )
    yield Stage("retire", target.end(), part=FINISH)


def _fresh(step: Step, reached: Waypoint) -> int:
    """Return how many fresh stable instances a step compares with: as many as there are new ones,
    at most the old ones.

    They are started before the first new instance. So they are as old as the new ones, nothing
    waits for them while new ones serve, and starting them takes no requests from either side.
    """
    if not (reached.new and reached.old):
        raise InvalidSteps(
            f"{step.name}: a baseline compares new with old instances, and here are {reached.new}"
            f" new and {reached.old} old; set it at a step that has both"
        )
    return min(reached.new, reached.old)


def _before(plan: Plan, stage: Stage, following: Stage) -> tuple[Gate, ...]:
    """Return the gates between one stage and the next."""
    point, next_point = stage.waypoint, following.waypoint
    rises = (
        next_point.new > point.new
        if point.weight is None or next_point.weight is None
        else next_point.weight > point.weight
    )
    raising = plan.confirm_traffic_increase if rises else ()
    named = tuple(replace(gate, key=f"{gate.key} before {following.name}") for gate in raising)
    return named + (plan.confirm_promotion if following.part == PROMOTE else ())


def _reach(step: Step, last: Waypoint, asked: int | None, target: RolloutTarget) -> Waypoint:
    """Return the waypoint of a step; `asked` is the number of new instances that it, or a step
    before, sets.
    """
    weight = last.weight if step.weight is None else step.weight
    if step.ahead is not None:
        return _ahead(step, step.ahead, last, target)
    if step.weight is None and step.replicas is None and step.instances is None:
        return last
    if step.instances is not None:
        new, old = _instances(step, step.instances, target)
    elif asked is not None and asked > target.desired:
        raise InvalidSteps(
            f"{step.name}: {asked} is more than the {target.desired} replicas; set at most that"
        )
    elif weight == 100:
        new, old = target.base, 0
    elif weight:
        new, old = _divide(step, weight, asked, target)
    else:
        new = asked or 0
        old = target.base - new if weight is None else _beside(step, new, target)
    if new < last.new and target.base > target.desired:
        new, old = last.new, last.old  # a step before needed more, since more serve than are asked
    if new < last.new:
        raise InvalidSteps(
            f"{step.name}: {new} new are fewer than the {last.new} before; a canary can only grow"
        )
    return target.waypoint(new, old, weight)


def _divide(step: Step, weight: int, asked: int | None, target: RolloutTarget) -> tuple[int, int]:
    """Return how many new and old instances a weight (1 to 99) takes: both sides have to carry
    their part of what serves until the promotion, however few are asked for.
    """
    desired, base, surge = target.desired, target.base, target.allowed.surge
    least, rest = (carrying(base, target.allowed, part) for part in (weight, 100 - weight))
    most = base + surge - rest
    if most < least:
        raise InvalidSteps(
            f"{step.name}: {base} replica(s) without surge cannot be new and old at once; set"
            " max_surge: 1"
        )
    # Without surge one side loses what the other gains, so the nearest number is fairest.
    exact = _up(base, weight) if surge else _nearest(base, weight)
    if asked is not None and asked < carrying(desired, target.allowed, weight):
        least = carrying(desired, target.allowed, weight)
        raise InvalidSteps(
            f"{step.name}: {asked} new instances cannot carry {weight}% of the requests of"
            f" {desired} replicas; set_replicas at least {least} before it"
        )
    new = min(max(least, exact), most) if asked is None else max(least, asked)
    if new > most:
        raise InvalidSteps(
            f"{step.name}: with {new} new instances only {max(0, base + surge - new)} old ones are"
            f" allowed, which cannot carry the other {100 - weight}% of the requests of {base}"
            f" replicas; set max_surge: {new + rest - base}, or set_replicas at most {most}"
        )
    # The old side stays complete as far as the surge allows: a rollback then changes weights, and
    # starts nothing.
    return new, min(base, base + surge - new)


def _ahead(step: Step, weight: int, last: Waypoint, target: RolloutTarget) -> Waypoint:
    """Return the waypoint with the new instances of the next weight, and the weight of the last.

    Where there is no room for all of them beside the old ones, there are as many as there is.
    """
    surge = target.allowed.surge
    if not surge:
        raise InvalidSteps(f"{step.name}: no surge is allowed; set max_surge, or remove ahead")
    rest = carrying(target.base, target.allowed, 100 - (last.weight or 0))
    wanted = target.base if weight == 100 else _divide(step, weight, None, target)[0]
    new = max(last.new, min(wanted, target.base + surge - rest))
    old = min(target.base, target.base + surge - new)
    return replace(last, new=new, old=old, carrying=last.new)


def carrying(desired: int, allowed: ResolvedBudget, weight: int) -> int:
    """Return how many instances have to be ready to carry a traffic weight."""
    return max(1, _up(desired - allowed.unavailable, weight))


def _beside(step: Step, new: int, target: RolloutTarget) -> int:
    """Return how many old instances stay while new ones get no requests: all of them."""
    if new > target.allowed.surge:
        raise InvalidSteps(
            f"{step.name}: before the first set_weight the old instances carry all requests, so"
            f" {new} new ones come on top of all {target.base} old; set max_surge: {new}, or"
            " set_weight first"
        )
    return target.base


def _instances(step: Step, weight: int, target: RolloutTarget) -> tuple[int, int]:
    """Return the new and old instances of an instance weight: together one more than replicas,
    as in Cloud Foundry.
    """
    desired, surge = target.desired, target.allowed.surge
    if weight == 100:
        return desired, target.base - desired
    # One old instance stays until the last step.
    new = min(max(1, _nearest(desired, weight)), desired if surge else desired - 1)
    if not new:
        raise InvalidSteps(
            f"{step.name}: one replica cannot be new and old at once; set max_surge: 1"
        )
    return new, min(target.base - new + 1, target.base + surge - new)


def _up(count: int, percent: int) -> int:
    return -(-count * percent // 100)


def _nearest(count: int, percent: int) -> int:
    """Round half up."""
    return (2 * count * percent + 100) // 200


LISTS: Mapping[str, Callable[[Plan, RolloutTarget], Iterator[Stage]]] = {
    "rolling": _rolling,
    "canary": _canary,
    "blue_green": _blue_green,
}
