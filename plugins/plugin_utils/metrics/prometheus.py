# SPDX-License-Identifier: GPL-3.0-or-later
"""Measurements from Prometheus, or from a service with its API.

Each is an instant query, by the server's clock, of the present value or of those of a `range`.

For conditions the result is a number (of a scalar) or a list of numbers (of a vector, even with one
element). A judge that compares gets the numbers of both revisions from the same query, told apart
by `label`, so both are of the same moment.

`errors` and `requests`, instead of `query`, count since the analysis began, for each revision; both
are sent as one query. A revision with requests and without a series of errors had no error: most
programs make that series with the first one.

`{service}`, `{revision}`, `{stable}`, `{previous}`, `{step}`, `{start}`, `{elapsed}` (with its
unit) and `{id}` are placeholders; every other brace is PromQL's. They go into strings,
`{revision="{revision}"}`, and ranges, `[{elapsed}]`. After `=~` they are part of a regular
expression, in which the `.` and `+` of a revision are special. `{start}` is by the clock of the
controller, not the server's.
"""

from __future__ import annotations

import base64
import email.utils
import re
import typing as t
import urllib.parse
from collections.abc import Mapping, Sequence

from ..base.errors import InputError, MetricError
from ..base.text import clean
from ..inputs import values
from ..inputs.options import TEXT, Field, Kind, Options
from ..inputs.placeholders import QueryTemplate
from ..interfaces.context import DriverContext
from ..interfaces.metric import MetricDriver, Question
from ..remote import http_client
from . import _past, _source
from ._facts import facts


def _address(given: t.Any, variable: str) -> str:
    """Return the URL of Prometheus, which may have a path."""
    address = http_client.url(given, variable, ())
    if re.search(r"[?#{}]", address):
        raise InputError(f"{variable}: must not have ? or #; write https://host:9090", "PR-122")
    return address


def _label(given: t.Any, variable: str) -> str:
    if not re.fullmatch(r"[A-Za-z_]\w*", str(given)):
        raise InputError(
            f"{variable}: {given!r} is not the name of a label; use letters, digits and _", "PR-120"
        )
    return str(given)


def _promql(given: t.Any, variable: str) -> str:
    text = values.text(given, variable).strip()
    if not text:
        raise InputError(f"{variable}: must not be empty; write PromQL", "PR-125")
    QueryTemplate(text, variable)
    return text


_PROMQL = Kind("str", _promql)
OPTIONS = Options(
    Field(
        "address",
        Kind("str", _address),
        "URL of Prometheus (V(https://prometheus:9090)).",
        required=True,
    ),
    Field("query", _PROMQL, "PromQL expression for the current value."),
    *_past.OPTIONS.fields,
    Field(
        "errors",
        _PROMQL,
        "PromQL expression for the errors since the analysis began. Goes with C(requests), instead"
        " of C(query).",
    ),
    Field("requests", _PROMQL, "PromQL expression for the requests since the analysis began."),
    Field(
        "label", Kind("str", _label), "Label that tells the revisions apart.", default="revision"
    ),
    Field("username", TEXT, "User for basic authentication. Goes with C(password)."),
    Field("password", TEXT, "Password of the user.", no_log=True),
    Field("bearer_token", TEXT, "Token, instead of a user.", no_log=True),
    *_source.OPTIONS.fields,
)

STALE = 60.0  # seconds that samples may be older than the response
_PART = "rollout_part"  # the label that tells errors from requests in one answer
_COUNTS = ("errors", "requests")
_NOT_PROMETHEUS = (AttributeError, KeyError, OverflowError, TypeError, ValueError)

Value = t.TypeVar("Value")
Series = Sequence[tuple[Mapping[str, str], Value]]


