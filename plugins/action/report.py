# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the report of a rollout, and return the history of the service. Reads the journal only."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ..plugin_utils.base.errors import ReportError
from ..plugin_utils.config.step_options import ID
from ..plugin_utils.controller.background.reports import Reports
from ..plugin_utils.controller.step.action import StepAction
from ..plugin_utils.controller.step.context import Result, StepContext
from ..plugin_utils.inputs.options import Field, Options, choice
from ..plugin_utils.pages.render import MENTION
from ..plugin_utils.report import history


class ActionModule(StepAction):
    waits = False
    options = Options(
        ID,
        Field(
            "show",
            choice(
                report="The files written, or without O(report) the Markdown.",
                history="The history of the service.",
            ),
            "What to also show.",
        ),
    )

    def needs_platform(self, args: Mapping[str, t.Any]) -> bool:
        return False  # the journal has all, whatever hosts and load balancers do

    def perform(self, step: StepContext) -> Result:
        record = step.session.read()
        reports = Reports(record, step.session.store)
        entries = history.entries(record)
        known: Result = {
            "history": entries,
            "lines": history.lines(record, entries, step.session.store.place),
        }
        show = step.options.get("show")
        if show == "history" or (show and not reports.rollouts):
            step.show(known["lines"])
        if not reports.rollouts:
            return step.report(False, files=[], markdown="", **known)
        id = reports.known(step.options.get("id"))
        path = step.settings.report
        files = reports.files(id, path) if path else {}
        changed = write(reports, files, path or "", step.check_mode)
        markdown = reports.markdown(id)
        if show == "report":
            step.show(list(files) or shown(markdown))
        return step.report(bool(changed), files=list(files), markdown=markdown, **known)


def shown(markdown: str) -> list[str]:
    """Return the lines of a report for a terminal, where no name in it is taken for a mention."""
    return markdown.replace(MENTION, "@").splitlines()


def write(reports: Reports, files: Mapping[str, str], path: str, check: bool) -> list[str]:
    """Write the files of a report; raises ReportError where that is not possible."""
    try:
        return reports.write(files, path, check)
    except OSError as exc:
        raise ReportError(
            f"rollout_report: {exc.filename or path}: {exc.strerror or exc}; create the directory,"
            " or grant access",
            "PR-630",
        ) from None
