# SPDX-License-Identifier: GPL-3.0-or-later
"""The sequential test of errors: does the new revision fail more often than the stable one? Pure.

Of the errors of a look the new revision should have its share of the requests. `Bets` on odds
ratios above that tell when it has more, by an e-value (https://arxiv.org/abs/2210.01948), after
every look anew. Error rates may change with time, since both revisions share them, and so may the
share: each look has its own.

What is assumed: both revisions get the same mix of requests, and errors of the new one have causes
as those of stable instances have (`dispersion.py`).
"""

from __future__ import annotations

import math
import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from .calm import BEFORE, LAG, PEAK, Calm, is_storm
from .counts import Counts, Span
from .dispersion import Dispersion
from .evalue import ALPHA, Bets, Odds, Trial, compared, e_value, first_true, odds_of
from .fading import Fading, WarmUpLimit
from .verdict import Data, Verdict

DETECT = 0.05  # the error rate that should be detected,
WORSE = 3.0  # or this many times that of stable, if it is more
# standard deviations: in nine of ten cases at most that many fewer errors are seen than expected
SPREAD = 1.28
POINTS = 64  # odds ratios that are bet on
SMALLEST, GREATEST = 1.2, 128.0  # of them; a bet on a smaller one tells too little
RARER = 0.7  # those beyond ten times an odds ratio are to this power of 10 fewer


def odds_ratios(smallest: float, greatest: float, rarer: float) -> list[float]:
    """Return the odds ratios to bet on: the part beyond any of them is as its power of -`rarer`.

    Small ones are likelier, but need many errors to tell anyway; great ones may need a few only.
    """
    most, least = smallest**-rarer, greatest**-rarer
    parts = ((point + 0.5) / POINTS for point in range(POINTS))
    return [(most - part * (most - least)) ** (-1 / rarer) for part in parts]


ODDS = odds_of(odds_ratios(SMALLEST, GREATEST, RARER))
LOOKS, EVENTS = 2, 3  # looks with errors, and instances and looks with errors, for a verdict
BAD = 2.0  # standard deviations more errors on the old instances of a host count for new ones, too
# A verdict waits `LAG` looks for stable to show the same, and while it does, unless errors at up to
# `PEAK` times the rate before them are evidence enough.
LONGEST = LAG + BEFORE  # looks that it waits while stable has a storm, at most
# At least this part of the requests to the new side failed in two looks in a row, and at most a
# tenth as many of those to stable in any look: then a verdict does not wait.
LOSS = 0.5
NO_WAIT = WarmUpLimit()


def tolerated(theta: float, tolerance: float) -> float:
    """Return the share of all errors of a side with the share `theta` of the requests.

    It may fail `tolerance` times as often as the other side.
    """
    part = tolerance * theta
    return part / (1 - theta + part) if part > 0 else 0.0


