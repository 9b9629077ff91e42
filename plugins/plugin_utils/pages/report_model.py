# SPDX-License-Identifier: GPL-3.0-or-later
"""What happened to a rollout, read from its timeline and the journal's record. Pure.

Timelines of earlier versions lack some events, and a damaged one lacks more: what is not there is
left out.
"""

from __future__ import annotations

import typing as t
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..base.messages import MESSAGES
from ..base.text import clean
from ..engine.strategy import BACK, SWITCH_BACK
from ..state.record import WITHOUT_VERDICT
from .annotation import ROLLBACK_BEGINS, Annotation, annotate
from .fleet import Fleet, Point, Swimlane
from .numbers import ReportNumbers

Event = Mapping[str, t.Any]
TITLES = {
    "": "In progress",
    "promoted": "Promoted",
    "rolled_back": "Rolled back",
    "aborted": "Aborted",
    "failed": "Failed",
    "superseded": "Superseded",
    "refused": "Refused: nothing was started",
}
TONES = {"": "busy", "promoted": "good", "superseded": "warn"}  # all others are bad
KINDS = {
    "rollback": "Rollback",
    "restart": "Restart",
    "scale": "Scaling",
    "rebalance": "Rebalancing",
}


@dataclass
class StageSpan:
    """A stage as planned, and what became of it."""

    name: str
    share: int | None = None
    new: int = 0
    old: int = 0
    gates: Sequence[str] = ()
    planned: bool = True
    reached: float | None = None  # seconds into the rollout; None: never
    took: float | None = None
    asked: int | None = None  # the share asked for, and measured
    measured: float | None = None  # in percent
    requests: int = 0


@dataclass
class BudgetSpan:
    """The bounds of the budget on the way forward, from a moment to another."""

    at: float
    until: float
    floor: int  # instances that have to be available
    ceiling: int  # instances that there may be


@dataclass(frozen=True)
class AnalysisVerdict:
    """What an analysis said, and the measurements behind it."""

    at: float
    gate: str
    verdict: str
    message: str
    annotation: int  # its number among the annotations


