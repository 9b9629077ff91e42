# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands that come when a rollout has passed its last stage, and is at its end."""

from __future__ import annotations

from collections.abc import Callable

from ...state import commands, events
from ...state.record import Rollout
from . import exclusion, timing
from .reconcile_loop import ReconcileLoop


def take_commands(loop: ReconcileLoop, rollout: Rollout) -> list[str]:
    """Take the commands that no run has read yet, and return a line about each.

    A host can still be left out, or brought back. What would change anything else is refused, and
    what was to let the rollout continue is met. The lines are for people once that is recorded:
    after a kill before, the next run takes the commands.
    """
    lines = []
    for command in commands.not_withdrawn(loop.session.commands()):
        name = command["word"]
        if command["rollout"] != rollout.id or name not in commands.COMMANDS:
            loop.session.record.obeyed = command["number"]
            continue
        end, refused, ineffective = "the rollout was at its end", "", ""
        if name in commands.OF_HOSTS:
            refused = exclusion.refusal(
                command,
                rollout,
                loop.platform,
                loop.settings.budget,
                fleet=loop.observe_fleet(),
                targets=loop.targets,
            )
            if not refused:
                rollout.excluded = commands.left_out(rollout, [command])
        elif name in commands.CHANGING:
            refused = end
        else:
            ineffective = end
        loop.session.record.obeyed = command["number"]
        loop.event(events.CommandTaken.of(command, refused, ineffective))
        title = f"{loop.settings.service} {rollout.revision}"
        lines.append(f"{title}: {commands.outcome(command, refused, ineffective)}")
    return lines


def reader(loop: ReconcileLoop, rollout: Rollout) -> Callable[[], None]:
    """Return a function that takes commands every second, records them and says so."""
    due = loop.now()

    def read() -> None:
        nonlocal due
        if loop.now() < due:
            return
        due = loop.now() + timing.COMMANDS
        if lines := take_commands(loop, rollout):
            loop.commit()
        for line in lines:
            loop.print_line(line)

    return read