class Driver(MetricDriver):
    """Measures by queries of Prometheus."""

    past = "range"

    def __init__(self, options: Mapping[str, t.Any], context: DriverContext) -> None:
        self._origin = http_client.origin(options["address"])
        self._address = options["address"].rstrip("/") + "/api/v1/query"
        self._counts, query = _query(options)
        self._past = _past.past(options)
        self._query = QueryTemplate(
            self._past.query(query) if self._past else query, "metric.query"
        )
        self._label = options["label"]
        self._source = _source.Source(options, _authorization(options), [options["password"] or ""])

    def measure(self, question: Question) -> t.Any:
        form = {
            "query": self._query.render(facts(question)),
            "timeout": f"{self._source.timeout:.3f}",
        }
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        answer, headers = self._source.ask(
            "POST", self._address, urllib.parse.urlencode(form).encode(), kind
        )
        if self._past:
            series = self._read_past(self._past, answer, headers)
            return {**self._past.together(self._sides(series, question)), "past": True}
        result = self._read(answer, headers)
        if self._counts:
            return self._counted(result, question)
        if question.paired:
            values = self._sides(result, question)
            return {
                side: numbers[0] if len(numbers) == 1 else numbers
                for side, numbers in values.items()
            }
        return result if isinstance(result, float) else [value for _labels, value in result]

    def _read(self, answer: t.Any, headers: Mapping[str, str]) -> float | Series[float]:
        """Return the number of a scalar, or the series of a vector. Raises MetricError."""
        try:
            kind, result = self._data(answer, ("scalar", "vector"), "a scalar or an instant vector")
            samples = (
                [({}, result)]
                if kind == "scalar"
                else [(entry["metric"], entry["value"]) for entry in result]
            )
            series = [(_labels(labels), float(number)) for labels, (_moment, number) in samples]
            ages = [_age(float(moment), headers) for _labels, (moment, _number) in samples]
        except _NOT_PROMETHEUS:
            raise self._strange() from None
        self._check(ages, STALE)
        return series[0][1] if kind == "scalar" else series

    def _read_past(
        self, past: _past.Past, answer: t.Any, headers: Mapping[str, str]
    ) -> Series[Sequence[tuple[float, float]]]:
        """Return the series of a matrix, each with its moments. Raises MetricError."""
        try:
            _kind, result = self._data(answer, ("matrix",), "an instant vector at each moment")
            series = [
                (
                    _labels(entry["metric"]),
                    [(float(moment), float(number)) for moment, number in entry["values"]],
                )
                for entry in result
            ]
            moments = [moment for _labels, points in series for moment, _number in points]
            ages = [_age(max(moments), headers)] if moments else []
            if not all(0 <= max(moments) - moment <= past.range + past.step for moment in moments):
                raise ValueError
        except _NOT_PROMETHEUS:
            raise self._strange() from None
        self._check(ages, STALE + past.step)
        return series

    def _data(self, answer: t.Any, kinds: Sequence[str], needed: str) -> tuple[str, t.Any]:
        """Return the kind of a result, and the result. Raises MetricError."""
        if answer["status"] != "success" or answer.get("warnings"):
            text = self._source.client.shown(
                str(answer.get("error") or answer.get("warnings")), self._address
            )
            raise MetricError(f"{self._origin} could not answer completely: {text}", "PR-425")
        kind, result = answer["data"]["resultType"], answer["data"]["result"]
        if kind not in kinds:
            raise MetricError(
                f"metric.query: the result is a {clean(kind, 60)}; it must be {needed}", "PR-423"
            )
        return kind, result

    def _strange(self) -> MetricError:
        return MetricError(f"{self._origin}: response is not that of a Prometheus query", "PR-425")

    def _check(self, ages: Sequence[float], most: float) -> None:
        """Raise MetricError where there are no series, or these are not of the present."""
        # a NaN is not fresh
        if stale := [age for age in ages if not age <= most]:
            raise MetricError(
                f"{self._origin}: the samples are {stale[0]:.0f} s older or newer than the"
                " response; check its clock, and for caches",
                "PR-425",
            )
        if not ages:
            raise MetricError(
                f"metric.{'requests' if self._counts else 'query'}: no series found at"
                f" {self._origin}",
                "PR-423",
            )

    def _counted(
        self, result: float | Series[float], question: Question
    ) -> dict[str, dict[str, float]]:
        """Return the requests and errors of both sides."""
        series = [] if isinstance(result, float) else result
        parts = {
            part: [count for count in series if count[0].get(_PART) == part] for part in _COUNTS
        }
        requests = self._sides(parts["requests"], question)
        errors = self._sides(parts["errors"], question, missing=True)
        counts = {
            side: {"requests": sum(requests[side]), "errors": sum(errors[side])}
            for side in requests
        }
        for side, count in counts.items():
            if count["errors"] > 1.1 * count["requests"] + 1:  # `increase` is an estimate
                raise MetricError(
                    f"metric.errors: the {side} side has {count['errors']:g} errors in"
                    f" {count['requests']:g} requests; both expressions must count the same"
                    " requests",
                    "PR-423",
                )
        return counts

    def _sides(
        self, result: float | Series[Value], question: Question, missing: bool = False
    ) -> dict[str, list[Value]]:
        """Return the values of the new and the stable revision; `missing`: there may be none."""
        revisions = {
            "new": question.rollout.get("revision"),
            "stable": question.rollout.get("stable"),
        }
        if not revisions["stable"] or revisions["new"] == revisions["stable"]:
            raise MetricError(
                "metric.label: needs a stable and a new revision to compare; a first deployment or"
                " restart has only one",
                "PR-424",
            )
        series = [] if isinstance(result, float) else result
        values = {
            side: [value for labels, value in series if labels.get(self._label) == name]
            for side, name in revisions.items()
        }
        for side, numbers in values.items():
            if not numbers and not missing:
                known_labels = sorted(
                    {labels.get(self._label, "") for labels, _value in series} - {""}
                )
                raise MetricError(
                    f"metric.label: no series has {self._label}={revisions[side]!r}; found:"
                    f" {', '.join(clean(label, 60) for label in known_labels[:5]) or 'none'}",
                    "PR-423",
                )
        return values


