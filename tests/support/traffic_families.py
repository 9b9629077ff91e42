# SPDX-License-Identifier: GPL-3.0-or-later
"""Families of traffic whose trouble lasts, returns or fades, and models drawn from them at random.

A family is a model with parameters. `TROUBLES` has some that are known to be hard, with fixed
parameters; `FAMILIES` draws the parameters from a source of random numbers, so that no judge can be
tuned to them. In all of them the new revision is as good as the stable one. Pure.
"""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from .traffic_models import (
    INTERVAL,
    LOOKS,
    Array,
    Fleet,
    Latency,
    Model,
    Random,
    Requests,
    Service,
    Traffic,
    bimodal,
    different,
    independent,
    latency,
    log_normal,
    pareto,
    requests,
)

Drawn = Traffic | Latency | Requests
Family = Callable[[Random], tuple[str, Callable[[Random], Drawn]]]


def fleet(new: int, size: int, hosts: int | None = None) -> Fleet:
    """A fleet of so many instances, with even shares; by default each has its own host."""
    return Fleet(new, size - new, hosts or size, new / size)


def service(new: int, size: int, rate: float = 0.01, requests: float = 1000.0) -> Service:
    """A service of so many instances, `new` of them new."""
    return Service(rate, fleet(new, size), requests=requests)


def _failing(of: Service, random: Random, rates: Array, more: Array | float = 0.0) -> Traffic:
    """Requests that fail independently at these rates, and `more` errors."""
    drawn = of.drawn_requests(random)
    return of.traffic(drawn, random.binomial(drawn, np.clip(rates, 0, 1)) + more)


# -- errors that last ------------------------------------------------------------------------------


def lasting(of: Service, size: float, looks: int) -> Model:
    """Events of `size` errors on one instance, which are spread over so many looks."""

    def draw(random: Random) -> Traffic:
        drawn = of.drawn_requests(random)
        often = np.vstack([drawn[: looks - 1], drawn]) * of.rate / size
        begun = random.poisson(often)
        active = np.array([begun[at : at + looks].sum(axis=0) for at in range(of.looks)])
        return of.traffic(drawn, random.poisson(active * size / looks))

    return draw


def neighbours(of: Service, sd: float, phi: float, by_host: bool = False) -> Model:
    """The logarithm of an instance's (or host's) rate follows AR(1): `phi` from look to look."""

    def draw(random: Random) -> Traffic:
        logs = np.zeros((of.looks, of.fleet.size))
        logs[0] = random.normal(0, sd, of.fleet.size)
        for at in range(1, of.looks):
            step = random.normal(0, sd * np.sqrt(1 - phi**2), of.fleet.size)
            logs[at] = phi * logs[at - 1] + step
        if by_host:
            logs = logs[:, of.fleet.host]
        return _failing(of, random, of.rates() * np.exp(logs - sd**2 / 2))

    return draw


def clients(of: Service, errors: float, looks: float, often: float) -> Model:
    """A broken client fails so often a look on one instance, for so many looks on average."""

    def draw(random: Random) -> Traffic:
        off, on = often / of.fleet.size, 1 / looks
        active = random.random(of.fleet.size) < off / (off + on)
        broken = np.zeros((of.looks, of.fleet.size))
        for at in range(of.looks):
            broken[at] = active
            dice = random.random(of.fleet.size)
            active = np.where(active, dice >= on, dice < off)
        return _failing(of, random, of.rates(), random.poisson(broken * errors))

    return draw


def crashes(of: Service, part: float, size: float) -> Model:
    """Any instance crashes now and then, and `size` requests fail."""

    def draw(random: Random) -> Traffic:
        crashed = random.random((of.looks, of.fleet.size)) < part
        return _failing(of, random, of.rates(), random.poisson(crashed * size))

    return draw


def tenants(of: Service, number: int, part: float, looks: int) -> Model:
    """A tenant fails with `part` of the requests of the instances it is bound to, for a time."""

    def draw(random: Random) -> Traffic:
        rates, at = of.rates(), int(random.integers(0, max(1, of.looks - looks)))
        bound = random.choice(of.fleet.size, number, replace=False)
        rates[at : at + looks, bound] += part
        return _failing(of, random, rates)

    return draw


# -- storms, warm-ups, hosts -----------------------------------------------------------------------


