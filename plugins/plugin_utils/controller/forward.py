# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of a rollout that goes well, each on its own or several in one task: replace, promote, finish."""

from __future__ import annotations

from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import RolloutFailed
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller import in_place, lifecycle
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.context import Result, Run
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Composition, Phase
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.strategy import FINISH, PARTS, PROMOTE, REPLACE
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.record import Outcome


def advance(run: Run, through: str) -> Result:
    """Replace, then promote and finish as far as `through` says, under one lease and with one set of connections."""
    run.begin()
    result = replace(run)
    acted = result["changed"]
    for part in PARTS[1 : PARTS.index(through) + 1]:
        run.conductor.refresh()  # the platform is observed again at the moment of the switch
        result = promote(run) if part == PROMOTE else finish(run)
        acted = acted or result["changed"]
    return {**result, "changed": acted}


def replace(run: Run) -> Result:
    """Replace the instances, up to the stage that the promotion begins with."""
    rollout = run.record.open
    if rollout is None:
        return run.report(False)
    lifecycle.refuse_way_back(rollout, run.settings.service)
    rollout.step = REPLACE
    lifecycle.prepare(run, rollout)
    lifecycle.walk(run, rollout, REPLACE)
    return run.report(run.conductor.acted)


def promote(run: Run) -> Result:
    """Make the new revision the stable one, once enough of its instances are ready."""
    rollout = run.record.open
    if rollout is None:
        return run.report(False)
    if rollout.phase is Phase.ROLLING_BACK:
        raise RolloutFailed(
            f"{run.settings.service} {rollout.revision} cannot be promoted: {rollout.reason}; it is to be rolled back", "PR-611"
        )
    rollout.step = PROMOTE
    lifecycle.walk(run, rollout, PROMOTE)
    stable = Composition(rollout.revision, rollout.generation, rollout.replicas)
    if rollout.phase in (Phase.PROMOTING, Phase.HOLDING) and run.record.stable == stable:
        return run.report(run.conductor.acted)
    run.record.stable = stable
    lifecycle.turn(run, rollout, Phase.PROMOTING)
    run.conductor.commit()
    return run.report(True)


def finish(run: Run) -> Result:
    """Stop what is left of the old revision, write the history, and give the lease back."""
    rollout = run.record.open
    if rollout is not None and run.in_place:
        with in_place.told(run):
            return in_place.end(run, rollout)
    if rollout is None:
        run.conductor.look()
        return run.report(False)
    if rollout.phase not in (Phase.PROMOTING, Phase.HOLDING):
        raise RolloutFailed(
            f"{run.settings.service} {rollout.revision} is {rollout.phase}: promote it, or roll it back, before finish",
            "PR-611",
        )
    rollout.step = FINISH
    lifecycle.walk(run, rollout, FINISH)
    run.record.stable = Composition(rollout.revision, rollout.generation, rollout.replicas)  # an operator may have scaled it
    lifecycle.close(run, Outcome.PROMOTED, rollout.reason)
    return run.report(True)
