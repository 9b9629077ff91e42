# SPDX-License-Identifier: GPL-3.0-or-later
"""Move the journal of a service to another store."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping
from dataclasses import replace

from ..plugin_utils.base.text import count
from ..plugin_utils.config.drivers import driver
from ..plugin_utils.controller.rollout.moving import Move
from ..plugin_utils.controller.step.action import StepAction
from ..plugin_utils.controller.step.context import Result, StepContext
from ..plugin_utils.inputs.options import Field, Options
from ..plugin_utils.interfaces.loader import DriverChoice
from ..plugin_utils.interfaces.store import StoreDriver


class ActionModule(StepAction):
    opens = True
    options = Options(
        Field(
            "to_store",
            driver(StoreDriver),
            "Where the journal is moved to: C(driver) and its options.",
            required=True,
        ),
    )

    def needs_platform(self, args: Mapping[str, t.Any]) -> bool:
        return False  # no instance is looked at

    def perform(self, step: StepContext) -> Result:
        choice = step.options["to_store"]
        target = choice.make(replace(step.context, transport=step.transport.apart()))
        source = step.session.store
        service = step.settings.service
        if step.check_mode:
            line = f"{service}: {source.place} would be moved to {target.place}"
            return step.report(True, msg=line)
        moved = Move(source, target, step.session.identity).run()
        what = ", ".join(
            count(number, noun)
            for number, noun in (
                (moved.rollouts, "rollout"),
                (moved.events, "event"),
                (moved.commands, "pending command"),
            )
        )
        done = f"was moved to {target.place} ({what})" if moved.changed else "had been moved"
        line = f"{service}: the journal {done}; now set rollout_store: {shown(choice)}"
        return step.report(moved.changed, msg=line)


def shown(choice: DriverChoice[StoreDriver]) -> str:
    """Return the options of a store as they are written, without secrets."""
    table = choice.module.options
    given = {
        name: "..." if table[name].no_log else value
        for name, value in choice.options.items()
        if value not in (None, table[name].default)
    }
    return str({"driver": choice.name, **given})
