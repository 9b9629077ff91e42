# SPDX-License-Identifier: GPL-3.0-or-later
"""Watches a promoted revision for a while, without the lease: a rollout may begin at any time.

If the revision fails, the watch takes the lease and rolls back.
"""

from __future__ import annotations

import typing as t

from ...base import clock
from ...base.errors import InputError, RolloutFailed
from ...base.text import moment
from ...config.gates import absolute
from ...engine.model import FailureAction
from ...engine.strategy import Gate
from ...state.record import Outcome, Record, Rollout, RolloutKind
from ..loop import timing
from ..loop.gate_runner import GateRunner, GateStatus
from ..loop.supervisor import RollbackGate
from ..step.context import Result, StepContext, StepPart


class AfterPromotion(StepPart):
    """Ask the background analysis and the gates for a rollback of a rollout that has ended.

    What was measured is not kept: a watch that was killed measures anew, for the time that is left.
    """

    def __init__(self, step: StepContext, seconds: float) -> None:
        super().__init__(step)
        self._seconds = seconds
        plan = self.settings.plan
        self._gates = tuple(gate for gate in plan.background if not gate.by_default)
        context = step.loop.context
        self._background = GateRunner(self._gates, context, {}, wake=context.wake)
        self._rollback = [
            RollbackGate(gate, context, clock.now, context.wake) for gate in plan.rollback_gates
        ]
        self._shown_at = clock.now()

    def check(self) -> None:
        """Refuse a watch that could notice nothing."""
        if self.settings.plan.rollback_gates:
            return
        if any(gate.options["dry_run"] for gate in self._gates):
            raise InputError(
                "rollout_watch: rollout_analysis is a dry run, which never takes a revision back;"
                " remove its dry_run, or give rollout_gates.rollback, or remove rollout_watch",
                "PR-107",
            )
        if not any(map(absolute, self._gates)):
            raise InputError(
                "rollout_watch: there is no stable instance to compare with after a promotion; give"
                " rollout_analysis a metric with a success_condition or failure_condition, or give"
                " rollout_gates.rollback, or remove rollout_watch",
                "PR-107",
            )

    def run(self) -> Result:
        """Watch until the time is over or another rollout begins; if a gate fails, roll back and
        raise RolloutFailed.
        """
        record = self.step.session.read()
        rollout = record.rollout
        if rollout is None or not watchable(rollout):
            return self._over(f"{record.service}: no promotion to watch")
        title, until = f"{record.service} {rollout.revision}", ended_at(record) + self._seconds
        if clock.wall() >= until:
            return self._over(f"{title}: was watched until {moment(until)}")
        self.step.print_line(
            f"{title}: watched until {moment(until)}, by {', '.join(self._names())}"
        )
        try:
            why, message = self._watch(title, rollout, until)
        finally:
            self._close()
        return self._failed(title, rollout, why) if why else self._over(message)

    def finish_rollback(self, rollout: Rollout) -> t.NoReturn:
        """Finish a rollback whose run was killed; raises RolloutFailed with its cause."""
        self.step.print_line(
            f"{self.settings.service}: a rollback to {rollout.revision} has begun, and no run"
            " works on it"
        )
        self._roll_back(rollout, rollout.reason, rollout.reason)

    def _watch(self, title: str, rollout: Rollout, until: float) -> tuple[str, str]:
        """Return why the revision has to go, or else how the watch ended."""
        while clock.wall() < until:
            self.step.guard.check()
            _lease, record = self.step.session.look()
            if record.rollout is None or record.rollout.id != rollout.id:
                return "", f"{title}: another rollout has begun, so this watch ends"
            problems = self.loop.observe_partly()
            status = self._background.poll(self.step.describe)
            if why := self._wants_rollback(status):
                return why, ""
            self._heartbeat(title, problems[0] if problems else status.message)
            self.step.checker.wait(timing.COMMANDS)
        return "", f"{title}: nothing failed until {moment(until)}"

    def _wants_rollback(self, status: GateStatus) -> str:
        """Return why the revision has to go; empty: it may stay."""
        if status.failed:
            return status.message
        describe = self.step.describe
        asks = [rollback.gate for rollback in self._rollback if rollback.wants_rollback(describe)]
        return f"rollback requested by gate {_named(asks[0])}" if asks else ""

    def _failed(self, title: str, rollout: Rollout, why: str) -> t.NoReturn:
        """Roll back, unless the revision stays all the same; raises RolloutFailed."""
        self.step.print_line(f"{title}: {why} [PR-706]")
        if kept := self._stays(rollout):
            raise RolloutFailed(f"{title}: {why}; {kept}", "PR-706")
        self._roll_back(rollout, f"{title}: {why}", f"rollout_watch: {why}")

    def _roll_back(self, rollout: Rollout, message: str, why: str) -> t.NoReturn:
        """Roll back in this process, unless another rollout has begun; raises RolloutFailed."""
        from .rollback_request import RollbackRequest  # few watches end with a rollback

        RollbackRequest(self.step, why=why, of=rollout.id).run()
        raise RolloutFailed(message, "PR-706")

    def _stays(self, rollout: Rollout) -> str:
        """Return why the revision is not rolled back all the same; empty: it is."""
        if self.settings.on_failure != FailureAction.ROLLBACK:
            return f"not rolled back, as rollout_on_failure ({self.settings.on_failure}) says"
        if not rollout.reversible:
            return "not rolled back, since the rollout had a step with reversible: false"
        return "" if self.record.before else "not rolled back, since no revision before is known"

    def _heartbeat(self, title: str, what: str) -> None:
        if clock.now() - self._shown_at >= timing.HEARTBEAT:
            self._shown_at = clock.now()
            self.step.print_line(f"{title}: {what}")

    def _over(self, message: str) -> Result:
        return self.step.report(False, msg=message)

    def _names(self) -> list[str]:
        gates = (*self._gates, *self.settings.plan.rollback_gates)
        return [_named(gate) for gate in gates]

    def _close(self) -> None:
        for runner in (self._background, *(rollback.runner for rollback in self._rollback)):
            runner.close()


def watchable(rollout: Rollout) -> bool:
    """Return whether a rollout brought a revision that may have to go."""
    return rollout.outcome == Outcome.PROMOTED and rollout.kind == RolloutKind.ROLLOUT


def ended_at(record: Record) -> float:
    """Return when the last rollout ended, in seconds since the epoch."""
    last = record.history[-1] if record.history else {}
    return float(last.get("updated") or (record.rollout.updated if record.rollout else 0.0))


def _named(gate: Gate) -> str:
    return gate.key if gate.key == gate.driver else f"{gate.key} ({gate.driver})"
