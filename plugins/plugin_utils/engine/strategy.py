# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Strategies: lists of stages, each a waypoint and what guards it. A new strategy is a new list, not a new code path. Pure."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import pairwise

from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.budget import Amount, Budget, ResolvedBudget, up
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import FailureAction, Phase

REPLACE, PROMOTE, FINISH = PARTS = ("replace", "promote", "finish")  # the steps that walk a stage, in their order


class InvalidSteps(ValueError):
    """The steps of a canary do not go with the number of replicas and the budget. The text says which, and what would."""


@dataclass(frozen=True)
class Waypoint:
    """A fleet composition to walk to.

    `generation` is the one that counts as new; instances of all others are old.
    `desired` is what the budget is counted from: the capacity the service needs all along the walk to it.
    `share` is the percentage of requests that goes to the new ones: None for what their number comes to, 0 for a new set
    that stands ready out of rotation, 100 for an old set that stands ready out of rotation. From such a waypoint of 0
    to one of 100 is one switch, at all load balancers.
    """

    generation: int
    new: int
    old: int
    desired: int
    weight: int | None = None
    switch_at: int | None = None  # how many new ones have to be ready for a switch; None: all; 0: it is known to be done
    stable: int = 0  # the generation of the stable revision: the last of the old ones to go (E-16), and started again if they die
    baseline: int = 0  # but for this one: fresh instances of the stable revision, to compare with; 0: there are none
    # On a way back: how many times its usual part a stable one takes, so that the old ones, which were judged bad, go as soon
    # as the stable ones can carry everything; 0: never more than usual. None: this is no way back.
    headroom: Fraction | None = None
    rebalance: bool = False  # whether new ones leave crowded hosts for emptier ones (`rebalance.py`)

    @property
    def new_idle(self) -> bool:
        """Whether the new ones stand ready without a request."""
        return self.weight == 0

    @property
    def switches(self) -> bool:
        """Whether the new ones take over all at once, and the old ones stay, without a request."""
        return self.weight == 100 and self.old > 0

    @property
    def repairs(self) -> bool:
        """Whether instances of the stable revision may be started beside the new ones."""
        return self.stable not in (0, self.generation)

    @property
    def is_baseline(self) -> bool:
        """Whether what counts as new here is the baseline."""
        return 0 != self.generation == self.baseline


@dataclass(frozen=True)
class Gate:
    """What has to let a rollout pass before it leaves a stage. Times in seconds; `options` are its driver's own."""

    key: str  # tells it apart in the journal, among all gates of the rollout
    driver: str
    options: Mapping[str, t.Any] = field(default_factory=dict, repr=False)  # may hold secrets
    interval: float = 5.0  # between two questions
    timeout: float | None = None  # how long it may keep a rollout waiting; None: as long as it takes
    on_timeout: str | None = None  # rollback | hold | promote; None: what `on_failure` says
    on_error: str = "fail"  # fail | ignore: what a gate that cannot be asked comes to (E-38)
    variable: str = field(default="gate", compare=False)  # where it was written, for messages


@dataclass(frozen=True)
class Stage:
    """A waypoint, and what has to be so before the rollout goes on to the next one."""

    name: str
    waypoint: Waypoint
    gates: tuple[Gate, ...] = ()
    part: str = REPLACE  # the step that walks it
    waiting: Phase = Phase.PAUSED  # the phase while its gates are waited for
    on_failure: FailureAction | None = None  # None: as for the whole rollout
    reversible: bool = True  # False: from here on a failure holds, for there is no way back
    failure_limit: int | None = None  # of this stage alone; None: as for the whole rollout
    watched: bool = False  # whether the plan's background gates are asked on the way to it, and at it


@dataclass(frozen=True)
class Step:
    """One step of a canary: at most one of `weight`, `replicas` and `instances`; none of them stays where the last one was."""

    name: str
    weight: int | None = None  # the new ones' share of the requests, in percent
    replicas: Amount | None = None  # how many new ones
    instances: int | None = None  # how many new ones, in percent, one more than they replace (Cloud Foundry's instance_weight)
    gates: tuple[Gate, ...] = ()
    on_failure: FailureAction | None = None
    reversible: bool = True
    failure_limit: int | None = None
    watched: bool = True  # see Stage
    baseline: bool = False  # its gates compare the new ones with as many fresh instances of the stable revision


