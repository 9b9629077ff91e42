# SPDX-License-Identifier: GPL-3.0-or-later
"""The block of lines that a failed rollout ends with. No I/O."""

from __future__ import annotations

import textwrap
import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..base.text import clean
from ..engine.model import Phase
from ..state.record import Rollout
from .messages import NOTHING_STARTED, at, back, ended

WIDTH = 78  # of a line, where it can be broken
LABEL = 12
MARK = "last log lines: "  # before what drivers quote of an instance's log
LINES, LINE = 8, 200  # of a log that are shown: how many, and how many characters of each


@dataclass(frozen=True)
class Broken:
    """The new instance that failed last."""

    id: str
    host: str
    how: str
    log: Sequence[str]  # its last lines


def broken(rollout: Rollout, events: Sequence[Mapping[str, t.Any]]) -> Broken | None:
    """Return the new instance that failed last, by the timeline; None: none did."""
    for event in reversed(events):
        mine = event.get("kind") == "state" and event.get("generation") == rollout.generation
        if mine and event.get("detail") and event.get("state") in ("failed", "not_ready"):
            how, _mark, log = str(event["detail"]).partition(MARK)
            quoted = [clean(line, LINE) for line in log.split(" | ") if line.strip()]
            return Broken(
                clean(event.get("instance", "")),
                clean(event.get("host") or ""),
                clean(how).rstrip("; "),
                quoted[-LINES:],
            )
    return None


def block(
    service: str,
    rollout: Rollout,
    failed: Broken | None,
    log: str,
    serving: str,
    following: Sequence[tuple[str, str]],
) -> list[str]:
    """Return the lines.

    Args:
        service: Name of the service.
        rollout: The rollout that failed.
        failed: The instance that failed last.
        log: How its whole log is read.
        serving: What serves now; empty: not known.
        following: What a person can do now, each with the command, which is never broken.
    """
    rows = [("why", cause(rollout, failed is not None))]
    if failed:
        where = f"{failed.id} on {failed.host}" if failed.host else failed.id
        rows.append(("where", f"{where}: {failed.how}" if failed.how else where))
        rows += [("log" if not n else "", line) for n, line in enumerate(failed.log)]
    rows += [("whole log", log)] if log else []
    rows += [("serves now", serving)] if serving else []
    lines = [line for label, text in rows for line in _row(label, text)]
    return [
        f"---- {title(service, rollout)} ".ljust(WIDTH, "-"),
        *lines,
        *(f"{what:<{LABEL}}{command}" for what, command in following),
        "-" * WIDTH,
    ]


def cause(rollout: Rollout, detailed: bool) -> str:
    """Return why a rollout failed; in short, if the instance that failed last is `detailed`."""
    reason = without_log(rollout.reason)
    reason = reason.partition(" Last: ")[0] if detailed else reason
    return clean(f"{reason} [{rollout.cause}]" if rollout.cause else reason)


def without_log(reason: str) -> str:
    """Return a reason without the log lines that it may quote."""
    return reason.partition(MARK)[0].rstrip("; ")


def rolled_back(service: str, rollout: Rollout, left: str = "") -> str:
    """Return that a rollout was rolled back, and why, as the failed task says it.

    `left` is what the rollback could not restore.
    """
    to = back(rollout) if rollout.previous else ", nothing of it is left"
    return (
        f"{service} {rollout.revision}: now {rollout.outcome.replace('_', ' ')}{to}{left}."
        f" Why: {without_log(rollout.reason)}"
    )


def refused(service: str, rollout: Rollout) -> str:
    """Return that a rollout was refused, and why, as the failed task says it."""
    why = without_log(rollout.reason)
    return f"{service} {rollout.revision}: {NOTHING_STARTED}. Why: {why}"


def title(service: str, rollout: Rollout) -> str:
    """Return where a failed rollout ended."""
    if rollout.phase == Phase.HELD:
        return f"{service} {rollout.revision} held{at(rollout)}"
    return ended(service, rollout, why=False)


def _row(label: str, text: str) -> list[str]:
    parts = textwrap.wrap(text, WIDTH - LABEL, break_long_words=False) or [""]
    return [f"{label if not number else '':<{LABEL}}{part}" for number, part in enumerate(parts)]
