# SPDX-License-Identifier: GPL-3.0-or-later
"""What an operator command asks for, and why it is refused before it is sent."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...base.errors import InputError, RolloutFailed
from ...config import remembered
from ...config.drivers import driver
from ...config.variables import budget
from ...engine import aim
from ...engine.model import Phase
from ...interfaces.platform import PlatformDriver
from ...state import commands
from ...state.record import Outcome, Record, Rollout
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
    step: StepContext, asked: Mapping[str, t.Any], before: Sequence[Mapping[str, t.Any]]
) -> Rollout:
    """Return the rollout in progress; raise if the command does not fit after pending ones."""
    command, record = asked["word"], step.record
    rollout = fitting(record, command, before, bool(asked.get("force")))
    why = ""
    if command == "scale":
        why = scale_refusal(rollout)
    if command == "set_target":
        why = target_refusal(rollout, asked["replicas"])
    if command in commands.OF_HOSTS:
        why = host_refusal(step, rollout, asked)
    if why:
        raise refused(named(asked), f"{record.service} {rollout.revision}", why)
    return rollout


def named(asked: Mapping[str, t.Any]) -> str:
    """Return a command as a refusal names it."""
    command, name = asked["word"], asked["word"].replace("_", " ")
    if command == "set_target":
        return f"{name} {asked['replicas']}"
    return f"{name} {asked['place']}" if command in commands.OF_HOSTS else name


def refused(what: str, title: str, why: str) -> RolloutFailed:
    """Return the error of a command that is refused."""
    return RolloutFailed(f"cannot {what}: {title}: {why}", "PR-700")


def fitting(
    record: Record, command: str, before: Sequence[Mapping[str, t.Any]], force: bool
) -> Rollout:
    """Return the rollout in progress, if the command fits after pending ones (`before`)."""
    rollout, last = record.open, record.rollout
    phase = rollout.phase if rollout else Phase.FINISHED
    paused = bool(rollout and rollout.paused)
    for sent in before:
        if not commands.refusal(phase, sent["word"], bool(sent.get("force")), paused):
            phase, paused = commands.ahead(phase, sent["word"], paused)
    why = commands.refusal(phase, command, force, paused)
    if rollout is None or why:
        state = f" {last.revision} is {phase.replace('_', ' ')}" if last else ""
        raise refused(command.replace("_", " "), f"{record.service}{state}", why)
    return rollout


def nothing_to_abort(record: Record) -> str:
    """Say that the last rollout has gone back, which is what `abort` asks for; "" if it has not."""
    last = record.rollout
    if last is None or last.outcome not in (Outcome.ABORTED, Outcome.ROLLED_BACK):
        return ""
    to = f" to {last.previous.revision}" if last.previous else ""
    return f"{last.revision} was already rolled back{to}; nothing to abort"


def scale_refusal(rollout: Rollout) -> str:
    """Return why a rollout cannot have another number of instances; "" if it can."""
    if not rollout.per_host:
        return ""
    return (
        "it has one instance on each host (rollout_replicas: per_host); leave a host out with"
        " exclude, or add hosts and run rollout.yml again"
    )


def target_refusal(rollout: Rollout, number: int) -> str:
    """Return why a rollout cannot have a number of new instances, as the journal knows it; "" if it
    can.
    """
    if rollout.strategy != "canary":
        return f"it is a {rollout.strategy.replace('_', '-')} rollout, and only a canary has steps"
    if (rollout.given.get("platform") or {}).get("driver") == "static":
        return "it is deployed in place, by your own tasks"
    if rollout.asked is not None:
        return aim.WEIGHTED
    return aim.too_many(number, rollout.replicas)


def host_refusal(step: StepContext, rollout: Rollout, asked: Mapping[str, t.Any]) -> str:
    """Return why a host cannot be left out or brought back, as far as the journal knows; "" if it
    can.
    """
    known = remembered.of_rollout(step.record)
    if not known.get("platform"):
        return ""  # an earlier version did not keep it; the run that obeys refuses
    platform = driver(PlatformDriver).parse(known["platform"], "rollout_platform")
    sent = step.session.store.commands(step.record.obeyed)
    return exclusion.refusal(
        asked,
        replace(rollout, excluded=commands.left_out(rollout, sent)),
        platform.make(step.context),
        budget(known.get("budget") or {}, "rollout_budget"),
    )
