# SPDX-License-Identifier: GPL-3.0-or-later
"""What the run that works on a rollout has made of a command."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ...base import clock
from ...base.errors import TRANSIENT
from ...interfaces.store import Lease
from ...state.record import Rollout
from ..loop import timing
from ..step.context import StepContext
from . import command_request

LOOK = 0.25  # seconds between two looks at the journal


def await_answer(
    step: StepContext, rollout: Rollout, asked: Mapping[str, t.Any], number: int, lease: Lease
) -> str:
    """Return what became of the command with this number; raises RolloutFailed if it was refused.

    A run reads commands every second. What takes it longer does not keep the sender.
    """
    deadline = clock.monotonic() + timing.ANSWER
    while clock.monotonic() < deadline:
        step.guard.check()
        try:
            event = _event(step, rollout, number)
        except TRANSIENT:  # the command is recorded all the same
            break
        if event is not None:
            return _outcome(step, rollout, asked, event, lease)
        clock.sleep(LOOK)
    return f"the run of {lease.holder} obeys shortly"


def _outcome(
    step: StepContext,
    rollout: Rollout,
    asked: Mapping[str, t.Any],
    event: Mapping[str, t.Any],
    lease: Lease,
) -> str:
    if refused := event.get("refused"):
        title = f"{step.record.service} {rollout.revision}"
        raise command_request.refused(command_request.named(asked), title, str(refused))
    if ineffective := event.get("ineffective"):
        return f"without effect: {ineffective}"
    return f"the run of {lease.holder} has obeyed"


def _event(step: StepContext, rollout: Rollout, number: int) -> Mapping[str, t.Any] | None:
    """Return the event of the command; None: no run has read it yet."""
    record = step.session.read()
    over = record.open is None or record.open.id != rollout.id
    if record.obeyed < number and not over:
        return None
    for event in step.session.timeline(rollout.id):
        if event.get("kind") == "word" and event.get("number") == number:
            return event
    return {"refused": "the rollout ended before a run read it"} if record.obeyed < number else {}
