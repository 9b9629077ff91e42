# SPDX-License-Identifier: GPL-3.0-or-later
"""The history of a service for people and programs: what was rolled out, and what for. No I/O."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence

from ..base.text import clean, columns, moment, printable, span
from ..inputs import shapes
from ..state.record import Record
from .messages import no_rollout

COLUMNS = ("began", "rollout", "outcome", "took", "by", "why", "id")


def entries(record: Record) -> list[dict[str, t.Any]]:
    """Return the rollouts in the journal, the newest first."""
    known = [shapes.write(record.rollout)] if record.open else []
    return [_entry(record, rollout) for rollout in (*known, *reversed(record.history))]


def _entry(record: Record, rollout: Mapping[str, t.Any]) -> dict[str, t.Any]:
    previous = rollout.get("previous") or {}
    return {
        "id": rollout.get("id"),
        "revision": rollout.get("revision"),
        "previous": previous.get("revision"),
        "kind": rollout.get("kind", "rollout"),
        "outcome": rollout.get("outcome", ""),
        "order": rollout.get("order"),
        "began": rollout.get("started"),
        "seconds": round(rollout.get("updated", 0.0) - rollout.get("started", 0.0), 1),
        "by": rollout.get("by", ""),
        "why": rollout.get("why", ""),
        "reason": rollout.get("reason", ""),
    }


def lines(record: Record, known: Sequence[Mapping[str, t.Any]], place: str = "") -> list[str]:
    """Return a table of the history, and what a rollback may lead to; `place`: of the journal."""
    if not known:
        return [no_rollout(record.service, place)]
    back = ", ".join(returnable(record))
    hint = f"returns to {back} (rollout_to)" if back else "has no earlier revision to return to"
    return [
        *columns([COLUMNS, *(_row(entry) for entry in known)]),
        printable(f"rollback.yml {hint}"),
    ]


def returnable(record: Record) -> list[str]:
    """Return the promoted revisions that `rollout_to` accepts, the newest first."""
    stable = record.stable.revision if record.stable else None
    promoted = [entry for entry in reversed(record.history) if entry.get("outcome") == "promoted"]
    names = [
        *([record.before.revision] if record.before else []),
        *(str(entry["revision"]) for entry in promoted),
    ]
    return [name for name in dict.fromkeys(names) if name != stable]


def _row(entry: Mapping[str, t.Any]) -> tuple[str, ...]:
    title = (
        f"{entry['previous']} -> {entry['revision']}"
        if entry["previous"]
        else str(entry["revision"])
    )
    notes = [] if entry["kind"] == "rollout" else [entry["kind"]]
    notes += [] if entry["order"] is None else [f"order {entry['order']}"]
    about = f" ({', '.join(notes)})" if notes else ""
    cells = (
        moment(entry["began"] or 0.0),
        f"{title}{about}",
        (entry["outcome"] or "in progress").replace("_", " "),
        span(entry["seconds"]),
        entry["by"],
        "; ".join(text for text in (entry["why"], entry["reason"]) if text),
        entry["id"],
    )
    return tuple(clean(cell) for cell in cells)
