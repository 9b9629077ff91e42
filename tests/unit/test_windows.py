# SPDX-License-Identifier: GPL-3.0-or-later
"""Times in which alone a rollout moves (`rollout_window`), and revisions in their order
(`rollout_order`).
"""

from __future__ import annotations

import typing as t
from datetime import UTC, datetime

import pytest
from ansible_collections.progressive.rollout.plugins.action import begin, control, plan, rollback
from ansible_collections.progressive.rollout.plugins.plugin_utils.base import clock
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import (
    InputError,
    RolloutFailed,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.config import settings
from ansible_collections.progressive.rollout.plugins.plugin_utils.config.freeze import (
    YEAR,
    Freeze,
    closed,
    parse,
    parse_open,
    stopped,
)
from ansible_collections.progressive.rollout.plugins.plugin_utils.engine.model import Phase
from ansible_collections.progressive.rollout.tests.support.memory import Service, World

pytestmark = pytest.mark.usefixtures("virtual_time")

OFFICE = {"cron": "0 9 * * mon-fri", "duration": "8h", "timezone": "Europe/Zurich"}
NIGHT = {"cron": "30 2 * * *", "duration": "1h", "timezone": "Europe/Zurich"}
PAST = {"from": "2020-01-01", "to": "2020-01-02"}


@pytest.fixture
def shop() -> Service:
    """Three instances of revision 1."""
    service = Service(World(most=4, fewest=0), replicas=3)
    service.play(revision="1")
    return service


def at(text: str) -> float:
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def opens(now: str, *windows: dict[str, t.Any]) -> float | None:
    """When the next window opens; None: one is open."""
    found = closed(parse_open([*windows]), at(now))
    return found.until if found else None


# When a rollout may move
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now", "until"),
    [
        ("2026-06-05 06:59:59", "2026-06-05 07:00"),  # a Friday
        ("2026-06-05 07:00", None),
        ("2026-06-05 14:59:59", None),
        ("2026-06-05 15:00", "2026-06-08 07:00"),  # on Monday
        ("2026-10-23 15:30", "2026-10-26 08:00"),  # after clocks were set back
        ("2026-03-27 16:30", "2026-03-30 07:00"),  # after they were set forward
    ],
)
def test_office_hours(now: str, until: str | None) -> None:
    assert opens(now, OFFICE) == (None if until is None else at(until))


def test_a_window_whose_time_is_skipped_opens_right_after() -> None:
    assert opens("2026-03-29 00:59", NIGHT) == at("2026-03-29 01:00")
    assert opens("2026-03-29 01:30", NIGHT) is None
    assert opens("2026-03-29 02:00", NIGHT) == at("2026-03-30 00:30")


def test_a_window_whose_time_comes_twice_opens_once() -> None:
    assert opens("2026-10-25 00:29", NIGHT) == at("2026-10-25 00:30")
    assert opens("2026-10-25 01:29:59", NIGHT) is None
    assert opens("2026-10-25 01:30", NIGHT) == at("2026-10-26 01:30")


def test_of_several_windows_any_will_do() -> None:
    once = {"from": "2026-06-06", "to": "2026-06-06"}
    assert opens("2026-06-06 12:00", OFFICE, once) is None
    assert opens("2026-06-05 20:00", OFFICE, once) == at("2026-06-06")
    assert opens("2026-06-07 12:00", OFFICE, once) == at("2026-06-08 07:00")


def test_always_and_nothing_have_no_end() -> None:
    assert closed(parse_open("always"), 0.0) is None and closed((), 0.0) is None


def test_a_freeze_comes_before_a_window() -> None:
    now = at("2026-06-05 20:00")
    freeze = parse([{"from": "2026-06-05", "to": "2026-06-05", "reason": "audit"}])
    found = stopped(freeze, parse_open([OFFICE]), now)
    assert found == Freeze(at("2026-06-06"), "audit") and str(found) == "frozen: audit"
    later = stopped(freeze, parse_open([OFFICE]), at("2026-06-06 01:00"))
    assert later and later.closed and str(later) == "outside rollout_window"
    open_ = at("2026-06-05 08:00")
    assert stopped(freeze, parse_open([OFFICE]), open_) == Freeze(at("2026-06-06"), "audit")