def _query(options: Mapping[str, t.Any]) -> tuple[bool, str]:
    """Return whether errors and requests are counted, and the PromQL."""
    given = {name: options[name] for name in ("query", *_COUNTS) if options[name] is not None}
    if sorted(given) not in (["query"], ["errors", "requests"]):
        raise InputError(
            f"metric: has {' and '.join(given) or 'no query'}; give either query, or errors and"
            " requests",
            "PR-107",
        )
    if "query" in given:
        return False, given["query"]
    # The line break ends a comment.
    return True, " or ".join(
        f'label_replace(({given[part]}\n), "{_PART}", "{part}", "", "")' for part in _COUNTS
    )


def _authorization(options: Mapping[str, t.Any]) -> dict[str, str]:
    """Return the header for authentication."""
    user, password, token = (options[name] for name in ("username", "password", "bearer_token"))
    named = any(str(name).lower() == "authorization" for name in options["headers"])
    if (user is None) != (password is None):
        raise InputError(
            "metric.username: needs password, and password needs username; give both, or none",
            "PR-107",
        )
    if (user is not None) + (token is not None) + named > 1:
        raise InputError(
            "metric.username: username, bearer_token and a header Authorization exclude each other;"
            " give one of them",
            "PR-107",
        )
    if user is not None and ":" in user:
        raise InputError(
            f"metric.username: {user!r} has a colon, which basic authentication does not allow",
            "PR-120",
        )
    if token is not None:
        return http_client.headers({"Authorization": f"Bearer {token}"}, "metric.bearer_token")
    if user is not None:
        return {
            "Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
        }
    return {}


def _labels(labels: Mapping[str, t.Any]) -> dict[str, str]:
    """Return the labels of a series, which are text."""
    if not all(isinstance(value, str) for value in labels.values()):
        raise TypeError
    return dict(labels)


def _age(moment: float, headers: Mapping[str, str]) -> float:
    """Return how many seconds samples and response differ, both by the server's clock.

    Return 0 without a Date.
    """
    kept = float(headers.get("Age") or 0)
    sent = headers.get("Date")
    return (
        abs(email.utils.parsedate_to_datetime(sent).timestamp() - moment) + kept if sent else kept
    )