def _storms(looks: int, every: float, lasts: float, first: float) -> Array:
    """The part of each look that is in a storm."""
    edges = INTERVAL * np.arange(looks + 1)
    over = np.zeros(looks)
    for begin in np.arange(first, edges[-1], every):
        over += np.clip(
            np.minimum(edges[1:], begin + lasts) - np.maximum(edges[:-1], begin), 0, None
        )
    return over / INTERVAL


def storms(of: Service, part: float, every: float, lasts: float, lag: int) -> Model:
    """`part` of all requests fail for some seconds, again and again; `lag` looks later on the new
    side.
    """

    def draw(random: Random) -> Traffic:
        first = every * random.random() + 3 * INTERVAL
        rates = of.rates()
        for is_new, shift in ((True, lag * INTERVAL), (False, 0.0)):
            in_storm = _storms(of.looks, every, lasts, first + shift)
            rates[:, of.fleet.is_new == is_new] += part * in_storm[:, None]
        return _failing(of, random, rates)

    return draw


def cold(of: Service, more: float, tau: float, stays: float = 0.0) -> Model:
    """New instances fail more often at first, which fades with the time constant `tau` (s).

    What `stays` does not: then the revision is bad.
    """

    def draw(random: Random) -> Traffic:
        seconds = INTERVAL * (np.arange(of.looks) + 0.5)
        rates = of.rates()
        rates[:, of.fleet.is_new] += stays + more * np.exp(-seconds / tau)[:, None]
        return _failing(of, random, rates)

    return draw


def cold_rolling(of: Service, more: float, tau: float, every: int) -> Model:
    """The same, of new instances that start so many looks after each other."""

    def draw(random: Random) -> Traffic:
        drawn, rates = of.drawn_requests(random), of.rates()
        for number in np.flatnonzero(of.fleet.is_new):
            begin = every * int(number)
            seconds = INTERVAL * (np.arange(of.looks - begin) + 0.5)
            drawn[:begin, number] = 0
            rates[begin:, number] += more * np.exp(-seconds / tau)
        return of.traffic(drawn, random.binomial(drawn, np.clip(rates, 0, 1)))

    return draw


def starts(of: Service, most: int) -> Model:
    """Each new instance fails one to `most` requests when it is started."""

    def draw(random: Random) -> Traffic:
        more = np.zeros((of.looks, of.fleet.size), int)
        more[0, of.fleet.is_new] = random.integers(1, most + 1, of.fleet.new)
        return _failing(of, random, of.rates(), more)

    return draw


def batch(of: Service, times: float, every: int) -> Model:
    """A job on the first host, each so many looks, raises its rate for one look."""

    def draw(random: Random) -> Traffic:
        rates, first = of.rates(), int(random.integers(0, every))
        rates[first::every, of.fleet.host == 0] *= times
        return _failing(of, random, rates)

    return draw


def restarts(of: Service, part: float, errors: float) -> Model:
    """Instances of both sides are restarted: some errors, and two looks without requests."""

    def draw(random: Random) -> Traffic:
        drawn = of.drawn_requests(random)
        more = np.zeros_like(drawn)
        for at, instance in np.argwhere(random.random(drawn.shape) < part):
            more[at, instance] = random.poisson(errors)
            drawn[at + 1 : at + 3, instance] = 0
        return of.traffic(drawn, random.binomial(drawn, of.rates()) + more)

    return draw


def missing(model: Model, part: float) -> Model:
    """Some measurements are missing; what they would have counted is in the next."""

    def draw(random: Random) -> Traffic:
        drawn = model(random)
        kept = np.flatnonzero(random.random(len(drawn.requests)) >= part)
        kept = kept if len(kept) else np.array([0])
        starts_at = np.concatenate([[0], kept[:-1] + 1])
        counted = [np.add.reduceat(one, starts_at) for one in (drawn.requests, drawn.errors)]
        return replace(drawn, requests=counted[0], errors=counted[1])

    return draw


# -- times -----------------------------------------------------------------------------------------


def warming(times: float, tau: float, stays: float = 1.0) -> t.Any:
    """New instances take so many times as long at first, fading with `tau`, and `stays` after."""

    def factors(_random: Random, of: Fleet) -> Array:
        seconds = INTERVAL * (np.arange(LOOKS) + 1)
        fading = stays + (times - 1) * np.exp(-seconds / tau)
        return np.where(of.is_new, fading[:, None], 1.0)

    return factors


def mean_warming(times: float, tau: float) -> t.Any:
    """The same, of one moment: for models of means."""
    return lambda new, seconds: np.where(new, 1 + (times - 1) * np.exp(-seconds / tau), 1.0)


