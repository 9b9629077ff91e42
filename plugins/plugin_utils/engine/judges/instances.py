# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sequential test of single instances. Pure.

It finds new instances that fail more often than all others.
"""

from __future__ import annotations

import math
import typing as t
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from .errors import Counts, Stratum
from .evalue import ALPHA, e_value, shown


@dataclass(frozen=True)
class Outliers:
    """The new instances that are worse than all others."""

    names: tuple[str, ...]
    sentence: str


@dataclass(frozen=True)
class Period:
    """A time in which the instances and the share of the requests stay the same.

    Only over such a time are they compared.
    """

    name: str  # of the stage and its share
    began: Mapping[str, Counts]  # of each new instance, when the period began
    stable: Counts  # likewise
    evidence: Mapping[str, float]  # against each instance, of the periods before

    def after(
        self, name: str, new: Mapping[str, Counts], stable: Counts, tolerance: float
    ) -> Period:
        """Return the period that these counts fall into: this one, or a new one.

        All counts are since the start of the analysis.
        """
        if name == self.name and new.keys() == self.began.keys():
            return self
        counted = self.counts(
            {instance: counts for instance, counts in new.items() if instance in self.began}
        )
        found = _evidence(counted, _others(counted, stable.since(self.stable, Counts())), tolerance)
        evidence = {
            instance: self.evidence.get(instance, 0.0) + found.get(instance, 0.0)
            for instance in new
        }
        return Period(name, dict(new), stable, evidence)

    def counts(self, new: Mapping[str, Counts]) -> dict[str, Counts]:
        """Return what was counted in this period."""
        return {name: counts.since(self.began[name], Counts()) for name, counts in new.items()}

    def dump(self) -> dict[str, t.Any]:
        """Return plain data, for the journal."""
        return asdict(self)

    @classmethod
    def load(cls, data: Mapping[str, t.Any]) -> Period:
        """Return the period that `dump` made the data of."""
        began = {name: Counts(**counts) for name, counts in data["began"].items()}
        return cls(data["name"], began, Counts(**data["stable"]), data["evidence"])


def find_outliers(
    new: Mapping[str, Counts],
    stable: Counts,
    alpha: float = ALPHA,
    tolerance: float = 1.0,
    before: Mapping[str, float] | None = None,
) -> Outliers:
    """Find the new instances that fail more than `tolerance` times as often as all others.

    The others include stable ones. All are counted over the same period. `alpha` is for all
    instances together (Bonferroni). `before` is the evidence against each of earlier periods.
    """
    others = _others(new, stable)
    threshold = math.log(len(new) / alpha) if new else math.inf
    found: dict[str, str] = {}
    for name, current in sorted(_evidence(new, others, tolerance).items()):
        evidence = current + (before or {}).get(name, 0.0)
        if evidence >= threshold:
            counts = f"errors {new[name]} against {others[name]} on all others"
            found[name] = f"{name}: {counts}; e-value {shown(evidence)} >= {e_value(threshold):g}"
    return Outliers(
        tuple(found), "; ".join(found.values()) or "no instance is worse than the others"
    )


def _others(new: Mapping[str, Counts], stable: Counts) -> dict[str, Counts]:
    """Return, for each new instance, what was counted on all other instances."""
    total = sum(new.values(), stable)
    return {
        name: Counts.of(total.requests - counts.requests, total.errors - counts.errors)
        for name, counts in new.items()
    }


def _evidence(
    new: Mapping[str, Counts], others: Mapping[str, Counts], tolerance: float
) -> dict[str, float]:
    """Return the evidence against each new instance, compared with all others."""
    return {
        name: Stratum(name, counts, others[name]).log_e(tolerance) for name, counts in new.items()
    }
