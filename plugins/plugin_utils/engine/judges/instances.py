# SPDX-License-Identifier: GPL-3.0-or-later
"""The sequential test of single instances. Pure.

It finds new instances that fail more often than all others, and than the old ones of their own
host: a host that is bad for stable instances, too, is no fault of the new revision.
"""

from __future__ import annotations

import math
import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from .counts import Counts, Span
from .dispersion import Dispersion
from .errors import LOSS, NO_WAIT, Shown, ages_of, hosts_of, together, total, trial
from .evalue import Bets, compared, odds_of
from .fading import Fading, WarmUpLimit

ODDS = odds_of((1.5, 2.5, 5.0, 12.0, 40.0))
MOST = 200  # new instances that are judged one by one
BAD = 3.0  # standard deviations more errors on the old instances make a bad host
# Probability that one on a bad host is called worse than the old ones there, if it is not. It only
# counts for instances that are worse than all others by the analysis' alpha.
HOST = 0.05
ON_HOST = math.log(1 / HOST)
SINGLE = 0.4  # of the looks that one of several has to be worse, for the only new instance
EARLY = 3  # first looks at an instance: a bad one fails in these, too
LATE = 5 / 3  # of the looks, where it was as the others in these
MATES = 0.1  # of an instance's requests: the old ones of its host need as many to be compared with


@dataclass(frozen=True)
class Outliers:
    """The new instances that are worse than all others."""

    names: tuple[str, ...]
    sentence: str
    remark: str = ""  # on hosts that are bad for stable instances, too
    pending: int = 0  # looks that a verdict waits
    lasting: bool = False  # whether it waits until what one instance shows has lasted


@dataclass(frozen=True)
class Instance:
    """What is known of a new instance."""

    own: Counts = field(default_factory=Counts)
    others: Counts = field(default_factory=Counts)
    mates: Counts = field(default_factory=Counts)  # the old instances of its host
    host: str = ""
    bets: Bets = field(default_factory=lambda: Bets(ODDS))  # against all others
    host_bets: Bets = field(default_factory=lambda: Bets(ODDS))  # against the old ones of its host
    shown: Shown = field(default_factory=Shown)
    expected: float = 0.0  # errors, if it were as all others
    bad_host: bool = False  # whether its host is bad for stable instances, too
    fading: Fading = field(default_factory=Fading)
    part: float = 1.0  # of the instances' alpha
    early: Sequence[Counts] = ()  # the first looks at it

    @property
    def has_mates(self) -> bool:
        """Whether there are old instances of its host to compare with."""
        return self.mates.requests > 0 and self.mates.requests >= MATES * self.own.requests

    def after(self, name: str, look: Sequence[Span], tolerance: float) -> Instance:
        """Return what is known after one more look."""
        history = self
        for span in look:
            own = span.new.get(name, Counts())
            in_all = total(span.new) + total(span.stable)
            host = span.hosts.get(name, history.host)
            others, mates = in_all - own, _mates(span, host)
            history = Instance(
                history.own + own,
                history.others + others,
                history.mates + mates,
                host,
                history.bets.after(trial(own, others, tolerance)),
                history.host_bets.after(trial(own, mates, tolerance)),
                history.shown,
                history.expected + others.rate * own.requests,
                fading=history.fading,
                part=history.part,
                early=history.early,
            )
        return history

    def to_last(self, own: Counts, usual: float, patience: int) -> int:
        """Return for how many looks what only this one shows has to last; 0: it need not.

        Where it failed as seldom as is `usual` at first, it is likelier that it is troubled for a
        time, and that takes longer. It need not where it loses most of its requests.
        """
        if not own.errors or own.rate >= LOSS:
            return 0
        early = sum(self.early, Counts())
        late = _likelihood(early, usual) > _likelihood(early, own.rate)
        return math.ceil(LATE * patience) if late else patience

    def limit(self, alpha: float) -> float:
        """Return the evidence that is enough, where `alpha` is for all instances together."""
        return math.log(1 / (self.part * alpha))

    def log_e(self, dispersion: Dispersion) -> float:
        """Return the evidence against it, compared with all others."""
        return self.fading.limited(self.bets.log_e_of_lasting(dispersion.total(self.expected)))

    def against_host(self, dispersion: Dispersion) -> float:
        """Return the evidence against it, compared with the old instances of its host."""
        if not self.has_mates:
            return math.inf
        return self.host_bets.log_e(dispersion.total(self.expected))


