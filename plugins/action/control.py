# SPDX-License-Identifier: GPL-3.0-or-later
"""Send an operator command to the rollout in progress, by the journal and without its lease."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ..plugin_utils.base import clock
from ..plugin_utils.config import remembered
from ..plugin_utils.config.step_options import COMMAND, CONTINUED, COUNT, DIGEST, FORCE, HOST, WHY
from ..plugin_utils.controller.rollout import command_answer, command_request, takeover
from ..plugin_utils.controller.step.action import StepAction
from ..plugin_utils.controller.step.context import Result, StepContext
from ..plugin_utils.inputs.options import FLAG, Field, Options, whole
from ..plugin_utils.interfaces.store import Lease
from ..plugin_utils.state import commands, identity
from ..plugin_utils.state.record import Record, Rollout


class ActionModule(StepAction):
    waits = False
    options = Options(
        COMMAND,
        WHY,
        FORCE,
        COUNT,
        HOST,
        Field(
            "withdraw",
            whole(1),
            "Number of a command, as in RV(number). Withdraws that command, unless it was already"
            " obeyed, so that the command of a failed run does not take effect later.",
        ),
        Field(
            "continues",
            FLAG,
            "Whether the playbook continues the rollout itself if no run is active, as those of"
            " this collection do after other commands than V(pause) and V(hold). A service that is"
            " deployed in place is never continued.",
            default=False,
        ),
    )

    def needs_platform(self, args: Mapping[str, t.Any]) -> bool:
        return False  # a command must be quick, and work where load balancers and hosts do not

    def perform(self, step: StepContext) -> Result:
        if "withdraw" in step.options:
            return withdraw(step, step.options["withdraw"])
        asked = command_request.parse(step)
        command = asked["word"]
        record = step.session.read()
        store = step.session.store
        me = step.session.identity
        lease, running = current_run(step)
        sent_before = (
            command["host"]
            for command in store.commands(0)
            if me.repeats(command.get("request"), command.get("host"))
        )
        if host := next(sent_before, ""):
            goes_on = not running and continues(step, command)
            return step.left_to(host, running=running, continues=goes_on)
        if lease and running:
            effect = f"the run of {lease.holder} obeys shortly"
        elif continues(step, command):
            effect = "no run is active, continuing here"
        else:
            effect = "no run is active, it takes effect on the next run"
        if command == "abort" and (line := command_request.nothing_to_abort(record)):
            return answer(step, False, None, running, line)
        before = pending(step, record)
        last, then = (before[-1] if before else None), ""
        if last and command_request.same(last, asked):
            done = f"was sent by {last['by']} before and is still pending"
            changed, number, rollout = False, last["number"], record.open
        else:
            rollout = command_request.accept(step, asked, before)
            ways = [f"{name} would {what}" for what, name in commands.ways_out(rollout)]
            then = f"; then {', '.join(ways)}" if command == "pause" else ""
            if step.check_mode:
                line = f"command '{command}' would be recorded; {effect}{then}"
                return answer(step, True, None, running, line)
            done, changed, number = "recorded", True, send(step, rollout, asked)
        # a run that sends itself a command obeys in its next step
        other = lease and running and lease.details.get("run") != me.run
        if lease and other and rollout and not step.check_mode:
            effect = command_answer.await_answer(step, rollout, asked, number, lease)
        line = f"command '{command}' {done}; {effect}{then}"
        return answer(step, changed, number, running, line)


def send(step: StepContext, rollout: Rollout, asked: Mapping[str, t.Any]) -> int:
    """Write a command into the journal; return its number."""
    me = step.session.identity
    sent = {
        **asked,
        "rollout": rollout.id,
        "phase": rollout.phase.value,
        "by": me.holder,
        "at": round(clock.now(), 3),
        "request": me.request,
        "host": me.host,
    }
    number: int = step.session.store.post(sent)
    return number


def pending(step: StepContext, record: Record) -> list[Mapping[str, t.Any]]:
    """Return the commands of operators for the rollout in progress that its run has not obeyed
    yet.
    """
    if record.open is None:
        return []
    return commands.pending(record.open, step.session.store.commands(record.obeyed))


def current_run(step: StepContext) -> tuple[Lease | None, bool]:
    """Return the lease, and whether its run is active: a lease may outlive its run for a while."""
    lease = step.session.store.lease()
    return lease, lease is not None and identity.gone(lease.details) is not True


def continues(step: StepContext, command: str) -> bool:
    """Return whether the playbook continues the rollout itself, where no run is active."""
    if step.record.open is None:
        return False
    known = remembered.of_rollout(step.record)
    in_place = (known.get("platform") or {}).get("driver") == "static"
    stops = command in ("pause", "hold")
    return step.options.get("continues", False) and not (step.check_mode or stops or in_place)


def withdraw(step: StepContext, number: int) -> Result:
    """Withdraw a command unless it was obeyed: what a failed task sent must not act later."""
    record = step.session.read()
    known = {"number": number, "running": current_run(step)[1]}
    if number <= record.obeyed or record.open is None:
        return step.report(False, **known)
    if not step.check_mode:
        takeover.post(step, record.open, commands.WITHDRAW, of=number)
    title = f"{record.service} {record.open.revision}"
    return step.report(
        True, msg=f"{title}: the command was not obeyed and is withdrawn [PR-702]", **known
    )


def settings_of(record: Record, rollout: Rollout) -> dict[str, t.Any]:
    """Return what the rollout in progress continues with, and which settings of which rollout
    that is.
    """
    mark = {CONTINUED: rollout.id, DIGEST: remembered.digest(rollout)}
    return {**mark, **remembered.of_rollout(record)}


def answer(
    step: StepContext, changed: bool, number: int | None, running: bool, message: str
) -> Result:
    """Return the result; `told` is about the rollout in progress."""
    rollout = step.record.open
    title = f"{step.record.service} {rollout.revision}" if rollout else step.record.service
    known = settings_of(step.record, rollout) if rollout else {}
    acting_host = step.session.identity.host
    return step.report(
        changed,
        number=number,
        running=running,
        continues=not running and continues(step, step.options["command"]),
        settings=known,
        acting_host=acting_host,
        msg=f"{title}: {message}",
    )
