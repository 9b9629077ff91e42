# SPDX-License-Identifier: GPL-3.0-or-later
"""Times in which a rollout must not move (`rollout_freeze`), and those in which alone it may
(`rollout_window`). The caller passes the present time.

Moments are seconds since the epoch. A window is a range of local times or begins at each time of a
cron expression.
"""

from __future__ import annotations

import difflib
import heapq
import typing as t
import zoneinfo
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from operator import itemgetter

from ..base.errors import InputError
from ..inputs import values
from ..inputs.options import RAW, TEXT, Field, Kind, Options, duration

HOUR, DAY, YEAR = 3600.0, 86400.0, 366 * 86400.0
YEARS = range(1970, 3000)  # beyond them `datetime` and others' programs overflow

Span = tuple[float, float, str]  # begins, ends, the reason


ALWAYS = "always"


@dataclass(frozen=True)
class Freeze:
    """Nothing may move before `until`, because of `reason`."""

    until: float
    reason: str
    closed: bool = False  # no window is open; otherwise it is frozen

    def __str__(self) -> str:
        """Return the state and its reason, for people."""
        if not self.closed:
            return f"frozen: {self.reason}"
        where = "" if self.reason.startswith("rollout_window") else f": {self.reason}"
        return f"outside rollout_window{where}"


@dataclass(frozen=True)
class Range:
    """Once, from `begin` to before `end`."""

    begin: float
    end: float
    reason: str

    def spans(self, now: float) -> Iterator[Span]:
        """Yield the range itself; `now` is unused."""
        yield self.begin, self.end, self.reason


@dataclass(frozen=True)
class Cron:
    """Recurring: begins at each time of `expression` in `zone`, and lasts `duration` seconds."""

    expression: str
    zone: tzinfo
    duration: float
    reason: str

    def spans(self, now: float) -> Iterator[Span]:
        """Yield the windows by their begin, from the last one begun by `now` or before it."""
        # near ones first: there may be one every minute of a year
        for back in (HOUR, DAY, self.duration):
            since = now - min(back, self.duration)
            if next(self.starts(since), now + 1) <= now:
                break
        return ((start, start + self.duration, self.reason) for start in self.starts(since))

    def starts(self, after: float) -> Iterator[float]:
        """Yield all begins after that moment.

        Where clocks were set back, perhaps some before it, too.
        """
        from cronsim import CronSim

        return (
            moment.timestamp()
            for moment in CronSim(self.expression, datetime.fromtimestamp(after, self.zone))
        )


Window = Range | Cron


def frozen(windows: Iterable[Window], now: float) -> Freeze | None:
    """Return the freeze in force at `now`, or None.

    Its end is that of the last window which overlaps or adjoins, so that one waits once. Windows
    that adjoin for more than a year are not followed further. Its reason is that of the window in
    force, of several the one that lasts longest.
    """
    until, reason = now, ""
    for begin, end, why in heapq.merge(
        *(window.spans(now) for window in windows), key=itemgetter(0)
    ):
        if begin > until or until > now + YEAR:
            break
        if end > until:
            until, reason = end, why if begin <= now else reason
    return Freeze(until, reason) if until > now else None


def closed(windows: Iterable[Window], now: float) -> Freeze | None:
    """Return until when no window is open; None: one is, or there are none."""
    opens = []
    for window in windows:
        for begin, end, reason in window.spans(now):
            if begin <= now < end:
                return None
            if begin > now:
                opens.append((begin, reason))
                break
    if opens:
        return Freeze(*min(opens), closed=True)
    return Freeze(now + YEAR, "it does not open again", closed=True) if windows else None


def stopped(freeze: Iterable[Window], windows: Iterable[Window], now: float) -> Freeze | None:
    """Return why nothing may move now; a freeze comes before a window."""
    return frozen(freeze, now) or closed(windows, now)


def _zone(value: t.Any, variable: str) -> tzinfo:
    if value is None or value == "UTC":
        return UTC  # needs no data
    try:
        return zoneinfo.ZoneInfo(str(value))
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        known = zoneinfo.available_timezones()
    if not known:
        hint = "no time zones are installed: install the package tzdata, of the system or of PyPI"
    else:
        near = difflib.get_close_matches(str(value), known, n=1)
        hint = f"did you mean {near[0]}?" if near else 'write a name such as "Europe/Zurich"'
    raise InputError(f"{variable}: {value!r} is not a time zone; {hint}", "PR-124")


WINDOW = Options(
    Field("from", RAW, "The beginning, a date or a date and time (V(2026-12-24 16:00))."),
    Field("to", RAW, "The end, written likewise. A date includes the whole day."),
    Field(
        "cron",
        TEXT,
        "Five cron fields. Needs the Python package C(cronsim) on the controller.",
    ),
    Field("duration", duration(60.0), "How long it lasts."),
    Field("timezone", Kind("str", _zone), "Name of the time zone.", default="UTC"),
    Field("reason", Kind("str", values.line), "Reason, shown while the rollout waits."),
)


