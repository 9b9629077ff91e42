# SPDX-License-Identifier: GPL-3.0-or-later
"""A store that is away is waited for, as long as is said, and not when the run is to stop."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    Interrupted,
    LeaseHeld,
    LeaseLost,
    StoreAway,
    StoreError,
    StoreGone,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.state import store_retry
from ansible_collections.progressive.rollout.plugins.plugin_utils.state.store_retry import (
    StoreRetry,
)


class Store:
    """Away for a number of calls, or until it has another trouble."""

    def __init__(self, away: int, then: Exception | None = None) -> None:
        self.away, self.then, self.calls = away, then, 0

    def load(self) -> str:
        self.calls += 1
        if self.calls <= self.away:
            raise StoreAway("no route to db1", "PR-508")
        if self.then:
            raise self.then
        return "the record"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that only sleeping moves."""
    times = [0.0]
    monkeypatch.setattr(store_retry.clock, "now", lambda: times[0])
    monkeypatch.setattr(
        store_retry.clock, "sleep", lambda seconds: times.__setitem__(0, times[0] + seconds)
    )
    return times


def made(said: list[str], check: Callable[[], None] = lambda: None) -> StoreRetry:
    return StoreRetry(60, said.append, check)


def test_a_store_that_is_there_is_asked_once_and_nothing_is_said(clock: list[float]) -> None:
    said: list[str] = []
    mine, store = made(said), Store(0)
    assert mine.call(store.load) == "the record"
    assert (store.calls, said, mine.take()) == (1, [], 0)


def test_a_store_that_comes_back_is_waited_for(clock: list[float]) -> None:
    said: list[str] = []
    mine = made(said)
    assert mine.call(Store(9).load) == "the record"
    assert len(said) == 2
    assert "up to 60 s" in said[0] and "no route to db1 [PR-508]" in said[0]
    assert "back after" in said[1]
    assert mine.take() == clock[0] > 0
    assert mine.take() == 0


def test_a_store_that_stays_away_ends_the_run_and_is_not_waited_for_twice(
    clock: list[float],
) -> None:
    mine = made([])
    with pytest.raises(StoreGone, match=r"rollout_progress_deadline \(60 s\).*no route to db1"):
        mine.call(Store(10**6).load)
    assert 60 < clock[0] < 62
    store = Store(10**6)
    with pytest.raises(StoreAway):
        mine.call(store.load)
    assert store.calls == 1


def test_a_store_that_never_answered_is_waited_for_as_long_as_it_takes_to_start(
    clock: list[float],
) -> None:
    """Its address may be wrong, which no wait cures."""
    said: list[str] = []
    first = StoreRetry(60, said.append, lambda: None, known=False)
    with pytest.raises(StoreGone, match=r"within 10 s.*correct rollout_store.*no route to db1"):
        first.call(Store(10**6).load)
    assert 10 < clock[0] < 11
    assert "up to 10 s" in said[0]
    impatient = StoreRetry(2, said.append, lambda: None, known=False)
    with pytest.raises(StoreGone, match="within 2 s"):
        impatient.call(Store(10**6).load)


@pytest.mark.parametrize("answer", [None, LeaseHeld("held by somebody")])
def test_a_store_that_answered_once_is_the_right_one(
    clock: list[float], answer: Exception | None
) -> None:
    mine = StoreRetry(60, [].append, lambda: None, known=False)
    with suppress(LeaseHeld):
        mine.call(Store(9, answer).load)
    assert mine.call(Store(100).load) == "the record"


@pytest.mark.parametrize("trouble", [LeaseLost("gone"), StoreError("damaged", "PR-506")])
def test_what_is_not_cured_by_waiting_is_raised_at_once(
    clock: list[float], trouble: Exception
) -> None:
    with pytest.raises(type(trouble)):
        made([]).call(Store(0, trouble).load)
    with pytest.raises(type(trouble)):
        made([]).call(Store(3, trouble).load)
    assert clock[0] < 3


def test_a_run_that_is_to_stop_does_not_wait(clock: list[float]) -> None:
    def stop() -> None:
        raise Interrupted("SIGTERM")

    with pytest.raises(Interrupted):
        made([], stop).call(Store(10**6).load)
    assert clock[0] == 0


def test_a_wait_that_lasts_has_a_line_each_minute(clock: list[float]) -> None:
    said: list[str] = []
    mine = StoreRetry(600, said.append, lambda: None)
    assert mine.call(Store(300).load) == "the record"
    assert [line.partition(":")[0] for line in said] == [
        "waiting for the journal, up to 10 min 00 s; nothing is changed meanwhile",
        "still waiting for the journal, for 60 s",
        "still waiting for the journal, for 2 min 00 s",
        "the journal is back after 2 min 30 s; going on",
    ]
