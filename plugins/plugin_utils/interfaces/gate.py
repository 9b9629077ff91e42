# SPDX-License-Identifier: GPL-3.0-or-later
"""What decides whether a rollout may continue: the base class of gate drivers."""

from __future__ import annotations

import abc
import typing as t
from collections.abc import Mapping
from dataclasses import dataclass, field

from .driver import BaseDriver

PASS, WAIT, FAIL, PERSON = "pass", "wait", "fail", "person"


@dataclass(frozen=True)
class Answer:
    """What a gate answers when it is asked."""

    verdict: str  # PASS, WAIT (not yet), FAIL, or PERSON: a person has to decide
    message: str = ""  # why, in a few words; shown to people and kept in the journal
    memory: Mapping[str, t.Any] | None = None  # plain data for the next run, kept in the journal
    samples: Mapping[str, t.Any] = field(default_factory=dict)  # the data behind it
    again: float | None = None  # seconds until asking again; None: the gate's `interval`
    looked: Mapping[str, t.Any] = field(default_factory=dict)  # of an analysis: `events.Looked`
    doubt: str = ""  # by what the new revision looks worse, where that is not enough to fail
    others: bool = False  # another rollout is waited for: a run may end meanwhile


class GateDriver(BaseDriver):
    """A gate: a rollout waits at it until it passes or fails.

    It is asked again and again. How long a rollout waits is not the driver's business.
    """

    kind = "gate"
    folder = "gates"

    blocking: bool = True
    """Whether `ask` waits for anything else.

    If not, it is called in every iteration, in no thread.
    """

    waiting: str = "waiting at {gate}"
    """What a rollout does while the gate has not decided, for people. `{gate}` is the gate's name
    with its driver, `{key}` without.
    """

    unanswered: str = "no answer yet"
    """What is said of the gate before its first answer."""

    commanded: bool = True
    """Whether an operator's command lets a rollout pass."""

    watches: bool = False
    """Whether `ask` is called on while a person decides: it may find an answer itself."""

    @abc.abstractmethod
    def ask(self, rollout: Mapping[str, t.Any], waited: float) -> Answer:
        """Return the answer for a rollout that has been waiting at this gate for `waited` seconds.

        `rollout` is the mapping that every step returns. Raises GateError if the gate cannot be
        asked. May be called in a thread, once at a time, and returns within the gate's timeout.
        """

    def restore(self, memory: Mapping[str, t.Any]) -> None:
        """Continue from the last answer's `memory`, of an earlier run. Called before the first
        `ask`.
        """

    def cancel(self) -> None:
        """End a question in progress; its answer is not needed. Called from another thread."""

    def close(self) -> None:
        """End all work of the driver: the gate is not asked again."""
