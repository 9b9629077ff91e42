# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
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
from collections.abc import Callable, Sequence

ALPHA = 0.02  # the probability of a false alarm, over the whole analysis
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
    return most + math.log(sum(math.exp(one - most) for one in logarithms) / len(logarithms))


def e_value(logarithm: float) -> float:
    """Return the e-value itself, as far as a float holds it."""
    return math.exp(min(logarithm, 700.0))


def shown(logarithm: float) -> str:
    """Return the e-value as text; rounded down, so that it never seems to reach a threshold."""
    value = e_value(logarithm)
    return f"{value:.2g}" if value < 10 or value >= 1e6 else f"{math.floor(value):,}"


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