def slow_storms(times: float, every: float, lasts: float, lag: int) -> t.Any:
    """All requests take so many times as long, again and again; new ones `lag` looks later."""

    def factors(random: Random, of: Fleet) -> Array:
        first = every * random.random() + 7 * INTERVAL
        new, stable = (
            1 + (times - 1) * _storms(LOOKS, every, lasts, first + shift)
            for shift in (lag * INTERVAL, 0.0)
        )
        return np.where(of.is_new, new[:, None], stable[:, None])

    return factors


def pauses(part: float, seconds: float) -> t.Any:
    """In `part` of an instance's looks it stops for so long, and what comes meanwhile waits."""

    def among(random: Random, found: Array, _new: Array) -> Array:
        if random.random() < part:
            waiting = int(len(found) * min(1.0, seconds / INTERVAL))
            found[:waiting] += random.uniform(0, seconds, waiting)
        return found

    return among


def timeouts(part: float) -> t.Any:
    """This part of all requests ends after 30 s."""

    def among(random: Random, found: Array, _new: Array) -> Array:
        return np.where(random.random(len(found)) < part, 30.0, found)

    return among


# -- what is known to be hard ----------------------------------------------------------------------

HALF_LOG = log_normal(0.5)
TROUBLES: dict[str, Callable[[Random], Drawn]] = {
    "bursts of 12 over 4 looks, 1 of 3": lasting(service(1, 3), 12, 4),
    "bursts of 12 over 4 looks, 2 of 8": lasting(service(2, 8), 12, 4),
    "bursts of 6 over 6 looks, 2 of 8": lasting(service(2, 8), 6, 6),
    "bursts of 30 over 10 looks, 3 of 6": lasting(service(3, 6), 30, 10),
    "a broken client, 10 looks, 1 of 5": clients(service(1, 5, 0.002), 5, 10, 0.1),
    "noisy neighbours, phi 0.9, 1 of 4": neighbours(service(1, 4), 1.0, 0.9),
    "noisy hosts, phi 0.9, 2 of 8": neighbours(
        Service(0.01, fleet(2, 8, 4)), 1.0, 0.9, by_host=True
    ),
    "crashes of 30, 2 of 6": crashes(service(2, 6, 0.002), 0.003, 30),
    "instances differ by half, 2 of 6": different(service(2, 6), 0.5),
    "instances differ by half, 1 of 3": different(service(1, 3), 0.5),
    "instances differ by half, 1 of 2": different(service(1, 2), 0.5),
    "instances differ by all, 1 of 4": different(service(1, 4), 1.0),
    "a tenant on 2 instances, 2 of 10": tenants(service(2, 10), 2, 0.05, 8),
    "storms of 30 %, one look earlier": storms(Service(), 0.3, 120, 20, -1),
    "storms of 60 %, one look earlier": storms(Service(), 0.6, 120, 20, -1),
    "storms of 30 %, one look later": storms(Service(), 0.3, 120, 20, 1),
    "storms of 60 %, two looks earlier": storms(Service(), 0.6, 120, 20, -2),
    "batch job on the new one's host, 1 of 4": batch(service(1, 4), 20, 6),
    "1 to 3 errors at each start, 2 of 10": starts(service(2, 10, 0.002), 3),
    "cold, 2 % more, tau 10 s": cold(Service(0.002), 0.02, 10),
    "cold, 5 % more, tau 30 s": cold(Service(0.002), 0.05, 30),
    "cold, 5 % more, tau 60 s": cold(Service(0.002), 0.05, 60),
    "restarts, 2 of 6": restarts(service(2, 6, 0.002), 0.01, 10),
    "20 requests a minute, 1 of 4": independent(service(1, 4, 0.01, 20 / 6)),
    "60 requests a minute in bursts, 1 of 4": lasting(service(1, 4, 0.01, 10), 4, 1),
    "a third of measurements missing": missing(independent(Service()), 1 / 3),
    "means: JIT 4 times, tau 60 s": latency(HALF_LOG, Fleet(), slower=mean_warming(4, 60)),
    "means: JIT 2 times, tau 120 s": latency(HALF_LOG, Fleet(), slower=mean_warming(2, 120)),
    "requests: JIT 4 times, tau 60 s": requests(HALF_LOG, Fleet(), looks=warming(4, 60)),
    "requests: JIT 4 times, tau 120 s": requests(HALF_LOG, Fleet(), looks=warming(4, 120)),
    "requests: JIT 2 times, tau 120 s": requests(HALF_LOG, Fleet(), looks=warming(2, 120)),
    "requests: storms, 5 times, one look earlier": requests(
        HALF_LOG, Fleet(), looks=slow_storms(5, 120, 20, -1)
    ),
    "requests: pauses of 2 s in 5 min, 1 of 4": requests(
        HALF_LOG, fleet(1, 4), among=pauses(1 / 30, 2.0)
    ),
    "requests: Pareto (1.2), 2 of 6": requests(pareto(1.2), fleet(2, 6)),
    "requests: timeouts of 30 s, 2 of 6": requests(HALF_LOG, fleet(2, 6), among=timeouts(0.002)),
}

