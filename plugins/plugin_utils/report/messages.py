# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines for the operator: how a rollout ended, and what it left behind."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ..base.text import count
from ..engine.model import Instance
from ..engine.strategy import BACK, SWITCH_BACK
from ..state.record import WITHOUT_VERDICT, Outcome, Rollout, RolloutKind

NOTHING_STARTED = "refused: nothing was started"
WORTH_NAMING = 1.0  # seconds that a rollout waited


def no_rollout(service: str, place: str) -> str:
    """Return that the journal, which is in this place, has no rollout yet."""
    where = f" in {place}; if there was one, correct rollout_store" if place else ""
    return f"{service}: no rollout so far{where}"


def ended(service: str, rollout: Rollout, why: bool = True) -> str:
    """Return how a rollout ended, in a line, with the reason unless `why` is false."""
    outcome, title = rollout.outcome.replace("_", " "), f"{service} {rollout.revision}"
    failed = f", {count(rollout.failed, 'start')} failed" if rollout.failed else ""
    without = f" without {', '.join(rollout.excluded)}" if rollout.excluded else ""
    took = f"{failed}{',' if failed else ''} in {lasted(rollout)}{without}"
    reason = f". Why: {rollout.reason}" if rollout.reason and why else ""
    if rollout.outcome == Outcome.REFUSED:
        return f"{title} {NOTHING_STARTED}{reason}"
    if rollout.outcome != Outcome.PROMOTED:
        return f"{title} {outcome}{back(rollout)} after {lasted(rollout)}{without}{failed}{reason}"
    if rollout.kind == RolloutKind.SCALE:
        done = "repaired" if rollout.repairs else "scaled"
        return f"{title} {done}: {count(rollout.replicas, 'instance')}{took}"
    if rollout.kind == RolloutKind.REBALANCE:
        return f"{title} rebalanced: {count(rollout.replaced, 'instance')} moved{took}"
    done = (
        f"{count(rollout.replaced, 'instance')} replaced{_by(rollout)}"
        if rollout.replaced
        else count(rollout.replicas, "instance")
    )
    previous = rollout.previous
    if rollout.kind == RolloutKind.ROLLBACK and previous and previous.revision != rollout.revision:
        reason = f" ({rollout.reason or f'rolled back from {previous.revision}'})"
    if why and rollout.reason.startswith(WITHOUT_VERDICT):
        return f"{title} {outcome} {rollout.reason}; {done}{took}"
    return f"{title} {outcome}: {done}{took}{reason}"


def _by(rollout: Rollout) -> str:
    """Return by how many instances others were replaced, if by another number."""
    return f" by {rollout.replicas}" if rollout.replicas != rollout.replaced else ""


def at(rollout: Rollout) -> str:
    """Return the stage that a rollout is at, for a sentence; a rollback has none to speak of."""
    return f" at {rollout.name}" if rollout.name not in ("", BACK, SWITCH_BACK) else ""


def lasted(rollout: Rollout) -> str:
    """Return how long a rollout took that has ended, with its waits where it had any."""
    seconds = round(max(0.0, rollout.updated - rollout.started), 1)
    worked = round(rollout.elapsed, 1)
    if seconds - worked < WORTH_NAMING:
        return f"{seconds:.1f} s"
    return f"{seconds:.1f} s ({worked:.1f} s of work, {seconds - worked:.1f} s waiting)"


def back(rollout: Rollout) -> str:
    """Return the revision that a rollout was rolled back to."""
    if rollout.previous is None:
        return ""
    to = {Outcome.ROLLED_BACK: " to", Outcome.ABORTED: ", back to"}.get(rollout.outcome)
    return f"{to} {rollout.previous.revision}" if to else ""


def left_behind(service: str, orphaned: Sequence[Instance]) -> list[str]:
    """Return a line on instances that were not stopped because their hosts are unreachable, if
    there are any.
    """
    named = ", ".join(f"{instance.id} on {instance.host}" for instance in orphaned)
    if not orphaned:
        return []
    return [
        f"{service}: {named} not stopped: host unreachable (no traffic is routed to it). Rerun "
        "when the host is back, or remove it from "
        "the inventory [PR-610]"
    ]


def numbered(name: str, names: Iterable[str]) -> str:
    """Return the name of a step with the number of the last one: `step 1/4`.

    `names` are those of all steps and of their gates: users count both.
    """
    numbers = [int(number) for step in names for number in re.findall(r"^\w+ (\d+)", step)]
    return re.sub(r"^\w+ \d+", rf"\g<0>/{max(numbers)}", name) if numbers else name
