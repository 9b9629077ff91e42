# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Superseding a rollout that another run is at work on: that run is told to give way, and waited for."""

from __future__ import annotations

import time

from ansible_collections.progressive.rollout.plugins.plugin_utils.base import clock
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import AlreadyWalked, LeaseHeld
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.text import span
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller import lifecycle
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.context import Run
from ansible_collections.progressive.rollout.plugins.plugin_utils.state import commands
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.record import Kind, Rollout

LOOK = 0.5  # seconds between two looks at whether the other run is over


def begin(run: Run, revision: str) -> str:
    """As `Run.begin_once`; but a run whose rollout `revision` supersedes is told to give way, and waited for.

    Raises LeaseHeld where the rollout is not to be superseded, or its run does not give way within the progress deadline.
    """
    try:
        return run.begin_once()
    except AlreadyWalked:
        raise
    except LeaseHeld as exc:
        rollout = run.session.read().open
        if rollout is None or rollout.kind == Kind.ROLLBACK or commands.refusal(rollout.phase, commands.GIVE_WAY):
            raise
        if not lifecycle.superseded(run, rollout, revision):
            if rollout.revision == revision:
                raise
            raise LeaseHeld(f"{exc}; or abort that rollout (abort.yml), or supersede it (rollout_supersede: true)") from None
        who = exc
    said = _say(run, rollout, commands.GIVE_WAY, why=revision)
    patience = run.settings.rules.progress_deadline
    run.conductor.say(
        f"{run.settings.service} {revision}: told {rollout.revision} to give way; waits for that for {span(patience)} at most ({who})"
    )
    deadline = time.monotonic() + patience
    while True:
        run.guard.check()
        time.sleep(LOOK)
        try:
            return run.begin_once()
        except AlreadyWalked:
            raise
        except LeaseHeld as exc:
            if time.monotonic() < deadline:
                continue
            _say(run, rollout, commands.WITHDRAW, of=said)
            raise LeaseHeld(f"{exc}; it was told to give way, and did not within {span(patience)}") from None


def _say(run: Run, rollout: Rollout, word: str, **more: object) -> int:
    """Post a word to the rollout; its number."""
    by = run.session.identity.holder
    number: int = run.session.store.post({"word": word, "rollout": rollout.id, "by": by, "at": round(clock.now(), 3), **more})
    return number