# -- drawn at random -------------------------------------------------------------------------------


def _small(random: Random) -> tuple[int, int]:
    """A small fleet: one of three to two of six."""
    return [(1, 3), (1, 4), (1, 5), (2, 5), (2, 6), (2, 8), (3, 6)][int(random.integers(7))]


def _rate(random: Random) -> float:
    """A rate of errors, 0.1 to 3 %."""
    return float(0.001 * 30 ** random.random())


def small_service(random: Random, looks: int = LOOKS) -> Service:
    """A service of a small fleet, with so many looks at it."""
    new, size = _small(random)
    of = service(new, size, _rate(random), float(random.choice([300, 1000, 3000])))
    return replace(of, looks=looks)


def _named(of: Service, *more: str) -> str:
    """The parameters of a model, to name it."""
    base = f"{of.fleet.new} of {of.fleet.size}, {100 * of.rate:.2g} %, {of.requests:g} a look"
    return ", ".join([base, *more])


def _draw_lasting(random: Random) -> tuple[str, Model]:
    of, size, looks = (
        small_service(random),
        float(random.integers(2, 31)),
        int(random.integers(2, 11)),
    )
    return _named(of, f"{size:g} over {looks} looks"), lasting(of, size, looks)


def _draw_neighbours(random: Random) -> tuple[str, Model]:
    of, sd, phi = small_service(random), random.uniform(0.3, 1.0), random.uniform(0.5, 0.95)
    return _named(of, f"sd {sd:.2g}, phi {phi:.2g}"), neighbours(of, sd, phi)


def _draw_clients(random: Random) -> tuple[str, Model]:
    of, errors, looks = small_service(random), random.uniform(2, 8), random.uniform(3, 12)
    often = random.uniform(0.1, 0.5)
    return _named(of, f"{errors:.2g} for {looks:.2g} looks"), clients(of, errors, looks, often)


def _draw_crashes(random: Random) -> tuple[str, Model]:
    of, part, size = small_service(random), random.uniform(0.002, 0.03), random.uniform(5, 40)
    return _named(of, f"{size:.2g} in {part:.2g}"), crashes(of, part, size)


def _draw_storms(random: Random) -> tuple[str, Model]:
    of = replace(small_service(random), fleet=Fleet() if random.random() < 0.5 else fleet(2, 6))
    part, every = random.uniform(0.05, 0.6), random.uniform(60, 180)
    lasts, lag = random.uniform(10, 30), int(random.integers(-2, 3))
    text = f"{100 * part:.2g} % each {every:.0f} s for {lasts:.0f} s, lag {lag}"
    return _named(of, text), storms(of, part, every, lasts, lag)


def _draw_tenants(random: Random) -> tuple[str, Model]:
    of, number = service(2, 10, _rate(random)), int(random.integers(1, 4))
    part, looks = random.uniform(0.01, 0.1), int(random.integers(3, 33))
    text = f"{100 * part:.2g} % on {number} for {looks} looks"
    return _named(of, text), tenants(of, number, part, looks)


def _draw_small(random: Random) -> tuple[str, Model]:
    of, cv = small_service(random), random.uniform(0.1, 0.5)
    return _named(of, f"cv {cv:.2g}"), different(of, cv)


def _draw_cold(random: Random) -> tuple[str, Model]:
    of, more, tau = small_service(random), random.uniform(0.01, 0.1), random.uniform(10, 60)
    return _named(of, f"{100 * more:.2g} % more, tau {tau:.0f} s"), cold(of, more, tau)


def _draw_cold_rolling(random: Random) -> tuple[str, Model]:
    of = service(4, 8, _rate(random), float(random.choice([300, 1000, 3000])))
    more, tau = random.uniform(0.01, 0.1), random.uniform(10, 60)
    every = int(random.integers(1, 7))
    text = f"{100 * more:.2g} % more, tau {tau:.0f} s, one each {every} looks"
    return _named(of, text), cold_rolling(of, more, tau, every)


