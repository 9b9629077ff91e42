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
    """Take the lease that another run holds, once it has given way to this one, or has ended.

    A rollout that is superseded is told to give way. One that goes back, and a run that is about
    to end, are waited for. Raises LeaseHeld where the rollout is not to be superseded, or its run
    holds the lease for longer than the progress deadline.
    """
    rollout = step.session.read().open
    if isinstance(held, AlreadyRunning) or not step.settings.supersede:
        advised = rollout and _gives_way(rollout) and not isinstance(held, AlreadyRunning)
        raise _advice(rollout, revision, replicas, held) if rollout and advised else held
    return _Wait(step, revision, replicas, held).run(rollout)


def _gives_way(rollout: Rollout) -> bool:
    """Return whether a run of the rollout may be told to give way: it goes forward."""
    back = rollout.kind == RolloutKind.ROLLBACK
    return not back and not commands.refusal(rollout.phase, commands.GIVE_WAY)


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


class _Wait:
    """The wait for a lease that another run holds."""

    def __init__(self, step: StepContext, revision: str, replicas: int, held: LeaseHeld) -> None:
        self._step, self._revision, self._replicas, self._held = step, revision, replicas, held
        self._timeout = step.settings.rules.progress_deadline
        self._until = round(clock.now() + self._timeout, 3)
        self._sent: tuple[Rollout, int] | None = None  # which rollout was told, by which command
        self._shown = ""

    def run(self, rollout: Rollout | None) -> str:
        """Wait, and tell what the other run does; take the lease.

        After that the command is withdrawn, or it would end a later run of a rollout that this
        one, refused, does not supersede.
        """
        deadline = clock.monotonic() + self._timeout
        try:
            while True:
                self._send(rollout)
                self._step.guard.check()
                clock.sleep(LOOK)
                try:
                    return self._step.begin_once()
                except AlreadyRunning:
                    raise
                except LeaseHeld as exc:
                    if clock.monotonic() >= deadline:
                        raise self._late(exc) from None
                rollout = self._step.session.read().open
        finally:
            self._withdraw()

    def _send(self, rollout: Rollout | None) -> None:
        """Tell the run of a rollout that goes forward to give way, once."""
        if rollout is None or not _gives_way(rollout):
            does = "is about to end" if rollout is None else f"takes {rollout.revision} back"
            return self._show(f"waiting for the run that {does},")
        if self._sent and self._sent[0].id == rollout.id:
            return None
        if not supersedes(self._step, self._revision, rollout):
            raise _advice(rollout, self._revision, self._replicas, self._held)
        self._withdraw()
        more = {"why": self._revision, "until": self._until}  # should the withdrawal fail
        self._sent = rollout, post(self._step, rollout, commands.GIVE_WAY, **more)
        return self._show(f"told {rollout.revision} to give way; waiting")

    def _show(self, what: str) -> None:
        if what != self._shown:
            self._shown = what
            title = f"{self._step.settings.service} {self._revision}"
            self._step.loop.print_line(
                f"{title}: {what} up to {span(self._timeout)} ({self._held})"
            )

    def _late(self, held: LeaseHeld) -> LeaseHeld:
        what = "told to give way, it did not" if self._sent else "it did not end"
        return LeaseHeld(f"{held}; {what} within {span(self._timeout)}", "PR-703")

    def _withdraw(self) -> None:
        if self._sent:
            rollout, number = self._sent
            self._sent = None
            with suppress(RolloutError):  # an error of the wait is the one to tell
                post(self._step, rollout, commands.WITHDRAW, of=number)


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
