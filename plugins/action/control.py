# SPDX-License-Identifier: GPL-3.0-or-later
"""Send an operator command to the rollout in progress, by the journal and without its lease."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping
from dataclasses import replace

from ..plugin_utils.base import clock
from ..plugin_utils.base.errors import InputError, RolloutFailed
from ..plugin_utils.config import remembered
from ..plugin_utils.config.drivers import driver
from ..plugin_utils.config.step_options import COMMAND, COUNT, FORCE, HOST, WHY
from ..plugin_utils.config.variables import budget
from ..plugin_utils.controller.rollout import takeover
from ..plugin_utils.controller.rollout.request import whole_replicas
from ..plugin_utils.controller.step import reason
from ..plugin_utils.controller.step.action import StepAction
from ..plugin_utils.controller.step.context import Result, StepContext
from ..plugin_utils.engine.model import Phase
from ..plugin_utils.inputs.options import FLAG, Field, Options, whole
from ..plugin_utils.interfaces.platform import PlatformDriver
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
        asked = parse(step)
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
        last = pending(step, record)
        if last and same(last, asked):
            line = (
                f"command '{command}' was sent by {last['by']} before and is still pending;"
                f" {effect}"
            )
            return answer(step, False, last["number"], running, line)
        rollout = fitting(record, command, last["word"] if last else "", bool(asked.get("force")))
        if command == "scale":
            refuse_scale(record, rollout)
        if command == "set_target":
            refuse_target(record, rollout, asked["replicas"])
        if command in commands.OF_HOSTS:
            refuse_host(step, rollout, asked)
        if step.check_mode:
            return answer(
                step, True, None, running, f"command '{command}' would be recorded; {effect}"
            )
        asked |= {
            "rollout": rollout.id,
            "by": me.holder,
            "at": round(clock.now(), 3),
            "request": me.request,
            "host": me.host,
        }
        return answer(
            step, True, store.post(asked), running, f"command '{command}' recorded; {effect}"
        )


def pending(step: StepContext, record: Record) -> Mapping[str, t.Any] | None:
    """Return the last command for the rollout in progress that its run has not obeyed yet."""
    if record.open is None:
        return None
    sent = commands.not_withdrawn(step.session.store.commands(record.obeyed))
    return next(
        (command for command in reversed(sent) if command["rollout"] == record.open.id), None
    )


def current_run(step: StepContext) -> tuple[Lease | None, bool]:
    """Return the lease, and whether its run is active: a lease may outlive its run for a while."""
    lease = step.session.store.lease()
    return lease, lease is not None and identity.gone(lease.details) is not True


def continues(step: StepContext, command: str) -> bool:
    """Return whether the playbook continues the rollout itself, where no run is active."""
    known = remembered.of_rollout(step.record) if step.record.open else {}
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


def parse(step: StepContext) -> dict[str, t.Any]:
    """Return the command, its reason and what else belongs to it, as the journal keeps them."""
    options, command = step.options, step.options.get("command")
    if command is None:
        raise InputError(
            f"rollout_command: not given; write one of {', '.join(commands.COMMANDS)}", "PR-102"
        )
    force = options.get("force", False)
    if force and command != "promote":
        raise InputError(
            f"rollout_force: only promote can be forced, not {command}; remove it", "PR-107"
        )
    number = {"replicas": whole_replicas(step)} if command == "scale" else {}
    count = options.get("count")
    if (count is None) == (command == "set_target"):
        raise InputError(
            "rollout_count: required by set_target; give the number of new instances"
            if count is None
            else f"rollout_count: has no effect with {command}, only with set_target; remove it",
            "PR-102" if count is None else "PR-107",
        )
    number = {"replicas": count} if count else number
    return (
        {"word": command, "why": reason.given(options)}
        | ({"force": True} if force else {})
        | number
        | _place(command, options.get("host"))
    )


def _place(command: str, host: str | None) -> dict[str, str]:
    """Return the host that a command is about, where it is about any."""
    if (host is None) == (command in commands.OF_HOSTS):
        raise InputError(
            f"rollout_host: required by {command}; name a host"
            if host is None
            else f"rollout_host: has no effect with {command}, only with exclude and include;"
            " remove it",
            "PR-102" if host is None else "PR-107",
        )
    return {"place": host} if host else {}


def same(sent: Mapping[str, t.Any], other: Mapping[str, t.Any]) -> bool:
    """Return whether two commands ask for the same."""
    return all(sent.get(key) == other.get(key) for key in ("word", "force", "replicas", "place"))


def fitting(record: Record, command: str, before: str, force: bool) -> Rollout:
    """Return the rollout in progress, if the command fits after a pending one (`before`)."""
    rollout = record.open
    phase = rollout.phase if rollout else Phase.FINISHED
    phase = commands.ahead(phase, before) if before else phase
    reason = commands.refusal(phase, command, force)
    if rollout is None or reason:
        last = record.rollout
        title = (
            f"{record.service} {last.revision} is {phase.replace('_', ' ')}"
            if last
            else record.service
        )
        raise RolloutFailed(f"cannot {command.replace('_', ' ')}: {title}: {reason}", "PR-700")
    return rollout


def refuse_scale(record: Record, rollout: Rollout) -> None:
    """Refuse another number where there is one instance on each host."""
    if rollout.per_host:
        raise RolloutFailed(
            f"cannot scale: {record.service} {rollout.revision}: it has one instance on each host"
            " (rollout_replicas: per_host); leave a host out with exclude, or add hosts and run"
            " rollout.yml again",
            "PR-700",
        )


def refuse_target(record: Record, rollout: Rollout, number: int) -> None:
    """Refuse a number of new instances that the rollout cannot have, as the journal knows it."""
    why = ""
    if rollout.strategy != "canary":
        why = f"it is a {rollout.strategy.replace('_', '-')} rollout, and only a canary has steps"
    elif (rollout.given.get("platform") or {}).get("driver") == "static":
        why = "it is deployed in place, by your own tasks"
    elif rollout.asked is not None:
        why = "its steps divide the requests by weights; only a canary by number can be set"
    elif number > rollout.replicas:
        why = f"{number} is more than the {rollout.replicas} replicas; set at most that"
    if why:
        title = f"{record.service} {rollout.revision}"
        raise RolloutFailed(f"cannot set target {number}: {title}: {why}", "PR-700")


def refuse_host(step: StepContext, rollout: Rollout, asked: Mapping[str, t.Any]) -> None:
    """Refuse a host that cannot be left out or brought back, as far as the journal knows."""
    known = remembered.of_rollout(step.record)
    if not known.get("platform"):
        return  # an earlier version did not keep it; the run that obeys refuses
    from ..plugin_utils.controller.loop import exclusion  # few commands are about hosts

    platform = driver(PlatformDriver).parse(known["platform"], "rollout_platform")
    sent = step.session.store.commands(step.record.obeyed)
    why = exclusion.refusal(
        asked,
        replace(rollout, excluded=commands.left_out(rollout, sent)),
        platform.make(step.context),
        budget(known.get("budget") or {}, "rollout_budget"),
    )
    if why:
        title = f"{step.record.service} {rollout.revision}"
        raise RolloutFailed(f"cannot {asked['word']} {asked['place']}: {title}: {why}", "PR-700")


def answer(
    step: StepContext, changed: bool, number: int | None, running: bool, message: str
) -> Result:
    """Return the result; `told` is about the rollout in progress."""
    rollout = step.record.open
    title = f"{step.record.service} {rollout.revision}" if rollout else step.record.service
    known = remembered.of_rollout(step.record) if rollout else {}
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
