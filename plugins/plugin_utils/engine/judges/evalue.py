# SPDX-License-Identifier: GPL-3.0-or-later
"""E-values of Bernoulli counts: the arithmetic of the sequential judge. Pure.

An e-value is evidence against a null hypothesis. It reaches 1/alpha with a probability of at most
alpha where that hypothesis is true, however often one looks: a test that stops there is
anytime-valid, and checking after every measurement does not inflate false alarms
(https://arxiv.org/abs/2210.01948).

All numbers here are logarithms of e-values, since those overflow. 0 is no evidence.
"""

from __future__ import annotations

import math
import typing as t
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from .counts import Counts

ALPHA = 0.02  # the probability of a false alarm, over the whole analysis
FIRST = 0.9  # of the stake is bet before the first look with errors; the rest at later ones
SIMILAR = 0.5  # of the errors of the greatest event: a second one like it has at least as many
TWICE = 2  # errors of an event that tell how many more requests would have
Odds = Sequence[tuple[float, float]]  # the logarithm of each odds ratio, and the ratio - 1
RARE = 1_000_000  # how rare chance is, is not told beyond this
FAR = 2.0**50  # numbers of requests, errors or samples beyond this are not searched


def log_e(k: float, n: float, theta: float, a: float = 1.0, b: float = 1.0) -> float:
    """Return the logarithm of the e-value of `k` errors on the new side, of `n` in all.

    The null hypothesis is that an error is on the new side with the probability θ₀ = `theta`; the
    alternative is a mixture, θ ~ Beta(α₁ = `a`, α₂ = `b`). Their Bayes factor is

        B(α₁ + k, α₂ + n - k) / (B(α₁, α₂) θ₀^k (1 - θ₀)^(n - k)),

    after https://arxiv.org/abs/2011.03567, for two categories. `k` and `n` need not be whole.
    Returns 0, no evidence, for numbers that are impossible, and where θ₀ leaves nothing to compare.
    """
    if not (0 < theta < 1 and 0 <= k <= n < math.inf):
        return 0.0
    return (
        _log_beta(a + k, b + n - k)
        - _log_beta(a, b)
        - k * math.log(theta)
        - (n - k) * math.log1p(-theta)
    )


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


@dataclass(frozen=True)
class Trial:
    """What one look tells: `new` of `errors` are on the new side, where `theta` is expected.

    Some of them may be mild, such as answers that are slow but not very slow. What makes a revision
    bad raises the odds of the others more: where these have π, mild ones have a power of it. Where
    the new side has no more of the worst ones, and no more of the worst and the next ones together,
    and so on, no such bet wins on average.
    """

    new: float
    errors: float
    theta: float
    requests: float = 0.0  # to the new side
    # of `new` and `errors`: so many are mild, and have the odds to this power
    mild: Sequence[tuple[float, float, float]] = ()

    @property
    def tells(self) -> bool:
        """Whether there is anything to compare."""
        return 0 < self.theta < 1 and 0 < self.errors < FAR

    def log_ratios(self, odds: Odds) -> list[float]:
        """Return the logarithms of the likelihood ratios of odds to even ones."""
        new, errors, theta, log1p = self.new, self.errors, self.theta, math.log1p
        for mild_new, mild, _power in self.mild:
            new, errors = new - mild_new, errors - mild
        ratios = [new * log_odds - errors * log1p(theta * excess) for log_odds, excess in odds]
        for mild_new, mild, power in self.mild:
            if mild:
                powers = [power * log_odds for log_odds, _excess in odds]
                raised = [(log_odds, math.expm1(log_odds)) for log_odds in powers]
                mild_ratios = Trial(mild_new, mild, theta).log_ratios(raised)
                ratios = [
                    log_ratio + more for log_ratio, more in zip(ratios, mild_ratios, strict=True)
                ]
        return ratios

    def dump(self) -> list[t.Any]:
        """Return plain data, for the journal."""
        mild = [list(part) for part in self.mild]
        return [self.new, self.errors, self.theta, self.requests, mild]

    def at_most(self, rate: float) -> Trial:
        """Return it as if this part of the requests to the new side had failed, or fewer."""
        less = max(0.0, 1 - rate * self.requests / self.new) if self.new else 0.0
        return replace(
            self,
            new=self.new - less * self.new,
            errors=self.errors - less * self.new,
            mild=[(new - less * new, mild - less * new, power) for new, mild, power in self.mild],
        )