@dataclass(frozen=True)
class Groups:
    """The steps of a canary by their number (Singularity's): `cycles` groups of `size`, then all the others."""

    size: int
    cycles: int
    gates: tuple[Gate, ...] = ()  # asked after each group
    failure_limit: int | None = None

    def steps(self, desired: int) -> tuple[Step, ...]:
        """The steps for so many replicas."""
        targets = [*range(self.size, desired, self.size)[: self.cycles], desired]
        return tuple(self._step(f"group {number}", target) for number, target in enumerate(targets, 1))

    def _step(self, name: str, target: int) -> Step:
        gates = tuple(replace(gate, key=f"{name} {gate.key}") for gate in self.gates)
        return Step(name, replicas=target, gates=gates, failure_limit=self.failure_limit)


@dataclass(frozen=True)
class Plan:
    """What an operator asks for, whatever the number of replicas."""

    strategy: str = "rolling"
    steps: tuple[Step, ...] | Groups = ()  # of canary
    opening: tuple[Gate, ...] = ()  # of canary: what its list has before the first step
    promotion: tuple[Gate, ...] = ()  # of blue_green: the delay, or a person
    hold: tuple[Gate, ...] = ()  # of blue_green: how long the old set stays warm
    confirm_rollout: tuple[Gate, ...] = ()  # before anything
    confirm_traffic_increase: tuple[Gate, ...] = ()  # before each rise of the new ones' share
    confirm_promotion: tuple[Gate, ...] = ()
    post_rollout: tuple[Gate, ...] = ()  # when the new ones have all requests
    background: tuple[Gate, ...] = ()  # asked all along, at the stages that are watched: one that fails ends the walk
    rollback_gates: tuple[Gate, ...] = ()  # asked all along, by no stage: one that passes is a reason to go back

    @property
    def gates(self) -> tuple[Gate, ...]:
        """Every gate there is, whoever asks it."""
        of_steps = self.steps.gates if isinstance(self.steps, Groups) else sum((step.gates for step in self.steps), ())
        calls = self.confirm_rollout + self.confirm_traffic_increase + self.confirm_promotion + self.post_rollout
        return (*self.opening, *of_steps, *self.promotion, *self.hold, *calls, *self.background, *self.rollback_gates)

    @property
    def baseline(self) -> bool:
        """Whether any step compares with fresh instances of the stable revision."""
        return not isinstance(self.steps, Groups) and any(step.baseline for step in self.steps)


@dataclass(frozen=True)
class RolloutTarget:
    """Where a rollout goes, and from where."""

    generation: int
    desired: int
    allowed: ResolvedBudget  # the budget, of so many
    before: int = 0  # instances of the stable revision that are to be replaced; 0: there is nothing to be careful with
    stable: int = 0  # their generation
    baseline: int = 0  # the generation of fresh instances of the stable revision, where the plan wants them
    grown: int = 0  # new instances that were there when fewer than before were asked for: until the promotion they stay, too

    def waypoint(self, new: int, old: int, weight: int | None = None) -> Waypoint:
        """One on the way to the promotion: until then capacity is not lowered, however few are asked for."""
        return Waypoint(self.generation, new, old, self.base, weight, stable=self.stable, baseline=self.baseline)

    def end(self, weight: int | None = None, old: int = 0) -> Waypoint:
        """Where all are new, as many as are asked for, with `old` ones out of rotation."""
        return replace(self.waypoint(self.desired, old, weight), desired=self.desired)

    @property
    def base(self) -> int:
        """How many there are in all until the promotion: what serves now, or what is asked for if that is more."""
        same = self.generation == self.stable  # scaling alone: there is nothing to be promoted
        return self.desired if same else max(self.before, self.desired)

    def grow(self, waypoint: Waypoint) -> Waypoint:
        """The waypoint with no fewer new ones than there are: old ones are not started again in their place."""
        more = min(self.grown - waypoint.new, waypoint.old) if waypoint.weight is None else 0
        return replace(waypoint, new=waypoint.new + more, old=waypoint.old - more) if more > 0 else waypoint


def rolling(generation: int, desired: int) -> Waypoint:
    """All new, none old, with a sliding window."""
    return Waypoint(generation, new=desired, old=0, desired=desired)