@dataclass(frozen=True)
class Shown:
    """For how long there is evidence against a side or an instance."""

    looks: int = 0  # with errors
    events: int = 0  # instances and looks with errors
    held: int = 0  # looks in a row with evidence enough
    lost: int = 0  # looks in a row with more than `LOSS`
    steady: bool = False  # whether the evidence is enough without a peak in the last looks
    above: bool = True  # whether it is enough now; an older version did not ask
    storm: bool = False  # whether stable has a storm now, which may be the same
    fades: bool = False  # whether the new side may be warming up
    peak: float = 0.0  # the most evidence while it is enough
    lasting: int = 0  # more looks that it has to last, where only one instance shows it

    def after(
        self,
        failed: int,
        evidence: float,
        limit: float,
        *,
        lost: bool = False,
        steady: float = 0.0,
        storm: bool = False,
        fades: bool = False,
        alone: int = 0,
    ) -> Shown:
        """Return it after a look in which so many instances failed.

        Evidence over the `limit` is held as long as half of it (of the logarithm) remains.
        `steady` is the evidence without a peak in the last looks. `alone`: for so many looks it has
        to grow, where it is by one instance.
        """
        looks, events = self.looks + (failed > 0), self.events + failed
        enough = evidence >= (limit / 2 if self.held else limit)
        held = self.held + 1 if enough and looks >= LOOKS and events >= EVENTS else 0
        lost_looks = self.lost + 1 if lost else 0
        above, settled = evidence >= limit, steady >= limit
        peak = max(self.peak, evidence) if held else 0.0
        lasts = not alone or (held > alone and evidence >= self.peak)
        lasting = 0 if lasts or not held else max(1, alone + 1 - held)
        return Shown(looks, events, held, lost_looks, settled, above, storm, fades, peak, lasting)

    @property
    def decided(self) -> bool:
        """Whether the evidence has lasted, or is of before, or the loss is too great to wait.

        Evidence that no longer is enough waits until it is again, and what only one instance shows
        until it has lasted.
        """
        waited = self.held > (LONGEST if self.storm else LAG)
        known = self.held > 0 and (self.steady or self.lost > 1)
        return (
            (waited or known) and self.above and (self.lost > 1 or not (self.lasting or self.fades))
        )

    @property
    def pending(self) -> int:
        """How many more looks a verdict waits."""
        waits = self.held and not self.decided
        return max(1, self.lasting, LAG + 1 - self.held) if waits else 0


