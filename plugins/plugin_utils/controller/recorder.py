# Copyright: the progressive.rollout authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes down what happens: the timeline's events, and the journal's record."""

from __future__ import annotations

import time
import typing as t
from collections.abc import Sequence

from ..base import trace
from ..engine.evaluate import Decision
from ..engine.model import Instance, State
from ..state import events
from ..state.lease import Session
from . import fleet as fleets

GONE = "gone"  # the state in the timeline of an instance that nothing is left of


class Recorder:
    """Collects events, and commits them together with the record."""

    def __init__(self, session: Session, balanced: bool) -> None:
        """`balanced`: whether load balancers divide the traffic."""
        self._session = session
        self._balanced = balanced
        self._events: list[dict[str, t.Any]] = []
        # of each instance, as last written; None: not known yet
        self._states: dict[str, str] | None = None
        self._traffic: dict[str, float] | None = None  # of each revision, likewise
        self._reasons: Sequence[str] = ()  # of the last decision
        self._troubled = False

    @property
    def due(self) -> bool:
        """Whether there is something to commit, or the lease is to be renewed."""
        return bool(self._events) or self._session.due

    def event(self, event: events.Event) -> None:
        """Add an event to the timeline, with the next commit."""
        found = event.to_dict()
        trace.note(f"{event.kind}: {trace.words({k: v for k, v in found.items() if k != 'kind'})}")
        self._events.append({"at": round(time.time(), 3)} | found)

    def commit(self) -> None:
        """Write the record and the events, and renew the lease."""
        rollout = self._session.record.rollout
        if rollout:
            rollout.updated = time.time()
        self._session.commit(self._events)
        self._events = []

    def note_fleet(self, fleet: Sequence[Instance]) -> None:
        """Write down each change of an instance's state, and of the revisions' traffic."""
        states = self._known_states()
        for instance in fleet:
            if states.get(instance.id) != instance.state.value:
                states[instance.id] = instance.state.value
                self._note_state(instance)
        there = {instance.id for instance in fleet}
        for name in [name for name, state in states.items() if name not in there and state != GONE]:
            states[name] = GONE
            self.event(events.StateChanged(instance=name, state=GONE))
        if self._balanced:
            self._note_traffic(fleet)

    def note_decision(self, decision: Decision) -> None:
        """Write down each reason of a decision once, as long as it remains one."""
        for reason in decision.reasons:
            if reason not in self._reasons:
                self.event(events.DecisionMade(reason=reason))
        self._reasons = decision.reasons

    def note_trouble(self, message: str) -> bool:
        """Write down that something does not answer or refuses; return whether that is new."""
        new, self._troubled = not self._troubled, True
        if new:
            self.event(events.Trouble(message=message))
        return new

    def note_success(self) -> None:
        """Forget the trouble: the next one is new."""
        self._troubled = False

    def _note_state(self, instance: Instance) -> None:
        """Write down an instance's state."""
        changed = events.StateChanged(
            instance=instance.id,
            state=instance.state.value,
            revision=instance.revision,
            generation=instance.generation,
            host=instance.host,
            detail=None if instance.state is State.READY else instance.detail or None,
        )
        self.event(changed)

    def _note_traffic(self, fleet: Sequence[Instance]) -> None:
        """Write down the revisions' traffic where it changed."""
        traffic = {
            revision: counts["traffic"] for revision, counts in fleets.summary(fleet).items()
        }
        if traffic != self._traffic:
            self._traffic = traffic
            self.event(events.TrafficChanged(shares=traffic))

    def _known_states(self) -> dict[str, str]:
        """Return each instance's state as last written, at first by the steps before this one."""
        if self._states is not None:
            return self._states
        states: dict[str, str] = {}
        rollout = self._session.record.open if self._session.epoch else None
        for event in self._session.store.timeline(rollout.id) if rollout else ():
            if event.get("kind") == "state" and event.get("instance"):
                states[event["instance"]] = event.get("state", "")
            elif event.get("kind") == "traffic":
                self._traffic = event.get("shares")
        self._states = states
        return states
