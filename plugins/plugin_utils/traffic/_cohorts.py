# SPDX-License-Identifier: GPL-3.0-or-later
"""Which instances have clients of their own, and which part of all clients. Pure.

A hash puts each client into one of `WHOLE` buckets, and those below the share go to the side that
is apart. So a share that rises moves clients to that side only, and a share that falls back only.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fractions import Fraction

from ..engine.model import Rotation
from ..engine.weights import MOST
from ..interfaces.platform import Endpoint
from ..interfaces.traffic import Target

WHOLE = 10_000


def apart(
    targets: Mapping[Endpoint, Target], serving: Collection[Endpoint], known: Collection[Endpoint]
) -> set[Endpoint]:
    """Return the instances of the side that is apart.

    It is the side that is rolled out. It stays apart in a rollback, where the other side is rolled
    out: `serving` are those that have clients of their own now, and `known` are all that are apart.
    """
    sides = {targets[endpoint].new for endpoint in serving if endpoint in targets}
    side = sides != {False}
    return {
        endpoint
        for endpoint, target in targets.items()
        if (endpoint in known if target.new is None else target.new is side)
    }


def share(targets: Mapping[Endpoint, Target], chosen: Collection[Endpoint]) -> int:
    """Return the share of the clients that the weights give to the chosen side.

    It is 0 where only one side is in rotation: no client has to be told apart.
    """
    weights = {True: 0, False: 0}
    for endpoint, target in targets.items():
        if target.rotation is Rotation.IN:
            weights[endpoint in chosen] += target.weight
    if not weights[True] or not weights[False]:
        return 0
    part = Fraction(WHOLE * weights[True], weights[True] + weights[False])
    return min(WHOLE - 1, max(1, round(part)))


def part(targets: Mapping[Endpoint, Target], chosen: Collection[Endpoint]) -> int:
    """Return the share of the chosen side, which is all where it is alone in rotation."""
    serving = [endpoint for endpoint, x in targets.items() if x.rotation is Rotation.IN]
    alone = bool(serving) and all(endpoint in chosen for endpoint in serving)
    return WHOLE if alone else share(targets, chosen)


def weights(part: int, chosen: int, others: int) -> tuple[int, int]:
    """Return weights of each chosen instance and each other that give a share of the clients."""
    ratio = Fraction(part * others, (WHOLE - part) * chosen)
    if ratio > 1:
        other, each = weights(WHOLE - part, others, chosen)
        return each, other
    close = ratio.limit_denominator(MOST)
    return (close.numerator, close.denominator) if close else (1, MOST)
