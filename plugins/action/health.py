# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Wait until N instances of a revision are ready. Reads only."""

from __future__ import annotations

import time

from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import InputError, RolloutFailed
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.action import StepAction
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.context import Result, Run
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import State


class ActionModule(StepAction):
    def step(self, run: Run) -> Result:
        wanted = run.settings.replicas
        if not isinstance(wanted, int):
            what = "not given" if wanted is None else f"{wanted} is not a whole number"
            raise InputError(f"rollout_replicas: {what}; say how many instances to wait for")
        stable = run.session.read().stable
        revision = run.settings.revision or (stable.revision if stable else None)
        deadline = time.monotonic() + run.settings.rules.progress_deadline
        while True:
            run.guard.check()
            mine = [i for i in run.conductor.look() if revision in (None, i.revision)]
            waiting = [i for i in mine if i.state is not State.READY]
            ready = len(mine) - len(waiting)
            if ready >= wanted:
                return run.report(False, ready=ready)
            if run.check_mode or time.monotonic() > deadline:
                why = "; ".join(f"{i.id} is {i.state.value}{': ' + i.detail if i.detail else ''}" for i in waiting)
                raise RolloutFailed(f"{ready} of {wanted} instance(s) of {revision} are ready ({why or 'no others are there'})")
            run.checker.wait(0.25)
