# SPDX-License-Identifier: GPL-3.0-or-later
"""Traffic to new and stable instances, as it is in production: whole analyses with drawn errors and
latencies. Pure, and the same for the same source of random numbers.

In each model of `GOOD` and `GOOD_LATENCY` the new revision is as good as the stable one, so that
whatever a judge finds there is a false alarm.
"""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

Array = np.ndarray[t.Any, t.Any]
Random = np.random.Generator

# Measurements of an analysis, and two that a verdict may wait for; requests in each, to both sides
LOOKS, REQUESTS = 32, 1000
INTERVAL = 10.0  # seconds between two measurements


@dataclass(frozen=True)
class Fleet:
    """Instances on hosts: the first `new` of them are new."""

    new: int = 2
    stable: int = 18
    hosts: int = 10
    share: float = 0.1  # of the requests, to the new side

    @property
    def size(self) -> int:
        return self.new + self.stable

    @property
    def host(self) -> Array:
        """The number of each instance's host: new and stable instances share all hosts."""
        return np.arange(self.size) % self.hosts

    @property
    def is_new(self) -> Array:
        return np.arange(self.size) < self.new

    def parts(self, share: float | None = None) -> Array:
        """The part of the requests that each instance gets."""
        share = self.share if share is None else share
        return np.where(self.is_new, share / self.new, (1 - share) / self.stable)


@dataclass(frozen=True)
class Traffic:
    """What load balancers count: requests and errors of each instance, look by look.

    `shares` has the share of the new side in each look.
    """

    fleet: Fleet
    requests: Array  # [look, instance]
    errors: Array
    shares: Sequence[float]


@dataclass(frozen=True)
class Latency:
    """The mean seconds of the answers of each instance, look by look."""

    fleet: Fleet
    seconds: Array  # [look, instance]


@dataclass(frozen=True)
class Requests:
    """The seconds of each single request, look by look and instance by instance."""

    fleet: Fleet
    seconds: Sequence[Sequence[Array]]  # [look][instance]


