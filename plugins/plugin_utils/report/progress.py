# SPDX-License-Identifier: GPL-3.0-or-later
"""Live progress: few lines, for a terminal, AWX or a log file. No I/O."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ..base.text import span
from ..engine.model import Instance, Phase, State
from ..engine.strategy import Groups, Plan, Stage, Waypoint
from ..engine.unmanaged import NOTHING, Unmanaged, serving_weight
from ..state.record import Rollout, RolloutKind
from .messages import numbered

SEPARATOR = "  "
Expected = Callable[[Sequence[Instance]], float | None]
LEAST = 0.5  # seconds left, below which an estimate says nothing
LATE, PART = 2.0, 0.1  # seconds, and the part of what was expected, that an overrun is told from


@dataclass(frozen=True)
class Heading:
    """What the lines of a stage are about: from which revision to which, and the stage."""

    title: str
    stage: str = ""
    new: str = "new"  # what instances of the waypoint's generation are called
    old: str = "old"

    @classmethod
    def of(cls, service: str, rollout: Rollout, stage: Stage, plan: Plan) -> Heading:
        """Return the heading of a stage of the rollout, which follows this plan."""
        previous = rollout.previous.revision if rollout.previous else ""
        if rollout.phase == Phase.ROLLING_BACK:
            if not previous:
                return cls(f"{service} removing {rollout.revision}")
            title = f"{service} rolling back {rollout.revision} -> {previous}"
            return cls(title, new=f"{previous}:", old=f"{rollout.revision}:")
        if rollout.kind == RolloutKind.ROLLBACK and previous:
            title = f"{service} rolling back {previous} -> {rollout.revision}"
            return cls(title, new=f"{rollout.revision}:", old=f"{previous}:")
        label = _stage(stage, rollout, plan)
        if stage.waypoint.is_baseline:
            return cls(_title(service, rollout, previous), label, new="baseline")
        return cls(_title(service, rollout, previous), label)


class Lines:
    """Shows the progress of a stage: when something changed, and less often the longer it takes."""

    def __init__(
        self,
        print_line: Callable[[str], None],
        title: str,
        started: float,
        heading: Heading | None = None,
        expected: Expected = lambda _fleet: None,
    ) -> None:
        """Make the lines of a stage that begins now.

        Args:
            print_line: Writes a line.
            title: Begins each line that is not about counts.
            started: When the rollout began.
            heading: Begins each line about counts; the title, if not given.
            expected: Returns the seconds until the rollout ends, if nothing goes wrong and without
                waits for gates, for the fleet as it is; None: unknown.
        """
        self._print = print_line
        self._title = title
        self._heading = heading or Heading(title)
        self._started = started
        self._expected = expected
        # since when the end is expected, and when it was then
        self._forecast: tuple[float, float] | None = None
        self._next, self._first = -math.inf, math.inf  # when lines are due, and the first was
        self._last = ""

    def show(
        self,
        fleet: Sequence[Instance],
        waypoint: Waypoint,
        failed: int,
        now: float,
        force: bool = False,
        unmanaged: Unmanaged = NOTHING,
    ) -> None:
        """Show one line on the fleet if one is due; with `force`, the last line of a stage that had
        any.

        `failed` is the number of failed starts since the rollout began, or was resumed after a
        hold.
        """
        if not self._last if force else now < self._next:
            return
        text = describe(fleet, waypoint, self._heading, failed, unmanaged)
        if text == self._last and (force or now < self._next + 15):
            return
        self._first = min(self._first, now)
        heading = [self._heading.title, self._heading.stage]
        words = [
            *(word for word in heading if word),
            text,
            clock(now - self._started) + self._left(self._expected(fleet), now),
        ]
        self._print(SEPARATOR.join(words))
        self._last = text
        self._next = now + max(1.0, (now - self._first) / 10)

    def note(self, text: str) -> None:
        """Show one line that is not about counts."""
        self._print(f"{self._title} {text}")

    def _left(self, expected: float | None, now: float) -> str:
        """Return how long the rollout is expected to take from now on, if that is known, and by how
        much that is longer than was expected at first.
        """
        if expected is None:
            return ""
        since, end = self._forecast = self._forecast or (now, now + expected)
        late = now + expected - end
        overrun = late > max(LATE, PART * (end - since))
        return (f", about {span(max(1.0, expected))} left" if expected > LEAST else "") + (
            f", longer than expected by {span(late)}" if overrun else ""
        )


def describe(
    fleet: Iterable[Instance],
    waypoint: Waypoint,
    heading: Heading,
    failed: int = 0,
    unmanaged: Unmanaged = NOTHING,
) -> str:
    """Return the counts in words: `new 3/6 ready (1 starting)  old 3  traffic 50 %`.

    The share is of the whole: what is `unmanaged` gets requests, too.
    """
    new = dict.fromkeys(State, 0)
    old = dict(new)
    serving, new_serving = unmanaged.weight, 0
    for instance in fleet:
        is_new = instance.generation == waypoint.generation
        (new if is_new else old)[instance.state] += 1
        weight = serving_weight(instance)
        serving += weight
        new_serving += weight * is_new
    left = sum(count for state, count in old.items() if state.counted)
    unreachable = new[State.UNREACHABLE] + old[State.UNREACHABLE]
    parts = [
        f"{heading.new} {_ready(new, waypoint.new, failed)}",
        f"{heading.old} {left}",
        f"unreachable {unreachable}" if unreachable else "",
        f"traffic {_share(new_serving, serving)} {_to(heading)}".rstrip() if serving else "",
    ]
    return SEPARATOR.join(part for part in parts if part)


def clock(seconds: float) -> str:
    """Return a time that has passed as `01:12`, or `1:01:12` from an hour on."""
    minutes, rest = divmod(round(seconds), 60)
    return (
        f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"
        if minutes >= 60
        else f"{minutes:02d}:{rest:02d}"
    )


def _ready(counts: dict[State, int], wanted: int, failed: int) -> str:
    """Return how many of the wanted instances are ready, and what the others do."""
    ready = counts[State.READY]
    others = [
        (counts[State.STARTING], "starting"),
        (counts[State.NOT_READY], "not ready"),
        (min(counts[State.FAILED], failed), "failed"),
    ]
    shown = ", ".join(f"{count} {state}" for count, state in others if count)
    # more than are wanted while a service is scaled down
    numbers = f"{ready}/{wanted} ready" if ready <= wanted else f"{ready} ready of {wanted} wanted"
    return f"{numbers} ({shown})" if shown else numbers


def _share(part: int, whole: int) -> str:
    return f"{round(100 * part / whole)} %"


def _to(heading: Heading) -> str:
    """Return whose share of the traffic it is, where that is not the new instances'."""
    return "" if heading.new == Heading.new else f"to {heading.new.rstrip(':')}"


