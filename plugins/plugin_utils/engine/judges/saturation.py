# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare what new instances use of their hosts with what stable ones use. Pure.

A new instance is compared with the stable ones of its own host, or with all where there are none.
A level is too high if it stayed above that of each of them throughout the last third of the time.
A leak is what grows steadily: the lowest level of each third of the time is above that of the third
before, by far more than the level moves within a third. Neither is found in noise, nor in caches
that are filled by and by.
"""

from __future__ import annotations

import itertools
import math
import statistics
import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from .verdict import Data, Verdict

MIB = 1024.0 * 1024.0
# By resource, by how much a level may be above that of stable instances, beside the tolerance.
LEVELS: Mapping[str, float] = {
    "memory": 32 * MIB,
    "cpu": 0.1,
    "threads": 10.0,
    "fds": 20.0,
    "throttled": 0.05,
    "pressure": 1.0,
}
# By resource, the growth from the first third to the last that is a leak at least.
GROWTH: Mapping[str, float] = {"memory": 8 * MIB, "threads": 6.0, "fds": 10.0}
RATES = ("cpu", "throttled", "pressure")
EVENTS = ("restarts", "oom")
RESOURCES = (*LEVELS, *EVENTS)
NAMES = {
    "memory": "resident memory",
    "cpu": "CPU time",
    "threads": "number of threads",
    "fds": "number of open files",
    "throttled": "time held by the CPU limit",
    "pressure": "rate of memory events",
    "restarts": "number of restarts",
    "oom": "number of processes killed for lack of memory",
}
LEAST = 4  # looks in each third of the time
KEPT = 36  # looks of an instance
MOST = 12  # instances of each side
PATIENCE = 12  # looks for which an instance that is down keeps its place among the most
SHARE = 0.05  # of the level: a smaller growth is no leak
MOVES = 1.5  # times what the level moves within a third, a leak grows from the first to the last
STEADY = 0.8  # of the slope before has the last one of a leak; caches that fill have less
IDLE = 0.01  # CPUs; an instance that uses less has nothing to do

Found = Mapping[str, float]


class Row(t.NamedTuple):
    """What one look saw of an instance: requests a second (None: unknown), and what it uses."""

    at: float
    load: float | None
    found: Found


@dataclass(frozen=True)
class Seen:
    """What one look saw of an instance; `warm`: it is old enough to be compared."""

    host: str
    warm: bool
    load: float | None
    found: Found


@dataclass(frozen=True)
class Track:
    """What all looks saw of an instance, thinned out, and its events."""

    host: str
    rows: tuple[Row, ...] = ()
    events: Found = field(default_factory=dict)
    missed: int = 0  # the last looks that did not see it

    def after(self, at: float, seen: Seen | None) -> Track:
        """Return the track after a look; None: which did not see it."""
        if seen is None:
            return replace(self, missed=self.missed + 1)
        kinds = self.events.keys() | (set(EVENTS) & seen.found.keys())
        events = {k: self.events.get(k, 0.0) + seen.found.get(k, 0.0) for k in kinds}
        rows = self.rows
        span = at - rows[0].at if rows else 0.0
        if seen.warm and (not rows or at - rows[-1].at >= span / (KEPT - 8)):
            levels = {key: level for key, level in seen.found.items() if key not in EVENTS}
            rows = (*rows, Row(at, seen.load, levels))
        return Track(self.host, rows[::2] if len(rows) > KEPT else rows, events)

    @property
    def only_events(self) -> bool:
        """Whether nothing but events is measured, for long enough."""
        enough = len(self.rows) >= 3 * LEAST and bool(self.events)
        return enough and not any(row.found for row in self.rows)

    def thirds(self, key: str) -> list[list[Row]]:
        """Return the looks that saw a resource, by thirds of the time; [] if they are too few."""
        rows = [row for row in self.rows if key in row.found]
        if len(rows) < 3 * LEAST:
            return []
        first, third = rows[0].at, (rows[-1].at - rows[0].at) / 3
        parts: list[list[Row]] = [[], [], []]
        for row in rows:
            parts[min(2, int((row.at - first) / third)) if third > 0 else 0].append(row)
        return parts if all(len(part) >= LEAST for part in parts) else []


@dataclass(frozen=True)
class Saturation:
    """What is known of the instances of both sides."""

    new: Mapping[str, Track] = field(default_factory=dict)
    stable: Mapping[str, Track] = field(default_factory=dict)

    def after(self, at: float, new: Mapping[str, Seen], stable: Mapping[str, Seen]) -> Saturation:
        """Return what is known after a look.

        An instance that it did not see may be down: its restarts count when it is back.
        """
        hosts = {instance.host for instance in new.values()}
        return Saturation(_looked(self.new, at, new, ()), _looked(self.stable, at, stable, hosts))

    def verdict(self, tolerance: float) -> Verdict:
        """Return whether any new instance uses too much."""
        compared: set[str] = set()
        present = {name: track for name, track in self.new.items() if not track.missed}
        for name, track in present.items():
            beside = self._beside(track)
            others = beside or list(self.stable.values())
            where = f"stable instances on {track.host}" if beside else "stable instances"
            if others and track.only_events:
                compared.add(name)
            for key in RESOURCES:
                sentence = _events(track, others, key) if key in EVENTS else ""
                peers = [] if key in EVENTS else _comparable(track, others, key)
                if peers:
                    compared.add(name)
                    sentence = _leak(track, peers, key, tolerance) or _level(
                        track, peers, key, tolerance
                    )
                if sentence:
                    return Verdict(True, f"{name}: {NAMES[key]} {sentence} of {where}")
        missing = [name for name in present if name not in compared]
        if present and not missing:
            subject = "1 new instance uses" if len(compared) == 1 else f"{len(compared)} new use"
            return Verdict(False, f"{subject} no more than stable ones")
        of = f" of {', '.join(missing[:3])}" if missing else ""
        return Verdict(
            False, f"too little is known yet{of}, or nothing to compare with", data=Data.LACKING
        )

    def _beside(self, track: Track) -> list[Track]:
        """Return the stable instances of its host, if any is there still."""
        tracks = [other for other in self.stable.values() if other.host == track.host]
        return tracks if any(not track.missed for track in tracks) else []

    def dump(self) -> dict[str, t.Any]:
        """Return plain data."""
        return {
            side: {name: _plain(track) for name, track in tracks.items()}
            for side, tracks in (("new", self.new), ("stable", self.stable))
        }

    @classmethod
    def load(cls, data: Mapping[str, t.Any]) -> Saturation:
        """Return what `dump` made plain; an older one does not say what looks missed."""
        new, stable = (
            {
                name: Track(host, tuple(Row(*row) for row in rows), events, *missed)
                for name, (host, rows, events, *missed) in data[side].items()
            }
            for side in ("new", "stable")
        )
        return cls(new, stable)


def _plain(track: Track) -> list[t.Any]:
    rows = [[row.at, row.load, dict(row.found)] for row in track.rows]
    return [track.host, rows, dict(track.events), track.missed]


def _looked(
    known: Mapping[str, Track], at: float, seen: Mapping[str, Seen], hosts: t.Collection[str]
) -> dict[str, Track]:
    """Return the tracks after a look: of instances known already, unless they are gone for long;
    then of others, first of those of these hosts; then of the ones gone, where there is room.
    """
    every = {name: Track(instance.host) for name, instance in seen.items()} | dict(known)
    tracks = {name: track.after(at, seen.get(name)) for name, track in every.items()}

    def rank(name: str) -> tuple[bool, bool, bool, str]:
        track = tracks[name]
        return (track.missed > PATIENCE, name not in known, track.host not in hosts, name)

    return {name: tracks[name] for name in sorted(tracks, key=rank)[:MOST]}


def _comparable(track: Track, others: Sequence[Track], key: str) -> list[tuple[float, Track]]:
    """Return the others that a resource can be compared with, each with how many times its requests
    the instance has, at least 1. Those without anything to do are none of them.
    """
    parts = track.thirds(key)
    comparable = []
    for other in others if parts else ():
        rows = _since(other, key, parts[2][0].at)
        if not other.thirds(key) or not rows:
            continue
        mine, other_load = _load(parts[2]), _load(rows)
        if mine is None or other_load is None:
            works = _works(rows) or not _works(parts[2])
        else:
            works = other_load > 0 or mine == 0
        if works:
            comparable.append((max(1.0, mine / other_load) if mine and other_load else 1.0, other))
    return comparable


def _works(rows: Sequence[Row]) -> bool:
    """Return whether an instance has something to do, as far as its CPU time says."""
    cpu = [row.found["cpu"] for row in rows if "cpu" in row.found]
    return not cpu or statistics.median(cpu) >= IDLE


def _since(track: Track, key: str, start: float) -> list[Row]:
    return [row for row in track.rows if row.at >= start and key in row.found]


def _load(rows: Sequence[Row]) -> float | None:
    """Return the mean requests a second; None if unknown."""
    loads = [row.load for row in rows if row.load is not None]
    return statistics.fmean(loads) if loads else None


def _level(track: Track, peers: Sequence[tuple[float, Track]], key: str, tolerance: float) -> str:
    """Return how a level is too high, or ""."""
    last = track.thirds(key)[2]
    lowest = min(row.found[key] for row in last)
    usual = max(
        times * statistics.median(row.found[key] for row in _since(other, key, last[0].at))
        for times, other in peers
    )
    if lowest <= tolerance * usual + LEVELS[key]:
        return ""
    return f"is at least {_shown(key, lowest)}, against {_shown(key, usual)}"


def _leak(track: Track, peers: Sequence[tuple[float, Track]], key: str, tolerance: float) -> str:
    """Return how a level grows, or ""."""
    if key not in GROWTH:
        return ""
    slope, usual = _slope(track, key), 0.0
    for times, other in peers:
        first, _second, last = other.thirds(key)
        usual = max(usual, times * _rise(first, last, key))
    if slope <= tolerance * usual:
        return ""
    return f"grows by {_shown(key, 60 * slope)} a minute, against {_shown(key, 60 * usual)}"


def _slope(track: Track, key: str) -> float:
    """Return the growth a second if it is steady, or 0."""
    parts = track.thirds(key)
    lows = [min(row.found[key] for row in part) for part in parts]
    moves = max(
        max(row.found[key] for row in part) - low for part, low in zip(parts, lows, strict=True)
    )
    before, after = (_rise(*pair, key) for pair in itertools.pairwise(parts))
    steady = before > 0 and after >= STEADY * before
    enough = lows[2] - lows[0] > max(GROWTH[key], SHARE * lows[0], MOVES * moves)
    return _rise(parts[0], parts[2], key) if steady and enough else 0.0


def _rise(early: Sequence[Row], late: Sequence[Row], key: str) -> float:
    """Return by how much the lowest level rises a second, from an early time to a late one."""
    low, high = (min(row.found[key] for row in part) for part in (early, late))
    return (high - low) / max(1e-9, late[0].at - early[0].at)


def _events(track: Track, others: Sequence[Track], key: str) -> str:
    """Return how there are more events than of any other, or ""."""
    mine = track.events.get(key, 0.0)
    most = max((other.events.get(key, 0.0) for other in others), default=math.inf)
    return f"is {mine:g}, against {most:g}" if mine > most else ""


def _shown(key: str, value: float) -> str:
    return f"{value / MIB:.1f} MiB" if key == "memory" else f"{value:.3g}"
