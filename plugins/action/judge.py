# SPDX-License-Identifier: GPL-3.0-or-later
"""Replay the analyses of a past rollout under other settings. Reads the journal only."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ..plugin_utils.analysis import replay
from ..plugin_utils.config.step_options import ID, SHOW, TRY
from ..plugin_utils.controller.background.reports import Reports
from ..plugin_utils.controller.step.action import StepAction
from ..plugin_utils.controller.step.context import Result, StepContext
from ..plugin_utils.inputs.options import Options
from ..plugin_utils.report.messages import no_rollout


class ActionModule(StepAction):
    waits = False
    options = Options(ID, TRY, SHOW)

    def needs_platform(self, args: Mapping[str, t.Any]) -> bool:
        return False  # the journal has all, whatever hosts and load balancers do

    def perform(self, step: StepContext) -> Result:
        change = step.options.get("try") or {}
        replay.check(change)
        store = step.session.store
        reports = Reports(step.session.read(), store)
        if not reports.rollouts:
            lines = [no_rollout(reports.service, store.place)]
            return step.report(False, id="", analyses=[], lines=lines)
        id = reports.known(step.options.get("id"))
        analyses = replay.replayed(store.timeline(id), change)
        return step.report(False, id=id, analyses=analyses, lines=replay.lines(id, analyses))
