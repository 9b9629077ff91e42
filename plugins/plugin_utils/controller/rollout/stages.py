# SPDX-License-Identifier: GPL-3.0-or-later
"""The stages of a rollout: those a plan asks for, and those still ahead of a rollout in
progress.
"""

from __future__ import annotations

import abc
import typing as t
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from ...base.errors import InputError
from ...engine.budget import ResolvedBudget
from ...engine.model import Composition, Instance, Phase
from ...engine.shares import Target
from ...engine.strategy import (
    BACK,
    InvalidSteps,
    Plan,
    RolloutTarget,
    Stage,
    Waypoint,
    remaining,
    rolling,
    still_passed,
)
from ...engine.strategy import stages as stages_everywhere
from ...engine.targets import stages
from ...state.record import MemberOf, Rollout, RolloutKind
from ..step.context import StepContext, StepPart


class Stages(StepPart, abc.ABC):
    """The stages of rollouts. How instances are replaced decides which there are."""

    @abc.abstractmethod
    def of(self, rollout: Rollout) -> tuple[Stage, ...]:
        """Return all stages of a rollout in progress; raises InputError where its numbers cannot be
        reached.
        """

    def ahead(self, rollout: Rollout) -> Sequence[Stage]:
        """Return the stages of a rollout from the current one on."""
        return stages_ahead(self.of(rollout), rollout)

    def plan_of(self, rollout: Rollout) -> Plan:
        """Return the plan that a rollout follows.

        Only a new revision or a restart has gates; a rollback has steps where they are asked for,
        and a revision that is known to be good has none.
        """
        asked = self.settings.plan
        if not rollout.kind.forward:
            if rollout.strategy != "canary":
                return Plan()
            from ...engine.plans import back_in_steps  # few rollbacks have steps

            return back_in_steps(asked)
        plan = replace(asked, strategy=rollout.strategy)
        if (rollout.strategy, asked.strategy) == ("rolling", "canary"):
            from ...engine.plans import one_walk  # few revisions are known to be good

            plan = one_walk(asked)
        if rollout.release:
            from ...engine.release_plan import member_plan  # few rollouts are members

            return member_plan(plan, rollout.release.together)
        return plan


class LaunchStages(Stages):
    """The stages where new instances are launched beside the old ones."""

    def ahead(self, rollout: Rollout) -> Sequence[Stage]:
        """Return the stages ahead, with the number of new instances that an operator has set."""
        ahead = super().ahead(rollout)
        if not rollout.aim:
            return ahead
        from ...engine.aim import with_aim  # few rollouts have any

        return with_aim(ahead, rollout.aim)

    @property
    def targets(self) -> Sequence[Target]:
        """The targets of the rollout."""
        return self.loop.targets

    def planned(
        self,
        generation: int,
        replicas: int,
        before: Composition | None,
        plan: Plan,
        grown: int = 0,
        carried: Sequence[int] = (),
    ) -> tuple[Stage, ...]:
        """Return the stages of a plan from the stable instances to `replicas` new ones; raises
        InputError.
        """
        allowed = self.settings.budget.resolve(replicas)
        serving, stable = (before.replicas, before.generation) if before else (0, 0)
        rollout_target = RolloutTarget(
            generation,
            replicas,
            allowed,
            serving,
            stable,
            baseline_of(plan, generation),
            grown,
            (carried[0], carried[1]) if carried else None,
        )
        try:
            targets = self.targets
            if not rollout_target.before:
                # Refuse at the first rollout steps that only the second one would take.
                stages(plan, replace(rollout_target, before=replicas), targets)
            listed = stages(plan, rollout_target, targets)
            if self.record.is_adopted(stable):  # no more of them can be started
                listed = with_old_at_most(listed, serving)
        except InvalidSteps as exc:
            raise InputError(f"rollout_steps: {exc}", "PR-109") from None
        return with_alpha(listed, plan)

    def of(self, rollout: Rollout) -> tuple[Stage, ...]:
        refuse_in_place(self.step)
        before = rollout.previous and replace(
            rollout.previous, replicas=rollout.base or rollout.previous.replicas
        )
        if before and rollout.kind == RolloutKind.ROLLBACK and rollout.strategy == "rolling":
            # without steps, a rollback starts no instances of the revision it leaves
            before = replace(before, generation=0)
        listed = self.planned(
            rollout.generation,
            rollout.replicas,
            before,
            self.plan_of(rollout),
            rollout.grown,
            rollout.carried,
        )
        if rollout.release:
            return with_release(listed, rollout.release)
        return spread_evenly(listed) if rollout.kind == RolloutKind.REBALANCE else listed


def with_old_at_most(listed: Iterable[Stage], most: int) -> tuple[Stage, ...]:
    """Return the stages with no more old instances than there are."""
    return tuple(
        replace(stage, waypoint=replace(stage.waypoint, old=min(stage.waypoint.old, most)))
        for stage in listed
    )