def _title(service: str, rollout: Rollout, previous: str) -> str:
    """Return what the rollout does, from which revision to which."""
    revision = rollout.revision
    if rollout.repairs:
        return f"{service} {revision} repairing"
    if rollout.kind == RolloutKind.SCALE:
        return f"{service} {revision} scaling to {rollout.replicas}"
    if rollout.kind in (RolloutKind.RESTART, RolloutKind.REBALANCE):
        doing = {RolloutKind.RESTART: "restarting", RolloutKind.REBALANCE: "rebalancing"}[
            rollout.kind
        ]
        return f"{service} {revision} {doing}"
    return f"{service} {previous} -> {revision}" if previous else f"{service} {revision}"


def _stage(stage: Stage, rollout: Rollout, plan: Plan) -> str:
    """Return the stage, numbered where it is a step of a canary, with the traffic weight."""
    if rollout.strategy == "rolling" or not rollout.kind.forward or not rollout.previous:
        return ""
    steps = plan.steps.steps(rollout.replicas) if isinstance(plan.steps, Groups) else plan.steps
    if stage.name not in {step.name for step in steps}:
        return stage.name
    weight = "" if stage.waypoint.weight is None else f" {stage.waypoint.weight} %"
    name, ahead, _rest = stage.name.partition(" ahead")  # of a ramp
    names = (name for step in steps for name in (step.name, *(gate.key for gate in step.gates)))
    return f"{numbered(name, names)}{weight}{', readying the next' if ahead else ''}"
