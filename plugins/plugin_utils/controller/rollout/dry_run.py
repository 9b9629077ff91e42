# SPDX-License-Identifier: GPL-3.0-or-later
"""Check mode: what a step would do with a rollout that it would open, resume or roll back."""

from __future__ import annotations

from dataclasses import replace

from ...engine.model import Composition, Phase
from ...engine.strategy import Plan, rolling
from ...state.record import Rollout, RolloutKind
from ..step.context import Result, StepContext, StepPart
from . import known_good
from .adoption import adopt
from .request import requested
from .rollback import Rollback, nothing_to_roll_back
from .stages import LaunchStages, renumber, spread_evenly
from .validation import Validation, fewer


class DryRun(StepPart):
    """The results of steps in check mode."""

    def __init__(self, step: StepContext) -> None:
        super().__init__(step)
        self.stages = LaunchStages(step)
        self.validation = Validation(step)

    def forward(self) -> Result:
        """Return what a step after `begin` would do, which has opened no rollout in check mode."""
        self.step.begin()
        record = self.record
        if record.open is not None:
            return self.resume(record.open, record.open.replicas)
        revision, replicas = requested(self.step)
        self.loop.observe_fleet()
        adopt(self.step)
        if record.stable is not None and record.stable.revision == revision:
            return self.open(
                RolloutKind.SCALE, revision, record.stable.generation, replicas, Plan()
            )
        generation, plan = record.generation + 1, known_good.plan_of(self.step, revision)
        return self.open(RolloutKind.ROLLOUT, revision, generation, replicas, plan)

    def open(
        self,
        kind: RolloutKind,
        revision: str,
        generation: int,
        replicas: int,
        plan: Plan,
        line: str = "",
    ) -> Result:
        """Return what a new rollout that follows this plan would do; `line` begins a line on it."""
        stable = self.record.stable
        base = self.validation.kept_replicas(replicas, plan)
        stages = self.stages.planned(
            generation, replicas, stable and replace(stable, replicas=base), plan
        )
        if kind == RolloutKind.REBALANCE:
            stages = spread_evenly(stages)
        if line:
            message = {"msg": f"{line}: {', '.join(stage.name for stage in stages)}"}
        else:
            message = fewer(self.record.service, base, replicas, self.loop.targets)
        return self.step.would([stage.waypoint for stage in stages], revision, **message)

    def resume(self, rollout: Rollout, replicas: int) -> Result:
        """Return what the rollout in progress would do."""
        if rollout.phase == Phase.ROLLING_BACK:
            return self.rollback()
        rollout = replace(rollout)
        if replicas not in (rollout.replicas, rollout.played):
            renumber(rollout, replicas, self.loop.fleet, self.stages.of)
        ahead = [stage.waypoint for stage in self.stages.ahead(rollout)]
        return self.step.would(ahead or [rolling(rollout.generation, replicas)], rollout.revision)

    def rollback(self, to: str | None = None, plan: Plan | None = None) -> Result:
        """Return what a rollback would do; `plan`: its steps, where it has any."""
        if (rollout := self.record.open) is not None:
            back = (
                rollout
                if rollout.kind == RolloutKind.ROLLBACK
                else rollout.previous or Composition(rollout.revision, 0, 0)
            )
            return self._back(rollout.revision, back)
        target = Rollback(self.step).target(to)
        if target is None:
            return self.step.report(False, msg=nothing_to_roll_back(self.record))
        current = self.record.stable.revision if self.record.stable else ""
        if plan is None:
            return self._back(current, target)
        line = self._leading(current, target.revision)
        generation, replicas = target.generation, target.replicas
        return self.open(RolloutKind.ROLLBACK, target.revision, generation, replicas, plan, line)

    def _back(self, current: str, target: Rollout | Composition) -> Result:
        """Return what the way to `target` would do, and tell where it leads."""
        path = [rolling(target.generation, target.replicas)]
        if current in ("", target.revision):  # nothing else to go back to, or it is under way
            return self.step.would(path, target.revision)
        line = self._leading(current, target.revision)
        return self.step.would(path, target.revision, msg=line)

    def _leading(self, current: str, target: str) -> str:
        return f"{self.record.service}: would roll back from {current} to {target}"