def parse(value: t.Any, variable: str = "rollout_freeze") -> tuple[Window, ...]:
    """Return the windows of a list: each has `from` and `to`, or `cron` and `duration`."""
    windows = values.sequence(
        value or (), variable, "windows, each with from and to, or cron and duration"
    )
    return tuple(_window(item, f"{variable}[{index}]") for index, item in enumerate(windows))


def parse_open(value: t.Any, variable: str = "rollout_window") -> tuple[Window, ...]:
    """Return the windows in which a rollout may move; none for `always`."""
    if value == ALWAYS:
        return ()
    if not isinstance(value, list) or not value:
        raise InputError(
            f"{variable}: {values.shown(value)} has no window, so that nothing could ever move;"
            f' write [{{cron: "0 9 * * mon-fri", duration: 8h}}], or {ALWAYS}',
            "PR-124",
        )
    return parse(value, variable)


def _window(given: t.Any, variable: str) -> Window:
    given = values.mapping(given, variable, "from and to, or cron and duration")
    value = WINDOW.parse(given, f"{variable}.")
    kind = {"cron", "duration"} if "cron" in given else {"from", "to"}
    if set(given) - {"timezone", "reason"} != kind or any(value[name] is None for name in kind):
        names = ", ".join(sorted(map(str, given))) or "nothing"
        raise InputError(
            f"{variable}: given are {names}; write either from and to, or cron and duration",
            "PR-124",
        )
    zone, reason = value["timezone"], value["reason"] or variable
    if "cron" in kind:
        return _cron(value, variable, zone, reason)
    begin = _begin(value["from"], f"{variable}.from", zone)
    end = _end(value["to"], f"{variable}.to", zone)
    if end <= begin:
        raise InputError(
            f"{variable}.to: {str(value['to'])!r} is not after from ({str(value['from'])!r}); swap"
            " or correct them",
            "PR-124",
        )
    return Range(begin, end, reason)


def _begin(value: t.Any, variable: str, zone: tzinfo) -> float:
    """Return when a range begins: of a time that clocks show twice, the first."""
    local = _local(value, variable)
    moment = local if isinstance(local, datetime) else datetime.combine(local, time())
    return _seconds(moment, zone)


def _end(value: t.Any, variable: str, zone: tzinfo) -> float:
    """Return when a range ends: a date with its last moment.

    If clocks show the time twice, it is the second one. Of a midnight that clocks show twice it is
    the one that the date comes before: they may have been set back to it from 01:00 of the next
    day, as in Havana, or from 00:30 to 23:30.
    """
    local = _local(value, variable)
    if isinstance(local, datetime):
        return max(_seconds(local, zone), _seconds(local.replace(fold=1), zone))
    midnight = datetime.combine(local, time()) + timedelta(days=1)
    first, second = _seconds(midnight, zone), _seconds(midnight.replace(fold=1), zone)
    comes_again = datetime.fromtimestamp(second - 1, zone).date() == local
    return max(first, second) if comes_again else first


def _local(value: t.Any, variable: str) -> date | datetime:
    """Return a date, or a date and time, of their text or as YAML reads them."""
    for read in (date.fromisoformat, datetime.fromisoformat):
        try:
            local = read(str(value).strip())
        except ValueError:
            continue
        if local.year in YEARS:
            return local
    raise InputError(
        f'{variable}: {str(value)!r} is not a date; write "2026-12-24", "2026-12-24 16:00" or'
        f' "2026-12-24T16:00+01:00", between {YEARS[0]} and {YEARS[-1]}',
        "PR-124",
    )


def _seconds(moment: datetime, zone: tzinfo) -> float:
    return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp()


def _cron(value: Mapping[str, t.Any], variable: str, zone: tzinfo, reason: str) -> Cron:
    expression, lasts = value["cron"], value["duration"]
    window = Cron(expression, zone, lasts, reason)
    first = _first(window, f"{variable}.cron")
    freeze = frozen((window,), first)
    if freeze and freeze.until > first + YEAR:
        raise InputError(
            f"{variable}.duration: {values.units(lasts)!r} never ends, since {expression!r} begins"
            " again before it is over; shorten it",
            "PR-124",
        )
    return window


def _first(window: Cron, variable: str) -> float:
    """Return the first begin in this century, to try the expression."""
    try:
        from cronsim import CronSimError
    except ImportError:
        raise InputError(
            f"{variable}: {window.expression!r} needs the Python package cronsim; install it beside"
            " ansible-core (pip install cronsim), or write from and to",
            "PR-117",
        ) from None
    fields = (
        'write five fields, as "0 16 * * fri": minute, hour, day of the month, month, day of the'
        " week"
    )
    if len(window.expression.split()) != 5:  # cronsim would take a sixth, for seconds
        raise InputError(
            f"{variable}: {window.expression!r} is not a cron expression; {fields}", "PR-124"
        )
    try:
        first = next(window.starts(datetime(2001, 1, 1, tzinfo=UTC).timestamp()), None)
    except (CronSimError, ValueError) as exc:
        raise InputError(
            f"{variable}: {window.expression!r} is not a cron expression ({exc}); {fields}",
            "PR-124",
        ) from None
    if first is None:
        raise InputError(
            f"{variable}: {window.expression!r} never begins; there is no such day", "PR-124"
        )
    return first
