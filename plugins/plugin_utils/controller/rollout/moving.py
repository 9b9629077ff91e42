# SPDX-License-Identifier: GPL-3.0-or-later
"""Move the journal of a service to another store, so that it can be used in one of them only.

Both leases are held meanwhile. The copy is marked as not complete, then the original as moved, then
the mark of the copy is removed: killed at any moment, it is done again from where it was.
"""

from __future__ import annotations

import secrets
import typing as t
from collections.abc import Sequence
from dataclasses import dataclass

from ...base.errors import InputError, StoreError
from ...interfaces.store import StoreDriver
from ...state.identity import Identity
from ...state.record import MOVED

AT_ONCE = 100  # events of a timeline that are written in one step
TTL = 300.0  # seconds for which the leases live; each write renews that of its store
Json = dict[str, t.Any]


@dataclass(frozen=True)
class Moved:
    """What was moved."""

    changed: bool
    rollouts: int = 0
    events: int = 0
    commands: int = 0


class Move:
    """The move of one journal."""

    def __init__(self, source: StoreDriver, target: StoreDriver, me: Identity) -> None:
        self._source, self._target, self._me = source, target, me

    def run(self) -> Moved:
        """Do it; raises LeaseHeld while a run works on the service."""
        if self._source.place == self._target.place:
            raise InputError(
                f"rollout_to_store: the journal is in {self._source.place} already; give another"
                " store",
                "PR-107",
            )
        me = self._me
        epoch = self._source.acquire(me.token, me.holder, TTL, me.details).epoch
        try:
            self._target.acquire(me.token, me.holder, TTL, me.details, above=epoch)
            try:
                return self._move()
            finally:
                self._target.release(me.token)
        finally:
            self._source.release(me.token)

    def _move(self) -> Moved:
        record, target = self._source.load(), self._target.load()
        mark, copy = record.get(MOVED, {}), target.get(MOVED, {})
        if not record:
            raise InputError(
                f"rollout_store: {self._source.place} is not there, so there is nothing to move;"
                " correct rollout_store",
                "PR-113",
            )
        if "to" in mark and copy.get("id") == mark["id"]:
            return self._finish(record, mark)
        if "to" in mark and target and not copy:
            return Moved(changed=False)
        if mark:
            where = f"it was moved to {mark['to']}" if "to" in mark else "it is not complete itself"
            raise StoreError(f"rollout_store: {self._source.place}: {where}", "PR-512")
        if target and not copy:
            raise StoreError(
                f"rollout_to_store: {self._target.place}: there is a journal of the service"
                " already; give another store, or remove it",
                "PR-513",
            )
        return self._copy(record)

    def _copy(self, record: Json) -> Moved:
        """Copy all of it, compare it, and make the copy the journal."""
        id = secrets.token_hex(8)
        partly = {**record, MOVED: {"from": self._source.place, "id": id}}
        self._write(self._target, partly)
        rollouts = _rollouts(record)
        events = sum(self._copy_timeline(rollout, partly) for rollout in rollouts)
        self._write(self._target, partly)
        self._copy_commands(record)
        self._compare(partly, rollouts)
        mark = {"to": self._target.place, "id": id}
        self._write(self._source, {**record, MOVED: mark})
        commands = self._finish(record, mark).commands
        return Moved(True, len(rollouts), events, commands)

    def _finish(self, record: Json, mark: Json) -> Moved:
        """Make the copy the journal; the original is marked as moved."""
        self._copy_commands(record)  # what was sent meanwhile
        plain = {name: value for name, value in record.items() if name != MOVED}
        self._write(self._target, plain)
        if self._target.load() != plain:
            raise self._differs("its record")
        return Moved(True, commands=len(self._commands(self._target, record)))

    def _copy_timeline(self, rollout: str, record: Json) -> int:
        """Append the events that are not there yet; return how many there are."""
        events, copied = self._source.timeline(rollout), self._target.timeline(rollout)
        if list(copied) != list(events[: len(copied)]):
            raise self._differs(f"the timeline of {rollout}")
        for begin in range(len(copied), len(events), AT_ONCE):
            self._write(self._target, {**record, "id": rollout}, events[begin : begin + AT_ONCE])
        return len(events)

    def _copy_commands(self, record: Json) -> None:
        copied = self._commands(self._target, record)
        for command in self._commands(self._source, record)[len(copied) :]:
            self._target.post({key: value for key, value in command.items() if key != "number"})

    @staticmethod
    def _commands(store: StoreDriver, record: Json) -> Sequence[Json]:
        """Return the commands that no run has obeyed yet."""
        return store.commands(int(record.get("obeyed", 0)))

    def _compare(self, record: Json, rollouts: Sequence[str]) -> None:
        source, target = self._source, self._target
        if target.load() != record:
            raise self._differs("its record")
        for rollout in rollouts:
            if list(target.timeline(rollout)) != list(source.timeline(rollout)):
                raise self._differs(f"the timeline of {rollout}")
        if list(self._commands(target, record)) != list(self._commands(source, record)):
            raise self._differs("the list of commands")

    def _differs(self, what: str) -> StoreError:
        return StoreError(
            f"rollout_to_store: {self._target.place}: {what} is not what was written there;"
            " nothing was moved; remove it there, then move again",
            "PR-514",
        )

    def _write(self, store: StoreDriver, record: Json, events: Sequence[Json] = ()) -> None:
        store.commit(self._me.token, TTL, record, events)


def _rollouts(record: Json) -> list[str]:
    """Return the rollouts that the record knows, oldest first: what is shown of others is gone."""
    known = [*record.get("history", ()), record.get("rollout") or {}]
    return list(dict.fromkeys(rollout["id"] for rollout in known if rollout.get("id")))