@dataclass(frozen=True)
class Bets:
    """Bets on odds ratios above 1: evidence over looks whose shares differ. Of constant size.

    With the odds π the new side has the part π θ₀ / (1 - θ₀ + π θ₀) of a look's errors. Most of the
    stake is bet before the first look. With a `lag` the rest is bet at later looks, so that what
    was good for long and becomes bad is found soon. A later bet cannot win by what the `lag` looks
    before contradict: an outage that stable had just before is no evidence.
    """

    odds: Odds
    lag: int = 0  # 0: there are no later bets
    wealth: Sequence[float] = ()  # the logarithm of each bet's wealth
    looks: int = 0  # with errors
    recent: tuple[Sequence[Trial], ...] = ()  # the last `lag` looks
    # The errors of one new instance in one look are an event.
    greatest: Sequence[Trial] = ()  # the look of the greatest event
    most: Counts = field(default_factory=Counts)  # of that event
    second: float = 0.0  # errors of the next one after it, if it had as many requests

    def after(self, *look: Trial, events: Iterable[Counts] = ()) -> Bets:
        """Return the bets after one more look, of one or several shares.

        `events`: the counts of each new instance in it. None: all are of one.
        """
        recent = (*self.recent, look)[-self.lag :] if self.lag else ()
        telling = [trial for trial in look if trial.tells]
        if not telling:
            return replace(self, recent=recent)
        looks = self.looks + 1
        if looks == 1:
            wealth = [math.log(FIRST if self.lag else 1.0)] * len(self.odds)
        elif self.lag:
            wealth = [
                _log_sum(before, stake)
                for before, stake in zip(self.wealth, self._stakes(), strict=True)
            ]
        else:
            wealth = list(self.wealth)
        for trial in telling:
            won = trial.log_ratios(self.odds)
            wealth = [before + more for before, more in zip(wealth, won, strict=True)]
        bets = replace(self, wealth=wealth, looks=looks, recent=recent)
        return bets._ranked(telling, list(events) or [_on_new(telling)])

    def _ranked(self, look: Sequence[Trial], events: Sequence[Counts]) -> Bets:
        """Return the bets with the greatest event, and the next one."""
        known = [self.most, *events]
        most = max(known, key=lambda event: event.errors)
        known.remove(most)
        second = max(self.second, *(_of_as_many(event, most.requests) for event in known))
        greatest = self.greatest if most is self.most else look
        return replace(self, greatest=greatest, most=most, second=min(second, most.errors))

    def _stakes(self) -> list[float]:
        """Return what is bet now, after the looks before the first one."""
        stake = math.log((1 - FIRST) / (self.looks * (self.looks + 1)))
        ratios = [
            trial.log_ratios(self.odds) for look in self.recent for trial in look if trial.tells
        ]
        if not ratios:
            return [stake] * len(self.odds)
        return [stake + min(0.0, sum(of_odds)) for of_odds in zip(*ratios, strict=True)]

    def without_peak(self, rate: float) -> Bets:
        """Return the bets as if of the last looks' requests only this part had failed, or fewer.

        That is never more evidence.
        """
        telling = [trial for look in self.recent for trial in look if trial.tells]
        return self._cut(telling, rate)

    def _cut(self, telling: Sequence[Trial], rate: float) -> Bets:
        """Return the bets as if only this part of the requests in these looks had failed."""
        wealth = self.wealth
        for trial in telling if wealth else ():
            was, would_be = trial.log_ratios(self.odds), trial.at_most(rate).log_ratios(self.odds)
            wealth = [
                before - won + less for before, won, less in zip(wealth, was, would_be, strict=True)
            ]
        return replace(self, wealth=wealth)

    def log_e(self, dispersion: float = 1.0) -> float:
        """Return the evidence. `dispersion`: how many errors count as one."""
        return (
            log_mean([log_wealth / dispersion for log_wealth in self.wealth]) if self.looks else 0.0
        )

    def log_e_of_lasting(self, dispersion: float = 1.0) -> float:
        """Return the evidence without the greatest event, as far as no other one is like it."""
        requests = sum(trial.requests for trial in self.greatest)
        if not requests or self.second >= SIMILAR * self.most.errors:
            return self.log_e(dispersion)
        rest = max(0.0, _on_new(self.greatest).errors - self.most.errors + self.second)
        return self._cut(self.greatest, rest / requests).log_e(dispersion)

    def dump(self) -> dict[str, t.Any]:
        """Return plain data, for the journal."""
        return {
            "wealth": [round(log_wealth, 4) for log_wealth in self.wealth],
            "looks": self.looks,
            "recent": [[trial.dump() for trial in look] for look in self.recent],
            "greatest": [trial.dump() for trial in self.greatest],
            "most": [self.most.requests, self.most.errors],
            "second": self.second,
        }

    @classmethod
    def load(cls, odds: Odds, lag: int, data: Mapping[str, t.Any]) -> Bets:
        """Return the bets that `dump` made the data of; older ones know no greatest event."""
        recent = tuple([Trial(*cut) for cut in look] for look in data["recent"])
        greatest = [Trial(*cut) for cut in data.get("greatest", ())]
        most, second = Counts(*data.get("most", ())), data.get("second", 0.0)
        return cls(odds, lag, data["wealth"], data["looks"], recent, greatest, most, second)


