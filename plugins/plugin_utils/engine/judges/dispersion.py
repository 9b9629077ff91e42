# SPDX-License-Identifier: GPL-3.0-or-later
"""How much more errors vary than independent ones would, by what stable instances show. Pure.

One cause makes many errors: a client that tries again, a lost connection with all its requests. So
the evidence is divided by Pearson's dispersion of the stable instances within looks
(https://en.wikipedia.org/wiki/Overdispersion), weighted by errors. Until these have shown enough,
the new side's own ones tell (`PRIOR`): errors of one instance in one look count as one, but for
those that it has in every look.

Instances differ all the time, too: by their hosts, or their clients. That variance grows with the
square of the errors. It is estimated by moments, over the whole analysis.

What disturbs an instance may last, as with a broken client or a noisy neighbour. Then errors of
looks that follow each other have one cause, too. So the dispersion is that of blocks of looks as
well, and the greatest counts.
"""

from __future__ import annotations

import math
import statistics
import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property

from .counts import Counts

PRIOR = 2.0  # instances and looks with errors on stable, as which the new side's own ones count
STEADY = 2  # new instances and looks, as which it counts that nothing is known of their mean
LEAST = 1e-6  # errors; fewer are none
FEW = 0.98  # the fewer stable instances there are, the greater their variance may really be
NORMAL = statistics.NormalDist()
MOST = 200  # stable instances of which the errors are kept
BLOCKS = (2, 4, 8)  # looks


@dataclass(frozen=True)
class Block:
    """The dispersion of blocks of several looks."""

    size: int  # looks
    looks: int = 0  # of the block that has begun
    cells: Mapping[str, Sequence[float]] = field(default_factory=dict)  # its errors, expected
    weighed: float = 0.0  # Pearson's dispersions of blocks, each times its errors
    weight: float = 0.0  # the errors of these blocks
    events: int = 0  # stable instances and blocks with errors
    freedom: int = 0  # degrees of it: the blocks' instances, less one each

    def after(self, look: Mapping[str, Sequence[float]]) -> Block:
        """Return it after one more look, with the errors and those expected of each instance."""
        cells = dict(self.cells)
        for name, (errors, expected) in look.items():
            if name in cells or len(cells) < MOST:
                before = cells.get(name, (0.0, 0.0))
                cells[name] = (round(before[0] + errors, 4), round(before[1] + expected, 4))
        block = replace(self, looks=self.looks + 1, cells=cells)
        return replace(block._ended, looks=0, cells={}) if block.looks == self.size else block

    @property
    def _ended(self) -> Block:
        """It as if the block that has begun were over."""
        cells = [(errors, part) for errors, part in self.cells.values() if part > LEAST]
        if len(cells) < 2:
            return self
        pearson = sum((errors - part) ** 2 / part for errors, part in cells) / (len(cells) - 1)
        errors = sum(errors for errors, _part in cells)
        return replace(
            self,
            weighed=self.weighed + errors * pearson,
            weight=self.weight + errors,
            events=self.events + sum(errors > 0 for errors, _part in cells),
            freedom=self.freedom + len(cells) - 1,
        )

    @cached_property
    def shown(self) -> tuple[float, int]:
        """The dispersion, and how many stable instances and blocks with errors tell it.

        What is more than chance is raised by what few blocks may hide of it.
        """
        block = self._ended
        if not block.weight:
            return 1.0, 0
        pearson = block.weighed / block.weight
        beyond = max(0.0, pearson - 1 - math.sqrt(2 / block.freedom))
        return pearson + beyond * (hidden(block.freedom) - 1), block.events


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
    blocks: Sequence[Block] = tuple(Block(size) for size in BLOCKS)

    def after(self, new: Sequence[Counts], stable: Mapping[str, Counts]) -> Dispersion:
        """Return the dispersion after one more look, with the counts of each instance."""
        known = self.own_cells > 0 or not self.own
        after = replace(
            self,
            own_cells=self.own_cells + sum(counts.requests > 0 for counts in new) if known else 0,
            own=self.own + sum(counts.errors for counts in new),
            own_squares=self.own_squares + sum(counts.errors**2 for counts in new),
        )
        total = sum(stable.values(), Counts())
        if len(stable) > 1:
            return after._within(list(stable.values()), total)._across(stable, total)
        # Where no instances are known, two looks that follow each other are compared.
        pair = [Counts(*self.last), total] if self.last else []
        return replace(
            after._within(pair, sum(pair, Counts())) if pair else after,
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
        each, look = dict(self.each), dict[str, Sequence[float]]()
        for name, counts in stable.items():
            part = counts.requests * total.errors / total.requests
            look[name] = (counts.errors, part)
            if name in each or len(each) < MOST:
                errors, expected = each.get(name, (0.0, 0.0))
                each[name] = (round(errors + counts.errors, 4), round(expected + part, 4))
        return replace(self, each=each, blocks=[block.after(look) for block in self.blocks])

    def dump(self) -> dict[str, t.Any]:
        """Return plain data, for the journal."""
        return asdict(self)

    @classmethod
    def load(cls, data: Mapping[str, t.Any]) -> Dispersion:
        """Return what `dump` made the data of; an older version knew no blocks."""
        dispersion = cls(**{name: value for name, value in data.items() if name != "blocks"})
        if "blocks" not in data:
            return dispersion
        return replace(dispersion, blocks=[Block(**block) for block in data["blocks"]])

    @cached_property
    def of_look(self) -> float:
        """How many errors have one cause, on average; at least 1."""
        of_new = self._of_new
        looks = (self.weighed / self.weight, self.events) if self.weight else (of_new, 0)
        excesses = [looks, *(block.shown for block in self.blocks)]
        return max(
            1.0,
            *((PRIOR * of_new + events * shown) / (PRIOR + events) for shown, events in excesses),
        )

    @property
    def of_stable(self) -> float:
        """How many errors of stable have one cause within a look; at least 1."""
        return max(1.0, self.weighed / self.weight) if self.weight else 1.0

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
        variance *= hidden(len(kept) - 1)
        return self.of_look + variance * expected

    def risks(self, hosts: Mapping[str, str], sure: float) -> dict[str, float]:
        """Return how many times as often stable instances fail on hosts that are worse.

        By `sure` standard deviations at least. New instances are expected to do the same there.
        """
        on_host: dict[str, Counts] = {}
        for name, (errors, expected) in self.each.items():
            if host := hosts.get(name):
                on_host[host] = on_host.get(host, Counts()) + Counts(expected, errors)
        return {
            host: counts.errors / counts.requests
            for host, counts in on_host.items()
            if counts.errors - counts.requests > sure * math.sqrt(self.of_look * counts.requests)
        }


def hidden(freedom: int) -> float:
    """Return by how many times the variance may be greater than so few degrees of freedom show."""
    return (student(FEW, freedom) / NORMAL.inv_cdf(FEW)) ** 2


def student(sure: float, freedom: int) -> float:
    """Return a quantile of Student's t, which few instances need.

    By its expansion (https://personal.math.ubc.ca/~cbm/aands/page_949.htm, 26.7.5).
    """
    z = NORMAL.inv_cdf(sure)
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + first / freedom + second / freedom**2
