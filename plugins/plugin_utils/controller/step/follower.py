# SPDX-License-Identifier: GPL-3.0-or-later
"""Follows a rollout that another run works on, by the journal alone and without its lease."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...base import clock
from ...base.errors import InputError, RolloutFailed
from ...base.text import printable, span
from ...engine.model import Phase
from ...inputs import shapes
from ...interfaces.store import Lease
from ...report.messages import at, ended
from ...report.status import next_step
from ...state import commands, identity
from ...state.record import Outcome, Record, Rollout
from ..loop import timing
from . import failures
from .context import Result, StepContext, StepPart

# what the rollout is to become: the outcomes that are no failure of who follows it
PROMOTED, ROLLED_BACK, HELD = "promoted", "rolled_back", "held"
_GOOD: Mapping[str, tuple[Outcome, ...]] = {
    PROMOTED: (Outcome.PROMOTED,),
    ROLLED_BACK: (Outcome.ROLLED_BACK, Outcome.ABORTED),
    HELD: (),
}


@dataclass
class Heard:
    """What the timeline said so far."""

    events: int = 0
    waits: str = ""  # for which person's decision; empty: the rollout waits for nobody

    def take(self, timeline: Sequence[Mapping[str, t.Any]]) -> list[str]:
        """Take in new events; return their lines: of those before the first look, the last."""
        new, first = timeline[self.events :], self.events == 0
        self.events = len(timeline)
        for event in new:
            self._take(event)
        lines = [str(event.get("text", "")) for event in new if event.get("kind") == "line"]
        return lines[-1:] if first else lines

    def _take(self, event: Mapping[str, t.Any]) -> None:
        kind = event.get("kind")
        if kind == "wait":
            self.waits = str(event.get("what", "")) if event.get("person") else ""
        elif kind == "parked":
            self.waits = str(event.get("reason", ""))
        elif kind in ("stage", "resume", "end") or (kind == "word" and _effective(event)):
            self.waits = ""


def _effective(command: Mapping[str, t.Any]) -> bool:
    return not (command.get("refused") or command.get("ineffective"))


class Follower(StepPart):
    """Show a rollout until it ends, waits for a person, or no run works on it."""

    def __init__(self, step: StepContext, id: str, expected: str = PROMOTED) -> None:
        super().__init__(step)
        self._id = id
        self._expected = expected
        self._heard = Heard()
        self._alone: float | None = None  # since when no run has been at work
        self._quiet = clock.now()  # since when nothing was shown

    def run(self) -> Result:
        """Follow the rollout; raises RolloutFailed where it does not become what it is to be."""
        while True:
            self.step.guard.check()
            began = clock.now()
            lease, record = self.step.session.look()
            rollout = known(record, self._id)
            self._show(rollout)
            if (result := self._stops(lease, record, rollout)) is not None:
                return result
            self.step.checker.wait(timing.platform_pause(clock.now() - began))

    def _show(self, rollout: Rollout) -> None:
        """Show what is new, or now and then that nothing is."""
        new = self._heard.take(self.step.session.timeline(self._id))
        now = clock.now()
        if not new and now - self._quiet >= timing.HEARTBEAT:
            phase = rollout.phase.replace("_", " ")
            what = f"{phase}{at(rollout)}, nothing new for {span(now - self._quiet)}"
            new = [f"{self._title(rollout)} {what}"]
        for line in new:
            self.step.print_line(line)
            self._quiet = now

    def _stops(self, lease: Lease | None, record: Record, rollout: Rollout) -> Result | None:
        """Return the result if there is nothing more to follow; None: the rollout goes on."""
        if rollout.over:
            return self._ended(rollout)
        sent = commands.not_withdrawn(self.step.session.commands())
        if any(command.get("rollout") == self._id for command in sent):
            pass  # what follows from it is not known yet
        elif rollout.phase == Phase.HELD:
            return self._held(rollout)
        elif self._heard.waits and (rollout.phase.waits or not active(lease)):
            return self._waits(rollout)
        self._check_run(lease, rollout)
        return None

    def _ended(self, rollout: Rollout) -> Result:
        message = ended(self.record.service, rollout)
        if rollout.outcome in _GOOD[self._expected]:
            return self.step.report(
                False, msg=message, outcome=rollout.outcome.value, waiting=False
            )
        failures.show(self.step, rollout)
        raise RolloutFailed(message, "PR-705")

    def _held(self, rollout: Rollout) -> Result:
        message = f"{self._title(rollout)}: held: {rollout.reason}"
        if self._expected == HELD:
            return self.step.report(False, msg=message, outcome="", waiting=True)
        failures.show(self.step, rollout)
        raise RolloutFailed(message, "PR-705")

    def _waits(self, rollout: Rollout) -> Result:
        """Return the result where a person has to decide, and say with which commands."""
        onward = ("continue", "promote")
        if rollout.phase == Phase.HOLDING:
            onward = ("stop the old instances now", "skip")
        ways = (onward, ("roll back", "abort"))
        for effect, command in commands.ways_out(rollout) if rollout.paused else ways:
            self.step.print_line(f"to {effect}: {self.step.command(command)}")
        message = f"{self._title(rollout)}: {self._heard.waits}"
        return self.step.report(False, msg=message, outcome="", waiting=True)

    def _check_run(self, lease: Lease | None, rollout: Rollout) -> None:
        """Raise RolloutFailed if no run has worked on the rollout for a while.

        Between two runs, and two steps of a run, there is none for a moment.
        """
        if active(lease):
            self._alone = None
            return
        self._alone = clock.now() if self._alone is None else self._alone
        if clock.now() - self._alone >= timing.HAND_OVER:
            again = self.step.command("rollout", rollout_revision=rollout.revision)
            self.step.print_line(f"to continue: {again}")
            if rollout.phase != Phase.ROLLING_BACK:
                self.step.print_line(f"to roll back: {self.step.command('abort')}")
            why = "the run that holds the lease was killed" if lease else "no run holds the lease"
            raise RolloutFailed(
                f"{self._title(rollout)} is {rollout.phase.replace('_', ' ')}, and no run works on"
                f" it ({why}); {next_step(rollout)}",
                "PR-704",
            )

    def _title(self, rollout: Rollout) -> str:
        return f"{self.record.service} {rollout.revision}"


def active(lease: Lease | None) -> bool:
    """Return whether a run has the lease: a lease may outlive its run for a while."""
    return lease is not None and identity.gone(lease.details) is not True


def known(record: Record, id: str) -> Rollout:
    """Return a rollout in progress or of the history, by its id; raises InputError."""
    if record.rollout and record.rollout.id == id:
        return record.rollout
    for past in reversed(record.history):
        if past.get("id") == id:
            return t.cast(Rollout, shapes.read(Rollout, past))
    raise InputError(
        f"rollout_id: the journal of {record.service} has no rollout {printable(id)!r}; see"
        " history.yml",
        "PR-130",
    )
