# SPDX-License-Identifier: GPL-3.0-or-later
"""Take instances out of rotation at every load balancer, wait for their requests, and stop them."""

from __future__ import annotations

from ..plugin_utils.base.errors import InputError
from ..plugin_utils.controller.loop import conclusion, draining
from ..plugin_utils.controller.rollout.places import PlacementNotes
from ..plugin_utils.controller.rollout.stages import refuse_in_place
from ..plugin_utils.controller.step.action import StepAction
from ..plugin_utils.controller.step.context import Result, StepContext
from ..plugin_utils.inputs.options import Field, Kind, Options, unparsed


class ActionModule(StepAction):
    options = Options(
        Field(
            "instances",
            Kind("list", unparsed, elements="str"),
            "The instances, by the names that M(progressive.rollout.info) shows.",
            required=True,
        ),
    )

    def perform(self, step: StepContext) -> Result:
        names = step.options.get("instances")
        if (
            not isinstance(names, list)
            or not names
            or not all(isinstance(name, str) for name in names)
        ):
            raise InputError(
                "rollout_instances: expected a list of instances as info returns them, got"
                f" {names!r}",
                "PR-118",
            )
        strangers = [name for name in names if name.rpartition("-")[0] != step.settings.service]
        if strangers:
            raise InputError(
                f"rollout_instances: {strangers[0]!r} is not an instance of"
                f" {step.settings.service}; info lists them",
                "PR-129",
            )
        refuse_in_place(step)
        step.begin()
        present = {i.id for i in step.loop.observe_fleet() if i.state.counted}
        going = [name for name in names if name in present]
        diff = {"before": step.composition(), "after": step.composition(without=going)}
        if going and not step.check_mode:
            draining.drain(step.loop, going)
            conclusion.remove_dead(step.loop)
            step.loop.commit()
        forgotten = PlacementNotes(step).forget(names)
        if forgotten and not step.check_mode:
            step.loop.commit()
        return step.report(bool(going) or forgotten, diff=diff)
