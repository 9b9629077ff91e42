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
from ..plugin_utils.engine.unmanaged import shares
from ..plugin_utils.inputs.options import FLAG, Field, Options
from ..plugin_utils.report import status
from ..plugin_utils.state import commands
from ..plugin_utils.state.record import Record

NOT_ASKED = "instances, since rollout_platform is not given"


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
        problems, known = [NOT_ASKED], []
        failed, note = [], f"unknown at present: {NOT_ASKED}"
        if step.settings.platform is not NO_PLATFORM:
            problems = failed = step.loop.observe_partly()
            known, note = instances(step), step.unmanaged.described(step.fleet)
        held = (
            {"holder": lease.holder, "since": lease.since, "until": lease.until} if lease else None
        )
        events = list(store.timeline(rollout.id)) if rollout else []
        far = status.progress(record.open, events, clock.now()) if record.open else {}
        lines = status.lines(
            record,
            held,
            known,
            failed,
            far,
            store.place,
            note=note,
            shares=shares(step.fleet, step.unmanaged),
            pending=(
                commands.pending(record.open, store.commands(record.obeyed)) if record.open else ()
            ),
            advice=without_hosts(step),
        )
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


def without_hosts(step: StepContext) -> list[str]:
    """Return how the rollout in progress goes on without the hosts that are not known, if any."""
    rollout = step.record.open
    if not rollout or step.settings.platform is NO_PLATFORM or not step.loop.observer.unknown_hosts:
        return []
    from ..plugin_utils.controller.loop import exclusion  # few hosts do not answer

    return [
        f"to go on without {host}: {step.command('exclude', rollout_host=host)}"
        for host in step.loop.observer.unknown_hosts
        if not commands.refusal(rollout.phase, "exclude")
        and not exclusion.refusal(
            {"word": "exclude", "place": host},
            rollout,
            step.loop.platform,
            step.settings.budget,
            fleet=step.fleet,
            targets=step.loop.targets,
        )
    ]


def program(record: Record, generation: int) -> str:
    """Return the image, or else the command, that the journal has of a generation; "": none."""
    known = record.settings.get(generation)
    given = known.platform.get("image") or known.platform.get("command") if known else None
    words = given if isinstance(given, list) else [given or ""]
    return clean(shlex.join(map(str, words)) if isinstance(given, list) else words[0])