@dataclass
class ReportModel:
    """A rollout from its first event to the last."""

    service: str
    rollout: Mapping[str, t.Any]  # as in the journal
    start: float = 0.0  # seconds since the epoch
    length: float = 1.0  # seconds, never 0
    by: str = ""
    revision: str = ""
    previous: str = ""  # empty at the first deployment, or where it is not known
    lanes: Sequence[Swimlane] = ()
    points: Sequence[Point] = ()  # the numbers of instances over time
    bounds: Sequence[BudgetSpan] = ()
    numbers: ReportNumbers = field(default_factory=ReportNumbers)
    annotations: Sequence[Annotation] = ()
    stages: Sequence[StageSpan] = ()
    verdicts: Sequence[AnalysisVerdict] = ()
    line: str = ""  # the last line of progress, with how long it takes from then on if known

    @property
    def outcome(self) -> str:
        """How it ended; empty while it is in progress."""
        return text(self.rollout.get("outcome"))

    @property
    def tone(self) -> str:
        """Whether that is good or bad, or still open."""
        held = self.rollout.get("phase") in ("held", "rolling_back")
        tone = "bad" if held else TONES.get(self.outcome, "bad")
        return "warn" if tone == "good" and self.reason.startswith(WITHOUT_VERDICT) else tone

    @property
    def headline(self) -> str:
        """How it ended, or what it does now, in a few words."""
        if self.outcome:
            return TITLES.get(self.outcome, self.outcome)
        phase = text(self.rollout.get("phase")).replace("_", " ")
        name = text(self.rollout.get("name"))
        at = "" if name in (BACK, SWITCH_BACK) else name
        return f"In progress: {phase}{f' at {at}' if at else ''}" if phase else TITLES[""]

    @property
    def title(self) -> str:
        """The service and its revisions."""
        kind = KINDS.get(text(self.rollout.get("kind")), "")
        change = f"{self.previous} → {self.revision}" if self.previous else self.revision
        if self.previous == self.revision:
            change = self.revision
        return f"{kind + ' of ' if kind else ''}{self.service} {change}"

    @property
    def reason(self) -> str:
        """Why it ended as it did, or is where it is."""
        return text(self.rollout.get("reason"))

    @property
    def why(self) -> str:
        """The reason that it was begun with."""
        return text(self.rollout.get("why"))

    @property
    def remedy(self) -> str:
        """What to do about it, by the id of the cause."""
        known = MESSAGES.get(text(self.rollout.get("cause")))
        return f"{known.remedy} [{self.rollout['cause']}]" if known else ""

    @property
    def waiting(self) -> list[str]:
        """What a rollout in progress waits for."""
        gates = self.rollout.get("gates")
        if self.outcome or not isinstance(gates, Mapping):
            return []
        waits = {
            name: gate
            for name, gate in gates.items()
            if isinstance(gate, Mapping) and gate.get("state") == "waiting"
        }
        return [
            f"{text(name)}: {text(gate.get('message')) or 'no answer yet'}"
            for name, gate in waits.items()
        ]

    @property
    def decided(self) -> Annotation | None:
        """The command, gate or analysis that decided how it ended; None: nothing but the fleet."""
        deciding = [annotation for annotation in self.annotations if annotation.decides]
        return deciding[-1] if deciding else None

    @property
    def fewest(self) -> tuple[int, int] | None:
        """The fewest instances in rotation on the way forward, and the floor then.

        None at a first deployment, which begins with none, and where it is not known.
        """
        if not self.previous or not self.points:
            return None
        pairs = [
            (serving, bound.floor) for bound in self.bounds for serving in self._serving(bound)
        ]
        return min(pairs, key=lambda pair: pair[0] - pair[1]) if pairs else None

    @property
    def fewest_back(self) -> int | None:
        """The fewest instances in rotation in the rollback; None: there was none."""
        since = next((note.at for note in self.annotations if note.title == ROLLBACK_BEGINS), None)
        if since is None or not self.previous:
            return None
        return min(self._serving(BudgetSpan(since, self.length, 0, 0)), default=None)

    def _serving(self, within: BudgetSpan) -> list[int]:
        """Return the numbers of instances in rotation in a time."""
        before = [point.serving for point in self.points if point.at <= within.at]
        inside = [p.serving for p in self.points if within.at < p.at < within.until]
        return [*before[-1:], *inside]


def text(value: t.Any, limit: int = 500) -> str:
    """Return a text of the journal as one clean line; empty for anything else."""
    return clean(value, limit) if isinstance(value, str) else ""


def number(value: t.Any) -> float | None:
    """Return a number of the journal; None for anything else."""
    return None if isinstance(value, bool) or not isinstance(value, (int, float)) else value


def from_timeline(
    service: str, rollout: Mapping[str, t.Any], events: Iterable[Event]
) -> ReportModel:
    """Return the report of a rollout: its record in the journal, and the events of its timeline."""
    known = [event for event in events if number(event.get("at")) is not None]
    begin = next((event for event in known if event.get("kind") == "begin"), {})
    start = number(begin.get("at")) or number(rollout.get("started")) or 0.0
    last = known[-1]["at"] if known else start
    if not rollout.get("outcome"):
        last = max(last, number(rollout.get("updated")) or 0.0)
    report = ReportModel(
        service=text(service),
        rollout=rollout,
        start=start,
        length=max(1.0, last - start),
        by=text(begin.get("by")),
        revision=text(rollout.get("revision")) or text(begin.get("revision")),
        previous=_previous(rollout, begin),
    )
    report.numbers.start = start
    shown = [event for event in known if event.get("kind") == "line"]
    report.line = text(shown[-1].get("text")) if shown and not report.outcome else ""
    _read(report, known, rollout, begin)
    return report


def _previous(rollout: Mapping[str, t.Any], begin: Event) -> str:
    before = rollout.get("previous")
    named = before.get("revision") if isinstance(before, Mapping) else begin.get("previous")
    return text(named)


