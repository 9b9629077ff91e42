# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rollout, the fleet, the history, as data. Reads only."""

from __future__ import annotations

from ansible_collections.progressive.rollout.plugins.plugin_utils.base import clock
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.action import StepAction
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.context import Result, Run
from ansible_collections.progressive.rollout.plugins.plugin_utils.inputs import values
from ansible_collections.progressive.rollout.plugins.plugin_utils.report import status


class ActionModule(StepAction):
    own = ("timeline",)

    def step(self, run: Run) -> Result:
        timeline = values.boolean(run.own.get("timeline", False), "rollout_timeline")
        record = run.session.read()
        store, rollout = run.session.store, record.rollout
        lease = store.lease()
        troubles = run.conductor.glance()
        known = instances(run)
        held = {"holder": lease.holder, "since": lease.since, "until": lease.until} if lease else None
        return run.report(
            False,
            instances=known,
            history=record.history,
            lease=held,
            troubles=troubles,
            lines=status.lines(record, held, known, troubles),
            timeline=list(store.timeline(rollout.id)) if timeline and rollout else [],
        )


def instances(run: Run) -> list[dict[str, object]]:
    """Every instance, in the order they were made: their ids are numbered."""
    return [
        {
            "id": i.id,
            "revision": i.revision,
            "generation": i.generation,
            "state": i.state.value,
            "rotation": i.rotation.value if run.conductor.balanced and run.conductor.table else None,
            "active": i.active,
            "host": i.host,
            "age": round(clock.now() - i.created, 1),
            "detail": i.detail,
        }
        for i in sorted(run.conductor.fleet, key=lambda i: (len(i.id), i.id))
    ]
