# SPDX-License-Identifier: GPL-3.0-or-later
"""Measurements from the load balancers' access logs: each request, with its status and time.

The logs are read where they are written, by an agent that returns numbers. Each measurement has
what was logged since the one before. For conditions the result has `result.new` and
`result.stable`, each with `requests`, `errors`, `error_rate` (0 to 1), and `p50`, `p90`, `p99` and
`p999` in seconds, with an error of at most 2.2 %; without requests these are None. Of
`small_answers` the quantiles are of the bytes of answers.
"""

from __future__ import annotations

import math
import typing as t
from collections.abc import Iterable, Mapping

from ..base.errors import InputError, MetricError
from ..engine.judges.latency import FINE, Histogram
from ..inputs import values
from ..inputs.options import DURATION, PATH, TEXT, Field, Kind, Options, choice
from ..interfaces.context import DriverContext
from ..interfaces.metric import MetricDriver, Question
from ..interfaces.traffic import Served
from ..remote import agents, inventory
from ..remote.inventory import label

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}
TIMEOUT = 30.0  # seconds for one call of the agent
FARTHEST = 2000  # the farthest bucket: 2^(2000/32) seconds or bytes
SMALL = 10  # times as large is the median of stable


def _statuses(given: t.Any, variable: str) -> tuple[str, ...]:
    """Return statuses, or their first digits: `[404, 5xx]` becomes `("404", "5")`."""
    statuses = []
    for status in values.sequence(given, variable, "[5xx, 404]"):
        text = str(status).lower().removesuffix("xx")
        if isinstance(status, bool) or len(text) not in (1, 3) or not text.isascii():
            text = ""
        if (
            not text.isdigit()
            or text[0] not in "12345"
            or (len(text) == 1) == (text == str(status))
        ):
            raise InputError(
                f"{variable}: {status!r} is not a status; write 404, or 5xx for all from 500 to"
                " 599",
                "PR-104",
            )
        statuses.append(text)
    return tuple(statuses)


OPTIONS = Options(
    Field(
        "of",
        choice(
            latency="The time to the first byte of the answer.",
            duration="The time to the end of the answer.",
            errors="Answers with one of C(statuses), and requests without an answer.",
            small_answers=(
                "Answers with status 200 that have less than a tenth of the median size of those of"
                " stable instances."
            ),
        ),
        "What is compared.",
        default="latency",
    ),
    Field(
        "statuses",
        Kind("list", _statuses, elements="str"),
        "Statuses that are errors: V(404), or V(5xx) for all from 500 to 599.",
        default=["5xx"],
    ),
    Field("path", TEXT, "Prefix of the paths of requests that are counted.", default="/"),
    Field(
        "file",
        PATH,
        "The access log on each of C(hosts). The C(access_log) of O(traffic) if not given.",
    ),
    Field(
        "hosts",
        TEXT,
        "Inventory pattern of the hosts with the log. The C(hosts) of O(traffic) if not given.",
    ),
    Field(
        "warm_up",
        DURATION,
        "How long the times of a new instance are not compared after its first request. Of errors,"
        " the time in which those of cold instances fade to a third, at the slowest; V(0s) where"
        " instances are ready when they get requests, so that a verdict need not wait for that.",
        default="60s",
    ),
)


class _Counted(t.TypedDict):
    requests: int
    errors: int
    buckets: dict[str, int]


class _Answer(t.TypedDict):
    """What the agent answers of one log."""

    mark: dict[str, t.Any]
    found: dict[str, _Counted]
    lines: int
    unread: int
    skipped: int


