# SPDX-License-Identifier: GPL-3.0-or-later
"""Return the rollout, the fleet and the history as data. Reads only."""

from __future__ import annotations

import shlex
import typing as t
from collections.abc import Mapping
from contextlib import suppress

from ..plugin_utils.base import clock
from ..plugin_utils.base.errors import InputError
from ..plugin_utils.base.text import clean
from ..plugin_utils.config.settings import NO_PLATFORM
from ..plugin_utils.config.step_options import SHOW
from ..plugin_utils.controller.step.action import StepAction
from ..plugin_utils.controller.step.context import Result, StepContext
from ..plugin_utils.inputs.options import FLAG, Field, Options
from ..plugin_utils.report import status
from ..plugin_utils.state.record import Record


class ActionModule(StepAction):
    moves = False
    waits = False
    options = Options(
        Field(
            "timeline",
            FLAG,
            "Whether to return the events of the rollout as well. There can be many.",
            default=False,
        ),
        SHOW,
    )

    def needs_platform(self, args: Mapping[str, t.Any]) -> bool:
        return bool(args.get("platform"))

    def _run(self, task_vars: dict[str, t.Any]) -> Result:
        """Run the step; without a platform, with the variables that the rollout began with."""
        if not self._task.args.get("platform"):
            from ..plugin_utils.config import remembered  # as above

            with self._open(task_vars) as step:
                kept = remembered.of_rollout(step.session.read())
            with suppress(InputError):  # secrets of it are missing: the journal alone is shown
                remembered.restored(kept, self._task.args)
                self._task.args["restored_settings"] = kept
        return super()._run(task_vars)

    def perform(self, step: StepContext) -> Result:
        record = step.session.read()
        store, rollout = step.session.store, record.rollout
        lease = store.lease()
        if step.settings.platform is NO_PLATFORM:
            problems, known = ["instances, since rollout_platform is not given"], []
        else:
            problems = step.loop.observe_partly()
            known = instances(step)
        held = (
            {"holder": lease.holder, "since": lease.since, "until": lease.until} if lease else None
        )
        events = list(store.timeline(rollout.id)) if rollout else []
        far = status.progress(record.open, events, clock.now()) if record.open else {}
        beside = step.unmanaged.described(step.fleet)
        lines = status.lines(record, held, known, problems, far, store.place, beside=beside)
        if rollout and rollout.release:
            lines += step.release.lines()
        return step.report(
            False,
            instances=known,
            history=record.history,
            lease=held,
            unmanaged=step.unmanaged.to_dict(step.fleet),
            troubles=problems,
            progress=far,
            lines=lines,
            timeline=events if step.options["timeline"] else [],
        )


def instances(step: StepContext) -> list[dict[str, object]]:
    """Return every instance, in the order of their numbers."""
    restarts = {report.labels.id: report.restarts for report in step.loop.reports}
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
            "restarts": restarts.get(i.id, 0),
            "runs": program(step.record, i.generation),
            "detail": i.detail,
        }
        for i in sorted(step.loop.fleet, key=lambda i: (len(i.id), i.id))
    ]


def program(record: Record, generation: int) -> str:
    """Return the image, or else the command, that the journal has of a generation; "": none."""
    known = record.settings.get(generation)
    given = known.platform.get("image") or known.platform.get("command") if known else None
    words = given if isinstance(given, list) else [given or ""]
    return clean(shlex.join(map(str, words)) if isinstance(given, list) else words[0])