def test_windows_that_are_over_do_not_open_again() -> None:
    found = closed(parse_open([PAST]), at("2026-06-05"))
    assert found == Freeze(at("2026-06-05") + YEAR, "it does not open again", closed=True)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([], r"rollout_window: \[\] has no window, so that nothing could ever move"),
        ("never", "rollout_window: 'never' has no window"),
        ({"cron": "0 9 * * *"}, "rollout_window: .* has no window"),
        ([{**OFFICE, "duration": "4d"}], r"rollout_window\[0\].duration: '4d' never ends"),
        (
            [{"cron": "0 9 30 2 *", "duration": "8h"}],
            r"rollout_window\[0\].cron: '0 9 30 2 \*'",
        ),
        ([{"cron": "0 9 * * *"}], r"rollout_window\[0\]: given are cron; write either"),
    ],
)
def test_windows_that_are_refused(given: t.Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        settings.parse({"service": "shop", "window": given}, drivers=False)


def between(begin_: float, end: float) -> list[dict[str, str]]:
    """A window from so many seconds before or after now to so many after."""
    stamps = [datetime.fromtimestamp(clock.wall() + s, UTC).isoformat() for s in (begin_, end)]
    return [{"from": stamps[0], "to": stamps[1]}]


def test_outside_its_window_a_rollout_parks_and_says_until_when(shop: Service) -> None:
    given: dict[str, t.Any] = {"revision": "2", "window": between(7200, 9000)}
    result = shop.play(**given)
    assert result["parked"] and "Rerun when a window is open" in result["msg"]
    assert shop.running == {"1": 3}
    assert any("outside rollout_window, for " in s for s in shop.said)
    shown = shop.step(plan, **given)
    assert shown["stopped"].startswith("outside rollout_window, until ")
    assert any(line.startswith("  begins      outside rollout_window") for line in shown["lines"])
    shop.play(**{**given, "window": between(-60, 7200)})
    assert shop.running == {"2": 3}


def test_always_ends_the_limit_and_the_timeline_shows_it(shop: Service) -> None:
    given: dict[str, t.Any] = {"revision": "2", "window": between(7200, 9000)}
    shop.play(**given)
    rollout = shop.journal.open
    assert rollout
    shop.play(**{**given, "window": "always"})
    assert shop.running == {"2": 3}
    resumed = [e for e in shop.timeline(rollout.id) if e["kind"] == "resume"]
    assert [event.get("window") for event in resumed] == ["always"]
    shop.play(revision="3", window="always")
    last = shop.journal.rollout
    assert last
    begun = [e for e in shop.timeline(last.id) if e["kind"] == "begin"]
    assert [event.get("window") for event in begun] == ["always"]


def test_a_rollback_needs_no_window(shop: Service) -> None:
    shop.play(revision="2")
    shop.step(rollback, window=between(7200, 9000))
    assert shop.running == {"1": 3}
    given = {"revision": "3", "window": between(7200, 9000)}
    shop.play(**given)
    shop.step(control, {"command": "abort"}, **given)
    with pytest.raises(RolloutFailed, match="abort"):
        shop.play(**given)
    assert shop.running == {"1": 3}


def test_windows_that_are_over_are_refused_before_anything(shop: Service) -> None:
    calls = len(shop.world.calls)
    with pytest.raises(InputError, match="rollout_window: no window opens within a year"):
        shop.play(revision="2", window=[PAST])
    assert shop.journal.open is None and len(shop.world.calls) == calls


# The order of revisions
# --------------------------------------------------------------------------------------------------

GATE: dict[str, t.Any] = {"gates": {"confirm_rollout": [{"driver": "approval"}]}}


@pytest.fixture
def ordered() -> Service:
    """Revisions 1 and 2 were rolled out, in this order."""
    service = Service(World(most=4, fewest=0), replicas=3)
    service.play(revision="1", order=100)
    service.play(revision="2", order="200")
    return service


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"order": 150}, r"3 \(150\) is older than 2 \(200\), which is stable; roll back"),
        ({"order": 200}, r"3 \(200\) is not newer than 2 \(200\), which is stable"),
        ({}, r"rollout_order: not given, and 2 \(stable\) has 200; give that of 3"),
        ({"order": 150, "supersede": True}, r"3 \(150\) is older than 2"),
    ],
)
def test_an_older_revision_is_refused(
    ordered: Service, given: dict[str, t.Any], words: str
) -> None:
    for step in (begin, plan):
        with pytest.raises(InputError, match=words):
            ordered.step(step, revision="3", **given)
    assert ordered.journal.open is None and ordered.running == {"2": 3}


def test_an_older_revision_does_not_supersede_a_newer_one(ordered: Service) -> None:
    ordered.play(revision="4", order=400, **GATE)
    with pytest.raises(InputError, match=r"3 \(300\) is older than 4 \(400\), which is in progre"):
        ordered.play(revision="3", order=300, supersede=True)
    assert (ordered.journal.open or pytest.fail()).revision == "4"
    ordered.play(revision="5", order=500, supersede=True)
    assert ordered.running == {"5": 3}


def test_the_same_revision_may_always_come_again(ordered: Service) -> None:
    assert "nothing to do" in ordered.play(revision="2")["msg"]
    ordered.step(begin, {"restart": True}, revision="2")
    assert (ordered.journal.open or pytest.fail()).order == 200  # as it was recorded


def test_a_rollout_in_progress_goes_on_without_its_order(ordered: Service) -> None:
    ordered.play(revision="3", order=50, older=True, **GATE)
    rollout = ordered.journal.open
    assert rollout and (rollout.order, rollout.phase) == (50, Phase.PAUSED)
    ordered.say("promote")
    ordered.play(revision="3", **GATE)
    assert ordered.running == {"3": 3}


def test_rollbacks_are_not_in_order(ordered: Service) -> None:
    ordered.step(rollback)
    stable = ordered.journal.stable
    assert ordered.running == {"1": 3} and stable and stable.order == 100
    # what was rolled back may come again, and something older may not
    with pytest.raises(InputError, match=r"0 \(50\) is older than 1 \(100\)"):
        ordered.play(revision="0", order=50)
    ordered.play(revision="2", order=200)
    ordered.step(rollback, {"to": "1"})
    assert ordered.running == {"1": 3}
    assert (ordered.journal.stable or pytest.fail()).order == 100


def test_without_an_order_so_far_any_revision_may_come(shop: Service) -> None:
    shop.play(revision="2", order=5)
    assert (shop.journal.stable or pytest.fail()).order == 5


@pytest.mark.parametrize("given", ["yesterday", -1, 1.5, True, "1" * 19, [1]])
def test_orders_that_are_refused(given: t.Any) -> None:
    with pytest.raises(InputError, match=r"rollout_order: .* is not a whole number"):
        settings.parse({"service": "shop", "order": given}, drivers=False)