@dataclass(frozen=True)
class ErrorHistory:
    """What is known of the errors of both sides. Of constant size, but for names of instances."""

    new: Counts = field(default_factory=Counts)
    stable: Counts = field(default_factory=Counts)
    # of these, what was counted while both sides had requests, and in how many looks
    beside: tuple[Counts, Counts] = field(default_factory=lambda: (Counts(), Counts()))
    looks: int = 0
    bets: Bets = field(default_factory=lambda: Bets(ODDS, BEFORE))
    dispersion: Dispersion = field(default_factory=Dispersion)
    shown: Shown = field(default_factory=Shown)
    expected: float = 0.0  # errors of a new instance, if it were as the stable ones
    # errors of all new instances of a host, if they were as the stable ones
    by_host: Mapping[str, float] = field(default_factory=dict)
    calm: Calm = field(default_factory=Calm)
    fading: Fading = field(default_factory=Fading)

    def after(
        self,
        look: Sequence[Span],
        alpha: float,
        tolerance: float,
        storm: bool = False,
        patience: WarmUpLimit = NO_WAIT,
        *,
        looks: int = 1,
        alone: int = 0,
    ) -> ErrorHistory:
        """Return the history after one more look, of one or several spans.

        `storm`: whether stable is known to have one now. `patience`: for the new side to warm up.
        `looks`: so many passed since the last one. `alone`: see `Shown`.
        """
        new, stable = together(span.new for span in look), together(span.stable for span in look)
        expected, by_host = self.expected, dict(self.by_host)
        for span in look:
            on_stable = total(span.stable)
            expected += on_stable.rate * _typical(span.new)
            for name, counts in span.new.items():
                host = span.hosts.get(name, "")
                by_host[host] = by_host.get(host, 0.0) + on_stable.rate * counts.requests
        trials = [of_span(span, tolerance) for span in look]
        dispersion = self.dispersion.after(list(new.values()), stable)
        calm = self.calm.after(total(new), total(stable))
        lost = is_lost(total(new), calm.worst)
        compared_spans = [span for span in look if span.has_both]
        fading = self.fading.after(
            new, total(stable), dispersion.of_stable, patience, looks, ages_of(look)
        )
        history = replace(
            self,
            new=self.new + total(new),
            stable=self.stable + total(stable),
            beside=(
                sum((total(span.new) for span in compared_spans), self.beside[0]),
                sum((total(span.stable) for span in compared_spans), self.beside[1]),
            ),
            looks=self.looks + bool(compared_spans),
            bets=self.bets.after(*trials, events=new.values()),
            fading=fading,
            dispersion=dispersion,
            expected=expected,
            by_host=by_host,
            calm=calm,
        )
        by_hosts = history._is_of_hosts(hosts_of(look), tolerance)
        evidence, steady = (0.0, 0.0) if by_hosts else (history.log_e, history.steady_log_e)
        failed = sum(counts.errors > 0 for counts in new.values())
        storm = storm or history.calm.storm
        fades = evidence >= math.log(1 / alpha) and fading.waits(patience)
        shown = self.shown.after(
            failed,
            evidence,
            math.log(1 / alpha),
            lost=lost,
            steady=steady,
            storm=storm,
            fades=fades,
            alone=alone,
        )
        return replace(history, shown=shown)

    def _is_of_hosts(self, hosts: Mapping[str, str], tolerance: float) -> bool:
        """Whether hosts that are bad for stable instances explain the errors of the new side."""
        risks = self.dispersion.risks(hosts, BAD)
        if not risks.keys() & self.by_host.keys():
            return False
        explained = tolerance * sum(
            errors * risks.get(host, 1.0) for host, errors in self.by_host.items()
        )
        return self.new.errors <= explained + BAD * math.sqrt(self.new.errors + explained)

    @property
    def share(self) -> float:
        """The part of the requests that went to the new side, 0 to 1, while both sides had some."""
        new, stable = self.beside
        return new.requests / (new.requests + stable.requests) if new.requests else 0.0

    @property
    def ends_in_burst(self) -> bool:
        """Whether the new side had far more errors in the last look than all had otherwise."""
        if not self.calm.last:
            return False
        new, _stable = self.calm.last[-1]
        return is_storm(new, (self.new + self.stable - new).rate)

    def exceeds(self, detect: float) -> bool:
        """Whether the new side fails as often as a verdict has to detect, and not less and less.

        Errors that come many at once, or beside which stable has no requests, may be too little
        evidence for a failure, however many they are.
        """
        sides = self.beside, (self.new, self.stable)
        high = any(new.rate >= detectable(detect, stable.rate) for new, stable in sides)
        return high and not self.fading.fades

    @property
    def log_e(self) -> float:
        """The evidence that the new side is worse; where errors fade, by those that stay."""
        return self.fading.limited(self.log_e_in_all)

    @property
    def log_e_in_all(self) -> float:
        """The evidence, with errors that fade."""
        return self.bets.log_e_of_lasting(self.dispersion.total(self.expected))

    @property
    def steady_log_e(self) -> float:
        """The evidence as if the new side had failed in the last looks as often as in calm ones.

        None where it fails so often that there is no room for a peak.
        """
        rate = PEAK * self.calm.new.rate
        if rate > LOSS:
            return 0.0
        steady = self.bets.without_peak(rate)
        return self.fading.limited(steady.log_e_of_lasting(self.dispersion.total(self.expected)))

    def dump(self) -> dict[str, t.Any]:
        """Return plain data, for the journal."""
        return {
            "new": [self.new.requests, self.new.errors],
            "stable": [self.stable.requests, self.stable.errors],
            "beside": [[side.requests, side.errors] for side in self.beside],
            "looks": self.looks,
            "bets": self.bets.dump(),
            "dispersion": self.dispersion.dump(),
            "shown": asdict(self.shown),
            "expected": self.expected,
            "by_host": {host: round(errors, 4) for host, errors in self.by_host.items()},
            "calm": self.calm.dump(),
            "fading": self.fading.dump(),
        }

    @classmethod
    def load(cls, data: Mapping[str, t.Any], odds: Odds = ODDS) -> ErrorHistory:
        """Return the history that `dump` made the data of, with the odds that its bets have."""
        new, stable = data.get("beside", (data["new"], data["stable"]))
        return cls(
            Counts(*data["new"]),
            Counts(*data["stable"]),
            (Counts(*new), Counts(*stable)),
            data.get("looks", LOOKS),
            Bets.load(odds, BEFORE, data["bets"]),
            Dispersion.load(data["dispersion"]),
            Shown(**data["shown"]),
            data["expected"],
            data["by_host"],
            Calm.load(data["calm"]) if "calm" in data else Calm(),
            Fading.load(data.get("fading", {})),
        )


