# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands that come when a rollout has passed its last stage, and is at its end."""

from __future__ import annotations

from collections.abc import Collection

from ...state import commands, events
from ...state.record import Rollout
from . import timing
from .reconcile_loop import ReconcileLoop

END = "the rollout was at its end"


def take_commands(
    loop: ReconcileLoop, rollout: Rollout, awaited: Collection[str] = ()
) -> list[str]:
    """Take the commands that no run has read yet, and return a line about each.

    A host can be left out where the end waits for it alone (`awaited`). What would change anything
    else is refused, and what was to let the rollout continue is met. The lines are for people once
    that is recorded: after a kill before, the next run takes the commands.
    """
    lines = []
    for command in commands.not_withdrawn(loop.session.commands()):
        loop.session.record.obeyed = command["number"]
        name = command["word"]
        if command["rollout"] != rollout.id or name not in commands.COMMANDS:
            continue
        refused, ineffective = (END, "") if name in commands.CHANGING else ("", END)
        if name == "exclude" and command["place"] in {*awaited}.difference(rollout.excluded):
            rollout.excluded = commands.left_out(rollout, [command])
            refused = ""
        loop.event(events.CommandTaken.of(command, refused, ineffective))
        title = f"{loop.settings.service} {rollout.revision}"
        lines.append(f"{title}: {commands.outcome(command, refused, ineffective)}")
    return lines


class LateCommands:
    """Takes commands every second while a rollout's end waits for hosts."""

    def __init__(self, loop: ReconcileLoop, rollout: Rollout | None) -> None:
        self._loop, self._rollout, self._due = loop, rollout, loop.now()

    def take(self, awaited: Collection[str]) -> Collection[str]:
        """Take the commands, record them and say so; return the hosts that are left out."""
        if self._rollout is None:
            return ()
        if self._loop.now() >= self._due:
            self._due = self._loop.now() + timing.COMMANDS
            if lines := take_commands(self._loop, self._rollout, awaited):
                self._loop.commit()
            for line in lines:
                self._loop.print_line(line)
        return self._rollout.excluded
