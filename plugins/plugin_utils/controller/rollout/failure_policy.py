# SPDX-License-Identifier: GPL-3.0-or-later
"""What follows from the failure of a stage, whether instances are launched or deployed in place."""

from __future__ import annotations

from collections.abc import Callable

from ...base.errors import Aborted, GateFailed, RolloutFailed
from ...engine.model import UNKNOWN, Composition, FailureAction, Phase
from ...engine.strategy import FINISH, Stage
from ...state import events
from ...state.record import Outcome, Rollout, RolloutKind
from ..step.context import StepContext, StepPart
from .lifecycle import Lifecycle


class FailurePolicy(StepPart):
    """Continue, hold, roll back or end a rollout of which a stage has failed."""

    def __init__(self, step: StepContext) -> None:
        super().__init__(step)
        self.lifecycle = Lifecycle(step)

    def follow(
        self,
        stage: Stage,
        rollout: Rollout,
        exc: RolloutFailed,
        roll_back: Callable[[RolloutFailed], None],
        reason: str = "",
    ) -> str | None:
        """Do what follows from a failure, and write it to the journal with this reason.

        Return how the message about the failure ends; None: the rollout continues.
        """
        action = failure_action(self.settings.on_failure, stage, rollout, exc)
        reason = reason or str(exc)
        if action == FailureAction.ROLLBACK and rollout.release and not isinstance(exc, Aborted):
            if held := self.step.release.holds():
                action, reason = FailureAction.HOLD, f"{reason}; {held}"
        if action == FailureAction.CONTINUE and isinstance(exc, GateFailed):
            self.loop.event(events.GateDecided(message=f"continuing despite: {exc}", passed=True))
            return None
        if action == FailureAction.ROLLBACK and self.can_roll_back(rollout):
            roll_back(exc)
            return ""
        # in place, the next run continues with the other hosts
        if action == FailureAction.CONTINUE and not self.step.in_place:
            rollout.cause = exc.id
            self.lifecycle.close(Outcome.FAILED, reason, settled=False)
            return "; the fleet is left as it is"
        if action == FailureAction.ROLLBACK:
            reason += "; no rollback, since no previous revision is known"
        self.lifecycle.hold(rollout, reason)
        return "; rollout held. Rerun to resume, or run rollback.yml"

    def can_roll_back(self, rollout: Rollout) -> bool:
        """Return whether a rollback is possible: in place, only to a revision that is known."""
        return not self.step.in_place or known_before(rollout) is not None


def failure_action(
    on_failure: FailureAction, stage: Stage, rollout: Rollout, exc: RolloutFailed
) -> FailureAction:
    """Return what follows from a failure. `on_failure` is what the settings say."""
    if rollout.kind == RolloutKind.ROLLBACK or rollout.phase == Phase.ROLLING_BACK:
        return FailureAction.HOLD  # a rollback is never rolled back
    if isinstance(exc, Aborted):
        return FailureAction.ROLLBACK
    action = FailureAction(exc.then or stage.on_failure or on_failure)
    # A failed clean-up is no reason to roll a good revision back, and some steps are irreversible.
    # As long as the old instances are kept, a rollback is possible.
    cleaning = stage.part == FINISH and not stage.waypoint.old
    return (
        FailureAction.HOLD
        if action == FailureAction.ROLLBACK and (cleaning or not stage.reversible)
        else action
    )


def known_before(rollout: Rollout) -> Composition | None:
    """Return what a rollback in place would deploy; None where no earlier revision is known."""
    back = rollout.previous
    return (
        back
        if back and back.revision != UNKNOWN and back.generation != rollout.generation
        else None
    )
