# SPDX-License-Identifier: GPL-3.0-or-later
"""Validate everything, take the lease, and resume a rollout, open one, or find nothing to do."""

from __future__ import annotations

import typing as t
from dataclasses import replace
from functools import cached_property, partial

from ..plugin_utils.base.errors import Aborted, InputError, LeaseHeld, RolloutFailed
from ..plugin_utils.base.text import printable
from ..plugin_utils.config.step_options import (
    PLAY_HOSTS,
    REACHED,
    REBALANCE,
    RESTART,
    UNPREPARED,
    VARIABLE_NAMES,
    WHY,
)
from ..plugin_utils.controller.rollout import platform_change
from ..plugin_utils.controller.rollout.adoption import adopt, declare
from ..plugin_utils.controller.rollout.generations import Generations
from ..plugin_utils.controller.rollout.places import PlacementNotes
from ..plugin_utils.controller.rollout.request import requested, supersedes
from ..plugin_utils.controller.rollout.validation import Validation, fewer
from ..plugin_utils.controller.step import reason
from ..plugin_utils.controller.step.action import StepAction, display, plain
from ..plugin_utils.controller.step.context import Result, StepContext, StepPart
from ..plugin_utils.engine.model import Phase
from ..plugin_utils.engine.strategy import Plan, rolling
from ..plugin_utils.inputs.options import Options
from ..plugin_utils.state import commands
from ..plugin_utils.state.record import RolloutKind

if t.TYPE_CHECKING:
    from ..plugin_utils.controller.rollout.dry_run import DryRun
    from ..plugin_utils.controller.rollout.in_place import InPlace
    from ..plugin_utils.controller.rollout.lifecycle import Lifecycle
    from ..plugin_utils.state.record import Rollout


class ActionModule(StepAction):
    opens = True
    options = Options(RESTART, REBALANCE, WHY, VARIABLE_NAMES, UNPREPARED, PLAY_HOSTS, REACHED)

    def _run(self, task_vars: dict[str, t.Any]) -> Result:
        """Run the step, and return for which of the play's hosts the next steps continue."""
        if "hosts" in self._task.args:
            from ..plugin_utils.controller.step import plays  # in place alone

            plays.check(self._task.get_play(), task_vars)
        return {"acting_host": str(task_vars.get("inventory_hostname")), **super()._run(task_vars)}

    def _open(self, task_vars: dict[str, t.Any], outlives: bool = False) -> StepContext:
        """Make the step's context; receivers are told of arguments that are refused."""
        try:
            return super()._open(task_vars, outlives)
        except InputError as exc:
            if not self._task.check_mode and self._task.args.get("notify"):
                self._send_rejection(exc, task_vars)
            raise

    def _send_rejection(self, exc: InputError, task_vars: dict[str, t.Any]) -> None:
        from ..plugin_utils.controller.background import rejection  # of wrong arguments
        from ..plugin_utils.controller.loop.interrupt import Guard
        from ..plugin_utils.remote.transport import Transport
        from ..plugin_utils.state import identity

        rejection.of_arguments(
            plain(self._task.args),
            Transport.from_action(self, task_vars),
            identity.identity(Guard().parent, task_vars, self._task).holder,
            exc,
            lambda line: display.warning(printable(line)),
        )

    def perform(self, step: StepContext) -> Result:
        begin = _Begin(step)
        step.beginning = True
        result = begin.run()
        if step.in_place and step.record.open and not step.check_mode:
            begin.in_place.skip_unreachable(step.record.open)
        return result


