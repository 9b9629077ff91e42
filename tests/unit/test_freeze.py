# SPDX-License-Identifier: GPL-3.0-or-later
"""Freeze windows: as people write them, and when they hold. Compared with a walk along the
minutes of two weeks.
"""

from __future__ import annotations

import functools
import sys
import typing as t
import zoneinfo
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from ansible_collections.progressive.rollout.plugins.plugin_utils.base.errors import InputError
from ansible_collections.progressive.rollout.plugins.plugin_utils.config.freeze import (
    YEAR,
    Freeze,
    frozen,
    parse,
)
from ansible_collections.progressive.rollout.tests.support.seeds import examples
from hypothesis import example, given
from hypothesis import strategies as st

ZURICH = "Europe/Zurich"


def at(text: str) -> float:
    """Seconds since the epoch of a time with its offset, or of UTC."""
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def one(**window: t.Any) -> tuple[float, float]:
    """Begin and end of a range."""
    (parsed,) = parse([{name.rstrip("_"): value for name, value in window.items()}])
    ((begin, end, _reason),) = parsed.spans(0.0)
    return begin, end


# As people write them
# -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [None, [], ()])
def test_no_windows(value: t.Any) -> None:
    assert parse(value) == ()
    assert frozen((), 0.0) is None


def test_a_date_is_the_whole_day() -> None:
    assert one(from_="2026-12-20", to="2027-01-03") == (at("2026-12-20"), at("2027-01-04"))
    assert one(from_="2026-12-20", to="2026-12-20", timezone=ZURICH) == (
        at("2026-12-20T00:00+01:00"),
        at("2026-12-21T00:00+01:00"),
    )


def test_a_date_ends_before_the_midnight_that_clocks_show_twice() -> None:
    """At 01:00 of the next day they are set back to its midnight."""
    (begin, end) = one(from_="2026-10-30", to="2026-10-31", timezone="America/Havana")
    assert (begin, end) == (at("2026-10-30T00:00-04:00"), at("2026-11-01T00:00-04:00"))


def test_a_date_time_is_that_moment() -> None:
    local = one(from_="2026-12-24 16:00", to="2026-12-24T18:00", timezone=ZURICH)
    assert local == (at("2026-12-24 15:00"), at("2026-12-24 17:00"))
    assert one(from_="2026-12-24 16:00+01:00", to="2026-12-24T17:00Z") == local
    assert (
        one(from_="2026-12-24 16:00+01:00", to="2026-12-24T17:00Z", timezone="Asia/Tokyo") == local
    )


def test_dates_of_yaml_read_as_their_text_does() -> None:
    begin, end = date(2026, 12, 20), datetime(2026, 12, 24, 16, tzinfo=UTC)
    assert (
        one(from_=begin, to=end)
        == one(from_=str(begin), to=str(end))
        == (at("2026-12-20"), at("2026-12-24 16:00"))
    )
    midnight = datetime(2026, 12, 24)
    assert (
        one(from_=begin, to=midnight)
        == one(from_=begin, to=str(midnight))
        == (at("2026-12-20"), at("2026-12-24"))
    )


