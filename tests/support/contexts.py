# SPDX-License-Identifier: GPL-3.0-or-later
"""What drivers are told of the journal in tests."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import (
    DriverContext,
    Known,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.traffic import (
    Cut,
    Served,
)


class Knows:
    """What is known of a journal, which a test may change."""

    def __init__(self, **known: t.Any) -> None:
        self.now = Known(**known)

    def __call__(self) -> Known:
        return self.now


def leased(context: DriverContext) -> DriverContext:
    """The context of a run whose lease was taken once, and has always had the same epoch."""
    return replace(context, known=lambda: replace(context.known(), epoch=1))


def tell(driver: t.Any, **known: t.Any) -> None:
    """Have the journal of a driver say something else from now on."""
    knows = driver.context.known
    knows.now = replace(knows.now, **known)


class Counted:
    """What a test has as `served`, and perhaps as `cuts`, like counters: new at each look."""

    def __init__(self, source: t.Any) -> None:
        self._source = source

    @property
    def served(self) -> Mapping[str, Served]:
        return dict(self._source.served)

    @property
    def cuts(self) -> Sequence[Cut]:
        return tuple(getattr(self._source, "cuts", ()))
