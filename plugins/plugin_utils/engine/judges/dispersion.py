# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How much more errors vary than independent ones would, by what stable instances show. Pure.

One cause makes many errors: a client that tries again, a lost connection with all its requests. So
the evidence is divided by Pearson's dispersion of the stable instances within looks
(https://en.wikipedia.org/wiki/Overdispersion), weighted by errors. Until these have shown enough,
the new side's own ones tell (`PRIOR`): errors of one instance in one look count as one, but for
those that it has in every look.

Instances differ all the time, too: by their hosts, or their clients. That variance grows with the
square of the errors. It is estimated by moments, over the whole analysis.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from .counts import Counts

PRIOR = 2.0  # instances and looks with errors on stable, as which the new side's own ones count
STEADY = 2  # new instances and looks, as which it counts that nothing is known of their mean
LEAST = 1e-6  # errors; fewer are none
FEW = 0.98  # the fewer stable instances there are, the greater their variance may really be
NORMAL = statistics.NormalDist()
MOST = 200  # stable instances of which the errors are kept


@dataclass(frozen=True)
class Dispersion:
    """What is known of how errors vary: plain data, for the journal."""

    weighed: float = 0.0  # Pearson's dispersions of looks, each times its errors
    weight: float = 0.0  # the errors of these looks
    events: int = 0  # stable instances and looks with errors
    own: float = 0.0  # errors of new instances and looks,
    own_squares: float = 0.0  # the sum of their squares,
    own_cells: int = 0  # and how many these are, with and without errors; 0: not known
    each: Mapping[str, Sequence[float]] = field(default_factory=dict)  # stable: errors, expected
    last: Sequence[float] = ()  # where stable is one: requests and errors of the look before

    def after(self, new: Sequence[Counts], stable: Mapping[str, Counts]) -> Dispersion:
        """Return the dispersion after one more look, with the counts of each instance."""
        known = self.own_cells > 0 or not self.own
        found = replace(
            self,
            own_cells=self.own_cells + sum(one.requests > 0 for one in new) if known else 0,
            own=self.own + sum(one.errors for one in new),
            own_squares=self.own_squares + sum(one.errors**2 for one in new),
        )
        total = sum(stable.values(), Counts())
        if len(stable) > 1:
            return found._within(list(stable.values()), total)._across(stable, total)
        # Where no instances are known, two looks that follow each other are compared.
        pair = [Counts(*self.last), total] if self.last else []
        return replace(
            found._within(pair, sum(pair, Counts())) if pair else found,
            last=() if pair else (total.requests, total.errors),
        )

    def _within(self, cells: Sequence[Counts], total: Counts) -> Dispersion:
        """Add Pearson's dispersion of cells that should fail alike."""
        cells = [cell for cell in cells if cell.requests > 0]
        if len(cells) < 2 or total.errors < LEAST:
            return self
        rate = total.errors / total.requests
        pearson = sum(
            (cell.errors - rate * cell.requests) ** 2 / (rate * cell.requests) for cell in cells
        )
        return replace(
            self,
            weighed=self.weighed + total.errors * pearson / (len(cells) - 1),
            weight=self.weight + total.errors,
            events=self.events + sum(cell.errors > 0 for cell in cells),
        )

    def _across(self, stable: Mapping[str, Counts], total: Counts) -> Dispersion:
        """Add each stable instance's errors, and those that would be its part."""
        if total.errors < LEAST:
            return self
        each = dict(self.each)
        for name, one in stable.items():
            if name in each or len(each) < MOST:
                errors, expected = each.get(name, (0.0, 0.0))
                part = one.requests * total.errors / total.requests
                each[name] = (round(errors + one.errors, 4), round(expected + part, 4))
        return replace(self, each=each)

    @property
    def of_look(self) -> float:
        """How many errors have one cause, on average; at least 1."""
        own = self._of_new
        shown = self.weighed / self.weight if self.weight else own
        return max(1.0, (PRIOR * own + self.events * shown) / (PRIOR + self.events))

    @property
    def _of_new(self) -> float:
        """How many errors of the new side have one cause: its variance to its mean, at most."""
        if not self.own:
            return 1.0
        more = max(0, self.own_cells - 1)  # a single one tells no mean
        steady = self.own / max(1, self.own_cells) * more / (more + STEADY)
        return max(1.0, self.own_squares / self.own - steady)

    def total(self, expected: float) -> float:
        """Return how many errors of a new instance count as one, since these vary.

        `expected` errors of it, if it were as the stable ones on average.
        """
        kept = [(errors, part) for errors, part in self.each.values() if part > LEAST]
        if len(kept) < 2:
            return self.of_look
        squares = sum((errors - part) ** 2 for errors, part in kept) * len(kept) / (len(kept) - 1)
        chance = 1 + math.sqrt(2 / (len(kept) - 1))  # a standard deviation more is still chance
        by_chance = chance * self.of_look * sum(part for _errors, part in kept)
        variance = max(0.0, squares - by_chance) / sum(part**2 for _errors, part in kept)
        variance *= (student(FEW, len(kept) - 1) / NORMAL.inv_cdf(FEW)) ** 2
        return self.of_look + variance * expected

    def risks(self, hosts: Mapping[str, str], sure: float) -> dict[str, float]:
        """Return how many times as often stable instances fail on hosts that are worse.

        By `sure` standard deviations at least. New instances are expected to do the same there.
        """
        found: dict[str, Counts] = {}
        for name, (errors, expected) in self.each.items():
            if host := hosts.get(name):
                found[host] = found.get(host, Counts()) + Counts(expected, errors)
        return {
            host: one.errors / one.requests
            for host, one in found.items()
            if one.errors - one.requests > sure * math.sqrt(self.of_look * one.requests)
        }


def student(sure: float, freedom: int) -> float:
    """Return a quantile of Student's t, which few instances need.

    By its expansion (https://personal.math.ubc.ca/~cbm/aands/page_949.htm, 26.7.5).
    """
    z = NORMAL.inv_cdf(sure)
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + first / freedom + second / freedom**2
