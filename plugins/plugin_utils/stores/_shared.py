# SPDX-License-Identifier: GPL-3.0-or-later
"""The journal and the lease in a service that many controllers share: compare-and-swap of texts.

Of each service there are these texts, each with a name and a version:

- `lease`: who holds it, or who did; every write of a run compares its version;
- `record`;
- `words`: the last commands of operators;
- `timelines`: the rollouts whose events are kept, oldest first;
- `timeline/ROLLOUT/NUMBER`: the events of one commit, so that an append rewrites nothing.
"""

from __future__ import annotations

import abc
import secrets
import typing as t
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..agents import _journal
from ..base.errors import LeaseHeld, LeaseLost, RolloutError, StoreError
from ..base.text import clean
from ..interfaces.store import Lease, StoreDriver

TRIES = 20  # until a write gets in between those of others; each takes milliseconds
# the names under which they are kept, from the beginning
LEASE, RECORD, COMMANDS, TIMELINES = "lease", "record", "words", "timelines"
_REFUSALS: Mapping[str, tuple[type[RolloutError], str]] = {
    "held": (LeaseHeld, "PR-501"),
    "lost": (LeaseLost, "PR-503"),
    "store": (StoreError, "PR-500"),
    "damaged": (StoreError, "PR-506"),
    "newer": (StoreError, "PR-507"),
}
Json = dict[str, t.Any]
R = t.TypeVar("R")


@dataclass(frozen=True)
class StoredTexts:
    """Texts of a service at one moment."""

    texts: Mapping[str, bytes]
    versions: Mapping[str, int]
    now: float  # by the store's clock
    alive: bool | None = None  # whether the store keeps the lease alive; None: its times say so

    def version(self, name: str) -> int:
        """Return the version of a text, 0 where there is none."""
        return self.versions.get(name, 0)


@dataclass
class Change:
    """What is written in one step, if the text `guard` still has this version."""

    guard: str
    version: int
    texts: dict[str, str]
    drop: list[str] = field(default_factory=list)  # names that begin so are removed
    ttl: float | None = None  # of a lease; 0: it ends; None: stays as it is