class _Begin(StepPart):
    def __init__(self, step: StepContext) -> None:
        super().__init__(step)
        self.validation = Validation(step)
        self.restart = step.options["restart"]
        self.rebalance = step.options["rebalance"]
        self.why = reason.given(step.options)

    @cached_property
    def lifecycle(self) -> Lifecycle:
        from ..plugin_utils.controller.rollout.lifecycle import Lifecycle  # a run with work to do

        return Lifecycle(self.step)

    @cached_property
    def in_place(self) -> InPlace:
        from ..plugin_utils.controller.rollout.in_place import InPlace  # few services are

        return InPlace(self.step)

    @property
    def dry_run(self) -> DryRun:
        """What the step would do."""
        from ..plugin_utils.controller.rollout.dry_run import DryRun  # in check mode alone

        return DryRun(self.step)

    def run(self) -> Result:
        revision, replicas = self._validate()
        if host := self._take_lease(revision, replicas):
            return self.step.left_to(host)
        if not self.step.check_mode and self.loop.has_autoscaler:
            self.loop.autoscaling.begin(self.record.open)
        declare(self.step)
        self.loop.observe_fleet()
        adopt(self.step)
        if self.step.in_place:
            for line in self.in_place.plan.unproven():
                self.step.print_line(line)
            self.in_place.deployments.retry_failed()
            self.in_place.plan.refuse_unreachable(revision, self.restart)
            if self.step.check_mode:
                return self.in_place.plan.show(would=True, restart=self.restart)
        self.validation.check_order(revision)  # now that nobody else begins one
        rollout = self.record.open
        if rollout is None:
            self.step.notify_release()  # what a killed run did not
        if self._retreat:
            return self._go_back(rollout)
        if rollout is None or supersedes(self.step, revision, rollout):
            return self._open(revision, replicas)
        if not self.step.in_place and (command := commands.pending_abort(self.step.session)):
            if self.step.check_mode:
                return self.dry_run.rollback()
            from ..plugin_utils.controller.rollout.rollback import Rollback  # here alone

            self.step.beginning = False
            Rollback(self.step).abort(rollout, command)
        self.validation.check_gates(self.settings.plan)
        self.lifecycle.check_resumable(rollout, revision)
        if self.step.check_mode:
            return self.dry_run.resume(rollout, replicas)
        self.step.beginning = False
        return self.lifecycle.resume(rollout, replicas)

    def _take_lease(self, revision: str, replicas: int) -> str:
        """Take the lease, from a run that is superseded, too; return the host that does the step
        instead, "" if this one does.
        """
        try:
            return self.step.begin_once()
        except LeaseHeld as exc:
            from ..plugin_utils.controller.rollout import takeover  # of a rollout in progress

            return takeover.supersede(self.step, revision, replicas, exc)

    def _validate(self) -> tuple[str, int]:
        if unprepared := self.step.options.get("unprepared"):
            raise InputError(
                f"rollout_prepare_tasks: {', '.join(map(str, unprepared))}: not prepared, so"
                " nothing was touched; run progressive.rollout.prepare first, and bring back hosts"
                " that were not reached, or remove them from rollout_platform.hosts",
                "PR-224",
            )
        in_play = "hosts" in self.step.options
        if in_play:
            self.in_place.plan.check()
        revision, replicas = requested(self.step, self.restart)
        self.step.session.read()
        platform_change.refuse(self.step)
        self.step.session.foresee_exclusions()
        if not in_play and (commands.pending_abort(self.step.session) or self._retreat):
            return revision, replicas  # nothing of the plan is ahead
        self.validation.check_order(revision)
        self.validation.check_window()
        plan = self.settings.asked if in_play or not self._repairs(revision) else Plan()
        if not in_play:
            self.validation.check_capacity(replicas, plan)
        self.validation.check(replicas, plan)
        if in_play:
            self.in_place.plan.check_entries()
        return revision, replicas

    def _go_back(self, rollout: Rollout | None) -> Result:
        """Take the rollout back, as its release demands, whatever its plan is now."""
        if rollout is None:
            return self.step.report(False, msg=f"{self.record.service}: {self._retreat}")
        self.step.beginning = False
        if rollout.phase == Phase.ROLLING_BACK:
            return self.lifecycle.resume(rollout, rollout.replicas)
        if self.step.check_mode:
            return self.dry_run.rollback()
        from ..plugin_utils.controller.rollout.rollback import Rollback  # here alone

        Rollback(self.step).carry_out(rollout, Aborted(self._retreat, "PR-635"))

    @cached_property
    def _retreat(self) -> str:
        """Why the release of the rollout in progress takes it back; "": it does not."""
        rollout = self.record.open
        joined = rollout is not None and rollout.release is not None and not self.step.in_place
        return self.step.release.retreat() if joined else ""

    def _repairs(self, revision: str) -> bool:
        """Return whether the stable revision is only repaired or scaled: by no strategy, so that it
        needs no room for one.
        """
        record = self.record
        stable = record.stable.revision if record.stable and record.open is None else None
        return revision == stable and not self.restart

    def _open(self, revision: str, replicas: int) -> Result:
        """Open a rollout, unless the fleet is already as asked for."""
        step, record = self.step, self.record
        if record.adopted and not self.restart:
            from ..plugin_utils.controller.rollout import adopted  # of first rollouts alone

            adopted.refuse_same(record, revision)
        kind, generation = (
            RolloutKind.RESTART if self.restart else RolloutKind.ROLLOUT,
            record.generation + 1,
        )
        if record.stable and record.stable.revision == revision and not self.restart:
            generation = record.stable.generation
            same = self._kind_of_same(revision, generation, replicas)
            if same is None:
                return self._nothing_to_do(revision, replicas)
            kind = same
        self.validation.check_gates(self.settings.plan)
        membership = self.settings.release
        if membership and not kind.forward and self.record.open is None:
            self.step.release.leave_out(membership, revision)
        self.validation.check_neighbours()
        self.validation.check_health()
        if kind not in (RolloutKind.SCALE, RolloutKind.REBALANCE):
            self.validation.check_same_balancers()
        if beside := step.unmanaged.described(step.fleet):
            step.print_line(f"{record.service}: {beside}; they keep them [PR-338]")
        for line in self.validation.risks(
            replicas, self.settings.asked if kind.forward else Plan()
        ):
            step.print_line(line)
        if not replicas:
            plan = Plan()
            step.print_line(
                f"{record.service}: its owner has scaled it to 0, so {revision} is promoted without"
                " an instance, and without steps and gates, which would have none to judge"
            )
        elif kind == RolloutKind.ROLLOUT and self.settings.known_good:
            from ..plugin_utils.controller.rollout import known_good  # few services have it

            plan = known_good.plan_of(step, revision)
        else:
            plan = self.settings.plan if kind.forward else Plan()
        if step.settings.adopt and not step.in_place:
            from ..plugin_utils.controller.rollout import adopted  # as above

            step.print_line(f"{record.service}: {adopted.effect(record)}")
        joins = membership is not None and kind.forward
        if membership is None and record.open is None and kind.forward:
            self._refuse_alone()
        release = step.release.join(membership, revision) if membership and joins else None
        if step.check_mode:
            return self.dry_run.open(kind, revision, generation, replicas, plan)
        step.beginning = False
        if record.open is not None:
            self.lifecycle.supersede(record.open, revision)
        base = 0 if step.in_place else self.validation.kept_replicas(replicas, plan)
        open_ = partial(self.lifecycle.open, plan=plan, why=self.why, release=release)
        open_(kind, revision, generation, replicas, base)
        return step.report(True, **fewer(record.service, base, replicas, step.loop.targets))

    def _refuse_alone(self) -> None:
        """Refuse to roll a member of a release in progress out without its release."""
        from ..plugin_utils.controller.step.release import in_progress  # of rollouts that begin

        service = self.record.service
        if name := in_progress(self.step, service):
            raise RolloutFailed(
                f"rollout_release: {service} is a member of release {name}, which is in progress"
                " and replaces what is rolled out now; run release.yml, or wait for its end",
                "PR-638",
            )

    def _kind_of_same(self, revision: str, generation: int, replicas: int) -> RolloutKind | None:
        """Return the kind of a rollout of the stable revision; None: there is nothing to do."""
        record = self.record
        if unapplied := Generations(self.step).differences(revision, generation):
            self.step.print_line(
                f"{record.service} {revision} runs with other settings: {'; '.join(unapplied)};"
                " apply the current ones with restart.yml"
            )
        final = rolling(generation, replicas)
        reached = self.loop.next_decision(final).reached and not self.loop.has_orphaned_entries()
        if self.rebalance and not self.loop.next_decision(replace(final, rebalance=True)).reached:
            return RolloutKind.REBALANCE
        return None if reached and record.open is None else RolloutKind.SCALE

    def _nothing_to_do(self, revision: str, replicas: int) -> Result:
        if membership := self.settings.release:
            self.step.notify_release()
            self.step.release.leave_out(membership, revision)
        if not self.step.check_mode:
            self.loop.tidy()
        places = PlacementNotes(self.step)
        for line in filter(None, [*places.left(), places.idle_hosts()]):
            self.step.print_line(line)
        done = (
            f"{self.record.service} {revision} already runs with {replicas} instance(s); nothing"
            " to do"
        )
        return self.step.report(False, msg=done)
