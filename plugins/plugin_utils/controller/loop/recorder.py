# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes down what happens: the timeline's events, and the journal's record."""

from __future__ import annotations

import typing as t
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from ...analysis import counters
from ...analysis.counters import Counters, Raw
from ...base import clock, trace
from ...engine.evaluate import Decision
from ...engine.model import Instance, State
from ...engine.unmanaged import NOTHING, Unmanaged, shares
from ...interfaces.traffic import Served
from ...state import events
from ...state.lease import Session
from ...state.record import Rollout
from ..background.durations import Durations
from . import timing

if t.TYPE_CHECKING:
    from ..background.announcer import Announcer

# events before which the requests counted so far are written
CLOSING = ("stage", "verdict", "parked", "interrupted", "end")
GONE = "gone"  # the state in the timeline of an instance that nothing is left of


class Recorder:
    """Collects events, and commits them together with the record."""

    announcer: Announcer | None = None  # told of what is committed

    def __init__(
        self,
        session: Session,
        balanced: bool,
        counted: Callable[[bool], tuple[Counters, Counters]] = lambda _fresh: (
            Counters(),
            Counters(),
        ),
    ) -> None:
        """Make a recorder.

        Args:
            session: Where it writes to.
            balanced: Whether load balancers divide the traffic.
            counted: Returns what they have counted in this step, and between the step before and
                this one; with `True`, up to the last observation.
        """
        self._session = session
        self._balanced = balanced
        self._counted = counted
        self._events: list[dict[str, t.Any]] = []
        # of each instance, as last written; None: not known yet
        self._states: dict[str, str] | None = None
        self._traffic: dict[str, float] | None = None  # of each revision, likewise
        self._unmanaged: dict[str, t.Any] = {}  # likewise
        self._reasons: Sequence[str] = ()  # of the last decision
        self._failing = False
        self._serving: set[str] = set()  # the instances in rotation, as last written
        self._requests = RequestCounts()
        self.durations = Durations()  # of what happened to instances in this rollout

    @property
    def due(self) -> bool:
        """Whether there is something to commit, or the lease is to be renewed."""
        announced = self.announcer is not None and self.announcer.due
        return bool(self._events) or announced or self._session.due

    def event(self, event: events.Event) -> None:
        """Add an event to the timeline, with the next commit."""
        if event.kind in CLOSING:
            self.note_requests(final=True)
        self._add(event, clock.wall())

    def _add(self, event: events.Event, at: float) -> None:
        """Add an event of a moment: all that one observation shows has the same."""
        fields = event.to_dict()
        shown = {k: v for k, v in fields.items() if k not in ("kind", "results")}
        trace.note(event.kind, shown)
        self._events.append({"at": round(at, 3)} | fields)
        self.durations.take(self._events[-1])

    def commit(self) -> None:
        """Write the record and the events, and renew the lease."""
        rollout = self._session.record.rollout
        if rollout:
            rollout.updated = clock.wall()
        for outcome in self.announcer.outcomes() if self.announcer else ():
            self.event(outcome)
        self._session.commit(self._events)
        committed, self._events = self._events, []
        if self.announcer and rollout:
            self.announcer.take(rollout.id, committed)

    def note_fleet(self, fleet: Sequence[Instance], unmanaged: Unmanaged = NOTHING) -> None:
        """Write down each change of an instance's state, and of the revisions' traffic."""
        states, at = self._known_states(), clock.wall()
        for instance in fleet:
            if states.get(instance.id) != instance.state:
                states[instance.id] = instance.state.value
                self._note_state(instance, at)
        present = {instance.id for instance in fleet}
        for name in [
            name for name, state in states.items() if name not in present and state != GONE
        ]:
            states[name] = GONE
            self._add(events.StateChanged(instance=name, state=GONE), at)
        if self._balanced:
            self._note_rotation(fleet, at)
            self._note_traffic(fleet, unmanaged, at)

    def note_overdue(self, fleet: Sequence[Instance], failed: Collection[str]) -> None:
        """Write down that those which failed and are still starting are not ready, and why: no
        later observation of this run does.
        """
        states, at = self._known_states(), clock.wall()
        for instance in fleet:
            if instance.id in failed and instance.state is State.STARTING:
                states[instance.id] = State.NOT_READY.value
                self._note_state(replace(instance, state=State.NOT_READY), at)

    def note_requests(self, final: bool = False) -> None:
        """Write down what the load balancers have counted, the less often the longer it takes.

        `final` writes it however recent the last time was.
        """
        rollout = self._session.record.open
        if rollout is None or not self._balanced:
            return
        elapsed = clock.wall() - rollout.started
        counted = self._counted(final)
        if event := self._requests.take(*counted, rollout, elapsed, final):
            self.event(event)

    def requests(self, rollout: str) -> tuple[dict[str, int], dict[str, int]]:
        """Return the requests and errors of the new side in a rollout, and those of the old one."""
        self.note_requests(final=True)
        timeline = [*self._session.timeline(rollout), *self._events]
        counted = [event for event in timeline if event.get("kind") == events.RequestsCounted.kind]
        new, old = (
            {key: events.total(counted, side, key) for key in ("requests", "errors")}
            for side in ("new", "old")
        )
        return new, old

    def note_decision(self, decision: Decision) -> None:
        """Write down each reason of a decision once, as long as it remains one."""
        for reason in decision.reasons:
            if reason not in self._reasons:
                self.event(events.DecisionMade(reason=reason))
        self._reasons = decision.reasons

    def note_error(self, message: str) -> bool:
        """Write down that something does not answer or refuses; return whether that is new."""
        new, self._failing = not self._failing, True
        if new:
            self.event(events.Trouble(message=message))
        return new

    def note_success(self) -> None:
        """Forget the error: the next one is new."""
        self._failing = False

    def _note_state(self, instance: Instance, at: float) -> None:
        """Write down an instance's state."""
        changed = events.StateChanged(
            instance=instance.id,
            state=instance.state.value,
            revision=instance.revision,
            generation=instance.generation,
            host=instance.host,
            detail=None if instance.state is State.READY else instance.detail or None,
        )
        self._add(changed, at)

    def _note_rotation(self, fleet: Sequence[Instance], at: float) -> None:
        """Write down which instances entered or left rotation."""
        for instance in fleet:
            if instance.in_rotation != (instance.id in self._serving):
                self._serving ^= {instance.id}
                entered = instance.in_rotation
                self._add(events.RotationChanged(instance=instance.id, serving=entered), at)

    def _note_traffic(self, fleet: Sequence[Instance], unmanaged: Unmanaged, at: float) -> None:
        """Write down the revisions' traffic where it changed, and what no rollout manages."""
        traffic, beside = shares(fleet, unmanaged), unmanaged.to_dict(fleet)
        if (traffic, beside) != (self._traffic, self._unmanaged):
            self._traffic, self._unmanaged = traffic, beside
            self._add(events.TrafficChanged(shares=traffic, unmanaged=beside or None), at)

    def _known_states(self) -> dict[str, str]:
        """Return each instance's state as last written, at first by the steps before this one."""
        if self._states is not None:
            return self._states
        states: dict[str, str] = {}
        rollout = self._session.record.open if self._session.epoch else None
        for event in self._session.timeline(rollout.id) if rollout else ():
            self.durations.take(event)
            if event.get("kind") == "state" and event.get("instance"):
                states[event["instance"]] = event.get("state", "")
            elif event.get("kind") == "traffic":
                self._traffic = event.get("shares")
                self._unmanaged = event.get("unmanaged") or {}
            elif event.get("kind") == "rotation":
                enters = event.get("serving")
                (self._serving.add if enters else self._serving.discard)(event.get("instance", ""))
        self._states = states
        return states


