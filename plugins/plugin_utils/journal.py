# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is recorded of a service because it cannot be observed. Plain data in and out; no I/O."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.progress import Failure, Tally

KEPT = 20  # how many ended rollouts the history keeps

# Phases in which a rollout is over; in every other one it is under way and a run goes on with it.
FINISHED = "finished"
HELD = "held"
PROGRESSING = "progressing"
PROMOTING = "promoting"
ROLLING_BACK = "rolling_back"


@dataclass(frozen=True)
class Composition:
    """A revision that is, or was, all of the service."""

    revision: str
    generation: int
    replicas: int


@dataclass
class Rollout:
    """One walk of a service from one composition to another. Times in seconds since the epoch."""

    id: str
    revision: str
    generation: int
    replicas: int
    strategy: str
    previous: Composition | None
    started: float
    kind: str = "rollout"  # rollout | rollback | restart | scale
    phase: str = PROGRESSING
    outcome: str = ""  # promoted | rolled_back | aborted | failed | superseded
    reason: str = ""
    step: str = "begin"
    updated: float = 0.0
    elapsed: float = 0.0  # seconds spent walking
    replaced: int = 0  # instances stopped in favour of new ones
    tally: Tally | None = None  # of the walk under way

    @property
    def over(self) -> bool:
        """Whether there is nothing left to do for it."""
        return self.phase == FINISHED

    def end(self, outcome: str, reason: str, now: float) -> None:
        """Close it."""
        self.phase, self.outcome, self.reason, self.updated, self.tally = FINISHED, outcome, reason, now, None


@dataclass
class Record:
    """The journal's record of one service."""

    service: str
    stable: Composition | None = None
    before: Composition | None = None  # what was stable before it, and can be gone back to
    rollout: Rollout | None = None  # the one under way, or the last one
    generation: int = 0  # the last one made
    serial: int = 0  # of the last instance made
    draining: dict[str, float] = field(default_factory=dict)  # instances that are to go, since when
    history: list[dict[str, t.Any]] = field(default_factory=list)

    @property
    def open(self) -> Rollout | None:
        """The rollout under way."""
        return self.rollout if self.rollout and not self.rollout.over else None

    def close(self, outcome: str, reason: str, now: float) -> None:
        """End the rollout under way and write it into the history."""
        if self.rollout is None or self.rollout.over:
            return
        self.rollout.end(outcome, reason, now)
        self.history = [*self.history, asdict(self.rollout)][-KEPT:]

    def dump(self) -> dict[str, t.Any]:
        """As plain data; `id` names the timeline that events go to."""
        data = asdict(self) | {"id": self.rollout.id if self.rollout else ""}
        if self.rollout and self.rollout.tally:
            data["rollout"]["tally"]["judged"] = sorted(self.rollout.tally.judged)
        return data

    @classmethod
    def load(cls, service: str, data: Mapping[str, t.Any]) -> Record:
        """From plain data; an empty mapping is a service nothing is recorded of."""
        known = {key: data[key] for key in cls.__dataclass_fields__ if key in data}
        rollout = known.get("rollout")
        return cls(
            **{
                **known,
                "service": service,
                "stable": _composition(known.get("stable")),
                "before": _composition(known.get("before")),
                "rollout": _rollout(rollout) if rollout else None,
            }
        )


def _composition(data: Mapping[str, t.Any] | None) -> Composition | None:
    return Composition(**data) if data else None


def _rollout(data: Mapping[str, t.Any]) -> Rollout:
    tally = data.get("tally")
    return Rollout(**{**data, "previous": _composition(data.get("previous")), "tally": _tally(tally) if tally else None})


def _tally(data: Mapping[str, t.Any]) -> Tally:
    failures = tuple(Failure(**failure) for failure in data["failures"])
    return Tally(data["since"], data["new"], data["old"], failures, frozenset(data["judged"]))
