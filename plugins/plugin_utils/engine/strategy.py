# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Strategies: lists of stages, each a waypoint and what guards it. A new strategy is a new list, not a new code path. Pure."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

REPLACE, PROMOTE, FINISH = PARTS = ("replace", "promote", "finish")  # the steps that walk a stage, in their order


@dataclass(frozen=True)
class Waypoint:
    """A fleet composition to walk to.

    `generation` is the one that counts as new; instances of all others are old.
    `desired` is what the budget is counted from: the capacity the service needs all along the walk.
    `share` is the percentage of requests that goes to the new ones: None for what their number comes to, 0 for a new set
    that stands ready out of rotation, 100 for an old set that stands ready out of rotation. From such a waypoint of 0
    to one of 100 is one switch, at all load balancers.
    """

    generation: int
    new: int
    old: int
    desired: int
    share: int | None = None
    need: int | None = None  # how many new ones have to be ready for a switch; None: all
    stable: int = 0  # the generation whose instances are the last of the old ones to go (E-16)

    @property
    def dark(self) -> bool:
        """Whether the new ones stand ready without a request."""
        return self.share == 0

    @property
    def switches(self) -> bool:
        """Whether the new ones take over all at once, and the old ones stay, without a request."""
        return self.share == 100 and self.old > 0


@dataclass(frozen=True)
class Gate:
    """What has to let a rollout pass before it leaves a stage. Times in seconds; `options` are its driver's own."""

    key: str  # tells it apart in the journal, among all gates of the rollout
    driver: str
    options: Mapping[str, t.Any] = field(default_factory=dict)
    interval: float = 5.0  # between two questions
    timeout: float | None = None  # how long it may keep a rollout waiting; None: as long as it takes
    on_timeout: str | None = None  # rollback | hold | promote; None: what `on_failure` says
    on_error: str = "fail"  # fail | ignore: what a gate that cannot be asked comes to (E-38)


@dataclass(frozen=True)
class Stage:
    """A waypoint, and what has to be so before the rollout goes on to the next one."""

    name: str
    waypoint: Waypoint
    gates: tuple[Gate, ...] = ()
    part: str = REPLACE  # the step that walks it
    waiting: str = "paused"  # the phase while its gates are waited for: paused | awaiting_promotion | holding
    on_failure: str | None = None  # rollback | hold | continue; None: as for the whole rollout
    reversible: bool = True  # False: from here on a failure holds, for there is no way back
    failure_limit: int | None = None  # of this stage alone; None: as for the whole rollout


def rolling(generation: int, desired: int) -> Waypoint:
    """All new, none old, with a sliding window."""
    return Waypoint(generation, new=desired, old=0, desired=desired)


STRATEGIES: Mapping[str, Callable[[int, int], tuple[Waypoint, ...]]] = {
    "rolling": lambda generation, desired: (rolling(generation, desired),)
}
