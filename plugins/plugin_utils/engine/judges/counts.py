# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests and errors of instances. Pure."""

from __future__ import annotations

import math
import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

LEAST = 1e-9  # requests
MOST = 2.0**50  # requests that are believed
FEW = 100.0  # requests to one side, which wait for some to the other; more have a share of 0 or 1


@dataclass(frozen=True)
class Counts:
    """Requests and errors.

    They need not be whole: Prometheus' `increase` is not. Use `of` for what comes from outside.
    """

    requests: float = 0.0
    errors: float = 0.0

    @classmethod
    def of(cls, requests: float, errors: float) -> Counts:
        """Clamp to valid counts: not negative, at most `MOST`, no more errors than requests.

        Less than `LEAST` of a request is none: what rates of a metric leave of nothing.
        """
        if not (math.isfinite(requests) and math.isfinite(errors)) or requests < LEAST:
            return cls()
        requests = min(max(0.0, requests), MOST)
        return cls(requests, min(max(0.0, errors), requests))

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.requests + other.requests, self.errors + other.errors)

    def __sub__(self, other: Counts) -> Counts:
        return Counts.of(self.requests - other.requests, self.errors - other.errors)

    @property
    def rate(self) -> float:
        """The part of the requests that failed, 0 to 1."""
        return self.errors / self.requests if self.requests > 0 else 0.0

    def __str__(self) -> str:
        percent = 100 * self.rate
        part = f" ({percent:{'.2g' if percent < 10 else '.0f'}} %)" if percent else ""
        return f"{self.errors:,.0f} of {self.requests:,.0f}{part}"


@dataclass(frozen=True)
class Span:
    """What was counted of each instance between two readings; the share stays the same within it.

    A source that does not know the instances has a single one on a side.
    """

    new: Mapping[str, Counts]
    stable: Mapping[str, Counts]
    hosts: Mapping[str, str] = field(default_factory=dict)  # of instances, new and stable
    # of the errors of the new side and of stable: so many are mild (see `evalue.Trial`)
    mild: Sequence[tuple[float, float, float]] = ()
    ages: Mapping[str, int] = field(default_factory=dict)  # looks since the first requests, before

    def __add__(self, later: Span) -> Span:
        mild = [
            (new + later_new, stable + later_stable, power)
            for (new, stable, power), (later_new, later_stable, _power) in zip(
                self.mild, later.mild, strict=True
            )
        ]
        return Span(
            _sum(self.new, later.new),
            _sum(self.stable, later.stable),
            {**self.hosts, **later.hosts},
            mild,
            {**later.ages, **self.ages},
        )

    @property
    def has_both(self) -> bool:
        """Whether requests went to both sides."""
        return all(
            any(counts.requests for counts in side.values()) for side in (self.new, self.stable)
        )

    @property
    def is_partial(self) -> bool:
        """Whether a few requests went to one side, and none to the other."""
        sides = (*self.new.values(), *self.stable.values())
        return 0 < sum(counts.requests for counts in sides) <= FEW and not self.has_both

    def dump(self) -> dict[str, t.Any]:
        """Return plain data, for the journal."""
        return {
            "new": _plain(self.new),
            "stable": _plain(self.stable),
            "hosts": dict(self.hosts),
            "mild": [list(part) for part in self.mild],
            "ages": dict(self.ages),
        }

    @classmethod
    def load(cls, data: Mapping[str, t.Any]) -> Span:
        """Return the span that `dump` made the data of."""
        new, stable = (
            {name: Counts(*counts) for name, counts in data[side].items()}
            for side in ("new", "stable")
        )
        mild = [(*part,) for part in data["mild"]]
        return cls(new, stable, data["hosts"], mild, data.get("ages", {}))

    @classmethod
    def of_sides(cls, new: Counts, stable: Counts) -> Span:
        """Return the span of a source that does not know the instances."""
        return cls({"": new}, {"": stable})


def _sum(side: Mapping[str, Counts], later: Mapping[str, Counts]) -> dict[str, Counts]:
    return {
        name: side.get(name, Counts()) + later.get(name, Counts()) for name in {**side, **later}
    }


def _plain(side: Mapping[str, Counts]) -> dict[str, list[float]]:
    return {name: [counts.requests, counts.errors] for name, counts in side.items()}
