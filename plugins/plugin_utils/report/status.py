# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a service stands, in lines for people: the rollout, the lease, and a table of the instances. No I/O."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence

from ansible_collections.progressive.rollout.plugins.plugin_utils.base.text import moment, printable, span
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Phase
from ansible_collections.progressive.rollout.plugins.plugin_utils.report.messages import ended
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.record import Record, Rollout

COLUMNS = ("instance", "revision", "host", "state", "rotation", "requests", "age", "detail")


def lines(
    record: Record, lease: Mapping[str, t.Any] | None, instances: Sequence[Mapping[str, t.Any]], troubles: Sequence[str] = ()
) -> list[str]:
    """All of it; `lease`, `instances` and `troubles` as the step `info` returns them."""
    unseen = [f"not to be seen now: {trouble}" for trouble in troubles]
    return [printable(line) for line in (_rollout(record), _lease(record, lease), *unseen, *_table(instances))]


def _rollout(record: Record) -> str:
    rollout, service = record.rollout, record.service
    if rollout is None:
        return f"{service}: no rollout is known"
    if record.open is None:
        return f"{moment(rollout.updated)}: {ended(service, rollout)}"
    before = f", before it {rollout.previous.revision}" if rollout.previous else ", the first one"
    why = f". Why: {rollout.reason}" if rollout.reason else ""
    at = f" at {rollout.name}" if rollout.name else ""
    share = f" ({rollout.asked} % of requests)" if rollout.asked is not None and rollout.phase != Phase.ROLLING_BACK else ""
    since = f" since {moment(rollout.entered)}" if rollout.entered else ""
    waits = f". Waits at {'; '.join(rollout.waiting)}" if rollout.waiting and rollout.phase.waits else ""
    judged = "".join(f". {key}: {said}" for key, said in rollout.analysis.items() if said and not waits)
    paused = f". Paused by {rollout.paused.get('by')}" if rollout.paused else ""
    said = f": {rollout.paused['why']}" if rollout.paused.get("why") else ""
    standing = f"{rollout.phase.replace('_', ' ')}{at}{share}{since}, begun at {moment(rollout.started)}{before}"
    return f"{service} {rollout.revision}: {standing}{why}{waits}{judged}{paused}{said}"


def _lease(record: Record, lease: Mapping[str, t.Any] | None) -> str:
    if lease is not None:
        return f"lease: {lease['holder']} since {moment(lease['since'])} until {moment(lease['until'])}"
    if record.open is None:
        return "lease: nobody has it"
    return f"lease: nobody has it, so nobody is at work on the rollout; {_onwards(record.open)}"


def _onwards(rollout: Rollout) -> str:
    """What to do about a rollout that nobody runs."""
    if rollout.phase == Phase.HELD:
        return "it waits for you: run it again to go on, or roll it back (rollback.yml)"
    if rollout.phase == Phase.ROLLING_BACK:
        return "run it again to go on with the way back"
    if rollout.paused:
        return "resume.yml goes on with it, abort.yml goes back"
    if rollout.waiting and rollout.phase != Phase.HOLDING:
        return "run it again to wait on; promote.yml lets it pass where it waits for a person, abort.yml goes back"
    return "run it again to go on, or roll it back (rollback.yml)"


def _table(instances: Sequence[Mapping[str, t.Any]]) -> list[str]:
    rows = [COLUMNS, *(_row(instance) for instance in instances)]
    if len(rows) == 1:
        return ["no instance is known"]
    widths = [max(len(row[n]) for row in rows) for n in range(len(COLUMNS))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _row(instance: Mapping[str, t.Any]) -> tuple[str, ...]:
    return (
        instance["id"],
        instance["revision"],
        instance["host"],
        instance["state"].replace("_", " "),
        instance["rotation"] or "-",
        str(instance["active"]) if instance["rotation"] else "-",
        span(instance["age"]),
        " | ".join(instance["detail"].splitlines()),
    )