RANGE: dict[t.Any, t.Any] = {"from": "2026-12-20", "to": "2027-01-03"}
CRON = {"cron": "0 16 * * fri", "duration": "64h"}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (RANGE, "rollout_freeze: expected a list"),
        ("2026-12-20", "rollout_freeze: expected a list"),
        ([RANGE, "2026-12-20"], "rollout_freeze[1]: expected a mapping"),
        ([{}], "rollout_freeze[0]: given are nothing"),
        ([{"from": "2026-12-20"}], "rollout_freeze[0]: given are from;"),
        ([{"cron": "0 0 * * *"}], "rollout_freeze[0]: given are cron;"),
        ([{**RANGE, "duration": "1h"}], "rollout_freeze[0]: given are duration, from, to;"),
        ([{**RANGE, **CRON}], "rollout_freeze[0]: given are cron, duration, from, to;"),
        ([{**RANGE, "timezon": "UTC"}], "did you mean rollout_freeze[0].timezone?"),
        ([RANGE, {**RANGE, 7: 1}], "rollout_freeze[1].7: unknown option"),
        ([{**RANGE, "reason": ["a"]}], "rollout_freeze[0].reason: expected a string, got list"),
        (
            [RANGE, {**RANGE, "timezone": "europe/zurich"}],
            "rollout_freeze[1].timezone: 'europe/zurich' is not a time zone; did you",
        ),
        (
            [{**RANGE, "timezone": "../../etc/passwd"}],
            "rollout_freeze[0].timezone: '../../etc/passwd' is not a time zone;",
        ),
        ([{**RANGE, "timezone": 2}], "rollout_freeze[0].timezone: 2 is not a time zone;"),
        ([{**RANGE, "from": "20.12.2026"}], "rollout_freeze[0].from: '20.12.2026' is not a date"),
        ([{**RANGE, "from": "2026-02-29"}], "rollout_freeze[0].from: '2026-02-29' is not a date"),
        ([{**RANGE, "to": None}], "rollout_freeze[0]: given are from, to;"),
        ([{**RANGE, "to": "9999-12-31"}], "rollout_freeze[0].to: '9999-12-31' is not a date"),
        (
            [{**RANGE, "to": "2026-12-19"}],
            "rollout_freeze[0].to: '2026-12-19' is not after from ('2026-12-20')",
        ),
        ([{"from": "2026-12-20 10:00", "to": "2026-12-20 10:00"}], "is not after from"),
        (
            [{**CRON, "cron": "0 16 * *"}],
            "rollout_freeze[0].cron: '0 16 * *' is not a cron expression; write five fields",
        ),
        (
            [{**CRON, "cron": "0 0 16 * * fri"}],
            "'0 0 16 * * fri' is not a cron expression; write five fields",
        ),
        ([{**CRON, "cron": "@daily"}], "'@daily' is not a cron expression"),
        (
            [{**CRON, "cron": "0 25 * * *"}],
            "'0 25 * * *' is not a cron expression (Bad hour); write five fields",
        ),
        ([{**CRON, "cron": "*/" + "9" * 5000 + " * * * *"}], "is not a cron expression"),
        ([{**CRON, "cron": None}], "rollout_freeze[0]: given are cron, duration;"),
        (
            [{**CRON, "cron": "0 0 30 2 *"}],
            "rollout_freeze[0].cron: '0 0 30 2 *' is not a cron expression (Bad day-of-month)",
        ),
        (
            [{**CRON, "cron": "0 0 LW * */7"}],
            "rollout_freeze[0].cron: '0 0 LW * */7' never begins;",
        ),
        ([{**CRON, "duration": 0}], "rollout_freeze[0].duration: 0 is too short"),
        ([{**CRON, "duration": "soon"}], "rollout_freeze[0].duration: 'soon' is not a duration"),
        ([{**CRON, "duration": "367d"}], "rollout_freeze[0].duration: '367d' is too long"),
        (
            [{**CRON, "duration": "7d"}],
            "rollout_freeze[0].duration: '7d' never ends, since '0 16 * * fri' begins again",
        ),
    ],
)
def test_what_is_wrong_is_refused_by_name(value: t.Any, said: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(value)
    assert said in str(caught.value)


def test_another_variable_is_named() -> None:
    with pytest.raises(InputError, match=r"^freeze\[0\]\.to: "):
        parse([{**RANGE, "to": "never"}], "freeze")


def test_without_cronsim_only_cron_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cronsim", None)
    assert len(parse([RANGE])) == 1
    with pytest.raises(InputError, match=r"^rollout_freeze\[1\]\.cron: .*pip install cronsim"):
        parse([RANGE, CRON])


@pytest.fixture
def no_time_zones(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine without time zone data."""
    for name in {"tzdata", *(one for one in sys.modules if one.startswith("tzdata."))}:
        monkeypatch.setitem(sys.modules, name, None)
    zoneinfo.reset_tzpath(to=[])
    ZoneInfo.clear_cache()
    yield
    zoneinfo.reset_tzpath()


@pytest.mark.usefixtures("no_time_zones")
def test_without_time_zone_data_utc_works() -> None:
    assert len(parse([RANGE, {**CRON, "timezone": "UTC"}])) == 2
    with pytest.raises(
        InputError, match=r"'Europe/Zurich' is not a time zone; .* install the package tzdata"
    ):
        parse([{**RANGE, "timezone": ZURICH}])


# When they hold
# --------------------------------------------------------------------------------------------------


def test_a_range_holds_from_its_begin_to_before_its_end() -> None:
    windows = parse([{**RANGE, "reason": "year's\n end"}])
    freeze = Freeze(at("2027-01-04"), "year's end")
    assert frozen(windows, at("2026-12-20") - 0.001) is None
    assert frozen(windows, at("2026-12-20")) == freeze
    assert frozen(windows, at("2027-01-04") - 0.001) == freeze
    assert frozen(windows, at("2027-01-04")) is None


def test_cron_holds_for_its_duration() -> None:
    windows = parse([CRON])
    freeze = Freeze(at("2026-06-08 08:00"), "rollout_freeze[0]")
    assert frozen(windows, at("2026-06-05 16:00") - 0.001) is None
    assert frozen(windows, at("2026-06-05 16:00")) == freeze
    assert frozen(windows, at("2026-06-08 08:00") - 0.001) == freeze
    assert frozen(windows, at("2026-06-08 08:00")) is None


def test_one_waits_once_for_windows_that_overlap_or_adjoin() -> None:
    windows = parse(
        [
            {"from": "2026-06-09", "to": "2026-06-09", "reason": "after a gap"},
            {"from": "2026-06-08 08:00", "to": "2026-06-08 12:00", "reason": "adjoins"},
            {**CRON, "reason": "weekend"},
            {"from": "2026-06-05 12:00", "to": "2026-06-05 18:00", "reason": "overlaps"},
        ]
    )
    assert frozen(windows, at("2026-06-05 12:00")) == Freeze(at("2026-06-08 12:00"), "overlaps")
    assert frozen(windows, at("2026-06-05 17:00")) == Freeze(at("2026-06-08 12:00"), "weekend")
    assert frozen(windows, at("2026-06-08 08:00")) == Freeze(at("2026-06-08 12:00"), "adjoins")
    assert frozen(windows, at("2026-06-08 12:00")) is None


def test_windows_that_never_leave_a_gap_are_followed_for_a_year() -> None:
    windows = parse(
        [{"cron": "0 0 * * *", "duration": "12h"}, {"cron": "0 12 * * *", "duration": "12h"}]
    )
    now = at("2026-06-05 16:00")
    freeze = frozen(windows, now)
    assert freeze is not None and now + YEAR < freeze.until <= now + YEAR + 86400


def test_a_window_that_began_long_ago_is_found() -> None:
    windows = parse([{"cron": "* 3 1 1 *", "duration": "300d"}])
    assert frozen(windows, at("2026-10-20")) == Freeze(
        at("2026-01-01 03:59") + 300 * 86400, "rollout_freeze[0]"
    )
    assert frozen(windows, at("2026-12-20")) is None


# Clocks are set: in Zurich on 29 March 2026 from 02:00 to 03:00, on 25 October from 03:00 to 02:00


@pytest.mark.parametrize(
    ("begin", "end", "first", "last"),
    [
        ("2026-03-29", "2026-03-29", "2026-03-29T00:00+01:00", "2026-03-30T00:00+02:00"),
        ("2026-10-25", "2026-10-25", "2026-10-25T00:00+02:00", "2026-10-26T00:00+01:00"),
        (
            "2026-03-29 02:30",
            "2026-03-29 02:45",
            "2026-03-29T03:30+02:00",
            "2026-03-29T03:45+02:00",
        ),
        (
            "2026-10-25 02:30",
            "2026-10-25 02:30",
            "2026-10-25T02:30+02:00",
            "2026-10-25T02:30+01:00",
        ),
    ],
    ids=["day of 23 hours", "day of 25 hours", "skipped", "twice"],
)
def test_ranges_are_of_local_time(begin: str, end: str, first: str, last: str) -> None:
    assert one(from_=begin, to=end, timezone=ZURICH) == (at(first), at(last))


def test_a_day_that_begins_at_one() -> None:
    assert one(from_="2026-09-06", to="2026-09-06", timezone="America/Santiago") == (
        at("2026-09-06T04:00Z"),
        at("2026-09-07T03:00Z"),
    )


@pytest.mark.parametrize(
    ("cron", "first", "last"),
    [
        ("0 16 28 3 *", "2026-03-28T16:00+01:00", "2026-03-29T17:00+02:00"),
        ("0 16 24 10 *", "2026-10-24T16:00+02:00", "2026-10-25T15:00+01:00"),
        ("30 2 29 3 *", "2026-03-29T03:00+02:00", "2026-03-30T03:00+02:00"),
        ("30 2 25 10 *", "2026-10-25T02:30+02:00", "2026-10-26T01:30+01:00"),
    ],
    ids=["over the skipped hour", "over the hour that comes twice", "skipped", "twice"],
)
def test_cron_begins_by_the_clock_and_lasts_real_time(cron: str, first: str, last: str) -> None:
    windows = parse([{"cron": cron, "duration": "24h", "timezone": ZURICH, "reason": "r"}])
    assert at(last) - at(first) == 86400
    assert frozen(windows, at(first) - 1) is None
    for now in (at(first), at(first) + 3000, at(first) + 7000, at(last) - 1):
        assert frozen(windows, now) == Freeze(at(last), "r")
    assert frozen(windows, at(last)) is None


def test_every_minute_is_also_every_minute_of_the_hour_that_comes_twice() -> None:
    # 24:00 becomes 23:00
    windows = parse([{"cron": "* * * * sat", "duration": "60m", "timezone": "America/Santiago"}])
    end = at("2026-04-05T00:59-04:00")
    assert (
        frozen(windows, at("2026-04-05T00:05-04:00"))
        == frozen(windows, at("2026-04-04T23:30-04:00"))
        == Freeze(end, "rollout_freeze[0]")
    )


# Compared with a walk along the minutes
# --------------------------------------------------------------------------------

MINUTES = 14 * 1440
WEEKS = [
    ("UTC", "2026-06-01"),
    (ZURICH, "2026-03-24"),
    (ZURICH, "2026-10-20"),
    ("America/Havana", "2026-10-27"),  # 01:00 becomes 00:00
    ("America/Santiago", "2026-04-01"),  # 24:00 becomes 23:00
    ("America/Santiago", "2026-09-02"),  # 24:00 becomes 01:00
    ("Australia/Lord_Howe", "2026-04-01"),  # by half an hour
    ("Australia/Lord_Howe", "2026-09-30"),
]


@functools.cache
def clocks(zone: str, day: str) -> list[list[datetime]]:
    """What the clock shows at each minute: first what it skipped, then what is there; nothing
    where it shows it again.
    """
    shown: list[list[datetime]] = []
    before: datetime | None = None
    for minute in range(MINUTES):
        clock = datetime.fromtimestamp(at(day) + 60 * minute, ZoneInfo(zone))
        wall = clock.replace(tzinfo=None)
        skipped = 0 if before is None or clock.fold else (wall - before) // timedelta(minutes=1) - 1
        shown.append(
            []
            if clock.fold
            else [wall - timedelta(minutes=back) for back in range(max(skipped, 0), -1, -1)]
        )
        before = wall
    return shown


class Walk:
    """Which of the minutes of two weeks are frozen, by looking at the local clock of each."""

    def __init__(self, zone: str, day: str) -> None:
        self.zone, self.begin, self.clocks = zone, at(day), clocks(zone, day)
        self.frozen = [False] * MINUTES

    def cron(self, minute: int, hours: set[int], days: set[int], duration: int) -> dict[str, t.Any]:
        """Freeze from each of these times of day on, for so many minutes; return the window.

        A time of day begins once: when its clock comes for the first time, or would have come.
        """
        for number, walls in enumerate(self.clocks):
            if any(
                wall.minute == minute and wall.hour in hours and wall.isoweekday() % 7 in days
                for wall in walls
            ):
                self.frozen[number : number + duration] = [True] * len(
                    self.frozen[number : number + duration]
                )
        cron = f"{minute} {','.join(map(str, hours))} * * {','.join(map(str, days))}"
        return {"cron": cron, "duration": f"{duration}m", "timezone": self.zone}

    def range(self, first: date, last: date) -> dict[str, t.Any]:
        """Freeze all minutes of some days, those that come twice included; return the window."""
        wall = self.clocks[0][0]
        for minute, walls in enumerate(self.clocks):
            wall = walls[-1] if walls else wall
            if first <= wall.date() <= last:
                self.frozen[minute] = True
        return {"from": first, "to": str(last), "timezone": self.zone}


@st.composite
def walks(draw: st.DrawFn) -> tuple[Walk, list[dict[str, t.Any]]]:
    walk = Walk(*draw(st.sampled_from(WEEKS)))
    windows: list[dict[str, t.Any]] = []
    for _number in range(draw(st.integers(1, 3))):
        if draw(st.booleans()):
            days = draw(st.sets(st.integers(0, 6), min_size=1, max_size=5))
            hours = draw(st.sets(st.integers(0, 3) | st.integers(0, 23), min_size=1, max_size=3))
            minute, duration = draw(st.sampled_from([0, 15, 30, 59])), draw(st.integers(1, 26 * 60))
            windows.append(walk.cron(minute, hours, days, duration))
        else:
            first = walk.clocks[0][0].date() + timedelta(days=draw(st.integers(0, 8)))
            windows.append(walk.range(first, first + timedelta(days=draw(st.integers(0, 3)))))
    return walk, windows


def longer_than_the_walk() -> tuple[Walk, list[dict[str, t.Any]]]:
    """A range that fills the gap between two weeks of another window."""
    walk = Walk("UTC", "2026-06-01")
    weekly = walk.cron(0, {0, 1, 3}, {0, 1, 2, 3, 6}, 26 * 60)
    return walk, [weekly, walk.range(date(2026, 6, 11), date(2026, 6, 12))]


def for_ever() -> tuple[Walk, list[dict[str, t.Any]]]:
    """Two windows, each of which fills the gaps of the other."""
    walk = Walk("UTC", "2026-06-01")
    return walk, [walk.cron(0, {0}, days, 24 * 60) for days in ({0, 1, 2, 3}, {4, 5, 6})]


@examples(40)
@given(walks(), st.integers(0, 96))
@example(longer_than_the_walk(), 0)
@example(for_ever(), 0)
@pytest.mark.slow
def test_frozen_is_what_a_walk_along_the_minutes_finds(
    case: tuple[Walk, list[dict[str, t.Any]]], offset: int
) -> None:
    walk, given_windows = case
    try:
        windows = parse(given_windows)
    except InputError:
        assert all(walk.frozen[7 * 1440 :]), "what never ends is refused, and nothing else"
        return
    # two days on, all that is in force began within the walk
    for minute in range(2 * 1440 + offset, 9 * 1440, 97):
        now = walk.begin + 60 * minute
        freeze = frozen(windows, now)
        end = next((number for number in range(minute, MINUTES) if not walk.frozen[number]), None)
        if end is None:  # it lasts longer than the walk, or for ever: of several windows, it may
            assert freeze and freeze.until >= walk.begin + 60 * MINUTES, walk.clocks[minute]
        else:
            assert (freeze.until if freeze else now) == walk.begin + 60 * end, walk.clocks[minute]
        assert freeze is None or frozen(windows, freeze.until) is None or freeze.until > now + YEAR