def _read(
    report: ReportModel, events: Sequence[Event], rollout: Mapping[str, t.Any], begin: Event
) -> None:
    """Read the events, each by what it is about."""
    generation = rollout.get("generation", begin.get("generation"))
    fleet = Fleet(generation, rollout.get("baseline"), events)
    stages = _Stages()
    bounds = _Bounds()
    for event in events:
        at = max(0.0, event["at"] - report.start)
        fleet.take(at, event)
        report.numbers.take(at, event, report.revision)
        stages.take(at, event)
        bounds.take(at, event)
    report.lanes, report.points = fleet.close(report.length)
    report.stages, report.bounds = stages.close(report.length), bounds.close(report.length)
    report.annotations = annotate(
        events, report.start, {lane.name: lane.number for lane in report.lanes}
    )
    report.verdicts = [
        AnalysisVerdict(
            annotation.at, annotation.about, annotation.verdict, annotation.why, annotation.number
        )
        for annotation in report.annotations
        if annotation.verdict
    ]


class _Bounds:
    """The bounds of the budget: those of a stage, until another one or the rollback."""

    def __init__(self) -> None:
        self._bounds: list[BudgetSpan] = []
        self._open = False

    def take(self, at: float, event: Event) -> None:
        """Take in an event."""
        floor, ceiling = event.get("floor"), event.get("ceiling")
        back = event.get("kind") == "phase" and event.get("phase") == "rolling_back"
        if back or event.get("kind") in ("stage", "end"):
            self.close(at)
        if event.get("kind") == "stage" and isinstance(floor, int) and isinstance(ceiling, int):
            self._bounds.append(BudgetSpan(at, at, floor, ceiling))
            self._open = True

    def close(self, at: float) -> list[BudgetSpan]:
        """Let the last bounds end, and return all."""
        if self._open:
            self._bounds[-1].until = at
        self._open = False
        return self._bounds


class _Stages:
    """The stages as they were planned, and when each was entered."""

    def __init__(self) -> None:
        self._stages: dict[str, StageSpan] = {}
        self._now: StageSpan | None = None

    def take(self, at: float, event: Event) -> None:
        """Take in an event."""
        kind = event.get("kind")
        if kind == "plan" and isinstance(event.get("stages"), Sequence):
            ahead = [_planned(stage) for stage in event["stages"] if isinstance(stage, Mapping)]
            passed = {
                name: stage for name, stage in self._stages.items() if stage.reached is not None
            }
            self._stages = {stage.name: stage for stage in ahead} | passed
        elif kind == "stage":
            self._enter(at, event)
        elif kind == "share" and self._now:
            self._measure(event)
        elif kind == "phase" and event.get("phase") == "rolling_back":
            self._leave(at)
        elif kind == "end":
            self._leave(at)

    def close(self, length: float) -> list[StageSpan]:
        """Return the stages in the order in which they were reached, then as planned."""
        self._leave(length)
        stages = list(self._stages.values())
        return sorted(
            stages, key=lambda stage: length + 1 if stage.reached is None else stage.reached
        )

    def _enter(self, at: float, event: Event) -> None:
        self._leave(at)
        name = text(event.get("stage"))
        stage = self._stages.setdefault(name, StageSpan(name, planned=False))
        stage.share = event.get("share")
        stage.new = event.get("new", 0)
        stage.old = event.get("old", 0)
        stage.reached = at if stage.reached is None else stage.reached
        self._now = stage

    def _leave(self, at: float) -> None:
        if self._now and self._now.reached is not None:
            self._now.took = at - self._now.reached
        self._now = None

    def _measure(self, event: Event) -> None:
        new, every = number(event.get("new")), number(event.get("all"))
        if self._now and new is not None and every:
            self._now.measured, self._now.requests = 100 * new / every, int(every)


def _planned(given: Mapping[str, t.Any]) -> StageSpan:
    gates = given.get("gates")
    return StageSpan(
        text(given.get("stage")),
        given.get("share"),
        given.get("new", 0),
        given.get("old", 0),
        [text(gate) for gate in gates] if isinstance(gates, Sequence) else (),
    )