class RequestCounts:
    """What the load balancers have counted, between one event of the timeline and the next.

    The counters of the last event are in the record, so that the next step counts from there.
    """

    def __init__(self) -> None:
        self._last: Mapping[tuple[str, bool], Served] = {}  # at the last event
        self._beside = 0  # requests to what is no instance, likewise
        self._raw: Raw | None = None  # likewise; None: before the first observation
        self._gap = False  # whether what came between the steps is unknown
        self._next = 0.0  # seconds into the rollout

    def take(
        self, now: Counters, between: Counters, rollout: Rollout, elapsed: float, final: bool
    ) -> events.RequestsCounted | None:
        """Return an event if one is due and there were requests; `elapsed` is the rollout's."""
        if not now.raw:
            return None  # nothing was observed yet
        if self._raw is None:
            self._gap, self._raw = rollout.counted is None, between.base
        asked = elapsed >= self._next or final
        if not asked and rollout.counted is not None and now.raw.keys() == self._raw.keys():
            return None
        # what another instance has counted begins when it is first observed
        kept = {key: self._raw.get(key, server) for key, server in now.raw.items()}
        counted = {(name, True): count for name, count in now.served.items()}
        counted |= {(name, False): count for name, count in between.served.items()}
        came = [count.since(self._last.get(key)) for key, count in counted.items() if asked]
        due = any(count.requests for count in came)
        if due:
            kept = dict(now.raw)
        if rollout.counted is None or due or kept.keys() != self._raw.keys():
            rollout.counted = counters.dump(kept)
        self._raw = kept
        if not due:
            return None
        self._last, self._next = counted, elapsed + timing.thinned(elapsed)
        beside = now.beside + between.beside
        others, self._beside = beside - self._beside, beside
        gap, self._gap = self._gap or None, False
        new = [count for count in came if count.generation == rollout.generation]
        old = [count for count in came if count.generation != rollout.generation]
        return events.RequestsCounted(
            new=_summed(new), old=_summed(old), beside=others or None, gap=gap
        )


def _summed(side: Iterable[Served]) -> dict[str, t.Any]:
    """Return the requests, errors and mean latency of one side."""
    counts = list(side)
    requests, errors, answered = (
        sum(getattr(count, key) for count in counts) for key in ("requests", "errors", "answered")
    )
    mean = max(0.0, sum(count.seconds for count in counts)) / answered if answered else None
    latency = None if mean is None else round(mean, 6)
    return {"requests": requests, "errors": errors, "latency": latency}
