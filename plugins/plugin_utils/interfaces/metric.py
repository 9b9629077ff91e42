# SPDX-License-Identifier: GPL-3.0-or-later
"""Where measurements come from: the base class of metric drivers."""

from __future__ import annotations

import abc
import typing as t
from collections.abc import Mapping
from dataclasses import dataclass

from .driver import BaseDriver


@dataclass(frozen=True)
class Question:
    """What a metric is measured for. Times in seconds since the epoch."""

    # as every step returns it: id, service, revision, stable, stage, ...
    rollout: Mapping[str, t.Any]
    start: float  # of the analysis
    now: float
    paired: bool = False  # the judge compares: new and stable are wanted apart
    counts: bool = False  # the judge compares errors: numbers of errors and requests are wanted


class MetricDriver(BaseDriver):
    """Where the measurements of an analysis come from."""

    kind = "metric"
    folder = "metrics"

    counting: bool = False
    """Whether the driver itself counts from `begin` on, and returns what came since the last
    measurement.

    For a judge that compares that is `spans`, a list with what was counted while the share of the
    requests stayed the same, and `samples`: each has `new` and `stable` with the instances, and of
    each `requests`, `errors`, `host` and perhaps `age` (the seconds since its first request), or a
    list of seconds.
    """

    judge: str = ""
    """The judge of its results, where no other can judge them: `new_messages`."""

    past: str = ""
    """The option that asks for the values of a time in the past, for the judge `kayenta` alone.

    A result then has `past`, and takes the place of those before: each has all of that time.
    """

    spends_alpha: bool = True
    """Whether the judge `sequential` may alarm falsely of it, with a probability that is a part of
    the analysis' `alpha`."""

    @abc.abstractmethod
    def measure(self, question: Question) -> t.Any:
        """Return the result as plain data.

        For conditions that is whatever was found: a number, a list, a mapping. With `paired` it is
        a mapping with `new` and `stable`, each a number, a list of numbers, or a mapping with
        `requests` and `errors`, both counted since `start`.

        Raises MetricError if nothing can be measured, which is an error and not a failure. Called
        in a thread, once at a time, and returns within its timeout.
        """

    def begin(self) -> None:
        """Start to count: the initial delay is over. Called once, before the first `measure`."""

    def cancel(self) -> None:
        """End a measurement in progress, which is not needed. Called from another thread."""
