# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where measurements come from: the interface of a metric driver."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Question:
    """What a metric is measured for. Times in seconds since the epoch."""

    rollout: Mapping[str, t.Any]  # as every step returns it: id, service, revision, stable, previous, stage, ...
    start: float  # of the analysis
    now: float
    paired: bool = False  # the judge compares: new and stable are wanted apart
    counts: bool = False  # it compares numbers of errors where there are any: with how many requests they are of
    before: t.Any = None  # what was found last, also by a run before this one; None: nothing


class MetricDriver(t.Protocol):
    """Where the measurements of an analysis come from."""

    def measure(self, question: Question) -> t.Any:
        """The result as plain data. For conditions whatever was found: a number, a list, a mapping.

        With `paired` a mapping with `new` and `stable`, each a number, a list of numbers, or a mapping with `requests` and
        `errors`, both counted since `start`. Raises MetricError where nothing can be measured, which is an error and no
        failure. Called in a thread, once at a time, and returns within its timeout. One whose question leaves something behind
        may have a method `end`, called from another thread when nobody waits any more.
        """