@dataclass(frozen=True)
class Service:
    """A service whose requests fail independently of each other, unless told otherwise."""

    rate: float = 0.01  # of errors
    fleet: Fleet = field(default_factory=Fleet)
    looks: int = LOOKS
    requests: float = REQUESTS  # in a look, on average
    worse: float = 1.0  # how many times as often new instances fail
    shares: Sequence[float] = ()  # of the new side, one after the other; none: as the fleet's

    @property
    def share_of_look(self) -> list[float]:
        steps = self.shares or (self.fleet.share,)
        return [steps[look * len(steps) // self.looks] for look in range(self.looks)]

    def drawn_requests(self, random: Random) -> Array:
        parts = np.array([self.fleet.parts(share) for share in self.share_of_look])
        return random.poisson(self.requests * parts)

    def rates(self) -> Array:
        """The error rate of each instance in each look."""
        rate = np.full((self.looks, self.fleet.size), self.rate)
        rate[:, self.fleet.is_new] *= self.worse
        return rate

    def traffic(self, requests: Array, errors: Array) -> Traffic:
        return Traffic(self.fleet, requests, np.minimum(errors, requests), self.share_of_look)


Model = Callable[[Random], Traffic]
LatencyModel = Callable[[Random], Latency]
RequestsModel = Callable[[Random], Requests]


# -- errors ----------------------------------------------------------------------------------------


def independent(service: Service) -> Model:
    """Each request fails on its own."""

    def draw(random: Random) -> Traffic:
        requests = service.drawn_requests(random)
        return service.traffic(requests, random.binomial(requests, np.minimum(1, service.rates())))

    return draw


def bursts(service: Service, size: float) -> Model:
    """Errors come in bursts on one instance, of `size` on average (geometric)."""

    def draw(random: Random) -> Traffic:
        requests = service.drawn_requests(random)
        number = random.poisson(requests * service.rates() / size)
        # The sum of n geometric numbers is n more than a negative binomial one.
        more = random.negative_binomial(np.maximum(number, 1), 1 / size)
        return service.traffic(requests, np.where(number > 0, number + more, 0))

    return draw


def beta_binomial(service: Service, rho: float) -> Model:
    """The rate of an instance is another in each look, so that its errors are correlated."""

    def draw(random: Random) -> Traffic:
        requests, rates = service.drawn_requests(random), service.rates()
        often = (1 - rho) / rho
        return service.traffic(
            requests, random.binomial(requests, random.beta(rates * often, (1 - rates) * often))
        )

    return draw


def retries(service: Service, times: int) -> Model:
    """A client whose request fails tries it again, so many times, at the same instance."""

    def draw(random: Random) -> Traffic:
        requests = service.drawn_requests(random)
        failed = random.binomial(requests, service.rates() / (times + 1))
        return service.traffic(requests + times * failed, (times + 1) * failed)

    return draw


def different(service: Service, cv: float, by_host: bool = False) -> Model:
    """Instances, or hosts, differ: the coefficient of variation of their rates is `cv`."""

    def draw(random: Random) -> Traffic:
        of = random.gamma(1 / cv**2, cv**2, service.fleet.size)
        if by_host:
            of = of[service.fleet.host]
        requests = service.drawn_requests(random)
        return service.traffic(
            requests, random.binomial(requests, np.minimum(1, service.rates() * of))
        )

    return draw


def bad_host(service: Service, times: float) -> Model:
    """One host fails so many times as often, and one new instance is there."""

    def draw(random: Random) -> Traffic:
        of = np.where(service.fleet.host == 0, times, 1.0)
        requests = service.drawn_requests(random)
        return service.traffic(requests, random.binomial(requests, service.rates() * of))

    return draw


def storm(service: Service, lag: int, part: float = 0.3) -> Model:
    """In one look, `part` of all requests fail; on the new side that is `lag` looks later."""

    def draw(random: Random) -> Traffic:
        rates, at = service.rates(), int(random.integers(4, service.looks - 4))
        rates[at, ~service.fleet.is_new] = part
        rates[at + lag, service.fleet.is_new] = part
        requests = service.drawn_requests(random)
        return service.traffic(requests, random.binomial(requests, rates))

    return draw


def changing(service: Service, rate: Callable[[float], float]) -> Model:
    """The rate of both sides changes with the part of the analysis that is over (0 to 1)."""

    def draw(random: Random) -> Traffic:
        times = np.array([rate(look / service.looks) for look in range(service.looks)])
        requests = service.drawn_requests(random)
        return service.traffic(
            requests, random.binomial(requests, np.minimum(1, service.rates() * times[:, None]))
        )

    return draw


def _daily(part: float) -> float:
    return 1 + 0.8 * float(np.sin(4 * np.pi * part))


def _drift(part: float) -> float:
    return 1 + 49 * part


SERVICE = Service()
HALF = Service(fleet=Fleet(3, 3, 3, 0.5))
STEPS = (0.05, 0.2, 0.5)
GOOD: dict[str, Model] = {
    "independent": independent(SERVICE),
    "independent, half of the requests": independent(HALF),
    "independent, one new instance": independent(Service(fleet=Fleet(1, 5, 3, 1 / 6))),
    "bursts of 2": bursts(SERVICE, 2),
    "bursts of 3": bursts(SERVICE, 3),
    "bursts of 10": bursts(SERVICE, 10),
    "bursts of 30": bursts(SERVICE, 30),
    "bursts of 3, rare": bursts(replace(SERVICE, rate=0.001), 3),
    "bursts of 10, half of the requests": bursts(HALF, 10),
    "beta-binomial, rho 0.02": beta_binomial(SERVICE, 0.02),
    "beta-binomial, rho 0.1": beta_binomial(SERVICE, 0.1),
    "three retries": retries(replace(SERVICE, rate=0.003), 3),
    "instances differ by half": different(SERVICE, 0.5),
    "instances differ by half, one new": different(Service(fleet=Fleet(1, 5, 3, 1 / 6)), 0.5),
    "hosts differ by half": different(SERVICE, 0.5, by_host=True),
    "one bad host of ten": bad_host(SERVICE, 3),
    "storm": storm(SERVICE, 0),
    "storm, new side one look earlier": storm(SERVICE, -1),
    "storm, new side two looks earlier": storm(SERVICE, -2),
    "storm, new side one look later": storm(SERVICE, 1),
    "storm, new side two looks later": storm(SERVICE, 2),
    "day and night": changing(SERVICE, _daily),
    "drift": changing(replace(SERVICE, rate=0.001), _drift),
    "share in steps": independent(replace(SERVICE, shares=STEPS)),
    "share in steps, drift": changing(replace(SERVICE, rate=0.001, shares=STEPS), _drift),
    "one request a look": independent(Service(0.05, Fleet(1, 1, 1, 0.5), 300, 1.0)),
}


def bad(before: float, after: float, requests: float, fleet: Fleet) -> Model:
    """A revision with another rate of errors than the stable one."""
    service = Service(1.0, fleet, LOOKS, requests)

    def draw(random: Random) -> Traffic:
        drawn = service.drawn_requests(random)
        rates = np.where(fleet.is_new, after, before)
        return service.traffic(drawn, random.binomial(drawn, rates))

    return draw


TENTH, THIRDS, ONE = Fleet(), Fleet(3, 3, 3, 0.5), Fleet(1, 5, 3, 1 / 6)
# Bad revisions, whose errors are independent.
BAD: dict[str, Model] = {
    "0 -> 5 %, 200 requests a look": bad(0, 0.05, 200, TENTH),
    "0 -> 1 %": bad(0, 0.01, 1000, TENTH),
    "0.1 -> 1 %": bad(0.001, 0.01, 1000, TENTH),
    "0.5 -> 2 %": bad(0.005, 0.02, 1000, TENTH),
    "1 -> 2 %": bad(0.01, 0.02, 1000, TENTH),
    "1 -> 3 %": bad(0.01, 0.03, 1000, TENTH),
    "1 -> 5 %": bad(0.01, 0.05, 1000, TENTH),
    "1 -> 2 %, half of the requests": bad(0.01, 0.02, 1000, THIRDS),
    "0.1 -> 1 %, half of the requests": bad(0.001, 0.01, 1000, THIRDS),
    "0.5 -> 2 %, one new instance": bad(0.005, 0.02, 1000, ONE),
    "1 -> 3 %, one new instance": bad(0.01, 0.03, 1000, ONE),
}


def one_bad(rate: float, of: float, requests: float, fleet: Fleet) -> Model:
    """Only the first new instance fails more often."""
    service = Service(1.0, fleet, LOOKS, requests)

    def draw(random: Random) -> Traffic:
        drawn = service.drawn_requests(random)
        rates = np.full(fleet.size, rate)
        rates[0] = of
        return service.traffic(drawn, random.binomial(drawn, rates))

    return draw


BAD["one instance of three 0.1 -> 3 %"] = one_bad(0.001, 0.03, 1000, THIRDS)
BAD["one instance of two 1 -> 10 %"] = one_bad(0.01, 0.1, 1000, TENTH)


# -- latency ---------------------------------------------------------------------------------------

ANSWERS = 50  # of an instance in a look, whose mean is a sample
Times = Callable[[Random, tuple[int, ...]], Array]


def log_normal(sigma: float) -> Times:
    return lambda random, shape: random.lognormal(-4.0, sigma, shape)


def pareto(shape_of: float) -> Times:
    return lambda random, shape: 0.01 * (1 + random.pareto(shape_of, shape))


def bimodal(random: Random, shape: tuple[int, ...]) -> Array:
    """One answer in twenty takes twenty times as long."""
    slow = random.random(shape) < 0.05
    return np.where(slow, 0.2, 0.01) * random.lognormal(0, 0.2, shape)


def latency(
    times: Times,
    fleet: Fleet,
    spread: float = 0.0,
    slower: Callable[[Array, float], Array] = lambda new, _seconds: np.ones(len(new)),
) -> LatencyModel:
    """Answers of these times, on hosts that differ by `spread` (of the logarithm).

    `slower` says how many times as long each instance takes, so many seconds after the start.
    """

    def draw(random: Random) -> Latency:
        hosts = np.exp(random.normal(0, spread, fleet.hosts))[fleet.host]
        seconds = times(random, (LOOKS, fleet.size, ANSWERS)).mean(axis=2) * hosts
        factors = [slower(fleet.is_new, (look + 1) * INTERVAL) for look in range(LOOKS)]
        return Latency(fleet, seconds * np.array(factors))

    return draw


def _cold(new: Array, seconds: float) -> Array:
    return np.where(new, 1 + 3 * np.exp(-seconds / 30), 1.0)


def _all(times: float) -> Callable[[Array, float], Array]:
    return lambda new, _seconds: np.where(new, times, 1.0)


def _first(times: float) -> Callable[[Array, float], Array]:
    return lambda new, _seconds: np.where(np.arange(len(new)) == 0, times, 1.0)


GOOD_LATENCY: dict[str, LatencyModel] = {
    "log-normal latency": latency(log_normal(1.0), TENTH),
    "log-normal latency, heavy": latency(log_normal(2.0), TENTH),
    "Pareto latency (1.5)": latency(pareto(1.5), TENTH),
    "bimodal latency": latency(bimodal, TENTH),
    "latency of hosts differs by 30 %": latency(log_normal(0.5), TENTH, 0.3),
    "latency of hosts differs by 30 %, one new": latency(log_normal(0.5), Fleet(1, 5, 6), 0.3),
    "cold start, four times as slow": latency(log_normal(0.5), TENTH, slower=_cold),
}
BAD_LATENCY: dict[str, LatencyModel] = {
    "three times as slow": latency(log_normal(1.0), TENTH, slower=_all(3.0)),
    "half as slow again": latency(log_normal(0.5), TENTH, slower=_all(1.5)),
    "one of three ten times as slow": latency(log_normal(0.5), THIRDS, slower=_first(10.0)),
}


# -- single requests -------------------------------------------------------------------------------

EACH = 100  # requests to an instance in a look, on average


def requests(
    times: Times,
    fleet: Fleet,
    instances: Callable[[Random, Fleet], Array] = lambda _random, fleet: np.ones(fleet.size),
    looks: Callable[[Random, Fleet], Array] = lambda _random, fleet: np.ones((LOOKS, fleet.size)),
    among: Callable[[Random, Array, Array], Array] = lambda _random, seconds, _new: seconds,
    *,
    each: float = EACH,
    shares: Sequence[float] = (),
) -> RequestsModel:
    """Requests of these times, so many to `each` instance in a look.

    `instances` and `looks` say how many times as long they take at each instance, and in each look.
    `among` changes those of one instance and look; it is told whether the instance is new.
    """

    def draw(random: Random) -> Requests:
        factors = instances(random, fleet) * looks(random, fleet)
        service = Service(fleet=fleet, requests=each * fleet.size, shares=shares)
        numbers = service.drawn_requests(random)
        return Requests(
            fleet,
            [
                [
                    among(random, times(random, (number,)) * factor, is_new)
                    for number, factor, is_new in zip(row, of_look, fleet.is_new, strict=True)
                ]
                for row, of_look in zip(numbers, factors, strict=True)
            ],
        )

    return draw


def _hosts_differ(random: Random, fleet: Fleet) -> Array:
    return np.exp(random.normal(0, 0.3, fleet.hosts))[fleet.host]


def _instances_differ(random: Random, fleet: Fleet) -> Array:
    return np.exp(random.normal(0, 0.2, fleet.size))


def _day(_random: Random, fleet: Fleet) -> Array:
    times = [_daily(look / LOOKS) for look in range(LOOKS)]
    return np.repeat(np.array(times)[:, None], fleet.size, axis=1)


def _slower_and_slower(_random: Random, fleet: Fleet) -> Array:
    """At the end all requests take three times as long as at the start."""
    return np.repeat(np.linspace(1.0, 3.0, LOOKS)[:, None], fleet.size, axis=1)


def _slow_for_a_look(lag: int) -> Callable[[Random, Fleet], Array]:
    """In one look, all requests take five times as long; on the new side `lag` looks later."""

    def factors(random: Random, fleet: Fleet) -> Array:
        found, at = np.ones((LOOKS, fleet.size)), int(random.integers(10, LOOKS - 4))
        found[at, ~fleet.is_new] = 5
        found[at + lag, fleet.is_new] = 5
        return found

    return factors


def _cold_start(_random: Random, fleet: Fleet) -> Array:
    return np.array([_cold(fleet.is_new, (look + 1) * INTERVAL) for look in range(LOOKS)])


def _pauses(part: float, seconds: float) -> Callable[[Random, Array, Array], Array]:
    """In three looks of ten a pause of an instance delays this part of its requests."""

    def among(random: Random, times: Array, _new: Array) -> Array:
        if random.random() < 0.3:
            times[: int(part * len(times))] += seconds * random.random()
        return times

    return among


def _slow_together(part: float, rho: float, times: float) -> t.Any:
    """A part of the requests is slow; how many at once, is beta-binomial."""

    def change(random: Random, seconds: Array, _new: Array) -> Array:
        drawn = random.beta(part * (1 - rho) / rho, (1 - part) * (1 - rho) / rho)
        return np.where(random.random(seconds.shape) < drawn, times * seconds, seconds)

    return change


def _tail(part: float, times: float = 1.0, seconds: float = 0.0) -> t.Any:
    """This part of the requests to new instances is slower."""

    def among(random: Random, found: Array, new: Array) -> Array:
        slow = (random.random(len(found)) < part) & new
        return np.where(slow, found * times + seconds, found)

    return among


def _times(of_all: float, of_first: float) -> Callable[[Random, Fleet], Array]:
    def factors(_random: Random, fleet: Fleet) -> Array:
        found = np.where(fleet.is_new, of_all, 1.0)
        found[0] *= of_first
        return found

    return factors


HALF_LOG = log_normal(0.5)
GOOD_REQUESTS: dict[str, RequestsModel] = {
    "requests: log-normal": requests(log_normal(1.0), TENTH),
    "requests: log-normal, heavy": requests(log_normal(2.0), TENTH),
    "requests: Pareto (1.5)": requests(pareto(1.5), TENTH),
    "requests: bimodal": requests(bimodal, TENTH),
    "requests: one new instance": requests(HALF_LOG, ONE),
    "requests: hosts differ by 30 %": requests(HALF_LOG, TENTH, _hosts_differ),
    "requests: instances differ by 20 %": requests(HALF_LOG, TENTH, _instances_differ),
    "requests: pauses of instances": requests(HALF_LOG, TENTH, among=_pauses(0.2, 0.5)),
    "requests: pauses, half of the requests": requests(HALF_LOG, THIRDS, among=_pauses(0.2, 0.5)),
    "requests: all slow in a look": requests(HALF_LOG, TENTH, looks=_slow_for_a_look(0)),
    "requests: the same, new side two looks earlier": requests(
        HALF_LOG, TENTH, looks=_slow_for_a_look(-2)
    ),
    "requests: the same, new side two looks later": requests(
        HALF_LOG, TENTH, looks=_slow_for_a_look(2)
    ),
    "requests: day and night": requests(HALF_LOG, TENTH, looks=_day),
    "requests: drift, half of the requests": requests(HALF_LOG, THIRDS, looks=_slower_and_slower),
    "requests: half of the requests": requests(HALF_LOG, THIRDS),
    "requests: Pareto (1.5), half of the requests": requests(pareto(1.5), THIRDS),
    "requests: bimodal, one new instance": requests(bimodal, ONE),
    "requests: cold start, four times as slow": requests(HALF_LOG, TENTH, looks=_cold_start),
    "requests: share in steps": requests(HALF_LOG, TENTH, shares=STEPS),
    "requests: beta-binomial, rho 0.1": requests(
        HALF_LOG, TENTH, among=_slow_together(0.05, 0.1, 4.0)
    ),
    "requests: beta-binomial, rho 0.1, half of the requests": requests(
        HALF_LOG, THIRDS, among=_slow_together(0.05, 0.1, 4.0)
    ),
    "requests: one a minute": requests(HALF_LOG, THIRDS, each=INTERVAL / 60),
}
BAD_REQUESTS: dict[str, RequestsModel] = {
    "requests: 5 % four times as slow": requests(HALF_LOG, TENTH, among=_tail(0.05, 4.0)),
    "requests: 1 % take 2 s more": requests(HALF_LOG, TENTH, among=_tail(0.01, 1.0, 2.0)),
    "requests: 5 % four times as slow, half of the requests": requests(
        HALF_LOG, THIRDS, among=_tail(0.05, 4.0)
    ),
    "requests: 1 % take 2 s more, half of the requests": requests(
        HALF_LOG, THIRDS, among=_tail(0.01, 1.0, 2.0)
    ),
    "requests: 5 % four times as slow, one new instance": requests(
        HALF_LOG, ONE, among=_tail(0.05, 4.0)
    ),
    "requests: 1 % take 2 s more, one new instance": requests(
        HALF_LOG, ONE, among=_tail(0.01, 1.0, 2.0)
    ),
    "requests: half as slow again": requests(HALF_LOG, TENTH, _times(1.5, 1.0)),
    "requests: one of three ten times as slow": requests(HALF_LOG, THIRDS, _times(1.0, 10.0)),
}
