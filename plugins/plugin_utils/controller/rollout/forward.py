# SPDX-License-Identifier: GPL-3.0-or-later
"""The way forward, through the stages to the new revision, and what follows from failures."""

from __future__ import annotations

import typing as t
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from ...base.errors import Aborted, GateFailed, RolloutFailed
from ...engine.evaluate import limit
from ...engine.model import Phase, State
from ...engine.release_plan import is_bound
from ...engine.strategy import FINISH, PARTS, PROMOTE, REPLACE, Gate, Stage
from ...report.failure import refused, without_log
from ...state import events
from ...state.record import Outcome, Rollout
from ..loop.stage_run import frozen, run_stage
from ..loop.supervisor import Proceed
from ..step.context import Result, StepContext, StepPart
from .expectation import Expectation
from .failure_policy import FailurePolicy
from .lifecycle import Lifecycle
from .rollback import Rollback
from .stages import LaunchStages, revision_of

PREPARE = Gate("prepare", "prepare")


class Forward(StepPart):
    """Run the stages of a rollout that launches new instances."""

    def __init__(self, step: StepContext) -> None:
        super().__init__(step)
        self.stages = LaunchStages(step)
        self.lifecycle = Lifecycle(step)
        self.policy = FailurePolicy(step)
        self.rollback = Rollback(step)
        self.expectation = Expectation(step)

    # -- the steps ---------------------------------------------------------------------------------

    def advance(self, through: str) -> Result:
        """Replace, promote and finish, as far as `through` says, under one lease."""
        result = self.replace()
        acted = result["changed"]
        for part in PARTS[1 : PARTS.index(through) + 1]:
            # the platform is observed again, and hosts that were away have time to answer
            self.loop.platform.retry_silent_hosts()
            self.loop.refresh()
            result = self.promote() if part == PROMOTE else self.finish()
            acted = acted or result["changed"]
        return {**result, "changed": acted}

    def replace(self) -> Result:
        """Replace the instances, up to the stage that the promotion begins with."""
        rollout = self.record.open
        if rollout is None:
            return self.step.report(False)
        self.lifecycle.refuse_rolling_back(rollout)
        rollout.step = REPLACE
        self.prepare(rollout)
        self.run(rollout, REPLACE)
        return self.step.report(self.loop.changed)

    def promote(self) -> Result:
        """Make the new revision the stable one, once enough of its instances are ready."""
        rollout = self.record.open
        if rollout is None:
            return self.step.report(False)
        self.lifecycle.refuse_rolling_back(rollout)
        rollout.step = PROMOTE
        before = rollout.phase, self.record.stable
        self.run(rollout, PROMOTE)
        if self.lifecycle.promote(rollout):
            self.loop.commit()
        after = rollout.phase, self.record.stable
        return self.step.report(self.loop.changed or after != before)

    def finish(self) -> Result:
        """Stop what is left of the old revision, write the history, and release the lease."""
        rollout = self.record.open
        if rollout is None:
            self.loop.observe_fleet()
            return self.step.report(False)
        if rollout.phase not in (Phase.PROMOTING, Phase.HOLDING):
            phase = rollout.phase.replace("_", " ")
            raise RolloutFailed(
                f"{self.settings.service} {rollout.revision} is {phase}: promote it, or roll it"
                " back, before finish",
                "PR-611",
            )
        rollout.step = FINISH
        if not self.stages.ahead(rollout) and not self.loop.fleet:
            # an earlier run ended when it had passed them: what it saw may be long ago
            last = replace(self.stages.of(rollout)[-1], gates=())
            self.run_stage(last, rollout, revision_of(rollout, last.waypoint))
        self.run(rollout, FINISH)
        self.lifecycle.make_stable(rollout)  # an operator may have scaled it
        self.lifecycle.close(Outcome.PROMOTED, rollout.reason)
        return self.step.report(True)

    # -- their stages ------------------------------------------------------------------------------

    def run(self, rollout: Rollout, part: str) -> None:
        """Run the stages up to the last one that belongs to this part."""
        mine = PARTS[: PARTS.index(part) + 1]
        while (ahead := self.stages.ahead(rollout)) and ahead[0].part in mine:
            if (
                self.run_stage(ahead[0], rollout, revision_of(rollout, ahead[0].waypoint))
                is Proceed.RENUMBER
            ):
                self.lifecycle.rescale(rollout)
                continue
            count = 1
            while rollout.full and count < len(ahead) and self._is_skipped(ahead[count]):
                count += 1
            if ahead[0].part == PROMOTE:  # in one write: no run promotes without looking
                self.lifecycle.promote(rollout)
            self.lifecycle.pass_stages(rollout, ahead, count)

    @staticmethod
    def _is_skipped(stage: Stage) -> bool:
        """Return whether `promote_full` passes the stage without arriving there."""
        return stage.part == REPLACE and not is_bound(stage)

    def prepare(self, rollout: Rollout) -> None:
        """Bring what the revision needs to every host, before its first instance starts."""
        # a rollout that waits for a person was prepared before
        if not rollout.passed and rollout.phase == Phase.PROGRESSING:
            longest = {"longest": self.settings.rules.progress_deadline}
            self.wait_at(rollout, replace(PREPARE, options=longest), Phase.PROGRESSING)

    def wait_at(self, rollout: Rollout, gate: Gate, phase: Phase) -> None:
        """Wait for a gate in this phase, keeping the fleet as it is and in repair."""

        def here() -> Stage:
            stage = (self.stages.ahead(rollout) or self.stages.of(rollout)[-1:])[0]
            waypoint = frozen(self.loop.observe_fleet(), stage.waypoint, rollout.previous)
            # while hosts are prepared, no new instance exists
            watched = stage.watched and phase != Phase.PROGRESSING
            return Stage(
                gate.key,
                waypoint,
                (gate,),
                waiting=phase,
                reversible=stage.reversible,
                watched=watched,
                share=stage.share,
            )

        self.run_scalable(here, rollout)
        rollout.gates.pop(gate.key, None)
        self.loop.commit()

    def run_scalable(
        self, stage: Callable[[], Stage], rollout: Rollout, revision: str | None = None
    ) -> None:
        """Run a stage, and make it anew each time an operator scales the rollout."""
        proceed = Proceed.RENUMBER
        while proceed is Proceed.RENUMBER:
            self.lifecycle.rescale(rollout)
            here = stage()
            proceed = self.run_stage(here, rollout, revision or revision_of(rollout, here.waypoint))

    def run_stage(self, stage: Stage, rollout: Rollout, revision: str) -> Proceed:
        """Run one stage; raises RolloutFailed once what follows is in the journal."""
        self.lifecycle.enter_stage(rollout, stage)
        rollout.asked = stage.waypoint.weight
        rollout.reversible = stage.reversible
        self.loop.event(self._entered(stage))
        try:
            expected = self.expectation.along(self.stages.ahead(rollout))
            return run_stage(
                self.loop, stage, revision, rollout, self.step.describe, expected=expected
            )
        except RolloutFailed as exc:
            return self._fail(stage, rollout, exc)

    def _entered(self, stage: Stage) -> events.StageEntered:
        """Return the event of entering a stage, with the bounds that the budget sets there."""
        point = stage.waypoint
        allowed = self.settings.budget.resolve(point.desired)
        return events.StageEntered(
            stage=stage.name,
            share=point.weight,
            new=point.new,
            old=point.old,
            floor=point.desired - allowed.unavailable,
            ceiling=limit(point, allowed),
        )

    def _fail(self, stage: Stage, rollout: Rollout, exc: RolloutFailed) -> Proceed:
        """Do what follows from a failure; return if the rollout continues."""
        ending = self.policy.follow(stage, rollout, exc, partial(self._roll_back, stage, rollout))
        if ending is None:
            return Proceed.GO
        title = f"{self.settings.service} {rollout.revision}"
        raise RolloutFailed(f"{title}: {without_log(str(exc))}{ending}", exc.id) from None

    def _roll_back(self, stage: Stage, rollout: Rollout, exc: RolloutFailed) -> t.NoReturn:
        """Roll back because of a failure, or close a rollout of which nothing was started."""
        prepares = any(gate.key == PREPARE.key for gate in stage.gates)
        if prepares and isinstance(exc, GateFailed) and self._untouched(rollout):
            self._refuse(rollout, exc)
        if not isinstance(exc, Aborted):
            title = f"{self.settings.service} {rollout.revision}"
            self.loop.show(f"{title} failed at {stage.name} [{exc.id}]: rolling back")
        self.rollback.carry_out(rollout, exc)

    def _untouched(self, rollout: Rollout) -> bool:
        """Return whether the fleet is the stable one alone, so that nothing is to be undone."""
        stable = rollout.previous.generation if rollout.previous else None
        return all(
            i.generation == stable and i.state is not State.DRAINING
            for i in self.loop.fleet
            if i.state.counted
        )

    def _refuse(self, rollout: Rollout, exc: GateFailed) -> t.NoReturn:
        """Close a rollout of which nothing was started; raises RolloutFailed."""
        rollout.cause = exc.id
        self.lifecycle.close(Outcome.REFUSED, str(exc))
        raise RolloutFailed(refused(self.settings.service, rollout), exc.id) from None