class InPlaceStages(Stages):
    """The stages where instances are deployed in place, so that none are added."""

    def allowed(self, replicas: int) -> ResolvedBudget:
        """Return the budget, without surge."""
        return self.settings.budget.without_surge().resolve(replicas)

    def planned(self, generation: int, replicas: int, plan: Plan) -> tuple[Stage, ...]:
        """Return the stages of a plan, beginning with all instances old, of whatever revision;
        raises InputError.
        """
        from ...engine import in_place as engine  # other platforms do without it

        try:
            listed = stages_everywhere(
                engine.steps_as_replicas(plan),
                RolloutTarget(generation, replicas, self.allowed(replicas), before=replicas),
            )
        except InvalidSteps as exc:
            raise InputError(f"rollout_steps: {exc}", "PR-109") from None
        return with_alpha(listed, plan)

    def of(self, rollout: Rollout) -> tuple[Stage, ...]:
        if rollout.phase == Phase.ROLLING_BACK:
            return (Stage(BACK, final_waypoint(rollout)),)
        listed = self.planned(rollout.generation, rollout.replicas, self.plan_of(rollout))
        return with_release(listed, rollout.release) if rollout.release else listed

    def ahead(self, rollout: Rollout) -> Sequence[Stage]:
        return self.of(rollout) if rollout.phase == Phase.ROLLING_BACK else super().ahead(rollout)


def stages_for(step: StepContext) -> Stages:
    """Return the stages for the way in which the platform's instances are replaced."""
    return InPlaceStages(step) if step.in_place else LaunchStages(step)


def refuse_in_place(step: StepContext, rollback: bool = False) -> None:
    """Refuse to start and stop instances that the user's own tasks deploy; for a rollback, name the
    previous revision.
    """
    if not step.in_place:
        return
    before = step.session.read().before if rollback else None
    raise InputError(
        f"rollout_platform.driver: instances of {step.settings.service} are deployed in place "
        f"({step.settings.platform.name}) and "
        "cannot be started or stopped; use the playbook in_place.yml, which also resumes a rollout"
        + (f". To go back, deploy {before.revision}, the previous revision" if before else ""),
        "PR-617",
    )


def deploy_target(rollout: Rollout) -> Composition:
    """Return what is deployed in place now: the rollout's revision, or during a rollback the
    previous one.
    """
    if rollout.phase == Phase.ROLLING_BACK and rollout.previous:
        return rollout.previous
    return Composition(rollout.revision, rollout.generation, rollout.replicas, rollout.order)


def final_waypoint(rollout: Rollout) -> Waypoint:
    """Return where a rollout in place ends: every instance deployed, forward or back."""
    return rolling(deploy_target(rollout).generation, rollout.replicas)


def baseline_of(plan: Plan, generation: int) -> int:
    """Return the generation of the baseline instances: the one after the new one's; 0 where the
    plan has none.
    """
    return generation + 1 if plan.baseline else 0


def spread_evenly(listed: Iterable[Stage]) -> tuple[Stage, ...]:
    """Return the stages with instances moving from crowded hosts to emptier ones."""
    return tuple(
        replace(stage, waypoint=replace(stage.waypoint, rebalance=True)) for stage in listed
    )


def with_alpha(listed: Sequence[Stage], plan: Plan) -> tuple[Stage, ...]:
    """Return the stages of a plan, with analyses that share the alpha of one."""
    if not any(gate.driver == "analysis" for gate in plan.gates):
        return tuple(listed)
    from ...analysis.alpha import shared  # many rollouts have no analysis

    return shared(listed, plan.background)


def with_release(listed: Sequence[Stage], member: MemberOf) -> tuple[Stage, ...]:
    """Return the stages of a member of a release."""
    from ...engine.release_plan import member_stages  # as above

    return member_stages(listed, member.reversible)


def stages_ahead(listed: Sequence[Stage], rollout: Rollout) -> Sequence[Stage]:
    """Return the stages of a rollout's list from the current one on."""
    # An earlier version only counted the passed stages, and asked at `promote` what `replace` asks
    # now.
    if rollout.stage:
        rollout.passed = [
            stage.name for stage in listed[: rollout.stage] if stage.name != "replace"
        ]
        rollout.stage = 0
    return remaining(listed, rollout.passed)


def planned(stage: Stage) -> dict[str, t.Any]:
    """Return a stage as the timeline shows what was planned."""
    point = stage.waypoint
    gates = [f"{gate.key} ({gate.driver})" for gate in stage.gates]
    return {
        "stage": stage.name,
        "share": point.weight,
        "new": point.new,
        "old": point.old,
        "gates": gates,
    }


def renumber(
    rollout: Rollout,
    replicas: int,
    fleet: Iterable[Instance],
    stages_of: Callable[[Rollout], Sequence[Stage]],
) -> None:
    """Continue to another number of replicas, from the same stage, without the gates' results for
    the old number.

    `stages_of` lists a rollout's stages, and raises InputError where the number cannot be reached:
    then nothing is changed.
    """
    grown = sum(
        i.generation == rollout.generation and i.state.counted and i.draining_since is None
        for i in fleet
    )
    carried = rollout.carried
    if rollout.asked and grown:  # the greatest part that an instance had
        carried = max(carried, [rollout.asked, grown], key=_part)
    scaled = replace(rollout, replicas=replicas, grown=grown, carried=carried)
    before, after = stages_of(rollout), stages_of(scaled)
    stages_ahead(before, rollout)
    rollout.passed = still_passed(before, after, rollout.passed)
    rollout.replicas = replicas
    rollout.aim = {name: min(number, replicas) for name, number in rollout.aim.items()}
    rollout.grown, rollout.carried = grown, carried
    rollout.gates, rollout.background = {}, {}


def _part(carried: Sequence[int]) -> float:
    """Return the part of the requests that each instance carried, in percent."""
    return carried[0] / carried[1] if carried else 0


def revision_of(rollout: Rollout, waypoint: Waypoint) -> str:
    """Return the revision of a waypoint's new instances: of a baseline, the stable one."""
    return (
        rollout.previous.revision if rollout.previous and waypoint.is_baseline else rollout.revision
    )