def _draw_bad(random: Random) -> tuple[str, Model]:
    """It fails three times as often as stable once it is warm, and 2 % more at least."""
    of, more, tau = small_service(random), random.uniform(0.01, 0.1), random.uniform(10, 60)
    stays = max(0.02, 2 * of.rate)
    text = f"{100 * more:.2g} % more, tau {tau:.0f} s, then {100 * stays:.2g} %"
    return _named(of, text), cold(of, more, tau, stays)


def _draw_little(random: Random) -> tuple[str, Model]:
    a_minute, (new, size) = random.uniform(3, 60), _small(random)
    of = service(new, size, _rate(random), a_minute / 6)
    return _named(of), independent(of)


def _draw_restarts(random: Random) -> tuple[str, Model]:
    of, part, errors = small_service(random), random.uniform(0.005, 0.03), random.uniform(1, 20)
    return _named(of, f"{errors:.2g} in {part:.2g}"), restarts(of, part, errors)


def _draw_missing(random: Random) -> tuple[str, Model]:
    of, part = small_service(random), random.uniform(0.1, 0.5)
    return _named(of, f"{100 * part:.2g} %"), missing(independent(of), part)


def _draw_jit(random: Random) -> tuple[str, t.Any]:
    times, tau = random.uniform(1.5, 5), random.uniform(10, 120)
    new, size = _small(random)
    text = f"{new} of {size}, {times:.2g} times, tau {tau:.0f} s"
    return text, requests(HALF_LOG, fleet(new, size), looks=warming(times, tau))


def _draw_jit_means(random: Random) -> tuple[str, t.Any]:
    times, tau = random.uniform(1.5, 5), random.uniform(10, 120)
    new, size = _small(random)
    text = f"{new} of {size}, {times:.2g} times, tau {tau:.0f} s"
    return text, latency(HALF_LOG, fleet(new, size), slower=mean_warming(times, tau))


def _draw_pauses(random: Random) -> tuple[str, t.Any]:
    part, seconds = random.uniform(0.01, 0.1), random.uniform(0.5, 3)
    new, size = _small(random)
    text = f"{new} of {size}, {seconds:.2g} s in {part:.2g} of the looks"
    return text, requests(HALF_LOG, fleet(new, size), among=pauses(part, seconds))


def _draw_slow_storms(random: Random) -> tuple[str, t.Any]:
    times, every = random.uniform(2, 6), random.uniform(60, 180)
    lasts, lag = random.uniform(10, 30), int(random.integers(-2, 3))
    text = f"{times:.2g} times each {every:.0f} s for {lasts:.0f} s, lag {lag}"
    return text, requests(HALF_LOG, Fleet(), looks=slow_storms(times, every, lasts, lag))


def _draw_tails(random: Random) -> tuple[str, t.Any]:
    shapes: Sequence[tuple[str, t.Any]] = (
        (f"Pareto {(a := random.uniform(1.2, 2)):.2g}", pareto(a)),
        (f"log-normal {(sigma := random.uniform(1, 2)):.2g}", log_normal(sigma)),
        ("bimodal", bimodal),
    )
    name, times = shapes[int(random.integers(3))]
    part, (new, size) = random.uniform(0, 0.005), _small(random)
    text = f"{new} of {size}, {name}, {100 * part:.2g} % of 30 s"
    return text, requests(times, fleet(new, size), among=timeouts(part))


FAMILIES: dict[str, Family] = {
    "errors that last": _draw_lasting,
    "noisy neighbours": _draw_neighbours,
    "broken clients": _draw_clients,
    "crashes": _draw_crashes,
    "storms that return": _draw_storms,
    "sticky tenants": _draw_tenants,
    "small fleets that differ": _draw_small,
    "cold errors": _draw_cold,
    "cold errors, one after another": _draw_cold_rolling,
    "3 to 60 requests a minute": _draw_little,
    "restarts": _draw_restarts,
    "missing measurements": _draw_missing,
    "requests: warming up": _draw_jit,
    "means: warming up": _draw_jit_means,
    "requests: pauses": _draw_pauses,
    "requests: slow storms that return": _draw_slow_storms,
    "requests: heavy tails": _draw_tails,
}

BAD_FAMILIES: dict[str, Family] = {"cold errors that stay": _draw_bad}


def family(name: str) -> Callable[[Random], Drawn]:
    """A model that draws its parameters anew for each analysis."""
    return lambda random: (FAMILIES | BAD_FAMILIES)[name](random)[1](random)
