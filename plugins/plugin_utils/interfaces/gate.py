# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What has to let a rollout pass: the interface of a gate driver."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping
from dataclasses import dataclass, field

PASS, WAIT, FAIL, PERSON = "pass", "wait", "fail", "person"


@dataclass(frozen=True)
class Answer:
    """What a gate says when it is asked."""

    verdict: str  # PASS, WAIT (not yet), FAIL, or PERSON: it cannot say, a person has to; it is not asked again
    message: str = ""  # why, in a few words; shown to people and kept in the journal
    memory: Mapping[str, t.Any] | None = None  # plain data, for who is asked next time: kept in the journal
    samples: Mapping[str, t.Any] = field(default_factory=dict)  # plain data that a verdict stands on, for the timeline
    again: float | None = None  # seconds until it is worth asking again; None: as the gate's interval says


class GateDriver(t.Protocol):
    """Something that has to let a rollout pass. It is asked again until it passes or fails; who asks bounds the wait.

    One that needs nobody else for its answer may have an attribute `instant`, true: it is asked at every look, in no thread.
    One whose question leaves something behind may have a method `end`, called from another thread when nobody waits any more.
    One that works beyond its answers has a method `close`, called when nobody will ask any more.
    One that remembers has a method `recall`, which is given the last answer's memory before it is asked for the first time.
    """

    def ask(self, rollout: Mapping[str, t.Any], waited: float) -> Answer:
        """The answer for the rollout (the mapping every step returns) that has been waiting at this gate for `waited` seconds.

        Raises GateError where it cannot be asked. May be called in a thread, once at a time, and returns within its timeout.
        """
