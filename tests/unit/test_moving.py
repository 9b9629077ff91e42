# SPDX-License-Identifier: GPL-3.0-or-later
"""A journal that moves to another store: whole, once, and never usable in two places."""

from __future__ import annotations

import typing as t
from pathlib import Path
from types import SimpleNamespace

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    InputError,
    LeaseHeld,
    StoreError,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.controller.rollout.moving import (
    AT_ONCE,
    Move,
    Moved,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.interfaces.context import (
    DriverContext,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.connections import (
    Connections,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.remote.transport import Transport
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.identity import Identity
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.record import Record
from ansible_collections.progressive.rollout.plugins.plugin_utils.stores.file import OPTIONS, Driver

ME = Identity("mover", "run", "ann@desk pid 1 (store.yml)", {})
EVENTS = {"r1": 3, "r2": 2 * AT_ONCE + 7}


class Killed(BaseException):
    """The run is killed here."""


def store(path: Path) -> Driver:
    transport = Transport(
        Connections({}, SimpleNamespace(timeout=10, password=None, become_pass=None), None)
    )
    return Driver(
        OPTIONS.parse({"path": str(path)}, "rollout_store."), DriverContext("shop", transport)
    )


@pytest.fixture
def old(tmp_path: Path) -> Driver:
    """A journal with a rollout that is over, one that is parked, and commands."""
    made = store(tmp_path / "old")
    made.acquire("a", "ann", 60, {})
    rollout = {"revision": "2", "generation": 2, "replicas": 3, "strategy": "rolling"}
    whole = {**rollout, "previous": None, "started": 1.0}
    record = {"history": [{**whole, "id": "r1", "phase": "finished"}], "obeyed": 1}
    for id, number in EVENTS.items():
        record |= {"rollout": {**whole, "id": id}, "id": id}
        made.commit("a", 60, record, [{"at": 1.0, "n": n} for n in range(number)])
    for command in ("pause", "resume", "skip"):
        made.post({"word": command, "by": "ann", "rollout": "r2"})
    made.release("a")
    return made


def usable(one: Driver) -> bool:
    """Whether a run would go on from here."""
    try:
        return bool(Record.load("shop", one.load(), one.place).rollout)
    except StoreError as exc:
        assert exc.id == "PR-512"
        return False


def everything(one: Driver) -> t.Any:
    obeyed = one.load()["obeyed"]
    return one.load(), {id: list(one.timeline(id)) for id in EVENTS}, list(one.commands(obeyed))


def test_all_of_it_is_there_afterwards_and_the_old_one_says_where(
    old: Driver, tmp_path: Path
) -> None:
    new, before = store(tmp_path / "new"), everything(old)
    epoch = old.acquire("b", "bob", 60, {}, above=9 * 10**13).epoch  # a clock that is ahead
    old.release("b")
    assert Move(old, new, ME).run() == Moved(True, 2, sum(EVENTS.values()), 3)
    assert everything(new) == before
    assert [command["number"] for command in new.commands(1)] == [2, 3, 4]
    assert usable(new) and not usable(old)
    with pytest.raises(StoreError, match=rf"was moved to {tmp_path}/new/.*change rollout_store"):
        Record.load("shop", old.load(), old.place)
    assert old.lease() is None and new.lease() is None
    assert new.acquire("c", "eve", 60, {}).epoch > epoch
    new.release("c")
    assert Move(old, new, ME).run() == Moved(False)
    with pytest.raises(StoreError, match="it was moved to"):
        Move(old, store(tmp_path / "third"), ME).run()


@pytest.mark.parametrize("held", ["old", "new"])
def test_while_a_run_works_on_it_it_is_refused(old: Driver, tmp_path: Path, held: str) -> None:
    new = store(tmp_path / "new")
    {"old": old, "new": new}[held].acquire("b", "bob", 60, {})
    with pytest.raises(LeaseHeld, match="bob"):
        Move(old, new, ME).run()
    assert usable(old) and new.load() == {}


def test_what_is_wrong_is_refused(old: Driver, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="already; give another"):
        Move(old, store(tmp_path / "old"), ME).run()
    with pytest.raises(InputError, match="nothing to move"):
        Move(store(tmp_path / "nothing"), store(tmp_path / "new"), ME).run()
    other = store(tmp_path / "other")
    other.acquire("a", "ann", 60, {})
    other.commit("a", 60, {"id": "x"})
    other.release("a")
    with pytest.raises(StoreError, match="there is a journal of the service already") as told:
        Move(old, other, ME).run()
    assert told.value.id == "PR-513"
    assert usable(old) and other.load() == {"id": "x"}


def test_a_copy_that_differs_is_not_used(
    old: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = store(tmp_path / "new")
    timeline = new.timeline
    monkeypatch.setattr(new, "timeline", lambda id: timeline(id)[:-1])
    with pytest.raises(StoreError, match="is not what was written") as told:
        Move(old, new, ME).run()
    assert told.value.id == "PR-514"
    assert usable(old) and not usable(new)


@pytest.mark.slow
def test_killed_at_any_moment_one_of_them_is_the_journal_and_it_goes_on(
    old: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each operation on either store; the last move is not killed any more."""
    calls, before = [0, 10**9], everything(old)
    ask = Driver._ask

    def killing(self: Driver, op: str, **request: t.Any) -> t.Any:
        if calls[0] >= calls[1]:
            raise Killed
        calls[0] += 1
        return ask(self, op, **request)

    monkeypatch.setattr(Driver, "_ask", killing)
    seen = set()
    for last in range(1, 200):
        new = store(tmp_path / f"new{last}")
        fresh = store(tmp_path / f"old{last}")
        _copy(tmp_path / "old", tmp_path / f"old{last}")
        calls[:] = [0, last]
        try:
            Move(fresh, new, ME).run()
            done = True
        except Killed:
            done = False
        calls[:] = [0, 10**9]
        there = usable(fresh), usable(new)
        seen.add(there)
        assert sum(there) <= 1
        if not done:
            Move(fresh, new, ME).run()
        assert usable(new) and not usable(fresh)
        assert everything(new) == before
        if done:
            break
    assert done and seen == {(True, False), (False, False), (False, True)}


def _copy(source: Path, target: Path) -> None:
    for path in source.rglob("*"):
        if path.is_file():
            copied = target / path.relative_to(source)
            copied.parent.mkdir(parents=True, exist_ok=True)
            copied.write_bytes(path.read_bytes())