@dataclass(frozen=True)
class Instances:
    """What is known of each new instance."""

    each: Mapping[str, Instance] = field(default_factory=dict)

    def after(
        self,
        look: Sequence[Span],
        dispersion: Dispersion,
        alpha: float,
        tolerance: float,
        *,
        storm: bool = False,
        patience: WarmUpLimit = NO_WAIT,
        looks: int = 1,
    ) -> Instances:
        """Return it after one more look. `alpha` is for all instances together.

        `storm`: whether stable has one now. `looks`: so many passed since the last one.
        """
        counted = together(span.new for span in look)
        names = [*self.each, *(name for name in counted if name not in self.each)][:MOST]
        part = part_of(len(self.each), len(names) - len(self.each))
        risks = dispersion.risks(hosts_of(look), BAD)
        stable, ages = total(together(span.stable for span in look)), ages_of(look)
        each = {}
        for name in names:
            instance = self.each.get(name, Instance(part=part))
            instance = instance.after(name, look, tolerance)
            own = counted.get(name, Counts())
            fading = instance.fading.after(
                {name: own}, stable, dispersion.of_stable, patience, looks, ages
            )
            early = (*instance.early, own)[:EARLY] if own.requests else instance.early
            instance = replace(instance, fading=fading, early=early)
            failed = int(own.errors > 0)
            # with too little evidence against it on its host, it waits
            evidence = (
                instance.log_e(dispersion) if instance.against_host(dispersion) >= ON_HOST else 0.0
            )
            limit = instance.limit(alpha)
            fades = evidence >= limit and fading.waits(patience)
            seen = instance.shown.after(
                failed,
                evidence,
                limit,
                storm=storm,
                fades=fades,
                alone=instance.to_last(instance.own, _usual(instance.others), patience.alone),
            )
            bad = instance.host in risks and instance.own.rate >= instance.mates.rate / 2 > 0
            each[name] = replace(instance, shown=seen, bad_host=bad)
        return Instances(each)

    def alone(self, look: Sequence[Span], stable: Counts, patience: int) -> int:
        """Return for how many looks the evidence of the whole side has to grow; 0: it need not.

        It has to where one instance fails, and it is likelier that the others are as `stable` than
        that all are alike: a client, a tenant or a neighbour may trouble it for a time. Where it is
        the only one, nothing tells, and it has to for a part of these looks.
        """
        counted = together(span.new for span in look)
        known = {**dict.fromkeys(counted, Instance()), **self.each}
        if not known or known.keys() == {""}:  # a sum, of who knows how many
            return 0
        new = {name: instance.own + counted.get(name, Counts()) for name, instance in known.items()}
        name, worst = max(new.items(), key=lambda item: item[1].rate)
        of_all = sum(new.values(), Counts())
        rest, usual = of_all - worst, _usual(stable)
        to_last = known[name].to_last(worst, usual, patience)
        if not to_last or not rest.requests:
            return int(patience * SINGLE) if to_last else 0
        by_one = _likelihood(worst, worst.rate) + _likelihood(rest, usual)
        by_all = _likelihood(worst, of_all.rate) + _likelihood(rest, of_all.rate)
        return to_last if by_one > by_all else 0

    def outliers(
        self, dispersion: Dispersion, alpha: float, what: str = "errors", waits: bool = True
    ) -> Outliers:
        """Return the new instances that are worse. `what` is counted, for the sentence.

        `waits`: only those of which the evidence has lasted.
        """
        if len(self.each) < 2:  # a single instance is the whole new side
            return Outliers((), "")
        sentences: dict[str, str] = {}
        remarks: list[str] = []
        for name, instance in sorted(self.each.items()):
            enough = instance.shown.decided if waits else instance.shown.held
            limit = instance.limit(alpha)
            if enough and instance.log_e(dispersion) >= (limit if waits else limit / 2):
                sentence = compared(instance.log_e(dispersion), limit)
                sentences[name] = (
                    f"{name}: {what} {instance.own} against {instance.others} on all others;"
                    f" {sentence}"
                )
            elif instance.bad_host:
                remarks.append(
                    f"host {instance.host} fails for stable instances, too: {what} {instance.own}"
                    f" on {name}, {instance.mates} on its old instances"
                )
        return Outliers(
            tuple(sentences),
            "; ".join(sentences.values()),
            "; ".join(remarks),
            max((instance.shown.pending for instance in self.each.values()), default=0),
            any(instance.shown.lasting for instance in self.each.values()),
        )

    def dump(self) -> dict[str, t.Any]:
        """Return plain data, for the journal."""
        return {
            name: {
                "own": _pair(instance.own),
                "others": _pair(instance.others),
                "mates": _pair(instance.mates),
                "host": instance.host,
                "bets": instance.bets.dump(),
                "host_bets": instance.host_bets.dump(),
                "shown": asdict(instance.shown),
                "expected": round(instance.expected, 4),
                "bad_host": instance.bad_host,
                "fading": instance.fading.dump(),
                "part": instance.part,
                "early": [_pair(counts) for counts in instance.early],
            }
            for name, instance in self.each.items()
        }

    @classmethod
    def load(cls, data: Mapping[str, t.Any]) -> Instances:
        """Return the instances that `dump` made the data of."""
        return cls(
            {
                name: Instance(
                    Counts(*saved["own"]),
                    Counts(*saved["others"]),
                    Counts(*saved["mates"]),
                    saved["host"],
                    Bets.load(ODDS, 0, saved["bets"]),
                    Bets.load(ODDS, 0, saved["host_bets"]),
                    Shown(**saved["shown"]),
                    saved["expected"],
                    saved["bad_host"],
                    Fading.load(saved.get("fading", {})),
                    saved.get("part", part_of(0, len(data))),
                    [Counts(*counts) for counts in saved.get("early", ())],
                )
                for name, saved in data.items()
            }
        )


def _likelihood(counts: Counts, rate: float) -> float:
    """Return the logarithm of how likely so many errors are at a rate, but for a constant."""
    return counts.errors * math.log(rate) - counts.requests * rate


def _usual(others: Counts) -> float:
    """Return how often others fail; more than never, however few these are."""
    return (others.errors + 1) / (others.requests + 1)


def part_of(known: int, more: int) -> float:
    """Return the part of alpha of each of so many instances that are new beside the `known` ones.

    The kth instance has 1 / (k (k + 1)), which sums to 1 at most however many there will be, and
    those that come together share theirs: of a first four, each has a fifth.
    """
    return 1 / ((known + 1) * (known + more + 1))


def _mates(span: Span, host: str) -> Counts:
    """Return what was counted of the old instances of a host."""
    counts = [
        counts for name, counts in span.stable.items() if host and span.hosts.get(name) == host
    ]
    return sum(counts, Counts())


def _pair(counts: Counts) -> tuple[float, float]:
    return counts.requests, counts.errors
