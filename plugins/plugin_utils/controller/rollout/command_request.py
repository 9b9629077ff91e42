# SPDX-License-Identifier: GPL-3.0-or-later
"""What an operator command asks for, and why it is refused before it is sent."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping
from dataclasses import replace

from ...base.errors import InputError, RolloutFailed
from ...config import remembered
from ...config.drivers import driver
from ...config.variables import budget
from ...engine.model import Phase
from ...interfaces.platform import PlatformDriver
from ...state import commands
from ...state.record import Record, Rollout
from ..loop import exclusion
from ..step import reason
from ..step.context import StepContext
from .request import whole_replicas


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


def accept(
    step: StepContext, asked: Mapping[str, t.Any], after: Mapping[str, t.Any] | None
) -> Rollout:
    """Return the rollout in progress; raise if the command does not fit after a pending one."""
    command, record = asked["word"], step.record
    rollout = fitting(record, command, after["word"] if after else "", bool(asked.get("force")))
    if command == "scale":
        refuse_scale(record, rollout)
    if command == "set_target":
        refuse_target(record, rollout, asked["replicas"])
    if command in commands.OF_HOSTS:
        refuse_host(step, rollout, asked)
    return rollout


def fitting(record: Record, command: str, before: str, force: bool) -> Rollout:
    """Return the rollout in progress, if the command fits after a pending one (`before`)."""
    rollout = record.open
    phase = rollout.phase if rollout else Phase.FINISHED
    phase = commands.ahead(phase, before) if before else phase
    why = commands.refusal(phase, command, force)
    if rollout is None or why:
        last = record.rollout
        title = (
            f"{record.service} {last.revision} is {phase.replace('_', ' ')}"
            if last
            else record.service
        )
        raise RolloutFailed(f"cannot {command.replace('_', ' ')}: {title}: {why}", "PR-700")
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
