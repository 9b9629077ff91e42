# SPDX-License-Identifier: GPL-3.0-or-later
"""The annotations of a rollout: what was decided, by whom and why, and what went wrong. Pure."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..base.text import clean, count
from ..state.record import WITHOUT_VERDICT

Event = Mapping[str, t.Any]
MOST = 200  # annotations that are shown; of more, the first and the last
FAILURES = 20  # of them, failed instances
REPEATING = ("gate", "phase", "end")  # events with the reason of the one that led to them
VERDICTS = {"pass": "passed", "fail": "failed", "person": "inconclusive"}
ROLLBACK_BEGINS = "Rollback begins"
PHASES = {
    "rolling_back": (ROLLBACK_BEGINS, "bad"),
    "held": ("Held until an operator decides", "bad"),
    "promoting": ("Promotion begins", "good"),
}
# commands that decide how a rollout goes on
DECIDING = ("promote", "promote_full", "skip", "abort", "hold", "retry")


@dataclass(frozen=True)
class Annotation:
    """Something that happened to a rollout."""

    at: float  # seconds into the rollout
    tone: str  # good | bad | warn | busy | person
    title: str
    who: str = ""
    why: str = ""
    number: int = 0  # its place among the annotations, from 1
    minor: bool = False  # it is in the list, and not on the charts
    decides: bool = False  # it may be what decided how the rollout ended
    verdict: str = ""  # of an analysis: what it said
    about: str = ""  # the analysis
    lane: int = 0  # the number of the instance it is about, if there is one


def annotate(events: Sequence[Event], start: float, lanes: Mapping[str, int]) -> list[Annotation]:
    """Return the annotations of a timeline, numbered. `lanes`: the numbers of the instances."""
    annotations: list[Annotation] = []
    failures = 0
    for event in events:
        annotation = _annotation(event, lanes)
        if annotation is None:
            continue
        failures += event.get("kind") == "state"
        if event.get("kind") == "state" and failures > FAILURES:
            continue
        repeated = event.get("kind") in REPEATING and _is_repeated(annotations, annotation)
        if not (repeated and event.get("kind") == "gate"):
            why = "" if repeated else annotation.why
            annotations.append(replace(annotation, at=max(0.0, event["at"] - start), why=why))
    if failures > FAILURES:
        more = f"{count(failures - FAILURES, 'more instance')} failed; see their lanes"
        annotations.append(Annotation(annotations[-1].at, "bad", more, minor=True))
    return [replace(annotation, number=n) for n, annotation in enumerate(_bounded(annotations), 1)]


def _is_repeated(annotations: Sequence[Annotation], annotation: Annotation) -> bool:
    """Return whether earlier annotations have the cause: an analysis fails, so its gate does."""
    whole = f"{annotation.why} {annotation.who}"
    return bool(annotation.why) and any(
        earlier.why
        and annotation.why.endswith(earlier.why)
        and (not earlier.who or earlier.who in whole)
        for earlier in annotations
    )


def _bounded(annotations: list[Annotation]) -> list[Annotation]:
    """Leave out what is in the middle of too many annotations, and note how many."""
    if len(annotations) <= MOST:
        return annotations
    first, last = annotations[: MOST // 2], annotations[-MOST // 2 :]
    left = f"{len(annotations) - MOST} events are left out here; the timeline has them"
    return [*first, Annotation(first[-1].at, "busy", left, minor=True), *last]


def _annotation(event: Event, lanes: Mapping[str, int]) -> Annotation | None:
    kind = event.get("kind")
    if kind == "state":
        return _failed(event, lanes)
    made = _MADE.get(kind) if isinstance(kind, str) else None
    return made(event) if made else None


def _failed(event: Event, lanes: Mapping[str, int]) -> Annotation | None:
    name = _text(event, "instance", 100)
    if event.get("state") != "failed":
        return None
    host = _text(event, "host", 100)
    title = f"Instance {name} failed{f' on {host}' if host else ''}"
    return Annotation(0, "bad", title, why=_text(event, "detail"), lane=lanes.get(name, 0))


def _stage(event: Event) -> Annotation:
    share = event.get("share")
    wanted = f"{share} % of requests, " if isinstance(share, int) else ""
    numbers = f"{event.get('new', '?')} new and {event.get('old', '?')} old instances"
    return Annotation(0, "busy", f"Stage {_text(event, 'stage')}", why=f"{wanted}{clean(numbers)}")


def _phase(event: Event) -> Annotation | None:
    known = PHASES.get(str(event.get("phase")))
    if known is None:
        return None
    title, tone = known
    return Annotation(0, tone, title, why=_text(event, "reason"))


def _gate(event: Event) -> Annotation:
    name, passed = _text(event, "gate"), event.get("passed") is True
    title = f"Gate {'passed' if passed else 'failed'}{f': {name}' if name else ''}"
    tone = "good" if passed else "bad"
    return Annotation(0, tone, title, why=_text(event, "message"), minor=passed, decides=not passed)


def _verdict(event: Event) -> Annotation:
    verdict = VERDICTS.get(str(event.get("verdict")), "unknown")
    tone = {"passed": "good", "failed": "bad"}.get(verdict, "warn")
    gate, why = _text(event, "gate"), _text(event, "message")
    decides = verdict == "failed"
    return Annotation(
        0,
        tone,
        f"Analysis {verdict}: {gate}",
        why=why,
        decides=decides,
        verdict=verdict,
        about=gate,
    )


def _command(event: Event) -> Annotation:
    word, refused = _text(event, "word"), _text(event, "refused")
    number = event.get("replicas")
    what = f" to {number}" if isinstance(number, int) else f" {_text(event, 'host')}".rstrip()
    title = f"Command {word.replace('_', ' ')}{what}"
    idle = _text(event, "ineffective")
    came_to = f"refused: {refused}" if refused else f"without effect: {idle}" if idle else ""
    why = "; ".join(x for x in (_text(event, "why"), came_to) if x)
    decides = word in DECIDING and not (refused or idle)
    return Annotation(0, "person", title, _text(event, "by"), why, decides=decides)


def _repair(event: Event) -> Annotation:
    title = f"Repair: {event.get('started', '?')} stable instances are started"
    left = f"{event.get('there', '?')} of {event.get('wanted', '?')} are left"
    return Annotation(0, "warn", clean(title), why=clean(left))


def _scaled(event: Event) -> Annotation:
    refused = _text(event, "refused")
    title = f"Scaling to {event.get('replicas', '?')} {'was refused' if refused else ''}".strip()
    return Annotation(0, "warn" if refused else "person", clean(title), why=refused)


def _target_set(event: Event) -> Annotation:
    refused = _text(event, "refused")
    what = "refused" if refused else f"set at {_text(event, 'stage')}"
    title = f"{event.get('new', '?')} new instances {what}"
    return Annotation(0, "warn" if refused else "person", clean(title), why=refused)


def _switched(event: Event) -> Annotation:
    took = event.get("milliseconds")
    why = f"within {took:.0f} ms" if isinstance(took, (int, float)) else ""
    return Annotation(0, "good", "All requests switched", why=why)


def _release(event: Event) -> Annotation:
    phase = _text(event, "phase").replace("_", " ")
    tones = {"promoted": "good", "progressing": "busy"}
    title = f"Release {_text(event, 'release')}: {phase}"
    return Annotation(0, tones.get(phase, "bad"), title, why=_text(event, "members"), minor=True)


def _end(event: Event) -> Annotation:
    outcome = _text(event, "outcome").replace("_", " ")
    tone, why = "good" if outcome == "promoted" else "bad", _text(event, "reason")
    tone = "warn" if tone == "good" and why.startswith(WITHOUT_VERDICT) else tone
    return Annotation(0, tone, f"End: {outcome}", why=why)


def _plain(
    tone: str, title: str, *, who: str = "", why: str = "", minor: bool = False
) -> Callable[[Event], Annotation]:
    """Return what makes an annotation of an event whose fields `who` and `why` say all."""

    def made(event: Event) -> Annotation:
        return Annotation(0, tone, title, _text(event, who), _text(event, why), minor=minor)

    return made


_MADE: Mapping[str, Callable[[Event], Annotation | None]] = {
    "begin": _plain("busy", "Begins", who="by", why="why"),
    "resume": _plain("busy", "Another run continues", who="by"),
    "stage": _stage,
    "phase": _phase,
    "wait": _plain("busy", "Waits", why="what", minor=True),
    "gate": _gate,
    "verdict": _verdict,
    "word": _command,
    "repair": _repair,
    "scale": _scaled,
    "target": _target_set,
    "switch": _switched,
    "stable_lost": _plain("bad", "No stable instance serves", why="message"),
    "trouble": _plain("warn", "A host or load balancer does not answer or refuses", why="message"),
    "deployment_failed": _plain("bad", "A deployment in place failed", why="reason"),
    "parked": _plain("person", "The run ended; the rollout waits", why="reason"),
    "interrupted": _plain("warn", "The run was stopped", why="reason"),
    "release": _release,
    "end": _end,
}


def decisions(events: Sequence[Event], start: float, most: int) -> Iterator[tuple[float, str]]:
    """Yield the last decisions of the loop: what it did, and why."""
    made = [event for event in events if event.get("kind") == "decision"]
    for event in made[-most:]:
        yield max(0.0, event["at"] - start), _text(event, "reason")


def _text(event: Event, name: str, limit: int = 500) -> str:
    value = event.get(name)
    return clean(value, limit) if isinstance(value, str) else ""
