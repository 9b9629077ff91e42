# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Return the rollout, the fleet and the history as data. Reads only."""

from __future__ import annotations

from ..plugin_utils.base import clock
from ..plugin_utils.controller.action import StepAction
from ..plugin_utils.controller.context import Result, StepContext
from ..plugin_utils.inputs.options import FLAG, Field, Options
from ..plugin_utils.report import status


class ActionModule(StepAction):
    own = Options(
        Field(
            "timeline",
            FLAG,
            "Whether to return the events of the rollout as well. There may be many.",
            default=False,
        ),
    )

    def perform(self, step: StepContext) -> Result:
        timeline = step.own["timeline"]
        record = step.session.read()
        store, rollout = step.session.store, record.rollout
        lease = store.lease()
        troubles = step.loop.observe_partly()
        known = instances(step)
        held = (
            {"holder": lease.holder, "since": lease.since, "until": lease.until} if lease else None
        )
        return step.report(
            False,
            instances=known,
            history=record.history,
            lease=held,
            troubles=troubles,
            lines=status.lines(record, held, known, troubles),
            timeline=list(store.timeline(rollout.id)) if timeline and rollout else [],
        )


def instances(step: StepContext) -> list[dict[str, object]]:
    """Return every instance, in the order of their numbers."""
    return [
        {
            "id": i.id,
            "revision": i.revision,
            "generation": i.generation,
            "state": i.state.value,
            "rotation": i.rotation.value if step.loop.table else None,
            "active": i.active,
            "host": i.host,
            "age": round(clock.now() - i.created, 1),
            "detail": i.detail,
        }
        for i in sorted(step.loop.fleet, key=lambda i: (len(i.id), i.id))
    ]
