# SPDX-License-Identifier: GPL-3.0-or-later
"""Deploy in place: batches of hosts leave rotation, run the user's tasks, and return."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from ...base import clock
from ...base.errors import PlatformError, RolloutFailed, TrafficError, TransportError
from ...engine import in_place as engine
from ...engine.evaluate import Decision
from ...engine.instances import is_available
from ...engine.model import Composition, FailureAction, Instance, Phase
from ...engine.progress import ProgressTracker, Rules, failure_limits
from ...engine.strategy import Stage, Waypoint
from ...report.failure import rolled_back
from ...state.record import Outcome, Rollout
from ..loop.stage_run import run_stage
from ..loop.supervisor import Proceed
from ..step.context import Result, StepContext, StepPart
from .deployments import Deployments, with_reasons
from .failure_policy import FailurePolicy, failure_action
from .in_place_plan import InPlacePlan
from .lifecycle import Lifecycle
from .rollback import Rollback
from .stages import InPlaceStages, deploy_target, final_waypoint

Decide = Callable[[Sequence[Instance], Waypoint, Rules, ProgressTracker, float], Decision]


class InPlace(StepPart):
    """Run an in-place rollout, batch by batch."""

    def __init__(self, step: StepContext) -> None:
        super().__init__(step)
        self.stages = InPlaceStages(step)
        self.plan = InPlacePlan(step)
        self.deployments = Deployments(step)
        self.lifecycle = Lifecycle(step)
        self.policy = FailurePolicy(step)
        self.rollback = Rollback(step)

    # -- the steps ---------------------------------------------------------------------------------

    def skip_unreachable(self, rollout: Rollout) -> None:
        """Count unreachable hosts as failed; they are not touched, and stay in rotation."""
        lost, fleet = self.deployments.unreachable(), self._await_look()
        skipped = engine.unreachable(fleet, final_waypoint(rollout), self.plan.scope(rollout), lost)
        for instance in skipped:
            self.deployments.skip(instance, lost[instance.host])
        if skipped:
            self._count_failures(rollout, skipped)

    def take_out(self, rollout: Rollout) -> list[str]:
        """Take the next hosts out of rotation; return none if nothing is left, or it failed."""
        self.skip_unreachable(rollout)
        if rollout.phase != Phase.HELD and not self.stages.ahead(rollout):
            # commands may have come since an earlier run passed all stages
            last = replace(self.stages.of(rollout)[-1], gates=())
            self._run_stage(rollout, last, engine.hold_batch)
        while rollout.phase != Phase.HELD and (ahead := self.stages.ahead(rollout)):
            stage, scope = ahead[0], self.plan.scope(rollout)
            fleet = self.loop.observe_fleet()
            if engine.deployed(fleet, stage.waypoint) < stage.waypoint.new or engine.batch_out(
                fleet, scope
            ):
                drain = partial(
                    engine.drain_batch, allowed=self.stages.allowed(rollout.replicas), scope=scope
                )
                draining = self.record.draining
                serving = {
                    i.id: Composition(i.revision, i.generation, 1)
                    for i in fleet
                    if i.id not in draining
                }
                if self._run_stage(rollout, replace(stage, gates=()), drain):
                    return self.deployments.begin(
                        rollout, engine.batch_out(self.loop.fleet, scope), serving
                    )
            elif rollout.phase == Phase.ROLLING_BACK:
                return []
            elif self._run_stage(rollout, stage, engine.hold_batch):
                self.lifecycle.pass_stages(rollout, ahead)
        return []

    def put_back(self, rollout: Rollout, results: Mapping[str, str]) -> None:
        """Put hosts back into rotation, except those that failed or do not become ready.

        `results` has a reason for each host whose tasks failed. Where the failures lead to a
        rollback, the other hosts of the batch stay out as well, and are deployed back together with
        them.
        """
        target = deploy_target(rollout)
        stage = self.stages.of(rollout)[-1]
        fleet = self._await_look()
        out = engine.batch_out(fleet, self.plan.scope(rollout))
        batch = [i for i in out if i.host in results and i.generation == target.generation]
        rollout.count(self._progress(rollout, stage))
        self.deployments.end(rollout, batch, results)
        if not self._will_roll_back(rollout, stage, batch):
            self._admit(rollout, stage, batch, results)
        self._count_failures(rollout, batch)

    def _admit(
        self, rollout: Rollout, stage: Stage, batch: Sequence[Instance], results: Mapping[str, str]
    ) -> None:
        record, target = self.record, deploy_target(rollout)
        names = frozenset(
            i.id
            for i in batch
            if not results[i.host] or record.deployed[i.id].generation != target.generation
        )
        record.draining = {
            name: since for name, since in record.draining.items() if name not in names
        }
        allowed, rules = self.stages.allowed(rollout.replicas), self.loop.rules_for(stage, rollout)
        self.loop.observer.returning = set(names)
        details: dict[str, str] = {}  # before what is late is taken out again

        def admit(fleet: Sequence[Instance], *args: t.Any) -> Decision:
            details.update({i.id: i.detail for i in fleet if i.draining_since is None})
            return engine.admit_batch(fleet, *args, allowed=allowed, names=names)

        if names and self._run_stage(rollout, replace(stage, gates=(), name=rollout.name), admit):
            for instance in self.loop.fleet:
                if instance.id in names and not is_available(instance, rules, clock.now()):
                    why = details.get(instance.id) or "not in rotation in time"
                    out = instance.draining_since is not None
                    self.deployments.fail(instance, f"not healthy: {why}", out=out)

    def finish(self, rollout: Rollout) -> Result:
        """End the run: promoted, or raise RolloutFailed: rolled back, held, or left to the next."""
        target, title = deploy_target(rollout), f"{self.settings.service} {rollout.revision}"
        left = [
            i
            for i in self.loop.observe_fleet()
            if not engine.is_deployed(i, final_waypoint(rollout))
        ]
        have = f"{rollout.replicas - len(left)} of {rollout.replicas} instances have"
        failed = with_reasons(self.deployments.failed_hosts())
        out = with_reasons(self.deployments.failed_hosts(out=True))
        if rollout.phase == Phase.HELD:
            raise RolloutFailed(
                f"{title}: rollout held: {rollout.reason}. Rerun to resume, or abort it (abort.yml)"
                " and rerun to roll back",
                "PR-606",
            )
        if any(
            i.id not in self.record.deployed or not self.record.deployed[i.id].failed for i in left
        ):
            still = f". Out of rotation: {out}" if out else ""
            return self.step.parked(
                f"{title}: {have} {target.revision}; the other hosts are not in this run. Rerun it"
                f" for them to continue{still}"
            )
        if rollout.phase == Phase.ROLLING_BACK:
            self._end_rollback(rollout, out)
        if failed:
            self.lifecycle.hold(rollout, failed)
            raise RolloutFailed(f"{title}: {have} it; rerun for the others. {failed}", "PR-614")
        if self.stages.ahead(rollout):
            raise RolloutFailed(
                f"{title}: still waiting at {rollout.name}; rerun to continue", "PR-611"
            )
        self.record.stable = target
        self.lifecycle.enter(rollout, Phase.PROMOTING)
        self.lifecycle.close(Outcome.PROMOTED, rollout.reason)
        return self.step.report(True)

    def _end_rollback(self, rollout: Rollout, out: str) -> t.NoReturn:
        self.record.stable = deploy_target(rollout)
        self.lifecycle.close(rollout.ending or Outcome.ROLLED_BACK, rollout.reason)
        still = f". Still out of rotation: {out}" if out else ""
        raise RolloutFailed(
            rolled_back(self.settings.service, rollout, still), rollout.cause or "PR-608"
        )

    @contextmanager
    def explained(self) -> Iterator[None]:
        """If hosts or load balancers stop answering, tell what the next run will do."""
        try:
            yield
        except (TrafficError, TransportError, PlatformError) as exc:
            rollout = self.record.open
            if rollout is None:
                raise
            why = f" Why: {rollout.reason}" if rollout.reason else ""
            title = f"{self.settings.service} {rollout.revision}"
            raise RolloutFailed(
                f"{title}: {self._standing(rollout)}. {exc}.{why}", exc.id
            ) from None

    def _standing(self, rollout: Rollout) -> str:
        deployed = self.record.deployed.items()
        mine = {
            name
            for name, deployment in deployed
            if deployment.generation == rollout.generation and not deployment.failed
        }
        have = (
            f"{len(mine - self.record.draining.keys())} of {rollout.replicas} instances have"
            f" {rollout.revision}"
        )
        if rollout.phase == Phase.ROLLING_BACK:
            return (
                f"rolling back to {deploy_target(rollout).revision}, {have}; rerun to finish the"
                " rollback"
            )
        if rollout.phase == Phase.HELD:
            return f"rollout held, {have}; rerun to resume"
        return f"{have}; rerun to continue"

    # -- stages and failures -----------------------------------------------------------------------

    def _run_stage(self, rollout: Rollout, stage: Stage, decide: Decide) -> bool:
        """Run a stage; return False where it failed, and what follows is in the journal."""
        self.lifecycle.enter_stage(rollout, stage)
        replaced = rollout.replaced
        try:
            proceed = Proceed.SKIP
            while proceed in (Proceed.SKIP, Proceed.RENUMBER):
                self.lifecycle.rescale(rollout)
                proceed = run_stage(
                    self.loop,
                    stage,
                    deploy_target(rollout).revision,
                    rollout,
                    self.step.describe,
                    decide=lambda fleet, waypoint, _budget, rules, progress, now: decide(
                        fleet, waypoint, rules, progress, now
                    ),
                )
                if proceed is Proceed.SKIP and stage.gates:
                    break
        except RolloutFailed as exc:
            return self._fail(rollout, stage, exc)
        finally:
            rollout.replaced = replaced  # the user's tasks replace instances
        return True

    def _fail(self, rollout: Rollout, stage: Stage, exc: RolloutFailed) -> bool:
        """Do what follows from a failure; return whether the rollout continues."""
        failed = with_reasons(self.deployments.failed_hosts())
        reason = f"{failed} ({exc})" if failed else str(exc)

        def roll_back(cause: RolloutFailed) -> None:
            self.rollback.start(rollout, reason, cause)
            self.deployments.roll_back(deploy_target(rollout))

        ending = self.policy.follow(stage, rollout, exc, roll_back, reason)
        self.loop.commit()
        return ending is None

    def _will_roll_back(self, rollout: Rollout, stage: Stage, batch: Sequence[Instance]) -> bool:
        """Return whether the failures so far lead to a rollback."""
        exc = self._limit_reached(rollout, stage, self._progress(rollout, stage, batch))
        if exc is None or not self.policy.can_roll_back(rollout):
            return False
        action = failure_action(self.settings.on_failure, stage, rollout, exc)
        return action == FailureAction.ROLLBACK

    def _count_failures(self, rollout: Rollout, batch: Sequence[Instance]) -> None:
        """Count failed deployments; too many end the rollout."""
        stage = self.stages.of(rollout)[-1]
        self.loop.observe_fleet()
        if rollout.tally is None:
            rollout.count(self._progress(rollout, stage))
        rollout.count(self._progress(rollout, stage, batch))
        if exc := self._limit_reached(rollout, stage, rollout.counting(clock.now())):
            self._fail(rollout, stage, exc)
        self.loop.commit()

    def _progress(
        self, rollout: Rollout, stage: Stage, batch: Iterable[Instance] = ()
    ) -> ProgressTracker:
        """Return the progress with the fleet as last observed and the failures of a batch."""
        fleet, now = self.loop.fleet, clock.now()
        done = engine.deployed(fleet, stage.waypoint)
        return rollout.counting(now).advance(
            done, len(fleet) - done, self.deployments.failures(batch), now
        )

    def _limit_reached(
        self, rollout: Rollout, stage: Stage, progress: ProgressTracker
    ) -> RolloutFailed | None:
        """Return the failure if too many instances failed; a rollback deploys what it can."""
        limits = failure_limits(self.loop.rules_for(stage, rollout), progress, stable=False)
        reached = [limit.most for limit in limits if limit.is_reached]
        if not reached or rollout.phase in (Phase.ROLLING_BACK, Phase.HELD):
            return None
        return RolloutFailed(f"rollout_failure_limit is {reached[0]}", "PR-604")

    def _await_look(self) -> Sequence[Instance]:
        """Observe, and wait for hosts that do not answer up to the progress deadline."""
        try:
            self.loop.await_fleet()
        except RolloutFailed as exc:
            # the rollout is not to fail by that: see `explained`
            raise TrafficError(str(exc), exc.id) from None
        return self.loop.fleet
