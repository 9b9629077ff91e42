# SPDX-License-Identifier: GPL-3.0-or-later
"""Both sequential tests of errors together: of both sides, and of single new instances. Pure."""

from __future__ import annotations

import functools
import operator
import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from .counts import Span
from .errors import LOOKS, NO_WAIT, ODDS, ErrorHistory, compare_errors, together, total, waiting
from .evalue import Odds
from .fading import WarmUpLimit
from .instances import Instances
from .verdict import Data, Verdict

# The part of alpha that is for both sides; the rest is for single instances.
SIDES = 0.9


@dataclass(frozen=True)
class Comparison:
    """What is known of the errors of both sides, and of each new instance."""

    sides: ErrorHistory = field(default_factory=ErrorHistory)
    instances: Instances = field(default_factory=Instances)
    reached: int = LOOKS  # looks in a row in which new instances failed as often as is bad
    kept: Span | None = None  # of looks in which only one side had requests, a few
    kept_looks: int = 0  # how many these are

    def after(
        self,
        look: Sequence[Span],
        alpha: float,
        tolerance: float,
        at_least: float = 0.0,
        storm: bool = False,
        patience: WarmUpLimit = NO_WAIT,
    ) -> Comparison:
        """Return it after one more look, of one or several spans.

        A rate of errors below `at_least` (0 to 1) is not bad, whatever that of stable is. `storm`:
        whether stable is known to have one now.

        Where a few requests went to one side alone, they are kept for the next look, unless a
        verdict waits: sides that have requests in turns are compared, too.
        """
        if self.kept:
            look = [self.kept + look[0], *look[1:]] if look else [self.kept]
        whole = functools.reduce(operator.add, look) if look else Span({}, {})
        if whole.is_partial and not self.sides.shown.held:
            return replace(self, kept=whole, kept_looks=self.kept_looks + 1)
        looks = self.kept_looks + 1
        stable = self.sides.stable + total(together(span.stable for span in look))
        alone = self.instances.alone(look, stable, patience.alone) if patience.alone else 0
        sides = self.sides.after(
            look, SIDES * alpha, tolerance, storm, patience, looks=looks, alone=alone
        )
        instances = self.instances.after(
            look,
            sides.dispersion,
            (1 - SIDES) * alpha,
            tolerance,
            storm=sides.shown.storm,
            patience=patience,
            looks=looks,
        )
        rate = total(together(span.new for span in look)).rate
        return Comparison(sides, instances, self.reached + 1 if rate >= at_least else 0)

    def verdict(
        self, alpha: float, tolerance: float, detect: float, what: str = "errors"
    ) -> tuple[Verdict, str]:
        """Return the verdict, and a remark on hosts that are bad for stable instances, too.

        `what` is counted, for the sentence.
        """
        verdict, remark = self._by_evidence(alpha, tolerance, detect, what)
        sentence = verdict.sentence
        if self.reached < LOOKS:
            if verdict.worse:
                verdict = replace(verdict, worse=False, sentence=f"{sentence}; now below at_least")
        elif not verdict.worse and verdict.data is Data.ENOUGH and self.sides.exceeds(detect):
            sentence += "; too high an error rate to pass without a verdict"
            verdict = replace(verdict, sentence=sentence, data=Data.WAITING)
        return verdict, remark

    def _by_evidence(
        self, alpha: float, tolerance: float, detect: float, what: str
    ) -> tuple[Verdict, str]:
        verdict = compare_errors(self.sides, SIDES * alpha, tolerance, detect, what)
        outliers = self.instances.outliers(
            self.sides.dispersion, (1 - SIDES) * alpha, what, waits=not verdict.worse
        )
        if verdict.worse and len(outliers.names) == 1:  # which may be the reason
            verdict = replace(verdict, sentence=f"{verdict.sentence}; {outliers.sentence}")
        elif outliers.names and not verdict.worse:
            verdict = Verdict(True, outliers.sentence)
        elif outliers.pending and not verdict.worse and verdict.data is Data.ENOUGH:
            verdict = waiting(verdict, outliers.pending, alone=outliers.lasting)
        return verdict, outliers.remark

    def dump(self) -> dict[str, t.Any]:
        """Return plain data, for the journal."""
        return {
            "errors": self.sides.dump(),
            "instances": self.instances.dump(),
            "reached": self.reached,
            "kept": self.kept.dump() if self.kept else None,
            "kept_looks": self.kept_looks,
        }

    @classmethod
    def load(cls, data: Mapping[str, t.Any], odds: Odds = ODDS) -> Comparison:
        """Return the comparison that `dump` made the data of, with the odds that it bets on."""
        return cls(
            ErrorHistory.load(data["errors"], odds),
            Instances.load(data.get("instances", {})),
            data.get("reached", LOOKS),
            Span.load(data["kept"]) if data.get("kept") else None,
            data.get("kept_looks", 0),
        )