def stages(plan: Plan, target: RolloutTarget) -> tuple[Stage, ...]:
    """The list of stages of a plan; raises Unfit. Every first deployment is a rolling one."""
    return tuple((LISTS[plan.strategy] if target.before else _rolling)(plan, target))


def remaining(listed: Sequence[Stage], passed: Collection[str]) -> Sequence[Stage]:
    """The stages of a list from the first one on that is not among those passed, which are known by their names."""
    place = next((place for place, stage in enumerate(listed) if stage.name not in passed), len(listed))
    return listed[place:]


def still_passed(before: Sequence[Stage], after: Sequence[Stage], passed: Collection[str]) -> list[str]:
    """Which stages are passed when the number of replicas changes, and with it the list from `before` to `after`.

    Fewer replicas may make fewer groups: where the one that is walked to or waited at is gone, the last group leads to all
    replicas now, and remains to be passed with its gates. Where all are passed, the last stage is walked again to the new number.
    """
    names, left = [stage.name for stage in after], remaining(before, passed)
    again = after[-1].name if not left else ""
    if left and left[0].name not in names:
        again = next(stage.name for stage in reversed(after) if stage.part == REPLACE)
    return [name for name in names if name in passed and name != again]


def peak(listed: Iterable[Stage], budget: Budget) -> int:
    """The most instances that any of these stages lets be there at once."""
    points = [stage.waypoint for stage in listed]
    return max(max(point.desired + budget.resolve(point.desired).surge, point.new + point.old) for point in points)


def _rolling(plan: Plan, target: RolloutTarget) -> Iterator[Stage]:
    yield from _confirm(target.waypoint(0, target.before), plan.confirm_rollout + plan.confirm_traffic_increase)
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
    yield Stage("hold", replace(switched, switch_at=0), plan.hold, FINISH, waiting=Phase.HOLDING, watched=True)
    yield Stage("retire", target.end(), part=FINISH)


def _confirm(waypoint: Waypoint, gates: tuple[Gate, ...]) -> Iterator[Stage]:
    if gates:
        yield Stage("confirm", waypoint, gates)


