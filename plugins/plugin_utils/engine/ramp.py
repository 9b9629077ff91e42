# SPDX-License-Identifier: GPL-3.0-or-later
"""Ramps: the shares of the requests that a canary gets one after the other. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from .strategy import Gate, Step


def geometric(start: int, factor: int, most: int) -> tuple[int, ...]:
    """Return the percentages where each is `factor` times the one before, up to `most`."""
    shares = [start]
    while shares[-1] < most:
        shares.append(min(shares[-1] * factor, most))
    return tuple(shares)


def linear(start: int, increment: int, most: int) -> tuple[int, ...]:
    """Return the percentages where each is `increment` more than the one before, up to `most`."""
    return (*range(start, most, increment), most)


def steps(
    shares: Sequence[int], gates: Sequence[Sequence[Gate]], ahead: bool, watched_from: int = 1
) -> Iterator[Step]:
    """Yield the steps of a ramp, with the gates after each; the promotion itself leads to 100 %.

    With `ahead`, the instances of the next step become ready meanwhile, and a pause that comes
    first counts from when the share was there.
    """
    for number, (share, asked) in enumerate(zip(shares, gates, strict=True), 1):
        if share == 100:
            return
        step = Step(f"step {number}", weight=share, watched=number >= watched_from)
        if not ahead or number == len(shares):
            yield replace(step, gates=tuple(asked))
            continue
        yield step
        first = (replace(gate, early=gate.driver == "pause") for gate in asked[:1])
        yield Step(
            f"{step.name} ahead",
            ahead=shares[number],
            gates=(*first, *asked[1:]),
            watched=step.watched,
        )