class SharedStore(StoreDriver):
    """The nine operations, over three of a service that keeps texts."""

    def __init__(self, service: str) -> None:
        self._service = service
        # Events of writes whose outcome is not known, by their mark; and those found to be stored
        # although the answer was lost.
        self._doubtful: dict[str, list[Json]] = {}
        self._stored: list[Json] = []

    # -- what a service has to do --------------------------------------------------------------

    @abc.abstractmethod
    def _read(self, names: Collection[str]) -> StoredTexts:
        """Return texts, all of the same moment; those that are not there are left out."""

    @abc.abstractmethod
    def _write(self, change: Change) -> bool:
        """Change all or nothing; return False if the guard has another version.

        Raises StoreError, also where the outcome is not known.
        """

    @abc.abstractmethod
    def _texts(self, prefix: str) -> Iterable[bytes]:
        """Return the texts whose names begin so, in the order of their names."""

    @abc.abstractmethod
    def _remove_all(self) -> None:
        """Remove all texts of the service, the lease last."""

    @abc.abstractmethod
    def _where(self, name: str) -> str:
        """Return how messages call a text."""

    # -- the lease -----------------------------------------------------------------------------

    def lease(self) -> Lease | None:
        def look() -> Lease | None:
            state = self._read([LEASE])
            held = self._held(state)[0]
            return _lease(held) if held and _alive(held, state) else None

        return self._checked(look)

    def acquire(
        self,
        token: str,
        holder: str,
        ttl: float,
        details: Mapping[str, t.Any],
        above: int = 0,
    ) -> Lease:
        request = {"token": token, "holder": holder, "ttl": ttl, "details": dict(details)}
        return self._acquire({**request, "above": above}, None)

    def take_over(
        self, lease: Lease, token: str, holder: str, ttl: float, details: Mapping[str, t.Any]
    ) -> Lease:
        request = {"token": token, "holder": holder, "ttl": ttl, "details": dict(details)}
        return self._acquire(request, lease.mark)

    def _acquire(self, request: Json, instead: str | None) -> Lease:
        """Take the lease; one whose mark is `instead` may be replaced unexpired."""

        def attempt() -> Lease | None:
            state = self._read([LEASE])
            held, kept = self._held(state)
            ours = held is not None and held["token"] == request["token"]
            if held and not ours and _alive(held, state) and held["mark"] != instead:
                self._bound(state, held)
                raise _journal.refuse_held(self._service, held, state.now)
            taken = kept | _journal.taken(held, kept["epoch"], request, state.now)
            taken["mark"] = secrets.token_hex(8)
            if not self._replace(state, taken, request["ttl"], {}):
                return None
            return _lease(taken, None if ours else held)

        return self._until(attempt)

    def release(self, token: str) -> None:
        def attempt() -> bool | None:
            state = self._read([LEASE])
            held, kept = self._held(state)
            if held is None or held["token"] != token:
                return True
            free = {name: kept[name] for name in ("schema", "epoch", "events", "rollout")}
            return self._replace(state, free, 0.0, {}) or None

        self._until(attempt)

    def erase(self, token: str) -> None:
        def attempt() -> bool | None:
            state = self._read([LEASE])
            held, _kept = self._held(state)
            _journal.check_ours(self._service, held, token, state.now)
            self._remove_all()
            return True

        self._until(attempt)

    def _held(self, state: StoredTexts) -> tuple[Json | None, Json]:
        """Return the lease that is held, expired or not, and what is kept of it always."""
        held, kept = _journal.held(state.texts.get(LEASE), self._where(LEASE), self._service)
        kept = {"schema": _journal.LEASE_SCHEMA, "events": 0, "rollout": "", "mark": "", **kept}
        if held:
            held = kept
            if state.alive is None:
                held["until"] = _journal.latest(held, state.now)
            elif state.alive:  # whatever the clocks of the members say
                held["until"] = max(held["until"], state.now + 1)
        return held, kept

    def _bound(self, state: StoredTexts, held: Json) -> None:
        """Have a lease taken before the clock was set back end by this clock, or it never would."""
        stored = _journal.held(state.texts.get(LEASE), self._where(LEASE), self._service)[0]
        if state.alive is None and stored and stored["until"] > held["until"]:
            self._replace(state, held, held["until"] - state.now, {})

    def _replace(
        self,
        state: StoredTexts,
        lease: Json,
        ttl: float,
        texts: dict[str, str],
        drop: Sequence[str] = (),
    ) -> bool:
        """Write the lease, and texts with it; return False if it was changed since."""
        whole = {LEASE: _journal.joined([lease]), **texts}
        return self._write(Change(LEASE, state.version(LEASE), whole, list(drop), ttl))

    # -- the record and the timeline -----------------------------------------------------------

    def load(self) -> Json:
        return self._checked(lambda: self._record(self._read([RECORD])))

    def commit(
        self,
        token: str,
        ttl: float,
        record: Mapping[str, t.Any] | None = None,
        events: Sequence[Mapping[str, t.Any]] = (),
    ) -> None:
        given = [dict(event) for event in events]
        self._until(lambda: self._commit(token, ttl, record, given) or None)
        if given:
            self._stored = []
        self._doubtful = {}

    def _commit(
        self, token: str, ttl: float, record: Mapping[str, t.Any] | None, events: list[Json]
    ) -> bool:
        """Write, if nothing was written in between; return whether nothing was."""
        owner = [RECORD] if events and record is None else []
        state = self._read([LEASE, TIMELINES, *owner])
        held, _kept = self._held(state)
        held = _journal.check_ours(self._service, held, token, state.now)
        self._stored += self._doubtful.pop(held["mark"], [])
        new = events[len(self._stored) :] if events[: len(self._stored)] == self._stored else events
        mark = secrets.token_hex(8)
        lease = {**held, "until": state.now + ttl, "ttl": ttl, "mark": mark}
        texts: dict[str, str] = {}
        drop: list[str] = []
        if record is not None:
            texts[RECORD] = _journal.joined([_journal.written(record)])
        if new:
            whole = self._record(state) if record is None else record
            rollout = _journal.rollout(self._service, whole.get("id"))
            drop = self._begin(state, lease, rollout, texts)
            lease["events"] += 1
            texts[f"timeline/{rollout}/{lease['events']:012d}"] = _journal.joined(new)
        self._doubtful[mark] = new  # until it is known
        return self._replace(state, lease, ttl, texts, drop)

    def _begin(
        self, state: StoredTexts, lease: Json, rollout: str, texts: dict[str, str]
    ) -> list[str]:
        """Note a rollout's first events; return what begins the names of those too old to keep."""
        if lease["rollout"] == rollout:
            return []
        text = state.texts.get(TIMELINES)
        kept = [id for id in (text or b"").decode().split("\n") if id not in ("", rollout)]
        lease["rollout"] = rollout
        listed = [*kept, rollout]
        texts[TIMELINES] = "".join(f"{id}\n" for id in listed[-_journal.KEEP :])
        return [f"timeline/{id}/" for id in listed[: -_journal.KEEP]]

    def timeline(self, rollout: str) -> Sequence[Json]:
        def read() -> list[Json]:
            prefix = f"timeline/{_journal.rollout(self._service, rollout)}/"
            data = b"".join(self._texts(prefix))
            return _journal.lines(data, self._where(prefix), _journal.EVENT)

        return self._checked(read)

    def _record(self, state: StoredTexts) -> Json:
        return _journal.record(state.texts.get(RECORD), self._where(RECORD))

    # -- operators' commands -------------------------------------------------------------------

    def post(self, command: Mapping[str, t.Any]) -> int:
        new = {**command, "mark": secrets.token_hex(8)}

        def attempt() -> int | None:
            state = self._read([COMMANDS, RECORD])
            obeyed, present = self._record(state).get("obeyed", 0), self._kept_commands(state)
            for kept_command in present:
                if kept_command.get("mark") == new["mark"]:  # it was written, and the answer lost
                    return int(kept_command["number"])
            number, kept = _journal.posted(present, new, obeyed)
            if kept is None:
                return number
            texts = {COMMANDS: _journal.joined(kept)}
            return number if self._write(Change(COMMANDS, state.version(COMMANDS), texts)) else None

        return self._until(attempt)

    def commands(self, after: int) -> Sequence[Json]:
        kept = self._checked(lambda: self._kept_commands(self._read([COMMANDS])))
        return [cleaned(command) for command in kept if command["number"] > after]

    def _kept_commands(self, state: StoredTexts) -> list[Json]:
        return _journal.commands(state.texts.get(COMMANDS, b""), self._where(COMMANDS))

    # -- helpers -------------------------------------------------------------------------------

    def _until(self, attempt: Callable[[], R | None]) -> R:
        """Return what an attempt does; None: another write came in between, so it is made again."""
        for _turn in range(TRIES):
            if (done := self._checked(attempt)) is not None:
                return done
        raise StoreError(
            f"rollout_store: others change the journal of {self._service} all the time; see who"
            " writes there",
            "PR-500",
        )

    @staticmethod
    def _checked(work: Callable[[], R]) -> R:
        """Return what it does; a refusal becomes the exception it is for."""
        try:
            return work()
        except _journal.Refused as exc:
            error, id = _REFUSALS[exc.kind]
            raise error(str(exc), id) from None


def cleaned(command: Mapping[str, t.Any]) -> Json:
    """Return an operator's command with every field that messages show, fit to be shown."""
    shown = {
        key: clean(value) if isinstance(value, str) else value
        for key, value in command.items()
        if key != "mark"
    }
    return {"rollout": "", "word": "", "by": "somebody", **shown}


def _alive(held: Mapping[str, t.Any], state: StoredTexts) -> bool:
    """Return whether a lease is in force."""
    return held["until"] > state.now if state.alive is None else state.alive


def _lease(held: Mapping[str, t.Any], previous: Mapping[str, t.Any] | None = None) -> Lease:
    details = dict(held["details"], previous=dict(previous)) if previous else held["details"]
    return Lease(
        held["token"],
        clean(held["holder"]),
        held["since"],
        held["until"],
        held["epoch"],
        details,
        str(held.get("mark", "")),
    )
