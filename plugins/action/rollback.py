# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Walk back to the stable revision; with no rollout under way, to the one before it."""

from __future__ import annotations

from ansible_collections.progressive.rollout.plugins.plugin_utils.base import clock
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import AlreadyWalked, LeaseHeld, RolloutFailed
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller import lifecycle
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.action import StepAction
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.context import Result, Run
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Composition
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import PROMOTE
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs import values
from ansible_collections.progressive.rollout.plugins.plugin_utils.state import commands
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.record import Kind, Outcome, Rollout


class ActionModule(StepAction):
    own = ("to",)

    def step(self, run: Run) -> Result:
        to = None if run.own.get("to") in (None, "") else values.revision(run.own["to"], "rollout_to")
        lifecycle.refuse_in_place(run, back=True)
        try:
            if host := run.begin_once():
                return run.left_to(host)
        except AlreadyWalked:
            raise
        except LeaseHeld as exc:
            return tell(run, to, exc)
        rollout = run.record.open
        if rollout is not None and to not in (None, rollout.revision if rollout.kind == Kind.ROLLBACK else goal(rollout)):
            raise RolloutFailed(
                f"rollout_to: {to!r} has to wait: {run.settings.service} {rollout.revision} is {rollout.phase.replace('_', ' ')}, and a "
                f"rollback of it goes to {goal(rollout) or 'nothing'}; do that first"
            )
        if rollout is None or run.check_mode:
            run.conductor.look()
        else:
            run.conductor.await_look()  # a balancer that restarts just now must not keep a bad revision in service
        lifecycle.adopt(run)
        if run.check_mode:
            return lifecycle.would_roll_back(run, to)
        if rollout is not None and rollout.kind != Kind.ROLLBACK:
            lifecycle.walk_back(run, rollout)
            return run.report(True)
        if rollout is None:
            back = lifecycle.way_back(run, to)
            if back is None:
                return run.report(False, msg=lifecycle.nothing_to_undo(run.record))
            rollout = open_prepared(run, back)
        rollout.tally = None
        lifecycle.walk(run, rollout, PROMOTE)
        run.record.stable = Composition(rollout.revision, rollout.generation, rollout.replicas)
        lifecycle.close(run, Outcome.PROMOTED, rollout.reason)
        return run.report(True)


def open_prepared(run: Run, back: Composition) -> Rollout:
    """A rollout to where a rollback goes, whose hosts have what it needs; where they have not, none is left behind."""
    last = run.record.rollout
    rollout = lifecycle.open_rollback(run, back)
    try:
        lifecycle.prepare(run, rollout)
    except RolloutFailed as exc:
        run.record.rollout = last
        run.conductor.commit()
        raise RolloutFailed(
            f"{run.settings.service} cannot go back to {back.revision}: {rollout.reason or exc}; nothing was touched"
        ) from None
    return rollout


def goal(rollout: Rollout) -> str | None:
    """The revision that a rollback of this rollout goes to."""
    return rollout.previous.revision if rollout.previous else None


def tell(run: Run, to: str | None, held: LeaseHeld) -> Result:
    """Another run is at work: tell it to go back, if that is what is asked for; it obeys within two seconds."""
    rollout = run.session.read().open
    if rollout is None or commands.refusal(rollout.phase, "abort") or to not in (None, goal(rollout)):
        raise held
    if not run.check_mode:
        word = {"word": "abort", "rollout": rollout.id, "by": run.session.identity.holder, "why": "rollback", "at": clock.now()}
        run.session.store.post(word)
    return run.report(True, msg=f"{run.settings.service} {rollout.revision}: the run that is at work is told to go back ({held})")