class Driver(MetricDriver):
    """Measures by access logs."""

    counting = True

    def __init__(self, options: Mapping[str, t.Any], context: DriverContext) -> None:
        self._options, self._context = options, context
        self._transport = context.transport.apart()
        file, pattern = options["file"], options["hosts"]
        if file is None:
            if not context.access_log:
                raise InputError(
                    "metric.file: name the access log, or set rollout_traffic.access_log", "PR-102"
                )
            file, pattern = context.access_log.file, pattern or context.access_log.hosts
        self._file = file
        self._hosts = inventory.hosts_or_controller(self._transport, pattern, "metric.hosts")
        self._marks: dict[str, t.Any] = {}  # by host
        self._known: dict[str, str] = {}  # instances, by address, at the last look
        self._first: dict[str, float] = {}  # when a new instance first had requests
        self._cut = 0  # the last change of the share that was seen
        self._sizes = Histogram({})  # of answers of stable

    def begin(self) -> None:
        """Ignore what was logged before."""
        self._read()

    def measure(self, question: Question) -> t.Any:
        changed = self._has_new_share()
        by_name = self._read()
        served = self._context.counters.served
        sides = {"new": {}, "stable": {}}  # type: dict[str, dict[str, _Counted]]
        for name, counted in by_name.items():
            is_new = served[name].generation == question.rollout["generation"]
            sides["new" if is_new else "stable"][name] = counted
        sides["stable"] = _compared(sides["stable"], served, question.rollout)
        hosts = {name: served[name].host for name in by_name}
        if not question.paired:
            return self._result(sides)
        if self._options["of"] == "small_answers":
            sides = self._by_size(sides)
        elif self._options["of"] != "errors":
            return {"times": {**self._times(sides, question.now), "hosts": hosts}}
        if changed and question.counts:  # with two shares, nothing can be compared
            sides = {"new": {}, "stable": {}}
        if question.counts:
            return {"spans": [_span(sides, served, question.now)]}
        rates = {side: _summed(by_name.values()) for side, by_name in sides.items()}
        return {
            side: summed["errors"] / summed["requests"] if summed["requests"] else math.nan
            for side, summed in rates.items()
        }

    def _has_new_share(self) -> bool:
        """Whether the share of the requests changed since the last look."""
        before, cuts = self._cut, self._context.counters.cuts
        self._cut = cuts[-1].number if cuts else 0
        return self._cut != before

    def _read(self) -> dict[str, _Counted]:
        """Return what was logged of each instance since the last look, at all load balancers."""
        served = self._context.counters.served
        now = {
            f"{server.endpoint.address}:{server.endpoint.port}": name
            for name, server in served.items()
        }
        # an address that has another instance since the last look has lines of both
        same = {
            address: name for address, name in now.items() if self._known.get(address, name) == name
        }
        self._known = now
        request = {
            "file": self._file,
            "addresses": sorted(same),
            "errors": list(self._options["statuses"]),
            "path": self._options["path"],
            "whole": self._options["of"] == "duration",
            "sizes": self._options["of"] == "small_answers",
        }
        by_name: dict[str, _Counted] = {}
        for host, answer in self._ask(request).items():
            self._marks[host] = answer["mark"]
            for address, counted in answer["found"].items():
                name = same.get(address, "")
                by_name[name] = _added(by_name.get(name), counted)
        by_name.pop("", None)
        return by_name

    def _ask(self, request: Mapping[str, t.Any]) -> dict[str, _Answer]:
        """Return each agent's answer; raise MetricError if one cannot read its log."""
        asked = {host: {**request, "mark": self._marks.get(host)} for host in self._hosts}
        answers_by_host: dict[str, _Answer] = {}
        for host, answer in self._transport.ask("access_log", asked, TIMEOUT).items():
            where = f"access log on {label(host)}"
            if answer.value is None:
                raise MetricError(f"{where}: {answer.error}", answer.id)
            if isinstance(answer.value.get("error"), str):
                raise MetricError(f"{where}: {answer.value['error'][:300]}", "PR-428")
            answer = agents.shaped(answer, _Answer)
            if answer.value is None:
                raise MetricError(f"{where}: {answer.error}", answer.id)
            answers_by_host[host] = t.cast(_Answer, answer.value)
            lines, unread = answers_by_host[host]["lines"], answers_by_host[host]["unread"]
            if lines and unread == lines:
                raise MetricError(
                    f"{where}: none of {lines:,} lines of {self._file} has the format that is read;"
                    " see the page on analyses",
                    "PR-428",
                )
        return answers_by_host

    def _times(
        self, sides: Mapping[str, Mapping[str, _Counted]], now: float
    ) -> dict[str, dict[str, dict[int, int]]]:
        """Return the buckets of each instance, without those of new ones that are not warm."""
        for name in sides["new"]:
            self._first.setdefault(name, self._context.counters.served[name].first or now)
        return {
            side: {
                name: _buckets(counted)
                for name, counted in by_name.items()
                if side == "stable" or now - self._first[name] >= self._options["warm_up"]
            }
            for side, by_name in sides.items()
        }

    def _by_size(
        self, sides: Mapping[str, Mapping[str, _Counted]]
    ) -> dict[str, dict[str, _Counted]]:
        """Return how many answers each instance gave, and how many small ones as errors."""
        answers = {
            side: {name: Histogram(_buckets(counted)) for name, counted in by_name.items()}
            for side, by_name in sides.items()
        }
        self._sizes = Histogram.sum([self._sizes, *answers["stable"].values()])
        if not self._sizes.buckets:  # nothing to compare with
            return {side: {} for side in sides}
        least = self._sizes.bucket_of(0.5) - math.ceil(FINE * math.log2(SMALL))
        return {
            side: {
                name: {
                    "requests": sizes.count,
                    "errors": sizes.count - sizes.count_over(least - 1),
                    "buckets": {},
                }
                for name, sizes in by_name.items()
            }
            for side, by_name in answers.items()
        }

    def _result(self, sides: Mapping[str, Mapping[str, _Counted]]) -> dict[str, t.Any]:
        """Return both sides, for conditions."""
        if not any(counted["requests"] for counted in sides["new"].values()):
            raise MetricError(
                "no request to the new instances since the last measurement", "PR-427"
            )
        return {side: _described(by_name.values()) for side, by_name in sides.items()}


