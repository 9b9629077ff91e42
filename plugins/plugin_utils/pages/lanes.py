# SPDX-License-Identifier: GPL-3.0-or-later
"""The lanes of the instances, and the marks above them, as data for the templates. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .charts import Scale
from .fleet import Lane, by_host
from .marks import Mark

APART = 8.0  # percent of the width between two marks, at least: they are to be hit by a finger
WORST = ("bad", "warn", "person", "good", "busy")  # whose colour a group of marks has


@dataclass(frozen=True)
class DrawnLane:
    """A lane: its place, and a path for each way its instance looks."""

    lane: Lane
    paths: Sequence[tuple[str, str]]  # class, path


@dataclass(frozen=True)
class HostLanes:
    """The lanes on one host."""

    host: str
    height: int  # pixels
    lanes: Sequence[DrawnLane]


def lane_height(count: int) -> int:
    """Return the pixels of a lane: the names of up to 60 instances can be read beside them."""
    return 18 if count <= 60 else 8 if count <= 300 else 4


def by_hosts(lanes: Sequence[Lane], length: float) -> list[HostLanes]:
    """Return the lanes of each host."""
    each = lane_height(len(lanes))
    scale = Scale(length, 1.0)
    return [
        HostLanes(
            host,
            each * len(lanes_of_host),
            [_drawn(lane, each * n + each / 2, scale) for n, lane in enumerate(lanes_of_host)],
        )
        for host, lanes_of_host in by_host(lanes).items()
    ]


def _drawn(lane: Lane, y: float, scale: Scale) -> DrawnLane:
    paths: dict[str, str] = {}
    for span in lane.spans:
        x, until, look = scale.x(span.since), scale.x(span.until), f"{span.side} {span.look}"
        paths[look] = f"{paths.get(look, '')}M{x} {y:g}H{_short_end(x, until)}"
    return DrawnLane(lane, list(paths.items()))


def _short_end(x: str, until: str) -> str:
    """Return where a span ends: what is shorter than can be seen is drawn longer."""
    return until if float(until) - float(x) >= 1 else f"{float(x) + 1:g}"


@dataclass(frozen=True)
class MarkGroup:
    """Marks too close to be told apart, drawn as one."""

    percent: float
    marks: Sequence[Mark]

    @property
    def text(self) -> str:
        """The numbers of the marks."""
        first, last = self.marks[0].number, self.marks[-1].number
        return str(first) if first == last else f"{first}–{last}"

    @property
    def tone(self) -> str:
        """The worst of them."""
        return min((mark.tone for mark in self.marks), key=WORST.index)

    @property
    def title(self) -> str:
        """What they are about."""
        return "; ".join(mark.title for mark in self.marks[:5]) + (
            "; …" if len(self.marks) > 5 else ""
        )


def grouped(marks: Iterable[Mark], length: float) -> list[MarkGroup]:
    """Return the marks that are on the charts, those close to each other together."""
    groups: list[tuple[float, list[Mark]]] = []
    for mark in marks:
        percent = round(100 * min(mark.at, length) / length, 2)
        if mark.minor:
            continue
        if groups and percent - groups[-1][0] < APART:
            groups[-1][1].append(mark)
        else:
            groups.append((percent, [mark]))
    return [MarkGroup(percent, together) for percent, together in groups]


def rules(marks: Iterable[Mark], scale: Scale) -> list[tuple[str, str, str]]:
    """Return the lines that lead through a chart: class, title and path."""
    lines: dict[str, tuple[str, str, str]] = {}
    for mark in marks:
        if not mark.minor and mark.tone in ("bad", "person"):
            x = scale.x(mark.at)
            title = f"{mark.number}: {mark.title}"
            lines.setdefault(x, (mark.tone, title, f"M{x} 0V{scale.height:g}"))
    return list(lines.values())
