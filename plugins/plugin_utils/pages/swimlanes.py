# SPDX-License-Identifier: GPL-3.0-or-later
"""The lanes of the instances, and the annotations above them, as data for the templates. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .annotation import Annotation
from .charts import Scale
from .fleet import Swimlane, by_host

APART = (
    8.0  # percent of the width between two annotations, at least: they are to be hit by a finger
)
WORST = ("bad", "warn", "person", "good", "busy")  # whose colour a group of annotations has


@dataclass(frozen=True)
class DrawnSwimlane:
    """A lane: its place, and a path for each way its instance looks."""

    lane: Swimlane
    paths: Sequence[tuple[str, str]]  # class, path


@dataclass(frozen=True)
class HostSwimlanes:
    """The lanes on one host."""

    host: str
    height: int  # pixels
    lanes: Sequence[DrawnSwimlane]


def lane_height(count: int) -> int:
    """Return the pixels of a lane: the names of up to 60 instances can be read beside them."""
    return 18 if count <= 60 else 8 if count <= 300 else 4


def by_hosts(lanes: Sequence[Swimlane], length: float) -> list[HostSwimlanes]:
    """Return the lanes of each host."""
    each = lane_height(len(lanes))
    scale = Scale(length, 1.0)
    return [
        HostSwimlanes(
            host,
            each * len(lanes_of_host),
            [_drawn(lane, each * n + each / 2, scale) for n, lane in enumerate(lanes_of_host)],
        )
        for host, lanes_of_host in by_host(lanes).items()
    ]


def _drawn(lane: Swimlane, y: float, scale: Scale) -> DrawnSwimlane:
    paths: dict[str, str] = {}
    for span in lane.spans:
        x, until, look = scale.x(span.since), scale.x(span.until), f"{span.side} {span.look}"
        paths[look] = f"{paths.get(look, '')}M{x} {y:g}H{_short_end(x, until)}"
    return DrawnSwimlane(lane, list(paths.items()))


def _short_end(x: str, until: str) -> str:
    """Return where a span ends: what is shorter than can be seen is drawn longer."""
    return until if float(until) - float(x) >= 1 else f"{float(x) + 1:g}"


@dataclass(frozen=True)
class AnnotationGroup:
    """Marks too close to be told apart, drawn as one."""

    percent: float
    annotations: Sequence[Annotation]

    @property
    def text(self) -> str:
        """The numbers of the annotations."""
        first, last = self.annotations[0].number, self.annotations[-1].number
        return str(first) if first == last else f"{first}–{last}"

    @property
    def tone(self) -> str:
        """The worst of them."""
        return min((annotation.tone for annotation in self.annotations), key=WORST.index)

    @property
    def title(self) -> str:
        """What they are about."""
        return "; ".join(annotation.title for annotation in self.annotations[:5]) + (
            "; …" if len(self.annotations) > 5 else ""
        )


def grouped(annotations: Iterable[Annotation], length: float) -> list[AnnotationGroup]:
    """Return the annotations that are on the charts, those close to each other together."""
    groups: list[tuple[float, list[Annotation]]] = []
    for annotation in annotations:
        percent = round(100 * min(annotation.at, length) / length, 2)
        if annotation.minor:
            continue
        if groups and percent - groups[-1][0] < APART:
            groups[-1][1].append(annotation)
        else:
            groups.append((percent, [annotation]))
    return [AnnotationGroup(percent, together) for percent, together in groups]


def rules(annotations: Iterable[Annotation], scale: Scale) -> list[tuple[str, str, str]]:
    """Return the lines that lead through a chart: class, title and path."""
    lines: dict[str, tuple[str, str, str]] = {}
    for annotation in annotations:
        if not annotation.minor and annotation.tone in ("bad", "person"):
            x = scale.x(annotation.at)
            title = f"{annotation.number}: {annotation.title}"
            lines.setdefault(x, (annotation.tone, title, f"M{x} 0V{scale.height:g}"))
    return list(lines.values())
