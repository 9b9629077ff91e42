# SPDX-License-Identifier: GPL-3.0-or-later
"""Superseding a rollout that another run works on: that run is told to give way, and waited for."""

from __future__ import annotations

from contextlib import suppress

from ...base import clock
from ...base.errors import AlreadyRunning, LeaseHeld, RolloutError
from ...base.text import span
from ...state import commands
from ...state.record import Rollout, RolloutKind
from ..step.context import StepContext
from .request import supersedes

LOOK = 0.5  # seconds between two attempts to take the lease


def supersede(step: StepContext, revision: str, replicas: int, held: LeaseHeld) -> str:
    """Tell a run whose rollout is superseded to give way, and take the lease that it holds.

    Raises LeaseHeld where the rollout is not to be superseded, or its run does not give way within
    the progress deadline.
    """
    rollout = step.session.read().open
    if (
        rollout is None
        or isinstance(held, AlreadyRunning)
        or rollout.kind == RolloutKind.ROLLBACK
        or commands.refusal(rollout.phase, commands.GIVE_WAY)
    ):
        raise held
    if not supersedes(step, revision, rollout):
        raise _advice(rollout, revision, replicas, held)
    return _wait(step, rollout, revision, held)


def _advice(rollout: Rollout, revision: str, replicas: int, held: LeaseHeld) -> LeaseHeld:
    """Return the error with what to do about the rollout in progress."""
    if rollout.revision != revision:
        return LeaseHeld(
            f"{held}; or abort that rollout (abort.yml), or supersede it (rollout_supersede: true)",
            held.id,
        )
    if replicas != rollout.replicas:
        return LeaseHeld(
            f"{held}; to change the number of replicas of the rollout in progress, use scale.yml",
            held.id,
        )
    return held


def _wait(step: StepContext, rollout: Rollout, revision: str, held: LeaseHeld) -> str:
    """Tell the run to give way, and wait.

    After that the command is withdrawn, or it would end a later run of a rollout that this one,
    refused, does not supersede.
    """
    timeout = step.settings.rules.progress_deadline
    until = round(clock.now() + timeout, 3)  # should the withdrawal fail
    number = post(step, rollout, commands.GIVE_WAY, why=revision, until=until)
    step.loop.print_line(
        f"{step.settings.service} {revision}: told {rollout.revision} to give way; waiting up to"
        f" {span(timeout)} ({held})"
    )
    try:
        return _await_lease(step, timeout)
    finally:
        with suppress(RolloutError):  # an error of the wait is the one to tell
            post(step, rollout, commands.WITHDRAW, of=number)


def _await_lease(step: StepContext, timeout: float) -> str:
    """Take the lease as soon as the other run has released it; as `StepContext.begin_once`."""
    deadline = clock.monotonic() + timeout
    while True:
        step.guard.check()
        clock.sleep(LOOK)
        try:
            return step.begin_once()
        except AlreadyRunning:
            raise
        except LeaseHeld as exc:
            if clock.monotonic() >= deadline:
                raise LeaseHeld(
                    f"{exc}; told to give way, it did not within {span(timeout)}", "PR-703"
                ) from None


def post(step: StepContext, rollout: Rollout, command: str, **more: object) -> int:
    """Send a command to the rollout; return its number."""
    sent = {
        "word": command,
        "rollout": rollout.id,
        "by": step.session.identity.holder,
        "at": round(clock.now(), 3),
        **more,
    }
    number: int = step.session.store.post(sent)
    return number
