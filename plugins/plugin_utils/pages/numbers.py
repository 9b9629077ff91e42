# SPDX-License-Identifier: GPL-3.0-or-later
"""The numbers of a rollout over time: shares, requests, errors, latency and evidence. Pure."""

from __future__ import annotations

import typing as t
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ..base.text import clean, count

_NAMED = 4  # servers that a sentence names
LONGEST = 86400.0  # seconds to an answer; more is an error of the timeline


@dataclass(frozen=True, slots=True)
class Counted:
    """The requests to one side in a time."""

    since: float
    until: float
    requests: int
    errors: int
    latency: float | None  # the mean in seconds

    @property
    def rate(self) -> float | None:
        """The percentage of requests that failed; None without requests."""
        return 100 * min(self.errors, self.requests) / self.requests if self.requests else None


@dataclass
class ReportNumbers:
    """What was measured, each with the seconds into the rollout."""

    start: float = 0.0  # of the rollout, in seconds since the epoch
    asked: list[tuple[float, float | None]] = field(default_factory=list)  # percent
    set: list[tuple[float, float]] = field(default_factory=list)  # percent
    new: list[Counted] = field(default_factory=list)
    old: list[Counted] = field(default_factory=list)
    beside: list[int] = field(default_factory=list)  # requests to what is no instance, likewise
    unmanaged: str = ""  # the servers that no rollout manages, at last
    # by metric: the evidence, and the threshold from which on it is enough
    evidence: dict[str, list[tuple[float, float, float]]] = field(default_factory=dict)
    gaps: bool = False  # whether there were requests that were not counted
    _counted: float = 0.0  # until when

    def take(self, at: float, event: Mapping[str, t.Any], revision: str) -> None:
        """Take in an event; `revision` is the new one."""
        kind = event.get("kind")
        if kind == "stage":
            share = event.get("share")
            self.asked.append((at, share if isinstance(share, int) else None))
        elif kind == "phase" and event.get("phase") == "rolling_back":
            self.asked.append((at, 0.0))
        elif kind == "traffic" and isinstance(event.get("shares"), Mapping):
            share = event["shares"].get(revision, 0.0)
            self.unmanaged = _unmanaged(event.get("unmanaged"))
            if isinstance(share, (int, float)):
                self.set.append((at, min(100.0, max(0.0, share))))
        elif kind == "requests":
            self.new.append(_counted(event.get("new"), self._counted, at))
            self.old.append(_counted(event.get("old"), self._counted, at))
            self.beside.append(_whole(event.get("beside")))
            self._counted = at
            self.gaps = self.gaps or bool(event.get("gap"))
        elif kind in ("measured", "verdict"):
            self._weigh(event)

    @property
    def counted(self) -> list[tuple[float, float, float]]:
        """From when until when which percentage of all requests went to the new instances."""
        counts = zip(self.new, self.old, self.beside, strict=True)
        return [
            (new.since, new.until, 100 * new.requests / (new.requests + old.requests + beside))
            for new, old, beside in counts
            if new.requests + old.requests
        ]

    @property
    def lost(self) -> tuple[int, int] | None:
        """The requests that failed, and all of them; None: not counted."""
        sides = [*self.new, *self.old]
        if not sides:
            return None
        return sum(counted.errors for counted in sides), sum(counted.requests for counted in sides)

    @property
    def latency(self) -> bool:
        """Whether the time to answers was measured."""
        return any(counted.latency is not None for counted in (*self.new, *self.old))

    def _weigh(self, event: Mapping[str, t.Any]) -> None:
        """Take in the evidence of an analysis, measurement by measurement."""
        samples = event.get("samples")
        for metric, series in samples.items() if isinstance(samples, Mapping) else ():
            name = clean(f"{event.get('gate', '')}: {metric}", 120)
            taken = self.evidence.setdefault(name, [])
            taken += [weight for weight in _weights(series, self.start) if weight not in taken]
            if not taken:
                del self.evidence[name]


def _weights(samples: t.Any, start: float) -> Iterator[tuple[float, float, float]]:
    for sample in samples if isinstance(samples, list) else ():
        if not isinstance(sample, Mapping):
            continue
        at, evidence, threshold = sample.get("at"), sample.get("evidence"), sample.get("threshold")
        if _positive(at) and _positive(evidence) and _positive(threshold):
            yield max(0.0, at - start), float(evidence), float(threshold)


def _positive(value: t.Any) -> t.TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0


def _unmanaged(given: t.Any) -> str:
    """Return in words which servers no rollout manages, and their share; "" if there are none."""
    known = given if isinstance(given, Mapping) else {}
    servers = known.get("servers")
    if not isinstance(servers, list) or not servers:
        return ""
    named = ", ".join(clean(name, 100) for name in servers[:_NAMED])
    more = f" and {len(servers) - _NAMED} more" if len(servers) > _NAMED else ""
    share = known.get("share")
    part = f", {share:g} % of the requests" if _positive(share) else ""
    pool = clean(known.get("pool") or "the load balancers", 100)
    return f"{count(len(servers), 'server')} of {pool}: {named}{more}{part}"


def _counted(counts: t.Any, since: float, until: float) -> Counted:
    given = counts if isinstance(counts, Mapping) else {}
    latency = given.get("latency")
    requests, errors = _whole(given.get("requests")), _whole(given.get("errors"))
    timed = _positive(latency) and latency < LONGEST
    return Counted(since, until, requests, errors, latency if timed else None)


def _whole(value: t.Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0
