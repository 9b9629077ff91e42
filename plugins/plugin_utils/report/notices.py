# SPDX-License-Identifier: GPL-3.0-or-later
"""Which events of a timeline others are told of, and in which words. Pure."""

from __future__ import annotations

import typing as t
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..base.text import clean, span
from ..engine.model import Phase
from ..interfaces.notifier import Notice
from ..state import events
from ..state.record import Outcome, RolloutKind
from .messages import NOTHING_STARTED

_ENDS = {
    Outcome.PROMOTED: "promoted",
    Outcome.ROLLED_BACK: "rolled_back",
    Outcome.ABORTED: "aborted",
    Outcome.FAILED: "failed",
    Outcome.REFUSED: "refused",
}  # a rollout that was superseded goes on as another
_WAITING = frozenset(phase.value for phase in Phase if phase.waits)


@dataclass
class Notices:
    """Makes the notices of one rollout from its timeline, read from the beginning.

    The same timeline makes the same notices, with the same ids, whichever run reads it.
    """

    service: str
    rollout: str  # its id
    _begun: Mapping[str, t.Any] = field(default_factory=dict)
    _numbers: Counter[str] = field(default_factory=Counter)
    _waits_for: str = ""  # of the last notice of a wait, until the rollout moves on

    def take(self, event: Mapping[str, t.Any]) -> Notice | None:
        """Return the notice of the next event, if it is one that others are told of."""
        kind = event.get("kind")
        if kind == events.Begin.kind:
            self._begun = event
            return self._notice("begun", event)
        if kind == events.WaitingFor.kind and event.get("person"):
            return self._waiting(event)
        if kind == events.PhaseEntered.kind:
            phase = event.get("phase")
            self._waits_for = self._waits_for if phase in _WAITING else ""
            return self._notice("held", event) if phase == Phase.HELD else None
        if kind == events.End.kind and (name := _ENDS.get(event.get("outcome", ""))):
            return self._notice(name, event)
        return None

    def _waiting(self, event: Mapping[str, t.Any]) -> Notice | None:
        """Return the notice of a wait; none where another run goes on with the same wait."""
        what = str(event.get("what")).partition(":")[0]
        if what == self._waits_for:
            return None
        self._waits_for = what
        return self._notice("waiting", {**event, "reason": event.get("what")})

    def _notice(self, name: str, event: Mapping[str, t.Any]) -> Notice:
        self._numbers[name] += 1
        begun, at = self._begun, float(event.get("at", 0))
        facts: dict[str, t.Any] = {
            "revision": str(begun.get("revision", "")),
            "previous": str(begun.get("previous") or ""),
            "kind": str(begun.get("rollout", RolloutKind.ROLLOUT)),
            "strategy": str(begun.get("strategy") or ""),
            "replicas": int(begun.get("replicas", 0)),
            "by": clean(begun.get("by", ""), 200),
            "why": clean(begun.get("why") or ""),
            "reason": clean(event.get("reason") or ""),
            "elapsed": max(0.0, round(at - float(begun.get("at", at)), 3)),
        }
        return Notice(
            id=f"{self.rollout}-{name}-{self._numbers[name]}",
            event=name,
            at=at,
            service=self.service,
            rollout=self.rollout,
            text=_sentence(name, self.service, facts),
            **facts,
        )


def rejected(
    service: str, revision: str, at: float, reason: str, by: str, **facts: t.Any
) -> Notice:
    """Return the notice of a rollout that was refused before it began; `facts`: what is known."""
    given = {
        "revision": revision,
        "previous": "",
        "kind": RolloutKind.ROLLOUT.value,
        "strategy": "",
        "replicas": 0,
        "by": clean(by, 200),
        "why": "",
        "reason": clean(reason),
        "elapsed": 0.0,
        **facts,
    }
    return Notice(
        id=f"{service}-{at:.3f}-rejected",
        event="rejected",
        at=at,
        service=service,
        rollout="",
        text=_sentence("rejected", service, given),
        **given,
    )


def _sentence(name: str, service: str, facts: Mapping[str, t.Any]) -> str:
    """Return a notice for people."""
    title, previous = f"{service} {facts['revision']}", facts["previous"]
    reason = f": {facts['reason']}" if facts["reason"] else ""
    after = f" after {span(facts['elapsed'])}"
    if name == "begun":
        instead = f", in place of {previous}" if previous and previous != facts["revision"] else ""
        why = f": {facts['why']}" if facts["why"] else ""
        return f"{title}: a {_noun(facts)} begins{instead}, by {facts['by']}{why}"
    if name == "waiting":
        return f"{title}: {facts['reason']}"
    if name == "held":
        return f"{title} is held until an operator decides{reason}"
    if name == "promoted":
        return f"{title} is promoted{after}"
    if name == "refused":
        return f"{title}: the {_noun(facts)} was {NOTHING_STARTED}{reason}"
    if name == "rejected":
        return f"{title}: the {_noun(facts)} was rejected before it began{reason}"
    back = f" to {previous}" if previous and name != "failed" else ""
    return f"{title}: the {_noun(facts)} {_ENDED[name]}{back}{after}{reason}"


_ENDED = {
    "rolled_back": "was rolled back",
    "aborted": "was aborted and rolled back",
    "failed": "failed",
}
_NOUNS = {"rebalance": "rebalancing", "scale": "scaling"}


def _noun(facts: Mapping[str, t.Any]) -> str:
    kind = str(facts["kind"])
    return _NOUNS.get(kind, kind)
