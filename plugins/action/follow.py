# SPDX-License-Identifier: GPL-3.0-or-later
"""Show a rollout that another run works on, until it ends or waits for a person. Reads only."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ..plugin_utils.config.step_options import ID
from ..plugin_utils.controller.step.action import StepAction
from ..plugin_utils.controller.step.context import Result, StepContext
from ..plugin_utils.controller.step.follower import HELD, PROMOTED, ROLLED_BACK, Follower
from ..plugin_utils.inputs.options import Field, Options, choice
from ..plugin_utils.report.messages import ended


class ActionModule(StepAction):
    opens = True
    options = Options(
        ID,
        Field(
            "expected",
            choice(
                **{
                    PROMOTED: "It is expected to be promoted.",
                    ROLLED_BACK: "It is expected to be rolled back, as after an abort.",
                    HELD: "It is expected to be held.",
                }
            ),
            "What the rollout is expected to become. The step fails if it becomes something else. A"
            " rollout that waits for an operator is not a failure.",
            default=PROMOTED,
        ),
    )

    def needs_platform(self, args: Mapping[str, t.Any]) -> bool:
        return False  # the journal has all, whatever hosts and load balancers do

    def perform(self, step: StepContext) -> Result:
        record = step.session.read()
        id = step.options.get("id") or (record.open.id if record.open else "")
        if id:
            return Follower(step, id, step.options["expected"]).run()
        last = ended(record.service, record.rollout) if record.rollout else "no rollout so far"
        return step.report(False, msg=f"nothing to follow: {last}", outcome="", waiting=False)
