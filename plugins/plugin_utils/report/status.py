# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The status of a service for people: the rollout, the lease, and a table of the instances.

No I/O.
"""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence

from ..base.text import moment, printable, span
from ..engine.model import Phase
from ..state.record import Record, Rollout
from .messages import ended

COLUMNS = ("instance", "revision", "host", "state", "rotation", "requests", "age", "detail")


def lines(
    record: Record,
    lease: Mapping[str, t.Any] | None,
    instances: Sequence[Mapping[str, t.Any]],
    troubles: Sequence[str] = (),
) -> list[str]:
    """Return all lines; `lease`, `instances` and `troubles` are as the step `info` returns them."""
    unseen = [f"unknown at present: {trouble}" for trouble in troubles]
    return [
        printable(line)
        for line in (_rollout(record), _lease(record, lease), *unseen, *_table(instances))
    ]


def _rollout(record: Record) -> str:
    rollout, service = record.rollout, record.service
    if rollout is None:
        return f"{service}: no rollout so far"
    if record.open is None:
        return f"{moment(rollout.updated)}: {ended(service, rollout)}"
    before = (
        f", previous revision {rollout.previous.revision}"
        if rollout.previous
        else ", first deployment"
    )
    why = f". Why: {rollout.reason}" if rollout.reason else ""
    at = f" at {rollout.name}" if rollout.name else ""
    share = (
        f" ({rollout.asked} % of requests)"
        if rollout.asked is not None and rollout.phase != Phase.ROLLING_BACK
        else ""
    )
    since = f" since {moment(rollout.entered)}" if rollout.entered else ""
    waits = (
        f". Waiting for {'; '.join(rollout.waiting)}"
        if rollout.waiting and rollout.phase.waits
        else ""
    )
    judged = "".join(
        f". {key}: {found}" for key, found in rollout.analysis.items() if found and not waits
    )
    paused = f". Paused by {rollout.paused.get('by')}" if rollout.paused else ""
    paused += f": {rollout.paused['why']}" if rollout.paused.get("why") else ""
    started = f", started at {moment(rollout.started)}"
    phase = f"{rollout.phase.replace('_', ' ')}{at}{share}{since}{started}{before}"
    return f"{service} {rollout.revision}: {phase}{why}{waits}{judged}{paused}"


def _lease(record: Record, lease: Mapping[str, t.Any] | None) -> str:
    if lease is not None:
        since, until = moment(lease["since"]), moment(lease["until"])
        return f"lease: {lease['holder']} since {since} until {until}"
    if record.open is None:
        return "lease: free"
    return f"lease: free (no active run). Next: {_next(record.open)}"


def _next(rollout: Rollout) -> str:
    """Return what to do about a rollout without an active run."""
    if rollout.phase == Phase.HELD:
        return "rerun or resume.yml to resume, or rollback.yml to roll back [PR-606]"
    if rollout.phase == Phase.ROLLING_BACK:
        return "rerun to finish the rollback"
    if rollout.paused:
        return "resume.yml to continue, or abort.yml to roll back"
    if rollout.waiting and rollout.phase != Phase.HOLDING:
        return "rerun to keep waiting, promote.yml to continue, or abort.yml to roll back"
    return "rerun to continue, or rollback.yml to roll back"


def _table(instances: Sequence[Mapping[str, t.Any]]) -> list[str]:
    rows = [COLUMNS, *(_row(instance) for instance in instances)]
    if len(rows) == 1:
        return ["no instances"]
    widths = [max(len(row[n]) for row in rows) for n in range(len(COLUMNS))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


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