def _on_new(look: Sequence[Trial]) -> Counts:
    """Return the requests and errors of a look on the new side."""
    return sum((Counts(trial.requests, trial.new) for trial in look), Counts())


def _of_as_many(event: Counts, requests: float) -> float:
    """Return the errors of an event if it had so many requests; a single one tells nothing."""
    tells = event.errors >= TWICE and event.requests > 0
    return event.errors * max(1.0, requests / event.requests if tells else 1.0)


def odds_of(ratios: Sequence[float]) -> Odds:
    """Return odds ratios as `Bets` needs them."""
    return [(math.log(ratio), ratio - 1) for ratio in ratios]


def _log_sum(left: float, other: float) -> float:
    """Return the logarithm of the sum of two numbers, which are given by their logarithms."""
    return max(left, other) + math.log1p(math.exp(-abs(left - other)))


def least_evidence(theta: float, alpha: float = ALPHA) -> int | None:
    """How many errors, all of them on the new side, are evidence enough; None: no number is."""
    if not 0 < theta < 1:
        return None
    turn = -1 / math.log(theta)  # from here on each error adds evidence
    return first_true(
        lambda errors: log_e(errors, errors, theta) >= math.log(1 / alpha), math.floor(turn)
    )


def log_mean(logarithms: Sequence[float]) -> float:
    """Return the logarithm of the mean of numbers, which are given by their logarithms."""
    most = max(logarithms)
    return most + math.log(
        sum(math.exp(log_value - most) for log_value in logarithms) / len(logarithms)
    )


def e_value(logarithm: float) -> float:
    """Return the e-value itself, as far as a float holds it."""
    return math.exp(min(logarithm, 700.0))


def shown(logarithm: float) -> str:
    """Return the e-value as text; rounded down, so that it never seems to reach a threshold."""
    value = e_value(logarithm)
    return f"{value:.2g}" if value < 10 or value >= 1e6 else f"{math.floor(value):,}"


def compared(logarithm: float, limit: float) -> str:
    """Return the e-value and its limit as text; of what is enough, how rare that is by chance."""
    text = f"e-value {shown(logarithm)}"
    if logarithm < limit:
        return f"{text} < {math.ceil(e_value(limit)):,}"
    known = e_value(logarithm)
    rare = f"1 in {math.floor(known):,}" if known < RARE else f"less than 1 in {RARE:,}"
    return f"{text} >= {math.ceil(e_value(limit)):,}: {rare} by chance"


def first_true(predicate: Callable[[int], bool], low: int = 0) -> int | None:
    """Return the least whole number over `low` for which a predicate is true, or None.

    The predicate changes once.
    """
    step = 1
    while not predicate(low + step):
        low, step = low + step, 2 * step
        if step > FAR:
            return None
    return 1 + last_true(lambda number: not predicate(number), low, low + step)


def last_true(predicate: Callable[[int], bool], low: int, high: int) -> int:
    """Return the last number for which a predicate is true.

    It is true for `low`, false for `high`, and changes once.
    """
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if predicate(middle) else (low, middle)
    return low
