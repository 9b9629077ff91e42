# SPDX-License-Identifier: GPL-3.0-or-later
"""Tells people once how a rollout failed, from the journal and what is known of the fleet."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from ...base.errors import TRANSIENT
from ...engine.model import Phase, State
from ...report import failure
from ...state.record import Rollout
from .context import StepContext


def show(step: StepContext, rollout: Rollout) -> None:
    """Say what failed, where, its last log lines, what serves now, and what to do."""
    events: Sequence[dict[str, object]] = ()
    with suppress(*TRANSIENT):  # the block says what it can
        events = step.session.timeline(rollout.id)
    broken = failure.broken(rollout, events)
    log = step.log_of(broken) if broken else ""
    for line in failure.block(
        step.settings.service, rollout, broken, log, _serving(step), _next(step, rollout)
    ):
        step.print_line(line)


def _serving(step: StepContext) -> str:
    """Return what serves now, as last observed."""
    ready: dict[str, int] = {}
    others: dict[str, int] = {}  # get requests, and are not ready by our own checks
    for instance in step.fleet:
        serves = instance.in_rotation or not step.balanced
        if instance.state is State.READY and serves:
            ready[instance.revision] = ready.get(instance.revision, 0) + 1
        elif instance.served:
            others[instance.revision] = others.get(instance.revision, 0) + 1
    stable, unmanaged = step.record.stable, step.unmanaged
    parts = [f"{revision}: {number} ready" for revision, number in ready.items()]
    parts += [f"{revision}: {number} not ready" for revision, number in others.items()]
    if text := unmanaged.described(step.fleet):
        parts.append(text)
    if unmanaged.others:
        parts.append("servers of before, which lead to no instance")
    if not parts and not step.fleet:
        return f"{stable.revision}, by the journal" if stable else ""
    return ", ".join(parts) or "nothing"


def _next(step: StepContext, rollout: Rollout) -> list[tuple[str, str]]:
    """Return what a person can do now, each with the command."""
    if rollout.phase == Phase.HELD:
        return [
            ("continue", step.command("resume")),
            ("roll back", step.command("abort")),
            ("look", step.command("status")),
        ]
    return [("look", step.command("status")), ("compare", step.command("report"))]
