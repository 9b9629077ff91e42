# SPDX-License-Identifier: GPL-3.0-or-later
"""The instances of a rollout over time: a lane for each, and how many there are. Pure."""

from __future__ import annotations

import typing as t
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..base.text import clean

NEW, OLD, BASELINE = "new", "old", "baseline"
ENDED = ("stopped", "gone")  # nothing is drawn of an instance in these states
LOOKS = {
    "serving": "in rotation",
    "idle": "ready, out of rotation",
    "starting": "starting",
    "not_ready": "not ready",
    "draining": "draining",
    "failed": "failed",
    "unreachable": "unreachable",
}
WORDS = {**{look: look.replace("_", " ") for look in LOOKS}, "idle": "ready"}


@dataclass(frozen=True, slots=True)
class StateSpan:
    """A time in which an instance looked the same. Seconds into the rollout."""

    since: float
    until: float
    look: str  # a key of LOOKS
    side: str
    detail: str


@dataclass(slots=True)
class Swimlane:
    """An instance."""

    name: str
    number: int  # its place among all, from 1: names of links are made of it
    host: str = ""
    revision: str = ""
    side: str = OLD
    spans: list[StateSpan] = field(default_factory=list)

    @property
    def description(self) -> str:
        """What it did, in a line."""
        phases = [f"{WORDS[span.look]} from {span.since:.1f} s" for span in self.spans]
        if len(phases) > 8:
            phases = [*phases[:4], "…", *phases[-3:]]
        until = f", until {self.spans[-1].until:.1f} s" if self.spans else ""
        return f"{', '.join(phases)}{until}"


@dataclass(frozen=True, slots=True)
class Point:
    """How many instances there are from a moment on."""

    at: float
    new: int  # in rotation
    old: int  # in rotation, with those of the baseline
    total: int  # all that count against the budget

    @property
    def serving(self) -> int:
        """How many are in rotation."""
        return self.new + self.old


@dataclass(slots=True)
class _Live:
    lane: Swimlane
    state: str = ""
    serving: bool = False
    look: str = ""
    since: float = 0.0
    detail: str = ""


class Fleet:
    """Follows the instances through the events."""

    def __init__(
        self, generation: t.Any, baseline: t.Any, events: Sequence[Mapping[str, t.Any]]
    ) -> None:
        """Follow none yet; `generation` and `baseline` tell those apart from all others."""
        self._generation, self._baseline = generation, baseline
        # Without load balancers, and in timelines of earlier versions, ready means in rotation.
        self._rotates = any(event.get("kind") == "rotation" for event in events)
        self._live: dict[str, _Live] = {}
        self._counts: Counter[str] = Counter()
        self._points: list[Point] = []

    def take(self, at: float, event: Mapping[str, t.Any]) -> None:
        """Take in an event."""
        kind, name = event.get("kind"), event.get("instance")
        if not isinstance(name, str) or kind not in ("state", "rotation"):
            return
        live = self._live.get(name)
        if live is None:
            live = self._live[name] = _Live(Swimlane(clean(name, 100), len(self._live) + 1))
        if kind == "rotation":
            live.serving = event.get("serving") is True
        else:
            self._place(live, at, event)
        self._show(live, at)

    def close(self, length: float) -> tuple[list[Swimlane], list[Point]]:
        """Return the lanes, and the numbers of instances over time."""
        for live in self._live.values():
            _end(live, length)
        lanes = [live.lane for live in self._live.values()]
        return lanes, self._points

    def _place(self, live: _Live, at: float, event: Mapping[str, t.Any]) -> None:
        """Take in an instance's state, and what it is an instance of."""
        lane, before = live.lane, live.lane.side
        lane.host = clean(event.get("host") or lane.host, 100)
        lane.revision = clean(event.get("revision") or lane.revision, 128)
        if "generation" in event:
            lane.side = self._side(event["generation"])
        state, detail = event.get("state"), event.get("detail")
        if lane.side != before and live.look:  # in place, an instance becomes a new one
            self._count(live.look, before, -1)
            _end(live, at, before)
        live.state = state if isinstance(state, str) else ""
        live.detail = clean(detail, 300) if isinstance(detail, str) else ""

    def _side(self, generation: t.Any) -> str:
        if generation == self._generation:
            return NEW
        return BASELINE if generation and generation == self._baseline else OLD

    def _show(self, live: _Live, at: float) -> None:
        """Begin another span if the instance looks different from now on."""
        look = self._look(live)
        if look != live.look:
            self._count(live.look, live.lane.side, -1)
            _end(live, at)
            live.look, live.since = look, at
            self._count(look, live.lane.side, 1)
            self._note(at)

    def _look(self, live: _Live) -> str:
        if live.state == "ready" and not self._rotates:
            return "serving"
        if live.serving and live.state in ("ready", "draining"):
            return "serving"
        if live.state == "ready":
            return "idle"
        return live.state if live.state in LOOKS else ""

    def _count(self, look: str, side: str, by: int) -> None:
        if look == "serving":
            self._counts[NEW if side == NEW else OLD] += by
        if look not in ("", "failed"):
            self._counts["total"] += by

    def _note(self, at: float) -> None:
        counts = self._counts
        point = Point(at, counts[NEW], counts[OLD], counts["total"])
        if self._points and self._points[-1].at == at:
            self._points.pop()
        self._points.append(point)


def _end(live: _Live, at: float, side: str = "") -> None:
    """End the span that an instance is in."""
    if live.look and (at > live.since or live.look == "failed"):
        span = StateSpan(live.since, at, live.look, side or live.lane.side, live.detail)
        live.lane.spans.append(span)
    live.look = ""


def by_host(lanes: Iterable[Swimlane]) -> dict[str, list[Swimlane]]:
    """Return the lanes of each host, hosts and instances in their natural order."""
    lanes_by_host: dict[str, list[Swimlane]] = {}
    for lane in sorted(lanes, key=lambda lane: (natural(lane.host), natural(lane.name))):
        lanes_by_host.setdefault(lane.host, []).append(lane)
    return lanes_by_host


def natural(name: str) -> list[tuple[int, str]]:
    """Return a sort key by which web2 comes before web10."""
    parts: list[tuple[int, str]] = []
    digits = ""
    for char in f"{name} ":
        if char in "0123456789":
            digits += char
            continue
        if digits:
            parts.append((int(digits[:18]), ""))
            digits = ""
        parts.append((-1, char))
    return parts