def together(parts: t.Iterable[Mapping[str, Counts]]) -> dict[str, Counts]:
    """Return the counts of each instance in all spans of a look."""
    totals: dict[str, Counts] = {}
    for part in parts:
        for name, counts in part.items():
            totals[name] = totals.get(name, Counts()) + counts
    return totals


def total(side: Mapping[str, Counts]) -> Counts:
    """Return the counts of all instances of a side."""
    return sum(side.values(), Counts())


def trial(new: Counts, others: Counts, tolerance: float) -> Trial:
    """Return what these counts tell of the new side."""
    requests = new.requests + others.requests
    share = new.requests / requests if requests else 0.0
    errors = new.errors + others.errors
    return Trial(new.errors, errors, tolerated(share, tolerance), new.requests)


def of_span(span: Span, tolerance: float) -> Trial:
    """Return what a span tells of the new side."""
    of_whole = trial(total(span.new), total(span.stable), tolerance)
    mild = [(new, new + stable, power) for new, stable, power in span.mild]
    return replace(of_whole, mild=mild) if mild else of_whole


def hosts_of(look: Sequence[Span]) -> dict[str, str]:
    """Return the host of each instance of a look."""
    return {name: host for span in look for name, host in span.hosts.items()}


def ages_of(look: Sequence[Span]) -> dict[str, int]:
    """Return for how many looks each new instance had requests before this one."""
    return {name: age for span in look for name, age in span.ages.items()}


def is_lost(new: Counts, worst: float) -> bool:
    """Whether so many requests to the new side failed that nothing is waited for.

    `worst`: the part of the requests to stable that failed in its worst look.
    """
    return new.rate >= LOSS and worst <= new.rate / 10


def _typical(new: Mapping[str, Counts]) -> float:
    """Return the requests to a new instance: the mean, weighted by requests."""
    requests = total(new).requests
    return sum(counts.requests**2 for counts in new.values()) / requests if requests else 0.0


# -- the verdict -----------------------------------------------------------------------------------


def compare_errors(
    history: ErrorHistory,
    alpha: float = ALPHA,
    tolerance: float = 1.0,
    detect: float = DETECT,
    what: str = "errors",
) -> Verdict:
    """Judge whether the new side fails more than `tolerance` times as often.

    `what` is counted, for the sentence.
    Where it does not (yet), the data is lacking until an error rate of `detect` (0 to 1), or of
    `WORSE` times that of stable, would have been seen about nine times in ten.
    """
    limit = math.log(1 / alpha)
    text = f"{what} {history.new} against {history.stable} on stable"
    if not 0 < history.share < 1:
        side = "stable" if history.new.requests else "the new revision"
        nothing = f"{text}; no requests to {side}, nothing to compare"
        return Verdict(False, nothing, threshold=1 / alpha, data=Data.HOPELESS)
    seen, in_all = history.shown, history.log_e_in_all
    warms = history.fading.is_cold and (seen.fades or history.log_e < limit <= in_all)
    evidence = in_all if warms else history.log_e
    if seen.decided and history.stable.errors:
        text += f", {history.new.rate / history.stable.rate:.2g} times as often"
    text += f"; {compared(evidence, limit)}"
    if (overdispersion := history.dispersion.total(history.expected)) >= 1.5:
        text += f", as {overdispersion:.2g} errors count as one"
    verdict = Verdict(seen.decided, text, e_value(evidence), 1 / alpha)
    if seen.decided:
        return verdict
    if in_all >= limit and (warms or seen.fades):
        sentence = f"{text}; {history.fading}"
        return replace(verdict, sentence=sentence, data=Data.WAITING)
    if in_all >= limit > evidence:
        verdict = replace(verdict, sentence=f"{text}, since the errors at the start faded")
    if seen.pending:
        return waiting(verdict, seen.pending, alone=bool(seen.lasting))
    if evidence >= limit:
        return replace(
            verdict,
            sentence=f"{text}; too few looks with errors, or by its hosts",
            data=Data.WAITING,
        )
    if history.looks < LOOKS and history.bets.log_e() >= limit:
        sentence = f"{text}; both sides had requests in one look only"
        return replace(verdict, sentence=sentence, data=Data.LACKING)
    verdict = _with_missing(verdict, history, (alpha, tolerance, detect))
    if verdict.data is Data.ENOUGH and history.ends_in_burst:
        sentence = f"{verdict.sentence}; far more errors in the last look than before"
        return replace(verdict, sentence=sentence, data=Data.WAITING)
    return verdict


