# SPDX-License-Identifier: GPL-3.0-or-later
"""Rollouts over several targets: what each stage means for each of them. Pure.

A waypoint has a part for each target. Where a plan has waves, its stages are those of the targets
of the first wave alone, then those of the second, and so on; otherwise each stage is one of all
targets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import add

from . import strategy
from .budget import Budget, ResolvedBudget
from .fleet_count import FleetCount, GroupCount
from .model import Instance
from .shares import Target, cluster_of, share
from .strategy import PROMOTE, REPLACE, Gate, Plan, RolloutTarget, Stage, Wave, Waypoint


def stages(
    plan: Plan, rollout_target: RolloutTarget, targets: Sequence[Target]
) -> tuple[Stage, ...]:
    """Return the stages of a plan over these targets. A first deployment has no waves.

    Raises InvalidSteps.
    """
    if targets and plan.waves and rollout_target.before:
        return tuple(_in_waves(plan, rollout_target, targets))
    listed = strategy.stages(plan, rollout_target)
    return tuple(replace(stage, waypoint=divide(stage.waypoint, targets)) for stage in listed)


def divide(waypoint: Waypoint, targets: Sequence[Target]) -> Waypoint:
    """Return a waypoint with a part for each target, as large as their shares are together."""
    if not targets or waypoint.parts:
        return waypoint
    return join(waypoint, [(target, _part(waypoint, target, len(targets))) for target in targets])


def most_at(listed: Iterable[Stage], budget: Budget) -> dict[Target, int]:
    """Return the most instances that any of these stages allows at once at each target.

    Instances that were there before count until the new ones are, and the surge of all targets may
    be used at one.
    """
    most: dict[Target, int] = {}
    for stage in listed:
        surge = budget.resolve(stage.waypoint.desired).surge
        for target, part in stage.waypoint.parts:
            needed = max(part.desired + min(surge, part.new), part.new + part.old)
            most[target] = max(most.get(target, 0), needed)
    return most


def join(waypoint: Waypoint, parts: Iterable[tuple[Target, Waypoint]]) -> Waypoint:
    """Return the waypoint that these parts are together."""
    parts = tuple(parts)
    sums = {
        number: sum(getattr(part, number) for _target, part in parts)
        for number in ("new", "old", "desired", "before")
    }
    return replace(waypoint, **sums, parts=parts)


def _part(waypoint: Waypoint, target: Target, targets: int) -> Waypoint:
    def own(count: int) -> int:
        return share(count, targets, target.factor)

    new, old, total = waypoint.new, waypoint.old, waypoint.new + waypoint.old
    # Where old ones leave room for new ones, both together are rounded: none is kept too many.
    kept = own(total) - own(new) if total <= waypoint.desired else own(old)
    return replace(
        waypoint,
        new=own(new),
        old=kept if old else 0,
        desired=own(waypoint.desired),
        carrying=own(waypoint.carrying),
        carried=tuple((weight, own(count)) for weight, count in waypoint.carried),
        before=own(waypoint.before),
        parts=(),
    )


# -- waves -----------------------------------------------------------------------------------------


def _in_waves(
    plan: Plan, rollout_target: RolloutTarget, targets: Sequence[Target]
) -> Iterator[Stage]:
    """Yield the stages of one target after the other, then the promotion of all."""
    rollout_targets = {
        target.name: _rollout_target_of(rollout_target, target, len(targets)) for target in targets
    }
    by_name = {target.name: target for target in targets}
    points = {name: _untouched(rollout_target) for name, rollout_target in rollout_targets.items()}
    for number, wave in enumerate(plan.waves):
        moving = {name: rollout_targets[name] for name in wave.targets}
        first, last = number == 0, number == len(plan.waves) - 1
        for stage, moved in _of_wave(plan, moving, wave, first, last):
            points |= moved
            parts = [(by_name[name], point) for name, point in points.items()]
            outer = replace(stage.waypoint, weight=None)
            yield replace(stage, waypoint=join(outer, parts))
    ends = [
        (by_name[name], rollout_target.end()) for name, rollout_target in rollout_targets.items()
    ]
    yield Stage("promote", join(ends[-1][1], ends), plan.post_rollout, PROMOTE, watched=True)


def _rollout_target_of(
    rollout_target: RolloutTarget, target: Target, targets: int
) -> RolloutTarget:
    """Return what a rollout leads to in one target."""
    desired, before = (
        share(number, targets, target.factor)
        for number in (rollout_target.desired, rollout_target.before)
    )
    return replace(rollout_target, desired=desired, before=before, grown=0, carried=None)


def _untouched(rollout_target: RolloutTarget) -> Waypoint:
    """Return the waypoint of a target before its wave."""
    return replace(rollout_target.waypoint(0, rollout_target.before), desired=rollout_target.before)


def _of_wave(
    plan: Plan, rollout_targets: Mapping[str, RolloutTarget], wave: Wave, first: bool, last: bool
) -> Iterator[tuple[Stage, Mapping[str, Waypoint]]]:
    """Yield the stages of one wave, each with the waypoints of its targets.

    The gates that come after the wave are those of its last stage. A target that has fewer stages
    than another is at its last one meanwhile.
    """
    plan_of_wave = replace(
        plan,
        opening=plan.opening if first else (),
        confirm_rollout=plan.confirm_rollout if first else (),
        confirm_promotion=(),
        post_rollout=(),
    )
    by_target = {
        name: _of_target(plan_of_wave, rollout_target)
        for name, rollout_target in rollout_targets.items()
    }
    longest = max(by_target.values(), key=len)
    for number, stage in enumerate(longest):
        gates = tuple(replace(gate, key=f"{wave.name} {gate.key}") for gate in stage.gates)
        after: tuple[Gate, ...] = ()
        if stage is longest[-1]:
            after = wave.gates + (plan.confirm_promotion if last else ())
        named = replace(stage, name=f"{wave.name} {stage.name}", gates=gates + after)
        yield (
            named,
            {
                name: listed[min(number, len(listed) - 1)].waypoint
                for name, listed in by_target.items()
            },
        )


def _of_target(plan: Plan, rollout_target: RolloutTarget) -> list[Stage]:
    """Return the stages of one target, to its last new instance.

    None of them lowers its capacity: only the promotion does, at all targets together. By number,
    a surplus of old instances stays; by weight, as many new ones carry all requests.
    """
    listed = [stage for stage in strategy.stages(plan, rollout_target) if stage.part == REPLACE]
    if plan.strategy == "canary":
        by_number = listed[-1].waypoint.weight is None
        every = (
            rollout_target.waypoint(
                rollout_target.desired, rollout_target.base - rollout_target.desired
            )
            if by_number
            else rollout_target.waypoint(rollout_target.base, 0, 100)
        )
        listed.append(Stage("all", every, watched=True))
    return listed


# -- one decision ----------------------------------------------------------------------------------


def split(
    fleet: Sequence[Instance], waypoint: Waypoint
) -> list[tuple[Target | None, Waypoint, Sequence[Instance]]]:
    """Return the parts of a waypoint, each with its instances.

    Those at places of no target are to go: they make a part of their own, without any.
    """
    if not waypoint.parts:
        return [(None, waypoint, fleet)]
    numbers = {
        host: number
        for number, (target, _part) in enumerate(waypoint.parts)
        for host in target.hosts
    }
    groups: list[list[Instance]] = [[] for _dummy in waypoint.parts]
    others: list[Instance] = []
    for instance in fleet:
        number = numbers.get(instance.host, numbers.get(cluster_of(instance.host)))
        (others if number is None else groups[number]).append(instance)
    divided: list[tuple[Target | None, Waypoint, Sequence[Instance]]] = [
        (target, part, group) for (target, part), group in zip(waypoint.parts, groups, strict=True)
    ]
    if others:
        divided.append((None, replace(waypoint, new=0, old=0, desired=0, parts=()), others))
    return divided


def apportion(
    allowed: ResolvedBudget,
    parts: Sequence[tuple[Waypoint, FleetCount]],
    isolated: Sequence[bool],
) -> list[ResolvedBudget]:
    """Divide a budget between targets, so that what each may do is within it together.

    What is over or missing already is counted first; the rest is for the first that has a use. What
    one target has too many of may serve in place of what another lacks: it goes only where all
    together have enough without it. So a target may allow fewer than none to be unavailable.

    `isolated`: whether each target has dedicated load balancers, so that its surplus cannot serve
    the requests of other targets.
    """
    surge = _deal(
        allowed.surge,
        [max(0, count.total - point.desired) for point, count in parts],
        [max(0, count.total + _missing(point, count) - point.desired) for point, count in parts],
    )
    unavailable = map(
        min,
        _unavailable(allowed, parts, isolated, lambda count: count.available),
        _unavailable(allowed, parts, isolated, lambda count: count.serving),
    )
    return [ResolvedBudget(*numbers) for numbers in zip(surge, unavailable, strict=True)]


def _unavailable(
    allowed: ResolvedBudget,
    parts: Sequence[tuple[Waypoint, FleetCount]],
    isolated: Sequence[bool],
    counted: Callable[[FleetCount], int],
) -> list[int]:
    """Return how many instances each target may be without, of those that are `counted`."""
    lacking = [
        max(0, lack) if apart else lack
        for (point, count), apart in zip(parts, isolated, strict=True)
        for lack in [point.desired - counted(count)]
    ]
    going = [_excess(point, count) + len(count.replaced) for point, count in parts]
    used = [max(0, lack) for lack in lacking]
    targets_share = _deal(allowed.unavailable, used, list(map(add, used, going)))
    spare = _deal(
        allowed.unavailable - sum(lacking),
        [0] * len(parts),
        [
            min(some, less - lack)
            for some, less, lack in zip(going, targets_share, lacking, strict=True)
        ],
    )
    return [min(less, sum(pair)) for less, *pair in zip(targets_share, lacking, spare, strict=True)]


def _deal(left: int, used: Sequence[int], wanted: Sequence[int]) -> list[int]:
    """Return how much each gets: what it uses, then as much as it wants."""
    dealt = [0] * len(used)
    for claims in (used, wanted):
        for number, claim in enumerate(claims):
            more = max(0, min(left, claim - dealt[number]))
            dealt[number] += more
            left -= more
    return dealt


def _missing(point: Waypoint, count: FleetCount) -> int:
    old = point.old - len(count.old) if point.repairs else 0
    return max(0, point.new - len(count.new)) + max(0, old)


def _excess(point: Waypoint, count: FleetCount) -> int:
    return sum(
        max(0, min(len(group) - kept, len(group) - _pinned(group, count)))
        for group, kept in ((count.new, point.new), (count.old, point.old))
    )


def _pinned(group: GroupCount, count: FleetCount) -> int:
    """Return how many instances of a group stay whatever is allowed."""
    return sum(i.id in count.pinned for i in group.available) if count.pinned else 0