def _canary(plan: Plan, target: RolloutTarget) -> Iterator[Stage]:
    steps = plan.steps.steps(target.desired) if isinstance(plan.steps, Groups) else plan.steps
    weighted = any(step.weight is not None for step in steps)
    reached, asked, reversible = target.waypoint(0, target.before, 0 if weighted else None), None, True
    found, fresh = [Stage("begin", reached, plan.confirm_rollout + plan.opening)], 0
    for step in steps:
        asked = asked if step.replicas is None else up(step.replicas, target.desired)
        reached = _reach(step, reached, asked, target)
        reversible = reversible and step.reversible
        fresh = max(fresh, _fresh(step, reached)) if step.baseline else fresh
        found.append(
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
    end = target.end(100 if weighted else None)
    found.append(Stage("promote", end, plan.post_rollout, PROMOTE, reversible=reversible, watched=True))
    for stage, following in pairwise(found):
        gates = stage.gates + _before(plan, stage, following)
        if gates or stage.name != "begin":
            yield replace(stage, gates=gates)
        if fresh and stage is found[0]:
            yield Stage(
                "baseline", replace(stage.waypoint, generation=target.baseline, new=fresh, old=target.base - fresh, weight=None)
            )
    yield found[-1]


def _fresh(step: Step, reached: Waypoint) -> int:
    """How many fresh instances of the stable revision a step compares with: as many as there are new ones, if the old ones are.

    They are there before the first new one is: so they are as old as those, nobody waits for them with the new ones in
    service, and what is done for them takes nothing from anybody's share of the requests.
    """
    if not (reached.new and reached.old):
        raise InvalidSteps(
            f"{step.name}: a baseline compares new with old ones, and {reached.new} new and {reached.old} old are there; "
            "ask for it at a step that has both"
        )
    return min(reached.new, reached.old)


def _before(plan: Plan, stage: Stage, following: Stage) -> tuple[Gate, ...]:
    """What has to be confirmed before going from one stage to the next."""
    here, there = stage.waypoint, following.waypoint
    rises = there.new > here.new if here.weight is None or there.weight is None else there.weight > here.weight
    raising = plan.confirm_traffic_increase if rises else ()
    named = tuple(replace(gate, key=f"{gate.key} before {following.name}") for gate in raising)
    return named + (plan.confirm_promotion if following.part == PROMOTE else ())


def _reach(step: Step, last: Waypoint, asked: int | None, target: RolloutTarget) -> Waypoint:
    """Where a step leads to; `asked` is the number of new ones that it or one before it gave."""
    weight = last.weight if step.weight is None else step.weight
    if step.weight is None and step.replicas is None and step.instances is None:
        return last
    if step.instances is not None:
        new, old = _instances(step, step.instances, target)
    elif asked is not None and asked > target.desired:
        raise InvalidSteps(f"{step.name}: {asked} are more than the {target.desired} replicas; set no more than that")
    elif weight == 100:
        new, old = target.desired, 0
    elif weight:
        new, old = _divide(step, weight, asked, target)
    else:
        new = asked or 0
        old = target.base - new if weight is None else _beside(step, new, target)
    if new < last.new:
        raise InvalidSteps(f"{step.name}: {new} new are fewer than the {last.new} before; a canary only grows")
    return target.waypoint(new, old, weight) if old else target.end(weight)


def _divide(step: Step, weight: int, asked: int | None, target: RolloutTarget) -> tuple[int, int]:
    """New and old for a share of the requests (1 to 99): both have to carry theirs (E-4h)."""
    desired, base, surge = target.desired, target.base, target.allowed.surge
    least, rest = carrying(desired, target.allowed, weight), carrying(base, target.allowed, 100 - weight)
    most = base + surge - rest
    if most < least:
        raise InvalidSteps(f"{step.name}: {desired} replica(s) without surge cannot be both new and old; raise max_surge to 1")
    # Without surge what one side gains the other loses: the nearest is fairest.
    exact = _up(desired, weight) if surge else _nearest(desired, weight)
    new = min(max(least, exact), most) if asked is None else asked
    if new < least:
        raise InvalidSteps(
            f"{step.name}: capacity comes before traffic, and {new} new cannot carry {weight}% of the requests of {desired} replicas; "
            f"set_replicas at least {least} before it"
        )
    if new > most:
        raise InvalidSteps(
            f"{step.name}: beside {new} new there is room for {max(0, base + surge - new)} old, which cannot carry the other {100 - weight}% "
            f"of the requests of {base} replicas; raise max_surge to {new + rest - base} or set_replicas at most {most}"
        )
    # The old side stays whole as far as the surge goes: then going back is a change of weights, and starts nothing.
    return new, min(base, base + surge - new)


def carrying(desired: int, allowed: ResolvedBudget, weight: int) -> int:
    """How many new ones have to be ready to carry a share of the requests (E-4h)."""
    return max(1, _up(desired - allowed.unavailable, weight))


def _beside(step: Step, new: int, target: RolloutTarget) -> int:
    """The old ones beside new ones without requests: all of them."""
    if new > target.allowed.surge:
        raise InvalidSteps(
            f"{step.name}: before the first set_weight the old ones carry all requests, so {new} new are beside all "
            f"{target.base} old; raise max_surge to {new}, or set_weight first"
        )
    return target.base


def _instances(step: Step, weight: int, target: RolloutTarget) -> tuple[int, int]:
    """New and old of Cloud Foundry's plan: one more than replicas, so that none is missing before the first is there."""
    desired, surge = target.desired, target.allowed.surge
    if weight == 100:
        return desired, 0
    # One old one stays until the last step (E-67).
    new = min(max(1, _nearest(desired, weight)), desired if surge else desired - 1)
    if not new:
        raise InvalidSteps(f"{step.name}: one replica cannot be both new and old; raise max_surge to 1")
    return new, min(target.base - new + 1, target.base + surge - new)


def _up(count: int, percent: int) -> int:
    return -(-count * percent // 100)


def _nearest(count: int, percent: int) -> int:
    """Half away from zero (E-68)."""
    return (2 * count * percent + 100) // 200


LISTS: Mapping[str, Callable[[Plan, RolloutTarget], Iterator[Stage]]] = {
    "rolling": _rolling,
    "canary": _canary,
    "blue_green": _blue_green,
}