def _compared(
    stable: dict[str, _Counted], served: Mapping[str, Served], rollout: Mapping[str, t.Any]
) -> dict[str, _Counted]:
    """Return the instances to compare with: the baseline where there is one."""
    baseline = rollout.get("baseline")
    fresh = {
        n: counted for n, counted in stable.items() if baseline and served[n].generation == baseline
    }
    return fresh or stable


def _added(before: _Counted | None, more: _Counted) -> _Counted:
    """Return the sum of what two load balancers logged."""
    if before is None:
        return more
    buckets = dict(before["buckets"])
    for bucket, count in more["buckets"].items():
        buckets[bucket] = buckets.get(bucket, 0) + count
    return {
        "requests": before["requests"] + more["requests"],
        "errors": before["errors"] + more["errors"],
        "buckets": buckets,
    }


def _summed(side: Iterable[_Counted]) -> _Counted:
    total: _Counted = {"requests": 0, "errors": 0, "buckets": {}}
    for counted in side:
        total = _added(total, counted)
    return total


def _buckets(counted: _Counted) -> dict[int, int]:
    """Return the buckets by their numbers; an agent's that are none are left out."""
    buckets = {}
    for bucket, count in counted["buckets"].items():
        if bucket.lstrip("-").isascii() and bucket.lstrip("-").isdigit() and len(bucket) < 6:
            buckets[max(-FARTHEST, min(int(bucket), FARTHEST))] = count
    return buckets


def _span(
    sides: Mapping[str, Mapping[str, _Counted]], served: Mapping[str, Served], now: float
) -> dict[str, dict[str, dict[str, t.Any]]]:
    return {
        side: {
            name: {
                "requests": counted["requests"],
                "errors": counted["errors"],
                "host": served[name].host,
                "age": round(served[name].age(now)),
            }
            for name, counted in counted_by_name.items()
        }
        for side, counted_by_name in sides.items()
    }


def _described(side: Iterable[_Counted]) -> dict[str, t.Any]:
    """Return one side's result for conditions."""
    total = _summed(side)
    requests, errors = total["requests"], total["errors"]
    times = Histogram(_buckets(total))
    return {
        "requests": requests,
        "errors": errors,
        "error_rate": errors / requests if requests else None,
        **{
            name: 2 ** (times.bucket_of(quantile) / FINE) if times.buckets else None
            for name, quantile in QUANTILES.items()
        },
    }
