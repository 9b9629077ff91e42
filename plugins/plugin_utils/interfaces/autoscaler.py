# SPDX-License-Identifier: GPL-3.0-or-later
"""What scales a service outside of rollouts, and must not undo what a rollout does."""

from __future__ import annotations

import abc
import typing as t
from collections.abc import Mapping
from dataclasses import dataclass

from .driver import BaseDriver

State = Mapping[str, t.Any]


@dataclass(frozen=True)
class Managed:
    """An autoscaler that a rollout manages."""

    name: str  # as `AutoscalerDriver.name`
    mode: str


class AutoscalerDriver(BaseDriver):
    """An autoscaler.

    Its `State` is a flat mapping of JSON values: the fields that a rollout may change, with their
    names. The journal keeps it. `min` and `max` are the bounds of the number of instances.
    """

    kind = "autoscaler"
    folder = "autoscalers"

    follows: t.ClassVar[bool] = False
    """Whether it can say how many instances it wants while it changes none itself."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """What messages call it. On Kubernetes also what it is found by, `KINDS/NAME`."""

    @abc.abstractmethod
    def check(self) -> None:
        """Raise InputError if it cannot be read or changed, before anything is touched."""

    @abc.abstractmethod
    def read(self) -> State:
        """Return its state now.

        Raises AutoscalerGone if it does not exist any more, AutoscalerError for anything else.
        """

    @abc.abstractmethod
    def write(self, before: State, after: State) -> None:
        """Change it, if its state still is `before`; raises AutoscalerError if it is not."""

    def bounds(self, state: State) -> tuple[int, int]:
        """Return the least and the greatest number of instances."""
        return state["min"], state["max"]

    @abc.abstractmethod
    def held(self, state: State, replicas: int) -> State:
        """Return the state in which it changes no number; `replicas` is that of the rollout."""

    def raised(self, state: State, least: int) -> State:
        """Return the state with another minimum."""
        return {**state, "min": least}

    def followed(self, state: State) -> State:
        """Return the state in which it still says what it wants, and changes no number."""
        return state

    def wanted(self, present: int, replicas: int) -> int | None:
        """Return how many instances it wants now, where it `follows`; None: it does not say.

        `present` are those that metrics are of: with a rollout's surge, but not those that still
        start. `replicas` is the number of the rollout, which stays where nothing is to change.
        """
        return None