def waiting(verdict: Verdict, looks: int, alone: bool) -> Verdict:
    """Return the verdict while it waits for stable to show the same.

    `alone`: or while it waits whether what only one instance shows lasts.
    """
    more = "1 more look" if looks == 1 else f"at most {looks} more looks"
    text = f"{verdict.sentence}; {more} for stable to show it"
    if alone:
        more = "1 more look" if looks == 1 else f"{looks} more looks"
        text = f"{verdict.sentence}; only one new instance shows it: {more} to see whether it lasts"
    return replace(verdict, sentence=text, data=Data.WAITING)


def _with_missing(
    verdict: Verdict, history: ErrorHistory, rules: tuple[float, float, float]
) -> Verdict:
    """Return the verdict with whether there is enough data to rely on it."""
    alpha, tolerance, detect = rules
    detect = detectable(detect, history.stable.rate)
    known = history.fading.warm if history.fading.fades else history.beside[0].requests
    enough = _enough_requests(history, known, (alpha, tolerance, detect))
    if enough is None:
        text = f"{verdict.sentence}; stable's error rate is too high to detect {detect:.3g}"
        return replace(verdict, sentence=text, data=Data.HOPELESS)
    missing = max(0, enough - math.floor(known))
    if not missing:
        return verdict
    text = f"{verdict.sentence}; needs {missing:,} more requests"
    return replace(verdict, sentence=text, data=Data.LACKING, missing=missing)


def detectable(detect: float, stable: float) -> float:
    """Return the error rate to detect (0 to 1), given the error rate of stable."""
    return min(1.0, max(detect, WORSE * stable))


def requests_for(share: float, alpha: float, tolerance: float, detect: float) -> int | None:
    """Return how many requests to the new side detect the rate `detect` nine times in ten.

    It has this `share` of all (0 to 1), and stable has no errors. None: no number does.
    """
    nothing = ErrorHistory(beside=(Counts(share / 2), Counts((1 - share) / 2)))
    return _enough_requests(nothing, share / 2, (alpha, tolerance, detect))


def _enough_requests(
    history: ErrorHistory, known: float, rules: tuple[float, float, float]
) -> int | None:
    """Return how many requests to the new side detect the rate `detect` nine times in ten.

    0: as many as are `known` do. None: no number does.
    """
    alpha, tolerance, detect = rules
    theta, limit = tolerated(history.share, tolerance), math.log(1 / alpha)
    odds = history.bets.odds
    # errors on stable for each request to the new side
    on_new, on_stable = history.beside
    of_stable = on_stable.errors / on_new.requests

    def detects(requests: int) -> bool:
        failed = requests * detect
        failed = max(0.0, failed - SPREAD * math.sqrt(failed * (1 - detect)))
        errors = failed + requests * of_stable
        if failed < EVENTS or failed <= theta * errors:
            return False
        return Bets(odds, BEFORE).after(Trial(failed, errors, theta)).log_e() >= limit

    return 0 if detects(math.floor(known)) else first_true(detects)
