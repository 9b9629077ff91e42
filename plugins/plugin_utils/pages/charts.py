# SPDX-License-Identifier: GPL-3.0-or-later
"""Charts as data for the templates: scales, ticks and the paths of an SVG. Pure.

A chart is drawn in a box of WIDTH by its own height, and stretched to the width of the page. So
texts are not in it, but beside it, at percentages of its width and height.
"""

from __future__ import annotations

import math
import typing as t
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

WIDTH = 1000  # units of a chart's box
HEIGHT = 120
TICKS = 6  # at most, on the time axis
MANY = 1_000_000  # beyond it, how much more says nothing
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)


@dataclass(frozen=True)
class Tick:
    """A number at an axis."""

    percent: float  # of the axis' length
    text: str


@dataclass(frozen=True)
class Series:
    """A line or an area of a chart."""

    look: str  # its class
    title: str
    path: str


@dataclass
class Chart:
    """A chart, and the table of its numbers."""

    name: str  # of links
    title: str
    summary: str  # what it shows, in a sentence
    series: list[Series] = field(default_factory=list)
    ticks: list[Tick] = field(default_factory=list)  # of the vertical axis
    head: Sequence[str] = ()
    rows: list[Sequence[str]] = field(default_factory=list)


def clock(seconds: float) -> str:
    """Return a time into the rollout: 0:07, 12:30, 2:05:00."""
    whole = round(seconds)
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"


def time_ticks(length: float) -> list[Tick]:
    """Return the ticks of the time axis."""
    days = math.ceil(length / 86400 / TICKS) * 86400
    step = next((seconds for seconds in _STEPS if length / seconds <= TICKS), days)
    marks = [step * n for n in range(int(length // step) + 1)]
    return [Tick(round(100 * at / length, 2), clock(at)) for at in marks]


def top_of(most: float) -> float:
    """Return the end of an axis: a round number, not below the greatest value."""
    if most < 1e-9:
        return 1.0
    power = 10.0 ** math.floor(math.log10(most))
    return next(
        power * factor for factor in (1, 1.5, 2, 3, 4, 5, 6, 8, 10, 12) if power * factor >= most
    )


def ticks(top: float, unit: str = "") -> list[Tick]:
    """Return three ticks of a vertical axis from 0."""
    return [Tick(percent, f"{top * percent / 100:,g}{unit}") for percent in (0, 50, 100)]


@dataclass(frozen=True)
class Scale:
    """Turns seconds and values into places of a chart."""

    length: float  # seconds
    top: float  # the value at the upper edge; the lower one is 0
    height: float = HEIGHT

    def x(self, at: float) -> str:
        """Return the place of a moment."""
        return _short(WIDTH * min(max(at, 0.0), self.length) / self.length)

    def y(self, value: float) -> str:
        """Return the place of a value."""
        return _short(self.height * (1 - min(max(value, 0.0), self.top) / self.top))

    def steps(self, points: Sequence[tuple[float, float]]) -> str:
        """Return the path of values that stay until the next one."""
        path = ""
        for x, value in self._thinned(points):
            path += f"H{x}V{self.y(value)}" if path else f"M{x} {self.y(value)}"
        return f"{path}H{WIDTH}" if path else ""

    def area(self, points: Sequence[tuple[float, float]]) -> str:
        """Return the path of the area below values that stay until the next one."""
        line = self.steps(points)
        first = self.x(points[0][0]) if points else "0"
        return f"{line}V{_short(self.height)}H{first}Z" if line else ""

    def bars(self, spans: Iterable[tuple[float, float, float]]) -> str:
        """Return the path of values that hold from one moment to another."""
        return "".join(f"M{self.x(a)} {self.y(value)}H{self.x(b)}" for a, b, value in spans)

    def line(self, points: Iterable[tuple[float, float]]) -> str:
        """Return the path of a line through points."""
        parts = [f"{self.x(at)} {self.y(value)}" for at, value in points]
        return f"M{'L'.join(parts)}" if parts else ""

    def _thinned(self, points: Iterable[tuple[float, float]]) -> list[tuple[str, float]]:
        """Return the points by place; of those at the same place the extremes and the last."""
        places: dict[str, list[float]] = {}
        for at, value in points:
            places.setdefault(self.x(at), []).append(value)
        kept_values: list[tuple[str, float]] = []
        for x, values in places.items():
            kept = dict.fromkeys((values[0], min(values), max(values), values[-1]))
            kept_values += [(x, value) for value in kept if value != values[-1]] + [(x, values[-1])]
        return kept_values


def _short(value: float) -> str:
    """Return a coordinate in as few characters as it takes."""
    return f"{value:.1f}".removesuffix(".0")


def figure(value: float) -> str:
    """Return a measured number for people: three digits of a small one, a big one in whole."""
    if value >= MANY:
        return f"over {MANY:,}"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value >= 0.001 or not value else "under 0.001"


def every(rows: Sequence[t.Any], most: int) -> list[t.Any]:
    """Return at most so many rows of all, evenly."""
    step = max(1, math.ceil(len(rows) / most))
    return [*rows[::step], *([rows[-1]] if rows and (len(rows) - 1) % step else [])]
